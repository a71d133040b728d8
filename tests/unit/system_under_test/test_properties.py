"""A node's settings under Kafka's names."""

from dataclasses import fields

import pytest

from system_under_test.config import (
    FAST_TIMINGS,
    KAFKA_TIMINGS,
    NEVER_MS,
    GroupConfig,
    LogConfig,
    MetadataLogConfig,
    NodeConfig,
    TransactionConfig,
)
from system_under_test.properties import FIXED, PROPERTIES, PropertyError, configured
from system_under_test.real.node_file import NodeFileError, read_node_file

NODE = NodeConfig(
    node_id=1, role="broker", address="b1:9092", cluster_id="c", voters=(), timings=FAST_TIMINGS
)
DEFAULTS = {
    "broker.heartbeat.interval.ms": 2000,
    "broker.session.timeout.ms": 9000,
    "controller.quorum.append.linger.ms": 25,
    "controller.quorum.election.backoff.max.ms": 1000,
    "controller.quorum.election.timeout.ms": 1000,
    "controller.quorum.fetch.timeout.ms": 2000,
    "controller.quorum.request.timeout.ms": 2000,
    "controller.quorum.retry.backoff.ms": 20,
    "initial.broker.registration.timeout.ms": 60000,
    "log.cleaner.backoff.ms": 15000,
    "log.dir.failure.timeout.ms": 30000,
    "log.flush.offset.checkpoint.interval.ms": 60000,
    "log.flush.scheduler.interval.ms": NEVER_MS,
    "log.retention.check.interval.ms": 300000,
    "controller.quorum.fetch.snapshot.max.bytes": 8388608,
    "metadata.log.max.record.bytes.between.snapshots": 20971520,
    "metadata.log.max.snapshot.interval.ms": 3600000,
    "metadata.log.segment.bytes": 0,
    "metadata.max.retention.bytes": 104857600,
    "metadata.max.retention.ms": 604800000,
    "metadata.max.idle.interval.ms": 500,
    "replica.fetch.backoff.ms": 1000,
    "replica.fetch.wait.max.ms": 500,
    "replica.high.watermark.checkpoint.interval.ms": 5000,
    "replica.lag.time.max.ms": 30000,
    "replica.socket.timeout.ms": 30000,
    "unclean.leader.election.interval.ms": 300000,
    "auto.create.topics.enable": True,
    "controlled.shutdown.enable": True,
    "default.replication.factor": 1,
    "num.partitions": 1,
    "replica.fetch.max.bytes": 1048576,
    "replica.fetch.response.max.bytes": 10485760,
    "group.consumer.assignors": ("uniform", "range"),
    "group.consumer.heartbeat.interval.ms": 5000,
    "group.consumer.max.heartbeat.interval.ms": 15000,
    "group.consumer.max.session.timeout.ms": 60000,
    "group.consumer.max.size": 2**31 - 1,
    "group.consumer.migration.policy": "bidirectional",
    "group.consumer.min.heartbeat.interval.ms": 5000,
    "group.consumer.min.session.timeout.ms": 45000,
    "group.consumer.session.timeout.ms": 45000,
    "group.coordinator.rebalance.protocols": ("classic", "consumer"),
    "group.initial.rebalance.delay.ms": 3000,
    "group.max.session.timeout.ms": 1800000,
    "group.max.size": 2**31 - 1,
    "group.min.session.timeout.ms": 6000,
    "offset.metadata.max.bytes": 4096,
    "offsets.commit.timeout.ms": 5000,
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 3,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 10000,
    "transaction.max.timeout.ms": 900000,
    "transaction.partition.verification.enable": True,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 3600000,
    "transaction.state.log.min.isr": 2,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.segment.bytes": 104857600,
    "transactional.id.expiration.ms": 604800000,
}
"""Kafka's defaults; of `offsets.topic.num.partitions` and `transaction.state.log.num.partitions` that is 50, see
`GroupConfig`, and of
`metadata.log.segment.bytes` 1 GiB, see `MetadataLogConfig`."""

OTHERS: dict[str, tuple[str, object]] = {
    "group.consumer.assignors": (" Range ", ("range",)),
    "group.consumer.heartbeat.interval.ms": ("7000", 7000),
    "group.consumer.max.heartbeat.interval.ms": ("7000", 7000),
    "group.consumer.max.session.timeout.ms": ("50000", 50000),
    "group.consumer.migration.policy": ("UPGRADE", "upgrade"),
    "group.consumer.min.heartbeat.interval.ms": ("100", 100),
    "group.consumer.min.session.timeout.ms": ("6000", 6000),
    "group.consumer.session.timeout.ms": ("50000", 50000),
    "group.coordinator.rebalance.protocols": ("classic", ("classic",)),
}
"""Another value as text, and what becomes of it, of properties that are neither 77 nor false."""


def part_of(config: NodeConfig, part: str):
    return config if part == "node" else getattr(config, part)


def test_the_defaults_are_kafkas():
    parts = {
        "timings": KAFKA_TIMINGS,
        "group": GroupConfig(),
        "transaction": TransactionConfig(),
        "node": NODE,
    }
    parts["metadata_log"] = MetadataLogConfig()
    found = {name: getattr(parts[one.part], one.field) for name, one in PROPERTIES.items()}
    assert found == DEFAULTS


