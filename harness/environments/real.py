"""The common part of all clusters of real processes, independent of where the nodes run.

Clients run in this process and use TCP. Committed metadata, marks and replica states come from the nodes' event
logs, stamped with the machine's monotonic clock. A node that ends by itself is a finding, unless a fault explains
its end.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from harness.contracts.administration import Action, ActionOutcome
from harness.contracts.cluster import HARNESS_HOST, Population, Topic
from harness.contracts.host import ClientHost
from harness.contracts.messages import NodeClock
from harness.contracts.metadata import CommittedMetadata
from harness.contracts.system import (
    ACTED_EVENT,
    CLOCK_EVENT,
    FAULT_POINT_EVENT,
    FSYNC_EVENT,
    MARK_EVENT,
    MESSAGE_EVENT,
    METRICS_EVENT,
    UNOBSERVED_EVENT,
    UNREAD_EVENT,
    Administrable,
    ChecksAtEnd,
    Event,
    EventSource,
    ExitDiagnosis,
    HasEventSource,
    HasFaultPoint,
    Node,
    NodeFiles,
    RunningNodes,
    System,
)
from harness.contracts.violation import Violation
from harness.environments.client_host import SeededClientHost
from harness.environments.observation.event_tail import EventTail, JoinedSources
from harness.environments.observation.node_clock import ObservedClock
from harness.environments.request import ClusterRequest
from harness.simulation.randomness import RandomTree

READ_EVERY_S = 0.02
HOLD_BACK_NS = 30_000_000
"""How long an event waits for older ones of other nodes."""

_OF_FAULT_POINTS = (FAULT_POINT_EVENT, ACTED_EVENT, MESSAGE_EVENT, FSYNC_EVENT)


def final_line(system: System, output: str) -> str:
    """Returns the line of a node's output that says why it ended: what its system finds, or the last line."""
    reason = system.exit_reason(output) if isinstance(system, ExitDiagnosis) else ""
    return reason or next(iter(output.splitlines()[-1:]), "")


