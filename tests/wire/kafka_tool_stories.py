"""What Kafka's tools show and change, as stories that hold on the reference system and on Apache Kafka alike.

A story gets the tools and the cluster that they administer. It asserts on what the tools print and on the effect,
which another tool shows.
"""

import json
from collections.abc import Callable
from typing import Any

from kafka_tools import Tools
from wire_helpers import SharedCluster, eventually, new_name

Story = Callable[[Tools, SharedCluster], None]


def _created(tools: Tools, cluster: SharedCluster, *arguments: str) -> str:
    """Creates a topic that no other test uses, waits until all brokers know it, and returns its name."""
    topic = new_name("tools")
    assert "Created topic" in tools.run("topics", "--create", "--topic", topic, *arguments)
    cluster.wait_for_leaders(topic)
    return topic


def _alter(tools: Tools, kind: str, name: str, option: str, change: str) -> str:
    entity = ("--entity-type", kind, "--entity-name", name)
    return tools.run("configs", "--alter", *entity, option, change)


def _own_configs(tools: Tools, kind: str, name: str) -> dict[str, str]:
    """Returns what was set for a topic or a broker itself."""
    lines = tools.run("configs", "--describe", "--entity-type", kind, "--entity-name", name)
    pairs = (line.split()[0].partition("=") for line in lines.splitlines() if line.startswith("  "))
    return {key: value for key, _, value in pairs}


def _produced(tools: Tools, topic: str, count: int) -> list[int]:
    """Appends the values 0, 1, 2, ... and returns the offsets of those that were acknowledged."""
    arguments = ("--topic", topic, "--max-messages", str(count), "--acks", "-1")
    events = tools.events("verifiable-producer", *arguments)
    sent = [one for one in events if one["name"] == "producer_send_success"]
    assert [one["value"] for one in sent] == [str(number) for number in range(count)]
    assert (events[-1]["sent"], events[-1]["acked"]) == (count, count)
    return [one["offset"] for one in sent]


def _performed(tools: Tools, topic: str, *, records: int, record_bytes: int) -> str:
    """Appends records with the idempotent producer of the performance test and returns its summary."""
    return tools.run(
        *("producer-perf-test", "--topic", topic, "--throughput", "-1"),
        *("--num-records", str(records), "--record-size", str(record_bytes)),
        *("--producer-props", f"bootstrap.servers={tools.bootstrap}"),
    )


def _consumed(tools: Tools, topic: str, group: str, count: int) -> list[tuple[int, str]]:
    """Reads with a group that commits; returns offsets and values in the order in which they arrived."""
    events = tools.events(
        "verifiable-consumer",
        *("--topic", topic, "--group-id", group, "--max-messages", str(count)),
        *("--reset-policy", "earliest", "--verbose"),
    )
    committed = [one for one in events if one["name"] == "offsets_committed"]
    assert committed
    assert all(one["success"] for one in committed)
    return [(one["offset"], one["value"]) for one in events if one["name"] == "record_data"]


def _moved(topic: str, *replicas: int) -> dict[str, Any]:
    return {"partitions": [{"topic": topic, "partition": 0, "replicas": list(replicas)}]}


def _verified(tools: Tools, plan: str) -> str:
    """Waits until a reassignment is complete and returns what `--verify` printed then."""

    def complete() -> str:
        shown = tools.run("reassign-partitions", "--verify", "--reassignment-json-file", plan)
        return shown if "is completed" in shown else ""

    found: str = eventually(complete, what="the reassignment is complete")
    return found


# -- topics and settings


