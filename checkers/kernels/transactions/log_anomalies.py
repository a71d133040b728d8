"""Anomalies of records in transactional logs: who could have written and received each of them."""

import numpy as np

from checkers.kernels.evidence import seconds
from checkers.kernels.history import I64, INF_NS
from checkers.kernels.transactions.columns import ABORTED, COMMITTED
from checkers.kernels.transactions.found import Found, Words
from checkers.kernels.transactions.logs import LogHistory
from checkers.kernels.transactions.runs import distinct_rows


def log_anomalies(
    h: LogHistory, words: Words, *, is_read_committed: bool, clock_error_ns: int
) -> list[Found]:
    """Returns the anomalies of single records and pairs of records.

    Args:
        h: The history.
        words: Names for sentences.
        is_read_committed: Whether consumers receive records of committed transactions only.
        clock_error_ns: Largest difference between two clocks.
    """
    parts = [
        _impossible_offsets(h, words),
        _phantoms(h, words),
        _divergent(h, words),
        _duplicates(h, words),
        *_aborted(h, words),
        _future_reads(h, words, clock_error_ns),
        _order_inversions(h, words, clock_error_ns),
    ]
    if is_read_committed:
        parts.append(_precommitted(h, words, clock_error_ns))
    return [found for found in parts if found is not None]


def _impossible_offsets(h: LogHistory, words: Words) -> Found | None:
    count = len(h.impossible) + len(h.impossible_sends)
    if not count:
        return None
    if len(h.impossible):
        element = int(h.impossible[0])
        op = int(np.searchsorted(h.t.op_start, element, side="right")) - 1
        how = "received"
    else:
        op = int(h.writes.op[h.impossible_sends[0]])
        element = int(h.t.op_start[op])
        how = "sent a record that was acknowledged at"
    transaction = int(h.t.op_transaction[op])
    return Found(
        id="impossible-offset",
        count=count,
        sentence=(
            f"{words.name(transaction)} {how} the offset {int(h.t.element_offset[element])} in"
            f" {words.key(int(h.t.op_key[op]))}, which no record can have"
        ),
        transactions=(transaction,),
    )


def _phantoms(h: LogHistory, words: Words) -> Found | None:
    c = h.content
    rows = np.flatnonzero(c.write < 0)
    if not len(rows):
        return None
    at = int(rows[0])
    return Found(
        id="phantom-value",
        count=len(distinct_rows(c.key[rows], c.value[rows])),
        sentence=(
            f"{words.name(int(c.source[at]))} received {words.value(int(c.value[at]))} at offset"
            f" {int(c.offset[at])} of {words.key(int(c.key[at]))}, which no transaction sent there"
        ),
        transactions=(int(c.source[at]),),
    )


def _divergent(h: LogHistory, words: Words) -> Found | None:
    c = h.content
    same = np.flatnonzero((np.diff(c.key) == 0) & (np.diff(c.offset) == 0))
    if not len(same):
        return None
    one, other = int(same[0]), int(same[0]) + 1
    return Found(
        id="divergent-value",
        count=len(same),
        sentence=(
            f"offset {int(c.offset[one])} of {words.key(int(c.key[one]))} held"
            f" {words.value(int(c.value[one]))} for {words.name(int(c.source[one]))} and"
            f" {words.value(int(c.value[other]))} for {words.name(int(c.source[other]))}"
        ),
        transactions=(int(c.source[one]), int(c.source[other])),
    )


def _duplicates(h: LogHistory, words: Words) -> Found | None:
    c = h.content
    order = np.lexsort((c.offset, c.value, c.key))
    same = np.flatnonzero((np.diff(c.key[order]) == 0) & (np.diff(c.value[order]) == 0))
    if not len(same):
        return None
    one, other = int(order[same[0]]), int(order[same[0] + 1])
    return Found(
        id="duplicate",
        count=len(same),
        sentence=(
            f"{words.value(int(c.value[one]))} of {words.key(int(c.key[one]))} is at offset"
            f" {int(c.offset[one])} for {words.name(int(c.source[one]))} and at offset {int(c.offset[other])} for"
            f" {words.name(int(c.source[other]))}"
        ),
        transactions=(int(c.source[one]), int(c.source[other])),
    )


def _aborted(h: LogHistory, words: Words) -> list[Found | None]:
    p = h.polled
    sent = np.flatnonzero(p.write >= 0)
    rows = sent[h.t.outcome[h.writes.transaction[p.write[sent]]] == ABORTED]
    rows = rows[h.writes.transaction[p.write[rows]] != p.transaction[rows]]
    by_committed = h.t.outcome[p.transaction[rows]] == COMMITTED
    return [
        _received_aborted(h, words, "G1a", rows[by_committed]),
        _received_aborted(h, words, "aborted-record-visible", rows[~by_committed]),
    ]


def _received_aborted(h: LogHistory, words: Words, identifier: str, rows: I64) -> Found | None:
    if not len(rows):
        return None
    p, at = h.polled, int(rows[0])
    reader, sender = int(p.transaction[at]), int(h.writes.transaction[p.write[at]])
    return Found(
        id=identifier,
        count=len(rows),
        sentence=(
            f"{words.name(reader)} received {_record(h, words, at)}, which {words.name(sender)} sent, and"
            f" {words.name(sender)} aborted"
        ),
        transactions=(reader, sender),
    )


