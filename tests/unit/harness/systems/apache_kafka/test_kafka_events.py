"""The source of events of Apache Kafka, followed as a run follows it, against fake controllers and brokers."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from harness.contracts.system import Node, RunningNodes
from harness.contracts.violation import Violation
from harness.environments.observation.event_tail import LocalFiles
from harness.environments.real import RealCluster
from harness.environments.request import ClusterRequest
from harness.systems.apache_kafka.controller_logs import METADATA_DIRECTORY, compare_logs
from harness.systems.apache_kafka.events import KafkaEvents
from harness.systems.apache_kafka.observation import KafkaObservation
from system_under_test.metadata.records import PartitionRecord, TopicRecord
from system_under_test.protocol.metadata_codec import encode_metadata_batch
from system_under_test.protocol.record_batch import encode_batch
from tests.unit.harness.systems.apache_kafka.fake_quorum import (
    Controller,
    Quorum,
    whole_batches,
    with_epoch,
)
from tests.unit.harness.systems.apache_kafka.recorded import Recorded, recorded
from tests.unit.harness.systems.apache_kafka.test_kafka_replicas import (
    Broker,
    Files,
    log_of,
)

NODES = (
    *(Node(name=f"c{i}", role="controller", node_id=i, address=f"{i}:9093") for i in (11, 12, 13)),
    Node(name="b1", role="broker", node_id=1, address="b1:9092"),
)
WAIT_S = 60.0


class Network:
    """Connects to a fake quorum and a fake broker."""

    def __init__(self, quorum: Quorum, broker: Broker) -> None:
        self._quorum, self._broker = quorum, broker

    async def connect(self, address: str, timeout_ms: float) -> Any:
        target: Any = self._broker if address == "b1:9092" else self._quorum
        return await target.connect(address, timeout_ms)


class Host:
    """From where connections are opened. Mutable."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.closings = 0

    def close(self) -> None:
        self.closings += 1


class Kafka:
    """The part of a system that a cluster uses to follow its nodes."""

    def __init__(self, network: Network) -> None:
        self.host = Host(network)
        self.events: KafkaEvents | None = None

    def observation(self, *arguments: Any) -> KafkaObservation:
        return KafkaObservation(*arguments)

    def event_source(self, nodes: RunningNodes) -> KafkaEvents:
        self.events = KafkaEvents(nodes, self.host)
        return self.events


class Cluster(RealCluster):
    """A cluster whose nodes are fakes. Mutable."""

    def __init__(self, quorum: Quorum, broker: Broker, directory: Path) -> None:
        self.rows: list[tuple[str, tuple[Any, ...]]] = []
        self.seen_down = 0
        self.found: list[Violation] = []
        self.system = Kafka(Network(quorum, broker))
        self.controller_files = {f"c{i}": Files() for i in (11, 12, 13)}
        self._broker = broker
        self._directory = directory
        request = SimpleNamespace(
            settings=SimpleNamespace(with_fault_point=False),
            system=self.system,
            clients=0,
            seed=1,
            add_row=lambda table, row: self.rows.append((table, row)),
            on_violation=self.found.append,
            metrics=None,
        )
        super().__init__(_as_request(request), NODES)

    def is_alive(self, name: str) -> bool:
        is_alive = name != "b1" or self._broker.runs
        self.seen_down += not is_alive
        return is_alive

    def node_files(self, name: str) -> Files:  # type: ignore[override]
        return self.controller_files.get(name, self._broker.files)

    async def until(self, condition: Callable[[], bool]) -> None:
        if self._tail is None:
            self.follow(LocalFiles({"b1": self._directory / "events.jsonl"}))
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0.01)

    def of(self, table: str) -> list[tuple[Any, ...]]:
        return [row for name, row in self.rows if name == table]


def _as_request(request: Any) -> ClusterRequest:
    return request  # type: ignore[no-any-return]


def quorum_of(log: bytes, end: int) -> Quorum:
    quorum = Quorum({n: Controller(log=log, high_watermark=end) for n in (11, 12, 13)})
    quorum.epoch = whole_batches(log)[-1][2]
    return quorum


