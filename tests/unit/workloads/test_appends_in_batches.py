"""Appends of several records and partitions: every record is an operation of its own in the history."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from harness.contracts.client import Delivered, KeepGoing, ProducedBatch
from harness.contracts.host import ClientHost
from harness.history.op import Completion, Outcome
from harness.history.writer import HistoryWriter
from harness.runs.phases import RunRecorder
from workloads.append import AppendProcess, ProcessIds
from workloads.append_config import AppendConfig

KEYS = [("t", 0), ("t", 1)]


class FakeProducer:
    """Acknowledges every batch of partition 0 at offset 10, and knows nothing about the others."""

    def __init__(self) -> None:
        self.sent: list[list[ProducedBatch]] = []

    async def produce(
        self,
        batches: Sequence[ProducedBatch],
        acks: int,
        delivered: Delivered,
        keep_going: KeepGoing,
    ) -> None:
        self.sent.append(list(batches))
        for index, batch in reversed(list(enumerate(batches))):
            ok = Completion(outcome=Outcome.OK, offset=10)
            lost = Completion(outcome=Outcome.INFO, error="client-timeout", error_code=None)
            delivered(index, lost if batch.partition else ok)


def appended(**settings: Any) -> tuple[list[dict[str, Any]], FakeProducer]:
    """Lets a process append twice, with draws that are as large as possible."""
    history = HistoryWriter(None)
    clock = iter(range(10**6))
    most = SimpleNamespace(random=lambda: 1 - 2**-53)
    host = SimpleNamespace(random=SimpleNamespace(stream=lambda *_: most))
    process = AppendProcess(
        cast(ClientHost, host),
        AppendConfig(**settings),
        RunRecorder(lambda: next(clock), history),
        run_id=1,
        topic_partitions=KEYS,
        bootstrap=("b1:1",),
        ids=ProcessIds(),
    )
    producer = FakeProducer()
    process._producer = producer

    async def main() -> None:
        for _ in range(2):
            await process.append_to(process._pick_more(KEYS[0]), -1)
        await process.append(*KEYS[0], -1, final=True)

    asyncio.run(main())
    operations = history.close()["operations"].to_pylist()
    return sorted(operations, key=lambda row: row["op_index"]), producer


def test_every_record_has_its_place_in_the_batch_and_an_unknown_batch_retires_the_process() -> None:
    rows, producer = appended(records_per_batch_max=3, partitions_per_request_max=2)
    assert [[len(b.records) for b in sent] for sent in producer.sent] == [[3, 3], [3, 3], [1]]
    assert [(row["partition"], row["offset"]) for row in rows[:6]] == [
        (0, 10),
        (0, 11),
        (0, 12),
        (1, None),
        (1, None),
        (1, None),
    ]
    assert [row["outcome"] for row in rows[:6]] == ["ok"] * 3 + ["info"] * 3
    assert [(row["process"], row["sequence"]) for row in rows[:6]] == [(0, n) for n in range(6)]
    # All of them were invoked before the first one was sent.
    assert max(row["invoked_ns"] for row in rows[:6]) < min(row["completed_ns"] for row in rows[:6])
    assert {row["process"] for row in rows[6:12]} == {1}
    assert rows[12]["final"]


def test_a_partition_has_at_most_one_batch_in_a_request() -> None:
    _, producer = appended(partitions_per_request_max=50)
    assert [[batch.partition for batch in sent] for sent in producer.sent] == [[0, 1]] * 2 + [[0]]
