"""Several checkers into one verdict of one run.

Every partition is checked by itself; invalid beats unknown beats valid. A run is `unknown` rather than `valid`
when an anomaly is undecided, or when it could not have failed: when the final reads are incomplete, when nothing
was acknowledged while a fault was in force, or when a fault that was requested never took effect.

The composition is total: whatever can be read gets a verdict. If a checker itself fails on a partition, that is
recorded and the verdict is unknown, whatever the other partitions show short of invalid.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.anomalies import ANOMALIES, LEVELS
from checkers.idle_faults import why_all_idle, without_effect
from checkers.kernels.history import INF_NS, is_word
from checkers.kernels.left_out import NOTHING, LeftOut
from checkers.kernels.levels import levels_of
from checkers.kernels.measures import was_in_force
from checkers.kernels.partition_tables import PartitionTables, derive_once, empty_table
from checkers.kernels.refusals import int_column, text_column
from checkers.kernels.vacuous_facts import (
    EXTENT,
    Extent,
    extent_in,
    hides_nothing,
    unfounded_excuses,
    vacuous_facts,
)
from checkers.kernels.validation import (
    NameOf,
    check_columns,
    check_places,
    check_run,
    partition_names,
)
from checkers.kernels.words import APPEND, OK, operation_words
from checkers.registry import find_checkers
from harness.contracts.checker import Checker, CheckerFinding
from harness.contracts.run_context import (
    LOG_CHECKERS,
    REPLICA_CHECKER,
    RunContext,
    name_and_id,
    one_fault,
)
from harness.contracts.verdict import Anomaly, Judgement, Validity, Verdict
from harness.history.op import TransactionEvent
from harness.history.parquet import by_place, places_of
from harness.history.schema import (
    CLEANED_RECORDS,
    CLIENT_TABLES,
    COORDINATOR_STATES,
    OFFSETS_TOPIC,
    PARTITIONED_TABLES,
    TABLES,
)

JUDGED_TABLES = (*CLIENT_TABLES, "replica_batches")
"""A topic-partition is judged if a client touched it, or if the logs of its replicas were recorded: clients of
transactions record nothing in partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionJudgement:
    """One partition's anomalies, judged, and its coverage.

    Attributes:
        topic, partition: Which one; "" and -1 for the judgement of checkers that see the whole run.
        anomalies: Everything found, what matters most first.
        unknown_reasons: Why the verdict cannot be better than unknown; usually empty.
        coverage: Counts of all checkers.
    """

    topic: str
    partition: int
    anomalies: tuple[Anomaly, ...] = ()
    unknown_reasons: tuple[str, ...] = ()
    coverage: dict[str, Any] = field(default_factory=dict)

    @property
    def is_of_partition(self) -> bool:
        """Whether it is about one partition, not about the whole run."""
        return bool(self.topic)


def _table(tables: Mapping[str, pa.Table], name: str) -> pa.Table:
    return tables[name] if name in tables else empty_table(name)


def judge_partition(
    topic: str,
    partition: int,
    tables: Mapping[str, pa.Table],
    context: RunContext,
    left_out: LeftOut = NOTHING,
    extent: Extent | None = None,
    derived: Mapping[str, Any] | None = None,
) -> PartitionJudgement:
    """Runs the checkers of single partitions on one partition.

    Args:
        topic: Its topic.
        partition: Its index.
        tables: Its rows of the partitioned tables, and all rows of the others that its checkers read; a missing
            table counts as empty.
        context: What the run declares about itself.
        left_out: What was left out of the tables.
        extent: What the whole history spans; None if the tables hold it.
        derived: What is known already of what checkers derive (`checkers.kernels.partition_tables.derive_once`).
    """
    known = PartitionTables(full_tables(tables), dict(derived or {}), left_out)
    if extent is not None:
        derive_once(known, EXTENT, lambda: extent)
    checkers = partition_checkers(context)
    if not left_out and not any(known[name].num_rows for name in CLIENT_TABLES):
        # No client says anything about it: only what its replicas hold is compared.
        checkers = tuple(checker for checker in checkers if checker.name == REPLICA_CHECKER)
        return _judge(topic, partition, checkers, known, context)
    judgement = _judge(topic, partition, checkers, known, context)
    reasons = unfounded_excuses(judgement.anomalies, known["broker_states"], context)
    if not hides_nothing(context):
        reasons += vacuous_facts(extent_in(known), context)
    unknown = (*judgement.unknown_reasons, *(f"{topic}-{partition}: {why}" for why in reasons))
    return replace(judgement, unknown_reasons=unknown)


