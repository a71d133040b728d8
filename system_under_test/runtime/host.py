"""All interfaces of one node in one object."""

from typing import Protocol

from system_under_test.runtime.clock import Clock
from system_under_test.runtime.network import Network
from system_under_test.runtime.observer import Observer
from system_under_test.runtime.random import RandomSource
from system_under_test.runtime.storage import Storage


class Host(Protocol):
    """The environment of one incarnation of a node.

    A new incarnation (a restart) gets a new host object with the same storage. Concurrency is plain
    `asyncio` on the running loop.
    """

    @property
    def name(self) -> str:
        """The node's name, for example "b1" or "c11"."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock."""
        ...

    @property
    def network(self) -> Network:
        """The network."""
        ...

    @property
    def storage(self) -> Storage:
        """The storage."""
        ...

    @property
    def random(self) -> RandomSource:
        """The random streams."""
        ...

    @property
    def observer(self) -> Observer:
        """The observer."""
        ...