def _record(h: LogHistory, words: Words, row: int) -> str:
    p = h.polled
    return f"{words.value(int(p.value[row]))} at offset {int(p.offset[row])} of {words.key(int(p.key[row]))}"


def _precommitted(h: LogHistory, words: Words, clock_error_ns: int) -> Found | None:
    """Returns records that were received before the commit of their transaction was requested."""
    p, t = h.polled, h.t
    rows = np.flatnonzero(p.write >= 0)
    reader, sender = p.transaction[rows], h.writes.transaction[p.write[rows]]
    is_own = reader == sender
    ended = t.completed_ns[reader]
    is_early = (ended < INF_NS) & (ended + clock_error_ns < t.commit_invoked_ns[sender])
    # Received before the transaction even began: that is a future-read.
    is_early &= ended + clock_error_ns >= t.invoked_ns[sender]
    is_early &= t.outcome[sender] != ABORTED
    bad = np.flatnonzero(is_own | is_early)
    if not len(bad):
        return None
    at = int(bad[0])
    one, other = int(reader[at]), int(sender[at])
    record = _record(h, words, int(rows[at]))
    if one == other:
        sentence = (
            f"{words.name(one)} received {record}, which it had sent itself and not committed yet"
        )
    else:
        sentence = (
            f"{words.name(one)} received {record} and was complete at {seconds(int(t.completed_ns[one]))}, but"
            f" {words.name(other)}, which sent it, requested its commit at"
            f" {seconds(int(t.commit_invoked_ns[other]))}"
        )
    return Found(
        id="precommitted-read", count=len(bad), sentence=sentence, transactions=(one, other)
    )


def _future_reads(h: LogHistory, words: Words, clock_error_ns: int) -> Found | None:
    p, t = h.polled, h.t
    rows = np.flatnonzero(p.write >= 0)
    reader, sender = p.transaction[rows], h.writes.transaction[p.write[rows]]
    ended = t.completed_ns[reader]
    bad = np.flatnonzero((ended < INF_NS) & (ended + clock_error_ns < t.invoked_ns[sender]))
    if not len(bad):
        return None
    at = int(bad[0])
    one, other = int(reader[at]), int(sender[at])
    return Found(
        id="future-read",
        count=len(bad),
        sentence=(
            f"{words.name(one)} received {_record(h, words, int(rows[at]))} and was complete at"
            f" {seconds(int(t.completed_ns[one]))}, before {words.name(other)}, which sent it, was invoked at"
            f" {seconds(int(t.invoked_ns[other]))}"
        ),
        transactions=(one, other),
    )


def _order_inversions(h: LogHistory, words: Words, clock_error_ns: int) -> Found | None:
    """Returns records behind which a transaction is that was complete before their own was invoked."""
    c, v, t = h.content, h.version, h.t
    if not len(v):
        return None
    sender = h.writes.transaction[c.write[v]]
    is_certain = t.outcome[sender] == COMMITTED
    ended = np.where(is_certain, np.minimum(t.completed_ns[sender], INF_NS), INF_NS)
    # The smallest end among the later records of the same partition, from behind.
    key = c.key[v][::-1]
    begin = np.maximum.accumulate(
        np.where(np.append(True, np.diff(key) != 0), np.arange(len(key)), 0)
    )
    earliest = _running_minimum(ended[::-1], begin)
    following = np.full(len(v), -1, dtype=np.int64)
    inside = np.arange(len(key)) > begin
    place = np.arange(len(key))
    following[inside] = earliest[place[inside] - 1]
    known = following >= 0
    invoked = t.invoked_ns[sender][::-1]
    limit = np.where(known, ended[::-1][following], INF_NS)
    bad = np.flatnonzero((limit < INF_NS) & (limit + clock_error_ns < invoked))
    if not len(bad):
        return None
    row = len(v) - 1 - int(bad[-1])
    other = len(v) - 1 - int(following[bad[-1]])
    late, early = int(sender[row]), int(sender[other])
    return Found(
        id="order-inversion",
        count=len(bad),
        sentence=(
            f"{words.name(late)} was invoked at {seconds(int(t.invoked_ns[late]))}, after {words.name(early)} was"
            f" complete at {seconds(int(t.completed_ns[early]))}, but in {words.key(int(c.key[v[row]]))} its"
            f" record at offset {int(c.offset[v[row]])} is before the one of {words.name(early)} at offset"
            f" {int(c.offset[v[other]])}"
        ),
        transactions=(early, late),
    )


def _running_minimum(values: I64, begin: I64) -> I64:
    """Returns where the smallest value so far is, counted anew from each beginning."""
    # Ranks make the running minimum a running maximum that never looks back beyond its beginning.
    rank = np.empty(len(values), dtype=np.int64)
    rank[np.argsort(-values, kind="stable")] = np.arange(len(values))
    _, group = np.unique(begin, return_inverse=True)
    lifted = rank + group * len(values)
    highest = np.maximum.accumulate(lifted)
    where = np.empty(len(values), dtype=np.int64)
    where[rank] = np.arange(len(values))
    found: I64 = where[highest - group * len(values)]
    return found
