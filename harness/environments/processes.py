"""A cluster of real processes on this machine as a run needs it: faults, evidence, what nodes say of themselves.

Faults are what a signal can do: kill (SIGKILL), stop (SIGTERM), pause (SIGSTOP), start. A killed process loses
nothing that it wrote, since the page cache is the machine's; whoever wants to lose data needs a world that can
cut power.

Clients live in this process and speak TCP. Committed metadata, marks and replica states come from the nodes'
event logs, stamped with the machine's monotonic clock.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from harness.contracts.environment import Effect, InForce, Population
from harness.contracts.metadata import CommittedMetadata
from harness.environments.event_tail import EventTail
from harness.environments.observation import MetadataWitness, NodeObserver
from harness.local_cluster import LocalCluster, LocalNode, cpu_ticks, process_state
from system_under_test.invariants import InvariantViolation
from system_under_test.real.events import Event, record_from_text
from system_under_test.real.host import ClientHost
from system_under_test.runtime import Host

READ_EVERY_S = 0.02
HOLD_BACK_NS = 30_000_000
"""How long an event waits for older ones of other nodes."""
STOP_GRACE_MS = 20_000
HARNESS_HOST = "harness"

AddRow = Callable[[str, tuple[Any, ...]], None]


class ProcessCluster:
    """Implements `harness.phases.Deployment` over a `LocalCluster` that was created with event logs.

    Args:
        local: The processes; not started yet.
        add_row: Takes history rows.
        clients: How many client hosts.
        on_violation: Told, in one sentence, what no node may do: end by itself, contradict another.
    """

    supported_faults = frozenset({"pause", "stop", "kill", "start", "heal"})

    def __init__(
        self,
        local: LocalCluster,
        add_row: AddRow,
        *,
        clients: int,
        on_violation: Callable[[str], None],
    ) -> None:
        self.local = local
        self.metadata = CommittedMetadata()
        self._on_violation = on_violation
        self._began_ns = time.monotonic_ns()
        self._event_ns = 0
        self.brokers = {
            name: node.node_id for name, node in local.nodes.items() if node.role == "broker"
        }
        self.controllers = {
            name: node.node_id for name, node in local.nodes.items() if node.role == "controller"
        }
        self.clients = tuple(f"client-{index}" for index in range(clients))
        self.harness_host = HARNESS_HOST
        self.bootstrap = tuple(local.bootstrap.split(","))
        self._hosts = {name: ClientHost(name) for name in (*self.clients, HARNESS_HOST)}
        self.witness = MetadataWitness(self.metadata, add_row, self._time_of_event)
        self._observers = {
            name: NodeObserver(name, node.node_id, self.witness, add_row, self._time_of_event)
            for name, node in local.nodes.items()
        }
        self._tail = EventTail(
            {name: node.directory / "events.jsonl" for name, node in local.nodes.items()}
        )
        self._taken_down: dict[str, None] = {}
        self._ends: list[tuple[int, str]] = []
        self._reader: asyncio.Task[None] | None = None
        self._is_broken = False

    # -- life

    def now_ns(self) -> int:
        """Returns nanoseconds since this object was made, on the machine's monotonic clock."""
        return time.monotonic_ns() - self._began_ns

    async def start(self) -> None:
        """Starts all processes, and to follow what they say."""
        await asyncio.to_thread(self.local.start)
        self._reader = asyncio.get_running_loop().create_task(self._follow(), name="event-tail")

    async def end(self) -> None:
        """Stops to follow, after a last look, and ends all processes."""
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
        self._look(self._began_ns + (1 << 62))
        self._tail.close()
        for host in self._hosts.values():
            host.close()
        await asyncio.to_thread(self.local.down, keep=True)

    def population(self) -> Population:
        """Returns who there is, and who is down."""
        return Population(
            brokers=tuple(self.brokers.items()),
            controllers=tuple(self.controllers.items()),
            clients=self.clients,
            down=tuple(name for name, node in self.local.nodes.items() if not node.is_alive),
        )

    def client_host(self, name: str) -> Host:
        """Returns the doors of a client host, or of the harness's."""
        return self._hosts[name]

    def spawn(self, node: str, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Runs a coroutine; all clients share this process's loop."""
        return asyncio.get_running_loop().create_task(coroutine, name=node)

    async def call(self, node: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Runs a coroutine and waits for it."""
        return await coroutine

    async def settle(self) -> None:
        """Thaws and starts everything."""
        for name in self.local.nodes:
            await asyncio.to_thread(self.local.resume, name)
            await self._start(name)

    # -- faults

    async def inject(
        self, fault: str, nodes: tuple[str, ...], params: Mapping[str, Any]
    ) -> InForce:
        """Injects a fault; returns when it is in force."""
        if fault == "start":
            down = [name for name in nodes if not self.local.nodes[name].is_alive]
            for name in down:
                await self._start(name)
            return InForce(
                nodes=tuple(down),
                evidence={"pids": {name: self._node(name).pid for name in down}, "bit": bool(down)},
            )
        alive = tuple(name for name in nodes if self.local.nodes[name].is_alive)
        if fault == "pause":
            return self._pause(alive)
        pids = {name: self._node(name).pid for name in alive}
        for name in alive:
            self._taken_down[name] = None
        grace_s = int(params.get("grace_ms", STOP_GRACE_MS)) / 1000
        ends = await asyncio.gather(
            *(
                asyncio.to_thread(self.local.kill, name)
                if fault == "kill"
                else asyncio.to_thread(self.local.stop, name, grace_s)
                for name in alive
            )
        )
        wanted = -9 if fault == "kill" else 0
        ended_ns = time.monotonic_ns()
        self._ends.extend((ended_ns, name) for name in alive)
        return InForce(
            nodes=alive,
            evidence={
                "pids": pids,
                "exit_codes": dict(zip(alive, ends, strict=True)),
                "bit": bool(alive) and all(code == wanted for code in ends),
            },
        )

    async def heal(self, fault: str, in_force: InForce) -> None:
        """Removes what this injection added; starts the nodes that it took down."""
        for name in in_force.nodes:
            if fault == "pause":
                if self._node(name).pid == in_force.token[name]:
                    self.local.resume(name)
            elif fault in ("stop", "kill"):
                await self._start(name)

    def effect(self, fault: str, in_force: InForce) -> Effect:
        """Returns whether the fault bit."""
        evidence = dict(in_force.evidence)
        if not in_force.nodes:
            return Effect(bit=False, evidence={**evidence, "hit": "nobody"})
        if fault == "pause":
            for name, pid in in_force.token.items():
                if process_state(pid) == "T":
                    # Stopped by the signal, and not one clock tick of work since then.
                    stood_still = cpu_ticks(pid) == evidence["cpu_ticks"][name]
                    in_force.evidence.setdefault("stood_still", {})[name] = stood_still
            evidence = dict(in_force.evidence)
            return Effect(
                bit=any(evidence.get("stood_still", {}).values()),
                evidence=evidence,
            )
        return Effect(bit=bool(evidence.get("bit", True)), evidence=evidence)

    def _pause(self, nodes: tuple[str, ...]) -> InForce:
        nodes = tuple(name for name in nodes if not self._node(name).is_paused)
        for name in nodes:
            self.local.pause(name)
        pids = {name: self._node(name).pid for name in nodes}
        # The signal is delivered when the process is next scheduled, at once on an idle processor.
        deadline_s = time.monotonic() + 1.0
        while time.monotonic() < deadline_s and any(
            process_state(pid) not in ("T", "") for pid in pids.values()
        ):
            time.sleep(0.001)
        return InForce(
            nodes=nodes,
            token=pids,
            evidence={
                "paused": list(nodes),
                "cpu_ticks": {name: cpu_ticks(pid) for name, pid in pids.items()},
            },
        )

    async def _start(self, name: str) -> None:
        await asyncio.to_thread(self.local.start_node, name)
        self._taken_down.pop(name, None)

    def _node(self, name: str) -> LocalNode:
        return self.local.nodes[name]

    # -- what nodes say

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(READ_EVERY_S)
            self._look(time.monotonic_ns() - HOLD_BACK_NS)
            for name, node in self.local.nodes.items():
                if name not in self._taken_down and node.pid and not node.is_alive:
                    self._died(name, node)

    def _look(self, until_ns: int) -> None:
        for event in self._tail.read(until_ns):
            self._take_ends(event.at_ns)
            self._event_ns = event.at_ns - self._began_ns
            if not self._is_broken:
                self._take(event)
        self._take_ends(until_ns)

    def _take_ends(self, until_ns: int) -> None:
        """Notes that nodes went down, behind everything that they had still said."""
        while self._ends and self._ends[0][0] <= until_ns:
            at_ns, name = self._ends.pop(0)
            self._event_ns = at_ns - self._began_ns
            self._observers[name].node_went_down()

    def _take(self, event: Event) -> None:
        observer = self._observers[event.node]
        fields = event.fields
        try:
            if event.event == "metadata":
                offset, quorum_epoch, record = record_from_text(fields["record"])
                observer.metadata_committed(offset, quorum_epoch, record)
            elif event.event == "replica":
                observer.replica_changed(**fields)
            elif event.event == "mark":
                observer.mark(fields["name"], **fields["details"])
        except InvariantViolation as violation:
            self._is_broken = True  # nothing that follows can be trusted to fit
            self._on_violation(f"{event.node}: {violation}")

    def _died(self, name: str, node: LocalNode) -> None:
        self._taken_down[name] = None
        self._ends.append((time.monotonic_ns(), name))
        last = node.log_tail().splitlines()
        self._on_violation(
            f"{name} ended by itself (exit code {node.exit_code}): {last[-1] if last else 'no word'}"
        )

    def _time_of_event(self) -> int:
        return max(self._event_ns, 0)
