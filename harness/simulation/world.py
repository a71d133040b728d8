"""The deterministic world: one heap of events, one virtual time, any number of nodes.

A run is a function of the content of the world, the seed, and the code. Time advances only when there is nothing
left to do at the present time. At each time, the world first takes all events that are due, and then runs the
runnable nodes, one asyncio iteration at a time.

Any order of the nodes at one time, and of events with equal times, is legal. The weather draws the order; `CALM`
is first in, first out. The order of callbacks within a node is always that of asyncio.
"""

import asyncio
import contextlib
import gc
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from harness.simulation import fences
from harness.simulation.clock import TRUE_EPOCH_MS
from harness.simulation.errors import (
    Deadlock,
    ForbiddenInSimulation,
    LimitReached,
    Livelock,
    SimulationError,
)
from harness.simulation.loop import NodeLoop, ProcessTable, SimTask
from harness.simulation.network import SimNetwork
from harness.simulation.node import IdleProcess, Process, SimNode
from harness.simulation.timeline import Handle, Timeline
from harness.simulation.weather import CALM, Weather
from harness.simulation.wire_check import MessageCodec, WireCheck
from system_under_test.runtime import Host, Observer

LIVELOCK_CALLBACKS = 100_000
"""If this many callbacks run at one virtual time, the world reports that time no longer advances."""

LIVELOCK_SAMPLE_CALLBACKS = 2_000
HOUSEKEEPING_CALLBACKS = 50_000
_GC_EVERY = ((2, 100), (1, 10), (0, 1))

