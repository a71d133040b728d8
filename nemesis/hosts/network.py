"""Faults of packets, on hosts: rules in the network namespaces of nodes."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from nemesis.adapter import InForce
from nemesis.fault import Fault
from nemesis.hosts.mechanism import FaultKind, Handler
from nemesis.shapes import affected_pairs

PROBE_LIMIT_MS = 250

Rules = dict[str, list[dict[str, Any]]]


class NetworkFaults(FaultKind):
    """Cuts, partitions, refusals, loss, delay, slow links."""

    def handlers(self) -> dict[str, Handler]:
        """Returns how each fault of this kind is done."""
        return {
            **dict.fromkeys(
                ("cut", "isolate", "partition", "reject", "loss", "delay"),
                Handler(inject=self._packets, heal=self._heal_packets, effect=self._effect_packets),
            ),
            "bandwidth": Handler(
                inject=self._bandwidth, heal=self._heal_bandwidth, effect=self._effect_bandwidth
            ),
            "reset_connections": Handler(inject=self._reset_connections),
        }

    async def _packets(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        fault = params["fault"]
        if not nodes:
            return InForce(nodes=())
        made = Fault(
            id=token,
            fault=fault,
            targets=nodes,
            params={key: value for key, value in params.items() if key != "fault"},
            is_drawn=True,
        )
        pairs = affected_pairs(made, nodes, self._cluster.population())
        if not pairs:
            return InForce(nodes=())
        rules = self._rules(fault, pairs, params)
        sent_ns = time.monotonic_ns()
        answers = await self._apply(token, rules)
        done_ns = [int(answer["in_force_ns"]) for answer in answers.values()]
        first = next((pair for pair in pairs if set(pair) <= set(self._cluster.nodes)), None)
        return InForce(
            nodes=nodes,
            token={"at": list(rules), "probe": first},
            evidence={
                "hosts": sorted(rules),
                "in_force_ms": round((max(done_ns) - sent_ns) / 1e6, 2),
                "skew_ms": round((max(done_ns) - min(done_ns)) / 1e6, 2),
            },
        )

    def _rules(
        self, fault: str, pairs: Iterable[tuple[str, str]], params: Mapping[str, Any]
    ) -> Rules:
        """Returns per node the rules that catch the packets of ordered pairs of hosts."""
        kind = fault if fault in ("reject", "loss", "delay") else "drop"
        details = {key: params[key] for key in ("percent", "ms", "jitter_ms") if key in params}
        by_place: dict[tuple[str, str], list[list[str]]] = {}
        for source, target in pairs:
            place = self._place(source, target, params.get("at", "receiver"))
            if place is not None:
                pair = [self._address(source), self._address(target)]
                by_place.setdefault(place, []).append(pair)
        rules: Rules = {}
        for (name, hook), addresses in by_place.items():
            rule = {"kind": kind, "hook": hook, "pairs": addresses, **details}
            rules.setdefault(name, []).append(rule)
        return rules

    def _place(self, source: str, target: str, at: str) -> tuple[str, str] | None:
        """Returns at which node, and where in its kernel, the packets of a pair can be caught."""
        nodes = self._cluster.nodes
        clients = self._cluster.placement.packets_at_clients
        if at == "sender" and source in nodes:
            return source, "output"
        if target in nodes:
            return target, "input"
        if clients:
            return clients, "input"
        # Nobody sees packets arrive at clients here, so they are caught where they leave.
        return (source, "output") if source in nodes else None

    async def _apply(self, token: str, rules: Rules) -> dict[str, Any]:
        answers: dict[str, Any] = await self._at(
            list(rules),
            "net_apply",
            lambda names: {"token": token, "rules": {name: rules[name] for name in names}},
        )
        return answers

    async def _heal_packets(self, in_force: InForce, token: str) -> None:
        places = in_force.token["at"]
        answers = await self._at(
            places, "net_remove", lambda names: {"token": token, "nodes": names}
        )
        self._count_packets(in_force, answers)
        in_force.token["is_removed"] = True

    async def _effect_packets(self, in_force: InForce, token: str) -> None:
        if in_force.token.get("is_removed"):
            return
        places = in_force.token["at"]
        answers = await self._at(
            places, "net_evidence", lambda names: {"token": token, "nodes": names}
        )
        self._count_packets(in_force, answers)
        pair = in_force.token.get("probe")
        # The counters come first: the probe's own packets prove nothing about the system's.
        if pair is not None and "probe" not in in_force.evidence:
            in_force.evidence["probe"] = await self._probe(*pair)

    def _count_packets(self, in_force: InForce, answers: Mapping[str, Any]) -> None:
        if "packets" in in_force.evidence and "probe" in in_force.evidence:
            return  # what came after the probe is partly the probe's
        packets = {name: int(answer.get("packets", 0)) for name, answer in answers.items()}
        used = {answer["mechanism"] for answer in answers.values() if "mechanism" in answer}
        if used:
            in_force.evidence["mechanism"] = ", ".join(sorted(used))
        in_force.evidence["packets"] = sum(packets.values())
        in_force.evidence["packets_at"] = packets
        in_force.evidence["bit"] = sum(packets.values()) > 0

    async def _probe(self, source: str, target: str) -> dict[str, Any]:
        node = self._node(target)
        answer = await self._node(source).agent.ask(
            "probe",
            node=source,
            address=node.address,
            port=node.port,
            timeout_ms=PROBE_LIMIT_MS,
        )
        return {"from": source, "to": target, **answer}

    async def _bandwidth(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        nodes = tuple(
            name
            for name in nodes
            if not any("bandwidth" in other.token for other in self._of(name))
        )
        rules = {
            name: [
                {
                    "kind": "bandwidth",
                    "pairs": [[self._address(name), "*"]],
                    "rate_kib_s": params["rate_kib_s"],
                }
            ]
            for name in nodes
        }
        await self._apply(token, rules)
        return InForce(nodes=nodes, token={"at": list(nodes), "bandwidth": True})

    async def _heal_bandwidth(self, in_force: InForce, token: str) -> None:
        await self._effect_bandwidth(in_force, token)
        await self._at(
            list(in_force.nodes), "net_remove", lambda names: {"token": token, "nodes": names}
        )
        in_force.token["is_removed"] = True

    async def _effect_bandwidth(self, in_force: InForce, token: str) -> None:
        if in_force.token.get("is_removed"):
            return
        answers = await self._at(
            list(in_force.nodes), "net_evidence", lambda names: {"token": token, "nodes": names}
        )
        overlimits = {name: int(answer.get("overlimits", 0)) for name, answer in answers.items()}
        in_force.evidence["overlimits"] = overlimits
        in_force.evidence["bit"] = any(overlimits.values())

    async def _reset_connections(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        answers = await self._at(list(nodes), "reset_connections", lambda names: {"nodes": names})
        before = {name: int(answer["before"]) for name, answer in answers.items()}
        return InForce(
            nodes=nodes,
            evidence={"connections_before": before, "bit": any(before.values())},
        )
