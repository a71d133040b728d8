"""The clock door of a real machine, and the small file through which a fault skews one node's clock.

The file has three little-endian int64: `base_ns` (a reading of CLOCK_MONOTONIC), `offset_ns` (added to the wall
clock) and `rate_ppb` (how much too fast the node's clocks run from `base_ns` on, in parts per billion). It is
mapped into memory, so a change is seen by the next reading of the clock.

The wall clock may jump. The monotonic clock never does: a new rate counts from the moment at which it is noticed.
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
"""How long a node that has nothing to do may not notice that its clock was skewed."""


def write_skew(path: Path, *, offset_ns: int = 0, rate_ppb: int = 0) -> None:
    """Skews the node that reads this file, from now on; without arguments it heals.

    One `pwrite` of 24 bytes inside one page: the kernel holds the page's lock while it copies them. A reader
    that maps the page may still see a copy half done, which is why it reads until two readings agree.
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
        skew_file: The file described above; it is created without skew if it is not there. None for true clocks.

    Raises:
        OSError: The file cannot be made or mapped.
    """

    def __init__(self, skew_file: Path | None = None) -> None:
        self._map: mmap.mmap | None = None
        self._seen = NO_SKEW
        # The monotonic clock read `_own_ns` when CLOCK_MONOTONIC read `_since_ns`; likewise how much the
        # wall clock had gained by then.
        self._since_ns = self._own_ns = time.monotonic_ns()
        self._gained_ns = 0
        if skew_file is not None:
            if not skew_file.exists() or skew_file.stat().st_size < SKEW_FILE_BYTES:
                write_skew(skew_file)
            with open(skew_file, "rb") as file:
                self._map = mmap.mmap(file.fileno(), SKEW_FILE_BYTES, access=mmap.ACCESS_READ)

    def monotonic_ns(self) -> int:
        """Returns nanoseconds on a clock that never steps."""
        if self._map is None:
            return time.monotonic_ns()
        raw_ns = time.monotonic_ns()
        rate_ppb = self._skew(raw_ns)[2]
        return self._own_ns + (raw_ns - self._since_ns) * (PPB + rate_ppb) // PPB

    def wall_ms(self) -> int:
        """Returns milliseconds since the Unix epoch as this node believes them to be."""
        if self._map is None:
            return time.time_ns() // 1_000_000
        raw_ns = time.monotonic_ns()
        _, offset_ns, rate_ppb = self._skew(raw_ns)
        gained_ns = self._gained_ns + (raw_ns - self._since_ns) * rate_ppb // PPB
        return (time.time_ns() + offset_ns + gained_ns) // 1_000_000

    @property
    def rate(self) -> float:
        """How fast the node's clocks run; 1 is true, 0 is stopped."""
        return 1 + self._seen[2] / PPB

    def _skew(self, raw_ns: int) -> tuple[int, int, int]:
        """Reads the file and, when it has changed, starts a new stretch of constant rate."""
        assert self._map is not None
        skew = _FORM.unpack_from(self._map)
        if skew == self._seen:
            return skew
        while True:
            again = _FORM.unpack_from(self._map)
            if again == skew:
                break
            skew = again
        # A rate of -100 % stops the clock; less would turn it back, which no monotonic clock does.
        base_ns, offset_ns, rate_ppb = skew[0], skew[1], max(skew[2], -PPB)
        old_rate_ppb = self._seen[2]
        elapsed_ns = raw_ns - self._since_ns
        self._own_ns += elapsed_ns * (PPB + old_rate_ppb) // PPB
        self._gained_ns += elapsed_ns * old_rate_ppb // PPB
        self._since_ns = raw_ns
        if (offset_ns, rate_ppb) == (0, 0):
            self._gained_ns = 0  # healed: back to the truth
        self._seen = (base_ns, offset_ns, rate_ppb)
        return self._seen


class _Selector(selectors.DefaultSelector):
    """Waits in the machine's time for what is meant in the node's."""

    def __init__(self, clock: RealClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As usual, for as long as the node's clock takes for it; a new rate is noticed in time."""
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
