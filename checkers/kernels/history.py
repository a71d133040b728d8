"""One partition's tables as arrays.

This is the only module of the linearizability kernel that reads tables, strings and nulls; everything after it
works on integers. Rows are put into one order (by `op_index`), so that no later result depends on how a table was
written, split or shuffled.

Implausible values are set aside here and reported later: offsets outside [0, 2^62], and records whose payload the
run did not write. A history is never refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkers.kernels.left_out import NOTHING, LeftOut
from checkers.kernels.payloads import contradicting
from checkers.kernels.words import APPEND, LATEST, OK, numbers, operation_words
from checkers.kernels.words import FAIL as FAILED

I64 = npt.NDArray[np.int64]
I8 = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]

INF_NS = 2**61
"""Stands for "never completed". Differences of two times still fit in 64 bits."""
TIME_NS_MAX = 2**60
"""Times beyond it (36 years) are garbage and are clipped, so that no difference can overflow."""
OFFSET_MAX = 2**62
"""Offsets beyond it are garbage; it leaves room for `offset + 1`."""
NONE = -(2**63)
"""Stands for "no value here"; no operation has this index."""
ABSENT = -1
"""Stands for "unknown" where the stored column is null or -1."""

OK_AT, OK_SOMEWHERE, INFO, FAIL = 0, 1, 2, 3
"""How an append ended: acknowledged at a known offset, acknowledged without one, unknown, certainly not done."""


def lookup(keys: I64) -> Callable[[I64], I64]:
    """Returns a function from keys to their positions in a strictly ascending array, -1 where absent."""
    if not len(keys):
        return lambda wanted: np.full(len(wanted), -1, dtype=np.int64)
    first, last = int(keys[0]), int(keys[-1])

    def all_inside(wanted: I64) -> bool:
        return bool(len(wanted)) and int(wanted.min()) >= first and int(wanted.max()) <= last

    if last - first == len(keys) - 1:

        def subtract(wanted: I64) -> I64:
            found: I64 = (wanted - first).astype(np.int64, copy=False)
            if not all_inside(wanted):
                found[(wanted < first) | (wanted > last)] = -1
            return found

        return subtract
    if last - first > 8 * len(keys) + 4096:

        def search(wanted: I64) -> I64:
            at = np.searchsorted(keys, wanted)
            at[at == len(keys)] = 0
            return np.where(keys[at] == wanted, at, -1).astype(np.int64)

        return search
    table = np.full(last - first + 2, -1, dtype=np.int64)
    table[keys - first] = np.arange(len(keys))

    def gather(wanted: I64) -> I64:
        if all_inside(wanted):
            known: I64 = table[wanted - first] if first else table[wanted]
            return known
        inside = (wanted >= first) & (wanted <= last)
        # The last entry of the table is always -1 and stands for everything outside.
        found: I64 = table[np.where(inside, wanted, last + 1) - first]
        return found

    return gather


@dataclass(frozen=True, kw_only=True)
class PartitionHistory:
    """What clients observed of one partition. Without slots, because it caches what several kernels derive.

    Shape:
        append_*: one row per append, ascending by op; `status` is one of OK_AT, OK_SOMEWHERE, INFO, FAIL;
            `epoch` is the leader epoch known from the response, -1 if none.
        poll_*: one row per poll, ascending by op; `end` is ABSENT where the response carried no log end; `last` is
            the largest offset it returned, ABSENT if none.
        record_*: one row per record read, ascending by (poll, offset); `poll` is a position in poll_*, -1 when
            the poll is not in the table; `trusted` means that this run wrote the payload to this partition.
        end_*: one row per observation of the log end, those of polls included; `poll` is as above, -1 for others.
        odd_*: impossible offsets: the operation that received one, and the offset.
        unordered_*: records that a poll returned right after one with a larger offset: the poll's op, their
            offset, and the offset before.
        left_out: what was left out of it because nothing is wrong with it; usually nothing.
        Times are nanoseconds since the start of the run; `res` is INF_NS while open or unknown.
    """

    append_op: I64
    append_inv: I64
    append_res: I64
    append_status: I8
    append_offset: I64
    append_acks: I64
    append_process: I64
    append_epoch: I64
    poll_op: I64
    poll_process: I64
    poll_inv: I64
    poll_res: I64
    poll_ok: Bools
    poll_final: Bools
    poll_position: I64
    poll_end: I64
    poll_last: I64
    record_poll: I64
    record_offset: I64
    record_value: I64
    record_trusted: Bools
    record_foreign: Bools
    end_op: I64
    end_process: I64
    end_inv: I64
    end_res: I64
    end_offset: I64
    end_final: Bools
    end_poll: I64
    odd_op: I64
    odd_offset: I64
    unordered_op: I64
    unordered_offset: I64
    unordered_before: I64
    left_out: LeftOut = NOTHING

    @property
    def operation_count(self) -> int:
        """How many operations there are, without observations that belong to a poll."""
        return len(self.append_op) + len(self.poll_op) + int((self.end_poll < 0).sum())

    def counts(self) -> dict[str, int]:
        """Returns how many operations of each kind and outcome there are, and how much was read; additive."""
        by_status = [np.count_nonzero(self.append_status == status) for status in range(4)]
        return {
            "operations": self.operation_count,
            "appends": len(self.append_op),
            "appends_acked": int(by_status[OK_AT] + by_status[OK_SOMEWHERE]),
            "appends_failed": int(by_status[FAIL]),
            "appends_unknown": int(by_status[INFO]),
            "polls": len(self.poll_op),
            "records_read": len(self.record_offset),
            "ends_seen": len(self.end_offset),
        }

    @cached_property
    def record_heads(self) -> I64:
        """The rows in `record_*` at which the records of another poll begin, ascending."""
        poll = self.record_poll
        if not len(poll):
            return np.empty(0, dtype=np.int64)
        return np.append(0, np.flatnonzero(poll[1:] != poll[:-1]) + 1)

    @cached_property
    def _append_lookup(self) -> Callable[[I64], I64]:
        return lookup(self.append_op)

    def append_at(self, values: I64) -> I64:
        """Returns the positions of the appends that wrote the values, -1 where there is none."""
        return self._append_lookup(values)

    @cached_property
    def record_append(self) -> I64:
        """The position of the append that wrote each record, -1 where there is none."""
        return self.append_at(self.record_value)


def _ints(table: pa.Table, name: str, *, null: int = ABSENT, rows: I64 | None = None) -> I64:
    """Returns a column of integers, or some of its rows."""
    column: Any = table.column(name)
    if column.null_count:
        column = column.fill_null(null)
    array = column.to_numpy()
    if rows is not None:
        array = array[rows]
    integers: I64 = array.astype(np.int64, copy=False)
    return integers


def stored(column: Any) -> I64:
    """Returns a column of integers as it is in memory: what a null holds means nothing."""
    parts = []
    for chunk in column.chunks:
        _, data = chunk.buffers()
        values = np.frombuffer(data, dtype=np.int64) if data else np.empty(0, dtype=np.int64)
        parts.append(values[chunk.offset : chunk.offset + len(chunk)])
    if len(parts) == 1:
        only: I64 = parts[0]
        return only
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _is_valid(table: pa.Table, name: str) -> Bools:
    valid: Bools = table.column(name).is_valid().to_numpy()
    return valid


def _clipped(times: I64) -> I64:
    if not len(times) or (times.min() >= -TIME_NS_MAX and times.max() <= TIME_NS_MAX):
        return times
    beyond = (times > TIME_NS_MAX) & (times != INF_NS) | (times < -TIME_NS_MAX)
    if beyond.any():
        times = np.where(beyond, np.clip(times, -TIME_NS_MAX, TIME_NS_MAX), times)
    return times


def _completions(operations: pa.Table, is_bound: Bools) -> I64:
    """Returns when the operations completed; INF_NS for those that are open, or whose end bounds nothing."""
    column = operations.column("completed_ns")
    is_open = ~is_bound
    if column.null_count:
        is_open |= ~_is_valid(operations, "completed_ns")
    unknown = np.flatnonzero(is_open)
    times = stored(column).copy()
    times[unknown] = 0
    times = _clipped(times)
    times[unknown] = INF_NS
    return times


def is_word(column: Any, word: str) -> Bools:
    """Returns which rows of a string column hold a word."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(pa.string())
    same: Any = pc.equal(column, pa.scalar(word))
    if same.null_count:
        same = same.fill_null(False)
    bools: Bools = same.to_numpy()
    return bools


