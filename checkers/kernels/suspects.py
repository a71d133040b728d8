"""Which offsets of a huge partition may be part of an anomaly.

An offset is *good* if one value is known there, that value is nowhere else, a final read shows it if it has to be
there, and nothing contradicts it. Everything about a good offset can be left out of the history
(`checkers.kernels.left_out`): the kernels still find the same. All others are *suspects*:

- contradicted: several values, a record that cannot be read or whose append is unknown, failed or elsewhere; a
  place that some operation proves to have existed before another one proves that it did not; a record that a
  consumer group did not receive;
- missing: acknowledged or read, but not in the final reads, or contradicted by a log end only; below the log start
  nothing is missing, but a record that was acknowledged with acks=1 and that no read shows;
- next to a defect of a poll, or of the order in which a process sent: `checkers.kernels.slices` finds those.

    suspects_in    the parts of one bucket, and the bounds of all others -> its suspects
    gather         all buckets and reports -> a `Plan`: what every slice has to keep

What is kept beyond need costs only memory: the judgement is the same for every superset. So nothing here depends
on how the history was cut, except that only the first `SUSPECTS_MAX` suspects are kept, in an order that does not
depend on it either.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from checkers.kernels.buckets import (
    BucketResult,
    Claims,
    bounds_in,
    carried_bounds,
    holes_in,
    occupied_in,
    revealed_in,
    sender_swaps,
)
from checkers.kernels.columns import Columns, distinct, joined_columns
from checkers.kernels.history import FAIL, I64, INF_NS, INFO, OK_SOMEWHERE, Bools, lookup
from checkers.kernels.left_out import LeftOut, largest_end
from checkers.kernels.lost_acked import merged
from checkers.kernels.slices import FAR, FreeAppends, Part, SliceReport, Times

SUSPECTS_MAX = 5_000_000
"""How many suspects are judged: with their rows some gigabytes of memory. If there are more, counts are minima."""

SUSPECTS_SENT_MAX = 200_000
"""A bucket with more suspects first reports their number; the driver then says how many it may return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What makes an offset suspicious in a run.

    Attributes:
        log_start_offset, clock_error_ns: As the run declares them.
        committed: The committed offset of every consumer group.
        members: Process numbers of their members.
        both_sides: Whether of two operations that contradict each other both are suspicious, not only the one that
            a finding is about: an election may excuse one contradiction and leave another one.
        stale_ends: Whether every log end that is too small matters, not only the latest one.
    """

    log_start_offset: int = 0
    clock_error_ns: int = 0
    committed: tuple[int, ...] = ()
    members: tuple[int, ...] = ()
    both_sides: bool = False
    stale_ends: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """L of everything below a bucket by level, and U of everything above it; `high_end` is U of log ends alone."""

    low: Mapping[str, int]
    high: int
    high_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSuspects:
    """The suspects of one bucket.

    Shape:
        contradicted, missing: offsets, ascending; no offset is in both.
        good_start, good_stop: ranges [start, stop) of all other offsets at which a record is known to be.
        late_offset, late_ns: suspects that existed before `late_ns`, although an operation that began then proves
            that they did not exist.
        stale_offset, stale_ns: log ends for which another one that was received by `stale_ns` is larger.
        strays: values of records that belong to another offset or to no append.
        hole_first: first offsets of ranges without a known record within which no bound changes.

    Attributes:
        counts: How many are contradicted and missing; the arrays hold the first ones if there are more.
    """

    contradicted: I64
    missing: I64
    good_start: I64
    good_stop: I64
    late_offset: I64
    late_ns: I64
    stale_offset: I64
    stale_ns: I64
    strays: I64
    hole_first: I64
    counts: tuple[int, int]

    @property
    def ignored(self) -> int:
        """How many suspects are not in the arrays."""
        return sum(self.counts) - len(self.contradicted) - len(self.missing)

    def fills(self, quota: tuple[int, int]) -> bool:
        """Returns whether the arrays hold what a quota permits, no less and no more."""
        sent = len(self.contradicted), len(self.missing)
        return sent == tuple(map(min, self.counts, quota))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What every slice has to keep.

    Shape:
        offsets: suspects, ascending.
        ops: operations to keep, ascending.
        points: offsets, ascending, for which L and U must be exact.
        late_offset, late_ns, stale_offset, stale_ns: See `BucketSuspects`; ascending by offset.
        swapped: processes whose appends are not in the order of sending.

    Attributes:
        keeps_swapped: Whether all appends of these processes are kept: where clocks differ, only the order of a
            process may show that two are swapped, also two that are no neighbours.
        every_end: Whether every observation of a log end is kept.
        left_out: What the judged history lacks; without its polls.
        ignored: How many suspects are beyond `SUSPECTS_MAX` and treated as good.
    """

    offsets: I64
    ops: I64
    points: I64
    late_offset: I64
    late_ns: I64
    stale_offset: I64
    stale_ns: I64
    swapped: I64
    keeps_swapped: bool
    every_end: bool
    left_out: LeftOut
    ignored: int


