"""Properties of the reference system in experiments: what a run sets, and what would make verdicts wrong."""

import pytest

from harness.contracts.system import HasRunProperties, Node, PropertyTaker, Settings
from harness.errors import UsageError
from harness.runs.experiment import Experiment
from harness.runs.settings import settings_of
from harness.systems.properties import REFUSED_PROPERTIES
from harness.systems.reference.adapter import ReferenceSystem
from harness.systems.reference.node_files import node_toml
from nemesis.fault import Fault
from system_under_test.config import MetadataLogConfig
from system_under_test.real.node_file import read_node_file

ENVIRONMENT = {"reference": "simulation", "apache-kafka": "local"}


def test_the_reference_system_takes_properties():
    assert isinstance(ReferenceSystem(), PropertyTaker)
    assert isinstance(ReferenceSystem(), HasRunProperties)
    experiment = Experiment(properties={"replica.lag.time.max.ms": "500"})
    assert dict(settings_of(experiment).properties) == {
        "log.retention.ms": "-1",
        "replica.lag.time.max.ms": "500",
    }


@pytest.mark.parametrize("system", ["reference", "apache-kafka"])
@pytest.mark.parametrize("name", sorted(REFUSED_PROPERTIES))
def test_what_would_make_a_verdict_wrong_is_refused_with_the_reason(name, system):
    with pytest.raises(UsageError, match=f"properties cannot contain {name}: "):
        Experiment(system=system, on="local", properties={name: "1"})


@pytest.mark.parametrize("system", ["reference", "apache-kafka"])
@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("broker.session.timeout.ms", "many", "use a whole number of 32 bits"),
        ("replica.lag.time.max.ms", "many", "use a whole number of 64 bits"),
        ("log.cleaner.min.cleanable.ratio", "half", "use a number"),
        ("auto.create.topics.enable", "sometimes", "use true or false"),
        ("log.message.timestamp.type", "many", "use one of CreateTime, LogAppendTime"),
        ("log.roll.hours", "many", "use a whole number"),
        ("log.roll.hours", "-5", "use 1 or more"),
        ("log.roll.jitter.hours", "-5", "use 0 or more"),
    ],
)
def test_a_word_where_a_property_is_a_number_is_refused(system, name, value, expected):
    with pytest.raises(UsageError, match=expected) as caught:
        Experiment(system=system, on=ENVIRONMENT[system], properties={name: value})
    assert str(caught.value).startswith("properties: ")
    assert name in str(caught.value)


@pytest.mark.parametrize("system", ["reference", "apache-kafka"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("log.roll.hours", "1"), ("log.roll.jitter.hours", "0"), ("replica.lag.time.max.ms", " 500 ")],
)
def test_a_possible_value_is_accepted(system, name, value):
    Experiment(system=system, on=ENVIRONMENT[system], properties={name: value})


def test_apache_kafka_takes_properties_that_the_reference_system_does_not_know():
    Experiment(system="apache-kafka", on="local", properties={"num.io.threads": "many"})


def altered(system, **params):
    fault = Fault(id="f0", fault="alter_config", params=params)
    return Experiment(system=system, on=ENVIRONMENT[system], schedule=(fault,))


@pytest.mark.parametrize("system", ["reference", "apache-kafka"])
@pytest.mark.parametrize("where", [{"topic": "t"}, {}], ids=["topic", "cluster"])
@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("min.insync.replicas", "many", "use a whole number of 32 bits"),
        ("min.insync.replicas", True, "use a whole number of 32 bits"),
        ("min.insync.replicas", 0, "use 1 or more"),
        ("unclean.leader.election.enable", "sometimes", "use true or false"),
        ("unclean.leader.election.enable", 1, "use true or false"),
    ],
)
def test_a_setting_is_not_altered_to_what_no_cluster_accepts(system, where, key, value, expected):
    with pytest.raises(UsageError, match=f"^fault f0: .*{key}: {expected}"):
        altered(system, key=key, value=value, **where)


