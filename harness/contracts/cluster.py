"""What a cluster offers the harness, in every environment."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from harness.contracts.host import ClientHost
from harness.contracts.metadata import CommittedMetadata

HARNESS_HOST = "harness"
"""Name of the host that administers the cluster; it is neither broker nor controller."""
CONTROLLER_ID_FIRST = 11
"""Controllers are numbered from here, brokers from 1; every node id belongs to one node."""

AddRow = Callable[[str, tuple[Any, ...]], None]
"""Takes one history row: the name of its table, and the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """The hosts of a cluster.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic to be created.

    Attributes:
        assignments: Broker ids per partition, the preferred leader first.
    """

    name: str
    min_insync_replicas: int
    assignments: tuple[tuple[int, ...], ...]


class Cluster(Protocol):
    """A deployed cluster: its nodes, and a stream of committed metadata."""

    @property
    def metadata(self) -> CommittedMetadata:
        """Committed metadata, kept up to date by the cluster."""
        ...

    def population(self) -> Population:
        """Returns all hosts, and which nodes are down."""
        ...

    def now_ns(self) -> int:
        """Returns nanoseconds since the start of the run, on the run's one clock."""
        ...


class Deployment(Cluster, Protocol):
    """A cluster together with the hosts on which clients run.

    Attributes:
        brokers: Node ids by name.
        clients: Names of client hosts.
        harness_host: Name of the host from which the harness itself connects to the cluster.
        bootstrap: Addresses of all brokers.
    """

    brokers: dict[str, int]
    clients: tuple[str, ...]
    harness_host: str
    bootstrap: tuple[str, ...]

    def client_host(self, name: str) -> ClientHost:
        """Returns a client host, or that of the harness."""
        ...

    def spawn(self, node: str, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Runs a coroutine on a client host."""
        ...

    async def call(self, node: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Runs a coroutine on a client host and waits for it."""
        ...

    async def settle(self) -> None:
        """Removes whatever is still wrong and starts whatever is down; the first step of the final phase."""
        ...

    def topic_created(self, topic: Topic) -> None:
        """Notes that a topic was created."""
        ...
