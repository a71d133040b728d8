"""Processes of the simulated world: how they start, pause and end."""

import asyncio
import contextlib
import errno
import gc
from typing import Any

import pytest

from harness.simulation.errors import NodeIsDead, SimulationError
from harness.simulation.node import SimNode
from harness.simulation.weather import CALM, Weather
from harness.simulation.world import World
from system_under_test.runtime import Host
from tests.simulation.sim_helpers import MS, Echo, S, call, pair


class Worker:
    """Writes a line every 100 ms, and one when it is stopped or unwound."""

    instances: list["Worker"]

    def __init__(self, host: Host) -> None:
        self.host = host
        self.task: asyncio.Task[None] | None = None
        self.unwound = False

    async def start(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self.work())

    async def work(self) -> None:
        try:
            while True:
                await asyncio.sleep(0.1)
                self.host.storage.append("lines", b"w")
        finally:
            self.unwound = True
            with contextlib.suppress(NodeIsDead):
                self.host.storage.append("lines", b"flushed-on-crash!")

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
        self.host.storage.append("lines", b"!")


def worker(weather: Weather = CALM) -> tuple[World, SimNode]:
    world = World(1, weather=weather)
    node = world.add_node("b1", kind="broker", address="b1:1", main=Worker)
    node.start()
    return world, node


def test_a_program_runs_from_start_to_a_clean_stop() -> None:
    world, node = worker()
    exits: list[tuple[str, str]] = []
    node.on_exit.append(lambda n, reason: exits.append((n.name, reason)))
    assert (node.state, node.incarnation) == ("running", 1)
    world.run_for(1_050 * MS)
    node.stop(grace_ms=1_000)
    assert node.state == "stopping"
    world.run_for(10 * MS)
    assert node.disk.read("lines") == b"w" * 10 + b"flushed-on-crash!" + b"!"
    assert node.state == "dead"
    assert exits == [("b1", "stopped")]


def test_a_stop_that_takes_too_long_becomes_a_kill() -> None:
    class Stubborn(Worker):
        async def stop(self) -> None:
            await asyncio.sleep(1_000)

    world = World(1)
    node = world.add_node("b1", kind="broker", address="b1:1", main=Stubborn)
    node.start()
    exits: list[str] = []
    node.on_exit.append(lambda _, reason: exits.append(reason))
    node.stop(grace_ms=2_000)
    world.run_for(2 * S)
    assert exits == ["stop-timeout"]
    assert node.state == "dead"


@pytest.mark.parametrize("how", ["kill", "power_off"])
def test_dead_processes_run_no_code_not_even_finally(how: str) -> None:
    """Dropping a suspended coroutine runs its finally blocks; a killed machine must not flush then."""
    world, node = worker()
    exits: list[str] = []
    node.on_exit.append(lambda _, reason: exits.append(reason))
    world.run_for(550 * MS)
    process = node.process
    assert isinstance(process, Worker)
    if how == "kill":
        node.kill()
    else:
        node.power_off("keep_all")
    process.task = None
    gc.collect()
    world.run_for(10 * S)
    gc.collect()
    assert not process.unwound
    assert node.disk.read("lines") == b"w" * 5
    assert exits == ["killed" if how == "kill" else "power-off"]
    assert node.state == ("dead" if how == "kill" else "off")
    world.close()
    assert process.unwound, "closing the world puts the coroutine away,"
    assert node.disk.read("lines") == b"w" * 5, "and its doors are shut"


def test_a_coroutine_that_awaits_while_it_is_closed_is_still_closed() -> None:
    class Clinging(Worker):
        async def work(self) -> None:
            try:
                await asyncio.sleep(1_000)
            finally:
                await asyncio.sleep(1_000)

    world = World(1)
    node = world.add_node("b1", kind="broker", address="b1:1", main=Clinging)
    node.start()
    world.run_for(1 * S)
    process = node.process
    assert isinstance(process, Clinging)
    assert process.task is not None
    coroutine: Any = process.task.get_coro()
    world.close()
    assert coroutine.cr_frame is None


