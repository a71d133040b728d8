"""Transactions with confluent-kafka against real nodes: commit, abort, fencing, offsets, fail-over."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from wire_helpers import SharedCluster, eventually, new_name

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from system_under_test.broker.metadata_cache import TRANSACTION_TOPIC
from system_under_test.group.records import offsets_partition

pytestmark = pytest.mark.wire

WAIT_S = 60


def producer(cluster: SharedCluster, transactional_id: str, **settings: Any) -> Any:
    made = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 60000,
            **settings,
        }
    )
    made.init_transactions(WAIT_S)
    return made


@contextmanager
def consumer(cluster: SharedCluster, isolation: str, **settings: Any) -> Iterator[Any]:
    made = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": new_name("group"),
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )
    try:
        yield made
    finally:
        made.close()


def read(cluster: SharedCluster, topic: str, count: int, isolation: str) -> list[bytes]:
    """Returns `count` records from the start of partition 0."""
    with consumer(cluster, isolation) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []

        def enough() -> bool:
            message = reader.poll(0.5)
            if message is not None and message.error() is None:
                found.append(message.value())
            return len(found) >= count

        eventually(enough, within_s=WAIT_S, what=f"{count} records, found {found}")
        return found


def send(writer: Any, topic: str, *values: bytes) -> None:
    for value in values:
        writer.produce(topic, value, partition=0)


def test_committed_records_are_read_and_aborted_ones_are_not(cluster: SharedCluster) -> None:
    topic = cluster.topic(partitions=1)
    writer = producer(cluster, new_name("t"))
    for number, is_commit in enumerate((True, False, True)):
        writer.begin_transaction()
        send(writer, topic, b"a%d" % number, b"b%d" % number)
        if is_commit:
            writer.commit_transaction(WAIT_S)
        else:
            writer.flush(WAIT_S)
            writer.abort_transaction(WAIT_S)
    assert read(cluster, topic, 4, "read_committed") == [b"a0", b"b0", b"a2", b"b2"]
    both = [b"a0", b"b0", b"a1", b"b1", b"a2", b"b2"]
    assert read(cluster, topic, 6, "read_uncommitted") == both


def test_an_open_transaction_is_not_read_before_its_commit(cluster: SharedCluster) -> None:
    topic = cluster.topic(partitions=1)
    writer = producer(cluster, new_name("t"))
    writer.begin_transaction()
    send(writer, topic, b"open")
    writer.flush(WAIT_S)
    with consumer(cluster, "read_committed") as reader:
        place = TopicPartition(topic, 0)
        assert reader.get_watermark_offsets(place, WAIT_S) == (0, 0)
        reader.assign([TopicPartition(topic, 0, 0)])
        assert reader.poll(1.0) is None
        writer.commit_transaction(WAIT_S)
        message = eventually(lambda: reader.poll(0.5), within_s=WAIT_S)
        assert message.value() == b"open"


def test_a_zombie_is_fenced(cluster: SharedCluster) -> None:
    topic = cluster.topic(partitions=1)
    transactional_id = new_name("t")
    zombie = producer(cluster, transactional_id)
    zombie.begin_transaction()
    send(zombie, topic, b"zombie")
    zombie.flush(WAIT_S)
    successor = producer(cluster, transactional_id)
    successor.begin_transaction()
    send(successor, topic, b"successor")
    successor.commit_transaction(WAIT_S)
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(WAIT_S)
    error = refused.value.args[0]
    assert error.fatal()
    assert error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    assert read(cluster, topic, 1, "read_committed") == [b"successor"]


def test_offsets_are_committed_with_the_records_that_follow_from_them(
    cluster: SharedCluster,
) -> None:
    source, target = cluster.topic(partitions=1), cluster.topic(partitions=1)
    plain = Producer({"bootstrap.servers": cluster.bootstrap})
    send(plain, source, *(b"%d" % number for number in range(6)))
    assert plain.flush(WAIT_S) == 0
    writer = producer(cluster, new_name("t"))
    group = new_name("group")
    with consumer(cluster, "read_committed", **{"group.id": group}) as reader:
        reader.subscribe([source])
        for is_commit in (True, False, True):
            writer.begin_transaction()
            for _ in range(2):
                message = eventually(lambda: reader.poll(0.5), within_s=WAIT_S)
                assert message.error() is None
                send(writer, target, b"from-" + message.value())
            position = reader.position(reader.assignment())
            writer.send_offsets_to_transaction(position, reader.consumer_group_metadata(), WAIT_S)
            if is_commit:
                writer.commit_transaction(WAIT_S)
                continue
            writer.abort_transaction(WAIT_S)
            (committed,) = reader.committed([TopicPartition(source, 0)], WAIT_S)
            assert committed.offset == 2
            reader.seek(TopicPartition(source, 0, committed.offset))
        (committed,) = reader.committed([TopicPartition(source, 0)], WAIT_S)
        assert committed.offset == 4
    assert read(cluster, target, 4, "read_committed") == [b"from-%d" % n for n in range(4)]


def test_a_transaction_survives_the_end_of_its_coordinator(cluster: SharedCluster) -> None:
    topic = cluster.topic(partitions=1)
    transactional_id = new_name("t")
    writer = producer(cluster, transactional_id)
    writer.begin_transaction()
    send(writer, topic, b"before")
    writer.flush(WAIT_S)
    found = cluster.describe(TRANSACTION_TOPIC)
    leaders = {one.partition_index: one.leader_id for one in found}
    coordinator = leaders[offsets_partition(transactional_id, len(leaders))]
    (name,) = (name for name in cluster.brokers if cluster.local.nodes[name].node_id == coordinator)
    cluster.kill(name)
    writer.commit_transaction(WAIT_S)
    assert read(cluster, topic, 1, "read_committed") == [b"before"]
    cluster.mend()
