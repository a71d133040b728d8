"""DescribeConfigs: every setting with its value, its source, and where else it could come from."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from system_under_test.broker.describe import Describer
from system_under_test.broker.metadata_cache import MetadataCache
from system_under_test.config import LogConfig, profile_features
from system_under_test.metadata.records import ConfigRecord, TopicRecord
from system_under_test.properties import FIXED, PROPERTIES, configured
from system_under_test.protocol.messages import describe_configs_request
from tests.unit.system_under_test.broker.node_fakes import broker_config

TOPIC, BROKER = 2, 4
OWN, CLUSTER, STATIC, DEFAULT = 1, 3, 4, 5


def described(config: Any, kind: int, name: str, *configs: tuple[int, str, str, str]) -> Any:
    metadata = MetadataCache(config)
    records = [TopicRecord(name="t", topic_id=UUID(int=1))]
    records += [
        ConfigRecord(resource_type=a, resource_name=b, name=c, value=d) for a, b, c, d in configs
    ]
    for offset, record in enumerate(records):
        metadata.image.replay(offset, record)
    request = describe_configs_request.DescribeConfigsRequest(
        resources=(
            describe_configs_request.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=None
            ),
        ),
        include_synonyms=True,
        include_documentation=True,
    )
    (result,) = Describer(config, metadata).describe_configs(request).results
    assert result.error_code == 0
    return {one.name: one for one in result.configs}


def layers(one: Any) -> list[tuple[str, str, int]]:
    return [(layer.name, layer.value, layer.source) for layer in one.synonyms]


def test_the_first_place_that_sets_a_topics_setting_counts():
    config = configured(broker_config(), {"log.retention.minutes": "7"})
    places = [
        (TOPIC, "t", "retention.ms", "1"),
        (BROKER, "", "log.retention.ms", "2"),
    ]
    expected = [
        ("retention.ms", "1", OWN),
        ("log.retention.ms", "2", CLUSTER),
        ("log.retention.minutes", "7", STATIC),
        ("log.retention.hours", "168", DEFAULT),
    ]
    values = ["1", "2", "420000", "604800000"]
    for count in range(3):
        found = described(config, TOPIC, "t", *places[count:])["retention.ms"]
        assert layers(found) == expected[count:]
        assert (found.value, found.config_source) == (values[count], expected[count][2])
    found = described(broker_config(), TOPIC, "t")["retention.ms"]
    assert (found.value, found.config_source) == ("604800000", DEFAULT)


def test_a_setting_without_a_name_for_brokers_has_no_synonyms():
    found = described(broker_config(), TOPIC, "t")["remote.storage.enable"]
    assert (found.value, found.config_source, layers(found)) == ("false", DEFAULT, [])


def test_what_is_not_stated_as_a_property_is_described_under_the_first_name():
    config = replace(broker_config(), log=LogConfig(segment_ms=5), min_insync_replicas=2)
    found = described(config, TOPIC, "t")
    assert layers(found["segment.ms"])[0] == ("log.roll.ms", "5", STATIC)
    assert (found["segment.ms"].value, found["segment.ms"].config_source) == ("5", STATIC)
    assert layers(found["min.insync.replicas"])[0] == ("min.insync.replicas", "2", STATIC)


def test_the_cluster_has_what_was_set_and_nothing_else():
    assert described(broker_config(), BROKER, "") == {}
    found = described(broker_config(), BROKER, "", (BROKER, "", "log.roll.ms", "9"))
    assert [(one.name, one.value, one.config_source) for one in found.values()] == [
        ("log.roll.ms", "9", CLUSTER)
    ]


def test_a_broker_describes_all_its_properties():
    found = described(broker_config(), BROKER, "1")
    assert set(PROPERTIES) <= set(found)
    assert not set(FIXED) & set(found)
    assert (
        found["broker.session.timeout.ms"].value,
        found["broker.session.timeout.ms"].config_source,
    ) == (
        "600",
        STATIC,
    )
    assert found["log.flush.scheduler.interval.ms"].value == str(2**63 - 1)
    assert found["num.partitions"].config_source == DEFAULT
    assert found["log.retention.hours"].value == "168"
    assert found["log.retention.minutes"].value is None


@pytest.mark.parametrize(
    ("profile", "limit"), [("kafka-3.9", str(2**63 - 1)), ("kafka-4.0", "3600000")]
)
def test_a_default_that_depends_on_the_release(profile, limit):
    config = replace(broker_config(), features=profile_features(profile))
    assert described(config, TOPIC, "t")["message.timestamp.after.max.ms"].value == limit
