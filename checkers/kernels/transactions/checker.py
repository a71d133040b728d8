"""The checker `transactions`: the transactions of a run with isolation.level=read_committed and read_uncommitted.

Consumers of both isolation levels may read beside each other. What those with `read_committed` received, together
with all transactions of producers and the closing reads, is judged by Kafka's promise for that level. What those
with `read_uncommitted` received is judged beside the same transactions by the promise for theirs, which allows
records of aborted and of open transactions. A transaction that polls with `read_uncommitted` and sends records
counts in the first judgement with what it sent. A kind of anomaly that both judgements find is reported once.
What consumer groups consumed is judged apart, because a group may have members of both isolation levels.

An unclean election removes records, committed positions and the states of transactions. No table shows which of
them, so what may follow from one is undecided if there was any; only what nobody ever wrote stays forbidden. The
same holds if a fault destroyed data of a replica and one replica of some topic may commit alone (min ISR 1).
Where records were removed from a log, by retention or by the cleaner, only what a missing record explains is
undecided. Retention removes no record from `log_start_offset` on, so what these records show alone is decided.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from checkers.kernels.evidence import seconds
from checkers.kernels.lawful_losses import may_lack_records
from checkers.kernels.metadata_gaps import Shown, effective_min_isr
from checkers.kernels.progress import PROGRESS
from checkers.kernels.transactions.check import check_inputs, check_log_transactions
from checkers.kernels.transactions.columns import Append, Transaction, transactions_of
from checkers.kernels.transactions.event_order import forbidden, order_of_events, seen_committed
from checkers.kernels.transactions.events import (
    Recorded,
    as_transactions,
    recorded_transactions,
    records_from,
    without_polls,
)
from checkers.kernels.transactions.isolation import KAFKA_READ_COMMITTED, KAFKA_READ_UNCOMMITTED
from checkers.kernels.transactions.log_closing import MayRepeat
from checkers.kernels.transactions.old_positions import OldPositions
from checkers.kernels.transactions.standstill import standstill, stuck_partitions
from checkers.kernels.vacuous_facts import clocks_hide_order
from harness.contracts.checker import CheckerFinding, CheckerReport
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Judgement, Witness
from harness.history.op import TransactionEvent
from harness.history.schema import COORDINATOR_STATES

NO_COMMIT = "no transaction committed in the whole run"
NO_ORDER = (
    "no transaction began more than clock_error_ns after another one had committed, so their order cannot be"
    " judged"
)
NEVER_LOST = frozenset({"phantom-value", "impossible-offset", "future-read"})
"""What no lost data explains."""
NEVER_REMOVED = NEVER_LOST | {
    *("G1a", "aborted-record-visible", "precommitted-read", "zombie-commit"),
    *("circular-reads", "circular-reads-process", "circular-reads-realtime"),
    *("divergent-value", "order-inversion", "int-nonmonotonic-send"),
    *("int-nonmonotonic-poll", "session-nonmonotonic-poll", "input-processed-twice"),
}
"""What the removal of records from a log, by retention or by the cleaner, does not explain.

