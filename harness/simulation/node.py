"""A simulated machine and the process on it.

A process ends in one of these ways, and never by running more of its own code than reality would let it:

| how         | its code                              | its connections       | its disk          |
|-------------|---------------------------------------|-----------------------|-------------------|
| `stop`      | its own shutdown, up to a grace period| closed                | as it left it     |
| `kill`      | nothing, not even a `finally`         | closed by the kernel  | page cache kept   |
| `power_off` | nothing                               | peers see silence     | power cut         |
| a crash     | up to the exception                   | closed by the kernel  | page cache kept   |

Dropping the last reference to a suspended coroutine makes CPython run its `finally` blocks. So a killed
process is put into the world's graveyard, with its loop dead and its doors shut, and stays referenced.
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
"""A process may legally die of a broken disk; anything else that ends one is a finding."""

DEFAULT_SLOW_CPU_NS = 10_000


class Process(Protocol):
    """What `main` returns: the program of a node."""

    async def start(self) -> None:
        """Starts up; background work goes on in tasks."""
        ...

    async def stop(self) -> None:
        """Shuts down in order."""
        ...


class IdleProcess:
    """A program that does nothing: for nodes that only carry tasks of the harness."""

    def __init__(self, host: Host) -> None:
        self.host = host

    async def start(self) -> None:
        """Does nothing."""

    async def stop(self) -> None:
        """Does nothing."""


class SimHost:
    """The doors of one incarnation; implements `system_under_test.runtime.Host`."""

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
        address: Where it listens.
        incarnation: Counts the starts of its process.
        state: "off" (no power), "running", "paused", "stopping" or "dead" (power, but no process).
        loop: The loop of the present or last process.
        host: The doors of the present or last process.
        process: What `main` returned.
        crash: The exception that ended the last process, if one did.
        exit_reason: How the last process ended: "stopped", "stop-timeout", "killed", "oom", "power-off" or
            "crashed"; empty if none did.
        slowed_callbacks: Callbacks of all its processes that took CPU time.
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
            raise ValueError(f"no node kind is called {kind!r}; there are {', '.join(KINDS)}")
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
        """Returns the doors of the present or last process."""
        if self._host is None:
            raise SimulationError(f"{self.name} was never started")
        return self._host

    @property
    def is_slowed(self) -> bool:
        """Whether its processes compute slower than the weather says."""
        return self._cpu_factor != 1.0

    # Life

    def start(self) -> None:
        """Starts a new process, and the machine before it if it is off.

        Raises:
            SimulationError: There is a process already.
        """
        if self.is_alive:
            raise SimulationError(f"{self.name} is {self.state} and cannot be started")
        timeline = self.timeline
        boots = self.state == "off"
        if boots:
            # Whole seconds read well; the range is far from what any other node shows.
            self.clock.boot(timeline.random.stream("clock", self.name).randrange(1_000, 100_000))
        self.incarnation += 1
        self.state = "running"
        self._is_stopping = False
        self.crash = None
        self._note("start", self.incarnation)
        loop = self._loop = NodeLoop(timeline, self, self._processes)  # type: ignore[abstract]  # the rest of it is forbidden, at run time
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
        """Asks the process to shut down (SIGTERM), and kills it if it takes too long.

        A paused process hears of it when it is resumed.
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
        """Ends the process at once (SIGKILL); none of its code runs any more. The page cache stays."""
        if self.is_alive:
            self._end("killed")

    def oom_kill(self) -> None:
        """Ends the process as the kernel does when there is no memory left; for the process it is a `kill`."""
        if self.is_alive:
            self._end("oom")

    def power_off(self, mode: str, *, keep: dict[str, int] | None = None) -> PowerCutReport:
        """Takes the power away.

        Args:
            mode: One of `power_cut.MODES`, or "draw".
            keep: Exact outcomes: path to the length of the prefix of its cached content that survives.

        Returns:
            What was lost.

        Raises:
            IllegalPowerCut: `keep` asks for something impossible; nothing happened.
        """
        if mode == "draw":
            mode = draw_mode(self.disk.random)
        report = self.disk.power_cut(mode, keep=keep)
        self._note(f"power off {mode}", report.lost_bytes)
        was_alive = self.is_alive
        self.state = "off"
        if was_alive:
            self._bury("power-off", host_is_off=True)
        else:
            self._network.refresh()
        return report

    def pause(self) -> None:
        """Stops the process (SIGSTOP). Its kernel lives on: connections are accepted and data is received."""
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
        """Makes the node's processes, this and later ones, compute slower; 1 is the weather's normal speed."""
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
        """Lets both clocks of the node run wrong; timers that are set follow. 0 ends it (`HostClock.unskew`)."""
        self._note("clock skew", ppm)
        if ppm:
            self.clock.skew(ppm)
        else:
            self.clock.unskew()
        self._retime()

    def set_clock_drift(self, drift_ppm: int) -> None:
        """Changes the rate of the node's monotonic clock; timers that are set follow."""
        self._note("clock drift", drift_ppm)
        self.clock.set_drift(drift_ppm)
        self._retime()

    def _retime(self) -> None:
        if self._loop is not None and not self._loop.dead:
            self.timeline.retime(self._loop, self.clock.true_ns_at)

    def process_failed(self, error: BaseException) -> None:
        """An exception nobody handled ends the process.

        It is a failure of the run, unless it is a disk error or a deliberate exit.
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
        self._bury(reason, host_is_off=False)

    def _bury(self, reason: str, *, host_is_off: bool) -> None:
        loop = self.loop
        self.exit_reason = reason
        dead = DeadProcess(loop=loop, program=self.process, tasks=loop.die())
        self._processes.graveyard.append(dead)
        self.disk.refresh_views()
        self._network.process_died(loop, host_is_off=host_is_off)
        for callback in list(self.on_exit):
            callback(self, reason)

    def _note(self, what: str, detail: int = 0) -> None:
        self.timeline.trace.note(self.timeline.now, f"node {self.name} {what}", detail)
