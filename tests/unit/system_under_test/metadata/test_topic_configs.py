"""Topic configurations: the same names, defaults and valid values as in Apache Kafka 4.1.2."""

import pytest

from system_under_test.config import LogConfig
from system_under_test.metadata.image import BROKER_RESOURCE, CLUSTER_DEFAULT, TOPIC_RESOURCE
from system_under_test.metadata.log_settings import IN_FORCE, field_of, field_value, log_config
from system_under_test.metadata.topic_configs import (
    CLUSTER_CONFIGS,
    SYNONYMS,
    TOPIC_CONFIGS,
    InvalidConfigError,
    canonical,
    check_together,
)

NEVER = 2**63 - 1

KAFKA = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": str(NEVER),
    "flush.ms": str(NEVER),
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": str(NEVER),
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": str(NEVER),
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""What Kafka's own `LogConfig` lists."""

VALID = [
    ("cleanup.policy", "", ""),
    ("cleanup.policy", "delete, compact", "delete,compact"),
    ("retention.ms", " 7 ", "7"),
    ("retention.ms", "+5", "5"),
    ("retention.ms", "-1", "-1"),
    ("retention.bytes", "-5", "-5"),
    ("segment.bytes", "14", "14"),
    ("min.cleanable.dirty.ratio", ".5", "0.5"),
    ("min.cleanable.dirty.ratio", "1", "1.0"),
    ("preallocate", " TRUE ", "true"),
    ("flush.ms", "0", "0"),
    ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
    ("compression.type", "zstd", "zstd"),
    ("compression.gzip.level", "9", "9"),
    ("leader.replication.throttled.replicas", "*", "*"),
    ("leader.replication.throttled.replicas", "0:1,1:2", "0:1,1:2"),
    ("max.message.bytes", "0", "0"),
]
INVALID = [
    ("cleanup.policy", "Delete"),
    ("cleanup.policy", "none"),
    ("retention.ms", "-2"),
    ("retention.ms", "1.5"),
    ("retention.ms", "x"),
    ("retention.ms", ""),
    ("retention.ms", str(2**63)),
    ("segment.bytes", "13"),
    ("segment.bytes", "99999999999"),
    ("min.cleanable.dirty.ratio", "1.5"),
    ("min.cleanable.dirty.ratio", "nan"),
    ("preallocate", "yes"),
    ("min.insync.replicas", "0"),
    ("max.message.bytes", "-1"),
    ("flush.messages", "0"),
    ("message.timestamp.type", "createtime"),
    ("compression.type", "foo"),
    ("compression.gzip.level", "10"),
    ("compression.gzip.level", "0"),
    ("leader.replication.throttled.replicas", "q"),
    ("local.retention.ms", "-3"),
    ("max.compaction.lag.ms", "0"),
    ("unclean.leader.election.enable", "no"),
    ("message.timestamp.after.max.ms", "-1"),
    ("segment.ms", "0"),
    ("segment.jitter.ms", "-1"),
    ("index.interval.bytes", "-1"),
    ("segment.index.bytes", "3"),
]


def test_the_names_and_defaults_are_kafkas():
    described = {key.name: key.default for key in TOPIC_CONFIGS.values() if not key.is_internal}
    assert described == KAFKA
    assert list(TOPIC_CONFIGS) == sorted(TOPIC_CONFIGS)


@pytest.mark.parametrize(("name", "text", "value"), VALID)
def test_a_valid_value_is_stored_as_kafka_describes_it(name, text, value):
    assert canonical(TOPIC_CONFIGS[name], text) == value


@pytest.mark.parametrize(("name", "text"), INVALID)
def test_an_invalid_value_is_refused_with_what_to_use(name, text):
    with pytest.raises(InvalidConfigError, match=rf"not a valid value of {name}: use "):
        canonical(TOPIC_CONFIGS[name], text)


def test_every_default_is_valid():
    for key in TOPIC_CONFIGS.values():
        if not key.is_internal:
            assert canonical(key, key.default) == key.default


def test_the_defaults_of_synonyms_give_the_default_of_the_topic():
    for key in TOPIC_CONFIGS.values():
        for synonym in key.synonyms:
            if synonym.default is not None and synonym.factor > 1:
                assert str(int(synonym.default) * synonym.factor) == key.default
            elif synonym.default is not None:
                assert synonym.default == key.default
        assert not key.synonyms or key.synonyms[-1].default is not None
    assert set(CLUSTER_CONFIGS) <= set(SYNONYMS)


def test_a_log_begins_with_kafkas_defaults():
    usual = LogConfig()
    for name in IN_FORCE:
        key = TOPIC_CONFIGS[name]
        found = getattr(usual, field_of(name))
        # The profile has this limit.
        assert found == field_value(key, key.default) or name == "message.timestamp.after.max.ms"


def test_a_topics_own_value_counts_before_the_clusters_and_that_before_the_nodes():
    node = LogConfig(retention_ms=1)
    configs = {}
    assert log_config(configs, "t", node) is node
    configs[(BROKER_RESOURCE, CLUSTER_DEFAULT, "log.retention.ms")] = "2"
    assert log_config(configs, "t", node).retention_ms == 2
    configs[(TOPIC_RESOURCE, "t", "retention.ms")] = "3"
    assert log_config(configs, "t", node).retention_ms == 3
    assert log_config(configs, "u", node).retention_ms == 2


def test_settings_that_contradict_each_other_are_refused():
    check_together({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(InvalidConfigError, match="larger than"):
        check_together({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})
    with pytest.raises(InvalidConfigError, match="tiered storage"):
        check_together({"remote.storage.enable": "true"})


def test_a_policy_names_what_happens_to_old_records():
    for text, deletes, compacts in (
        ("delete", True, False),
        ("compact", False, True),
        ("compact,delete", True, True),
        ("", False, False),
    ):
        config = LogConfig(cleanup_policy=text)
        assert (config.deletes, config.compacts) == (deletes, compacts)
    assert LogConfig(cleanup_policy="compact", max_compaction_lag_ms=9).roll_after_ms == 9
    assert LogConfig(max_compaction_lag_ms=9).roll_after_ms == LogConfig().segment_ms