Removal shows no record that was hidden, gives no offset to another record, and moves positions only forward.
`duplicate` is not among them: with its records, a log may lose what it knows of a producer, and then accepts
a record again that was sent twice (KIP-360).
"""
MAY_BE_LOST = (
    "an unclean election, or a fault that destroyed the only copy, may have removed records, positions or markers"
    " of transactions, and it is not known which"
)
MAY_BE_REMOVED = (
    "the logs do not start at 0, and it is not known which records were removed from their start"
)

MAY_BE_CLEANED = (
    "the topic is compacted, and keys of records in transactions are not recorded, so it is not known which"
    " records the cleaner removed"
)


class TransactionsChecker:
    """The checker `transactions`; see the module."""

    name = "transactions"
    tables = (
        "transaction_events",
        COORDINATOR_STATES,
        *PROGRESS.tables,
    )
    per_partition = False

    def check(self, tables: Mapping[str, pa.Table], context: RunContext) -> CheckerReport:
        """Checks all transactions of a run."""
        events = tables["transaction_events"]
        recorded = recorded_transactions(events)
        may_repeat = OldPositions(recorded, tables, context).may_explain
        report = _judged(recorded, context, may_repeat)
        if not any(one.is_write and one.outcome == "committed" for one in recorded):
            report = replace(report, unknown_reasons=(NO_COMMIT,))
        elif _is_order_hidden(recorded, context):
            report = replace(report, unknown_reasons=(*report.unknown_reasons, NO_ORDER))
        stuck = standstill(tables, recorded, context)
        known = {finding.id for finding in report.findings}
        shown = order_of_events(recorded, context.log_start_offset)
        findings = (
            *report.findings,
            *(finding for finding in shown if finding.id not in known),
            *_taken_over(events, recorded),
            *([stuck] if stuck else ()),
        )
        if _may_have_lost(tables, context):
            findings = tuple(_undecided(one, MAY_BE_LOST, NEVER_LOST) for one in findings)
        elif context.compacted:
            findings = tuple(_undecided(one, MAY_BE_CLEANED, NEVER_REMOVED) for one in findings)
        elif context.log_start_offset:
            kept = _judged(records_from(recorded, context.log_start_offset), context, may_repeat)
            certain = {one.id: one for one in kept.findings if one.judgement is Judgement.FORBIDDEN}
            findings = tuple(
                certain.get(one.id, _undecided(one, MAY_BE_REMOVED, NEVER_REMOVED))
                for one in findings
            )
        if PROGRESS.name not in context.checkers:
            # No lost or removed record keeps a partition from being served.
            findings = (*findings, *stuck_partitions(tables, context))
        return replace(report, findings=findings, coverage=report.coverage | _coverage(recorded))


TRANSACTIONS = TransactionsChecker()


def _judged(
    recorded: Sequence[Recorded], context: RunContext, may_repeat: MayRepeat
) -> CheckerReport:
    """Returns what both isolation levels show."""

    def judged(transactions: list[Transaction], promise: str) -> CheckerReport:
        return check_log_transactions(
            transactions_of(transactions), promise=promise, clock_error_ns=context.clock_error_ns
        )

    everything = as_transactions(recorded, has_final_reads=context.final_phase_complete)
    inputs = check_inputs(
        transactions_of(_with_outcomes_seen(everything, recorded)),
        clock_error_ns=context.clock_error_ns,
        may_repeat=may_repeat,
    )
    is_uncommitted = [one.is_uncommitted_read for one in recorded]
    without_groups = [replace(one, group=None) for one in everything]
    committed = [t for t, skip in zip(without_groups, is_uncommitted, strict=True) if not skip]
    readers = [t for t, keep in zip(without_groups, is_uncommitted, strict=True) if keep]
    sent = [without_polls(t) for t in readers if any(isinstance(op, Append) for op in t.ops)]
    report = judged([*committed, *sent], KAFKA_READ_COMMITTED)
    findings, reasons = (*report.findings, *inputs), report.unknown_reasons
    if readers:
        writes = {one.begin["transaction"] for one in recorded if one.is_write}
        writers = [without_polls(t) for t in committed if t.id in writes]
        closing = [t for t in committed if t.is_final]
        other = judged([*writers, *closing, *readers], KAFKA_READ_UNCOMMITTED)
        known = {finding.id for finding in report.findings}
        findings = (*findings, *(one for one in other.findings if one.id not in known))
        reasons = tuple(dict.fromkeys((*reasons, *other.unknown_reasons)))
    return replace(report, findings=findings, unknown_reasons=reasons)


def _with_outcomes_seen(
    transactions: Sequence[Transaction], recorded: Sequence[Recorded]
) -> list[Transaction]:
    """Returns transactions with those as committed that a read_committed consumer saw."""
    seen = seen_committed(recorded)
    return [replace(one, outcome="committed") if one.id in seen else one for one in transactions]


def _is_order_hidden(recorded: Sequence[Recorded], context: RunContext) -> bool:
    """Returns whether the clocks of the run may differ so much that no order of transactions is known."""
    writers = [one for one in recorded if one.is_write]
    ended = [one.end["at_ns"] for one in writers if one.end and one.outcome == "committed"]
    begun = [one.begin["at_ns"] for one in writers]
    return clocks_hide_order(
        min(ended, default=None), max(begun, default=None), context.clock_error_ns
    )


def _taken_over(events: pa.Table, recorded: Sequence[Recorded]) -> tuple[CheckerFinding, ...]:
    """Returns the commits of producers whose transactional id another one had taken over (`zombie-commit`).

    Taking an id over aborts its open transaction, so a commit that is requested afterwards cannot succeed. If its
    outcome is unknown, a record of it that a read_committed consumer received shows that it did. A commit that was
    requested before may have succeeded although its response was lost.
    """
    initialised = [
        row for row in events.to_pylist() if row["event"] == TransactionEvent.INITIALISED
    ]
    seen = seen_committed(recorded)
    bad: list[tuple[Recorded, Mapping[str, int], str]] = []
    for one in recorded:
        begin = one.begin
        shown = "and committed" if one.outcome == "committed" else seen.get(begin["transaction"])
        if one.asked is None or shown is None:
            continue
        asked = one.asked["event_index"]
        takeovers = [
            row
            for row in initialised
            if row["transactional_id"] == begin["transactional_id"] and row["event_index"] < asked
        ]
        newest = max(takeovers, key=lambda row: row["event_index"], default=None)
        if newest is not None and newest["process"] != begin["process"]:
            bad.append((one, newest, shown))
    if not bad:
        return ()
    one, newest, shown = bad[0]
    asked_ns = (one.asked or {})["at_ns"]
    number = int(one.begin["transaction"])
    ended = "..." if one.end is None else seconds(one.end["at_ns"])
    return (
        forbidden(
            "zombie-commit",
            count=len(bad),
            sentence=(
                f"process {newest['process']} took over {one.begin['transactional_id']} at"
                f" {seconds(newest['at_ns'])}, but T{number} of process {one.begin['process']} requested its"
                f" commit at {seconds(asked_ns)} {shown}"
            ),
            witnesses=(
                Witness(
                    op_index=number,
                    text=(
                        f"process {one.begin['process']} T{number} {one.begin['transactional_id']} ->"
                        f" {one.outcome} [{seconds(one.begin['at_ns'])}, {ended}]"
                    ),
                ),
            ),
        ),
    )


def _may_have_lost(tables: Mapping[str, pa.Table], context: RunContext) -> bool:
    # Topics of the system count as well: Kafka's default for positions of groups is 1.
    states = tables["partition_states"].select(["min_isr", "replicas"]).to_pylist()
    least = min([context.min_isr, *(effective_min_isr(row) for row in states if row["replicas"])])
    shown = Shown(ends_early=context.record_ends_early)
    return may_lack_records(tables, shown, after_destroyed_data=least == 1)


def _undecided(finding: CheckerFinding, rule: str, never: frozenset[str]) -> CheckerFinding:
    """Returns a forbidden finding as undecided, for the reason `rule`, unless it is one of `never`."""
    if finding.judgement != Judgement.FORBIDDEN or finding.id in never:
        return finding
    return replace(finding, judgement=Judgement.UNDECIDED, rule=rule)


def _coverage(recorded: Sequence[Recorded]) -> dict[str, int]:
    producers = [one for one in recorded if one.is_write]
    counts = dict.fromkeys(("committed", "aborted", "unknown"), 0)
    for one in producers:
        counts[one.outcome] += 1
    return {
        "producer_transactions": len(producers),
        **{f"producer_transactions_{outcome}": count for outcome, count in counts.items()},
        "records_sent": sum(len(one.sends) for one in recorded),
        "records_polled": sum(len(one.polls) for one in recorded),
        "records_polled_uncommitted": sum(
            len(one.polls) for one in recorded if one.is_uncommitted_read
        ),
        "positions_committed": sum(
            len(one.positions) for one in recorded if one.outcome == "committed"
        ),
    }
