"""Plants in what one producer sent: the order of its records, its batches, and gaps in an idempotent session."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

from checkers.planting.cleaner import some_kept
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
    # A leader that has nothing of the session accepts any sequence number.
    before = {second["op_index"]: first for first, second in pairs}
    between = [
        missing
        for missing, _ in pairs
        if missing["op_index"] in before and _is_alone(copy, before[missing["op_index"]], missing)
    ]
    missing = some_kept(copy, between, "three acknowledged appends of one process")
    copy.drop_record(missing["op_index"], copy.polls())
    forget(missing)


def _is_alone(copy: Copy, before: Row, missing: Row) -> bool:
    """Returns whether no final read of a compacted topic returned another record of a key behind an append.

    If one did, the missing record may have been in between, and have been removed since.
    """
    return not copy.compacted or not any(
        record["key"] == missing["key"] != ""
        and record["value"] != missing["op_index"]
        and record["offset"] > before["offset"]
        for poll in copy.polls(final=True)
        for record in copy.read(poll)
    )


def _behind_another(copy: Copy) -> list[Row]:
    """Returns acknowledged appends behind the first one of a batch of which the final reads returned another."""
    acked = copy.acked()
    count = Counter(_head(append) for append in acked)
    return [row for row in acked if row["batch"] is not None and count[_head(row)] > 1]


def _head(append: Row) -> int:
    """Returns the first append of the batch that carried an append."""
    head: int = append["op_index"] if append["batch"] is None else append["batch"]
    return head


def _tear(copy: Copy) -> None:
    missing = some_kept(
        copy, _behind_another(copy), "acknowledged record behind the first one of a batch"
    )
    copy.drop_record(missing["op_index"], copy.polls())
    forget(missing)


def _end_inside(copy: Copy) -> None:
    append = copy.some(_behind_another(copy), "acknowledged record behind the first one of a batch")
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
