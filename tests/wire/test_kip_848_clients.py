"""Consumer groups of KIP-848 with real clients: librdkafka, the Java consumer, and Kafka's tools."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_tools import LIMIT_S, Tools, tools_or_skip
from wire_helpers import SharedCluster, ask, eventually, new_name

from system_under_test.group.records import offsets_partition
from system_under_test.protocol.messages import (
    consumer_group_describe_request,
    find_coordinator_request,
)

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

pytestmark = [pytest.mark.wire, pytest.mark.timeout(LIMIT_S * 2)]
RECORDS = 40


class Consumers:
    """Consumers of librdkafka in one group, polled in turn.

    Attributes:
        seen: Every (partition, offset) that some consumer received.
    """

    def __init__(self, cluster: SharedCluster, group: str) -> None:
        self.cluster = cluster
        self.group = group
        self.all: list[Any] = []
        self.seen: set[tuple[int, int]] = set()

    def add(self, *topics: str, protocol: str = "consumer", **settings: Any) -> Any:
        values: dict[str, Any] = {
            "bootstrap.servers": self.cluster.bootstrap,
            "group.id": self.group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        consumer = confluent_kafka.Consumer(values)
        consumer.subscribe(list(topics))
        self.all.append(consumer)
        return consumer

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Polls all consumers until a condition is true."""
        deadline_s = time.monotonic() + 90
        while True:
            for consumer in self.all:
                message = consumer.poll(0.05)
                if message is not None and message.error() is None:
                    self.seen.add((message.partition(), message.offset()))
            value = condition()
            if value:
                return value
            assert time.monotonic() < deadline_s, f"not within 90 s: {what}; {self.shares()}"

    def shares(self) -> list[list[int]]:
        return [sorted(one.partition for one in each.assignment()) for each in self.all]

    def until_shared(self, *sizes: int) -> None:
        """Waits until the consumers have this many partitions each, in any order."""
        self.until(
            lambda: (
                sorted(map(len, self.shares())) == sorted(sizes)
                and len({index for share in self.shares() for index in share}) == sum(sizes)
            ),
            f"shares of {sizes}",
        )

    def leave(self, consumer: Any) -> None:
        self.all.remove(consumer)
        consumer.close()

    def close(self) -> None:
        for consumer in self.all:
            consumer.close()


@pytest.fixture
def consumers(cluster: SharedCluster) -> Iterator[Consumers]:
    """Yields an empty group; its consumers are closed."""
    made = Consumers(cluster, new_name("group"))
    yield made
    made.close()


