"""Fetch requests on the leader: checks, bounds, long polls, and follower state."""

import asyncio
from uuid import UUID

import pytest

from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.messages import decode, encode, fetch_request, millis
from tests.unit.system_under_test.broker.node_fakes import now_ms, run_virtually
from tests.unit.system_under_test.broker.replica_fakes import (
    BROKER_EPOCHS,
    TOPIC_ID,
    Broker,
    batch,
    only_fetched,
    values_of,
)
from tests.unit.system_under_test.broker.test_partition_leader import append, lead_with_followers_at
from tests.unit.system_under_test.broker.test_replica_manager_produce import on_loop


def consume(broker: Broker, offset: int, **options):
    return only_fetched(broker.fetch(offset, **options))


# --- what may be read


def test_a_follower_reads_to_the_log_end_and_a_consumer_to_the_high_watermark():
    broker = lead_with_followers_at(1)
    append(broker, "b")
    assert values_of(broker.follower_fetch(2, 0)) == ["r0", "b"]
    consumed = consume(broker, 0)
    assert values_of(consumed) == ["r0"]
    assert (consumed.high_watermark, consumed.last_stable_offset) == (1, 1)


def test_a_consumer_between_high_watermark_and_log_end_gets_nothing_and_no_error():
    broker = lead_with_followers_at(1)
    append(broker, "b")
    append(broker, "c")
    for offset in (1, 2, 3):
        response = consume(broker, offset)
        assert (response.error_code, response.records) == (0, b"")


def test_without_fetch6_a_consumer_reads_to_the_log_end():
    broker = lead_with_followers_at(1, without=("FETCH-6",))
    append(broker, "b")
    assert values_of(consume(broker, 0)) == ["r0", "b"]


@pytest.mark.parametrize("offset", [-1, 4])
def test_offsets_outside_the_log_are_out_of_range(offset):
    broker = lead_with_followers_at(3)
    assert consume(broker, offset).error_code == 1


def test_a_batch_larger_than_the_limit_gets_through():
    broker = lead_with_followers_at(1)
    assert values_of(consume(broker, 0, partition_max_bytes=1)) == ["r0"]


def test_responses_survive_the_codec():
    broker = lead_with_followers_at(1)
    for response in (broker.fetch(0), broker.fetch(1), broker.fetch(9), broker.fetch(0, epoch=0)):
        assert decode(type(response), encode(response)) == response


def test_the_same_request_gets_the_same_response_until_something_changes():
    broker = lead_with_followers_at(2)
    assert broker.fetch(0) is broker.fetch(0)
    append(broker, "c")
    assert len(values_of(broker.follower_fetch(2, 0))) == 3
    assert len(values_of(consume(broker, 0))) == 2
    broker.follow(2)
    broker.partition.replica.truncate_to(leader_epoch=2, offset=1)
    broker.replicate(batch("x", base_offset=1, epoch=2), high_watermark=2)
    broker.lead()
    assert values_of(broker.follower_fetch(2, 0)) == ["r0", "x"]


# --- which replicas may read


def test_leader_epochs_are_compared():
    broker = lead_with_followers_at(1)
    broker.lead()
    old = consume(broker, 0, epoch=1)
    assert old.error_code == 74
    assert (old.current_leader.leader_id, old.current_leader.leader_epoch) == (1, 2)
    assert consume(broker, 0, epoch=3).error_code == 75
    assert consume(broker, 0, epoch=-1).error_code == 0
    assert "fenced-fetch" in broker.marks


def test_without_fetch2_any_leader_epoch_is_accepted():
    broker = lead_with_followers_at(1, without=("FETCH-2",))
    broker.lead()
    assert broker.follower_fetch(2, 1, epoch=1).error_code == 0


def test_the_leader_epoch_is_compared_before_leadership():
    """FETCH-1: a follower that knows less than the requester does not name a leader of the past."""
    broker = Broker()
    broker.follow(2)
    assert broker.follower_fetch(3, 0, epoch=99).error_code == 75


def test_a_follower_refuses_fetches_of_replicas():
    broker = Broker()
    broker.follow(2)
    response = broker.follower_fetch(3, 0)
    assert (response.error_code, response.current_leader.leader_id) == (6, 2)


