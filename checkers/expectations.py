"""The expectation matrix: what an anomaly means under a run's configuration and faults.

An anomaly is a fact about a history; whether it is a broken promise depends on what was promised. The matrix is a
list of rows, tried from the top; the first that applies gives the judgement and the sentence that the report
prints.
"""

from collections.abc import Callable
from dataclasses import dataclass

from checkers.anomalies import ANOMALIES
from harness.contracts.verdict import Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """What a run's configuration promises.

    Attributes:
        elr_on: Whether eligible leader replicas (KIP-966) are in use.
        at_least_once: Whether producers without idempotence sent an append again after a timeout.
    """

    elr_on: bool = True
    at_least_once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One group of instances of an anomaly.

    Attributes:
        id: The anomaly.
        is_weak: They rest on records acknowledged with acks=1 only that were never read.
        is_excused: A lawful flagged election after the record was established chose a replica without it, or one
            replica could commit alone and faults destroyed it.
        expectations: What the run promises.
        is_undecided: That is possible, but an election that excuses nothing may have lost the record as well, or
            it is not known whether the election was lawful. Of a recovery: whether it was slow is not known.
    """

    id: str
    is_weak: bool
    is_excused: bool
    expectations: Expectations
    is_undecided: bool = False

    @property
    def level(self) -> str:
        """The promise that the anomaly breaks."""
        return ANOMALIES[self.id].level


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the matrix: when it applies, what then holds, and why."""

    name: str
    applies: Callable[[Case], bool]
    judgement: Judgement
    rule: str


_LOSSES = frozenset({"lost-acked-write", "offset-reused", "visible-regress"})
_NEVER_EXCUSED = frozenset(
    {
        "phantom-value",
        "failed-append-visible",
        "corrupt-record",
        "misplaced-record",
        "impossible-offset",
        "phantom-commit",
        "skipped-offset",
        "torn-batch",
        "torn-fetch",
        "nonmonotonic-poll",
        "unordered-poll",
        "unfilled-hole",
        "hole-before-append",
        "invariant-broken",
        "unsent-in-batch",
    }
)
"""Anomalies that no election can cause: a lost tail explains neither what was never written nor a garbled
response. A log has no gaps before an election and none after it."""

_OF_GROUPS = frozenset({"committed-offset-regressed", "group-skipped-record", "double-ownership"})

_OF_SESSIONS = frozenset({"out-of-sequence", "producer-gap"})

