"""What consumer groups promise, judged from the table `group_events` and from what members read.

- *A committed offset does not go back* (`committed-offset-regressed`): an offset that the coordinator reports as
  committed is not below an offset whose commit was acknowledged before the member requested it, or that the
  coordinator had reported before. A commit without a clear response may be applied late, even after a later
  commit, so an offset with such a commit is believed. So is one whose commit was acknowledged after every larger
  offset had been committed, or while one was being committed: the last commit counts.
- *One owner* (`double-ownership`): in one generation of the group a partition is assigned to one member. A member
  that has not noticed yet that it lost a partition is of an older generation, so it counts as no owner.
- *At least once* (`group-skipped-record`): every record of the final log below the committed offset was delivered
  to some member.

A lawful flagged election of the partition may lose records that were delivered and committed. A skipped record is
excused if a member received another record at its offset and that one was lost so. A regression is excused if the
last record below the acknowledged offset was lost so between the acknowledgement and the response.

Commits and assignments are records too, of the partition of the offsets topic whose leader coordinates the group.
A regression is also excused if a lawful flagged election of that partition may have lost the commit, and a second
owner if one may have lost the generation, so that the coordinator counted it again (`coordinators.py`).

Events are compared by `event_index`, which counts them in the order in which the harness saw them. Deliveries are
not repeated in the table: they are the records that polls of the members returned.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.anomalies import ANOMALIES
from checkers.expectations import Case, judge
from checkers.kernels.columns import Columns
from checkers.kernels.coordinators import losses_of_coordinator
from checkers.kernels.elections import EXCUSED, UNDECIDED, UNEXCUSED, Claims
from checkers.kernels.evidence import Evidence
from checkers.kernels.history import I8, I64, Bools, is_word
from checkers.kernels.judging import RECORDS_LISTED_MAX, expectations_of
from checkers.kernels.log_checkers import LOG_TABLES, elections_of, reader_of
from checkers.kernels.replica_logs import ANY_EPOCH
from harness.contracts.checker import CheckerFinding, CheckerReport
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Witness
from harness.history.schema import COORDINATOR_STATES


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """A committed offset below one that was known to be committed.

    Attributes:
        acknowledged: The largest offset whose commit was acknowledged before the request, or that the coordinator
            had reported before it.
        seen: The offset in the response; negative for none.
        sent_ns: When the commit was sent, 0 if that was not recorded.
        acknowledged_ns, seen_ns: When the first proof of the commit, and the response, arrived.
        was_reported: Whether the first proof is a report of the coordinator, not an acknowledgement.
    """

    acknowledged: int
    seen: int
    sent_ns: int
    acknowledged_ns: int
    seen_ns: int
    was_reported: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondOwner:
    """An assignment of a partition that another member had already in the same generation.

    Attributes:
        generation: Of the group.
        first, second: Process numbers of the two members.
        first_ns, second_ns: When they were assigned the partition.
    """

    generation: int
    first: int
    second: int
    first_ns: int
    second_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """What one group's events of one partition show.

    Attributes:
        group: Its name.
        members: Process numbers of its members.
        committed: The largest offset whose commit was acknowledged, or that the coordinator reported; -1 for none.
        regressions: In the order in which they were seen.
        assignments, commits: How many there were; of commits, how many were acknowledged.
        second_owners: In the order in which they were assigned.
    """

    group: str
    members: I64
    committed: int
    regressions: tuple[Regression, ...]
    assignments: int
    commits: int
    second_owners: tuple[SecondOwner, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Records(Columns):
    """Distinct records, ascending by offset and value, each with an operation that returned it."""

    offset: I64
    value: I64
    op: I64

    def without(self, others: "Records") -> "Records":
        """Returns the records that are not among others."""
        offset = np.concatenate([self.offset, others.offset])
        value = np.concatenate([self.value, others.value])
        is_other = np.arange(len(offset)) >= len(self.offset)
        order = np.lexsort((~is_other, value, offset))
        same = (offset[order][1:] == offset[order][:-1]) & (value[order][1:] == value[order][:-1])
        is_new = np.append(True, ~same) if len(order) else np.empty(0, dtype=np.bool_)
        # Of equal pairs the one of the others comes first, so a record that comes first is in none of them.
        rows = np.sort(order[is_new & ~is_other[order]])
        return self.take(rows)


def group_facts(events: pa.Table) -> tuple[GroupFacts, ...]:
    """Returns what each group's events show, by name of the group.

    Args:
        events: Rows of `group_events` of one partition, in any order.
    """
    events = events.sort_by("event_index")
    groups = sorted(set(events.column("group").to_pylist()))
    return tuple(
        _facts(group, events.filter(is_word(events.column("group"), group))) for group in groups
    )


def _facts(group: str, events: pa.Table) -> GroupFacts:
    index = events.column("event_index").to_numpy()
    offset = events.column("offset").to_numpy()
    kind = events.column("event")
    is_sent, is_acked = is_word(kind, "commit-sent"), is_word(kind, "commit-acknowledged")
    is_request, is_seen = is_word(kind, "committed-asked"), is_word(kind, "committed-seen")
    at_ns = events.column("at_ns").to_numpy()
    # What the coordinator reports is committed, whether or not the commit was acknowledged.
    is_proof = is_acked | (is_seen & (offset >= 0))
    proof_index, proof_offset = index[is_proof], offset[is_proof]
    largest = np.maximum.accumulate(proof_offset)
    refers_to = events.column("refers_to").to_numpy()
    request = refers_to[is_seen]
    # How many commits were proven before each request; a request that is not in the record proves nothing.
    count = np.searchsorted(proof_index, request, side="left")
    count[~np.isin(request, index[is_request])] = 0
    at_least = np.append(-1, largest)[count]
    begin_index = _begins(index, offset, refers_to, is_sent, is_acked)[is_proof]
    regressions = []
    for row in np.flatnonzero((at_least >= 0) & (offset[is_seen] < at_least)):
        seen_index, seen = index[is_seen][row], int(offset[is_seen][row])
        is_same = (offset == seen) & (index < seen_index)
        if int((is_sent & is_same).sum()) > int((is_acked & is_same).sum()):
            continue  # a commit of this offset had no clear response: it may have been applied late
        larger = begin_index[: count[row]][proof_offset[: count[row]] > seen]
        if (is_acked & is_same & (index > larger.max())).any():
            continue  # it was committed later than every larger offset, or at the same time
        acknowledged = int(at_least[row])
        first = int(np.flatnonzero(proof_offset == acknowledged)[0])
        sent = at_ns[is_sent & (offset == acknowledged) & (index < proof_index[first])]
        regressions.append(
            Regression(
                acknowledged=acknowledged,
                seen=seen,
                sent_ns=int(sent.min()) if len(sent) else 0,
                acknowledged_ns=int(at_ns[is_proof][first]),
                seen_ns=int(at_ns[is_seen][row]),
                was_reported=bool(is_seen[is_proof][first]),
            )
        )
    return GroupFacts(
        group=group,
        members=np.unique(events.column("process").to_numpy()),
        committed=int(proof_offset.max(initial=-1)),
        regressions=tuple(regressions),
        assignments=int(is_word(kind, "assigned").sum()),
        commits=int(is_acked.sum()),
        second_owners=_second_owners(events.filter(is_word(kind, "assigned"))),
    )


def _begins(index: I64, offset: I64, refers_to: I64, is_sent: Bools, is_acked: Bools) -> I64:
    """Returns at which event what each proof shows may have been committed already.

    Returns:
        Of an acknowledgement the event at which the commit was sent, of a report the request; otherwise the event.
    """
    begins = np.where(refers_to >= 0, refers_to, index)
    for each in np.unique(offset[is_acked]):
        acked = np.flatnonzero(is_acked & (offset == each))
        sent = np.flatnonzero(is_sent & (offset == each))[: len(acked)]
        begins[acked[: len(sent)]] = np.minimum(index[sent], index[acked[: len(sent)]])
    return begins


def _second_owners(assigned: pa.Table) -> tuple[SecondOwner, ...]:
    """Returns assignments of the partition to a second member in one generation.

    An assignment counts only while no larger generation was seen: a coordinator that forgot the group counts its
    generations from the beginning again, and equal numbers mean nothing then.
    """
    generation = assigned.column("generation").to_numpy()
    process = assigned.column("process").to_numpy()
    at_ns = assigned.column("at_ns").to_numpy()
    rows = np.flatnonzero((generation >= 0) & (generation >= np.maximum.accumulate(generation)))
    owners: dict[int, tuple[int, int]] = {}
    seen: dict[tuple[int, int], SecondOwner] = {}
    for row in rows.tolist():
        number, member = int(generation[row]), int(process[row])
        second_ns = int(at_ns[row])
        first, first_ns = owners.setdefault(number, (member, second_ns))
        if member != first:
            owner = SecondOwner(
                generation=number,
                first=first,
                second=member,
                first_ns=first_ns,
                second_ns=second_ns,
            )
            seen.setdefault((number, member), owner)
    return tuple(seen.values())


def member_polls(operations: pa.Table, members: I64) -> I64:
    """Returns the op_index of every operation of a member, ascending."""
    is_member: Bools = np.isin(operations.column("process").to_numpy(), members)
    ops: I64 = np.sort(operations.column("op_index").to_numpy()[is_member])
    return ops


def records_of(records_read: pa.Table, ops: I64, *, log_start_offset: int = 0) -> Records:
    """Returns the distinct records that some operations returned."""
    op = records_read.column("op_index").to_numpy()
    offset = records_read.column("offset").to_numpy()
    rows = np.flatnonzero(np.isin(op, ops) & (offset >= log_start_offset))
    op, offset = op[rows], offset[rows]
    value = records_read.column("value").to_numpy()[rows]
    order = np.lexsort((op, value, offset))
    op, offset, value = op[order], offset[order], value[order]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (offset[1:] != offset[:-1]) | (value[1:] != value[:-1])
    return Records(offset=offset[first], value=value[first], op=op[first])


def group_coverage(facts: GroupFacts, record_count: int) -> dict[str, int]:
    """Returns how much a group did in a partition."""
    return {
        "group_assignments": facts.assignments,
        "group_commits": facts.commits,
        "group_records": record_count,
    }


def group_counters(tables: Mapping[str, pa.Table]) -> dict[str, int]:
    """Returns how much the groups of a run did in all partitions together."""
    total: Counter[str] = Counter()
    for facts in group_facts(tables["group_events"]):
        ops = member_polls(tables["operations"], facts.members)
        # A record is one value of one partition, and no value is written to two of them.
        total.update(group_coverage(facts, len(records_of(tables["records_read"], ops).offset)))
    return dict(total)


class ConsumerGroupChecker:
    """The checker `consumer-group`; see the module."""

    name = "consumer-group"
    tables = ("group_events", COORDINATOR_STATES, *LOG_TABLES)
    per_partition = True

    def check(self, tables: Mapping[str, pa.Table], context: RunContext) -> CheckerReport:
        """Checks what every group did in one partition."""
        operations, records_read = tables["operations"], tables["records_read"]
        start = context.log_start_offset
        is_final = operations.column("final").to_numpy()
        final_ops = operations.column("op_index").to_numpy()[is_final]
        findings: list[CheckerFinding] = []
        coverage: Counter[str] = Counter()
        for facts in group_facts(tables["group_events"]):
            polls = member_polls(operations, facts.members)
            delivered = records_of(records_read, polls, log_start_offset=start)
            coverage.update(group_coverage(facts, len(delivered.offset)))
            final = records_of(records_read, final_ops, log_start_offset=start)
            final = final.take(final.offset < facts.committed)
            skipped = final.without(delivered)
            if facts.second_owners:
                findings += _double_ownership(facts, tables, context)
            if facts.regressions:
                outcome = np.maximum(
                    _of_regressions(facts.regressions, delivered, tables, context),
                    _of_lost_commits(facts, tables, context),
                )
                findings += _regressed(facts, outcome, context)
            if len(skipped.offset):
                outcome = _of_skipped(skipped, delivered, tables, context)
                findings += _skipped(facts, skipped, outcome, Evidence(operations), context)
        return CheckerReport(findings=tuple(findings), coverage=dict(coverage))


CONSUMER_GROUP = ConsumerGroupChecker()


def _double_ownership(
    facts: GroupFacts, tables: Mapping[str, pa.Table], context: RunContext
) -> list[CheckerFinding]:
    owners = facts.second_owners
    outcome = losses_of_coordinator(
        facts.group,
        np.array([each.first_ns for each in owners], dtype=np.int64),
        np.array([each.second_ns for each in owners], dtype=np.int64),
        tables,
        context,
    )
    findings = []
    for result in np.unique(outcome).tolist():
        chosen = np.flatnonzero(outcome == result)
        worst = owners[int(chosen[0])]
        findings.append(
            _finding(
                "double-ownership",
                len(chosen),
                f"group {facts.group}: in generation {worst.generation} the partition was assigned to process"
                f" {worst.first} and to process {worst.second}",
                context,
                result,
            )
        )
    return findings


def _of_lost_commits(facts: GroupFacts, tables: Mapping[str, pa.Table], context: RunContext) -> I8:
    """Returns what elections of the coordinator's partition did to each commit that was reported as gone."""
    return losses_of_coordinator(
        facts.group,
        np.array([each.sent_ns for each in facts.regressions], dtype=np.int64),
        np.array([each.seen_ns for each in facts.regressions], dtype=np.int64),
        tables,
        context,
    )


