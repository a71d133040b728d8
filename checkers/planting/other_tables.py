"""Plants in consumer groups, answers about offsets, log ends of leaders, and what nodes report."""

from collections import Counter
from collections.abc import Callable

import numpy as np

from checkers.kernels.divergence import in_sync, windows_of
from checkers.kernels.queries.checker import is_judged, is_wrong
from checkers.kernels.replicas import registrations, restarts_of
from checkers.planting.cleaner import Cleaner
from checkers.planting.copy import CannotPlantError, Copy, Row, end_ns
from harness.history.op import Outcome, QueryKind
from harness.history.parquet import places_of


def _regress_commit(copy: Copy) -> None:
    acked = [row for row in copy.group_events if row["event"] == "commit-acknowledged"]
    for commit in acked:
        for row in copy.group_events:
            asked = row["event"] == "committed-asked" and row["event_index"] > commit["event_index"]
            seen = [
                each
                for each in copy.group_events
                if asked
                and each["event"] == "committed-seen"
                and each["refers_to"] == row["event_index"]
                and each["group"] == commit["group"]
            ]
            if seen and commit["offset"] > 0:
                seen[0]["offset"] = -1
                return
    raise CannotPlantError("it has no committed offset that was requested after a commit")


def _invent_commit(copy: Copy) -> None:
    seen = [row for row in copy.group_events if row["event"] == "committed-seen"]
    row = copy.some(seen, "report of a committed offset")
    row["offset"] = max(each["offset"] for each in copy.group_events) + 1


def _skip_in_group(copy: Copy) -> None:
    members = {row["process"] for row in copy.group_events}
    commits = [row for row in copy.group_events if row["event"] == "commit-acknowledged"]
    committed = max((row["offset"] for row in commits), default=-1)
    below = [append for append in copy.acked() if append["offset"] < committed]
    mine = [poll for poll in copy.polls(final=False) if poll["process"] in members]
    if copy.compacted:
        cleaner, passed = Cleaner(copy), _LastPasses(copy, mine)
        below = [one for one in below if cleaner.keeps(one, passed.until_ns(one["offset"]))]
    append = copy.some(below, "acknowledged record below a committed offset")
    copy.drop_record(append["op_index"], mine)


class _LastPasses:
    """When the last poll ended that went past an offset, by its position and what it returned.

    Args:
        copy: Where the polls are.
        polls: Those that count.
    """

    def __init__(self, copy: Copy, polls: list[Row]) -> None:
        self._ranges: list[tuple[int, int, int]] = []
        for poll in polls:
            offsets = [row["offset"] for row in copy.read(poll)]
            if offsets:
                first = min([*offsets, poll["position"]] if poll["position"] >= 0 else offsets)
                self._ranges.append((first, max(offsets), poll["completed_ns"]))

    def until_ns(self, offset: int) -> int:
        """Returns when the last of them ended, -1 if none went past the offset."""
        return max(
            (ended_ns for first, last, ended_ns in self._ranges if first <= offset <= last),
            default=-1,
        )


def _own_twice(copy: Copy) -> None:
    assigned = [row for row in copy.group_events if row["event"] == "assigned"]
    largest = max((row["generation"] for row in assigned), default=-1)
    latest = [row for row in assigned if row["generation"] == largest >= 0]
    first = copy.some(latest, "assignment in a generation")
    copy.group_events.append(
        {
            **first,
            "event_index": max(row["event_index"] for row in copy.group_events) + 1,
            "at_ns": max(row["at_ns"] for row in copy.group_events),
            "process": max(row["process"] for row in copy.group_events) + 1,
        }
    )


def _skip_by_timestamp(copy: Copy) -> None:
    query = copy.some(_answered(copy, QueryKind.TIMESTAMP), "judged answer about a timestamp")
    query["offset"] = query["record_offset"] + 1


def _end_epoch_early(copy: Copy) -> None:
    query = copy.some(_answered(copy, QueryKind.LEADER_EPOCH), "judged answer about a leader epoch")
    query["offset"] = query["record_offset"]


def _answered(copy: Copy, kind: QueryKind) -> list[Row]:
    """Returns the right answers of a kind about records that the final reads returned."""
    kept = {
        (row["offset"], row["value"]) for poll in copy.polls(final=True) for row in copy.read(poll)
    }
    return [
        row
        for row in copy.offset_queries
        if row["kind"] == kind
        and row["outcome"] == Outcome.OK
        and is_judged(row, kept)
        and not is_wrong(row)
    ]


def _lower_high_watermark(copy: Copy) -> None:
    """Lowers a log end that a leader reported below one that it had reported before in its epoch."""
    last: dict[tuple[str, int], Row] = {}
    pairs = []
    # The high watermark of a broker that was restarted may lawfully begin below its last one.
    restarts = restarts_of(copy.table("replica_states"), registrations(copy.table("broker_states")))
    for row in copy.latest():
        leader = (row["node"], row["leader_epoch"])
        before = last.get(leader)
        if before is not None and copy.is_before(before, row) and before["offset"]:
            since_ns = before["invoked_ns"] - copy.clock_error_ns
            until_ns = row["completed_ns"] + copy.clock_error_ns
            moments = restarts.get(row["node"], np.empty(0, dtype=np.int64))
            if not ((moments >= since_ns) & (moments <= until_ns)).any():
                pairs.append((before, row))
        if row["leader_epoch"] >= 0:
            last[leader] = row
    before, later = copy.some(pairs, "two log ends that one leader reported in one epoch")
    copy.set_end(later, before["offset"] - 1)


def _diverge_replica(copy: Copy) -> None:
    """Changes the checksum of a batch that several in-sync replicas know as committed, at one of them."""
    batches = copy.table("replica_batches")
    if len(places_of(batches)) > 1:
        raise CannotPlantError("it is planted into single partitions")
    windows = (
        in_sync(windows_of(batches), copy.table("partition_states")) if batches.num_rows else {}
    )
    known = [
        row
        for row in copy.batches
        if (window := windows.get(row["broker"])) is not None
        and window.start <= row["base_offset"]
        and row["last_offset"] < window.end
    ]
    holders = Counter(row["base_offset"] for row in known)
    row = copy.some(
        [row for row in known if holders[row["base_offset"]] > 1],
        "batch that two in-sync replicas know as committed",
    )
    row["checksum"] ^= 1


def _break_invariant(copy: Copy) -> None:
    copy.violations.append(
        {
            "at_ns": end_ns(copy),
            "node": "b1",
            "invariant": "INV-1",
            "sentence": "planted by the self-test",
        }
    )


CHANGES: tuple[tuple[str, str, Callable[[Copy], object]], ...] = (
    ("committed-offset-regressed", "a committed offset is forgotten", _regress_commit),
    ("phantom-commit", "an offset is committed that no member sent", _invent_commit),
    ("group-skipped-record", "no member of the group received a record", _skip_in_group),
    ("lookup-skips-record", "a lookup by timestamp skips a record", _skip_by_timestamp),
    ("epoch-ends-early", "a leader epoch ends at one of its records", _end_epoch_early),
    ("double-ownership", "a second member is assigned a partition", _own_twice),
    (
        "high-watermark-regression",
        "a leader reports a smaller log end than before",
        _lower_high_watermark,
    ),
    ("divergent-replicas", "a replica holds another record than the others", _diverge_replica),
    ("invariant-broken", "a node reports that an invariant is broken", _break_invariant),
)
