"""The two checkers of a replicated log, `linearizability` and `lost-acked`, as the registry finds them.

Both need the same history and the same elections of a partition, which are derived once for both.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from checkers.kernels.claims import ClaimReader
from checkers.kernels.elections import Elections
from checkers.kernels.findings import Finding
from checkers.kernels.history import I64, PartitionHistory
from checkers.kernels.judging import FindingJudge, options_of
from checkers.kernels.left_out import NOTHING
from checkers.kernels.linearizability import PartitionReport, check_tables
from checkers.kernels.lost_acked import (
    NO_RANGES,
    FinalLog,
    check_losses,
    final_log,
    passed_between_polls,
)
from checkers.kernels.partition_tables import PartitionTables, derive_once
from checkers.kernels.vacuous_facts import extent_in, shown_in
from harness.contracts.checker import CheckerFinding, CheckerReport
from harness.contracts.run_context import SESSION_CHECKER, RunContext

LOG_TABLES = (
    "operations",
    "records_read",
    "end_offsets_seen",
    "partition_states",
    "replica_states",
    "broker_states",
    "faults",
)


class Linearizability:
    """Whether all clients can have seen one log; see `checkers.kernels.linearizability`."""

    name = "linearizability"
    tables = LOG_TABLES
    per_partition = True

    def check(self, tables: Mapping[str, pa.Table], context: RunContext) -> CheckerReport:
        """Checks one partition."""
        report = log_of(tables, context)
        return CheckerReport(
            findings=judged_of(report.findings, tables, context), coverage=report.coverage
        )


class LostAcked:
    """Whether acknowledged records are still there at the end; see `checkers.kernels.lost_acked`."""

    name = "lost-acked"
    tables = LOG_TABLES
    per_partition = True

    def check(self, tables: Mapping[str, pa.Table], context: RunContext) -> CheckerReport:
        """Checks one partition."""
        report = log_of(tables, context)
        losses = check_losses(
            report.history,
            report.facts,
            elections_of(tables, context),
            reader_of(tables, context),
            log_start_offset=context.log_start_offset,
            phase_complete=context.final_phase_complete,
            ends_recorded=context.log_ends_recorded,
            sent_twice=context.at_least_once,
            clock_error_ns=context.clock_error_ns,
            passed=_passed(report.history, tables, context),
        )
        return CheckerReport(
            findings=judged_of(losses.findings, tables, context),
            unknown_reasons=_unknown_reasons(losses.coverage, losses.final.is_complete),
            coverage=losses.coverage | {"appends_acked": report.coverage["appends_acked"]},
        )


LINEARIZABILITY = Linearizability()
LOST_ACKED = LostAcked()


def log_of(tables: Mapping[str, pa.Table], context: RunContext) -> PartitionReport:
    """Returns what the log kernel derives from a partition's operations."""

    def derive() -> PartitionReport:
        return check_tables(
            tables["operations"],
            tables["records_read"],
            tables["end_offsets_seen"],
            options_of(context),
            tables.left_out if isinstance(tables, PartitionTables) else NOTHING,
        )

    return derive_once(tables, "log", derive)


def final_log_of(tables: Mapping[str, pa.Table], context: RunContext) -> FinalLog:
    """Returns what the final reads showed of a partition's log."""

    def derive() -> FinalLog:
        history = log_of(tables, context).history
        return final_log(
            history,
            log_start_offset=context.log_start_offset,
            phase_complete=context.final_phase_complete,
            ends_recorded=context.log_ends_recorded,
            sent_twice=context.at_least_once,
            passed=_passed(history, tables, context),
        )

    return derive_once(tables, "final log", derive)


def _passed(
    history: PartitionHistory, tables: Mapping[str, pa.Table], context: RunContext
) -> tuple[I64, I64]:
    """Returns the ranges [start, stop) that final reads went over without a record."""
    if not context.sparse_offsets:
        return NO_RANGES
    return passed_between_polls(history, tables["operations"])


def elections_of(tables: Mapping[str, pa.Table], context: RunContext) -> Elections:
    """Returns the partition's elections."""

    def derive() -> Elections:
        return Elections(
            tables["partition_states"],
            tables["replica_states"],
            tables["broker_states"],
            tables["faults"],
            elr_on=context.elr_on,
            unclean_election_enabled=context.unclean_election_enabled,
            clock_error_ns=context.clock_error_ns,
            shown=shown_in(extent_in(tables), context),
        )

    return derive_once(tables, "elections", derive)


def reader_of(tables: Mapping[str, pa.Table], context: RunContext) -> ClaimReader:
    """Returns what the partition's operations show of records."""

    def derive() -> ClaimReader:
        return ClaimReader(
            log_of(tables, context).history,
            tables["operations"],
            tables["records_read"],
            elections_of(tables, context),
            sent_again=context.at_least_once or SESSION_CHECKER in context.checkers,
            compacted=context.compacted,
            clock_error_ns=context.clock_error_ns,
        )

    return derive_once(tables, "reader", derive)


def judged_of(
    findings: Iterable[Finding], tables: Mapping[str, pa.Table], context: RunContext
) -> tuple[CheckerFinding, ...]:
    """Returns findings about the log of a partition with their judgements; those without an instance vanish."""

    def derive() -> FindingJudge:
        report, elections = log_of(tables, context), elections_of(tables, context)
        reader = reader_of(tables, context)
        return FindingJudge(tables["operations"], report, reader, elections, context)

    findings = tuple(findings)
    if not findings:
        return ()
    judge = derive_once(tables, "judge", derive)
    return tuple(judged for finding in findings for judged in judge.judged(finding))


def _unknown_reasons(coverage: Mapping[str, Any], final_reads_complete: bool) -> tuple[str, ...]:
    for count, what in (
        (coverage["acked_unseen"], "acknowledged records"),
        (coverage["read_unseen"], "records that were read"),
    ):
        if count:
            return (f"the final reads do not show what became of {count} {what}",)
    if not final_reads_complete:
        return (
            "the final reads are incomplete (they must cover the log from its start to the largest end seen in the"
            " final phase)",
        )
    return ()