def _bools(table: pa.Table, name: str) -> Bools:
    column: Any = table.column(name)
    if column.null_count:
        column = column.fill_null(False)
    bools: Bools = column.to_numpy()
    return bools


def by_op_index(operations: pa.Table) -> pa.Table:
    """Returns the operations in order of `op_index`; each has one row (`checkers.kernels.validation`)."""
    op = _ints(operations, "op_index")
    if len(op) < 2 or bool((op[1:] > op[:-1]).all()):
        return operations
    return operations.take(pa.array(np.argsort(op, kind="stable")))


def _append_status(is_ok: Bools, is_fail: Bools, acks: I64, offset: I64) -> tuple[I8, Bools]:
    """Returns the status of every append, and which of them were acknowledged at an impossible offset."""
    impossible = is_ok & ((offset < ABSENT) | (offset > OFFSET_MAX))
    # Without acknowledgements a success only means that the bytes left; that is an `info`.
    has_response = is_ok & (acks != 0) & ~impossible
    # Arithmetic instead of masks, as in `words`.
    status = np.full(len(acks), INFO, dtype=np.int8)
    status += is_fail.view(np.int8) * np.int8(FAIL - INFO)
    status += (has_response & (offset == ABSENT)).view(np.int8) * np.int8(OK_SOMEWHERE - INFO)
    status += (has_response & (offset >= 0)).view(np.int8) * np.int8(OK_AT - INFO)
    return status, impossible