def judge_partition_safely(
    topic: str, partition: int, tables: Mapping[str, pa.Table], context: RunContext
) -> PartitionJudgement:
    """Judges one partition like `judge_partition`; a failure of the checker itself becomes an unknown."""
    try:
        return judge_partition(topic, partition, tables, context)
    except Exception as failure:
        # The other partitions keep their verdicts.
        reason = f"{topic}-{partition}: the checker failed ({type(failure).__name__}: {failure})"
        return PartitionJudgement(topic=topic, partition=partition, unknown_reasons=(reason,))


def judge_whole_run(tables: Mapping[str, pa.Table], context: RunContext) -> PartitionJudgement:
    """Runs the checkers that see the whole run.

    Args:
        tables: The tables that they read; a missing one counts as empty.
        context: What the run declares about itself.
    """
    whole = PartitionTables(full_tables(tables))
    return _judge("", -1, whole_run_checkers(context), whole, context)


def full_tables(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Returns all tables of a run; those that are missing are empty."""
    return {name: _table(tables, name) for name in (*TABLES, COORDINATOR_STATES, CLEANED_RECORDS)}


def partition_checkers(context: RunContext) -> tuple[Checker, ...]:
    """Returns the run's checkers that are called once per partition."""
    return tuple(c for c in find_checkers(context.checkers) if c.per_partition)


def whole_run_checkers(context: RunContext) -> tuple[Checker, ...]:
    """Returns the run's checkers that are called once per run."""
    return tuple(c for c in find_checkers(context.checkers) if not c.per_partition)


def _judge(
    topic: str,
    partition: int,
    checkers: Iterable[Checker],
    whole: PartitionTables,
    context: RunContext,
) -> PartitionJudgement:
    where = f"{topic}-{partition}: " if topic else ""
    anomalies: list[Anomaly] = []
    unknown: list[str] = []
    coverage: dict[str, Any] = {}
    for checker in checkers:
        try:
            report = checker.check(whole.only(checker.tables), context)
            found = [_anomaly(topic, partition, finding) for finding in report.findings]
        except Exception as failure:
            # The edge where a checker's own failure is caught: what the others found still counts.
            failed = f"{type(failure).__name__}: {failure}"
            unknown.append(f"{where}the checker failed ({checker.name}: {failed})")
            continue
        anomalies += found
        unknown += [f"{where}{reason}" for reason in report.unknown_reasons]
        coverage |= report.coverage
    anomalies.sort(key=_severity)
    return PartitionJudgement(
        topic=topic,
        partition=partition,
        anomalies=tuple(anomalies),
        unknown_reasons=tuple(unknown),
        coverage=coverage,
    )


def _anomaly(topic: str, partition: int, finding: CheckerFinding) -> Anomaly:
    if finding.level not in LEVELS:
        raise ValueError(f"{finding.id}: {finding.level!r} is not one of {', '.join(LEVELS)}")
    return Anomaly(
        id=finding.id,
        level=finding.level,
        topic=topic,
        partition=partition,
        count=finding.count,
        judgement=Judgement(finding.judgement),
        rule=finding.rule,
        sentence=finding.sentence,
        witnesses=finding.witnesses,
        details=finding.details,
    )


_JUDGEMENT_ORDER = {judgement: rank for rank, judgement in enumerate(Judgement)}


def _severity(anomaly: Anomaly) -> tuple[int, int, str, str, int]:
    return (
        _JUDGEMENT_ORDER[anomaly.judgement],
        LEVELS.index(anomaly.level),
        anomaly.id,
        anomaly.topic,
        anomaly.partition,
    )


def judge_run(tables: Mapping[str, pa.Table], context: RunContext) -> Verdict:
    """Checks every partition of a run and composes the verdict.

    Args:
        tables: The run's tables by name (`harness.history.schema.TABLES`); a missing table counts as empty.
        context: What the run declares about itself (its table `run_facts`).

    Raises:
        HistoryError: A table lacks a column, or a row cannot be (`checkers.kernels.validation`); the sentence
            names it.
    """
    check_columns(tables)
    full = {name: _table(tables, name) for name in TABLES}
    full[COORDINATOR_STATES] = coordinator_states(full["partition_states"])
    shared = {name: table for name, table in full.items() if name not in PARTITIONED_TABLES}
    partitions = valid_partitions(full, context)
    cleaned = by_place(_table(tables, CLEANED_RECORDS))
    for place, rows in partitions.items():
        rows[CLEANED_RECORDS] = cleaned.get(place, empty_table(CLEANED_RECORDS))
    judgements = [
        judge_partition_safely(topic, partition, {**rows, **shared}, context)
        for (topic, partition), rows in partitions.items()
    ]
    acked_during = acked_during_faults(full["operations"], full["faults"])
    if whole_run_checkers(context):
        judgements.append(judge_whole_run(full, context))
        acked_during += committed_during_faults(full["transaction_events"], full["faults"])
    return compose(
        judgements,
        acked_during,
        full["faults"],
        full["violations"],
        context,
        untouched=untouched_partitions(
            places_of(full["partition_states"]),
            [
                place
                for place, rows in partitions.items()
                if not rows.keys().isdisjoint(CLIENT_TABLES)
            ],
        ),
    )


def coordinator_states(partition_states: pa.Table) -> pa.Table:
    """Returns the rows of `partition_states` of the topic that has the records of consumer groups.

    Args:
        partition_states: Rows of the whole run.
    """
    return partition_states.filter(is_word(partition_states.column("topic"), OFFSETS_TOPIC))


def untouched_partitions(
    existing: Iterable[tuple[str, int]], judged: Iterable[tuple[str, int]]
) -> tuple[str, ...]:
    """Returns the partitions of tested topics that no client touched, as "topic-partition".

    Args:
        existing: Partitions in the committed metadata.
        judged: Partitions that a client touched.
    """
    judged = set(judged)
    topics = {topic for topic, _ in judged}
    return tuple(
        f"{topic}-{partition}"
        for topic, partition in sorted(existing)
        if topic in topics and (topic, partition) not in judged
    )


def valid_partitions(
    tables: Mapping[str, pa.Table],
    context: RunContext,
    names: Callable[[str, int], NameOf] = partition_names,
) -> dict[tuple[str, int], dict[str, pa.Table]]:
    """Returns the rows of every topic-partition that is judged, by table, if all tables are valid.

    Args:
        tables: All tables of the run.
        context: What the run declares about itself.
        names: What the tables of a topic-partition are called in a message.

    Raises:
        HistoryError: A row cannot be; the sentence names it.
    """
    check_places(tables, names("", -1))
    partitions = dict(sorted(by_partition(tables).items()))
    check_run(tables, partitions, context, names)
    return partitions


def by_partition(tables: Mapping[str, pa.Table]) -> dict[tuple[str, int], dict[str, pa.Table]]:
    """Returns the rows of every topic-partition that is judged, by table."""
    parts: dict[tuple[str, int], dict[str, pa.Table]] = {}
    for name in PARTITIONED_TABLES:
        for place, rows in by_place(_table(tables, name)).items():
            parts.setdefault(place, {})[name] = rows
    return {key: rows for key, rows in parts.items() if any(name in rows for name in JUDGED_TABLES)}


def compose(
    judgements: Sequence[PartitionJudgement],
    acked_during: int,
    faults: pa.Table,
    violations: pa.Table,
    context: RunContext,
    *,
    untouched: Sequence[str] = (),
) -> Verdict:
    """Combines judgements into the verdict of the run.

    Args:
        judgements: One per partition, and one of the whole-run checkers if there are any; in any order.
        acked_during: Sum of `acked_during_faults` over the partitions.
        faults: The run's faults.
        violations: Forbidden behaviour of nodes.
        context: What the run declares about itself.
        untouched: See `untouched_partitions`.
    """
    judgements = sorted(
        judgements, key=lambda each: (not each.is_of_partition, each.topic, each.partition)
    )
    anomalies = [anomaly for judgement in judgements for anomaly in judgement.anomalies]
    anomalies += [_broken_invariant(text) for text in violations.column("sentence").to_pylist()]
    anomalies.sort(key=_severity)
    forbidden = [a for a in anomalies if a.judgement == Judgement.FORBIDDEN]
    reasons = [_reason(a) for a in forbidden]
    unknown = [f"{_reason(a)}; {a.rule}" for a in anomalies if a.judgement == Judgement.UNDECIDED]
    unknown += [reason for judgement in judgements for reason in judgement.unknown_reasons]
    unknown += _vacuous(judgements, faults, acked_during, context)
    families = fault_families(faults, context)
    harmful, required = _harmful(faults), required_faults(faults, context)
    unknown += [
        without_effect(name, harmful, required) for name, took in families.items() if not took
    ]
    if context.final_phase_complete:
        # The final phase reads every partition of the workload.
        unknown += [
            f"{name}: the final phase ended as planned, but no client touched the partition"
            for name in untouched
        ]
    validity = Validity.INVALID if forbidden else Validity.UNKNOWN if unknown else Validity.VALID
    return Verdict(
        validity=validity,
        reasons=(*reasons, *unknown),
        anomalies=tuple(anomalies),
        unexcused_lost_records=_lost(anomalies, Judgement.FORBIDDEN),
        excused_lost_records=_lost(anomalies, Judgement.EXCUSED),
        coverage={
            **_coverage(judgements, faults, acked_during),
            "fault_families": families,
        },
        levels=levels_of(anomalies, unknown),
    )


def _reason(anomaly: Anomaly) -> str:
    if not anomaly.topic:
        return f"{anomaly.id}: {anomaly.sentence}"
    where = f"{anomaly.topic}-{anomaly.partition}"
    return f"{anomaly.id} in {where} ({anomaly.count}): {anomaly.sentence}"


def _broken_invariant(text: str) -> Anomaly:
    return Anomaly(
        id="invariant-broken",
        level=ANOMALIES["invariant-broken"].level,
        topic="",
        partition=-1,
        count=1,
        judgement=Judgement.FORBIDDEN,
        rule="the reference system's invariants hold in every run",
        sentence=text,
    )


def _lost(anomalies: list[Anomaly], judgement: Judgement) -> int:
    return sum(
        a.count for a in anomalies if a.id == "lost-acked-write" and a.judgement == judgement
    )


def _harmful(faults: pa.Table) -> list[dict[str, Any]]:
    return [row for row in faults.to_pylist() if not row["heals"]]


def acked_during_faults(operations: pa.Table, faults: pa.Table) -> int:
    """Returns how many appends were acknowledged while a fault was in force, before the final phase."""
    windows = _windows(faults)
    if not windows:
        return 0
    words = operation_words(operations)
    acked = (words.kind == APPEND) & (words.outcome == OK)
    acked &= operations.column("acks").to_numpy() != 0
    acked &= ~operations.column("final").to_numpy()
    completed = operations.column("completed_ns")
    if completed.null_count:
        acked &= completed.is_valid().to_numpy()
        completed = completed.fill_null(0)
    return _count_within(completed.to_numpy()[np.flatnonzero(acked)], windows)


def committed_during_faults(transaction_events: pa.Table, faults: pa.Table) -> int:
    """Returns how many transactions committed while a fault was in force, before the final phase.

    Transactions that only poll have no commit to request, and do not count.
    """
    windows = _windows(faults)
    if not windows or not transaction_events.num_rows:
        return 0
    event = text_column(transaction_events, "event")
    transaction = int_column(transaction_events, "transaction")
    requested = transaction[is_word(event, TransactionEvent.COMMIT_ASKED)]
    counts = is_word(event, TransactionEvent.COMMITTED) & np.isin(transaction, requested)
    counts &= ~transaction_events.column("final").to_numpy()
    return _count_within(int_column(transaction_events, "at_ns")[counts], windows)


def _windows(faults: pa.Table) -> list[tuple[int, int]]:
    """Returns the spans of time in which faults, or what a fault that does not last has set off, were in force."""
    windows = []
    for row in _harmful(faults):
        if was_in_force(row):
            begin_ns = row["invoked_ns"] if row["completed_ns"] is None else row["completed_ns"]
            lasts = row["healed_ns"] is not None and row["healed_ns"] != begin_ns
            windows.append((begin_ns, row["healed_ns"] if lasts else INF_NS))
    return windows


def _count_within(moments: Any, windows: Iterable[tuple[int, int]]) -> int:
    """Returns how many moments are in one of some spans of time (start, stop]."""
    times = np.sort(moments)
    return sum(
        int(
            np.searchsorted(times, stop, side="right") - np.searchsorted(times, start, side="right")
        )
        for start, stop in _joined(windows)
    )


def _joined(windows: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the union of spans of time (start, stop] as disjoint ones."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(windows):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        elif start < stop:
            joined.append((start, stop))
    return joined


def required_faults(faults: pa.Table, context: RunContext) -> tuple[str, ...]:
    """Returns the faults that must take effect, as `RunContext.enabled_faults` names them.

    They had targets or could not be injected. If the run came to its planned end, so must those that it declares.
    """
    tried = {row["fault"] for row in _harmful(faults) if row["resolved"] or row["failed"]}
    declared = context.enabled_faults if context.final_phase_complete else None
    return tuple(sorted(tried.union(declared or ())))


def _vacuous(
    judgements: Sequence[PartitionJudgement],
    faults: pa.Table,
    acked_during: int,
    context: RunContext,
) -> list[str]:
    """Returns why the run could not have failed, one sentence each."""
    reasons = []
    if context.incomplete_reason:
        reasons.append(f"the run ended early: {context.incomplete_reason}")
    if not set(LOG_CHECKERS).isdisjoint(context.checkers) and not sum(
        judgement.coverage.get("appends_acked", 0) for judgement in judgements
    ):
        reasons.append("no append was acknowledged in the whole run")
    if _OF_SERVERS.issuperset(context.checkers):
        reasons.append("the run names no checker of what clients saw, so nothing of it was judged")
    if not context.final_phase_complete:
        reasons.append("the final phase did not end as planned")
    if _harmful(faults) and not _windows(faults):
        reasons.append(
            f"no fault was in force ({why_all_idle(_harmful(faults))}), as is needed {_TESTED_NOTHING}"
        )
    elif _harmful(faults) and acked_during < context.acked_during_faults_min:
        reasons.append(
            f"only {acked_during} appends and commits were acknowledged while a fault was in force; at least"
            f" {context.acked_during_faults_min} are needed {_TESTED_NOTHING}"
        )
    return reasons


def fault_families(faults: pa.Table, context: RunContext) -> dict[str, bool]:
    """Returns whether all faults took effect that had to, by name."""
    healing = {row["fault"] for row in faults.to_pylist() if row["heals"]}
    effective = [row for row in _harmful(faults) if row["took_effect"]]
    took = {row["fault"] for row in effective}
    took |= {one_fault(row["fault"], row["fault_id"]) for row in effective}
    families: dict[str, bool] = {}
    for enabled in required_faults(faults, context):
        name, _ = name_and_id(enabled)
        if name not in healing:
            families[name] = families.get(name, True) and enabled in took
    return families


_OF_SERVERS = frozenset({"measures", "progress", REPLICA_CHECKER})
"""Checkers that alone say nothing about the history of the clients."""

_TESTED_NOTHING = "for the faults to have tested anything"


def has_tested_nothing(reason: str) -> bool:
    """Returns whether a reason states that clients achieved too little while faults were in force."""
    return reason.endswith(_TESTED_NOTHING)


def _coverage(
    judgements: Sequence[PartitionJudgement], faults: pa.Table, acked_during: int
) -> dict[str, Any]:
    of_partitions = [judgement for judgement in judgements if judgement.is_of_partition]
    total: dict[str, Any] = {"partitions": len(of_partitions)}
    for judgement in judgements:
        for name, number in judgement.coverage.items():
            if (
                isinstance(number, int)
                and not isinstance(number, bool)
                and name != "final_end_offset"
            ):
                total[name] = total.get(name, 0) + number
    total["acked_during_faults"] = acked_during
    total["faults"] = len(_harmful(faults))
    total["faults_with_effect"] = sum(bool(row["took_effect"]) for row in _harmful(faults))
    total["by_partition"] = {
        f"{judgement.topic}-{judgement.partition}": judgement.coverage
        for judgement in of_partitions
    }
    return total
