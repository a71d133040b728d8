"""A simulated machine and the process on it.

A process ends in one of these ways, and never runs more of its own code than a real process would:

| how         | its code                              | its connections       | its disk          |
|-------------|---------------------------------------|-----------------------|-------------------|
| `stop`      | its own shutdown, up to a grace period| closed                | as it left it     |
| `kill`      | nothing, not even a `finally`         | closed by the kernel  | page cache kept   |
| `power_off` | nothing                               | peers see silence     | power cut         |
| a crash     | up to the exception                   | closed by the kernel  | page cache kept   |

CPython runs the `finally` blocks of a suspended coroutine when its last reference is dropped. So a killed process
stays referenced (`ProcessTable.dead`). Its loop is dead, and its interfaces refuse all calls.
"""

import asyncio
import errno
from collections.abc import Callable
from typing import Any, Protocol

from harness.simulation.clock import HostClock, NodeClock
from harness.simulation.connect import NodeNetwork
from harness.simulation.disk import SimDisk
from harness.simulation.errors import SimulationError
from harness.simulation.loop import DeadProcess, NodeLoop, ProcessTable
from harness.simulation.network import SimNetwork
from harness.simulation.power_cut import PowerCutReport, draw_mode
from harness.simulation.randomness import NodeRandom
from harness.simulation.storage import NodeStorage
from harness.simulation.timeline import Timeline
from system_under_test.runtime import Host, Observer, SilentObserver

KINDS = ("broker", "controller", "client", "harness")

EXPECTED_ERRNOS = frozenset({errno.EIO, errno.ENOSPC, errno.EROFS})
"""Errors of a broken disk, which may end a process. Any other error that ends one is a failure of the run."""

DEFAULT_SLOW_CPU_NS = 10_000


class Process(Protocol):
    """The program of a node, as `main` returns it."""

    async def start(self) -> None:
        """Starts the program; background work continues in tasks."""
        ...

    async def stop(self) -> None:
        """Shuts down cleanly."""
        ...


class IdleProcess:
    """A program that does nothing, for nodes that only run tasks of the harness."""

    def __init__(self, host: Host) -> None:
        self.host = host

    async def start(self) -> None:
        """Does nothing."""

    async def stop(self) -> None:
        """Does nothing."""


class SimHost:
    """The interfaces of one process; implements `system_under_test.runtime.Host`."""

    __slots__ = ("clock", "name", "network", "observer", "random", "storage")

    def __init__(
        self,
        name: str,
        *,
        clock: NodeClock,
        network: NodeNetwork,
        storage: NodeStorage,
        random: NodeRandom,
        observer: Observer,
    ) -> None:
        self.name = name
        self.clock = clock
        self.network = network
        self.storage = storage
        self.random = random
        self.observer = observer


ExitCallback = Callable[["SimNode", str], None]


