"""The invariant monitor on made-up replicas: which states it objects to, and which it accepts."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from harness.contracts.metadata import PartitionState
from harness.environments.simulated.monitor import InvariantMonitor
from system_under_test.broker.isr import Committed
from system_under_test.config import LogConfig, profile_features
from system_under_test.invariants import InvariantViolation
from system_under_test.log.log import Log
from system_under_test.protocol.record_batch import encode_batch
from tests.memory_storage import MemoryStorage

TOPIC_ID = UUID(int=7)
STATE = PartitionState(
    topic="t",
    partition=0,
    leader=1,
    leader_epoch=2,
    partition_epoch=5,
    replicas=(1, 2),
    isr=(1, 2),
    elr=(),
    min_isr=2,
)


def log_of(*epochs: int, value: bytes = b"x", other_at: int = -1) -> Log:
    """Returns a log with one record per epoch; the record at `other_at` has another value."""
    log = Log.load(MemoryStorage(), "data/t-0", LogConfig(), had_clean_shutdown=True)
    for offset, epoch in enumerate(epochs):
        content = b"y" if offset == other_at else value
        log.append_as_follower(
            encode_batch([(None, content)], timestamp_ms=1, base_offset=offset, leader_epoch=epoch)
        )
    return log


class Cluster:
    """Brokers 1 and 2, of which 1 leads, as far as the monitor sees them."""

    def __init__(self, *logs: Log, profile: str = "kafka-4.1", committed_end: int = 0) -> None:
        self.features = profile_features(profile)
        self.brokers = {f"b{number}": number for number in range(1, len(logs) + 1)}
        self.committed_end = committed_end
        self.metadata: Any = SimpleNamespace(
            partitions={"t-0": STATE},
            brokers={number: SimpleNamespace(broker_epoch=number) for number in (1, 2)},
            is_fenced=lambda broker: False,
        )
        self.world: Any = SimpleNamespace(inspecting=nullcontext, now=0)
        self.disk_busy_until_ns = 0
        self.leadership = SimpleNamespace(
            state=Committed(isr=STATE.isr),
            is_below_min_isr=False,
            effective_min_isr=2,
        )
        self.logs = dict(zip(self.brokers, logs, strict=True))

    def flagged_partitions(self) -> frozenset[str]:
        return frozenset()

    def true_high_watermark(self, topic: str, partition: int) -> int:
        return self.committed_end

    def differing_controllers(self) -> dict[str, Any]:
        return {}

    def committed_metadata_end(self) -> int:
        return 0

    def waits_for_disk_until_ns(self, name: str) -> float:
        return self.disk_busy_until_ns

    def watch_changes(self, watcher: Any) -> None:
        """Not called: nothing is started here."""

    def running_broker(self, name: str) -> Any:
        log = self.logs[name]
        leads = name == "b1"
        partition = SimpleNamespace(
            log=log,
            high_watermark=min(self.committed_end, log.log_end_offset),
            leader_epoch=STATE.leader_epoch,
            leadership=self.leadership if leads else None,
            topic_id=TOPIC_ID,
        )
        return SimpleNamespace(
            node_id=self.brokers[name],
            broker_epoch=self.brokers[name],
            replica_manager=SimpleNamespace(partitions={("t", 0): partition}),
        )

    def become(self, **changes: Any) -> None:
        self.metadata.partitions["t-0"] = replace(STATE, **changes)


def violation(monitor: InvariantMonitor) -> str:
    with pytest.raises(InvariantViolation) as broken:
        monitor.check()
    return broken.value.invariant_id


def test_equal_logs_are_accepted_and_read_once() -> None:
    cluster = Cluster(log_of(1, 1, 2), log_of(1, 1, 2), committed_end=3)
    monitor = InvariantMonitor(cluster)
    for end in (1, 2, 3):
        cluster.committed_end = end
        monitor.check()


@pytest.mark.parametrize("other_at", [0, 1, 2])
def test_a_record_that_differs_anywhere_breaks_inv_4(other_at: int) -> None:
    cluster = Cluster(log_of(1, 1, 2), log_of(1, 1, 2, other_at=other_at), committed_end=3)
    assert violation(InvariantMonitor(cluster)) == "INV-4"


def test_a_member_of_the_isr_without_a_committed_record_breaks_inv_2() -> None:
    cluster = Cluster(log_of(1, 1, 2), log_of(1, 1), committed_end=3)
    assert violation(InvariantMonitor(cluster)) == "INV-2"


def test_a_member_of_the_elr_with_another_last_committed_record_breaks_inv_2() -> None:
    cluster = Cluster(log_of(1, 1, 2), log_of(1, 1, 1), committed_end=3)
    cluster.become(isr=(1,), elr=(2,))
    assert violation(InvariantMonitor(cluster)) == "INV-2"


def test_records_above_the_high_watermark_may_differ() -> None:
    cluster = Cluster(log_of(1, 1, 2), log_of(1, 1, 1), committed_end=2)
    InvariantMonitor(cluster).check()


def test_a_leader_without_a_committed_record_in_the_middle_breaks_inv_1() -> None:
    """Its log is long enough, and its last committed record is right."""
    cluster = Cluster(log_of(1, 1, 2), log_of(1, 1, 2), committed_end=3)
    cluster.become(isr=(1,), elr=(2,))
    monitor = InvariantMonitor(cluster)
    monitor.check()
    cluster.become(isr=(1,), elr=(), partition_epoch=6, replicas=(1, 2, 3))
    cluster.logs["b1"] = log_of(1, 2, 2)
    assert violation(monitor) == "INV-1"


def test_a_leader_that_deleted_committed_records_from_its_start_is_accepted() -> None:
    cluster = Cluster(log_of(1, 1, 2), log_of(1, 1, 2), committed_end=3)
    monitor = InvariantMonitor(cluster)
    monitor.check()
    shorter = log_of()
    shorter.truncate_fully_and_start_at(1)
    for offset, epoch in ((1, 1), (2, 2)):
        shorter.append_as_follower(
            encode_batch([(None, b"x")], timestamp_ms=1, base_offset=offset, leader_epoch=epoch)
        )
    cluster.logs["b1"] = shorter
    monitor.check()


def test_committed_records_that_no_replica_has_break_inv_11() -> None:
    cluster = Cluster(log_of(1, 1, 2), log_of(1, 1, 2), committed_end=3)
    monitor = InvariantMonitor(cluster)
    monitor.check()
    cluster.logs = {"b1": log_of(1, 1, 1), "b2": log_of(1)}
    assert violation(monitor) == "INV-11"


def test_a_replica_that_is_to_be_deleted_does_not_stand_for_one_that_is_down() -> None:
    """Only broker 3 is left, which has everything and cannot be seen."""
    cluster = Cluster(log_of(1, 1, 2), log_of(1, 1, 2), committed_end=3)
    monitor = InvariantMonitor(cluster)
    monitor.check()
    cluster.become(replicas=(3,), isr=(3,), leader=3, leader_epoch=3, partition_epoch=6)
    cluster.logs = {"b1": log_of(1, 1, 1), "b2": log_of(1)}
    monitor.check()


@pytest.mark.parametrize("profile", ["kafka-4.0", "kafka-4.1"])
def test_a_leader_that_counts_on_too_few_breaks_inv_3_in_every_profile(profile: str) -> None:
    cluster = Cluster(log_of(), log_of(), profile=profile)
    cluster.leadership.state = Committed(isr=(1, 9))
    assert violation(InvariantMonitor(cluster)) == "INV-3"
