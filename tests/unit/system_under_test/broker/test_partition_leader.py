"""What a leader does with its high watermark, and what a change of leadership resets."""

import asyncio

import pytest

from system_under_test.broker.follower_state import FollowerState
from system_under_test.invariants import InvariantViolation
from tests.unit.system_under_test.broker.replica_fakes import LAG_NS, Broker, batch, only_produced


def append(broker: Broker, *values: str) -> None:
    """Appends without waiting for anybody."""
    assert only_produced(broker.produce(*values, acks=1)).error_code == 0


def lead_with_followers_at(offset: int, **options) -> Broker:
    """A leader with `offset` records that both followers have, in the leader epoch 1."""
    broker = Broker(**options)
    broker.lead()
    for number in range(offset):
        append(broker, f"r{number}")
    for follower in (2, 3):
        broker.follower_fetch(follower, offset)
    assert broker.high_watermark == offset
    return broker


def test_high_watermark_is_the_smallest_log_end_of_the_isr():
    """HW-2."""
    broker = Broker()
    broker.lead()
    append(broker, "a", "b")
    append(broker, "c")
    assert broker.high_watermark == 0
    broker.follower_fetch(2, 3)
    assert broker.high_watermark == 0  # nothing is known of 3
    broker.follower_fetch(3, 2)
    assert broker.high_watermark == 2
    broker.follower_fetch(3, 3)
    assert broker.high_watermark == 3


def test_records_come_with_the_high_watermark_from_before_the_fetch():
    """FETCH-1: the offsets are those from before the fetch."""
    broker = Broker()
    broker.lead()
    append(broker, "a")
    append(broker, "b")
    broker.follower_fetch(2, 2)
    broker.follower_fetch(3, 0)
    # This fetch commits the first record, but its response was read before it was recorded.
    assert broker.follower_fetch(3, 1).high_watermark == 0
    assert broker.high_watermark == 1


def test_a_follower_that_truncated_does_not_move_the_high_watermark_back():
    """FS-4: the log end of a follower may become lower."""
    broker = lead_with_followers_at(3)
    broker.follower_fetch(2, 1)
    assert broker.partition.leadership.followers[2].log_end_offset == 1
    assert broker.high_watermark == 3


def test_without_hw5_the_high_watermark_follows_a_follower_back():
    broker = lead_with_followers_at(3, without=("HW-5",))
    broker.follower_fetch(2, 1)
    assert broker.high_watermark == 1


def test_the_gate_holds_the_high_watermark_while_the_isr_is_below_min_isr():
    broker = lead_with_followers_at(2)
    broker.register(isr=(1,))
    append(broker, "acks=1")
    assert broker.log_end == 3
    assert broker.high_watermark == 2
    append(broker, "another")
    assert broker.marks.count("high-watermark-gated") == 1


@pytest.mark.parametrize("options", [{"profile": "kafka-3.6"}, {"without": ("HW-1",)}])
def test_without_the_gate_a_lone_leader_commits(options):
    broker = lead_with_followers_at(2, **options)
    broker.clock.now_ns += 2 * LAG_NS  # no follower is caught up any more (HW-4)
    broker.register(isr=(1,))
    append(broker, "acks=1")
    assert broker.high_watermark == 3


def test_the_gate_uses_the_committed_isr_not_a_pending_expansion():
    broker = lead_with_followers_at(2)
    broker.clock.now_ns += 2 * LAG_NS  # so that HW-4 does not wait for 3
    broker.register(isr=(1,))
    append(broker, "x")
    broker.follower_fetch(2, 3)
    assert broker.alter.proposed == (1, 2)
    assert broker.partition.leadership.state.maximal_isr == (1, 2)
    assert broker.high_watermark == 2
    broker.alter.accept()
    # KAFKA-13091: the response itself moves the high watermark; no other fetch is needed.
    assert broker.high_watermark == 3


def test_without_lead5_a_committed_isr_change_does_not_move_the_high_watermark():
    broker = lead_with_followers_at(2, without=("LEAD-5",))
    broker.clock.now_ns += 2 * LAG_NS
    broker.register(isr=(1,))
    append(broker, "x")
    broker.follower_fetch(2, 3)
    broker.alter.accept()
    assert broker.high_watermark == 2


def test_min_isr_is_capped_by_the_number_of_replicas():
    broker = Broker(min_isr=3)
    broker.lead(replicas=(1, 2), isr=(1, 2))
    assert broker.partition.leadership.effective_min_isr == 2


def test_a_new_leader_keeps_its_high_watermark_until_the_isr_has_fetched_up_to_it():
    """HW-9: the new leader's high watermark is behind, and followers between it and the epoch's start raise it."""
    broker = Broker()
    broker.follow(2)
    broker.replicate(batch("a", epoch=1), batch("b", base_offset=1, epoch=1), high_watermark=1)
    broker.lead()
    assert (broker.high_watermark, broker.log_end) == (1, 2)
    assert broker.partition.leadership.epoch_start_offset == 2
    broker.follower_fetch(2, 2)
    broker.follower_fetch(3, 1)
    assert broker.high_watermark == 1
    broker.follower_fetch(3, 2)
    assert broker.high_watermark == 2


