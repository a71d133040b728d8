"""The checker `offset-queries`: what leaders answer to questions about a record that a poll had returned.

A leader serves records below its high watermark, which are committed. Leaders of the same epoch and of later ones
have them. So if a poll that was served in leader epoch p returned a record at an offset, and a leader of an epoch
not below p was asked afterwards:

* the first offset with at least the record's timestamp (ListOffsets) is not above the record's own: the record
  has that timestamp itself. A leader that does not know its high watermark yet refuses to answer;
* the end of the record's epoch (OffsetForLeaderEpoch) is above the record's offset. A smaller one, or an earlier
  epoch, tells consumers that the record was truncated (KIP-320), and followers cut their logs there.

Nothing is claimed about a record that the final reads do not return at its offset: it may have been deleted or
lost, which other checkers judge. In compacted topics the final reads count as they were recorded, without the
records that `checkers.compaction` adds, because a leader lacks what its cleaner removed.

An answer is undecided if a leader may lawfully have lacked the record for a while, until it was sent again: after
a flagged election later than p and not later than the leader's epoch, or one that is not recorded, or, without
ELR, after a fault that may have destroyed the record. That fault was injected before the answer, and not over
before the record was sent. It is excused if the recorded logs of all replicas show that a lawful flagged election
had lost the record by then.

Source:
    KIP-79 (offsets by timestamp), KIP-101 and KIP-320 (epochs and truncation).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.anomalies import ANOMALIES
from checkers.kernels.evidence import seconds
from checkers.kernels.fates import EXCUSED as FATE_EXCUSED
from checkers.kernels.fates import Claims
from checkers.kernels.history import INF_NS
from checkers.kernels.lawful_losses import may_have_destroyed
from checkers.kernels.log_checkers import LOG_TABLES, elections_of, reader_of
from checkers.kernels.metadata_gaps import MetadataGaps
from checkers.kernels.partition_tables import records_returned
from checkers.kernels.queries.validation import rows_of
from checkers.kernels.vacuous_facts import extent_in, shown_in
from harness.contracts.checker import CheckerFinding, CheckerReport
from harness.contracts.run_context import QUERY_CHECKER, RunContext
from harness.contracts.verdict import Judgement, Witness
from harness.history.op import OpKind, Outcome, QueryKind
from harness.history.schema import CLEANED_RECORDS

LOOKUP_SKIPS = "lookup-skips-record"
EPOCH_ENDS_EARLY = "epoch-ends-early"
FORBIDDEN = (
    "Forbidden: leaders have every committed record, and these answers are about a committed one"
)
UNDECIDED = (
    "Undecided: a leader may lawfully have lacked the record for a while, because of a flagged election or of"
    " destroyed data without eligible leader replicas, and what is recorded does not show whether it did"
)

EXCUSED = (
    "Excused: a lawful flagged election lost the record, and the leader that was asked lacked it"
)
RULES = {
    Judgement.FORBIDDEN: FORBIDDEN,
    Judgement.UNDECIDED: UNDECIDED,
    Judgement.EXCUSED: EXCUSED,
}
"""What a wrong answer may be, and why."""

NOTHING = -1
"""The offset or the epoch of a response that names none. Any other negative one is a defect of the leader."""

Row = Mapping[str, Any]


class OffsetQueriesChecker:
    """The checker `offset-queries`; see the module."""

    name = QUERY_CHECKER
    tables = ("offset_queries", CLEANED_RECORDS, *LOG_TABLES)
    per_partition = True

    def check(self, tables: Mapping[str, pa.Table], context: RunContext) -> CheckerReport:
        """Checks the questions about one partition."""
        answered = [
            row for row in tables["offset_queries"].to_pylist() if row["outcome"] == Outcome.OK
        ]
        if not answered:
            return CheckerReport(coverage={"offset_queries": 0, "offset_queries_judged": 0})
        kept = _kept(tables)
        judged = [row for row in answered if is_judged(row, kept)]
        lacks = _Lacks(tables, context)
        findings = []
        for identifier, is_wrong in ((LOOKUP_SKIPS, _skips), (EPOCH_ENDS_EARLY, _ends_early)):
            by_judgement: dict[Judgement, list[Row]] = {judgement: [] for judgement in RULES}
            for row in judged:
                if is_wrong(row):
                    by_judgement[lacks.judgement(row)].append(row)
            findings += [
                _finding(identifier, bad, judgement)
                for judgement, bad in by_judgement.items()
                if bad
            ]
        coverage = {"offset_queries": len(answered), "offset_queries_judged": len(judged)}
        return CheckerReport(findings=tuple(findings), coverage=coverage)


OFFSET_QUERIES = OffsetQueriesChecker()


class _Lacks:
    """Which leaders of one partition may lawfully have lacked a record that a poll had returned.

    Args:
        tables: Those of the partition.
        context: What the run declares about itself.
    """

    def __init__(self, tables: Mapping[str, pa.Table], context: RunContext) -> None:
        self._error_ns = context.clock_error_ns
        states = tables["partition_states"].sort_by("metadata_offset").to_pylist()
        shown = shown_in(extent_in(tables), context)
        answered = tables["offset_queries"].column("leader_epoch").to_pylist()
        shown = replace(shown, epochs=tuple(sorted({*shown.epochs, *answered})))
        gaps = MetadataGaps(states, shown, context.clock_error_ns)
        flagged = [state["leader_epoch"] for state in states if state["flagged"]]
        hidden = [gap for index in range(len(states) + 1) if (gap := gaps.before(index))]
        self._perhaps_unclean = [(epoch, epoch) for epoch in flagged]
        self._perhaps_unclean += [(gap.first_epoch, gap.last_epoch) for gap in hidden]
        faults = [] if context.elr_on else tables["faults"].to_pylist()
        self._destroying = [fault for fault in faults if may_have_destroyed(fault)]
        self._operations = tables["operations"]
        self._tables, self._context = tables, context

    @cached_property
    def _sent_ns(self) -> dict[int, int]:
        """When each append was sent."""
        rows = rows_of(self._operations, ("op_index", "kind", "invoked_ns"))
        return {op: invoked_ns for op, kind, invoked_ns in rows if kind == OpKind.APPEND}

    def judgement(self, row: Row) -> Judgement:
        """Returns what a wrong answer (of `offset_queries`) is."""
        if not self._may_be_lawful(row):
            return Judgement.FORBIDDEN
        return Judgement.EXCUSED if self._was_lost(row) else Judgement.UNDECIDED

    def _was_lost(self, row: Row) -> bool:
        """Returns whether recorded logs show that a lawful election had lost the record before the answer."""
        elections = elections_of(self._tables, self._context)
        if not elections.logs.has_all_changes:
            return False
        reader = reader_of(self._tables, self._context)
        op, offset, value, epoch, invoked_ns, completed_ns = (
            np.array([row[name]], dtype=np.int64)
            for name in (
                "op_index",
                "record_offset",
                "record_value",
                "leader_epoch",
                "invoked_ns",
                "completed_ns",
            )
        )
        answered = Claims(
            offset=offset,
            low_epoch=epoch,
            high_epoch=epoch,
            from_ns=invoked_ns,
            by_ns=completed_ns,
            epoch=epoch,
            read_ns=np.full(1, -INF_NS),
        )
        fates = elections.fates(reader.claims(op, offset, value), answered, reader.written)
        return bool(fates.outcome[0] == FATE_EXCUSED)

    def _may_be_lawful(self, row: Row) -> bool:
        """Returns whether the leader that gave an answer may have lacked the record."""
        if any(
            row["known_epoch"] < last and first <= row["leader_epoch"]
            for first, last in self._perhaps_unclean
        ):
            return True
        return any(self._may_lack_after(fault, row) for fault in self._destroying)

    def _may_lack_after(self, fault: Row, row: Row) -> bool:
        if fault["invoked_ns"] - self._error_ns > row["completed_ns"]:
            return False
        # Nothing shows that a fault is over whose injection failed.
        if fault["failed"] or fault["healed_ns"] is None:
            return True
        sent_ns = self._sent_ns.get(row["record_value"], -INF_NS)
        return bool(sent_ns <= fault["healed_ns"] + self._error_ns)


def _kept(tables: Mapping[str, pa.Table]) -> set[tuple[int, int]]:
    """Returns offset and value of every record that the final reads returned, not those that were added."""
    operations = rows_of(tables["operations"], ("op_index", "kind", "final"))
    final = {op for op, kind, is_final in operations if is_final and kind == OpKind.POLL}
    records = rows_of(records_returned(tables), ("op_index", "offset", "value"))
    return {(offset, value) for op, offset, value in records if op in final}


def is_judged(row: Row, kept: set[tuple[int, int]]) -> bool:
    """Returns whether anything is claimed about an answer.

    Args:
        row: An answer, a row of `offset_queries`.
        kept: Offset and value of every record that the final reads returned.
    """
    is_later = row["leader_epoch"] >= row["known_epoch"] >= 0
    return is_later and (row["record_offset"], row["record_value"]) in kept


def is_wrong(row: Row) -> bool:
    """Returns whether an answer (of `offset_queries`) contradicts the record that it is about."""
    return _skips(row) or _ends_early(row)


def _skips(row: Row) -> bool:
    is_found = 0 <= row["offset"] <= row["record_offset"]
    return bool(row["kind"] == QueryKind.TIMESTAMP and not is_found)


def _ends_early(row: Row) -> bool:
    is_after = row["found"] == row["asked"] and row["offset"] > row["record_offset"]
    return bool(row["kind"] == QueryKind.LEADER_EPOCH and not is_after)


def _finding(identifier: str, bad: list[Row], judgement: Judgement) -> CheckerFinding:
    kind = ANOMALIES[identifier]
    first = bad[0]
    return CheckerFinding(
        id=identifier,
        level=kind.level,
        count=len(bad),
        judgement=judgement,
        rule=RULES[judgement],
        sentence=_sentence(first),
        witnesses=(
            Witness(
                op_index=int(first["op_index"]),
                text=(
                    f"poll {first['op_index']} returned the record of op {first['record_value']} at offset"
                    f" {first['record_offset']} in leader epoch {first['known_epoch']}"
                ),
            ),
        ),
        details={"at_ns": int(first["completed_ns"]), "node": first["node"]},
    )


def _sentence(row: Row) -> str:
    when = (
        f"at {seconds(row['completed_ns'])} {row['node']}, leader in epoch {row['leader_epoch']},"
    )
    record = f"the record of op {row['record_value']} at offset {row['record_offset']}"
    if row["kind"] == QueryKind.TIMESTAMP:
        answer = f"offset {row['offset']}" if row["offset"] != NOTHING else "no offset"
        return f"{when} returned {answer} for timestamp {row['asked']} ms, which {record} has"
    answer = (
        f"epoch {row['found']} and offset {row['offset']}"
        if row["found"] != NOTHING
        else "no epoch"
    )
    return f"{when} returned {answer} for the end of epoch {row['asked']}, which {record} has"