def test_a_fetch_by_an_unassigned_replica_is_refused():
    """FETCH-4."""
    broker = lead_with_followers_at(1)
    assert broker.follower_fetch(4, 0, broker_epoch=104).error_code == 75
    assert broker.follower_fetch(4, 0, broker_epoch=104, epoch=-1).error_code == 6


def test_fetches_refer_to_topics_by_id():
    broker = lead_with_followers_at(1)
    other = UUID(int=8)
    assert consume(broker, 0, topic_id=other).error_code == 100
    broker.metadata.topics[other] = "t"
    assert consume(broker, 0, topic_id=other).error_code == 103
    broker.metadata.topics[other] = "elsewhere"
    assert consume(broker, 0, topic_id=other).error_code == 3
    broker.metadata.known.add(("elsewhere", 0))
    assert consume(broker, 0, topic_id=other).error_code == 6


# --- divergence


def diverged() -> Broker:
    """A leader with {1: 0, 3: 2} and the log end 4."""
    broker = Broker()
    broker.lead()
    for value in "ab":
        append(broker, value)
    broker.lead(leader_epoch=3)
    for value in "cd":
        append(broker, value)
    return broker


def test_a_diverging_fetch_gets_the_point_of_divergence_and_does_not_update_follower_state():
    broker = diverged()
    response = broker.follower_fetch(2, 4, last_epoch=2)
    assert (response.error_code, response.records) == (0, b"")
    assert (response.diverging_epoch.epoch, response.diverging_epoch.end_offset) == (1, 2)
    assert broker.partition.leadership.followers[2].log_end_offset == -1
    assert "diverging-fetch" in broker.marks


def test_a_fetch_behind_the_end_of_its_epoch_diverges():
    response = diverged().follower_fetch(2, 3, last_epoch=1)
    assert (response.diverging_epoch.epoch, response.diverging_epoch.end_offset) == (1, 2)


def test_an_unknown_epoch_diverges_even_below_the_end_of_the_epoch_before_it():
    response = diverged().follower_fetch(2, 1, last_epoch=2)
    assert (response.diverging_epoch.epoch, response.diverging_epoch.end_offset) == (1, 2)


def test_below_the_log_start_a_diverging_fetch_is_out_of_range():
    """KAFKA-12996: there is nothing left to compare with."""
    broker = Broker()
    broker.follow(2)
    broker.partition.replica.truncate_fully_and_start_at(leader_epoch=1, offset=20)
    broker.lead(leader_epoch=10)
    append(broker, "a")
    broker.lead(leader_epoch=12)
    assert broker.partition.log.epochs.entries == ((10, 20), (12, 21))
    assert broker.follower_fetch(2, 5, last_epoch=11).error_code == 1
    assert broker.follower_fetch(2, 21, last_epoch=11).diverging_epoch.epoch == 10


@pytest.mark.parametrize(("offset", "last_epoch"), [(2, 1), (1, 1), (4, 3), (3, 3)])
def test_a_prefix_does_not_diverge(offset, last_epoch):
    broker = diverged()
    response = broker.follower_fetch(2, offset, last_epoch=last_epoch)
    assert (response.error_code, response.diverging_epoch.epoch) == (0, -1)
    assert broker.partition.leadership.followers[2].log_end_offset == offset


def test_an_epoch_newer_than_all_is_out_of_range():
    assert diverged().follower_fetch(2, 4, last_epoch=5).error_code == 1


def test_a_log_longer_than_the_leaders_diverges_in_the_same_epoch():
    response = diverged().follower_fetch(2, 9, last_epoch=3)
    assert (response.diverging_epoch.epoch, response.diverging_epoch.end_offset) == (3, 4)


def test_without_fetch5_a_diverging_log_is_served():
    broker = Broker(without=("FETCH-5",))
    broker.lead()
    for value in "abc":
        append(broker, value)
    response = broker.follower_fetch(2, 2, last_epoch=0)
    assert values_of(response) == ["c"]


def test_without_fs1_a_diverging_fetch_counts():
    """B-08: a follower with another log of the same length is taken for one that is caught up."""
    broker = Broker(without=("FS-1",))
    broker.lead(leader_epoch=3)
    for value in "abc":
        append(broker, value)
    broker.follower_fetch(2, 3, last_epoch=2)
    assert broker.partition.leadership.followers[2].log_end_offset == 3


