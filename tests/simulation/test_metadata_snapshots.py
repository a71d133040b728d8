"""Whole clusters that write a snapshot of the metadata every few records, under random and directed faults."""

from dataclasses import replace
from pathlib import Path

import pytest
from cluster_story import Cluster

import harness
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment
from harness.runs.judge import judge_result
from harness.runs.simulated import simulate
from system_under_test.config import MetadataLogConfig
from tests.parts import parts

STORM = experiments.load(Path(harness.__path__[0]) / "experiments" / "elr-compare.toml")
OFTEN = {
    "metadata.log.max.record.bytes.between.snapshots": "300",
    "metadata.log.segment.bytes": "600",
    "metadata.max.retention.bytes": "0",
    "controller.quorum.fetch.snapshot.max.bytes": "200",
}
EAGER = MetadataLogConfig(
    metadata_log_max_record_bytes_between_snapshots=300,
    metadata_log_segment_bytes=600,
    metadata_max_retention_bytes=0,
    controller_quorum_fetch_snapshot_max_bytes=200,
)


def storm(profile: str) -> Experiment:
    faults = ("cut", "isolate", "pause", "kill", "power", "controller")
    nemesis = replace(STORM.nemesis, faults=faults, every_family=True)
    return replace(STORM, profile=profile, properties=OFTEN, nemesis=nemesis)


@pytest.mark.parametrize("profile", ["kafka-4.1", "kafka-3.9"])
@pytest.mark.parametrize("seed", parts(range(6), quick=2))
def test_random_faults_break_no_invariant_and_lose_nothing_without_excuse(
    profile: str, seed: int
) -> None:
    """Power cuts, kills and partitions of brokers and controllers, while all logs lose their beginning."""
    result = simulate(storm(profile), seed)
    verdict, _ = judge_result(storm(profile), seed, result)
    assert result.stuck == ""
    assert result.violations == []
    if profile == "kafka-4.1":
        assert verdict.unexcused_lost_records == 0
        assert verdict.validity == "valid"
    marks = set(result.tables["marks"].column("mark").to_pylist())
    assert {"metadata-snapshot-written", "metadata-log-prefix-deleted"} <= marks


def test_a_seed_without_snapshots_is_not_moved_by_their_existence() -> None:
    """Explicit defaults, no properties: the same trace."""
    defaults = {
        "metadata.log.max.record.bytes.between.snapshots": str(20 << 20),
        "metadata.max.retention.ms": str(7 * 24 * 3_600_000),
    }
    plain = simulate(STORM, 3)
    explicit = simulate(replace(STORM, properties=defaults), 3)
    assert plain.trace_hash == explicit.trace_hash
    assert "metadata-snapshot-written" not in plain.tables["marks"].column("mark").to_pylist()


def log_start(cluster: Cluster, name: str) -> int:
    offset: int = cluster.world.nodes[name].process.raft._quorum.log.log_start_offset
    return offset


def end(cluster: Cluster, name: str) -> int:
    offset: int = cluster.world.nodes[name].process.raft.log_end_offset
    return offset


def snapshots_loaded(cluster: Cluster, name: str) -> int:
    return [mark for mark, _ in cluster.books[name].marks].count("metadata-snapshot-loaded")


def test_a_broker_that_missed_the_deleted_log_applies_what_changed() -> None:
    """Broker 3 misses a change of the leader and a topic; all it gets of them is a snapshot."""
    cluster = Cluster(metadata_log=EAGER).start()
    cluster.create_topic()
    cluster.produce_eventually(b"1")
    held = [cluster.world.network.hold(f"c{n}", "b3", "FetchResponse") for n in (11, 12, 13)]
    known = end(cluster, "b3")
    cluster.node(1).kill()
    cluster.await_partition(lambda one: one.leader == 2)
    cluster.run_until(lambda: min(log_start(cluster, f"c{n}") for n in (11, 12, 13)) > known)
    assert cluster.node(3).process.metadata.image.partition("events", 0).leader == 1
    loaded = snapshots_loaded(cluster, "b3")
    for one in held:
        cluster.world.network.heal(one)
    cluster.node(1).start()
    cluster.await_isr(1, 2, 3)
    assert snapshots_loaded(cluster, "b3") > loaded
    assert log_start(cluster, "b3") > known
    cluster.run_until(
        lambda: cluster.node(3).process.metadata.image.partition("events", 0) == cluster.partition()
    )
    cluster.produce_eventually(b"2", b"3")
    assert cluster.read_all() == cluster.acked


def test_controllers_with_empty_disks_join_one_after_the_other() -> None:
    """Every voter is replaced by one with an empty disk, as long as a majority keeps its log."""
    cluster = Cluster(metadata_log=EAGER).start()
    cluster.create_topic()
    cluster.produce_eventually(b"1")
    for name in ("c11", "c12", "c13"):
        node = cluster.world.nodes[name]
        node.kill()
        node.disk.wipe()
        node.start()
        cluster.run_until(lambda node=node: node.process.controller.image.topics_by_name)
        loaded = snapshots_loaded(cluster, name)
        assert loaded >= 1, name
        cluster.run_for(2)
    cluster.produce_eventually(b"2")
    images = [cluster.world.nodes[f"c{n}"].process.controller.image for n in (11, 12, 13)]
    cluster.run_until(lambda: len({image.last_offset for image in images}) == 1)
    assert images[0].partitions == images[1].partitions == images[2].partitions
    assert images[0].configs == images[1].configs == images[2].configs
    assert images[0].features == images[1].features == images[2].features
    assert cluster.read_all() == cluster.acked


def test_the_whole_cluster_starts_again_from_snapshots() -> None:
    cluster = Cluster(metadata_log=EAGER).start()
    cluster.create_topic()
    cluster.produce_eventually(b"1", b"2")
    names = [*(f"c{n}" for n in (11, 12, 13)), *(f"b{n}" for n in cluster.brokers)]
    cluster.run_until(lambda: min(log_start(cluster, name) for name in names) > 0)
    brokers = [cluster.node(broker) for broker in cluster.brokers]
    for node in brokers:
        node.stop()
    cluster.run_until(lambda: not any(node.is_alive for node in brokers))
    for name in names[:3]:
        cluster.world.nodes[name].power_off("lose_all")
    for name in names:
        cluster.world.nodes[name].start()
    cluster.await_isr(1, 2, 3)
    assert all(snapshots_loaded(cluster, name) >= 1 for name in names)
    assert cluster.read_all() == cluster.acked
