"""The random streams of a real machine: entropy instead of a seed."""

import random
import secrets

from system_under_test.runtime import RandomStream


class EntropySource:
    """Implements `runtime.random.RandomSource`; every stream is seeded by the operating system."""

    def __init__(self) -> None:
        self._streams: dict[tuple[str | int, ...], random.Random] = {}

    def stream(self, *name: str | int) -> RandomStream:
        """Returns the stream with a name; the same object every time."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = random.Random(secrets.randbits(256))
        return found

    def buggify(self, name: str) -> bool:
        """Returns False: only the simulation takes rare legal paths on purpose."""
        return False
