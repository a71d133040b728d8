"""Apache Kafka opens log directories of the reference system, and the other way round, with the same records."""

import os
import signal
from pathlib import Path

import pytest
from disk_exchange import (
    COMMITTED,
    RECORDS,
    TOPIC,
    create_cluster,
    fill,
    move_directories,
    offsets_of_group,
    produce,
    read,
    records,
    start,
    state_of_transactions,
    stop,
    tools_for,
    write_transactions,
)
from kafka_tools import LIMIT_S

from harness.environments.local.standing import LocalCluster
from nemesis.agent.disks.disk import NodeDisk
from nemesis.agent.disks.images import sync_filesystem
from nemesis.agent.disks.power_cut import CutPlan, cut
from tests.containers.disk_rig import disk_folder

# Each needs two systems and a Java process per question.
pytestmark = [pytest.mark.long, pytest.mark.wire, pytest.mark.timeout(LIMIT_S * 5)]


@pytest.mark.parametrize("nodes", [1, 3], ids=["one-node", "three-nodes"])
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean-stop", "killed"])
@pytest.mark.parametrize(("first", "second"), [("reference", "kafka"), ("kafka", "reference")])
def test_log_directories_move_to_the_other_system_and_back(
    first: str, second: str, is_clean: bool, nodes: int, tmp_path: Path
) -> None:
    source = create_cluster(tmp_path / "first", first, nodes)
    tools = tools_for(source)
    with source:
        start(source)
        fill(tools, nodes)
        written = records(tools, 2 * RECORDS + COMMITTED)
        committed = offsets_of_group(tools)
        assert sum(int(offset) for offset in committed.values()) == 1000
        transactions = state_of_transactions(tools)
        assert transactions["TransactionState"] == "CompleteCommit"
        end(source, is_clean)
        target = create_cluster(tmp_path / "second", second, nodes)
        move_directories(source, target)
    with target:
        start(target)
        tools = tools_for(target)
        assert records(tools, 2 * RECORDS + COMMITTED) == written
        assert offsets_of_group(tools) == committed
        assert state_of_transactions(tools) == transactions
        assert "retention.ms=86400000" in tools.run("topics", "--describe", "--topic", TOPIC)
        produce(tools, RECORDS, "enable.idempotence=true")
        write_transactions(tools.bootstrap)
        grown = records(tools, 3 * RECORDS + 2 * COMMITTED)
        assert set(written) < set(grown)
        transactions = state_of_transactions(tools)
        end(target, is_clean)
        back = create_cluster(tmp_path / "back", first, nodes)
        move_directories(target, back)
    with back:
        start(back)
        tools = tools_for(back)
        assert records(tools, 3 * RECORDS + 2 * COMMITTED) == grown
        assert offsets_of_group(tools) == committed
        assert state_of_transactions(tools) == transactions
        stop(back)


def end(cluster: LocalCluster, is_clean: bool) -> None:
    """Stops all nodes cleanly, or all at once with SIGKILL."""
    if is_clean:
        stop(cluster)
        return
    for name in cluster.nodes:
        cluster.kill(name)


@pytest.mark.parametrize(
    ("first", "second"),
    [("reference", "kafka"), ("kafka", "reference")],
    ids=["from-reference", "from-kafka"],
)
@pytest.mark.xdist_group("containers")
def test_both_systems_recover_the_same_from_a_disk_that_lost_power(
    first: str, second: str, tmp_path: Path
) -> None:
    """The kernel loses what was not flushed; a random part of it is written back, as a disk may have it."""
    with disk_folder() as folder:
        disk = NodeDisk.create(folder / "node", filesystem="ext4")
        source = create_cluster(disk.data / "first", first, 1)
        # The directories were formatted long ago.
        sync_filesystem(disk.data)
        tools = tools_for(source)
        with source:
            start(source)
            fill(tools, 1)
            written = read(tools)

            for node in source.nodes.values():
                # Nothing may change the directories while they are looked at.
                os.kill(node.pid, signal.SIGSTOP)

            def kill(_: int) -> None:
                end(source, is_clean=False)

            (report,) = cut([disk], [CutPlan(mode="prefix", seed=1)], kill)
            assert report.lost_bytes > 0
            found = {}
            for system in (first, second):
                target = create_cluster(tmp_path / system, system, 1)
                move_directories(source, target)
                with target:
                    start(target)
                    tools = tools_for(target)
                    found[system] = read(tools), offsets_of_group(tools), tools.offsets(TOPIC)
                    stop(target)
    recovered, _, _ = found[first]
    assert found[second] == found[first]
    # Each partition is flushed after every thousand records.
    assert len(written) - 2000 <= len(recovered) < len(written)
    assert set(recovered) < set(written)


@pytest.mark.parametrize(
    ("first", "second"),
    [("reference", "kafka"), ("kafka", "reference")],
    ids=["from-reference", "from-kafka"],
)
def test_the_other_system_recovers_what_a_power_cut_left(
    first: str, second: str, tmp_path: Path
) -> None:
    source = create_cluster(tmp_path / "first", first, 1)
    tools = tools_for(source)
    with source:
        start(source)
        fill(tools, 1)
        written = read(tools)
        committed = offsets_of_group(tools)
        end(source, is_clean=False)
        torn = tear_logs(source)
        target = create_cluster(tmp_path / "second", second, 1)
        move_directories(source, target)
    with target:
        start(target)
        tools = tools_for(target)
        found = read(tools)
        # Each partition lost the batch that was cut in the middle, and nothing before it.
        for partition in torn:
            had, has = (
                [line for line in lines if line.startswith(f"Partition:{partition}\t")]
                for lines in (written, found)
            )
            assert 0 < len(has) < len(had)
        assert set(found) < set(written)
        assert offsets_of_group(tools) == committed
        stop(target)


def tear_logs(cluster: LocalCluster) -> set[int]:
    """Leaves of the topic's logs what a power cut may leave; returns the partitions.

    The last batch ends in the middle, one index of the active segment is cut and the others are missing, and there
    are no snapshots of producers.
    """
    partitions = set()
    for log in cluster.nodes["b1"].directory.rglob(f"{TOPIC}-*"):
        active = max(log.glob("*.log"))
        with open(active, "r+b") as file:
            file.truncate(active.stat().st_size - 37)
        for path in [*log.glob("*.timeindex"), *log.glob("*.snapshot")]:
            path.unlink()
        for path in log.glob(f"{active.stem}.index"):
            path.write_bytes(path.read_bytes()[:5])
        partitions.add(int(log.name.rpartition("-")[2]))
    assert partitions == {0, 1}
    return partitions
