"""Brokers of the simulated world that do not apply committed metadata."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.simulation.node import SimNode
from nemesis.fault import Fault
from nemesis.mechanism import Effect, Injection
from nemesis.simulated.mechanism import Inject, SimulatedNodes, incarnations


@dataclass(slots=True, kw_only=True)
class StallMetadata:
    """Brokers that collect committed metadata without applying it. Mutable: a broker that ends no longer does.

    Attributes:
        cluster: The cluster that they belong to.
        incarnations: The incarnation of each broker; a later one applies metadata.
        committed_before: Offset of the newest committed record at the injection.
        stalled: The brokers that still do.
        records_committed: Per broker, how many records were committed meanwhile.
    """

    cluster: SimulatedNodes
    incarnations: Mapping[str, int]
    committed_before: int
    stalled: set[str]
    records_committed: dict[str, int] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The brokers that were stalled."""
        return tuple(self.incarnations)

    def ended(self, node: SimNode, _reason: str) -> None:
        """Counts for the last time what was committed meanwhile: the process of a broker has ended."""
        self._release(node.name)

    async def heal(self) -> None:
        """Lets the brokers apply everything as one change."""
        for name in sorted(self.stalled):
            self._release(name)
            self.cluster.release_metadata(name)

    async def effect(self) -> Effect:
        """Returns how many records were committed meanwhile; one is enough."""
        for name in self.stalled:
            self._count(name)
        return Effect(
            took_effect=any(self.records_committed.values()),
            evidence={"records_committed": dict(self.records_committed)},
        )

    def _count(self, name: str) -> None:
        self.records_committed[name] = self.cluster.metadata.offset - self.committed_before

    def _release(self, name: str) -> None:
        if name in self.stalled:
            self._count(name)
            self.stalled.remove(name)
            self.cluster.world.nodes[name].on_exit.remove(self.ended)


class MetadataFaults:
    """Stalls brokers.

    Args:
        cluster: The cluster that they belong to.
    """

    def __init__(self, cluster: SimulatedNodes) -> None:
        self._cluster = cluster
        self._stalls: list[StallMetadata] = []

    def injections(self) -> Mapping[str, Inject]:
        """Returns how its fault is injected."""
        return {"stall_metadata": self._stall}

    def settle(self) -> None:
        """Lets all brokers apply metadata."""
        for stall in self._stalls:
            for name in sorted(stall.stalled):
                self._cluster.release_metadata(name)

    async def _stall(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        cluster = self._cluster
        taken = {name for stall in self._stalls for name in stall.stalled}
        names = [name for name in nodes if cluster.world.nodes[name].is_alive and name not in taken]
        stall = StallMetadata(
            cluster=cluster,
            incarnations=incarnations(cluster.world, names),
            committed_before=cluster.metadata.offset,
            stalled=set(names),
        )
        for name in names:
            cluster.hold_metadata(name)
            cluster.world.nodes[name].on_exit.append(stall.ended)
        self._stalls.append(stall)
        return stall
