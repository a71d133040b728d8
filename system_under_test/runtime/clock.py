"""The clock door."""

from typing import Protocol


class Clock(Protocol):
    """Reads the time of one node.

    No rule of the protocol compares clocks of two nodes. `monotonic_ns` is what every timeout uses, and
    it is the same clock as `asyncio.get_running_loop().time()` (which is in seconds). `wall_ms` may jump
    in both directions; it is for record timestamps and for log output, never for a decision.
    """

    def monotonic_ns(self) -> int:
        """Returns nanoseconds on a clock that never steps and starts anywhere."""
        ...

    def wall_ms(self) -> int:
        """Returns milliseconds since the Unix epoch as this node believes them to be."""
        ...