def topics_grow_and_have_settings(tools: Tools, cluster: SharedCluster) -> None:
    topic = _created(
        tools, cluster, "--replica-assignment", "1:2:3,2:3:1", "--config", "retention.ms=60000"
    )
    tools.run("topics", "--alter", "--topic", topic, "--partitions", "3")
    change = "max.message.bytes=2000,cleanup.policy=[compact,delete]"
    assert "Completed updating config" in _alter(tools, "topics", topic, "--add-config", change)
    assert _own_configs(tools, "topics", topic) == {
        "cleanup.policy": "compact,delete",
        "max.message.bytes": "2000",
        "retention.ms": "60000",
    }
    partitions = tools.partitions(topic)
    assert [one["Replicas"] for one in partitions[:2]] == ["1,2,3", "2,3,1"]
    assert [one["Leader"] for one in partitions[:2]] == ["1", "2"]
    assert {len(one["Isr"].split(",")) for one in partitions} == {3}
    assert len(partitions) == 3


def settings_are_in_force_until_they_are_deleted(tools: Tools, cluster: SharedCluster) -> None:
    topic = _created(tools, cluster, "--partitions", "1", "--config", "max.message.bytes=1000")
    too_large = _performed(tools, topic, records=1, record_bytes=5000)
    assert "RecordTooLargeException" in too_large
    assert tools.offsets(topic) == {0: 0}
    _alter(tools, "topics", topic, "--delete-config", "max.message.bytes")
    assert "1 records sent" in _performed(tools, topic, records=1, record_bytes=5000)
    assert tools.offsets(topic) == {0: 1}


def wrong_requests_are_refused(tools: Tools, cluster: SharedCluster) -> None:
    topic = _created(tools, cluster, "--partitions", "2", "--replication-factor", "3")
    create = ("topics", "--create", "--topic")
    assert "TopicExistsException" in tools.run(*create, topic, exit_code=1)
    wrong = tools.run(*create, new_name("bad"), "--replication-factor", "9", exit_code=1)
    assert "InvalidReplicationFactorException" in wrong
    fewer = tools.run("topics", "--alter", "--topic", topic, "--partitions", "1", exit_code=1)
    assert "InvalidPartitionsException" in fewer
    alter = ("configs", "--alter", "--entity-type", "topics", "--entity-name", topic)
    for change in ("nonsense=1", "retention.ms=-7"):
        refused = tools.run(*alter, "--add-config", change, exit_code=1)
        assert "InvalidConfigurationException" in refused
    assert _own_configs(tools, "topics", topic) == {}
    tools.run("topics", "--delete", "--topic", topic)
    assert "does not exist" in tools.run("topics", "--describe", "--topic", topic, exit_code=1)
    assert topic not in tools.run("topics", "--list").split()


def defaults_of_the_cluster_and_throttles_of_brokers(tools: Tools, cluster: SharedCluster) -> None:
    topic = _created(tools, cluster, "--partitions", "1")
    default = ("--entity-type", "brokers", "--entity-default")
    tools.run("configs", "--alter", *default, "--add-config", "message.max.bytes=900000")
    try:
        assert "message.max.bytes=900000" in tools.run("configs", "--describe", *default)
        described = tools.run(
            *("configs", "--describe", "--all", "--entity-type", "topics", "--entity-name", topic)
        )
        assert "max.message.bytes=900000" in described
    finally:
        tools.run("configs", "--alter", *default, "--delete-config", "message.max.bytes")
    throttle = "leader.replication.throttled.rate"
    _alter(tools, "brokers", "2", "--add-config", f"{throttle}=5000")
    try:
        assert _own_configs(tools, "brokers", "2") == {throttle: "5000"}
        assert _own_configs(tools, "brokers", "1") == {}
    finally:
        _alter(tools, "brokers", "2", "--delete-config", throttle)


# -- records and groups


def every_record_is_read_once_and_in_order(tools: Tools, cluster: SharedCluster) -> None:
    topic, group = _created(tools, cluster, "--replica-assignment", "1:2:3"), new_name("group")
    assert _produced(tools, topic, 200) == list(range(200))
    read = _consumed(tools, topic, group, 120)
    assert read == [(number, str(number)) for number in range(120)]
    (row,) = tools.rows("GROUP", "consumer-groups", "--describe", "--group", group)
    assert (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) == ("120", "200", "80")


