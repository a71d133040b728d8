"""Which runs of a campaign are stored whole, below its folder `runs`.

A run is failing if it is invalid, violated an invariant, or ended in an error. The first N failing runs, in the
order of the plan, are stored by the worker that ran them: it has the history in memory, and no second run is
needed.

While runs are in progress it is not known yet which failing ones are the first. A worker therefore stores its run
whenever fewer than N failing runs before it are known; runs that turn out not to be among the first are removed.
The result is the same for any number of workers, and with any number of interruptions.
"""

import bisect
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from harness.campaigns.files import RUNS_FOLDER
from harness.contracts.verdict import Verdict
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment
from harness.runs.record import store_run
from harness.runs.result import RunResult
from results.layout import RunFiles
from results.store import write_json


def is_failing(row: Mapping[str, Any]) -> bool:
    """Returns whether a run is invalid, violated an invariant, or ended in an error.

    A run of a scripted scenario is as it should be if it had the predicted outcome, which may be a loss.
    """
    if row["error"] or row["violations"]:
        return True
    if row["predicted"]:
        return bool(row["outcome"] != row["predicted"])
    return bool(row["verdict"] == "invalid")


def stored_run(directory: Path, row: Mapping[str, Any]) -> Path | None:
    """Returns where a run of a campaign is stored whole, None if it is not."""
    path = directory / RUNS_FOLDER / str(row["run"])
    return path if RunFiles(path).run.is_file() else None


class KeptRuns:
    """Decides which runs are stored. Mutable: it counts the failing runs.

    Args:
        directory: The campaign's directory.
        limit: How many failing runs are stored.
        keeps_all: Store every run; in real environments a run cannot be repeated from its seed.
    """

    def __init__(self, directory: Path, limit: int, *, keeps_all: bool = False) -> None:
        self.root = directory / RUNS_FOLDER
        self._limit = limit
        self._keeps_all = keeps_all
        self._first: list[tuple[int, str]] = []
        self._every: set[str] = set()

    def wants(self, index: int) -> bool:
        """Returns whether the run with this number in the plan has to be stored if it fails."""
        if self._keeps_all or len(self._first) < self._limit:
            return True
        return bool(self._first) and index < self._first[-1][0]

    def notice(self, row: Mapping[str, Any]) -> None:
        """Counts a finished run; removes a stored run that is no longer among the first."""
        if self._keeps_all:
            self._every.add(row["run"])
        elif is_failing(row):
            bisect.insort(self._first, (row["index"], row["run"]))
            for _, run in self._first[self._limit :]:
                shutil.rmtree(self.root / run, ignore_errors=True)
            del self._first[self._limit :]

    def clean(self) -> None:
        """Removes what an interrupted process stored of runs that have no row, because they run again."""
        remove_all_but(self.root, {run for _, run in self._first} | self._every)


def remove_all_but(root: Path, wanted: Collection[str]) -> None:
    """Removes all stored runs below a folder except for these, for example what a process left that was killed."""
    for path in root.glob("*/*"):
        if path.relative_to(root).as_posix() not in wanted:
            shutil.rmtree(path, ignore_errors=True)


def keep_run(
    directory: Path,
    run_id: str,
    experiment: Experiment,
    seed: int,
    result: RunResult,
    verdict: Verdict | None,
) -> None:
    """Stores a simulated run from memory; the directory appears when it is complete.

    Args:
        directory: Where; replaced if a process that was killed later stored the same run there.
        run_id: Its name in the campaign.
        experiment: What was run.
        seed: Its root seed.
        result: What happened.
        verdict: None if it could not be judged.
    """
    with _Appearing(directory) as partial:
        store_run(partial, run_id, experiment, seed, result, verdict, place=directory)


def keep_error(directory: Path, run_id: str, row: Mapping[str, Any], experiment: Any) -> None:
    """Stores what is known of a run that left nothing behind: its experiment, and its row as summary."""
    with _Appearing(directory) as partial:
        files = RunFiles(partial)
        write_json(files.run, {**row, "run": run_id})
        text = experiments.dumps(experiments.from_data(experiment))
        files.experiment.write_text(text, encoding="utf-8")


def note_error(directory: Path, run_id: str, row: Mapping[str, Any]) -> None:
    """Adds the row of a real run that did not finish as its summary, so that it counts as stored.

    What the run has recorded stays, and so do the logs of its nodes; their data does not.
    """
    if not directory.is_dir() or RunFiles(directory).run.is_file():
        return
    for data in directory.glob("nodes/*/data"):
        shutil.rmtree(data, ignore_errors=True)
    write_json(RunFiles(directory).run, {**row, "run": run_id})


class _Appearing:
    """A directory that is made under another name, and renamed when the block ends without an error."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._partial = directory.with_name(f".{directory.name}.{os.getpid()}.partial")

    def __enter__(self) -> Path:
        self._partial.mkdir(parents=True)
        return self._partial

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._partial.rename(self._directory)
        else:
            shutil.rmtree(self._partial, ignore_errors=True)
