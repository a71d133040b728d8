"""What a search for defects is to run, decided before it starts and stored with it.

Every defect has two arms, because a broken invariant ends a run: in one the invariant monitor watches, in the
other clients alone decide. A third arm has the defect off; it runs the seeds of findings only, since what it shows
as well is not the defect's doing. Arms of defects that need the same system with the defect off share it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.campaigns.files import PLAN_FILE, SEARCH
from harness.campaigns.plan import share_of, store_durably
from harness.defects.table import GROUP_FAULTS, TRANSACTION_DEFECTS
from harness.errors import HistoryError
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment
from results.store import read_json
from system_under_test.config import DEFAULT_PROFILE
from system_under_test.defects import DEFECTS, Defect

PLAN_SCHEMA = 1
MONITOR, CLIENTS, OFF = "monitor", "clients", "off"
"""What an arm is for: the invariant monitor, what clients see, and the system without the defect."""
_EXPERIMENTS = Path(__file__).parents[1] / "experiments"
BUILT_IN = {
    "": _EXPERIMENTS / "search.toml",
    "groups": _EXPERIMENTS / "search-groups.toml",
    "transactions": _EXPERIMENTS / "search-transactions.toml",
}
"""What runs, by what a defect is about; "" if it is about partitions alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One experiment, run with many seeds.

    Attributes:
        name: Identifies it, for example "B-18 clients".
        defect: Identifier of the defect that is on; empty if none is.
        oracle: `MONITOR`, `CLIENTS` or `OFF`.
        experiment: What runs.
        off: Name of the arm with the defect off; empty for that arm itself.
    """

    name: str
    defect: str
    oracle: str
    experiment: Experiment
    off: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """What a search is to run.

    Attributes:
        arms: All arms by name.
        runs: How many runs an arm has at most.
        cpu_s: How much processor time they take at most.
        first_seed: The first seed of every arm.
        started: When the search began (`results.layout.utc_stamp`).
        code: Version of the code (`harness.runs.code_version`).
        guided: The share of the runs that are mutated; 0 without guidance.
    """

    arms: Mapping[str, Arm]
    runs: int
    cpu_s: float
    first_seed: int
    started: str
    code: str
    guided: float = 0.0

    def experiment_path(self, directory: Path, arm: str) -> Path:
        """Returns where the experiment of an arm is stored."""
        return directory / f"{arm.replace(' ', '-')}.toml"

    def to_json(self) -> dict[str, Any]:
        """Returns the content of the plan file."""
        return {
            "schema": PLAN_SCHEMA,
            "kind": SEARCH,
            "arms": [
                {
                    "name": arm.name,
                    "defect": arm.defect,
                    "oracle": arm.oracle,
                    "off": arm.off,
                    "experiment": experiments.to_data(arm.experiment),
                }
                for arm in self.arms.values()
            ],
            "runs": self.runs,
            "cpu_s": self.cpu_s,
            "first_seed": self.first_seed,
            "started": self.started,
            "code": self.code,
            "guided": self.guided,
        }


def arms_of(
    defects: Sequence[Defect], experiment: Experiment | None, *, guided: bool = False
) -> dict[str, Arm]:
    """Returns the arms of several defects.

    A defect that no invariant shows has no arm with the monitor, and one that does clients no harm none without.

    Args:
        defects: In order.
        experiment: What runs; None for the built-in experiments.
        guided: Whether runs may be mutated. The same seed then is another run in each arm, so each has an arm of
            its own with the defect off.
    """
    arms: dict[str, Arm] = {}
    for defect in defects:
        base = experiment or experiments.load(BUILT_IN[_subject(defect)])
        # The profile is the defect's, whatever a seed would draw.
        base = replace(
            base, space={key: draws for key, draws in base.space.items() if key != "profile"}
        )
        # A defect without rules is a property of its profile; the newest release is without it.
        safe = defect.profile if defect.rules else DEFAULT_PROFILE
        shared = " ".join(filter(None, [OFF, safe, _subject(defect)]))
        on = replace(base, profile=defect.profile, disabled_rules=defect.rules)
        oracles = ((MONITOR, defect.invariants), (CLIENTS, defect.anomalies))
        for oracle in (oracle for oracle, wanted in oracles if wanted):
            name = f"{defect.id} {oracle}"
            off = f"{shared} for {name}" if guided else shared
            arms.setdefault(
                off,
                Arm(name=off, defect="", oracle=OFF, experiment=without_defect(base, safe), off=""),
            )
            arms[name] = Arm(
                name=name,
                defect=defect.id,
                oracle=oracle,
                experiment=replace(on, check_invariants=oracle == MONITOR),
                off=off,
            )
    return arms


def without_defect(experiment: Experiment, profile: str) -> Experiment:
    """Returns an experiment with every defect off, under a profile that has none."""
    return replace(experiment, profile=profile, disabled_rules=(), check_invariants=True)


def _subject(defect: Defect) -> str:
    if defect.id in GROUP_FAULTS:
        return "groups"
    return "transactions" if defect.id in TRANSACTION_DEFECTS else ""


def store_search(plan: SearchPlan, directory: Path) -> None:
    """Writes the plan, and the experiment of every arm as a file that `laststand run` takes; durably."""
    for name, arm in plan.arms.items():
        path = plan.experiment_path(directory, name)
        path.write_text(experiments.dumps(arm.experiment), encoding="utf-8")
    store_durably(directory / PLAN_FILE, plan.to_json())


def load_search(directory: Path) -> SearchPlan:
    """Reads the plan of a search.

    Raises:
        HistoryError: There is none, or it is damaged.
    """
    path = directory / PLAN_FILE
    try:
        data = read_json(path)
        if data["kind"] != SEARCH:
            raise HistoryError(
                f"{directory} is a campaign of `laststand {data['kind']}`, not of `laststand defects search`"
            )
        arms = [
            Arm(
                name=arm["name"],
                defect=arm["defect"],
                oracle=arm["oracle"],
                off=arm["off"],
                experiment=experiments.from_data(arm["experiment"]),
            )
            for arm in data["arms"]
        ]
        if unknown := [arm.defect for arm in arms if arm.defect and arm.defect not in DEFECTS]:
            raise HistoryError(f"{path} names a defect that does not exist: {unknown[0]}")
        names = {arm.name for arm in arms if arm.oracle == OFF}
        for arm in arms:
            if arm.oracle not in (MONITOR, CLIENTS, OFF):
                raise ValueError(f"{arm.name} has the oracle {arm.oracle!r}")
            if arm.oracle != OFF and arm.off not in names:
                raise ValueError(f"{arm.name} names the arm {arm.off!r}, which does not exist")
        if min(int(data["runs"]), int(data["first_seed"])) < 0 or not float(data["cpu_s"]) > 0:
            raise ValueError("runs, cpu_s or first_seed is below what a search can have")
        return SearchPlan(
            arms={arm.name: arm for arm in arms},
            runs=int(data["runs"]),
            cpu_s=float(data["cpu_s"]),
            first_seed=int(data["first_seed"]),
            started=str(data["started"]),
            code=str(data["code"]),
            guided=share_of(data),
        )
    except FileNotFoundError:
        raise HistoryError(f"{directory} is not a campaign: it has no {PLAN_FILE}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HistoryError(f"{path} is damaged: {type(error).__name__}: {error}") from None
