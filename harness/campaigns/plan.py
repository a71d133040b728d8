"""What a campaign is to run, decided before it starts and stored with it as `plan.json`.

A campaign that was interrupted continues from its plan (`--resume`), and from nothing else: the same arms, the
same seeds, the same code. The number of workers, or whether Spark distributes the runs, is no part of the plan,
because it changes no result.
"""

import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.campaigns.files import NIGHTLY, PLAN_FILE, SEARCH
from harness.errors import HistoryError, UsageError
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment
from results.store import read_json, write_json

PLAN_SCHEMA = 1
KEEP_FAILING = 10
"""A page of failing runs is more than a person reads of one campaign; every run can be repeated by its seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignPlan:
    """What a campaign is to run.

    Attributes:
        kind: "swarm" or "compare".
        arms: The experiment of each arm, by the arm's name, in order.
        seeds: How many seeds each arm runs.
        first_seed: The first of them.
        vary: What distinguishes the arms of a comparison, as `--vary` takes it.
        keep_failing: How many failing runs are stored whole.
        guided: The share of runs that are mutations of new runs (`harness.campaigns.guided`); 0 for none.
        coverage: Whether what the runs reached is counted; always so if guided.
        started: When the campaign began (`results.layout.utc_stamp`); part of the names of its stored runs.
        code: Version of the code (`harness.runs.code_version`).
    """

    kind: str
    arms: Mapping[str, Experiment]
    seeds: int
    first_seed: int
    vary: str = ""
    keep_failing: int = KEEP_FAILING
    guided: float = 0.0
    coverage: bool = False
    started: str
    code: str

    @property
    def is_simulated(self) -> bool:
        """Whether its runs are simulated; all arms have the same environment."""
        return next(iter(self.arms.values())).environment.is_simulated

    @property
    def total(self) -> int:
        """How many runs it has."""
        return self.seeds * len(self.arms)

    def keys(self) -> Iterator[tuple[str, int]]:
        """Yields (arm, seed) of every run, in the order in which they start."""
        for seed in range(self.first_seed, self.first_seed + self.seeds):
            for name in self.arms:
                yield name, seed

    def arm_number(self, name: str) -> int:
        """Returns the number of an arm, from 1."""
        return list(self.arms).index(name) + 1

    def experiment_path(self, directory: Path, arm: str) -> Path:
        """Returns where the experiment of an arm is stored."""
        return directory / f"arm-{self.arm_number(arm)}.toml"

    def to_json(self) -> dict[str, Any]:
        """Returns the content of the plan file."""
        return {
            "schema": PLAN_SCHEMA,
            "kind": self.kind,
            "arms": [
                {"name": name, "experiment": experiments.to_data(arm)}
                for name, arm in self.arms.items()
            ],
            "seeds": self.seeds,
            "first_seed": self.first_seed,
            "vary": self.vary,
            "keep_failing": self.keep_failing,
            "guided": self.guided,
            "coverage": self.coverage,
            "started": self.started,
            "code": self.code,
        }


def store_plan(plan: CampaignPlan, directory: Path) -> None:
    """Writes the plan, and the experiment of every arm as a file that `laststand run` takes; durably."""
    for name, experiment in plan.arms.items():
        path = plan.experiment_path(directory, name)
        path.write_text(experiments.dumps(experiment), encoding="utf-8")
    store_durably(directory / PLAN_FILE, plan.to_json())


def store_durably(path: Path, data: Mapping[str, Any]) -> None:
    """Writes a JSON file that is still there after the machine lost power."""
    write_json(path, data)
    for name in (path, path.parent, path.parent.parent):
        descriptor = os.open(name, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def load_plan(directory: Path) -> CampaignPlan:
    """Reads the plan of a campaign.

    Raises:
        HistoryError: There is none, or it is damaged.
    """
    path = directory / PLAN_FILE
    try:
        data = read_json(path)
    except FileNotFoundError:
        raise HistoryError(f"{directory} is not a campaign: it has no {PLAN_FILE}") from None
    if data.get("kind") == NIGHTLY:
        raise HistoryError(
            f"{directory} is a night; `laststand nightly --resume {shlex.quote(str(directory))}` continues it"
        )
    if data.get("kind") == SEARCH:
        raise HistoryError(
            f"{directory} is a search for defects; `laststand defects search --resume "
            f"{shlex.quote(str(directory))}` continues it"
        )
    if data.get("schema") != PLAN_SCHEMA:
        raise HistoryError(f"{path} is not a campaign's plan of schema {PLAN_SCHEMA}")
    try:
        if not data["arms"]:
            raise ValueError("it has no arms")
        return CampaignPlan(
            kind=str(data["kind"]),
            arms={
                str(arm["name"]): experiments.from_data(arm["experiment"]) for arm in data["arms"]
            },
            seeds=int(data["seeds"]),
            first_seed=int(data["first_seed"]),
            vary=str(data["vary"]),
            keep_failing=int(data["keep_failing"]),
            guided=share_of(data),
            coverage=bool(data.get("coverage", False)),
            started=str(data["started"]),
            code=str(data["code"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise HistoryError(f"{path} is damaged: {error}") from None


def share_of(data: Mapping[str, Any]) -> float:
    """Returns which share of the runs of a stored plan is mutated; 0 in plans of earlier versions.

    Raises:
        ValueError: It is no share.
    """
    share = float(data.get("guided", 0.0))
    if not 0 <= share <= 1:
        raise ValueError(f"guided is {share:g}, which is no share from 0 to 1")
    return share