@pytest.mark.parametrize("system", ["reference", "apache-kafka"])
@pytest.mark.parametrize("value", [1, "2", None])
def test_a_setting_is_altered_to_a_number_or_deleted(system, value):
    params = {} if value is None else {"value": value}
    altered(system, topic="t", key="min.insync.replicas", **params)


def test_a_setting_that_only_apache_kafka_knows_may_have_any_value():
    altered("apache-kafka", key="num.io.threads", value="many")


def test_a_misspelt_property_is_refused_with_a_suggestion():
    with pytest.raises(UsageError, match=r"did you mean replica\.lag\.time\.max\.ms\?"):
        Experiment(properties={"replica.lag.time.max": "1"})


def test_a_node_file_has_the_properties():
    node = Node(name="b1", role="broker", node_id=1, address="h:1")
    settings = Settings(profile="kafka-4.1", timings="fast", properties={"log.roll.ms": "9"})
    text = node_toml(node, [node], settings, data_dir="d")
    assert '"log.roll.ms" = "9"' in text.partition("[properties]")[2]


@pytest.mark.parametrize(
    ("brokers", "expected"), [(1, (1, 1)), (2, (2, 2)), (3, (3, 2)), (5, (3, 2))]
)
def test_a_small_cluster_can_have_a_transaction_coordinator(tmp_path, brokers, expected):
    """With Kafka's three replicas one broker would never have one, and transactional producers would time out."""
    nodes = [
        Node(name="c11", node_id=11, role="controller", address="127.0.0.1:9080"),
        *(
            Node(name=f"b{one}", node_id=one, role="broker", address=f"127.0.0.1:{9090 + one}")
            for one in range(1, brokers + 1)
        ),
    ]
    path = tmp_path / "node.toml"

    def config_with(properties):
        settings = Settings(profile="kafka-4.1", timings="fast", properties=properties)
        path.write_text(node_toml(nodes[1], nodes, settings, data_dir="data"))
        return read_node_file(path).config

    config = config_with({})
    transaction = config.transaction
    assert transaction.transaction_state_log_replication_factor == expected[0]
    assert transaction.transaction_state_log_min_isr == expected[1]
    assert config.group.offsets_topic_replication_factor == expected[0]
    # What the user sets counts.
    own = config_with({"transaction.state.log.replication.factor": "3"}).transaction
    assert own.transaction_state_log_replication_factor == 3


METADATA_LOG = {
    "metadata.log.max.record.bytes.between.snapshots": "4096",
    "metadata.log.max.snapshot.interval.ms": "0",
    "metadata.max.retention.bytes": "-1",
}


def test_the_defaults_of_the_metadata_log_are_kafkas():
    settings = MetadataLogConfig()
    assert settings.metadata_log_max_record_bytes_between_snapshots == 20971520
    assert settings.metadata_log_max_snapshot_interval_ms == 3600000
    assert settings.metadata_max_retention_bytes == 104857600
    assert settings.metadata_max_retention_ms == 604800000


def test_nodes_get_what_the_experiment_sets_of_the_metadata_log(tmp_path):
    nodes = [
        Node(name="b1", node_id=1, role="broker", address="127.0.0.1:9092"),
        Node(name="c11", node_id=11, role="controller", address="127.0.0.1:9093"),
    ]
    settings = Settings(profile="kafka-4.1", timings="fast", properties=METADATA_LOG)
    path = tmp_path / "node.toml"
    path.write_text(node_toml(nodes[1], nodes, settings, data_dir="data"))
    assert read_node_file(path).config.metadata_log == MetadataLogConfig(
        metadata_log_max_record_bytes_between_snapshots=4096,
        metadata_log_max_snapshot_interval_ms=0,
        metadata_max_retention_bytes=-1,
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("metadata.log.max.snapshot.interval", "1", "did you mean metadata.log.max.snapshot"),
        ("metadata.max.retention.ms", "-2", "metadata.max.retention.ms is -2; use -1 or more"),
        ("metadata.log.segment.bytes", "-1", "metadata.log.segment.bytes is -1; use 0 or more"),
        ("metadata.log.segment.bytes", "1k", "metadata.log.segment.bytes"),
    ],
)
def test_what_a_metadata_log_cannot_have_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ReferenceSystem().check_properties({name: value})
