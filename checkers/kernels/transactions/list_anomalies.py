"""Anomalies of lists that need no cycle: reads that contradict each other, their writers, or themselves."""

import numpy as np

from checkers.kernels.history import I64, Bools
from checkers.kernels.transactions.columns import ABORTED, WRITE
from checkers.kernels.transactions.found import Found, Words
from checkers.kernels.transactions.lists import ListHistory, aborted_from, unread_writes
from checkers.kernels.transactions.runs import distinct_rows

NEVER = np.iinfo(np.int64).max
"""Place of an append that no read returned: after all others."""


def list_anomalies(h: ListHistory, words: Words) -> list[Found]:
    """Returns everything that needs no cycle."""
    parts = (
        _incompatible(h, words),
        _repeated(h, words),
        _phantoms(h, words),
        _aborted_reads(h, words),
        _intermediate_reads(h, words),
        _dirty_updates(h, words),
        _internal(h, words),
        _lost_updates(h, words),
        _fractured_reads(h, words),
    )
    return [found for found in parts if found is not None]


def _incompatible(h: ListHistory, words: Words) -> Found | None:
    rows = np.flatnonzero(~h.is_prefix)
    if not len(rows):
        return None
    row = int(rows[0])
    key = int(h.reads.key[row])
    longest = int(h.longest[key])
    one, other = int(h.reads.transaction[longest]), int(h.reads.transaction[row])
    return Found(
        id="incompatible-order",
        count=len(rows),
        sentence=(
            f"{words.name(one)} read {words.key(key)} as {words.read(int(h.reads.op[longest]))}, but"
            f" {words.name(other)} read it as {words.read(int(h.reads.op[row]))}; neither is the beginning of the"
            " other"
        ),
        transactions=(one, other),
    )


def _repeated(h: ListHistory, words: Words) -> Found | None:
    value = np.concatenate([h.order_value, h.t.element_value[h.loose]])
    longest_reads = h.longest[h.order_key]
    read = np.concatenate([longest_reads, h.loose_read])
    order = np.lexsort((value, read))
    same = (np.diff(value[order]) == 0) & (np.diff(read[order]) == 0)
    rows = np.unique(read[order[1:][same]])
    if not len(rows):
        return None
    row = int(rows[0])
    value_twice = int(value[order[1:][same & (read[order[1:]] == row)][0]])
    reader = int(h.reads.transaction[row])
    return Found(
        id="duplicate-elements",
        count=len(rows),
        sentence=(
            f"{words.name(reader)} read {words.key(int(h.reads.key[row]))} as {words.read(int(h.reads.op[row]))},"
            f" which has {words.value(value_twice)} twice, although it was appended once"
        ),
        transactions=(reader,),
    )


def _phantoms(h: ListHistory, words: Words) -> Found | None:
    key = np.concatenate([h.order_key, h.reads.key[h.loose_read]])
    value = np.concatenate([h.order_value, h.t.element_value[h.loose]])
    write = np.concatenate([h.order_write, h.loose_write])
    read = np.concatenate([h.longest[h.order_key], h.loose_read])
    rows = np.flatnonzero(write < 0)
    if not len(rows):
        return None
    at = int(rows[0])
    reader = int(h.reads.transaction[read[at]])
    return Found(
        id="phantom-value",
        count=len(distinct_rows(key[rows], value[rows])),
        sentence=(
            f"{words.name(reader)} read {words.value(int(value[at]))} in {words.key(int(key[at]))}, which no"
            " transaction wrote there"
        ),
        transactions=(reader,),
    )


def _aborted_reads(h: ListHistory, words: Words) -> Found | None:
    first = aborted_from(h)
    is_bad = h.is_prefix & (h.reads.count > first[h.reads.key])
    loose_known = np.flatnonzero(h.loose_write >= 0)
    loose_bad = loose_known[
        h.t.outcome[h.writes.transaction[h.loose_write[loose_known]]] == ABORTED
    ]
    is_bad[h.loose_read[loose_bad]] = True
    rows = np.flatnonzero(is_bad)
    if not len(rows):
        return None
    row = int(rows[0])
    key = int(h.reads.key[row])
    if h.is_prefix[row]:
        write = int(h.order_write[h.order_start[key] + first[key]])
    else:
        write = int(h.loose_write[loose_bad[h.loose_read[loose_bad] == row][0]])
    reader, writer = int(h.reads.transaction[row]), int(h.writes.transaction[write])
    return Found(
        id="G1a",
        count=len(rows),
        sentence=(
            f"{words.name(reader)} read {words.value(int(h.writes.value[write]))} in {words.key(key)}, which"
            f" {words.name(writer)} wrote, and {words.name(writer)} aborted"
        ),
        transactions=(reader, writer),
    )


