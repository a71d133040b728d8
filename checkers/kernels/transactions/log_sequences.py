"""Orders within one transaction, and within one consumer, of what was sent to and polled from a partition."""

from dataclasses import dataclass

import numpy as np

from checkers.kernels.columns import Columns
from checkers.kernels.history import ABSENT, I64, OFFSET_MAX
from checkers.kernels.ranks import rank_of
from checkers.kernels.transactions.columns import COMMITTED, UNKNOWN, Transactions
from checkers.kernels.transactions.found import Found, Words
from checkers.kernels.transactions.logs import LogHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs(Columns):
    """Records that follow each other in the order of one client, in one partition.

    Attributes:
        first, second: Their transactions.
        key: The partition.
        from_offset, to_offset: Their offsets.
    """

    first: I64
    second: I64
    key: I64
    from_offset: I64
    to_offset: I64


def sequence_anomalies(h: LogHistory, words: Words, *, is_read_committed: bool) -> list[Found]:
    """Returns skips and reversals in the order of sends and of polls.

    Args:
        h: The history.
        words: Names in it.
        is_read_committed: Whether consumers receive records of committed transactions only. Otherwise they receive
            every record, and the closing reads are not compared because they are reads of committed records.
    """
    sends, polls = _sends(h), _polls(h)
    is_within = polls.first == polls.second
    within, between = polls.take(is_within), polls.take(~is_within)
    back = "so it went back, or received an offset twice"
    other = "other records lie between"
    all_records = (h.content.key, h.content.offset)
    if is_read_committed:
        polled, places, passed = within, _versions(h), "passed over a committed record between them"
    else:
        polled = within.take(~h.t.is_final[within.first])
        places, passed = all_records, "passed over a record between them"
    parts = (
        _skips(words, "int-send-skip", sends, all_records, "sent", other),
        _reversals(words, "int-nonmonotonic-send", sends, "sent", "against the order of sending"),
        _skips(words, "int-poll-skip", polled, places, "received", passed),
        _reversals(words, "int-nonmonotonic-poll", within, "received", back),
        _skips(words, "session-poll-skip", between, places, "received", passed),
        _reversals(words, "session-nonmonotonic-poll", between, "received", back),
    )
    return [found for found in parts if found is not None]


def _versions(h: LogHistory) -> tuple[I64, I64]:
    return h.content.key[h.version], h.content.offset[h.version]


def _sends(h: LogHistory) -> _Pairs:
    """Returns consecutive sends of one transaction to one partition whose offsets are known."""
    w = h.writes
    offset = np.where(h.send_offset >= 0, h.send_offset, w.offset)
    rows = np.flatnonzero((offset >= 0) & (offset <= OFFSET_MAX))
    order = rows[np.lexsort((w.op[rows], w.key[rows], w.transaction[rows]))]
    same = (np.diff(w.transaction[order]) == 0) & (np.diff(w.key[order]) == 0)
    one, other = order[:-1][same], order[1:][same]
    return _Pairs(
        first=w.transaction[one],
        second=w.transaction[other],
        key=w.key[one],
        from_offset=offset[one],
        to_offset=offset[other],
    )


def _polls(h: LogHistory) -> _Pairs:
    """Returns consecutive records that one consumer received from one partition.

    Within a transaction all records count, whatever became of it. From one transaction to the next one only those
    of committed transactions count: the consumer of an aborted one returns to where it was before, and after one
    of unknown outcome nothing is known of its position. The closing reads begin at the start of each partition, so
    they follow nothing.
    """
    p, t = h.polled, h.t
    rows = np.flatnonzero(t.session[p.transaction] != ABSENT)
    order = rows[np.lexsort((rows, p.transaction[rows], p.key[rows]))]
    same = (np.diff(p.transaction[order]) == 0) & (np.diff(p.key[order]) == 0)
    one, other = order[:-1][same], order[1:][same]
    is_used = (t.outcome == COMMITTED) & ~t.is_final
    rows = rows[is_used[p.transaction[rows]]]
    transaction = p.transaction[rows]
    stretch = _stretches(t)[transaction]
    order = rows[np.lexsort((rows, transaction, t.invoked_ns[transaction], p.key[rows], stretch))]
    stretch = _stretches(t)[p.transaction[order]]
    follows = (np.diff(stretch) == 0) & (np.diff(p.key[order]) == 0)
    follows &= np.diff(p.transaction[order]) != 0
    one = np.concatenate([one, order[:-1][follows]])
    other = np.concatenate([other, order[1:][follows]])
    return _Pairs(
        first=p.transaction[one],
        second=p.transaction[other],
        key=p.key[one],
        from_offset=p.offset[one],
        to_offset=p.offset[other],
    )


def _stretches(t: Transactions) -> I64:
    """Returns a number per transaction, equal for those of one session without an unknown outcome between them."""
    order = np.lexsort((np.arange(t.count), t.invoked_ns, t.session))
    begins = np.zeros(t.count, dtype=np.int64)
    begins[1:] = (np.diff(t.session[order]) != 0) | (t.outcome[order][:-1] == UNKNOWN)
    stretch = np.empty(t.count, dtype=np.int64)
    stretch[order] = np.cumsum(begins)
    return stretch


def _skips(
    words: Words,
    identifier: str,
    pairs: _Pairs,
    places: tuple[I64, I64],
    verb: str,
    consequence: str,
) -> Found | None:
    """Returns pairs between which a partition has a record.

    Args:
        words: Names for sentences.
        identifier: The anomaly.
        pairs: What follows each other.
        places: Partitions and offsets of the records that count.
        verb: What the transaction did with the records.
        consequence: What is wrong, for the sentence.
    """
    before = rank_of(*places, pairs.key, pairs.from_offset + 1)
    upto = rank_of(*places, pairs.key, pairs.to_offset)
    bad = pairs.take((pairs.from_offset < pairs.to_offset) & (upto > before))
    return _found(words, identifier, bad, verb, consequence)


def _reversals(
    words: Words, identifier: str, pairs: _Pairs, verb: str, consequence: str
) -> Found | None:
    bad = pairs.take(pairs.to_offset <= pairs.from_offset)
    return _found(words, identifier, bad, verb, consequence)


def _found(words: Words, identifier: str, bad: _Pairs, verb: str, consequence: str) -> Found | None:
    if not len(bad.key):
        return None
    first, second = int(bad.first[0]), int(bad.second[0])
    then = "then" if first == second else f"then {words.name(second)} {verb}"
    return Found(
        id=identifier,
        count=len(bad.key),
        sentence=(
            f"in {words.key(int(bad.key[0]))}, {words.name(first)} {verb} offset {int(bad.from_offset[0])} and"
            f" {then} offset {int(bad.to_offset[0])}: {consequence}"
        ),
        transactions=(first, second),
    )
