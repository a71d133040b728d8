"""The change builder: from a registration and targets to one `PartitionChangeRecord` (rules PCB, ELR).

Every change of a partition is built here: fencing, unfencing, registration, shutdown, AlterPartition, elections,
reassignments and the sweep. The builder is pure. It makes four decisions, each of which depends on the one before:
whether a reassignment completes, which replicas are eligible (the ELR), which replica leads, and what is written.

Why the ELR is safe. A member that leaves the ISR in a change that leaves it below min ISR has everything that
was ever committed: before the change it was in the ISR, and after it the leader's high watermark does not move,
because the leader either still waits for the removed member or knows that it is below min ISR (HW-1, HW-3). The
member stays complete until the ISR reaches min ISR again, or until it restarts without proof of a clean shutdown.

"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from system_under_test.config import Features
from system_under_test.controller.assignment import Assignment, complete
from system_under_test.controller.election import (
    ElectedFrom,
    ElectionResult,
    Electorate,
    elect_leader,
)
from system_under_test.controller.policy import Mark, mark
from system_under_test.metadata.directories import directory_of
from system_under_test.metadata.image import PartitionRegistration, merge_change
from system_under_test.metadata.records import (
    LEADER_UNCHANGED,
    NO_LEADER,
    RECOVERING,
    PartitionChangeRecord,
)
from system_under_test.rules import ALL_RULES, Rules

T = TypeVar("T")


def _no_directories(_replicas: tuple[int, ...]) -> tuple[UUID, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeContext:
    """Input of the builder besides the partition.

    Attributes:
        acceptable: Whether a broker may lead after this change.
        min_isr: The partition's effective min ISR.
        elr_on: Whether eligible leader replicas are finalized.
        unclean_allowed: Whether the topic allows unclean elections.
        prefers_first: Whether the change is a preferred election (EL-3).
        unclean_replicas: Brokers that are registering without proof of a clean shutdown.
        first_directories: Returns the log directories of new replicas; none if all brokers have only one.
    """

    acceptable: Callable[[int], bool]
    min_isr: int
    elr_on: bool
    features: Features
    unclean_allowed: bool = False
    prefers_first: bool = False
    unclean_replicas: frozenset[int] = frozenset()
    first_directories: Callable[[tuple[int, ...]], tuple[UUID, ...]] = _no_directories
    rules: Rules = ALL_RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """One change of one partition.

    Attributes:
        elected_from: Set that entitled the new leader; `NOTHING` if the leader did not change or there is none.
        before: The registration from which the change was computed.
        after: The registration after the change.
    """

    record: PartitionChangeRecord
    elected_from: ElectedFrom
    before: PartitionRegistration
    after: PartitionRegistration

    def marks(self) -> tuple[Mark, ...]:
        """Returns the marks of the change."""
        after = self.after
        where = {"topic": after.topic, "partition": after.partition}
        found = []
        if self.elected_from in _ELECTION_MARKS:
            found.append(
                mark(
                    _ELECTION_MARKS[self.elected_from],
                    **where,
                    leader=after.leader,
                    leader_epoch=after.leader_epoch,
                )
            )
        if after.leader == NO_LEADER and self.before.leader != NO_LEADER:
            found.append(mark("partition-without-leader", **where, isr=after.isr, elr=after.elr))
        if set(after.isr) < set(self.before.isr):
            found.append(mark("isr-shrunk", **where, isr=after.isr, elr=after.elr))
        elif set(after.isr) > set(self.before.isr):
            found.append(mark("isr-expanded", **where, isr=after.isr))
        found.extend(self._marks_of_reassignment(where))
        return tuple(found)

    def _marks_of_reassignment(self, where: dict[str, object]) -> list[Mark]:
        before, after = Assignment.of(self.before), Assignment.of(self.after)
        if before == after:
            return []
        name = "reassignment-began" if after.is_changing else "reassignment-ended"
        return [mark(name, **where, replicas=after.replicas, isr=self.after.isr)]


_ELECTION_MARKS = {
    ElectedFrom.ISR: "elected-from-isr",
    ElectedFrom.ELR: "elected-from-elr",
    ElectedFrom.LAST_KNOWN_LEADER: "elected-last-known-leader",
    ElectedFrom.UNCLEAN: "elected-unclean",
    ElectedFrom.ANY_REPLICA: "elected-any-replica",
}


def build_change(
    registration: PartitionRegistration,
    context: ChangeContext,
    *,
    target_isr: tuple[int, ...] | None = None,
    target_recovery_state: int | None = None,
    target_assignment: Assignment | None = None,
    target_directories: tuple[UUID, ...] | None = None,
) -> PartitionChange | None:
    """Computes the change that brings a partition to its targets.

    Args:
        registration: The partition before the change.
        context: Liveness, min ISR and switches.
        target_isr: The wanted ISR; None keeps it.
        target_recovery_state: The wanted leader recovery state; None keeps it.
        target_assignment: The wanted replicas, and what is being added and removed; None keeps all of it.
        target_directories: The wanted log directories, one per replica; None keeps them.

    Returns:
        The change, or None when nothing changes.

    Source:
        Kafka's `PartitionChangeBuilder`.
    """
    isr = registration.isr if target_isr is None else target_isr
    assignment = target_assignment or Assignment.of(registration)
    completed = complete(assignment, isr, context.features, context.rules)
    if completed is not None:
        assignment, isr = completed
    replicas = assignment.replicas
    elr = _target_elr(registration, isr, replicas, context)
    election = _elect(registration, isr, elr, replicas, context)
    is_new_leader = election.leader != registration.leader
    leader = election.leader if is_new_leader else LEADER_UNCHANGED
    recovery_state = target_recovery_state
    if is_new_leader and election.source is not ElectedFrom.NOTHING:
        if election.source is not ElectedFrom.ISR:
            isr = (election.leader,)
        elr = _elr_after_election(election, isr, elr, context)
        if election.is_flagged:
            recovery_state = RECOVERING
    if not context.elr_on:
        elr = ()
    if not isr and not _isr_may_be_empty(context):
        isr = registration.isr
        elr = tuple(replica for replica in elr if replica not in isr)
    # The order of an ISR has no meaning: the same members in another order are not a change.
    writes_isr = set(isr) != set(registration.isr)
    if (
        context.features.bump_leader_epoch_on_isr_shrink
        and leader == LEADER_UNCHANGED
        and writes_isr
        and not set(registration.isr) <= set(isr)
    ):
        # Before metadata version 3.6 a shrink started a new epoch of the same leader (KAFKA-15021).
        leader = registration.leader
    # [REAS-2] What the leader knows of a replica that leaves must not count if it is added again.
    if (
        leader == LEADER_UNCHANGED
        and not set(registration.replicas) <= set(replicas)
        and context.rules("REAS-2")
    ):
        leader = registration.leader
    record = PartitionChangeRecord(
        topic_id=registration.topic_id,
        partition_id=registration.partition,
        isr=isr if writes_isr else None,
        leader=leader,
        replicas=_if_changed(replicas, registration.replicas),
        adding_replicas=_if_changed(assignment.adding, registration.adding_replicas),
        removing_replicas=_if_changed(assignment.removing, registration.removing_replicas),
        leader_recovery_state=_if_changed(recovery_state, registration.leader_recovery_state),
        eligible_leader_replicas=elr if elr != registration.elr else None,
        last_known_elr=_last_known_elr(registration, isr if writes_isr else None, leader, context),
        directories=_if_changed(
            target_directories or _moved_directories(registration, replicas, context) or None,
            registration.directories,
        ),
    )
    if record == PartitionChangeRecord(
        topic_id=registration.topic_id, partition_id=registration.partition
    ):
        return None
    return PartitionChange(
        record=record,
        elected_from=election.source if is_new_leader else ElectedFrom.NOTHING,
        before=registration,
        after=merge_change(registration, record),
    )


def _moved_directories(
    registration: PartitionRegistration, replicas: tuple[int, ...], context: ChangeContext
) -> tuple[UUID, ...]:
    """Returns the log directories after a change of the replicas: none for no change.

    Every replica that stays keeps its own.
    """
    if replicas == registration.replicas:
        return ()
    return tuple(
        directory_of(registration, replica) if replica in registration.replicas else first
        for replica, first in zip(replicas, context.first_directories(replicas), strict=False)
    )


def _target_elr(
    registration: PartitionRegistration,
    isr: tuple[int, ...],
    replicas: tuple[int, ...],
    context: ChangeContext,
) -> tuple[int, ...]:
    if not context.elr_on:
        return registration.elr
    if len(isr) >= context.min_isr:
        # [ELR-1] From now on the ISR commits records that members of the ELR do not have.
        if context.rules("ELR-1"):
            return ()
        return tuple(replica for replica in registration.elr if replica not in isr)
    # [ELR-2] A replica that was complete before the change and leaves the ISR stays complete, because nothing is
    # committed below min ISR.
    leaving = registration.isr if context.rules("ELR-2") else ()
    candidates = sorted({*registration.elr, *leaving})
    # [REAS-4] A broker that is no longer a replica deletes its log. Kafka does not check this.
    checks_replicas = context.rules("REAS-4")
    return tuple(
        replica
        for replica in candidates
        if replica not in isr
        and (replica in replicas or not checks_replicas)
        and replica not in context.unclean_replicas
    )


def _elr_after_election(
    election: ElectionResult,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    context: ChangeContext,
) -> tuple[int, ...]:
    if election.source not in (ElectedFrom.ISR, ElectedFrom.ELR):
        # The new leader's log is authoritative now; replicas that were complete before may have to truncate.
        return ()
    if len(isr) >= context.min_isr and context.rules("ELR-1"):
        # [ELR-1] Min ISR may have been lowered to 1 meanwhile: a leader elected from the ELR commits alone.
        return ()
    return tuple(replica for replica in elr if replica != election.leader)


def _elect(
    registration: PartitionRegistration,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    replicas: tuple[int, ...],
    context: ChangeContext,
) -> ElectionResult:
    return elect_leader(
        registration,
        Electorate(
            isr=isr,
            elr=elr,
            replicas=replicas,
            acceptable=context.acceptable,
            elr_on=context.elr_on,
            unclean_allowed=context.unclean_allowed,
            features=context.features,
            rules=context.rules,
            prefers_first=context.prefers_first,
        ),
    )


def _isr_may_be_empty(context: ChangeContext) -> bool:
    if context.elr_on:
        # [ELR-3] The last member may leave, because the ELR remembers it.
        return context.rules("ELR-3")
    # [PCB-1] Without an ELR nothing remembers the last member. It stays, and leads again whatever it lost
    # meanwhile. This line is the cause of the last-replica-standing bug.
    return not context.rules("PCB-1")


def _last_known_elr(
    registration: PartitionRegistration,
    new_isr: tuple[int, ...] | None,
    leader: int,
    context: ChangeContext,
) -> tuple[int, ...] | None:
    """Returns the last-known ELR to write, None for unchanged."""
    if not context.elr_on or not context.features.last_known_leader:
        return None
    # [ELR-8] Kafka stores -1 if there was no leader to remember, and then cannot elect any replica.
    if new_isr == () and registration.leader != NO_LEADER:
        remembered = (registration.leader,)
        return remembered if registration.last_known_elr != remembered else None
    leader_after = registration.leader if leader == LEADER_UNCHANGED else leader
    if leader_after != NO_LEADER and registration.last_known_elr:
        return ()
    return None


def _if_changed(value: T | None, current: T) -> T | None:
    return None if value == current else value