def test_a_process_killed_from_within_stops_at_the_current_callback() -> None:
    world, node = worker()
    seen: list[str] = []

    async def suicidal() -> None:
        seen.append("before")
        node.kill()
        with contextlib.suppress(NodeIsDead):
            node.host.storage.append("lines", b"posthumous")
        seen.append("rest of the callback")
        await asyncio.sleep(0)
        seen.append("never")

    async def neighbour() -> None:
        seen.append("never either")

    world.spawn("b1", suicidal())
    world.spawn("b1", neighbour())
    world.run_for(1 * S)
    assert seen == ["before", "rest of the callback"]
    assert not node.disk.exists("lines")


def test_a_restart_is_a_new_incarnation_on_the_same_disk() -> None:
    world, node = worker()
    world.run_for(250 * MS)
    old = node.host
    node.kill()
    node.start()
    assert node.incarnation == 2
    assert node.loop is not old.storage
    world.run_for(250 * MS)
    assert node.disk.read("lines") == b"wwww"
    with pytest.raises(NodeIsDead):
        old.storage.append("lines", b"ghost")
    with pytest.raises(NodeIsDead):
        old.network.listen(lambda m, c: m)
    with pytest.raises(SimulationError, match="running and cannot be started"):
        node.start()


def test_pause_stops_the_process_and_resume_fires_expired_timers_in_due_order() -> None:
    world, node = worker()
    fired: list[tuple[str, int]] = []
    iterations: list[int] = []
    with world.inside(node.loop):
        for delay in (3.0, 1.0, 2.0, 60.0):
            node.loop.call_later(delay, lambda d=delay: fired.append((str(d), world.now)))
    world.run_for(500 * MS)
    node.pause()
    assert node.state == "paused"
    lines = node.disk.size("lines")
    before = node.host.clock.monotonic_ns()
    world.run_for(10 * S)
    assert fired == []
    assert node.disk.size("lines") == lines
    assert node.host.clock.monotonic_ns() - before == 10 * S, "the clock goes on"
    node.resume()
    iterations.append(world.callbacks)
    world.run_for(0)
    assert [name for name, _ in fired] == ["1.0", "2.0", "3.0"]
    assert {at for _, at in fired} == {world.now}
    world.run_for(100 * S)
    assert fired[-1][0] == "60.0"


def test_a_stop_during_a_pause_is_received_at_resume() -> None:
    world, node = worker()
    world.run_for(150 * MS)
    node.pause()
    node.stop(grace_ms=60_000)
    world.run_for(5 * S)
    assert node.state == "paused"
    node.resume()
    assert node.state == "stopping"
    world.run_for(10 * MS)
    assert node.state == "dead"
    assert node.disk.read("lines").endswith(b"!!")


def test_a_paused_process_can_be_killed() -> None:
    world, node = worker()
    node.pause()
    world.run_for(1 * S)
    node.kill()
    assert node.state == "dead"
    world.run_for(1 * S)
    assert not node.disk.exists("lines")


def test_a_process_that_cannot_start_is_dead_and_reports_why() -> None:
    class Broken(Worker):
        async def start(self) -> None:
            raise RuntimeError("bad configuration")

    world = World(1)
    world.raise_on_failure = False
    node = world.add_node("b1", kind="broker", address="b1:1", main=Broken)
    node.start()
    world.run_for(1 * S)
    assert node.state == "dead"
    assert isinstance(node.crash, RuntimeError)
    assert [failure.node for failure in world.failures] == ["b1"]


@pytest.mark.parametrize(
    ("error", "is_failure"),
    [
        (OSError(errno.EIO, "disk"), False),
        (OSError(errno.ENOSPC, "full"), False),
        (SystemExit(1), False),
        (ConnectionResetError("unhandled"), True),
        (KeyError("bug"), True),
    ],
)
def test_a_process_may_die_because_of_its_disk_or_on_purpose_but_not_because_of_a_bug(
    error: BaseException, is_failure: bool
) -> None:
    class Dies(Worker):
        async def work(self) -> None:
            await asyncio.sleep(0.5)
            raise error

    world = World(1)
    world.raise_on_failure = False
    node = world.add_node("b1", kind="broker", address="b1:1", main=Dies)
    exits: list[str] = []
    node.on_exit.append(lambda _, reason: exits.append(reason))
    node.start()
    world.run_for(1 * S)
    assert node.crash is error
    assert exits == ["crashed"]
    assert bool(world.failures) is is_failure
    node.start()
    assert node.crash is None


