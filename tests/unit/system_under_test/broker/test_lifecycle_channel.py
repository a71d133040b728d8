"""A channel keeps one connection, replaces it when it breaks, and does not overload a node that is down."""

import asyncio
import itertools
from typing import Any

import pytest

from system_under_test.broker.channel import Channel
from system_under_test.config import FAST_TIMINGS
from tests.unit.system_under_test.broker.node_fakes import FakeHost, now_ms, run_virtually


class FakeConnection:
    def __init__(self, network: "FakeNetwork", address: str) -> None:
        self.network = network
        self.address = address
        self.is_open = True

    def request(self, message: Any, timeout_ms: float) -> "asyncio.Future[Any]":
        future = asyncio.get_running_loop().create_future()
        if message == "lost":
            future.set_exception(TimeoutError())
        elif message == "reset":
            self.is_open = False
            future.set_exception(ConnectionResetError())
        else:
            future.set_result(f"{message} by {self.address}")
        return future

    def close(self) -> None:
        self.is_open = False


class FakeNetwork:
    def __init__(self) -> None:
        self.error: OSError | None = None
        self.attempts: list[tuple[float, str]] = []
        self.connections: list[FakeConnection] = []

    async def connect(self, address: str, timeout_ms: float) -> FakeConnection:
        assert timeout_ms == FAST_TIMINGS.connection_setup_timeout_ms
        self.attempts.append((now_ms(), address))
        await asyncio.sleep(0.001)
        if self.error is not None:
            raise self.error
        self.connections.append(FakeConnection(self, address))
        return self.connections[-1]


class Bench:
    def __init__(self) -> None:
        self.network = FakeNetwork()
        self.address: str | None = "a:1"
        self.channel = Channel(
            FakeHost(network=self.network), lambda: self.address, FAST_TIMINGS, "test"
        )

    async def send(self, message: str) -> Any:
        return await self.channel.send(message, 100)

    async def failing_send(self, message: str) -> str:
        with pytest.raises((ConnectionError, TimeoutError)) as caught:
            await self.send(message)
        return type(caught.value).__name__


def test_requests_share_one_connection_even_when_they_begin_together() -> None:
    bench = Bench()

    async def scenario() -> None:
        answers = await asyncio.gather(bench.send("x"), bench.send("y"))
        assert answers == ["x by a:1", "y by a:1"]
        assert await bench.send("z") == "z by a:1"

    run_virtually(scenario())
    assert len(bench.network.attempts) == 1


def test_a_timed_out_request_closes_its_connection() -> None:
    bench = Bench()

    async def scenario() -> None:
        assert await bench.failing_send("lost") == "TimeoutError"
        assert not bench.network.connections[0].is_open
        assert await bench.send("x") == "x by a:1"

    run_virtually(scenario())
    assert len(bench.network.connections) == 2


def test_reconnects_back_off_exponentially_up_to_the_limit() -> None:
    bench = Bench()
    bench.network.error = ConnectionRefusedError()

    async def scenario() -> None:
        for _ in range(8):
            assert await bench.failing_send("x") == "ConnectionRefusedError"

    run_virtually(scenario())
    times = [at for at, _ in bench.network.attempts]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps == pytest.approx([11, 21, 41, 81, 101, 101, 101], rel=0.21)


def test_a_success_resets_the_failure_count() -> None:
    bench = Bench()

    async def scenario() -> None:
        bench.network.error = ConnectionRefusedError()
        for _ in range(5):
            await bench.failing_send("x")
        bench.network.error = None
        await bench.send("x")
        await bench.failing_send("reset")
        before = now_ms()
        await bench.send("x")
        assert now_ms() - before <= 1 + 1.2 * FAST_TIMINGS.reconnect_backoff_ms

    run_virtually(scenario())


def test_another_address_is_tried_at_once_and_the_old_connection_closed() -> None:
    bench = Bench()

    async def scenario() -> None:
        await bench.send("x")
        await bench.failing_send("reset")
        bench.address = "b:1"
        before = now_ms()
        assert await bench.send("x") == "x by b:1"
        assert now_ms() - before == pytest.approx(1)
        bench.address = "a:1"
        assert await bench.send("x") == "x by a:1"

    run_virtually(scenario())
    assert [c.is_open for c in bench.network.connections] == [False, False, True]


def test_an_unknown_address_and_an_unreachable_host_are_connection_errors() -> None:
    bench = Bench()

    async def scenario() -> None:
        bench.address = None
        assert await bench.failing_send("x") == "ConnectionError"
        bench.address = "a:1"
        bench.network.error = OSError(113, "No route to host")
        assert await bench.failing_send("x") == "ConnectionError"
        bench.network.error = TimeoutError()
        assert await bench.failing_send("x") == "TimeoutError"

    run_virtually(scenario())


@pytest.mark.parametrize("moment", ["idle", "connecting", "backing off"])
def test_a_closed_channel_sends_nothing(moment: str) -> None:
    bench = Bench()

    async def scenario() -> None:
        if moment == "idle":
            await bench.send("x")
            bench.channel.close()
            assert await bench.failing_send("x") == "ConnectionAbortedError"
            return
        if moment == "backing off":
            bench.network.error = ConnectionRefusedError()
            await bench.failing_send("x")
        sending = asyncio.ensure_future(bench.failing_send("x"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        bench.channel.close()
        assert await sending == "ConnectionAbortedError"

    run_virtually(scenario())
    assert all(not connection.is_open for connection in bench.network.connections)
