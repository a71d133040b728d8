"""The event loop of one simulated process.

Every process has an `asyncio` loop of its own; all of them keep their timers on the one heap of the world.
So a node can have its own clock rate, can be frozen or killed alone, and asyncio itself refuses a future
that two nodes share by accident. What asyncio promises is kept: callbacks of one loop run first in, first
out; those ready at the start of an iteration run before newly added ones; timers are never early.

Derived from `AbstractEventLoop` and not from `BaseEventLoop`, which is built around a selector.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, NoReturn

from harness.simulation.errors import ForbiddenInSimulation
from harness.simulation.flight import Flight
from harness.simulation.interfaces import Machine, Outlet
from harness.simulation.timeline import Handle, Timeline, TimerHandle

# A task that fails while nobody waits for it has until then to be asked for its result. Real asyncio only
# complains when the task object goes away, which may be never.
UNRETRIEVED_GRACE_NS = 10_000_000


class SimTask(asyncio.Task[Any]):
    """A task whose hash is its number in the world.

    `TaskGroup` cancels its children in the order of a set, and `asyncio.wait` returns sets. With the
    default hash, an address, that order changes from run to run.
    """

    number: int

    def __hash__(self) -> int:
        try:
            return self.number
        except AttributeError:  # the task registers itself in a set while it is being made
            loop = self.get_loop()
            assert isinstance(loop, NodeLoop)
            self.number = loop.timeline.next_task_number()
            return self.number


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadProcess:
    """A killed process. It stays referenced, so that the collector runs none of its code."""

    loop: "NodeLoop"
    program: object
    tasks: list[SimTask]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTable:
    """What the processes of one world share.

    Attributes:
        fatal_errors: Exceptions that end the process as soon as a task fails with one, even if another task
            waits for its result.
        runnable: Loops that have callbacks to run; each loop adds itself.
        graveyard: The killed processes.
    """

    fatal_errors: tuple[type[BaseException], ...] = ()
    runnable: "deque[NodeLoop]" = field(default_factory=deque)
    graveyard: list[DeadProcess] = field(default_factory=list)


class NodeLoop(asyncio.AbstractEventLoop):
    """The loop of one incarnation of one node.

    Attributes:
        ready: Callbacks to run in this and the next iteration.
        expired: Timers that came due while the process was paused.
        dead: Killed; nothing runs any more and nothing can be added.
        paused: Stopped by a signal; the kernel side lives on.
        frozen: In how many system calls that do not return (a stuck disk) the process is blocked.
        busy_until_ns: True time until which the process computes or sits in a blocking system call.
        interrupted: Asks the world to end the present iteration after the present callback.
        queued: The world has this loop on its list of runnable loops, or parked.
        parked: Runnable, but paused, frozen or busy; whoever ends that state puts it back.
        outbox: Frames sent while busy; they leave when the process is done, if it lives to see that.
    """

    def __init__(self, timeline: Timeline, node: Machine, processes: "ProcessTable") -> None:
        self.timeline = timeline
        self.node = node
        self.ready: deque[Handle] = deque()
        self.expired: list[Handle] = []
        self.dead = False
        self.paused = False
        self.frozen = 0
        self.busy_until_ns = 0
        self.interrupted = False
        self.queued = False
        self.parked = False
        self.outbox: list[tuple[Outlet, Flight]] = []
        self.cpu_ns_per_callback = timeline.weather.cpu_ns_per_callback
        self.plain_context = copy_context()
        self.trace_code = timeline.trace.intern(f"run {node.name}")
        self._name_prefix = f"{node.name}.{node.incarnation}-"
        self._task_count = 0
        self._tasks: dict[int, SimTask] = {}
        self._watched_elsewhere: set[int] = set()
        self._clock = node.clock
        self._runnable = processes.runnable
        self._fatal_errors = processes.fatal_errors
        self._lateness_mean_ns = timeline.weather.timer_lateness_mean_ns
        self._lateness = timeline.random.stream("timer", node.name).expovariate

    def __repr__(self) -> str:
        return f"<NodeLoop {self.node.name}.{self.node.incarnation}>"

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Makes this loop the running one, as it is for code of the process."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)

    # Time and callbacks

    def time(self) -> float:
        """Returns the node's monotonic clock in seconds."""
        return self._clock.monotonic_s()

    def call_soon(  # type: ignore[override]  # our Handle and SimTask only look like asyncio's
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """Adds a callback to the next iteration."""
        handle = Handle(callback, args, copy_context() if context is None else context)
        if self.dead:
            handle.cancel()
            return handle
        self.ready.append(handle)
        if not self.queued:
            self.queued = True
            self._runnable.append(self)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """As `call_soon`: there is only one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerHandle:
        """Adds a timer, `delay` seconds of the node's own clock from now."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerHandle:
        """Adds a timer for a moment of the node's own clock."""
        handle = TimerHandle(callback, args, copy_context() if context is None else context, self)
        handle.when_s = when
        if self.dead:
            handle.cancel()
            return handle
        self._push_timer(self._clock.true_ns_at(when), handle)
        return handle

    def call_at_true_ns(
        self, when_ns: int, callback: Callable[..., object], *args: Any
    ) -> TimerHandle:
        """Adds a timer for a moment of true time; for the simulated kernel."""
        handle = TimerHandle(callback, args, self.plain_context, self)
        if self.dead:
            handle.cancel()
            return handle
        self._push_timer(when_ns, handle)
        return handle

    def _push_timer(self, when_ns: int, handle: TimerHandle) -> None:
        timeline = self.timeline
        if self._lateness_mean_ns:
            when_ns += int(self._lateness(1.0) * self._lateness_mean_ns)
        handle.timeline = timeline
        timeline.push(when_ns if when_ns > timeline.now else timeline.now, None, handle)

    def accept(self, handle: TimerHandle) -> None:
        """Takes a timer that came due; called by the world."""
        if self.paused:
            self.expired.append(handle)
            return
        self.ready.append(handle)
        if not self.queued:
            self.queued = True
            self._runnable.append(self)

    # States of the process

    def pause(self) -> None:
        """Stops the process. Its iteration ends after the present callback."""
        self.paused = True
        self.interrupted = True

    def resume(self) -> None:
        """Lets the process continue: everything that expired meanwhile is ready at once, in due order."""
        self.paused = False
        self.ready.extend(self.expired)
        self.expired.clear()
        self.make_runnable()

    def make_runnable(self) -> None:
        """Puts the loop on the world's list of runnable loops if it has something to do."""
        if self.parked or (not self.queued and (self.ready or self.outbox)):
            self.parked = False
            self.queued = True
            self._runnable.append(self)

    def be_busy_until(self, true_ns: int) -> None:
        """Keeps the process from running until then; frames it sends meanwhile leave then."""
        if true_ns > self.busy_until_ns:
            self.busy_until_ns = true_ns
            self.interrupted = True

    def freeze(self) -> None:
        """Blocks the process in a system call; `thaw` returns from it."""
        self.frozen += 1
        self.interrupted = True

    def thaw(self) -> None:
        """Returns from a system call that blocked the process."""
        if self.frozen:
            self.frozen -= 1
            self.make_runnable()

    def die(self) -> list[SimTask]:
        """Ends the process without running any of its code.

        Dropping the last reference to a suspended coroutine makes CPython run its `finally` blocks, so the
        caller must keep the returned tasks.
        """
        self.dead = True
        self.interrupted = True
        self.ready.clear()
        self.expired.clear()
        self.outbox.clear()
        self.busy_until_ns = 0  # what the kernel still sends, it sends at once
        self.frozen = 0
        tasks = list(self._tasks.values())
        for task in tasks:
            # The destructor of a pending task complains to its loop unless it is told not to.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        return tasks

    # Tasks and futures

    def create_future(self) -> asyncio.Future[Any]:
        """Returns a new future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> SimTask:
        """Starts a task. Names come from a counter of this loop; asyncio's own is global to the machine."""
        self._task_count += 1
        if name is None:
            name = f"{self._name_prefix}{self._task_count}"
        task = SimTask(coro, loop=self, name=name, context=context)
        if self.dead:
            # A process that is gone makes no tasks; the coroutine is closed instead of reported.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coro.close()
            return task
        self._tasks[hash(task)] = task
        task.add_done_callback(self._task_done, context=self.plain_context)
        return task

    def spawn(self, coro: Coroutine[Any, Any, Any]) -> SimTask:
        """Starts a task whose result the harness will ask for; failing does not end the process."""
        task = self.create_task(coro)
        self._watched_elsewhere.add(hash(task))
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        number = hash(task)
        del self._tasks[number]
        watched = number in self._watched_elsewhere
        self._watched_elsewhere.discard(number)
        # The private names: asking officially would count as having retrieved the exception.
        error = task._exception
        if error is None:
            return
        if isinstance(error, self._fatal_errors):
            self.node.process_failed(error)
        elif not watched:
            self.timeline.schedule(
                self.timeline.now + UNRETRIEVED_GRACE_NS, self._fail_if_unretrieved, task, error
            )

    def _fail_if_unretrieved(self, task: asyncio.Task[Any], error: BaseException) -> None:
        if task._log_traceback and not self.dead:
            self.node.process_failed(error)

    def pending_tasks(self) -> list[SimTask]:
        """Returns the tasks that are not done, in the order of their creation."""
        return list(self._tasks.values())

    # What asyncio asks of a loop besides

    get_debug: Callable[[], bool] = bool
    """Returns False: debug mode reads the real clock. Every future asks, and `bool()` is the cheapest False."""

    def set_debug(self, enabled: bool) -> None:
        """Refuses debug mode, which reads the real clock."""
        if enabled:
            raise ForbiddenInSimulation("asyncio's debug mode reads the real clock")

    def is_running(self) -> bool:
        """Whether the process lives."""
        return not self.dead

    def is_closed(self) -> bool:
        """Whether the process is gone."""
        return self.dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Hears of exceptions that nobody retrieved; tasks are watched elsewhere, so only invariants count."""
        error = context.get("exception")
        if isinstance(error, self._fatal_errors) and not self.dead and self.timeline.is_running:
            self.timeline.schedule(self.timeline.now, self.node.process_failed, error)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """As `call_exception_handler`."""
        self.call_exception_handler(context)


_FORBIDDEN = {
    **dict.fromkeys(
        (
            "create_connection",
            "create_server",
            "create_unix_connection",
            "create_unix_server",
            "create_datagram_endpoint",
            "connect_accepted_socket",
            "start_tls",
            "sock_recv",
            "sock_recv_into",
            "sock_recvfrom",
            "sock_recvfrom_into",
            "sock_sendall",
            "sock_sendto",
            "sock_connect",
            "sock_accept",
            "sock_sendfile",
            "sendfile",
            "add_reader",
            "remove_reader",
            "add_writer",
            "remove_writer",
            "getaddrinfo",
            "getnameinfo",
        ),
        "host.network",
    ),
    **dict.fromkeys(("connect_read_pipe", "connect_write_pipe"), "host.storage"),
    **dict.fromkeys(
        ("run_in_executor", "set_default_executor", "shutdown_default_executor"),
        "a task; there are no threads",
    ),
    **dict.fromkeys(("subprocess_exec", "subprocess_shell"), "a node of its own"),
    **dict.fromkeys(
        ("add_signal_handler", "remove_signal_handler"), "SimNode.stop and SimNode.kill"
    ),
    **dict.fromkeys(
        ("run_forever", "run_until_complete", "stop", "close", "shutdown_asyncgens"), "World.run"
    ),
    "set_task_factory": "nothing; tasks here must be SimTask",
}


def _forbid(name: str, door: str) -> Callable[..., NoReturn]:
    def forbidden(self: NodeLoop, *args: Any, **kwargs: Any) -> NoReturn:
        raise ForbiddenInSimulation(f"loop.{name} is not available in the simulation; use {door}")

    forbidden.__name__ = name
    return forbidden


for _name, _door in _FORBIDDEN.items():
    setattr(NodeLoop, _name, _forbid(_name, _door))
