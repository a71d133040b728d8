"""What consumer groups promise, judged from the table `group_events` and from what members read.

- *A committed offset does not go back* (`committed-offset-regressed`): what the coordinator reports as committed
  is what was committed last, by what was acknowledged and what it had reported before (`group_commits.py`).
- *Members commit* (`phantom-commit`): an offset that the coordinator reports was sent by a member before.
- *One owner* (`double-ownership`): in one generation of the group a partition is assigned to one member. A member
  that has not noticed yet that it lost a partition is of an older generation, so it counts as no owner.
- *At least once* (`group-skipped-record`): every record of the final log below the committed offset was delivered
  to some member. Members may pass over what the cleaner of a compacted topic removed, so the final log is what the
  final reads returned, without the records that `checkers.compaction` adds.

A lawful flagged election of the partition may lose records that were delivered and committed. A skipped record is
excused if a member received another record at its offset, that one was lost so, and the same member sent a commit
above the offset, whatever became of it. If it sent none, the next member has to begin at or below the offset. The
same is true of the member itself if it polls there again before it sends one. A member that was at or below the
offset, by its assignment or by an acknowledged commit of its own, and that commits above it afterwards, passed the
offset in between. Commits that any member sent before that are no excuse.

A log with missing offsets may have had nothing there. So there a lost record above the offset counts too, unless
the skipped record was established before the loss, and it is undecided if that one may have been in the log that
the member read. A commit above the offset shows the same, because the log of the member went on behind it, if only
with offsets that have no records.

Each replica of a compacted topic is cleaned in its own time. So a member may pass over a record that its leader
had removed, although the next leader has it, and records do not always show which polls went past it. So a skipped
record is undecided if another one of its key may have been behind it when the first commit above it was sent, and
a leader was elected after that one had been sent.

Commits and assignments are records too, of the partition of the offsets topic whose leader coordinates the group.
A regression is excused if a lawful flagged election of that partition may have lost the commit, and a second owner
if one may have lost the generation, so that the coordinator counted it again (`coordinators.py`). It is undecided
if the coordinator that assigned the generation first may have loaded it before it was committed. An election of
the partition that members read loses neither. Every proof and every owner counts: one loss that is excused does
not excuse another one.

Events are compared by `event_index`, which counts them in the order in which the harness saw them. Deliveries are
not repeated in the table: they are the records that polls of the members returned.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.kernels.columns import Columns
from checkers.kernels.coordinators import Coordinator
from checkers.kernels.evidence import Evidence
from checkers.kernels.fates import EXCUSED, UNDECIDED, UNEXCUSED, Claims
from checkers.kernels.group_commits import (
    BEFORE_ALL,
    NEVER,
    GroupJudge,
    Register,
    Report,
    register_of,
)
from checkers.kernels.history import I8, I64, INF_NS, NONE, Bools, is_word, lookup
from checkers.kernels.judging import RECORDS_LISTED_MAX, judged_finding
from checkers.kernels.log_checkers import LOG_TABLES, elections_of, log_of, reader_of
from checkers.kernels.partition_tables import records_returned
from harness.contracts.checker import CheckerFinding, CheckerReport
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Witness
from harness.history.schema import CLEANED_RECORDS, COORDINATOR_STATES

FIRST = 1
"""The first generation of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondOwner:
    """An assignment of a partition that another member had already in the same generation.

    Attributes:
        generation: Of the group.
        first, second: Process numbers of the two members.
        first_ns, second_ns: When they were assigned the partition.
        may_be_another_group: Whether the number may have been counted again by a group of the same name.
    """

    generation: int
    first: int
    second: int
    first_ns: int
    second_ns: int
    may_be_another_group: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """What one group's events of one partition show.

    Attributes:
        group: Its name.
        members: Process numbers of its members, ascending.
        committed: The largest offset whose commit was acknowledged, or that the coordinator reported; -1 for none.
        regressions: Reports of the coordinator that contradict a proof, in the order in which they were seen.
        unsent: Reports of offsets that no member had sent a commit of, in that order.
        assignments, commits: How many there were; of commits, how many were acknowledged.
        second_owners: Every two assignments that contradict each other, in the order of the second ones.
        register: What members recorded of commits.
    """

    group: str
    members: I64
    committed: int
    regressions: tuple[Report, ...]
    unsent: tuple[Report, ...]
    assignments: int
    commits: int
    second_owners: tuple[SecondOwner, ...] = ()
    register: Register = field(repr=False)

    @property
    def is_consistent(self) -> bool:
        """Whether nothing contradicts anything, whatever members received."""
        return not (self.regressions or self.unsent or self.second_owners)


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
    offset = events.column("offset").to_numpy()
    kind = events.column("event")
    is_acked = is_word(kind, "commit-acknowledged")
    # What the coordinator reports is committed, whether or not the commit was acknowledged.
    is_proof = is_acked | (is_word(kind, "committed-seen") & (offset >= 0))
    members = np.unique(events.column("process").to_numpy())
    register, reports = register_of(events)
    return GroupFacts(
        group=group,
        members=members,
        committed=int(offset[is_proof].max(initial=-1)),
        regressions=tuple(each for each in reports if len(register.contradicted_by(each))),
        unsent=tuple(
            report
            for report in reports
            if report.offset >= 0 and not register.was_sent(report.offset, report.seen)
        ),
        assignments=int(is_word(kind, "assigned").sum()),
        commits=int(is_acked.sum()),
        second_owners=_second_owners(events, register),
        register=register,
    )


