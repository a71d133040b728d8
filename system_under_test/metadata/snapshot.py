"""Snapshots of the metadata: records that describe an image, in place of the log prefix that led to it.

A snapshot contains everything that decisions depend on (RAFT-8): ELR and last-known ELR, leader recovery states,
partition epochs, broker epochs, fenced flags, controlled shutdowns, directories, features and configurations. One
thing differs after it was loaded: a registration counts as written by the last record that the snapshot covers, as
in Kafka, because the offset of the record itself is not part of it.

Records are in an order in which they can be replayed, and keep the order of the image's dictionaries.

Source:
    KIP-630; Kafka's `MetadataImage.write`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from system_under_test.metadata.image import ClusterImage
from system_under_test.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

_NO_BROKER = -1
"""Kafka's broker id and epoch in the producer ids of a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SnapshotId:
    """Which prefix of the metadata log a snapshot covers; of two, the greater one covers more.

    Attributes:
        end_offset: Offset after the last record that it covers.
        epoch: Quorum epoch of that record.
    """

    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSnapshot:
    """A snapshot that was read from its file."""

    id: SnapshotId
    records: tuple[MetadataRecord, ...]


def snapshot_records(image: ClusterImage, *, with_elr: bool = True) -> Iterator[MetadataRecord]:
    """Yields the records that describe an image.

    Args:
        image: What to describe.
        with_elr: Whether partitions keep their ELR and last-known ELR; False is a defect (RAFT-8).
    """
    for name, level in image.features.items():
        yield FeatureLevelRecord(name=name, feature_level=level)
    for broker in image.brokers.values():
        yield RegisterBrokerRecord(
            broker_id=broker.broker_id,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.broker_epoch,
            address=broker.address,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            log_dirs=broker.log_dirs,
        )
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
    for partition in image.partitions.values():
        record = PartitionRecord(
            topic_id=partition.topic_id,
            partition_id=partition.partition,
            replicas=partition.replicas,
            isr=partition.isr,
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            leader_recovery_state=partition.leader_recovery_state,
            adding_replicas=partition.adding_replicas,
            removing_replicas=partition.removing_replicas,
            directories=partition.directories,
            eligible_leader_replicas=partition.elr,
            last_known_elr=partition.last_known_elr,
        )
        # [RAFT-8] Without its ELR a partition would be restored with fewer eligible leaders than it has.
        yield (
            record if with_elr else replace(record, eligible_leader_replicas=(), last_known_elr=())
        )
    for (resource_type, resource_name, name), value in image.configs.items():
        yield ConfigRecord(
            resource_type=resource_type, resource_name=resource_name, name=name, value=value
        )
    if image.next_producer_id > 0:
        yield ProducerIdsRecord(
            broker_id=_NO_BROKER,
            broker_epoch=_NO_BROKER,
            next_producer_id=image.next_producer_id,
        )


def image_of(snapshot: MetadataSnapshot, *, like: ClusterImage) -> ClusterImage:
    """Returns the image that a snapshot describes.

    Args:
        snapshot: Any snapshot.
        like: An image whose way of replaying records the result has.

    Raises:
        InvariantViolation: A record does not fit the ones before it.
    """
    image = ClusterImage(clears_leaderless_elr=like.clears_leaderless_elr)
    image.load(snapshot.records, last_offset=snapshot.id.end_offset - 1)
    return image