class RealCluster:
    """The part of `harness.contracts.cluster.Deployment` that does not depend on where nodes run.

    Args:
        request: What to make.
        nodes: All nodes, as placed.

    Attributes:
        placed: All nodes.
        fault_point: What the system says of fault points; None if the nodes have none.
        reports: Called with the events of fault points, and with marks, in the order of time.
        clocks: What each node reported about its clocks, oldest first: (at_ns, wall_ms, monotonic_ns).
        unobserved: Why the nodes could not be observed until the end; empty if they could.
        unread: Files of nodes that could not be read at the end, one sentence each.
    """

    def __init__(self, request: ClusterRequest, nodes: Sequence[Node]) -> None:
        self.metadata = CommittedMetadata()
        self.clocks: dict[str, list[tuple[int, int, int]]] = {node.name: [] for node in nodes}
        self.unobserved = ""
        self.unread: list[str] = []
        self.brokers = {node.name: node.node_id for node in nodes if node.role == "broker"}
        self.controllers = {node.name: node.node_id for node in nodes if node.role == "controller"}
        self.clients = tuple(f"client-{index}" for index in range(request.clients))
        self.harness_host = HARNESS_HOST
        self.bootstrap = tuple(node.address for node in nodes if node.role == "broker")
        self._addresses = {node.node_id: node.address for node in nodes if node.role == "broker"}
        self._system = request.system
        self.placed = tuple(nodes)
        self.reports: list[Callable[[Event], None]] = []
        self.fault_point: HasFaultPoint | None = None
        if request.settings.with_fault_point:
            assert isinstance(request.system, HasFaultPoint)
            self.fault_point = request.system
        self._on_violation = request.on_violation
        self._metrics = request.metrics
        self._observation = request.system.observation(
            nodes, self.metadata, request.add_row, request.on_violation
        )
        self._began_ns = time.monotonic_ns()
        self._random = RandomTree(request.seed)
        self._hosts: dict[str, SeededClientHost] = {}
        self._logs: EventSource | None = None
        self._own_source: object = None
        self._tail: EventTail | None = None
        self._changes: list[tuple[int, str, bool]] = []
        self._reader: asyncio.Task[None] | None = None
        self._is_following = True

    # -- what a kind of cluster adds

    def is_alive(self, name: str) -> bool:
        """Whether a node's process exists, running or not."""
        raise NotImplementedError

    def runs(self, name: str) -> bool:
        """Whether a node's process runs and is not being taken down."""
        return self.is_alive(name)

    def node_files(self, name: str) -> NodeFiles:
        """Returns access to the files of a node."""
        raise NotImplementedError

    def watch_processes(self) -> None:
        """Reports processes that have ended by themselves; called repeatedly."""

    # -- life

    def now_ns(self) -> int:
        """Returns nanoseconds since this object was made, on the machine's monotonic clock."""
        return time.monotonic_ns() - self._began_ns

    def open_client_hosts(self, sources: Mapping[str, str]) -> None:
        """Makes the client hosts; `sources` are addresses from which some of them connect, by name."""
        self._hosts = {
            name: SeededClientHost(
                self._system.client_host(name, source=sources.get(name)),
                self._random.for_node(name),
            )
            for name in (*self.clients, HARNESS_HOST)
        }

    def follow(self, source: EventSource) -> None:
        """Starts following the event logs, and the system's own source of events if it has one."""
        self._logs = source
        if isinstance(self._system, HasEventSource):
            running = RunningNodes(nodes=self.placed, files_of=self.node_files, runs=self.runs)
            self._own_source = self._system.event_source(running)
            source = JoinedSources(source, self._own_source)
        self._tail = EventTail(source, self._observation.parse)
        self._reader = asyncio.get_running_loop().create_task(self._follow(), name="event-tail")

    async def stop_following(self) -> None:
        """Stops following, after reading the event logs once more."""
        # A flag, because a cancellation may get lost when it coincides with an awaited response.
        self._is_following = False
        try:
            if self._reader is not None:
                await self._reader
            if isinstance(self._own_source, ChecksAtEnd):
                await self._own_source.check_at_end()
            if self._tail is not None:
                await self._read(self._began_ns + (1 << 62))
        finally:
            if self._tail is not None:
                self._tail.close()
            for host in self._hosts.values():
                host.close()

    def population(self) -> Population:
        """Returns all hosts, and which nodes are down."""
        return Population(
            brokers=tuple(self.brokers.items()),
            controllers=tuple(self.controllers.items()),
            clients=self.clients,
            down=tuple(
                name for name in (*self.brokers, *self.controllers) if not self.is_alive(name)
            ),
        )

    def node_clock(self, name: str) -> NodeClock:
        """Returns what converts the clocks of a node to the time of the run, from what it has reported so far."""
        machine_ns = (lambda at_ns: at_ns) if self._logs is None else self._machine_ns(name)
        return ObservedClock(
            of_monotonic=lambda at_ns: self._run_ns(machine_ns(at_ns)),
            readings=[(self._run_ns(at_ns), wall_ms) for at_ns, wall_ms, _ in self.clocks[name]],
            wall_at_start_ms=(time.time_ns() - self.now_ns()) // 1_000_000,
        )

    def _machine_ns(self, name: str) -> Callable[[int], int]:
        logs = self._logs
        assert logs is not None
        return lambda at_ns: logs.time_of(name, at_ns)

    def client_host(self, name: str) -> ClientHost:
        """Returns a client host, or that of the harness."""
        return self._hosts[name]

    def spawn(self, node: str, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Runs a coroutine; all clients share this process's loop."""
        return asyncio.get_running_loop().create_task(coroutine, name=node)

    async def call(self, node: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Runs a coroutine and waits for it."""
        return await coroutine

    async def administer(self, action: Action) -> ActionOutcome:
        """Requests an administrative action; the system serves it, or it was refused before the run."""
        assert isinstance(self._system, Administrable)
        return await self._system.administer(
            self.client_host(HARNESS_HOST), self._addresses, action
        )

    def topic_created(self, topic: Topic) -> None:
        """Notes that a topic was created."""
        self._observation.topic_created(topic, self.now_ns())

    def went_up(self, name: str) -> None:
        """Notes that a node was started; observers see it in the order of time."""
        self._changes.append((time.monotonic_ns(), name, True))

    def went_down(self, names: Iterable[str]) -> None:
        """Notes that nodes are down; observers see it after all events that the nodes had written."""
        at_ns = time.monotonic_ns()
        self._changes.extend((at_ns, name, False) for name in names)

    def died(self, name: str, how: str, final_log_line: str) -> None:
        """Notes that a node ended by itself."""
        self.went_down((name,))
        self._on_violation(
            Violation(
                at_ns=self.now_ns(),
                node=name,
                invariant="",
                sentence=f"{name} ended by itself ({how}): {final_log_line}",
            )
        )

    # -- what nodes report

    async def _follow(self) -> None:
        while self._is_following:
            await asyncio.sleep(READ_EVERY_S)
            await self._read(time.monotonic_ns() - HOLD_BACK_NS)
            self.watch_processes()

    async def _read(self, until_ns: int) -> None:
        assert self._tail is not None
        for event in await self._tail.read(until_ns):
            self._take_changes(event.at_ns)
            if event.event == CLOCK_EVENT:
                reading = (event.at_ns, event.fields["wall_ms"], event.fields["monotonic_ns"])
                self.clocks[event.node].append(reading)
            elif event.event == METRICS_EVENT:
                self._take_metrics(event)
            elif event.event == UNOBSERVED_EVENT:
                self.unobserved = self.unobserved or str(event.fields["reason"])
            elif event.event == UNREAD_EVENT:
                self.unread.append(str(event.fields["what"]))
            elif event.event in _OF_FAULT_POINTS:
                self._report(event)
            else:
                self._observation.take(event, self._run_ns(event.at_ns))
                self.unobserved = self.unobserved or self._observation.doubt
                if event.event == MARK_EVENT:
                    self._report(event)
        self._take_changes(until_ns)

    def _report(self, event: Event) -> None:
        for take in self.reports:
            take(event)

    def _take_metrics(self, event: Event) -> None:
        if self._metrics is not None:
            values, gone = event.fields["values"], event.fields["gone"]
            self._metrics.changed(event.node, self._run_ns(event.at_ns), values, gone)

    def _take_changes(self, until_ns: int) -> None:
        while self._changes and self._changes[0][0] <= until_ns:
            at_ns, name, is_up = self._changes.pop(0)
            if is_up:
                self._observation.node_started(name, self._run_ns(at_ns))
            else:
                self._observation.node_went_down(name, self._run_ns(at_ns))
                if self._metrics is not None:
                    self._metrics.went_down(name, self._run_ns(at_ns))

    def _run_ns(self, at_ns: int) -> int:
        return max(at_ns - self._began_ns, 0)
