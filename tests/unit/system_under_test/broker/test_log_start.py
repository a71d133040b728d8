"""DeleteRecords, retention and settings of logs, on one broker."""

import asyncio
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

from system_under_test.config import LogConfig
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import delete_records_request, millis
from system_under_test.protocol.record_batch import header_at
from tests.unit.system_under_test.broker.replica_fakes import (
    TOPIC,
    Broker,
    batch,
    only_fetched,
    only_produced,
    values_of,
)

TO_HIGH_WATERMARK = -1


def on_loop(story: Callable[..., Any]) -> Callable[..., None]:
    """Runs a test whose requests wait on a loop."""

    @wraps(story)
    def run(*arguments: Any, **options: Any) -> None:
        asyncio.run(story(*arguments, **options))

    return run


def delete(broker: Broker, offset: int, *, topic: str = TOPIC, timeout_ms: int = 1000) -> Any:
    return broker.send(
        delete_records_request.DeleteRecordsRequest(
            topics=(
                delete_records_request.DeleteRecordsTopic(
                    name=topic,
                    partitions=(
                        delete_records_request.DeleteRecordsPartition(
                            partition_index=0, offset=offset
                        ),
                    ),
                ),
            ),
            timeout=millis(timeout_ms),
        )
    )


def result(response: Any) -> tuple[ErrorCode, int]:
    if isinstance(response, asyncio.Future):
        assert response.done(), "the request still waits"
        response = response.result()
    (topic,) = response.topics
    (partition,) = topic.partitions
    return partition.error_code, partition.low_watermark


def fetch_from_start(broker: Broker, replica: int, offset: int, log_start: int) -> Any:
    """Fetches as a follower that reports its log start."""
    leadership = broker.partition.leadership
    answer = broker.follower_fetch(replica, offset)
    follower = leadership.followers[replica]
    leadership.record_follower_fetch(
        follower,
        fetch_offset=offset,
        log_start_offset=log_start,
        arrival_ns=0,
        leader_leo=broker.log_end,
        broker_epoch=follower.broker_epoch,
    )
    broker.partition.log_starts_moved()
    return answer


def led(**options: Any) -> Broker:
    """Returns a leader with five committed records."""
    broker = Broker(**options)
    broker.lead()
    broker.produce(*"abcde", acks=1)
    for replica in (2, 3):
        broker.follower_fetch(replica, 5)
    assert broker.high_watermark == 5
    return broker


@on_loop
async def test_the_response_waits_for_the_log_starts_of_all_followers_that_are_alive():
    broker = led()
    response = delete(broker, 3)
    assert broker.partition.replica.log_start_offset == 3
    fetch_from_start(broker, 2, 5, 3)
    assert not response.done()
    fetch_from_start(broker, 3, 5, 4)
    assert result(response) == (ErrorCode.NONE, 3)


@on_loop
async def test_a_follower_that_is_not_alive_keeps_nobody_waiting():
    broker = led()
    broker.metadata.fenced.add(3)
    response = delete(broker, 3)
    fetch_from_start(broker, 2, 5, 3)
    assert result(response) == (ErrorCode.NONE, 3)


@on_loop
async def test_a_leader_whose_followers_are_all_down_responds_at_once():
    broker = led()
    broker.metadata.fenced |= {2, 3}
    assert result(delete(broker, 3)) == (ErrorCode.NONE, 3)


@on_loop
async def test_without_ret3_the_leaders_own_log_start_is_enough():
    assert result(delete(led(without=("RET-3",)), 3))[0] == ErrorCode.NONE


@on_loop
async def test_minus_one_stands_for_the_high_watermark():
    broker = led()
    broker.produce("f", acks=1)
    delete(broker, TO_HIGH_WATERMARK)
    assert broker.partition.replica.log_start_offset == 5


@pytest.mark.parametrize("offset", [-2, 6])
@on_loop
async def test_an_offset_above_the_high_watermark_is_refused(offset):
    broker = led()
    broker.produce("f", acks=1)
    assert result(delete(broker, offset)) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert broker.partition.replica.log_start_offset == 0


@on_loop
async def test_a_lower_offset_changes_nothing():
    broker = led()
    delete(broker, 4)
    response = delete(broker, 2)
    assert broker.partition.replica.log_start_offset == 4
    for replica in (2, 3):
        fetch_from_start(broker, replica, 5, 4)
    assert result(response) == (ErrorCode.NONE, 4)


