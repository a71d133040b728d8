"""Plants in the order and the time of what clients saw."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise

from checkers.planting.cleaner import Cleaner
from checkers.planting.copy import Copy, Row, end_ns, neighbours, swap


def _invert(copy: Copy) -> None:
    swap(copy, *neighbours(copy))


def _read_early(copy: Copy) -> None:
    first = min(row["invoked_ns"] for row in copy.operations.values())
    newest = {
        append["op_index"]: append
        for append in _sent_after_all_below(copy)
        if append["invoked_ns"] > first + 1 + copy.clock_error_ns
    }
    pairs = []
    for poll in copy.polls(final=False, count_min=1):
        last = copy.read(poll)[-1]
        # A poll that received a larger log end contradicts what was sent later by that end, not by its record.
        if last["value"] in newest and (poll["end_offset"] or 0) <= last["offset"] + 1:
            pairs.append((newest[last["value"]], poll))
    append, poll = copy.some(
        pairs,
        "poll before the final phase that ended with an acknowledged record, sent after all below it",
    )
    poll["completed_ns"] = append["invoked_ns"] - 1 - copy.clock_error_ns
    poll["invoked_ns"] = poll["completed_ns"] - 1


def _sent_after_all_below(copy: Copy) -> Iterator[Row]:
    """Yields acknowledged appends that began after all whose records are known to have been at smaller offsets.

    A read of another one's record may contradict an append below it as well, which is a `late-insert`.
    """
    places = [(row["offset"], row["value"]) for rows in copy.records.values() for row in rows]
    places += [
        (row["offset"], op)
        for op, row in copy.operations.items()
        if row["kind"] == "append" and row["outcome"] == "ok" and row["offset"] is not None
    ]
    known = [(offset, copy.operations[op]) for offset, op in places if op in copy.operations]
    known.sort(key=lambda place: int(place[0]))
    latest_ns = list(accumulate((row["invoked_ns"] for _, row in known), max))
    for append in copy.acked():
        below = bisect_left(known, append["offset"], key=lambda place: int(place[0]))
        if not below or latest_ns[below - 1] < append["invoked_ns"]:
            yield append


def _insert_late(copy: Copy) -> None:
    append = copy.some(copy.acked()[:-1], "acknowledged record below another one")
    last_ns = end_ns(copy) + copy.clock_error_ns
    append["invoked_ns"], append["completed_ns"] = last_ns + 1, last_ns + 2


def _poll_below(copy: Copy) -> None:
    poll = copy.some(copy.polls(count_min=2), "poll that returned two records")
    poll["position"] = copy.read(poll)[-1]["offset"]


def _shuffle(copy: Copy) -> None:
    rows = copy.read(copy.some(copy.polls(count_min=2), "poll that returned two records"))
    rows[0], rows[-1] = rows[-1], rows[0]


def _stale(copy: Copy) -> None:
    append, observation = _observed_later(copy)
    copy.set_end(observation, append["offset"])


def _lost_ack(copy: Copy) -> None:
    append, observation = _observed_later(copy, Cleaner(copy))
    copy.drop_record(append["op_index"], copy.polls())
    copy.set_end(observation, append["offset"])


def _observed_later(copy: Copy, cleaner: Cleaner | None = None) -> tuple[Row, Row]:
    ends = _LaterEnds(copy)
    acked = [
        row
        for row in copy.acked()[:-1]
        if ends.agree(row, row["offset"] + 1) and (cleaner is None or cleaner.keeps(row))
    ]
    pairs = [
        (append, row)
        for row in copy.latest()
        for append in acked[-1:]
        if copy.is_before(append, row)
    ]
    pair: tuple[Row, Row] = copy.some(
        pairs, "observation of the log end after an acknowledged append"
    )
    return pair


class _LaterEnds:
    """The smallest log end that an operation received which began after some moment.

    Args:
        copy: Where the operations are.
    """

    def __init__(self, copy: Copy) -> None:
        ends = [(row["invoked_ns"], row["offset"]) for row in copy.latest()]
        ends += [
            (poll["invoked_ns"], poll["end_offset"])
            for poll in copy.polls()
            if poll["end_offset"] is not None
        ]
        ends.sort()
        self._began_ns = [began_ns for began_ns, _ in ends]
        self._smallest = list(accumulate((end for _, end in reversed(ends)), min))[::-1]

    def agree(self, row: Row, end: int) -> bool:
        """Returns whether none after an operation is smaller than an end.

        An operation that later ends contradict counts once, so a contradiction more would not show.
        """
        later = bisect_right(self._began_ns, row["completed_ns"])
        return later == len(self._smallest) or self._smallest[later] >= end


def _regress(copy: Copy) -> None:
    ends = _LaterEnds(copy)
    pairs = [
        (first, second)
        for first, second in pairwise(copy.latest())
        if copy.is_before(first, second)
        and first["offset"] > 0
        and ends.agree(first, first["offset"])
    ]
    first, second = copy.some(pairs, "two observations of the log end, one after the other")
    copy.set_end(second, first["offset"] - 1)


OF_REAL_TIME = frozenset({"order-inversion", "future-read", "late-insert"})
"""What contradicts the clock in the order of the log."""
CHANGES: tuple[tuple[str, str, Callable[[Copy], object]], ...] = (
    ("order-inversion", "an append is before one that was acknowledged earlier", _invert),
    ("future-read", "a record is read before its append began", _read_early),
    ("late-insert", "an append begins after a larger offset was read", _insert_late),
    ("nonmonotonic-poll", "a poll returns a record below its position", _poll_below),
    ("unordered-poll", "a poll returns its records in another order", _shuffle),
    ("stale-end", "a log end is at an offset acknowledged before", _stale),
    ("lost-ack", "likewise, and the record is in no read", _lost_ack),
    ("end-regression", "a log end is below an earlier one", _regress),
)
