"""An editable copy of a valid history, and the changes that several plants share.

Choices are deterministic: of several rows that would do, the one in the middle, or where else the copy says.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from harness.history.schema import TABLES

Row = dict[str, Any]
NEW_KEY = "planted by the self-test"


class CannotPlantError(Exception):
    """The history holds nothing that a plant could change; the message says what is missing."""


class Copy:
    """An editable copy of the tables of one partition.

    Args:
        tables: The partition's rows of the partitioned tables, and all rows of the others; a missing one is empty.
        share: Which one of several rows that would do is chosen: the one behind this share of them.
        clock_error_ns: Largest difference between two clocks of the run.
        compacted: Whether a cleaner removes a record after a later one of its key was committed.

    Attributes:
        clock_error_ns, compacted: See the arguments.
        operations: Rows by op_index.
        records: Rows of the records that each poll returned, in the order of the response.
        ends: Rows of the log ends that each operation received.
        group_events, offset_queries, violations, batches, transaction_events: Rows; `batches` are those of
            `replica_batches`.
    """

    def __init__(
        self,
        tables: Mapping[str, pa.Table],
        *,
        share: float = 0.5,
        clock_error_ns: int = 0,
        compacted: bool = False,
    ) -> None:
        self.clock_error_ns = clock_error_ns
        self.compacted = compacted
        self._tables = tables
        self._share = share
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
        rows: list[Row] = self.table(name).to_pylist()
        return rows

    def table(self, name: str) -> pa.Table:
        """Returns a table as it was before any change, empty if the history has none."""
        return self._tables.get(name, TABLES[name].empty_table())

    def tables(self) -> dict[str, pa.Table]:
        """Returns the changed tables together with those that no plant changes.

        Clients ask only about records that a poll returned to them, so other questions are left out.
        """
        for op, row in self.operations.items():
            if row["kind"] == "poll":
                row["record_count"] = len(self.records.get(op, ()))
        for rows in self.records.values():
            for index, row in enumerate(rows):
                row["index_in_poll"] = index
        returned = {
            (op, row["offset"], row["value"]) for op, rows in self.records.items() for row in rows
        }
        changed = {
            "operations": [self.operations[op] for op in sorted(self.operations)],
            "records_read": [row for op in sorted(self.records) for row in self.records[op]],
            "end_offsets_seen": [row for op in sorted(self.ends) for row in self.ends[op]],
            "group_events": self.group_events,
            "offset_queries": [
                row
                for row in self.offset_queries
                if (row["op_index"], row["record_offset"], row["record_value"]) in returned
            ],
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

    def some(self, rows: Sequence[Any], what: str) -> Any:
        """Returns one of several rows that would do.

        Args:
            rows: What would do.
            what: What they are, for the message.

        Raises:
            CannotPlantError: There are none.
        """
        if not rows:
            raise CannotPlantError(f"it has no {what}")
        return rows[int(len(rows) * self._share)]

    def acked(self) -> list[Row]:
        """Returns appends acknowledged by all replicas that the final reads returned, by offset.

        Those that contradict others already, as what elections lost does, are left out: one contradiction more
        would not show.
        """
        final = {row["value"] for poll in self.polls(final=True) for row in self.read(poll)}
        return sorted(
            (row for row in self._undisputed() if row["acks"] == -1 and row["op_index"] in final),
            key=lambda row: (row["offset"], row["op_index"]),
        )

    def _undisputed(self) -> Iterator[Row]:
        """Yields acknowledged appends that no other one shares its offset with, in no acknowledgement or read."""
        values_at: dict[int, set[int]] = {}
        offsets_of: dict[int, set[int]] = {}
        acked = [
            row
            for row in self.operations.values()
            if row["kind"] == "append" and row["outcome"] == "ok" and row["offset"] is not None
        ]
        places = [(row["op_index"], row["offset"]) for row in acked]
        places += [(row["value"], row["offset"]) for rows in self.records.values() for row in rows]
        for value, offset in places:
            values_at.setdefault(offset, set()).add(value)
            offsets_of.setdefault(value, set()).add(offset)
        for row in acked:
            if len(values_at[row["offset"]]) == len(offsets_of[row["op_index"]]) == 1:
                yield row

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

    def is_before(self, first: Row, second: Row) -> bool:
        """Returns whether an operation ended before another one began, whatever the clocks differ by."""
        return bool(first["completed_ns"] + self.clock_error_ns < second["invoked_ns"])

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
        """Adds an append of a process of its own that was acknowledged without an offset.

        In a compacted topic it has a key of its own, so that no later record may have replaced its record.
        """
        row = {
            **like,
            "key": NEW_KEY if self.compacted else like["key"],
            "op_index": max(self.operations) + 1,
            "batch": None,
            "process": max(each["process"] for each in self.operations.values()) + 1,
            "sequence": 0,
            "invoked_ns": invoked_ns,
            "completed_ns": completed_ns,
            "offset": None,
        }
        self.operations[row["op_index"]] = row
        return row


def neighbours(copy: Copy) -> tuple[Row, Row]:
    """Returns two neighbours in the log, of which the second certainly began after the first was acknowledged."""
    acked = copy.acked()
    pairs = [(first, second) for first, second in pairwise(acked) if copy.is_before(first, second)]
    pair: tuple[Row, Row] = copy.some(
        pairs, "two acknowledged appends of which one began after the other"
    )
    return pair


def fail(append: Row) -> None:
    """Makes an append one that certainly wrote nothing."""
    append.update(outcome="fail", offset=None, error="NOT_ENOUGH_REPLICAS", error_code=19)


def forget(append: Row) -> None:
    """Makes the outcome of an append unknown."""
    append.update(outcome="info", offset=None, error="timeout", error_code=None)


def swap(copy: Copy, first: Row, second: Row) -> None:
    """Exchanges the places of two appends, for every client."""
    first["offset"], second["offset"] = second["offset"], first["offset"]
    for rows in copy.records.values():
        for record in rows:
            if record["value"] == first["op_index"]:
                copy.set_value(record, second)
            elif record["value"] == second["op_index"]:
                copy.set_value(record, first)


def end_ns(copy: Copy) -> int:
    """Returns the time of the last invocation or completion."""
    ends_ns: list[int] = [
        row["completed_ns"] if row["completed_ns"] is not None else row["invoked_ns"]
        for row in copy.operations.values()
    ]
    ends_ns += [row["at_ns"] for row in copy.transaction_events]
    return max(ends_ns)
