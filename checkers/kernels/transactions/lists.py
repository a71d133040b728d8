"""Version orders of lists, and the dependencies that they imply.

A read of a list returns every value that was appended before, so the longest read of a key orders all values in
it, and every other read must be a prefix of it. A committed append that the longest read does not contain came
later, because nothing is ever removed. That is all that is used; nothing depends on time.

Reads count only if their transaction committed. A transaction of unknown outcome has committed if such a read
returned one of its values; under read-uncommitted that proves nothing.

Source:
    Kingsbury and Alvaro, Elle (2020) (traceability and recoverability of list-append).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from checkers.kernels.columns import Columns
from checkers.kernels.history import I64, NONE, Bools
from checkers.kernels.transactions.columns import ABORTED, COMMITTED, READ, UNKNOWN, Transactions
from checkers.kernels.transactions.edges import RW, WR, WW, Edges, edges_of
from checkers.kernels.transactions.writes import Writes, writes_of

CHUNK_ELEMENTS = 4_000_000
"""Elements compared at a time; lists are much longer together than the history that produced them."""
PAIRS_MAX = 1_000_000
"""Dependencies between readers of the last version and appends that no read returned; more are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads(Columns):
    """Reads of committed transactions with a known result, ordered by transaction and place.

    Attributes:
        op, transaction, key: Rows of the micro-operations, of their transactions, and keys.
        start, count: Their elements.
    """

    op: I64
    transaction: I64
    key: I64
    start: I64
    count: I64

    def elements(self) -> I64:
        """Returns the rows of all elements, read by read."""
        begin = np.cumsum(self.count) - self.count
        rows: I64 = np.arange(int(self.count.sum())) + np.repeat(self.start - begin, self.count)
        return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ListHistory:
    """What the reads of a list-append history show.

    Attributes:
        t: The history, normalised.
        writes: All appends.
        reads: All reads that count.
        is_prefix: Per read, whether it is a prefix of its key's version order.
        longest: Per key, the row in `reads` of its longest read, -1 if there is none.
        order_start: Per key, where its version order begins; one more entry for the end.
        order_value, order_write: The values in version order, and the rows of their appends, -1 if unwritten.
        position: Per append, its place in the version order, -1 if no read returned it.
        is_unsure: Per key, whether its reads contradict each other or repeat a value; its order is not used.
        loose: Rows of elements of the reads that are no prefix.
        loose_read: The rows of their reads.
        loose_write: The rows of their appends, -1 if unwritten.
        is_node: Per transaction, whether it is known to have committed.
    """

    t: Transactions
    writes: Writes
    reads: Reads
    is_prefix: Bools
    longest: I64
    order_start: I64
    order_value: I64
    order_write: I64
    position: I64
    is_unsure: Bools
    loose: I64
    loose_read: I64
    loose_write: I64
    is_node: Bools

    @property
    def keys(self) -> int:
        """How many keys there are."""
        return len(self.longest)

    @property
    def order_key(self) -> I64:
        """The key of each entry of the version orders."""
        return np.repeat(np.arange(self.keys), np.diff(self.order_start))


def list_history(t: Transactions, *, is_read_committed: bool = True) -> ListHistory:
    """Returns what the reads of a history show.

    Args:
        t: The history, normalised.
        is_read_committed: Whether a read proves that what it returned has committed.

    Raises:
        HistoryError: Two appends put the same value into one list.
    """
    writes = writes_of(t)
    reads = _reads(t)
    keys = len(t.key_names)
    longest = np.full(keys, -1, dtype=np.int64)
    by_length = np.lexsort((-reads.op, reads.count, reads.key))
    longest[reads.key[by_length]] = by_length  # of one key the last one stays: the longest
    length = np.where(longest >= 0, np.append(reads.count, 0)[longest], 0)
    order_start = np.append(0, np.cumsum(length))
    source = reads.take(longest[longest >= 0])
    order_value = t.element_value[source.elements()]
    order_key = np.repeat(np.arange(keys), length)
    order_write = writes.find(order_key, order_value)
    is_prefix = _prefixes(t, reads, order_start, order_value)
    others = reads.take(~is_prefix)
    loose = others.elements()
    loose_read = np.repeat(np.flatnonzero(~is_prefix), others.count)
    loose_write = writes.find(reads.key[loose_read], t.element_value[loose])
    is_unsure = np.zeros(keys, dtype=np.bool_)
    is_unsure[others.key] = True
    is_unsure[order_key[_is_repeated(order_key, order_value)]] = True
    position = np.full(writes.count, -1, dtype=np.int64)
    known = np.flatnonzero(order_write >= 0)[::-1]  # the first of repeated values is written last
    position[order_write[known]] = known - order_start[order_key[known]]
    is_node = t.outcome == COMMITTED
    if is_read_committed:
        seen = np.concatenate([order_write, loose_write])
        seen_in = writes.transaction[seen[seen >= 0]]
        is_node[seen_in[t.outcome[seen_in] == UNKNOWN]] = True
    return ListHistory(
        t=t,
        writes=writes,
        reads=reads,
        is_prefix=is_prefix,
        longest=longest,
        order_start=order_start,
        order_value=order_value,
        order_write=order_write,
        position=position,
        is_unsure=is_unsure,
        loose=loose,
        loose_read=loose_read,
        loose_write=loose_write,
        is_node=is_node,
    )