def test_a_fetch_out_of_range_does_not_update_follower_state():
    broker = lead_with_followers_at(2)
    broker.follower_fetch(2, 9)
    assert broker.partition.leadership.followers[2].log_end_offset == 2


# --- long polls


def test_a_parked_follower_is_woken_by_an_append():
    def story() -> None:
        broker = lead_with_followers_at(1)
        waiting = broker.fetch(1, replica=2, wait_ms=500)
        assert not waiting.done()
        append(broker, "b")
        assert values_of(only_fetched(waiting)) == ["b"]
        assert broker.partition.waiters.follower_fetches == {}

    on_loop(story)


def test_a_parked_follower_is_not_woken_by_the_high_watermark():
    def story() -> None:
        broker = lead_with_followers_at(0)
        append(broker, "a")
        broker.follower_fetch(3, 1)
        waiting = broker.fetch(1, replica=2, wait_ms=500)
        assert broker.high_watermark == 1
        assert not waiting.done()

    on_loop(story)


def test_a_parked_consumer_is_woken_by_the_high_watermark_only():
    def story() -> None:
        broker = lead_with_followers_at(1)
        waiting = broker.fetch(1, wait_ms=500)
        append(broker, "b")
        assert not waiting.done()
        broker.follower_fetch(2, 2)
        broker.follower_fetch(3, 2)
        assert values_of(only_fetched(waiting)) == ["b"]
        assert broker.partition.waiters.consumer_fetches == {}

    on_loop(story)


def test_a_consumer_ahead_of_the_high_watermark_is_not_woken_by_its_arrival():
    def story() -> None:
        broker = lead_with_followers_at(1)
        append(broker, "b")
        append(broker, "c")
        waiting = broker.fetch(2, wait_ms=500)
        broker.follower_fetch(2, 2)
        broker.follower_fetch(3, 2)
        assert broker.high_watermark == 2
        assert not waiting.done()
        broker.follower_fetch(2, 3)
        broker.follower_fetch(3, 3)
        assert values_of(only_fetched(waiting)) == ["c"]

    on_loop(story)


def test_a_long_poll_ends_at_its_deadline_with_the_current_high_watermark():
    """FETCH-7: until the time is over."""

    async def story() -> None:
        broker = lead_with_followers_at(0)
        append(broker, "a")
        broker.follower_fetch(3, 1)
        waiting = broker.fetch(1, replica=2, wait_ms=500)
        response = only_fetched(await waiting)
        assert now_ms() == 500
        assert (response.records, response.high_watermark) == (b"", 1)
        assert broker.manager.fetch.purgatory.expired_count == 1

    run_virtually(story())


def test_a_long_poll_waits_for_min_bytes():
    """FETCH-7: until there is enough."""

    def story() -> None:
        broker = lead_with_followers_at(0)
        size = len(batch("a"))
        waiting = broker.fetch(0, replica=2, wait_ms=500, min_bytes=2 * size)
        append(broker, "a")
        assert not waiting.done()
        append(broker, "b")
        assert values_of(only_fetched(waiting)) == ["a", "b"]

    on_loop(story)


def test_a_woken_fetch_is_not_recorded_again():
    def story() -> None:
        broker = lead_with_followers_at(1)
        broker.clock.now_ns = 10
        waiting = broker.fetch(1, replica=2, wait_ms=500)
        broker.clock.now_ns = 99
        append(broker, "b")
        assert waiting.done()
        assert broker.partition.leadership.followers[2].last_fetch_time_ns == 10

    on_loop(story)


@pytest.mark.parametrize("replica", [-1, 2])
def test_a_new_leader_epoch_ends_long_polls_of_the_old_one(replica):
    def story() -> None:
        broker = lead_with_followers_at(1)
        waiting = broker.fetch(1, replica=replica, wait_ms=500)
        broker.lead()
        assert only_fetched(waiting).error_code == 74

    on_loop(story)


@pytest.mark.parametrize("replica", [-1, 2])
def test_loss_of_leadership_ends_long_polls(replica):
    """FETCH-7: until the partition changes."""

    def story() -> None:
        broker = lead_with_followers_at(1)
        waiting = broker.fetch(1, replica=replica, epoch=-1, wait_ms=500)
        broker.follow(2)
        # A consumer may go on reading from what is a follower now.
        assert only_fetched(waiting).error_code == (0 if replica < 0 else 6)

    on_loop(story)


