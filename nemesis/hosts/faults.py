"""The faults of the vocabulary, as commands to the agents of the hosts (`docs/faults.md`).

Every fault has three parts: `inject` returns when it is in force, `heal` removes exactly what it added, `effect`
tells what shows that it bit. What an injection has to remember is in `InForce.token`. The kinds of faults are in
modules of their own.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from nemesis.adapter import Effect, InForce
from nemesis.agent.client import AgentGoneError
from nemesis.agent.errors import AgentError
from nemesis.faults import FAULTS
from nemesis.hosts.clocks import ClockFaults
from nemesis.hosts.disks import DiskFaults
from nemesis.hosts.mechanism import FaultKind, Handler, is_kept_down
from nemesis.hosts.network import NetworkFaults
from nemesis.hosts.processes import ProcessFaults

if TYPE_CHECKING:
    from harness.environments.hosts.cluster import HostCluster

SHOWN_BY_THE_LIVING = frozenset({"pause", "io_error", "slow_disk"})
"""Faults whose evidence goes when their node goes, or gets its disk back."""


class HostFaults:
    """Injects, heals and proves faults. Mutable: it knows what is in force.

    Args:
        cluster: Whose nodes.
    """

    def __init__(self, cluster: "HostCluster") -> None:
        self._cluster = cluster
        self._count = 0
        self._in_force: dict[str, InForce] = {}
        self._kinds: list[FaultKind] = [
            kind(cluster, self._in_force)
            for kind in (NetworkFaults, ProcessFaults, ClockFaults, DiskFaults)
        ]
        self._handlers: dict[str, Handler] = {}
        for kind in self._kinds:
            self._handlers |= kind.handlers()

    async def inject(
        self, fault: str, nodes: tuple[str, ...], params: Mapping[str, Any]
    ) -> InForce:
        """Injects a fault; returns when it is in force on the nodes that it can hit."""
        self._count += 1
        token = f"{self._cluster.seed}_{self._count}"
        began_ns = time.monotonic_ns()
        try:
            in_force = await self._handlers[fault].inject(nodes, {**params, "fault": fault}, token)
        except (AgentError, AgentGoneError):
            await self._undo(fault, nodes, token)
            raise
        took_ms = round((time.monotonic_ns() - began_ns) / 1e6, 2)
        in_force.evidence.setdefault("took_ms", took_ms)
        if in_force.token is None:
            in_force.token = {}
        in_force.token |= {"token": token, "fault": fault}
        for name in set(nodes) - set(in_force.nodes):
            # Nobody may die of what did not hit it.
            if name in self._cluster.nodes:
                self._cluster.nodes[name].excuses.pop(token, None)
        if in_force.nodes:
            self._in_force[token] = in_force
        return in_force

    async def _undo(self, fault: str, nodes: Iterable[str], token: str) -> None:
        """Cleans up after an injection that failed half-way: rules go, processes run or are known to be gone."""
        self._in_force.pop(token, None)
        for name in nodes:
            for kind in self._kinds:
                kind.forget(name, token)
            node = self._cluster.nodes.get(name)
            if node is None:
                continue
            node.excuses.pop(token, None)
            with contextlib.suppress(AgentError, AgentGoneError):
                await node.agent.ask("net_remove", token=token, nodes=[name])
                if fault in ("pause", "power"):
                    await node.agent.ask("resume", node=name)
                if not (await node.agent.ask("status", node=name))["alive"]:
                    self._cluster.process_is_gone(name)
                else:
                    self._cluster.is_expected_up(name)

    async def heal(self, fault: str, in_force: InForce) -> None:
        """Removes what an injection added. Idempotent: what is gone is not removed again."""
        token = (in_force.token or {}).get("token", "")
        if self._in_force.pop(token, None) is None:
            return
        how = self._handlers[fault].heal
        if how is not None:
            await how(in_force, token)
        for name in in_force.nodes:
            if name in self._cluster.nodes:
                self._cluster.no_longer_excused(name, token)
        await self._start_dead(fault, in_force)

    async def effect(self, fault: str, in_force: InForce) -> Effect:
        """Returns whether the fault bit, asking whoever saw it."""
        how = self._handlers[fault].effect
        if how is not None:
            await how(in_force, in_force.token["token"])
        evidence = dict(in_force.evidence)
        return Effect(bit=bool(evidence.get("bit")), evidence=evidence)

    def excused_end(self, token: str, name: str, words: str) -> bool:
        """Notes that a node ended because of a fault; returns whether that is still in force."""
        in_force = self._in_force.get(token)
        if in_force is not None:
            in_force.evidence.setdefault("ended_by_itself", {})[name] = words[:200]
            in_force.evidence["bit"] = True
        return in_force is not None

    async def _start_dead(self, fault: str, in_force: InForce) -> None:
        """Starts the nodes that a fault took down, or that ended because of it."""
        ended = in_force.evidence.get("ended_by_itself", {})
        names = (
            in_force.nodes if FAULTS[fault].is_outage else [n for n in in_force.nodes if n in ended]
        )
        await asyncio.gather(
            *(
                self._cluster.start_node(name)
                for name in names
                if not self._cluster.is_alive(name) and not is_kept_down(name, self._in_force)
            )
        )

    async def look_before_end(self, names: Iterable[str]) -> None:
        """Notes what shows that faults bit, while the nodes are still there to show it."""
        ending = set(names)
        for in_force in list(self._in_force.values()):
            fault = in_force.token.get("fault")
            if fault in SHOWN_BY_THE_LIVING and ending & set(in_force.nodes):
                with contextlib.suppress(AgentError, AgentGoneError):
                    await self.effect(fault, in_force)
