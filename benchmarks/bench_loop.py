"""Measures the bare world: echo requests by reference, six nodes with eight clients each.

Run with `python -m benchmarks.bench_loop [seconds of virtual time] [--profile]`. Prints messages per second of
CPU time; a request and its response are two messages. Compare figures of one machine and one moment only.
"""

import cProfile
import pstats
import sys
from time import process_time
from typing import Any

from harness.simulation.weather import CALM, Weather, draw_weather
from harness.simulation.world import World
from system_under_test.runtime import Host

NODES = 6
CLIENTS_PER_NODE = 8


class EchoServer:
    """Responds to every request with the request itself."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def start(self) -> None:
        """Listens."""
        self._host.network.listen(lambda message, _: message)

    async def stop(self) -> None:
        """Does nothing."""


async def _client(host: Host, address: str) -> None:
    connection = await host.network.connect(address, 1_000)
    while True:
        await connection.request(("payload", 1), 1_000)


def build(seed: int, weather: Weather) -> World:
    """Returns a world in which every node sends requests to its neighbour."""
    world = World(seed, weather=weather)
    names = [f"b{i}" for i in range(NODES)]
    for name in names:
        world.add_node(name, kind="broker", address=f"{name}:1", main=EchoServer).start()
    for i, name in enumerate(names):
        for _ in range(CLIENTS_PER_NODE):
            neighbour = names[(i + 1) % NODES]
            world.spawn(name, _client(world.nodes[name].host, f"{neighbour}:1"))
    return world


def measure(seconds: float, weather: Weather) -> tuple[World, float]:
    """Runs the echo world; returns it with the CPU seconds it took."""
    world = build(1, weather)
    began = process_time()
    world.run_for(int(seconds * 1e9))
    return world, process_time() - began


def main(arguments: list[str]) -> None:
    """Prints the figures in calm and in drawn weather."""
    seconds = float(next((a for a in arguments if not a.startswith("-")), "2"))
    profiler: Any = cProfile.Profile() if "--profile" in arguments else None
    for seed in (None, 3):
        weather = CALM if seed is None else draw_weather(World(seed).random.stream("swarm"))
        # In drawn weather latencies differ a lot; run for a comparable number of round trips.
        scale = (weather.latency_base_ns + weather.latency_tail_ns / 5) / CALM.latency_base_ns
        if profiler is not None:
            profiler.enable()
        world, cpu_s = measure(seconds * scale, weather)
        if profiler is not None:
            profiler.disable()
        print(
            f"{weather.name}: {world.messages} messages, {world.messages / cpu_s:,.0f} messages/s, "
            f"{world.callbacks / cpu_s:,.0f} callbacks/s"
        )
        world.close()
    if profiler is not None:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(22)


if __name__ == "__main__":
    main(sys.argv[1:])