def followed(
    quorum: Quorum, broker: Broker, directory: Path, story: Callable[[Cluster], Any]
) -> Cluster:
    async def run() -> Cluster:
        cluster = Cluster(quorum, broker, directory)
        try:
            await story(cluster)
        finally:
            assert cluster.system.host.closings == 0
            await cluster.stop_following()
        assert cluster.system.host.closings == 1
        return cluster

    return asyncio.run(run())


def a_topic() -> bytes:
    topic = UUID(int=5)
    return encode_metadata_batch(
        [
            TopicRecord(name="t", topic_id=topic),
            PartitionRecord(
                topic_id=topic, partition_id=0, replicas=(1,), isr=(1,), leader=1, leader_epoch=3
            ),
        ],
        timestamp_ms=1,
        base_offset=0,
        quorum_epoch=1,
    )


def test_a_cluster_follows_the_source_of_its_system(tmp_path: Path) -> None:
    log = recorded("4.1.2")

    async def story(cluster: Cluster) -> None:
        await cluster.until(lambda: cluster.metadata.offset == log.end - 1)

    quorum = quorum_of(log.log, log.end)
    cluster = followed(quorum, Broker(Files(), is_up=False), tmp_path, story)
    assert not cluster.found
    assert not cluster.unobserved
    assert set(cluster.metadata.brokers) == {1, 2, 3}
    assert {row[2] for row in cluster.of("partition_states")} == {"t", "u"}
    assert cluster.system.events is not None
    assert cluster.system.events.batches.end == log.end
    times = [row[0] for _, row in cluster.rows]
    assert times == sorted(times)


def test_replicas_are_recorded_until_their_broker_goes_down(tmp_path: Path) -> None:
    broker = Broker(Files(log_of(0, 0, 3)), epoch=3, high_watermark=2)

    async def story(cluster: Cluster) -> None:
        await cluster.until(lambda: len(cluster.of("replica_states")) == 1)
        broker.high_watermark = 3
        await cluster.until(lambda: len(cluster.of("replica_states")) == 2)
        broker.runs = broker.is_up = False
        broker.files.data = log_of(0)
        cluster.went_down(("b1",))
        await cluster.until(lambda: len(cluster.of("replica_states")) == 3)
        # What follows the replicas must notice that it is another process; it asks several times in each round.
        await cluster.until(lambda: cluster.seen_down >= 5)
        broker.runs = True
        cluster.went_up("b1")
        await cluster.until(lambda: len(cluster.of("replica_states")) == 4)

    cluster = followed(quorum_of(a_topic(), 2), broker, tmp_path, story)
    rows = [(row[1], *row[5:8], *row[8:]) for row in cluster.of("replica_states")]
    assert rows == [
        ("b1", 3, 2, 0, 3, "leader", "load"),
        ("b1", 3, 3, 0, 3, "leader", "high-watermark"),
        ("b1", 3, 3, 0, 3, "offline", "down"),
        ("b1", 1, 0, 0, 3, "follower", "load"),
    ]


def test_a_log_that_differs_is_a_violation_of_the_run(tmp_path: Path) -> None:
    log = recorded("4.1.2")
    quorum = quorum_of(log.log, 20)

    async def story(cluster: Cluster) -> None:
        await cluster.until(lambda: cluster.metadata.offset == 19)
        batches = whole_batches(log.log)
        before = [batch[3] for batch in batches if batch[1] < 15]
        other = encode_metadata_batch(
            [TopicRecord(name="x", topic_id=UUID(int=1))] * 30,
            timestamp_ms=1,
            base_offset=sum(batch[1] < 15 for batch in batches) and batches[len(before)][0],
            quorum_epoch=77,
        )
        quorum.controllers[12].log = b"".join([*before, other])
        quorum.controllers[12].high_watermark = 40
        quorum.leader, quorum.epoch = 12, 77
        await cluster.until(lambda: bool(cluster.found))

    cluster = followed(quorum, Broker(Files(), is_up=False), tmp_path, story)
    assert [(each.node, each.invariant) for each in cluster.found] == [("c12", "INV-5")]


