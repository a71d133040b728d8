"""What the closing reads show: lost records, torn transactions, and whether inputs were processed exactly once.

The closing reads (`is_final`) begin when no transaction is open any more, and read every partition from its first
record to its end. A record that they did not return is gone, wherever it was. Without closing reads nothing of
that is known, and the verdict is unknown. It is unknown too if they lack a committed record of a transaction that
may have ended after they began. Numbers of events show the order exactly. Times show it only if they differ by
more than the clock error.
"""

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from checkers.kernels.history import ABSENT, I64, INF_NS, Bools
from checkers.kernels.ranks import rank_of
from checkers.kernels.transactions.columns import ABORTED, COMMITTED, OFFSETS, UNKNOWN
from checkers.kernels.transactions.found import Found, Words
from checkers.kernels.transactions.logs import LogHistory
from checkers.kernels.transactions.runs import distinct_rows

NO_CLOSING_READS = (
    "no closing read of a committed transaction is in the history, so lost records and torn transactions were not"
    " searched"
)

MAY_BE_REPEATED = (
    "a replaced coordinator of the group that did not know it may have reported an older position"
)


def closing_anomalies(
    h: LogHistory, words: Words, clock_error_ns: int
) -> tuple[list[Found], tuple[str, ...]]:
    """Returns lost records and torn transactions, and a reason if they cannot be found or may be incomplete."""
    t, w = h.t, h.writes
    is_closing = t.is_final & (t.outcome == COMMITTED)
    may_exist = (h.is_node | (t.outcome == UNKNOWN))[w.transaction]
    if not may_exist.any():
        return [], ()
    if not is_closing.any():
        return [], (NO_CLOSING_READS,)
    is_seen = _seen(h, is_closing)
    seen_count = np.bincount(w.transaction[is_seen], minlength=t.count)
    is_partly_seen = seen_count[w.transaction] > 0
    missing = ~is_seen & may_exist & (is_partly_seen | h.is_node[w.transaction])
    could_see = _could_see(h, is_closing, clock_error_ns)
    found = [
        _torn(h, words, np.flatnonzero(missing & could_see & is_partly_seen), is_seen),
        _lost(h, words, np.flatnonzero(missing & could_see & ~is_partly_seen)),
    ]
    reasons = _may_have_ended_later(h, words, np.flatnonzero(missing & ~could_see))
    return [item for item in found if item is not None], reasons


def _seen(h: LogHistory, is_closing: Bools) -> Bools:
    """Returns which sends the closing reads returned."""
    is_seen = np.zeros(h.writes.count, dtype=np.bool_)
    rows = np.flatnonzero(is_closing[h.polled.transaction] & (h.polled.write >= 0))
    is_seen[h.polled.write[rows]] = True
    return is_seen


def _did_not_commit(h: LogHistory, clock_error_ns: int) -> Bools:
    """Returns the transactions of unknown outcome whose sends the closing reads should show and do not."""
    t, sender = h.t, h.writes.transaction
    is_closing = t.is_final & (t.outcome == COMMITTED)
    if not is_closing.any():
        return np.zeros(t.count, dtype=np.bool_)
    shows_nothing = _could_see(h, is_closing, clock_error_ns) & ~_seen(h, is_closing)
    sends = np.bincount(sender, minlength=t.count)
    missing = np.bincount(sender[shows_nothing], minlength=t.count)
    did_not: Bools = (t.outcome == UNKNOWN) & ~h.is_node & (sends > 0) & (missing == sends)
    return did_not


def _could_see(h: LogHistory, is_closing: Bools, clock_error_ns: int) -> Bools:
    """Returns which sends belong to transactions that had ended when the first closing read began."""
    t = h.t
    if (t.ended_event[is_closing] != ABSENT).all():
        first = int(t.id[is_closing].min())
        has_begun = t.id < first
        has_ended = (t.ended_event != ABSENT) & (t.ended_event < first)
    else:
        begin_ns = int(t.invoked_ns[is_closing].min()) - clock_error_ns
        has_begun, has_ended = t.invoked_ns <= begin_ns, t.completed_ns <= begin_ns
    # A transaction whose client never learned its end had ended too, because none was open any more.
    has_ended |= (t.outcome == UNKNOWN) & (t.completed_ns >= INF_NS) & has_begun
    sends: Bools = (has_ended & ~is_closing)[h.writes.transaction]
    return sends


def _torn(h: LogHistory, words: Words, rows: I64, is_seen: Bools) -> Found | None:
    if not len(rows):
        return None
    w, missing = h.writes, int(rows[0])
    sender = int(w.transaction[missing])
    seen = int(np.flatnonzero(is_seen & (w.transaction == sender))[0])
    return Found(
        id="torn-transaction",
        count=len(np.unique(w.transaction[rows])),
        sentence=(
            f"{words.name(sender)} sent {words.value(int(w.value[seen]))} to {words.key(int(w.key[seen]))} and"
            f" {words.value(int(w.value[missing]))} to {words.key(int(w.key[missing]))}; the closing reads"
            " returned the first one, but not the second one"
        ),
        transactions=(sender,),
    )


def _lost(h: LogHistory, words: Words, rows: I64) -> Found | None:
    if not len(rows):
        return None
    w, missing = h.writes, int(rows[0])
    sender = int(w.transaction[missing])
    return Found(
        id="lost-acked-write",
        count=len(rows),
        sentence=(
            f"{words.name(sender)} committed {words.value(int(w.value[missing]))} in"
            f" {words.key(int(w.key[missing]))}, and the closing reads returned nothing of that transaction"
        ),
        transactions=(sender,),
    )