@on_loop
async def test_compacted_and_internal_topics_and_followers_refuse():
    broker = led()
    broker.partition.log.configure(LogConfig(cleanup_policy="compact"))
    assert result(delete(broker, 3))[0] == ErrorCode.POLICY_VIOLATION
    assert result(delete(broker, 3, topic="__consumer_offsets"))[0] == (
        ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    assert result(delete(broker, 3, topic="none"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.follow()
    assert result(delete(broker, 3))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


@on_loop
async def test_a_deposed_leader_and_a_deadline_end_the_wait():
    broker = led()
    response = delete(broker, 3)
    broker.follow()
    assert result(response) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    broker = led()
    response = delete(broker, 3, timeout_ms=0)
    await response
    assert result(response) == (ErrorCode.REQUEST_TIMED_OUT, -1)


@on_loop
async def test_a_fetch_below_the_log_start_is_out_of_range():
    broker = led()
    delete(broker, 3)
    assert only_fetched(broker.fetch(2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    found = only_fetched(broker.fetch(3))
    assert found.log_start_offset == 3


@on_loop
async def test_a_parked_fetch_that_the_log_start_passes_is_out_of_range():
    """It waits for more bytes than there are; meanwhile what it waited for is deleted."""
    broker = led()
    response = broker.fetch(2, wait_ms=1000, min_bytes=10_000)
    delete(broker, TO_HIGH_WATERMARK)
    broker.produce("f", acks=1)
    for replica in (2, 3):
        broker.follower_fetch(replica, 6)
    assert only_fetched(response).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def followed(**options: Any) -> Broker:
    broker = Broker(**options)
    broker.follow()
    for offset, value in enumerate("abcde"):
        broker.replicate(batch(value, base_offset=offset, epoch=1), high_watermark=5)
    return broker


@pytest.mark.parametrize(("without", "start"), [((), 3), (("RET-2",), 0)])
def test_a_follower_raises_its_log_start_to_its_leaders(without, start):
    broker = followed(without=without)
    broker.partition.replica.append_as_follower(
        b"", leader_epoch=1, high_watermark=5, log_start_offset=3
    )
    assert broker.partition.replica.log_start_offset == start
    assert broker.observer.states[-1]["log_start_offset"] == start


def test_a_followers_log_start_is_not_above_its_high_watermark():
    broker = Broker()
    broker.follow()
    broker.partition.replica.append_as_follower(
        batch("a", epoch=1), leader_epoch=1, high_watermark=0, log_start_offset=1
    )
    assert broker.partition.replica.log_start_offset == 0


def test_retention_on_a_follower_counts_its_own_high_watermark():
    broker = Broker()
    broker.metadata.log_settings = LogConfig(retention_ms=1, segment_bytes=1)
    broker.follow()
    for offset, value in enumerate("abc"):
        broker.replicate(batch(value, base_offset=offset, epoch=1), high_watermark=2)
    broker.partition.replica.delete_old_segments(10**6)
    assert broker.partition.replica.log_start_offset == 2
    assert broker.high_watermark == 2


def test_settings_of_the_metadata_reach_the_log():
    broker = led()
    assert broker.partition.log.config == LogConfig()
    broker.metadata.log_settings = LogConfig(max_message_bytes=10)
    broker.register()
    assert only_produced(broker.produce("f", acks=1)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    broker.metadata.log_settings = LogConfig()
    broker.register()
    assert only_produced(broker.produce("f", acks=1)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_the_topic_decides_whose_timestamps_count(kind):
    broker = led()
    broker.host.clock.wall_ms = lambda: 777_000
    broker.metadata.log_settings = LogConfig(message_timestamp_type=kind)
    broker.partition.log.configure(broker.metadata.log_settings)
    manager = broker.manager
    manager.context.wall_ms = lambda: 777_000
    produced = only_produced(broker.produce(data=batch("f", timestamp_ms=5), acks=1))
    header = header_at(broker.partition.log.read(5, 1, 6), 0)
    found = broker.list_offsets(777_000)
    if kind == "LogAppendTime":
        assert produced.log_append_time.timestamp() == 777
        assert header.max_timestamp_ms == 777_000
        assert (found.offset, found.timestamp) != (5, 5)
    else:
        assert produced.log_append_time is None
        assert header.max_timestamp_ms == 5


def test_a_topic_limits_how_far_a_timestamp_is_ahead():
    broker = led()
    ahead = batch("f", timestamp_ms=2000)
    broker.partition.log.configure(LogConfig(message_timestamp_after_max_ms=1999))
    assert only_produced(broker.produce(data=ahead, acks=1)).error_code == (
        ErrorCode.INVALID_TIMESTAMP
    )
    broker.partition.log.configure(LogConfig(message_timestamp_after_max_ms=2000))
    assert only_produced(broker.produce(data=ahead, acks=1)).error_code == ErrorCode.NONE
    late = LogConfig(message_timestamp_after_max_ms=0, message_timestamp_type="LogAppendTime")
    broker.partition.log.configure(late)
    assert only_produced(broker.produce(data=ahead, acks=1)).error_code == ErrorCode.NONE


def test_a_response_that_was_built_before_the_log_start_moved_is_not_sent_again():
    broker = led()
    assert only_fetched(broker.fetch(4)).log_start_offset == 0
    broker.partition.replica.raise_log_start(2)
    assert only_fetched(broker.fetch(4)).log_start_offset == 2
    assert values_of(only_fetched(broker.fetch(4)))
