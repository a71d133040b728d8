"""What all mechanisms of the simulated world share.

A mechanism injects some of the faults of the table `nemesis.faults`. Each injection is an object of a small class
that knows what it changed, restores it, and proves its effect. This module has the two classes that most
mechanisms use: a fault that is over at once, and an outage.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from harness.contracts.administration import Action, ActionOutcome
from harness.contracts.cluster import Population
from harness.contracts.metadata import CommittedMetadata
from harness.simulation.node import SimNode
from harness.simulation.world import World
from nemesis.fault import Fault
from nemesis.mechanism import Effect, Injection, known_effect
from system_under_test.protocol.record_batch import BatchHeader, CorruptBatchError, read_headers

Inject = Callable[[Fault, tuple[str, ...]], Awaitable[Injection]]
"""Injects one fault on nodes; returns when it is in force on those that it can affect."""


class SimulatedNodes(Protocol):
    """What mechanisms need of the cluster whose faults they inject.

    Attributes:
        mark_listeners: Called with node and mark whenever a node reports a mark.
    """

    mark_listeners: list[Callable[[str, str], None]]

    @property
    def world(self) -> World:
        """The world in which the nodes live."""
        ...

    @property
    def metadata(self) -> CommittedMetadata:
        """Committed metadata, kept up to date by the cluster."""
        ...

    def population(self) -> Population:
        """Returns all hosts, and which nodes are down."""
        ...

    def now_ns(self) -> int:
        """Returns the world's true time."""
        ...

    async def administer(self, action: Action) -> ActionOutcome:
        """Requests an administrative action; returns what became of it after a limited time."""
        ...

    def hold_metadata(self, name: str) -> None:
        """Lets a running broker collect committed metadata without applying it."""
        ...

    def release_metadata(self, name: str) -> None:
        """Lets a running broker apply everything since `hold_metadata` as one change."""
        ...

    def log_ends(self, name: str) -> dict[str, int]:
        """Returns the log ends of a node's partitions by name; empty if it is not a running broker."""
        ...


class Mechanism(Protocol):
    """Injects some faults. Mutable: it may remember what is in force."""

    def injections(self) -> Mapping[str, Inject]:
        """Returns how each of its faults is injected, by the fault's name."""
        ...

    def settle(self) -> None:
        """Removes whatever is still wrong, of all injections."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A fault that took nodes down; starting them heals it.

    Attributes:
        world: The world in which the nodes live.
        nodes: The nodes that it affected.
        taken_down: Those that it took down. What had taken down the others starts them.
        facts: The evidence, complete once the nodes are down.
        took_effect: What the evidence shows.
    """

    world: World
    nodes: tuple[str, ...]
    taken_down: tuple[str, ...]
    facts: Mapping[str, Any]
    took_effect: bool

    async def heal(self) -> None:
        """Starts the nodes that are still down."""
        for name in self.taken_down:
            start_if_down(self.world.nodes[name])

    async def effect(self) -> Effect:
        """Returns the evidence collected at the injection."""
        return known_effect(self.facts, self.took_effect)


def alive(world: World, nodes: Iterable[str]) -> tuple[str, ...]:
    """Returns those nodes that have a process."""
    return tuple(name for name in nodes if world.nodes[name].is_alive)


def incarnations(world: World, nodes: Iterable[str]) -> dict[str, int]:
    """Returns the number of the present incarnation of each node."""
    return {name: world.nodes[name].incarnation for name in nodes}


def start_if_down(node: SimNode) -> None:
    """Starts a node's process, and its machine, unless the node is alive."""
    if not node.is_alive:
        node.start()


def whole_batches(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Yields the position and header of every batch of a log file; stops at an incomplete or corrupt one."""
    try:
        yield from read_headers(data)
    except CorruptBatchError:
        return
