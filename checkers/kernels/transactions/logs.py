"""Transactions on logs: what each partition held, and the dependencies that follow from it.

The content of a partition is known from every record that any poll returned, whatever became of the poll's
transaction, and from the offsets that the sends of committed transactions learned. Where an offset held several
values or a value was at several offsets, nothing is picked: such a record has no place in the version order.

The *versions* of a partition are the records of committed transactions in the order of their offsets. Offsets
between them may belong to aborted transactions and to transaction markers, so a gap means nothing.

A transaction of unknown outcome has committed if another one received one of its records, whatever became of that
one: `isolation.level=read_committed` holds for every poll. With `read_uncommitted` that proves nothing.

Source:
    KIP-98; the Kafka workload of Jepsen, whose structures these are, except that it picks one value per offset.
"""

from dataclasses import dataclass

import numpy as np

from checkers.kernels.columns import Columns
from checkers.kernels.history import ABSENT, I64, NONE, OFFSET_MAX, Bools
from checkers.kernels.ranks import rank_of
from checkers.kernels.transactions.columns import COMMITTED, READ, UNKNOWN, Transactions
from checkers.kernels.transactions.edges import RW, WR, WW, Edges, edges_of
from checkers.kernels.transactions.writes import Writes, writes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled(Columns):
    """Every record that a poll returned, in the order of transactions and of polls.

    Attributes:
        transaction, op: Rows of the transaction and of the micro-operation.
        key, offset, value: The record.
        write: Row of its send, -1 if no transaction sent it.
    """

    transaction: I64
    op: I64
    key: I64
    offset: I64
    value: I64
    write: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Distinct records of all partitions, ordered by partition, offset and value.

    Attributes:
        key, offset, value: The record.
        source: A transaction that received or sent it.
        write: Row of its send, -1 if there is none.
    """

    key: I64
    offset: I64
    value: I64
    source: I64
    write: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHistory:
    """What the polls and the acknowledged sends of a history show.

    Attributes:
        t: The history, normalised.
        writes: All sends.
        polled: All records that polls returned.
        content: What the partitions held.
        version: Rows in `content`, ascending: records of committed transactions with one certain place.
        is_node: Per transaction, whether it is known to have committed.
        send_offset: Per send, its offset as far as it is known and certain, ABSENT otherwise.
        impossible: Rows of polled elements whose offset no record can have; they are not used further.
        impossible_sends: Sends that were acknowledged at such an offset; it is not used further.
    """

    t: Transactions
    writes: Writes
    polled: Polled
    content: Content
    version: I64
    is_node: Bools
    send_offset: I64
    impossible: I64
    impossible_sends: I64

    @property
    def keys(self) -> int:
        """How many partitions there are."""
        return len(self.t.key_names)

    def versions_below(self, key: I64, offset: I64) -> I64:
        """Returns how many versions there are in earlier partitions, and in the same one below an offset."""
        keys, offsets = self.content.key[self.version], self.content.offset[self.version]
        return rank_of(keys, offsets, key, offset)


def log_history(t: Transactions, *, is_read_committed: bool) -> LogHistory:
    """Returns what a history of logs shows.

    Args:
        t: The history, normalised.
        is_read_committed: Whether consumers receive records of committed transactions only.

    Raises:
        HistoryError: Two sends have the same partition and value.
    """
    writes = writes_of(t)
    polled, impossible = _polled(t, writes)
    is_node = t.outcome == COMMITTED
    if is_read_committed:
        sent = np.flatnonzero(polled.write >= 0)
        sender = writes.transaction[polled.write[sent]]
        sender = sender[sender != polled.transaction[sent]]
        is_node[sender[t.outcome[sender] == UNKNOWN]] = True
    content = _content(writes, polled)
    is_place = _is_only(content.key, content.offset) & _is_only(content.key, content.value)
    is_version = is_place & (content.write >= 0)
    is_version &= np.append(is_node, False)[np.append(writes.transaction, -1)[content.write]]
    send_offset = np.full(writes.count, ABSENT, dtype=np.int64)
    certain = np.flatnonzero(is_place & (content.write >= 0))
    send_offset[content.write[certain]] = content.offset[certain]
    return LogHistory(
        t=t,
        writes=writes,
        polled=polled,
        content=content,
        version=np.flatnonzero(is_version),
        is_node=is_node,
        send_offset=send_offset,
        impossible=impossible,
        impossible_sends=np.flatnonzero((writes.offset != ABSENT) & ~_is_possible(writes.offset)),
    )


def _polled(t: Transactions, writes: Writes) -> tuple[Polled, I64]:
    """Returns what was polled, and the elements with an impossible offset."""
    ops = np.flatnonzero(t.op_kind == READ)
    count = t.op_count[ops]
    begin = np.cumsum(count) - count
    element = np.arange(int(count.sum())) + np.repeat(t.op_start[:-1][ops] - begin, count)
    op = np.repeat(ops, count)
    offset = t.element_offset[element]
    is_possible = _is_possible(offset)
    impossible = element[~is_possible]
    op, element = op[is_possible], element[is_possible]
    key, value = t.op_key[op], t.element_value[element]
    polled = Polled(
        transaction=t.op_transaction[op],
        op=op,
        key=key,
        offset=t.element_offset[element],
        value=value,
        write=writes.find(key, value),
    )
    return polled, impossible


def _is_possible(offset: I64) -> Bools:
    """Returns which offsets a record can have."""
    return (offset >= 0) & (offset <= OFFSET_MAX)


def _content(writes: Writes, polled: Polled) -> Content:
    # A record keeps its offset if its transaction aborts.
    sent = np.flatnonzero(_is_possible(writes.offset))
    key = np.concatenate([polled.key, writes.key[sent]])
    offset = np.concatenate([polled.offset, writes.offset[sent]])
    value = np.concatenate([polled.value, writes.value[sent]])
    source = np.concatenate([polled.transaction, writes.transaction[sent]])
    write = np.concatenate([polled.write, sent])
    order = np.lexsort((source, value, offset, key))
    key, offset, value = key[order], offset[order], value[order]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (np.diff(key) != 0) | (np.diff(offset) != 0) | (np.diff(value) != 0)
    return Content(
        key=key[first],
        offset=offset[first],
        value=value[first],
        source=source[order][first],
        write=write[order][first],
    )


def _is_only(key: I64, other: I64) -> Bools:
    """Returns which pairs occur once."""
    order = np.lexsort((other, key))
    same = np.flatnonzero((np.diff(key[order]) == 0) & (np.diff(other[order]) == 0))
    only = np.ones(len(key), dtype=np.bool_)
    only[order[same]] = False
    only[order[same + 1]] = False
    return only


def log_edges(h: LogHistory) -> list[Edges]:
    """Returns the dependencies between committed transactions.

    A poll is not obliged to be up to date, so the anti-dependency of a consumer on the next record states only
    that it had not received it.
    """
    c, v = h.content, h.version
    key, value = c.key[v], c.value[v]
    writer = h.writes.transaction[c.write[v]]
    follows = np.flatnonzero(np.diff(key) == 0)
    ww = edges_of(
        WW,
        writer[follows],
        writer[follows + 1],
        key=key[follows],
        before=value[follows],
        after=value[follows + 1],
    )
    p = h.polled
    counts = (h.t.outcome[p.transaction] == COMMITTED) & (p.write >= 0)
    counts &= np.append(h.is_node, False)[np.append(h.writes.transaction, -1)[p.write]]
    received = p.take(counts)
    wr = edges_of(
        WR,
        h.writes.transaction[received.write],
        received.transaction,
        key=received.key,
        before=received.value,
    )
    return [ww, wr, _rw(h, writer)]


def _rw(h: LogHistory, writer: I64) -> Edges:
    c, v, p = h.content, h.version, h.polled
    rows = np.flatnonzero(h.t.outcome[p.transaction] == COMMITTED)
    order = rows[np.lexsort((rows, p.offset[rows], p.key[rows], p.transaction[rows]))]
    last = np.ones(len(order), dtype=np.bool_)
    last[:-1] = (np.diff(p.transaction[order]) != 0) | (np.diff(p.key[order]) != 0)
    highest = p.take(order[last])
    following = h.versions_below(highest.key, highest.offset + 1)
    padded_key = np.append(c.key[v], NONE)
    exists = padded_key[following] == highest.key
    highest, following = highest.take(exists), following[exists]
    return edges_of(
        RW,
        highest.transaction,
        writer[following],
        key=highest.key,
        before=highest.value,
        after=c.value[v][following],
    )
