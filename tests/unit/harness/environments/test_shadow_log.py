"""The change monitor on made-up replicas: which changes it objects to, and which it accepts."""

from typing import Any
from uuid import UUID

import pytest

from harness.environments.simulated.shadow import ChangeMonitor
from harness.environments.simulated.shadow_log import ShadowLog
from harness.systems.reference.states import ReplicaChange
from system_under_test.broker.isr import Committed
from system_under_test.config import LogConfig
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

    def __init__(
        self, leader: Log, follower: Log, profile: str = "kafka-4.1", committed_end: int = 0
    ) -> None:
        self.cluster = Cluster(leader, follower, profile=profile, committed_end=committed_end)
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


def test_a_member_of_the_quorum_votes_once_in_an_epoch() -> None:
    bench = Bench(log_of(1), log_of(1))
    bench.monitor.quorum_voted("c11", 5, 12)
    bench.monitor.quorum_voted("c11", 5, 12)
    bench.monitor.quorum_voted("c11", 6, 11)
    bench.monitor.quorum_voted("c12", 5, 11)
    bench.monitor.node_went_down("c11")  # a vote outlives the process
    bench.monitor.quorum_voted("c11", 6, 11)
    assert broken(bench.monitor.quorum_voted, "c11", 6, 12) == "INV-8"
    assert broken(bench.monitor.quorum_voted, "c11", 5, 12) == "INV-8"


def test_a_vote_that_was_not_durable_yet_may_be_gone_after_a_power_cut() -> None:
    for ended_at, is_durable in ((99, False), (100, True)):
        bench = Bench(log_of(1), log_of(1))
        bench.monitor.quorum_voted("c11", 5, 12)
        bench.cluster.disk_busy_until_ns = 100
        bench.monitor.quorum_voted("c11", 6, 11)
        bench.monitor.quorum_voted("c12", 6, 12)
        bench.cluster.world.now = ended_at
        bench.monitor.node_went_down("c11")
        bench.monitor.node_went_down("c12")
        bench.monitor.node_went_down("c13")
        if is_durable:
            assert broken(bench.monitor.quorum_voted, "c11", 6, 12) == "INV-8"
            assert broken(bench.monitor.quorum_voted, "c12", 6, 11) == "INV-8"
        else:
            bench.monitor.quorum_voted("c12", 6, 11)
            assert broken(bench.monitor.quorum_voted, "c11", 5, 11) == "INV-8"
            bench.monitor.quorum_voted("c11", 6, 12)


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


def test_a_changed_record_in_the_middle_is_found_when_a_high_watermark_passes_it() -> None:
    bench = Bench(log_of(1, 1, 2), log_of(1, 1, 2, other_at=1))
    bench.leads(3)
    bench.follows(1)
    assert broken(bench.follows, 3, cause="replicate") == "INV-4"


def test_a_follower_that_appends_below_what_is_committed_is_compared_at_once() -> None:
    for other_at, is_stale in ((1, False), (1, True), (-1, False)):
        bench = Bench(log_of(1, 1, 2), log_of(1))
        bench.cluster.become(isr=(1,))
        bench.follows(1)
        bench.leads(3)
        bench.cluster.logs["b2"] = log_of(1, 1, other_at=other_at)
        if is_stale:
            # It still follows an older leader, and will truncate what that one never committed.
            bench.cluster.become(isr=(1,), leader_epoch=3)
        if other_at < 0 or is_stale:
            bench.follows(1, cause="replicate")
        else:
            assert broken(bench.follows, 1, cause="replicate") == "INV-4"


def test_a_loaded_log_is_compared_again() -> None:
    bench = Bench(log_of(1, 1, 2), log_of(1, 1, 2))
    bench.leads(3)
    bench.follows(3)
    bench.monitor.node_went_down("b2")
    bench.cluster.logs["b2"] = log_of(1, 1, 2, other_at=0)
    assert broken(bench.follows, 3, cause="load") == "INV-4"


def test_a_new_leader_has_every_committed_record_and_not_only_the_last() -> None:
    bench = Bench(log_of(1, 1, 2), log_of(1, 1, 2, other_at=0))
    bench.leads(3)
    bench.cluster.become(leader=2, leader_epoch=3)
    elected = change(bench.cluster.logs["b2"], 0, cause="role", leader_epoch=3)
    assert broken(bench.monitor.replica_changed, "b2", KEY, elected) == "INV-1"


def served(bench: Bench, log: Log, end: int, *, start: int = 0, to_follower: bool = False) -> None:
    records = log.read(start, 1 << 20, end)
    bench.monitor.records_served("b1", KEY, start, records, to_follower)


