"""Lets a cluster that injects faults itself serve as an `Injector`.

The clusters of real nodes take a fault's name and its parameters separately, and keep a handle of any type. This
module translates between them and `nemesis.mechanism`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from nemesis import mechanism
from nemesis.fault import Fault


@dataclass(slots=True, kw_only=True)
class InForce:
    """A fault that is in force. Mutable: the environment keeps its own token in it.

    Attributes:
        nodes: The nodes that it affects; may be fewer than asked for (a dead node cannot be killed again).
        evidence: What is known so far of its effect; JSON-compatible.
        token: The environment's own handle.
    """

    nodes: tuple[str, ...]
    evidence: dict[str, Any] = field(default_factory=dict)
    token: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Whether a fault took effect, and the evidence (JSON-compatible)."""

    bit: bool
    evidence: dict[str, Any]


class FaultyCluster(Protocol):
    """A cluster that injects faults itself."""

    @property
    def supported_faults(self) -> frozenset[str]:
        """Names of the faults that can be injected here."""
        ...

    async def inject(
        self, fault: str, nodes: tuple[str, ...], params: Mapping[str, Any]
    ) -> InForce:
        """Injects a fault; returns when it is in force on all nodes that it can affect."""
        ...

    async def heal(self, fault: str, in_force: InForce) -> None:
        """Removes exactly what this injection added; starts nodes that it took down. Idempotent."""
        ...

    async def effect(self, fault: str, in_force: InForce) -> Effect:
        """Returns whether the fault took effect."""
        ...


@dataclass(frozen=True, slots=True)
class _Injection:
    """A fault that such a cluster injected."""

    cluster: FaultyCluster
    fault: str
    in_force: InForce

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.in_force.nodes

    async def heal(self) -> None:
        await self.cluster.heal(self.fault, self.in_force)

    async def effect(self) -> mechanism.Effect:
        effect = await self.cluster.effect(self.fault, self.in_force)
        return mechanism.Effect(took_effect=effect.bit, evidence=effect.evidence)


class ClusterInjector:
    """Implements `nemesis.mechanism.Injector`.

    Args:
        cluster: The cluster that injects the faults.
    """

    def __init__(self, cluster: FaultyCluster) -> None:
        self._cluster = cluster

    @property
    def supported_faults(self) -> frozenset[str]:
        """Names of the faults that can be injected here."""
        return self._cluster.supported_faults

    async def inject(self, fault: Fault, nodes: tuple[str, ...]) -> mechanism.Injection:
        """Injects a fault; returns when it is in force."""
        in_force = await self._cluster.inject(fault.fault, nodes, fault.params)
        return _Injection(self._cluster, fault.fault, in_force)

    async def settle(self) -> None:
        """Does nothing: the cluster's own `settle` removes its faults."""
