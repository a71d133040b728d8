"""Shrinks a stored run, and stores the result as a run of its own, with `shrink.json`.

The paragraph on the cause contains facts only: what the verdict states, what the story of the shrunk run lists up
to the decisive moment, and which faults were found to be needed, because the run without each of them was made.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.campaigns.crew import Crew, LocalWorker
from harness.campaigns.shrinking.finding import find, shows, why_not
from harness.campaigns.shrinking.shrinker import Shrinker
from harness.campaigns.shrinking.source import Source
from harness.campaigns.shrinking.steady import Steadier
from harness.campaigns.shrinking.trial import Trial, numbers_of
from harness.campaigns.shrinking.trial_runs import OutOfBudgetError, TrialRuns
from harness.campaigns.signature import findings_of
from harness.contracts.progress import ProgressDisplay
from harness.errors import HarnessFailure, UsageError
from harness.runs.judge import judge_result
from harness.runs.record import finish_run, record_run
from results.layout import RunFiles
from results.report.night_story import key_entries
from results.report.story import Entry
from results.store import RunStore, read_json, write_json

SCHEMA = 1
SUFFIX = "-shrunk"
_NAME_MAX = 100
INTERRUPTED = "an interruption"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a search may use.

    Attributes:
        jobs: How many trials run at once; changes no result.
        runs_max: How many trials may be needed; None for no limit.
        budget_s: How long it may take; None for no limit. What it finds then depends on the machine.
    """

    jobs: int
    runs_max: int | None = None
    budget_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """What a search found.

    Attributes:
        source: What was shrunk.
        best: The smallest run.
        before, after: How large the run was and is (`trial.numbers_of`).
        runs: How many trials were needed.
        ended: Why the search ended early; empty if nothing could be made smaller.
    """

    source: Source
    best: Trial
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    runs: int
    ended: str

    @property
    def was_interrupted(self) -> bool:
        """Whether the user ended the search."""
        return self.ended == INTERRUPTED


def shrink(source: Source, limits: Limits, progress: ProgressDisplay) -> Shrunk:
    """Searches the smallest run that shows the finding of a stored run. An interruption ends the search.

    Args:
        source: What to shrink.
        limits: How much the search may use.
        progress: Shows how far it is.

    Raises:
        UsageError: The simulation does not show the finding with the explicit schedule.
        HarnessFailure: A worker died.
        KeyboardInterrupt: It was interrupted before the finding was shown.
    """
    with _trial_runs(limits, progress) as trial_runs:
        return _search(source, trial_runs)


def steady(shrunk: Shrunk, limits: Limits, progress: ProgressDisplay) -> Trial:
    """Returns the smallest run as a trial that depends less on exact times, for worlds where time is real.

    Args:
        shrunk: What a search found.
        limits: How many trials run at once.
        progress: Shows how far it is.

    Raises:
        HarnessFailure: A worker died.
    """
    with _trial_runs(replace(limits, runs_max=None, budget_s=None), progress) as trial_runs:
        row = trial_runs.row(shrunk.best)
        return Steadier(shrunk.best, row, shrunk.source.wanted, trial_runs).run()


@contextmanager
def _trial_runs(limits: Limits, progress: ProgressDisplay) -> Iterator[TrialRuns]:
    """Yields what runs trials; its workers end with the block."""
    with tempfile.NamedTemporaryFile(
        prefix="laststand-shrink-", suffix=".log", delete=False
    ) as log:
        try:
            with Crew([LocalWorker(log) for _ in range(limits.jobs)], limits.jobs) as crew:
                yield TrialRuns(
                    crew, runs_max=limits.runs_max, budget_s=limits.budget_s, progress=progress
                )
        except HarnessFailure:
            raise  # its message names the log, which stays
        except BaseException:
            Path(log.name).unlink()
            raise
        Path(log.name).unlink()