def bounds_of(results: Mapping[int, BucketResult]) -> dict[int, Bounds]:
    """Returns for every bucket the bounds of all others.

    Args:
        results: Of every bucket that a part was sent to.
    """
    buckets = sorted(results)
    carried = carried_bounds([results[bucket] for bucket in buckets])
    bounds, high_end = {}, INF_NS
    for bucket, (low, high) in reversed(list(zip(buckets, carried, strict=True))):
        bounds[bucket] = Bounds(low=low, high=high, high_end=high_end)
        high_end = min(high_end, results[bucket].ended_ns)
    return bounds


def suspects_in(
    parts: Sequence[Part],
    free: FreeAppends,
    bounds: Bounds,
    rules: Rules,
    repeated: I64,
    *,
    low: int,
    first: int,
    stop: int,
    quota: tuple[int, int],
) -> BucketSuspects:
    """Finds the suspects of one bucket.

    Args:
        parts: What the slices sent, in any order.
        free: Every append without an acknowledged offset.
        bounds: Of all other buckets.
        rules: What makes an offset suspicious.
        repeated: Free appends that were read at several offsets.
        low: The bucket's first offset.
        first: The first one of these at which a record has to be.
        stop: One more than its last offset that is known to have existed.
        quota: How many contradicted and how many missing offsets are returned; the others count as good.
    """
    claims = Claims.of(parts)
    inside = claims.offset >= first
    revealed, place, _ = revealed_in(claims, free)
    absent, present = bounds_in(parts, free, revealed, place)
    is_bad = _is_stray(claims, free, repeated)
    late, late_ns, in_order = _late(absent, present, bounds, rules)
    order, ends = absent["order"], absent["fresh"]
    is_too_late = order.time_ns - rules.clock_error_ns > _above(order, [present], bounds.high)
    ended_ns = _above(ends, [part.ended for part in parts], bounds.high_end)
    is_stale = (ends.time_ns - rules.clock_error_ns > ended_ns) & rules.stale_ends
    contradicted = _union(
        claims.offset[1:][claims.offset[1:] == claims.offset[:-1]],
        *(part.unread_offset for part in parts),
        claims.offset[is_bad],
        claims.offset[claims.is_skipped_by_any(rules.committed) & inside],
        late[~in_order],
        order.offset[is_too_late] if rules.both_sides else order.offset[:0],
    )
    weak = _union(*(part.weak_offset for part in parts))
    missing = _union(
        claims.offset[inside & ~claims.is_final],
        late[in_order],
        weak[~is_in(weak, _union(*(part.read_offset for part in parts)))],
    )
    missing = missing[~is_in(missing, contradicted)]
    counts = len(contradicted), len(missing)
    contradicted, missing = contradicted[: quota[0]], missing[: quota[1]]
    suspects = np.union1d(contradicted, missing)
    is_known = is_in(late, suspects)
    occupied = occupied_in(claims, parts)
    hole_from = low if _has_certain(free) else first
    good_start, good_stop = runs_of(occupied[~is_in(occupied, suspects)])
    return BucketSuspects(
        contradicted=contradicted,
        missing=missing,
        good_start=good_start,
        good_stop=good_stop,
        late_offset=late[is_known],
        late_ns=late_ns[is_known],
        stale_offset=ends.offset[is_stale],
        stale_ns=ended_ns[is_stale],
        strays=np.unique(claims.value[is_bad & is_in(claims.offset, suspects)]),
        hole_first=_hole_starts(hole_from, stop, occupied[occupied >= hole_from], absent, present),
        counts=counts,
    )


def _is_stray(claims: Claims, free: FreeAppends, repeated: I64) -> Bools:
    """Returns which records are of no append that was acknowledged there or may be there, and nowhere else."""
    position = lookup(free.op)(claims.value)
    may_be = position >= 0
    may_be[may_be] = free.status[position[may_be]] != FAIL
    stray: Bools = claims.is_orphan & ~(may_be & ~is_in(claims.value, repeated))
    return stray