MATRIX: tuple[Row, ...] = (
    Row(
        name="recovery that cannot be measured",
        applies=lambda case: case.id == "slow-recovery" and case.is_undecided,
        judgement=Judgement.UNDECIDED,
        rule=(
            "the experiment limits the time that a partition may take to recover (recovery_max_ms); clocks differ"
            " by more than what is missing, or a fault whose injection failed may have been in force"
        ),
    ),
    Row(
        name="recovery",
        applies=lambda case: case.id == "slow-recovery",
        judgement=Judgement.FORBIDDEN,
        rule="the experiment limits the time that a partition may take to recover (recovery_max_ms)",
    ),
    Row(
        name="progress",
        applies=lambda case: case.id == "stuck",
        judgement=Judgement.FORBIDDEN,
        rule=(
            "a partition makes progress within some election timeouts once everything is healed and the replicas"
            " that it needs are up and connected"
        ),
    ),
    Row(
        name="observations of the log end may be stale",
        applies=lambda case: case.level == "fresh",
        judgement=Judgement.INFORMATIONAL,
        rule=(
            "Kafka promises a consistent prefix, not a fresh one: a leader that does not know yet that it was"
            " replaced, or a new one whose high watermark still lags, may report an older log end"
        ),
    ),
    Row(
        name="unseen",
        applies=lambda case: case.id == "unseen",
        judgement=Judgement.INFORMATIONAL,
        rule="the final reads did not get as far as these records; the verdict is unknown, not invalid",
    ),
    Row(
        name="acks=1",
        applies=lambda case: case.id == "lost-acked-write-acks1",
        judgement=Judgement.ALLOWED,
        rule="acks=1 promises only that the leader had the record; it may be lost with that leader",
    ),
    Row(
        name="at-least-once producers",
        applies=lambda case: case.id == "duplicate" and case.expectations.at_least_once,
        judgement=Judgement.ALLOWED,
        rule=(
            "a producer without idempotence that sends an append again after a timeout may write the record twice"
        ),
    ),
    Row(
        name="several requests in flight",
        applies=lambda case: case.id == "reordered-send",
        judgement=Judgement.ALLOWED,
        rule=(
            "if a producer without idempotence has several requests in flight, a retry or a change of the leader"
            " may reorder its records"
        ),
    ),
    Row(
        name="one leader in one epoch",
        applies=lambda case: case.id == "high-watermark-regression",
        judgement=Judgement.FORBIDDEN,
        rule="a leader never lowers its high watermark within its leader epoch, whatever elections come later",
    ),
    Row(
        name="one log on all replicas",
        applies=lambda case: case.id == "divergent-replicas",
        judgement=Judgement.FORBIDDEN,
        rule=(
            "what two members of the ISR know as committed is the same on both, whatever elections came before"
        ),
    ),
    Row(
        name="rests on acks=1",
        applies=lambda case: case.is_weak and case.id not in _NEVER_EXCUSED,
        judgement=Judgement.ALLOWED,
        rule=(
            "it rests on records acknowledged with acks=1 that were never read; acks=1 does not promise that they"
            " keep their offset"
        ),
    ),
    Row(
        name="undecided for a consumer group",
        applies=lambda case: case.is_undecided and case.id in _OF_GROUPS,
        judgement=Judgement.UNDECIDED,
        rule=(
            "a lawful flagged election may have lost what members received or what the group's coordinator had"
            " written, or a coordinator that did not know yet that it was replaced may have answered, or one that"
            " was just elected may have reported what was not committed yet, or the group was forgotten while it"
            " had no members and no commits, or a leader may have removed, in a compacted topic, what the next one"
            " still had; what is recorded does not show whether that was so"
        ),
    ),
    Row(
        name="undecided for an idempotent producer",
        applies=lambda case: case.is_undecided and case.id == "producer-gap",
        judgement=Judgement.UNDECIDED,
        rule=(
            "a leader without a record of the producer accepts any sequence number, and what is recorded does not"
            " show whether the leader that accepted the later record had one"
        ),
    ),
    Row(
        name="undecided for a record batch",
        applies=lambda case: case.is_undecided and case.id == "torn-batch",
        judgement=Judgement.UNDECIDED,
        rule=(
            "a lawful flagged election may have been between the final polls that show parts of the batch, so that"
            " they show two logs"
        ),
    ),
    Row(
        name="undecided",
        applies=lambda case: case.is_undecided and case.id not in _NEVER_EXCUSED,
        judgement=Judgement.UNDECIDED,
        rule=(
            "a lawful flagged election may have lost the record, but what is recorded does not show whether that"
            " election lost it or whether the election was lawful"
        ),
    ),
    Row(
        name="flagged election under an idempotent producer",
        applies=lambda case: case.is_excused and case.id in _OF_SESSIONS,
        judgement=Judgement.EXCUSED,
        rule=(
            "a lawful flagged election meanwhile may have lost the state of the producer, and a leader without it"
            " accepts any sequence number"
        ),
    ),
    Row(
        name="idempotent producer",
        applies=lambda case: case.id in _OF_SESSIONS,
        judgement=Judgement.FORBIDDEN,
        rule="a leader accepts records of an idempotent producer in the order of their sequence numbers only",
    ),
    Row(
        name="flagged election under a consumer group",
        applies=lambda case: case.is_excused and case.id in _OF_GROUPS,
        judgement=Judgement.EXCUSED,
        rule=(
            "a flagged (unclean or last-known-leader) election chose a replica without records that were"
            " delivered and committed, or without what the group's coordinator had written, and nothing better"
            " was left to elect"
        ),
    ),
    Row(
        name="one owner",
        applies=lambda case: case.id == "double-ownership",
        judgement=Judgement.FORBIDDEN,
        rule="in one generation of a consumer group every partition has one owner",
    ),
    Row(
        name="commits of members",
        applies=lambda case: case.id == "phantom-commit",
        judgement=Judgement.FORBIDDEN,
        rule="the coordinator of a consumer group reports as committed what a member committed, and nothing else",
    ),
    Row(
        name="consumer group",
        applies=lambda case: case.id in _OF_GROUPS,
        judgement=Judgement.FORBIDDEN,
        rule=(
            "an acknowledged commit stays committed, and a consumer group that commits what it processed receives"
            " every record below its committed offset at least once"
        ),
    ),
    Row(
        name="election without eligible leader replicas",
        applies=lambda case: (
            case.is_excused and not case.expectations.elr_on and case.id not in _NEVER_EXCUSED
        ),
        judgement=Judgement.EXCUSED,
        rule=(
            "after the record was established, a flagged (unclean) election chose a replica that did not have it,"
            " or one replica could commit alone (min.insync.replicas was 1) and faults destroyed what every member"
            " of the ISR had written"
        ),
    ),
    Row(
        name="flagged election",
        applies=lambda case: case.is_excused and case.id not in _NEVER_EXCUSED,
        judgement=Judgement.EXCUSED,
        rule=(
            "after the record was established, a flagged (unclean or last-known-leader) election chose a replica"
            " that did not have it, and nothing better was left to elect"
        ),
    ),
    Row(
        name="loss with ELR",
        applies=lambda case: case.id in _LOSSES and case.expectations.elr_on,
        judgement=Judgement.FORBIDDEN,
        rule=(
            "with eligible leader replicas on, committed records survive unless a lawful flagged election gives"
            " them up, and none explains this"
        ),
    ),
    Row(
        name="loss without ELR",
        applies=lambda case: case.id in _LOSSES,
        judgement=Judgement.FORBIDDEN,
        rule=(
            "committed records may only be given up by an election that is flagged as unclean, and none explains"
            " this; in Kafka without eligible leader replicas this is the last-replica-standing bug (KIP-966)"
        ),
    ),
    Row(
        name="integrity",
        applies=lambda case: case.level == "integrity",
        judgement=Judgement.FORBIDDEN,
        rule="all clients must agree on one sequence of records, each written by an append that did not fail",
    ),
    Row(
        name="order",
        applies=lambda case: case.level == "order",
        judgement=Judgement.FORBIDDEN,
        rule="the order of records must fit the clock, and none is read before it is written",
    ),
)
"""The matrix. Its last rows cover every anomaly of the levels above `fresh`."""


def judge(case: Case) -> Row:
    """Returns the first row of the matrix that applies."""
    return next(row for row in MATRIX if row.applies(case))
