"""A client host for systems whose clients open sockets of their own."""

import random
import secrets
import time

from harness.contracts.host import Connection, RandomStream


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
