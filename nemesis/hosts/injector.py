"""Injects faults on hosts through their agents (`nemesis.mechanism.Injector`).

The mechanisms are in separate modules; this one selects the mechanism and handles what all of them share: an
injection that fails half-way, nodes that end because of a fault, and what is left at the end of the main phase.
"""

import contextlib
import errno
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.contracts.capability import Capability
from harness.contracts.node_events import Excuse
from harness.errors import HarnessFailure
from nemesis.administration import ACTIONS, inject_action
from nemesis.agent.client import AgentGoneError
from nemesis.agent.errors import AgentError
from nemesis.fault import Fault
from nemesis.fault_points import FaultPoints, ReportedEvents, fault_points_of
from nemesis.hosts import clocks, disks, network, power, processes
from nemesis.hosts.capabilities import shared_fault_capabilities
from nemesis.hosts.mechanism import Hosts, Mechanisms
from nemesis.hosts.nodes import Cluster
from nemesis.mechanism import Injection
from nemesis.message_rules import OF_MESSAGES

MECHANISMS: Mechanisms = {
    **network.MECHANISMS,
    **processes.MECHANISMS,
    **clocks.MECHANISMS,
    **disks.MECHANISMS,
    **power.MECHANISMS,
}
"""How each fault is injected, except administrative actions, which need no agent."""

LINE_CHARS_MAX = 200
_ERRORS = {
    "disk_full": f"[Errno {errno.ENOSPC}]",
    "io_error": f"[Errno {errno.EIO}]",
    "read_only": f"[Errno {errno.EROFS}]",
}
"""How the final log line of a node names the fault that ended it, for faults where it does."""


def make_injector(cluster: Cluster) -> "HostInjector":
    """Returns the injector for a cluster on hosts, and registers it for the events of the nodes."""
    capabilities = shared_fault_capabilities(cluster.mechanisms)
    return HostInjector(cluster, capabilities, fault_points_of(cluster))


def impossible_faults(found: Sequence[Mapping[str, Mapping[str, Any]]]) -> Mapping[str, str]:
    """Returns why faults cannot be injected on hosts, by fault.

    Args:
        found: What the agent of each host found out about its kernel and tools.
    """
    capabilities = shared_fault_capabilities(found)
    return {name: can.why for name, can in capabilities.items() if not can.is_there}


class HostInjector:
    """Injects faults on hosts. Mutable: it keeps the faults in force.

    Args:
        cluster: The cluster into whose nodes faults are injected.
        capabilities: Whether, and how, each fault can be injected here.
        points: The fault points of the nodes; None if they have none.

    Attributes:
        events: The events for which faults can wait here.
    """

    def __init__(
        self,
        cluster: Cluster,
        capabilities: Mapping[str, Capability],
        points: FaultPoints | None = None,
    ) -> None:
        self._cluster = cluster
        self._points = points
        self.events = ReportedEvents(cluster, points)
        self._capabilities = dict(capabilities)
        self._hosts = Hosts(cluster)
        self._count = 0
        cluster.listen(self)

    @property
    def supported_faults(self) -> frozenset[str]:
        """Names of the faults that can be injected here."""
        of_hosts = frozenset(name for name, can in self._capabilities.items() if can.is_there)
        return of_hosts - OF_MESSAGES if self._points is None else of_hosts

    def describe(self) -> dict[str, Any]:
        """Returns, for the run's record, how each fault is injected here."""
        how = {name: capability.line() for name, capability in sorted(self._capabilities.items())}
        return {"faults": how}

    async def inject(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        """Injects a fault; returns when it is in force on all nodes that it can affect."""
        if fault.fault in ACTIONS:
            return await inject_action(self._cluster, fault, nodes)
        if fault.fault in OF_MESSAGES:
            assert self._points is not None
            return await self._points.inject(fault)
        self._count += 1
        token = f"{self._cluster.seed}_{self._count}"
        injection = MECHANISMS[fault.fault](self._hosts, fault, token)
        try:
            await injection.inject(nodes)
        except (AgentError, AgentGoneError, HarnessFailure) as error:
            # A fault that could not be injected makes the verdict unknown; it does not end the run.
            injection.error = str(error)
            await injection.undo()
        return injection

    async def settle(self) -> None:
        """Heals what is still in force, retries what could not be healed, and resets all connections.

        A connection that a fault had interrupted may otherwise wait for TCP's next retransmission for minutes.
        """
        if self._points is not None:
            await self._points.settle()
        for injection in list(self._hosts.in_force.values()):
            await injection.heal()
        for injection in [one for one in self._hosts.late.values() if not one.is_removed]:
            await injection.try_to_remove()
        by_agent: dict[int, list[str]] = {}
        for name, node in self._cluster.nodes.items():
            by_agent.setdefault(id(node.agent), []).append(name)
        for names in by_agent.values():
            with contextlib.suppress(AgentError, AgentGoneError):
                agent = self._cluster.nodes[names[0]].agent
                await agent.request("reset_connections", nodes=names)

    # -- harness.contracts.node_events.NodeListener

    async def before_start(self, name: str) -> None:
        """Switches the power of a node on again if it was cut."""
        prepare = self._hosts.before_start_of.pop(name, None)
        if prepare is not None:
            await prepare()

    async def before_end(self, names: Iterable[str]) -> None:
        """Collects evidence that disappears with the processes of these nodes."""
        await self._hosts.before_end(names)

    def excuse_for_end(self, name: str) -> Excuse | None:
        """Returns the excuse of a node that ended by itself; None if no fault explains its end."""
        hosts = self._hosts
        causes = [
            one
            for one in (*hosts.late.values(), *hosts.in_force.values())
            if one.fault.type.excuses_death and name in one.nodes
        ]
        if not causes:
            return None

        def excuse(final_log_line: str) -> bool:
            named = [one for one in causes if _ERRORS.get(one.fault.fault, "?") in final_log_line]
            in_force = [one for one in named or causes if one.token in hosts.in_force]
            for one in in_force:
                one.ended_by_itself.setdefault(name, final_log_line[:LINE_CHARS_MAX])
            return bool(in_force)

        return excuse
