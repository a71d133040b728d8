"""Network faults in the simulated world.

`nemesis.shapes.affected_pairs` decides which packets a fault is about; the rules of the simulated network apply to
exactly these pairs. The labels of the rules, and the order in which they are added, are part of the trace.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.contracts.cluster import Population
from harness.simulation.network import SimNetwork
from harness.simulation.network_faults import NetworkFault
from nemesis.fault import Fault
from nemesis.mechanism import Effect, Injection, Moment
from nemesis.shapes import Pairs, affected_pairs
from nemesis.simulated.mechanism import Inject

KIB = 1024
NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesInForce:
    """A fault that is one or more rules of the simulated network.

    Attributes:
        network: Where the rules are in force.
        nodes: The nodes that the fault is about.
        rules: Each counts the packets that it applied to.
        counted_as: The name of that count in the evidence.
    """

    network: SimNetwork
    nodes: tuple[str, ...]
    rules: tuple[NetworkFault, ...]
    counted_as: str

    async def heal(self) -> None:
        """Removes the rules."""
        for rule in self.rules:
            self.network.heal(rule)

    async def effect(self) -> Effect:
        """Returns how many packets the rules applied to; one is enough."""
        count = sum(rule.dropped_or_stalled for rule in self.rules)
        return Effect(took_effect=count > 0, evidence={self.counted_as: count})


class NetworkFaults:
    """Cuts, refuses, loses, delays and throttles what hosts send.

    Args:
        network: The simulated network.
        population: Returns all hosts.
    """

    def __init__(self, network: SimNetwork, population: Callable[[], Population]) -> None:
        self._network = network
        self._population = population

    def injections(self) -> Mapping[str, Inject]:
        """Returns how each of its faults is injected."""
        return {
            "cut": self._cut,
            "isolate": self._isolate,
            "partition": self._partition,
            "reject": self._reject,
            "loss": self._loss,
            "delay": self._delay,
            "bandwidth": self._bandwidth,
            "reset_connections": self._reset_connections,
        }

    def settle(self) -> None:
        """Removes all rules, and resets connections, whose next retransmission may be far away."""
        self._network.heal_all()
        self._network.reset_connections()

    async def _cut(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        direction = "both" if fault.value("direction") == "both" else "a_to_b"
        rules = [
            self._drop(fault, f"cut {nodes[0]} {other} {direction}", (nodes[0], other))
            for other in nodes[1:]
        ]
        return self._in_force(nodes, rules, "frames_held")

    async def _isolate(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        rules = [self._drop(fault, f"isolate {name}", (name,)) for name in nodes]
        return self._in_force(nodes, rules, "frames_held")

    async def _partition(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        groups = " | ".join(",".join(sorted(group)) for group in fault.value("groups"))
        rules = [self._drop(fault, f"partition {groups}", nodes)] if nodes else []
        return self._in_force(nodes, rules, "frames_held")

    async def _reject(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        rules = [
            self._network.refuse(
                f"reject {nodes[0]} {other}", self._pairs(fault, (nodes[0], other))
            )
            for other in nodes[1:]
        ]
        return self._in_force(nodes, rules, "packets_rejected")

    async def _loss(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        share = fault.value("percent") / 100
        rules = [
            self._network.impair(label, self._pairs(fault, nodes), loss=share)
            for label in _one_label(fault, nodes)
        ]
        return self._in_force(nodes, rules, "packets_lost")

    async def _delay(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        delay_ns = fault.value("ms") * NS_PER_MS
        jitter_ns = fault.value("jitter_ms") * NS_PER_MS
        rules = [
            self._network.impair(
                label, self._pairs(fault, nodes), delay_ns=delay_ns, jitter_ns=jitter_ns
            )
            for label in _one_label(fault, nodes)
        ]
        return self._in_force(nodes, rules, "packets_delayed")

    async def _bandwidth(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        bytes_per_s = fault.value("rate_kib_s") * KIB
        rules = [
            self._network.shape(
                f"throttle {name} {bytes_per_s}",
                self._pairs(fault, (name,)),
                bytes_per_s=bytes_per_s,
            )
            for name in nodes
        ]
        return self._in_force(nodes, rules, "frames_that_waited")

    async def _reset_connections(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        count = self._network.reset_connections(nodes) if nodes else 0
        return Moment(nodes=nodes, facts={"connections_before": count}, took_effect=count > 0)

    def _drop(self, fault: Fault, label: str, nodes: tuple[str, ...]) -> NetworkFault:
        return self._network.stall(label, self._pairs(fault, nodes), at=fault.value("at"))

    def _pairs(self, fault: Fault, nodes: tuple[str, ...]) -> Pairs:
        return affected_pairs(fault, nodes, self._population())

    def _in_force(
        self, nodes: tuple[str, ...], rules: list[NetworkFault], counted_as: str
    ) -> RulesInForce:
        return RulesInForce(
            network=self._network, nodes=nodes, rules=tuple(rules), counted_as=counted_as
        )


def _one_label(fault: Fault, nodes: tuple[str, ...]) -> list[str]:
    """Returns the label of the one rule that a fault needs for all nodes; none without nodes."""
    return [f"{fault.fault} {' '.join(nodes)}"] if nodes else []
