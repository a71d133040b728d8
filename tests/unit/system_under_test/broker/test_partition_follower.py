"""What a follower does with its log: appending, truncating, and the high watermark that goes with it."""

import pytest

from system_under_test.broker.truncation import truncation_point
from system_under_test.invariants import InvariantViolation
from system_under_test.log.errors import OutOfOrderOffsetError
from system_under_test.protocol.record_batch import CorruptBatchError
from tests.unit.system_under_test.broker.replica_fakes import BROKER_EPOCHS, Broker, batch


def records(start: int, stop: int, epoch: int) -> list[bytes]:
    """One-record batches for the offsets from start to stop."""
    return [
        batch(f"e{epoch}o{offset}", base_offset=offset, epoch=epoch)
        for offset in range(start, stop)
    ]


def following(*batches: bytes, high_watermark: int = 0, **options) -> Broker:
    """A follower of broker 2 with these records."""
    broker = Broker(**options)
    broker.follow(2, leader_epoch=9)
    broker.replicate(*batches, high_watermark=high_watermark)
    return broker


def diverge(broker: Broker, epoch: int, end_offset: int) -> int:
    """Processes a divergence; returns the new log end."""
    broker.partition.replica.truncate_on_divergence(
        leader_epoch=9, epoch=epoch, end_offset=end_offset
    )
    return broker.log_end


# --- TRUNC-1: where to cut


@pytest.mark.parametrize(
    ("own_epochs", "answer", "expected"),
    [
        # A: both know the epoch, the leader has less of it.
        ([(1, 0)], (1, 2), 2),
        # B: both know the epoch, this log has less of it (and more of a later one).
        ([(1, 0), (3, 4)], (1, 6), 4),
        # C: the leader's epoch ends where ours ends: only later epochs go.
        ([(1, 0), (2, 4)], (1, 4), 4),
        # D: this log does not know the leader's epoch; truncate to the end of the next older one and fetch again.
        ([(1, 0), (3, 4)], (2, 8), 4),
        # E: the same with several older epochs.
        ([(0, 0), (1, 2), (4, 5), (5, 7)], (3, 9), 5),
        # F: an epoch without records on either side.
        ([(1, 0), (2, 4), (3, 4)], (1, 4), 4),
        # G: all epochs are newer than the leader's: cut where the first of them begins.
        ([(5, 0), (6, 4)], (3, 7), 0),
        ([(5, 2), (6, 4)], (3, 7), 2),
        ([(5, 2), (6, 4)], (3, 1), 1),
        # Without epochs only the leader's end is known.
        ([], (3, 7), 7),
    ],
)
def test_truncation_point(own_epochs, answer, expected):
    point = truncation_point(
        own_epochs,
        leader_epoch=answer[0],
        leader_end_offset=answer[1],
        log_end_offset=10,
    )
    assert point == expected


def test_truncation_point_is_never_beyond_the_log_end():
    point = truncation_point([(1, 0)], leader_epoch=1, leader_end_offset=50, log_end_offset=10)
    assert point == 10


def test_an_epoch_newer_than_all_local_ones_truncates_to_the_leaders_end():
    point = truncation_point([(1, 0)], leader_epoch=2, leader_end_offset=7, log_end_offset=10)
    assert point == 7


def test_follower_truncates_to_the_leaders_epoch_boundary():
    """The leader has {1: 0, 2: 2}; this follower wrote 2 and 3 in epoch 1, where the leader went on in 2."""
    broker = following(*records(0, 4, epoch=1))
    assert broker.partition.replica.fetch_position() == (4, 1, 0)
    assert diverge(broker, 1, 2) == 2
    assert broker.partition.replica.fetch_position() == (2, 1, 0)
    assert "truncated" in broker.marks


def test_truncation_steps_down_through_the_epochs():
    """KIP-279: the leader {1: 0, 4: 3} knows neither 2 nor 3; two steps lead to the common prefix."""
    broker = following(*records(0, 5, epoch=1), *records(5, 8, epoch=2), *records(8, 10, epoch=3))
    # fetch(10, epoch 3): the leader's largest epoch not above 3 is 1, which ends at 3.
    assert diverge(broker, 1, 3) == 3
    assert broker.partition.log.epochs.entries == ((1, 0),)