def _search(source: Source, trial_runs: TrialRuns) -> Shrunk:
    try:
        row = trial_runs.row(source.trial)
    except OutOfBudgetError as limit:
        raise UsageError(
            f"{limit} was used up before {source.run} was repeated once; allow more"
        ) from None
    idle_max = len(row["effects"]["faults"]) if "effects" in row else 0
    if not shows(row, source.wanted, idle_max=idle_max):
        because = f" ({source.is_changed})" if source.is_changed else ""
        raise UsageError(
            f"{source.run} cannot be shrunk: repeated in the simulation with its faults as an explicit schedule, "
            f"it does not show {source.finding['title']!r}; {why_not(row, source.wanted)}{because}"
        )
    shrinker = Shrinker(source.trial, row, source.wanted, trial_runs)
    ended = ""
    try:
        shrinker.run()
    except KeyboardInterrupt:
        ended = INTERRUPTED
    return Shrunk(
        source=source,
        best=shrinker.best,
        before=numbers_of(source.trial, row["effects"]["appends"]),
        after=numbers_of(shrinker.best, shrinker.row["effects"]["appends"]),
        runs=trial_runs.runs,
        ended=ended or shrinker.ended,
    )


def store_shrunk(shrunk: Shrunk, store: RunStore, *, now: datetime, folder: str = "") -> Path:
    """Runs the smallest run once more, and stores it with its verdict, report and `shrink.json`.

    Args:
        shrunk: What a search found.
        store: Where.
        now: Part of the run's name.
        folder: The folder of the run in the store; the experiment's name by default.

    Raises:
        HarnessFailure: The run does not show the finding again.
    """
    best = _named(shrunk.best)
    directory, result = record_run(best.experiment, best.seed, store, now=now, folder=folder)
    verdict, _ = judge_result(best.experiment, best.seed, result)
    summary = finish_run(directory, store.run_id(directory), verdict)
    findings = [
        finding.to_json() for finding in findings_of(best.experiment, result.tables, verdict)
    ]
    finding = find(findings, shrunk.source.wanted)
    if not finding:
        raise HarnessFailure(
            f"the shrunk run {directory} does not show the finding again, so the simulation is not deterministic"
        )
    write_json(RunFiles(directory).run, {**summary, "shrunk_from": shrunk.source.run})
    entries = key_entries(directory, finding["parts"]["at_ns"])
    data = {
        "schema": SCHEMA,
        "of": shrunk.source.run,
        "signature": shrunk.source.finding["signature"],
        "title": shrunk.source.finding["title"],
        "before": dict(shrunk.before),
        "after": dict(shrunk.after),
        "runs": shrunk.runs,
        "ended": shrunk.ended,
        "cause": cause(finding["parts"]["sentence"], entries, shrunk),
    }
    write_json(RunFiles(directory).shrink, data)
    return directory


def load_shrunk(directory: Path) -> dict[str, Any]:
    """Reads what is known of a shrunk run.

    Raises:
        FileNotFoundError: The run is no shrunk run.
        HistoryError: The file is damaged.
    """
    return read_json(RunFiles(directory).shrink)


def cause(sentence: str, entries: list[Entry], shrunk: Shrunk) -> str:
    """Returns one paragraph on the cause, which consists of facts.

    Args:
        sentence: What the verdict states about the shrunk run.
        entries: Its story up to the decisive moment.
        shrunk: What the search found.
    """
    parts = [_ended(sentence)]
    if entries:
        told = "; ".join(f"{_when(entry)} {_told(entry)}" for entry in entries)
        parts.append(f"What happened before, in seconds since the start of the run: {told}.")
    return " ".join([*parts, *_needed(shrunk)])


def _when(entry: Entry) -> str:
    return "at an unknown time" if entry.at_ns is None else f"at {entry.at_ns / 1e9:.3f} s"


def _needed(shrunk: Shrunk) -> list[str]:
    faults = len(shrunk.best.schedule)
    if not faults:
        return ["No fault is needed."]
    if shrunk.ended:
        return [f"The search ended because of {shrunk.ended}, so a smaller run may exist."]
    if faults == 1:
        return ["Without the fault, the same experiment and seed did not show the finding."]
    # A run counts only if no other fault of it stays without effect (`finding.shows`).
    return [
        f"Without any one of the {faults} faults, the same experiment and seed did not show the finding with all "
        "the others in effect."
    ]


def _told(entry: Entry) -> str:
    changes = ", ".join(f"{one.name} {one.before} -> {one.after}" for one in entry.changes)
    return f"{entry.title} ({changes})" if changes else entry.title


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


def _named(trial: Trial) -> Trial:
    """Returns the trial under a name of its own, which is the folder of its runs."""
    name = trial.experiment.name.removesuffix(SUFFIX)
    name = f"{name[: _NAME_MAX - len(SUFFIX)]}{SUFFIX}"
    return replace(trial, experiment=replace(trial.experiment, name=name))
