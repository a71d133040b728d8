"""Guided arms of campaigns: what their runs are, what is kept, and their numbers; and the guided swarm.

The rows decide everything. A row has the hashes of what its run reached (`coverage`), the names of those that no
row before it in the file had (`new_features`), `margins`, and for a mutant or a weighted run `search`: its parent
(None for a weighted run), its operators, the families and templates that weights chose, its root seed and, if it
is failing, the name of its experiment in the folder `corpus`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.campaigns.crew import Request, Row
from harness.campaigns.files import CORPUS_FOLDER
from harness.campaigns.guided.guidance import GENERATION, Counts, Entry, Guidance, Tally
from harness.campaigns.kept_runs import KeptRuns, is_failing
from harness.campaigns.plan import CampaignPlan
from harness.campaigns.requests import requests_of, run_command
from harness.campaigns.row_log import RowLog
from harness.campaigns.shrinking.trial import Trial
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment

FINDINGS_LISTED_MAX = 100


class GuidedArm:
    """What runs of one arm are, and what its rows add to the rows of the campaign. Mutable.

    Args:
        arm: Its name.
        experiment: What its runs draw from.
        first: The number of its first run.
        share: The share of runs that are mutants.
        path_of: Where the experiment of a run with a number is stored.
        seed_of: The seed with which a number is drawn; the number itself without it.
    """

    def __init__(
        self,
        arm: str,
        experiment: Experiment,
        first: int,
        share: float,
        path_of: Callable[[int], Path],
        seed_of: Callable[[int], int] = int,
    ) -> None:
        self._share = share
        self._path_of = path_of
        self._guidance = Guidance(
            arm, experiment, first, share=share, seed_of=seed_of, keep=self._keep
        )
        self._names: dict[str, str] = {}

    def notice(self, number: int, row: Row) -> None:
        """Takes a row that was written, in this process or an earlier one."""
        self._names.update(row.get("new_features", {}))
        self._guidance.add(number, row)

    def is_ready(self, number: int) -> bool:
        """Returns whether it is known what a run is."""
        return self._guidance.is_ready(number)

    def request(self, number: int, request: Request) -> Request:
        """Returns the request of a run as the guidance has it."""
        request = {**request, "coverage": True}
        step = self._guidance.step(number)
        if step is None:
            return request
        trial = step.mutant.trial
        return {
            **request,
            "experiment": experiments.to_data(trial.experiment),
            "root_seed": trial.seed,
        }

    def trial(self, number: int) -> Trial | None:
        """Returns what repeats a mutant or weighted run whose row was not taken yet; None for other runs."""
        step = self._guidance.step(number)
        return None if step is None else step.mutant.trial

    def stamp(self, number: int, row: Row) -> None:
        """Adds the origin of a run, and replaces the names of features by those that are new."""
        step = self._guidance.step(number)
        if step is not None:
            row["search"] = step.to_row()
            if is_failing(row) or row["unknown_reason"]:
                self.store(number, step.mutant.trial)
                row["search"]["file"] = self._path_of(number).name
        pairs = zip(row.get("coverage", ()), row.pop("feature_names", ()), strict=True)
        row["new_features"] = {key: name for key, name in pairs if key not in self._names}

    def command(self, number: int) -> str | None:
        """Returns the command that repeats a mutant or a weighted run; None for other runs."""
        step = self._guidance.step_of(number)
        if step is None:
            return None
        self.store(number, step.mutant.trial)
        return run_command(self._path_of(number).resolve(), step.mutant.trial.seed)

    def result(self) -> dict[str, Any]:
        """Returns the numbers of the search, of all runs that its last closed generation has."""
        self._guidance.finish()
        counts = self._guidance.counts
        return {
            "share": self._share,
            "generation": GENERATION,
            "features": self._guidance.features,
            "curve": counts.curve,
            "drawn": _tally(counts.drawn),
            "weighted": _tally(counts.weighted),
            "mutants": _tally(counts.mutants),
            "operators": {name: _tally(one) for name, one in counts.operators.items()},
            "kinds": _kinds(counts),
            "margins": dict(sorted(counts.margins.items())),
            "corpus": len(self._guidance.corpus),
            "findings": [
                self._finding(entry) for entry in self._guidance.corpus if entry.is_failing
            ][:FINDINGS_LISTED_MAX],
        }

    def _finding(self, entry: Entry) -> dict[str, Any]:
        step = entry.step
        return {
            "seed": entry.number,
            "parent": None if step is None else step.parent,
            "operators": [] if step is None else list(step.operators),
            "new_features": [self._names.get(one, one) for one in entry.new],
            "command": self.command(entry.number) or "",
        }

    def _keep(self, entry: Entry, trial: Trial) -> None:
        self.store(entry.number, trial)

    def store(self, number: int, trial: Trial) -> None:
        """Stores what repeats a run; a process that continues the campaign finds the same file."""
        path = self._path_of(number)
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            partial = path.with_suffix(".partial")
            partial.write_text(experiments.dumps(trial.experiment), encoding="utf-8")
            partial.rename(path)


class GuidedSwarm:
    """The source of a guided swarm, and what its ledger adds. The number of a run is its seed. Mutable.

    Args:
        plan: Of a swarm, with a guided share.
        directory: Of the campaign; new and failing runs are stored in its folder `corpus`.
    """

    def __init__(self, plan: CampaignPlan, directory: Path) -> None:
        ((arm, experiment),) = plan.arms.items()
        self._plan = plan
        self._arm = GuidedArm(
            arm,
            experiment,
            plan.first_seed,
            plan.guided,
            lambda number: directory / CORPUS_FOLDER / f"{number}.toml",
        )
        self._requests: Iterator[Request] = iter(())
        self._next: Request | None = None
        self.remaining = plan.total

    def notice(self, row: Row) -> None:
        """Takes a row that was written, in this process or an earlier one."""
        self._arm.notice(row["seed"], row)

    def start(self, kept: KeptRuns, rows: RowLog) -> None:
        """Begins with the first run without a row."""
        self._requests = (
            request
            for request in requests_of(self._plan, kept)
            if (request["arm"], request["seed"]) not in rows
        )
        self._next = next(self._requests, None)
        self.remaining = self._plan.total - len(rows)

    def has_real(self) -> bool:
        """Returns False: all runs are simulated."""
        return False

    def take(self, count: int, *, real: bool) -> Sequence[Request]:
        """Returns the next requests; fewer or none while they depend on runs that have not ended."""
        taken: list[Request] = []
        while len(taken) < count and self._next is not None:
            if not self._arm.is_ready(self._next["seed"]):
                break
            taken.append(self._arm.request(self._next["seed"], self._next))
            self._next = next(self._requests, None)
        self.remaining -= len(taken)
        return taken

    def stamp(self, row: Row) -> None:
        """Adds the origin of a run, and replaces the names of features by those that are new."""
        self._arm.stamp(row["seed"], row)

    def command(self, seed: int) -> str | None:
        """Returns the command that repeats a mutant or a weighted run; None for other runs."""
        return self._arm.command(seed)

    def result(self) -> dict[str, Any]:
        """Returns the numbers of the search, of all runs that its last closed generation has."""
        return self._arm.result()


def _tally(tally: Tally) -> dict[str, int]:
    return {"runs": tally.tries, "new": tally.new}


def _kinds(counts: Counts) -> Mapping[str, Any]:
    return {name: _tally(one) for name, one in counts.kinds.items() if one.tries}