def test_an_epoch_that_the_follower_does_not_know_takes_two_steps():
    broker = following(*records(0, 4, epoch=1), *records(4, 8, epoch=3))
    assert diverge(broker, 2, 6) == 4
    assert broker.partition.replica.fetch_position() == (4, 1, 0)
    assert diverge(broker, 1, 2) == 2


def test_a_log_of_unknown_epochs_is_truncated_to_its_start():
    broker = following(*records(0, 4, epoch=5), *records(4, 8, epoch=6))
    assert diverge(broker, 3, 7) == 0
    assert broker.partition.replica.fetch_position() == (0, -1, 0)


def test_an_undefined_end_truncates_to_the_high_watermark():
    broker = following(*records(0, 4, epoch=1), high_watermark=3)
    assert diverge(broker, -1, -1) == 3


def test_a_batch_that_spans_the_truncation_point_is_removed_completely():
    broker = following(batch("a", "b", "c", epoch=1), *records(3, 5, epoch=1))
    assert diverge(broker, 1, 2) == 0


def test_responses_for_another_leader_epoch_are_ignored():
    broker = following(*records(0, 4, epoch=1))
    partition = broker.partition
    partition.replica.truncate_on_divergence(leader_epoch=8, epoch=1, end_offset=0)
    partition.replica.truncate_to(leader_epoch=8, offset=0)
    partition.replica.truncate_fully_and_start_at(leader_epoch=8, offset=7)
    partition.replica.append_as_follower(
        records(4, 5, 1)[0], leader_epoch=8, high_watermark=4, log_start_offset=0
    )
    assert (broker.log_end, broker.high_watermark) == (4, 0)


def test_a_leader_ignores_what_it_fetched_as_follower():
    broker = following(*records(0, 2, epoch=1))
    broker.lead(leader_epoch=10)
    broker.partition.replica.truncate_to(leader_epoch=10, offset=0)
    broker.replicate(*records(2, 3, epoch=1))
    assert broker.log_end == 2


def test_without_trunc1_a_follower_truncates_to_its_high_watermark_on_every_new_epoch():
    broker = following(*records(0, 4, epoch=1), high_watermark=2, without=("TRUNC-1",))
    assert broker.log_end == 4
    broker.follow(3, leader_epoch=10)
    assert broker.log_end == 2
    assert broker.partition.replica.fetch_position() == (2, -1, 0)


def test_with_trunc1_a_new_epoch_truncates_nothing():
    broker = following(*records(0, 4, epoch=1), high_watermark=2)
    broker.follow(3, leader_epoch=10)
    assert broker.log_end == 4


def test_a_log_without_epochs_is_truncated_to_its_high_watermark():
    """FOLL-4: without any epoch there is nothing to compare."""
    broker = following(*records(0, 4, epoch=-1), high_watermark=2)
    assert broker.partition.log.latest_epoch == -1
    broker.follow(3, leader_epoch=10)
    assert broker.partition.replica.fetch_position() == (2, -1, 0)


# --- the high watermark


def test_a_follower_adopts_the_leaders_high_watermark_up_to_its_own_log_end():
    """HW-6: limited to its own log."""
    broker = following(*records(0, 4, epoch=1), high_watermark=9)
    assert broker.high_watermark == 4


def test_a_followers_high_watermark_may_go_back():
    """HW-6: back as well."""
    broker = following(*records(0, 4, epoch=1), high_watermark=4)
    broker.replicate(high_watermark=1)
    assert broker.high_watermark == 1
    assert broker.observer.states[-1]["cause"] == "high-watermark"


def test_an_empty_response_that_changes_nothing_is_not_reported():
    broker = following(*records(0, 4, epoch=1), high_watermark=4)
    count = len(broker.observer.states)
    broker.replicate(high_watermark=4)
    assert len(broker.observer.states) == count


def test_truncation_below_the_high_watermark_lowers_it_and_is_marked():
    broker = following(*records(0, 4, epoch=1), high_watermark=3)
    broker.partition.replica.truncate_to(leader_epoch=9, offset=1)
    assert broker.high_watermark == 1
    details = dict(broker.observer.marks)["truncated-below-high-watermark"]
    assert (details["end_before"], details["end_after"], details["high_watermark"]) == (4, 1, 3)


def test_truncation_above_the_high_watermark_is_no_warning():
    broker = following(*records(0, 4, epoch=1), high_watermark=2)
    broker.partition.replica.truncate_to(leader_epoch=9, offset=2)
    assert broker.high_watermark == 2
    assert "truncated" in broker.marks
    assert "truncated-below-high-watermark" not in broker.marks


