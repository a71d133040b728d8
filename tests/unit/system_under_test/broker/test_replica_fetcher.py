"""The replica fetcher: what it requests from a leader, what it accepts, when it waits."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from system_under_test.broker.replica_fetcher import FetcherManager
from system_under_test.broker.tasks import TaskScope
from system_under_test.config import BY_EPOCH_REQUEST, FAST_TIMINGS, ON_FETCH
from system_under_test.log.errors import OutOfOrderOffsetError
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    NO_THROTTLE,
    fetch_response,
    list_offsets_response,
    message_name,
    offset_for_leader_epoch_response,
)
from system_under_test.protocol.record_batch import CorruptBatchError
from system_under_test.rules import Rules
from tests.unit.system_under_test.broker.node_fakes import (
    FakeHost,
    broker_config,
    now_ms,
    run_virtually,
)

TOPIC = UUID(int=100)
BACKOFF_MS = FAST_TIMINGS.replica_fetch_backoff_ms


class FakePartition:
    """A follower that counts: every non-empty fetch adds one record."""

    def __init__(self, index: int = 0, end: int = 0, topic: str = "t") -> None:
        self.topic = topic
        self.topic_id = TOPIC if topic == "t" else UUID(bytes=topic.encode() * 16)
        self.index = index
        self.leader_epoch = 3
        self.end = end
        self.calls: list[tuple[Any, ...]] = []
        self.error: Exception | None = None
        self.truncation_error: Exception | None = None

    def fetch_position(self) -> tuple[int, int, int]:
        return self.end, 2, 0

    def append_as_follower(
        self, records: bytes, *, leader_epoch: int, high_watermark: int, log_start_offset: int
    ) -> None:
        if self.error is not None:
            raise self.error
        self.calls.append(("append", records, leader_epoch, high_watermark))
        self.end += len(records)

    def truncate_on_divergence(self, *, leader_epoch: int, epoch: int, end_offset: int) -> bool:
        if self.truncation_error is not None:
            raise self.truncation_error
        self.calls.append(("diverge", leader_epoch, epoch, end_offset))
        self.end = min(self.end, end_offset)
        return epoch >= 2

    def truncate_to(self, *, leader_epoch: int, offset: int) -> None:
        self.calls.append(("truncate", leader_epoch, offset))
        self.end = offset

    def truncate_fully_and_start_at(self, *, leader_epoch: int, offset: int) -> None:
        self.calls.append(("start at", leader_epoch, offset))
        self.end = offset


class FakeConnection:
    """Responds with a function of the request, after any delay."""

    def __init__(self, leader: "FakeLeader") -> None:
        self.leader = leader
        self.is_open = True

    def request(self, message: Any, timeout_ms: float) -> "asyncio.Future[Any]":
        future = asyncio.get_running_loop().create_future()
        self.leader.in_flight += 1
        assert self.leader.in_flight == 1, "one outstanding request per fetcher"
        self.leader.requests.append((now_ms(), message))
        asyncio.get_running_loop().call_later(self.leader.delay_s, self._deliver, message, future)
        return future

    def _deliver(self, message: Any, future: "asyncio.Future[Any]") -> None:
        self.leader.in_flight -= 1
        response = self.leader.answer(message)
        if future.done():
            return
        if isinstance(response, Exception):
            future.set_exception(response)
        else:
            future.set_result(response)

    def close(self) -> None:
        self.is_open = False


class FakeLeader:
    """Broker 2, as a network with one address."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.answer = answer
        self.delay_s = 0.010
        self.in_flight = 0
        self.requests: list[tuple[float, Any]] = []
        self.connections = 0

    async def connect(self, address: str, timeout_ms: float) -> FakeConnection:
        assert address == "b2:9092"
        self.connections += 1
        return FakeConnection(self)

    def fetches(self) -> list[tuple[float, Any]]:
        return [
            (at, request)
            for at, request in self.requests
            if message_name(request) == "FetchRequest"
        ]


