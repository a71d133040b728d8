"""Kafka's properties of the metadata log, from the experiment to the nodes."""

import tomllib

import pytest

from harness.contracts.system import Node, Settings
from harness.errors import UsageError
from harness.systems.reference.adapter import SYSTEM
from harness.systems.reference.node_files import node_toml
from harness.systems.reference.properties import metadata_log_settings
from system_under_test.config import MetadataLogConfig
from system_under_test.real.node_file import NodeFileError, read_node_file

NODES = [
    Node(name="b1", node_id=1, role="broker", address="127.0.0.1:9092"),
    Node(name="c11", node_id=11, role="controller", address="127.0.0.1:9093"),
]
GIVEN = {
    "metadata.log.max.record.bytes.between.snapshots": "4096",
    "metadata.log.max.snapshot.interval.ms": "0",
    "metadata.max.retention.bytes": "-1",
}


def test_defaults_are_kafkas() -> None:
    assert metadata_log_settings({}) == {}
    settings = MetadataLogConfig()
    assert settings.metadata_log_max_record_bytes_between_snapshots == 20971520
    assert settings.metadata_log_max_snapshot_interval_ms == 3600000
    assert settings.metadata_max_retention_bytes == 104857600
    assert settings.metadata_max_retention_ms == 604800000


def test_nodes_get_what_the_experiment_sets(tmp_path) -> None:
    settings = Settings(profile="kafka-4.1", timings="fast", properties=GIVEN)
    text = node_toml(NODES[1], NODES, settings, data_dir="data")
    assert tomllib.loads(text)["metadata_log"] == metadata_log_settings(GIVEN)
    path = tmp_path / "node.toml"
    path.write_text(text)
    assert read_node_file(path).config.metadata_log == MetadataLogConfig(
        metadata_log_max_record_bytes_between_snapshots=4096,
        metadata_log_max_snapshot_interval_ms=0,
        metadata_max_retention_bytes=-1,
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("metadata.log.max.snapshot.interval", "1", "did you mean metadata.log.max.snapshot"),
        ("zookeeper.connect", "x", "takes no property 'zookeeper.connect'"),
        ("metadata.max.retention.ms", "-2", "use a whole number of -1 or more"),
        ("metadata.log.segment.bytes", "-1", "use a whole number of 0 or more"),
        ("metadata.log.segment.bytes", "1k", "use a whole number of 0 or more"),
    ],
)
def test_what_a_node_cannot_have_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SYSTEM.check_properties({name: value})


def test_a_node_file_with_another_value_is_refused(tmp_path) -> None:
    settings = Settings(profile="kafka-4.1", timings="fast")
    text = node_toml(NODES[1], NODES, settings, data_dir="data")
    path = tmp_path / "node.toml"
    path.write_text(
        text.replace("[metadata_log]", "[metadata_log]\nmetadata_max_retention_ms = -2")
    )
    with pytest.raises(NodeFileError, match="metadata_max_retention_ms is -2; use -1 or more"):
        read_node_file(path)