def _last_offsets(record_poll: I64, record_offset: I64, poll_op: I64, left_out: LeftOut) -> I64:
    last = np.full(len(poll_op), ABSENT, dtype=np.int64)
    if len(record_poll):
        is_last = np.append(record_poll[1:] != record_poll[:-1], True) & (record_poll >= 0)
        rows = np.flatnonzero(is_last)
        last[record_poll[rows]] = record_offset[rows]
    if len(left_out.poll_op):
        poll = lookup(poll_op)(left_out.poll_op)
        last[poll[poll >= 0]] = left_out.poll_last[poll >= 0]
    return last


@dataclass(frozen=True, slots=True, kw_only=True)
class _Records:
    op: I64
    offset: I64
    value: I64
    trusted: Bools
    foreign: Bools
    poll: I64
    append: I64


def _read_records(
    records: pa.Table,
    poll_at: Callable[[I64], I64],
    append_at: Callable[[I64], I64],
    operations: pa.Table,
    appends: I64,
    known: Bools | None,
) -> tuple[_Records, tuple[I64, I64, I64]]:
    """Returns the records in order of their offsets, and those that a poll returned in another order.

    Args:
        records: The table.
        poll_at: Returns the positions of polls by their `op_index`.
        append_at: Returns those of appends.
        operations: The table, in order.
        appends: Its rows that are appends.
        known: Records that are known to contradict their append; None if there are none.
    """
    op = _ints(records, "op_index")
    index = records.column("index_in_poll").to_numpy()
    offset = _ints(records, "offset")
    value = _ints(records, "value")
    trusted = numbers(records.column("status"), ("ok",)) == 0
    append = append_at(value)
    changed = contradicting(records, operations, append, appends)
    if known is not None:
        changed |= known
    foreign = (
        np.zeros(len(op), dtype=np.bool_)
        if trusted.all()
        else is_word(records.column("status"), "foreign")
    )
    trusted &= ~changed
    poll = poll_at(op)
    same = poll[1:] == poll[:-1]
    ordered = (poll[1:] > poll[:-1]) | (
        same & (offset[1:] > offset[:-1]) & (index[1:] > index[:-1])
    )
    unordered = (op[:0], offset[:0], offset[:0])
    if not ordered.all():
        unordered = _unordered(op, index, offset)
        order = np.lexsort((foreign, ~trusted, value, offset, op, poll))
        op, offset, value, poll = op[order], offset[order], value[order], poll[order]
        trusted, foreign, append = trusted[order], foreign[order], append[order]
    found = _Records(
        op=op,
        offset=offset,
        value=value,
        trusted=trusted,
        foreign=foreign,
        poll=poll,
        append=append,
    )
    return found, unordered


