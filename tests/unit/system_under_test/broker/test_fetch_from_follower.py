"""A consumer reads from a follower, below the follower's own high watermark (KIP-392, FETCH-3)."""

import pytest

from system_under_test.protocol.errors import ErrorCode
from tests.unit.system_under_test.broker.replica_fakes import (
    Broker,
    batch,
    only_fetched,
    values_of,
)
from tests.unit.system_under_test.broker.test_replica_manager_produce import on_loop


def following(high_watermark: int) -> Broker:
    """A follower of broker 2 with the records a, b and c."""
    broker = Broker()
    broker.follow(2)
    batches = [batch(value, base_offset=index, epoch=1) for index, value in enumerate("abc")]
    broker.replicate(*batches, high_watermark=high_watermark)
    return broker


def test_a_consumer_reads_a_follower_to_its_high_watermark():
    broker = following(2)
    data = only_fetched(broker.fetch(0))
    assert values_of(data) == ["a", "b"]
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 2, 2)


def test_between_the_high_watermark_and_the_log_end_there_is_nothing_and_no_error():
    broker = following(1)
    for offset in (1, 2, 3):
        data = only_fetched(broker.fetch(offset))
        assert (data.error_code, data.records) == (0, b"")


@pytest.mark.parametrize("offset", [-1, 4])
def test_an_offset_outside_of_the_followers_log_is_out_of_range(offset):
    assert only_fetched(following(3).fetch(offset)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_consumer_without_an_epoch_is_served_and_one_with_an_old_epoch_is_fenced():
    broker = following(3)
    assert values_of(only_fetched(broker.fetch(0, epoch=-1))) == ["a", "b", "c"]
    broker.follow(3)
    fenced = only_fetched(broker.fetch(0, epoch=1))
    assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_replica_is_not_served():
    data = following(3).follower_fetch(3, 0)
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_was_truncated_is_never_read_again_though_offsets_and_epoch_are_the_same():
    broker = following(3)
    assert values_of(only_fetched(broker.fetch(0))) == ["a", "b", "c"]
    broker.partition.replica.truncate_to(leader_epoch=1, offset=2)
    broker.replicate(batch("x", base_offset=2, epoch=1), high_watermark=3)
    assert values_of(only_fetched(broker.fetch(0))) == ["a", "b", "x"]


def test_a_waiting_consumer_gets_what_the_next_high_watermark_commits():
    def story() -> None:
        broker = following(1)
        waiting = broker.fetch(1, wait_ms=1000)
        assert not waiting.done()
        broker.replicate(high_watermark=2)
        assert values_of(only_fetched(waiting)) == ["b"]

    on_loop(story)


def test_a_waiting_consumer_learns_that_the_follower_became_leader():
    def story() -> None:
        broker = following(1)
        waiting = broker.fetch(1, wait_ms=1000)
        broker.lead()
        assert only_fetched(waiting).error_code == ErrorCode.FENCED_LEADER_EPOCH

    on_loop(story)
