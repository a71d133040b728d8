"""The native producer: what it sends again with which numbers, and how its appends end."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from harness.contracts.client import ProducedBatch, ProducerSettings
from harness.errors import UsageError
from harness.history.op import Completion, Outcome
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import init_producer_id_request, metadata_request
from system_under_test.protocol.record_batch import header_at
from workloads.append_config import AppendConfig
from workloads.clients.backoff import backoff_ms
from workloads.clients.native_cluster import METADATA_BACKOFF_MS, ClusterClient, Leader
from workloads.clients.native_producer import ACKS_ALL, NativeProducer

OFFSET = 40
SETTINGS = ProducerSettings(
    enable_idempotence=True, retry_backoff_ms=1, retry_backoff_max_ms=1, delivery_timeout_ms=60_000
)


@dataclass
class FakeCluster:
    """Brokers whose responses to produce requests are scripted: an error per partition, or a broken connection."""

    script: list[Any]
    leaders: dict[int, str] = field(default_factory=dict)
    sent: list[tuple[str, dict[int, tuple[int, int, int]]]] = field(default_factory=list)
    ids: int = 0
    request_timeout_ms: int = 1000
    never_older: set[bool] = field(default_factory=set)

    @property
    def host(self) -> Any:
        clock = SimpleNamespace(wall_ms=lambda: 0, monotonic_ns=lambda: 0)
        stream = SimpleNamespace(random=lambda: 0.5)
        return SimpleNamespace(clock=clock, random=SimpleNamespace(stream=lambda _: stream))

    async def leader(self, topic: str, partition: int, *, never_older: bool) -> Leader | None:
        self.never_older.add(never_older)
        host = self.leaders.get(partition, "b1")
        epoch = 3 + partition
        return Leader(node_id=1, address=host, leader_epoch=epoch, topic_id=UUID(int=1), host=host)

    def forget_leader(self, topic: str, partition: int) -> None:
        pass

    def next_broker(self) -> str:
        return "b1"

    async def open(self, address: str) -> Any:
        return object()

    async def request(self, connection: Any, address: str, request: Any, timeout_ms: float) -> Any:
        if isinstance(request, init_producer_id_request.InitProducerIdRequest):
            self.ids += 1
            return SimpleNamespace(error_code=0, producer_id=70 + self.ids, producer_epoch=0)
        parts = [data for topic in request.topic_data for data in topic.partition_data]
        headers = {part.index: header_at(part.records, 0) for part in parts}
        numbers = {
            index: (one.producer_id, one.producer_epoch, one.base_sequence)
            for index, one in headers.items()
        }
        self.sent.append((address, numbers))
        result = self.script.pop(0) if self.script else ErrorCode.NONE
        if isinstance(result, str):
            return result
        codes = result if isinstance(result, dict) else dict.fromkeys(numbers, result)
        results = tuple(
            SimpleNamespace(
                index=index, error_code=codes[index], base_offset=-1 if codes[index] else OFFSET
            )
            for index in numbers
        )
        return SimpleNamespace(responses=(SimpleNamespace(name="t", partition_responses=results),))

    def numbers(self, partition: int = 0) -> list[tuple[int, int, int]]:
        return [sent[partition] for _, sent in self.sent if partition in sent]


def batch(partition: int = 0, count: int = 1) -> ProducedBatch:
    return ProducedBatch(topic="t", partition=partition, records=((b"k", b"v"),) * count)


def produce(
    cluster: FakeCluster,
    *operations: Sequence[ProducedBatch],
    settings: ProducerSettings = SETTINGS,
    acks: int = ACKS_ALL,
    keeps_going: bool = True,
) -> list[list[Completion]]:
    producer = NativeProducer(cluster, settings)  # type: ignore[arg-type]

    async def main() -> list[list[Completion]]:
        ended = []
        for batches in operations:
            completions: dict[int, Completion] = {}
            await producer.produce(batches, acks, completions.__setitem__, lambda: keeps_going)
            ended.append([completions[index] for index in range(len(batches))])
        return ended

    return asyncio.run(main())


def test_sequence_numbers_count_the_records_of_a_partition() -> None:
    cluster = FakeCluster([])
    ended = produce(cluster, [batch(count=3)], [batch(count=2), batch(1)], [batch()])
    assert cluster.numbers(0) == [(71, 0, 0), (71, 0, 3), (71, 0, 5)]
    assert cluster.numbers(1) == [(71, 0, 0)]
    assert [one.offset for some in ended for one in some] == [OFFSET] * 4
    assert cluster.never_older == {True}


@pytest.mark.parametrize(
    "first",
    [
        "client-timeout",
        "connection-lost",
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
def test_a_batch_is_sent_again_with_the_same_numbers(first: Any) -> None:
    cluster = FakeCluster([first, ErrorCode.NONE])
    ((ended,),) = produce(cluster, [batch()])
    assert (ended.outcome, ended.offset, ended.leader_epoch) == (Outcome.OK, OFFSET, 3)
    assert cluster.numbers() == [(71, 0, 0), (71, 0, 0)]


def test_a_batch_that_the_leader_has_is_acknowledged_at_an_unknown_offset() -> None:
    cluster = FakeCluster(["client-timeout", ErrorCode.DUPLICATE_SEQUENCE_NUMBER])
    ((ended,),) = produce(cluster, [batch()])
    assert (ended.outcome, ended.offset, ended.error) == (Outcome.OK, None, "")
    # Without sequence numbers nothing can be a duplicate.
    ((ended,),) = produce(
        FakeCluster([ErrorCode.DUPLICATE_SEQUENCE_NUMBER]), [batch()], settings=ProducerSettings()
    )
    assert ended.outcome == Outcome.INFO


@pytest.mark.parametrize(
    "gap", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID]
)
def test_after_a_gap_the_batch_is_the_first_of_the_next_epoch(gap: ErrorCode) -> None:
    cluster = FakeCluster([ErrorCode.NONE, gap, ErrorCode.NONE])
    ended = produce(cluster, [batch()], [batch(count=2)], [batch(), batch(1)])
    assert all(one.outcome == Outcome.OK for some in ended for one in some)
    assert cluster.numbers() == [(71, 0, 0), (71, 0, 1), (71, 1, 0), (71, 1, 2)]
    assert cluster.numbers(1) == [(71, 1, 0)]


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ([ErrorCode.NOT_ENOUGH_REPLICAS] * 2, Outcome.FAIL),
        (["client-timeout", ErrorCode.NOT_ENOUGH_REPLICAS], Outcome.INFO),
        ([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT], Outcome.INFO),
        (["client-timeout", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER], Outcome.INFO),
    ],
)
def test_a_batch_fails_only_if_no_attempt_can_have_appended_it(
    script: list[Any], outcome: Outcome
) -> None:
    cluster = FakeCluster(list(script))
    ended = produce(cluster, [batch()], [batch()], settings=replace(SETTINGS, retries=1))
    assert [one.outcome for (one,) in ended] == [outcome, Outcome.OK]
    # Whatever became of it, its numbers are not used again.
    assert cluster.numbers()[2:] == [(71, 1, 0)]


def test_an_error_that_does_not_pass_ends_a_batch_at_once() -> None:
    cluster = FakeCluster([ErrorCode.MESSAGE_TOO_LARGE])
    ((ended,),) = produce(cluster, [batch()])
    assert (ended.outcome, ended.error) == (Outcome.FAIL, "MESSAGE_TOO_LARGE")
    assert len(cluster.sent) == 1


def test_only_what_failed_is_sent_again_and_one_leader_gets_one_request() -> None:
    first = {0: ErrorCode.NONE, 1: ErrorCode.REQUEST_TIMED_OUT}
    cluster = FakeCluster([first], leaders={2: "b2"})
    (ended,) = produce(cluster, [batch(0), batch(1), batch(2)])
    assert all(one.outcome == Outcome.OK for one in ended)
    assert [one.leader_epoch for one in ended] == [3, 4, 5]
    assert [(address, tuple(sent)) for address, sent in cluster.sent] == [
        ("b1", (0, 1)),
        ("b2", (2,)),
        ("b1", (1,)),
    ]


def test_nothing_is_sent_again_without_idempotence_without_acks_all_or_after_the_end() -> None:
    for settings, acks, keeps_going in (
        (ProducerSettings(), ACKS_ALL, True),
        (SETTINGS, 1, True),
        (SETTINGS, ACKS_ALL, False),
    ):
        cluster = FakeCluster(["client-timeout"])
        ((ended,),) = produce(
            cluster, [batch()], settings=settings, acks=acks, keeps_going=keeps_going
        )
        assert (ended.outcome, ended.error) == (Outcome.INFO, "client-timeout")
        assert len(cluster.sent) == 1
        numbered = settings.enable_idempotence and acks == ACKS_ALL
        assert cluster.numbers() == [(71, 0, 0) if numbered else (-1, -1, -1)]


def test_metadata_of_an_older_leader_epoch_is_ignored_if_asked_for() -> None:
    answers = [(2, 5), (1, 4), (1, 6), (2, 5)]

    def metadata(message: Any, timeout_ms: float) -> Any:
        assert isinstance(message, metadata_request.MetadataRequest)
        leader, epoch = answers.pop(0)
        partition = SimpleNamespace(
            leader_id=leader,
            partition_index=0,
            leader_epoch=epoch,
            replica_nodes=(1, 2),
            offline_replicas=(),
        )
        response = SimpleNamespace(
            brokers=[SimpleNamespace(node_id=n, host=f"b{n}", port=1) for n in (1, 2)],
            topics=[SimpleNamespace(topic_id=UUID(int=1), partitions=[partition])],
        )
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result(response)
        return done

    async def connect(address: str, timeout_ms: float) -> Any:
        return SimpleNamespace(is_open=True, request=metadata)

    async def main() -> list[tuple[str, int]]:
        now_ns = [0]
        clock = SimpleNamespace(monotonic_ns=lambda: now_ns[0])
        host: Any = SimpleNamespace(network=SimpleNamespace(connect=connect), clock=clock)
        cluster = ClusterClient(host, ("b1:1",), request_timeout_ms=1, connect_timeout_ms=1)
        seen = []
        for never_older in (True, True, True, False):
            leader = await cluster.leader("t", 0, never_older=never_older)
            assert leader is not None
            seen.append((leader.host, leader.leader_epoch))
            cluster.forget_leader("t", 0)
            now_ns[0] += METADATA_BACKOFF_MS * 1_000_000 - 1
            assert await cluster.leader("t", 0) is None
            now_ns[0] += 1
        return seen

    assert asyncio.run(main()) == [("b2", 5), ("b2", 5), ("b1", 6), ("b2", 5)]


def test_a_wait_grows_to_its_limit_and_its_jitter_is_a_fifth() -> None:
    middle, low = SimpleNamespace(random=lambda: 0.5), SimpleNamespace(random=lambda: 0.0)
    waits = [backoff_ms(n, first_ms=50, most_ms=1000, random=middle) for n in (0, 1, 2, 9, 10**9)]
    assert waits == [50, 100, 200, 1000, 1000]
    assert backoff_ms(0, first_ms=50, most_ms=1000, random=low) == 40


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"enable_idempotence": True, "client": "confluent"}, "need the client 'native'"),
        ({"records_per_batch_max": 0}, "workload.records_per_batch_max is 0; choose 1 to 1000"),
        ({"partitions_per_request_max": 101}, "choose 1 to 100"),
        ({"retries": 0}, "workload.retries is 0; choose 1 to"),
        ({"retry_backoff_ms": 2000}, "choose 2000 .retry_backoff_ms. or more"),
        ({"delivery_timeout_ms": 10}, "choose 1500 .request_timeout_ms. or more, or 0"),
        ({"records_per_batch_max": 1000, "record_bytes_max": 1001}, "is larger than 1000000"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        AppendConfig(**settings)


def test_a_delivery_may_take_four_requests_by_default() -> None:
    assert AppendConfig(request_timeout_ms=700).producer_settings.delivery_timeout_ms == 2800
    assert AppendConfig(delivery_timeout_ms=1500).producer_settings.delivery_timeout_ms == 1500