def _late(
    absent: Mapping[str, Times], present: Times, bounds: Bounds, rules: Rules
) -> tuple[I64, I64, Bools]:
    """Returns the offsets that existed before an operation began that proves the opposite.

    Returns:
        The offsets, when the last such operation began, and whether only log ends contradict them.
    """
    latest = {}
    for level, times in absent.items():
        running = np.maximum.accumulate(np.append(bounds.low[level], times.time_ns))
        at = np.searchsorted(times.offset, present.offset, side="right")
        latest[level] = running[at] - rules.clock_error_ns
    late_ns = np.maximum(latest["order"], latest["fresh"])
    is_late = late_ns > present.time_ns
    in_order = latest["order"] <= present.time_ns
    return present.offset[is_late], late_ns[is_late], in_order[is_late]


def _above(absent: Times, present: Sequence[Times], high: int) -> I64:
    """Returns by when the offset of every "did not exist yet" existed at the latest."""
    offset = joined_columns([times.offset for times in present])
    order = np.argsort(offset, kind="stable")
    time_ns = joined_columns([times.time_ns for times in present])[order]
    running = np.minimum.accumulate(np.append(time_ns, high)[::-1])[::-1]
    earliest: I64 = running[np.searchsorted(offset[order], absent.offset, side="left")]
    return earliest


def _has_certain(free: FreeAppends) -> bool:
    """Returns whether an append was acknowledged without an offset, which may be below the log start."""
    return bool((free.status == OK_SOMEWHERE).any())


def _hole_starts(
    first: int, stop: int, occupied: I64, absent: dict[str, Times], present: Times
) -> I64:
    if stop - first <= len(occupied):
        return occupied[:0]
    return holes_in(first, stop, occupied, absent, present, limit=SUSPECTS_MAX).first


