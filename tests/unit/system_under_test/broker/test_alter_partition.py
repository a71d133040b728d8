"""The AlterPartition client: one request in flight, one proposal per partition, resent until a response."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from system_under_test.broker.alter_partition import AlterPartitionManager
from system_under_test.broker.interfaces import IsrProposal, IsrResponse
from system_under_test.config import FAST_TIMINGS
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import NO_THROTTLE, alter_partition_response
from tests.unit.system_under_test.broker.node_fakes import (
    FakeHost,
    ScriptedChannel,
    broker_config,
    run_virtually,
)

TOPIC = UUID(int=100)
RETRY_MS = FAST_TIMINGS.alter_partition_retry_ms


def proposal(index: int = 0, **changes: Any) -> IsrProposal:
    fields: dict[str, Any] = {
        "topic": "t",
        "topic_id": TOPIC,
        "partition": index,
        "leader_epoch": 5,
        "partition_epoch": 9,
        "isr_with_epochs": ((1, 41), (2, -1)),
        "leader_recovery_state": 0,
    }
    return IsrProposal(**(fields | changes))


def answer(request: Any, errors: dict[int, ErrorCode] | None = None, top: int = 0) -> Any:
    """Accepts every proposal of a request except those in `errors`."""
    errors = errors or {}
    return alter_partition_response.AlterPartitionResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode(top),
        topics=tuple(
            alter_partition_response.TopicData(
                topic_id=topic.topic_id,
                partitions=tuple(
                    alter_partition_response.PartitionData(
                        partition_index=data.partition_index,
                        error_code=errors.get(data.partition_index, ErrorCode.NONE),
                        leader_id=1,
                        leader_epoch=data.leader_epoch,
                        isr=tuple(member.broker_id for member in data.new_isr_with_epochs),
                        partition_epoch=data.partition_epoch + 1,
                    )
                    for data in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


class Bench:
    """A running client with a scripted controller."""

    def __init__(self, controller: Any) -> None:
        self.channel = ScriptedChannel(controller)
        self.host = FakeHost()
        self.manager = AlterPartitionManager(
            self.host,
            broker_config(),
            self.channel,
            lambda: 41,
        )
        self.answers: list[IsrResponse] = []

    def submit(self, index: int = 0) -> bool:
        return self.manager.submit(proposal(index), self.answers.append)

    async def run_for(self, seconds: float) -> None:
        task = asyncio.ensure_future(self.manager.run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def partitions_sent(self) -> list[list[int]]:
        return [
            [data.partition_index for topic in request.topics for data in topic.partitions]
            for _, request in self.channel.sent
        ]


def test_a_proposal_carries_epochs_and_receives_its_response() -> None:
    """AP-1: the epochs of the broker, the leader, the partition and the members."""
    bench = Bench(answer)
    assert bench.submit()
    run_virtually(bench.run_for(0.01))
    ((_, request),) = bench.channel.sent
    assert (request.broker_id, request.broker_epoch) == (1, 41)
    (data,) = request.topics[0].partitions
    assert (data.leader_epoch, data.partition_epoch) == (5, 9)
    assert [(m.broker_id, m.broker_epoch) for m in data.new_isr_with_epochs] == [(1, 41), (2, -1)]
    (result,) = bench.answers
    assert (result.error, result.isr, result.partition_epoch) == (ErrorCode.NONE, (1, 2), 10)
    assert bench.manager.pending_count == 0


def test_a_second_proposal_of_a_partition_is_refused_until_the_first_has_a_response() -> None:
    """AP-2: one proposal per partition."""
    bench = Bench(answer)
    assert bench.submit()
    assert not bench.submit()
    assert bench.submit(index=1)
    run_virtually(bench.run_for(0.01))
    assert bench.partitions_sent() == [[0, 1]]
    assert bench.submit()


def test_one_request_is_in_flight_and_the_rest_waits_for_it() -> None:
    """AP-2: one request per broker."""

    async def scenario() -> None:
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def controller(request: Any) -> Any:
            await gate
            return answer(request)

        bench = Bench(controller)
        bench.submit(0)
        task = asyncio.ensure_future(bench.manager.run())
        await asyncio.sleep(0.01)
        bench.submit(1)
        bench.submit(2)
        await asyncio.sleep(0.01)
        assert bench.partitions_sent() == [[0]]
        gate.set_result(None)
        await asyncio.sleep(0.001)
        assert bench.partitions_sent() == [[0], [1, 2]]
        assert len(bench.answers) == 3
        task.cancel()

    run_virtually(scenario())


@pytest.mark.parametrize(
    "obstacle",
    [
        ConnectionResetError(),
        TimeoutError(),
        "top-level",
        ErrorCode.NOT_CONTROLLER,
        "missing",
    ],
    ids=str,
)
def test_an_undecided_proposal_is_sent_again_after_a_pause(obstacle: Any) -> None:
    def controller(request: Any) -> Any:
        if len(bench.channel.sent) > 1:
            return answer(request)
        if obstacle == "top-level":
            return answer(request, top=ErrorCode.STALE_BROKER_EPOCH)
        if obstacle == "missing":
            return alter_partition_response.AlterPartitionResponse(
                throttle_time=NO_THROTTLE, error_code=ErrorCode.NONE, topics=()
            )
        if isinstance(obstacle, ErrorCode):
            return answer(request, errors={0: obstacle})
        return obstacle

    bench = Bench(controller)
    bench.submit()
    run_virtually(bench.run_for(0.1))
    assert [at for at, _ in bench.channel.sent] == [0, RETRY_MS]
    assert bench.channel.sent[0][1] == bench.channel.sent[1][1]
    assert [a.error for a in bench.answers] == [ErrorCode.NONE]


def test_a_refusal_reaches_its_partition_only_and_the_other_one_is_done() -> None:
    bench = Bench(lambda request: answer(request, errors={1: ErrorCode.INVALID_UPDATE_VERSION}))
    bench.submit(0)
    bench.submit(1)
    run_virtually(bench.run_for(0.1))
    assert [a.error for a in bench.answers] == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]
    assert len(bench.channel.sent) == 1


def test_an_owner_may_propose_again_from_the_response_callback_but_not_in_a_tight_loop() -> None:
    bench = Bench(lambda request: answer(request, errors={0: ErrorCode.UNKNOWN_SERVER_ERROR}))

    def again(_answer: IsrResponse) -> None:
        assert bench.manager.submit(proposal(), again)

    bench.manager.submit(proposal(), again)
    run_virtually(bench.run_for(0.09))
    assert [at for at, _ in bench.channel.sent] == [0, 20, 40, 60, 80]
