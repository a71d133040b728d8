"""Kernel findings against the expectation matrix: what each one means, and its worst example as a sentence."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.anomalies import ANOMALIES
from checkers.expectations import Case, Expectations, judge
from checkers.kernels.elections import Elections
from checkers.kernels.evidence import Evidence, loss_sentence, sentence
from checkers.kernels.findings import Finding
from checkers.kernels.history import Bools
from checkers.kernels.linearizability import PartitionReport
from harness.contracts.checker import CheckerFinding
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Judgement

RECORDS_LISTED_MAX = 1000
"""How many lost records a verdict lists by offset and value; their count is always exact."""


def expectations_of(context: RunContext) -> Expectations:
    """Returns the part of a context that the expectation matrix reads."""
    return Expectations(
        profile=context.profile,
        elr_on=context.elr_on,
        min_isr=context.min_isr,
        replication_factor=context.replication_factor,
        unclean_election_enabled=context.unclean_election_enabled,
    )


class FindingJudge:
    """Turns kernel findings of one partition into judged findings with their worst example.

    Args:
        operations: The partition's operations, in any order.
        report: What the log kernel derived from them.
        elections: The partition's elections; they may excuse a finding.
        context: What the run declares about itself.
    """

    def __init__(
        self,
        operations: pa.Table,
        report: PartitionReport,
        elections: Elections,
        context: RunContext,
    ) -> None:
        self._evidence = Evidence(operations)
        columns = ["op_index", "invoked_ns", "kind", "leader_epoch"]
        order = operations.select(columns).sort_by("op_index")
        self._op_index = order.column("op_index").to_numpy()
        self._invoked_ns = order.column("invoked_ns").to_numpy()
        # Reads are fenced by leader epoch, so the epoch of their response is certain. Produce is not.
        is_read = pc.not_equal(order.column("kind"), "append").to_numpy()
        self._shown_epoch = np.where(is_read, order.column("leader_epoch").to_numpy(), -1)
        self._history = report.history
        self._elections = elections
        self._expectations = expectations_of(context)

    def judged(self, finding: Finding) -> list[CheckerFinding]:
        """Returns one finding per row of the matrix that its instances fall under."""
        append = self._history.append_at(finding.first)
        epochs = (
            np.where(append >= 0, self._history.append_epoch[append], -1)
            if len(self._history.append_op)
            else np.full(finding.count, -1)
        )
        since_ns = self._established_ns(finding)
        excused = self._elections.excused(finding.offset, since_ns, epochs)
        judged = []
        for weak, excuse in ((False, False), (False, True), (True, False), (True, True)):
            rows = (finding.weak == weak) & (excused == excuse)
            if rows.any():
                case = Case(
                    id=finding.id, is_weak=weak, is_excused=excuse, expectations=self._expectations
                )
                judged.append((judge(case), rows))
        findings = []
        for row in dict.fromkeys(row for row, _ in judged):
            rows = np.logical_or.reduce([rows for other, rows in judged if other is row])
            findings.append(self._finding(finding, rows, row.judgement, row.rule, epochs, since_ns))
        return findings

    def _established_ns(self, finding: Finding) -> Any:
        """Returns the time from which each instance's first operation is reliable.

        A response may be delayed beyond the election that made it untrue: it was true when the high watermark
        passed the offset, but not before the operation was invoked.
        """
        row = np.searchsorted(self._op_index, finding.first)
        row = np.minimum(row, max(len(self._op_index) - 1, 0))
        invoked_ns = finding.since_ns
        if len(self._op_index):
            known = self._op_index[row] == finding.first
            invoked_ns = np.where(known, self._invoked_ns[row], finding.since_ns)
        since_ns = self._elections.committed_by(finding.offset, invoked_ns, finding.since_ns)
        if not len(self._op_index):
            return since_ns
        # What a leader returns was true before the next leader epoch, even if it has not learned of that yet.
        epoch = np.where(known, self._shown_epoch[row], -1)
        return np.where(
            epoch >= 0, np.minimum(since_ns, self._elections.epoch_ends(epoch)), since_ns
        )

    def _finding(
        self,
        finding: Finding,
        rows: Bools,
        judgement: Judgement,
        rule: str,
        epochs: Any,
        since_ns: Any,
    ) -> CheckerFinding:
        chosen = np.flatnonzero(rows)
        worst = finding.worst(chosen)
        is_loss = ANOMALIES[finding.id].level == "durability"
        text = sentence(finding, worst)
        details: dict[str, Any] = {}
        if is_loss:
            number = int(
                self._elections.deciding(
                    finding.offset[[worst]], since_ns[[worst]], epochs[[worst]]
                )[0]
            )
            election = self._elections.elections[number] if number >= 0 else None
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