def _unordered(op: I64, index: I64, offset: I64) -> tuple[I64, I64, I64]:
    """Returns op and offset of records that came right after a larger offset of the same poll, and that offset."""
    order = np.lexsort((index, op))
    op, offset = op[order], offset[order]
    at = np.flatnonzero((op[1:] == op[:-1]) & (offset[1:] < offset[:-1])) + 1
    return op[at], offset[at], offset[at - 1]


def _keep(records: _Records, rows: Bools) -> _Records:
    return _Records(
        op=records.op[rows],
        offset=records.offset[rows],
        value=records.value[rows],
        trusted=records.trusted[rows],
        foreign=records.foreign[rows],
        poll=records.poll[rows],
        append=records.append[rows],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Calls:
    """Operations in order of `op_index`; an offset that is absent may hold any number."""

    op: I64
    inv: I64
    res: I64
    offset: I64
    end_offset: I64
    has_offset: Bools
    has_end_offset: Bools
    is_append: Bools
    is_latest: Bools
    is_poll: Bools
    is_ok: Bools
    is_failed: Bools

    @property
    def reports_end(self) -> Bools:
        """Which responses carried a log end: only null is "none", -1 is an impossible offset."""
        has_end = (self.is_latest & self.has_offset) | (self.is_poll & self.has_end_offset)
        return self.is_ok & has_end

    def reported_end(self, rows: I64) -> I64:
        """Returns the log ends in some responses that carried one."""
        return np.where(self.is_latest[rows], self.offset[rows], self.end_offset[rows])


def _read_calls(operations: pa.Table) -> _Calls:
    words = operation_words(operations)
    is_append, is_latest, is_ok = words.kind == APPEND, words.kind == LATEST, words.outcome == OK
    is_poll = ~(is_append | is_latest)
    return _Calls(
        op=_ints(operations, "op_index"),
        inv=_clipped(_ints(operations, "invoked_ns", null=0)),
        # A definite effect with an unknown end must not bound anything. But the records that a poll returned were
        # there when it ended, whatever its outcome.
        res=_completions(operations, is_ok | is_poll),
        offset=stored(operations.column("offset")),
        end_offset=stored(operations.column("end_offset")),
        has_offset=_is_valid(operations, "offset"),
        has_end_offset=_is_valid(operations, "end_offset"),
        is_append=is_append,
        is_latest=is_latest,
        is_poll=is_poll,
        is_ok=is_ok,
        is_failed=words.outcome == FAILED,
    )


def _read_ends(calls: _Calls, reports_end: Bools, end_offsets_seen: pa.Table) -> tuple[I64, I64]:
    """Returns rows and log ends: those in responses, then those that only the table of observations holds."""
    seen_op, seen_end = _ints(end_offsets_seen, "op_index"), _ints(end_offsets_seen, "end_offset")
    row = lookup(calls.op)(seen_op)
    known = row >= 0
    # What a request received that did not succeed need not be the log end.
    known[known] = calls.is_ok[row[known]]
    if not known.all():
        row, seen_end = row[known], seen_end[known]
    extra = np.flatnonzero(~reports_end[row] | (calls.reported_end(row) != seen_end))
    reported = np.flatnonzero(reports_end)
    rows = np.concatenate((reported, row[extra]))
    return rows, np.concatenate((calls.reported_end(reported), seen_end[extra]))


def read_history(
    operations: pa.Table,
    records_read: pa.Table,
    end_offsets_seen: pa.Table,
    left_out: LeftOut = NOTHING,
    changed: Bools | None = None,
) -> PartitionHistory:
    """Turns the tables of one partition into arrays.

    Args:
        operations: Rows of one partition, in any order.
        records_read: Likewise.
        end_offsets_seen: Likewise. Rows that repeat a row of `operations` are counted once.
        left_out: What was left out of the tables.
        changed: Which records contradict an append that is not in the tables; None for none.

    Shape:
        The columns that are read are those of `harness.history.schema`; `topic` and `partition` are not read. The
        tables hold what `checkers.kernels.validation` allows.
    """
    operations = by_op_index(operations)
    calls = _read_calls(operations)
    op, inv, res, is_ok = calls.op, calls.inv, calls.res, calls.is_ok
    final, process = _bools(operations, "final"), _ints(operations, "process")
    # Positions instead of masks: kinds are in random order, and then a mask costs several times as much.
    a, p = np.flatnonzero(calls.is_append), np.flatnonzero(calls.is_poll)
    append_op, poll_op = op[a], op[p]
    acks, append_offset = _ints(operations, "acks", rows=a), calls.offset[a]
    append_offset[np.flatnonzero(~calls.has_offset[a])] = ABSENT
    status, impossible = _append_status(is_ok[a], calls.is_failed[a], acks, append_offset)
    # A success that proves nothing has no end either: with acks=0 the append may happen later.
    append_res = res[a]
    append_res[np.flatnonzero(status == INFO)] = INF_NS
    append_at = lookup(append_op)
    records, unordered = _read_records(
        records_read, lookup(poll_op), append_at, operations, a, changed
    )
    odd_op, odd_offset = [append_op[impossible]], [append_offset[impossible]]
    if len(records.offset) and (records.offset.min() < 0 or records.offset.max() > OFFSET_MAX):
        believable = (records.offset >= 0) & (records.offset <= OFFSET_MAX)
        odd_op.append(records.op[~believable])
        odd_offset.append(records.offset[~believable])
        records = _keep(records, believable)
    reports_end = calls.reports_end
    e, end_offset = _read_ends(calls, reports_end, end_offsets_seen)
    bad = (end_offset < 0) | (end_offset > OFFSET_MAX)
    if bad.any():
        odd_op.append(op[e][bad])
        odd_offset.append(end_offset[bad])
        e, end_offset = e[~bad], end_offset[~bad]
    poll_at = np.full(len(op), -1, dtype=np.int64)
    poll_at[p] = np.arange(len(p))
    poll_end = calls.end_offset[p]
    poll_end[~reports_end[p] | (poll_end < ABSENT) | (poll_end > OFFSET_MAX)] = ABSENT
    history = PartitionHistory(
        append_op=append_op,
        append_inv=inv[a],
        append_res=append_res,
        append_status=status,
        append_offset=append_offset,
        append_acks=acks,
        append_process=process[a],
        append_epoch=_ints(operations, "leader_epoch", rows=a),
        poll_op=poll_op,
        poll_process=process[p],
        poll_inv=inv[p],
        poll_res=res[p],
        poll_ok=is_ok[p],
        poll_final=final[p],
        poll_position=_ints(operations, "position", rows=p),
        poll_end=poll_end,
        poll_last=_last_offsets(records.poll, records.offset, poll_op, left_out),
        record_poll=records.poll,
        record_offset=records.offset,
        record_value=records.value,
        record_trusted=records.trusted,
        record_foreign=records.foreign,
        end_op=op[e],
        end_process=process[e],
        end_inv=inv[e],
        end_res=res[e],
        end_offset=end_offset,
        end_final=final[e],
        end_poll=poll_at[e],
        odd_op=np.concatenate(odd_op),
        odd_offset=np.concatenate(odd_offset),
        unordered_op=unordered[0],
        unordered_offset=unordered[1],
        unordered_before=unordered[2],
        left_out=left_out,
    )
    # Known already; the cached properties find them there.
    vars(history).update(_append_lookup=append_at, record_append=records.append)
    return history