def test_high_watermark_waits_for_the_pending_member_of_an_expansion():
    broker = lead_with_followers_at(2)
    broker.register(isr=(1, 2))
    broker.follower_fetch(3, 2)
    assert broker.alter.proposed == (1, 2, 3)
    broker.clock.now_ns += 2 * LAG_NS  # HW-4 does not hold the mark any more
    append(broker, "x")
    broker.follower_fetch(2, 3)
    assert broker.high_watermark == 2
    broker.follower_fetch(3, 3)
    assert broker.high_watermark == 3


def test_without_hw3_the_pending_member_of_an_expansion_is_ignored():
    broker = lead_with_followers_at(2, without=("HW-3",))
    broker.register(isr=(1, 2))
    broker.follower_fetch(3, 2)
    broker.clock.now_ns += 2 * LAG_NS
    append(broker, "x")
    broker.follower_fetch(2, 3)
    assert broker.high_watermark == 3


def test_high_watermark_waits_for_a_caught_up_eligible_replica_outside_the_isr():
    broker = lead_with_followers_at(2)
    broker.metadata.fenced.add(3)  # so that it may not join
    broker.register(isr=(1, 2))
    broker.follower_fetch(3, 2)
    append(broker, "x")
    broker.metadata.fenced.clear()
    broker.follower_fetch(2, 3)
    assert broker.high_watermark == 2
    # HW-4 with KAFKA-15021: an ineligible replica is not waited for.
    broker.metadata.stopping.add(3)
    append(broker, "y")
    broker.follower_fetch(2, 4)
    assert broker.high_watermark == 4


@pytest.mark.parametrize("profile", ["kafka-3.4", "kafka-3.6", "kafka-4.1"])
def test_high_watermark_does_not_wait_for_an_incarnation_that_is_over(profile):
    """HW-4 with KIP-903: broker 3 has registered again since it fetched; before, nobody compared that."""
    broker = lead_with_followers_at(2, profile=profile)
    broker.metadata.fenced.add(3)
    broker.register(isr=(1, 2))
    broker.follower_fetch(3, 2)
    broker.metadata.fenced.clear()
    broker.metadata.epochs[3] += 100
    append(broker, "x")
    broker.follower_fetch(2, 3)
    assert broker.high_watermark == (2 if profile == "kafka-3.4" else 3)


def test_without_hw4_the_high_watermark_does_not_wait_for_replicas_outside_the_isr():
    broker = lead_with_followers_at(2, without=("HW-4",))
    broker.metadata.fenced.add(3)
    broker.register(isr=(1, 2))
    broker.metadata.fenced.clear()
    append(broker, "x")
    broker.follower_fetch(2, 3)
    assert broker.high_watermark == 3


# --- LEAD


def test_an_older_registration_is_ignored():
    """LEAD-1."""
    broker = lead_with_followers_at(1)
    epoch = broker.registration.partition_epoch
    broker.register(isr=(1, 2), partition_epoch=epoch + 1)
    broker.register(isr=(1, 2, 3), partition_epoch=epoch)
    assert broker.partition.leadership.state.isr == (1, 2)


def test_a_new_leader_forgets_earlier_follower_state():
    """LEAD-4: a new leader."""
    broker = lead_with_followers_at(2)
    broker.follow(2)
    broker.clock.now_ns = 5 * LAG_NS
    broker.lead(isr=(1, 2))
    in_isr, outside = (
        broker.partition.leadership.followers[2],
        broker.partition.leadership.followers[3],
    )
    assert (in_isr.log_end_offset, in_isr.broker_epoch) == (-1, None)
    assert in_isr.last_caught_up_time_ns == 5 * LAG_NS
    assert outside.last_caught_up_time_ns < 0


def test_the_same_leader_in_a_new_epoch_keeps_offsets_but_not_caught_up_times():
    """LEAD-4: the same leader."""
    broker = lead_with_followers_at(2)
    broker.clock.now_ns = 5 * LAG_NS
    broker.lead(isr=(1, 2))
    in_isr, outside = (
        broker.partition.leadership.followers[2],
        broker.partition.leadership.followers[3],
    )
    assert (in_isr.log_end_offset, in_isr.broker_epoch) == (2, 102)
    assert (in_isr.last_fetch_leader_leo, in_isr.last_fetch_time_ns) == (2, 5 * LAG_NS)
    assert outside.log_end_offset == 2
    assert outside.last_caught_up_time_ns < 0
    assert outside.last_fetch_time_ns < 0


