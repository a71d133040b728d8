import pytest

from harness.contracts.administration import AlterConfig
from harness.contracts.system import Node, Settings
from harness.errors import UsageError
from harness.systems.apache_kafka.adapter import SYSTEM
from harness.systems.apache_kafka.command import HEAP_MIB
from harness.systems.apache_kafka.properties import (
    OWN_PROPERTIES,
    TIMINGS,
    election_timeout_ms,
    logging_file,
    logging_text,
    properties_text,
    server_properties,
)
from harness.systems.apache_kafka.versions import parse_version

NODES = [
    Node(name="c11", role="controller", node_id=11, address="10.0.0.11:9093"),
    Node(name="c12", role="controller", node_id=12, address="10.0.0.12:9093"),
    Node(name="b1", role="broker", node_id=1, address="10.0.0.1:9092"),
    Node(name="b2", role="broker", node_id=2, address="10.0.0.2:9092"),
]


def _read(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    values = dict(line.split("=", 1) for line in lines)
    assert len(values) == len(lines), "a property is set once"
    return values


def _properties(
    node: int = 2, version: str = "4.1.2", extra: dict[str, str] | None = None, **settings: object
) -> dict[str, str]:
    chosen = Settings(profile="", **{"timings": "fast", **settings})  # type: ignore[arg-type]
    text = server_properties(
        parse_version(version),
        NODES[node],
        NODES,
        chosen,
        log_dirs=["/d/data", "/d/data2"],
        extra=extra,
    )
    assert text.startswith(f"# {NODES[node].name}\n")
    return _read(text)


def test_a_broker_and_a_controller_know_their_place_in_the_cluster() -> None:
    broker, controller = _properties(2), _properties(0)
    assert broker["process.roles"] == "broker"
    assert broker["listeners"] == "BROKER://10.0.0.1:9092"
    assert controller["process.roles"] == "controller"
    assert controller["listeners"] == "CONTROLLER://10.0.0.11:9093"
    for node in (broker, controller):
        assert node["controller.quorum.voters"] == "11@10.0.0.11:9093,12@10.0.0.12:9093"
        assert node["log.dirs"] == "/d/data,/d/data2"
    assert (broker["node.id"], controller["node.id"]) == ("1", "11")


def test_buffers_fit_into_the_heap() -> None:
    assert 1 << 20 < int(_properties()["log.cleaner.dedupe.buffer.size"]) < HEAP_MIB << 18


def test_replication_factors_fit_the_number_of_brokers() -> None:
    assert _properties()["default.replication.factor"] == "2"
    assert _properties()["transaction.state.log.min.isr"] == "2"
    assert _properties()["offsets.topic.replication.factor"] == "2"


def test_kafka_timings_leave_every_timeout_alone() -> None:
    ours = _properties(timings="kafka")
    assert not [name for name in ours if name.endswith(".ms")]
    assert "log.index.size.max.bytes" not in ours
    fast = _properties()
    assert fast["replica.fetch.backoff.ms"] == "100"
    assert fast["group.initial.rebalance.delay.ms"] == "100"
    assert int(fast["log.index.size.max.bytes"]) < 1 << 20
    assert list(TIMINGS)[-1] == "kafka"
    # Kafka requires it, and a fault needs a few lost heartbeats to be noticed.
    assert 3 * int(fast["broker.heartbeat.interval.ms"]) < int(fast["broker.session.timeout.ms"])
    assert int(fast["replica.fetch.wait.max.ms"]) < int(fast["replica.lag.time.max.ms"])


def test_settings_that_are_kafkas_defaults_are_not_written() -> None:
    ours = _properties()
    assert "log.segment.bytes" not in ours
    assert "log.flush.interval.messages" not in ours
    assert "unclean.leader.election.enable" not in ours


@pytest.mark.parametrize("node", [0, 2])
def test_settings_of_the_experiment_are_written_for_both_roles(node: int) -> None:
    ours = _properties(node, segment_bytes=2 << 20, flush_messages=1, unclean_leader_election=True)
    assert ours["log.segment.bytes"] == str(2 << 20)
    assert ours["log.flush.interval.messages"] == "1"
    assert ours["unclean.leader.election.enable"] == "true"


def test_only_4_0_and_newer_search_for_unclean_elections_by_themselves() -> None:
    name = "unclean.leader.election.interval.ms"
    assert name in _properties(version="4.0.2")
    assert name not in _properties(version="3.9.1")
    assert name not in _properties(version="4.0.2", timings="kafka")


def test_a_segment_that_is_too_small_for_kafka_4_is_refused() -> None:
    assert _properties(version="3.9.1", segment_bytes=4096)["log.segment.bytes"] == "4096"
    with pytest.raises(UsageError, match=r"segment_bytes is 4096; .*4\.0\.2 accepts is 1048576"):
        _properties(version="4.0.2", segment_bytes=4096)


def test_properties_of_the_experiment_win() -> None:
    ours = _properties(extra={"num.io.threads": "9", "my.own": "x", "log.segment.bytes": "2000000"})
    assert ours["num.io.threads"] == "9"
    assert ours["my.own"] == "x"
    assert ours["log.segment.bytes"] == "2000000"


@pytest.mark.parametrize("name", sorted(OWN_PROPERTIES))
def test_what_places_a_node_cannot_be_set(name: str) -> None:
    with pytest.raises(UsageError, match=f"^{name} cannot be set in an experiment"):
        _properties(extra={name: "x"})


def test_text_is_escaped_as_java_reads_it() -> None:
    values = {"b": " x\\y\nz", "a=b:c d": "=:#! ok", "ü": "€😀"}
    assert properties_text(values) == (
        "\\u00fc=\\u20ac\\ud83d\\ude00\na\\=b\\:c\\ d==:#! ok\nb=\\ x\\\\y\\u000az\n"
    )


def test_logging_has_the_file_of_its_backend() -> None:
    assert logging_file(parse_version("3.9.2")) == "log4j.properties"
    assert logging_file(parse_version("4.0.0")) == "log4j2.properties"
    assert "log4j.rootLogger" in logging_text(parse_version("3.9.2"))
    assert "rootLogger.level" in logging_text(parse_version("4.0.0"))


@pytest.mark.parametrize(
    ("timings", "given", "expected_ms"),
    [
        ("kafka", {}, 9000),
        ("fast", {}, 3000),
        ("fast", {"controller.quorum.fetch.timeout.ms": "12000"}, 12000),
        ("fast", {"broker.session.timeout.ms": "soon"}, 1500),
    ],
)
def test_the_longest_timeout_of_sessions_and_elections_is_known(
    timings: str, given: dict[str, str], expected_ms: float
) -> None:
    assert election_timeout_ms(timings, given) == expected_ms


@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [
        ("t", "retention.ms", "1000"),
        # Its removal restores the default, a week, and clocks may be set to later.
        ("t", "retention.ms", None),
        ("t", "retention.bytes", "1"),
        ("t", "cleanup.policy", "compact"),
        ("", "log.retention.ms", "1000"),
        ("", "log.retention.hours", "1"),
        ("", "log.cleanup.policy", "delete"),
    ],
)
def test_a_fault_cannot_alter_what_is_removed_from_logs(
    topic: str, key: str, value: str | None
) -> None:
    action = AlterConfig(topic=topic, key=key, value=value)
    assert SYSTEM.refusal(action).startswith(
        f"{key} cannot be altered: it decides which records are removed"
    )


@pytest.mark.parametrize("key", ["min.insync.replicas", "segment.bytes", "max.message.bytes"])
def test_a_fault_can_alter_other_settings(key: str) -> None:
    assert SYSTEM.refusal(AlterConfig(topic="t", key=key, value="20000")) == ""