class Bench:
    """Fetchers of broker 1 with one leader."""

    def __init__(
        self,
        answer: Callable[[Any], Any],
        rules: Rules | None = None,
        *,
        truncation: str = ON_FETCH,
    ) -> None:
        config = broker_config().with_rules(rules or Rules())
        self.leader = FakeLeader(answer)
        self.host = FakeHost(network=self.leader)
        self.failures: list[BaseException] = []
        self.failed_partitions: list[tuple[str, int]] = []
        self.addresses: dict[int, str] = {2: "b2:9092"}
        self.fetchers = FetcherManager(
            self.host,
            replace(config, features=replace(config.features, truncation=truncation)),
            TaskScope(self.failures.append),
            alive_address=self.addresses.get,
            broker_epoch=lambda: 41,
            on_storage_failure=self._disk_failed,
        )

    def _disk_failed(self, topic: str, index: int, error: OSError) -> None:
        self.failed_partitions.append((topic, index))
        self.failures.append(error)

    def run(self, scenario: Any) -> None:
        async def story() -> None:
            await scenario
            self.fetchers.stop()
            await asyncio.sleep(0)

        run_virtually(story())
        assert [f for f in self.failures if not isinstance(f, OSError)] == []


def entries(request: Any) -> dict[int, Any]:
    return {entry.partition: entry for topic in request.topics for entry in topic.partitions}


def respond(*data: Any) -> Any:
    return fetch_response.FetchResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.NONE,
        responses=(fetch_response.FetchableTopicResponse(topic_id=TOPIC, partitions=data),),
    )


def entry(index: int = 0, *, error: ErrorCode = ErrorCode.NONE, **fields: Any) -> Any:
    merged: dict[str, Any] = {
        "high_watermark": 0,
        "aborted_transactions": None,
        "records": b"",
    } | fields
    return fetch_response.PartitionData(partition_index=index, error_code=error, **merged)


def failing(error: ErrorCode) -> Callable[[Any], Any]:
    return lambda request: respond(*(entry(index, error=error) for index in entries(request)))


def offsets(latest: int, earliest: int) -> Callable[[Any], Any]:
    """A leader that has none of the requested offsets, but reports the bounds of its log."""

    def answer(request: Any) -> Any:
        if message_name(request) == "FetchRequest":
            return failing(ErrorCode.OFFSET_OUT_OF_RANGE)(request)
        (topic,) = request.topics
        (asked,) = topic.partitions
        assert request.replica_id == 1
        assert (topic.name, asked.current_leader_epoch) == ("t", 3)
        return list_offsets_response.ListOffsetsResponse(
            throttle_time=NO_THROTTLE,
            topics=(
                list_offsets_response.ListOffsetsTopicResponse(
                    name="t",
                    partitions=(
                        list_offsets_response.ListOffsetsPartitionResponse(
                            partition_index=asked.partition_index,
                            error_code=ErrorCode.NONE,
                            offset=latest if asked.timestamp == -1 else earliest,
                        ),
                    ),
                ),
            ),
        )

    return answer


def test_a_fetch_carries_replica_offsets_and_epochs() -> None:
    bench = Bench(lambda _request: respond(entry(records=b"xx", high_watermark=1)))
    partition = FakePartition(end=5)

    async def scenario() -> None:
        bench.fetchers.follow(partition, 2, 3)
        await asyncio.sleep(0.015)

    bench.run(scenario())
    first, second = (request for _, request in bench.leader.fetches())
    assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (1, 41)
    asked = entries(first)[0]
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch) == (5, 2, 3)
    assert first.min_bytes == 1
    assert entries(second)[0].fetch_offset == 7
    assert partition.calls == [("append", b"xx", 3, 1)]


def test_all_partitions_of_a_leader_share_one_request() -> None:
    """FF-1, FETCH-0: one request is in flight."""
    bench = Bench(lambda request: respond(*(entry(index) for index in entries(request))))

    async def scenario() -> None:
        for index in (0, 1, 2):
            bench.fetchers.follow(FakePartition(index), 2, 3)
        await asyncio.sleep(0.005)
        assert [sorted(entries(r)) for _, r in bench.leader.fetches()] == [[0, 1, 2]]

    bench.run(scenario())
    assert bench.leader.connections == 1


