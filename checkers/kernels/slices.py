"""One slice of a huge partition: a range of its operations, as they are stored.

Whatever concerns one operation alone is decided here: skipped offsets, torn fetches, unreadable records, the
order within a poll and between neighbouring appends of a process. What concerns offsets is cut at the borders of
the buckets and sent there (`checkers.kernels.buckets`), combined first: per offset only the latest "did not exist
yet" and the earliest "existed" matter, and a value that many reads returned is one claim. That keeps a hot offset
from becoming a hot bucket.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from checkers.kernels.cut_measures import SliceMeasures, measures_of_slice
from checkers.kernels.facts import Facts, derive_facts, skips
from checkers.kernels.findings import Finding
from checkers.kernels.history import (
    I8,
    I64,
    INF_NS,
    OK_AT,
    Bools,
    PartitionHistory,
)
from checkers.kernels.left_out import largest_end
from checkers.kernels.linearizability import NOT_ABOUT_THE_LOG
from checkers.kernels.monoid import RealTimeFacts, bucket_of, real_time_facts
from checkers.kernels.sequences import check_poll_order, process_codes, swaps_of

LEVELS = ("order", "fresh")

GROUPS_MAX = 62
"""Consumer groups of a partition that are told apart: one bit each."""

OF_ONE_OPERATION = frozenset(
    {
        "lost-record",
        "skipped-offset",
        "torn-fetch",
        "corrupt-record",
        "misplaced-record",
        "impossible-offset",
        "nonmonotonic-poll",
        "unordered-poll",
    }
)
"""Findings that a slice can make alone. It may not know whether a skipped range holds a record, but in a dense log
either case is a finding."""


FAR = 2**62 + 2
"""Above every offset; bounds there hold for an append that comes after everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Facts "did not exist yet" or "existed by then": at most one per offset, and the operation behind it.

    Shape:
        offset, time_ns, op: one row per offset, ascending.
    """

    offset: I64
    time_ns: I64
    op: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one slice knows of one bucket.

    Shape:
        asked: when the last poll from a position began that was not one of the final phase.
        acked_ns, read_ns: when acknowledgements and the first read of each pair arrived.
        `asked`, `acked_ns` and `read_ns` are empty unless measures are taken.
        absent: per level, "did not exist yet"; present: "existed by then"; ended: those that a log end proves.
        acked_*: appends acknowledged in the bucket.
        read_*: distinct (offset, value) pairs that trusted records show, whether a final read shows them, and
            which consumer groups received them: bit g is that of group g.
        unread_*: records that cannot be read, likewise.
        weak_offset: where appends were acknowledged with acks=1 below the start of the log, repeats allowed.
    """

    absent: dict[str, Times]
    present: Times
    ended: Times
    asked: Times
    acked_ns: I64
    read_ns: I64
    acked_offset: I64
    acked_value: I64
    read_offset: I64
    read_value: I64
    read_final: Bools
    read_delivered: I64
    unread_offset: I64
    unread_value: I64
    unread_delivered: I64
    weak_offset: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeAppends:
    """Appends without an acknowledged offset, failed ones too; ascending by op.

    Shape:
        before: offset of the last acknowledged append before it of the same process and slice, -1 for none.
        after: offset of the first one after it, `FAR` for none.
    """

    op: I64
    inv: I64
    res: I64
    status: I8
    process: I64
    before: I64
    after: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceReport:
    """What a slice reports about itself.

    Attributes:
        counts: Additive coverage.
        measures: What measures need, if they are taken.
        limit: One more than the largest offset that is known to have existed.
        shown_limit: Likewise, without what only acknowledgements show.
        log_violated: Whether one of its operations alone violates the log.
        odd: Whether there is any finding, also one that is not about the log.
        defects: Offsets, ascending, that such a finding is about: a range that a poll skipped begins there, or the
            records next to it are there.
        doubtful: Values of records that cannot be trusted, ascending.
        swapped: Processes whose neighbouring appends are not in the order of sending.
        odd_ends: Whether a log end cannot be.
        free: Its appends without an acknowledged offset.
        sender, sender_first, sender_last: Per process, the offsets of its first and last acknowledged append.
        sent, sent_until: Per process that appends, when its last append was invoked.
        seen, seen_since: Per process that reads or asks for log ends, when its first such operation ended.
        final_position, final_first, final_last: The final polls that returned something.
        final_end: Largest log end seen in the final phase, -1 if none was.
        final_end_asked_ns: When the last operation was invoked that saw this one, -1 likewise.
    """

    counts: dict[str, int]
    measures: SliceMeasures | None
    limit: int
    shown_limit: int
    log_violated: bool
    odd: bool
    defects: I64
    doubtful: I64
    swapped: I64
    odd_ends: bool
    free: FreeAppends
    sender: I64
    sender_first: I64
    sender_last: I64
    sent: I64
    sent_until: I64
    seen: I64
    seen_since: I64
    final_position: I64
    final_first: I64
    final_last: I64
    final_end: int
    final_end_asked_ns: int


