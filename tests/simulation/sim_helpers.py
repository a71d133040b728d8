"""Small programs and shortcuts that the tests of the simulated world share."""

from collections.abc import Callable, Coroutine
from typing import Any

from harness.simulation.node import SimNode
from harness.simulation.weather import CALM, Weather
from harness.simulation.world import World
from system_under_test.runtime import Host, RequestContext

MS = 1_000_000
S = 1_000_000_000
ONE_WAY = CALM.latency_base_ns
RTT = 2 * ONE_WAY


class Echo:
    """Responds to every request with ("echo", request)."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.received: list[tuple[int, Any]] = []

    async def start(self) -> None:
        self.host.network.listen(self.handle)

    def handle(self, message: Any, context: RequestContext) -> Any:
        self.received.append((self.host.clock.monotonic_ns(), message))
        return ("echo", message)

    async def stop(self) -> None:
        pass


def pair(
    weather: Weather = CALM, seed: int = 1, main: Callable[[Host], Any] = Echo, **world: Any
) -> tuple[World, SimNode, SimNode]:
    """A world with a listening broker b1 and a client k1, both started."""
    world_ = World(seed, weather=weather, **world)
    broker = world_.add_node("b1", kind="broker", address="b1:9092", main=main)
    client = world_.add_node("k1", kind="client", address="k1:1")
    broker.start()
    client.start()
    world_.run_for(0)
    return world_, broker, client


def call(
    world: World, node: str, coroutine: Coroutine[Any, Any, Any], limit_ns: int = 60 * S
) -> Any:
    """Runs a coroutine on a node to its end and returns its result."""
    task = world.spawn(node, coroutine)
    world.run(task.done, limit_ns=limit_ns)
    return task.result()


def outcome(future: Any) -> str:
    """The result of a done future, or the name of its exception, as text."""
    if not future.done():
        return "pending"
    if future.cancelled():
        return "cancelled"
    error = future.exception()
    return repr(future.result()) if error is None else type(error).__name__
