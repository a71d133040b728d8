"""The event loop of one simulated process.

Every process has its own `asyncio` loop. The timers of all loops are on the heap of the timeline. Therefore each
node can have its own clock rate, can be frozen or killed alone, and asyncio itself refuses a future that two nodes
share by accident. The guarantees of asyncio hold: callbacks of one loop run first in, first out; callbacks that
are ready at the start of an iteration run before newly added ones; timers are never early.

The class is derived from `AbstractEventLoop`, because `BaseEventLoop` is built around a selector.
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

# If no other task waits for a task that fails, its exception must be retrieved within this time. Real asyncio only
# logs the exception when the task object is collected, which may never happen.
UNRETRIEVED_GRACE_NS = 10_000_000


class SimTask(asyncio.Task[Any]):
    """A task whose hash is its number in the run.

    `TaskGroup` cancels its children in the order of a set, and `asyncio.wait` returns sets. The default hash is
    an address, so the order would change from run to run.
    """

    number: int

    def __hash__(self) -> int:
        try:
            return self.number
        except AttributeError:  # asyncio adds the task to a set before the constructor has finished
            loop = self.get_loop()
            assert isinstance(loop, NodeLoop)
            self.number = loop.timeline.next_task_number()
            return self.number


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadProcess:
    """An ended process. It stays referenced, so that the garbage collector runs none of its code."""

    loop: "NodeLoop"
    program: object
    tasks: list[SimTask]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTable:
    """What all processes of one world share.

    Attributes:
        fatal_errors: Exceptions that end the process as soon as a task fails with one, even if another task
            waits for its result.
        runnable: Loops that have callbacks to run; each loop adds itself.
        dead: The ended processes.
    """

    fatal_errors: tuple[type[BaseException], ...] = ()
    runnable: "deque[NodeLoop]" = field(default_factory=deque)
    dead: list[DeadProcess] = field(default_factory=list)


class NodeLoop(asyncio.AbstractEventLoop):
    """The loop of one incarnation of one node.

    Attributes:
        ready: Callbacks to run in this and the next iteration.
        expired: Timers that were due while the process was paused.
        dead: Whether the process has ended; nothing runs any more, and nothing can be added.
        paused: Whether a signal stopped the process; the kernel continues to serve its connections.
        frozen: Number of system calls that do not return (a stuck disk) in which the process is blocked.
        busy_until_ns: True time until which the process computes or is in a blocking system call.
        interrupted: Whether the present iteration ends after the present callback.
        queued: Whether the loop is in the list of runnable loops, or parked.
        parked: Whether the loop is runnable, but paused, frozen or busy. It is queued again when that state ends.
        outbox: Frames that were sent while the process was busy. They leave afterwards, if it is still alive.
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
        """Takes a timer that is due; called by the timeline."""
        if self.paused:
            self.expired.append(handle)
            return
        self.ready.append(handle)
        if not self.queued:
            self.queued = True
            self._runnable.append(self)

    # States of the process

    def pause(self) -> None:
        """Stops the process. The present iteration ends after the present callback."""
        self.paused = True
        self.interrupted = True

    def resume(self) -> None:
        """Lets the process continue. All timers that expired in the meantime are ready at once, in due order."""
        self.paused = False
        self.ready.extend(self.expired)
        self.expired.clear()
        self.make_runnable()

    def make_runnable(self) -> None:
        """Adds the loop to the list of runnable loops if it has anything to run."""
        if self.parked or (not self.queued and (self.ready or self.outbox)):
            self.parked = False
            self.queued = True
            self._runnable.append(self)

    def be_busy_until(self, true_ns: int) -> None:
        """Prevents the process from running until `true_ns`; frames that it sends before leave at that time."""
        if true_ns > self.busy_until_ns:
            self.busy_until_ns = true_ns
            self.interrupted = True

    def freeze(self) -> None:
        """Blocks the process in a system call until `thaw`."""
        self.frozen += 1
        self.interrupted = True

    def thaw(self) -> None:
        """Returns from a system call that blocked the process."""
        if self.frozen:
            self.frozen -= 1
            self.make_runnable()

    def die(self) -> list[SimTask]:
        """Ends the process without running any of its code.

        CPython runs the `finally` blocks of a suspended coroutine when its last reference is dropped, so the
        caller must keep the returned tasks.
        """
        self.dead = True
        self.interrupted = True
        self.ready.clear()
        self.expired.clear()
        self.outbox.clear()
        self.busy_until_ns = 0  # the kernel closes the connections without delay
        self.frozen = 0
        tasks = list(self._tasks.values())
        for task in tasks:
            # The destructor of a pending task would report it to the exception handler of the loop.
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
        """Starts a task. The name comes from a counter of this loop; that of asyncio is shared by all loops."""
        self._task_count += 1
        if name is None:
            name = f"{self._name_prefix}{self._task_count}"
        task = SimTask(coro, loop=self, name=name, context=context)
        if self.dead:
            # A dead process starts no tasks. The coroutine is closed, so that Python does not warn about it.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coro.close()
            return task
        self._tasks[hash(task)] = task
        task.add_done_callback(self._task_done, context=self.plain_context)
        return task

    def spawn(self, coro: Coroutine[Any, Any, Any]) -> SimTask:
        """Starts a task whose result the harness retrieves. If it fails, the process does not end."""
        task = self.create_task(coro)
        self._watched_elsewhere.add(hash(task))
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        number = hash(task)
        del self._tasks[number]
        watched = number in self._watched_elsewhere
        self._watched_elsewhere.discard(number)
        # Private names, because the public methods count as retrieving the exception.
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

    # Other methods that asyncio needs

    get_debug: Callable[[], bool] = bool
    """Returns False, since debug mode reads the real clock. Every future calls it, and `bool` is fastest."""

    def set_debug(self, enabled: bool) -> None:
        """Refuses debug mode, which reads the real clock."""
        if enabled:
            raise ForbiddenInSimulation("asyncio's debug mode reads the real clock")

    def is_running(self) -> bool:
        """Whether the process is alive."""
        return not self.dead

    def is_closed(self) -> bool:
        """Whether the process has ended."""
        return self.dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Handles fatal errors that were not retrieved. Other exceptions of tasks are handled by `_task_done`."""
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
        "a task, since there are no threads",
    ),
    **dict.fromkeys(("subprocess_exec", "subprocess_shell"), "a separate node"),
    **dict.fromkeys(
        ("add_signal_handler", "remove_signal_handler"), "SimNode.stop and SimNode.kill"
    ),
    **dict.fromkeys(
        ("run_forever", "run_until_complete", "stop", "close", "shutdown_asyncgens"), "World.run"
    ),
    "set_task_factory": "SimTask, which all tasks must be",
}


def _forbid(name: str, instead: str) -> Callable[..., NoReturn]:
    def forbidden(self: NodeLoop, *args: Any, **kwargs: Any) -> NoReturn:
        raise ForbiddenInSimulation(
            f"loop.{name} is not available in the simulation; use {instead}"
        )

    forbidden.__name__ = name
    return forbidden


for _name, _instead in _FORBIDDEN.items():
    setattr(NodeLoop, _name, _forbid(_name, _instead))
