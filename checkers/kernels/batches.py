"""Whether record batches are in the log as a whole.

A producer that sends several records to a partition at once sends one record batch. It is written, copied and
truncated as a whole, so the log holds all of its records at consecutive offsets, or none (`torn-batch`). No loss
and no election divides one. But an election that loses records may come between two final polls, which then show
two logs: what only such polls show is undecided, unless one leader served both.

The final reads decide, because the log no longer changes then: where they returned one record of a batch, they
must have returned each of the others whose place they went over, or that the log is too short for. A batch cannot
begin before offset 0. A record that cannot be read may be the missing one. In a compacted topic the cleaner may
have removed it because of a later record that an election lost. That is lawful if that election may be; then it is
judged as a loss, if it was acknowledged or read, and not as torn off.

What is committed of a log ends at a border between batches as well, so no operation receives a log end inside of
one (`end-in-batch`), unless an election lost what was in the log then, or the batch. And a batch is
written after the last of its records was sent, so none of them is read before (`unsent-in-batch`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from checkers.kernels.evidence import Evidence, sentence
from checkers.kernels.final_polls import epochs_of, first_offsets, records_of_final_polls
from checkers.kernels.findings import Finding, finding
from checkers.kernels.history import I64, INF_NS, Bools, PartitionHistory, lookup
from checkers.kernels.judging import judged_finding
from checkers.kernels.log_checkers import (
    LOG_TABLES,
    elections_of,
    final_log_of,
    judged_of,
    log_of,
    reader_of,
)
from checkers.kernels.lost_acked import FinalLog
from harness.contracts.checker import CheckerReport
from harness.contracts.run_context import BATCH_CHECKER, RunContext


def batch_heads(operations: pa.Table) -> tuple[I64, I64]:
    """Returns the appends that batches of several records carried, and the first append of each one's batch.

    Args:
        operations: Of one partition.

    Returns:
        `op_index` of each such append, ascending, and `op_index` of the first append of its batch.
    """
    batch = operations.column("batch")
    is_later = batch.is_valid().to_numpy()
    later: I64 = operations.column("op_index").to_numpy()[is_later]
    head: I64 = batch.fill_null(-1).to_numpy()[is_later]
    first = np.unique(head)
    op, of = np.concatenate((first, later)), np.concatenate((first, head))
    order = np.argsort(op, kind="stable")
    return op[order], of[order]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copies:
    """Where batches of several records are in the log, by what the final reads returned of them.

    Attributes:
        member: Appends whose records were returned; one row for each such record.
        offset: Where each was.
        begins: Where each copy of a batch begins; one row for each copy.
        size: How many records each has.
        shown: A row of `member` that shows each.
        seen_ns: When each was first returned.
        append: Those of each copy, one copy behind the other; one row for each record that should be there.
        copy: The copy that each belongs to.
        expected: Where each should be.
    """

    member: I64
    offset: I64
    begins: I64
    size: I64
    shown: I64
    seen_ns: I64
    append: I64
    copy: I64
    expected: I64


def _copies(history: PartitionHistory, sent: tuple[I64, I64]) -> _Copies:
    op, head = sent
    # The place of each append in its batch; all of a batch stand together, in the order of sending.
    by_batch = np.lexsort((op, head))
    op, head = op[by_batch], head[by_batch]
    begin, count = np.unique(head, return_index=True, return_counts=True)[1:]
    place = np.arange(len(op)) - np.repeat(begin, count)
    rows = np.flatnonzero((history.record_poll >= 0) & history.record_trusted)
    rows = rows[history.poll_final[history.record_poll[rows]] & (history.record_append[rows] >= 0)]
    by_op = np.argsort(op, kind="stable")
    at = lookup(op[by_op])(history.append_op[history.record_append[rows]])
    rows, member = rows[at >= 0], by_op[at[at >= 0]]
    offset = history.record_offset[rows]
    # One copy of a batch for each offset at which it would begin.
    copies, shown, copy_of = np.unique(
        np.stack((head[member], offset - place[member])),
        axis=1,
        return_index=True,
        return_inverse=True,
    )
    batch = np.searchsorted(head[begin], copies[0])
    size = count[batch]
    copy = np.repeat(np.arange(len(batch)), size)
    within = np.arange(len(copy)) - np.repeat(np.cumsum(size) - size, size)
    seen_ns = np.full(len(batch), INF_NS, dtype=np.int64)
    np.minimum.at(seen_ns, copy_of.ravel(), history.poll_res[history.record_poll[rows]])
    return _Copies(
        member=op[member],
        offset=offset,
        begins=copies[1],
        size=size,
        shown=shown,
        seen_ns=seen_ns,
        append=op[begin[batch][copy] + within],
        copy=copy,
        expected=copies[1][copy] + within,
    )


def check_batches(
    history: PartitionHistory,
    sent: tuple[I64, I64],
    final: FinalLog,
    *,
    log_start_offset: int,
    settled_end_offset: int | None,
    clock_error_ns: int,
) -> tuple[Finding, Finding]:
    """Finds batches that are not in the log as a whole, and log ends inside of others.

    Args:
        history: One partition.
        sent: The appends in batches; see `batch_heads`.
        final: What the final reads showed.
        log_start_offset: What is below it may have been deleted.
        settled_end_offset: Log end of the last leader at the end of the run, None if unknown.
        clock_error_ns: By how much two clocks of the run may differ.

    Returns:
        `torn-batch`: `first` is an append whose record was returned at `offset`, `second` one of the same batch
        whose record was not, and should be at `other`. One instance for each missing record.

        `end-in-batch`: `first` is an append whose record was returned at `offset`, `second` the operation that
        received the log end `other` inside of its batch. One instance for each such operation.
    """
    copies = _copies(history, sent)
    is_there = _pairs(copies.append, copies.expected, copies.member, copies.offset)
    unreadable = history.record_offset[(history.record_poll >= 0) & ~history.record_trusted]
    seen_ns = copies.seen_ns[copies.copy] + clock_error_ns
    is_beyond = final.ends_below(copies.expected, seen_ns, settled_end_offset)
    missing = (copies.expected >= log_start_offset) & (final.covers(copies.expected) | is_beyond)
    missing = ~is_there & (missing | (copies.expected < 0)) & ~np.isin(copies.expected, unreadable)
    found = np.flatnonzero(missing)
    shown = copies.shown[copies.copy[found]]
    torn = finding(
        "torn-batch",
        copies.member[shown],
        second=copies.append[found],
        offset=copies.offset[shown],
        other=copies.expected[found],
    )
    is_whole = np.ones(len(copies.begins), dtype=np.bool_)
    is_whole[copies.copy[found]] = False
    return torn, _ends_inside(history, copies, np.flatnonzero(is_whole))


def _ends_inside(history: PartitionHistory, copies: _Copies, which: I64) -> Finding:
    """Finds log ends inside of copies of batches."""
    which = which[np.argsort(copies.begins[which], kind="stable")]
    stops = copies.begins[which] + copies.size[which]
    # Of the copies that begin below an end, one that goes on the farthest.
    farthest = np.maximum.accumulate(stops)
    below = np.searchsorted(copies.begins[which], history.end_offset, side="left") - 1
    found = np.flatnonzero(below >= 0)
    found = found[farthest[below[found]] > history.end_offset[found]]
    copy = which[np.searchsorted(farthest, farthest[below[found]], side="left")]
    return finding(
        "end-in-batch",
        copies.member[copies.shown[copy]],
        second=history.end_op[found],
        offset=copies.offset[copies.shown[copy]],
        other=history.end_offset[found],
    )


def check_sent(history: PartitionHistory, sent: tuple[I64, I64], *, clock_error_ns: int) -> Finding:
    """Finds records that a poll returned before the last record of their batch was sent.

    Args:
        history: One partition.
        sent: The appends in batches; see `batch_heads`.
        clock_error_ns: By how much two clocks of the run may differ.

    Returns:
        `unsent-in-batch`: `first` is a poll that returned a record at `offset` too early, `second` the append of
        its batch that began last. One instance for each such record.
    """
    op, head = sent
    of = history.append_at(op)
    began_ns = history.append_inv[of]
    # The last one of each batch stands behind the others.
    order = np.lexsort((op, began_ns, head))
    last = order[np.append(head[order][1:] != head[order][:-1], True)[: len(order)]]
    rows = np.flatnonzero((history.record_poll >= 0) & history.record_trusted)
    rows = rows[history.record_append[rows] >= 0]
    member = lookup(op)(history.append_op[history.record_append[rows]])
    rows, member = rows[member >= 0], member[member >= 0]
    begun_last = last[np.searchsorted(head[last], head[member])]
    poll = history.record_poll[rows]
    # A record that was itself sent afterwards is a future-read.
    until_ns = history.poll_res[poll] + clock_error_ns
    found = np.flatnonzero((until_ns < began_ns[begun_last]) & (until_ns >= began_ns[member]))
    return finding(
        "unsent-in-batch",
        history.poll_op[poll[found]],
        second=op[begun_last[found]],
        offset=history.record_offset[rows[found]],
        since_ns=history.poll_res[poll[found]],
        gap_ns=began_ns[begun_last[found]] - history.poll_res[poll[found]],
    )


def _pairs(first: I64, second: I64, among_first: I64, among_second: I64) -> Bools:
    """Returns which pairs of numbers are among others."""
    both = np.stack((np.concatenate((first, among_first)), np.concatenate((second, among_second))))
    _, number = np.unique(both, axis=1, return_inverse=True)
    number = number.reshape(-1)
    return np.isin(number[: len(first)], number[len(first) :])


def _is_in_one_log(
    found: Finding, history: PartitionHistory, operations: pa.Table, sent: tuple[I64, I64]
) -> Bools:
    """Returns which records are missing from a log that shows others of their batch, whatever the elections."""
    op, head = sent
    # Appends of a batch are numbered in the order of sending.
    place = np.empty(len(op), dtype=np.int64)
    by_head = np.argsort(head, kind="stable")
    place[by_head] = np.arange(len(op)) - np.searchsorted(head[by_head], head[by_head])
    rows = records_of_final_polls(history)
    member = lookup(op)(history.append_op[history.record_append[rows]])
    rows, member = rows[member >= 0], member[member >= 0]
    poll, begins = history.record_poll[rows], history.record_offset[rows] - place[member]
    epoch = epochs_of(history.poll_op, operations)
    polls = np.flatnonzero(history.poll_final & history.poll_ok & (history.poll_last >= 0))
    first = first_offsets(history)[polls]
    certain = np.zeros(found.count, dtype=np.bool_)
    missing = lookup(op)(found.second)
    for row, (at, offset) in enumerate(zip(missing.tolist(), found.other.tolist(), strict=True)):
        is_shown = (head[member] == head[at]) & (begins == offset - place[at])
        shown = np.unique(poll[is_shown])
        over = polls[(first <= offset) & (offset <= history.poll_last[polls])]
        of_one_epoch = np.intersect1d(epoch[shown], epoch[over])
        certain[row] = np.isin(shown, over).any() or (of_one_epoch >= 0).any()
    return certain


class Batches:
    """The checker `batches`; see the module. It needs the column `batch` of `operations`."""

    name = BATCH_CHECKER
    tables = LOG_TABLES
    per_partition = True

    def check(self, tables: Mapping[str, pa.Table], context: RunContext) -> CheckerReport:
        """Checks the batches of one partition."""
        history = log_of(tables, context).history
        operations = tables["operations"]
        sent = batch_heads(operations)
        elections = elections_of(tables, context)
        torn, ends = check_batches(
            history,
            sent,
            final_log_of(tables, context),
            log_start_offset=context.log_start_offset,
            settled_end_offset=elections.settled_end_offset,
            clock_error_ns=context.clock_error_ns,
        )
        if torn.count and context.compacted and elections.can_excuse:
            # What may have been removed because of a record that is still there counts as returned already.
            is_replaced = reader_of(tables, context).have_later(torn.second, torn.other)
            torn = torn.take(np.flatnonzero(~is_replaced))
        coverage = {"appends_in_batches": len(sent[0])}
        unsent = check_sent(history, sent, clock_error_ns=context.clock_error_ns)
        is_undecided = np.zeros(torn.count, dtype=np.bool_)
        if torn.count and elections.can_excuse:
            is_undecided = ~_is_in_one_log(torn, history, operations, sent)
        evidence = Evidence(operations)
        judged = list(judged_of((ends, unsent), tables, context))
        for part in (False, True):
            rows = np.flatnonzero(is_undecided == part)
            if len(rows):
                worst = torn.worst(rows)
                judged.append(
                    judged_finding(
                        torn.id,
                        len(rows),
                        sentence(torn, worst),
                        context,
                        is_undecided=part,
                        witnesses=evidence.witnesses(torn, worst),
                    )
                )
        return CheckerReport(findings=tuple(judged), coverage=coverage)


BATCHES = Batches()
