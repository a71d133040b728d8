"""Administrative requests go to any broker and reach the active controller; tasks do not die silently."""

import asyncio
from typing import Any

import pytest

from harness.defects.requests import elect_request, reassign_request
from system_under_test.broker.forwarding import FORWARDED, ControllerForwarder, refuse
from system_under_test.broker.tasks import TaskScope, Waker
from system_under_test.config import FAST_TIMINGS
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import create_topics_request, millis
from tests.controller_story import list_request, partitions_request
from tests.unit.system_under_test.broker.node_fakes import ScriptedChannel, now_ms, run_virtually


def request(timeout_ms: int = 100) -> Any:
    return create_topics_request.CreateTopicsRequest(
        topics=tuple(
            create_topics_request.CreatableTopic(
                name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
            )
            for name in ("s", "t")
        ),
        timeout=millis(timeout_ms),
    )


def forward(*answers: Any) -> tuple[list[int], float, int]:
    """Returns the error codes, when they came, and how many requests the controller got."""
    script = list(answers)
    channel = ScriptedChannel(lambda _request: script.pop(0) if len(script) > 1 else script[0])
    failures: list[BaseException] = []

    async def scenario() -> tuple[list[int], float, int]:
        forwarder = ControllerForwarder(channel, FAST_TIMINGS, TaskScope(failures.append))
        response = await forwarder.handle(request())
        return [int(topic.error_code) for topic in response.topics], now_ms(), len(channel.sent)

    result: tuple[list[int], float, int] = run_virtually(scenario())
    assert failures == []
    return result


def test_the_controllers_response_is_forwarded_to_the_client() -> None:
    response = refuse(request(), ErrorCode.TOPIC_ALREADY_EXISTS)
    assert forward(response) == ([36, 36], 0, 1)


@pytest.mark.parametrize(
    "obstacle",
    [
        ConnectionResetError(),
        TimeoutError(),
        refuse(request(), ErrorCode.NOT_CONTROLLER),
    ],
    ids=["reset", "timeout", "not-controller"],
)
def test_a_request_is_repeated_until_an_active_controller_responds(obstacle: Any) -> None:
    assert forward(obstacle, refuse(request(), ErrorCode.NONE)) == ([0, 0], 20, 2)


@pytest.mark.parametrize(
    "administration",
    [
        elect_request(("t", 0)),
        elect_request(),
        reassign_request(("t", 0, (1, 2))),
        list_request(("t", 0)),
        partitions_request(("t", 2, None)),
    ],
    ids=["elect", "elect-all", "reassign", "list", "create-partitions"],
)
def test_elections_reassignments_and_new_partitions_are_forwarded_likewise(
    administration: Any,
) -> None:
    refusal = refuse(administration, ErrorCode.NOT_CONTROLLER)
    decision = refuse(administration, ErrorCode.INVALID_REQUEST)
    script = [ConnectionResetError(), refusal, decision]
    channel = ScriptedChannel(lambda _request: script.pop(0))
    failures: list[BaseException] = []

    async def scenario() -> Any:
        forwarder = ControllerForwarder(channel, FAST_TIMINGS, TaskScope(failures.append))
        return await forwarder.handle(administration)

    assert type(administration) in FORWARDED
    assert run_virtually(scenario()) is decision
    assert (len(channel.sent), failures) == (3, [])
    assert refusal != decision


def test_a_request_without_a_response_in_time_has_timed_out() -> None:
    errors, at, asked = forward(ConnectionRefusedError())
    assert errors == [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert at == pytest.approx(100)
    assert asked == 5


def test_a_task_that_fails_notifies_its_owner_and_a_cancelled_one_does_not() -> None:
    failures: list[BaseException] = []

    async def scenario() -> None:
        scope = TaskScope(failures.append)

        async def fail() -> None:
            raise RuntimeError("broken")

        scope.spawn(fail(), "fails")
        waiting = scope.spawn(asyncio.sleep(10), "waits")
        await asyncio.sleep(0.001)
        scope.cancel_all()
        await asyncio.sleep(0)
        assert waiting.cancelled()

    run_virtually(scenario())
    assert [str(error) for error in failures] == ["broken"]


def test_a_scope_does_not_cancel_the_task_that_closes_it() -> None:
    async def scenario() -> str:
        scope = TaskScope(lambda _error: None)

        async def stop_all() -> str:
            scope.cancel_all()
            await asyncio.sleep(0.001)
            return "still here"

        result: str = await scope.spawn(stop_all(), "stops")
        return result

    assert run_virtually(scenario()) == "still here"


def test_a_wait_ends_at_its_timeout_or_when_woken_even_if_woken_early() -> None:
    async def scenario() -> list[float]:
        waker = Waker()
        times = []
        await waker.wait(50)
        times.append(now_ms())
        asyncio.get_running_loop().call_later(0.020, waker.wake)
        await waker.wait(None)
        times.append(now_ms())
        waker.wake()
        waker.wake()
        await waker.wait(1000)
        times.append(now_ms())
        await waker.wait(30)
        times.append(now_ms())
        return times

    assert run_virtually(scenario()) == [50, 70, 70, 100]
