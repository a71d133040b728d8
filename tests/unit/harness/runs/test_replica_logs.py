"""What replicas hold at the end of a run is read from their files and recorded, in every kind of environment."""

from pathlib import Path
from typing import Any

import pytest

from harness.contracts.system import StoredBatch
from harness.environments.hosts.cluster import READ_BYTES, HostNode, _AgentFiles
from harness.environments.local.cluster import _LocalNodeFiles
from harness.history.schema import REPLICA_BATCHES, REPLICA_STATES
from harness.runs.experiment import ClusterConfig, Experiment, TopicConfig
from harness.runs.replica_logs import LastReplicaStates, record_logs
from harness.runs.simulated import simulate
from harness.systems.reference.adapter import SYSTEM
from nemesis.agent.disks.disk import NodeDisk
from nemesis.agent.errors import AgentError
from system_under_test.log.segment import segment_path
from system_under_test.protocol.record_batch import encode_batch

EVERYTHING = 1 << 30


def batch(base_offset: int, count: int = 1, *, epoch: int = 0, text: bytes = b"v") -> bytes:
    return encode_batch(
        [(None, text)] * count, timestamp_ms=0, base_offset=base_offset, leader_epoch=epoch
    )


class Files:
    """A node's files in memory; `broken` ones cannot be read."""

    def __init__(self, files: dict[str, bytes], broken: str = "") -> None:
        self._files = files
        self._broken = broken

    def list(self, directory: str) -> list[str]:
        return [path.rpartition("/")[2] for path in self._files if path.startswith(f"{directory}/")]

    def read(self, path: str, length: int) -> bytes:
        if path == self._broken:
            raise OSError(f"{path} is gone")
        return self._files[path][:length]


def log_of(*segments: tuple[int, bytes], index: int = 0) -> dict[str, bytes]:
    return {segment_path(f"data/t-{index}", base): data for base, data in segments}


def offsets(files: dict[str, bytes], bytes_max: int = EVERYTHING) -> list[tuple[int, int]]:
    found = SYSTEM.stored_batches(Files(files), "t", 0, bytes_max=bytes_max)
    return [(one.base_offset, one.last_offset) for one in found]


def test_the_batches_of_all_segments_are_read_in_order() -> None:
    files = log_of((3, batch(3)), (0, batch(0, 2) + batch(2, epoch=4)), index=0)
    files |= {"data/t-0/leader-epoch-checkpoint": b"0\n"} | log_of((0, batch(0, 9)), index=1)
    assert offsets(files) == [(0, 1), (2, 2), (3, 3)]
    (first, second, _) = SYSTEM.stored_batches(Files(files), "t", 0, bytes_max=EVERYTHING)
    assert (first.leader_epoch, second.leader_epoch) == (0, 4)
    assert offsets({}) == []


def test_the_checksum_is_that_of_the_records_alone() -> None:
    def checksum(data: bytes) -> int:
        (one,) = SYSTEM.stored_batches(Files(log_of((0, data))), "t", 0, bytes_max=EVERYTHING)
        return one.checksum

    assert checksum(batch(0)) == checksum(batch(5, epoch=3))
    assert checksum(batch(0)) != checksum(batch(0, text=b"w"))


@pytest.mark.parametrize("where", ["torn", "damaged", "repeated"])
def test_a_log_is_read_up_to_the_first_batch_that_is_incomplete_or_damaged(where: str) -> None:
    last = batch(2)
    bad = {
        "torn": last[:-1],
        "damaged": last[:-1] + bytes([last[-1] ^ 1]),
        "repeated": batch(1),
    }[where]
    files = log_of((0, batch(0) + batch(1) + bad), (3, batch(3)))
    assert offsets(files) == [(0, 0), (1, 1)]


def test_of_a_log_that_is_too_long_the_beginning_is_read() -> None:
    one = len(batch(0))
    files = log_of((0, batch(0) + batch(1)), (2, batch(2)))
    assert offsets(files, one) == [(0, 0)]
    assert offsets(files, 2 * one) == [(0, 0), (1, 1)]
    assert offsets(files, 3 * one - 1) == [(0, 0), (1, 1)]
    assert offsets(files, 3 * one) == [(0, 0), (1, 1), (2, 2)]


def state(node: int, *, hw: int, role: str = "follower", topic: str = "t") -> tuple[Any, ...]:
    values = {
        "at_ns": 1,
        "node": f"b{node}",
        "broker": node,
        "topic": topic,
        "partition": 0,
        "log_end_offset": 9,
        "high_watermark": hw,
        "log_start_offset": 0,
        "leader_epoch": 0,
        "role": role,
        "cause": "role",
    }
    return tuple(values[name] for name in REPLICA_STATES.names)


def test_the_last_state_of_every_running_replica_counts() -> None:
    rows: list[tuple[str, tuple[Any, ...]]] = []
    states = LastReplicaStates(lambda table, row: rows.append((table, row)))
    for row in (
        state(3, hw=5),
        state(1, hw=1),
        state(1, hw=2),
        state(2, hw=4),
        state(2, hw=4, role="offline"),
        state(4, hw=0),
        state(1, hw=3, topic="other"),
        state(5, hw=3, topic="__consumer_offsets"),
    ):
        states.add("replica_states", row)
    states.add("marks", (1, "b9", "m", "{}"))
    assert len(rows) == 9
    found = [(one.node, one.topic, one.high_watermark) for one in states.running()]
    assert found == [("b1", "other", 3), ("b1", "t", 2), ("b3", "t", 5)]