@pytest.mark.parametrize("reverse", [False, True])
def test_every_entry_reaches_its_partition_whatever_the_order(reverse: bool) -> None:
    def answer(request: Any) -> Any:
        topics = [
            fetch_response.FetchableTopicResponse(
                topic_id=topic.topic_id,
                partitions=tuple(
                    entry(asked.partition, records=b"%d" % asked.fetch_offset)
                    for asked in topic.partitions[:: -1 if reverse else 1]
                ),
            )
            for topic in request.topics[:: -1 if reverse else 1]
        ]
        return fetch_response.FetchResponse(
            throttle_time=NO_THROTTLE, error_code=ErrorCode.NONE, responses=tuple(topics)
        )

    bench = Bench(answer)
    places = [("t", 0, 10), ("s", 1, 20), ("t", 2, 30), ("s", 0, 40)]
    partitions = [FakePartition(index, end, topic) for topic, index, end in places]

    async def scenario() -> None:
        for partition in partitions:
            bench.fetchers.follow(partition, 2, 3)
        await asyncio.sleep(0.011)

    bench.run(scenario())
    assert [p.calls[0][1] for p in partitions] == [b"10", b"20", b"30", b"40"]


def test_an_idle_follower_sends_an_identical_request_again() -> None:
    bench = Bench(lambda request: respond(*(entry(index) for index in entries(request))))

    async def scenario() -> None:
        bench.fetchers.follow(FakePartition(0), 2, 3)
        bench.fetchers.follow(FakePartition(1), 2, 3)
        await asyncio.sleep(0.025)

    bench.run(scenario())
    first, second, *_ = (request for _, request in bench.leader.fetches())
    assert first is second


# --- TRUNC-4: epochs are compared before the first fetch of a leader epoch


def epoch_ends(*ends: tuple[ErrorCode, int, int]) -> tuple[Callable[[Any], Any], list[Any]]:
    """A leader that answers OffsetForLeaderEpoch with these, one after the other, and fetches with nothing."""
    asked: list[Any] = []
    left = list(ends)

    def answer(request: Any) -> Any:
        if message_name(request) == "FetchRequest":
            return respond(*(entry(index) for index in entries(request)))
        (topic,) = request.topics
        (wanted,) = topic.partitions
        asked.append((request.replica_id, wanted.current_leader_epoch, wanted.leader_epoch))
        error, epoch, end = left.pop(0)
        return offset_for_leader_epoch_response.OffsetForLeaderEpochResponse(
            throttle_time=NO_THROTTLE,
            topics=(
                offset_for_leader_epoch_response.OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=(
                        offset_for_leader_epoch_response.EpochEndOffset(
                            error_code=error,
                            partition=wanted.partition,
                            leader_epoch=epoch,
                            end_offset=end,
                        ),
                    ),
                ),
            ),
        )

    return answer, asked


def follow_with_epoch_requests(
    *ends: tuple[ErrorCode, int, int], until_s: float = 0.2
) -> tuple[Bench, FakePartition, list[Any]]:
    answer, asked = epoch_ends(*ends)
    bench = Bench(answer, truncation=BY_EPOCH_REQUEST)
    partition = FakePartition(end=9)

    async def scenario() -> None:
        bench.fetchers.follow(partition, 2, 3)
        await asyncio.sleep(until_s)

    bench.run(scenario())
    return bench, partition, asked


def test_with_epoch_requests_a_follower_truncates_step_by_step_before_it_fetches() -> None:
    none = ErrorCode.NONE
    bench, partition, asked = follow_with_epoch_requests((none, 1, 7), (none, 2, 6))
    assert asked == [(1, 3, 2), (1, 3, 2)]
    assert partition.calls[:2] == [("diverge", 3, 1, 7), ("diverge", 3, 2, 6)]
    names = [message_name(request) for _, request in bench.leader.requests]
    assert names[:3] == ["OffsetForLeaderEpochRequest"] * 2 + ["FetchRequest"]
    first = entries(bench.leader.fetches()[0][1])[0]
    assert (first.fetch_offset, first.last_fetched_epoch, first.current_leader_epoch) == (6, -1, 3)


def test_a_refused_epoch_request_is_repeated_after_the_back_off() -> None:
    bench, partition, asked = follow_with_epoch_requests(
        (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1), (ErrorCode.NONE, 2, 9)
    )
    assert len(asked) == 2
    first, second = (at for at, request in bench.leader.requests[:2])
    assert second - first >= BACKOFF_MS
    assert partition.calls[0] == ("diverge", 3, 2, 9)


def test_a_fenced_epoch_request_ends_the_fetch_until_metadata_arrive() -> None:
    bench, partition, asked = follow_with_epoch_requests((ErrorCode.FENCED_LEADER_EPOCH, -1, -1))
    assert (len(asked), partition.calls, bench.leader.fetches()) == (1, [], [])
    assert "fetcher-fenced" in bench.host.observer.names