def test_a_changed_isr_in_the_same_epoch_resets_no_follower():
    broker = lead_with_followers_at(2)
    append(broker, "x")
    start = broker.partition.leadership.epoch_start_offset
    caught_up = broker.partition.leadership.followers[2].last_caught_up_time_ns
    broker.clock.now_ns = LAG_NS
    broker.register(isr=(1, 2))
    assert broker.partition.leadership.epoch_start_offset == start == 0
    assert broker.partition.leadership.followers[2].last_caught_up_time_ns == caught_up
    assert broker.partition.leadership.followers[2].log_end_offset == 2


def test_a_new_leader_records_its_epoch_durably_before_it_serves():
    broker = lead_with_followers_at(1)
    broker.lead()
    assert broker.partition.log.epochs.entries == ((1, 0), (2, 1))
    broker.storage.power_cut()
    assert b"2 1" in broker.storage.read("data/t-0/leader-epoch-checkpoint")


def test_without_lead3_an_epoch_without_records_leaves_no_trace():
    broker = lead_with_followers_at(1, without=("LEAD-3",))
    broker.lead()
    assert broker.partition.log.latest_epoch == 1


def test_a_replica_that_is_added_and_one_that_is_removed_change_the_followers():
    broker = lead_with_followers_at(1)
    broker.register(replicas=(1, 3, 4), isr=(1, 3))
    assert list(broker.partition.leadership.followers) == [3, 4]
    assert broker.partition.leadership.followers[3].log_end_offset == 1
    assert broker.partition.leadership.followers[4].log_end_offset == -1


def test_a_leader_outside_its_isr_is_refused():
    with pytest.raises(InvariantViolation, match="INV-7"):
        Broker().lead(isr=(2, 3))


def test_observers_are_notified_of_every_change():
    broker = Broker()
    broker.lead()
    append(broker, "a")
    broker.follower_fetch(2, 1)
    broker.follower_fetch(3, 1)
    reported = [
        (state["cause"], state["role"], state["log_end_offset"], state["high_watermark"])
        for state in broker.observer.states
    ]
    assert reported == [
        ("load", "follower", 0, 0),
        ("role", "leader", 0, 0),
        ("append", "leader", 1, 0),
        ("high-watermark", "leader", 1, 1),
    ]


# --- META-5


def test_one_publish_that_raises_min_isr_and_shrinks_the_isr_does_not_commit_on_the_old_min_isr():
    broker = lead_with_followers_at(2, min_isr=1)
    broker.clock.now_ns += 2 * LAG_NS
    append(broker, "x")
    broker.register(isr=(1,), publish_min_isr=2)
    assert broker.high_watermark == 2


def test_one_publish_that_lowers_min_isr_and_deposes_the_leader_acknowledges_nothing():
    async def story() -> None:
        broker = lead_with_followers_at(2)
        waiting = broker.produce("x")
        broker.register(isr=(1,))
        broker.follow(2, publish_min_isr=1)
        assert only_produced(waiting).error_code == 6

    asyncio.run(story())


def test_a_lowered_min_isr_moves_the_high_watermark_at_the_end_of_the_publish():
    broker = lead_with_followers_at(2)
    broker.clock.now_ns += 2 * LAG_NS
    broker.register(isr=(1,))
    append(broker, "x")
    assert broker.high_watermark == 2
    broker.metadata.min_isr = 1
    broker.manager.publish_begins()
    broker.manager.publish_ends()
    assert broker.high_watermark == 3


# --- FS-3


def fetched(follower: FollowerState, offset: int, *, at: int, leader_leo: int) -> None:
    follower.record_fetch(
        fetch_offset=offset,
        log_start_offset=0,
        arrival_ns=at,
        leader_leo=leader_leo,
        broker_epoch=1,
    )


def test_a_follower_at_the_log_end_is_caught_up_now():
    follower = FollowerState(2)
    fetched(follower, 10, at=100, leader_leo=10)
    assert follower.last_caught_up_time_ns == 100


def test_a_follower_at_the_log_end_of_its_previous_fetch_was_caught_up_then():
    follower = FollowerState(2)
    fetched(follower, 5, at=100, leader_leo=10)
    assert follower.last_caught_up_time_ns < 0
    fetched(follower, 10, at=200, leader_leo=20)
    assert follower.last_caught_up_time_ns == 100


def test_a_follower_that_keeps_falling_behind_is_not_caught_up():
    follower = FollowerState(2)
    fetched(follower, 10, at=100, leader_leo=10)
    fetched(follower, 12, at=200, leader_leo=30)
    fetched(follower, 15, at=300, leader_leo=40)
    assert follower.last_caught_up_time_ns == 100
    assert not follower.is_caught_up(leader_leo=40, now_ns=300, lag_max_ns=150)
    assert follower.is_caught_up(leader_leo=40, now_ns=250, lag_max_ns=150)
    assert follower.is_caught_up(leader_leo=15, now_ns=10_000, lag_max_ns=150)
