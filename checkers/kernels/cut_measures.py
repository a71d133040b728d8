"""The measures of a huge partition (`checkers.kernels.measures`), from what its slices and buckets know.

Times of recovery are minima over the slices. How many records are unseen is a sum over the buckets: each counts
its acknowledged records by the reads of their offset. Only records that were also read at another offset are
counted wrong by that; all of them are suspects, and `corrected` counts these again. How late polls were is a
maximum over the buckets, once it is known what the buckets above prove.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from checkers.kernels.history import I64, INF_NS, NONE, OK_AT, Bools, PartitionHistory
from checkers.kernels.measures import (
    MS,
    POINTS,
    SlowRecovery,
    all_the_time,
    end_of,
    is_acked,
    measured,
    moments_of,
    moments_until,
    recoveries_by,
    slow_recoveries,
    unseen_changes,
)
from harness.contracts.checker import CheckerReport
from harness.contracts.run_context import RunContext

_KINDS = ("append", "poll")


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceMeasures:
    """What one slice knows.

    Attributes:
        end_ns: When its last operation ended.

    Shape:
        succeeded: per kind ("append", "poll") and moment of `moments_of`, when the first operation after it
            succeeded; infinity if none did.
        tried: what `attempts` returns for these moments; empty without a limit.
    """

    end_ns: int
    succeeded: dict[str, I64]
    tried: Mapping[str, Bools]


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketMeasures:
    """What one bucket knows.

    Attributes:
        lag_ns: For how long the record at a poll's position was known to exist when the poll began, at most; what
            other buckets prove is not in it.
        asked_ns: When the last poll from one of its offsets began; negative if none did.

    Shape:
        changes: of the number of unseen records, at each moment.
    """

    lag_ns: int
    asked_ns: int
    changes: I64


def measures_of_slice(
    history: PartitionHistory, since: Sequence[int], tried: Mapping[str, Bools]
) -> SliceMeasures:
    """Returns what one slice knows.

    Args:
        history: The slice.
        since: What `moments_of` returned.
        tried: What `attempts` returned for them.
    """
    succeeded = {
        "append": history.append_res[is_acked(history)],
        "poll": history.poll_res[history.poll_ok],
    }
    after = np.array(since, dtype=np.int64)
    return SliceMeasures(
        end_ns=end_of(history),
        succeeded={kind: _first(times, after) for kind, times in succeeded.items()},
        tried=tried,
    )


def _first(times: I64, after: I64) -> I64:
    at = np.searchsorted(np.sort(times), after, side="right")
    first: I64 = np.append(np.sort(times), INF_NS)[at]
    return first


def unseen_in(
    acked: tuple[I64, I64, I64],
    read: tuple[I64, I64, I64],
    moments: I64,
    *,
    first: int,
    stop: int,
) -> I64:
    """Returns how the number of unseen records of a bucket changes; an offset with two acknowledged ones has none.

    Args:
        acked: Offsets, values and times of acknowledgement.
        read: Offsets, values and times of their first read, of every slice.
        moments: Of the series.
        first: The bucket's first offset that counts.
        stop: One more than its last one.
    """
    if stop <= first:
        return np.zeros(POINTS, dtype=np.int64)
    offset, acked_value, acked_ns = (column[acked[0] >= first] for column in acked)
    place = offset - first
    alone = np.bincount(place, minlength=stop - first)[place] == 1
    value = np.full(stop - first, NONE, dtype=np.int64)
    value[place] = acked_value
    seen_ns = np.full(stop - first, INF_NS, dtype=np.int64)
    offset, read_value, read_ns = (column[read[0] >= first] for column in read)
    same = value[offset - first] == read_value
    np.minimum.at(seen_ns, offset[same] - first, read_ns[same])
    acked_ns = acked_ns[alone]
    return unseen_changes(moments, acked_ns, np.maximum(seen_ns[place[alone]], acked_ns))


def lag_in(
    asked: tuple[I64, I64], present: tuple[I64, I64], *, first: int, stop: int
) -> tuple[int, int]:
    """Returns `lag_ns` and `asked_ns` of a bucket.

    Args:
        asked: Positions of polls, and when they began.
        present: Offsets, ascending, and by when they existed.
        first: The bucket's first offset that counts.
        stop: One more than its last one that is known to have existed.
    """
    position, inv = asked
    inside = (position >= first) & (position < stop)
    position, inv = position[inside], inv[inside]
    if not len(position):
        return -INF_NS, -INF_NS
    known = np.minimum.accumulate(np.append(present[1], INF_NS)[::-1])[::-1]
    lag = inv - known[np.searchsorted(present[0], position, side="left")]
    return int(lag.max()), int(inv.max())


@dataclass(frozen=True, slots=True, kw_only=True)
class CutMeasures:
    """The measures of a whole partition.

    Attributes:
        slices: Of all slices.
        faults: Rows of the run.
        lag_ns: What `worst_lag_ns` returns.

    Shape:
        moments, changes: of the number of unseen records.
    """

    slices: tuple[SliceMeasures, ...]
    faults: pa.Table
    lag_ns: int
    moments: I64
    changes: I64

    def report(self, context: RunContext) -> CheckerReport:
        """Returns the report of the checker."""
        error_ns = context.clock_error_ns
        since = moments_of(self.faults, error_ns)
        index = {since_ns: at for at, since_ns in enumerate(since)}
        succeeded = {
            kind: _least([each.succeeded[kind] for each in self.slices]) for kind in _KINDS
        }

        def time_to(kind: str, since_ns: int) -> int | None:
            first_ns = int(succeeded[kind][index[since_ns]])
            return first_ns - since_ns if first_ns < INF_NS else None

        after = {kind: partial(time_to, kind) for kind in _KINDS}
        found = recoveries_by(self.faults, after, error_ns)
        limit_ns = context.recovery_max_ms * MS
        end_ns = end_of_all(self.slices)
        slow: list[SlowRecovery] = []
        if limit_ns:
            tried = {
                kind: np.logical_or.reduce([each.tried[kind] for each in self.slices])
                for kind in _KINDS
            }
            slow = slow_recoveries(found, all_the_time(tried, since), limit_ns, end_ns, error_ns)
        series = self.moments, np.cumsum(self.changes)
        return measured(found, slow, series, self.lag_ns, context)


def end_of_all(slices: Sequence[SliceMeasures]) -> int:
    """Returns when the last operation of a partition ended."""
    return max((each.end_ns for each in slices), default=0)


def folded(
    slices: Sequence[SliceMeasures],
    buckets: Mapping[int, BucketMeasures],
    high: Mapping[int, int],
    faults: pa.Table,
) -> CutMeasures:
    """Returns the measures of a partition.

    Args:
        slices: Of all slices.
        buckets: Of every bucket.
        high: By when some offset above each bucket existed.
        faults: Rows of the run.
    """
    lags = [max(each.lag_ns, each.asked_ns - high[bucket]) for bucket, each in buckets.items()]
    return CutMeasures(
        slices=tuple(slices),
        faults=faults,
        lag_ns=max([0, *lags]),
        moments=moments_until(end_of_all(slices)),
        changes=sum(
            (each.changes for each in buckets.values()), start=np.zeros(POINTS, dtype=np.int64)
        ),
    )


def correction(history: PartitionHistory, suspects: I64, moments: I64, start: int) -> I64:
    """Returns by what the sum over the buckets differs, from the remainder of a partition.

    Args:
        history: The remainder, with everything that was read at suspects.
        suspects: Their offsets, ascending.
        moments: Of the series.
        start: Offsets below it do not count.
    """
    acked = np.flatnonzero((history.append_status == OK_AT) & (history.append_offset >= start))
    offset = history.append_offset[acked]
    known = np.isin(offset, suspects)
    acked, offset = acked[known], offset[known]
    rows = np.flatnonzero(history.record_trusted & (history.record_poll >= 0))
    append = history.append_at(history.record_value[rows])
    rows, append = rows[append >= 0], append[append >= 0]
    seen_ns = np.full((2, len(history.append_op)), INF_NS, dtype=np.int64)
    read_ns = history.poll_res[history.record_poll[rows]] if len(rows) else rows
    at_home = history.record_offset[rows] == history.append_offset[append]
    np.minimum.at(seen_ns[0], append, read_ns)
    np.minimum.at(seen_ns[1], append[at_home], read_ns[at_home])
    acked_ns = history.append_res[acked]
    exact = unseen_changes(moments, acked_ns, np.maximum(seen_ns[0][acked], acked_ns))
    _, inverse, count = np.unique(offset, return_inverse=True, return_counts=True)
    alone = count[inverse] == 1
    acked_ns = acked_ns[alone]
    seen_at_home = np.maximum(seen_ns[1][acked[alone]], acked_ns)
    return exact - unseen_changes(moments, acked_ns, seen_at_home)


def _least(parts: Sequence[I64]) -> I64:
    least: I64 = np.minimum.reduce(list(parts))
    return least
