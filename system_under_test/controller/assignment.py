"""The replicas of a partition while they are changed: start, completion and cancellation (rules REAS).

A reassignment is part of the registration. While it is in progress, `replicas` has the replicas of the target
followed by those that leave. Every change of the partition may complete it: then those that leave are gone, and
nothing is being added or removed any more.
"""

from dataclasses import dataclass

from system_under_test.config import Features
from system_under_test.metadata.image import PartitionRegistration
from system_under_test.rules import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The replicas of a partition, and what a reassignment changes about them.

    Attributes:
        replicas: The preferred leader first.
        adding: Replicas that the reassignment adds.
        removing: Replicas that leave when it completes.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @classmethod
    def of(cls, registration: PartitionRegistration) -> "Assignment":
        """Returns the assignment of a registration."""
        return cls(
            replicas=registration.replicas,
            adding=registration.adding_replicas,
            removing=registration.removing_replicas,
        )

    @property
    def is_changing(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)


def begin(registration: PartitionRegistration, target: tuple[int, ...]) -> Assignment:
    """Returns the assignment that leads to a target.

    What is added or removed is computed from all replicas of the moment. If nothing is added, or nothing removed,
    then what an earlier reassignment added or removed stays in force, as in Kafka: a replica that is being removed
    leaves although the new target names it.

    Source:
        Kafka's `PartitionReassignmentReplicas` and `ReplicationControlManager.changePartitionReassignment`.
    """
    current = registration.replicas
    removing = tuple(sorted(set(current) - set(target)))
    adding = tuple(sorted(set(target) - set(current)))
    return Assignment(
        replicas=(*target, *removing),
        adding=adding or registration.adding_replicas,
        removing=removing or registration.removing_replicas,
    )


def complete(
    assignment: Assignment, isr: tuple[int, ...], features: Features, rules: Rules
) -> tuple[Assignment, tuple[int, ...]] | None:
    """Completes a reassignment if the ISR permits it (REAS-1).

    Args:
        assignment: Before.
        isr: The ISR as the change would leave it.
        features: Which replicas the release waits for.
        rules: The rules that apply.

    Returns:
        Assignment and ISR afterwards; None if there is nothing to complete yet.
    """
    if not assignment.is_changing:
        return None
    kept = tuple(member for member in isr if member not in assignment.removing)
    target = assignment.target
    # Otherwise no replica with the records would be left.
    if assignment.removing and not (kept and target):
        return None
    needed = assignment.adding
    # [REAS-1] Kafka 3.6 waited for the added replicas only and could be left with fewer in-sync replicas than min
    # ISR (KAFKA-15665). Since 4.3 it does so again unless the partition has fewer replicas afterwards.
    if rules("REAS-1") and (
        features.reassignment_waits_for == "target"
        or (
            features.reassignment_waits_for == "target-if-fewer"
            and len(assignment.adding) < len(assignment.removing)
        )
    ):
        needed = target
    if not set(needed) <= set(kept):
        return None
    return Assignment(replicas=target), kept


def revert(registration: PartitionRegistration) -> tuple[Assignment, tuple[int, ...]]:
    """Returns assignment and ISR after a reassignment is cancelled (REAS-3).

    Added replicas leave, and those that were to leave stay. The ISR may be empty.
    """
    adding = registration.adding_replicas
    return (
        Assignment(
            replicas=tuple(replica for replica in registration.replicas if replica not in adding)
        ),
        tuple(member for member in registration.isr if member not in adding),
    )