def _second_owners(events: pa.Table, register: Register) -> tuple[SecondOwner, ...]:
    """Returns assignments of the partition to different members in one generation.

    Of each earlier member its last assignment counts: it shows that the generation was there until then. A
    generation below an earlier one may have been counted from the beginning again, without any election: Kafka
    forgets a group without members that has committed nothing. The first generation may be there again at once.
    """
    assigned = events.filter(is_word(events.column("event"), "assigned"))
    generation = assigned.column("generation").to_numpy()
    index = assigned.column("event_index").to_numpy()
    process = assigned.column("process").to_numpy()
    at_ns = assigned.column("at_ns").to_numpy()
    has_commit = index > register.proofs.end.min(initial=NEVER)
    goes_back = generation < np.maximum.accumulate(generation)
    forgets = np.cumsum((generation >= 0) & goes_back & ~has_commit)
    owners: dict[int, dict[int, int]] = {}
    found = []
    for row in np.flatnonzero(generation >= 0).tolist():
        number, member = int(generation[row]), int(process[row])
        others = owners.setdefault(number, {})
        found += [
            SecondOwner(
                generation=number,
                first=other,
                second=member,
                first_ns=int(at_ns[earlier]),
                second_ns=int(at_ns[row]),
                may_be_another_group=bool(
                    forgets[row] > forgets[earlier] or (number == FIRST and not has_commit[row])
                ),
            )
            for other, earlier in others.items()
            if other != member
        ]
        # A member keeps its place in the order of first assignments.
        others[member] = row
    return tuple(found)


def member_polls(operations: pa.Table, members: I64) -> I64:
    """Returns the op_index of every operation of a member, ascending."""
    is_member: Bools = np.isin(operations.column("process").to_numpy(), members)
    ops: I64 = np.sort(operations.column("op_index").to_numpy()[is_member])
    return ops


def committed_beyond(
    facts: GroupFacts, operations: pa.Table, records_read: pa.Table, since: int = BEFORE_ALL
) -> pa.Table:
    """Returns the records that members received and then committed: the same member sent a larger offset.

    A member that polls at or below the offset of a record again was moved back. Then only what it sent before that
    counts.

    Args:
        facts: What the events of the group show.
        operations: Those of the partition.
        records_read: Likewise.
        since: Only commits that were sent after this event count.
    """
    op = records_read.column("op_index").to_numpy()
    offset = records_read.column("offset").to_numpy()
    of_op = operations.column("op_index").to_numpy()
    by_op = np.argsort(of_op, kind="stable")
    is_beyond = np.zeros(len(op), dtype=np.bool_)
    for member in facts.members.tolist():
        polls = member_polls(operations, np.array([member]))
        mine = np.flatnonzero(np.isin(op, polls))
        at_ns, largest = facts.register.sent_by(member, since)
        if not len(mine):
            continue
        rows = by_op[np.searchsorted(of_op[by_op], polls)]
        position = operations.column("position").to_numpy()[rows].astype(np.int64)
        invoked_ns = operations.column("invoked_ns").to_numpy()[rows]
        poll = np.searchsorted(polls, op[mine])
        # How far the member had got before each poll.
        reach = position.copy()
        np.maximum.at(reach, poll, offset[mine] + 1)
        reach = np.append(-1, np.maximum.accumulate(reach)[:-1])
        until_ns = np.full(len(mine), INF_NS)
        for back in np.flatnonzero((position >= 0) & (position < reach))[::-1].tolist():
            is_before = (poll < back) & (offset[mine] >= position[back])
            until_ns[is_before] = invoked_ns[back]
        sent = np.append(-1, largest)[np.searchsorted(at_ns, until_ns, side="right")]
        is_beyond[mine] = offset[mine] < sent
    return records_read.filter(pa.array(is_beyond))


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
    tables = ("group_events", COORDINATOR_STATES, CLEANED_RECORDS, *LOG_TABLES)
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
            final = records_of(records_returned(tables), final_ops, log_start_offset=start)
            final = final.take(final.offset < facts.committed)
            skipped = final.without(delivered)
            if facts.second_owners:
                findings += _double_ownership(facts, tables, context)
            if facts.regressions:
                findings += _regressed(facts, tables, context)
            if facts.unsent:
                findings.append(_unsent(facts, context))
            if len(skipped.offset):
                outcome = _outcomes(facts, skipped, tables, context)
                findings += _skipped(facts, skipped, outcome, Evidence(operations), context)
        return CheckerReport(findings=tuple(findings), coverage=dict(coverage))