def test_a_fetch_returns_what_was_committed() -> None:
    log = log_of(1, 1, 2, 2)
    bench = Bench(log, log_of(1, 1, 2), committed_end=3)
    bench.leads(3)
    served(bench, log, 3)
    served(bench, log, 2, start=1)
    served(bench, log, 4, to_follower=True)
    assert broken(served, bench, log, 4) == "INV-6"
    for other in (log_of(1, 1, 2, other_at=1), log_of(1, 2, 2)):
        assert broken(served, bench, other, 3) == "INV-6"
        assert broken(served, bench, other, 3, to_follower=True) == "INV-4"
    assert bench.monitor.served_count == 8
    # A record is missing: the response begins behind the offset that was fetched.
    records = log.read(1, 1 << 20, 3)
    assert broken(bench.monitor.records_served, "b1", KEY, 0, records, False) == "INV-6"


def test_what_may_be_lost_lawfully_is_not_compared_in_a_fetch() -> None:
    other = log_of(1, 1, 2, other_at=1)
    bench = Bench(log_of(1, 1, 2), log_of(1, 1, 2), profile="kafka-4.0", committed_end=3)
    bench.leads(3)
    served(bench, other, 3)
    bench = Bench(log_of(1, 1, 2), log_of(1, 1, 2), committed_end=3)
    bench.leads(3)
    bench.cluster.flagged_partitions = lambda: frozenset({"t-0"})  # type: ignore[method-assign]
    served(bench, other, 3)
    bench.cluster.committed_end = 2
    bench.monitor = ChangeMonitor(bench.cluster)
    assert broken(served, bench, other, 3) == "INV-6"


def test_a_deposed_leader_may_send_followers_what_it_never_committed() -> None:
    bench = Bench(log_of(1, 1, 2, 2), log_of(1, 1, 2, 2))
    bench.leads(4)
    bench.cluster.become(leader=2, leader_epoch=3)
    # Its own high watermark is 1.
    bench.cluster.committed_end = 1
    served(bench, log_of(1, 1, 2, other_at=2), 3, to_follower=True)
    assert broken(served, bench, log_of(1, 1, 2, other_at=0), 3, to_follower=True) == "INV-4"


def test_damage_that_a_checksum_shows_is_left_to_the_reader() -> None:
    log = log_of(1, 1, 2)
    bench = Bench(log, log_of(1, 1, 2), committed_end=3)
    bench.leads(3)
    damaged = bytearray(log.read(0, 1 << 20, 3))
    damaged[-1] ^= 1
    bench.monitor.records_served("b1", KEY, 0, bytes(damaged), True)
    bench.monitor.records_served("b1", KEY, 0, bytes(damaged), False)


def test_a_compacted_log_may_lack_records() -> None:
    log = log_of(1, 1, 2)
    bench = Bench(log, log_of(1, 1, 2), committed_end=3)
    bench.leads(3)
    log.configure(LogConfig(cleanup_policy="compact"))
    bench.monitor.records_served("b1", KEY, 0, log.read(1, 1 << 20, 3), False)
    assert broken(served, bench, log_of(1, 1, 2, other_at=2), 3) == "INV-6"


def test_a_leader_counts_on_every_member_when_its_isr_state_or_the_committed_isr_changes() -> None:
    for profile in ("kafka-4.0", "kafka-4.1"):
        bench = Bench(log_of(1), log_of(1), profile)
        bench.leads(1)
        bench.monitor.leader_isr_changed("b1", KEY)
        bench.monitor.partition_committed(KEY)
        bench.cluster.leadership.state = Committed(isr=(1,))
        assert broken(bench.monitor.leader_isr_changed, "b1", KEY) == "INV-3"
        bench.cluster.leadership.state = Committed(isr=(1, 2))
        bench.cluster.become(isr=(1,), elr=(2, 3))
        assert broken(bench.monitor.partition_committed, KEY) == "INV-3"
        # A stale leader counts for nothing.
        bench.cluster.become(isr=(1,), elr=(2, 3), leader_epoch=3)
        bench.monitor.partition_committed(KEY)


def test_a_topic_that_is_created_anew_has_other_records(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(log_of(1, 1, 2), log_of(1, 1, 2), committed_end=3)
    bench.leads(3)
    module = "tests.unit.harness.environments.test_invariant_monitor.TOPIC_ID"
    monkeypatch.setattr(module, UUID(int=8))
    bench.cluster.logs["b1"] = log_of(1, 2, 2)
    bench.leads(3, cause="load")
    served(bench, log_of(1, 2, 2), 3)
    assert broken(served, bench, log_of(1, 1, 2), 3) == "INV-6"
