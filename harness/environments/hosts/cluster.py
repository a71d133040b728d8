"""A cluster whose nodes live on hosts with agents: containers, or machines over SSH.

What is different between the two (how hosts come to be, how a process is started on one) is a `Placement`; the
faults are the same commands to the same agent. The commands are in `nemesis.hosts`.
"""

import asyncio
import contextlib
import errno
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.contracts.capability import Capability
from harness.contracts.violation import Violation
from harness.environments.observation.event_tail import EventSource, EventTail
from harness.environments.real import HARNESS_HOST, AddRow, RealCluster
from harness.errors import HarnessFailure
from nemesis.adapter import Effect, InForce
from nemesis.agent.client import AgentClient, AgentGoneError
from nemesis.agent.errors import AgentError
from system_under_test.real.host import ClientHost

LATE_S = 2.0
"""A node that dies of a fault may be noticed a little after the fault was healed."""

_ERRORS = {
    "disk_full": f"[Errno {errno.ENOSPC}]",
    "io_error": f"[Errno {errno.EIO}]",
    "read_only": f"[Errno {errno.EROFS}]",
}
"""What the last words of a node say that died of a fault, where they say it."""


@dataclass(slots=True, kw_only=True)
class HostNode:
    """One node. Mutable: its process comes and goes.

    Attributes:
        name: "b1", "c11".
        address: Its own IPv4 address.
        port: Where it listens.
        agent: Of its host.
        pid: Of its process as the agent sees it; 0 while there is none.
        starts: How often it was started.
        silent: Token of the silence after a power cut; "" if it may speak.
        excuses: Faults of which it may die: token to name. `late_excuses` are over, but only just.
    """

    name: str
    role: str
    node_id: int
    address: str
    port: int
    agent: AgentClient
    pid: int = 0
    starts: int = 0
    silent: str = ""
    excuses: dict[str, str] = field(default_factory=dict)
    late_excuses: dict[str, str] = field(default_factory=dict)

    @property
    def listen(self) -> str:
        """Where it listens."""
        return f"{self.address}:{self.port}"


class Placement(Protocol):
    """Where nodes live.

    Attributes:
        nodes: By name, controllers first.
        client_addresses: IPv4 address of every client host and of the harness, as nodes see it.
        client_sources: Address from which a client host connects; those that are not named leave it to the kernel.
        packets_at_clients: Node under which an agent sees the packets that reach clients; "" if none does.
    """

    nodes: dict[str, HostNode]
    client_addresses: dict[str, str]
    client_sources: dict[str, str]
    packets_at_clients: str

    def capabilities(self) -> dict[str, Capability]:
        """Returns what every fault can be done with here."""
        ...

    async def begin(self) -> None:
        """Makes hosts, disks and files; starts no node."""
        ...

    async def start_process(self, node: HostNode) -> int:
        """Starts a node's process and returns its pid; 0 if it ended at once."""
        ...

    async def exit_code(self, node: HostNode) -> int | None:
        """Returns how a node's last process ended, as far as anybody knows."""
        ...

    async def last_words(self, node: HostNode) -> str:
        """Returns the last line that a node said on its standard output or error."""
        ...

    def source(self) -> EventSource:
        """Returns where event logs grow."""
        ...

    async def collect(self) -> None:
        """Brings what nodes said home; whatever fails is left out."""
        ...

    async def end(self) -> list[str]:
        """Removes everything; returns what could not be removed."""
        ...