CONSUMER_GROUP = ConsumerGroupChecker()


def _double_ownership(
    facts: GroupFacts, tables: Mapping[str, pa.Table], context: RunContext
) -> list[CheckerFinding]:
    owners = facts.second_owners
    coordinator = Coordinator(facts.group, tables, context)
    outcome = coordinator.losses(
        np.array([each.first_ns for each in owners], dtype=np.int64),
        np.array([each.second_ns for each in owners], dtype=np.int64),
    )
    for row in np.flatnonzero(outcome == UNEXCUSED).tolist():
        each = owners[row]
        # When the member requested its assignment is not recorded.
        reported_ns = (-INF_NS, each.first_ns)
        if each.may_be_another_group or coordinator.may_be_uncommitted(
            reported_ns, each.second_ns, facts.register.settled_ns
        ):
            outcome[row] = UNDECIDED
    # Two members contradict each other in both directions if each was assigned the partition again, so what counts
    # is which of them came first.
    first_seen: dict[tuple[int, int], int] = {}
    for number, each in enumerate(owners):
        first_seen.setdefault((each.generation, each.first), 2 * number)
        first_seen.setdefault((each.generation, each.second), 2 * number + 1)
    worst: dict[tuple[int, int], int] = {}
    for number, each in enumerate(owners):
        pair = ((each.generation, each.first), (each.generation, each.second))
        later = max(pair, key=first_seen.__getitem__)
        known = worst.setdefault(later, number)
        if outcome[number] < outcome[known]:
            worst[later] = number
    findings = []
    for result in np.unique(outcome).tolist():
        chosen = [owners[number] for number in worst.values() if outcome[number] == result]
        if chosen:
            text = (
                f"group {facts.group}: in generation {chosen[0].generation} the partition was assigned to process"
                f" {chosen[0].first} and to process {chosen[0].second}"
            )
            findings.append(_finding("double-ownership", len(chosen), text, context, result))
    return findings


def _outcome_of(
    facts: GroupFacts,
    skipped: Records,
    since: int,
    tables: Mapping[str, pa.Table],
    context: RunContext,
) -> I8:
    """Returns what excuses each skipped record.

    Args:
        facts: What the events of the group show.
        skipped: The skipped records.
        since: Only commits that were sent after this event show that a member passed something.
        tables: Those of the checker.
        context: What the run declares about itself.
    """
    operations, records_read = tables["operations"], tables["records_read"]
    start = context.log_start_offset
    polls = member_polls(operations, facts.members)
    beyond = committed_beyond(facts, operations, records_read, since)
    passed = records_of(beyond, polls, log_start_offset=start)
    outcome = _of_skipped(skipped, passed, tables, context)
    if context.sparse_offsets:
        final_ops = operations.filter(operations.column("final")).column("op_index").to_numpy()
        # What the cleaner removed counts as read, so that it is not lost.
        stayed = records_of(records_read, final_ops, log_start_offset=start)
        above = _of_passed(skipped, passed.without(stayed), tables, context)
        outcome = np.maximum(outcome, above)
        nothing = ~np.isin(skipped.offset, passed.offset)
        empty = _of_empty(facts, skipped.take(nothing), since, tables, context)
        outcome[nothing] = np.maximum(outcome[nothing], empty)
    if context.compacted:
        is_unsure = _may_be_removed(facts, skipped, since, tables, context)
        outcome[is_unsure & (outcome == UNEXCUSED)] = UNDECIDED
    return outcome