def test_a_removed_partition_ends_long_polls():
    def story() -> None:
        broker = lead_with_followers_at(1)
        waiting = broker.fetch(1, wait_ms=500)
        broker.metadata.topics.clear()
        broker.manager._delete("t", 0, topic_was_deleted=True)
        assert only_fetched(waiting).error_code == 100

    on_loop(story)


def test_errors_are_never_parked():
    broker = lead_with_followers_at(1)
    assert consume(broker, 9, wait_ms=500).error_code == 1


def test_a_stopping_broker_completes_long_polls():
    def story() -> None:
        broker = lead_with_followers_at(1)
        waiting = broker.fetch(1, wait_ms=500)
        broker.manager.fail_all_pending()
        assert only_fetched(waiting).error_code == 0

    on_loop(story)


def test_a_disconnected_client_does_not_affect_others():
    def story() -> None:
        broker = lead_with_followers_at(1)
        gone, there = (broker.fetch(1, replica=2, wait_ms=500) for _ in range(2))
        gone.cancel()
        append(broker, "b")
        assert values_of(only_fetched(there)) == ["b"]

    on_loop(story)


def test_a_failing_disk_is_reported_to_the_reader():
    broker = lead_with_followers_at(1)
    broker.storage.failing.add("read")
    assert consume(broker, 0).error_code == 56
    assert len(broker.storage_failures) == 1


# --- several partitions in one request


def two_partitions() -> Broker:
    """A leader of the partitions 0 and 1 of one topic, with a record in each."""
    broker = Broker()
    broker.lead()
    append(broker, "a")
    first = broker.registration
    broker.register(partition=1, partition_epoch=0)
    broker.partition.append_as_leader(VerifiedBatches.verify(batch("second")), 1)
    broker.manager.partitions["t", 1].append_as_leader(VerifiedBatches.verify(batch("b")), 1)
    broker.registration = first
    return broker


def fetch_both(
    offsets: tuple[int, int],
    *,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    wait_ms: int = 0,
):
    return fetch_request.FetchRequest(
        replica_state=fetch_request.ReplicaState(replica_id=2, replica_epoch=BROKER_EPOCHS[2]),
        max_wait=millis(wait_ms),
        min_bytes=1,
        max_bytes=max_bytes,
        topics=(
            fetch_request.FetchTopic(
                topic_id=TOPIC_ID,
                partitions=tuple(
                    fetch_request.FetchPartition(
                        partition=index,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                    )
                    for index, offset in enumerate(offsets)
                ),
            ),
        ),
        forgotten_topics_data=(),
    )


def test_the_limit_of_a_response_is_shared_by_its_partitions():
    broker = two_partitions()
    full = broker.send(fetch_both((0, 0))).responses[0].partitions
    assert [values_of(data) for data in full] == [["a", "second"], ["b"]]
    one = broker.send(fetch_both((0, 0), max_bytes=1)).responses[0].partitions
    assert [values_of(data) for data in one] == [["a"], []]
    # The same limit, but now the second partition is the first with data: its batch gets through.
    other = broker.send(fetch_both((2, 0), max_bytes=1)).responses[0].partitions
    assert [values_of(data) for data in other] == [[], ["b"]]


def test_only_the_first_partition_with_data_may_exceed_its_limit():
    broker = two_partitions()
    for _ in range(2):
        alone = broker.send(fetch_both((2, 0), partition_max_bytes=1)).responses[0].partitions
        assert [values_of(data) for data in alone] == [[], ["b"]]
        both = broker.send(fetch_both((0, 0), partition_max_bytes=1)).responses[0].partitions
        assert [values_of(data) for data in both] == [["a"], []]


def test_an_append_to_one_partition_wakes_a_fetch_of_both():
    def story() -> None:
        broker = two_partitions()
        waiting = broker.send(fetch_both((2, 1), wait_ms=500))
        assert isinstance(waiting, asyncio.Future)
        append(broker, "new")
        answers = waiting.result().responses[0].partitions
        assert [values_of(data) for data in answers] == [["new"], []]
        assert broker.manager.partitions["t", 1].waiters.follower_fetches == {}

    on_loop(story)