def _of_skipped(
    skipped: Records, delivered: Records, tables: Mapping[str, pa.Table], context: RunContext
) -> I8:
    """Returns what elections did to what members received at the offset of each skipped record."""
    rows = np.flatnonzero(np.isin(delivered.offset, skipped.offset))
    outcome = np.full(len(skipped.offset), UNEXCUSED, dtype=np.int8)
    if len(rows):
        lost = delivered.take(rows)
        claims = reader_of(tables, context).claims(
            lost.op, lost.offset, lost.value, last_shown=True
        )
        fates = elections_of(tables, context).fates(claims)
        # Only one record is left at an offset, so `skipped` holds each offset once unless final reads disagree.
        at = np.searchsorted(skipped.offset, lost.offset)
        np.maximum.at(outcome, at, fates.outcome)
        outcome = outcome[np.searchsorted(skipped.offset, skipped.offset)]
    return outcome


def _of_regressions(
    regressions: tuple[Regression, ...],
    delivered: Records,
    tables: Mapping[str, pa.Table],
    context: RunContext,
) -> I8:
    """Returns what elections did to the last record below each acknowledged offset before the response."""
    elections = elections_of(tables, context)
    offset = np.array([each.acknowledged - 1 for each in regressions], dtype=np.int64)
    acked_ns = np.array([each.acknowledged_ns for each in regressions], dtype=np.int64)
    seen_ns = np.array([each.seen_ns for each in regressions], dtype=np.int64)
    unknown = np.full(len(offset), -1, dtype=np.int64)
    any_epoch = np.full(len(offset), ANY_EPOCH, dtype=np.int64)
    lost = Claims(
        offset=offset,
        low_epoch=unknown,
        high_epoch=any_epoch,
        from_ns=acked_ns,
        by_ns=acked_ns,
        epoch=unknown,
    )
    until = replace(lost, from_ns=seen_ns, by_ns=seen_ns)
    outcome = elections.fates(lost, until).outcome
    # What members received there identifies the record.
    at = np.searchsorted(delivered.offset, offset)
    rows = np.flatnonzero(np.isin(offset, delivered.offset))
    if len(rows):
        known = delivered.take(at[rows])
        claims = reader_of(tables, context).claims(known.op, known.offset, known.value)
        outcome[rows] = elections.fates(claims, until.take(rows)).outcome
    return outcome