def test_a_diverging_entry_truncates_and_nothing_else_is_taken_from_it() -> None:
    diverging = fetch_response.EpochEndOffset(epoch=1, end_offset=4)
    bench = Bench(
        lambda _request: respond(entry(records=b"xx", high_watermark=9, diverging_epoch=diverging))
    )
    partition = FakePartition(end=6)

    async def scenario() -> None:
        bench.fetchers.follow(partition, 2, 3)
        await asyncio.sleep(0.015)

    bench.run(scenario())
    assert partition.calls == [("diverge", 3, 1, 4)]
    assert entries(bench.leader.fetches()[1][1])[0].fetch_offset == 4


@pytest.mark.parametrize("change", ["new epoch", "forgotten", "moved"])
def test_a_response_to_an_obsolete_request_is_ignored(change: str) -> None:
    bench = Bench(lambda _request: respond(entry(records=b"xx", high_watermark=9)))
    partition = FakePartition(end=5)

    async def scenario() -> None:
        bench.fetchers.follow(partition, 2, 3)
        await asyncio.sleep(0.005)
        if change == "new epoch":
            bench.fetchers.follow(partition, 2, 4)
        elif change == "forgotten":
            bench.fetchers.forget("t", 0)
        else:
            partition.end = 3
        await asyncio.sleep(0.006)
        assert partition.calls == []
        await asyncio.sleep(0.010)

    bench.run(scenario())
    epochs = [entries(request)[0].current_leader_epoch for _, request in bench.leader.fetches()]
    assert epochs[:2] == {"new epoch": [3, 4], "forgotten": [3], "moved": [3, 3]}[change]


def test_without_foll_2_a_response_of_the_old_epoch_is_taken_for_one_of_the_new() -> None:
    """KAFKA-7164: the fetcher of the same leader keeps going, and never compares the logs again."""
    bench = Bench(
        lambda _request: respond(entry(records=b"xx", high_watermark=9)), Rules(["FOLL-2"])
    )
    partition = FakePartition(end=5)

    async def scenario() -> None:
        bench.fetchers.follow(partition, 2, 3)
        await asyncio.sleep(0.005)
        bench.fetchers.follow(partition, 2, 4)
        await asyncio.sleep(0.010)

    bench.run(scenario())
    assert partition.calls == [("append", b"xx", 4, 9)]
    assert entries(bench.leader.fetches()[1][1])[0].current_leader_epoch == 4


def test_a_fenced_epoch_stops_the_fetching_until_metadata_changes() -> None:
    bench = Bench(failing(ErrorCode.FENCED_LEADER_EPOCH))
    partition = FakePartition()

    async def scenario() -> None:
        bench.fetchers.follow(partition, 2, 3)
        await asyncio.sleep(1)
        assert len(bench.leader.fetches()) == 1
        bench.fetchers.follow(partition, 2, 4)
        await asyncio.sleep(1)
        assert len(bench.leader.fetches()) == 2

    bench.run(scenario())
    assert bench.host.observer.names == ["fetcher-fenced", "fetcher-fenced"]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_other_errors_are_retried_after_the_back_off(error: ErrorCode) -> None:
    bench = Bench(failing(error))

    async def scenario() -> None:
        bench.fetchers.follow(FakePartition(), 2, 3)
        await asyncio.sleep(0.15)

    bench.run(scenario())
    assert [at for at, _ in bench.leader.fetches()] == pytest.approx([0, 60, 120])


def test_a_partition_that_backs_off_does_not_hold_up_the_others() -> None:
    def answer(request: Any) -> Any:
        return respond(
            *(
                entry(index, error=ErrorCode.NONE if index else ErrorCode.UNKNOWN_LEADER_EPOCH)
                for index in entries(request)
            )
        )

    bench = Bench(answer)

    async def scenario() -> None:
        bench.fetchers.follow(FakePartition(0), 2, 3)
        bench.fetchers.follow(FakePartition(1), 2, 3)
        await asyncio.sleep(0.075)

    bench.run(scenario())
    asked = [sorted(entries(request)) for _, request in bench.leader.fetches()]
    assert asked == [[0, 1], [1], [1], [1], [1], [1], [0, 1], [1]]


