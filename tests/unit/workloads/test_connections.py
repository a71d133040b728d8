"""The connections of native clients: how long they wait before they connect to the same node again."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from workloads.clients.connections import Connections

NODES = ("b1:1", "b2:1", "b3:1")


@dataclass
class FakeNetwork:
    """Nodes that refuse connections or accept them; also the clock, in milliseconds."""

    down: set[str] = field(default_factory=set)
    now_ms: float = 0.0
    attempts: list[tuple[str, float]] = field(default_factory=list)

    async def connect(self, address: str, timeout_ms: float) -> Any:
        self.attempts.append((address, self.now_ms))
        if address in self.down:
            raise ConnectionRefusedError(address)
        connection = SimpleNamespace(is_open=True)
        connection.close = lambda: setattr(connection, "is_open", False)
        connection.request = self._request
        return connection

    def _request(self, message: Any, timeout_ms: float) -> "asyncio.Future[Any]":
        response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if isinstance(message, Exception):
            response.set_exception(message)
        else:
            response.set_result(message)
        return response


def check(story: Callable[[FakeNetwork, Connections], Coroutine[Any, Any, None]]) -> None:
    network = FakeNetwork()
    host: Any = SimpleNamespace(
        network=network,
        clock=SimpleNamespace(monotonic_ns=lambda: int(network.now_ms * 1e6)),
        random=SimpleNamespace(stream=lambda _: SimpleNamespace(random=lambda: 0.5)),
    )
    asyncio.run(story(network, Connections(host, NODES, 300)))


def test_waits_grow_while_a_node_refuses_and_begin_anew_after_a_connection() -> None:
    async def story(network: FakeNetwork, connections: Connections) -> None:
        network.down = {"b1:1"}
        for network.now_ms in range(3000):
            assert await connections.open("b1:1") is None
        times = [at for _, at in network.attempts]
        assert times == [0, 50, 150, 350, 750, 1550, 2550]
        network.down, network.now_ms = set(), 3550
        connection = await connections.open("b1:1")
        assert connection is not None
        # The same one, until it breaks; then the waits are short again.
        assert await connections.open("b1:1") is connection
        assert await connections.request("b1:1", connection, TimeoutError(), 1) == "client-timeout"
        assert await connections.open("b1:1") is None
        network.now_ms += 50
        assert await connections.open("b1:1") not in (None, connection)

    check(story)


def test_another_node_does_not_wait() -> None:
    async def story(network: FakeNetwork, connections: Connections) -> None:
        network.down = {"b1:1"}
        assert await connections.open("b1:1") is None
        assert await connections.open("b2:1") is not None

    check(story)


def test_a_request_reports_how_its_connection_ended() -> None:
    async def story(network: FakeNetwork, connections: Connections) -> None:
        connection = await connections.open("b1:1")
        assert connection is not None
        assert await connections.request("b1:1", connection, "response", 1) == "response"
        broken = await connections.request("b1:1", connection, ConnectionResetError(), 1)
        assert (broken, connection.is_open) == ("connection-lost", False)

    check(story)


def test_brokers_in_turn_without_those_that_cannot_be_reached() -> None:
    async def story(network: FakeNetwork, connections: Connections) -> None:
        assert [connections.next_broker() for _ in range(4)] == ["b1:1", "b2:1", "b3:1", "b1:1"]
        network.down = {"b2:1"}
        assert await connections.open("b2:1") is None
        assert [connections.next_broker() for _ in range(3)] == ["b3:1", "b1:1", "b3:1"]
        network.down = set(NODES)
        for node in NODES:
            await connections.open(node)
        assert connections.next_broker() in NODES
        # After the wait it is their turn again.
        network.now_ms = 60
        assert {connections.next_broker() for _ in range(3)} == set(NODES)

    check(story)
