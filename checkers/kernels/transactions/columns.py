"""Transactions as columns, and how to make them from Python values.

A *transaction* is a list of micro-operations that take effect together or not at all. There are two data models:

- *list-append*: a key holds a list. A write appends one value to it, a read returns the whole list.
- *log*: a key is a partition of a topic. A write sends one record and may learn its offset, a read is one
  partition's part of a poll and returns (offset, value) pairs; `OFFSETS` is the commit of a consumer position.

Both have the same form: every micro-operation has *elements*, which are values with offsets (ABSENT if there is
none). Values are unique per key: a workload never writes the same value to one key twice.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from checkers.kernels.history import ABSENT, I8, I64, INF_NS, TIME_NS_MAX, Bools
from harness.errors import HistoryError

COMMITTED, ABORTED, UNKNOWN = 0, 1, 2
"""How a transaction ended; Jepsen calls it ok, fail and info."""

WRITE, READ, OFFSETS = 0, 1, 2
"""What a micro-operation does: append or send; read or poll; commit a consumer position."""

OUTCOMES = {
    "committed": COMMITTED,
    "ok": COMMITTED,
    "aborted": ABORTED,
    "fail": ABORTED,
    "unknown": UNKNOWN,
    "info": UNKNOWN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """A history of transactions as arrays.

    Attributes:
        id: Number of the transaction in the history; unique, not negative.
        process: The logically single-threaded client that ran it.
        invoked_ns, completed_ns: When it began and ended; `INF_NS` if it never ended.
        commit_invoked_ns: When its commit was requested; `invoked_ns` if that was not recorded.
        ended_event: Number of the event that ended it, if its id is the number of the event that began it and all
            events are numbered in the order in which they happened. ABSENT without such numbers, or if it never
            ended.
        session: The consumer that polled, usually the process. Its position is forgotten when partitions are
            assigned anew, so a new assignment begins a new session. ABSENT if partitions were assigned anew while
            the transaction ran; the order of its polls is then not checked.
        group: The consumer group whose positions it commits, ABSENT for none.
        is_final: Whether it is one of the closing reads of logs. They begin when no transaction is open any more,
            and together read every partition from its first record to its end.
        outcome: COMMITTED, ABORTED or UNKNOWN.
        op_transaction: Row of the transaction that the micro-operation belongs to.
        op_number: Place in the transaction. The partitions of one poll have the same number.
        op_kind: WRITE, READ or OFFSETS.
        op_key: Index in `key_names`.
        op_is_known: Whether the result of a read is known; true for all others.
        op_count: How many elements it has: one for a write or an offset commit, any number for a read.
        element_value: The values in the order in which they were returned; ABSENT in an offset commit.
        element_offset: Their offsets. In an offset commit the next offset to consume.
        key_names: What sentences call the keys.
        value_names: What sentences call the values; empty if a value is called by its number.

    Shape:
        One row per transaction, then one per micro-operation, then one per element. The elements of
        micro-operation i follow those of i-1. Transactions, and micro-operations with their elements, are in
        any order.
    """

    id: I64
    process: I64
    invoked_ns: I64
    completed_ns: I64
    commit_invoked_ns: I64
    ended_event: I64
    session: I64
    group: I64
    is_final: Bools
    outcome: I8
    op_transaction: I64
    op_number: I64
    op_kind: I8
    op_key: I64
    op_is_known: Bools
    op_count: I64
    element_value: I64
    element_offset: I64
    key_names: tuple[str, ...]
    value_names: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many transactions there are."""
        return len(self.id)

    @property
    def op_start(self) -> I64:
        """The first element of each micro-operation, and one more entry for the end."""
        return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.op_count)])

    def value_name(self, value: int) -> str:
        """Returns what sentences call a value."""
        return self.value_names[value] if self.value_names else str(value)


@dataclass(frozen=True, slots=True)
class Append:
    """Appends a value to a list, or sends it to a partition.

    Attributes:
        key: The list or partition.
        value: Unique for the key.
        offset: Where the log put it, None if unknown.
    """

    key: int | str
    value: int | str
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """Reads a whole list; `values` is None if the result is unknown."""

    key: int | str
    values: tuple[int | str, ...] | None


@dataclass(frozen=True, slots=True)
class Poll:
    """Polls records.

    Attributes:
        records: (key, offset, value) in the order in which the poll returned them.
    """

    records: tuple[tuple[int | str, int, int | str], ...]


@dataclass(frozen=True, slots=True)
class CommitOffset:
    """Commits, inside the transaction, the next offset that its consumer group has to consume."""

    key: int | str
    offset: int


