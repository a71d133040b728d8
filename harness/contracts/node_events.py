"""What a cluster of real processes reports about starts and ends of its nodes.

An environment starts and ends processes; the nemesis breaks them. Some faults depend on when a process starts
and ends: a pause can be observed only while its process exists, and a node whose disk is full may end by itself.
The nemesis registers a `NodeListener`, and the environment calls it.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

Excuse = Callable[[str], bool]
"""Takes the final log line of a node that ended because of a fault.

Returns whether the fault is still in force; if so, the node is started when the fault is healed.
"""


class NodeListener(Protocol):
    """Is called when nodes start and end."""

    async def before_start(self, name: str) -> None:
        """Prepares a node that is down for its start."""
        ...

    async def before_end(self, names: Iterable[str]) -> None:
        """Is called while these nodes still run; they are ended when this returns."""
        ...

    def excuse_for_end(self, name: str) -> Excuse | None:
        """Returns the excuse of a node that has just ended by itself; None if no fault explains its end."""
        ...