def _outcomes(
    facts: GroupFacts, skipped: Records, tables: Mapping[str, pa.Table], context: RunContext
) -> I8:
    """Returns what excuses each skipped record, by the commits since a member had to pass it last."""
    register = facts.register
    outcome = _outcome_of(facts, skipped, BEFORE_ALL, tables, context)
    rows = np.flatnonzero(outcome > UNEXCUSED)
    # Between two neighbours of these, every offset was passed at the same time.
    borders = np.unique(np.concatenate((register.steps.start, register.commits.offset)))
    _, first, place = np.unique(
        np.searchsorted(borders, skipped.offset[rows], side="right"),
        return_index=True,
        return_inverse=True,
    )
    passed = [register.passed_since(offset) for offset in skipped.offset[rows[first]].tolist()]
    since = np.array(passed, dtype=np.int64)[place]
    for event in np.unique(since[since > BEFORE_ALL]).tolist():
        mine = rows[since == event]
        outcome[mine] = _outcome_of(facts, skipped.take(mine), event, tables, context)
    return outcome


def _of_skipped(
    skipped: Records, passed: Records, tables: Mapping[str, pa.Table], context: RunContext
) -> I8:
    """Returns what elections did to what members received and passed at the offset of each skipped record."""
    rows = np.flatnonzero(np.isin(passed.offset, skipped.offset))
    outcome = np.full(len(skipped.offset), UNEXCUSED, dtype=np.int8)
    if len(rows):
        lost = passed.take(rows)
        claims = reader_of(tables, context).claims(
            lost.op, lost.offset, lost.value, last_shown=True
        )
        fates = elections_of(tables, context).fates(claims)
        # Only one record is left at an offset, so `skipped` holds each offset once unless final reads disagree.
        at = np.searchsorted(skipped.offset, lost.offset)
        np.maximum.at(outcome, at, fates.outcome)
        outcome = outcome[np.searchsorted(skipped.offset, skipped.offset)]
    return outcome


def _of_passed(
    skipped: Records, gone: Records, tables: Mapping[str, pa.Table], context: RunContext
) -> I8:
    """Returns what elections did to records above each skipped one, before that one was established.

    Of the records above it the one counts that a member received first: if the log that the group read without the
    skipped record was cut below that one, everything that was read above it until then is gone.

    Args:
        skipped: The skipped records.
        gone: Records that members received and passed, and that final reads do not return.
        tables: Those of the checker.
        context: What the run declares about itself.
    """
    outcome = np.full(len(skipped.offset), UNEXCUSED, dtype=np.int8)
    above = np.searchsorted(gone.offset, skipped.offset, side="right")
    rows = np.flatnonzero(above < len(gone.offset))
    if not len(rows):
        return outcome
    is_first = gone.op == np.minimum.accumulate(gone.op[::-1])[::-1]
    received = gone.take(np.flatnonzero(is_first))
    received = received.take(np.searchsorted(received.offset, skipped.offset[rows], side="right"))
    skipped = skipped.take(rows)
    reader, history = reader_of(tables, context), log_of(tables, context).history
    received_ns = np.append(history.poll_res, INF_NS)[lookup(history.poll_op)(received.op)]
    earlier = reader.claims(received.op, received.offset, received.value)
    outcome[rows] = _lost_before(earlier, skipped, received_ns, tables, context)
    return outcome


def _of_empty(
    facts: GroupFacts,
    skipped: Records,
    since: int,
    tables: Mapping[str, pa.Table],
    context: RunContext,
) -> I8:
    """Returns what elections did to offsets that members passed without a record, as their commits show.

    The offset of a skipped record may have been taken in the log that a member read, and there was nothing for
    clients. Then its last poll that began at or below the offset went over it. If the log was cut there since, the
    skipped record may be of a later log.

    Args:
        facts: What the events of the group show.
        skipped: The skipped records.
        since: Only commits that were sent after this event count.
        tables: Those of the checker.
        context: What the run declares about itself.
    """
    outcome = np.full(len(skipped.offset), UNEXCUSED, dtype=np.int8)
    reader, history = reader_of(tables, context), log_of(tables, context).history
    passed = [facts.register.passed(offset, since) for offset in skipped.offset.tolist()]
    passed_ns, member = np.array(passed, dtype=np.int64).reshape(-1, 2).T
    poll = np.full(len(skipped.offset), -1, dtype=np.int64)
    for process in np.unique(member).tolist():
        ops = member_polls(tables["operations"], np.array([process]))
        mine = np.flatnonzero(np.isin(history.poll_op, ops))
        for row in np.flatnonzero(member == process).tolist():
            is_before = history.poll_inv[mine] <= passed_ns[row]
            is_before &= history.poll_position[mine] <= skipped.offset[row]
            poll[row] = mine[is_before].max(initial=-1)
    rows = np.flatnonzero(poll >= 0)
    if len(rows):
        poll, skipped = poll[rows], skipped.take(rows)
        by_ns = np.minimum(history.poll_res[poll], passed_ns[rows])
        nothing = np.full(len(rows), NONE, dtype=np.int64)
        taken = reader.claims(history.poll_op[poll], skipped.offset, nothing)
        # Where a poll began, or when it was fetched, is not always known.
        is_known = (history.poll_position[poll] >= 0) & ~reader.were_fetched_ahead(
            history.poll_op[poll]
        )
        taken = replace(
            taken,
            from_ns=np.where(is_known, taken.from_ns, -INF_NS),
            by_ns=np.minimum(taken.by_ns, by_ns),
        )
        outcome[rows] = _lost_before(taken, skipped, by_ns, tables, context)
    return outcome


