"""The clocks of one simulated host.

`Timeline.now` is true time. Each host has two clocks. The monotonic clock has its own rate, and an arbitrary start
that changes with every boot, so that code which compares the monotonic clocks of two nodes fails at once. The wall
clock is true time plus an offset that can step and slide in both directions.
"""

from harness.simulation.timeline import Timeline

TRUE_EPOCH_MS = 1_750_000_000_000
"""The Unix time at which every run begins, in milliseconds. The value is arbitrary but constant."""

_MILLION = 1_000_000


class HostClock:
    """Both clocks of one host. Clock faults change them; nodes read them through `NodeClock`.

    Args:
        timeline: The source of true time.
        drift_ppm: By how many millionths the monotonic clock is faster than true time.

    Attributes:
        drift_ppm: The present drift, including a skew.
        own_drift_ppm: The drift without a skew.
        boots: Number of times the monotonic clock started anew.
        ns_per_ms: True nanoseconds per millisecond of the monotonic clock.
    """

    def __init__(self, timeline: Timeline, drift_ppm: int) -> None:
        self._timeline = timeline
        self.drift_ppm = drift_ppm
        # monotonic = now + _shift + (now - _base) * drift_ppm / 1e6
        self._base_ns = timeline.now
        self._shift_ns = 0
        self.ns_per_ms = _MILLION
        self._offset_ns = 0
        self._slide_from_ns = 0
        self._slide_until_ns = 0
        self._slide_by_ns = 0
        self.own_drift_ppm = drift_ppm
        self.boots = 0
        self._skew_ppm = 0
        self._skewed_since_ns = 0
        self._set_ns_per_ms()

    def boot(self, monotonic_start_s: int) -> None:
        """Restarts the monotonic clock, as a boot does."""
        self.boots += 1
        self._base_ns = self._timeline.now
        self._shift_ns = monotonic_start_s * 1_000_000_000 - self._timeline.now

    def monotonic_ns(self) -> int:
        """Returns the monotonic clock."""
        now = self._timeline.now
        if not self.drift_ppm:
            return now + self._shift_ns
        return now + self._shift_ns + (now - self._base_ns) * self.drift_ppm // _MILLION

    def monotonic_s(self) -> float:
        """Returns the monotonic clock in seconds, the unit of event loops."""
        return self.monotonic_ns() / 1e9

    def true_ns_at(self, monotonic_s: float) -> int:
        """Returns the first true time at which the monotonic clock has reached a value."""
        target_ns = int(monotonic_s * 1e9)
        # Rounding must never make a timer early, or code that sleeps until a deadline would spin.
        if not self.drift_ppm:
            shift_ns = self._shift_ns
            while target_ns / 1e9 < monotonic_s:
                target_ns += 1
            return target_ns - shift_ns
        ahead_ns = target_ns - self.monotonic_ns()
        ahead_ns = ahead_ns * _MILLION // (_MILLION + self.drift_ppm)
        true_ns = self._timeline.now + ahead_ns
        step_ns = max(1, _MILLION // (_MILLION + self.drift_ppm))  # moves the clock by about 1 ns
        while self._monotonic_s_at(true_ns) < monotonic_s:
            true_ns += step_ns
        return true_ns

    def _monotonic_s_at(self, true_ns: int) -> float:
        drift_ns = (true_ns - self._base_ns) * self.drift_ppm // _MILLION
        return (true_ns + self._shift_ns + drift_ns) / 1e9

    def set_drift(self, drift_ppm: int) -> None:
        """Changes the rate of the monotonic clock from now on. The clock does not step.

        Raises:
            ValueError: The clock would stop or run backwards.
        """
        if drift_ppm <= -_MILLION:
            raise ValueError(f"a drift of {drift_ppm} ppm would stop the clock")
        reached_ns = self.monotonic_ns()
        self._base_ns = self._timeline.now
        self._shift_ns = reached_ns - self._timeline.now
        self.drift_ppm = drift_ppm
        self._set_ns_per_ms()

    def skew(self, ppm: int) -> None:
        """Makes both clocks run faster by this many millionths from now on, in addition to their own drift.

        The rate has a lower limit just above zero.
        """
        self._skew_ppm = ppm
        self._skewed_since_ns = self._timeline.now
        self.set_drift(max(self.own_drift_ppm + ppm, 1 - _MILLION))

    def unskew(self) -> None:
        """Ends a skew. The rates are as before, and the wall clock jumps back by the time that it gained.

        The monotonic clock never jumps, so it keeps the time that it gained.
        """
        self._skew_ppm = 0
        self.set_drift(self.own_drift_ppm)

    def _set_ns_per_ms(self) -> None:
        self.ns_per_ms = _MILLION * _MILLION // (_MILLION + self.drift_ppm)

    def wall_ms(self) -> int:
        """Returns the wall clock in milliseconds since the Unix epoch."""
        return TRUE_EPOCH_MS + (self._timeline.now + self.wall_offset_ns()) // _MILLION

    def wall_offset_ns(self) -> int:
        """Returns by how much the wall clock is ahead of true time."""
        gained_ns = (self._timeline.now - self._skewed_since_ns) * self._skew_ppm // _MILLION
        return self._stepped_ns() + gained_ns

    def _stepped_ns(self) -> int:
        now = self._timeline.now
        if now >= self._slide_until_ns:
            return self._offset_ns + self._slide_by_ns
        share = (now - self._slide_from_ns) / (self._slide_until_ns - self._slide_from_ns)
        return self._offset_ns + int(self._slide_by_ns * share)

    def step_wall(self, by_ms: float) -> None:
        """Steps the wall clock."""
        self.slide_wall(by_ms, over_ns=0)

    def slide_wall(self, by_ms: float, *, over_ns: int) -> None:
        """Moves the wall clock gradually, over a span of true time."""
        self._offset_ns = self._stepped_ns()
        self._slide_from_ns = self._timeline.now
        self._slide_until_ns = self._timeline.now + over_ns
        self._slide_by_ns = int(by_ms * _MILLION)

    def correct_wall(self) -> None:
        """Sets the wall clock to true time, as a restarted time daemon does."""
        self._offset_ns = 0
        self._slide_by_ns = 0
        self._slide_until_ns = self._timeline.now


class NodeClock:
    """The clock interface of one node; implements `system_under_test.runtime.Clock`."""

    __slots__ = ("_host_clock",)

    def __init__(self, host_clock: HostClock) -> None:
        self._host_clock = host_clock

    def monotonic_ns(self) -> int:
        """Returns nanoseconds of a clock that never steps and starts at an arbitrary value."""
        return self._host_clock.monotonic_ns()

    def wall_ms(self) -> int:
        """Returns the milliseconds since the Unix epoch according to this node."""
        return self._host_clock.wall_ms()