_set_running_loop = asyncio._set_running_loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one run. Exceeding one of them is a separate outcome and never a pass.

    Attributes:
        callbacks: Number of callbacks.
        messages: Number of frames.
        disk_bytes: Length of all files of all nodes.
        wall_s: Real seconds in all calls of `World.run`. This is the only limit that depends on the machine.
    """

    callbacks: int = 1_000_000_000
    messages: int = 200_000_000
    disk_bytes: int = 4_000_000_000
    wall_s: float = 3_600.0


_worlds_to_close: "list[World] | None" = None


@contextlib.contextmanager
def closing_all_worlds() -> Iterator[None]:
    """Closes every world that was made in the block; for tests, which often do not close them."""
    global _worlds_to_close
    before, _worlds_to_close = _worlds_to_close, []
    try:
        yield
    finally:
        worlds, _worlds_to_close = _worlds_to_close, before
        for world in worlds:
            world.close()


class World(Timeline):
    """One simulated world.

    Use it as a context manager, or call `close`, which closes the coroutines of its processes. Otherwise the
    garbage collector finalises them, with an interpreter warning for each. A program that ends with `os._exit`
    does not need to close it.

    Args:
        seed: Determines every random draw.
        weather: The irregularities of the run.
        codec: Encodes the messages of the hosted system; None if they pass by reference only.
        fatal_errors: Exceptions that end a process as soon as one of its tasks fails with one, even if another
            task waits for the result.
        sim_wire: Every message goes through the codec.
        wire_sample: Otherwise, this share of the messages does.
        limits: The limits of the run.
        keep_trace: Whether to keep the text of the trace, to compare two runs line by line.

    Attributes:
        nodes: All nodes by name, in the order of `add_node`.
        raise_on_failure: Whether `run` raises the first new failure.
        callbacks: Number of callbacks that ran.
    """

    def __init__(
        self,
        seed: int,
        *,
        weather: Weather = CALM,
        codec: MessageCodec | None = None,
        fatal_errors: tuple[type[BaseException], ...] = (),
        sim_wire: bool = False,
        wire_sample: float = 0.01,
        limits: Limits = Limits(),
        keep_trace: bool = False,
    ) -> None:
        super().__init__(seed, weather=weather, keep_trace=keep_trace)
        if sim_wire and codec is None:
            raise ValueError("without a codec, no message can go through it")
        self.limits = limits
        self.nodes: dict[str, SimNode] = {}
        self.raise_on_failure = True
        self.callbacks = 0
        self._processes = ProcessTable(fatal_errors=fatal_errors)
        self._runnable = self._processes.runnable
        self._pick = self.random.stream("pick").random
        self._running_loop: NodeLoop | None = None
        self._raised_failures = 0
        self._callbacks_before_this_moment = 0
        self._housekeepings = 0
        self._livelock_sample: Counter[str] = Counter()
        self._next_housekeeping = HOUSEKEEPING_CALLBACKS
        self._wall_s = 0.0
        self._wall_began_s = 0.0
        self._addresses: dict[str, SimNode] = {}
        if _worlds_to_close is not None:
            _worlds_to_close.append(self)
        wire = WireCheck(self, codec, 1.0 if sim_wire else wire_sample)
        self.network = SimNetwork(self, wire, nodes=self.nodes, addresses=self._addresses)

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def trace_hash(self) -> str:
        """Returns the hash of the trace so far, as 32 hexadecimal digits."""
        return self.trace.digest

    # Nodes and tasks

    def add_node(
        self,
        name: str,
        *,
        kind: str,
        address: str,
        main: Callable[[Host], Process] = IdleProcess,
        observer: Observer | None = None,
    ) -> SimNode:
        """Adds a machine, switched off.

        Args:
            name: Unique, for example "b1".
            kind: "broker", "controller", "client" or "harness"; decides the latency of its connections.
            address: Unique, "host:port".
            main: Makes the program, given its interfaces; called at every start.
            observer: Receives the events of the program.
        """
        if name in self.nodes or address in self._addresses:
            raise SimulationError(f"there is already a node {name!r}, or one at {address!r}")
        node = SimNode(
            self,
            self.network,
            self._processes,
            name,
            kind=kind,
            address=address,
            main=main,
            observer=observer,
        )
        self.nodes[name] = self._addresses[address] = node
        return node

    def spawn(self, node_name: str, coroutine: Coroutine[Any, Any, Any]) -> SimTask:
        """Starts a task in a node's process. If it fails, its result is the exception; the process continues."""
        node = self.nodes[node_name]
        if not node.is_alive:
            coroutine.close()
            raise SimulationError(
                f"{node_name} is {node.state} and cannot run a task; start it first"
            )
        with self.inside(node.loop):
            return node.loop.spawn(coroutine)

    def inside(self, loop: NodeLoop) -> contextlib.AbstractContextManager[None]:
        """Makes a loop the running one in the block, as it is for code of that process."""
        return loop.inside()

    # Running

    def run(self, until: Callable[[], bool] | None = None, *, limit_ns: int) -> None:
        """Runs the world.

        Args:
            until: Called after every time at which something happened; the call returns when it is true.
            limit_ns: The longest virtual time to run.

        Raises:
            LimitReached: The time is over and `until` is still not true, or a limit of the run is exceeded.
            Deadlock: No event can happen any more, and `until` is not true.
            Livelock: Virtual time does not advance.
            BaseException: The first new failure, if `raise_on_failure`.
        """
        if self.is_running:
            raise SimulationError("World.run was called from within the world")
        began = perf_counter()
        self._wall_began_s = began
        self.is_running = True
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        self._running_loop = None
        try:
            with (
                fences.raised(
                    report=self.fail, wall_s=lambda: TRUE_EPOCH_MS / 1e3 + self.now / 1e9
                ),
                _disciplined_gc(),
                self._async_generator_hooks(),
            ):
                self._run(until, self.now + limit_ns)
        finally:
            self.is_running = False
            self._wall_s += perf_counter() - began
            asyncio._set_running_loop(before)
        self._raise_new_failure()

    def run_for(self, duration_ns: int) -> None:
        """Runs the world for a span of virtual time."""
        self.run(limit_ns=duration_ns)

    def _run(self, until: Callable[[], bool] | None, end_ns: int) -> None:
        heap = self._heap
        runnable = self._runnable
        while True:
            if runnable:
                self._run_nodes()
            if self.failures and self._should_stop():
                return
            if until is not None and until():
                return
            if not heap:
                if until is not None:
                    raise Deadlock(self.describe_waiters())
                self.now = max(self.now, end_ns)
                return
            when = heap[0][0]
            if when > end_ns:
                self.now = max(self.now, end_ns)
                if until is not None:
                    raise LimitReached(
                        f"{end_ns / 1e9:.3f} s of virtual time are over, and the awaited condition is not true"
                    )
                return
            if when > self.now:
                self.now = when
                self._callbacks_before_this_moment = self.callbacks
            self._take_due_events(when)

    def _run_nodes(self) -> None:
        runnable = self._runnable
        shuffles = self._shuffles
        while runnable:
            if shuffles and len(runnable) > 1:
                runnable.rotate(-int(self._pick() * len(runnable)))
            loop = runnable.popleft()
            if loop.dead:
                continue
            if loop.paused or loop.frozen:
                loop.parked = True
                continue
            if loop.busy_until_ns > self.now:
                loop.parked = True
                self.push(loop.busy_until_ns, _wake, loop)
                continue
            self._run_iteration(loop)
            if self.failures and self._should_stop():
                return
        if self.callbacks >= self._next_housekeeping:
            self._do_housekeeping()

    def _run_iteration(self, loop: NodeLoop) -> None:
        """Runs one asyncio iteration: the callbacks that are ready at its beginning."""
        if loop.outbox:
            _send_waiting(loop)
        if loop is not self._running_loop:
            # Makes a system call. So the loop stays set while frames arrive and disks finish, which use none.
            _set_running_loop(loop)
            self._running_loop = loop
        ready = loop.ready
        take = ready.popleft
        loop.interrupted = False
        count = 0
        try:
            for _ in range(len(ready)):
                handle = take()
                count += 1
                if handle.callback is not None:
                    handle.context.run(handle.callback, *handle.args)  # type: ignore[union-attr]
                    if loop.interrupted:
                        break
        except (Exception, SystemExit) as error:
            if not loop.dead:
                loop.node.process_failed(error)
        self.callbacks += count
        self.trace.record(self.now, loop.trace_code, count)
        if self.callbacks - self._callbacks_before_this_moment > LIVELOCK_CALLBACKS:
            self._look_for_livelock(loop)
        if loop.dead:
            loop.queued = False
            return
        if loop.cpu_ns_per_callback and count:
            loop.node.slowed_callbacks += count
            loop.be_busy_until(max(self.now, loop.busy_until_ns) + count * loop.cpu_ns_per_callback)
        if ready or loop.outbox:
            self._runnable.append(loop)
        else:
            loop.queued = False

    def _leave_nodes(self) -> None:
        """Lets faults and monitors see no running loop, so that they cannot act in a node by mistake."""
        if self._running_loop is not None:
            _set_running_loop(None)
            self._running_loop = None

    def _look_for_livelock(self, loop: NodeLoop) -> None:
        excess = self.callbacks - self._callbacks_before_this_moment - LIVELOCK_CALLBACKS
        if excess <= LIVELOCK_SAMPLE_CALLBACKS:
            for handle in loop.ready:
                self._livelock_sample[f"{loop.node.name}: {_name_of(handle)}"] += 1
            return
        most = ", ".join(f"{name} x{n}" for name, n in self._livelock_sample.most_common(10))
        raise Livelock(
            f"{LIVELOCK_CALLBACKS} callbacks ran at {self.now / 1e9:.9f} s and time does not advance; "
            f"waiting to run: {most}"
        )

    def _do_housekeeping(self) -> None:
        """Collects garbage and checks the limits, at times that depend only on the run."""
        self._next_housekeeping = self.callbacks + HOUSEKEEPING_CALLBACKS
        self._housekeepings += 1
        # Old generations are collected rarely: they contain the history of the run, which is long and acyclic.
        due = (generation for generation, every in _GC_EVERY if not self._housekeepings % every)
        gc.collect(next(due))
        limits = self.limits
        stored = sum(node.disk.stored_bytes() for node in self.nodes.values())
        wall_s = self._wall_s + perf_counter() - self._wall_began_s
        for name, used, allowed in (
            ("callbacks", self.callbacks, limits.callbacks),
            ("messages", self.messages, limits.messages),
            ("bytes on disk", stored, limits.disk_bytes),
            ("seconds of real time", wall_s, limits.wall_s),
        ):
            if used > allowed:
                raise LimitReached(f"the run used {used} {name}; the limit is {allowed}")

    # Failures and the end

    def _should_stop(self) -> bool:
        return self.raise_on_failure and len(self.failures) > self._raised_failures

    def _raise_new_failure(self) -> None:
        if self._should_stop():
            failure = self.failures[self._raised_failures]
            self._raised_failures = len(self.failures)
            raise failure.error

    def describe_waiters(self) -> str:
        """Describes where every pending task waits."""
        lines = [f"no event can happen after {self.now / 1e9:.9f} s; these tasks wait:"]
        for node in self.nodes.values():
            if not node.is_alive:
                lines.append(f"  {node.name}: {node.state}")
                continue
            lines += [
                f"  {task.get_name()}: {_waits_in(task)}" for task in node.loop.pending_tasks()
            ]
        return "\n".join(lines)

    @contextlib.contextmanager
    def _async_generator_hooks(self) -> Iterator[None]:
        def finalizer(generator: Any) -> None:
            # The garbage collector determines when this happens, so the run would not be deterministic.
            name = generator.ag_code.co_qualname
            error = f"the asynchronous generator {name} was left open; use contextlib.aclosing"
            self.fail(ForbiddenInSimulation(error))

        before = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=finalizer)
        try:
            yield
        finally:
            sys.set_asyncgen_hooks(*before)

    def close(self) -> None:
        """Ends all processes and closes their coroutines. Code that this runs has no effect on the world."""
        for node in self.nodes.values():
            if node.is_alive:
                node.on_exit.clear()
                node.kill()
        dead = self._processes.dead
        dead_processes = list(dead)
        dead.clear()
        for process in dead_processes:
            for task in process.tasks:
                _close_task(task)
        self._heap.clear()
        self._runnable.clear()