def cut_slice(
    history: PartitionHistory,
    *,
    log_start_offset: int,
    width: int,
    group_polls: Sequence[I64] = (),
    since: Sequence[int] | None = None,
    tried: Mapping[str, Bools] | None = None,
) -> tuple[SliceReport, dict[int, Part]]:
    """Judges what a slice can judge, and cuts the rest into parts.

    Args:
        history: The slice; a poll and its records are in the same one.
        log_start_offset: Nothing has to be there below it.
        width: How many offsets a bucket holds.
        group_polls: For every consumer group, op_index of the polls of its members.
        since: What `checkers.kernels.measures.moments_of` returned; None if no measures are taken.
        tried: What `checkers.kernels.measures.attempts` returned for them; None without a limit.

    Returns:
        The slice's report, and its parts by bucket.
    """
    facts, findings = derive_facts(history, log_start_offset=log_start_offset)
    findings += check_poll_order(history)
    alone = {finding.id for finding in findings} & OF_ONE_OPERATION
    position, first, last = _final_polls(history)
    sender, sender_first, sender_last = _senders(history, facts)
    swaps = swaps_of(history, facts)
    sent, sent_until = last_of(history.append_process, history.append_inv)
    seen, seen_since = first_of(
        np.append(history.poll_process, history.end_process),
        np.append(history.poll_res, history.end_res),
    )
    end, end_asked_ns = largest_end(
        np.append(history.end_offset[history.end_final], -1),
        np.append(history.end_inv[history.end_final], -1),
    )
    report = SliceReport(
        measures=None if since is None else measures_of_slice(history, since, tried or {}),
        counts={**history.counts(), "acked": len(facts.acked_there)},
        limit=facts.places.limit,
        shown_limit=_shown_limit(history),
        log_violated=bool(alone - NOT_ABOUT_THE_LOG),
        odd=bool(alone) or bool(len(swaps.later)),
        defects=np.unique(
            np.concatenate(
                (
                    _defects(history, findings, log_start_offset),
                    swaps.earlier_offset,
                    swaps.later_offset,
                )
            )
        ),
        doubtful=np.unique(history.record_value[~history.record_trusted]),
        swapped=np.unique(history.append_process[swaps.later]),
        odd_ends=bool(np.isin(history.odd_op, history.append_op, invert=True).any()),
        free=_free(history),
        sender=sender,
        sender_first=sender_first,
        sender_last=sender_last,
        sent=sent,
        sent_until=sent_until,
        seen=seen,
        seen_since=seen_since,
        final_position=position,
        final_first=first,
        final_last=last,
        final_end=end,
        final_end_asked_ns=end_asked_ns,
    )
    return report, _parts(history, facts, width, group_polls, with_times=since is not None)


def _shown_limit(history: PartitionHistory) -> int:
    last, end = history.record_offset.max(initial=-1), history.end_offset.max(initial=0)
    return max(int(last) + 1, int(end))


def _defects(history: PartitionHistory, findings: Sequence[Finding], start: int) -> I64:
    """Returns the offsets that what a poll returned in itself makes suspicious."""
    rows, previous = skips(history, start)
    offsets = [history.record_offset[rows], previous, np.maximum(previous + 1, start)]
    for finding in findings:
        if finding.id in ("torn-fetch", "nonmonotonic-poll", "unordered-poll"):
            offsets.append(finding.offset)
        if finding.id == "unordered-poll":
            offsets.append(finding.other)
    return np.concatenate(offsets)


def strongest(offset: I64, time_ns: I64, op: I64, *, latest: bool) -> Times:
    """Returns one fact per offset: the latest or the earliest; of several such, the smallest operation."""
    if bool((offset[1:] > offset[:-1]).all()):
        return Times(offset=offset, time_ns=time_ns, op=op)
    # What is put together here is a few sorted runs, which a stable sort merges.
    order = np.argsort(offset, kind="stable")
    offset, time_ns, op = offset[order], time_ns[order], op[order]
    is_first = np.append(True, offset[1:] != offset[:-1])
    starts = np.flatnonzero(is_first)
    extreme = (np.maximum if latest else np.minimum).reduceat(time_ns, starts)
    is_extreme = time_ns == extreme[np.cumsum(is_first) - 1]
    op = np.minimum.reduceat(np.where(is_extreme, op, np.iinfo(np.int64).max), starts)
    return Times(offset=offset[starts], time_ns=extreme, op=op)


