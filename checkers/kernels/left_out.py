"""Records that were left out of a history because nothing is wrong with them.

A huge partition is judged from the few rows that matter (`checkers.kernels.suspects`). The kernels then need to
know that the offsets without rows are no holes: each of them holds one record, all clients agree on it, every poll
that went over it returned it, and a complete final read shows it. So nothing at these offsets is a finding; what
operations there prove about time is kept where it matters.

The offsets are not changed, so every sentence about the reduced history is one about the whole history.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

_I64 = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]


def _none() -> Any:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """What was left out of a history; empty for a whole one.

    Attributes:
        limit: One more than the largest offset that was left out, or that reads and log ends of the whole history
            show.
        final_end: Largest log end seen in the final phase of the whole history, -1 if none was.
        final_end_asked_ns: When the last operation was invoked that saw this one, -1 likewise.

    Shape:
        start, stop: ranges [start, stop) of offsets, ascending, no two of which touch. A history may still hold
            appends that were acknowledged there, but none of the records that were read there.
        revealed_op, revealed_offset: appends of the reduced history without an acknowledged offset, and the
            offset left out at which they were read; ascending by op.
        poll_op, poll_last: polls of the reduced history and the largest offset that each returned, if that record
            was left out; ascending by op.
        final_start, final_stop: ranges [start, stop) that the final polls of the whole history went over.
    """

    limit: int = 0
    final_end: int = -1
    final_end_asked_ns: int = -1
    start: _I64 = field(default_factory=_none)
    stop: _I64 = field(default_factory=_none)
    revealed_op: _I64 = field(default_factory=_none)
    revealed_offset: _I64 = field(default_factory=_none)
    poll_op: _I64 = field(default_factory=_none)
    poll_last: _I64 = field(default_factory=_none)
    final_start: _I64 = field(default_factory=_none)
    final_stop: _I64 = field(default_factory=_none)

    def __bool__(self) -> bool:
        """Whether anything was left out."""
        return bool(len(self.start))

    @property
    def final_reach(self) -> int:
        """One more than the largest offset that the final phase of the whole history showed to exist."""
        return max(self.final_end, int(self.final_stop.max(initial=0)))

    def covers(self, offsets: _I64) -> _Bools:
        """Returns which offsets were left out."""
        if not len(self.start):
            return np.zeros(len(offsets), dtype=np.bool_)
        at = np.searchsorted(self.start, offsets, side="right") - 1
        covered: _Bools = (at >= 0) & (offsets < self.stop[at])
        return covered

    def holds(self, first: _I64, last: _I64) -> _Bools:
        """Returns which ranges [first, last) were left out as a whole."""
        if not len(self.start):
            return first >= last
        at = np.searchsorted(self.start, first, side="right") - 1
        # No two ranges touch, so a range that is left out lies in one of them.
        held: _Bools = (first >= last) | ((at >= 0) & (last <= self.stop[at]))
        return held

    def without(self, first: _I64, last: _I64) -> tuple[_I64, _I64, _I64]:
        """Returns what remains of disjoint ranges [first, last): first, last, and the position of each."""
        if not len(self.start):
            return first, last, np.arange(len(first))
        # A range is cut by the ranges from `low` up to but without `high`.
        low = np.searchsorted(self.stop, first, side="right")
        high = np.maximum(np.searchsorted(self.start, last, side="left"), low)
        pieces = high - low + 1
        source = np.repeat(np.arange(len(first)), pieces)
        step = np.arange(len(source)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        cut = low[source] + step
        begin = np.where(step == 0, first[source], np.append(self.stop, 0)[cut - 1])
        end = np.where(step == pieces[source] - 1, last[source], np.append(self.start, 0)[cut])
        rows = np.flatnonzero(begin < end)
        return begin[rows], end[rows], source[rows]


NOTHING = LeftOut()
"""The whole history is there."""


def largest_end(ends: _I64, asked_ns: _I64) -> tuple[int, int]:
    """Returns the largest log end, and when the last operation was invoked that saw it; smaller ones are older.

    Args:
        ends: Log ends, at least one.
        asked_ns: When the operations were invoked that saw them.
    """
    end = ends.max()
    return int(end), int(asked_ns[ends == end].max())
