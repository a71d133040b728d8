"""The clock of a real machine, and the file through which a fault skews the clock of one node.

The file contains three little-endian int64: `base_ns` (a reading of CLOCK_MONOTONIC), `offset_ns` (added to the
wall clock) and `rate_ppb` (how much too fast the node's clocks run from `base_ns` on, in parts per billion). It
is mapped into memory, so the next reading of the clock sees a change.

The wall clock may jump. The monotonic clock never jumps: a new rate applies from the first reading that sees it.
"""

import asyncio
import mmap
import os
import selectors
import struct
import time
from pathlib import Path

_FORM = struct.Struct("<qqq")
SKEW_FILE_BYTES = _FORM.size
NO_SKEW = (0, 0, 0)
PPB = 1_000_000_000
NOTICE_S = 0.25
"""Longest time after which an idle node notices that its clock was skewed."""


def write_skew(path: Path, *, offset_ns: int = 0, rate_ppb: int = 0) -> None:
    """Skews the clocks of the node that reads this file from now on; without arguments, ends the skew.

    The file is written by one `pwrite` of 24 bytes inside one page, during which the kernel holds the page's
    lock. A reader that maps the page may still see an incomplete copy, so it reads until two readings agree.
    """
    data = _FORM.pack(time.monotonic_ns(), offset_ns, rate_ppb)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, data, 0)
    finally:
        os.close(descriptor)


class RealClock:
    """Implements `runtime.clock.Clock`.

    Args:
        skew_file: The file described above; it is created without skew if it does not exist. None for true clocks.

    Raises:
        OSError: The file cannot be created or mapped.
    """

    def __init__(self, skew_file: Path | None = None) -> None:
        self._map: mmap.mmap | None = None
        self._seen = NO_SKEW
        # The node's monotonic clock showed `_own_ns` when CLOCK_MONOTONIC showed `_since_ns`. By then the rate had
        # moved the node's wall clock by `_gained_ns`.
        self._since_ns = self._own_ns = time.monotonic_ns()
        self._gained_ns = 0
        if skew_file is not None:
            if not skew_file.exists() or skew_file.stat().st_size < SKEW_FILE_BYTES:
                write_skew(skew_file)
            with open(skew_file, "rb") as file:
                self._map = mmap.mmap(file.fileno(), SKEW_FILE_BYTES, access=mmap.ACCESS_READ)

    def monotonic_ns(self) -> int:
        """Returns nanoseconds on a clock that never jumps."""
        if self._map is None:
            return time.monotonic_ns()
        raw_ns = time.monotonic_ns()
        rate_ppb = self._skew(raw_ns)[2]
        return self._own_ns + (raw_ns - self._since_ns) * (PPB + rate_ppb) // PPB

    def wall_ms(self) -> int:
        """Returns milliseconds since the Unix epoch according to this node."""
        if self._map is None:
            return time.time_ns() // 1_000_000
        raw_ns = time.monotonic_ns()
        _, offset_ns, rate_ppb = self._skew(raw_ns)
        gained_ns = self._gained_ns + (raw_ns - self._since_ns) * rate_ppb // PPB
        return (time.time_ns() + offset_ns + gained_ns) // 1_000_000

    @property
    def rate(self) -> float:
        """Speed of the node's clocks; 1 is correct, 0 is stopped."""
        return 1 + self._seen[2] / PPB

    def _skew(self, raw_ns: int) -> tuple[int, int, int]:
        """Reads the file and, if it has changed, starts a new period of constant rate."""
        assert self._map is not None
        skew = _FORM.unpack_from(self._map)
        if skew == self._seen:
            return skew
        while True:
            again = _FORM.unpack_from(self._map)
            if again == skew:
                break
            skew = again
        # A rate of -100 % stops the clock; a lower one would move it back, which a monotonic clock must not do.
        base_ns, offset_ns, rate_ppb = skew[0], skew[1], max(skew[2], -PPB)
        old_rate_ppb = self._seen[2]
        elapsed_ns = raw_ns - self._since_ns
        self._own_ns += elapsed_ns * (PPB + old_rate_ppb) // PPB
        self._gained_ns += elapsed_ns * old_rate_ppb // PPB
        self._since_ns = raw_ns
        if (offset_ns, rate_ppb) == (0, 0):
            self._gained_ns = 0  # the skew has ended: back to the correct time
        self._seen = (base_ns, offset_ns, rate_ppb)
        return self._seen


class _Selector(selectors.DefaultSelector):
    """Converts timeouts of the node's clock to the machine's clock."""

    def __init__(self, clock: RealClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Selects with a timeout of the node's clock; wakes up often enough to notice a new rate."""
        if timeout is None or timeout > 0:
            rate = self._clock.rate
            longest = float("inf") if timeout is None or not rate else timeout / rate
            timeout = min(longest, NOTICE_S)
        return super().select(timeout)


class SkewedLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers follow the node's own clock."""

    def __init__(self, clock: RealClock) -> None:
        self._clock = clock
        super().__init__(_Selector(clock))

    def time(self) -> float:
        """Returns the node's monotonic time in seconds."""
        return self._clock.monotonic_ns() / 1e9