MicroOperation = Append | Read | Poll | CommitOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One transaction as a value; the attributes mean what those of `Transactions` mean.

    Attributes:
        outcome: "committed", "aborted" or "unknown"; Jepsen's "ok", "fail" and "info" mean the same.
        process: None if it is the only transaction of its process; the id then stands for the process.
        completed_ns: None if it never completed.
        commit_invoked_ns: None if it was not recorded.
        ended_event: None without numbers of events, or if it never ended.
        session: None for the process itself.
        group: None for none.
    """

    id: int
    ops: tuple[MicroOperation, ...]
    process: int | None = None
    invoked_ns: int = 0
    completed_ns: int | None = None
    outcome: str = "committed"
    commit_invoked_ns: int | None = None
    ended_event: int | None = None
    session: int | None = None
    group: int | None = None
    is_final: bool = False


def transactions_of(history: Iterable[Transaction]) -> Transactions:
    """Returns a history as columns.

    Args:
        history: The transactions, in any order.

    Raises:
        HistoryError: An id occurs twice or is negative, an outcome is unknown, or a time is impossible.
    """
    rows = list(history)
    ops: list[tuple[int, int, int, int | str, bool, int]] = []
    values: list[int | str | None] = []
    offsets: list[int] = []
    for row, transaction in enumerate(rows):
        if transaction.outcome not in OUTCOMES:
            known = ", ".join(OUTCOMES)
            raise HistoryError(
                f"transaction {transaction.id}: outcome {transaction.outcome!r} is none of {known}"
            )
        for number, micro in enumerate(transaction.ops):
            for kind, key, known_result, elements in _parts(micro):
                ops.append((row, number, kind, key, known_result, len(elements)))
                offsets += [offset for offset, _ in elements]
                values += [value for _, value in elements]
    key_names = _names(op[3] for op in ops)
    key_index = {name: index for index, name in enumerate(key_names)}
    value_codes, value_names = _coded(values)
    return normalised(
        Transactions(
            id=_ints(t.id for t in rows),
            process=_ints(_process(t) for t in rows),
            invoked_ns=_ints(t.invoked_ns for t in rows),
            completed_ns=_ints(INF_NS if t.completed_ns is None else t.completed_ns for t in rows),
            commit_invoked_ns=_ints(
                t.invoked_ns if t.commit_invoked_ns is None else t.commit_invoked_ns for t in rows
            ),
            ended_event=_ints(ABSENT if t.ended_event is None else t.ended_event for t in rows),
            session=_ints(_process(t) if t.session is None else t.session for t in rows),
            group=_ints(ABSENT if t.group is None else t.group for t in rows),
            is_final=np.array([t.is_final for t in rows], dtype=np.bool_),
            outcome=np.array([OUTCOMES[t.outcome] for t in rows], dtype=np.int8),
            op_transaction=_ints(op[0] for op in ops),
            op_number=_ints(op[1] for op in ops),
            op_kind=np.array([op[2] for op in ops], dtype=np.int8),
            op_key=_ints(key_index[op[3]] for op in ops),
            op_is_known=np.array([op[4] for op in ops], dtype=np.bool_),
            op_count=_ints(op[5] for op in ops),
            element_value=value_codes,
            element_offset=_ints(offsets),
            key_names=tuple(str(name) for name in key_names),
            value_names=value_names,
        )
    )


def _process(transaction: Transaction) -> int:
    return transaction.id if transaction.process is None else transaction.process


def normalised(transactions: Transactions) -> Transactions:
    """Returns the same history in one order: transactions by id, micro-operations by place and key.

    Raises:
        HistoryError: The columns contradict each other; the message names the transaction.
    """
    t = transactions
    _validate(t)
    order = np.argsort(t.id, kind="stable")
    row_of = np.empty(t.count, dtype=np.int64)
    row_of[order] = np.arange(t.count)
    op_transaction = row_of[t.op_transaction] if len(t.op_transaction) else t.op_transaction
    op_order = np.lexsort((t.op_key, t.op_number, op_transaction))
    _reject_repeated_parts(t, op_order)
    if (np.diff(order) > 0).all() and (np.diff(op_order) > 0).all():
        return t
    count = t.op_count[op_order]
    start = np.cumsum(count) - count
    element = np.arange(int(count.sum())) + np.repeat(t.op_start[:-1][op_order] - start, count)
    return replace(
        t,
        id=t.id[order],
        process=t.process[order],
        invoked_ns=t.invoked_ns[order],
        completed_ns=t.completed_ns[order],
        commit_invoked_ns=t.commit_invoked_ns[order],
        ended_event=t.ended_event[order],
        session=t.session[order],
        group=t.group[order],
        is_final=t.is_final[order],
        outcome=t.outcome[order],
        op_transaction=op_transaction[op_order],
        op_number=t.op_number[op_order],
        op_kind=t.op_kind[op_order],
        op_key=t.op_key[op_order],
        op_is_known=t.op_is_known[op_order],
        op_count=count,
        element_value=t.element_value[element],
        element_offset=t.element_offset[element],
    )


def _validate(t: Transactions) -> None:
    for name in (
        *("process", "invoked_ns", "completed_ns", "commit_invoked_ns"),
        *("ended_event", "session", "group"),
    ):
        _require(len(getattr(t, name)) == t.count, f"{name} has not one row per transaction")
    _require(len(t.is_final) == len(t.outcome) == t.count, "not one outcome per transaction")
    ops = len(t.op_transaction)
    for name in ("op_number", "op_kind", "op_key", "op_is_known", "op_count"):
        _require(len(getattr(t, name)) == ops, f"{name} has not one row per micro-operation")
    if t.count:
        _reject(t, t.id < 0, "has a negative id")
        _, row, count = np.unique(t.id, return_index=True, return_counts=True)
        repeated = np.zeros(t.count, dtype=np.bool_)
        repeated[row[count > 1]] = True
        _reject(t, repeated, "occurs twice")
        known = np.where(t.completed_ns == INF_NS, 0, t.completed_ns)
        is_far = (np.abs(t.invoked_ns) > TIME_NS_MAX) | (np.abs(known) > TIME_NS_MAX)
        _reject(t, is_far, "has a time beyond 2^60 ns")
        _reject(t, t.completed_ns < t.invoked_ns, "completed before it was invoked")
        _reject(t, t.commit_invoked_ns < t.invoked_ns, "requested its commit before it was invoked")
        _reject(t, ~np.isin(t.outcome, (COMMITTED, ABORTED, UNKNOWN)), "has an unknown outcome")
    if not ops:
        _require(not len(t.element_value), "elements without a micro-operation")
        return
    is_outside = (t.op_transaction < 0) | (t.op_transaction >= t.count)
    _require(not is_outside.any(), "a micro-operation belongs to no transaction")
    is_strange = (t.op_key < 0) | (t.op_key >= len(t.key_names)) | (t.op_count < 0)
    is_strange |= ~np.isin(t.op_kind, (WRITE, READ, OFFSETS))
    is_strange |= (t.op_kind != READ) & (t.op_count != 1)
    is_strange |= ~t.op_is_known & ((t.op_kind != READ) | (t.op_count > 0))
    at = np.zeros(t.count, dtype=np.bool_)
    at[t.op_transaction[is_strange]] = True
    _reject(t, at, "has a micro-operation with an impossible kind, key or number of elements")
    total = int(t.op_count.sum())
    _require(
        len(t.element_value) == len(t.element_offset) == total,
        "op_count and the elements have different lengths",
    )


def _reject_repeated_parts(t: Transactions, order: I64) -> None:
    """Refuses two micro-operations in the same place, because their order would depend on the order of rows."""
    same = np.ones(max(len(order) - 1, 0), dtype=np.bool_)
    for column in (t.op_key, t.op_number, t.op_transaction):
        same &= np.diff(column[order]) == 0
    is_bad = np.zeros(t.count, dtype=np.bool_)
    is_bad[t.op_transaction[order[1:][same]]] = True
    _reject(t, is_bad, "has two micro-operations with the same number and key")


def _require(condition: bool, objection: str) -> None:
    if not condition:
        raise HistoryError(f"transactions: {objection}; correct what produced these columns")


def _reject(t: Transactions, is_bad: Bools, objection: str) -> None:
    if is_bad.any():
        first = int(t.id[is_bad].min())
        raise HistoryError(f"transaction {first} {objection}; correct the history at that line")


Element = tuple[int, int | str | None]
"""An offset and a value; None where there is no value."""


def _parts(micro: MicroOperation) -> list[tuple[int, int | str, bool, list[Element]]]:
    """Returns (kind, key, is_known, elements) of a micro-operation; a poll has one part per key."""
    if isinstance(micro, Append):
        offset = ABSENT if micro.offset is None else micro.offset
        return [(WRITE, micro.key, True, [(offset, micro.value)])]
    if isinstance(micro, CommitOffset):
        return [(OFFSETS, micro.key, True, [(micro.offset, None)])]
    if isinstance(micro, Read):
        listed: list[Element] = [(ABSENT, value) for value in micro.values or ()]
        return [(READ, micro.key, micro.values is not None, listed)]
    parts: dict[int | str, list[Element]] = {}
    for key, offset, value in micro.records:
        parts.setdefault(key, []).append((offset, value))
    return [(READ, key, True, elements) for key, elements in parts.items()]


def _ints(values: Iterable[int]) -> I64:
    try:
        return np.array(list(values), dtype=np.int64)
    except OverflowError as error:
        raise HistoryError("a number in a transaction does not fit in 64 bits") from error


def _names(names: Iterable[int | str]) -> list[int | str]:
    """Returns distinct names: numbers first, each kind ascending."""
    return sorted(set(names), key=lambda name: (isinstance(name, str), name))


def _coded(values: list[int | str | None]) -> tuple[I64, tuple[str, ...]]:
    """Returns values as numbers, with their names if some value is no number."""
    given = [value for value in values if value is not None]
    if all(isinstance(value, int) for value in given):
        return _ints(ABSENT if value is None else int(value) for value in values), ()
    names = _names(given)
    index: dict[int | str | None, int] = {name: number for number, name in enumerate(names)}
    index[None] = ABSENT
    return _ints(index[value] for value in values), tuple(str(name) for name in names)