def _free(history: PartitionHistory) -> FreeAppends:
    rows = np.flatnonzero(history.append_status != OK_AT)
    before, after = _acked_beside(history) if len(rows) else (rows, rows)
    return FreeAppends(
        op=history.append_op[rows],
        inv=history.append_inv[rows],
        res=history.append_res[rows],
        status=history.append_status[rows],
        process=history.append_process[rows],
        before=before[rows],
        after=after[rows],
    )


def _acked_beside(history: PartitionHistory) -> tuple[I64, I64]:
    """Returns for every append the offsets of the acknowledged ones of its process before and after it.

    It is -1 or `FAR` if there is none.
    """
    order = np.argsort(process_codes(history.append_process), kind="stable")
    process, offset = history.append_process[order], history.append_offset[order]
    is_acked = history.append_status[order] == OK_AT
    found = []
    for step, none in ((1, -1), (-1, FAR)):
        # In the order of sending, and against it.
        walked, acked, place = process[::step], is_acked[::step], np.arange(len(order))
        last = np.maximum.accumulate(np.where(acked, place, -1))
        begins = np.append(True, walked[1:] != walked[:-1])
        is_known = last >= np.maximum.accumulate(np.where(begins, place, 0))
        beside = np.empty(len(order), dtype=np.int64)
        beside[order[::step]] = np.where(is_known, offset[::step][last], none)
        found.append(beside)
    before, after = found
    return before, after


def _final_polls(history: PartitionHistory) -> tuple[I64, I64, I64]:
    """Returns position, first and last offset of the final polls that returned something."""
    polls = np.flatnonzero(history.poll_final & history.poll_ok & (history.poll_last >= 0))
    # Records are sorted by poll and offset, so the first one of a poll is its lowest.
    first = history.record_offset[np.searchsorted(history.record_poll, polls)]
    return history.poll_position[polls], first, history.poll_last[polls]


def _senders(history: PartitionHistory, facts: Facts) -> tuple[I64, I64, I64]:
    process = history.append_process[facts.acked]
    offset = history.append_offset[facts.acked]
    senders, first = np.unique(process, return_index=True)
    _, back = np.unique(process[::-1], return_index=True)
    return senders, offset[first], offset[::-1][back]


def last_of(process: I64, time_ns: I64) -> tuple[I64, I64]:
    """Returns every process once, ascending, and the last of its times."""
    names, negated = first_of(process, -time_ns)
    return names, -negated


def first_of(process: I64, time_ns: I64) -> tuple[I64, I64]:
    """Returns every process once, ascending, and the first of its times."""
    order = np.lexsort((time_ns, process))
    names, first = np.unique(process[order], return_index=True)
    return names, time_ns[order][first]


def _parts(
    history: PartitionHistory,
    facts: Facts,
    width: int,
    group_polls: Sequence[I64],
    *,
    with_times: bool,
) -> dict[int, Part]:
    real_time = real_time_facts(history, facts)
    trusted = np.flatnonzero(history.record_trusted)
    acked = np.flatnonzero(history.append_status == OK_AT)
    read = _distinct_reads(history, trusted, group_polls)
    relations: dict[str, tuple[Any, ...]] = {
        **{level: _columns(_absent(real_time[level])) for level in LEVELS},
        "present": _columns(_present(real_time["order"])),
        "ended": _columns(_ended(history)),
        "acked": (history.append_offset[acked], history.append_op[acked]),
        "read": read,
        "unread": _distinct_reads(history, np.flatnonzero(~history.record_trusted), group_polls),
        "weak": (_weak_below(history, acked, facts.log_start_offset),),
    }
    if with_times:
        relations["asked"] = _columns(_asked(history, facts.log_start_offset))
        relations["acked"] += (history.append_res[acked],)
    else:
        none = np.empty(0, dtype=np.int64)
        relations["asked"] = (none, none, none)
        relations["read"] = read[:4]
    pieces = {name: _split(columns, width) for name, columns in relations.items()}
    empty = {name: tuple(column[:0] for column in columns) for name, columns in relations.items()}
    buckets = sorted({bucket for split in pieces.values() for bucket in split})
    return {
        bucket: _part({name: split.get(bucket, empty[name]) for name, split in pieces.items()})
        for bucket in buckets
    }


