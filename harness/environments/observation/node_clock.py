"""Converts what a node's clocks showed to the time of the run."""

from bisect import bisect_right
from collections.abc import Callable, Sequence

SLACK_NS = 100_000_000
"""How much earlier than the previous one a moment may be: threads of a node do not log in order."""


class ObservedClock:
    """Implements `harness.contracts.messages.NodeClock`.

    A node reports its wall clock ten times a second. Between two reports it runs evenly; a step of the clock lies
    between two reports too, so times of that tenth of a second are less exact.

    Args:
        of_monotonic: Converts the monotonic clock of the node's machine.
        readings: What the wall clock showed: (nanoseconds since the start of the run, milliseconds), in order.
        wall_at_start_ms: What this machine's wall clock showed at the start of the run, for nodes that reported
            nothing.
    """

    def __init__(
        self,
        *,
        of_monotonic: Callable[[int], int],
        readings: Sequence[tuple[int, int]],
        wall_at_start_ms: int,
    ) -> None:
        self._of_monotonic = of_monotonic
        self._readings = readings or [(0, wall_at_start_ms)]
        self._times = [at_ns for at_ns, _ in self._readings]

    def of_monotonic(self, at_ns: int) -> int:
        """Returns when the monotonic clock of the node's machine showed a time."""
        return self._of_monotonic(at_ns)

    def of_wall(self, wall_ms: int, not_before_ns: int) -> int:
        """Returns when the node's wall clock showed a time."""
        earliest_ns = not_before_ns - SLACK_NS
        first = max(bisect_right(self._times, earliest_ns) - 1, 0)
        for index in range(first, len(self._readings)):
            at_ns = self._by(index, wall_ms)
            begin_ns = self._times[index] if index > 0 else 0
            is_last = index + 1 == len(self._readings)
            end_ns = at_ns if is_last else self._times[index + 1]
            if max(begin_ns, earliest_ns) <= at_ns <= end_ns:
                return at_ns
        nearest = min(
            range(first, len(self._readings)),
            key=lambda index: abs(self._readings[index][1] - wall_ms),
        )
        return max(self._by(nearest, wall_ms), 0)

    def _by(self, index: int, wall_ms: int) -> int:
        """Returns the moment if the wall clock was correct since a reading."""
        at_ns, shown_ms = self._readings[index]
        return at_ns + (wall_ms - shown_ms) * 1_000_000
