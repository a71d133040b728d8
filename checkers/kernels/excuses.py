"""Which instances of a finding elections excuse.

A loss is excused if the election that lost the record excuses it (`elections`). Most other findings are conflicts:
two records at one offset, or two records in the wrong order. One log cannot show both sides, but the log before
an election and the log after it can. So *a conflict is excused if one of its sides was lost excusably before the
other side was established*. It is a broken promise if both sides were in one log, or if another election lost the
first one.

If producers send again, a copy of a record may stay elsewhere when the record itself is gone. Then its conflicts
are excused only if its loss is, too.

An offset that held several values is judged step by step: its values are put into the order in which they were
established, and each is compared with the one before it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from checkers.kernels.claims import ClaimReader
from checkers.kernels.columns import Columns, find_pairs, heads
from checkers.kernels.elections import Elections
from checkers.kernels.fates import EXCUSED, UNDECIDED, UNEXCUSED, Claims, Fates
from checkers.kernels.final_polls import records_of_final_polls
from checkers.kernels.findings import Finding
from checkers.kernels.history import I8, I64, INF_NS, OK_SOMEWHERE, PartitionHistory, lookup
from checkers.kernels.log_contents import ANY_EPOCH
from checkers.kernels.lost_acked import REUSED, final_log
from checkers.kernels.ranks import rank_of

_LOSSES = frozenset({"lost-acked-write", "lost-acked-write-acks1", "unseen", "visible-regress"})
_ONE_OFFSET = frozenset({"two-acks-one-offset", "divergent-value"})
_ORDER = frozenset(
    {"order-inversion", "late-insert", "future-read", "nonmonotonic-send", "out-of-sequence"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides(Columns):
    """Records at offsets, each with an operation that shows it."""

    op: I64
    offset: I64
    value: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """From one value of an offset to the next: one row per offset and value but one, ascending."""

    offset: I64
    value: I64
    fates: Fates


class Excuses:
    """Decides which instances of findings of one partition are excused.

    Args:
        history: One partition.
        reader: What its operations show of records.
        elections: Of the same partition.
        findings: All findings of the partition about values of one offset.
        is_sparse: Whether offsets may be missing from the log.
    """

    def __init__(
        self,
        history: PartitionHistory,
        reader: ClaimReader,
        elections: Elections,
        findings: Iterable[Finding],
        *,
        is_sparse: bool = False,
    ) -> None:
        self._is_sparse = is_sparse
        self._history = history
        self._reader = reader
        self._elections = elections
        self._one_offset = [finding for finding in findings if finding.id in _ONE_OFFSET]

    def fates(self, finding: Finding) -> Fates:
        """Returns what elections did to each instance; UNEXCUSED where no lost record can explain it."""
        if finding.id in _LOSSES:
            return self._losses(finding)
        if not self._elections.can_excuse:
            return fates_of(finding.count, UNEXCUSED)
        if finding.id in _ONE_OFFSET:
            return self._of_one_offset(finding)
        if finding.id == "lost-record":
            return self._skipped(finding)
        first = self._side(finding.first, finding.offset)
        if finding.id == "offset-reused":
            fates = self._conflicts(first, self._side(finding.second, finding.offset))
            return self._with_losses(fates, first)
        if finding.id == "duplicate":
            # What shows each copy: a poll, or the response to the append.
            first = self._side(finding.second, finding.offset)
            shown_by = np.where(finding.third >= 0, finding.third, finding.first)
            second = self._side(shown_by, finding.other)
            return self._with_losses(self._conflicts(first, second), second)
        if finding.id == "end-in-batch":
            return self._divided(self._side(finding.second, finding.other - 1), first)
        if finding.id in _ORDER:
            second = self._side(finding.second, finding.other)
            # The second one was invoked later, but a deposed leader may have written it in an older epoch.
            fates = self._conflicts(first, second)
            # A record cannot have been lost before itself.
            same = (first.offset == second.offset) & (first.value == second.value)
            fates.outcome[same] = UNEXCUSED
            is_unsure = self._may_be_another_copy(finding.first, finding.offset)
            fates.outcome[is_unsure & (fates.outcome == UNEXCUSED)] = UNDECIDED
            return fates
        return fates_of(finding.count, UNEXCUSED)

    def lost(self, ops: I64, offsets: I64, values: I64, gone_ns: I64 | int = INF_NS) -> Fates:
        """Returns what elections did to records that are gone at the end of the run.

        Args:
            ops: Operations that show them.
            offsets: Where they were.
            values: Their values.
            gone_ns: When clients saw at the latest that they were gone, if that was before the last operation.
        """
        claims = self._reader.claims(ops, offsets, values, last_shown=True)
        claims = replace(claims, gone_ns=np.broadcast_to(gone_ns, len(ops)))
        fates = self._of_lost(claims, offsets, values)
        if not self._reader.sent_again:
            return fates
        return replace(fates, outcome=self._with_copies(claims, fates.outcome, offsets, values))

    def _of_lost(self, claims: Claims, offsets: I64, values: I64) -> Fates:
        """Returns the same for single copies of which this is known."""
        # The offset of a removed record stays taken, so this changes losses and no conflicts.
        claims = replace(claims, may_be_removed=self._reader.may_be_removed(values))
        fates = self._elections.fates(claims, written=self._reader.written)
        # Perhaps the other record of its offset was lost, and the cleaner removed this one.
        is_unsure = self._reader.are_replaced_at_shared(values, offsets)
        outcome = np.where(is_unsure, np.maximum(fates.outcome, UNDECIDED), fates.outcome)
        return replace(fates, outcome=outcome)

    def _with_copies(self, claims: Claims, outcome: I8, offsets: I64, values: I64) -> I8:
        """Returns the outcomes if the newest batch that a read shows at the offset may be another copy.

        Both copies are gone. If only one of them was lost with an excuse, it is not known which one clients were
        promised, unless the batch shows that the copy that was read is another one.

        Args:
            claims: What is known of the lost records.
            outcome: What elections mean for them.
            offsets: Where they were.
            values: Their values.
        """
        read_by = self._reader.last_reads(values, offsets)
        rows = np.flatnonzero(read_by >= 0)
        if not len(rows):
            return outcome
        ops, offset, value = read_by[rows], offsets[rows], values[rows]
        gone_ns = np.broadcast_to(claims.gone_ns, len(outcome))[rows]
        copies = replace(self._reader.claims(ops, offset, value), gone_ns=gone_ns)
        of_copy = self._elections.fates(copies, written=self._reader.written).outcome
        stamp = self._reader.stamps(ops, offset)
        low, high = claims.low_epoch[rows], claims.high_epoch[rows]
        is_same = self._reader.are_acked_copies(ops, offset, value)
        is_same |= (stamp >= 0) & (low == stamp) & (high == stamp)
        is_other = (stamp >= 0) & ((stamp < low) | (stamp > high))
        first = outcome[rows]
        both = np.where(first == of_copy, first, UNDECIDED)
        both = np.where(is_other & (of_copy == UNEXCUSED), UNEXCUSED, both)
        found = outcome.copy()
        found[rows] = np.where(is_same & (first > UNEXCUSED), first, both)
        return found

    def unplaced(self, appends: I64) -> I64:
        """Returns what elections may have done to appends that were acknowledged without an offset.

        Args:
            appends: Their positions.
        """
        history = self._history
        outcome = np.full(len(appends), UNEXCUSED, dtype=np.int64)
        if not self._elections.can_excuse:
            return outcome
        if not self._elections.logs.has_all_changes:
            return self._somewhere(appends)
        for row, append in enumerate(appends.tolist()):
            invoked_ns, completed_ns = history.append_inv[append], history.append_res[append]
            places = self._elections.logs.terms.written(int(invoked_ns), int(completed_ns)) or [
                # Beyond every log: nobody wrote anything meanwhile.
                (INF_NS, -1)
            ]
            offset, epoch = (
                np.array(column, dtype=np.int64) for column in zip(*places, strict=True)
            )
            moments = np.full(len(places), invoked_ns)
            highest = np.where(epoch >= 0, epoch, ANY_EPOCH)
            # A leader that was deposed without knowing it may have written and committed the record.
            last = np.full(len(places), completed_ns)
            passed = self._elections.logs.terms.passed(offset, epoch, highest, moments, last, last)
            is_passed = passed.at_ns <= completed_ns
            moments = np.where(is_passed, passed.at_ns, moments)
            claims = Claims(
                offset=offset,
                low_epoch=epoch,
                high_epoch=highest,
                from_ns=np.minimum(moments, passed.perhaps_ns),
                by_ns=moments,
                epoch=np.where(is_passed, passed.epoch, -1),
                may_be_removed=self._reader.may_be_removed(
                    np.full(len(places), history.append_op[append])
                ),
                read_ns=np.full(len(places), -INF_NS),
            )
            fates = self._elections.fates(claims)
            lost = fates.outcome[(fates.election >= 0) | (fates.outcome > UNEXCUSED)]
            if (lost == EXCUSED).any():
                outcome[row] = EXCUSED if (lost == EXCUSED).all() else UNDECIDED
            elif (lost == UNDECIDED).any():
                outcome[row] = UNDECIDED
        return outcome

    def _somewhere(self, appends: I64) -> I64:
        """Returns the same if nothing shows where the appends were written."""
        nothing = np.full(len(appends), -1, dtype=np.int64)
        claims = Claims(
            offset=nothing,
            low_epoch=nothing,
            high_epoch=np.full(len(appends), ANY_EPOCH),
            from_ns=self._history.append_inv[appends],
            by_ns=self._history.append_res[appends],
            epoch=nothing,
            read_ns=np.full(len(appends), -INF_NS),
        )
        return self._elections.fates(claims).outcome.astype(np.int64)

    def _may_be_another_copy(self, ops: I64, offsets: I64) -> Any:
        """Returns which records, acknowledged without an offset, need not have been where reads show them.

        Their producer sent them again. If an election lost what was acknowledged, a later leader may have written
        the copy that was read; or a leader wrote it that was deposed before, so that it was in another log.

        Args:
            ops: The appends.
            offsets: Where reads show them.
        """
        found = np.zeros(len(ops), dtype=np.bool_)
        if self._reader.sent_again:
            history = self._history
            append = history.append_at(ops)
            known = np.flatnonzero(append >= 0)
            rows = known[history.append_status[append[known]] == OK_SOMEWHERE]
            read_in = self._reader.last_epochs(ops[rows], offsets[rows])
            found[rows] = self._elections.may_excuse_since(
                history.append_inv[append[rows]],
                np.minimum(history.append_epoch[append[rows]], read_in),
            )
        return found

    def _lost_reads(self, finding: Finding) -> Fates:
        """Returns what elections did to records that polls returned."""
        value, offset = finding.first, finding.offset
        fates = self.lost(value, offset, value)
        if self._reader.sent_again:
            # Whichever copy was acknowledged, none that a poll returned may be lost without an excuse.
            for ops in (finding.second, self._reader.last_reads(value, offset)):
                claims = self._reader.claims(ops, offset, value)
                of_copy = self._of_lost(claims, offset, value)
                rows = np.flatnonzero(of_copy.outcome == UNEXCUSED)
                fates.outcome[rows], fates.election[rows] = UNEXCUSED, of_copy.election[rows]
        return fates

    def _losses(self, finding: Finding) -> Fates:
        if finding.id == "visible-regress":
            return self._lost_reads(finding)
        fates = self.lost(finding.first, finding.offset, finding.first)
        nowhere = np.flatnonzero(finding.offset < 0)
        if len(nowhere):
            appends = self._history.append_at(finding.first[nowhere])
            fates.outcome[nowhere] = self.unplaced(appends)
            fates.election[nowhere] = -1
        # Known only because another append was given the offset: then this is a conflict.
        rows = np.flatnonzero(finding.other == REUSED)
        if len(rows):
            offset = finding.offset[rows]
            pair = self._conflicts(
                self._side(finding.first[rows], offset), self._side(finding.second[rows], offset)
            )
            fates.outcome[rows], fates.election[rows] = pair.outcome, pair.election
        return fates

    def _skipped(self, finding: Finding) -> Fates:
        """Returns what became of skipped records: in a sparse log a lost one leaves its offset empty."""
        fates = fates_of(finding.count, UNEXCUSED)
        rows = np.flatnonzero(finding.second >= 0)
        if self._is_sparse and len(rows):
            ops = finding.second[rows]
            history = self._history
            passed_ns = history.poll_res[lookup(history.poll_op)(finding.first[rows])]
            lost = self.lost(ops, finding.offset[rows], ops, passed_ns)
            # Or what the poll returned was lost, before the skipped record was established.
            returned = self._side(finding.first[rows], self._returned_after(finding, rows))
            skipped = _Sides(op=ops, offset=finding.offset[rows], value=ops)
            earlier, later = self._claims(returned), self._claims(skipped)
            lost = lost.or_else(self._elections.fates(earlier, later, self._reader.written))
            fates.outcome[rows], fates.election[rows] = lost.outcome, lost.election
        return fates

    def _returned_after(self, finding: Finding, rows: I64) -> I64:
        """Returns the offset of the record that each poll returned after the one it skipped."""
        history = self._history
        returned = np.flatnonzero(history.record_poll >= 0)
        op, offset = history.poll_op[history.record_poll[returned]], history.record_offset[returned]
        order = np.lexsort((offset, op))
        op, offset = op[order], offset[order]
        following = rank_of(op, offset, finding.first[rows], finding.offset[rows] + 1)
        after: I64 = offset[following]
        return after

    def _of_one_offset(self, finding: Finding) -> Fates:
        first = self._side(finding.first, finding.offset)
        second = self._side(finding.second, finding.offset)
        fates = self._conflicts(first, second)
        steps = self._steps
        for side in (first, second):
            if len(steps.offset):
                at, there = find_pairs(steps.offset, steps.value, side.offset, side.value)
                rows = np.flatnonzero(there & ~finding.weak)
                fates.outcome[rows] = steps.fates.outcome[at[rows]]
                fates.election[rows] = steps.fates.election[at[rows]]
        return fates

    @cached_property
    def _steps(self) -> _Steps:
        """The values of every contested offset, in the order in which they were established."""
        sides = [
            self._side(ops[~finding.weak], finding.offset[~finding.weak])
            for finding in self._one_offset
            for ops in (finding.first, finding.second)
        ]
        op, offset, value = (
            np.concatenate([getattr(side, name) for side in sides] or [np.empty(0, dtype=np.int64)])
            for name in ("op", "offset", "value")
        )
        order = np.lexsort((op, value, offset))
        op, offset, value = op[order], offset[order], value[order]
        head = heads(offset, value)
        held = _Sides(op=op, offset=offset, value=value).take(head)
        # The value that all others of its offset are compared with is in all of the findings.
        times = np.diff(np.append(np.flatnonzero(head), len(op)))
        claims = self._reader.claims(held.op, held.offset, held.value)
        place = np.cumsum(heads(held.offset)) - 1
        most = np.zeros(len(head), dtype=np.int64)
        np.maximum.at(most, place, times)
        is_lead = times == most[place]
        order = np.lexsort((held.value, claims.from_ns, claims.by_ns, held.offset))
        held, is_lead = held.take(order), is_lead[order]
        lead = np.flatnonzero(is_lead)
        # Of two that are in all findings, which is so if there are only two, the first one.
        lead = lead[heads(held.offset[lead])]
        step = np.flatnonzero(~heads(held.offset))
        # A step belongs to its later value; up to the lead, to its earlier one.
        owner = np.where(step <= lead[place[step]], step - 1, step) if len(step) else step
        fates = self._conflicts(held.take(step - 1), held.take(step))
        by_value = np.lexsort((held.value[owner], held.offset[owner]))
        owner = owner[by_value]
        return _Steps(
            offset=held.offset[owner],
            value=held.value[owner],
            fates=Fates(outcome=fates.outcome[by_value], election=fates.election[by_value]),
        )

    def _side(self, ops: I64, offsets: I64) -> _Sides:
        return _Sides(op=ops, offset=offsets, value=self._reader.values(ops, offsets))

    def _claims(self, side: _Sides) -> Any:
        return self._reader.claims(side.op, side.offset, side.value)

    def _conflicts(self, one: _Sides, other: _Sides) -> Fates:
        first, second = self._claims(one), self._claims(other)
        written = self._reader.written
        there = self._elections.fates(first, second, written)
        return there.or_else(self._elections.fates(second, first, written))

    def _with_losses(self, fates: Fates, shown: _Sides) -> Fates:
        """Returns the worse outcome of records that are gone in the end: their loss has to be excused as well.

        If their producers sent them again, they may be in the log at another offset, so that nothing else reports
        the loss.
        """
        if not self._reader.sent_again or not len(shown.op):
            return fates
        history = self._history
        final = records_of_final_polls(history)
        op, offset = history.append_op[history.record_append[final]], history.record_offset[final]
        order = np.lexsort((op, offset))
        is_there = np.zeros(len(shown.op), dtype=np.bool_)
        if len(order):
            is_there = find_pairs(offset[order], op[order], shown.offset, shown.value)[1]
        rows = np.flatnonzero(final_log(history).covers(shown.offset) & ~is_there)
        gone = shown.take(rows)
        lost = self.lost(gone.op, gone.offset, gone.value)
        worse = lost.outcome < fates.outcome[rows]
        fates.outcome[rows[worse]] = lost.outcome[worse]
        fates.election[rows[worse]] = lost.election[worse]
        return fates

    def _divided(self, end: _Sides, batch: _Sides) -> Fates:
        """Returns whether log ends may be of other logs than the batches that they divide."""
        # The log ended behind another record, or it lost the batch.
        fates = self._conflicts(end, batch)
        ends = self._claims(end)
        # Perhaps a leader that had been deposed returned the end.
        is_unsure = (ends.epoch < 0) & self._elections.may_excuse_since(ends.from_ns, ends.epoch)
        fates.outcome[is_unsure & (fates.outcome == UNEXCUSED)] = UNDECIDED
        # A log does not lose anything as long as one leader leads.
        for last_shown in (False, True):
            read_in = self._reader.claims(
                batch.op, batch.offset, batch.value, last_shown=last_shown
            ).epoch
            fates.outcome[(ends.epoch >= 0) & (ends.epoch == read_in)] = UNEXCUSED
        return fates


def fates_of(count: int, outcome: int) -> Fates:
    """Returns one outcome for several records; which election decided is not known."""
    return Fates(
        outcome=np.full(count, outcome, dtype=np.int8),
        election=np.full(count, -1, dtype=np.int64),
    )
