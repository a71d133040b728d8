"""How faults are done in the simulated world: what all mechanisms share.

Each mechanism carries out some of the faults of `nemesis.fault`, in three parts: `inject` returns when the fault
is in force, `heal` removes exactly what it added, `effect` tells what shows that it bit.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from harness.contracts.cluster import Effect, InForce
from harness.simulation.node import SimNode
from harness.simulation.world import World
from system_under_test.protocol.record_batch import BatchHeader, CorruptBatchError, read_headers


class Mechanism(Protocol):
    """Carries out some faults. Mutable: it may remember what is in force."""

    @property
    def faults(self) -> tuple[str, ...]:
        """Names of the faults that it carries out."""
        ...

    async def inject(
        self, fault: str, nodes: tuple[str, ...], params: Mapping[str, Any]
    ) -> InForce:
        """Injects a fault; returns when it is in force on the nodes that it can hit."""
        ...

    def heal(self, fault: str, in_force: InForce) -> None:
        """Removes what an injection added. Idempotent."""
        ...

    def effect(self, fault: str, in_force: InForce) -> Effect:
        """Returns whether a fault that hit somebody bit, just before or after it is healed."""
        ...

    def settle(self) -> None:
        """Removes whatever is still wrong, of all injections."""
        ...


def alive(world: World, nodes: Iterable[str]) -> tuple[str, ...]:
    """Returns those nodes that have a process."""
    return tuple(name for name in nodes if world.nodes[name].is_alive)


def start_if_down(node: SimNode) -> None:
    """Starts a node's process, and its machine, unless it has one."""
    if not node.is_alive:
        node.start()


def told(in_force: InForce) -> Effect:
    """Returns an effect that was known when the fault was injected."""
    return Effect(bit=bool(in_force.evidence.get("bit")), evidence=dict(in_force.evidence))


def whole_batches(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Yields the position and header of every batch of a log file; ends where a write was cut short."""
    try:
        yield from read_headers(data)
    except CorruptBatchError:
        return