def _intermediate_reads(h: ListHistory, words: Words) -> Found | None:
    reads = h.reads
    some = np.flatnonzero(reads.count > 0)
    value = h.t.element_value[reads.start[some] + reads.count[some] - 1]
    write = h.writes.find(reads.key[some], value)
    some, write = some[write >= 0], write[write >= 0]
    writer = h.writes.transaction[write]
    is_bad = ~h.writes.is_last[write] & (writer != reads.transaction[some])
    is_bad &= h.t.outcome[writer] != ABORTED
    if not is_bad.any():
        return None
    at = int(np.flatnonzero(is_bad)[0])
    row, source = int(some[at]), int(writer[at])
    reader = int(reads.transaction[row])
    return Found(
        id="G1b",
        count=int(is_bad.sum()),
        sentence=(
            f"{words.name(reader)} read {words.key(int(reads.key[row]))} at"
            f" {words.value(int(h.writes.value[write[at]]))}, which {words.name(source)} wrote, but not as its"
            " last value of that key"
        ),
        transactions=(reader, source),
    )


def _dirty_updates(h: ListHistory, words: Words) -> Found | None:
    first = aborted_from(h)
    known = np.flatnonzero(h.order_write >= 0)
    rows = known[h.is_node[h.writes.transaction[h.order_write[known]]]]
    key = h.order_key[rows]
    rows = rows[rows - h.order_start[key] > first[key]]
    if not len(rows):
        return None
    at = int(rows[0])
    key_at = int(h.order_key[at])
    aborted = int(h.order_write[h.order_start[key_at] + first[key_at]])
    committed = int(h.order_write[at])
    one, other = int(h.writes.transaction[aborted]), int(h.writes.transaction[committed])
    return Found(
        id="dirty-update",
        count=len(np.unique(h.order_key[rows])),
        sentence=(
            f"{words.name(other)} appended {words.value(int(h.writes.value[committed]))} to"
            f" {words.key(key_at)} after {words.value(int(h.writes.value[aborted]))}, which {words.name(one)}"
            f" wrote, and {words.name(one)} aborted"
        ),
        transactions=(one, other),
    )


# --- within one transaction ---


class _Groups:
    """Micro-operations of committed transactions in groups: those of one transaction on one key, in program order.

    Attributes:
        op: Rows of the micro-operations.
        is_write: Whether each is an append.
        begin: Where the group of each begins.
        writes_up_to: How many appends there are up to and with each, all groups together.
        write: Row in `Writes`, -1 for a read.
        read: Row in `Reads`, -1 for an append.
    """

    def __init__(self, h: ListHistory) -> None:
        t = h.t
        to_write = np.full(len(t.op_kind), -1, dtype=np.int64)
        to_write[h.writes.op] = np.arange(h.writes.count)
        to_read = np.full(len(t.op_kind), -1, dtype=np.int64)
        to_read[h.reads.op] = np.arange(len(h.reads.op))
        is_used = ((t.op_kind == WRITE) & h.is_node[t.op_transaction]) | (to_read >= 0)
        op = np.flatnonzero(is_used)
        op = op[np.lexsort((op, t.op_key[op], t.op_transaction[op]))]
        self.op = op
        self.is_write = t.op_kind[op] == WRITE
        starts = np.ones(len(op), dtype=np.bool_)
        starts[1:] = (np.diff(t.op_transaction[op]) != 0) | (np.diff(t.op_key[op]) != 0)
        place = np.arange(len(op))
        self.begin: I64 = np.maximum.accumulate(np.where(starts, place, 0)) if len(op) else place
        self.writes_up_to: I64 = np.cumsum(self.is_write)
        self.write = to_write[op]
        self.read = to_read[op]

    def previous(self, is_wanted: Bools) -> I64:
        """Returns the last wanted entry of the same group before each entry, -1 if there is none."""
        place = np.arange(len(self.op))
        if not len(place):
            return place
        last = np.maximum.accumulate(np.where(is_wanted, place, -1))
        last = np.append(-1, last[:-1])
        return np.where(last >= self.begin, last, -1)