def _lost_before(
    earlier: Claims,
    skipped: Records,
    seen_ns: I64,
    tables: Mapping[str, pa.Table],
    context: RunContext,
) -> I8:
    """Returns what elections did to what members passed, before each skipped record was established.

    Args:
        earlier: What is known of what they passed, one row per skipped record.
        skipped: The skipped records.
        seen_ns: When they had passed it at the latest.
        tables: Those of the checker.
        context: What the run declares about itself.
    """
    reader, history = reader_of(tables, context), log_of(tables, context).history
    later = reader.claims(skipped.op, skipped.offset, skipped.value)
    lost = elections_of(tables, context).fates(earlier, later, reader.written).outcome
    # The skipped record was not in the log that the member read, because it was sent later, or because epochs do
    # not go down in one log.
    is_elsewhere = earlier.high_epoch < later.low_epoch
    sent_ns = np.append(history.append_inv, -INF_NS)[history.append_at(skipped.value)]
    is_elsewhere |= sent_ns > seen_ns + context.clock_error_ns
    return np.where(is_elsewhere, lost, np.minimum(lost, UNDECIDED))


def _may_be_removed(
    facts: GroupFacts,
    skipped: Records,
    since: int,
    tables: Mapping[str, pa.Table],
    context: RunContext,
) -> Bools:
    """Returns which records a leader may have removed before members passed them, and a later leader not."""
    elections = elections_of(tables, context).elections
    elected_ns = max((each.at_ns for each in elections), default=-INF_NS)
    passed = [facts.register.passed(offset, since) for offset in skipped.offset.tolist()]
    passed_ns = np.array(passed, dtype=np.int64).reshape(-1, 2)[:, 0]
    until_ns = np.minimum(passed_ns, elected_ns) + context.clock_error_ns
    is_appended = log_of(tables, context).history.append_at(skipped.value) >= 0
    may_be: Bools = is_appended & (
        reader_of(tables, context).replaced_ns(skipped.value) <= until_ns
    )
    return may_be


def _regressed(
    facts: GroupFacts, tables: Mapping[str, pa.Table], context: RunContext
) -> list[CheckerFinding]:
    group_judge = GroupJudge(facts.register, Coordinator(facts.group, tables, context))
    found = [group_judge.contradiction(report) for report in facts.regressions]
    findings = []
    for result in sorted({each.outcome for each in found}):
        chosen = [each for each in found if each.outcome == result]
        first = chosen[0]
        seen = f"offset {first.seen}" if first.seen >= 0 else "nothing"
        before = (
            f"the coordinator reported that offset {first.proven} is committed"
            if first.was_reported
            else f"a commit of offset {first.proven} was acknowledged"
        )
        text = f"group {facts.group}: {before}, and afterwards the coordinator reported that {seen} is committed"
        findings.append(_finding("committed-offset-regressed", len(chosen), text, context, result))
    return findings


def _unsent(facts: GroupFacts, context: RunContext) -> CheckerFinding:
    return _finding(
        "phantom-commit",
        len(facts.unsent),
        f"group {facts.group}: the coordinator reported that offset {facts.unsent[0].offset} is committed, and no"
        " member had sent a commit of it",
        context,
        UNEXCUSED,
    )


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
    return judged_finding(
        identifier,
        count,
        text,
        context,
        is_excused=outcome == EXCUSED,
        is_undecided=outcome == UNDECIDED,
        **more,
    )
