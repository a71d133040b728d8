"""What every cluster of real processes has in common, wherever its nodes live.

Clients live in this process and use TCP. Committed metadata, marks and replica states come from the nodes' event
logs, stamped with the machine's monotonic clock. A node that ends by itself is a finding, unless a fault explains
its end.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from harness.contracts.cluster import HARNESS_HOST, AddRow, Population
from harness.contracts.metadata import CommittedMetadata
from harness.environments.observation.event_tail import EventTail
from harness.environments.observation.states import MetadataWitness, NodeObserver
from system_under_test.invariants import InvariantViolation
from system_under_test.real.events import Event, record_from_text
from system_under_test.real.host import ClientHost
from system_under_test.runtime import Host

READ_EVERY_S = 0.02
HOLD_BACK_NS = 30_000_000
"""How long an event waits for older ones of other nodes."""


class RealCluster:
    """The part of `harness.runs.phases.Deployment` that does not depend on where nodes live.

    Args:
        nodes: (name, role, node id) of every node.
        add_row: Takes history rows.
        clients: How many client hosts.
        on_violation: Called with one sentence per violation: a node ends by itself, or contradicts another.
        hold_back_ns: How long an event waits for older ones of other nodes.

    Attributes:
        clocks: What each node reported about its clocks, oldest first: (at_ns, wall_ms, monotonic_ns).
    """

    def __init__(
        self,
        nodes: Iterable[tuple[str, str, int]],
        add_row: AddRow,
        *,
        clients: int,
        on_violation: Callable[[str], None],
        hold_back_ns: int = HOLD_BACK_NS,
    ) -> None:
        nodes = tuple(nodes)
        self.metadata = CommittedMetadata()
        self.clocks: dict[str, list[tuple[int, int, int]]] = {name: [] for name, _, _ in nodes}
        self._on_violation = on_violation
        self._began_ns = time.monotonic_ns()
        self._event_ns = 0
        self._hold_back_ns = hold_back_ns
        self.brokers = {name: node_id for name, role, node_id in nodes if role == "broker"}
        self.controllers = {name: node_id for name, role, node_id in nodes if role == "controller"}
        self.clients = tuple(f"client-{index}" for index in range(clients))
        self.harness_host = HARNESS_HOST
        self._hosts: dict[str, ClientHost] = {}
        self.witness = MetadataWitness(self.metadata, add_row, self._time_of_event)
        self._observers = {
            name: NodeObserver(name, node_id, self.witness, add_row, self._time_of_event)
            for name, _, node_id in nodes
        }
        self._tail: EventTail | None = None
        self._ends: list[tuple[int, str]] = []
        self._reader: asyncio.Task[None] | None = None
        self._is_broken = False
        self._is_following = True

    # -- what a kind of cluster adds

    def is_alive(self, name: str) -> bool:
        """Whether a node's process exists, running or not."""
        raise NotImplementedError

    def watch_processes(self) -> None:
        """Reports processes that have ended by themselves; called repeatedly."""

    # -- life

    def now_ns(self) -> int:
        """Returns nanoseconds since this object was made, on the machine's monotonic clock."""
        return time.monotonic_ns() - self._began_ns

    def follow(self, tail: EventTail) -> None:
        """Starts following the event logs."""
        self._tail = tail
        self._reader = asyncio.get_running_loop().create_task(self._follow(), name="event-tail")

    async def stop_following(self) -> None:
        """Stops following, after reading the event logs once more."""
        # A flag, because a cancellation may get lost when it coincides with an awaited response.
        self._is_following = False
        try:
            if self._reader is not None:
                await self._reader
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

    def client_host(self, name: str) -> Host:
        """Returns the interfaces of a client host, or of the harness's host."""
        return self._hosts[name]

    def spawn(self, node: str, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Runs a coroutine; all clients share this process's loop."""
        return asyncio.get_running_loop().create_task(coroutine, name=node)

    async def call(self, node: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Runs a coroutine and waits for it."""
        return await coroutine

    def went_down(self, names: Iterable[str], at_ns: int | None = None) -> None:
        """Notes that nodes are down; their observers learn it after all events that the nodes had written."""
        at_ns = time.monotonic_ns() if at_ns is None else at_ns
        self._ends.extend((at_ns, name) for name in names)

    def died(self, name: str, how: str, final_log_line: str) -> None:
        """Notes that a node ended by itself."""
        self.went_down((name,))
        self._on_violation(f"{name} ended by itself ({how}): {final_log_line}")

    # -- what nodes report

    async def _follow(self) -> None:
        while self._is_following:
            await asyncio.sleep(READ_EVERY_S)
            await self._read(time.monotonic_ns() - self._hold_back_ns)
            self.watch_processes()

    async def _read(self, until_ns: int) -> None:
        assert self._tail is not None
        for event in await self._tail.read(until_ns):
            self._take_ends(event.at_ns)
            self._event_ns = event.at_ns - self._began_ns
            if not self._is_broken:
                self._take(event)
        self._take_ends(until_ns)

    def _take_ends(self, until_ns: int) -> None:
        while self._ends and self._ends[0][0] <= until_ns:
            at_ns, name = self._ends.pop(0)
            self._event_ns = at_ns - self._began_ns
            self._observers[name].node_went_down()

    def _take(self, event: Event) -> None:
        observer = self._observers[event.node]
        fields: Mapping[str, Any] = event.fields
        try:
            if event.event == "metadata":
                offset, quorum_epoch, record = record_from_text(fields["record"])
                observer.metadata_committed(offset, quorum_epoch, record)
            elif event.event == "replica":
                observer.replica_changed(**fields)
            elif event.event == "mark":
                observer.mark(fields["name"], **fields["details"])
            elif event.event == "clock":
                readings = self.clocks[event.node]
                readings.append((event.at_ns, fields["wall_ms"], fields["monotonic_ns"]))
        except InvariantViolation as violation:
            self._is_broken = True  # later events cannot be trusted to be consistent
            self._on_violation(f"{event.node}: {violation}")

    def _time_of_event(self) -> int:
        return max(self._event_ns, 0)
