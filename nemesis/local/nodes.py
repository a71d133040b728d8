"""The nodes of a cluster of local processes, as far as faults need them.

These protocols are everything that this package knows of an environment; `harness.environments.local.cluster`
implements them without being imported here.
"""

from collections.abc import Mapping
from typing import Protocol

from harness.contracts.administration import Action, ActionOutcome
from nemesis import fault_points


class Node(Protocol):
    """A node that is a process of this machine."""

    @property
    def pid(self) -> int:
        """Its last process, 0 before the first."""
        ...

    @property
    def began(self) -> int:
        """Start time of that process, in clock ticks since boot."""
        ...


class Cluster(fault_points.Cluster, Protocol):
    """A cluster of local processes."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name."""
        ...

    async def administer(self, action: Action) -> ActionOutcome:
        """Requests an administrative action; returns what became of it after a limited time."""
        ...

    async def start_node(self, name: str) -> None:
        """Starts a node; does nothing if it runs."""
        ...

    async def end_process(self, name: str, how: str, limit_s: float) -> int | None:
        """Ends a node's process by "stop" or "kill"; returns its exit code, negative for a signal."""
        ...
