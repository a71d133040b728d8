"""Effects of fencing, unfencing and shutting down a broker on partitions, and the unclean sweep.

Each function returns the records of one atomic batch. Their order keeps INV-7 after every record: a broker leaves
ISRs before it is fenced, and is unfenced before it is elected.
"""

from collections.abc import Iterable
from functools import partial

from system_under_test.controller.partition_change import (
    ChangeContext,
    PartitionChange,
    build_change,
)
from system_under_test.controller.policy import Decision, Mark, Policy, mark
from system_under_test.metadata.directories import first_directories, has_online_replica
from system_under_test.metadata.image import ClusterImage, PartitionRegistration
from system_under_test.metadata.records import BrokerRegistrationChangeRecord, MetadataRecord

NO_BROKER = -1


def change_context(
    image: ClusterImage,
    policy: Policy,
    registration: PartitionRegistration,
    *,
    without: int = NO_BROKER,
    with_broker: int = NO_BROKER,
    unclean_replicas: frozenset[int] = frozenset(),
) -> ChangeContext:
    """Returns the builder's context for one partition.

    Args:
        image: The latest image.
        policy: The static part.
        registration: The partition.
        without: A broker that is about to leave and is not acceptable as leader, whatever its registration.
        with_broker: A broker that is about to return and is acceptable as leader, whatever its registration.
        unclean_replicas: See `ChangeContext`.
    """

    def acceptable(broker_id: int) -> bool:
        if broker_id == without:
            return False
        if broker_id != with_broker and not image.is_active(broker_id):
            return False
        # [DIR-3] A broker that is alive cannot lead from a log that it cannot read.
        return has_online_replica(image, registration, broker_id) or not policy.rules("DIR-3")

    return ChangeContext(
        acceptable=acceptable,
        min_isr=policy.min_isr(image, registration),
        elr_on=image.elr_on,
        features=policy.features,
        unclean_allowed=policy.unclean_election(image, registration.topic),
        unclean_replicas=unclean_replicas,
        first_directories=partial(first_directories, image),
        rules=policy.rules,
    )


def remove_from_partitions(
    image: ClusterImage,
    policy: Policy,
    broker_id: int,
    registrations: Iterable[PartitionRegistration],
    *,
    is_unclean: bool = False,
) -> list[PartitionChange]:
    """Removes a broker from ISRs and from leadership; with `is_unclean` also from ELRs."""
    changes = []
    for registration in registrations:
        context = change_context(
            image,
            policy,
            registration,
            without=broker_id,
            unclean_replicas=frozenset((broker_id,)) if is_unclean else frozenset(),
        )
        change = build_change(
            registration,
            context,
            target_isr=tuple(member for member in registration.isr if member != broker_id),
        )
        if change is not None:
            changes.append(change)
    return changes


def fence(image: ClusterImage, policy: Policy, broker_id: int) -> Decision:
    """Fences a broker. It stays in ELRs: a fenced broker may still have all records."""
    broker = image.brokers[broker_id]
    changes = _leave_isrs(image, policy, broker_id)
    record = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.broker_epoch, fenced=True
    )
    return _batch(changes, mark("broker-fenced", broker_id=broker_id), last=record)


def begin_controlled_shutdown(image: ClusterImage, policy: Policy, broker_id: int) -> Decision:
    """Moves leadership away from a broker that requests to stop, and removes it from ISRs."""
    broker = image.brokers[broker_id]
    changes = _leave_isrs(image, policy, broker_id)
    record = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.broker_epoch, in_controlled_shutdown=True
    )
    return _batch(changes, mark("controlled-shutdown-began", broker_id=broker_id), last=record)


def unfence(image: ClusterImage, policy: Policy, broker_id: int) -> Decision:
    """Unfences a broker and elects leaders where its return makes that possible.

    Unfencing adds a replica to an ISR only by electing it.
    """
    broker = image.brokers[broker_id]
    record = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.broker_epoch, fenced=False
    )
    changes = []
    # A broker that was fenced in its controlled shutdown may be gone: its heartbeat can be a delayed one. It is
    # not elected, stricter than Kafka, so that no stopping broker is ever in an ISR.
    with_broker = NO_BROKER if broker.in_controlled_shutdown else broker_id
    # [FENCE-1] Otherwise partitions without a leader would wait for an operator.
    if policy.rules("FENCE-1"):
        changes = _elect(image, policy, image.leaderless_partitions(), with_broker=with_broker)
    return _batch(changes, mark("broker-unfenced", broker_id=broker_id), first=record)


def unclean_sweep(image: ClusterImage, policy: Policy) -> Decision:
    """Elects leaders for leaderless partitions of topics that allow unclean elections (EL-2)."""
    return _batch(_elect(image, policy, sweepable_partitions(image, policy)))


def sweepable_partitions(image: ClusterImage, policy: Policy) -> list[PartitionRegistration]:
    """Returns the leaderless partitions whose topics allow unclean elections."""
    return [
        registration
        for registration in image.leaderless_partitions()
        if policy.unclean_election(image, registration.topic)
    ]


def _leave_isrs(image: ClusterImage, policy: Policy, broker_id: int) -> list[PartitionChange]:
    # [FENCE-2] A broker that may be dead must neither lead nor hold back the high watermark.
    if not policy.rules("FENCE-2"):
        return []
    return remove_from_partitions(image, policy, broker_id, image.partitions_with_in_isr(broker_id))


def _elect(
    image: ClusterImage,
    policy: Policy,
    registrations: Iterable[PartitionRegistration],
    *,
    with_broker: int = NO_BROKER,
) -> list[PartitionChange]:
    changes = []
    for registration in registrations:
        context = change_context(image, policy, registration, with_broker=with_broker)
        change = build_change(registration, context)
        if change is not None:
            changes.append(change)
    return changes


def _batch(
    changes: list[PartitionChange],
    *marks: Mark,
    first: MetadataRecord | None = None,
    last: MetadataRecord | None = None,
) -> Decision:
    records: list[MetadataRecord] = [] if first is None else [first]
    records.extend(change.record for change in changes)
    if last is not None:
        records.append(last)
    of_changes = tuple(found for change in changes for found in change.marks())
    return Decision(records=tuple(records), marks=(*marks, *of_changes))
