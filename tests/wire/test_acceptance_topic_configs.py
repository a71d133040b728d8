"""Topic settings, DeleteRecords and compacted topics, as confluent-kafka (librdkafka) uses them."""

from collections.abc import Iterator

import pytest
from wire_helpers import SharedCluster, eventually

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from test_acceptance_confluent import consumer, producer, read, send

pytestmark = pytest.mark.wire


@pytest.fixture
def consumers() -> Iterator[list[Consumer]]:
    """Consumers that a test opened; they are closed whatever happens."""
    opened: list[Consumer] = []
    yield opened
    for one in opened:
        one.close()


@pytest.fixture
def admin(cluster: SharedCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def at_start(cluster: SharedCluster, topic: str, opened: list[Consumer]) -> Consumer:
    """Returns a consumer that reads partition 0 from its start."""
    reader = consumer(cluster.bootstrap, opened)
    reader.assign([TopicPartition(topic, 0, 0)])
    return reader


def test_deleted_records_cannot_be_read(
    cluster: SharedCluster, admin: AdminClient, consumers: list[Consumer]
) -> None:
    topic = cluster.topic()
    send(producer(cluster.bootstrap, acks="all"), topic, [b"a", b"b", b"c", b"d"])
    partition = TopicPartition(topic, 0, 3)
    found = admin.delete_records([partition])[partition].result(20)
    assert found.low_watermark == 3
    reader = at_start(cluster, topic, consumers)
    assert reader.get_watermark_offsets(partition, timeout=10) == (3, 4)
    # Offset 0 is out of range, and the consumer's setting sends it to the earliest one.
    (message,) = read(reader, 1)
    assert (message.offset(), message.value()) == (3, b"d")
    beyond = TopicPartition(topic, 0, 99)
    with pytest.raises(KafkaException):
        admin.delete_records([beyond])[beyond].result(20)


def test_all_settings_are_described(cluster: SharedCluster, admin: AdminClient) -> None:
    topic = cluster.topic(configs={"retention.ms": "86400000"})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(20)
    assert len(found) == 33
    assert (found["retention.ms"].value, found["retention.ms"].is_default) == ("86400000", False)
    assert (found["cleanup.policy"].value, found["cleanup.policy"].is_default) == ("delete", True)


def test_a_topic_with_log_append_time_replaces_timestamps(
    cluster: SharedCluster, consumers: list[Consumer]
) -> None:
    topic = cluster.topic(configs={"message.timestamp.type": "LogAppendTime"})
    send(producer(cluster.bootstrap, acks="all"), topic, [b"a"], timestamp=5)
    (message,) = read(at_start(cluster, topic, consumers), 1)
    kind, at_ms = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert at_ms > 10**12


def test_a_consumer_reads_a_compacted_topic_across_removed_batches(
    cluster: SharedCluster, admin: AdminClient, consumers: list[Consumer]
) -> None:
    topic = cluster.topic(
        configs={
            "cleanup.policy": "compact",
            "internal.segment.bytes": "1000",
            "min.cleanable.dirty.ratio": "0",
        }
    )
    sender = producer(cluster.bootstrap, acks="all", linger_ms=0)
    for number in range(60):
        send(sender, topic, [b"%d" % number], key=b"k%d" % (number % 3))

    def offsets() -> list[int]:
        reader = at_start(cluster, topic, consumers)
        found = []
        while not found or found[-1] < 59:
            (message,) = read(reader, 1)
            found.append(message.offset())
        return found

    def few_offsets() -> list[int]:
        found = offsets()
        return found if len(found) < 40 else []

    found = eventually(few_offsets)
    assert found == sorted(set(found))
    assert found[-3:] == [57, 58, 59]
