"""A poll with confluent-kafka never shows a record and a log end that contradict each other."""

from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

import confluent_kafka

from harness.history.op import Outcome
from workloads.clients.confluent import _Reader, consumer_settings

END_OF_PARTITION = confluent_kafka.KafkaError._PARTITION_EOF


class Message:
    """What librdkafka hands out: a record, or the end of the partition."""

    def __init__(self, offset: int, *, is_end: bool = False) -> None:
        self._offset = offset
        self._error = confluent_kafka.KafkaError(END_OF_PARTITION) if is_end else None

    def error(self) -> Any:
        return self._error

    def offset(self) -> int:
        return self._offset

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def leader_epoch(self) -> int:
        return 3

    def timestamp(self) -> tuple[int, int]:
        return 1, 5

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> None:
        return None


class Queue:
    """A consumer whose queue holds these messages."""

    def __init__(self, *messages: Message) -> None:
        self.messages = list(messages)

    def incremental_assign(self, places: list[Any]) -> None:
        pass

    def poll(self, timeout_s: float) -> Message | None:
        return self.messages.pop(0) if self.messages else None

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        taken, self.messages = self.messages, []
        return taken


@pytest.mark.parametrize(
    ("messages", "offsets", "end"),
    [
        ((Message(20, is_end=True), Message(20), Message(21)), [], 20),
        ((Message(19), Message(20, is_end=True), Message(20)), [19], 20),
        ((Message(19), Message(20, is_end=True)), [19], 20),
        ((Message(20), Message(21)), [20, 21], None),
    ],
)
def test_records_beyond_a_reported_log_end_are_left_to_the_next_poll(
    messages: tuple[Message, ...], offsets: list[int], end: int | None
) -> None:
    reader = _Reader(consumer_settings(1000, 20))
    reader.consumer.close()
    reader.consumer = Queue(*messages)
    result = reader.poll("t", 0, 19, timeout_ms=100)
    assert result.completion.outcome == Outcome.OK
    assert result.completion.end_offset == end
    assert [record.offset for batch in result.batches for record in batch.records] == offsets