def test_at_the_end_the_logs_of_all_controllers_are_compared(tmp_path: Path) -> None:
    log = recorded("4.1.2")
    batches = whole_batches(log.log)
    changed = [batch[3] for batch in batches]
    changed[7] = with_epoch(changed[7], 99)
    path = f"{METADATA_DIRECTORY}/{0:020}.log"

    async def story(cluster: Cluster) -> None:
        cluster.controller_files["c11"].data[path] = log.log
        cluster.controller_files["c12"].data[path] = b"".join(changed)
        await cluster.until(lambda: cluster.metadata.offset == log.end - 1)

    quorum = quorum_of(log.log, log.end)
    cluster = followed(quorum, Broker(Files(), is_up=False), tmp_path, story)
    (violation,) = cluster.found
    assert (violation.node, violation.invariant) == ("c12", "INV-5")
    assert f"another batch at offset {batches[7][0]}" in violation.sentence
    assert cluster.unread == ["c13 has no metadata log"]


def framed_log(*values: bytes) -> bytes:
    return encode_batch([(None, value) for value in values], timestamp_ms=1, leader_epoch=1)


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (b"\x01\x03\x09anything", "a PartitionRecord of version 9 at offset 1"),
        (b"\x01\x17\x05anything", "a BeginTransactionRecord of version 5 at offset 1"),
    ],
)
def test_an_unknown_version_of_a_record_that_matters_ends_the_observation(
    tmp_path: Path, record: bytes, sentence: str
) -> None:
    quorum = quorum_of(framed_log(b"\x01\x14\x00\x00", record), 2)

    async def story(cluster: Cluster) -> None:
        await cluster.until(lambda: bool(cluster.unobserved))

    cluster = followed(quorum, Broker(Files(), is_up=False), tmp_path, story)
    assert sentence in cluster.unobserved
    assert not cluster.found, "it says nothing about the system"
    assert cluster.metadata.offset == -1


def test_an_unknown_kind_is_passed_over(tmp_path: Path) -> None:
    quorum = quorum_of(framed_log(b"\x01\x63\x00anything", b"\x01\x14\x00\x00"), 2)

    async def story(cluster: Cluster) -> None:
        await cluster.until(lambda: cluster.metadata.offset == 1)

    assert not followed(quorum, Broker(Files(), is_up=False), tmp_path, story).unobserved


def cut_after(log: Recorded, quorum: Quorum) -> None:
    for controller in quorum.controllers.values():
        controller.start, controller.snapshot = log.snapshot[0], log.snapshot
        controller.high_watermark = log.end


def test_a_log_that_is_cut_before_it_was_read_ends_the_observation(tmp_path: Path) -> None:
    """What happened between the two offsets is not known, so nothing is concluded from the difference."""
    log = recorded("4.1.2")
    quorum = quorum_of(log.log, 5)

    async def story(cluster: Cluster) -> None:
        await cluster.until(lambda: cluster.metadata.offset == 4)
        cut_after(log, quorum)
        await cluster.until(lambda: bool(cluster.unobserved))

    cluster = followed(quorum, Broker(Files(), is_up=False), tmp_path, story)
    assert f"was cut at offset {log.snapshot[0]}" in cluster.unobserved
    assert cluster.metadata.offset == 4


def test_a_run_may_begin_with_a_snapshot(tmp_path: Path) -> None:
    log = recorded("4.1.2")
    quorum = quorum_of(log.log, log.end)
    cut_after(log, quorum)

    async def story(cluster: Cluster) -> None:
        await cluster.until(lambda: cluster.metadata.offset == log.end - 1)

    cluster = followed(quorum, Broker(Files(), is_up=False), tmp_path, story)
    assert not cluster.unobserved
    assert not cluster.found
    assert cluster.system.events is not None
    assert compare_logs({}, cluster.system.events.batches).differences == ()