def _internal(h: ListHistory, words: Words) -> Found | None:
    """Returns transactions whose reads miss what they read and wrote before, or whose appends are out of order."""
    groups = _Groups(h)
    if not len(groups.op):
        return None
    key = h.t.op_key[groups.op]
    unsure = h.is_unsure[key]
    bad = set(groups.begin[_contradictions(h, groups) & ~unsure].tolist())
    bad |= _contradictions_one_by_one(h, groups, np.unique(groups.begin[unsure]))
    if not bad:
        return None
    begin = min(bad)
    transaction = int(h.t.op_transaction[groups.op[begin]])
    texts = []
    for place in np.flatnonzero(groups.begin == begin).tolist():
        if groups.is_write[place]:
            value = int(h.writes.value[groups.write[place]])
            texts.append(f"appended {words.value(value)}")
        else:
            texts.append(f"read {words.read(int(groups.op[place]))}")
    sentence = (
        f"{words.name(transaction)} contradicts itself about {words.key(int(key[begin]))}: it"
    )
    sentence += f" {', then '.join(texts)}"
    witnesses: tuple[int, ...] = (transaction,)
    if not any(text.startswith("read") for text in texts):
        longest = int(h.longest[key[begin]])
        other = int(h.reads.transaction[longest])
        sentence += f", but {words.name(other)} read {words.read(int(h.reads.op[longest]))}"
        witnesses = (transaction, other)
    return Found(id="internal", count=len(bad), sentence=sentence, transactions=witnesses)


def _contradictions(h: ListHistory, groups: _Groups) -> Bools:
    """Returns the entries that contradict earlier ones of their group, for keys with a usable order."""
    is_bad = np.zeros(len(groups.op), dtype=np.bool_)
    count = np.where(groups.is_write, 0, np.append(h.reads.count, 0)[groups.read])
    place = np.where(groups.is_write, np.append(h.position, -1)[groups.write], 0)
    place = np.where(place < 0, NEVER, place)
    # A read returns what the previous read returned and the appends since then.
    read = np.flatnonzero(~groups.is_write)
    previous = groups.previous(~groups.is_write)[read]
    before = np.append(0, groups.writes_up_to)
    since = np.where(previous >= 0, before[previous + 1], before[groups.begin[read]])
    own = groups.writes_up_to[read] - since
    expected = np.where(previous >= 0, count[previous] + own, count[read])
    is_bad[read] = (count[read] != expected) | (count[read] < own)
    # The appends are the last values of the next read of the group.
    write = np.flatnonzero(groups.is_write)
    at = np.searchsorted(read, write)
    following = np.append(read, len(groups.op))[at]
    has_read = np.append(groups.begin, -1)[following] == groups.begin[write]
    rows, following = write[has_read], following[has_read]
    distance = groups.writes_up_to[following] - groups.writes_up_to[rows] + 1
    is_bad[rows] |= place[rows] != count[following] - distance
    # An append is not in what was read before it.
    previous = groups.previous(~groups.is_write)[write]
    rows, previous = write[previous >= 0], previous[previous >= 0]
    is_bad[rows] |= place[rows] < count[previous]
    # The appends of one transaction are in the list in the order of the transaction.
    previous = groups.previous(groups.is_write)[write]
    rows, previous = write[previous >= 0], previous[previous >= 0]
    is_bad[rows] |= (place[previous] > place[rows]) & (h.longest[h.t.op_key[groups.op[rows]]] >= 0)
    return is_bad


def _contradictions_one_by_one(h: ListHistory, groups: _Groups, begins: I64) -> set[int]:
    """Returns the beginnings of contradictory groups of keys without a usable order."""
    bad: set[int] = set()
    ends = np.searchsorted(groups.begin, begins, side="right")
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        state: list[int] | None = None
        own: list[int] = []
        for place in range(begin, end):
            if groups.is_write[place]:
                value = int(h.writes.value[groups.write[place]])
                if state is not None and value in state:
                    bad.add(begin)
                (own if state is None else state).append(value)
                continue
            row = int(groups.read[place])
            start, count = int(h.reads.start[row]), int(h.reads.count[row])
            values = h.t.element_value[start : start + count].tolist()
            expected = state if state is not None else values[: count - len(own)] + own
            if values != expected:
                bad.add(begin)
            state = values
    return bad


