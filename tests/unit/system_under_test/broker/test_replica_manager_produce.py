"""Produce requests: what is refused, what waits, and how waiting ends."""

import asyncio

import pytest

from system_under_test.protocol.messages import decode, encode, millis, produce_request
from tests.unit.system_under_test.broker.node_fakes import now_ms, run_virtually
from tests.unit.system_under_test.broker.replica_fakes import (
    LAG_NS,
    TOPIC,
    Broker,
    batch,
    only_produced,
)
from tests.unit.system_under_test.broker.test_partition_leader import append, lead_with_followers_at


def on_loop(story) -> None:
    """Runs a story whose requests wait; nothing in it takes time."""

    async def run() -> None:
        story()

    asyncio.run(run())


def test_acks_all_is_acknowledged_when_the_high_watermark_passes_the_last_record():
    def story() -> None:
        broker = Broker()
        broker.lead()
        waiting = broker.produce("a", "b")
        broker.follower_fetch(2, 2)
        assert not waiting.done()
        broker.follower_fetch(3, 2)
        response = only_produced(waiting)
        assert (response.error_code, response.base_offset, response.log_start_offset) == (0, 0, 0)

    on_loop(story)


def test_requests_are_acknowledged_in_offset_order():
    def story() -> None:
        broker = Broker()
        broker.lead()
        waiting = [broker.produce(value) for value in "abc"]
        broker.follower_fetch(2, 3)
        broker.follower_fetch(3, 2)
        assert [future.done() for future in waiting] == [True, True, False]
        broker.follower_fetch(3, 3)
        assert only_produced(waiting[2]).base_offset == 2

    on_loop(story)


def test_acks_one_is_acknowledged_after_the_local_append():
    """PROD-3: acks=1."""
    broker = lead_with_followers_at(0)
    response = only_produced(broker.produce("a", acks=1))
    assert (response.error_code, response.base_offset) == (0, 0)
    assert broker.high_watermark == 0


def test_acks_zero_has_no_response():
    """PROD-3: acks=0."""
    broker = lead_with_followers_at(0)
    assert broker.produce("a", acks=0) is None
    assert broker.log_end == 1


def test_a_failed_append_with_acks_zero_closes_the_connection():
    broker = Broker()
    broker.follow(2)
    with pytest.raises(ConnectionAbortedError):
        broker.produce("a", acks=0)


def test_a_lone_replica_commits_at_once():
    def story() -> None:
        broker = Broker(min_isr=1)
        broker.lead(replicas=(1,), isr=(1,))
        assert only_produced(broker.produce("a")).error_code == 0
        assert broker.high_watermark == 1
        assert len(broker.manager.produce.purgatory) == 0

    on_loop(story)


def test_acks_all_below_min_isr_writes_nothing():
    broker = lead_with_followers_at(2)
    broker.register(isr=(1,))
    assert only_produced(broker.produce("a")).error_code == 19
    assert broker.log_end == 2
    assert "not-enough-replicas" in broker.marks


def test_below_min_isr_acks_one_is_still_served():
    broker = lead_with_followers_at(2)
    broker.register(isr=(1,))
    assert only_produced(broker.produce("a", acks=1)).error_code == 0


def test_the_committed_isr_counts_for_min_isr():
    broker = lead_with_followers_at(2)
    broker.register(isr=(1,))
    broker.follower_fetch(2, 2)
    assert broker.partition.leadership.state.maximal_isr == (1, 2)
    assert only_produced(broker.produce("a")).error_code == 19


def test_without_prod2_acks_all_is_accepted_below_min_isr():
    def story() -> None:
        broker = lead_with_followers_at(2, without=("PROD-2",))
        broker.register(isr=(1,))
        assert not broker.produce("a").done()
        assert broker.log_end == 3

    on_loop(story)


def test_without_prod4_acks_all_is_acknowledged_after_the_local_append():
    broker = lead_with_followers_at(2, without=("PROD-4",))
    assert only_produced(broker.produce("a")).error_code == 0
    assert broker.high_watermark == 2


# --- PROD-5: the ISR shrinks while a request waits (V5)


def shrink_with_a_request_in_flight(profile: str) -> tuple[Broker, asyncio.Future]:
    broker = lead_with_followers_at(2, profile=profile)
    waiting = broker.produce("m", timeout_ms=1000)
    broker.clock.now_ns = LAG_NS + 1
    broker.partition.shrink_if_lagging()
    assert broker.alter.proposed == (1,)
    broker.alter.accept()
    return broker, waiting


