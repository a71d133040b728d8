"""The confluent-kafka adapter, against the mock cluster of librdkafka."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from harness.errors import UsageError  # noqa: E402
from harness.history.op import Completion, Outcome  # noqa: E402
from workloads.clients import confluent_library  # noqa: E402
from workloads.clients.confluent import (  # noqa: E402
    ConfluentClient,
    classify_append_error,
)
from workloads.clients.confluent_library import error_name  # noqa: E402
from workloads.clients.native import PollResult  # noqa: E402

pytestmark = pytest.mark.wire
TIMEOUT_MS = 1500


@pytest.fixture
def mock_cluster() -> Iterator[tuple[str, ...]]:
    """Addresses of three mock brokers; they live as long as the client that holds them."""
    holder = confluent_kafka.Producer(
        {"bootstrap.servers": "unused", "test.mock.num.brokers": 3, "log_level": 0}
    )
    brokers = holder.list_topics(timeout=10).brokers.values()
    yield tuple(f"{broker.host}:{broker.port}" for broker in brokers)
    holder.purge()


def use(
    bootstrap: tuple[str, ...], story: Callable[[ConfluentClient], Awaitable[Any]], **settings: Any
) -> Any:
    client = ConfluentClient(
        None, bootstrap, request_timeout_ms=TIMEOUT_MS, connect_timeout_ms=300, settings=settings
    )

    async def run() -> Any:
        return await story(client)

    try:
        return asyncio.run(run())
    finally:
        client.close()
        client.close()


async def poll(client: ConfluentClient, position: int) -> PollResult:
    return await client.poll("t", 0, position, max_bytes=16384, max_wait_ms=10)


def values(result: PollResult) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for batch in result.batches for record in batch.records]


def test_an_append_with_acks_all_or_one_returns_its_offset_and_one_without_acks_is_unknown(
    mock_cluster: tuple[str, ...],
) -> None:
    async def story(client: ConfluentClient) -> list[Completion]:
        return [
            await client.append("t", 0, b"k", str(acks).encode(), acks) for acks in (-1, 1, 0, -1)
        ]

    one, two, three, four = use(mock_cluster, story)
    assert (one.outcome, one.offset) == (Outcome.OK, 0)
    assert (two.outcome, two.offset) == (Outcome.OK, 1)
    assert (three.outcome, three.offset, three.error) == (Outcome.INFO, None, "no-ack-requested")
    assert four.outcome == Outcome.OK and four.offset is not None and four.offset in (2, 3)


def test_a_poll_returns_what_was_appended_with_its_key(
    mock_cluster: tuple[str, ...],
) -> None:
    async def story(client: ConfluentClient) -> PollResult:
        await client.append("t", 0, b"k", b"value", -1)
        return await poll(client, 0)

    result = use(mock_cluster, story)
    (batch,) = result.batches
    (record,) = batch.records
    assert result.completion.outcome == Outcome.OK
    assert (record.offset, record.key, record.value) == (0, b"k", b"value")
    assert batch.leader_epoch >= 0


def test_only_a_poll_that_reached_the_end_claims_where_the_log_ends(
    mock_cluster: tuple[str, ...],
) -> None:
    async def story(client: ConfluentClient) -> list[PollResult]:
        await client.append("t", 0, b"k", b"a", -1)
        return [await poll(client, 0), await poll(client, 1), await poll(client, 1)]

    first, second, third = use(mock_cluster, story)
    assert values(first) == [(0, b"a")]
    for at_end in (second, third):
        assert at_end.completion == Completion(outcome=Outcome.OK, end_offset=1)
        assert at_end.batches == ()


def test_positions_may_jump_back_and_forth(mock_cluster: tuple[str, ...]) -> None:
    async def story(client: ConfluentClient) -> list[list[tuple[int, bytes | None]]]:
        for number in range(4):
            await client.append("t", 0, b"k", b"%d" % number, -1)
        return [values(await poll(client, position))[:1] for position in (2, 0, 3, 1)]

    assert use(mock_cluster, story) == [[(2, b"2")], [(0, b"0")], [(3, b"3")], [(1, b"1")]]


def test_a_position_beyond_the_end_fails_with_kafkas_code_and_other_reads_continue(
    mock_cluster: tuple[str, ...],
) -> None:
    async def story(client: ConfluentClient) -> tuple[PollResult, PollResult]:
        await client.append("t", 0, b"k", b"a", -1)
        return await poll(client, 50), await poll(client, 0)

    beyond, back = use(mock_cluster, story)
    assert beyond.completion == Completion(
        outcome=Outcome.FAIL, error_code=1, error="OFFSET_OUT_OF_RANGE"
    )
    assert values(back) == [(0, b"a")]


def test_latest_is_the_log_end(mock_cluster: tuple[str, ...]) -> None:
    async def story(client: ConfluentClient) -> Completion:
        for _ in range(3):
            await client.append("t", 0, b"k", b"a", -1)
        return await client.latest("t", 0)

    assert use(mock_cluster, story) == Completion(outcome=Outcome.OK, offset=3)


def test_an_append_without_a_response_is_unknown_and_reads_fail() -> None:
    async def story(client: ConfluentClient) -> list[Completion]:
        appended = await client.append("t", 0, b"k", b"a", -1)
        polled = await poll(client, 0)
        return [appended, polled.completion, await client.latest("t", 0)]

    client = ConfluentClient(None, ("127.0.0.1:9",), request_timeout_ms=200, connect_timeout_ms=200)

    async def run() -> list[Completion]:
        return await story(client)

    try:
        appended, polled, latest = asyncio.run(run())
    finally:
        client.close()
    assert (appended.outcome, appended.error) == (Outcome.INFO, "_MSG_TIMED_OUT")
    assert (polled.outcome, polled.error) == (Outcome.FAIL, "client-timeout")
    assert latest.outcome == Outcome.FAIL and latest.error_code is None


def test_a_record_that_produce_refuses_was_never_sent(mock_cluster: tuple[str, ...]) -> None:
    async def story(client: ConfluentClient) -> Completion:
        return await client.append("t", 0, b"k", bytes(3000), -1)

    refused = use(mock_cluster, story, **{"message.max.bytes": 2000})
    assert (refused.outcome, refused.error) == (Outcome.FAIL, "MESSAGE_TOO_LARGE")


@pytest.mark.parametrize(
    ("acks", "code", "name", "outcome"),
    [
        (-1, 19, "NOT_ENOUGH_REPLICAS", Outcome.INFO),
        (-1, 3, "UNKNOWN_TOPIC_OR_PARTITION", Outcome.INFO),
        (-1, None, "_PURGE_QUEUE", Outcome.INFO),
        (-1, None, "_MSG_TIMED_OUT", Outcome.INFO),
        (1, 19, "NOT_ENOUGH_REPLICAS", Outcome.FAIL),
        (1, None, "_PURGE_QUEUE", Outcome.FAIL),
        (1, None, "_PURGE_INFLIGHT", Outcome.INFO),
        (1, None, "_MSG_TIMED_OUT", Outcome.INFO),
        (1, None, "_TRANSPORT", Outcome.INFO),
        (1, 6, "NOT_LEADER_OR_FOLLOWER", Outcome.INFO),
        (1, 20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", Outcome.INFO),
    ],
)
def test_an_error_is_definite_only_for_a_record_that_was_sent_at_most_once(
    acks: int, code: int | None, name: str, outcome: Outcome
) -> None:
    assert classify_append_error(acks, code, name).outcome == outcome


def test_the_reason_for_an_offset_reset_has_its_own_name() -> None:
    # The texts are those of librdkafka 2.x with auto.offset.reset=error.
    reset = "_AUTO_OFFSET_RESET"
    truncated = (
        "Partition log truncation detected at offset 9 (leader epoch 4): broker end offset is 5"
        " (offset leader epoch 4). Reset to INVALID.: Local: Partition log truncation detected"
    )
    beyond = "fetch failed due to requested offset not available: Broker: Offset out of range"
    assert error_name(-140, reset, truncated) == "LOG_TRUNCATION"
    assert error_name(-140, reset, beyond) == "OFFSET_OUT_OF_RANGE"
    assert error_name(-140, reset, "no previously committed offset available") == reset
    assert error_name(6, "NOT_LEADER_FOR_PARTITION", "") == "NOT_LEADER_OR_FOLLOWER"


def test_without_the_package_one_sentence_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(confluent_library, "confluent_kafka", None)
    with pytest.raises(UsageError, match=r"pip install laststand\[wire\]"):
        ConfluentClient(None, ("127.0.0.1:9",), request_timeout_ms=1, connect_timeout_ms=1)
