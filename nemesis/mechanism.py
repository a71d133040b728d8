"""The interface between the nemesis and what injects faults in one world.

The driver resolves targets and passes a `Fault` with the nodes it is for to an `Injector`. The injector returns an
`Injection`: the fault in force, with the means to heal it and to prove its effect. Each mechanism keeps its state
in its own injection class.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from nemesis.fault import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Whether a fault took effect, and the evidence (JSON-compatible)."""

    took_effect: bool
    evidence: Mapping[str, Any]


class Injection(Protocol):
    """A fault in force.

    Attributes:
        nodes: The nodes that it affects; may be fewer than requested (a dead node cannot be killed again).
    """

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it affects."""
        ...

    async def heal(self) -> None:
        """Removes exactly what this injection added; starts nodes that it took down. Idempotent."""
        ...

    async def effect(self) -> Effect:
        """Returns whether the fault took effect. Called just before and just after it is healed."""
        ...


class Injector(Protocol):
    """Everything that injects faults in one world."""

    @property
    def supported_faults(self) -> frozenset[str]:
        """Names of the faults that can be injected here."""
        ...

    async def inject(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        """Injects a fault; returns when it is in force on all nodes that it can affect.

        Args:
            fault: What to inject. A partition's parameter `groups` holds names of nodes, as drawn by the driver.
            nodes: The resolved targets, in order.
        """
        ...

    async def settle(self) -> None:
        """Removes whatever is still wrong, of all injections; the last step before the final phase."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A fault that is over as soon as it has happened.

    Attributes:
        nodes: The nodes that it affected.
        facts: The evidence.
        took_effect: What the evidence shows.
    """

    nodes: tuple[str, ...]
    facts: Mapping[str, Any]
    took_effect: bool

    async def heal(self) -> None:
        """Does nothing: nothing is in force."""

    async def effect(self) -> Effect:
        """Returns the evidence collected at the injection."""
        return known_effect(self.facts, self.took_effect)


def known_effect(facts: Mapping[str, Any], took_effect: bool) -> Effect:
    """Returns an effect whose evidence is complete."""
    return Effect(took_effect=took_effect, evidence=dict(facts))