@pytest.mark.parametrize("error", [ConnectionResetError(), TimeoutError()], ids=repr)
def test_a_broken_connection_delays_its_partitions_and_is_replaced(error: Exception) -> None:
    def answer(request: Any) -> Any:
        return error if len(bench.leader.requests) == 1 else respond(entry())

    bench = Bench(answer)

    async def scenario() -> None:
        bench.fetchers.follow(FakePartition(), 2, 3)
        await asyncio.sleep(0.065)

    bench.run(scenario())
    assert [at for at, _ in bench.leader.fetches()] == pytest.approx([0, 10 + BACKOFF_MS])
    assert bench.leader.connections == 2


def test_corrupt_records_are_fetched_again_and_never_fail_the_partition() -> None:
    bench = Bench(lambda _request: respond(entry(records=b"xx")))
    partition = FakePartition()
    partition.error = CorruptBatchError("crc")

    async def scenario() -> None:
        bench.fetchers.follow(partition, 2, 3)
        await asyncio.sleep(0.050)
        partition.error = None
        await asyncio.sleep(0.025)

    bench.run(scenario())
    assert partition.calls[0][0] == "append"
    assert bench.host.observer.names == ["corrupt-batch-fetched"]


def test_records_out_of_order_fail_the_partition_until_its_next_epoch() -> None:
    bench = Bench(lambda _request: respond(entry(records=b"xx")))
    partition = FakePartition()
    partition.error = OutOfOrderOffsetError("5 after 3")

    async def scenario() -> None:
        bench.fetchers.follow(partition, 2, 3)
        await asyncio.sleep(0.5)

    bench.run(scenario())
    assert len(bench.leader.fetches()) == 1


def test_a_failed_disk_is_reported_with_its_partition() -> None:
    bench = Bench(lambda _request: respond(entry(records=b"xx")))
    partition = FakePartition()
    partition.error = OSError("no space left")

    async def scenario() -> None:
        bench.fetchers.follow(partition, 2, 3)
        await asyncio.sleep(0.5)

    bench.run(scenario())
    assert [str(error) for error in bench.failures] == ["no space left"]
    assert bench.failed_partitions == [(partition.topic, partition.index)]


def test_a_disk_that_fails_while_a_log_is_truncated_is_reported() -> None:
    diverging = fetch_response.EpochEndOffset(epoch=1, end_offset=2)
    bench = Bench(lambda _request: respond(entry(diverging_epoch=diverging)))
    partition = FakePartition()
    partition.truncation_error = OSError("no space left")

    async def scenario() -> None:
        bench.fetchers.follow(partition, 2, 3)
        await asyncio.sleep(0.5)

    bench.run(scenario())
    assert bench.failed_partitions == [(partition.topic, partition.index)]


@pytest.mark.parametrize(
    ("latest", "earliest", "expected"),
    [
        (4, 0, [("truncate", 3, 4)]),  # the leader's log ends before ours
        (20, 12, [("start at", 3, 12)]),  # it starts after ours
        (20, 0, []),  # it has our offset by now
    ],
)
def test_an_offset_out_of_range_follows_the_leaders_log(
    latest: int, earliest: int, expected: list[Any]
) -> None:
    """TRUNC-2."""
    bench = Bench(offsets(latest, earliest))
    partition = FakePartition(end=8)

    async def scenario() -> None:
        bench.fetchers.follow(partition, 2, 3)
        await asyncio.sleep(0.035)

    bench.run(scenario())
    assert partition.calls[:1] == expected


def test_nothing_is_fetched_from_a_leader_that_is_not_alive() -> None:
    bench = Bench(lambda _request: respond(entry()))
    del bench.addresses[2]

    async def scenario() -> None:
        bench.fetchers.follow(FakePartition(), 2, 3)
        assert bench.fetchers.leader_of("t", 0) is None
        await asyncio.sleep(0.1)

    bench.run(scenario())
    assert bench.leader.connections == 0


def test_a_fetcher_without_partitions_ends_and_a_new_one_has_a_new_connection() -> None:
    bench = Bench(lambda request: respond(*(entry(index) for index in entries(request))))

    async def scenario() -> None:
        bench.fetchers.follow(FakePartition(), 2, 3)
        await asyncio.sleep(0.005)
        bench.fetchers.forget("t", 0)
        bench.fetchers.forget("t", 0)
        bench.fetchers.stop_idle()
        await asyncio.sleep(0.2)
        assert len(bench.leader.fetches()) == 1
        bench.fetchers.follow(FakePartition(), 2, 4)
        await asyncio.sleep(0.005)
        assert len(bench.leader.fetches()) == 2

    bench.run(scenario())
    assert bench.leader.connections == 2
