"""Network faults in the simulated world."""

from collections.abc import Callable, Mapping
from typing import Any

from harness.contracts.cluster import Effect, InForce, Population
from harness.simulation.network_faults import NetworkFault
from harness.simulation.world import World
from nemesis.shapes import affected_pairs
from nemesis.simulated.mechanism import told

_SEEN_AS = {
    "cut": "frames_held",
    "isolate": "frames_held",
    "partition": "frames_held",
    "reject": "packets_rejected",
    "loss": "packets_lost",
    "delay": "packets_delayed",
    "bandwidth": "frames_that_waited",
}
KIB = 1024


class NetworkFaults:
    """Cuts, refuses, loses and delays what nodes send.

    Args:
        world: Where.
        population: Who there is.
    """

    faults = (*_SEEN_AS, "reset_connections")

    def __init__(self, world: World, population: Callable[[], Population]) -> None:
        self._world = world
        self._population = population

    async def inject(
        self, fault: str, nodes: tuple[str, ...], params: Mapping[str, Any]
    ) -> InForce:
        """Injects one of them."""
        if fault == "reset_connections":
            count = self._world.network.reset_connections(nodes) if nodes else 0
            evidence = {"connections_before": count, "bit": count > 0}
            return InForce(nodes=nodes, evidence=evidence)
        if not nodes:
            return InForce(nodes=(), token=[])
        return InForce(nodes=nodes, token=self._apply(fault, nodes, params))

    def _apply(
        self, fault: str, nodes: tuple[str, ...], params: Mapping[str, Any]
    ) -> list[NetworkFault]:
        network = self._world.network
        planes = set(params["planes"]) if params.get("planes") else None
        at = params.get("at", "receiver")
        if fault == "isolate":
            return [network.isolate(name, planes=planes, at=at) for name in nodes]
        if fault == "cut":
            direction = "both" if params.get("direction", "both") == "both" else "a_to_b"
            return [
                network.cut(nodes[0], other, planes=planes, direction=direction, at=at)
                for other in nodes[1:]
            ]
        if fault == "partition":
            return [network.partition(params["groups"], planes=planes, at=at)]
        if fault == "reject":
            return [network.reject(nodes[0], other, planes=planes) for other in nodes[1:]]
        if fault == "bandwidth":
            rate = int(params["rate_kib_s"]) * KIB
            return [network.throttle(name, bytes_per_s=rate) for name in nodes]
        pairs = affected_pairs(fault, nodes, params, self._population())
        label = f"{fault} {' '.join(nodes)}"
        if fault == "loss":
            return [network.impair(label, pairs, loss=params["percent"] / 100)]
        delay_ns, jitter_ns = (int(params.get(name, 0)) * 1_000_000 for name in ("ms", "jitter_ms"))
        return [network.impair(label, pairs, delay_ns=delay_ns, jitter_ns=jitter_ns)]

    def heal(self, fault: str, in_force: InForce) -> None:
        """Removes the rules of one injection."""
        for token in in_force.token or ():
            self._world.network.heal(token)

    def effect(self, fault: str, in_force: InForce) -> Effect:
        """A rule bit if it touched a packet; sockets were killed if there were some."""
        if fault == "reset_connections":
            return told(in_force)
        count = sum(token.dropped_or_stalled for token in in_force.token)
        return Effect(bit=count > 0, evidence={**in_force.evidence, _SEEN_AS[fault]: count})

    def settle(self) -> None:
        """Removes all rules, and resets connections, which may wait for a retransmission that is far away."""
        self._world.network.heal_all()
        self._world.network.reset_connections()
