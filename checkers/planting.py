"""Anomalies planted into a copy of a valid history, to see whether the checkers find them.

A plant changes as few rows as its anomaly needs, as a faulty system would have: a poll that lacks a record also
counts one record less. Most plants cause further anomalies (a record that is gone was also skipped); what counts
is whether the planted one is among those that are found.

Choices are deterministic: of several rows that would do, the one in the middle.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from checkers.kernels.queries.checker import is_judged
from checkers.transaction_anomalies import OF_TRANSACTIONS
from checkers.transaction_planting import CHANGES, NothingToChangeError, Transactions
from harness.history.op import Outcome, QueryKind
from harness.history.schema import TABLES

Row = dict[str, Any]

BEYOND_ALL_OFFSETS = 2**62 + 5


class CannotPlantError(Exception):
    """The history holds nothing that a plant could change; the message says what is missing."""


class Copy:
    """An editable copy of the tables of one partition.

    Args:
        tables: The partition's rows of the partitioned tables, and all rows of the others; a missing one is empty.

    Attributes:
        operations: Rows by op_index.
        records: Rows of the records that each poll returned, in the order of the response.
        ends: Rows of the log ends that each operation received.
        group_events, offset_queries, violations, batches, transaction_events: Rows; `batches` are those of
            `replica_batches`.
    """

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._tables = tables
        self.operations: dict[int, Row] = {row["op_index"]: row for row in self._rows("operations")}
        self.records: dict[int, list[Row]] = {}
        for row in self._rows("records_read"):
            self.records.setdefault(row["op_index"], []).append(row)
        for rows in self.records.values():
            rows.sort(key=lambda row: row["index_in_poll"])
        self.ends: dict[int, list[Row]] = {}
        for row in self._rows("end_offsets_seen"):
            self.ends.setdefault(row["op_index"], []).append(row)
        self.group_events = self._rows("group_events")
        self.offset_queries = self._rows("offset_queries")
        self.violations = self._rows("violations")
        self.batches = self._rows("replica_batches")
        self.transaction_events = self._rows("transaction_events")

    def _rows(self, name: str) -> list[Row]:
        table = self._tables.get(name)
        rows: list[Row] = [] if table is None else table.to_pylist()
        return rows

    def tables(self) -> dict[str, pa.Table]:
        """Returns the changed tables together with those that no plant changes."""
        for op, row in self.operations.items():
            if row["kind"] == "poll":
                row["record_count"] = len(self.records.get(op, ()))
        for rows in self.records.values():
            for index, row in enumerate(rows):
                row["index_in_poll"] = index
        changed = {
            "operations": [self.operations[op] for op in sorted(self.operations)],
            "records_read": [row for op in sorted(self.records) for row in self.records[op]],
            "end_offsets_seen": [row for op in sorted(self.ends) for row in self.ends[op]],
            "group_events": self.group_events,
            "offset_queries": self.offset_queries,
            "violations": self.violations,
            "replica_batches": self.batches,
            "transaction_events": sorted(
                self.transaction_events, key=lambda row: int(row["event_index"])
            ),
        }
        made = {
            name: pa.Table.from_pylist(rows, schema=TABLES[name]) for name, rows in changed.items()
        }
        return {**self._tables, **made}

    # What there is

    def acked(self) -> list[Row]:
        """Returns appends acknowledged by all replicas that the final reads returned, by offset."""
        final = {row["value"] for poll in self.polls(final=True) for row in self.read(poll)}
        return sorted(
            (
                row
                for row in self.operations.values()
                if row["kind"] == "append"
                and row["outcome"] == "ok"
                and row["acks"] == -1
                and row["offset"] is not None
                and row["op_index"] in final
            ),
            key=lambda row: (row["offset"], row["op_index"]),
        )

    def polls(self, *, final: bool | None = None, count_min: int = 0) -> list[Row]:
        """Returns successful polls, in order of invocation."""
        return [
            row
            for op, row in sorted(self.operations.items())
            if row["kind"] == "poll"
            and row["outcome"] == "ok"
            and final in (None, row["final"])
            and len(self.records.get(op, ())) >= count_min
        ]

    def latest(self) -> list[Row]:
        """Returns successful observations of the log end, in order of invocation."""
        return [
            row
            for _, row in sorted(self.operations.items())
            if row["kind"] == "latest" and row["outcome"] == "ok" and row["offset"] is not None
        ]

    def read(self, poll: Row) -> list[Row]:
        """Returns the records that a poll returned."""
        return self.records.get(poll["op_index"], [])

    # What can be changed

    def drop_record(self, value: int, polls: Iterable[Row]) -> None:
        """Removes the record of a value from polls."""
        for poll in polls:
            rows = self.read(poll)
            rows[:] = [row for row in rows if row["value"] != value]

    def set_value(self, record: Row, append: Row) -> None:
        """Makes a record that of an append."""
        record.update(
            value=append["op_index"],
            process=append["process"],
            sequence=append["sequence"],
            key=append["key"],
        )

    def set_end(self, operation: Row, end: int) -> None:
        """Changes the log end that an operation received."""
        operation["offset" if operation["kind"] == "latest" else "end_offset"] = end
        for row in self.ends.get(operation["op_index"], ()):
            row["end_offset"] = end

    def add_append(self, like: Row, *, invoked_ns: int, completed_ns: int) -> Row:
        """Adds an append of a process of its own that was acknowledged without an offset."""
        row = {
            **like,
            "op_index": max(self.operations) + 1,
            "process": max(each["process"] for each in self.operations.values()) + 1,
            "sequence": 0,
            "invoked_ns": invoked_ns,
            "completed_ns": completed_ns,
            "offset": None,
        }
        self.operations[row["op_index"]] = row
        return row


def _some(rows: Sequence[Any], what: str) -> Any:
    """Returns the one in the middle."""
    if not rows:
        raise CannotPlantError(f"it has no {what}")
    return rows[len(rows) // 2]


def _neighbours(copy: Copy) -> tuple[Row, Row]:
    """Returns two neighbours in the log, of which the second began after the first was acknowledged."""
    acked = copy.acked()
    pairs = [
        (first, second)
        for first, second in pairwise(acked)
        if first["completed_ns"] < second["invoked_ns"]
    ]
    pair: tuple[Row, Row] = _some(
        pairs, "two acknowledged appends of which one began after the other"
    )
    return pair


def _fail(append: Row) -> None:
    append.update(outcome="fail", offset=None, error="NOT_ENOUGH_REPLICAS", error_code=19)


def _forget(append: Row) -> None:
    append.update(outcome="info", offset=None, error="timeout", error_code=None)


def _lose(copy: Copy) -> Row:
    """Removes an acknowledged record, not the last one, from all that was read."""
    append: Row = _some(copy.acked()[:-1], "acknowledged record that the final reads returned")
    copy.drop_record(append["op_index"], copy.polls())
    return append


def _lost_acks_1(copy: Copy) -> None:
    _lose(copy)["acks"] = 1


def _unseen(copy: Copy) -> None:
    last = _some(copy.acked()[-1:], "acknowledged record that the final reads returned")
    for poll in copy.polls(final=True):
        rows = copy.read(poll)
        rows[:] = [row for row in rows if row["offset"] < last["offset"]]


def _visible_regress(copy: Copy) -> None:
    early = {row["value"] for poll in copy.polls(final=False) for row in copy.read(poll)}
    seen = [append for append in copy.acked()[:-1] if append["op_index"] in early]
    append = _some(seen, "record that was read before the final phase")
    copy.drop_record(append["op_index"], copy.polls(final=True))


def _reuse(copy: Copy) -> None:
    first, second = _neighbours(copy)
    second["offset"] = first["offset"]


def _diverge(copy: Copy) -> None:
    polls = [poll for poll in copy.polls() if any(row["status"] == "ok" for row in copy.read(poll))]
    record = _some(copy.read(_some(polls, "poll that returned a record")), "record")
    others = [append for append in copy.acked() if append["op_index"] != record["value"]]
    copy.set_value(record, _some(others, "second acknowledged record"))


def _duplicate(copy: Copy) -> None:
    first, second = _neighbours(copy)
    for poll in copy.polls():
        for record in copy.read(poll):
            if record["value"] == second["op_index"]:
                copy.set_value(record, first)


def _failed_visible(copy: Copy) -> None:
    _fail(_some(copy.acked(), "acknowledged record that the final reads returned"))


def _record(copy: Copy) -> Row:
    polls = copy.polls(count_min=1)
    record: Row = _some(copy.read(_some(polls, "poll that returned a record")), "record")
    return record


def _phantom(copy: Copy) -> None:
    _record(copy)["value"] = max(copy.operations) + 1000


def _corrupt(copy: Copy) -> None:
    _record(copy).update(status="corrupt", value=-1, process=-1, sequence=-1, key="")


def _misplaced(copy: Copy) -> None:
    _record(copy).update(status="foreign", value=-1)


def _impossible(copy: Copy) -> None:
    _some(copy.acked(), "acknowledged append")["offset"] = BEYOND_ALL_OFFSETS


def _skip_known(copy: Copy) -> None:
    poll = _some(copy.polls(count_min=3), "poll that returned three records")
    del copy.read(poll)[len(copy.read(poll)) // 2]


def _skip_unknown(copy: Copy) -> None:
    _forget(_lose(copy))


def _tear(copy: Copy) -> None:
    polls = [poll for poll in copy.polls(count_min=1) if poll["end_offset"] is not None]
    poll = _some(polls, "poll that returned records and a log end")
    copy.set_end(poll, max(row["offset"] for row in copy.read(poll)))


def _only_known_appends(copy: Copy) -> None:
    """Makes appends of unknown outcome that no poll returned certain failures, so that none can fill a hole."""
    read = {row["value"] for rows in copy.records.values() for row in rows}
    for row in copy.operations.values():
        is_free = row["outcome"] == "info" or (row["outcome"] == "ok" and row["offset"] is None)
        if row["kind"] == "append" and is_free and row["op_index"] not in read:
            row["completed_ns"] = row["completed_ns"] or row["invoked_ns"] + 1
            _fail(row)


def _hole(copy: Copy) -> None:
    _only_known_appends(copy)
    _fail(_lose(copy))


def _late_filler(copy: Copy) -> None:
    _only_known_appends(copy)
    append = _lose(copy)
    _forget(append)
    append["invoked_ns"] = _end_ns(copy) + 1
    append["completed_ns"] = None


def _end_ns(copy: Copy) -> int:
    ends_ns: list[int] = [
        row["completed_ns"] if row["completed_ns"] is not None else row["invoked_ns"]
        for row in copy.operations.values()
    ]
    return max(ends_ns)


def _without_place(copy: Copy) -> None:
    _only_known_appends(copy)
    first, _ = _neighbours(copy)
    copy.add_append(first, invoked_ns=first["invoked_ns"], completed_ns=first["completed_ns"])


def _without_place_below_end(copy: Copy) -> None:
    _only_known_appends(copy)
    appends = [row for row in copy.operations.values() if row["kind"] == "append"]
    last_ns = max((row["invoked_ns"] for row in appends), default=0)
    later = [row for row in copy.latest() if row["invoked_ns"] > last_ns + 1]
    _some(later, "observation of the log end after the last append")
    copy.add_append(
        _some(copy.acked(), "acknowledged append"), invoked_ns=last_ns, completed_ns=last_ns + 1
    )


def _swap(copy: Copy, first: Row, second: Row) -> None:
    """Exchanges the places of two appends, for every client."""
    first["offset"], second["offset"] = second["offset"], first["offset"]
    for rows in copy.records.values():
        for record in rows:
            if record["value"] == first["op_index"]:
                copy.set_value(record, second)
            elif record["value"] == second["op_index"]:
                copy.set_value(record, first)


def _invert(copy: Copy) -> None:
    _swap(copy, *_neighbours(copy))


def _swap_sends(copy: Copy) -> None:
    last: dict[int, Row] = {}
    pairs = []
    for append in sorted(copy.acked(), key=lambda row: row["op_index"]):
        before = last.get(append["process"])
        if before is not None and before["offset"] < append["offset"]:
            pairs.append((before, append))
        last[append["process"]] = append
    _swap(copy, *_some(pairs, "two acknowledged appends of one process"))


def _read_early(copy: Copy) -> None:
    first = min(row["invoked_ns"] for row in copy.operations.values())
    append, poll = _some(
        [
            (append, poll)
            for append in copy.acked()
            if append["invoked_ns"] > first + 1
            for poll in copy.polls(final=False, count_min=1)
            if copy.read(poll)[-1]["value"] == append["op_index"]
        ],
        "poll before the final phase that ended with an acknowledged record",
    )
    poll["invoked_ns"] = append["invoked_ns"] - 2
    poll["completed_ns"] = append["invoked_ns"] - 1


def _insert_late(copy: Copy) -> None:
    append = _some(copy.acked()[:-1], "acknowledged record below another one")
    end_ns = _end_ns(copy)
    append["invoked_ns"], append["completed_ns"] = end_ns + 1, end_ns + 2


def _poll_below(copy: Copy) -> None:
    poll = _some(copy.polls(count_min=2), "poll that returned two records")
    poll["position"] = copy.read(poll)[-1]["offset"]


def _shuffle(copy: Copy) -> None:
    rows = copy.read(_some(copy.polls(count_min=2), "poll that returned two records"))
    rows[0], rows[-1] = rows[-1], rows[0]


def _stale(copy: Copy) -> None:
    append, observation = _observed_later(copy)
    copy.set_end(observation, append["offset"])


def _lost_ack(copy: Copy) -> None:
    append, observation = _observed_later(copy)
    copy.drop_record(append["op_index"], copy.polls())
    copy.set_end(observation, append["offset"])


def _observed_later(copy: Copy) -> tuple[Row, Row]:
    acked = copy.acked()[:-1]
    pairs = [
        (append, row)
        for row in copy.latest()
        for append in acked[-1:]
        if append["completed_ns"] < row["invoked_ns"]
    ]
    pair: tuple[Row, Row] = _some(pairs, "observation of the log end after an acknowledged append")
    return pair


def _regress(copy: Copy) -> None:
    pairs = [
        (first, second)
        for first, second in pairwise(copy.latest())
        if first["completed_ns"] < second["invoked_ns"] and first["offset"] > 0
    ]
    first, second = _some(pairs, "two observations of the log end, one after the other")
    copy.set_end(second, first["offset"] - 1)


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


def _skip_in_group(copy: Copy) -> None:
    members = {row["process"] for row in copy.group_events}
    commits = [row for row in copy.group_events if row["event"] == "commit-acknowledged"]
    committed = max((row["offset"] for row in commits), default=-1)
    below = [append for append in copy.acked() if append["offset"] < committed]
    append = _some(below, "acknowledged record below a committed offset")
    mine = [poll for poll in copy.polls(final=False) if poll["process"] in members]
    copy.drop_record(append["op_index"], mine)


def _own_twice(copy: Copy) -> None:
    assigned = [row for row in copy.group_events if row["event"] == "assigned"]
    largest = max((row["generation"] for row in assigned), default=-1)
    latest = [row for row in assigned if row["generation"] == largest >= 0]
    first = _some(latest, "assignment in a generation")
    copy.group_events.append(
        {
            **first,
            "event_index": max(row["event_index"] for row in copy.group_events) + 1,
            "process": max(row["process"] for row in copy.group_events) + 1,
        }
    )


def _skip_by_timestamp(copy: Copy) -> None:
    query = _some(_answered(copy, QueryKind.TIMESTAMP), "judged answer about a timestamp")
    query["offset"] = query["record_offset"] + 1


def _end_epoch_early(copy: Copy) -> None:
    query = _some(_answered(copy, QueryKind.LEADER_EPOCH), "judged answer about a leader epoch")
    query["offset"] = query["record_offset"]


def _answered(copy: Copy, kind: QueryKind) -> list[Row]:
    """Returns the answers of a kind about records that the final reads returned."""
    kept = {
        (row["offset"], row["value"]) for poll in copy.polls(final=True) for row in copy.read(poll)
    }
    return [
        row
        for row in copy.offset_queries
        if row["kind"] == kind and row["outcome"] == Outcome.OK and is_judged(row, kept)
    ]


def _lower_high_watermark(copy: Copy) -> None:
    """Lowers a log end that a leader reported below one that it had reported before in its epoch."""
    last: dict[tuple[str, int], Row] = {}
    pairs = []
    for row in copy.latest():
        leader = (row["node"], row["leader_epoch"])
        before = last.get(leader)
        if before is not None and before["completed_ns"] < row["invoked_ns"] and before["offset"]:
            pairs.append((before, row))
        if row["leader_epoch"] >= 0:
            last[leader] = row
    before, later = _some(pairs, "two log ends that one leader reported in one epoch")
    copy.set_end(later, before["offset"] - 1)


def _diverge_replica(copy: Copy) -> None:
    """Changes the checksum of a batch that several replicas know as committed, at one of them."""
    known = [
        row
        for row in copy.batches
        if row["last_offset"] < min(row["high_watermark"], row["read_end_offset"])
    ]
    holders = Counter(row["base_offset"] for row in known)
    row = _some(
        [row for row in known if holders[row["base_offset"]] > 1],
        "batch that two replicas know as committed",
    )
    row["checksum"] ^= 1


def _break_invariant(copy: Copy) -> None:
    copy.violations.append(
        {
            "at_ns": _end_ns(copy),
            "node": "b1",
            "invariant": "INV-1",
            "sentence": "planted by the self-test",
        }
    )


def _of_transactions(change: Callable[[Transactions], object]) -> Callable[[Copy], object]:
    def changed(copy: Copy) -> None:
        try:
            change(Transactions(copy.transaction_events))
        except NothingToChangeError as nothing:
            raise CannotPlantError(str(nothing)) from None

    return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """One anomaly and how it is planted.

    Attributes:
        anomaly: Identifier from `checkers.anomalies`.
        what: What is changed, as a sentence.
        change: Changes the copy; raises `CannotPlantError` if the history has nothing to change.
    """

    anomaly: str
    what: str
    change: Callable[[Copy], object]

    @property
    def needs_operations(self) -> bool:
        """Whether it changes what clients did outside of transactions."""
        return self.anomaly not in OF_TRANSACTIONS

    @property
    def needs_level(self) -> bool:
        """Whether the anomaly is reported only while nothing else breaks its level (`free_appends.py`)."""
        return self.anomaly == "unplaced-below-end"


PLANTS: tuple[Plant, ...] = tuple(
    Plant(anomaly=anomaly, what=what, change=change)
    for anomaly, what, change in (
        ("lost-acked-write", "an acknowledged record is in no read", _lose),
        ("lost-acked-write-acks1", "a record acknowledged with acks=1 is in no read", _lost_acks_1),
        ("unseen", "the final reads end before the last record", _unseen),
        ("offset-reused", "an append is acknowledged at the offset of another one", _reuse),
        ("visible-regress", "a record that was read is not in the final reads", _visible_regress),
        ("committed-offset-regressed", "a committed offset is forgotten", _regress_commit),
        ("two-acks-one-offset", "two appends are acknowledged at one offset", _reuse),
        ("divergent-value", "one poll returns another record at an offset", _diverge),
        ("duplicate", "one record is also where the next one was", _duplicate),
        ("failed-append-visible", "an append whose record was read failed", _failed_visible),
        ("phantom-value", "a record has a value that no append wrote", _phantom),
        ("corrupt-record", "a record has a wrong checksum", _corrupt),
        ("misplaced-record", "a record is of another run", _misplaced),
        ("impossible-offset", "an append is acknowledged beyond all offsets", _impossible),
        ("lost-record", "a poll lacks a record between two others", _skip_known),
        ("skipped-offset", "all polls lack a record of unknown outcome", _skip_unknown),
        ("torn-fetch", "a poll returns a record beyond its log end", _tear),
        ("group-skipped-record", "no member of the group received a record", _skip_in_group),
        ("unfilled-hole", "an offset exists that no append can have filled", _hole),
        ("hole-before-append", "an offset exists before its only append began", _late_filler),
        ("unplaced-append", "an append without an offset finds no place", _without_place),
        ("order-inversion", "an append is before one that was acknowledged earlier", _invert),
        ("future-read", "a record is read before its append began", _read_early),
        ("late-insert", "an append begins after a larger offset was read", _insert_late),
        ("nonmonotonic-send", "two appends of one process change places", _swap_sends),
        ("nonmonotonic-poll", "a poll returns a record below its position", _poll_below),
        ("unordered-poll", "a poll returns its records in another order", _shuffle),
        (
            "unplaced-below-end",
            "an append without an offset has no place below a log end",
            _without_place_below_end,
        ),
        ("stale-end", "a log end is at an offset acknowledged before", _stale),
        ("lost-ack", "likewise, and the record is in no read", _lost_ack),
        ("end-regression", "a log end is below an earlier one", _regress),
        ("lookup-skips-record", "a lookup by timestamp skips a record", _skip_by_timestamp),
        ("epoch-ends-early", "a leader epoch ends at one of its records", _end_epoch_early),
        ("double-ownership", "a second member is assigned a partition", _own_twice),
        (
            "high-watermark-regression",
            "a leader reports a smaller log end than before",
            _lower_high_watermark,
        ),
        (
            "divergent-replicas",
            "a replica holds another record than the others",
            _diverge_replica,
        ),
        ("invariant-broken", "a node reports that an invariant is broken", _break_invariant),
        *((anomaly, what, _of_transactions(change)) for anomaly, what, change in CHANGES),
    )
)
"""One plant for every anomaly that a history of the built-in workloads can have."""

_SESSIONS = "the built-in clients have no idempotent sessions"
UNPLANTED: dict[str, str] = {
    "reordered-send": "the built-in clients have one append in flight at a time",
    "out-of-sequence": _SESSIONS,
    "producer-gap": _SESSIONS,
    "slow-recovery": "it depends on a limit, which is not a matter of the history",
    "stuck": "it needs a run whose final phase did not end",
    **dict.fromkeys(
        sorted(OF_TRANSACTIONS - {anomaly for anomaly, _, _ in CHANGES}),
        "Kafka allows it, or only transactions on lists can have it",
    ),
}
"""The other anomalies, and why there is no plant."""
