"""Contradictions that another one hides, which is excused or undecided.

The real-time check names each operation once, with the latest one that contradicts it, and the check of a producer
compares neighbours. If an election excuses what is named, or may, an earlier contradiction of the same operation
may remain. So the check runs again on what had been invoked before each of these elections, and once more
without the appends that were lost excusably, or perhaps. What it finds there without an excuse is a broken
promise.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from checkers.kernels.elections import Elections
from checkers.kernels.excuses import Excuses
from checkers.kernels.fates import UNEXCUSED, Fates
from checkers.kernels.findings import Finding, joined
from checkers.kernels.history import I64, INF_NS, INFO, Bools, PartitionHistory
from checkers.kernels.linearizability import Options, check_history


class HiddenFindings:
    """Looks for what excused and undecided findings of one partition hide.

    Args:
        history: The partition.
        excuses: What excuses its findings.
        elections: Its elections.
        options: How to read it.
    """

    def __init__(
        self, history: PartitionHistory, excuses: Excuses, elections: Elections, options: Options
    ) -> None:
        self._history = history
        self._excuses = excuses
        self._elections = elections
        self._options = options
        self._before: dict[int, tuple[Finding, ...]] = {}

    def revealed(self, finding: Finding, fates: Fates) -> tuple[Finding, Fates]:
        """Returns a finding of level order with the instances that its excused and undecided ones hid."""
        hiding = np.flatnonzero(fates.outcome != UNEXCUSED)
        if not len(hiding):
            return finding, fates
        lost = np.isin(self._history.append_op, finding.first[hiding])
        rest = check_history(unresolved(self._history, lost), self._options).findings
        elections = self._elections.elections
        numbers = set(fates.election[hiding].tolist())
        moments = {elections[number].at_ns for number in numbers if number >= 0}
        if any(number < 0 for number in numbers):
            # No single election: any, or a leader that led on with less.
            events = (*elections, *self._elections.cuts)
            excusing = [each for each in events if each.may_excuse_any]
            moments |= {at_ns for each in excusing for at_ns in (each.earliest_ns, each.at_ns)}
        for at_ns in sorted(moments):
            rest += self._findings_before(at_ns)
        for other in (each for each in rest if each.id == finding.id):
            finding, fates = self._with(finding, fates, other)
        return finding, fates

    def _findings_before(self, at_ns: int) -> tuple[Finding, ...]:
        if at_ns not in self._before:
            report = check_history(invoked_before(self._history, at_ns), self._options)
            self._before[at_ns] = report.findings
        return self._before[at_ns]

    def _with(self, finding: Finding, fates: Fates, other: Finding) -> tuple[Finding, Fates]:
        """Returns a finding in which unexcused instances of another one replace those of the same operation."""
        others = self._excuses.fates(other)
        known = finding.first[(fates.outcome == UNEXCUSED) & ~finding.weak]
        rows = np.flatnonzero(
            (others.outcome == UNEXCUSED) & ~other.weak & ~np.isin(other.first, known)
        )
        if not len(rows):
            return finding, fates
        kept = np.flatnonzero(~np.isin(finding.first, other.first[rows]))
        return joined([finding.take(kept), other.take(rows)]), Fates(
            outcome=np.concatenate((fates.outcome[kept], others.outcome[rows])),
            election=np.concatenate((fates.election[kept], others.election[rows])),
        )


def unresolved(history: PartitionHistory, appends: Bools) -> PartitionHistory:
    """Returns the history as if the outcome of some appends were unknown."""
    return replace(
        history,
        append_status=np.where(appends, np.int8(INFO), history.append_status),
        append_res=np.where(appends, INF_NS, history.append_res),
    )


def invoked_before(history: PartitionHistory, at_ns: int) -> PartitionHistory:
    """Returns what had been invoked before a moment."""
    poll = history.poll_inv < at_ns
    new_poll = np.where(poll, np.cumsum(poll) - 1, -1)
    record = history.record_poll >= 0
    record[record] = poll[history.record_poll[record]]
    end = history.end_inv < at_ns
    chosen = {
        "append": history.append_inv < at_ns,
        "poll": poll,
        "record": record,
        "end": end,
    }
    cut = _filtered(history, chosen)

    def renumbered(column: I64) -> I64:
        numbers: I64 = np.where(column >= 0, new_poll[column], -1) if len(new_poll) else column
        return numbers

    return replace(cut, record_poll=renumbered(cut.record_poll), end_poll=renumbered(cut.end_poll))


def _filtered(history: PartitionHistory, chosen: dict[str, Bools]) -> PartitionHistory:
    """Returns some rows of each group of columns, none of the others; a column's name begins with its group."""
    columns: dict[str, Any] = {}
    for name in history.__dataclass_fields__:
        if name == "left_out":
            columns[name] = history.left_out
            continue
        column = getattr(history, name)
        rows = chosen.get(name.partition("_")[0])
        columns[name] = column[:0] if rows is None else column[rows]
    return PartitionHistory(**columns)
