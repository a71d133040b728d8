"""A guided swarm: its source of requests, what it keeps, and its numbers.

The rows decide everything. A row has the hashes of what its run reached (`coverage`), the names of those that no
row before it in the file had (`new_features`), `margins`, and for a mutant `search`: its parent, its operators and
its root seed.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.campaigns.crew import Request, Row
from harness.campaigns.files import CORPUS_FOLDER
from harness.campaigns.guided.guidance import GENERATION, Counts, Entry, Guidance, Tally
from harness.campaigns.kept_runs import KeptRuns
from harness.campaigns.plan import CampaignPlan
from harness.campaigns.requests import requests_of, run_command
from harness.campaigns.row_log import RowLog
from harness.campaigns.shrinking.trial import Trial
from harness.runs import experiment_file as experiments

FINDINGS_LISTED_MAX = 100


class GuidedSwarm:
    """The source of a guided swarm, and what its ledger adds. Mutable.

    Args:
        plan: Of a swarm, with a guided share.
        directory: Of the campaign; new and failing runs are stored in its folder `corpus`.
    """

    def __init__(self, plan: CampaignPlan, directory: Path) -> None:
        ((arm, experiment),) = plan.arms.items()
        self._plan = plan
        self._directory = directory
        self._guidance = Guidance(
            arm, experiment, plan.first_seed, share=plan.guided, keep=self._keep
        )
        self._names: dict[str, str] = {}
        self._requests: Iterator[Request] = iter(())
        self._next: Request | None = None
        self.remaining = plan.total

    def notice(self, row: Row) -> None:
        """Takes a row that was written, in this process or an earlier one."""
        self._names.update(row.get("new_features", {}))
        self._guidance.add(row)

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
            if not self._guidance.is_ready(self._next["seed"]):
                break
            taken.append(self._request(self._next))
            self._next = next(self._requests, None)
        self.remaining -= len(taken)
        return taken

    def _request(self, request: Request) -> Request:
        request = {**request, "coverage": True}
        step = self._guidance.step(request["seed"])
        if step is None:
            return request
        trial = step.mutant.trial
        return {
            **request,
            "experiment": experiments.to_data(trial.experiment),
            "root_seed": trial.seed,
        }

    def stamp(self, row: Row) -> None:
        """Adds the origin of a run, and replaces the names of features by those that are new."""
        step = self._guidance.step(row["seed"])
        if step is not None:
            row["search"] = step.to_row()
        pairs = zip(row.get("coverage", ()), row.pop("feature_names", ()), strict=True)
        row["new_features"] = {key: name for key, name in pairs if key not in self._names}

    def command(self, seed: int) -> str | None:
        """Returns the command that repeats a mutant; None for a run that was drawn from its number."""
        step = self._guidance.step_of(seed)
        if step is None:
            return None
        self._store(seed, step.mutant.trial)
        return run_command(self._path(seed).resolve(), step.mutant.trial.seed)

    def result(self) -> dict[str, Any]:
        """Returns the numbers of the search, of all runs that its last closed generation has."""
        self._guidance.finish()
        counts = self._guidance.counts
        return {
            "share": self._plan.guided,
            "generation": GENERATION,
            "features": self._guidance.features,
            "curve": counts.curve,
            "drawn": _tally(counts.drawn),
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
        self._store(entry.number, trial)

    def _store(self, number: int, trial: Trial) -> None:
        """Stores what repeats a run; a process that continues the campaign finds the same file."""
        path = self._path(number)
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            partial = path.with_suffix(".partial")
            partial.write_text(experiments.dumps(trial.experiment), encoding="utf-8")
            partial.rename(path)

    def _path(self, number: int) -> Path:
        return self._directory / CORPUS_FOLDER / f"{number}.toml"


def _tally(tally: Tally) -> dict[str, int]:
    return {"runs": tally.tries, "new": tally.new}


def _kinds(counts: Counts) -> Mapping[str, Any]:
    return {name: _tally(one) for name, one in counts.kinds.items() if one.tries}
