"""The log directories of replicas in the metadata (KIP-858).

A broker may keep its logs in several directories, each with an id of its own. A partition's registration holds one
id per replica, in the order of the replicas, or a reserved id. Registrations of clusters whose brokers have one
directory each hold none: such a broker ends with its directory, so the id adds no information.
"""

from collections.abc import Collection
from uuid import UUID

from system_under_test.metadata.image import (
    BrokerRegistration,
    ClusterImage,
    PartitionRegistration,
)
from system_under_test.metadata.records import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
)


def directory_of(registration: PartitionRegistration, broker_id: int) -> UUID:
    """Returns the directory of a broker's replica; `MIGRATING_DIRECTORY` if the registration does not name it."""
    for replica, directory in zip(registration.replicas, registration.directories, strict=False):
        if replica == broker_id:
            return directory
    return MIGRATING_DIRECTORY


def is_online(directory: UUID, online: Collection[UUID]) -> bool:
    """Whether a replica in a directory can be used.

    Args:
        directory: Its id, or a reserved id.
        online: The online directories of its broker; none if the broker does not report them.

    Source:
        Kafka's `DirectoryId.isOnline`.
    """
    if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
        return True
    if directory == LOST_DIRECTORY:
        return False
    return not online or directory in online


def has_online_replica(
    image: ClusterImage, registration: PartitionRegistration, broker_id: int
) -> bool:
    """Whether the directory of a broker's replica is online, as far as the metadata show it (DIR-3)."""
    if not registration.directories:
        return True
    broker = image.brokers.get(broker_id)
    return broker is not None and is_online(directory_of(registration, broker_id), broker.log_dirs)


def partitions_in(
    image: ClusterImage, broker_id: int, directories: Collection[UUID]
) -> list[PartitionRegistration]:
    """Returns the partitions whose replica on a broker is in one of the directories, by topic name and index."""
    found = [
        registration
        for registration in image.partitions.values()
        if registration.directories
        and broker_id in registration.replicas
        and directory_of(registration, broker_id) in directories
    ]
    return sorted(found, key=lambda registration: (registration.topic, registration.partition))


def first_directories(image: ClusterImage, replicas: tuple[int, ...]) -> tuple[UUID, ...]:
    """Returns the directories of a new partition, none while every broker of the cluster has only one.

    A broker with one directory has no choice. Any other chooses itself, and reports its choice (DIR-5).
    """
    if not any(len(broker.log_dirs) > 1 for broker in image.brokers.values()):
        return ()
    return tuple(_first_directory(image.brokers.get(broker_id)) for broker_id in replicas)


def _first_directory(broker: BrokerRegistration | None) -> UUID:
    if broker is None or not broker.log_dirs:
        return MIGRATING_DIRECTORY
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED_DIRECTORY


def with_directory(
    registration: PartitionRegistration, broker_id: int, directory: UUID
) -> tuple[UUID, ...]:
    """Returns the directories of a partition after one of its brokers reported where its replica is."""
    return tuple(
        directory if replica == broker_id else directory_of(registration, replica)
        for replica in registration.replicas
    )