class SimNode:
    """One machine with at most one process.

    Attributes:
        name: For example "b1".
        kind: "broker", "controller", "client" or "harness".
        timeline: The timeline of the world.
        address: The address at which it listens.
        incarnation: Number of starts of its process.
        state: "off" (no power), "running", "paused", "stopping" or "dead" (power, but no process).
        loop: The loop of the present or last process.
        host: The interfaces of the present or last process.
        process: The program, as `main` returned it.
        clock: The clocks of the machine.
        disk: The disk of the machine.
        crash: The exception that ended the last process, if any.
        exit_reason: How the last process ended: "stopped", "stop-timeout", "killed", "oom", "power-off" or
            "crashed"; empty if none has ended.
        slowed_callbacks: Number of callbacks, of all its processes, that took CPU time.
        on_exit: Called with the node and the reason.
    """

    def __init__(
        self,
        timeline: Timeline,
        network: SimNetwork,
        processes: ProcessTable,
        name: str,
        *,
        kind: str,
        address: str,
        main: Callable[[Host], Process],
        observer: Observer | None,
    ) -> None:
        if kind not in KINDS:
            raise ValueError(f"no node kind is called {kind!r}; the kinds are {', '.join(KINDS)}")
        self.timeline = timeline
        self.name = name
        self.kind = kind
        self.address = address
        self.incarnation = 0
        self.state = "off"
        self.process: Process | None = None
        self.crash: BaseException | None = None
        self.exit_reason = ""
        self.slowed_callbacks = 0
        self.on_exit: list[ExitCallback] = []
        drift_ppm_max = timeline.weather.clock_drift_ppm_max
        drift = timeline.random.stream("drift", name).random()
        self.clock = HostClock(timeline, round((2 * drift - 1) * drift_ppm_max))
        self.disk = SimDisk(timeline, name)
        self._network = network
        self._processes = processes
        self._is_stopping = False
        self._cpu_factor = 1.0
        self._main = main
        self._observer: Observer = observer if observer is not None else SilentObserver()
        self._random = timeline.random.for_node(name)
        self._loop: NodeLoop | None = None
        self._host: SimHost | None = None

    def __repr__(self) -> str:
        return f"<SimNode {self.name}.{self.incarnation} {self.state}>"

    @property
    def host_is_up(self) -> bool:
        """Whether the machine has power."""
        return self.state != "off"

    @property
    def is_alive(self) -> bool:
        """Whether there is a process, running or not."""
        return self.state in ("running", "paused", "stopping")

    @property
    def loop(self) -> NodeLoop:
        """Returns the loop of the present or last process."""
        if self._loop is None:
            raise SimulationError(f"{self.name} was never started")
        return self._loop

    @property
    def host(self) -> SimHost:
        """Returns the interfaces of the present or last process."""
        if self._host is None:
            raise SimulationError(f"{self.name} was never started")
        return self._host

    @property
    def is_slowed(self) -> bool:
        """Whether its processes compute slower than the weather specifies."""
        return self._cpu_factor != 1.0

    # Start and end

    def start(self) -> None:
        """Starts a new process, and boots the machine before if it is off.

        Raises:
            SimulationError: There is already a process.
        """
        if self.is_alive:
            raise SimulationError(f"{self.name} is {self.state} and cannot be started")
        timeline = self.timeline
        boots = self.state == "off"
        if boots:
            # Whole seconds are easy to read. The range is so wide that the clocks of two nodes hardly ever agree.
            self.clock.boot(timeline.random.stream("clock", self.name).randrange(1_000, 100_000))
        self.incarnation += 1
        self.state = "running"
        self._is_stopping = False
        self.crash = None
        self._note("start", self.incarnation)
        # mypy does not see the abstract methods that `loop.py` adds at import time.
        loop = self._loop = NodeLoop(timeline, self, self._processes)  # type: ignore[abstract]
        self._set_cpu()
        self._host = SimHost(
            self.name,
            clock=NodeClock(self.clock),
            network=NodeNetwork(self._network, loop),
            storage=self.disk.storage_for(loop),
            random=self._random,
            observer=self._observer,
        )
        if boots:
            self._network.refresh()
        with loop.inside():
            try:
                self.process = self._main(self._host)
                main_task = loop.spawn(self.process.start())
            except Exception as error:
                self.process_failed(error)
                return
        main_task.add_done_callback(self._started, context=loop.plain_context)

    def _started(self, task: "asyncio.Task[Any]") -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.process_failed(error)

    def stop(self, grace_ms: float = 30_000) -> None:
        """Shuts the process down (SIGTERM), and kills it after a grace period.

        A paused process receives the signal when it is resumed.
        """
        if not self.is_alive or self._is_stopping:
            return
        loop = self.loop
        self._note("stop")
        self._is_stopping = True
        if self.state == "running":
            self.state = "stopping"
        assert self.process is not None
        with loop.inside():
            task = loop.spawn(self.process.stop())
        task.add_done_callback(self._stopped, context=loop.plain_context)
        self.timeline.schedule(self.timeline.now + int(grace_ms * 1e6), self._grace_is_over, loop)

    def _stopped(self, task: "asyncio.Task[Any]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.process_failed(error)
        else:
            self._end("stopped")

    def _grace_is_over(self, loop: NodeLoop) -> None:
        if not loop.dead:
            self._end("stop-timeout")

    def kill(self) -> None:
        """Ends the process at once (SIGKILL); none of its code runs any more. The page cache is kept."""
        if self.is_alive:
            self._end("killed")

    def oom_kill(self) -> None:
        """Ends the process as the kernel does when it is out of memory; the process sees a `kill`."""
        if self.is_alive:
            self._end("oom")

    def power_off(self, mode: str, *, keep: dict[str, int] | None = None) -> PowerCutReport:
        """Switches the power off.

        Args:
            mode: One of `power_cut.MODES`, or "draw".
            keep: Exact outcomes: path to length of the prefix of its cached content that survives.

        Returns:
            The losses.

        Raises:
            IllegalPowerCut: `keep` is impossible; nothing happened.
        """
        if mode == "draw":
            mode = draw_mode(self.disk.random)
        report = self.disk.power_cut(mode, keep=keep)
        self._note(f"power off {mode}", report.lost_bytes)
        was_alive = self.is_alive
        self.state = "off"
        if was_alive:
            self._process_ended("power-off", host_is_off=True)
        else:
            self._network.refresh()
        return report

    def pause(self) -> None:
        """Stops the process (SIGSTOP). Its kernel still accepts connections and receives data."""
        if self.state in ("running", "stopping"):
            self.state = "paused"
            self._note("pause")
            self.loop.pause()

    def resume(self) -> None:
        """Lets a paused process continue (SIGCONT)."""
        if self.state == "paused":
            self.state = "stopping" if self._is_stopping else "running"
            self._note("resume")
            self.loop.resume()

    def slow_cpu(self, factor: float) -> None:
        """Slows down the node's present and later processes; 1 is the speed that the weather specifies."""
        self._cpu_factor = factor
        self._note("slow cpu", int(factor * 1000))
        self._set_cpu()

    def _set_cpu(self) -> None:
        weather_ns = self.timeline.weather.cpu_ns_per_callback
        if self._cpu_factor != 1.0:
            weather_ns = weather_ns or DEFAULT_SLOW_CPU_NS
        if self._loop is not None:
            self._loop.cpu_ns_per_callback = int(weather_ns * self._cpu_factor)

    def skew_clock(self, ppm: int) -> None:
        """Changes the rate of both clocks, and adjusts pending timers. 0 ends the skew (`HostClock.unskew`)."""
        self._note("clock skew", ppm)
        if ppm:
            self.clock.skew(ppm)
        else:
            self.clock.unskew()
        self._retime()

    def set_clock_drift(self, drift_ppm: int) -> None:
        """Changes the rate of the monotonic clock, and adjusts pending timers."""
        self._note("clock drift", drift_ppm)
        self.clock.set_drift(drift_ppm)
        self._retime()

    def _retime(self) -> None:
        if self._loop is not None and not self._loop.dead:
            self.timeline.retime(self._loop, self.clock.true_ns_at)

    def process_failed(self, error: BaseException) -> None:
        """Ends the process because of an unhandled exception.

        This is a failure of the run, except after a disk error or a deliberate exit.
        """
        if not self.is_alive:
            return
        self.crash = error
        self._note(f"crash {type(error).__name__}")
        expected = isinstance(error, SystemExit) or (
            isinstance(error, OSError) and error.errno in EXPECTED_ERRNOS
        )
        if not expected:
            self.timeline.fail(error, self.name)
        self._end("crashed")

    def _end(self, reason: str) -> None:
        self._note(reason)
        self.state = "dead"
        self._process_ended(reason, host_is_off=False)

    def _process_ended(self, reason: str, *, host_is_off: bool) -> None:
        loop = self.loop
        self.exit_reason = reason
        dead = DeadProcess(loop=loop, program=self.process, tasks=loop.die())
        self._processes.dead.append(dead)
        self.disk.refresh_views()
        self._network.process_died(loop, host_is_off=host_is_off)
        for callback in list(self.on_exit):
            callback(self, reason)

    def _note(self, what: str, detail: int = 0) -> None:
        self.timeline.trace.note(self.timeline.now, f"node {self.name} {what}", detail)