def _regressed(facts: GroupFacts, outcome: I8, context: RunContext) -> list[CheckerFinding]:
    findings = []
    for result in np.unique(outcome).tolist():
        chosen = np.flatnonzero(outcome == result)
        first = facts.regressions[int(chosen[0])]
        seen = f"offset {first.seen}" if first.seen >= 0 else "nothing"
        before = (
            f"the coordinator reported that offset {first.acknowledged} is committed"
            if first.was_reported
            else f"a commit of offset {first.acknowledged} was acknowledged"
        )
        findings.append(
            _finding(
                "committed-offset-regressed",
                len(chosen),
                f"group {facts.group}: {before}, and afterwards the coordinator reported that {seen} is"
                " committed",
                context,
                result,
            )
        )
    return findings


def _skipped(
    facts: GroupFacts, skipped: Records, outcome: I8, evidence: Evidence, context: RunContext
) -> list[CheckerFinding]:
    findings = []
    for result in np.unique(outcome).tolist():
        some = skipped.take(np.flatnonzero(outcome == result))
        count, op = len(some.offset), int(some.op[0])
        findings.append(
            _finding(
                "group-skipped-record",
                count,
                f"group {facts.group}: offset {facts.committed} is committed, but {count} records below it were"
                f" delivered to no member, the first at offset {int(some.offset[0])}",
                context,
                result,
                witnesses=(Witness(op_index=op, text=evidence.describe(op)),),
                details={
                    "offsets": some.offset[:RECORDS_LISTED_MAX].tolist(),
                    "values": some.value[:RECORDS_LISTED_MAX].tolist(),
                },
            )
        )
    return findings


def _finding(
    identifier: str, count: int, text: str, context: RunContext, outcome: int, **more: Any
) -> CheckerFinding:
    row = judge(
        Case(
            id=identifier,
            is_weak=False,
            is_excused=outcome == EXCUSED,
            is_undecided=outcome == UNDECIDED,
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
        **more,
    )
