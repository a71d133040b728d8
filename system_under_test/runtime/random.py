"""The randomness interface: named streams, so that a draw in one place does not affect draws in another."""

from typing import Protocol


class RandomStream(Protocol):
    """The part of `random.Random` that nodes use."""

    def random(self) -> float:
        """Returns a float in [0, 1)."""
        ...

    def randrange(self, start: int, stop: int) -> int:
        """Returns an integer in [start, stop)."""
        ...

    def getrandbits(self, bits: int) -> int:
        """Returns an integer of that many bits."""
        ...


class RandomSource(Protocol):
    """Provides streams by name."""

    def stream(self, *name: str | int) -> RandomStream:
        """Returns the stream with a name; the same object every time."""
        ...

    def buggify(self, name: str) -> bool:
        """Whether to take a rare but legal path here. Always false on a real machine."""
        ...
