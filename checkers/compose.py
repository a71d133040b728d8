"""Several kernels into one verdict of one run.

Every partition is checked by itself; invalid beats unknown beats valid. A run is `unknown` rather than `valid`
when it could not have failed: when the final reads are incomplete, when nothing was acknowledged while a fault was
in force, or when a fault that was asked for never bit.

The composition is total: whatever can be read gets a verdict. If a kernel itself fails on a partition, that is
recorded and the verdict is unknown, whatever the other partitions say short of invalid.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.anomalies import ANOMALIES, LEVELS
from checkers.evidence import Evidence, loss_sentence, sentence
from checkers.expectations import Case, Expectations, judge
from checkers.kernels.elections import Elections
from checkers.kernels.findings import Finding
from checkers.kernels.history import Bools
from checkers.kernels.linearizability import Options, PartitionReport, check_tables
from checkers.kernels.lost_acked import LossReport, check_losses
from harness.contracts.verdict import Anomaly, Judgement, Validity, Verdict, Witness
from harness.history.schema import PARTITIONED_TABLES, TABLES

RECORDS_LISTED_MAX = 1000
"""How many lost records a verdict lists by offset and value; their count is always exact."""

HEALING = frozenset({"start", "heal"})
"""Entries of the fault table that mend something; they need not bite and open no fault window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What a run declares about itself.

    Attributes:
        profile: Feature profile of the system under test.
        elr_on, min_isr, replication_factor, unclean_election_enabled: What the configuration promises.
        enabled_faults: Names of the faults that must have bitten at least once; None means those in the table.
        final_phase_complete: Whether the final phase (heal, settle, read everything) ended as planned.
        acked_during_faults_min: How many appends must have been acknowledged while a fault was in force. Scripted
            schedules that make a partition unavailable on purpose set it to 0.
        invariants_broken: Invariants that the system under test found broken while it ran, one text each.
        incomplete_reason: Why the run ended early, in one sentence; empty if it did not.
        clock_error_ns: Largest difference between two clocks that stamped operations.
        log_start_offset: Facts below it are dropped.
    """

    profile: str = ""
    elr_on: bool = True
    min_isr: int = 2
    replication_factor: int = 3
    unclean_election_enabled: bool = False
    enabled_faults: tuple[str, ...] | None = None
    final_phase_complete: bool = True
    acked_during_faults_min: int = 1
    invariants_broken: tuple[str, ...] = ()
    incomplete_reason: str = ""
    clock_error_ns: int = 0
    log_start_offset: int = 0

    @property
    def expectations(self) -> Expectations:
        """The part of it that the expectation matrix looks at."""
        return Expectations(
            profile=self.profile,
            elr_on=self.elr_on,
            min_isr=self.min_isr,
            replication_factor=self.replication_factor,
            unclean_election_enabled=self.unclean_election_enabled,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionJudgement:
    """One partition's anomalies, judged, and its coverage.

    Attributes:
        topic, partition: Which one.
        anomalies: Everything found, what matters most first.
        unknown_reasons: Why nothing better than unknown can be said of it; usually empty.
        coverage: Counts of both kernels.
    """

    topic: str
    partition: int
    anomalies: tuple[Anomaly, ...] = ()
    unknown_reasons: tuple[str, ...] = ()
    coverage: dict[str, Any] = field(default_factory=dict)


def judge_partition(
    topic: str, partition: int, tables: Mapping[str, pa.Table], context: RunContext
) -> PartitionJudgement:
    """Checks one partition and judges what was found.

    Args:
        topic: Its topic.
        partition: Its index.
        tables: Its rows of the partitioned tables, and all of `broker_states` and `faults`; a missing table counts
            as empty.
        context: What the run declares about itself.
    """
    full = {name: tables.get(name, schema.empty_table()) for name, schema in TABLES.items()}
    report = check_tables(
        full["operations"],
        full["records_read"],
        full["end_offsets_seen"],
        Options(clock_error_ns=context.clock_error_ns, log_start_offset=context.log_start_offset),
    )
    elections = Elections(
        full["partition_states"],
        full["replica_states"],
        full["broker_states"],
        full["faults"],
        elr_on=context.elr_on,
        unclean_election_enabled=context.unclean_election_enabled,
    )
    losses = check_losses(
        report.history,
        report.facts,
        elections,
        log_start_offset=context.log_start_offset,
        phase_complete=context.final_phase_complete,
    )
    judge_one = _PartitionJudge(topic, partition, full["operations"], report, elections, context)
    anomalies = [a for f in (*losses.findings, *report.findings) for a in judge_one.anomalies(f)]
    anomalies.sort(key=_severity)
    return PartitionJudgement(
        topic=topic,
        partition=partition,
        anomalies=tuple(anomalies),
        unknown_reasons=_unknown_reasons(topic, partition, losses),
        coverage={**report.coverage, **losses.coverage},
    )


def judge_partition_safely(
    topic: str, partition: int, tables: Mapping[str, pa.Table], context: RunContext
) -> PartitionJudgement:
    """Judges one partition like `judge_partition`; a failure of the checker itself becomes an unknown."""
    try:
        return judge_partition(topic, partition, tables, context)
    except Exception as failure:
        # The one edge where a checker's own failure is caught: the other partitions keep their verdicts.
        reason = f"{topic}-{partition}: the checker failed ({type(failure).__name__}: {failure})"
        return PartitionJudgement(topic=topic, partition=partition, unknown_reasons=(reason,))


def _unknown_reasons(topic: str, partition: int, losses: LossReport) -> tuple[str, ...]:
    unseen = losses.coverage["acked_unseen"]
    if unseen:
        return (
            f"{topic}-{partition}: {unseen} acknowledged records are beyond what the final reads reached",
        )
    if not losses.final.is_complete:
        return (
            f"{topic}-{partition}: the final reads are incomplete (they must cover the log from its start to the"
            " largest end seen in the final phase)",
        )
    return ()


_JUDGEMENT_ORDER = {judgement: rank for rank, judgement in enumerate(Judgement)}


def _severity(anomaly: Anomaly) -> tuple[int, int, str, str, int]:
    return (
        _JUDGEMENT_ORDER[anomaly.judgement],
        LEVELS.index(anomaly.level),
        anomaly.id,
        anomaly.topic,
        anomaly.partition,
    )


class _PartitionJudge:
    """Turns findings of one partition into judged anomalies with their worst example."""

    def __init__(
        self,
        topic: str,
        partition: int,
        operations: pa.Table,
        report: PartitionReport,
        elections: Elections,
        context: RunContext,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._evidence = Evidence(operations)
        columns = ["op_index", "invoked_ns", "kind", "leader_epoch"]
        order = operations.select(columns).sort_by("op_index")
        self._op_index = order.column("op_index").to_numpy()
        self._invoked_ns = order.column("invoked_ns").to_numpy()
        # Reads are fenced by leader epoch, so the epoch of their answer is certain. Produce is not.
        is_read = pc.not_equal(order.column("kind"), "append").to_numpy()
        self._shown_epoch = np.where(is_read, order.column("leader_epoch").to_numpy(), -1)
        self._history = report.history
        self._elections = elections
        self._expectations = context.expectations

    def anomalies(self, finding: Finding) -> list[Anomaly]:
        """Returns one anomaly per judgement that the instances of a finding fall under."""
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
        anomalies = []
        for row in dict.fromkeys(row for row, _ in judged):
            rows = np.logical_or.reduce([rows for other, rows in judged if other is row])
            anomalies.append(
                self._anomaly(finding, rows, row.judgement, row.rule, epochs, since_ns)
            )
        return anomalies

    def _established_ns(self, finding: Finding) -> Any:
        """Returns from when on the first operation of each instance told the truth.

        An answer may be delayed beyond the election that made it untrue: what it says was so when the high
        watermark passed the offset, but not before the operation was invoked.
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
        # What a leader shows was so before the next leader epoch, even if it does not know that it was replaced.
        epoch = np.where(known, self._shown_epoch[row], -1)
        return np.where(
            epoch >= 0, np.minimum(since_ns, self._elections.epoch_ends(epoch)), since_ns
        )

    def _anomaly(
        self,
        finding: Finding,
        rows: Bools,
        judgement: Judgement,
        rule: str,
        epochs: Any,
        since_ns: Any,
    ) -> Anomaly:
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
        return Anomaly(
            id=finding.id,
            level=ANOMALIES[finding.id].level,
            topic=self._topic,
            partition=self._partition,
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


def judge_run(tables: Mapping[str, pa.Table], context: RunContext) -> Verdict:
    """Checks every partition of a run and composes the verdict.

    Args:
        tables: The run's tables by name (`harness.history.schema.TABLES`); a missing table counts as empty.
        context: What the run declares about itself.
    """
    full = {name: tables.get(name, schema.empty_table()) for name, schema in TABLES.items()}
    judgements = []
    for (topic, partition), rows in sorted(by_partition(full).items()):
        shared = {name: full[name] for name in ("broker_states", "faults")}
        judgements.append(judge_partition_safely(topic, partition, {**rows, **shared}, context))
    return compose(judgements, full["operations"], full["faults"], context)


def by_partition(tables: Mapping[str, pa.Table]) -> dict[tuple[str, int], dict[str, pa.Table]]:
    """Returns the rows of every topic-partition that any client touched, by table."""
    parts: dict[tuple[str, int], dict[str, pa.Table]] = {}
    for name in PARTITIONED_TABLES:
        table = tables[name]
        keys = table.select(["topic", "partition"]).group_by(["topic", "partition"]).aggregate([])
        for key in keys.to_pylist():
            topic, partition = key["topic"], key["partition"]
            mine = (
                table
                if keys.num_rows == 1
                else table.filter(
                    pc.and_(
                        pc.equal(table.column("topic"), pa.scalar(topic)),
                        pc.equal(table.column("partition"), pa.scalar(partition, pa.int32())),
                    )
                )
            )
            parts.setdefault((topic, partition), {})[name] = mine
    clients = ("operations", "records_read", "end_offsets_seen")
    return {key: rows for key, rows in parts.items() if any(name in rows for name in clients)}


def compose(
    judgements: list[PartitionJudgement],
    operations: pa.Table,
    faults: pa.Table,
    context: RunContext,
) -> Verdict:
    """Combines judged partitions into the verdict of the run.

    Args:
        judgements: One per partition, in any order.
        operations: All operations of the run; only their times, kinds and outcomes are looked at.
        faults: The run's faults.
        context: What the run declares about itself.
    """
    return compose_counted(judgements, acked_during_faults(operations, faults), faults, context)


def compose_counted(
    judgements: list[PartitionJudgement],
    acked_during: int,
    faults: pa.Table,
    context: RunContext,
) -> Verdict:
    """Does `compose` without the operations: where each task counts its own partition's.

    Args:
        judgements: One per partition, in any order.
        acked_during: Sum of `acked_during_faults` over the partitions.
        faults: The run's faults.
        context: What the run declares about itself.
    """
    judgements = sorted(judgements, key=lambda judgement: (judgement.topic, judgement.partition))
    anomalies = [anomaly for judgement in judgements for anomaly in judgement.anomalies]
    anomalies += [_broken_invariant(text) for text in context.invariants_broken]
    anomalies.sort(key=_severity)
    forbidden = [a for a in anomalies if a.judgement == Judgement.FORBIDDEN]
    reasons = [
        f"{a.id} in {a.topic}-{a.partition} ({a.count}): {a.sentence}"
        if a.topic
        else f"{a.id}: {a.sentence}"
        for a in forbidden
    ]
    unknown = [reason for judgement in judgements for reason in judgement.unknown_reasons]
    unknown += _vacuous(judgements, faults, acked_during, context)
    validity = Validity.INVALID if forbidden else Validity.UNKNOWN if unknown else Validity.VALID
    return Verdict(
        validity=validity,
        reasons=(*reasons, *unknown),
        anomalies=tuple(anomalies),
        unexcused_lost_records=_lost(anomalies, Judgement.FORBIDDEN),
        excused_lost_records=_lost(anomalies, Judgement.EXCUSED),
        coverage=_coverage(judgements, faults, acked_during),
    )


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
    return [row for row in faults.to_pylist() if row["fault"] not in HEALING]


def acked_during_faults(operations: pa.Table, faults: pa.Table) -> int:
    """Returns how many appends were acknowledged while a fault was in force, before the final phase."""
    windows = [
        (
            row["invoked_ns"] if row["completed_ns"] is None else row["completed_ns"],
            row["healed_ns"],
        )
        for row in _harmful(faults)
    ]
    if not windows:
        return 0
    acked = operations.filter(
        (pc.field("kind") == "append")
        & (pc.field("outcome") == "ok")
        & (pc.field("acks") != 0)
        & ~pc.field("final")
    )
    times = acked.column("completed_ns").drop_null().to_numpy()
    inside = np.zeros(len(times), dtype=np.bool_)
    for start, stop in windows:
        inside |= (times > start) & ((times <= stop) if stop is not None else True)
    return int(inside.sum())


def _vacuous(
    judgements: list[PartitionJudgement], faults: pa.Table, acked_during: int, context: RunContext
) -> list[str]:
    """Returns why the run could not have failed, one sentence each."""
    reasons = []
    if context.incomplete_reason:
        reasons.append(f"the run ended early: {context.incomplete_reason}")
    if not sum(judgement.coverage.get("appends_acked", 0) for judgement in judgements):
        reasons.append("no append was acknowledged in the whole run")
    if not context.final_phase_complete:
        reasons.append("the final phase did not end as planned")
    harmful = _harmful(faults)
    if harmful and acked_during < context.acked_during_faults_min:
        reasons.append(
            f"only {acked_during} appends were acknowledged while a fault was in force; at least"
            f" {context.acked_during_faults_min} are needed for the faults to have tested anything"
        )
    enabled = context.enabled_faults
    names = sorted({row["fault"] for row in harmful}) if enabled is None else list(enabled)
    bit = {row["fault"] for row in harmful if row["bit"]}
    reasons += [
        f"the fault {name!r} never bit" for name in names if name not in bit and name not in HEALING
    ]
    return reasons


def _coverage(
    judgements: list[PartitionJudgement], faults: pa.Table, acked_during: int
) -> dict[str, Any]:
    total: dict[str, Any] = {"partitions": len(judgements)}
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
    total["faults_bit"] = sum(bool(row["bit"]) for row in _harmful(faults))
    total["by_partition"] = {
        f"{judgement.topic}-{judgement.partition}": judgement.coverage for judgement in judgements
    }
    return total


def _anomaly_to_json(anomaly: Anomaly) -> dict[str, Any]:
    return {
        "id": anomaly.id,
        "level": anomaly.level,
        "topic": anomaly.topic,
        "partition": anomaly.partition,
        "count": anomaly.count,
        "judgement": str(anomaly.judgement),
        "rule": anomaly.rule,
        "sentence": anomaly.sentence,
        "witnesses": [
            {"op_index": witness.op_index, "text": witness.text} for witness in anomaly.witnesses
        ],
        "details": anomaly.details,
    }


def _anomaly_from_json(data: Mapping[str, Any]) -> Anomaly:
    return Anomaly(
        id=data["id"],
        level=data["level"],
        topic=data["topic"],
        partition=data["partition"],
        count=data["count"],
        judgement=Judgement(data["judgement"]),
        rule=data["rule"],
        sentence=data["sentence"],
        witnesses=tuple(Witness(**witness) for witness in data["witnesses"]),
        details=dict(data["details"]),
    )


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    """Returns a verdict as JSON-compatible data."""
    return {
        "validity": str(verdict.validity),
        "reasons": list(verdict.reasons),
        "unexcused_lost_records": verdict.unexcused_lost_records,
        "excused_lost_records": verdict.excused_lost_records,
        "anomalies": [_anomaly_to_json(anomaly) for anomaly in verdict.anomalies],
        "coverage": verdict.coverage,
    }


def verdict_from_json(data: Mapping[str, Any]) -> Verdict:
    """Returns the verdict that `verdict_to_json` wrote."""
    return Verdict(
        validity=Validity(data["validity"]),
        reasons=tuple(data["reasons"]),
        anomalies=tuple(_anomaly_from_json(row) for row in data["anomalies"]),
        unexcused_lost_records=data["unexcused_lost_records"],
        excused_lost_records=data["excused_lost_records"],
        coverage=dict(data["coverage"]),
    )


def judgement_to_json(judgement: PartitionJudgement) -> dict[str, Any]:
    """Returns one partition's judgement as JSON-compatible data, to be composed elsewhere."""
    return {
        "topic": judgement.topic,
        "partition": judgement.partition,
        "anomalies": [_anomaly_to_json(anomaly) for anomaly in judgement.anomalies],
        "unknown_reasons": list(judgement.unknown_reasons),
        "coverage": judgement.coverage,
    }


def judgement_from_json(data: Mapping[str, Any]) -> PartitionJudgement:
    """Returns the judgement that `judgement_to_json` wrote."""
    return PartitionJudgement(
        topic=data["topic"],
        partition=data["partition"],
        anomalies=tuple(_anomaly_from_json(row) for row in data["anomalies"]),
        unknown_reasons=tuple(data["unknown_reasons"]),
        coverage=dict(data["coverage"]),
    )
