"""The change monitor on made-up replicas: which changes it objects to, and which it accepts."""

from typing import Any

import pytest

from harness.environments.simulated.shadow import ChangeMonitor, ShadowLog
from harness.systems.reference.states import ReplicaChange
from system_under_test.broker.isr import Committed
from system_under_test.invariants import InvariantViolation
from system_under_test.log.log import Log
from tests.unit.harness.environments.test_invariant_monitor import STATE, Cluster, log_of

KEY = ("t", 0)


def change(
    log: Log, high_watermark: int, *, role: str = "leader", cause: str = "", **more: Any
) -> ReplicaChange:
    """The state of a replica in the leader epoch of the partition."""
    state = {
        "log_end_offset": log.log_end_offset,
        "log_start_offset": log.log_start_offset,
        "leader_epoch": STATE.leader_epoch,
        **more,
    }
    cause = cause or "high-watermark"
    return ReplicaChange(high_watermark=high_watermark, role=role, cause=cause, **state)


class Bench:
    """Two replicas, of which b1 leads."""

    def __init__(self, leader: Log, follower: Log, profile: str = "kafka-4.1") -> None:
        self.cluster = Cluster(leader, follower, profile=profile)
        self.monitor = ChangeMonitor(self.cluster)

    def leads(self, high_watermark: int, **more: Any) -> None:
        log = self.cluster.logs["b1"]
        self.monitor.replica_changed("b1", KEY, change(log, high_watermark, **more))

    def follows(self, high_watermark: int, **more: Any) -> None:
        log = self.cluster.logs["b2"]
        self.monitor.replica_changed(
            "b2", KEY, change(log, high_watermark, role="follower", **more)
        )


def broken(action: Any, *arguments: Any, **more: Any) -> str:
    with pytest.raises(InvariantViolation) as found:
        action(*arguments, **more)
    return found.value.invariant_id


def test_a_high_watermark_waits_for_every_member() -> None:
    bench = Bench(log_of(1, 1, 2), log_of(1, 1))
    bench.leads(2)
    assert broken(bench.leads, 3) == "INV-2"
    for isr, elr in (((1,), (2,)), ((2,), ())):
        bench = Bench(log_of(1, 1, 2), log_of(1, 1))
        bench.cluster.become(isr=isr, elr=elr)
        bench.cluster.leadership.is_below_min_isr = True
        assert broken(bench.leads, 3) == "INV-2"
    bench = Bench(log_of(1, 1, 2), log_of(1, 1))
    bench.cluster.become(isr=(1,))
    bench.leads(3)


def test_without_elr_or_after_a_flagged_election_nothing_is_promised() -> None:
    Bench(log_of(1, 1, 2), log_of(1, 1), profile="kafka-4.0").leads(3)
    bench = Bench(log_of(1, 1, 2), log_of(1, 1))
    bench.cluster.flagged_partitions = lambda: frozenset({"t-0"})  # type: ignore[method-assign]
    bench.leads(3)


def test_a_member_keeps_what_was_committed_when_it_truncates() -> None:
    bench = Bench(log_of(1, 1, 2), log_of(1, 1, 2))
    bench.leads(3)
    bench.cluster.logs["b2"] = log_of(1, 1)
    assert broken(bench.follows, 2, cause="truncate") == "INV-2"
    bench.follows(2, cause="replicate")
    bench.cluster.become(isr=(1,))
    bench.follows(2, cause="truncate")


def test_a_new_leader_has_everything_that_was_committed() -> None:
    bench = Bench(log_of(1, 1, 2), log_of(1, 1, 2))
    bench.leads(3)
    bench.cluster.become(leader=2, leader_epoch=3)
    follower = bench.cluster.logs["b2"]
    elected = change(follower, 3, cause="role", leader_epoch=3)
    bench.monitor.replica_changed("b2", KEY, elected)
    for log, invariant in ((log_of(1, 1), "INV-1"), (log_of(1, 1, 1), "INV-1")):
        bench.cluster.become(leader=2, leader_epoch=4)
        bench.cluster.logs["b2"] = log
        elected = change(log, 2, cause="role", leader_epoch=4)
        assert broken(bench.monitor.replica_changed, "b2", KEY, elected) == invariant
        bench.monitor.node_went_down("b2")


def test_what_a_follower_takes_for_committed_is_what_was_committed() -> None:
    bench = Bench(log_of(1, 1, 2), log_of(1, 1, 1))
    bench.leads(3)
    bench.follows(2)
    assert broken(bench.follows, 3, cause="replicate") == "INV-4"


@pytest.mark.parametrize("profile", ["kafka-4.0", "kafka-4.1"])
def test_offsets_and_epochs_are_in_order_in_every_profile(profile: str) -> None:
    bench = Bench(log_of(1, 1, 2), log_of(1, 1, 2), profile)
    assert broken(bench.leads, 4) == "INV-9"
    assert broken(bench.follows, 0, log_start_offset=1) == "INV-9"
    bench = Bench(log_of(1, 1, 2), log_of(1, 1, 2), profile)
    bench.leads(3)
    assert broken(bench.leads, 2) == "INV-9"
    bench.leads(2, cause="load")
    bench.follows(3)
    bench.follows(2)
    assert broken(bench.follows, 2, leader_epoch=1) == "INV-8"
    bench.monitor.node_went_down("b2")
    bench.follows(2, leader_epoch=1)


def test_an_epoch_has_one_leader() -> None:
    bench = Bench(log_of(1), log_of(1))
    bench.leads(1)
    second = change(bench.cluster.logs["b2"], 1)
    assert broken(bench.monitor.replica_changed, "b2", KEY, second) == "INV-8"
    bench.monitor.quorum_leader_elected("c11", 5, 0)
    bench.monitor.quorum_leader_elected("c11", 6, 0)
    assert broken(bench.monitor.quorum_leader_elected, "c12", 6, 0) == "INV-8"
    bench.cluster.committed_metadata_end = lambda: 9  # type: ignore[method-assign]
    bench.monitor.quorum_leader_elected("c12", 7, 9)
    # A candidate that was paused with all its votes becomes the leader of an epoch that is over.
    bench.monitor.quorum_leader_elected("c13", 4, 0)
    assert broken(bench.monitor.quorum_leader_elected, "c12", 8, 8) == "INV-5"


def test_a_leader_counts_on_every_member_when_its_high_watermark_moves() -> None:
    bench = Bench(log_of(1), log_of(1))
    bench.cluster.leadership.state = Committed(isr=(1,))
    assert broken(bench.leads, 1) == "INV-3"
    bench.cluster.leadership.is_below_min_isr = True
    bench.leads(1, cause="load")


def test_the_shadow_log_knows_the_epoch_of_every_committed_offset() -> None:
    shadow = ShadowLog()
    assert shadow.epoch_at(0) == -1
    shadow.extend(log_of(1, 1, 2, 2), 1)
    shadow.extend(log_of(1, 1, 2, 2), 3)
    shadow.extend(log_of(1, 1, 2, 2, 2), 4)
    shadow.extend(log_of(1, 1, 2, 2, 4, 5, 5), 7)
    assert [shadow.epoch_at(offset) for offset in range(7)] == [1, 1, 2, 2, 4, 5, 5]
    assert shadow.end_offset == 7
