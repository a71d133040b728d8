"""One slice of a huge partition: a range of its operations, as they are stored.

Whatever concerns one operation alone is decided here: skipped offsets, torn fetches, unreadable records, the
order within a poll and between neighbouring appends of a process. What concerns offsets is cut at the borders of
the buckets and sent there (`checkers.kernels.buckets`), combined first: per offset only the latest "did not exist
yet" and the earliest "existed" matter, and a value that many reads returned is one claim. That keeps a hot offset
from becoming a hot bucket.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from checkers.kernels.facts import Facts, derive_facts
from checkers.kernels.history import (
    I8,
    I64,
    OK_AT,
    Bools,
    PartitionHistory,
)
from checkers.kernels.linearizability import NOT_ABOUT_THE_LOG
from checkers.kernels.monoid import RealTimeFacts, bucket_of, real_time_facts
from checkers.kernels.sequences import check_poll_order, check_producer_order

LEVELS = ("order", "fresh")

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
        absent: per level, "did not exist yet"; present: "existed by then".
        acked_*: appends acknowledged in the bucket.
        read_*: distinct (offset, value) pairs that trusted records show, whether a final read shows them, and
            whether a member of the consumer group received them.
        unreadable: offsets of records that cannot be read.
    """

    absent: dict[str, Times]
    present: Times
    acked_offset: I64
    acked_value: I64
    read_offset: I64
    read_value: I64
    read_final: Bools
    read_delivered: Bools
    unreadable: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeAppends:
    """Appends without an acknowledged offset, failed ones too; ascending by op."""

    op: I64
    inv: I64
    res: I64
    status: I8


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceReport:
    """What a slice reports about itself.

    Attributes:
        counts: Additive coverage.
        limit: One more than the largest offset that is known to have existed.
        log_violated: Whether one of its operations alone violates the log.
        odd: Whether there is any finding, also one that is not about the log.
        free: Its appends without an acknowledged offset.
        sender, sender_first, sender_last: Per process, the offsets of its first and last acknowledged append.
        final_position, final_first, final_last: The final polls that returned something.
        final_end: Largest log end seen in the final phase, -1 if none was.
    """

    counts: dict[str, int]
    limit: int
    log_violated: bool
    odd: bool
    free: FreeAppends
    sender: I64
    sender_first: I64
    sender_last: I64
    final_position: I64
    final_first: I64
    final_last: I64
    final_end: int


def cut_slice(
    history: PartitionHistory,
    *,
    log_start_offset: int,
    width: int,
    group_polls: I64 | None = None,
) -> tuple[SliceReport, dict[int, Part]]:
    """Judges what a slice can judge, and cuts the rest into parts.

    Args:
        history: The slice; a poll and its records are in the same one.
        log_start_offset: Facts below it are dropped.
        width: How many offsets a bucket holds.
        group_polls: op_index of the polls of the consumer group's members; None if there is no group.

    Returns:
        The slice's report, and its parts by bucket.
    """
    facts, findings = derive_facts(history, log_start_offset=log_start_offset)
    findings += check_poll_order(history)
    alone = {finding.id for finding in findings} & OF_ONE_OPERATION
    position, first, last = _final_polls(history)
    sender, sender_first, sender_last = _senders(history, facts)
    report = SliceReport(
        counts={**history.counts(), "acked": len(facts.acked)},
        limit=facts.places.limit,
        log_violated=bool(alone - NOT_ABOUT_THE_LOG),
        odd=bool(alone) or bool(check_producer_order(history, facts)),
        free=_free(history),
        sender=sender,
        sender_first=sender_first,
        sender_last=sender_last,
        final_position=position,
        final_first=first,
        final_last=last,
        final_end=int(history.end_offset[history.end_final].max(initial=-1)),
    )
    polls = np.empty(0, dtype=np.int64) if group_polls is None else group_polls
    return report, _parts(history, facts, log_start_offset, width, polls)


def strongest(offset: I64, time_ns: I64, op: I64, *, latest: bool) -> Times:
    """Returns one fact per offset: the latest or the earliest; of several such, the smallest operation."""
    order = np.lexsort((op, -time_ns if latest else time_ns, offset))
    offset = offset[order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = offset[1:] != offset[:-1]
    rows = order[is_first]
    return Times(offset=offset[is_first], time_ns=time_ns[rows], op=op[rows])


def _free(history: PartitionHistory) -> FreeAppends:
    rows = np.flatnonzero(history.append_status != OK_AT)
    return FreeAppends(
        op=history.append_op[rows],
        inv=history.append_inv[rows],
        res=history.append_res[rows],
        status=history.append_status[rows],
    )


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


def _parts(
    history: PartitionHistory,
    facts: Facts,
    log_start_offset: int,
    width: int,
    group_polls: I64,
) -> dict[int, Part]:
    real_time = real_time_facts(history, facts)
    counts = history.record_offset >= log_start_offset
    trusted = np.flatnonzero(counts & history.record_trusted)
    read = _distinct_reads(history, trusted, group_polls)
    present = _present(real_time["order"])
    relations: dict[str, tuple[Any, ...]] = {
        **{level: _columns(_absent(real_time[level])) for level in LEVELS},
        "present": _columns(present),
        "acked": (history.append_offset[facts.acked], history.append_op[facts.acked]),
        "read": read,
        "unreadable": (np.unique(history.record_offset[counts & ~history.record_trusted]),),
    }
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


def _columns(times: Times) -> tuple[I64, I64, I64]:
    return times.offset, times.time_ns, times.op


def _distinct_reads(
    history: PartitionHistory, rows: I64, group_polls: I64
) -> tuple[I64, I64, Bools, Bools]:
    """Returns distinct (offset, value) pairs, ascending, and whether a final poll and a member returned them."""
    offset, value, poll = (
        history.record_offset[rows],
        history.record_value[rows],
        history.record_poll[rows],
    )
    final = np.zeros(len(rows), dtype=np.bool_)
    known = poll >= 0
    final[known] = (history.poll_final & history.poll_ok)[poll[known]]
    delivered = np.zeros(len(rows), dtype=np.bool_)
    if len(group_polls):
        delivered[known] = np.isin(history.poll_op, group_polls)[poll[known]]
    order = np.lexsort((~final, value, offset))
    offset, value, final = offset[order], value[order], final[order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = (offset[1:] != offset[:-1]) | (value[1:] != value[:-1])
    pair = np.cumsum(is_first) - 1
    is_delivered = np.zeros(int(is_first.sum()), dtype=np.bool_)
    is_delivered[pair[delivered[order]]] = True
    return offset[is_first], value[is_first], final[is_first], is_delivered


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
    acked_offset, acked_value = columns["acked"]
    read_offset, read_value, read_final, read_delivered = columns["read"]
    return Part(
        absent={level: _times(columns[level]) for level in LEVELS},
        present=_times(columns["present"]),
        acked_offset=acked_offset,
        acked_value=acked_value,
        read_offset=read_offset,
        read_value=read_value,
        read_final=read_final.astype(np.bool_),
        read_delivered=read_delivered.astype(np.bool_),
        unreadable=columns["unreadable"][0],
    )


def _times(columns: tuple[Any, ...]) -> Times:
    offset, time_ns, op = columns
    return Times(offset=offset, time_ns=time_ns, op=op)