def _may_have_ended_later(h: LogHistory, words: Words, rows: I64) -> tuple[str, ...]:
    """Returns why it is not known whether sends are lost that the closing reads lack and need not have seen."""
    if not len(rows):
        return ()
    w, missing = h.writes, int(rows[0])
    name = words.name(int(w.transaction[missing]))
    return (
        f"{name} sent {words.value(int(w.value[missing]))} to {words.key(int(w.key[missing]))}, and the closing"
        f" reads did not return it; it is not known whether it is lost, because {name} may have ended after they"
        " began",
    )


class MayRepeat(Protocol):
    """Decides which records may have been consumed several times although no promise was broken."""

    def __call__(self, transactions: Iterable[int], key: str, offset: int) -> bool:
        """Returns whether what is known of a run allows that these transactions consumed one record.

        Args:
            transactions: Ids of those of one group that consumed it and committed.
            key: Name of its partition.
            offset: Its offset.
        """
        ...


def input_anomalies(
    h: LogHistory, words: Words, clock_error_ns: int, may_repeat: MayRepeat | None = None
) -> list[Found]:
    """Returns inputs that a consumer group processed twice or never, although offsets commit with the outputs.

    A transaction *consumes* the records of a partition that it polled, if it commits a position of its group in
    that partition. It counts as having processed all of them, whatever the position: a processor that commits less
    than it processed lets another one process the rest again.

    Args:
        h: The history.
        words: Names in it.
        clock_error_ns: Largest difference between two clocks that stamped transactions.
        may_repeat: Which records may have been consumed twice; none without it.
    """
    t, p = h.t, h.polled
    op = np.flatnonzero(t.op_kind == OFFSETS)
    op = op[t.group[t.op_transaction[op]] >= 0]
    if not len(op):
        return []
    pair = t.op_transaction * max(h.keys, 1) + t.op_key
    committing = np.unique(pair[op])
    consumed = np.flatnonzero(np.isin(p.transaction * max(h.keys, 1) + p.key, committing))
    parts = (
        _processed_twice(h, words, consumed, may_repeat),
        _skipped(h, words, op, consumed, _did_not_commit(h, clock_error_ns)),
    )
    return [found for found in parts if found is not None]


def _processed_twice(
    h: LogHistory, words: Words, consumed: I64, may_repeat: MayRepeat | None
) -> Found | None:
    p, t = h.polled, h.t
    rows = consumed[h.is_node[p.transaction[consumed]]]
    group = t.group[p.transaction[rows]]
    # A transaction that polled one record twice is another anomaly; here it counts once.
    once = distinct_rows(group, p.key[rows], p.offset[rows], p.transaction[rows])
    group, rows = group[once], rows[once]
    key, offset = p.key[rows], p.offset[rows]
    first = distinct_rows(group, key, offset)
    end = np.append(first[1:], len(rows))
    is_repeated = end - first > 1
    repeated = [
        (int(offset[begin]), int(key[begin]), p.transaction[rows[begin:end]])
        for begin, end in zip(first[is_repeated], end[is_repeated], strict=True)
    ]
    if not repeated:
        return None
    certain = (
        one
        for one in repeated
        if may_repeat is None or not may_repeat(t.id[one[2]].tolist(), words.key(one[1]), one[0])
    )
    shown = next(certain, None)
    at, place, readers = shown or repeated[0]
    one, other = readers[:2].tolist()
    return Found(
        id="input-processed-twice",
        count=len(repeated),
        sentence=(
            f"{words.name(one)} and {words.name(other)} of group {int(t.group[one])} both consumed offset {at} of"
            f" {words.key(place)} and committed"
        ),
        transactions=(one, other),
        undecided="" if shown else MAY_BE_REPEATED,
    )


def _skipped(
    h: LogHistory, words: Words, op: I64, consumed: I64, did_not_commit: Bools
) -> Found | None:
    """Returns committed records between the first position and the last committed one that were not consumed."""
    t, p, c = h.t, h.polled, h.content
    commits = op[h.is_node[t.op_transaction[op]]]
    committed_offset = t.element_offset[t.op_start[:-1][commits]]
    bad: list[tuple[int, int, int, int]] = []
    groups = np.stack([t.group[t.op_transaction[commits]], t.op_key[commits]])
    for group, key in groups[:, distinct_rows(groups[0], groups[1])].T.tolist():
        mine = (groups[0] == group) & (groups[1] == key)
        limit = int(committed_offset[mine].max())
        owner = int(t.op_transaction[commits[mine][int(committed_offset[mine].argmax())]])
        rows = consumed[(t.group[p.transaction[consumed]] == group) & (p.key[consumed] == key)]
        # A transaction of unknown outcome may have consumed its records, unless its outputs are not there. One
        # that aborted proves where the group began.
        reader = p.transaction[rows]
        maybe = rows[(t.outcome[reader] != ABORTED) & ~did_not_commit[reader]]
        first = int(p.offset[rows].min(initial=limit))
        begin = int(rank_of(c.key[h.version], c.offset[h.version], *_place(key, first))[0])
        end = int(rank_of(c.key[h.version], c.offset[h.version], *_place(key, limit))[0])
        offsets = c.offset[h.version[begin:end]]
        missing = offsets[~np.isin(offsets, p.offset[maybe])]
        bad += [(group, key, int(offset), owner) for offset in missing.tolist()]
    if not bad:
        return None
    group, key, offset, owner = bad[0]
    return Found(
        id="input-skipped",
        count=len(bad),
        sentence=(
            f"{words.name(owner)} committed a position of group {group} beyond offset {offset} of"
            f" {words.key(key)}, and no transaction of the group consumed that record"
        ),
        transactions=(owner,),
    )


def _place(key: int, offset: int) -> tuple[I64, I64]:
    return np.array([key], dtype=np.int64), np.array([offset], dtype=np.int64)
