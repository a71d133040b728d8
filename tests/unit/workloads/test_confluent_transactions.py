"""What the transactional producer of librdkafka reports, and what is recorded of that."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from harness.contracts.transactions import TransactionSettings
from harness.history.op import Outcome
from harness.history.writer import HistoryWriter
from harness.runs.phases import RunRecorder
from workloads.clients.confluent_transactions import ConfluentTransactionalProducer
from workloads.transaction_log import RecordedTransaction

SETTINGS = TransactionSettings(
    transactional_id="x", transaction_timeout_ms=1000, delivery_timeout_ms=1000
)
TIMED_OUT = SimpleNamespace(code=lambda: -192, name=lambda: "_MSG_TIMED_OUT", str=lambda: "")


class Library:
    """Takes the place of librdkafka's producer. Its reports, in order: an offset, or "late" or "never".

    Args:
        reports: -1 for an offset that the broker does not know.
    """

    def __init__(self, reports: tuple[int | str, ...]) -> None:
        self._reports = reports
        self._callbacks: list[Callable[[Any, Any], None]] = []

    def produce(
        self, topic: str, value: bytes, key: bytes, partition: int, on_delivery: Any
    ) -> None:
        self._callbacks.append(on_delivery)

    def flush(self, timeout_s: float) -> None:
        for callback, report in zip(self._callbacks, self._reports, strict=True):
            if isinstance(report, int):
                callback(None, SimpleNamespace(offset=lambda report=report: report))
            elif report == "late":
                callback(TIMED_OUT, None)


@pytest.mark.parametrize(
    ("reports", "outcome", "offsets"),
    [
        ((7, 8, 9), Outcome.OK, {1: 7, 2: 8, 3: 9}),
        # They left in two batches, and a record of another producer is between them.
        ((7, 8, 11), Outcome.OK, {1: 7, 2: 8, 3: 11}),
        # The broker had appended them before and does not know where.
        ((-1, -1, -1), Outcome.OK, {1: None, 2: None, 3: None}),
        # What was not acknowledged may be anywhere.
        ((7, 8, "late"), Outcome.FAIL, {1: 7, 2: 8}),
        (("late", 8, 9), Outcome.FAIL, {2: 8, 3: 9}),
        ((7, "never", "never"), Outcome.FAIL, {1: 7}),
        (("late", "late", "late"), Outcome.FAIL, {}),
    ],
)
def test_only_records_that_were_acknowledged_are_recorded_as_sent(
    reports: tuple[int | str, ...], outcome: Outcome, offsets: dict[int, int | None]
) -> None:
    history = HistoryWriter(None)
    recorder = RunRecorder(lambda: 1, history)
    producer = ConfluentTransactionalProducer({}, SETTINGS)
    producer._producer = Library(reports)

    async def send() -> Outcome:
        transaction = RecordedTransaction(recorder, run_id=1, process=1, transactional_id="x")
        batches = transaction.batches([(("t", 0), 3)])
        return (await producer.send(batches, transaction.delivered)).outcome

    assert asyncio.run(send()) == outcome
    events = history.close()["transaction_events"].to_pylist()
    sent = {row["value"]: row["offset"] for row in events if row["event"] == "sent"}
    assert sent == offsets
