"""Order as one client sees it: a producer's own appends, and the records within one poll.

With one operation at a time the linearizability check implies both; with several requests of one producer in
flight their intervals overlap, and only this check sees them swap.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from checkers.kernels.columns import Columns
from checkers.kernels.facts import Facts
from checkers.kernels.findings import Finding, finding, joined
from checkers.kernels.history import I64, OK_SOMEWHERE, Bools, PartitionHistory


def check_producer_order(
    history: PartitionHistory, facts: Facts, *, clock_error_ns: int = 0, sent_twice: bool = False
) -> list[Finding]:
    """Finds appends whose offset is not larger than that of the same process's previous acknowledged append.

    An append of unknown outcome counts if a read revealed its place, but only as the later one of two: a request
    whose response was lost may still wait in the network when the process sends its next one, so nothing promises
    that it takes effect first.

    The order is a promise (`nonmonotonic-send`) if the previous append was acknowledged before the later one was
    sent. If both were in flight at the same time, a retry or a change of the leader may swap them, unless the
    producer is idempotent (`checkers.kernels.producer_sessions`); this is `reordered-send`, which is found
    between acknowledged appends only. One process has one clock, so its operations are in order whatever the
    difference between two clocks is. A process calls one operation at a time, except for the records of one
    batch. So an append that begins at the very time at which the previous one was acknowledged was sent after it.

    Args:
        history: One partition.
        facts: Derived from it.
        clock_error_ns: By how much two clocks of the run may differ.
        sent_twice: Whether producers without idempotence sent appends again.

    Source:
        Kafka producer configuration, max.in.flight.requests.per.connection; Jepsen's `nonmonotonic-send`, which
        compares the appends of processes that have one operation in flight.
    """
    sent = _acknowledged(history, facts, sent_twice=sent_twice)
    every = _all_swaps(history, facts, sent, clock_error_ns)
    if not len(every.later):
        return []
    # What remains without the weak records is a broken promise; the rest rests on acks=1.
    firm = sent.take(np.flatnonzero(~facts.append_weak[sent.append]))
    strong = _all_swaps(history, facts, firm, clock_error_ns)
    only_weak = every.take(np.flatnonzero(~np.isin(every.later, strong.later)))
    findings = []
    for swaps, is_weak in ((strong, False), (only_weak, True)):
        after = _is_after(history, swaps)
        acked = np.isin(swaps.later, sent.append)
        for identifier, rows in (("nonmonotonic-send", after), ("reordered-send", ~after & acked)):
            if rows.any():
                some = swaps.take(np.flatnonzero(rows))
                findings.append(_swapped(identifier, history, some, is_weak=is_weak))
    by_id: dict[str, list[Finding]] = {}
    for each in findings:
        by_id.setdefault(each.id, []).append(each)
    return [joined(parts) for parts in by_id.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent(Columns):
    """Acknowledged appends whose place is known, by position: their positions in the history, and their places."""

    append: I64
    offset: I64


def _acknowledged(history: PartitionHistory, facts: Facts, *, sent_twice: bool) -> _Sent:
    """Returns those with an offset, and those that a read revealed.

    If producers send again without idempotence, the record that a read showed need not be the acknowledged one.
    """
    sent = _Sent(append=facts.acked, offset=history.append_offset[facts.acked])
    rows = np.flatnonzero(history.append_status[facts.pinned] == OK_SOMEWHERE)
    if sent_twice or not len(rows):
        return sent
    append = np.append(sent.append, facts.pinned[rows])
    offset = np.append(sent.offset, facts.places.offset(facts.pinned_place[rows]))
    order = np.lexsort((offset, append))
    return _Sent(append=append[order], offset=offset[order])


def _all_swaps(
    history: PartitionHistory, facts: Facts, sent: _Sent, clock_error_ns: int
) -> "Swaps":
    """Compares appends with the acknowledged one before them, and with all that had been acknowledged, if need be.

    If neighbours are in order, so are all. If some that were in flight together are not, two appends may be out of
    order that are no neighbours. The clock shows these too (`order-inversion`), unless clocks differ.
    """
    swaps = _neighbours(history, facts, sent.append, sent.offset)
    is_after = _is_after(history, swaps)
    if is_after.all() or not clock_error_ns:
        return swaps
    later = np.append(sent.append, facts.pinned)
    offset = np.append(sent.offset, facts.places.offset(facts.pinned_place))
    overtaken = _overtaken(history, sent, later, offset)
    swaps = swaps.take(np.flatnonzero(is_after | ~np.isin(swaps.later, overtaken.later)))
    found = overtaken.take(np.flatnonzero(~np.isin(overtaken.later, swaps.later)))
    return Swaps(
        **{name: np.append(getattr(swaps, name), getattr(found, name)) for name in Swaps.__slots__}
    )


def _overtaken(history: PartitionHistory, sent: _Sent, later: I64, offset: I64) -> "Swaps":
    """Compares appends with the one of the largest offset of those that had been acknowledged before."""
    process = history.append_process
    order = np.lexsort((history.append_res[sent.append], process[sent.append]))
    earlier = sent.take(order)
    # Ranks grow from process to process, so the largest one so far is always one of the same process.
    by_rank = np.lexsort((earlier.offset, process[earlier.append]))
    rank = np.empty(len(by_rank), dtype=np.int64)
    rank[by_rank] = np.arange(len(by_rank))
    largest = by_rank[np.maximum.accumulate(rank)]
    # How many are of processes before, or were acknowledged before the later one was sent.
    is_sent = np.append(np.zeros(len(later), dtype=np.bool_), np.ones(len(order), dtype=np.bool_))
    times = np.append(history.append_inv[later], history.append_res[earlier.append])
    merged = np.lexsort((is_sent, times, np.append(process[later], process[earlier.append])))
    before = np.empty(len(merged), dtype=np.int64)
    before[merged] = np.cumsum(is_sent[merged])
    last = before[: len(later)] - 1
    known = np.flatnonzero(last >= 0)
    known = known[process[earlier.append[last[known]]] == process[later[known]]]
    most = largest[last[known]]
    rows = np.flatnonzero(earlier.offset[most] >= offset[known])
    return Swaps(
        earlier=earlier.append[most[rows]],
        later=later[known[rows]],
        earlier_offset=earlier.offset[most[rows]],
        later_offset=offset[known[rows]],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Swaps(Columns):
    """Pairs of appends of one process whose places do not grow in the order of sending.

    Shape:
        earlier, later: positions in the history; earlier_offset, later_offset: their places.
    """

    earlier: I64
    later: I64
    earlier_offset: I64
    later_offset: I64


def _is_after(history: PartitionHistory, swaps: Swaps) -> Bools:
    """Returns which later appends were sent after the earlier one was acknowledged."""
    ended, began = history.append_res[swaps.earlier], history.append_inv[swaps.later]
    # Records of one batch begin at one time, which is also that of the acknowledgement if the clock is coarse.
    is_tie = (ended == began) & (history.append_inv[swaps.earlier] < began)
    is_after: Bools = (ended < began) | is_tie
    return is_after


def _swapped(identifier: str, history: PartitionHistory, swaps: Swaps, *, is_weak: bool) -> Finding:
    return finding(
        identifier,
        history.append_op[swaps.earlier],
        second=history.append_op[swaps.later],
        offset=swaps.earlier_offset,
        other=swaps.later_offset,
        since_ns=history.append_res[swaps.earlier],
        weak=np.full(len(swaps.later), is_weak),
        gap_ns=history.append_inv[swaps.later] - history.append_inv[swaps.earlier],
    )


def swaps_of(history: PartitionHistory, facts: Facts) -> Swaps:
    """Compares appends with the one before them that was acknowledged with an offset."""
    return _neighbours(history, facts, facts.acked, history.append_offset[facts.acked])


def _neighbours(history: PartitionHistory, facts: Facts, sent: I64, sent_offset: I64) -> Swaps:
    """Compares acknowledged appends, and revealed ones, with the acknowledged one before them."""
    codes = process_codes(history.append_process[sent])
    by_process = np.argsort(codes, kind="stable")
    ordered, offset, process = sent[by_process], sent_offset[by_process], codes[by_process]
    earlier = np.flatnonzero((process[1:] == process[:-1]) & (offset[1:] <= offset[:-1]))
    pairs = [(ordered[earlier], ordered[earlier + 1], offset[earlier], offset[earlier + 1])]
    if len(facts.pinned) and len(ordered):
        pairs.append(_revealed_swaps(history, facts, ordered, offset, process))
    columns = [np.concatenate(column) for column in zip(*pairs, strict=True)]
    return Swaps(
        earlier=columns[0], later=columns[1], earlier_offset=columns[2], later_offset=columns[3]
    )


def _revealed_swaps(
    history: PartitionHistory, facts: Facts, ordered: I64, ordered_offset: I64, codes: Any
) -> tuple[I64, I64, I64, I64]:
    """Compares revealed appends with the acknowledged one before them.

    Args:
        history: One partition.
        facts: Derived from it.
        ordered: Acknowledged appends by process, then by time.
        ordered_offset: Their places.
        codes: Their process numbers, in a type that holds them.
    """
    revealed = np.flatnonzero(~np.isin(facts.pinned, ordered))
    later = facts.pinned[revealed]
    later_offset = facts.places.offset(facts.pinned_place[revealed])
    process = history.append_process
    # One number per process and position, ascending: a stable sort by process kept the positions in order.
    count = len(process)
    keys, wanted = codes.astype(np.int64) * count + ordered, process[later] * count + later
    before = np.searchsorted(keys, wanted) - 1
    earlier = ordered[np.maximum(before, 0)]
    earlier_offset = ordered_offset[np.maximum(before, 0)]
    # Absurd process numbers overflow; a pair counts only if it is one.
    rows = np.flatnonzero(
        (before >= 0)
        & (process[earlier] == process[later])
        & (earlier < later)
        & (later_offset <= earlier_offset)
    )
    return earlier[rows], later[rows], earlier_offset[rows], later_offset[rows]


def process_codes(process: I64) -> Any:
    """Returns process numbers in the smallest type that holds them.

    Small integers are sorted by radix, ten times faster, and runs have few processes.
    """
    largest = int(process.max(initial=0)) if process.min(initial=0) >= 0 else 2**16
    if largest < 2**8:
        return process.astype(np.uint8)
    return process.astype(np.uint16) if largest < 2**16 else process


def check_poll_order(history: PartitionHistory) -> list[Finding]:
    """Finds polls that returned a record below their requested position, one offset twice, or in another order."""
    return [*_repeated_or_below(history), *_unordered(history)]


def _unordered(history: PartitionHistory) -> list[Finding]:
    if not len(history.unordered_op):
        return []
    return [
        finding(
            "unordered-poll",
            history.unordered_op,
            offset=history.unordered_offset,
            other=history.unordered_before,
        )
    ]


def _repeated_or_below(history: PartitionHistory) -> list[Finding]:
    poll, offset = history.record_poll, history.record_offset
    if not len(offset) or not len(history.poll_op):
        return []
    # The records of a poll are in order of their offsets: its first one is the lowest.
    head = history.record_heads
    has_below = (poll[head] >= 0) & (offset[head] < history.poll_position[poll[head]])
    is_repeated = (poll[1:] == poll[:-1]) & (offset[1:] == offset[:-1])
    if not has_below.any() and not is_repeated.any():
        return []
    below = (poll >= 0) & (offset < history.poll_position[poll])
    again = np.zeros(len(offset), dtype=np.bool_)
    again[1:] = is_repeated & (poll[1:] >= 0)
    rows = np.flatnonzero(below | again)
    if not len(rows):
        return []
    return [
        finding(
            "nonmonotonic-poll",
            history.poll_op[poll[rows]],
            offset=offset[rows],
            other=history.poll_position[poll[rows]],
            since_ns=history.poll_res[poll[rows]],
        )
    ]
