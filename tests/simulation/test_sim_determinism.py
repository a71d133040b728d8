"""A run is a function of its seed: same seed, same trace, in any process."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.simulation.randomness import RandomTree
from harness.simulation.trace import Trace, first_difference
from harness.simulation.weather import CALM, draw_weather
from harness.simulation.world import World
from system_under_test.runtime import Host
from tests.simulation.network_helpers import around
from tests.simulation.sim_helpers import MS, Echo, S

ROOT = Path(__file__).parents[2]


class Racer(Echo):
    """Races everything that asyncio can race, and sends to every node."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await super().start()
        for i in range(4):
            self.tasks.add(asyncio.get_running_loop().create_task(self.race(i)))

    async def race(self, i: int) -> None:
        random = self.host.random.stream("race", i)
        peers = [f"n{p}:1" for p in range(4)]
        while True:
            await asyncio.sleep(random.random() * 0.01)
            try:
                async with asyncio.timeout(0.2):
                    connection = await self.host.network.connect(peers[random.randrange(0, 4)], 100)
                    await asyncio.gather(*(connection.request(j, 50) for j in range(3)))
                    connection.close()
            except (OSError, TimeoutError):
                self.host.storage.append("errors", b"x")
            self.host.storage.append("log", bytes(random.randrange(1, 3_000)))
            if random.random() < 0.3:
                await self.host.storage.fsync("log")
            await self.group()

    async def group(self) -> None:
        """Cancels a group: the order in which children are cancelled is that of a set."""

        async def child(j: int) -> None:
            try:
                await asyncio.sleep(1)
            finally:
                self.host.storage.append("cancelled", b"%d" % j)

        async def fails() -> None:
            await asyncio.sleep(0.0001)
            raise ValueError

        try:
            async with asyncio.TaskGroup() as group:
                for j in range(5):
                    group.create_task(child(j))
                group.create_task(fails())
        except* ValueError:
            pass


def race(seed: int, *, stormy: bool, keep_trace: bool = False) -> World:
    weather = draw_weather(RandomTree(seed).stream("swarm")) if stormy else CALM
    world = World(seed, weather=weather, keep_trace=keep_trace)
    names = [f"n{i}" for i in range(4)]
    for name in names:
        world.add_node(name, kind="broker", address=f"{name}:1", main=Racer).start()
    fault = world.random.stream("fault")

    def strike() -> None:
        node = world.nodes[names[fault.randrange(0, 4)]]
        choice = fault.randrange(0, 5)
        if choice == 0 and node.is_alive:
            node.kill()
        elif choice == 1 and node.is_alive:
            node.power_off("draw")
        elif choice == 2:
            token = world.network.stall(f"isolate {node.name}", around(world, node.name))
            world.schedule(world.now + 300 * MS, world.network.heal, token)
        elif choice == 3:
            node.pause()
            world.schedule(world.now + 200 * MS, node.resume)
        for other in world.nodes.values():
            if not other.is_alive:
                other.start()
        world.schedule(world.now + 150 * MS, strike)

    world.schedule(100 * MS, strike)
    world.run_for(1 * S)
    return world


def fingerprint(seed: int, *, stormy: bool) -> tuple[Any, ...]:
    with race(seed, stormy=stormy) as world:
        disks = [
            (path, len(inode.data), bytes(inode.data[:64]))
            for node in world.nodes.values()
            for path, inode in sorted(node.disk.files.items())
        ]
        return world.trace_hash, world.messages, world.callbacks, world.now, disks


@pytest.mark.parametrize("stormy", [False, True])
def test_the_same_seed_gives_the_same_run_twice_in_one_process(stormy: bool) -> None:
    first = fingerprint(11, stormy=stormy)
    fingerprint(12, stormy=stormy)
    assert fingerprint(11, stormy=stormy) == first
    assert first[1] > 500, "the race really ran"


def test_another_seed_gives_another_run() -> None:
    assert fingerprint(1, stormy=True)[0] != fingerprint(2, stormy=True)[0]


def test_the_same_seed_gives_the_same_trace_in_processes_with_different_hash_seeds() -> None:
    program = (
        "import gc, sys\n"
        "gc.set_threshold(int(sys.argv[1]))\n"
        "from tests.simulation.test_sim_determinism import race\n"
        "print([race(seed, stormy=True).trace_hash for seed in (21, 22)])\n"
        "sys.stdout.flush()\n"
        "import os; os._exit(0)\n"
    )
    outputs = []
    for hash_seed, threshold in (("0", "700"), ("1", "7"), ("12345", "100000")):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "EXTRA": "x" * int(hash_seed)}
        done = subprocess.run(
            [sys.executable, "-c", program, threshold],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        outputs.append(done.stdout)
    assert outputs[0].startswith("['")
    assert len(set(outputs)) == 1


def test_draws_from_one_stream_do_not_change_another() -> None:
    one, other = RandomTree(5), RandomTree(5)
    for _ in range(10):
        one.stream("net", "a", "b").random()
    assert one.stream("disk", "a").random() == other.stream("disk", "a").random()
    assert one.stream("a", 1).random() != one.stream("a", "1").random()
    assert one.stream("a/b").random() != one.stream("a", "b").random()
    assert RandomTree(6).stream("disk", "a").random() != other.stream("disk", "a").random()


def test_streams_are_the_same_on_every_machine() -> None:
    assert RandomTree(1).stream("net", "b1", "b2").getrandbits(32) == 1_775_615_769


def test_a_difference_between_two_runs_is_shown_with_its_context() -> None:
    def traced(odd: bool) -> Trace:
        trace = Trace(keep=True)
        for i in range(3_000):
            trace.note(i, "odd" if odd and i == 2_000 else "event", i)
        return trace

    assert first_difference(traced(False), traced(False)) == ""
    report = first_difference(traced(False), traced(True), context=2)
    assert "record 2000" in report
    assert "0.000002000 event 2000" in report
    assert "0.000002000 odd 2000" in report
    assert traced(False).digest != traced(True).digest
    assert traced(False).checkpoints[0] == traced(True).checkpoints[0]
    assert traced(False).checkpoints[-1] != traced(True).checkpoints[-1]


def test_a_kept_trace_describes_the_run_without_memory_addresses() -> None:
    with race(31, stormy=True, keep_trace=True) as world:
        lines = world.trace.lines()
        assert any("net n" in line and "int" in line for line in lines)
        assert any("node n" in line and "start" in line for line in lines)
        assert not any("0x" in line for line in lines)
        assert race(31, stormy=True).trace_hash == world.trace_hash, "keeping changes nothing"
