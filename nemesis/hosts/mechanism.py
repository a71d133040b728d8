"""What every mechanism on hosts builds on: the nodes and their agents, and the faults in force.

Each fault is a class derived from `HostInjection`. An injection is registered in `Hosts` before its first command
is sent, so that two faults injected at the same instant see each other.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, ClassVar

from harness.contracts.cluster import HARNESS_HOST
from nemesis.agent.client import AgentGoneError
from nemesis.agent.errors import AgentError
from nemesis.fault import Fault
from nemesis.hosts.nodes import STOP_LIMIT_S, Agent, Cluster, Node
from nemesis.mechanism import Effect

TRACER = "tracer"
"""What mechanisms claim that trace a process: it has one tracer at a time."""
LATE_S = 2.0
"""The end of a node may be noticed this long after the fault that caused it was healed."""


class Hosts:
    """The nodes, their agents, and the faults in force on them. Mutable.

    Args:
        cluster: The cluster into whose nodes faults are injected.

    Attributes:
        in_force: All injections in force, by token, oldest first.
        late: Injections that are being healed, were healed a moment ago, or could not be healed. A node that ends
            because of one of them may be noticed late.
        before_start_of: By node, what has to be done before it is started; each is done once.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.in_force: dict[str, HostInjection] = {}
        self.late: dict[str, HostInjection] = {}
        self.before_start_of: dict[str, Callable[[], Awaitable[None]]] = {}

    def on(self, name: str) -> "list[HostInjection]":
        """Returns the injections in force on a node."""
        return [one for one in self.in_force.values() if name in one.nodes]

    def is_kept_down(self, name: str) -> bool:
        """Whether an outage is in force on a node; healing the outage starts the node."""
        return any(one.fault.type.is_outage for one in self.on(name))

    def alive(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Returns the nodes that have a process."""
        return tuple(name for name in self.servers(nodes) if self.cluster.is_alive(name))

    def servers(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Returns the brokers and controllers among hosts."""
        return tuple(name for name in nodes if name in self.cluster.nodes)

    def node(self, name: str) -> Node:
        """Returns a broker or controller."""
        return self.cluster.nodes[name]

    def address(self, name: str) -> str:
        """Returns the IPv4 address of a node, a client host or the harness."""
        if name in self.cluster.nodes:
            return self.cluster.nodes[name].address
        addresses = self.cluster.client_addresses
        return addresses.get(name, addresses[HARNESS_HOST])

    async def end(
        self, nodes: Iterable[str], how: str, limit_s: float = STOP_LIMIT_S
    ) -> dict[str, Any]:
        """Ends processes side by side; returns the agents' responses by node."""
        names = list(nodes)
        responses = await asyncio.gather(
            *(self.cluster.end_process(name, how, limit_s) for name in names)
        )
        return dict(zip(names, responses, strict=True))

    async def before_end(self, names: Iterable[str]) -> None:
        """Collects evidence that disappears with the processes of these nodes, which still run."""
        ending = set(names)
        for one in list(self.in_force.values()):
            if one.is_begun and one.is_shown_by_the_living and ending & set(one.nodes):
                await one.effect()

    async def start(self, nodes: Iterable[str]) -> None:
        """Starts nodes side by side; does nothing for those that are alive."""
        await asyncio.gather(*(self.cluster.start_node(name) for name in nodes))

    async def request(self, name: str, command: str, **arguments: Any) -> Any:
        """Runs a command for one node and returns the agent's response."""
        return await self.node(name).agent.request(command, node=name, **arguments)

    async def each(self, nodes: Iterable[str], command: str, **arguments: Any) -> dict[str, Any]:
        """Runs a command for several nodes side by side; returns the responses by node."""
        names = list(nodes)
        responses = await asyncio.gather(
            *(self.request(name, command, **arguments) for name in names)
        )
        return dict(zip(names, responses, strict=True))

    async def per_agent(
        self,
        nodes: Iterable[str],
        command: str,
        arguments: Callable[[list[str]], dict[str, Any]],
    ) -> list[Any]:
        """Sends one command at one instant to every agent that has some of the nodes.

        Args:
            nodes: Brokers and controllers, and the pseudo node under which packets at clients are caught.
            command: The agent's command.
            arguments: Returns the arguments for an agent that has these nodes.

        Returns:
            The responses, one per agent.
        """
        by_agent: dict[int, list[str]] = {}
        for name in nodes:
            by_agent.setdefault(id(self._agent(name)), []).append(name)
        return await asyncio.gather(
            *(
                self._agent(names[0]).request(command, **arguments(names))
                for names in by_agent.values()
            )
        )

    async def merged(
        self,
        nodes: Iterable[str],
        command: str,
        arguments: Callable[[list[str]], dict[str, Any]],
    ) -> dict[str, Any]:
        """Does the same as `per_agent`, for commands whose responses are tables by node; returns one table."""
        responses = await self.per_agent(nodes, command, arguments)
        return {name: value for response in responses for name, value in response.items()}

    def _agent(self, name: str) -> Agent:
        node = self.cluster.nodes.get(name)
        # The pseudo node for packets at clients exists only where all nodes share one agent.
        return node.agent if node is not None else next(iter(self.cluster.nodes.values())).agent


class HostInjection:
    """One fault on hosts (`nemesis.mechanism.Injection`). Mutable: evidence is added until the fault is healed.

    A mechanism implements `select`, `begin` and `evidence`, and where needed the other hooks.

    Args:
        hosts: The nodes.
        fault: What to inject.
        token: Unique in the run; names the fault's rules on the hosts.

    Attributes:
        nodes: The nodes that it affects.
        is_begun: Whether it is in force on all its nodes.
        is_removed: Whether everything that it added is gone; no agent is queried from then on.
        ended_by_itself: Final log line of each node that ended because of it.
        error: Why it could not be injected, observed or healed; "" if all went well.
        took_ms: How long injecting it took.
    """

    is_shown_by_the_living: ClassVar[bool] = False
    """Whether its evidence disappears with the node's process, or when the node's disk is replaced."""

    def __init__(self, hosts: Hosts, fault: Fault, token: str) -> None:
        self.hosts = hosts
        self.fault = fault
        self.token = token
        self.nodes: tuple[str, ...] = ()
        self.is_begun = False
        self.is_removed = False
        self.ended_by_itself: dict[str, str] = {}
        self.error = ""
        self.took_ms = 0.0

    # -- what a mechanism implements

    @property
    def claims(self) -> frozenset[str]:
        """What it claims on a node; two injections with a claim in common never affect the same node."""
        return frozenset({self.fault.type.exclusive} - {""})

    def select(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the nodes that it can affect now, before anything is awaited."""
        return self.hosts.alive(nodes)

    async def begin(self) -> None:
        """Puts the fault in force on `nodes`; may narrow them."""
        raise NotImplementedError

    async def remove(self) -> None:
        """Removes what `begin` added; does nothing if starting the nodes again is enough."""

    async def undo_on(self, name: str) -> None:
        """Removes what a failed `begin` may have left on a node."""

    async def observe(self) -> None:
        """Queries the agents for evidence that arose after the fault was injected."""

    def evidence(self) -> dict[str, Any]:
        """Returns what is known about its effect (JSON-compatible)."""
        raise NotImplementedError

    def took_effect(self) -> bool:
        """Whether the evidence shows an effect; a node that ended because of the fault is always one."""
        raise NotImplementedError

    # -- nemesis.mechanism.Injection

    async def inject(self, nodes: tuple[str, ...]) -> None:
        """Injects the fault; returns when it is in force on all nodes that it can affect.

        Raises:
            AgentError: A command failed; `undo` cleans up.
            AgentGoneError: An agent cannot be reached.
        """
        claims = self.claims
        self.nodes = tuple(
            name
            for name in self.select(nodes)
            if not any(claims & other.claims for other in self.hosts.on(name))
        )
        if not self.nodes:
            return
        self.hosts.in_force[self.token] = self
        began_ns = time.monotonic_ns()
        await self.begin()
        self.is_begun = True
        self.took_ms = round((time.monotonic_ns() - began_ns) / 1e6, 2)
        if not self.nodes or self.fault.type.is_momentary:
            del self.hosts.in_force[self.token]

    async def heal(self) -> None:
        """Removes what it added and starts the nodes that it took down. Idempotent."""
        if self.hosts.in_force.pop(self.token, None) is None:
            return
        self.hosts.late[self.token] = self
        await self.try_to_remove()

    async def try_to_remove(self) -> None:
        """Removes what it added and starts what it took down; keeps the error if that fails."""
        try:
            await self.remove()
            self.is_removed = True
            asyncio.get_running_loop().call_later(LATE_S, self.hosts.late.pop, self.token, None)
            await self._start_ended()
        except (AgentError, AgentGoneError) as error:
            self.error = f"not healed: {error}"

    async def undo(self) -> None:
        """Cleans up after `inject` failed half-way; the fault then affects no node."""
        nodes, self.nodes = self.nodes, ()
        self.hosts.in_force.pop(self.token, None)
        for name in self.hosts.servers(nodes):
            with contextlib.suppress(AgentError, AgentGoneError):
                await self.undo_on(name)
                if (await self.hosts.request(name, "status"))["alive"]:
                    self.hosts.cluster.is_expected_up(name)
                else:
                    self.hosts.cluster.process_is_gone(name)

    async def effect(self) -> Effect:
        """Returns whether the fault took effect, after querying the agents that observed it."""
        if not self.nodes:
            return Effect(took_effect=False, evidence=self._common())
        try:
            if not self.is_removed:
                await self.observe()
        except (AgentError, AgentGoneError) as error:
            evidence = {**self.evidence(), **self._common(), "error": str(error)}
            return Effect(took_effect=False, evidence=evidence)
        return Effect(
            took_effect=self.took_effect() or bool(self.ended_by_itself),
            evidence={**self.evidence(), **self._common()},
        )

    def _common(self) -> dict[str, Any]:
        """Returns the evidence that every mechanism has."""
        common: dict[str, Any] = {"took_ms": self.took_ms}
        if self.ended_by_itself:
            common["ended_by_itself"] = dict(self.ended_by_itself)
        if self.error:
            common["error"] = self.error
        return common

    async def _start_ended(self) -> None:
        """Starts the nodes that the fault took down, or that ended because of it."""
        names = self.nodes if self.fault.type.is_outage else tuple(self.ended_by_itself)
        await self.hosts.start(
            name
            for name in names
            if not self.hosts.cluster.is_alive(name) and not self.hosts.is_kept_down(name)
        )


MakeInjection = Callable[[Hosts, Fault, str], HostInjection]
Mechanisms = Mapping[str, MakeInjection]
"""The injections of one module, by name of the fault."""
