"""What the lower layers of the simulation require of the upper ones, as structural types.

A node owns its event loop and its connection to the network. Imports go in this direction only. The event loop and
the network also report to the node and query its state, and these types describe what they use of it.
"""

from typing import Protocol

from harness.simulation.clock import HostClock
from harness.simulation.flight import Flight


class Machine(Protocol):
    """A node, as its event loop and the network use it.

    Attributes:
        slowed_callbacks: Number of callbacks that took CPU time.
    """

    slowed_callbacks: int

    @property
    def name(self) -> str:
        """The name of the node, for example "b1"."""
        ...

    @property
    def kind(self) -> str:
        """The node kind; it determines the latency of connections."""
        ...

    @property
    def address(self) -> str:
        """The address at which the node listens."""
        ...

    @property
    def incarnation(self) -> int:
        """The number of times its process was started."""
        ...

    @property
    def clock(self) -> HostClock:
        """The clocks of the machine."""
        ...

    @property
    def host_is_up(self) -> bool:
        """Whether the machine has power."""
        ...

    def process_failed(self, error: BaseException, /) -> None:
        """Ends the process because of an unhandled exception."""
        ...


class Outlet(Protocol):
    """The sending side of a connection, as an event loop uses it for frames that were sent while it was busy."""

    def push(self, frame: Flight, /) -> None:
        """Sends a frame."""
        ...
