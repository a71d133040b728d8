"""The randomness door of a real machine: entropy instead of a seed."""

import random
import secrets

from system_under_test.runtime import RandomStream


class EntropySource:
    """Implements `runtime.random.RandomSource`; every stream is seeded by the operating system."""

    def __init__(self) -> None:
        self._streams: dict[tuple[str | int, ...], random.Random] = {}

    def stream(self, *name: str | int) -> RandomStream:
        """Returns the stream of that name; the same object every time."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = random.Random(secrets.randbits(256))
        return found

    def buggify(self, name: str) -> bool:
        """Never: rare legal paths are taken on purpose in the simulation only."""
        return False
