"""A snapshot describes everything in an image that decisions depend on (RAFT-8)."""

from dataclasses import fields, replace
from uuid import UUID

import pytest

from system_under_test.metadata.image import ClusterImage
from system_under_test.metadata.records import (
    NO_LEADER,
    RECOVERING,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    LeaderChangeRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from system_under_test.metadata.snapshot import (
    MetadataSnapshot,
    SnapshotId,
    image_of,
    snapshot_records,
)

T, U = UUID(int=7), UUID(int=8)


def broker(broker_id: int, epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=UUID(int=100 + epoch),
        broker_epoch=epoch,
        address=f"b{broker_id}:9092",
        log_dirs=(UUID(int=40 + broker_id),),
    )


HISTORY: tuple[MetadataRecord, ...] = (
    LeaderChangeRecord(leader_id=11, voters=(11, 12, 13)),
    FeatureLevelRecord(name="metadata.version", feature_level=27),
    FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
    broker(2, 3),
    broker(1, 4),
    BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=4, fenced=False),
    BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=3, in_controlled_shutdown=True),
    broker(2, 7),
    TopicRecord(name="t", topic_id=T),
    PartitionRecord(
        topic_id=T,
        partition_id=0,
        replicas=(1, 2, 3),
        isr=(1, 2, 3),
        leader=1,
        directories=(UUID(int=41), UUID(int=42), UUID(int=43)),
    ),
    TopicRecord(name="u", topic_id=U),
    PartitionRecord(topic_id=U, partition_id=0, replicas=(2, 1), isr=(2, 1), leader=2),
    PartitionChangeRecord(
        topic_id=T,
        partition_id=0,
        isr=(),
        leader=NO_LEADER,
        eligible_leader_replicas=(3,),
        last_known_elr=(2,),
    ),
    PartitionChangeRecord(topic_id=T, partition_id=0, leader_recovery_state=RECOVERING),
    PartitionChangeRecord(
        topic_id=T,
        partition_id=0,
        adding_replicas=(4,),
        removing_replicas=(1,),
        replicas=(1, 2, 3, 4),
    ),
    ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="2"),
    ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"),
    ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
    ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=None),
    ProducerIdsRecord(broker_id=1, broker_epoch=4, next_producer_id=2000),
    NoOpRecord(),
)


def image_after(records: tuple[MetadataRecord, ...]) -> ClusterImage:
    image = ClusterImage()
    for offset, record in enumerate(records):
        image.replay(offset, record)
    return image


def restored(image: ClusterImage, **options: bool) -> ClusterImage:
    snapshot = MetadataSnapshot(
        id=SnapshotId(end_offset=image.last_offset + 1, epoch=3),
        records=tuple(snapshot_records(image, **options)),
    )
    return image_of(snapshot, like=image)


def registered_by_the_snapshot(image: ClusterImage) -> ClusterImage:
    """Returns the image as a snapshot restores it: no registration keeps the offset of its record."""
    image = image.copy()
    for broker_id, registration in image.brokers.items():
        image.brokers[broker_id] = replace(registration, register_record_offset=image.last_offset)
    return image


@pytest.mark.parametrize("end", range(1, len(HISTORY) + 1))
def test_every_prefix_is_restored_with_every_field_and_in_the_same_order(end: int) -> None:
    image = image_after(HISTORY[:end])
    again = restored(image)
    expected = registered_by_the_snapshot(image)
    for item in fields(ClusterImage):
        found, wanted = getattr(again, item.name), getattr(expected, item.name)
        assert found == wanted, item.name
        if isinstance(wanted, dict):
            assert list(found) == list(wanted), item.name


def test_a_restored_image_continues_as_the_original_would() -> None:
    image = image_after(HISTORY)
    again = restored(image)
    rest = (
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=7, fenced=False),
        PartitionChangeRecord(topic_id=T, partition_id=0, leader=3, isr=(3,)),
        RemoveTopicRecord(topic_id=U),
    )
    for offset, record in enumerate(rest, image.last_offset + 1):
        image.replay(offset, record)
        again.replay(offset, record)
    assert again.partitions == image.partitions
    assert again.topics_by_name == image.topics_by_name
    assert again.brokers[2] == replace(image.brokers[2], register_record_offset=len(HISTORY) - 1)


def test_an_image_keeps_the_way_in_which_it_replays_records() -> None:
    image = image_after(HISTORY)
    image.clears_leaderless_elr = True
    assert restored(image).clears_leaderless_elr


def test_without_raft_8_a_partition_is_restored_without_its_elr() -> None:
    image = image_after(HISTORY)
    again = restored(image, with_elr=False).partition("t", 0)
    before = image.partition("t", 0)
    assert before is not None
    assert (before.elr, before.last_known_elr) == ((3,), (2,))
    assert again == replace(before, elr=(), last_known_elr=())
