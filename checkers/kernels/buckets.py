"""One partition's log cut into ranges of offsets: a verdict without ever holding the whole log in one process.

A history is cut twice. *Slices* (`checkers.kernels.slices`) are ranges of operations, as they are stored.
*Buckets* are ranges of offsets: whatever concerns one offset is decided here, from what the slices sent: one value
per offset (C1), where a value came from (C2, C3), whether it is still there in the end, whether the consumer group
received it. What remains is small, and is folded in the order of the buckets: the real-time check (C6) as a
monoid, holes with their bounds, and the appends without a place, which every bucket must know; they are few.

    cut_slice      a slice's own report, and a part for every bucket that it touches
    judge_bucket   all parts of one bucket -> a `BucketResult`
    fold           all reports and bucket results -> a `LogVerdict`

The verdict is that of the kernel on the whole history, with the worst real-time contradiction and its two
operations. If it is not clean, `checkers.kernels.suspects` finds the suspicious offsets in the same parts. Neither
the width of the buckets, nor the number of slices, nor the order of anything matters.

Source: linearizability of a log, "one huge partition"; the corollary that its check is a monoid.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from checkers.kernels.columns import Columns, distinct, joined_columns
from checkers.kernels.cut_measures import BucketMeasures, lag_in, unseen_in
from checkers.kernels.free_appends import (
    Holes,
    RealTimeHolds,
    Tail,
    fit_free_appends,
    joined_holes,
)
from checkers.kernels.history import (
    FAIL,
    I64,
    INF_NS,
    INFO,
    OK_SOMEWHERE,
    Bools,
    PartitionHistory,
    lookup,
    read_history,
)
from checkers.kernels.lost_acked import FinalLog, final_log
from checkers.kernels.monoid import BucketElement, RealTimeFacts, bucket_element
from checkers.kernels.monoid import fold as fold_elements
from checkers.kernels.real_time import NEVER_NS
from checkers.kernels.slices import LEVELS, FreeAppends, Part, SliceReport, Times, strongest
from harness.history.schema import TABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketResult:
    """What is known of one bucket.

    Attributes:
        elements: Per level, for the real-time check.
        integrity_holds: Whether C1 to C3 hold in it, as far as one bucket can see.
        all_there: Whether a final read shows every record that was acknowledged or read in it.
        revealed_op, revealed_offset: Free appends that a read found, and where.
        hole_count: How many offsets below the limit have no known record.
        holes: Their ranges with the bounds of this bucket alone; only the first ones if there are more than free
            appends.
        delivered_count: How many distinct records members of the consumer group received.
        ended_ns: The earliest time by which a log end proved that one of its offsets existed.
        measures: What measures need, if they are taken.
        group_got_all: Whether they received every record below their committed offset that a final read shows.
    """

    elements: dict[str, BucketElement]
    integrity_holds: bool
    all_there: bool
    revealed_op: I64
    revealed_offset: I64
    hole_count: int
    holes: Holes
    delivered_count: int
    ended_ns: int
    measures: BucketMeasures | None
    group_got_all: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogVerdict:
    """Whether a partition's history is linearizable, and what is known besides.

    Attributes:
        integrity_holds: C1 to C5, and no poll returned an offset twice or below its position.
        order, fresh: The real-time check of both levels: slack and operations of the worst contradiction.
        order_holds, fresh_holds: Their result, allowing for the error of the clocks.
        free_appends_fit: Whether every hole can be filled and every append has a place. Places below the log start
            do not count, so this may be false of a lawful history. No read showed such an append, so
            `judge_cut_partition` does not take its partition for clean in any case.
        hole_count: How many offsets have no known record.
        revealed_count: How many appends of unknown outcome a read revealed.
    """

    integrity_holds: bool
    order: BucketElement
    fresh: BucketElement
    order_holds: bool
    fresh_holds: bool
    free_appends_fit: bool
    hole_count: int
    revealed_count: int

    @property
    def is_linearizable(self) -> bool:
        """Whether everything holds."""
        return (
            self.integrity_holds and self.order_holds and self.fresh_holds and self.free_appends_fit
        )


def all_free(reports: Iterable[SliceReport]) -> FreeAppends:
    """Returns the appends without an acknowledged offset of all slices, ascending by op."""
    parts = [report.free for report in reports]
    columns = [
        np.concatenate([getattr(part, name) for part in parts]) for name in FreeAppends.__slots__
    ]
    order = np.argsort(columns[0], kind="stable")
    return FreeAppends(
        **{name: column[order] for name, column in zip(FreeAppends.__slots__, columns, strict=True)}
    )


def judge_bucket(
    parts: Sequence[Part],
    free: FreeAppends,
    *,
    first: int,
    stop: int,
    committed: Sequence[int] = (),
    moments: I64 | None = None,
) -> BucketResult:
    """Judges the offsets of one bucket.

    Args:
        parts: What the slices sent, in any order.
        free: Every append without an acknowledged offset.
        first: The bucket's first offset at which a record has to be.
        stop: One more than its last offset that is known to have existed.
        committed: The committed offset of every consumer group.
        moments: Of the series of unseen records; None if no measures are taken.
    """
    claims = Claims.of(parts)
    there = claims.take(claims.offset >= first)
    revealed, revealed_offset, known = revealed_in(claims, free)
    is_contested = bool((claims.offset[1:] == claims.offset[:-1]).any())
    absent, present = bounds_in(parts, free, revealed, revealed_offset)
    occupied = occupied_in(claims, parts, first)
    hole_count = max(0, stop - first - len(occupied))
    holes = (
        holes_in(first, stop, occupied, absent, present, limit=len(free.op) + 1)
        if hole_count
        else Holes.none()
    )
    return BucketResult(
        elements={level: _element(absent[level], present) for level in LEVELS},
        integrity_holds=not is_contested and known,
        all_there=bool(there.is_final.all()),
        revealed_op=free.op[revealed],
        revealed_offset=revealed_offset,
        hole_count=hole_count,
        holes=holes,
        delivered_count=_delivered_count(there, parts, first, len(committed)),
        ended_ns=min(int(part.ended.time_ns.min(initial=INF_NS)) for part in parts),
        measures=None if moments is None else _measured(parts, present, moments, first, stop),
        group_got_all=not bool(there.is_skipped_by_any(committed).any()),
    )


def fold(
    reports: Sequence[SliceReport],
    results: Mapping[int, BucketResult],
    free: FreeAppends,
    *,
    width: int,
    log_start_offset: int,
    clock_error_ns: int = 0,
) -> LogVerdict:
    """Returns the verdict on the whole partition.

    Args:
        reports: Of all slices.
        results: Of every bucket that a part was sent to.
        free: `all_free(reports)`.
        width: How many offsets a bucket holds.
        log_start_offset: Nothing has to be there below it.
        clock_error_ns: By how much two clocks of the run may differ; it only ever hides violations.
    """
    ordered = [results[bucket] for bucket in sorted(results)]
    whole = {level: fold_elements(result.elements[level] for result in ordered) for level in LEVELS}
    holds = {level: whole[level].slack_ns <= clock_error_ns for level in LEVELS}
    revealed = joined_columns([result.revealed_op for result in ordered])
    limit = max((report.limit for report in reports), default=log_start_offset)
    holes, hole_count = _all_holes(results, width, log_start_offset, limit, clock_error_ns)
    at = np.flatnonzero(
        ((free.status == INFO) | (free.status == OK_SOMEWHERE)) & ~np.isin(free.op, revealed)
    )
    fits = True
    if hole_count > len(at):
        fits = False
    elif hole_count or bool((free.status[at] == OK_SOMEWHERE).any()):
        tail = {level: whole[level].latest_absent.time_ns - clock_error_ns for level in LEVELS}
        fits = not fit_free_appends(
            _history_of_appends(free),
            at,
            holes,
            tail=Tail(order_absent_ns=tail["order"], latest_absent_ns=max(tail.values())),
            holds=RealTimeHolds(order=holds["order"], fresh=all(holds.values())),
        )
    return LogVerdict(
        integrity_holds=all(result.integrity_holds for result in ordered)
        and not any(report.log_violated for report in reports)
        # A record of unknown outcome that is at two offsets is a duplicate.
        and len(np.unique(revealed)) == len(revealed),
        order=whole["order"],
        fresh=whole["fresh"],
        order_holds=holds["order"],
        fresh_holds=holds["fresh"],
        free_appends_fit=fits,
        hole_count=hole_count,
        revealed_count=len(np.unique(revealed)),
    )


def sender_swaps(reports: Sequence[SliceReport]) -> tuple[I64, I64]:
    """Returns the processes whose offsets do not grow from slice to slice, and the offsets of these swaps.

    Args:
        reports: Of all slices, in order of operations.
    """
    last: dict[int, int] = {}
    processes: list[int] = []
    offsets: list[int] = []
    for report in reports:
        columns = (report.sender, report.sender_first, report.sender_last)
        for sender, first, end in zip(*(column.tolist() for column in columns), strict=True):
            if last.get(sender, -1) >= first:
                processes.append(sender)
                offsets += [last[sender], first]
            last[sender] = end
    return np.array(processes, dtype=np.int64), np.array(offsets, dtype=np.int64)


def final_log_of(
    reports: Sequence[SliceReport], *, log_start_offset: int, phase_complete: bool
) -> FinalLog:
    """Returns what the final phase showed of the log; which appends it showed is not in it."""
    first, last, position = (
        joined_columns([getattr(report, name) for report in reports])
        for name in ("final_first", "final_last", "final_position")
    )
    seen = [report for report in reports if report.final_end >= 0]
    ends = np.array([report.final_end for report in seen], np.int64)
    asked = np.array([report.final_end_asked_ns for report in seen], np.int64)
    yes = np.ones(len(last), dtype=np.bool_)
    history = replace(
        _empty_history(),
        poll_op=np.arange(len(last)),
        poll_ok=yes,
        poll_final=yes,
        poll_position=position,
        poll_last=last,
        record_poll=np.arange(len(last)),
        record_offset=first,
        record_value=first,
        record_trusted=~yes,
        end_offset=ends,
        end_inv=asked,
        end_final=np.ones(len(ends), dtype=np.bool_),
    )
    return final_log(history, log_start_offset=log_start_offset, phase_complete=phase_complete)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims(Columns):
    """Distinct (offset, value) pairs of a bucket, ascending.

    Shape:
        is_orphan: no acknowledgement shows it; is_final: a final read shows it; delivered: which consumer groups
            received it, one bit each.
    """

    offset: I64
    value: I64
    is_orphan: Bools
    is_final: Bools
    delivered: I64

    @classmethod
    def of(cls, parts: Sequence[Part]) -> "Claims":
        """Returns the claims of all slices."""
        acked = sum(len(part.acked_offset) for part in parts)
        offset = joined_columns([p.acked_offset for p in parts] + [p.read_offset for p in parts])
        value = joined_columns([p.acked_value for p in parts] + [p.read_value for p in parts])
        is_acked = np.arange(len(offset)) < acked
        is_final = np.zeros(len(offset), dtype=np.bool_)
        is_final[acked:] = np.concatenate([part.read_final for part in parts])
        given = np.concatenate([part.read_delivered for part in parts])
        delivered = np.concatenate((np.zeros(acked, dtype=given.dtype), given))
        order = np.argsort(offset, kind="stable")
        if _differ_at_one_offset(offset[order], value[order]):
            order = np.lexsort((value, offset))
        offset, value = offset[order], value[order]
        head = np.ones(len(order), dtype=np.bool_)
        head[1:] = (offset[1:] != offset[:-1]) | (value[1:] != value[:-1])
        group = np.cumsum(head) - 1
        count = int(head.sum())
        return cls(
            offset=offset[head],
            value=value[head],
            is_orphan=np.bincount(group, weights=is_acked[order], minlength=count) == 0,
            is_final=np.bincount(group, weights=is_final[order], minlength=count) > 0,
            delivered=np.bitwise_or.reduceat(delivered[order], np.flatnonzero(head))
            if count
            else delivered,
        )

    def is_delivered_to(self, group: int) -> Bools:
        """Returns which records members of a group received."""
        return ((self.delivered >> self.delivered.dtype.type(group)) & 1).astype(np.bool_)

    def is_skipped_by_any(self, committed: Sequence[int]) -> Bools:
        """Returns which records of the final log some group did not receive although it committed beyond them."""
        skipped = np.zeros(len(self.offset), dtype=np.bool_)
        for group, offset in enumerate(committed):
            skipped |= self.is_final & ~self.is_delivered_to(group) & (self.offset < offset)
        return skipped


def _differ_at_one_offset(offset: I64, value: I64) -> bool:
    return bool(((offset[1:] == offset[:-1]) & (value[1:] != value[:-1])).any())


def _measured(
    parts: Sequence[Part], present: Times, moments: I64, first: int, stop: int
) -> BucketMeasures:
    def joined(*names: str) -> Any:
        return tuple(joined_columns([getattr(part, name) for part in parts]) for name in names)

    asked = tuple(
        joined_columns([getattr(part.asked, name) for part in parts])
        for name in ("offset", "time_ns")
    )
    lag_ns, asked_ns = lag_in(
        (asked[0], asked[1]), (present.offset, present.time_ns), first=first, stop=stop
    )
    changes = unseen_in(
        joined("acked_offset", "acked_value", "acked_ns"),
        joined("read_offset", "read_value", "read_ns"),
        moments,
        first=first,
        stop=stop,
    )
    return BucketMeasures(lag_ns=lag_ns, asked_ns=asked_ns, changes=changes)


def _delivered_count(claims: Claims, parts: Sequence[Part], first: int, groups: int) -> int:
    """Returns how many distinct records members received, readable or not; the sum over all groups."""
    if not groups:
        return 0
    delivered = np.concatenate([claims.delivered, *(part.unread_delivered for part in parts)])
    if len(delivered) == len(claims.offset):
        return sum(int(claims.is_delivered_to(group).sum()) for group in range(groups))
    offset = np.concatenate([claims.offset, *(part.unread_offset for part in parts)])
    value = np.concatenate([claims.value, *(part.unread_value for part in parts)])
    count = 0
    for group in range(groups):
        is_delivered = ((delivered >> delivered.dtype.type(group)) & 1).astype(np.bool_)
        rows = np.flatnonzero(is_delivered & (offset >= first))
        count += len(np.unique(np.stack((offset[rows], value[rows])), axis=1).T)
    return count


def revealed_in(claims: Claims, free: FreeAppends) -> tuple[I64, I64, bool]:
    """Returns the free appends that a read found, where, and whether every record belongs to some append."""
    position = lookup(free.op)(claims.value[claims.is_orphan])
    place = claims.offset[claims.is_orphan]
    known = position >= 0
    known[known] = free.status[position[known]] != FAIL
    return position[known], place[known], bool(known.all())


def occupied_in(claims: Claims, parts: Sequence[Part], first: int = 0) -> I64:
    """Returns the offsets of a bucket from `first` on where a record is known to be, ascending."""
    occupied: I64 = distinct(claims.offset, *(part.unread_offset for part in parts))
    return occupied[occupied >= first]


def bounds_in(
    parts: Sequence[Part], free: FreeAppends, revealed: I64, offset: I64
) -> tuple[dict[str, Times], Times]:
    """Returns "did not exist yet" per level and "existed by then", also for appends that a read revealed."""
    return (
        _revealed_absent(parts, free, revealed, offset),
        _revealed_present(parts, free, revealed, offset),
    )


def _revealed_absent(
    parts: Sequence[Part], free: FreeAppends, revealed: I64, offset: I64
) -> dict[str, Times]:
    """Returns "did not exist yet" per level, also for the places of appends that a read revealed."""
    merged = {level: [part.absent[level] for part in parts] for level in LEVELS}
    pinned = Times(offset=offset, time_ns=free.inv[revealed], op=free.op[revealed])
    return {
        "order": _merged([*merged["order"], pinned], latest=True),
        "fresh": _merged(merged["fresh"], latest=True),
    }


def _revealed_present(
    parts: Sequence[Part], free: FreeAppends, revealed: I64, offset: I64
) -> Times:
    """Returns "existed by then", also for revealed appends that are known to have succeeded."""
    succeeded = free.status[revealed] == OK_SOMEWHERE
    at = revealed[succeeded]
    pinned = Times(offset=offset[succeeded], time_ns=free.res[at], op=free.op[at])
    return _merged([*(part.present for part in parts), pinned], latest=False)


def _merged(parts: Sequence[Times], *, latest: bool) -> Times:
    return strongest(
        joined_columns([part.offset for part in parts]),
        joined_columns([part.time_ns for part in parts]),
        joined_columns([part.op for part in parts]),
        latest=latest,
    )


def _element(absent: Times, present: Times) -> BucketElement:
    return bucket_element(
        RealTimeFacts(
            absent_offset=absent.offset,
            absent_ns=absent.time_ns,
            absent_op=absent.op,
            present_offset=present.offset,
            present_ns=present.time_ns,
            present_op=present.op,
        )
    )


def holes_in(
    first: int, stop: int, occupied: I64, absent: dict[str, Times], present: Times, *, limit: int
) -> Holes:
    """Returns the ranges of [first, stop) without a known record; L and U of this bucket alone."""
    facts = [*absent.values(), present]
    mentioned = distinct(occupied, *(times.offset for times in facts))
    mentioned = mentioned[(mentioned >= first) & (mentioned < stop)]
    below = {}
    for level, times in absent.items():
        # Slot i + 1 holds the facts at mentioned[i]; slot i bounds everything just below it.
        below[level] = np.full(len(mentioned) + 1, NEVER_NS, dtype=np.int64)
        inside = times.offset < stop
        at = np.searchsorted(mentioned, times.offset[inside]) + (times.offset[inside] >= first)
        np.maximum.at(below[level], at, times.time_ns[inside])
        below[level] = np.maximum.accumulate(below[level])
    latest = np.maximum(below["order"], below["fresh"])
    above = np.full(len(mentioned) + 1, INF_NS, dtype=np.int64)
    is_above = present.offset >= first
    np.minimum.at(
        above, np.searchsorted(mentioned, present.offset[is_above]), present.time_ns[is_above]
    )
    above = np.minimum.accumulate(above[::-1])[::-1]
    edges = np.concatenate(([first - 1], mentioned, [stop]))
    # Between two mentioned offsets, and the mentioned ones themselves that are vacant.
    vacant = np.flatnonzero(~np.isin(mentioned, occupied))
    width = edges[1:] - edges[:-1] - 1
    between = np.flatnonzero(width > 0)
    start = np.concatenate((edges[between] + 1, mentioned[vacant]))
    order = np.argsort(start)[:limit]
    return Holes(
        first=start[order],
        length=np.concatenate((width[between], np.ones(len(vacant), dtype=np.int64)))[order],
        order_absent_ns=np.concatenate((below["order"][between], below["order"][vacant + 1]))[
            order
        ],
        latest_absent_ns=np.concatenate((latest[between], latest[vacant + 1]))[order],
        earliest_present_ns=np.concatenate((above[between], above[vacant]))[order],
    )


def _all_holes(
    results: Mapping[int, BucketResult],
    width: int,
    start: int,
    limit: int,
    clock_error_ns: int,
) -> tuple[Holes, int]:
    """Returns all holes with the bounds of the whole partition, and how many there are."""
    buckets = sorted(results)
    carried = carried_bounds([results[bucket] for bucket in buckets])
    ranges: list[Holes] = []
    count, reached = 0, start
    for index, bucket in enumerate(buckets):
        low, high = carried[index]
        begin = min(max(bucket * width, start), limit)
        if begin > reached:
            # Whole buckets without any fact.
            count += begin - reached
            ranges.append(
                _range(reached, begin - reached, low, min(high, _earliest(results[bucket])))
            )
        holes = results[bucket].holes
        count += results[bucket].hole_count
        ranges.append(
            replace(
                holes,
                order_absent_ns=np.maximum(holes.order_absent_ns, low["order"]),
                latest_absent_ns=np.maximum(holes.latest_absent_ns, max(low.values())),
                earliest_present_ns=np.minimum(holes.earliest_present_ns, high),
            )
        )
        reached = max(reached, min((bucket + 1) * width, limit))
    whole = joined_holes(ranges)
    present = whole.earliest_present_ns
    return (
        replace(
            whole,
            order_absent_ns=whole.order_absent_ns - clock_error_ns,
            latest_absent_ns=whole.latest_absent_ns - clock_error_ns,
            earliest_present_ns=np.where(present < INF_NS, present + clock_error_ns, INF_NS),
        ),
        count,
    )


def carried_bounds(results: Sequence[BucketResult]) -> list[tuple[dict[str, int], int]]:
    """Returns, for every bucket, L of all before it by level, and U of all after it."""
    low, lows = dict.fromkeys(LEVELS, NEVER_NS), []
    for result in results:
        lows.append(low)
        low = {
            level: max(low[level], result.elements[level].latest_absent.time_ns) for level in LEVELS
        }
    high, highs = INF_NS, []
    for result in reversed(results):
        highs.append(high)
        high = min(high, _earliest(result))
    return list(zip(lows, reversed(highs), strict=True))


def _earliest(result: BucketResult) -> int:
    return min(element.earliest_present.time_ns for element in result.elements.values())


def _range(first: int, length: int, low: Mapping[str, int], high: int) -> Holes:
    return Holes(
        first=np.array([first], np.int64),
        length=np.array([length], np.int64),
        order_absent_ns=np.array([low["order"]], np.int64),
        latest_absent_ns=np.array([max(low.values())], np.int64),
        earliest_present_ns=np.array([high], np.int64),
    )


def _empty_history() -> PartitionHistory:
    names = ("operations", "records_read", "end_offsets_seen")
    return read_history(*(TABLES[name].empty_table() for name in names))


def _history_of_appends(free: FreeAppends) -> PartitionHistory:
    return replace(
        _empty_history(),
        append_op=free.op,
        append_inv=free.inv,
        append_res=free.res,
        append_status=free.status,
    )
