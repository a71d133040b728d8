"""confluent-kafka (librdkafka) against a real cluster, used as its users use it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from wire_helpers import BROKER_SETTINGS, RECENT_MS, SharedCluster, eventually, new_name

from harness.environments.local.standing import LocalCluster, local_settings
from harness.systems.reference.node_files import CLUSTER_ID

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from system_under_test.protocol.messages import describe_topic_partitions_request

pytestmark = pytest.mark.wire

OFFSETS_TOPIC = "__consumer_offsets"
Reports = list[tuple[KafkaError | None, Message]]


@pytest.fixture
def consumers() -> Iterator[list[Consumer]]:
    """Consumers that a test opened; they are closed whatever happens."""
    opened: list[Consumer] = []
    yield opened
    for consumer in opened:
        consumer.close()


def producer(bootstrap: str, **settings: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.metrics.push": False,
            "delivery.timeout.ms": 30_000,
            "request.timeout.ms": 5_000,
            "log_level": 0,
        }
        | {name.replace("_", "."): value for name, value in settings.items()}
    )


def consumer(bootstrap: str, opened: list[Consumer], **settings: Any) -> Consumer:
    made = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "enable.metrics.push": False,
            "group.id": new_name("group"),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    opened.append(made)
    return made


def send(sender: Producer, topic: str, values: list[bytes], **settings: Any) -> Reports:
    """Produces values and waits for all delivery reports, which it returns in order of arrival."""
    reports: Reports = []
    for value in values:
        sender.produce(
            topic,
            value,
            on_delivery=lambda error, message: reports.append((error, message)),
            **settings,
        )
    assert sender.flush(30) == 0, "records without a delivery report"
    return reports


def read(reader: Consumer, count: int, *, within_s: float = 60.0) -> list[Message]:
    """Reads until it has that many records."""
    messages: list[Message] = []
    deadline_s = time.monotonic() + within_s
    while len(messages) < count and time.monotonic() < deadline_s:
        message = reader.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            messages.append(message)
    assert len(messages) == count, f"{len(messages)} of {count} records"
    return messages


def read_all(bootstrap: str, topic: str, count: int, opened: list[Consumer]) -> list[Message]:
    """Reads a one-partition topic from its start, by assignment."""
    reader = consumer(bootstrap, opened)
    reader.assign([TopicPartition(topic, 0, 0)])
    return read(reader, count)


# -- produce


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_of_every_acks_setting_can_be_read_back(
    cluster: SharedCluster, consumers: list[Consumer], acks: str
) -> None:
    topic = cluster.topic()
    sent = [b"%d" % number for number in range(50)]
    reports = send(producer(cluster.bootstrap, acks=acks), topic, sent)
    assert all(error is None for error, _ in reports)
    if acks != "0":
        assert [message.offset() for _, message in reports] == list(range(50))
    found = read_all(cluster.bootstrap, topic, 50, consumers)
    assert [message.value() for message in found] == sent


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_come_back_as_they_were(
    cluster: SharedCluster, consumers: list[Consumer], codec: str
) -> None:
    topic = cluster.topic()
    sent = [b"value %d " % number * 50 for number in range(100)]
    sender = producer(cluster.bootstrap, compression_type=codec, linger_ms=50)
    assert all(error is None for error, _ in send(sender, topic, sent))
    found = read_all(cluster.bootstrap, topic, 100, consumers)
    assert [message.value() for message in found] == sent


def test_keys_headers_and_timestamps_survive(
    cluster: SharedCluster, consumers: list[Consumer]
) -> None:
    topic = cluster.topic()
    headers = [("first", b"1"), ("second", b""), ("first", b"again"), ("none", None)]
    sender = producer(cluster.bootstrap)
    send(sender, topic, [b"v"], key=b"k\x00", headers=headers, timestamp=RECENT_MS)
    send(sender, topic, [None], key=b"deleted")  # type: ignore[list-item]
    full, tombstone = read_all(cluster.bootstrap, topic, 2, consumers)
    assert (full.key(), full.value(), full.headers()) == (b"k\x00", b"v", headers)
    assert full.timestamp()[1] == RECENT_MS
    assert (tombstone.key(), tombstone.value(), tombstone.headers()) == (b"deleted", None, None)


def test_records_of_almost_a_megabyte_fit_and_larger_ones_are_refused(
    cluster: SharedCluster, consumers: list[Consumer]
) -> None:
    topic = cluster.topic()
    large = bytes(range(256)) * 3900
    sender = producer(cluster.bootstrap, message_max_bytes=3_000_000)
    ((error, _),) = send(sender, topic, [large])
    assert error is None
    ((refused, _),) = send(sender, topic, [large * 2])
    assert refused is not None and refused.code() == KafkaError.MSG_SIZE_TOO_LARGE
    (found,) = read_all(cluster.bootstrap, topic, 1, consumers)
    assert found.value() == large


def test_an_idempotent_producer_keeps_its_order_over_many_partitions(
    cluster: SharedCluster, consumers: list[Consumer]
) -> None:
    topic = cluster.topic(partitions=3)
    sender = producer(cluster.bootstrap, enable_idempotence=True, linger_ms=1)
    reports: Reports = []
    for number in range(600):
        sender.produce(
            topic,
            b"%d" % number,
            partition=number % 3,
            on_delivery=lambda error, message: reports.append((error, message)),
        )
    assert sender.flush(30) == 0
    assert all(error is None for error, _ in reports)
    reader = consumer(cluster.bootstrap, consumers)
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
    found = read(reader, 600)
    for partition in range(3):
        values = [int(m.value() or b"") for m in found if m.partition() == partition]
        assert values == list(range(partition, 600, 3))


def test_acks_all_is_refused_while_too_few_replicas_are_in_sync(cluster: SharedCluster) -> None:
    topic = cluster.topic(configs={"min.insync.replicas": "3"})
    leader = cluster.leader(topic)
    follower = next(name for name in cluster.brokers if name != leader)
    cluster.stop(follower)
    cluster.wait_for_isr(topic, 2)
    sender = producer(cluster.bootstrap, retries=0, enable_idempotence=False)
    ((error, _),) = send(sender, topic, [b"v"])
    assert error is not None and error.code() == KafkaError.NOT_ENOUGH_REPLICAS
    ((error, _),) = send(producer(cluster.bootstrap, acks=1), topic, [b"v"])
    assert error is None


# -- consume


def test_seek_goes_back_and_forth(cluster: SharedCluster, consumers: list[Consumer]) -> None:
    topic = cluster.topic()
    send(producer(cluster.bootstrap), topic, [b"%d" % number for number in range(20)])
    reader = consumer(cluster.bootstrap, consumers)
    reader.assign([TopicPartition(topic, 0, 0)])
    read(reader, 20)
    for offset in (5, 15, 0):
        reader.seek(TopicPartition(topic, 0, offset))
        (found,) = read(reader, 1)
        assert found.offset() == offset
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), cached=False) == (0, 20)


def test_offsets_are_found_by_time(cluster: SharedCluster, consumers: list[Consumer]) -> None:
    topic = cluster.topic()
    sender = producer(cluster.bootstrap)
    for number in range(10):
        send(sender, topic, [b"%d" % number], timestamp=RECENT_MS + 1000 * number)
    reader = consumer(cluster.bootstrap, consumers)

    def offset_at(timestamp_ms: int) -> int:
        (found,) = reader.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=10)
        assert found.error is None
        return int(found.offset)

    assert offset_at(RECENT_MS) == 0
    assert offset_at(RECENT_MS + 3001) == 4
    assert offset_at(RECENT_MS + 9000) == 9
    assert offset_at(0) == 0
    # librdkafka turns "no such record" into the log end.
    assert offset_at(RECENT_MS + 1_000_000_000) in (-1, 10)


def test_the_end_of_a_partition_is_reported(
    cluster: SharedCluster, consumers: list[Consumer]
) -> None:
    topic = cluster.topic()
    send(producer(cluster.bootstrap), topic, [b"a", b"b"])
    reader = consumer(cluster.bootstrap, consumers, enable_partition_eof=True)
    reader.assign([TopicPartition(topic, 0, 0)])
    events: list[Message] = []
    eventually(lambda: (m := reader.poll(0.2)) and (events.append(m) or m.error() is not None))
    assert [event.offset() for event in events] == [0, 1, 2]
    error = events[-1].error()
    assert error is not None and error.code() == KafkaError._PARTITION_EOF


def test_a_position_outside_the_log_is_an_error_if_configured(
    cluster: SharedCluster, consumers: list[Consumer]
) -> None:
    topic = cluster.topic()
    send(producer(cluster.bootstrap), topic, [b"a"])
    reader = consumer(cluster.bootstrap, consumers, auto_offset_reset="error")
    reader.assign([TopicPartition(topic, 0, 100)])
    error = eventually(lambda: (m := reader.poll(0.2)) and m.error())
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    assert "out of range" in error.str().lower()


# -- groups


def assignment_of(*members: Consumer) -> list[set[int]]:
    for member in members:
        message = member.poll(0.05)
        assert message is None or message.error() is None
    return [{place.partition for place in member.assignment()} for member in members]


def is_shared(parts: list[set[int]], partitions: int) -> bool:
    return all(parts) and sorted(p for part in parts for p in part) == list(range(partitions))


def test_members_share_the_partitions_and_take_over_when_one_leaves(
    cluster: SharedCluster, consumers: list[Consumer]
) -> None:
    topic, group = cluster.topic(partitions=4), new_name("group")
    settings = {"group_id": group, "session_timeout_ms": 6000, "heartbeat_interval_ms": 200}
    first = consumer(cluster.bootstrap, consumers, **settings)
    first.subscribe([topic])
    eventually(lambda: is_shared(assignment_of(first), 4), what="one member has everything")
    second = consumer(cluster.bootstrap, consumers, **settings)
    second.subscribe([topic])
    eventually(lambda: is_shared(assignment_of(first, second), 4), what="two members share")
    consumers.remove(first)
    first.close()
    eventually(lambda: is_shared(assignment_of(second), 4), what="the other one takes over")


@pytest.mark.parametrize("strategy", ["roundrobin", "cooperative-sticky"])
def test_other_assignors_rebalance_as_well(
    cluster: SharedCluster, consumers: list[Consumer], strategy: str
) -> None:
    topic, group = cluster.topic(partitions=4), new_name("group")
    settings = {
        "group_id": group,
        "partition_assignment_strategy": strategy,
        "heartbeat_interval_ms": 200,
    }
    members = [consumer(cluster.bootstrap, consumers, **settings) for _ in range(2)]
    for member in members:
        member.subscribe([topic])
    eventually(lambda: is_shared(assignment_of(*members), 4))


def test_a_member_that_dies_is_replaced_after_its_session_timeout(
    cluster: SharedCluster, consumers: list[Consumer]
) -> None:
    topic, group = cluster.topic(partitions=2), new_name("group")
    settings = {"group_id": group, "session_timeout_ms": 1000, "heartbeat_interval_ms": 200}
    mortal: list[Consumer] = []
    consumer(cluster.bootstrap, mortal, **settings).subscribe([topic])
    survivor = consumer(cluster.bootstrap, consumers, **settings)
    survivor.subscribe([topic])
    eventually(lambda: is_shared(assignment_of(mortal[0], survivor), 2))
    mortal.clear()  # a consumer that is dropped without close() does not leave its group
    eventually(lambda: is_shared(assignment_of(survivor), 2), what="the survivor has everything")


def test_a_static_member_keeps_its_partitions_over_a_restart(
    cluster: SharedCluster, consumers: list[Consumer]
) -> None:
    topic, group = cluster.topic(partitions=2), new_name("group")
    settings = {"group_id": group, "session_timeout_ms": 20_000, "heartbeat_interval_ms": 200}
    other = consumer(cluster.bootstrap, consumers, group_instance_id="other", **settings)
    mine = consumer(cluster.bootstrap, consumers, group_instance_id="mine", **settings)
    for member in (other, mine):
        member.subscribe([topic])
    eventually(lambda: is_shared(assignment_of(other, mine), 2))
    before = assignment_of(other, mine)
    consumers.remove(mine)
    mine.close()  # a static member does not leave
    again = consumer(cluster.bootstrap, consumers, group_instance_id="mine", **settings)
    again.subscribe([topic])
    eventually(lambda: assignment_of(other, again) == before, what="the same assignment as before")


def test_committed_offsets_survive_the_restart_of_every_broker(
    cluster: SharedCluster, consumers: list[Consumer]
) -> None:
    topic, group = cluster.topic(), new_name("group")
    send(producer(cluster.bootstrap), topic, [b"%d" % number for number in range(10)])
    first = consumer(cluster.bootstrap, consumers, group_id=group)
    first.subscribe([topic])
    messages = read(first, 6)
    (committed,) = first.commit(message=messages[-1], asynchronous=False)
    assert committed.error is None and committed.offset == 6
    consumers.remove(first)
    first.close()
    for name in cluster.brokers:
        cluster.stop(name)
        cluster.start(name)
    cluster.mend()
    second = consumer(cluster.bootstrap, consumers, group_id=group)
    second.subscribe([topic])
    assert [message.offset() for message in read(second, 4)] == [6, 7, 8, 9]
    (found,) = second.committed([TopicPartition(topic, 0)], timeout=10)
    assert found.offset == 6 and found.metadata in ("", None)


@pytest.mark.long
def test_a_recreated_topic_is_read_from_its_beginning(
    cluster: SharedCluster, admin: AdminClient, consumers: list[Consumer]
) -> None:
    topic, group = cluster.topic(), new_name("group")
    send(producer(cluster.bootstrap), topic, [b"old %d" % number for number in range(5)])
    first = consumer(cluster.bootstrap, consumers, group_id=group)
    first.subscribe([topic])
    first.commit(message=read(first, 5)[-1], asynchronous=False)
    consumers.remove(first)
    first.close()
    admin.delete_topics([topic])[topic].result(10)
    eventually(lambda: topic not in admin.list_topics(timeout=5).topics)
    cluster.topic(name=topic)
    send(producer(cluster.bootstrap), topic, [b"new %d" % number for number in range(7)])
    # Neither the coordinator that saw the topic go nor the next one, which reads the log, knows a place in it.
    for name in ("", *cluster.brokers):
        if name:
            cluster.stop(name)
            cluster.start(name)
            cluster.mend()
        asker = consumer(cluster.bootstrap, consumers, group_id=group)
        (found,) = asker.committed([TopicPartition(topic, 0)], timeout=30)
        assert found.offset < 0
    second = consumer(cluster.bootstrap, consumers, group_id=group)
    second.subscribe([topic])
    assert read(second, 7)[0].value() == b"new 0"


def test_offsets_are_committed_automatically(
    cluster: SharedCluster, consumers: list[Consumer]
) -> None:
    topic, group = cluster.topic(), new_name("group")
    send(producer(cluster.bootstrap), topic, [b"a", b"b", b"c"])
    settings = {"group_id": group, "enable_auto_commit": True, "auto_commit_interval_ms": 100}
    first = consumer(cluster.bootstrap, consumers, **settings)
    first.subscribe([topic])
    read(first, 3)
    consumers.remove(first)
    first.close()
    second = consumer(cluster.bootstrap, consumers, group_id=group)
    (found,) = second.committed([TopicPartition(topic, 0)], timeout=10)
    assert found.offset == 3


def test_a_commit_of_a_member_that_was_replaced_is_refused(
    cluster: SharedCluster, consumers: list[Consumer]
) -> None:
    topic, group = cluster.topic(), new_name("group")
    send(producer(cluster.bootstrap), topic, [b"a", b"b", b"c"])
    stale = consumer(
        cluster.bootstrap,
        consumers,
        group_id=group,
        session_timeout_ms=1000,
        heartbeat_interval_ms=200,
    )
    stale.subscribe([topic])
    read(stale, 1)
    outsider = consumer(cluster.bootstrap, consumers, group_id=group)
    # While the group has members, only they may commit.
    with pytest.raises(KafkaException) as refused:
        outsider.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    assert refused.value.args[0].code() in (
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
    )


def test_the_offsets_topic_is_replicated_in_full_even_if_brokers_are_away_when_it_is_created(
    tmp_path: Path, consumers: list[Consumer]
) -> None:
    with LocalCluster.create(
        tmp_path / "nodes",
        controllers=1,
        settings=local_settings(timings="fast", broker=BROKER_SETTINGS),
    ) as local:
        local.start()
        local.wait_ready(60)
        cluster = SharedCluster(local)
        for name in ("b2", "b3"):
            cluster.kill(name)
        eventually(lambda: cluster.broker_ids() == [1], what="only one broker is left")
        member = consumer(cluster.bootstrap, consumers)
        member.subscribe([new_name("nothing")])
        # A request for the group's coordinator creates the topic.
        eventually(lambda: member.poll(0.1) or cluster.describe(OFFSETS_TOPIC))
        assert {len(item.replica_nodes) for item in cluster.describe(OFFSETS_TOPIC)} == {3}
        consumers.remove(member)
        member.close()


# -- administration


@pytest.fixture
def admin(cluster: SharedCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def test_topics_are_created_listed_described_and_deleted(
    cluster: SharedCluster, admin: AdminClient
) -> None:
    name = new_name("topic")
    new = NewTopic(name, 2, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([new])[name].result(10)
    with pytest.raises(KafkaException) as again:
        admin.create_topics([new])[name].result(10)
    assert again.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    eventually(lambda: name in admin.list_topics(timeout=5).topics)
    described = admin.list_topics(name, timeout=5).topics[name]
    assert sorted(described.partitions) == [0, 1]
    assert all(sorted(p.replicas) == [1, 2, 3] for p in described.partitions.values())
    admin.delete_topics([name])[name].result(10)
    eventually(lambda: name not in admin.list_topics(timeout=5).topics)


def test_a_topic_without_counts_gets_the_cluster_defaults(
    cluster: SharedCluster, admin: AdminClient
) -> None:
    name = new_name("topic")
    admin.create_topics([NewTopic(name)])[name].result(10)
    partitions = eventually(lambda: admin.list_topics(name, timeout=5).topics[name].partitions)
    assert [len(partition.replicas) for partition in partitions.values()] == [3]


def test_impossible_topics_are_refused(cluster: SharedCluster, admin: AdminClient) -> None:
    for new, code in (
        (NewTopic(new_name("topic"), 1, 9), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic(new_name("topic"), 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("not/a/name", 1, 1), KafkaError.TOPIC_EXCEPTION),
    ):
        with pytest.raises(KafkaException) as refused:
            admin.create_topics([new])[new.topic].result(10)
        assert refused.value.args[0].code() == code
    name = new_name("topic")
    admin.create_topics([NewTopic(name, 1, 3)], validate_only=True)[name].result(10)
    assert name not in admin.list_topics(timeout=5).topics


def test_describe_cluster_names_the_brokers(cluster: SharedCluster, admin: AdminClient) -> None:
    described = admin.describe_cluster().result(10)
    assert sorted(node.id for node in described.nodes) == [1, 2, 3]
    assert described.cluster_id == CLUSTER_ID


def test_topic_settings_are_described_and_changed(
    cluster: SharedCluster, admin: AdminClient
) -> None:
    topic = cluster.topic()
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def setting(name: str) -> ConfigEntry:
        entry: ConfigEntry = admin.describe_configs([resource])[resource].result(10)[name]
        return entry

    assert setting("min.insync.replicas").value == "2"
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("min.insync.replicas", "1", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin.incremental_alter_configs([change])[change].result(10)
    eventually(lambda: setting("min.insync.replicas").value == "1")
    undo = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("min.insync.replicas", None, incremental_operation=AlterConfigOpType.DELETE)
        ],
    )
    admin.incremental_alter_configs([undo])[undo].result(10)
    eventually(lambda: setting("min.insync.replicas").value == "2")
    wrong = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("no.such.setting", "1", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    with pytest.raises(KafkaException) as refused:
        admin.incremental_alter_configs([wrong])[wrong].result(10)
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_a_description_shows_the_eligible_leader_replicas(
    cluster: SharedCluster, admin: AdminClient
) -> None:
    """confluent-kafka describes topics with Metadata, which has no ELR; our own client uses the newer request."""
    topic = cluster.topic(replicas=(1, 2, 3), configs={"min.insync.replicas": "2"})
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(10)
    (partition,) = described.partitions
    assert [node.id for node in partition.replicas] == [1, 2, 3]
    assert sorted(node.id for node in partition.isr) == [1, 2, 3]
    # Too few replicas in sync: the ones that left last may still be elected without loss.
    for name in ("b2", "b3"):
        cluster.kill(name)
    cluster.wait_for_isr(topic, 1)
    request = describe_topic_partitions_request.DescribeTopicPartitionsRequest(
        topics=(describe_topic_partitions_request.TopicRequest(name=topic),),
        response_partition_limit=10,
        cursor=None,
    )

    def found_alone() -> Any:
        (response,) = cluster.ask_any(request).topics
        (found,) = response.partitions
        # On a busy machine the last session may expire too, and then there is no in-sync replica for a moment.
        return found if tuple(found.isr_nodes) == (1,) else None

    found = eventually(found_alone, what="b1 is the only in-sync replica")
    assert len(found.eligible_leader_replicas) == 1
    assert set(found.eligible_leader_replicas) <= {2, 3}
    for name in ("b2", "b3"):
        cluster.start(name)
    cluster.wait_for_isr(topic, 3)
    (response,) = cluster.ask_any(request).topics
    assert tuple(response.partitions[0].eligible_leader_replicas or ()) == ()


def test_a_topic_is_created_by_the_first_produce_request(
    cluster: SharedCluster, consumers: list[Consumer]
) -> None:
    topic = new_name("auto")
    ((error, message),) = send(producer(cluster.bootstrap), topic, [b"v"])
    assert error is None and message.offset() == 0
    (found,) = read_all(cluster.bootstrap, topic, 1, consumers)
    assert found.value() == b"v"