@pytest.mark.parametrize("name", sorted(PROPERTIES))
def test_a_property_changes_its_setting_and_no_other(name):
    found = PROPERTIES[name]
    is_boolean = isinstance(DEFAULTS[name], bool)
    text, value = OTHERS.get(name, ("false", False) if is_boolean else ("77", 77))
    changed = configured(NODE, {name: text})
    assert getattr(part_of(changed, found.part), found.field) == value
    for part in ("timings", "group", "transaction", "metadata_log"):
        for field in fields(part_of(NODE, part)):
            if (part, field.name) != (found.part, found.field):
                before, after = part_of(NODE, part), part_of(changed, part)
                assert getattr(after, field.name) == getattr(before, field.name)
    assert changed.properties == ((name, text),)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (
            {"group.consumer.session.timeout.ms": "6000"},
            r"min.session.timeout.ms \(45000\) to .* \(60000\)",
        ),
        ({"group.consumer.heartbeat.interval.ms": "20000"}, r"\(5000\) to .* \(15000\)"),
        (
            {
                "group.consumer.session.timeout.ms": "5000",
                "group.consumer.min.session.timeout.ms": "5000",
            },
            "use less than group.consumer.session.timeout.ms",
        ),
        ({"group.consumer.assignors": "range,range"}, "use one or more of uniform, range"),
        ({"group.consumer.assignors": ""}, "use one or more of uniform, range"),
        ({"group.consumer.migration.policy": "both"}, "use one of bidirectional, downgrade"),
        ({"group.coordinator.rebalance.protocols": "share"}, "one or more of classic, consumer"),
    ],
)
def test_impossible_settings_of_consumer_groups_are_refused(properties, message):
    with pytest.raises(PropertyError, match=message):
        configured(NODE, properties)


def test_a_default_of_topics_changes_the_settings_of_logs():
    changed = configured(
        NODE,
        {
            "log.segment.bytes": "1000",
            "log.cleanup.policy": "compact,delete",
            "log.cleaner.min.cleanable.ratio": "0.25",
            "message.max.bytes": "5",
            "min.insync.replicas": "2",
            "unclean.leader.election.enable": "true",
            "log.index.interval.bytes": "9",
            "log.index.size.max.bytes": "48",
            "log.segment.delete.delay.ms": "9",
        },
    )
    assert changed.log == LogConfig(
        segment_bytes=1000,
        cleanup_policy="compact,delete",
        min_cleanable_dirty_ratio=0.25,
        max_message_bytes=5,
        index_interval_bytes=9,
        segment_index_bytes=48,
    )
    assert (changed.min_insync_replicas, changed.unclean_leader_election_enable) == (2, True)


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
    ],
)
def test_of_several_units_the_finest_counts(properties, retention_ms):
    assert configured(NODE, properties).log.retention_ms == retention_ms


def test_the_interval_of_the_scheduled_flush_is_the_default_of_flush_ms():
    assert configured(NODE, {"log.flush.scheduler.interval.ms": "10"}).log.flush_ms == 10
    both = {"log.flush.scheduler.interval.ms": "10", "log.flush.interval.ms": "20"}
    assert configured(NODE, both).log.flush_ms == 20


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("replica.lag.time.max", "1", r"did you mean replica\.lag\.time\.max\.ms\?"),
        ("replica.lag.time.max.ms", "soon", "whole number"),
        ("replica.lag.time.max.ms", "0", "use 1 or more"),
        ("auto.create.topics.enable", "1", "true or false"),
        ("log.retention.ms", "-2", "use -1 or more"),
        ("num.replica.fetchers", "2", "it can only be 1, because"),
    ],
)
def test_an_impossible_property_is_refused_with_what_to_do(name, text, message):
    with pytest.raises(PropertyError, match=message):
        configured(NODE, {name: text})


def test_settings_with_one_possible_value_accept_it():
    properties = {name: value for name, (value, _) in FIXED.items()}
    assert configured(NODE, properties).timings == NODE.timings


NODE_FILE = """
node_id = 1
role = "broker"
listen = "127.0.0.1:9092"
data_dir = "data"
cluster_id = "c"
voters = ["11@127.0.0.1:9093"]
timings = "fast"
"""


def test_a_node_file_has_properties(tmp_path):
    path = tmp_path / "node.toml"
    path.write_text(NODE_FILE + '[properties]\n"log.retention.hours" = "1"\n"num.partitions" = "7"')
    config = read_node_file(path).config
    assert (config.log.retention_ms, config.num_partitions) == (3_600_000, 7)
    assert config.timings == FAST_TIMINGS
    assert config.properties == (("log.retention.hours", "1"), ("num.partitions", "7"))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('"log.retention.hour" = "1"', r"did you mean log\.retention\.hours\?"),
        ('"log.retention.hours" = 1', "quote name and value"),
        ('log.retention.hours = "1"', "quote name and value"),
        ('"log.segment.bytes" = "1"', "use 14 or more"),
    ],
)
def test_an_impossible_property_of_a_node_file_is_one_sentence(tmp_path, table, message):
    path = tmp_path / "node.toml"
    path.write_text(f"{NODE_FILE}[properties]\n{table}\n")
    with pytest.raises(NodeFileError, match=message) as error:
        read_node_file(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_the_table_log_takes_what_it_always_took(tmp_path):
    path = tmp_path / "node.toml"
    path.write_text(f"{NODE_FILE}[log]\nsegment_bytes = 5\n")
    assert read_node_file(path).config.log == LogConfig(segment_bytes=5)
    path.write_text(f"{NODE_FILE}[log]\nretention_ms = 5\n")
    with pytest.raises(NodeFileError, match="retention_ms is not a setting of a node"):
        read_node_file(path)