def test_with_the_gate_a_request_in_flight_ends_as_timed_out():
    """PROD-3: acks=all, if nothing else happens."""

    async def story() -> None:
        broker, waiting = shrink_with_a_request_in_flight("kafka-4.1")
        assert broker.high_watermark == 2
        assert not waiting.done()
        response = only_produced(await waiting)
        # As in Kafka: the offset that it was appended at, whatever the error.
        assert (response.error_code, response.base_offset) == (7, 2)
        assert now_ms() == 1000
        assert "produce-timed-out" in broker.marks

    run_virtually(story())


def test_without_the_gate_a_request_in_flight_ends_as_not_enough_replicas_after_append():
    async def story() -> None:
        broker, waiting = shrink_with_a_request_in_flight("kafka-3.6")
        assert broker.high_watermark == 3
        response = only_produced(waiting)
        assert (response.error_code, response.base_offset) == (20, 2)
        assert "not-enough-replicas-after-append" in broker.marks

    run_virtually(story())


def test_a_timed_out_request_gets_no_second_response_when_its_records_commit():
    async def story() -> None:
        broker = lead_with_followers_at(0)
        waiting = broker.produce("a", timeout_ms=100)
        assert only_produced(await waiting).error_code == 7
        broker.follower_fetch(2, 1)
        broker.follower_fetch(3, 1)
        assert broker.high_watermark == 1
        assert only_produced(waiting).error_code == 7
        assert not broker.partition.waiters.produces

    run_virtually(story())


# --- loss of leadership


def test_a_deposed_leader_fails_its_pending_requests():
    """PROD-6."""

    def story() -> None:
        broker = lead_with_followers_at(1)
        waiting = broker.produce("a")
        broker.follow(2)
        assert only_produced(waiting).error_code == 6

    on_loop(story)


def test_without_foll3_a_replaced_record_is_acknowledged():
    """B-24: the check uses only the high watermark, which moves again under the next leader."""

    def story() -> None:
        broker = lead_with_followers_at(1, without=("FOLL-3",))
        waiting = broker.produce("m")
        broker.follow(2)
        assert not waiting.done()
        broker.partition.replica.truncate_to(leader_epoch=2, offset=1)
        broker.replicate(batch("n", base_offset=1, epoch=2), high_watermark=2)
        assert only_produced(waiting).error_code == 0

    on_loop(story)


def test_a_request_survives_a_new_epoch_of_the_same_leader():
    def story() -> None:
        broker = lead_with_followers_at(1)
        waiting = broker.produce("a")
        broker.lead()
        assert not waiting.done()
        broker.follower_fetch(2, 2)
        broker.follower_fetch(3, 2)
        assert only_produced(waiting).error_code == 0

    on_loop(story)


@pytest.mark.parametrize(("topic_was_deleted", "error"), [(True, 3), (False, 6)])
def test_a_removed_partition_fails_its_pending_requests(topic_was_deleted, error):
    def story() -> None:
        broker = lead_with_followers_at(1)
        waiting = broker.produce("a")
        broker.manager._delete(TOPIC, 0, topic_was_deleted=topic_was_deleted)
        assert only_produced(waiting).error_code == error

    on_loop(story)


def test_a_stopping_broker_completes_pending_requests():
    def story() -> None:
        broker = lead_with_followers_at(1)
        waiting = broker.produce("a")
        broker.manager.fail_all_pending()
        assert only_produced(waiting).error_code == 6

    on_loop(story)


# --- refusals


def test_a_follower_refuses_produce_requests():
    broker = Broker()
    broker.follow(2)
    assert only_produced(broker.produce("a", acks=1)).error_code == 6


def test_a_partition_on_another_broker_and_an_unknown_one_get_different_errors():
    broker = Broker()
    assert only_produced(broker.produce("a", acks=1)).error_code == 6
    broker.metadata.known.clear()
    assert only_produced(broker.produce("a", acks=1)).error_code == 3


def of_ten_bytes(length: int) -> bytes:
    """Something with a length that no batch has."""
    return bytes(8) + length.to_bytes(4, "big") + bytes(20)


