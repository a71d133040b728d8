"""What the host of a client offers: a clock, a network and named random streams.

The protocols are structural. The simulation's hosts and those of a real machine satisfy them, and so can a host
that a plugin brings.
"""

import asyncio
from typing import Any, Protocol


class Clock(Protocol):
    """Reads the time of one host."""

    def monotonic_ns(self) -> int:
        """Returns nanoseconds on a clock that never steps and starts anywhere."""
        ...

    def wall_ms(self) -> int:
        """Returns milliseconds since the Unix epoch, according to this host."""
        ...


class RandomStream(Protocol):
    """The part of `random.Random` that workloads use."""

    def random(self) -> float:
        """Returns a float in [0, 1)."""
        ...

    def randrange(self, start: int, stop: int) -> int:
        """Returns an integer in [start, stop)."""
        ...


class RandomSource(Protocol):
    """Returns random streams by name, so that a draw in one place never moves a draw in another."""

    def stream(self, *name: str | int) -> RandomStream:
        """Returns the stream of that name; the same object every time."""
        ...


class Connection(Protocol):
    """One connection to one node. Dead once closed."""

    @property
    def is_open(self) -> bool:
        """Whether requests may still be sent."""
        ...

    def request(self, message: Any, timeout_ms: float) -> "asyncio.Future[Any]":
        """Sends a request and returns the future of its response.

        The future fails with `TimeoutError` when no response came in time, and with a `ConnectionError` when the
        connection broke.
        """
        ...

    def send(self, message: Any) -> None:
        """Sends a request that has no response. Does nothing on a broken connection."""
        ...

    def close(self) -> None:
        """Closes the connection; idempotent."""
        ...


class Network(Protocol):
    """Opens connections. Messages are those of the system under test."""

    async def connect(self, address: str, timeout_ms: float) -> Connection:
        """Opens a connection to `address` ("host:port").

        Raises:
            ConnectionRefusedError: No process listens there.
            OSError: The host is unreachable.
            TimeoutError: No response within `timeout_ms`.
        """
        ...


class ClientHost(Protocol):
    """The host of a client. Concurrency is plain asyncio on the running loop."""

    @property
    def name(self) -> str:
        """Its name, for example "client-0"."""
        ...

    @property
    def clock(self) -> Clock:
        """Its clock."""
        ...

    @property
    def network(self) -> Network:
        """Its network."""
        ...

    @property
    def random(self) -> RandomSource:
        """Its random streams."""
        ...
