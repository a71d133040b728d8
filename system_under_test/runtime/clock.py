"""The clock interface."""

from typing import Protocol


class Clock(Protocol):
    """Reads the time of one node.

    No protocol rule compares the clocks of two nodes. Every timeout uses `monotonic_ns`, which is the same
    clock as `asyncio.get_running_loop().time()` (in seconds). `wall_ms` may jump in both directions; it is for
    record timestamps and log output, never for a decision.
    """

    def monotonic_ns(self) -> int:
        """Returns nanoseconds on a clock that never jumps and starts at an arbitrary value."""
        ...

    def wall_ms(self) -> int:
        """Returns milliseconds since the Unix epoch according to this node."""
        ...
