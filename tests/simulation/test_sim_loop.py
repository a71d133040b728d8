"""The simulated loop behaves as a real one: one program on both, one output."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from harness.simulation.errors import ForbiddenInSimulation
from harness.simulation.weather import CALM, Weather
from harness.simulation.world import World
from tests.simulation.sim_helpers import MS, S, call, pair

Say = Callable[[Any], None]
Program = Callable[[Say], Coroutine[Any, Any, None]]


async def sleeps(say: Say) -> None:
    async def one(name: str, delay: float) -> None:
        await asyncio.sleep(delay)
        say(name)

    await asyncio.gather(one("c", 0.03), one("a", 0.0), one("b", 0.015))


async def timeouts(say: Say) -> None:
    try:
        async with asyncio.timeout(0.005):
            await asyncio.sleep(1)
    except TimeoutError:
        say("timeout")
    async with asyncio.timeout(1):
        await asyncio.sleep(0.001)
        say("in time")
    try:
        async with asyncio.timeout(-1):
            await asyncio.sleep(0)
    except TimeoutError:
        say("past deadline")
    async with asyncio.timeout(0.001) as scope:
        scope.reschedule(asyncio.get_running_loop().time() + 1)
        await asyncio.sleep(0.003)
        say("rescheduled")


async def wait_fors(say: Say) -> None:
    async def answer() -> int:
        await asyncio.sleep(0.001)
        return 42

    say(await asyncio.wait_for(answer(), 1))
    try:
        await asyncio.wait_for(asyncio.sleep(1), 0.002)
    except TimeoutError:
        say("timeout")
    future = asyncio.get_running_loop().create_future()
    try:
        await asyncio.wait_for(asyncio.shield(future), 0.002)
    except TimeoutError:
        say(("shielded", future.cancelled()))


async def queues(say: Say) -> None:
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)

    async def produce() -> None:
        for i in range(6):
            await queue.put(i)
            say(f"put {i}")

    async def consume() -> None:
        for _ in range(6):
            say(f"got {await queue.get()}")
            queue.task_done()

    await asyncio.gather(produce(), consume())
    await queue.join()
    say("joined")


async def turns(count: int = 20) -> None:
    """Lets everything that is ready run; a busy machine cannot change in which order."""
    for _ in range(count):
        await asyncio.sleep(0)


async def locks(say: Say) -> None:
    lock, event, condition = asyncio.Lock(), asyncio.Event(), asyncio.Condition()
    semaphore = asyncio.Semaphore(2)

    async def worker(i: int) -> None:
        async with lock:
            say(f"lock {i}")
            await asyncio.sleep(0)
        await event.wait()
        async with condition:
            await condition.wait()
            say(f"woken {i}")
        async with semaphore:
            say(f"in {i}")
            await turns(2)

    tasks = [asyncio.create_task(worker(i)) for i in range(4)]
    await turns()
    event.set()
    await turns()
    async with condition:
        condition.notify(1)
    await turns()
    async with condition:
        condition.notify_all()
    await asyncio.gather(*tasks)


async def groups(say: Say) -> None:
    async def fails() -> None:
        await asyncio.sleep(0.002)
        raise ValueError("group")

    async def sleeper() -> None:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            say("sibling cancelled")
            raise

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(sleeper())
            group.create_task(fails())
    except* ValueError as errors:
        say([str(error) for error in errors.exceptions])
    async with asyncio.TaskGroup() as group:
        ok = group.create_task(asyncio.sleep(0.001, "fine"))
    say(ok.result())


async def gathers_and_waits(say: Say) -> None:
    async def value(i: int) -> int:
        await asyncio.sleep(0.001 * i)
        if i == 2:
            raise KeyError(i)
        return i

    say([repr(r) for r in await asyncio.gather(*map(value, range(4)), return_exceptions=True)])
    tasks = [asyncio.create_task(asyncio.sleep(0.01 * i, i)) for i in range(1, 4)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    say((sorted(task.result() for task in done), len(pending)))
    say([await future for future in asyncio.as_completed(tasks)])


async def cancellations(say: Say) -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            say("asked")
        await asyncio.sleep(0.001)
        return "stayed"

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0.001)
    say(task.cancel("reason"))
    say(await task)
    never_run = asyncio.create_task(stubborn())
    never_run.cancel()
    try:
        await never_run
    except asyncio.CancelledError:
        say("never began")
    say(never_run.cancelled())


async def callbacks(say: Say) -> None:
    loop = asyncio.get_running_loop()
    loop.call_later(0.004, say, "later")
    loop.call_at(loop.time() + 0.002, say, "at")
    cancelled = loop.call_later(0.001, say, "never")
    cancelled.cancel()
    say(cancelled.cancelled())
    soon = loop.call_soon(say, "never either")
    loop.call_soon(lambda: (say("soon 1"), loop.call_soon(say, "soon 3")))
    loop.call_soon(say, "soon 2")
    soon.cancel()
    future = loop.create_future()
    future.add_done_callback(lambda f: say(f.result()))
    loop.call_soon(future.set_result, "future")
    await future
    await asyncio.sleep(0.01)
    say(asyncio.current_task() in asyncio.all_tasks())


PROGRAMS = [
    sleeps,
    timeouts,
    wait_fors,
    queues,
    locks,
    groups,
    gathers_and_waits,
    cancellations,
    callbacks,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("lateness_ns", [0, 50_000])
def test_a_program_behaves_the_same_on_the_simulated_and_on_a_real_loop(
    program: Program, lateness_ns: int
) -> None:
    real: list[Any] = []
    asyncio.run(program(real.append))
    world = World(5, weather=Weather(name="late", timer_lateness_mean_ns=lateness_ns))
    world.add_node("k1", kind="client", address="k1:1").start()
    simulated: list[Any] = []
    call(world, "k1", program(simulated.append))
    assert simulated == real
    assert real


def test_a_day_of_sleep_takes_no_time() -> None:
    world, _, _ = pair()
    began = time.perf_counter()
    call(world, "k1", asyncio.sleep(86_400), limit_ns=90_000 * S)
    assert world.now == pytest.approx(86_400 * S, abs=1 * MS)
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize("drift_ppm_max", [0, 500])
def test_timers_are_never_early_by_the_nodes_own_clock(drift_ppm_max: int) -> None:
    world, _, _ = pair(Weather(name="drift", clock_drift_ppm_max=drift_ppm_max), seed=3)
    early: list[float] = []

    async def program() -> None:
        loop = asyncio.get_running_loop()
        for i in range(300):
            deadline = loop.time() + 0.0013 * i + 1e-7
            reached = loop.create_future()
            loop.call_at(deadline, reached.set_result, None)
            await reached
            if loop.time() < deadline:
                early.append(deadline - loop.time())

    call(world, "k1", program(), limit_ns=1_000 * S)
    assert early == []


def test_waiting_in_a_loop_until_a_deadline_ends() -> None:
    world, _, _ = pair()

    async def program() -> int:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 0.1
        rounds = 0
        while (left := deadline - loop.time()) > 0:
            await asyncio.sleep(left)
            rounds += 1
        return rounds

    assert call(world, "k1", program()) <= 3


def test_tasks_have_names_of_their_node_and_hashes_of_their_number() -> None:
    def names_and_hashes() -> tuple[str, int]:
        world, _, _ = pair()

        async def program() -> tuple[str, int]:
            task = asyncio.create_task(asyncio.sleep(0))
            await task
            return task.get_name(), hash(task)

        return call(world, "k1", program())

    assert names_and_hashes() == names_and_hashes()
    assert names_and_hashes()[0].startswith("k1.1-")


@pytest.mark.parametrize(
    "name", ["run_in_executor", "create_connection", "add_reader", "getaddrinfo", "sock_recv"]
)
def test_the_loop_refuses_real_io_and_names_the_replacement(name: str) -> None:
    world, _, _ = pair()

    async def program() -> None:
        getattr(asyncio.get_running_loop(), name)(None, None)

    with pytest.raises(ForbiddenInSimulation, match=f"{name} is not available"):
        call(world, "k1", program())


def test_two_nodes_cannot_share_a_future() -> None:
    world, _, _ = pair()
    future = world.nodes["b1"].loop.create_future()

    async def program() -> None:
        await future

    with pytest.raises(RuntimeError, match="different loop"):
        call(world, "k1", program())


def test_most_cancelled_timers_are_removed_from_the_heap() -> None:
    world, _, _ = pair()

    async def program() -> int:
        for _ in range(5_000):
            async with asyncio.timeout(1_000):
                await asyncio.sleep(0.000_001)
        return len(world._heap)

    assert call(world, "k1", program()) < 1_000


def test_debug_mode_is_off() -> None:
    _, broker, _ = pair(CALM)
    assert broker.loop.get_debug() is False
    with pytest.raises(ForbiddenInSimulation):
        broker.loop.set_debug(True)
