"""Kernel findings against the expectation matrix: what each one means, and its worst example as a sentence."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.anomalies import ANOMALIES
from checkers.expectations import Case, Expectations, judge
from checkers.kernels.claims import ClaimReader
from checkers.kernels.elections import Elections
from checkers.kernels.evidence import Evidence, loss_sentence, sentence
from checkers.kernels.excuses import Excuses, fates_of
from checkers.kernels.fates import EXCUSED, UNDECIDED, UNEXCUSED, Fates
from checkers.kernels.findings import Finding
from checkers.kernels.hidden import HiddenFindings, unresolved
from checkers.kernels.history import I8, I64, OK_AT, OK_SOMEWHERE, Bools
from checkers.kernels.linearizability import Options, PartitionReport, check_history
from checkers.kernels.lost_acked import final_log
from harness.contracts.checker import CheckerFinding
from harness.contracts.run_context import SESSION_CHECKER, RunContext
from harness.contracts.verdict import Judgement, Witness

RECORDS_LISTED_MAX = 1000
"""How many lost records a verdict lists by offset and value; their count is always exact."""


def expectations_of(context: RunContext) -> Expectations:
    """Returns the part of a context that the expectation matrix reads."""
    return Expectations(elr_on=context.elr_on, at_least_once=context.at_least_once)


def judged_finding(
    identifier: str,
    count: int,
    text: str,
    context: RunContext,
    *,
    is_excused: bool = False,
    is_undecided: bool = False,
    witnesses: tuple[Witness, ...] = (),
    details: dict[str, Any] | None = None,
) -> CheckerFinding:
    """Returns instances of an anomaly that all fall under the same row of the matrix.

    Args:
        identifier: The anomaly.
        count: How many instances there are.
        text: The sentence about them.
        context: What the run declares about itself.
        is_excused: Whether elections excuse them.
        is_undecided: Whether it is not known whether elections excuse them.
        witnesses: Operations that show it.
        details: More facts.
    """
    row = judge(
        Case(
            id=identifier,
            is_weak=False,
            is_excused=is_excused,
            is_undecided=is_undecided,
            expectations=expectations_of(context),
        )
    )
    return CheckerFinding(
        id=identifier,
        level=ANOMALIES[identifier].level,
        count=count,
        judgement=row.judgement,
        rule=row.rule,
        sentence=text,
        witnesses=witnesses,
        details=details or {},
    )


def options_of(context: RunContext) -> Options:
    """Returns how the log kernel reads the history of a run."""
    return Options(
        sparse=context.sparse_offsets,
        clock_error_ns=context.clock_error_ns,
        log_start_offset=context.log_start_offset,
        sent_again=SESSION_CHECKER in context.checkers,
        sent_twice=context.at_least_once,
    )


class FindingJudge:
    """Turns kernel findings of one partition into judged findings with their worst example.

    Args:
        operations: The partition's operations, in any order.
        report: What the log kernel derived from them.
        reader: What operations show of records.
        elections: The partition's elections; they may excuse a finding.
        context: What the run declares about itself.
    """

    def __init__(
        self,
        operations: pa.Table,
        report: PartitionReport,
        reader: ClaimReader,
        elections: Elections,
        context: RunContext,
    ) -> None:
        self._evidence = Evidence(operations)
        self._history = report.history
        self._elections = elections
        self._excuses = Excuses(
            report.history, reader, elections, report.findings, is_sparse=context.sparse_offsets
        )
        self._expectations = expectations_of(context)
        self._options = options_of(context)
        self._hidden = HiddenFindings(report.history, self._excuses, elections, self._options)

    def judged(self, finding: Finding) -> list[CheckerFinding]:
        """Returns one finding per row of the matrix that its instances fall under."""
        if finding.id == "unplaced-append":
            finding, fates = self._unplaced(finding)
        else:
            fates = self._excuses.fates(finding)
            if ANOMALIES[finding.id].level == "order":
                finding, fates = self._hidden.revealed(finding, fates)
        judged = []
        for weak in (False, True):
            for outcome in (UNEXCUSED, EXCUSED, UNDECIDED):
                rows = (finding.weak == weak) & (fates.outcome == outcome)
                if rows.any():
                    case = Case(
                        id=finding.id,
                        is_weak=weak,
                        is_excused=outcome == EXCUSED,
                        is_undecided=outcome == UNDECIDED,
                        expectations=self._expectations,
                    )
                    judged.append((judge(case), rows))
        findings = []
        for row in dict.fromkeys(row for row, _ in judged):
            rows = np.logical_or.reduce([rows for other, rows in judged if other is row])
            findings.append(self._finding(finding, rows, row.judgement, row.rule, fates))
        return findings

    def _unplaced(self, finding: Finding) -> tuple[Finding, Fates]:
        """Returns an append that has no place, and why that may be.

        An append that may be lost needs no place in the log: it is like one of unknown outcome. The same holds for
        one whose offset is known, if no read shows it there. First those with acks=1 need none, then those that
        elections lost excusably, then those that they may have lost. If all others have a place then, that is the
        judgement; if not, the finding is about one of the others.
        """
        history = self._history
        nowhere = np.flatnonzero(history.append_status == OK_SOMEWHERE)
        is_read = np.isin(np.arange(len(history.append_op)), history.record_append)
        is_read |= history.left_out.covers(history.append_offset)
        placed = np.flatnonzero((history.append_status == OK_AT) & ~is_read)
        certain = np.concatenate((nowhere, placed))
        lost = self._lost(placed, history.append_offset[placed])
        outcome = np.concatenate((self._excuses.unplaced(nowhere), lost))
        is_weak = history.append_acks[certain] == 1
        for optional, weak, result in (
            (is_weak, True, UNEXCUSED),
            (is_weak | (outcome == EXCUSED), False, EXCUSED),
            (is_weak | (outcome != UNEXCUSED), False, UNDECIDED),
        ):
            is_lost = np.zeros(len(history.append_op), dtype=np.bool_)
            is_lost[certain[optional]] = True
            without = unresolved(history, is_lost)
            report = check_history(without, self._options)
            left = [other for other in report.findings if other.id == finding.id]
            if not left:
                finding = replace(finding, weak=np.full(finding.count, weak))
                return finding, fates_of(finding.count, result)
            finding = left[0]
        # What was read and is gone had a place that is free again.
        rows = np.flatnonzero(history.record_append >= 0)
        final = final_log(history, sent_twice=self._options.sent_twice)
        rows = rows[~final.present[history.record_append[rows]]]
        gone = self._lost(history.record_append[rows], history.record_offset[rows])
        is_free = (gone != UNEXCUSED).any()
        return finding, fates_of(finding.count, UNDECIDED if is_free else UNEXCUSED)

    def _lost(self, appends: I64, offsets: I64) -> I8:
        """Returns what elections did to records that are gone at the end of the run."""
        op = self._history.append_op[appends]
        return self._excuses.lost(op, offsets, op).outcome

    def _finding(
        self,
        finding: Finding,
        rows: Bools,
        judgement: Judgement,
        rule: str,
        fates: Fates,
    ) -> CheckerFinding:
        chosen = np.flatnonzero(rows)
        worst = finding.worst(chosen)
        is_loss = ANOMALIES[finding.id].level == "durability"
        text = sentence(finding, worst)
        details: dict[str, Any] = {}
        if is_loss:
            number = int(fates.election[worst])
            election = self._elections.elections[number] if number >= 0 else None
            if election is not None and fates.outcome[worst] == UNEXCUSED:
                # What faults had destroyed before it is not the reason for this loss.
                election = replace(election, alone=())
            text = loss_sentence(finding, worst, election)
            details = self._records(finding, chosen)
            if election is not None:
                details["election"] = {
                    "at_ns": election.at_ns,
                    "leader": election.leader,
                    "leader_epoch": election.leader_epoch,
                    "log_end_offset": election.log_end_offset,
                    "flagged": election.is_flagged,
                    "objection": election.reason,
                }
        return CheckerFinding(
            id=finding.id,
            level=ANOMALIES[finding.id].level,
            count=len(chosen),
            judgement=judgement,
            rule=rule,
            sentence=text,
            witnesses=self._evidence.witnesses(finding, worst),
            details=details,
        )

    def _records(self, finding: Finding, rows: Any) -> dict[str, Any]:
        """Returns offsets and values of lost records in offset order, the first ones if there are very many."""
        order = rows[np.lexsort((finding.first[rows], finding.offset[rows]))][:RECORDS_LISTED_MAX]
        return {"offsets": finding.offset[order].tolist(), "values": finding.first[order].tolist()}