def _reads(t: Transactions) -> Reads:
    counts = (t.op_kind == READ) & t.op_is_known
    op = np.flatnonzero(counts & (t.outcome[t.op_transaction] == COMMITTED))
    return Reads(
        op=op,
        transaction=t.op_transaction[op],
        key=t.op_key[op],
        start=t.op_start[:-1][op],
        count=t.op_count[op],
    )


def _prefixes(t: Transactions, reads: Reads, order_start: I64, order_value: I64) -> Bools:
    """Returns which reads are prefixes of their key's version order."""
    is_prefix = np.ones(len(reads.op), dtype=np.bool_)
    for chunk in _chunks(reads.count):
        part = reads.take(chunk)
        elements = part.elements()
        begin = np.cumsum(part.count) - part.count
        place = np.arange(len(elements)) + np.repeat(order_start[part.key] - begin, part.count)
        differs = t.element_value[elements] != order_value[place]
        if differs.any():
            is_prefix[np.repeat(chunk, part.count)[differs]] = False
    return is_prefix


def _chunks(count: I64) -> Iterator[I64]:
    """Yields rows in runs whose counts add up to about `CHUNK_ELEMENTS`."""
    number = (np.cumsum(count) - count) // CHUNK_ELEMENTS
    limits = np.flatnonzero(np.diff(number)) + 1
    yield from np.split(np.arange(len(count)), limits)


def _is_repeated(key: I64, value: I64) -> Bools:
    """Returns which entries hold a value that the same key has elsewhere too."""
    order = np.lexsort((value, key))
    same = np.flatnonzero((np.diff(key[order]) == 0) & (np.diff(value[order]) == 0))
    repeated = np.zeros(len(key), dtype=np.bool_)
    repeated[order[same]] = True
    repeated[order[same + 1]] = True
    return repeated