def test_each_boot_starts_the_monotonic_clock_elsewhere_and_a_restart_does_not() -> None:
    world, node = worker()
    first = node.host.clock.monotonic_ns()
    node.kill()
    node.start()
    assert node.host.clock.monotonic_ns() == first
    node.power_off("lose_all")
    node.start()
    assert abs(node.host.clock.monotonic_ns() - first) >= 1 * S
    other = world.add_node("b2", kind="broker", address="b2:1")
    other.start()
    assert abs(other.host.clock.monotonic_ns() - first) >= 1 * S


def test_the_wall_clock_steps_and_slides_and_the_monotonic_one_does_not() -> None:
    world, node = worker()
    clock = node.host.clock
    wall, monotonic = clock.wall_ms(), clock.monotonic_ns()
    node.clock.step_wall(-5_000)
    assert clock.wall_ms() == wall - 5_000
    node.clock.slide_wall(1_000, over_ns=10 * S)
    world.run_for(5 * S)
    assert clock.wall_ms() == wall + 5_000 - 5_000 + 500
    node.clock.correct_wall()
    assert clock.wall_ms() == wall + 5_000
    assert clock.monotonic_ns() == monotonic + 5 * S


def test_a_fast_clock_makes_timers_early_in_true_time_including_pending_ones() -> None:
    world, _, client = pair()
    task = world.spawn("k1", asyncio.sleep(10))
    world.run_for(5 * S)
    client.set_clock_drift(200_000)  # 20 %: a broken clock
    world.run(task.done, limit_ns=60 * S)
    assert world.now == pytest.approx(5 * S + 5 * S / 1.2, abs=MS)
    with pytest.raises(ValueError, match="stop the clock"):
        client.set_clock_drift(-1_000_000)


def test_cpu_time_makes_a_node_late_and_a_slow_cpu_later() -> None:
    def duration(weather: Weather, factor: float) -> int:
        world, _, client = pair(weather)
        client.slow_cpu(factor)

        async def spins() -> None:
            for _ in range(100):
                await asyncio.sleep(0)

        began = world.now
        call(world, "k1", spins())
        return world.now - began

    assert duration(CALM, 1.0) == 0
    busy = Weather(name="busy", cpu_ns_per_callback=10_000)
    assert duration(busy, 1.0) == pytest.approx(100 * 10_000, rel=0.05)
    assert duration(busy, 5.0) == pytest.approx(5 * 100 * 10_000, rel=0.05)
    assert duration(CALM, 3.0) == pytest.approx(3 * 100 * 10_000, rel=0.05)


def test_buggify_is_off_in_calm_and_fires_for_some_points_otherwise() -> None:
    _, _, calm = pair()
    assert not any(calm.host.random.buggify(f"p{i % 20}") for i in range(2_000))
    world, _, client = pair(Weather(name="bugs", buggify=True))
    fired = [sum(client.host.random.buggify(f"p{p}") for _ in range(200)) for p in range(40)]
    active = [count for count in fired if count]
    assert 4 <= len(active) <= 18, "a quarter of the points"
    assert all(8 <= count <= 70 for count in active), "10 to 25 % of the time"
    assert sum(world.random.buggify_fired.values()) == sum(fired)


def test_a_random_source_gives_one_stream_per_name() -> None:
    _, broker, client = pair(main=Echo)
    stream = client.host.random.stream("jitter", 1)
    assert client.host.random.stream("jitter", 1) is stream
    draws = {
        tuple(s.random() for _ in range(3))
        for s in (
            stream,
            client.host.random.stream("jitter", 2),
            client.host.random.stream("jitter"),
            broker.host.random.stream("jitter", 1),
        )
    }
    assert len(draws) == 4
