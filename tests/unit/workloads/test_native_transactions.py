"""Transactions of the native client: which requests it sends, and how commits end."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from harness.contracts.client import ProducedBatch
from harness.contracts.transactions import TransactionSettings
from harness.history.op import Completion, Outcome
from system_under_test.protocol.errors import ErrorCode
from workloads.clients import native_transactions
from workloads.clients.native_transactions import NativeTransactionalProducer

SETTINGS = TransactionSettings(
    transactional_id="p", transaction_timeout_ms=10_000, delivery_timeout_ms=1000
)
TIME_STEP_NS = 100_000_000
EPOCH = 4


class Coordinator:
    """Responds to each request with the next scripted error; without one it succeeds. None is no response."""

    script: dict[str, list[int | None]]
    next_epoch: int
    sent: list[tuple[str, int]]
    forgotten: int

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    async def request(self, request: Any) -> Any:
        name = type(request).__name__.removesuffix("Request")
        epoch = getattr(request, "producer_epoch", -1)
        Coordinator.sent.append((name, epoch))
        code = (Coordinator.script.get(name) or [0]).pop(0)
        if code is None:
            return None
        partition = SimpleNamespace(partition_error_code=code, error_code=code)
        topics = (SimpleNamespace(results_by_partition=(partition,), partitions=(partition,)),)
        is_first = name == "InitProducerId"
        return SimpleNamespace(
            error_code=code,
            producer_id=7 if is_first or Coordinator.next_epoch >= 0 else -1,
            producer_epoch=EPOCH if is_first else Coordinator.next_epoch,
            results_by_topic_v3_and_below=topics,
            topics=topics,
        )

    def forget(self) -> None:
        Coordinator.forgotten += 1

    def close(self) -> None:
        pass


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> NativeTransactionalProducer:
    Coordinator.script, Coordinator.next_epoch = {}, -1
    Coordinator.sent, Coordinator.forgotten = [], 0
    monkeypatch.setattr(native_transactions, "CoordinatorClient", Coordinator)
    monkeypatch.setattr(native_transactions, "RETRY_BACKOFF_MS", 0)
    monkeypatch.setattr(native_transactions, "RETRY_BACKOFF_MAX_MS", 0)
    now = iter(range(0, 10**15, TIME_STEP_NS))
    stream = SimpleNamespace(random=lambda: 0.5)
    host: Any = SimpleNamespace(
        clock=SimpleNamespace(monotonic_ns=lambda: next(now), wall_ms=lambda: 0),
        random=SimpleNamespace(stream=lambda _: stream),
    )
    return NativeTransactionalProducer(
        host, ("b1:9092",), SETTINGS, request_timeout_ms=100, connect_timeout_ms=100
    )


def ended(
    producer: NativeTransactionalProducer, script: list[int | None], *, is_commit: bool = True
) -> Completion:
    """Ends a transaction with positions, with scripted responses to EndTxn."""

    async def transaction() -> Completion:
        assert (await producer.initialise()).outcome == Outcome.OK
        assert (await producer.begin()).outcome == Outcome.OK
        assert (await producer.send_offsets("g", {("t", 0): 3})).outcome == Outcome.OK
        Coordinator.script["EndTxn"] = script
        return await (producer.commit() if is_commit else producer.abort())

    return asyncio.run(transaction())


def test_positions_are_added_before_they_are_sent(producer: NativeTransactionalProducer) -> None:
    assert ended(producer, [0]).outcome == Outcome.OK
    assert Coordinator.sent == [
        ("InitProducerId", -1),
        ("AddOffsetsToTxn", EPOCH),
        ("TxnOffsetCommit", EPOCH),
        ("EndTxn", EPOCH),
    ]


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ([0], Outcome.OK),
        ([None, 0], Outcome.OK),
        ([ErrorCode.CONCURRENT_TRANSACTIONS, 0], Outcome.OK),
        ([ErrorCode.PRODUCER_FENCED], Outcome.FAIL),
        ([ErrorCode.NOT_COORDINATOR, ErrorCode.INVALID_PRODUCER_EPOCH], Outcome.FAIL),
        ([None, ErrorCode.INVALID_PRODUCER_EPOCH], Outcome.INFO),
        ([None] * 30, Outcome.INFO),
        ([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 30, Outcome.FAIL),
    ],
)
def test_how_a_commit_ends(
    producer: NativeTransactionalProducer, script: list[int | None], outcome: Outcome
) -> None:
    assert ended(producer, script).outcome == outcome


def test_a_coordinator_that_moved_is_found_again(producer: NativeTransactionalProducer) -> None:
    ended(producer, [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0])
    assert Coordinator.forgotten == 1


def test_the_epoch_of_the_response_is_that_of_the_next_transaction(
    producer: NativeTransactionalProducer,
) -> None:
    Coordinator.next_epoch = EPOCH + 1
    ended(producer, [0])

    async def another() -> None:
        await producer.begin()
        await producer.send_offsets("g", {("t", 0): 4})

    asyncio.run(another())
    assert Coordinator.sent[-1] == ("TxnOffsetCommit", EPOCH + 1)


@pytest.mark.parametrize(("next_epoch", "outcome"), [(-1, Outcome.INFO), (9, Outcome.OK)])
def test_an_abort_after_a_gap_needs_another_epoch(
    producer: NativeTransactionalProducer, next_epoch: int, outcome: Outcome
) -> None:
    producer._batches.has_gap = True
    Coordinator.next_epoch = next_epoch

    async def transaction() -> Completion:
        await producer.begin()
        await producer.send_offsets("g", {("t", 0): 3})
        return await producer.abort()

    assert asyncio.run(transaction()).outcome == outcome


def test_a_transaction_that_the_coordinator_does_not_know_ends_without_a_request(
    producer: NativeTransactionalProducer,
) -> None:
    async def transaction() -> Completion:
        await producer.initialise()
        await producer.begin()
        return await producer.commit()

    assert asyncio.run(transaction()).outcome == Outcome.OK
    assert Coordinator.sent == [("InitProducerId", -1)]


def test_a_transaction_that_the_coordinator_may_know_is_aborted_there(
    producer: NativeTransactionalProducer,
) -> None:
    async def transaction() -> Completion:
        await producer.initialise()
        await producer.begin()
        Coordinator.script["AddOffsetsToTxn"] = [None] * 30
        assert (await producer.send_offsets("g", {("t", 0): 3})).outcome == Outcome.INFO
        return await producer.abort()

    assert asyncio.run(transaction()).outcome == Outcome.OK
    assert Coordinator.sent[-1] == ("EndTxn", EPOCH)


def test_nothing_is_sent_to_a_partition_that_was_refused(
    producer: NativeTransactionalProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    produced: list[Any] = []

    async def produce(*arguments: Any) -> None:
        produced.append(arguments)

    monkeypatch.setattr(producer._batches, "produce", produce)
    batch = ProducedBatch(topic="t", partition=0, records=((b"k", b"v"),))

    async def send() -> Completion:
        await producer.initialise()
        await producer.begin()
        return await producer.send([batch], lambda *_: None)

    Coordinator.script["AddPartitionsToTxn"] = [ErrorCode.PRODUCER_FENCED]
    refused = asyncio.run(send())
    assert (refused.outcome, refused.error) == (Outcome.FAIL, "PRODUCER_FENCED")
    assert not produced
    assert asyncio.run(send()).outcome == Outcome.OK
    assert len(produced) == 1
