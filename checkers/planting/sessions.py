"""Plants in what one producer sent: the order of its records, its batches, and gaps in an idempotent session."""

from collections.abc import Callable, Iterator
from itertools import pairwise

from checkers.planting.copy import Copy, Row, forget, swap


def _sent_in_order(copy: Copy) -> Iterator[tuple[Row, Row]]:
    """Yields two successive appends of a process that are in that order in the log."""
    of_process: dict[int, list[Row]] = {}
    for append in sorted(copy.acked(), key=lambda row: int(row["op_index"])):
        of_process.setdefault(append["process"], []).append(append)
    for appends in of_process.values():
        yield from (pair for pair in pairwise(appends) if pair[0]["offset"] < pair[1]["offset"])


def _swap_sends(copy: Copy) -> None:
    swap(copy, *copy.some(list(_sent_in_order(copy)), "two acknowledged appends of one process"))


def _swap_separate_sends(copy: Copy) -> None:
    """Swaps two appends that were not in flight together; otherwise it would be a `reordered-send`."""
    separate = [
        (first, second)
        for first, second in _sent_in_order(copy)
        if first["completed_ns"] + copy.clock_error_ns < second["invoked_ns"]
    ]
    swap(
        copy,
        *copy.some(
            separate,
            "two acknowledged appends of one process of which the second began after the first was acknowledged",
        ),
    )


def _reorder(copy: Copy) -> None:
    together = [
        (first, second)
        for first, second in _sent_in_order(copy)
        if second["invoked_ns"] < first["completed_ns"]
    ]
    swap(
        copy, *copy.some(together, "two acknowledged appends that a process had in flight together")
    )


def _leave_gap(copy: Copy) -> None:
    pairs = list(_sent_in_order(copy))
    later = {second["op_index"] for _, second in pairs}
    # A leader that has nothing of the session accepts any sequence number.
    between = [pair for pair in pairs if pair[0]["op_index"] in later]
    missing, _ = copy.some(between, "three acknowledged appends of one process")
    copy.drop_record(missing["op_index"], copy.polls())
    forget(missing)


def _behind_another(copy: Copy) -> Row:
    later = [append for append in copy.acked() if append["batch"] is not None]
    append: Row = copy.some(later, "acknowledged record behind the first one of a batch")
    return append


def _tear(copy: Copy) -> None:
    missing = _behind_another(copy)
    copy.drop_record(missing["op_index"], copy.polls())
    forget(missing)


def _end_inside(copy: Copy) -> None:
    append = _behind_another(copy)
    copy.set_end(copy.some(copy.latest(), "observation of the log end"), append["offset"])


OF_SESSIONS = frozenset({"out-of-sequence", "producer-gap"})
"""What is judged only if the run declares that its producers are idempotent."""
CHANGES: tuple[tuple[str, str, Callable[[Copy], object]], ...] = (
    (
        "nonmonotonic-send",
        "two appends of one process, sent one after the other, change places",
        _swap_separate_sends,
    ),
    ("reordered-send", "two appends that were in flight together change places", _reorder),
    ("out-of-sequence", "two records of one session change places", _swap_sends),
    (
        "producer-gap",
        "a session's record is missing, and those before and after it are there",
        _leave_gap,
    ),
    ("torn-batch", "a batch lacks a record behind its first one", _tear),
    ("end-in-batch", "a log end is at a record behind the first one of a batch", _end_inside),
)
