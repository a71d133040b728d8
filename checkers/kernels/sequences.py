"""Order as one client sees it: a producer's own appends, and the records within one poll.

With one operation at a time the linearizability check implies both; with several requests of one producer in
flight their intervals overlap, and only this check sees them swap.
"""

import numpy as np

from checkers.kernels.facts import Facts
from checkers.kernels.findings import Finding, finding
from checkers.kernels.history import I64, PartitionHistory


def check_producer_order(history: PartitionHistory, facts: Facts) -> list[Finding]:
    """Finds appends whose offset is not larger than that of the same process's previous acknowledged append."""
    acked = facts.acked
    weak = _swaps(history, acked)
    if not len(weak[0]):
        return []
    # What remains without the weak records is a broken promise; the rest rests on acks=1.
    strong = _swaps(history, acked[~facts.append_weak[acked]])
    only_weak = ~np.isin(weak[1], strong[1])
    earlier = np.concatenate((strong[0], weak[0][only_weak]))
    later = np.concatenate((strong[1], weak[1][only_weak]))
    return [
        finding(
            "nonmonotonic-send",
            history.append_op[earlier],
            second=history.append_op[later],
            offset=history.append_offset[earlier],
            other=history.append_offset[later],
            since_ns=history.append_res[earlier],
            weak=np.arange(len(earlier)) >= len(strong[0]),
            gap_ns=history.append_inv[later] - history.append_inv[earlier],
        )
    ]


def _swaps(history: PartitionHistory, appends: I64) -> tuple[I64, I64]:
    """Returns pairs of neighbouring appends of one process, in order of invocation, whose offsets do not grow."""
    process = history.append_process[appends]
    largest = int(process.max(initial=0)) if process.min(initial=0) >= 0 else 2**16
    # Small integers are sorted by radix, ten times faster, and runs have few processes.
    if largest < 2**8:
        process = process.astype(np.uint8)
    elif largest < 2**16:
        process = process.astype(np.uint16)
    by_process = np.argsort(process, kind="stable")
    ordered, process = appends[by_process], process[by_process]
    offset = history.append_offset[ordered]
    swapped = np.flatnonzero((process[1:] == process[:-1]) & (offset[1:] <= offset[:-1]))
    return ordered[swapped], ordered[swapped + 1]


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
    below = (poll >= 0) & (offset < history.poll_position[poll])
    again = np.zeros(len(offset), dtype=np.bool_)
    again[1:] = (poll[1:] == poll[:-1]) & (offset[1:] == offset[:-1]) & (poll[1:] >= 0)
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