def test_without_hw7_the_high_watermark_stays_beyond_the_log_end():
    broker = following(*records(0, 4, epoch=1), high_watermark=3, without=("HW-7",))
    broker.partition.replica.truncate_to(leader_epoch=9, offset=1)
    assert (broker.high_watermark, broker.log_end) == (3, 1)


def test_a_high_watermark_beyond_the_log_end_breaks_an_invariant():
    broker = following(*records(0, 4, epoch=1), high_watermark=3)
    broker.partition.replica.high_watermark = 5
    with pytest.raises(InvariantViolation, match="INV-9"):
        broker.partition.replica.check_high_watermark()


def test_a_log_that_restarts_at_a_new_offset_moves_its_high_watermark_there():
    broker = following(*records(0, 4, epoch=1), high_watermark=3)
    broker.partition.replica.truncate_fully_and_start_at(leader_epoch=9, offset=20)
    assert broker.partition.replica.fetch_position() == (20, -1, 20)
    assert broker.high_watermark == 20


@pytest.mark.parametrize(("without", "expected"), [((), 2), (("HW-8",), 4)])
def test_the_checkpointed_high_watermark_is_clamped_to_the_remaining_log(without, expected):
    broker = following(*records(0, 4, epoch=1), high_watermark=4)
    broker.logs.write_high_watermarks(broker.manager.high_watermarks())
    broker.partition.log.truncate_to(2)
    again = Broker(storage=broker.storage, without=without)
    again.follow(2, leader_epoch=9)
    assert again.log_end == 2
    assert again.high_watermark == expected


def test_damaged_records_are_not_appended():
    broker = following(*records(0, 2, epoch=1))
    damaged = bytearray(records(2, 3, epoch=1)[0])
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        broker.replicate(bytes(damaged), high_watermark=2)
    assert (broker.log_end, broker.high_watermark) == (2, 0)


def test_records_that_leave_a_gap_are_not_appended():
    broker = following(*records(0, 2, epoch=1))
    with pytest.raises(OutOfOrderOffsetError):
        broker.replicate(*records(3, 4, epoch=1))
    assert broker.log_end == 2


# --- FOLL


def test_every_new_leader_epoch_restarts_the_fetcher_even_with_the_same_leader():
    broker = Broker()
    broker.follow(2)
    broker.follow(2)
    assert broker.fetchers.calls == [("follow", 2, 1), ("follow", 2, 2)]


def test_the_same_leader_epoch_does_not_restart_the_fetcher():
    broker = Broker()
    broker.follow(2)
    broker.register(isr=(2, 3))
    assert broker.fetchers.calls == [("follow", 2, 1)]


def test_without_a_leader_nothing_is_fetched_and_the_log_is_open():
    broker = Broker()
    broker.follow(2)
    broker.fetchers.calls.clear()
    broker.follow(-1, isr=(1, 3))
    assert broker.fetchers.calls == [("forget", "t", 0)]
    assert broker.partition.leader_id == -1
    assert broker.partition.log is not None


def test_a_leader_leaves_its_fetcher_before_anything_else():
    broker = Broker()
    broker.follow(2)
    broker.lead()
    assert broker.fetchers.calls[-1] == ("forget", "t", 0)
    assert broker.manager.context.broker_epoch == BROKER_EPOCHS[1]


def test_a_deposed_leader_forgets_its_followers_and_its_epoch_start():
    broker = Broker()
    partition = broker.lead()
    leadership = partition.leadership
    broker.follow(2)
    assert partition.leadership is None
    assert leadership.state.isr == ()
    broker.lead()
    assert partition.leadership is not leadership
    assert "became-follower" in broker.marks


def test_an_older_registration_does_not_depose_a_leader():
    """FOLL-1."""
    broker = Broker()
    broker.lead()
    broker.follow(2, partition_epoch=0)
    assert broker.partition.is_leader
    assert broker.fetchers.following == {}


@pytest.mark.parametrize(
    ("leader", "isr", "is_fetched"), [(2, (1, 2), True), (2, (2, 3), False), (-1, (1,), False)]
)
def test_a_stopping_broker_fetches_only_where_it_is_in_the_isr(leader, isr, is_fetched):
    broker = Broker()
    broker.follow(2)
    broker.manager.begin_controlled_shutdown()
    broker.register(leader=leader, isr=isr)
    assert bool(broker.fetchers.following) is is_fetched