def _close_task(task: SimTask) -> None:
    """Closes the coroutine of a dead task. Its `finally` blocks run now, but node interfaces refuse calls."""
    coroutine = task.get_coro()
    # If a block awaits while it is closed, Python raises an exception, and the coroutine can be closed again.
    for _ in range(10):
        try:
            coroutine.close()
        except (Exception, GeneratorExit):
            continue  # the process has ended, so its exceptions no longer matter
        return


def _send_waiting(loop: NodeLoop) -> None:
    """Sends what the process wrote while it was busy."""
    outbox, loop.outbox = loop.outbox, []
    for pipe, frame in outbox:
        pipe.push(frame)


def _wake(loop: NodeLoop) -> None:
    loop.make_runnable()


def _name_of(handle: Handle) -> str:
    owner = getattr(handle.callback, "__self__", None)
    if isinstance(owner, SimTask):
        return str(getattr(owner.get_coro(), "__qualname__", owner.get_name()))
    return str(getattr(handle.callback, "__qualname__", type(handle.callback).__name__))


def _waits_in(task: SimTask) -> str:
    """Returns the innermost coroutine of a suspended task, and its line."""
    coroutine: Any = task.get_coro()
    place = "not started"
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is None:
            break
        place = f"{coroutine.__qualname__}, line {frame.f_lineno}"
        coroutine = coroutine.cr_await
    return place


@contextlib.contextmanager
def _disciplined_gc() -> Iterator[None]:
    """Prevents automatic garbage collection, since finalisers run code at unpredictable times."""
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