def quotas(counts: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Returns how many contradicted and missing offsets of every bucket are judged: the lowest ones first.

    Contradicted offsets come first: each of them is an anomaly by itself, and one that usually is forbidden.

    Args:
        counts: How many there are, by bucket.
    """
    left = SUSPECTS_MAX
    chosen: list[dict[int, int]] = []
    for kind in (0, 1):
        chosen.append({})
        for bucket in sorted(counts):
            chosen[kind][bucket] = min(counts[bucket][kind], left)
            left -= chosen[kind][bucket]
    return {bucket: (chosen[0][bucket], chosen[1][bucket]) for bucket in counts}


def gather(
    reports: Sequence[SliceReport],
    results: Mapping[int, BucketResult],
    found: Mapping[int, BucketSuspects],
    free: FreeAppends,
    also: I64,
    rules: Rules,
    *,
    width: int,
) -> Plan:
    """Returns what every slice has to keep.

    Args:
        reports: Of all slices, in order of operations.
        results: Of every bucket that a part was sent to.
        found: The suspects of these.
        free: `all_free(reports)`.
        also: More offsets to keep: where strays belong.
        rules: What makes an offset suspicious.
        width: How many offsets a bucket holds.
    """
    buckets = sorted(found)
    start, limit = rules.log_start_offset, max(report.limit for report in reports)

    def all_of(name: str) -> I64:
        return joined_columns([getattr(found[bucket], name) for bucket in buckets])

    good = _touching(all_of("good_start"), all_of("good_stop"))
    swapped, swaps = swapped_sends(reports, results, free)
    defects = _union(*(report.defects for report in reports))
    ignored = max(0, len(defects) - SUSPECTS_MAX) + sum(each.ignored for each in found.values())
    beside = _beside(defects[:SUSPECTS_MAX], good)
    offsets = _union(all_of("contradicted"), all_of("missing"), beside, swaps, also)
    hole_from = 0 if _has_certain(free) else start
    points = _union(offsets, all_of("hole_first"), _between(buckets, width, hole_from, limit))
    if start:
        # When the log was past its start shows which appends without an offset cannot be below it.
        points = _union(points, np.array([start], dtype=np.int64))
    points = np.append(points[points < FAR], FAR)
    left_out = _left_out(reports, offsets, good)
    dropped = _dropped(results, free, left_out)
    extra = _union(all_of("strays"), *(report.doubtful for report in reports))
    is_extra = is_in(free.op[dropped.position], extra)
    carriers = dropped.take(np.union1d(_carriers(dropped, points), np.flatnonzero(is_extra)))
    kept = np.flatnonzero((free.status == INFO) | (free.status == OK_SOMEWHERE))
    kept = kept[~is_in(kept, np.sort(dropped.position))]
    by_op = np.argsort(carriers.position)
    return Plan(
        offsets=offsets,
        ops=_union(free.op[kept], free.op[carriers.position], extra),
        points=points,
        late_offset=all_of("late_offset"),
        late_ns=all_of("late_ns"),
        stale_offset=all_of("stale_offset"),
        stale_ns=all_of("stale_ns"),
        swapped=swapped,
        keeps_swapped=rules.clock_error_ns > 0,
        every_end=rules.stale_ends and any(report.odd_ends for report in reports),
        left_out=replace(
            left_out,
            revealed_op=free.op[carriers.position[by_op]],
            revealed_offset=carriers.offset[by_op],
        ),
        ignored=ignored,
    )


def _beside(defects: I64, good: LeftOut) -> I64:
    """Returns the offsets of defects, and of the first record after each that is a hole: it may be a witness."""
    after = np.searchsorted(good.start, defects[~good.covers(defects)])
    return _union(defects, good.start[after[after < len(good.start)]])


def _left_out(reports: Sequence[SliceReport], offsets: I64, good: LeftOut) -> LeftOut:
    """Returns what the history lacks if of the good offsets only some are kept."""
    start, stop, _ = _touching(offsets, offsets + 1).without(good.start, good.stop)
    final_start, final_stop = _final_ranges(reports)
    end, end_asked_ns = largest_end(
        np.array([report.final_end for report in reports]),
        np.array([report.final_end_asked_ns for report in reports]),
    )
    return LeftOut(
        # Suspects are kept, and what acknowledgements show of them is not certain.
        limit=max([*(report.shown_limit for report in reports), int(stop.max(initial=0))]),
        final_end=end,
        final_end_asked_ns=end_asked_ns,
        start=start,
        stop=stop,
        final_start=final_start,
        final_stop=final_stop,
    )


def swapped_sends(
    reports: Sequence[SliceReport], results: Mapping[int, BucketResult], free: FreeAppends
) -> tuple[I64, I64]:
    """Returns the processes whose appends are not in the order of sending, and offsets of these.

    Args:
        reports: Of all slices, in order of operations.
        results: Of every bucket that a part was sent to.
        free: `all_free(reports)`.
    """
    processes, offsets = sender_swaps(reports)
    position, offset = _revealed(results, free)
    by_sending = np.lexsort((position, free.process[position]))
    position, offset = position[by_sending], offset[by_sending]
    process, is_acked = free.process[position], free.status[position] == OK_SOMEWHERE
    before, after = (beside[position] for beside in _beside_free(reports, free))
    is_over = before >= offset
    is_under = is_acked & (after <= offset)
    # Neighbours of which neither has an offset in its response.
    is_pair = (process[1:] == process[:-1]) & is_acked[:-1] & (offset[1:] <= offset[:-1])
    is_out = is_over | is_under
    is_out[1:] |= is_pair
    is_out[:-1] |= is_pair
    swapped = _union(processes, process[is_out], *(report.swapped for report in reports))
    is_swapped = is_in(process, swapped)
    return (
        swapped,
        _union(
            offsets,
            offset[is_swapped],
            before[is_swapped & (before >= 0)],
            after[is_swapped & (after < FAR)],
        ),
    )


def _beside_free(reports: Sequence[SliceReport], free: FreeAppends) -> tuple[I64, I64]:
    """Returns for every free append the offsets of the acknowledged ones of its process before and after it.

    It is -1 or `FAR` if there is none.
    """
    before, after = free.before.copy(), free.after.copy()
    for beside, is_unknown, ordered, nearest in (
        (before, free.before < 0, reports, "sender_last"),
        (after, free.after == FAR, reports[::-1], "sender_first"),
    ):
        known: dict[int, int] = {}
        for report in ordered:
            rows = lookup(free.op)(report.free.op)
            for row in rows[is_unknown[rows]].tolist():
                beside[row] = known.get(int(free.process[row]), beside[row])
            offsets = getattr(report, nearest)
            known.update(zip(report.sender.tolist(), offsets.tolist(), strict=True))
    return before, after


@dataclass(frozen=True, slots=True, kw_only=True)
class _Revealed(Columns):
    """Appends that a read revealed: position among the free ones, offset and times; ascending by offset."""

    position: I64
    offset: I64
    inv: I64
    res: I64


def _revealed(results: Mapping[int, BucketResult], free: FreeAppends) -> tuple[I64, I64]:
    ops = joined_columns([result.revealed_op for result in results.values()])
    return lookup(free.op)(ops), joined_columns(
        [result.revealed_offset for result in results.values()]
    )


def repeated_in(results: Mapping[int, BucketResult]) -> I64:
    """Returns the free appends that were read at several offsets, ascending."""
    ops, counts = np.unique(
        joined_columns([result.revealed_op for result in results.values()]), return_counts=True
    )
    return ops[counts > 1]


def strays_in(found: Mapping[int, BucketSuspects]) -> I64:
    """Returns the values of records that belong elsewhere or to no append, ascending."""
    return _union(*(each.strays for each in found.values()))


def _dropped(
    results: Mapping[int, BucketResult], free: FreeAppends, left_out: LeftOut
) -> _Revealed:
    """Returns the revealed appends about which everything was left out."""
    position, offset = _revealed(results, free)
    rows = np.flatnonzero(left_out.covers(offset))
    rows = rows[np.argsort(offset[rows])]
    position, offset = position[rows], offset[rows]
    # Only an append that is known to have succeeded bounds anything from above.
    res = np.where(free.status[position] == OK_SOMEWHERE, free.res[position], INF_NS)
    return _Revealed(position=position, offset=offset, inv=free.inv[position], res=res)


def _carriers(rows: _Revealed, points: I64) -> I64:
    """Returns the rows that bound some point."""
    return np.union1d(
        latest_below(rows.offset, rows.inv, points), earliest_above(rows.offset, rows.res, points)
    )


def latest_below(offset: I64, time_ns: I64, points: I64) -> I64:
    """Returns the rows with the latest time at or below some point, each once; of equal times the first row.

    Args:
        offset: Ascending.
        time_ns: One per offset.
        points: Ascending.
    """
    if not len(offset):
        return offset
    running = np.maximum.accumulate(time_ns)
    rises = np.append(True, running[1:] > running[:-1])
    source = np.maximum.accumulate(np.where(rises, np.arange(len(offset)), 0))
    at = np.unique(np.searchsorted(offset, points, side="right")) - 1
    return np.unique(source[at[at >= 0]])


def earliest_above(offset: I64, time_ns: I64, points: I64) -> I64:
    """Returns the rows with the earliest time at or above some point, each once; arguments as `latest_below`."""
    backwards = latest_below(-offset[::-1], -time_ns[::-1], -points[::-1])
    return np.sort(len(offset) - 1 - backwards)


def _final_ranges(reports: Sequence[SliceReport]) -> tuple[I64, I64]:
    """Returns the ranges [start, stop) that the final polls went over."""
    position, first, last = (
        joined_columns([getattr(report, f"final_{name}") for report in reports])
        for name in ("position", "first", "last")
    )
    return merged(np.where(position >= 0, np.minimum(position, last), first), last + 1)


def _between(buckets: Sequence[int], width: int, start: int, limit: int) -> I64:
    """Returns the first offset of every range of buckets to which nothing was sent."""
    starts, reached = [], start
    for bucket in buckets:
        if min(max(bucket * width, start), limit) > reached:
            starts.append(reached)
        reached = max(reached, min((bucket + 1) * width, limit))
    return np.array(starts, dtype=np.int64)


def runs_of(offsets: I64) -> tuple[I64, I64]:
    """Returns ascending offsets as ranges [start, stop)."""
    if not len(offsets):
        return offsets, offsets
    begins = np.append(True, offsets[1:] != offsets[:-1] + 1)
    return offsets[begins], offsets[np.append(begins[1:], True)] + 1


def _touching(start: I64, stop: I64) -> LeftOut:
    """Returns ranges, ascending, in which those that touch are one."""
    begins = np.append(True, start[1:] > stop[:-1])[: len(start)]
    return LeftOut(start=start[begins], stop=stop[np.append(begins[1:], True)[: len(stop)]])


def is_in(values: I64, ascending: I64) -> Bools:
    """Returns which values are among others, which are sorted."""
    if not len(ascending):
        return np.zeros(len(values), dtype=np.bool_)
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: Bools = ascending[at] == values
    return found


def _union(*parts: I64) -> I64:
    union: I64 = distinct(*parts)
    return union
