"""Fetches from followers: which node gets them, and what their responses may claim."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from harness.contracts.client import PollResult
from harness.errors import UsageError
from harness.history.op import Outcome
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import fetch_request, metadata_request
from workloads.append_config import AppendConfig
from workloads.clients.native import FOLLOWER_LAGS, NativeClient


def polled(
    choice: float | None, *, error: int = 0, offline: tuple[int, ...] = ()
) -> tuple[PollResult, list[tuple[str, int]]]:
    """Polls a partition whose leader is broker 2; returns the result, and where fetches went with which epoch."""
    fetches: list[tuple[str, int]] = []

    def respond(address: str, message: Any) -> Any:
        if isinstance(message, metadata_request.MetadataRequest):
            partition = SimpleNamespace(
                leader_id=2,
                partition_index=0,
                leader_epoch=5,
                replica_nodes=(3, 2, 1),
                offline_replicas=offline,
            )
            topic = SimpleNamespace(topic_id=UUID(int=1), partitions=[partition])
            brokers = [SimpleNamespace(node_id=n, host=f"b{n}", port=1) for n in (1, 2, 3)]
            return SimpleNamespace(brokers=brokers, topics=[topic])
        assert isinstance(message, fetch_request.FetchRequest)
        fetches.append((address, message.topics[0].partitions[0].current_leader_epoch))
        data = SimpleNamespace(error_code=error, records=b"", high_watermark=7)
        return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[data])])

    async def connect(address: str, timeout_ms: float) -> Any:
        def request(message: Any, timeout_ms: float) -> Any:
            done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            done.set_result(respond(address, message))
            return done

        return SimpleNamespace(is_open=True, request=request)

    async def main() -> PollResult:
        clock = SimpleNamespace(monotonic_ns=lambda: 0)
        host: Any = SimpleNamespace(network=SimpleNamespace(connect=connect), clock=clock)
        client = NativeClient(host, ("b1:1",), request_timeout_ms=9, connect_timeout_ms=9)
        if choice is None:
            return await client.poll("t", 0, 4, max_bytes=100, max_wait_ms=5)
        return await client.poll_follower("t", 0, 4, max_bytes=100, max_wait_ms=5, choice=choice)

    return asyncio.run(main()), fetches


def test_a_fetch_goes_to_the_chosen_follower_with_the_leader_epoch() -> None:
    assert [polled(choice)[1] for choice in (None, 0.0, 0.99)] == [
        [("b2:1", 5)],
        [("b3:1", 5)],
        [("b1:1", 5)],
    ]
    assert polled(0.0, offline=(3,))[1] == [("b1:1", 5)]


def test_a_followers_response_claims_its_high_watermark_but_no_leader_epoch() -> None:
    of_leader, of_follower = polled(None)[0].completion, polled(0.0)[0].completion
    assert (of_leader.node, of_leader.end_offset, of_leader.leader_epoch) == ("b2", 7, 5)
    assert (of_follower.node, of_follower.end_offset, of_follower.leader_epoch) == ("b3", 7, -1)


def test_a_follower_that_lags_does_not_reset_the_position() -> None:
    lags = polled(0.0, error=ErrorCode.OFFSET_OUT_OF_RANGE)[0].completion
    assert (lags.outcome, lags.error, lags.error_code) == (Outcome.FAIL, FOLLOWER_LAGS, 1)
    leader = polled(None, error=ErrorCode.OFFSET_OUT_OF_RANGE)[0].completion
    assert leader.error == "OFFSET_OUT_OF_RANGE"


def test_without_a_follower_nothing_is_sent() -> None:
    result, fetches = polled(0.5, offline=(1, 3))
    assert (result.completion.error, fetches) == ("no-follower-known", [])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"follower_fetch_share": 1.5}, "workload.follower_fetch_share is 1.5; choose 0 to 1"),
        ({"follower_fetch_share": 0.5, "client": "java"}, "needs the client 'native', not 'java'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        AppendConfig(**settings)