def the_offsets_of_a_group_are_reset_and_deleted(tools: Tools, cluster: SharedCluster) -> None:
    topic, group = _created(tools, cluster, "--partitions", "1"), new_name("group")
    _produced(tools, topic, 20)
    assert len(_consumed(tools, topic, group, 10)) == 10
    of_group = ("--group", group, "--topic", topic)

    def reset(*arguments: str) -> str:
        (row,) = tools.rows("GROUP", "consumer-groups", *of_group, "--reset-offsets", *arguments)
        return row["NEW-OFFSET"]

    def current() -> str:
        (row,) = tools.rows("GROUP", "consumer-groups", "--describe", "--group", group)
        return row["CURRENT-OFFSET"]

    assert reset("--to-offset", "3", "--dry-run") == "3"
    assert current() == "10"
    assert reset("--shift-by", "-4", "--execute") == "6"
    assert current() == "6"
    assert _consumed(tools, topic, group, 1) == [(6, "6")]
    assert reset("--to-datetime", "2000-01-01T00:00:00.000", "--execute") == "0"
    assert reset("--to-latest", "--execute") == "20"
    (state,) = [
        row
        for row in tools.rows("GROUP", "consumer-groups", "--list", "--state")
        if row["GROUP"] == group
    ]
    assert state["STATE"] == "Empty"
    assert "Successful" in tools.run("consumer-groups", *of_group, "--delete-offsets")
    assert topic not in tools.run("consumer-groups", "--describe", "--group", group)
    delete = ("consumer-groups", "--delete", "--group", group)
    assert "was successful" in tools.run(*delete)
    assert "GroupIdNotFoundException" in tools.run(*delete)


