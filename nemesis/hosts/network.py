"""Network faults on hosts: nft rules and queueing disciplines in the network namespaces of nodes."""

import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import Any

from nemesis.agent.client import AgentGoneError
from nemesis.agent.errors import AgentError
from nemesis.hosts.mechanism import HostInjection, Mechanisms
from nemesis.shapes import Pairs, affected_pairs

PROBE_LIMIT_MS = 250

PacketRule = dict[str, Any]
Rules = dict[str, list[PacketRule]]
"""Packet rules by node, as the agent's command `net_apply` takes them."""

_KINDS = {"reject": "reject", "loss": "loss", "delay": "delay"}
"""Kinds of packet rules by fault; all other faults drop packets."""


class PacketInjection(HostInjection):
    """Packets between pairs of hosts are dropped, refused, lost or delayed."""

    _pairs: Pairs = ()
    _rules: Rules
    _in_force_ms = 0.0
    _skew_ms = 0.0
    _packets_at: Mapping[str, int] | None = None
    _mechanism = ""
    _probe: Mapping[str, Any] | None = None

    def select(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns all nodes, if any packets between hosts are concerned."""
        if nodes:
            self._pairs = affected_pairs(self.fault, nodes, self.hosts.cluster.population())
        self._rules = self._make_rules(self._pairs)
        return nodes if self._pairs else ()

    async def begin(self) -> None:
        """Puts the packet rules in force on all hosts at one instant."""
        sent_ns = time.monotonic_ns()
        responses = await apply_rules(self, self._rules)
        done_ns = [int(response["in_force_ns"]) for response in responses.values()]
        self._in_force_ms = round((max(done_ns) - sent_ns) / 1e6, 2)
        self._skew_ms = round((max(done_ns) - min(done_ns)) / 1e6, 2)

    async def remove(self) -> None:
        """Removes the packet rules and keeps their counters."""
        self._count(await remove_rules(self, self._rules))

    async def undo(self) -> None:
        """Removes the packet rules wherever they may be in force."""
        with contextlib.suppress(AgentError, AgentGoneError):
            await remove_rules(self, self._rules)
        await super().undo()

    async def observe(self) -> None:
        """Reads the counters, then tries once to connect through the fault."""
        self._count(await read_counters(self, self._rules))
        # The counters come first: the probe's own packets prove nothing about the system's.
        servers = self.hosts.cluster.nodes
        pair = next((pair for pair in self._pairs if set(pair) <= set(servers)), None)
        if pair is not None and self._probe is None:
            self._probe = await self._connect(*pair)

    def evidence(self) -> dict[str, Any]:
        """Returns where the packet rules are, how fast they came into force, and what they caught."""
        evidence: dict[str, Any] = {
            "hosts": sorted(self._rules),
            "in_force_ms": self._in_force_ms,
            "skew_ms": self._skew_ms,
        }
        if self._packets_at is not None:
            evidence["packets"] = sum(self._packets_at.values())
            evidence["packets_at"] = dict(self._packets_at)
        if self._mechanism:
            evidence["mechanism"] = self._mechanism
        if self._probe is not None:
            evidence["probe"] = dict(self._probe)
        return evidence

    def took_effect(self) -> bool:
        """Whether any packet was caught."""
        return self._packets_at is not None and sum(self._packets_at.values()) > 0

    def _make_rules(self, pairs: Iterable[tuple[str, str]]) -> Rules:
        """Returns per node the packet rules that catch the packets of ordered pairs of hosts."""
        params = self.fault.params
        details = {key: params[key] for key in ("percent", "ms", "jitter_ms") if key in params}
        by_place: dict[tuple[str, str], list[list[str]]] = {}
        for source, target in pairs:
            place = self._place(source, target)
            if place is not None:
                pair = [self.hosts.address(source), self.hosts.address(target)]
                by_place.setdefault(place, []).append(pair)
        rules: Rules = {}
        kind = _KINDS.get(self.fault.fault, "drop")
        for (name, hook), addresses in by_place.items():
            rule = {"kind": kind, "hook": hook, "pairs": addresses, **details}
            rules.setdefault(name, []).append(rule)
        return rules

    def _place(self, source: str, target: str) -> tuple[str, str] | None:
        """Returns the node, and the hook of its kernel, where the packets of a pair can be caught."""
        nodes = self.hosts.cluster.nodes
        clients = self.hosts.cluster.packets_at_clients
        if self.fault.params.get("at", "receiver") == "sender" and source in nodes:
            return source, "output"
        if target in nodes:
            return target, "input"
        if clients:
            return clients, "input"
        # No agent sees packets arrive at clients here, so they are caught where they leave.
        return (source, "output") if source in nodes else None

    def _count(self, responses: Mapping[str, Any]) -> None:
        if self._packets_at is not None and self._probe is not None:
            return  # some of the packets after the probe are the probe's own
        self._packets_at = {
            name: int(response.get("packets", 0)) for name, response in responses.items()
        }
        used = {response["mechanism"] for response in responses.values() if "mechanism" in response}
        if used:
            self._mechanism = ", ".join(sorted(used))

    async def _connect(self, source: str, target: str) -> dict[str, Any]:
        node = self.hosts.node(target)
        response = await self.hosts.request(
            source, "probe", address=node.address, port=node.port, timeout_ms=PROBE_LIMIT_MS
        )
        return {"from": source, "to": target, **response}


class Bandwidth(HostInjection):
    """What nodes send has to pass a slow link."""

    _overlimits: Mapping[str, int] | None = None

    def select(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns all nodes; a link is slow also while its node is down."""
        return nodes

    async def begin(self) -> None:
        """Shapes what leaves the nodes."""
        await apply_rules(
            self,
            {
                name: [
                    {
                        "kind": "bandwidth",
                        "pairs": [[self.hosts.address(name), "*"]],
                        "rate_kib_s": self.fault.params["rate_kib_s"],
                    }
                ]
                for name in self.nodes
            },
        )

    async def remove(self) -> None:
        """Removes the shaping; its counters go with it, so they are read first."""
        await self.observe()
        await remove_rules(self, self.nodes)

    async def undo_on(self, name: str) -> None:
        """Removes the shaping of one node."""
        await remove_rules(self, (name,))

    async def observe(self) -> None:
        """Reads how often a packet had to wait."""
        responses = await read_counters(self, self.nodes)
        self._overlimits = {
            name: int(response.get("overlimits", 0)) for name, response in responses.items()
        }

    def evidence(self) -> dict[str, Any]:
        """Returns how often a packet had to wait, by node."""
        return {} if self._overlimits is None else {"overlimits": dict(self._overlimits)}

    def took_effect(self) -> bool:
        """Whether any packet had to wait."""
        return self._overlimits is not None and any(self._overlimits.values())


class ResetConnections(HostInjection):
    """Destroys every connection of the nodes, once."""

    _before: Mapping[str, int]

    def select(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns all nodes."""
        return nodes

    async def begin(self) -> None:
        """Destroys the connections."""
        responses = await self.hosts.merged(
            self.nodes, "reset_connections", lambda names: {"nodes": names}
        )
        self._before = {name: int(response["before"]) for name, response in responses.items()}

    def evidence(self) -> dict[str, Any]:
        """Returns how many connections there were, by node."""
        return {"connections_before": dict(self._before)}

    def took_effect(self) -> bool:
        """Whether there was a connection."""
        return any(self._before.values())


async def apply_rules(injection: HostInjection, rules: Rules) -> dict[str, Any]:
    """Puts the packet rules of an injection in force; returns the responses by node."""
    return await injection.hosts.merged(
        rules,
        "net_apply",
        lambda names: {"token": injection.token, "rules": {name: rules[name] for name in names}},
    )


async def read_counters(injection: HostInjection, nodes: Iterable[str]) -> dict[str, Any]:
    """Returns what the packet rules of an injection have caught, by node."""
    return await injection.hosts.merged(
        nodes, "net_evidence", lambda names: {"token": injection.token, "nodes": names}
    )


async def remove_rules(injection: HostInjection, nodes: Iterable[str]) -> dict[str, Any]:
    """Removes the packet rules of an injection; returns what they had caught, by node."""
    return await injection.hosts.merged(
        nodes, "net_remove", lambda names: {"token": injection.token, "nodes": names}
    )


MECHANISMS: Mechanisms = {
    **dict.fromkeys(("cut", "isolate", "partition", "reject", "loss", "delay"), PacketInjection),
    "bandwidth": Bandwidth,
    "reset_connections": ResetConnections,
}