def _absent(facts: RealTimeFacts) -> Times:
    return strongest(facts.absent_offset, facts.absent_ns, facts.absent_op, latest=True)


def _present(facts: RealTimeFacts) -> Times:
    return strongest(facts.present_offset, facts.present_ns, facts.present_op, latest=False)


def _asked(history: PartitionHistory, start: int) -> Times:
    polls = np.flatnonzero(history.poll_ok & ~history.poll_final & (history.poll_position >= start))
    position, inv = history.poll_position[polls], history.poll_inv[polls]
    return strongest(position, inv, history.poll_op[polls], latest=True)


def _weak_below(history: PartitionHistory, acked: I64, start: int) -> I64:
    if not start:
        return acked[:0]
    offset = history.append_offset[acked]
    weak: I64 = offset[(history.append_acks[acked] == 1) & (offset < start)]
    return weak


def _ended(history: PartitionHistory) -> Times:
    rows = np.flatnonzero(history.end_offset > 0)
    offset, res, op = history.end_offset[rows] - 1, history.end_res[rows], history.end_op[rows]
    return strongest(offset, res, op, latest=False)


def _columns(times: Times) -> tuple[I64, I64, I64]:
    return times.offset, times.time_ns, times.op


def _distinct_reads(
    history: PartitionHistory, rows: I64, group_polls: Sequence[I64]
) -> tuple[I64, I64, Any, Any, I64]:
    """Returns distinct (offset, value) pairs, ascending; whether final polls and which groups got them, when."""
    offset, value, poll = (
        history.record_offset[rows],
        history.record_value[rows],
        history.record_poll[rows],
    )
    final = np.zeros(len(rows), dtype=np.bool_)
    known = poll >= 0
    final[known] = (history.poll_final & history.poll_ok)[poll[known]]
    # One byte usually holds the bits of all groups.
    bits: Any = np.dtype(np.uint8 if len(group_polls) <= 8 else np.int64)
    delivered: Any = np.zeros(len(rows), dtype=bits)
    for group, polls in enumerate(group_polls):
        delivered[known] |= np.isin(history.poll_op, polls)[poll[known]].astype(bits) << bits.type(
            group
        )
    order = np.lexsort((~final, value, offset))
    offset, value, final = offset[order], value[order], final[order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = (offset[1:] != offset[:-1]) | (value[1:] != value[:-1])
    starts = np.flatnonzero(is_first)
    read_ns = np.full(len(rows), INF_NS, dtype=np.int64)
    if len(starts):
        read_ns[known] = history.poll_res[poll[known]]
        read_ns = np.minimum.reduceat(read_ns[order], starts)
        delivered = np.bitwise_or.reduceat(delivered[order], starts)
    return offset[is_first], value[is_first], final[is_first], delivered, read_ns


def _split(columns: tuple[Any, ...], width: int) -> dict[int, tuple[Any, ...]]:
    """Returns the rows of every bucket; the first column is the offset."""
    if not len(columns[0]):
        return {}
    bucket = bucket_of(columns[0], width)
    if bool((bucket[1:] < bucket[:-1]).any()):
        order = np.argsort(bucket, kind="stable")
        columns, bucket = tuple(column[order] for column in columns), bucket[order]
    names, starts = np.unique(bucket, return_index=True)
    stops = [*starts[1:].tolist(), len(bucket)]
    return {
        name: tuple(column[start:stop] for column in columns)
        for name, start, stop in zip(names.tolist(), starts.tolist(), stops, strict=True)
    }


def _part(columns: dict[str, tuple[Any, ...]]) -> Part:
    acked_offset, acked_value, *acked_ns = columns["acked"]
    read_offset, read_value, read_final, read_delivered, *read_ns = columns["read"]
    none = np.empty(0, dtype=np.int64)
    return Part(
        absent={level: _times(columns[level]) for level in LEVELS},
        present=_times(columns["present"]),
        ended=_times(columns["ended"]),
        asked=_times(columns["asked"]),
        acked_ns=acked_ns[0] if acked_ns else none,
        read_ns=read_ns[0] if read_ns else none,
        acked_offset=acked_offset,
        acked_value=acked_value,
        read_offset=read_offset,
        read_value=read_value,
        read_final=read_final.astype(np.bool_),
        read_delivered=read_delivered,
        unread_offset=columns["unread"][0],
        unread_value=columns["unread"][1],
        unread_delivered=columns["unread"][3],
        weak_offset=columns["weak"][0],
    )


def _times(columns: tuple[Any, ...]) -> Times:
    offset, time_ns, op = columns
    return Times(offset=offset, time_ns=time_ns, op=op)
