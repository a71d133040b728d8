"""Messages from Kafka's request log: lines of real nodes of two releases, in `tests/data/kafka_request_logs`."""

import re
from pathlib import Path

import pytest

from harness.contracts.messages import MESSAGES_FILE, MessageEnd, NodeMessages
from harness.contracts.system import Node, Settings
from harness.systems.apache_kafka.properties import MESSAGES_PROPERTY, logging_text
from harness.systems.apache_kafka.request_log import MESSAGE_FILES, OBSERVER, recorded_messages
from harness.systems.apache_kafka.versions import parse_version
from harness.systems.registry import SYSTEMS

FOLDER = Path(__file__).parents[4] / "data" / "kafka_request_logs"
RELEASES = ("3.9.2", "4.1.2")
NODES = tuple(
    Node(name=name, role=role, node_id=node_id, address=f"127.0.0.1:{node_id}")
    for name, role, node_id in (
        *(("b1", "broker", 1), ("b2", "broker", 2), ("b3", "broker", 3)),
        *(("c11", "controller", 11), ("c12", "controller", 12), ("c13", "controller", 13)),
    )
)
MS = 1_000_000


class WallClock:
    """A wall clock that is never moved; time 0 of the run is the Unix epoch."""

    def of_monotonic(self, at_ns: int) -> int:
        raise AssertionError("the request log has no monotonic clock")

    def of_wall(self, wall_ms: int, not_before_ns: int) -> int:
        return wall_ms * MS


def read(text: str, name: str = MESSAGES_FILE) -> NodeMessages:
    return recorded_messages(NODES[0], NODES, {name: text.encode()}, WallClock())


def log_of(release: str) -> str:
    return (FOLDER / f"{release}.log").read_text(encoding="utf-8")


def with_client(line: str, client_id: str) -> str:
    return re.sub(r'"clientId":"[^"]*"', f'"clientId":"{client_id}"', line)


def line_of(release: str, api: str) -> str:
    return next(line for line in log_of(release).splitlines() if f'Name":"{api}"' in line)


@pytest.mark.parametrize("release", RELEASES)
def test_every_kind_of_message_is_read(release: str) -> None:
    found = read(log_of(release))
    assert found.complete_from_ns is None  # the log never proves that a message was lost
    assert found.remarks == []
    texts = [(end.kind, end.src, end.dst, re.sub(r"\d+$", "N", end.text)) for end in found.ends]
    assert texts[:7] == [
        ("heartbeat", "b1", "b1", "Registration of broker N"),
        ("heartbeat", "b1", "b1", "Registration response"),
        ("heartbeat", "b1", "b1", "Heartbeat of broker 1 wants to be fenced"),
        ("heartbeat", "b1", "b1", "Heartbeat response, fenced"),
        ("produce", "client-7", "b1", "Produce to t-0, acks=-N"),
        ("produce", "b1", "client-7", "Produce response, t-0: offset N"),
        ("fetch", "b1", "b2", "Fetch response, partition 0: records, high watermark N"),
    ]
    assert texts[7] == (
        *("metadata", "b1", "b1"),
        "Fetch response, partition 0: records, high watermark N",
    )
    altered, response = texts[8:10]
    assert altered[0] == response[0] == "AlterPartition"
    assert altered[3].startswith("AlterPartition from broker 1, partition 0: ISR ")
    assert response[3].startswith("AlterPartition response, partition 0: ISR ")
    assert texts[10:] == [
        ("election", "c13", "b1", "Vote"),
        ("election", "b1", "c13", "Vote response"),
        ("election", "c13", "b1", "BeginQuorumEpoch"),
        ("election", "b1", "c13", "BeginQuorumEpoch response"),
    ]
    assert {end.connection for end in found.ends} == {""}


def test_times_are_those_of_the_end_that_the_node_saw() -> None:
    request, response = read(line_of("4.1.2", "PRODUCE")).ends
    assert (request.is_sent, response.is_sent) == (False, True)
    line = line_of("4.1.2", "PRODUCE")
    total_ms, sending_ms = (
        float(re.search(rf'"{key}":([0-9.]+)', line)[1])  # type: ignore[index]
        for key in ("totalTimeMs", "sendTimeMs")
    )
    assert response.at_ns - request.at_ns == pytest.approx((total_ms - sending_ms) * MS, abs=2)


def test_other_lines_are_left_out() -> None:
    line = line_of("4.1.2", "PRODUCE")
    for damaged in (
        line[: len(line) // 2],
        line.replace("totalTimeMs", "total"),
        line.replace('"requestHeader"', '"header"'),
        line.replace("Completed request:", "Completed request: "),
        f"{line[:11]}99{line[13:]}",
        "2026-11-23T11:37:12.443 Completed request:[]",
        "2026-11-23T11:37:12.443 Completed request:" + "{" * 100_000,
        "",
    ):
        assert read(damaged + "\n").ends == []
    assert len(read(f"\n{line}\n").ends) == 2


def test_the_harness_is_no_client_of_a_run() -> None:
    line = line_of("4.1.2", "PRODUCE")
    assert read(with_client(line, OBSERVER)).ends == []


@pytest.mark.parametrize(
    ("client_id", "expected"),
    [
        ("2", "b2"),
        ("broker-3-fetcher-0", "b3"),
        ("raft-client-12", "c12"),
        ("99", "99"),
        ("client-2", "client-2"),
        ("consumer-laststand-1", "consumer-laststand-1"),
    ],
)
def test_clients_that_are_nodes_have_their_names(client_id: str, expected: str) -> None:
    ends = read(with_client(line_of("4.1.2", "PRODUCE"), client_id)).ends
    assert [(end.src, end.dst) for end in ends] == [(expected, "b1"), ("b1", expected)]


def test_an_error_has_its_name() -> None:
    line = line_of("3.9.2", "PRODUCE").replace('"errorCode":0', '"errorCode":19')
    assert read(line).ends[1].text == "Produce response, t-0: NOT_ENOUGH_REPLICAS"


def test_a_log_that_was_cut_says_so() -> None:
    first: MessageEnd
    found = read(line_of("4.1.2", "PRODUCE"), MESSAGE_FILES[0])
    first = found.ends[0]
    assert found.remarks == [
        f"messages of b1 before {first.at_ns / 1e9:.3f} s may be missing: the size of its request log is "
        "limited"
    ]


@pytest.mark.parametrize("release", RELEASES)
def test_a_node_writes_the_log_only_if_it_was_asked_for(release: str) -> None:
    version = parse_version(release)
    for is_on in (False, True):
        text = logging_text(version, with_messages=is_on)
        assert ("kafka.request.logger" in text) == is_on
        assert (MESSAGES_PROPERTY in text) == is_on
    system = SYSTEMS.get("apache-kafka").of_version(release, {})  # type: ignore[attr-defined]
    settings = Settings(profile="", timings="fast", with_messages=True)
    files = system.node_files(NODES[0], NODES, settings, data_dir="/data")
    assert any("kafka.request.logger" in text for text in files.values())
