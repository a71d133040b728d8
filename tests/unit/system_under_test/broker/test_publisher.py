"""Committed metadata becomes changes of local partitions: when, in which portions, in which order."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from system_under_test.broker.interfaces import LocalPartitionsDelta
from system_under_test.broker.metadata_cache import MetadataCache
from system_under_test.broker.publisher import MetadataPublisher
from system_under_test.metadata.records import (
    ConfigRecord,
    MetadataBatch,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from system_under_test.metadata.snapshot import MetadataSnapshot, SnapshotId
from system_under_test.rules import Rules
from tests.unit.system_under_test.broker.node_fakes import FakeHost, broker_config, run_virtually

TOPIC = UUID(int=100)


class RecordingTarget:
    """Keeps what a replica manager would get, and the content of the cache at that moment."""

    def __init__(self, cache: MetadataCache) -> None:
        self.cache = cache
        self.calls: list[str] = []
        self.deltas: list[LocalPartitionsDelta] = []
        self.error: Exception | None = None

    def publish_begins(self) -> None:
        self.calls.append(f"begins min.isr={self.cache.min_insync_replicas('t')}")

    def apply_delta(self, delta: LocalPartitionsDelta, broker_epoch: int) -> None:
        if self.error is not None:
            raise self.error
        assert broker_epoch == 41
        self.calls.append(f"delta min.isr={self.cache.min_insync_replicas('t')}")
        self.deltas.append(delta)

    def publish_ends(self) -> None:
        self.calls.append("ends")


class Bench:
    """A publisher with its surroundings. This broker is number 1."""

    def __init__(self, *yes: str, rules: Rules | None = None) -> None:
        config = broker_config().with_rules(rules or Rules())
        self.host = FakeHost(*yes)
        self.cache = MetadataCache(config)
        self.target = RecordingTarget(self.cache)
        self.failures: list[BaseException] = []
        self.removed: list[str] = []
        self.next_offset = 0
        self.publisher = MetadataPublisher(
            self.host,
            config,
            self.cache,
            self.target,
            broker_epoch=lambda: 41,
            before_first=lambda: self.target.calls.append("load"),
            after_first=lambda: self.target.calls.append("first done"),
            after_each=lambda: self.target.calls.append("done"),
            on_topics_removed=self.removed.extend,
            on_failure=self.failures.append,
        )

    def commit(self, *batches: Sequence[Any]) -> None:
        made = []
        for records in batches:
            made.append(
                MetadataBatch(base_offset=self.next_offset, quorum_epoch=1, records=tuple(records))
            )
            self.next_offset += len(records)
        self.publisher.on_commit(made)

    @property
    def last(self) -> LocalPartitionsDelta:
        return self.target.deltas[-1]


def topic() -> TopicRecord:
    return TopicRecord(name="t", topic_id=TOPIC)


def partition(index: int = 0, replicas: tuple[int, ...] = (1, 2, 3), leader: int = 1) -> Any:
    return PartitionRecord(
        topic_id=TOPIC, partition_id=index, replicas=replicas, isr=replicas, leader=leader
    )


def change(index: int = 0, **fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=TOPIC, partition_id=index, **fields)


def published_bench(*yes: str) -> Bench:
    bench = Bench()
    bench.commit([topic(), partition()])
    bench.publisher.allow()
    bench.host.random.yes.update(yes)
    return bench


def test_nothing_is_published_before_it_is_allowed() -> None:
    bench = Bench()
    bench.commit([topic(), partition()], [change(leader=2)])
    assert bench.target.calls == []
    assert bench.publisher.metadata_offset == 2  # loaded counts for the heartbeat until then
    assert bench.cache.image.last_offset == -1


def test_the_first_publish_is_a_single_one_and_loads_logs_before_partitions_change() -> None:
    bench = Bench()
    bench.commit([topic(), partition()], [change(leader=2)], [change(leader=1)])
    bench.publisher.allow()
    assert bench.target.calls == [
        "begins min.isr=1",
        "load",
        "delta min.isr=1",
        "ends",
        "done",
        "first done",
    ]
    (registration,) = bench.last.leaders
    assert (registration.leader_epoch, registration.partition_epoch) == (2, 2)


def test_without_life_1_the_oldest_metadata_is_published_at_once() -> None:
    bench = Bench(rules=Rules(["LIFE-1"]))
    bench.commit([topic(), partition()], [change(leader=2)])
    assert [len(delta.leaders) for delta in bench.target.deltas] == [1, 0]
    assert bench.target.deltas[0].leaders[0].leader_epoch == 0


def test_every_batch_is_a_publish_of_its_own_and_none_is_split() -> None:
    """META-4."""
    bench = published_bench()
    bench.target.deltas.clear()
    bench.commit([change(leader=2), change(leader=3)], [change(leader=1)])
    first, second = bench.target.deltas
    assert [r.leader_epoch for r in first.followers] == [2]
    assert [r.leader_epoch for r in second.leaders] == [3]


def test_merged_batches_show_their_end_points_only() -> None:
    """META-3: leader, other, leader again is one change of the leader epoch by two."""
    bench = published_bench("metadata-batch")
    bench.target.deltas.clear()
    bench.commit([change(leader=2)], [change(leader=1)])
    (delta,) = bench.target.deltas
    assert delta.followers == ()
    assert [r.leader_epoch for r in delta.leaders] == [2]
    assert "metadata-batches-merged" in bench.host.observer.names


def test_a_lagging_broker_publishes_later_and_in_order() -> None:
    """META-2."""

    async def scenario() -> None:
        bench = published_bench("metadata-lag")
        bench.target.deltas.clear()
        bench.commit([change(leader=2)])
        bench.commit([change(leader=3)])
        assert bench.target.deltas == []
        assert bench.publisher.metadata_offset == 1  # applied, not loaded
        bench.host.random.yes.clear()
        await asyncio.sleep(1)
        assert [d.followers[0].leader for d in bench.target.deltas] == [2, 3]
        assert bench.publisher.metadata_offset == 3

    run_virtually(scenario())


def test_partitions_without_a_local_replica_are_ignored() -> None:
    bench = published_bench()
    bench.target.deltas.clear()
    bench.commit([partition(index=5, replicas=(2, 3), leader=2)], [change(5, leader=3)])
    assert bench.target.deltas == []


def test_a_partition_that_moves_away_is_deleted_and_one_of_a_removed_topic_is_marked() -> None:
    bench = published_bench()
    bench.commit([change(replicas=(2, 3), isr=(2, 3), leader=2)])
    assert bench.last.deletes == (("t", 0, False),)
    bench.commit([change(replicas=(1, 2), isr=(2,))])
    assert [r.partition for r in bench.last.followers] == [0]
    bench.commit([RemoveTopicRecord(topic_id=TOPIC)])
    assert bench.last.deletes == (("t", 0, True),)
    assert not bench.cache.has_partition("t", 0)
    assert bench.removed == ["t"]


def test_an_unchanged_partition_epoch_is_no_change() -> None:
    bench = published_bench()
    bench.target.deltas.clear()
    bench.commit([partition()])  # written again in full, as a snapshot would
    assert bench.target.deltas == []


def test_the_cache_moves_between_the_beginning_and_the_changes() -> None:
    """META-5: the target sees the old min ISR when a publish begins and the new one with the changes."""
    bench = published_bench()
    bench.target.calls.clear()
    bench.commit(
        [
            ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="2"),
            change(isr=(1, 2)),
        ]
    )
    assert bench.target.calls == ["begins min.isr=1", "delta min.isr=2", "ends", "done"]


def test_a_change_of_configuration_alone_is_a_publish() -> None:
    bench = published_bench()
    bench.target.calls.clear()
    bench.commit(
        [ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="3")]
    )
    assert bench.target.calls == ["begins min.isr=1", "ends"]


def test_no_op_records_move_the_offset_and_nothing_else() -> None:
    bench = published_bench()
    bench.target.calls.clear()
    bench.commit([NoOpRecord()], [NoOpRecord()])
    assert bench.target.calls == []
    assert bench.publisher.metadata_offset == 3


def test_a_failed_publish_is_reported_and_is_the_last_one() -> None:
    bench = published_bench()
    bench.target.error = OSError("disk")
    bench.commit([change(leader=2)])
    bench.target.error = None
    bench.commit([change(leader=3)])
    assert [str(error) for error in bench.failures] == ["disk"]
    assert len(bench.target.deltas) == 1


@pytest.mark.parametrize("moment", ["before", "lagging"])
def test_a_stopped_publisher_publishes_nothing(moment: str) -> None:
    async def scenario() -> None:
        bench = published_bench("metadata-lag")
        if moment == "lagging":
            bench.commit([change(leader=2)])
        bench.publisher.stop()
        bench.commit([change(leader=3)])
        await asyncio.sleep(1)
        assert len(bench.target.deltas) == 1

    run_virtually(scenario())


# --- snapshots, forced batching


def snapshot_of(*records: Any, end_offset: int) -> MetadataSnapshot:
    return MetadataSnapshot(id=SnapshotId(end_offset=end_offset, epoch=3), records=records)


def test_a_snapshot_before_the_first_publish_is_its_base() -> None:
    bench = Bench()
    bench.commit([topic(), partition()])
    bench.publisher.on_snapshot(snapshot_of(topic(), partition(leader=2), end_offset=9))
    bench.next_offset = 9
    bench.commit([change(leader=3)])
    assert bench.publisher.metadata_offset == 9
    assert bench.publisher.snapshot_image() is None
    bench.publisher.allow()
    assert bench.target.calls.count("ends") == 1
    assert [one.leader for one in bench.last.followers] == [3]
    assert bench.cache.image.last_offset == 9
    assert bench.publisher.snapshot_image() is bench.cache.image


def test_a_snapshot_replaces_the_image_and_replicas_see_what_differs() -> None:
    """Partition 0 changed, 1 is as before, 2 is gone, 3 is new; topic "gone" was deleted meanwhile."""
    gone = UUID(int=101)
    bench = published_bench()
    bench.commit(
        [
            partition(1),
            partition(2),
            TopicRecord(name="gone", topic_id=gone),
            PartitionRecord(topic_id=gone, partition_id=0, replicas=(1, 2), isr=(1, 2), leader=2),
        ]
    )
    bench.target.calls.clear()
    bench.publisher.on_snapshot(
        snapshot_of(
            topic(),
            replace(partition(leader=2), leader_epoch=1, partition_epoch=4),
            partition(1),
            partition(2, replicas=(2, 3)),
            partition(3),
            end_offset=50,
        )
    )
    assert bench.target.calls == ["begins min.isr=1", "delta min.isr=1", "ends", "done"]
    assert bench.last.deletes == (("t", 2, False), ("gone", 0, True))
    assert [(one.partition, one.leader) for one in bench.last.followers] == [(0, 2)]
    assert [(one.partition, one.leader) for one in bench.last.leaders] == [(3, 1)]
    assert bench.removed == ["gone"]
    assert bench.publisher.metadata_offset == 49
    bench.next_offset = 50
    bench.commit([change(1, leader=3)])
    assert [(one.partition, one.leader) for one in bench.last.followers] == [(1, 3)]


def test_a_snapshot_is_one_publish_and_the_batches_behind_it_follow() -> None:
    bench = published_bench()
    bench.publisher.hold()
    bench.publisher.on_snapshot(snapshot_of(topic(), partition(1), end_offset=20))
    bench.next_offset = 20
    bench.commit([change(1, leader=2)], [change(1, leader=3)])
    before = len(bench.target.deltas)
    bench.publisher._is_held = False
    bench.publisher.allow()
    assert len(bench.target.deltas) == before + 3


def test_what_was_held_is_published_as_one_change() -> None:
    """[META-3] Leader 2, then 1 again: the replica sees two leader epochs more, and no other leader."""
    bench = published_bench()
    bench.publisher.hold()
    bench.commit([change(leader=2)], [NoOpRecord()], [change(leader=1, isr=(1, 2))])
    assert bench.cache.image.last_offset == 1
    before = len(bench.target.deltas)
    bench.publisher.release()
    assert len(bench.target.deltas) == before + 1
    (seen,) = bench.last.leaders
    assert (seen.leader_epoch, seen.isr) == (2, (1, 2))
    assert bench.last.followers == ()
    assert ("metadata-batches-merged", {"count": 3}) in bench.host.observer.marks
    bench.commit([change(leader=2)], [change(leader=1)])
    assert len(bench.target.deltas) == before + 3
