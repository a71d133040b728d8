"""What a cluster offers the harness, wherever it lives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.contracts.metadata import CommittedMetadata

HARNESS_HOST = "harness"
"""Name of the host that administers the cluster; it is neither broker nor controller."""
CONTROLLER_ID_FIRST = 11
"""Controllers are numbered from here, brokers from 1; every node id belongs to one node."""

AddRow = Callable[[str, tuple[Any, ...]], None]
"""Takes one history row: the name of its table, and the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """Who there is to choose from.

    Attributes:
        brokers, controllers: (name, node id), in order of id.
        clients: Names of client hosts.
        down: Names of nodes that are down now.
    """

    brokers: tuple[tuple[str, int], ...]
    controllers: tuple[tuple[str, int], ...]
    clients: tuple[str, ...] = ()
    down: tuple[str, ...] = ()

    def name_of(self, broker: int) -> str:
        """Returns the name of a broker id."""
        return next(name for name, node_id in self.brokers if node_id == broker)


@dataclass(slots=True, kw_only=True)
class InForce:
    """A fault that is in force. Mutable: the environment keeps its own token in it.

    Attributes:
        nodes: The nodes it hit; may be fewer than asked for (a dead node cannot be killed again).
        evidence: What is known so far about whether it bit; JSON-compatible.
        token: The environment's own handle.
    """

    nodes: tuple[str, ...]
    evidence: dict[str, Any] = field(default_factory=dict)
    token: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Whether a fault bit, and what shows it (JSON-compatible)."""

    bit: bool
    evidence: dict[str, Any]


class Cluster(Protocol):
    """A deployed cluster: nodes, faults it can suffer, and a stream of committed metadata."""

    @property
    def metadata(self) -> CommittedMetadata:
        """Committed metadata, kept up to date by the cluster."""
        ...

    @property
    def supported_faults(self) -> frozenset[str]:
        """Names of the faults that can be injected here."""
        ...

    def population(self) -> Population:
        """Returns who there is, and who is down."""
        ...

    def now_ns(self) -> int:
        """Returns nanoseconds since the start of the run, on the run's one clock."""
        ...

    async def inject(
        self, fault: str, nodes: tuple[str, ...], params: Mapping[str, Any]
    ) -> InForce:
        """Injects a fault; returns when it is in force on all nodes it can hit."""
        ...

    async def heal(self, fault: str, in_force: InForce) -> None:
        """Removes exactly what this injection added; starts nodes that it took down. Idempotent."""
        ...

    async def effect(self, fault: str, in_force: InForce) -> Effect:
        """Returns whether the fault bit. Most telling just before and after it is healed."""
        ...
