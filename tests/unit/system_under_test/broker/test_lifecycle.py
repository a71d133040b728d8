"""The broker's registration, heartbeats, fencing and orderly stop, against a scripted controller."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from system_under_test.broker.lifecycle import (
    BrokerExit,
    BrokerLifecycle,
    BrokerState,
    LifecycleHooks,
)
from system_under_test.config import FAST_TIMINGS
from system_under_test.invariants import InvariantViolation
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    NO_THROTTLE,
    broker_heartbeat_response,
    broker_registration_response,
    message_name,
)
from tests.unit.system_under_test.broker.node_fakes import (
    FakeHost,
    ScriptedChannel,
    broker_config,
    now_ms,
    run_virtually,
)

DIRECTORY = UUID(int=7)


def registered(epoch: int = 41) -> Any:
    return broker_registration_response.BrokerRegistrationResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.NONE, broker_epoch=epoch
    )


def refused(error: ErrorCode) -> Any:
    return broker_registration_response.BrokerRegistrationResponse(
        throttle_time=NO_THROTTLE, error_code=error
    )


def beat(
    *,
    error: ErrorCode = ErrorCode.NONE,
    caught_up: bool = True,
    fenced: bool = False,
    shut_down: bool = False,
) -> Any:
    return broker_heartbeat_response.BrokerHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=error,
        is_caught_up=caught_up,
        is_fenced=fenced,
        should_shut_down=shut_down,
    )


class Story:
    """One broker and its controller."""

    def __init__(self, controller: Callable[["Story", Any], Any]) -> None:
        self.host = FakeHost()
        self.events: list[str] = []
        self.offset = 3
        self.channel = ScriptedChannel(lambda message: controller(self, message))
        self.lifecycle = BrokerLifecycle(
            self.host,
            broker_config(),
            self.channel,
            directory_ids=(DIRECTORY,),
            previous_broker_epoch=17,
            hooks=LifecycleHooks(
                metadata_offset=lambda: self.offset,
                on_caught_up=lambda: self.events.append("published"),
                on_leaving=lambda: self.events.append("leaving"),
            ),
        )

    def sent(self, kind: str) -> list[Any]:
        return [message for _, message in self.channel.sent if message_name(message) == kind]

    def times(self, kind: str) -> list[float]:
        return [at for at, message in self.channel.sent if message_name(message) == kind]

    async def run_for(self, seconds: float) -> None:
        task = asyncio.ensure_future(self.lifecycle.run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def good_controller(story: Story, message: Any) -> Any:
    if message_name(message) == "BrokerRegistrationRequest":
        return registered()
    return beat(caught_up=message.current_metadata_offset >= 3, fenced=message.want_fence)


def test_registration_names_the_incarnation_its_directories_and_the_clean_epoch() -> None:
    story = Story(good_controller)
    run_virtually(story.run_for(0.05))
    (request,) = story.sent("BrokerRegistrationRequest")
    assert request.broker_id == 1
    assert request.previous_broker_epoch == 17
    assert request.log_dirs == (DIRECTORY,)
    assert request.incarnation_id == story.lifecycle.incarnation_id
    assert (request.listeners[0].host, request.listeners[0].port) == ("b1", 9092)
    assert story.lifecycle.broker_epoch == 41


def test_registration_is_retried_with_doubling_delays_up_to_the_session_timeout() -> None:
    """The session of the previous incarnation must expire first (REG-1): 101 is retried."""

    def controller(story: Story, message: Any) -> Any:
        if message_name(message) != "BrokerRegistrationRequest":
            return good_controller(story, message)
        if len(story.times("BrokerRegistrationRequest")) == 1:
            return TimeoutError()
        if len(story.times("BrokerRegistrationRequest")) <= 5:
            return refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        return registered()

    story = Story(controller)
    run_virtually(story.run_for(5))
    times = story.times("BrokerRegistrationRequest")
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps == pytest.approx([100, 200, 400, 600, 600], rel=0.021)
    incarnations = {r.incarnation_id for r in story.sent("BrokerRegistrationRequest")}
    assert len(incarnations) == 1
    assert story.lifecycle.state is BrokerState.RUNNING
    assert story.host.observer.names.count("registration-refused") == 4


def test_a_broker_that_cannot_register_in_time_exits_and_reports_why() -> None:
    story = Story(lambda _story, _message: refused(ErrorCode.INCONSISTENT_CLUSTER_ID))
    with pytest.raises(BrokerExit, match="could not register in time: INCONSISTENT_CLUSTER_ID"):
        run_virtually(story.lifecycle.run())


def test_nothing_is_published_before_the_controller_reports_the_broker_as_caught_up() -> None:
    """LIFE-1 steps 5 to 8: fenced heartbeats every 10 ms until caught up, then publish, then unfence."""
    story = Story(good_controller)
    story.offset = 2

    async def scenario() -> None:
        task = asyncio.ensure_future(story.lifecycle.run())
        await asyncio.sleep(0.045)
        assert story.events == []
        assert story.lifecycle.state is BrokerState.STARTING
        beats = story.sent("BrokerHeartbeatRequest")
        assert len(beats) == 5
        assert all(request.want_fence for request in beats)
        story.offset = 3
        await asyncio.sleep(0.010)
        assert story.events == ["published"]
        assert not story.sent("BrokerHeartbeatRequest")[-1].want_fence
        assert story.lifecycle.state is BrokerState.RUNNING
        task.cancel()

    run_virtually(scenario())


def test_the_broker_is_running_only_when_it_is_unfenced() -> None:
    def controller(story: Story, message: Any) -> Any:
        if message_name(message) == "BrokerRegistrationRequest":
            return registered()
        return beat(fenced=now_ms() < 350)

    story = Story(controller)

    async def scenario() -> None:
        task = asyncio.ensure_future(story.lifecycle.run())
        await asyncio.sleep(0.250)
        assert story.lifecycle.state is BrokerState.RECOVERY
        await asyncio.sleep(0.250)
        assert story.lifecycle.state is BrokerState.RUNNING
        task.cancel()

    run_virtually(scenario())


def test_heartbeats_are_sent_at_the_interval_and_back_off_on_errors() -> None:
    def controller(story: Story, message: Any) -> Any:
        if 250 < now_ms() < 350:
            return TimeoutError()
        if 350 < now_ms() < 700:
            return beat(error=ErrorCode.UNKNOWN_SERVER_ERROR)
        return good_controller(story, message)

    story = Story(controller)
    run_virtually(story.run_for(1.35))
    times = story.times("BrokerHeartbeatRequest")
    # Caught up and unfenced at 0; 300, 400 and 600 fail; 1000 works; then the interval again.
    expected = [0, 0, 100, 200, 300, 400, 600, 1000, 1100, 1200, 1300]
    assert times == pytest.approx(expected, abs=15)


def test_a_heartbeat_finds_a_new_controller_without_the_long_back_off() -> None:
    def controller(story: Story, message: Any) -> Any:
        if 250 < now_ms() < 330:
            return ConnectionResetError()
        if 330 < now_ms() < 370:
            return beat(error=ErrorCode.NOT_CONTROLLER)
        return good_controller(story, message)

    story = Story(controller)
    run_virtually(story.run_for(0.55))
    times = story.times("BrokerHeartbeatRequest")
    assert times == pytest.approx([0, 0, 100, 200, 300, 320, 340, 360, 380, 480], abs=0.1)


def test_an_attempt_without_any_controller_ends_after_half_a_session() -> None:
    def controller(story: Story, message: Any) -> Any:
        if now_ms() > 250:
            return ConnectionRefusedError()
        return good_controller(story, message)

    story = Story(controller)
    run_virtually(story.run_for(0.69))
    attempts = [at for at in story.times("BrokerHeartbeatRequest") if at > 250]
    assert len(attempts) == 15  # every 20 ms for 300 ms, then silence for 100 ms
    assert attempts[-1] == pytest.approx(580)


def test_a_superseded_broker_exits() -> None:
    def controller(story: Story, message: Any) -> Any:
        if now_ms() > 500:
            return beat(error=ErrorCode.STALE_BROKER_EPOCH)
        return good_controller(story, message)

    story = Story(controller)
    with pytest.raises(BrokerExit, match="superseded"):
        run_virtually(story.lifecycle.run())
    assert "broker-superseded" in story.host.observer.names


def shutting_down_after(answers: int) -> Callable[[Story, Any], Any]:
    def controller(story: Story, message: Any) -> Any:
        if message_name(message) == "BrokerRegistrationRequest":
            return registered()
        asked = sum(r.want_shut_down for r in story.sent("BrokerHeartbeatRequest"))
        return beat(fenced=message.want_fence, shut_down=message.want_shut_down and asked > answers)

    return controller


def test_a_controlled_shutdown_waits_for_permission_and_retries_quickly_only_once() -> None:
    story = Story(shutting_down_after(2))

    async def scenario() -> tuple[float, float]:
        task = asyncio.ensure_future(story.lifecycle.run())
        await asyncio.sleep(0.350)
        began = now_ms()
        await story.lifecycle.controlled_shutdown()
        ended = now_ms()
        await asyncio.wait_for(task, 1)  # the heartbeats end by themselves
        return began, ended

    began, ended = run_virtually(scenario())
    asked = [
        at
        for at, message in story.channel.sent
        if message_name(message) == "BrokerHeartbeatRequest" and message.want_shut_down
    ]
    # At once, 50 ms later, then at the interval; the third response permits it.
    assert asked == pytest.approx([began, began + 50, began + 150])
    assert ended == pytest.approx(began + 150)
    assert story.events == ["published", "leaving"]
    assert story.lifecycle.state is BrokerState.SHUTTING_DOWN
    assert story.times("BrokerHeartbeatRequest")[-1] == asked[-1]


def test_a_controlled_shutdown_without_permission_continues_after_its_timeout() -> None:
    story = Story(shutting_down_after(10**9))

    async def scenario() -> float:
        task = asyncio.ensure_future(story.lifecycle.run())
        await asyncio.sleep(0.350)
        began = now_ms()
        await story.lifecycle.controlled_shutdown()
        ended = now_ms()
        await asyncio.wait_for(task, 1)
        return ended - began

    assert run_virtually(scenario()) == FAST_TIMINGS.controlled_shutdown_timeout_ms
    assert "controlled-shutdown-timed-out" in story.host.observer.names


def test_a_broker_that_is_not_in_service_stops_at_once() -> None:
    story = Story(lambda _story, _message: ConnectionRefusedError())

    async def scenario() -> float:
        task = asyncio.ensure_future(story.lifecycle.run())
        await asyncio.sleep(0.050)
        began = now_ms()
        await story.lifecycle.controlled_shutdown()
        ended = now_ms()
        task.cancel()
        return ended - began

    assert run_virtually(scenario()) == 0
    assert story.events == []


def test_a_broker_that_is_stopped_while_it_registers_waits_until_it_knows_its_epoch() -> None:
    """CS-5: its next start has to prove that this incarnation ended cleanly."""

    def controller(story: Story, message: Any) -> Any:
        return asyncio.sleep(0.01, good_controller(story, message))

    story = Story(controller)

    async def scenario() -> None:
        task = asyncio.ensure_future(story.lifecycle.run())
        await asyncio.sleep(0)
        assert story.lifecycle.broker_epoch == -1
        await story.lifecycle.controlled_shutdown()
        task.cancel()

    run_virtually(scenario())
    assert len(story.times("BrokerRegistrationRequest")) == 1
    assert story.lifecycle.broker_epoch > 0


def test_a_broker_that_is_stopped_before_its_lifecycle_runs_does_not_register() -> None:
    story = Story(good_controller)

    async def scenario() -> None:
        await story.lifecycle.controlled_shutdown()
        await story.lifecycle.run()

    run_virtually(scenario())
    assert story.lifecycle.state is BrokerState.SHUTTING_DOWN
    assert story.channel.sent == []


def test_a_broker_is_shut_down_only_once() -> None:
    story = Story(good_controller)

    async def scenario() -> None:
        await story.lifecycle.controlled_shutdown()
        await story.lifecycle.controlled_shutdown()

    with pytest.raises(InvariantViolation, match="INV-12"):
        run_virtually(scenario())


def test_a_failed_directory_is_reported_at_once_and_with_every_later_heartbeat() -> None:
    async def main(story: Story) -> None:
        asyncio.get_running_loop().call_later(0.25, story.lifecycle.directory_failed, DIRECTORY)
        await story.run_for(0.5)

    story = Story(good_controller)
    run_virtually(main(story))
    reports = [
        (at, message.offline_log_dirs)
        for at, message in story.channel.sent
        if message_name(message) == "BrokerHeartbeatRequest"
    ]
    assert {directories for at, directories in reports if at < 250} == {()}
    assert min(at for at, directories in reports if directories) == pytest.approx(250, abs=1)
    assert {directories for at, directories in reports if at >= 250} == {(DIRECTORY,)}
    assert story.lifecycle.state is BrokerState.RUNNING


def test_a_broker_that_cannot_report_a_failed_directory_in_time_exits() -> None:
    def controller(story: Story, message: Any) -> Any:
        if getattr(message, "offline_log_dirs", ()):
            return TimeoutError()
        return good_controller(story, message)

    async def main(story: Story) -> None:
        asyncio.get_running_loop().call_later(0.25, story.lifecycle.directory_failed, DIRECTORY)
        with pytest.raises(BrokerExit, match="could not report the failure of log directory"):
            await story.lifecycle.run()
        assert 3.25 <= asyncio.get_running_loop().time() < 4.5

    run_virtually(main(Story(controller)))