def produced(cluster: SharedCluster, topic: str, partitions: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(60) == 0


def coordinator(cluster: SharedCluster, group: str) -> str:
    """Returns the name of the broker that coordinates a group."""
    request = find_coordinator_request.FindCoordinatorRequest(key_type=0, coordinator_keys=(group,))

    def found() -> str | None:
        (one,) = cluster.ask_any(request).coordinators
        names = [name for name in cluster.brokers if cluster.address(name).endswith(f":{one.port}")]
        return names[0] if one.error_code == 0 and names else None

    return str(eventually(found, what="a coordinator"))


def description(cluster: SharedCluster, group: str) -> Any:
    request = consumer_group_describe_request.ConsumerGroupDescribeRequest(
        group_ids=(group,), include_authorized_operations=False
    )
    return ask(cluster.address(coordinator(cluster, group)), request).groups[0]


# --- librdkafka -----------------------------------------------------------------------------------------


def test_consumers_share_the_partitions_commit_and_take_over(
    cluster: SharedCluster, consumers: Consumers
) -> None:
    topic = cluster.topic(partitions=4)
    produced(cluster, topic, 4)
    first = consumers.add(topic)
    consumers.until_shared(4)
    consumers.add(topic)
    consumers.until_shared(2, 2)
    consumers.until(lambda: len(consumers.seen) == RECORDS, "all records")
    group = description(cluster, consumers.group)
    assert [one.member_type for one in group.members] == [1, 1]
    consumers.until(lambda: description(cluster, consumers.group).group_state == "Stable", "stable")
    first.commit(asynchronous=False)
    consumers.leave(first)
    consumers.until_shared(4)
    committed = consumers.all[0].committed(
        [confluent_kafka.TopicPartition(topic, index) for index in range(4)]
    )
    assert sum(one.offset == RECORDS // 4 for one in committed) >= 2


def test_a_group_outlives_its_coordinator(cluster: SharedCluster, consumers: Consumers) -> None:
    topic = cluster.topic(partitions=4)
    consumers.add(topic)
    consumers.add(topic)
    consumers.until_shared(2, 2)
    consumers.until(lambda: description(cluster, consumers.group).group_state == "Stable", "stable")
    epoch = description(cluster, consumers.group).group_epoch
    cluster.kill(coordinator(cluster, consumers.group))
    produced(cluster, topic, 4)
    consumers.until(lambda: len(consumers.seen) == RECORDS, "all records")
    assert sorted(map(len, consumers.shares())) == [2, 2]
    assert description(cluster, consumers.group).group_epoch == epoch


def test_a_static_consumer_restarts_without_a_rebalance_and_a_second_one_is_fenced(
    cluster: SharedCluster, consumers: Consumers
) -> None:
    topic = cluster.topic(partitions=4)
    one = consumers.add(topic, group_instance_id="one")
    consumers.add(topic, group_instance_id="two")
    consumers.until_shared(2, 2)
    consumers.until(lambda: description(cluster, consumers.group).group_state == "Stable", "stable")
    epoch = description(cluster, consumers.group).group_epoch
    consumers.leave(one)
    consumers.add(topic, group_instance_id="one")
    consumers.until_shared(2, 2)
    assert description(cluster, consumers.group).group_epoch == epoch
    intruder = Consumers(cluster, consumers.group)
    second = intruder.add(topic, group_instance_id="one")
    error = consumers.until(lambda: fatal_error(second), "the second one is refused")
    assert error.code() == confluent_kafka.KafkaError._FATAL
    assert "instance ID is still used by another member" in error.str()
    second.close()


def fatal_error(consumer: Any) -> Any:
    """Returns an error that a poll reports, None without one."""
    message = consumer.poll(0.05)
    return None if message is None else message.error()


def test_a_pattern_is_resolved_by_the_coordinator(
    cluster: SharedCluster, consumers: Consumers
) -> None:
    prefix = new_name("logs")
    cluster.create(f"{prefix}-a", partitions=1)
    cluster.create(f"{prefix}-b", partitions=1)
    consumers.add(f"^{prefix}-[ab]$")
    consumers.until(lambda: len(consumers.all[0].assignment()) == 2, "both topics")
    (member,) = description(cluster, consumers.group).members
    assert f"^{prefix}-[ab]$" in member.subscribed_topic_regex


def test_consumers_change_their_protocol_one_by_one_and_back(
    cluster: SharedCluster, consumers: Consumers
) -> None:
    topic = cluster.topic(partitions=4)
    old = [consumers.add(topic, protocol="classic") for _ in range(2)]
    consumers.until_shared(2, 2)
    consumers.leave(old[0])
    new = consumers.add(topic)
    consumers.until_shared(2, 2)
    group = description(cluster, consumers.group)
    assert sorted(one.member_type for one in group.members) == [0, 1]
    # Both kinds of members read everything that comes now.
    produced(cluster, topic, 4)
    consumers.until(lambda: len(consumers.seen) == RECORDS, "all records")
    consumers.leave(new)
    consumers.until_shared(4)
    assert description(cluster, consumers.group).error_code == 69, "it is a classic group again"


def test_user_data_in_assignments_keeps_a_group_classic(
    cluster: SharedCluster, consumers: Consumers
) -> None:
    """A consumer group has no place for it, so Kafka refuses the change (KAFKA-18134).

    With `cooperative-sticky`, librdkafka writes the user data of a member's subscription into its assignment, too.
    A member has some as soon as it joins again with partitions.
    """
    topic = cluster.topic(partitions=4)
    settings = {"protocol": "classic", "partition_assignment_strategy": "cooperative-sticky"}
    consumers.add(topic, **settings)
    consumers.until_shared(4)
    consumers.add(topic, **settings)
    consumers.until_shared(2, 2)
    newcomers = Consumers(cluster, consumers.group)
    newcomer = newcomers.add(topic)
    error = consumers.until(lambda: fatal_error(newcomer), "the newcomer is refused")
    assert "The group id does not exist" in error.str()
    newcomer.close()
    assert description(cluster, consumers.group).error_code == 69, "it still is a classic group"
    produced(cluster, topic, 4)
    consumers.until(lambda: len(consumers.seen) == RECORDS, "all records")


# --- Java -----------------------------------------------------------------------------------------------


def verifiable_consumer(tools: Tools, topic: str, group: str, count: int) -> list[dict[str, Any]]:
    """Runs Kafka's verifiable consumer with the consumer protocol until it has read enough."""
    return tools.events(
        "verifiable-consumer",
        *("--topic", topic, "--group-id", group, "--max-messages", str(count)),
        *("--group-protocol", "consumer", "--reset-policy", "earliest", "--verbose"),
    )


@pytest.mark.long
def test_the_java_consumer_reads_with_the_consumer_protocol(
    cluster: SharedCluster, tmp_path: Path
) -> None:
    tools = tools_or_skip(cluster.bootstrap, tmp_path)
    topic, group = cluster.topic(partitions=2), new_name("java")
    produced(cluster, topic, 2)
    events = verifiable_consumer(tools, topic, group, RECORDS)
    records = {(one["partition"], one["offset"]) for one in events if one["name"] == "record_data"}
    assert len(records) == RECORDS
    committed = [one for one in events if one["name"] == "offsets_committed"]
    assert committed
    assert all(one["success"] for one in committed)
    rows = tools.rows("GROUP", "consumer-groups", "--describe", "--group", group)
    assert [(row["CURRENT-OFFSET"], row["LAG"]) for row in rows] == [("20", "0")] * 2
    listed = tools.run("consumer-groups", "--list", "--type", "consumer").split()
    assert group in listed
    assert group not in tools.run("consumer-groups", "--list", "--type", "classic").split()


@pytest.mark.long
def test_the_tools_show_a_consumer_group_and_read_its_records(
    cluster: SharedCluster, consumers: Consumers, tmp_path: Path
) -> None:
    tools = tools_or_skip(cluster.bootstrap, tmp_path)
    topic = cluster.topic(partitions=2)
    consumers.add(topic, group_remote_assignor="range")
    consumers.until_shared(2)
    (row,) = tools.rows(
        "GROUP", "consumer-groups", "--describe", "--group", consumers.group, "--state"
    )
    assert (row["ASSIGNMENT-STRATEGY"], row["STATE"], row["#MEMBERS"]) == ("range", "Stable", "1")
    members = tools.run("consumer-groups", "--describe", "--group", consumers.group, "--members")
    assert consumers.group in members
    listed = tools.run("consumer-groups", "--list", "--type", "consumer", "--state", "Stable")
    assert consumers.group in listed
    # Kafka's own decoder reads the records of the group.
    index = offsets_partition(consumers.group, partition_count(cluster))
    broker = coordinator(cluster, consumers.group)
    folder = cluster.local.directory / broker
    log = sorted(folder.rglob(f"__consumer_offsets-{index}/*.log"))[-1]
    dumped = tools.run("dump-log", "--files", str(log), "--offsets-decoder")
    kinds = decoded_kinds(dumped, consumers.group)
    # Group, subscription, target epoch, target, progress: the versions of the keys.
    assert {"3", "5", "6", "7", "8"} <= kinds, dumped
    assert '"serverAssignor":"range"' in dumped


def partition_count(cluster: SharedCluster) -> int:
    return len(cluster.describe("__consumer_offsets"))


KEY = re.compile(r"key: (\{.*?\}) payload: (\S.*)$")


def decoded_kinds(dumped: str, group: str) -> set[str]:
    """Returns the kinds of records that the tool decoded for a group."""
    found = set()
    for line in dumped.splitlines():
        match = KEY.search(line)
        if match is not None and group in match[1]:
            found.add(str(json.loads(match[1])["type"]))
    return found
