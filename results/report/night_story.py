"""The few entries of a run's story that explain its finding, for the page of a night."""

from collections.abc import Sequence
from pathlib import Path

from results.report.run import RunData
from results.report.story import Entry, story_of, time_of

ENTRIES_MAX = 12
WEIGHT_MIN = 6
"""Faults, elections, changes of the ISR, lost data; not marks, and not replicas that rejoin."""

LOSS_WITHIN_NS = 1_000_000_000
"""How long after an election the loss that it caused is shown with it."""


def key_entries(run_dir: Path, at_ns: int) -> list[Entry]:
    """Returns what led to a finding of a run, in order of time; what has no time is left out.

    Args:
        run_dir: The run.
        at_ns: The decisive moment; 0 if it is not known, then the first loss or the end of the main phase counts.

    Raises:
        HistoryError: The run is missing or damaged.
    """
    entries = [entry for entry in story_of(RunData(run_dir)).entries if entry.at_ns is not None]
    end = _decisive(entries, at_ns)
    kept = [entry for entry in entries[:end] if entry.weight >= WEIGHT_MIN and not _is_idle(entry)]
    # The elected replica learns of its election a little later, and only then are the records gone.
    lost = [
        entry
        for entry in entries[end:]
        if at_ns and entry.kind == "lost" and time_of(entry) - at_ns <= LOSS_WITHIN_NS
    ]
    return [*kept[-ENTRIES_MAX:], *lost[:1]]


def _is_idle(entry: Entry) -> bool:
    """Whether it is a fault that did not take effect."""
    return entry.kind == "fault" and entry.tone == "odd"


def _decisive(entries: Sequence[Entry], at_ns: int) -> int:
    """Returns the index after the decisive moment."""
    if at_ns:
        return sum(time_of(entry) <= at_ns for entry in entries)
    for index, entry in enumerate(entries):
        if entry.kind == "lost" and entry.tone == "bad":
            return index + 1
    for index, entry in enumerate(entries):
        if entry.kind == "phase":
            return index
    return len(entries)