def test_produce_errors_have_kafkas_order():
    """PROD-1: unknown partition, request, acks, leadership, min ISR, records; each hides those behind it."""
    damaged = batch("a")[:-1] + b"\xff"
    two = batch("a") + batch("b")
    broker = lead_with_followers_at(0)
    follower = Broker()
    follower.follow(2)

    def error(of: Broker, **request: object) -> int:
        return int(only_produced(of.produce(**request)).error_code)

    assert error(follower, data=damaged) == 6
    assert error(follower, data=two) == 87
    assert error(follower, data=of_ten_bytes(3)) == 2
    assert error(follower, data=damaged, acks=2) == 21
    assert error(follower, data=two, acks=2) == 87
    assert error(broker, data=damaged) == 2
    broker.register(isr=(1,))
    assert error(broker, data=damaged) == 19
    assert error(broker, data=damaged, acks=1) == 2
    follower.metadata.known.clear()
    follower.manager.partitions.clear()
    assert error(follower, data=two, acks=2) == 3


@pytest.mark.parametrize(("profile", "error"), [("kafka-3.6", 19), ("kafka-3.9", 0)])
def test_a_min_isr_above_the_number_of_replicas_counts_until_3_7(profile, error):
    """MIN-1."""

    def story() -> None:
        broker = Broker(profile=profile, min_isr=2)
        broker.lead(replicas=(1,), isr=(1,))
        assert only_produced(broker.produce("a")).error_code == error
        assert only_produced(broker.produce("a", acks=1)).error_code == 0

    on_loop(story)


@pytest.mark.parametrize("acks", [2, -2])
def test_other_acks_values_are_refused(acks):
    broker = lead_with_followers_at(0)
    assert only_produced(broker.produce("a", acks=acks)).error_code == 21
    assert broker.log_end == 0


@pytest.mark.parametrize(
    ("data", "error"),
    [(b"", 87), (b"no batch", 87), (batch("a")[:-1], 87), (batch("a")[:-1] + b"\xff", 2)],
)
def test_damaged_records_are_refused(data, error):
    broker = lead_with_followers_at(0)
    response = only_produced(broker.produce(data=data))
    assert (response.error_code, response.log_start_offset) == (error, -1)
    assert broker.log_end == 0


def test_a_batch_that_is_too_large_is_refused():
    broker = lead_with_followers_at(0)
    assert only_produced(broker.produce("x" * 2_000_000)).error_code == 10


def test_one_request_may_succeed_in_one_partition_and_fail_in_another():
    def story() -> None:
        broker = lead_with_followers_at(0)
        request = produce_request.ProduceRequest(
            acks=-1,
            timeout=millis(1000),
            topic_data=(
                produce_request.TopicProduceData(
                    name=TOPIC,
                    partition_data=tuple(
                        produce_request.PartitionProduceData(index=index, records=batch("a"))
                        for index in (7, 0)
                    ),
                ),
            ),
        )
        waiting = broker.send(request)
        broker.follower_fetch(2, 1)
        broker.follower_fetch(3, 1)
        response = waiting.result()
        answers = [
            (one.index, one.error_code, one.base_offset)
            for one in response.responses[0].partition_responses
        ]
        assert answers == [(7, 3, -1), (0, 0, 0)]
        assert decode(type(response), encode(response)) == response

    on_loop(story)


# --- the disk


def test_a_failing_disk_takes_the_partition_offline():
    broker = lead_with_followers_at(1)
    broker.storage.failing.add("append")
    assert only_produced(broker.produce("a")).error_code == 56
    assert len(broker.storage_failures) == 1
    assert broker.observer.states[-1]["role"] == "offline"
    assert only_produced(broker.produce("b")).error_code == 56
    assert broker.manager.high_watermarks() == {}
    assert broker.manager.gauges()["OfflineReplicaCount"] == 1


def test_a_failing_disk_fails_pending_requests():
    def story() -> None:
        broker = lead_with_followers_at(1)
        waiting = broker.produce("a")
        broker.storage.failing.add("append")
        append_error = only_produced(broker.produce("b")).error_code
        assert (append_error, only_produced(waiting).error_code) == (56, 56)

    on_loop(story)


def test_a_disconnected_client_does_not_affect_others():
    def story() -> None:
        broker = Broker()
        broker.lead()
        gone, there = broker.produce("a"), broker.produce("b")
        gone.cancel()
        append(broker, "c")
        broker.follower_fetch(2, 3)
        broker.follower_fetch(3, 3)
        assert only_produced(there).error_code == 0

    on_loop(story)
