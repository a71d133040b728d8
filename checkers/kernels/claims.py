"""Which record an operation shows at an offset, when it was established there, and in which leader epochs.

A client learns late what was true before, so neither the time of a response nor that of a read says when a record
came to its place. In order of certainty:

- the epoch stamped on the record's batch (from any read of it), and the leader that wrote at that offset while
  the append was open, identify the record in the recorded logs;
- the high watermark of a leader that had the record passed its offset: then it was established;
- otherwise it was established between the invocation of its append and the first response that shows it. What a
  leader returns was true before the next leader epoch, even if it has not learned of that yet.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.kernels.columns import Columns, find_pairs, heads
from checkers.kernels.elections import Elections
from checkers.kernels.fates import Claims, Written
from checkers.kernels.history import (
    ABSENT,
    I64,
    INF_NS,
    NONE,
    OK_AT,
    Bools,
    PartitionHistory,
    by_op_index,
    is_word,
    lookup,
)
from checkers.kernels.log_contents import ANY_EPOCH
from checkers.kernels.refusals import int_column, text_column
from checkers.kernels.replaced import may_be_replaced_ns
from checkers.kernels.words import APPEND, OK, POLL, numbers, operation_words
from harness.history.op import FETCHED_AHEAD

Write = tuple[int, int]
"""The epoch of a leader that wrote at an offset, and when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """What reads show: one row per distinct (value, offset), ascending.

    Shape:
        seen_ns: when the first read of it completed; by_ns: when that read was true at the latest;
        stamp: the epoch on its batch, -1 if none;
        first_epoch, last_epoch: the smallest and largest leader epoch of a response that shows it, -1 if none.
        read_ns: See `Claims`.
    """

    value: I64
    offset: I64
    seen_ns: I64
    by_ns: I64
    stamp: I64
    first_epoch: I64
    last_epoch: I64
    read_ns: I64

    def find(self, value: I64, offset: I64) -> tuple[I64, Bools]:
        """Returns the rows of pairs, and which of them are there."""
        if not len(self.value):
            return np.zeros(len(value), dtype=np.int64), np.zeros(len(value), dtype=np.bool_)
        return find_pairs(self.value, self.offset, value, offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Calls:
    """Operations, ascending by op.

    Shape:
        completed_ns: infinity unless it succeeded or is a poll; by_ns: when what it returned was true at last;
        epoch: in which leader epoch, -1 if that is not known; read_ns: when it was certainly not read yet.
    """

    op: I64
    is_append: Bools
    is_poll: Bools
    invoked_ns: I64
    completed_ns: I64
    by_ns: I64
    epoch: I64
    read_ns: I64

    def row_of(self, ops: I64) -> I64:
        return lookup(self.op)(ops)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reads(Columns):
    """Records that reads returned and whose payload can be trusted, ascending by operation and offset."""

    op: I64
    offset: I64
    value: I64
    stamp: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What clients know of records.

    Shape:
        value: one row per record, as in all others; is_written: whether its append is known;
        hint: the epoch in which a leader wrote it if one did then and no batch shows it, -1 if none is known (if
            producers send again, that of the leader that responded, which may have had it before);
        is_only_written: whether a response with acks=1 alone shows it, so that it need not have been established;
        is_polled: whether a poll shows it, to which a follower may have responded;
        written_ns: when the first response arrived that shows that it was written; seen_ns: that shows that it
        was established.
    """

    value: I64
    is_written: Bools
    hint: I64
    is_only_written: Bools
    is_polled: Bools
    written_ns: I64
    seen_ns: I64
    claims: Claims


class ClaimReader:
    """Reads claims about records from one partition's tables.

    Args:
        history: The partition.
        operations, records_read: The rows it was read from, in any order.
        elections: Of the same partition.
        sent_again: Whether producers may have sent appends again, so that an append may have records in two logs.
        compacted: Whether a cleaner removes a record after a later one of its key was committed.
        clock_error_ns: Largest difference between two clocks that stamped operations.
    """

    def __init__(
        self,
        history: PartitionHistory,
        operations: pa.Table,
        records_read: pa.Table,
        elections: Elections,
        *,
        sent_again: bool,
        compacted: bool,
        clock_error_ns: int,
    ) -> None:
        self._history = history
        self.sent_again = sent_again
        self._compacted = compacted
        self._clock_error_ns = clock_error_ns
        self._operations = operations
        self._records_read = records_read
        self._elections = elections
        self._writers: dict[int, dict[int, set[Write]]] = {}

    @cached_property
    def _calls(self) -> _Calls:
        columns = by_op_index(self._operations)
        words = operation_words(columns)
        op = columns.column("op_index").to_numpy()
        # Of two rows of one operation the last one counts, as in the history.
        rows = np.flatnonzero(np.append(op[1:] != op[:-1], True)[: len(op)])
        is_append = (words.kind == APPEND)[rows]
        # Reads are fenced by leader epoch, so the epoch of their response is certain. Produce is not.
        stored = columns.column("leader_epoch").to_numpy().astype(np.int64)[rows]
        epoch = np.where(is_append | (stored < 0), -1, stored)
        invoked_ns = columns.column("invoked_ns").to_numpy()[rows]
        completed_ns = columns.column("completed_ns").fill_null(INF_NS).to_numpy()[rows]
        is_poll = (words.kind == POLL)[rows]
        # The records of a poll were there when it ended, whatever its outcome.
        is_bound = (words.outcome == OK)[rows] | is_poll
        completed_ns = np.where(is_bound, completed_ns, INF_NS)
        ends = self._elections.epoch_ends(epoch)
        return _Calls(
            op=op[rows],
            is_append=is_append,
            is_poll=is_poll,
            invoked_ns=invoked_ns,
            completed_ns=completed_ns,
            by_ns=np.where(epoch >= 0, np.minimum(completed_ns, ends), completed_ns),
            epoch=epoch,
            read_ns=np.where(stored == FETCHED_AHEAD, -INF_NS, invoked_ns),
        )

    @cached_property
    def _reads(self) -> _Reads:
        table = self._records_read
        trusted = np.flatnonzero(numbers(table.column("status"), ("ok",)) == 0)
        op, offset, value, stamp = (
            table.column(name).to_numpy()[trusted].astype(np.int64, copy=False)
            for name in ("op_index", "offset", "value", "leader_epoch")
        )
        is_later = (op[1:] > op[:-1]) | ((op[1:] == op[:-1]) & (offset[1:] > offset[:-1]))
        if is_later.all():
            return _Reads(op=op, offset=offset, value=value, stamp=stamp)
        order = np.lexsort((value, offset, op))
        return _Reads(op=op[order], offset=offset[order], value=value[order], stamp=stamp[order])

    @cached_property
    def _shown(self) -> _Shown:
        reads, calls = self._reads, self._calls
        order = np.lexsort((reads.offset, reads.value))
        value, offset = reads.value[order], reads.offset[order]
        row = calls.row_of(reads.op[order])
        starts = np.flatnonzero(heads(value, offset))
        epoch = _at(calls.epoch, row, -1)

        def smallest(column: I64) -> I64:
            least: I64 = np.minimum.reduceat(column, starts) if len(starts) else column
            return least

        first = smallest(np.where(epoch < 0, ANY_EPOCH, epoch))
        return _Shown(
            value=value[starts],
            offset=offset[starts],
            seen_ns=smallest(_at(calls.completed_ns, row, INF_NS)),
            by_ns=smallest(_at(calls.by_ns, row, INF_NS)),
            stamp=-smallest(-reads.stamp[order]),
            first_epoch=np.where(first == ANY_EPOCH, -1, first),
            last_epoch=-smallest(-epoch),
            read_ns=-smallest(np.where(epoch < 0, -_at(calls.read_ns, row, -INF_NS), INF_NS)),
        )

    @cached_property
    def written(self) -> Written:
        """What reads show of which epoch wrote at which offset."""
        return Written.of(self._reads.stamp, self._reads.offset)

    def values(self, ops: I64, offsets: I64) -> I64:
        """Returns the value that each operation shows at an offset: its own, or one it read; NONE for neither."""
        calls, reads = self._calls, self._reads
        is_append = _at(calls.is_append, calls.row_of(ops), 0).astype(np.bool_)
        values = np.where(is_append, ops, NONE)
        if len(reads.op):
            at, there = find_pairs(reads.op, reads.offset, ops, offsets)
            values = np.where(there & ~is_append, reads.value[at], values)
        return values

    def were_fetched_ahead(self, ops: I64) -> Bools:
        """Returns which polls may have got their records before they began."""
        calls = self._calls
        fetched_ahead: Bools = _at(calls.read_ns, calls.row_of(ops), 0) == -INF_NS
        return fetched_ahead

    def last_epochs(self, values: I64, offsets: I64) -> I64:
        """Returns the largest known epoch of a leader that showed each record at its offset, -1 for none."""
        at, there = self._shown.find(values, offsets)
        return _at(self._shown.last_epoch, np.where(there, at, -1), -1)

    def last_reads(self, values: I64, offsets: I64) -> I64:
        """Returns the operation that read each record at its offset in the newest batch, ABSENT if none did."""
        reads = self._reads
        if not len(reads.op):
            return np.full(len(values), ABSENT, dtype=np.int64)
        order = np.lexsort((reads.op, reads.stamp, reads.offset, reads.value))
        value, offset = reads.value[order], reads.offset[order]
        is_last = np.append((value[1:] != value[:-1]) | (offset[1:] != offset[:-1]), True)
        at, there = find_pairs(value[is_last], offset[is_last], values, offsets)
        return np.where(there, reads.op[order][is_last][at], ABSENT)

    def may_be_removed(self, values: I64) -> Bools:
        """Returns which records a cleaner may have removed: another append of their key may be behind them.

        Args:
            values: Those of the records.
        """
        if not self._compacted:
            return np.zeros(len(values), dtype=np.bool_)
        may_be: Bools = self.replaced_ns(values) < INF_NS
        return may_be

    def are_replaced_at_shared(self, values: I64, offsets: I64) -> Bools:
        """Returns which records a cleaner may have removed from an offset that another record had, too.

        If elections lost one of both, it is not always known which one.

        Args:
            values: Those of the records.
            offsets: Where they were.
        """
        found = np.zeros(len(values), dtype=np.bool_)
        for row in np.flatnonzero(self.have_later(values, offsets)).tolist():
            found[row] = len(self._values_at(int(offsets[row]))) > 1
        return found

    def have_later(self, values: I64, offsets: I64) -> Bools:
        """Returns behind which records of a compacted topic a client saw another one of their key.

        Args:
            values: Those of the records.
            offsets: Where they were.
        """
        if not self._compacted:
            return np.zeros(len(values), dtype=np.bool_)
        known_offset, known_value = self._by_offset
        writer, append = self._history.append_at(known_value), self._history.append_at(values)
        # What is not known to be an append has no key, and nothing replaces it.
        keys = np.append(self.keys, -1)
        last = np.full(keys.max() + 2, ABSENT)
        np.maximum.at(last, keys[writer], known_offset)
        last[-1] = ABSENT
        later: Bools = last[keys[append]] > offsets
        return later

    @cached_property
    def keys(self) -> I64:
        """A number for the key of each append, -1 if it has none."""
        columns = by_op_index(self._operations)
        codes = text_column(columns, "key").combine_chunks().dictionary_encode().indices.to_numpy()
        codes = np.where(is_word(columns.column("key"), ""), -1, codes)
        # Of two rows of one operation the last one counts.
        op = int_column(columns, "op_index")
        rows = np.searchsorted(op, self._history.append_op, side="right") - 1
        keys: I64 = codes[rows].astype(np.int64)
        return keys

    def replaced_ns(self, values: I64) -> I64:
        """Returns when the first append was invoked that may be behind each record with the same key.

        It is infinity if there is none, so that the cleaner does not remove the record.

        Args:
            values: Those of the records.
        """
        # An append that is not known has a key that is not known.
        return np.append(self._replaced_ns, -INF_NS)[self._history.append_at(values)]

    @cached_property
    def _replaced_ns(self) -> I64:
        return may_be_replaced_ns(self._history, self.keys, self._clock_error_ns)

    def claims(self, ops: I64, offsets: I64, values: I64, *, last_shown: bool = False) -> Claims:
        """Returns what is known of records.

        Args:
            ops: An operation that shows each of them.
            offsets: Where.
            values: Their values; NONE if the operation shows only that the offset exists.
            last_shown: Whether the largest epoch in which a response shows the record counts, not the smallest.
        """
        known = self._known(ops, offsets, values, last_shown=last_shown)
        return self._by_logs(known)

    def are_acked_copies(self, ops: I64, offsets: I64, values: I64) -> Bools:
        """Returns which records that polls returned are those that were acknowledged, as their batches show.

        The leader that wrote the batch acknowledged it there, with acks=all. A producer names the epoch of its
        metadata, so the leader must not have been elected again before it responded.

        Args:
            ops: A poll that returned each of them.
            offsets: Where.
            values: Their values.
        """
        history, stamp = self._history, self.stamps(ops, offsets)
        append = history.append_at(values)
        is_acked: Bools = (_at(history.append_status, append, -1) == OK_AT) & (stamp >= 0)
        is_acked &= _at(history.append_offset, append, ABSENT) == offsets
        is_acked &= _at(history.append_acks, append, 1) == -1
        is_acked &= _at(history.append_epoch, append, -1) == stamp
        is_acked &= self._elections.led_once(stamp, _at(history.append_res, append, INF_NS))
        return is_acked

    def _shown_copies(self, ops: I64, offsets: I64, values: I64) -> tuple[I64, I64]:
        """Returns when what polls show of each copy was true at the latest, and when that was shown first.

        What shows the same value at the same offset may be about another copy, so it says nothing about when this
        one was established, unless its batch or the leader that returned it is the same.

        Args:
            ops: A poll that returned each of them.
            offsets: Where.
            values: Their values.
        """
        reads, calls = self._reads, self._calls
        reads = reads.take(np.isin(reads.value, values))
        row = calls.row_of(reads.op)
        epoch = _at(calls.epoch, row, -1)
        # A copy is known by its batch, else by the leader that returned it, else by one read alone.
        no_batch = reads.stamp < 0
        is_alone = no_batch & (epoch < 0)
        copy = np.where(is_alone, reads.op, np.where(no_batch, epoch, reads.stamp))
        columns = (copy, is_alone, no_batch, reads.offset, reads.value)
        order = np.lexsort(columns)
        is_head = heads(*(column[order] for column in columns))
        own = np.empty(len(order), dtype=np.int64)
        own[order] = np.cumsum(is_head) - 1
        own = own[find_pairs(reads.op, reads.offset, ops, offsets)[0]]
        is_acked = self.are_acked_copies(ops, offsets, values)
        append = np.where(is_acked, self._history.append_at(values), -1)
        acked_ns = _at(self._history.append_res, append, INF_NS)
        by_ns, seen_ns = (
            np.minimum(
                np.minimum.reduceat(_at(column, row, INF_NS)[order], np.flatnonzero(is_head))[own],
                acked_ns,
            )
            for column in (calls.by_ns, calls.completed_ns)
        )
        return by_ns, seen_ns

    def _known(self, ops: I64, offsets: I64, values: I64, *, last_shown: bool = False) -> _Known:
        """Returns what the clients know of records."""
        calls, shown = self._calls, self._shown
        row = calls.row_of(ops)
        by_ns = _at(calls.by_ns, row, INF_NS)
        from_ns = np.minimum(_at(calls.invoked_ns, row, 0), by_ns)
        is_record = values != NONE
        append = np.where(is_record, self._history.append_at(values), -1)
        from_ns = np.where(append >= 0, _at(self._history.append_inv, append, 0), from_ns)
        is_here = (_at(self._history.append_status, append, -1) == OK_AT) & (
            _at(self._history.append_offset, append, ABSENT) == offsets
        )
        at, there = shown.find(values, offsets)
        at = np.where(there & is_record, at, -1)
        seen_ns = _at(shown.seen_ns, at, INF_NS)
        written_ns = np.where(is_here, _at(self._history.append_res, append, INF_NS), INF_NS)
        is_polled = _at(calls.is_poll, row, 0).astype(np.bool_)
        # With acks=1 the record was only written when the response came; a read shows that it was established.
        is_weak = _at(self._history.append_acks, append, -1) == 1
        acked_ns = np.where(is_weak & (at >= 0), INF_NS, written_ns)
        by_ns = np.where(is_record, np.minimum(acked_ns, _at(shown.by_ns, at, INF_NS)), by_ns)
        stamp = _at(shown.stamp, at, -1)
        shown_epoch = _at(shown.last_epoch if last_shown else shown.first_epoch, at, -1)
        written_ns, seen_ns = np.minimum(written_ns, seen_ns), np.minimum(acked_ns, seen_ns)
        low_epoch = _at(self._history.append_epoch, append, -1)
        # A leader that was elected again may have responded in a later epoch than its producer knew.
        acked_by_ns = _at(self._history.append_res, append, INF_NS)
        hint = np.where(self._elections.led_once(low_epoch, acked_by_ns), low_epoch, -1)
        if self.sent_again:
            # What another operation read there may be another record of the same append.
            stamp = self.stamps(ops, offsets)
            shown_epoch = shown_epoch if last_shown else _at(calls.epoch, row, -1)
            polled = np.flatnonzero(is_polled & is_record)
            by_ns[polled], seen_ns[polled] = self._shown_copies(
                *(column[polled] for column in (ops, offsets, values))
            )
            written_ns[polled] = seen_ns[polled]
            # What was read may have been another copy than the one that was acknowledged.
            own = np.flatnonzero(is_here & ~is_polled & ~is_weak)
            by_ns[own] = seen_ns[own] = written_ns[own] = acked_ns[own]
            # An acknowledgement that does not name this offset may be about another copy.
            hint = np.where(is_here, hint, -1)
            # A leader also responds to a copy if a leader before it wrote the record.
            low_epoch = np.full(len(append), -1, dtype=np.int64)
        return _Known(
            value=values,
            is_written=append >= 0,
            hint=hint,
            is_only_written=is_weak & (at < 0),
            is_polled=is_polled,
            written_ns=written_ns,
            seen_ns=seen_ns,
            claims=Claims(
                offset=offsets,
                low_epoch=np.where(stamp >= 0, stamp, low_epoch),
                high_epoch=np.where(stamp >= 0, stamp, ANY_EPOCH),
                from_ns=np.minimum(from_ns, by_ns),
                by_ns=by_ns,
                epoch=np.where(is_record, shown_epoch, _at(calls.epoch, row, -1)),
                read_ns=_at(shown.read_ns, at, -INF_NS),
            ),
        )

    def stamps(self, ops: I64, offsets: I64) -> I64:
        """Returns the epoch in which each operation read a record at an offset, -1 for none."""
        if not len(self._reads.op):
            return np.full(len(ops), -1, dtype=np.int64)
        at, there = find_pairs(self._reads.op, self._reads.offset, ops, offsets)
        return np.where(there, self._reads.stamp[at], -1)

    def _by_logs(self, known: _Known) -> Claims:
        """Returns the claims, with what recorded logs show of epochs and of when records were established."""
        logs, claims = self._elections.logs, known.claims
        if not logs:
            return claims
        low, high = self._epochs(known)
        if not logs.has_all_changes:
            # A high watermark is seen late, and what was at the offset then need not be this record.
            return replace(claims, low_epoch=low, high_epoch=high)
        sent_ns, written_ns = claims.from_ns.copy(), known.written_ns.copy()
        is_open = (low < high) | (known.is_written & logs.terms.wrote_again(high, claims.offset))
        for row in np.flatnonzero(is_open & (high < ANY_EPOCH)).tolist():
            writes = self._writes(known, row, low, high)
            if writes:
                low[row], high[row] = min(writes)[0], max(writes)[0]
                times = [at_ns for _, at_ns in writes]
                sent_ns[row] = max(sent_ns[row], min(times))
                written_ns[row] = min(written_ns[row], max(times))
        passed = logs.terms.passed(claims.offset, low, high, sent_ns, written_ns, known.seen_ns)
        passed_ns, epoch = passed.at_ns, passed.epoch
        is_passed = known.is_written & (passed_ns <= known.seen_ns)
        # What is shown without a record was written by some append: the leader that responded had it.
        bare = np.flatnonzero(~known.is_written)
        if len(bare):
            written, served_ns, served_by = logs.terms.served(
                *(
                    column[bare]
                    for column in (claims.offset, claims.from_ns, claims.by_ns, claims.epoch)
                )
            )
            is_news = (written < ANY_EPOCH) & (high[bare] == ANY_EPOCH)
            low[bare] = np.where(is_news, written, low[bare])
            high[bare] = np.where(is_news, written, high[bare])
            passed_ns[bare], epoch[bare], is_passed[bare] = served_ns, served_by, served_by >= 0
            # Perhaps a leader before that one had committed it. If a leader wrote there twice, as it led on with
            # less, the one that responded had the last record.
            moments = logs.terms.last_written_ns(low[bare], claims.offset[bare], served_ns)
            first = logs.terms.passed(claims.offset[bare], low[bare], high[bare], moments)
            is_first = (low == high)[bare] & (moments > -INF_NS) & (first.at_ns < served_ns)
            rows = bare[is_first]
            passed_ns[rows], epoch[rows] = first.at_ns[is_first], first.epoch[is_first]
            # If a replica may have responded whose log is not recorded, nothing shows when it got there.
            is_hidden = known.is_polled[bare] & (claims.epoch[bare] < 0)
            is_hidden &= logs.may_hide_reader(claims.from_ns[bare], claims.by_ns[bare])
            bare = bare[is_hidden]
            low[bare], high[bare], epoch[bare] = -1, ANY_EPOCH, -1
            passed_ns[bare], is_passed[bare] = -INF_NS, True
        # Without a high watermark that shows it, only the response does.
        shown_ns = np.where(known.is_written, claims.by_ns, claims.from_ns)
        at_ns = np.where(is_passed, passed_ns, shown_ns)
        perhaps_ns = np.where(known.is_written, passed.perhaps_ns, INF_NS)
        return replace(
            claims,
            low_epoch=low,
            high_epoch=high,
            from_ns=np.minimum(at_ns, perhaps_ns),
            by_ns=at_ns,
            epoch=np.where(is_passed, epoch, claims.epoch),
        )

    def _epochs(self, known: _Known) -> tuple[I64, I64]:
        """Returns between which epochs records were written: by their stamps, else by the recorded logs."""
        claims, logs = known.claims, self._elections.logs
        # Of several leaders that wrote there meanwhile, it was the one that responded to the append.
        hint, named = known.hint, known.hint
        if self.sent_again:
            # It also responds to a copy if a leader before it wrote the record.
            hint = np.where(logs.terms.may_have_had(hint, claims.offset), -1, hint)
        low, high = logs.terms.writers(claims.offset, claims.from_ns, known.written_ns, hint)
        # No leader after it did.
        high = np.where((low <= named) & (named < high), named, high)
        # A leader that shows the record has it in its log.
        shown = logs.terms.written_in_terms(claims.epoch, claims.offset)
        low, high = np.where(shown >= 0, shown, low), np.where(shown >= 0, shown, high)
        use = (known.is_written | (shown >= 0)) & (claims.high_epoch == ANY_EPOCH) & (high >= 0)
        return np.where(use, low, claims.low_epoch), np.where(use, high, claims.high_epoch)

    def _writes(self, known: _Known, row: int, low: I64, high: I64) -> set[Write]:
        """Returns the writes that may have written a record, without those that wrote another value there.

        It is empty if nothing shows them.
        """
        offset, value = int(known.claims.offset[row]), int(known.value[row])
        if offset not in self._writers:
            self._writers[offset] = self._writers_at(offset)
        others = (each for other, each in self._writers[offset].items() if other != value)
        certain = {write for each in others if len(each) == 1 for write in each}
        certain |= self._written_by_others(offset, value)
        left = self._candidates(known, row, low, high) - certain
        # Where nothing is left, what clients saw contradicts itself.
        return left or self._writers[offset].get(value, set())

    def _writers_at(self, offset: int) -> dict[int, set[Write]]:
        """Returns which writes can have written the values of an offset: no two of them the same one."""
        values = self._values_at(offset)
        known = self._known(values, np.full(len(values), offset), values)
        low, high = self._epochs(known)
        writers = {
            value: self._candidates(known, row, low, high) - self._written_by_others(offset, value)
            for row, value in enumerate(values.tolist())
        }
        certain: set[Write] = set()
        while (
            more := {write for each in writers.values() if len(each) == 1 for write in each}
            - certain
        ):
            certain |= more
            for each in writers.values():
                if len(each) > 1:
                    each -= certain
        return writers

    def _written_by_others(self, offset: int, value: int) -> set[Write]:
        """Returns the writes at an offset that the batches of other values show, if producers send appends again.

        Otherwise each value has one batch there, so its own epochs say the same.
        """
        if not self.sent_again:
            return set()
        offsets, values, stamps = self._stamped
        rows = slice(*np.searchsorted(offsets, [offset, offset + 1]))
        shown = {*stamps[rows][values[rows] != value].tolist()}
        writes = self._elections.logs.terms.writes_at(offset)
        epochs = [epoch for epoch, _ in writes]
        return {write for write in writes if write[0] in shown and epochs.count(write[0]) == 1}

    @cached_property
    def _stamped(self) -> tuple[I64, I64, I64]:
        reads = self._reads.take(self._reads.stamp >= 0)
        order = np.argsort(reads.offset, kind="stable")
        return reads.offset[order], reads.value[order], reads.stamp[order]

    def _candidates(self, known: _Known, row: int, low: I64, high: I64) -> set[Write]:
        """Returns the writes at a record's offset in its epochs, while it was open if there are such.

        If the record was certainly established, those count of which a leader may have established what they wrote
        there.
        """
        logs, claims = self._elections.logs, known.claims
        if high[row] >= ANY_EPOCH:
            return set()  # nothing shows who wrote it, so it rules out no write of another value
        from_ns, to_ns = int(claims.from_ns[row]), int(known.written_ns[row])
        writes = [
            write
            for write in logs.terms.writes_at(int(claims.offset[row]))
            if low[row] <= write[0] <= high[row]
        ]
        writes = [write for write in writes if from_ns <= write[1] <= to_ns] or writes
        if known.is_only_written[row] or len(writes) < 2:
            return set(writes)
        epochs, at_ns = np.array(writes, dtype=np.int64).T
        offsets = np.full(len(writes), claims.offset[row])
        passed = logs.terms.passed(offsets, epochs, epochs, np.maximum(at_ns, from_ns))
        established = np.flatnonzero(passed.perhaps_ns <= known.seen_ns[row]).tolist()
        return {writes[at] for at in established} or set(writes)

    def _values_at(self, offset: int) -> I64:
        """Returns the values that acknowledgements and reads show at an offset."""
        offsets, values = self._by_offset
        first, stop = np.searchsorted(offsets, [offset, offset + 1])
        return np.unique(values[first:stop])

    @cached_property
    def _by_offset(self) -> tuple[I64, I64]:
        acked = np.flatnonzero(self._history.append_status == OK_AT)
        offset = np.concatenate((self._history.append_offset[acked], self._shown.offset))
        value = np.concatenate((self._history.append_op[acked], self._shown.value))
        order = np.argsort(offset, kind="stable")
        return offset[order], value[order]


def _at(column: Any, rows: I64, default: int) -> I64:
    """Returns a column at rows, with a default where the row is negative."""
    if not len(column):
        return np.full(len(rows), default, dtype=np.int64)
    values: I64 = np.where(rows >= 0, column[rows], default)
    return values