# --- dependencies ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The versions around what each read returned; -1 where there is none.

    Attributes:
        previous, following: Places in the version orders of the last committed append that the read returned, and
            of the first one that it did not return.
    """

    previous: I64
    following: I64


def list_edges(h: ListHistory) -> tuple[list[Edges], tuple[str, ...]]:
    """Returns the dependencies, and a sentence if some had to be left out."""
    is_known = h.order_write >= 0
    is_valid = is_known.copy()
    is_valid[is_known] = h.is_node[h.writes.transaction[h.order_write[is_known]]]
    is_valid &= ~h.is_unsure[h.order_key]
    valid = np.flatnonzero(is_valid)
    writer = h.writes.transaction[h.order_write[valid]]
    key, value = h.order_key[valid], h.order_value[valid]
    follows = np.flatnonzero(np.diff(key) == 0)
    parts = [
        edges_of(
            WW,
            writer[follows],
            writer[follows + 1],
            key=key[follows],
            before=value[follows],
            after=value[follows + 1],
        )
    ]
    sure = h.reads.take(~h.is_unsure[h.reads.key])
    around = _neighbours(h, sure, valid)
    has_previous, has_following = around.previous >= 0, around.following >= 0
    previous = _writer_at(h, around.previous)
    before = np.where(has_previous, np.append(h.order_value, NONE)[around.previous], NONE)
    parts.append(
        edges_of(
            WR,
            previous[has_previous],
            sure.transaction[has_previous],
            key=sure.key[has_previous],
            before=before[has_previous],
        )
    )
    # A read that ends with the reader's own append depends on the next version by ww already.
    is_foreign = previous != sure.transaction
    rows = has_following & is_foreign
    parts.append(
        edges_of(
            RW,
            sure.transaction[rows],
            _writer_at(h, around.following)[rows],
            key=sure.key[rows],
            before=before[rows],
            after=h.order_value[around.following[rows]],
        )
    )
    parts.append(_unsure_wr(h))
    unread, reasons = _unread_edges(
        h, sure.take(~has_following), previous[~has_following], before[~has_following], valid
    )
    return [*parts, *unread], reasons


def _neighbours(h: ListHistory, reads: Reads, valid: I64) -> Neighbours:
    end = h.order_start[reads.key] + reads.count
    at = np.searchsorted(valid, end)
    padded = np.concatenate([[-1], valid, [np.iinfo(np.int64).max]])
    previous, following = padded[at], padded[at + 1]
    return Neighbours(
        previous=np.where(previous >= h.order_start[reads.key], previous, -1),
        following=np.where(following < h.order_start[reads.key + 1], following, -1),
    )


def _writer_at(h: ListHistory, place: I64) -> I64:
    """Returns the transactions that wrote at places of the version orders, -1 for place -1."""
    write = np.append(h.order_write, -1)[place]
    writer: I64 = np.append(h.writes.transaction, -1)[write]
    return writer


def _unsure_wr(h: ListHistory) -> Edges:
    """Returns wr dependencies of keys without a usable order: on the append of the last value of each read."""
    reads = h.reads.take(h.is_unsure[h.reads.key] & (h.reads.count > 0))
    value = h.t.element_value[reads.start + reads.count - 1]
    write = h.writes.find(reads.key, value)
    writer = np.append(h.writes.transaction, -1)[write]
    rows = (writer >= 0) & np.append(h.is_node, False)[writer]
    return edges_of(
        WR, writer[rows], reads.transaction[rows], key=reads.key[rows], before=value[rows]
    )


def unread_writes(h: ListHistory) -> I64:
    """Returns the committed appends that come after everything that was read of their key.

    Those of keys that no transaction read have no place at all and are left out.
    """
    unread = _without_place(h)
    return unread[h.longest[h.writes.key[unread]] >= 0]


def _without_place(h: ListHistory) -> I64:
    """Returns the committed appends that no read returned, unless reads disagree about their key."""
    w = h.writes
    return np.flatnonzero((h.position < 0) & h.is_node[w.transaction] & ~h.is_unsure[w.key])


def unread_orders(h: ListHistory) -> list[Edges]:
    """Returns orders in which the appends that no read returned may have happened: by their ends, by their begins.

    Any other order of them is possible too, in each key.
    """
    w, rows = h.writes, _without_place(h)
    # One append per transaction and key is enough.
    _, first = np.unique(w.transaction[rows] * h.keys + w.key[rows], return_index=True)
    rows = rows[first]
    orders = []
    for moment in (h.t.completed_ns, h.t.invoked_ns):
        order = rows[np.lexsort((w.transaction[rows], moment[w.transaction[rows]], w.key[rows]))]
        earlier, later = order[:-1], order[1:]
        is_same = w.key[earlier] == w.key[later]
        earlier, later = earlier[is_same], later[is_same]
        orders.append(
            edges_of(
                WW,
                w.transaction[earlier],
                w.transaction[later],
                key=w.key[earlier],
                before=w.value[earlier],
                after=w.value[later],
            )
        )
    return orders if len(orders[0].source) else []


def _unread_edges(
    h: ListHistory, reads: Reads, previous: I64, before: I64, valid: I64
) -> tuple[list[Edges], tuple[str, ...]]:
    """Returns dependencies on appends that no read returned.

    Args:
        h: The history.
        reads: Reads that returned the last version of their key.
        previous: The writers of what they returned last, -1 if they returned nothing.
        before: The values that they returned last.
        valid: Places of committed appends in the version orders.
    """
    unread = unread_writes(h)
    if not len(unread):
        return [], ()
    w = h.writes
    last = np.full(h.keys, -1, dtype=np.int64)
    last[h.order_key[valid]] = valid
    place = last[w.key[unread]]
    rows = unread[place >= 0]
    place = place[place >= 0]
    ww = edges_of(
        WW,
        _writer_at(h, place),
        w.transaction[rows],
        key=w.key[rows],
        before=h.order_value[place],
        after=w.value[rows],
    )
    foreign = previous != reads.transaction
    reads, before = reads.take(foreign), before[foreign]
    # One read per transaction and key is enough.
    _, first = np.unique(reads.transaction * h.keys + reads.key, return_index=True)
    reads, before = reads.take(first), before[first]
    by_key = np.argsort(w.key[unread], kind="stable")
    unread = unread[by_key]
    begin = np.searchsorted(w.key[unread], reads.key, side="left")
    pairs = np.searchsorted(w.key[unread], reads.key, side="right") - begin
    order = np.argsort(pairs, kind="stable")
    kept = np.sort(order[np.cumsum(pairs[order]) <= PAIRS_MAX])
    reasons: tuple[str, ...] = ()
    if len(kept) < len(reads.op):
        reasons = (
            f"{int(pairs.sum())} anti-dependencies on appends that no read returned are too many; those of"
            f" {len(reads.op) - len(kept)} reads were left out",
        )
    repeat = pairs[kept]
    offset = np.arange(int(repeat.sum())) - np.repeat(np.cumsum(repeat) - repeat, repeat)
    target = unread[np.repeat(begin[kept], repeat) + offset]
    rw = edges_of(
        RW,
        np.repeat(reads.transaction[kept], repeat),
        w.transaction[target],
        key=w.key[target],
        before=np.repeat(before[kept], repeat),
        after=w.value[target],
    )
    return [ww, rw], reasons


def aborted_from(h: ListHistory) -> I64:
    """Returns the place of the first aborted append in each key's version order, a huge number for none."""
    first = np.full(h.keys, np.iinfo(np.int64).max, dtype=np.int64)
    known = np.flatnonzero(h.order_write >= 0)
    rows = known[h.t.outcome[h.writes.transaction[h.order_write[known]]] == ABORTED]
    key = h.order_key[rows]
    np.minimum.at(first, key, rows - h.order_start[key])
    return first