def deleted_records_are_gone(tools: Tools, cluster: SharedCluster) -> None:
    topic = _created(tools, cluster, "--partitions", "1", "--replication-factor", "3")
    _produced(tools, topic, 10)

    def delete(offset: int) -> str:
        where = {"topic": topic, "partition": 0, "offset": offset}
        path = tools.file("offsets.json", {"partitions": [where]})
        return tools.run("delete-records", "--offset-json-file", path)

    assert "low_watermark: 4" in delete(4)
    assert "OffsetOutOfRangeException" in delete(11)
    assert (tools.offsets(topic, "earliest"), tools.offsets(topic)) == ({0: 4}, {0: 10})
    read = tools.run(
        *("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "6"),
        *("--property", "print.offset=true", "--property", "print.partition=true"),
    )
    lines = [line for line in read.splitlines() if line.startswith("Partition:")]
    assert lines == [f"Partition:0\tOffset:{number}\t{number}" for number in range(4, 10)]


def offsets_by_time(tools: Tools, cluster: SharedCluster) -> None:
    topic = _created(tools, cluster, "--partitions", "1", "--replication-factor", "3")
    assert tools.offsets(topic, "0") == tools.offsets(topic, "max-timestamp") == {}
    _produced(tools, topic, 5)
    assert tools.offsets(topic, "0") == {0: 0}
    assert tools.offsets(topic, "earliest") == tools.offsets(topic, "earliest-local") == {0: 0}
    assert tools.offsets(topic) == {0: 5}
    assert 0 <= tools.offsets(topic, "max-timestamp")[0] < 5


def an_idempotent_producer_is_described(tools: Tools, cluster: SharedCluster) -> None:
    topic = _created(tools, cluster, "--partitions", "1", "--replication-factor", "3")
    assert "7 records sent" in _performed(tools, topic, records=7, record_bytes=10)
    where = ("--topic", topic, "--partition", "0")
    head, producer = tools.run("transactions", "describe-producers", *where).splitlines()
    row = dict(zip(head.split(), producer.split(), strict=True))
    assert (row["ProducerEpoch"], row["LastSequence"]) == ("0", "6")


# -- replicas and leaders


def a_reassignment_moves_a_partition(tools: Tools, cluster: SharedCluster) -> None:
    topic = _created(tools, cluster, "--replica-assignment", "1:2")
    plan = tools.file("plan.json", _moved(topic, 3, 2))
    execute = ("reassign-partitions", "--execute", "--reassignment-json-file", plan)
    shown = tools.run(*execute, "--throttle", "1000000")
    assert "throttle limit was set to 1000000 B/s" in shown
    assert f"Successfully started partition reassignment for {topic}-0" in shown
    verified = _verified(tools, plan)
    assert f"Clearing topic-level throttles on topic {topic}" in verified
    (partition,) = tools.partitions(topic)
    assert partition["Replicas"] == "3,2"
    assert set(partition["Isr"].split(",")) == {"2", "3"}


def leaders_are_elected(tools: Tools, cluster: SharedCluster) -> None:
    topic = _created(tools, cluster, "--replica-assignment", "1:2")
    plan = tools.file("plan.json", _moved(topic, 2, 1))
    # The order of the replicas changes, the leader does not.
    tools.run("reassign-partitions", "--execute", "--reassignment-json-file", plan)
    shown = _verified(tools, plan)
    assert "Clearing broker-level throttles" in shown
    (before,) = tools.partitions(topic)
    assert (before["Leader"], before["Replicas"]) == ("1", "2,1")

    def elect(name: str, kind: str = "preferred", *, exit_code: int = 0) -> str:
        where = ("--topic", name, "--partition", "0")
        return tools.run("leader-election", "--election-type", kind, *where, exit_code=exit_code)

    cluster.wait_for_isr(topic, 2)
    assert "Successfully completed leader election (PREFERRED)" in elect(topic)
    assert tools.partitions(topic)[0]["Leader"] == "2"
    assert "Valid replica already elected" in elect(topic)
    assert "Valid replica already elected" in elect(topic, "unclean")
    assert "UnknownTopicOrPartitionException" in elect(new_name("nope"), exit_code=1)


def a_reassignment_in_progress_is_listed(tools: Tools, cluster: SharedCluster) -> None:
    topic = _created(tools, cluster, "--replica-assignment", "1")
    # The new replica cannot fetch while the only old one is down.
    cluster.kill("b1")
    plan = tools.file("plan.json", _moved(topic, 3))
    file = ("--reassignment-json-file", plan)
    tools.run("reassign-partitions", "--execute", *file)
    listed = tools.run("reassign-partitions", "--list")
    assert f"{topic}-0: replicas: 3,1. adding: 3. removing: 1." in listed
    assert "is still in progress" in tools.run("reassign-partitions", "--verify", *file)
    cluster.start("b1")
    _verified(tools, plan)
    assert tools.partitions(topic)[0]["Replicas"] == "3"
    assert "No partition reassignments found" in tools.run("reassign-partitions", "--list")
    cancelled = tools.run("reassign-partitions", "--cancel", *file)
    assert "None of the specified partition reassignments are active" in cancelled
    assert "Clearing broker-level throttles" in cancelled


def a_proposed_reassignment_uses_the_given_brokers(tools: Tools, cluster: SharedCluster) -> None:
    topic = _created(tools, cluster, "--replica-assignment", "1:2")
    topics = tools.file("topics.json", {"topics": [{"topic": topic}]})
    where = ("--topics-to-move-json-file", topics, "--broker-list", "2,3")
    shown = tools.run("reassign-partitions", "--generate", *where).splitlines()
    assert '"replicas":[1,2]' in shown[shown.index("Current partition replica assignment") + 1]
    proposed = shown[shown.index("Proposed partition reassignment configuration") + 1]
    assert '"replicas":[2,3]' in proposed or '"replicas":[3,2]' in proposed


def a_partition_without_enough_replicas_is_listed(tools: Tools, cluster: SharedCluster) -> None:
    topic = _created(
        tools, cluster, "--replica-assignment", "1:2", "--config", "min.insync.replicas=2"
    )

    def listed(option: str) -> bool:
        return topic in tools.run("topics", "--describe", option)

    assert listed("--at-min-isr-partitions")
    assert not listed("--under-replicated-partitions")
    cluster.kill("b1")
    eventually(lambda: listed("--under-min-isr-partitions"), what="the ISR shrinks")
    assert listed("--under-replicated-partitions")
    assert not listed("--unavailable-partitions")
    cluster.kill("b2")
    eventually(lambda: listed("--unavailable-partitions"), what="there is no leader")
    cluster.start("b1")
    cluster.start("b2")
    eventually(lambda: not listed("--under-replicated-partitions"), what="all replicas are back")


def an_unclean_election_makes_an_offline_partition_available(
    tools: Tools, cluster: SharedCluster
) -> None:
    topic = _created(
        tools, cluster, "--replica-assignment", "1:2", "--config", "min.insync.replicas=1"
    )
    cluster.kill("b2")
    eventually(lambda: tools.partitions(topic)[0]["Isr"] == "1", what="the ISR shrinks")
    cluster.kill("b1")
    eventually(lambda: tools.partitions(topic)[0]["Leader"] == "none", what="there is no leader")
    cluster.start("b2")
    where = ("--topic", topic, "--partition", "0")

    def elected() -> bool:
        shown = tools.run("leader-election", "--election-type", "unclean", *where, exit_code=None)
        return "Successfully completed leader election (UNCLEAN)" in shown

    eventually(elected, what="broker 2 is alive and elected")
    assert tools.partitions(topic)[0]["Leader"] == "2"
    cluster.start("b1")


# -- the cluster


def directories_quorum_and_features(tools: Tools, cluster: SharedCluster) -> None:
    topic = _created(tools, cluster, "--replica-assignment", "1:2")
    _produced(tools, topic, 3)
    lines = tools.run("log-dirs", "--describe", "--topic-list", topic).splitlines()
    (described,) = [line for line in lines if line.startswith("{")]
    found = {
        broker["broker"]: [
            (one["partition"], one["offsetLag"], one["isFuture"], one["size"] > 0)
            for directory in broker["logDirs"]
            for one in directory["partitions"]
        ]
        for broker in json.loads(described)["brokers"]
    }
    replica = [(f"{topic}-0", 0, False, True)]
    assert found == {1: replica, 2: replica, 3: []}
    quorum = tools.rows("NodeId", "metadata-quorum", "describe", "--replication")
    assert sorted(
        (row["NodeId"], row["Status"]) for row in quorum if row["Status"] == "Observer"
    ) == [(str(broker), "Observer") for broker in (1, 2, 3)]
    voters = {row["NodeId"]: row["Status"] for row in quorum if row["Status"] != "Observer"}
    assert sorted(voters) == ["11", "12", "13"]
    assert sorted(voters.values()) == ["Follower", "Follower", "Leader"]
    status = dict(
        line.split(":", 1)
        for line in tools.run("metadata-quorum", "describe", "--status").splitlines()
    )
    assert voters[status["LeaderId"].strip()] == "Leader"
    assert int(status["HighWatermark"]) > 0
    features = tools.run("features", "describe")
    assert "Feature: metadata.version\tSupportedMinVersion: 3" in features
    assert "Feature: eligible.leader.replicas.version" in features
    cluster_id = status["ClusterId"].strip()
    assert f"Cluster ID: {cluster_id}" in tools.run("cluster", "cluster-id")


SHORT: tuple[Story, ...] = (
    topics_grow_and_have_settings,
    every_record_is_read_once_and_in_order,
    a_reassignment_moves_a_partition,
)
LONG: tuple[Story, ...] = (
    settings_are_in_force_until_they_are_deleted,
    wrong_requests_are_refused,
    defaults_of_the_cluster_and_throttles_of_brokers,
    the_offsets_of_a_group_are_reset_and_deleted,
    deleted_records_are_gone,
    offsets_by_time,
    an_idempotent_producer_is_described,
    leaders_are_elected,
    a_reassignment_in_progress_is_listed,
    a_proposed_reassignment_uses_the_given_brokers,
    a_partition_without_enough_replicas_is_listed,
    an_unclean_election_makes_an_offline_partition_available,
    directories_quorum_and_features,
)
