"""Gives a cluster and an injector the interface of a driver that passes a fault as a name and parameters."""

from collections.abc import Mapping
from typing import Any, Protocol

from harness.contracts.cluster import Effect, InForce, Population
from harness.contracts.metadata import CommittedMetadata
from nemesis.fault import Fault
from nemesis.mechanism import Injection, Injector


class _Cluster(Protocol):
    @property
    def metadata(self) -> CommittedMetadata: ...
    def population(self) -> Population: ...
    def now_ns(self) -> int: ...


class OldDriverCluster:
    """Implements `harness.contracts.cluster.Cluster` over a cluster and an injector."""

    def __init__(self, cluster: _Cluster, injector: Injector) -> None:
        self._cluster = cluster
        self._injector = injector

    @property
    def metadata(self) -> CommittedMetadata:
        """Committed metadata."""
        return self._cluster.metadata

    @property
    def supported_faults(self) -> frozenset[str]:
        """Names of the faults that can be injected."""
        return self._injector.supported_faults

    def population(self) -> Population:
        """Returns all hosts."""
        return self._cluster.population()

    def now_ns(self) -> int:
        """Returns nanoseconds since the start of the run."""
        return self._cluster.now_ns()

    async def inject(
        self, fault: str, nodes: tuple[str, ...], params: Mapping[str, Any]
    ) -> InForce:
        """Injects a fault."""
        targets = nodes if len(nodes) > 1 else (*nodes, "b1", "b2")[:2]
        given = {key: value for key, value in params.items() if key != "groups"}
        shape = {"shape": "halves"} if "groups" in params else {}
        value = Fault(id="old", fault=fault, targets=targets, params={**given, **shape})
        # The groups that the driver drew are not those that a schedule may name.
        object.__setattr__(value, "params", dict(params))
        injection = await self._injector.inject(value, nodes)
        effect = await injection.effect() if not injection.nodes else None
        evidence = dict(effect.evidence) if effect is not None else {}
        return InForce(nodes=injection.nodes, evidence=evidence, token=injection)

    async def heal(self, fault: str, in_force: InForce) -> None:
        """Heals a fault."""
        injection: Injection = in_force.token
        await injection.heal()

    async def effect(self, fault: str, in_force: InForce) -> Effect:
        """Returns its effect."""
        injection: Injection = in_force.token
        effect = await injection.effect()
        return Effect(bit=effect.took_effect, evidence=dict(effect.evidence))
