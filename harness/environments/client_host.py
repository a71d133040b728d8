"""Client hosts on a real machine: with the random streams of a seed, and one without a network."""

import random
import secrets
import time
from typing import Any

from harness.contracts.host import Clock, Connection, Network, RandomSource, RandomStream
from harness.contracts.system import RealClientHost


class SeededClientHost:
    """A system's client host whose random streams are those of the run's seed, as in the simulation.

    So clients of a real run draw the same operations for the same seed, whatever they run against.

    Args:
        host: The system's host, which does everything else.
        random: The streams.
    """

    def __init__(self, host: RealClientHost, random: RandomSource) -> None:
        self._host = host
        self.random = random

    def __getattr__(self, name: str) -> Any:
        """Returns what a system's own host offers to its own clients."""
        return getattr(self._host, name)

    @property
    def name(self) -> str:
        """Its name, for example "client-0"."""
        return self._host.name

    @property
    def clock(self) -> Clock:
        """Its clock."""
        return self._host.clock

    @property
    def network(self) -> Network:
        """Its network."""
        return self._host.network

    def close(self) -> None:
        """Closes its connections."""
        self._host.close()


class PlainClientHost:
    """Implements `harness.contracts.system.RealClientHost`: the machine's clock and entropy, and no network.

    Args:
        name: Its name, for example "client-0".
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock = _MachineClock()
        self.network = _NoNetwork()
        self.random = _Entropy()

    def close(self) -> None:
        """Does nothing: there are no connections."""


class _MachineClock:
    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class _NoNetwork:
    async def connect(self, address: str, timeout_ms: float) -> Connection:
        raise OSError(f"this client host opens no connections, not even to {address}")


class _Entropy:
    def __init__(self) -> None:
        self._streams: dict[tuple[str | int, ...], random.Random] = {}

    def stream(self, *name: str | int) -> RandomStream:
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = random.Random(secrets.randbits(256))
        return found
