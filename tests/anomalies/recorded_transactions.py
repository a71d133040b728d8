"""Tables of transactions as the workload `transactions` records them, written down event by event."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from checkers.kernels.compose import judge_run
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Verdict
from harness.history.schema import TABLES

CONTEXT = RunContext(checkers=("transactions",))
Key = tuple[str, int]
A, B = ("t", 0), ("t", 1)


class Events:
    """Rows of `transaction_events`; every event is a millisecond after the one before it."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._begun: dict[int, dict[str, Any]] = {}

    def add(self, event: str, transaction: int = -1, process: int = 0, **more: Any) -> int:
        """Appends a row; returns its event index."""
        index = len(self.rows)
        row = {
            "event_index": index,
            "at_ns": 1_000_000 * index,
            "transaction": transaction,
            "process": process,
            "event": event,
            "number": -1,
            "transactional_id": "",
            "group": "",
            "isolation": "",
            "topic": "",
            "partition": -1,
            "offset": None,
            "value": -1,
            "status": "",
            "error_code": 0,
            "error": "",
            "final": False,
        }
        self.rows.append(row | more)
        return index

    def initialised(self, process: int, transactional_id: str) -> None:
        """A producer took the id over."""
        self.add("initialised", process=process, transactional_id=transactional_id)

    def begin(self, process: int, **more: Any) -> int:
        """Begins a transaction; returns its number."""
        index = self.add("begin", process=process, **more)
        self.rows[index]["transaction"] = index
        self._begun[index] = self.rows[index]
        return index

    def note(self, transaction: int, event: str, key: Key | None = None, **more: Any) -> int:
        """Adds an event of a transaction; returns its index."""
        begun = self._begun[transaction]
        if key is not None:
            more |= {"topic": key[0], "partition": key[1]}
        return self.add(event, transaction, begun["process"], final=begun["final"], **more)

    def send(self, transaction: int, number: int, key: Key, offset: int | None) -> int:
        """Sends a record, which is acknowledged; returns its value."""
        value = self.note(transaction, "send", key, number=number)
        self.rows[value]["value"] = value
        self.note(transaction, "sent", key, number=number, offset=offset, value=value)
        return value

    def commit(self, transaction: int) -> None:
        """Requests the commit, which succeeds."""
        self.note(transaction, "commit-asked")
        self.note(transaction, "committed")

    def abort(self, transaction: int) -> None:
        """Requests the abort, which succeeds."""
        self.note(transaction, "abort-asked")
        self.note(transaction, "aborted")

    def poll(
        self, transaction: int, number: int, key: Key, records: Sequence[tuple[int, int]]
    ) -> None:
        """A poll returned records, as (offset, value)."""
        for offset, value in records:
            self.note(
                transaction, "poll", key, number=number, offset=offset, value=value, status="ok"
            )

    def read(
        self,
        process: int,
        key: Key,
        *records: tuple[int, int],
        isolation: str = "read_committed",
        final: bool = False,
    ) -> int:
        """A reader polls once; returns the number of the transaction."""
        transaction = self.begin(process, isolation=isolation, final=final)
        self.poll(transaction, 0, key, records)
        self.note(transaction, "committed")
        return transaction

    def closing(self, **records: list[tuple[int, int]]) -> None:
        """The closing reads of the partitions a and b."""
        for key, name in ((A, "a"), (B, "b")):
            self.read(99, key, *records.get(name, []), final=True)

    def table(self) -> pa.Table:
        """The table."""
        return pa.Table.from_pylist(self.rows, schema=TABLES["transaction_events"])

    def verdict(self, context: RunContext = CONTEXT, **tables: pa.Table) -> Verdict:
        """Judges a run that recorded these events."""
        return judge_run({"transaction_events": self.table(), **tables}, context)


def producer(events: Events, process: int, identifier: str = "p") -> int:
    """Begins a transaction of a producer that has just taken its id over; returns its number."""
    events.initialised(process, identifier)
    return events.begin(process, transactional_id=identifier)


def valid_run() -> Events:
    """A run with two producers, a processor, and a reader that polls twice."""
    events = Events()
    one = producer(events, 1)
    first = [events.send(one, number, A, number) for number in range(3)]
    events.commit(one)
    other = producer(events, 2, "q")
    second = [events.send(other, number, A, 4 + number) for number in range(2)]
    events.commit(other)
    outputs: list[tuple[int, int]] = []
    inputs = [[(0, first[0]), (1, first[1])], [(2, first[2]), (4, second[0]), (5, second[1])]]
    events.initialised(3, "processor")
    for records in inputs:
        number = events.begin(
            3, transactional_id="processor", group="g", isolation="read_committed"
        )
        events.poll(number, 0, A, records)
        offset = 2 * len(outputs)
        outputs.append((offset, events.send(number, 1, B, offset)))
        events.note(number, "offset", A, number=2, offset=records[-1][0] + 1)
        events.commit(number)
    events.read(7, A, *zip(range(3), first, strict=True))
    events.read(7, A, (4, second[0]), (5, second[1]))
    events.closing(
        a=[*zip(range(3), first, strict=True), (4, second[0]), (5, second[1])], b=outputs
    )
    return events