def test_a_log_that_cannot_be_read_is_left_out_and_named() -> None:
    states = LastReplicaStates(lambda *_: None)
    for node in (1, 2, 3):
        states.add("replica_states", state(node, hw=2))
    log = log_of((0, batch(0) + batch(1, 2)))
    files = {"b1": Files(log), "b2": Files(log, broken=next(iter(log))), "b3": Files({})}
    rows: list[tuple[str, tuple[Any, ...]]] = []
    unread = record_logs(SYSTEM, states, lambda name: files[name], lambda *row: rows.append(row))
    (sentence,) = unread
    assert sentence.startswith("b2: the log of t-0: data/t-0/")
    recorded = [dict(zip(REPLICA_BATCHES.names, row, strict=True)) for _, row in rows]
    assert [(row["node"], row["base_offset"], row["last_offset"]) for row in recorded] == [
        ("b1", 0, 0),
        ("b1", 1, 2),
    ]
    assert {row["read_end_offset"] for row in recorded} == {3}
    assert {row["high_watermark"] for row in recorded} == {2}


def test_nothing_is_recorded_of_a_system_that_cannot_read_logs() -> None:
    states = LastReplicaStates(lambda *_: None)
    states.add("replica_states", state(1, hw=2))
    other: Any = object()
    rows: list[Any] = []
    assert record_logs(other, states, lambda _: Files({}), lambda *row: rows.append(row)) == []
    assert rows == []


class DiskAgent:
    """An agent whose commands are those of a node's disk."""

    def __init__(self, disk: NodeDisk) -> None:
        self._disk = disk

    def call(self, command: str, *, node: str, **arguments: Any) -> Any:
        if node != "b1":
            raise AgentError(f"the agent has no node {node!r}")
        commands = {"list_files": self._disk.list_files, "read_disk": self._disk.read_bytes}
        return commands[command](**arguments)


def agent_files(disk: NodeDisk, name: str = "b1") -> _AgentFiles:
    agent: Any = DiskAgent(disk)
    node = HostNode(name=name, role="broker", node_id=1, address="", port=0, agent=agent)
    return _AgentFiles(node)


def test_files_of_processes_and_of_hosts_are_the_same_logs(tmp_path: Path) -> None:
    disk = NodeDisk(tmp_path, "ext4", 64)
    large = batch(1, text=b"x" * (READ_BYTES + 5))
    for path, data in log_of((0, batch(0) + large), (2, batch(2))).items():
        (disk.data / path).parent.mkdir(parents=True, exist_ok=True)
        (disk.data / path).write_bytes(data)
    local = SYSTEM.stored_batches(_LocalNodeFiles(disk.data), "t", 0, bytes_max=EVERYTHING)
    assert [one.base_offset for one in local] == [0, 1, 2]
    assert isinstance(local[0], StoredBatch)
    assert SYSTEM.stored_batches(agent_files(disk), "t", 0, bytes_max=EVERYTHING) == local
    for files in (agent_files(disk), _LocalNodeFiles(disk.data)):
        assert SYSTEM.stored_batches(files, "t", 1, bytes_max=EVERYTHING) == []
        with pytest.raises(OSError, match="nothing"):
            files.read("data/nothing", 1)


def test_an_agent_reads_below_the_files_of_a_node_only(tmp_path: Path) -> None:
    disk = NodeDisk(tmp_path, "ext4", 64)
    disk.data.mkdir(parents=True)
    for path in ("..", "../../secret", "/etc/passwd"):
        with pytest.raises(AgentError, match="is not below the node's files"):
            disk.read_bytes(path, 0, 1)
        with pytest.raises(OSError, match="is not below the node's files"):
            agent_files(disk).list(path)
    with pytest.raises(OSError, match="has no node"):
        agent_files(disk, "b2").list("data")


def test_a_simulated_run_records_the_logs_of_all_replicas_and_they_agree() -> None:
    experiment = Experiment(
        name="replica-logs",
        cluster=ClusterConfig(brokers=3, controllers=1),
        topic=TopicConfig(name="t", partitions=2),
        duration_ms=500,
    )
    result = simulate(experiment, 1)
    rows = result.tables["replica_batches"].to_pylist()
    logs: dict[tuple[str, int], set[tuple[int, int, int, int]]] = {}
    for row in rows:
        logs.setdefault((row["node"], row["partition"]), set()).add(
            (row["base_offset"], row["last_offset"], row["leader_epoch"], row["checksum"])
        )
    assert set(logs) == {(f"b{node}", index) for node in (1, 2, 3) for index in (0, 1)}
    for index in (0, 1):
        assert logs["b1", index] == logs["b2", index] == logs["b3", index]
        held = {
            offset for first, last, _, _ in logs["b1", index] for offset in range(first, last + 1)
        }
        acked = {
            row["offset"]
            for row in result.tables["operations"].to_pylist()
            if (row["kind"], row["outcome"], row["partition"]) == ("append", "ok", index)
        }
        assert acked
        assert acked <= held