def _lost_updates(h: ListHistory, words: Words) -> Found | None:
    """Returns versions of a key that two committed transactions read and then replaced."""
    groups = _Groups(h)
    first_write = np.flatnonzero(groups.is_write & (groups.previous(groups.is_write) < 0))
    rows = first_write[groups.begin[first_write] < first_write]
    read = groups.read[rows - 1]
    rows = rows[~h.is_unsure[h.reads.key[read]]]
    read = groups.read[rows - 1]
    key, count = h.reads.key[read], h.reads.count[read]
    order = np.lexsort((read, count, key))
    same = (np.diff(key[order]) == 0) & (np.diff(count[order]) == 0)
    if not same.any():
        return None
    starts = same & ~np.append(False, same[:-1])
    at = int(np.flatnonzero(starts)[0])
    one, other = int(read[order[at]]), int(read[order[at + 1]])
    transactions = int(h.reads.transaction[one]), int(h.reads.transaction[other])
    return Found(
        id="lost-update",
        count=int(starts.sum()),
        sentence=(
            f"{words.name(transactions[0])} and {words.name(transactions[1])} both read"
            f" {words.key(int(h.reads.key[one]))} as {words.read(int(h.reads.op[one]))} and then appended to it,"
            " so one of them did not know of the other"
        ),
        transactions=transactions,
    )


def _fractured_reads(h: ListHistory, words: Words) -> Found | None:
    """Returns readers that saw one write of a transaction and missed another one."""
    reads = h.reads.take(h.is_prefix & (h.reads.count > 0) & ~h.is_unsure[h.reads.key])
    last = h.order_write[h.order_start[reads.key] + reads.count - 1]
    known = last >= 0
    writer, reader = h.writes.transaction[last[known]], reads.transaction[known]
    seen = np.flatnonzero(known)
    pairs = distinct_rows(writer, reader, reads.key[seen])
    pairs = pairs[(writer[pairs] != reader[pairs]) & h.is_node[writer[pairs]]]
    writer, reader, seen = writer[pairs], reader[pairs], seen[pairs]
    by_writer = np.argsort(h.writes.transaction, kind="stable")
    owners = h.writes.transaction[by_writer]
    begin = np.searchsorted(owners, writer, side="left")
    count = np.searchsorted(owners, writer, side="right") - begin
    offset = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    write = by_writer[np.repeat(begin, count) + offset]
    reader, seen = np.repeat(reader, count), np.repeat(seen, count)
    shortest = _shortest_reads(h, reader, h.writes.key[write])
    place = h.position[write].copy()
    is_unread = np.zeros(h.writes.count, dtype=np.bool_)
    is_unread[unread_writes(h)] = True
    place[is_unread[write]] = NEVER
    # Two reads of one key that differ contradict each other; that is another anomaly.
    usable = (shortest >= 0) & (reads.key[seen] != h.writes.key[write])
    usable &= ~h.is_unsure[h.writes.key[write]]
    is_bad = usable & (place >= np.append(h.reads.count, 0)[shortest])
    if not is_bad.any():
        return None
    at = int(np.flatnonzero(is_bad)[0])
    one, missed = int(reader[at]), int(write[at])
    other = int(h.writes.transaction[missed])
    seen_key, seen_write = int(reads.key[seen[at]]), int(last[seen[at]])
    return Found(
        id="fractured-read",
        count=len(distinct_rows(h.writes.transaction[write[is_bad]], reader[is_bad])),
        sentence=(
            f"{words.name(one)} read {words.key(seen_key)} at"
            f" {words.value(int(h.writes.value[seen_write]))}, which {words.name(other)} wrote, but read"
            f" {words.key(int(h.writes.key[missed]))} as {words.read(int(h.reads.op[shortest[at]]))}, without"
            f" {words.value(int(h.writes.value[missed]))}, which {words.name(other)} wrote too"
        ),
        transactions=(one, other),
    )


def _shortest_reads(h: ListHistory, transaction: I64, key: I64) -> I64:
    """Returns the shortest read of a key by a transaction, -1 if it did not read it."""
    code = h.reads.transaction * max(h.keys, 1) + h.reads.key
    order = np.lexsort((h.reads.count, code))
    code = code[order]
    first = np.ones(len(code), dtype=np.bool_)
    first[1:] = np.diff(code) != 0
    order, code = order[first], code[first]
    wanted = transaction * max(h.keys, 1) + key
    if not len(code):
        return np.full(len(wanted), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(code, wanted), len(code) - 1)
    found: I64 = np.where(code[at] == wanted, order[at], -1)
    return found