class HostCluster(RealCluster):
    """Implements `harness.contracts.cluster.Deployment` over hosts with agents.

    Args:
        placement: The hosts; not begun yet.
        add_row: Takes history rows.
        clients: How many client hosts.
        on_violation: Called with everything that no node may do.
        seed: For draws inside a fault (which pages survive); the same for the same seed.
    """

    def __init__(
        self,
        placement: Placement,
        add_row: AddRow,
        *,
        clients: int,
        on_violation: Callable[[Violation], None],
        seed: int,
    ) -> None:
        super().__init__(
            ((node.name, node.role, node.node_id) for node in placement.nodes.values()),
            add_row,
            clients=clients,
            on_violation=on_violation,
        )
        from nemesis.hosts.faults import HostFaults

        self.placement = placement
        self.nodes = placement.nodes
        self.seed = seed
        self.bootstrap = tuple(node.listen for node in self.nodes.values() if node.role == "broker")
        self.leftovers: list[str] = []
        self.facts: dict[str, Any] = {}
        self._expected_down: dict[str, None] = dict.fromkeys(self.nodes)
        # Processes by node and pid: those that have ended, and those of them that a fault had taken down.
        self._ended: set[tuple[str, int]] = set()
        self._taken_down: set[tuple[str, int]] = set()
        self._changing = {name: asyncio.Lock() for name in self.nodes}
        self._is_ending = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._capabilities = placement.capabilities()
        self._faults = HostFaults(self)

    @property
    def supported_faults(self) -> frozenset[str]:
        """Names of the faults that can be injected here."""
        return frozenset(name for name, can in self._capabilities.items() if can.is_there)

    def describe(self) -> dict[str, Any]:
        """Returns what a run should say about this world: how faults are done, and the hosts' kernels."""
        how = {name: capability.line() for name, capability in sorted(self._capabilities.items())}
        return {"faults": how, "hosts": self.facts, "left_behind": self.leftovers}

    # -- life

    async def start(self) -> None:
        """Makes the hosts, starts all nodes, and to follow what they say."""
        self._loop = asyncio.get_running_loop()
        await self.placement.begin()
        for node in self.nodes.values():
            if node.agent.name not in self.facts:
                self.facts[node.agent.name] = await node.agent.ask("facts")
        for agent in {id(node.agent): node.agent for node in self.nodes.values()}.values():
            agent.on_event = self._event_of_agent
        self._hosts = {
            name: ClientHost(name, source=self.placement.client_sources.get(name))
            for name in (*self.clients, HARNESS_HOST)
        }
        await asyncio.gather(*(self.start_node(name) for name in self.nodes))
        self.follow(EventTail(self.placement.source()))

    async def end(self) -> None:
        """Stops to follow, brings home what nodes said, and removes everything. Never raises."""
        self._is_ending = True
        problems = []
        for step in (self.stop_following, self.placement.collect):
            try:
                await step()
            except Exception as error:
                problems.append(f"{step.__name__}: {type(error).__name__}: {error}")
        try:
            problems += await self.placement.end()
        except Exception as error:  # whatever it is: the verdict does not depend on it
            problems.append(f"{type(error).__name__}: {error}")
        self.leftovers = problems

    def is_alive(self, name: str) -> bool:
        """Whether a node's process is there, running or not."""
        return self.nodes[name].pid > 0

    async def start_node(self, name: str) -> bool:
        """Starts a node, with its power if that was cut; returns whether it had to be started."""
        # Two faults may be healed at once, and both start what is down.
        async with self._changing[name]:
            return await self._start_if_down(self.nodes[name])

    async def _start_if_down(self, node: HostNode) -> bool:
        if node.pid:
            return False
        if node.silent:
            token, node.silent = node.silent, ""
            await node.agent.ask("power_on", nodes=[node.name], token=token)
        self._expected_down.pop(node.name, None)
        node.starts += 1
        pid = await self.placement.start_process(node)
        # One that ended while its start was still being told of is not alive.
        if not pid:
            self._dead(node)
        elif (node.name, pid) not in self._ended:
            node.pid = pid
        return True

    async def end_process(self, name: str, how: str, limit_s: float = 15.0) -> Any:
        """Ends a node's process, which is expected from now on."""
        async with self._changing[name]:
            await self.look_before_end((name,))
            self._expected_down[name] = None
            agent = self.nodes[name].agent
            answer = await agent.ask("end_process", node=name, how=how, limit_s=limit_s)
            self.process_is_gone(name)
            return answer

    async def look_before_end(self, names: Iterable[str]) -> None:
        """Notes what only living nodes can show of the faults in force on them."""
        await self._faults.look_before_end(names)

    def process_is_gone(self, name: str) -> None:
        """Notes that a node was taken down."""
        node = self.nodes[name]
        self._expected_down[name] = None
        if node.pid:
            self._taken_down.add((name, node.pid))
            node.pid = 0
            self.went_down((name,))

    def expect_end(self, name: str) -> None:
        """Notes that a node is about to be taken down."""
        self._expected_down[name] = None

    def is_expected_up(self, name: str) -> None:
        """Notes that a node was not taken down after all."""
        self._expected_down.pop(name, None)

    async def settle(self) -> None:
        """Starts whatever is down, and destroys connections that may be stuck in TCP's back-off."""
        by_agent: dict[int, list[str]] = {}
        for name, node in self.nodes.items():
            by_agent.setdefault(id(node.agent), []).append(name)
        for names in by_agent.values():
            agent = self.nodes[names[0]].agent
            with contextlib.suppress(AgentError):
                await agent.ask("reset_connections", nodes=names)
        await asyncio.gather(*(self.start_node(name) for name in self.nodes))

    # -- faults

    async def inject(
        self, fault: str, nodes: tuple[str, ...], params: Mapping[str, Any]
    ) -> InForce:
        """Injects a fault; returns when it is in force on all nodes that it can hit."""
        try:
            return await self._faults.inject(fault, nodes, params)
        except (AgentError, AgentGoneError, HarnessFailure) as error:
            # A fault that could not be injected is an unknown for the run, not its end.
            return InForce(nodes=(), evidence={"error": str(error), "bit": False})

    async def heal(self, fault: str, in_force: InForce) -> None:
        """Removes exactly what this injection added; starts nodes that it took down. Idempotent."""
        try:
            await self._faults.heal(fault, in_force)
        except (AgentError, AgentGoneError) as error:
            in_force.evidence["error"] = f"not healed: {error}"

    async def effect(self, fault: str, in_force: InForce) -> Effect:
        """Returns whether the fault bit."""
        if not in_force.nodes:
            return Effect(bit=False, evidence={**in_force.evidence, "hit": "nobody"})
        try:
            return await self._faults.effect(fault, in_force)
        except (AgentError, AgentGoneError) as error:
            return Effect(bit=False, evidence={**in_force.evidence, "error": str(error)})

    # -- processes that end

    def _event_of_agent(self, event: dict[str, Any]) -> None:
        """Takes an agent's event, on the reader's thread."""
        if event.get("event") == "exited" and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the run is over
                self._loop.call_soon_threadsafe(self._exited, event)

    def _exited(self, event: dict[str, Any]) -> None:
        name = event["node"]
        node = self.nodes[name]
        process = (name, event["pid"])
        self._ended.add(process)
        if process in self._taken_down or name in self._expected_down or self._is_ending:
            return
        self._dead(node)

    def _dead(self, node: HostNode) -> None:
        """Takes notice of a process that ended without having been told to."""
        node.pid = 0
        self._expected_down[node.name] = None
        self._background(self._ended_by_itself(node, {**node.late_excuses, **node.excuses}))

    async def _ended_by_itself(self, node: HostNode, excuses: Mapping[str, str]) -> None:
        words = code = None
        with contextlib.suppress(AgentError, AgentGoneError):
            words = await self.placement.last_words(node)
            code = await self.placement.exit_code(node)
        if excuses:
            self.went_down((node.name,))
            causes = [
                token
                for token, fault in excuses.items()
                if _ERRORS.get(fault, "?") in (words or "")
            ]
            was_in_force = [
                self._faults.excused_end(token, node.name, words or "")
                for token in causes or excuses
            ]
            if not any(was_in_force):
                await self.start_node(node.name)  # the fault is over, and nobody else will
            return
        self.died(node.name, f"exit code {code}", words or "no word")

    def no_longer_excused(self, name: str, token: str) -> None:
        """Ends an excuse, with a little time for news that is on its way."""
        node = self.nodes[name]
        fault = node.excuses.pop(token, None)
        if fault is not None:
            node.late_excuses[token] = fault
            loop = asyncio.get_running_loop()
            loop.call_later(LATE_S, node.late_excuses.pop, token, None)

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def true_wall_ms(self, name: str, at_ns: int) -> float:
        """Returns the true wall time at a moment of this machine's monotonic clock."""
        return (time.time_ns() - time.monotonic_ns() + at_ns) / 1e6
