"""kafka-python against a real cluster: pure Python, the newest API versions of the four, strict about CRCs."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from wire_helpers import RECENT_MS, SharedCluster, eventually, new_name

pytest.importorskip("kafka", reason="kafka-python is not installed")

from kafka import (
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    NewTopic,
)
from kafka.errors import (
    CommitFailedError,
    KafkaError,
    TopicAlreadyExistsError,
)

pytestmark = [
    pytest.mark.wire,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.usefixtures("forgotten_sockets"),
]


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    """Closes whatever a test opened."""
    with contextlib.ExitStack() as opened:
        yield opened


@pytest.fixture
def producer(bootstrap: str, stack: contextlib.ExitStack) -> Callable[..., KafkaProducer]:
    def make(**settings: Any) -> KafkaProducer:
        made = KafkaProducer(bootstrap_servers=bootstrap, **settings)
        stack.callback(made.close, timeout=10)
        return made

    return make


@pytest.fixture
def consumer(bootstrap: str, stack: contextlib.ExitStack) -> Callable[..., KafkaConsumer]:
    def make(*topics: str, **settings: Any) -> KafkaConsumer:
        made = KafkaConsumer(
            *topics,
            bootstrap_servers=bootstrap,
            **{"auto_offset_reset": "earliest", "enable_auto_commit": False, **settings},
        )
        stack.callback(made.close, autocommit=False)
        for topic in topics:
            # As a group's leader this client assigns from the metadata that it happens to have, and does not wait.
            assert eventually(partial(made.partitions_for_topic, topic), what="metadata")
        return made

    return make


@pytest.fixture
def admin(bootstrap: str, stack: contextlib.ExitStack) -> KafkaAdminClient:
    made = KafkaAdminClient(bootstrap_servers=bootstrap)
    stack.callback(made.close)
    return made


def read(reader: KafkaConsumer, count: int) -> list[Any]:
    records: list[Any] = []

    def enough() -> bool:
        for part in reader.poll(timeout_ms=200).values():
            records.extend(part)
        return len(records) >= count

    eventually(enough, what=f"{count} records")
    assert len(records) == count
    return records


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_of_every_acks_setting_can_be_read_back(
    cluster: SharedCluster, producer: Any, consumer: Any, acks: int | str
) -> None:
    topic = cluster.topic()
    sender = producer(acks=acks, enable_idempotence=False)
    futures = [sender.send(topic, b"%d" % number, partition=0) for number in range(20)]
    sent = [future.get(timeout=20) for future in futures]
    if acks != 0:
        assert [metadata.offset for metadata in sent] == list(range(20))
    reader = consumer()
    reader.assign([TopicPartition(topic, 0)])
    assert [record.value for record in read(reader, 20)] == [b"%d" % n for n in range(20)]


def test_an_idempotent_producer_works(cluster: SharedCluster, producer: Any, consumer: Any) -> None:
    topic = cluster.topic()
    sender = producer(acks="all", enable_idempotence=True)
    futures = [sender.send(topic, b"%d" % number) for number in range(50)]
    assert [future.get(timeout=20).offset for future in futures] == list(range(50))
    reader = consumer()
    reader.assign([TopicPartition(topic, 0)])
    assert [record.value for record in read(reader, 50)] == [b"%d" % n for n in range(50)]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_come_back_as_they_were(
    cluster: SharedCluster, producer: Any, consumer: Any, codec: str
) -> None:
    from kafka import codec as codecs

    if not getattr(codecs, f"has_{codec}")():
        pytest.skip(f"kafka-python has no {codec} here (an extra package)")
    topic = cluster.topic()
    sender = producer(compression_type=codec, linger_ms=50, enable_idempotence=False)
    sent = [b"value %d " % number * 30 for number in range(50)]
    for future in [sender.send(topic, value) for value in sent]:
        future.get(timeout=20)
    reader = consumer()
    reader.assign([TopicPartition(topic, 0)])
    assert [record.value for record in read(reader, 50)] == sent


def test_keys_headers_and_timestamps_survive(
    cluster: SharedCluster, producer: Any, consumer: Any
) -> None:
    topic = cluster.topic()
    headers = [("first", b"1"), ("first", b"")]
    sender = producer(enable_idempotence=False)
    sender.send(topic, b"v", key=b"k\x00", headers=headers, timestamp_ms=RECENT_MS).get(timeout=20)
    reader = consumer()
    reader.assign([TopicPartition(topic, 0)])
    (record,) = read(reader, 1)
    assert (record.key, record.value, list(record.headers)) == (b"k\x00", b"v", headers)
    assert record.timestamp == RECENT_MS


def test_seek_and_offsets_by_time(cluster: SharedCluster, producer: Any, consumer: Any) -> None:
    topic = cluster.topic()
    place = TopicPartition(topic, 0)
    sender = producer(enable_idempotence=False)
    for number in range(10):
        sender.send(topic, b"%d" % number, timestamp_ms=RECENT_MS + 1000 * number)
        sender.flush(20)
    reader = consumer()
    reader.assign([place])
    assert reader.beginning_offsets([place]) == {place: 0}
    assert reader.end_offsets([place]) == {place: 10}
    found = reader.offsets_for_times({place: RECENT_MS + 3001})[place]
    assert (found.offset, found.timestamp) == (4, RECENT_MS + 4000)
    assert reader.offsets_for_times({place: RECENT_MS + 1_000_000_000})[place] is None
    reader.seek(place, 7)
    assert [record.offset for record in read(reader, 3)] == [7, 8, 9]
    reader.seek_to_beginning(place)
    assert read(reader, 10)[0].offset == 0


def test_members_share_the_partitions_and_take_over_when_one_leaves(
    cluster: SharedCluster, consumer: Any
) -> None:
    topic, group = cluster.topic(partitions=4), new_name("group")
    stop = threading.Event()
    owned: dict[str, set[int]] = {}
    failures: list[BaseException] = []

    def live(name: str, leave: threading.Event) -> None:
        # kafka-python's consumers are not thread-safe and rebalance in poll(): one thread each.
        try:
            member = consumer(topic, group_id=group, heartbeat_interval_ms=200)
            assert member.partitions_for_topic(topic) == {0, 1, 2, 3}
            while not (stop.is_set() or leave.is_set()):
                member.poll(timeout_ms=100)
                owned[name] = {place.partition for place in member.assignment()}
            member.close(autocommit=False)
        except BaseException as error:
            failures.append(error)
        owned.pop(name, None)

    def is_shared(count: int) -> bool:
        assert not failures, failures
        parts = list(owned.values())
        return (
            len(parts) == count
            and all(parts)
            and sorted(p for q in parts for p in q) == [0, 1, 2, 3]
        )

    leaves = threading.Event(), threading.Event()
    threads = [threading.Thread(target=live, args=(f"m{i}", leaves[i])) for i in range(2)]
    try:
        threads[0].start()
        eventually(lambda: is_shared(1), what="one member has everything")
        threads[1].start()
        eventually(lambda: is_shared(2), what="two members share")
        leaves[0].set()
        eventually(lambda: is_shared(1), what="the other one takes over")
    finally:
        stop.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join(30)


def test_the_next_member_starts_at_the_committed_offsets(
    cluster: SharedCluster, producer: Any, consumer: Any
) -> None:
    topic, group = cluster.topic(), new_name("group")
    place = TopicPartition(topic, 0)
    sender = producer(enable_idempotence=False)
    for number in range(10):
        sender.send(topic, b"%d" % number)
    sender.flush(20)
    first = consumer(topic, group_id=group)
    read(first, 10)
    first.commit({place: OffsetAndMetadata(6, "note", -1)})
    assert first.committed(place) == 6
    first.close(autocommit=False)
    second = consumer(topic, group_id=group)
    assert [record.offset for record in read(second, 4)] == [6, 7, 8, 9]
    assert second.committed(place, metadata=True).metadata == "note"


def test_a_member_that_was_expelled_cannot_commit(
    cluster: SharedCluster, producer: Any, consumer: Any
) -> None:
    topic, group = cluster.topic(), new_name("group")
    sender = producer(enable_idempotence=False)
    sender.send(topic, b"a").get(timeout=20)
    member = consumer(topic, group_id=group)
    read(member, 1)
    outsider = consumer(group_id=group)
    outsider.assign([TopicPartition(topic, 0)])
    with pytest.raises((CommitFailedError, KafkaError)):
        outsider.commit({TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)})
    assert member.committed(TopicPartition(topic, 0)) is None


def test_topics_are_created_described_and_deleted(
    cluster: SharedCluster, admin: KafkaAdminClient
) -> None:
    name = new_name("topic")
    admin.create_topics([NewTopic(name, 2, 3)])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(name, 2, 3)])
    eventually(lambda: name in admin.list_topics())
    (described,) = admin.describe_topics([name])
    assert len(described["partitions"]) == 2
    admin.delete_topics([name])
    eventually(lambda: name not in admin.list_topics())


def test_partitions_are_added_and_reassigned_and_get_their_preferred_leader(
    cluster: SharedCluster, admin: KafkaAdminClient
) -> None:
    topic = cluster.topic(replicas=(1, 2, 3))

    def partitions() -> list[tuple[int, list[int]]]:
        (described,) = admin.describe_topics([topic])
        found = sorted(described["partitions"], key=lambda one: one["partition_index"])
        return [(one["leader_id"], one["replica_nodes"]) for one in found]

    admin.create_partitions({topic: {"count": 2, "assignments": [[3, 1]]}}, raise_errors=False)
    admin.create_partitions({topic: {"count": 2, "assignments": [[3, 1, 2]]}})
    eventually(lambda: partitions() == [(1, [1, 2, 3]), (3, [3, 1, 2])], what="two partitions")
    moved = TopicPartition(topic, 0)
    assert admin.alter_partition_reassignments({moved: [2, 1]}) == {moved: None}
    assert moved not in admin.list_partition_reassignments()
    # On a busy machine a broker may be fenced for a moment, and then the other one leads.
    moved_to = [(1, [2, 1]), (2, [2, 1])]
    eventually(lambda: partitions()[0] in moved_to, what="the reassignment")

    def is_elected() -> bool:
        admin.elect_leaders(0, {topic: [0]}, raise_errors=False)
        return partitions()[0] == (2, [2, 1])

    eventually(is_elected, what="the preferred leader")
    assert list(admin.alter_partition_reassignments({moved: None})) == [moved]


def test_the_cluster_and_settings_are_described(
    cluster: SharedCluster, admin: KafkaAdminClient
) -> None:
    described = admin.describe_cluster()
    assert sorted(broker["broker_id"] for broker in described["brokers"]) == [1, 2, 3]
    # It shows what differs from the defaults.
    topic = cluster.topic(configs={"min.insync.replicas": "1"})
    response = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    assert list(response["topic"][topic]) == ["min.insync.replicas"]


def test_a_topic_is_created_by_the_first_produce_request(producer: Any, consumer: Any) -> None:
    topic = new_name("auto")
    assert producer(enable_idempotence=False).send(topic, b"v").get(timeout=30).offset == 0
    reader = consumer()
    reader.assign([TopicPartition(topic, 0)])
    assert [record.value for record in read(reader, 1)] == [b"v"]
