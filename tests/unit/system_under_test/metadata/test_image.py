"""The cluster image: META-1, registrations, look-ups."""

from uuid import UUID

import pytest

from system_under_test.invariants import InvariantViolation
from system_under_test.metadata.image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    MIN_ISR_CONFIG,
    TOPIC_RESOURCE,
    UNCLEAN_ELECTION_CONFIG,
    ClusterImage,
    merge_change,
)
from system_under_test.metadata.records import (
    NO_LEADER,
    RECOVERING,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    LeaderChangeRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

TOPIC_ID = UUID(int=7)


def image_of(*records) -> ClusterImage:
    image = ClusterImage()
    for offset, record in enumerate(records):
        image.replay(offset, record)
    return image


def broker(broker_id: int, epoch: int = 5) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=UUID(int=broker_id),
        broker_epoch=epoch,
        address=f"b{broker_id}:9092",
    )


def partition(index: int = 0, *, isr=(1, 2, 3), leader=1, elr=(), last_known=(), topic_id=TOPIC_ID):
    return PartitionRecord(
        topic_id=topic_id,
        partition_id=index,
        replicas=(1, 2, 3),
        isr=isr,
        leader=leader,
        eligible_leader_replicas=elr,
        last_known_elr=last_known,
    )


TOPIC = TopicRecord(name="t", topic_id=TOPIC_ID)


def change(**fields) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, **fields)


def test_every_change_raises_the_partition_epoch_and_only_a_named_leader_the_leader_epoch():
    before = image_of(TOPIC, partition()).partition("t", 0)

    shrunk = merge_change(before, change(isr=(1, 2)))
    assert (shrunk.partition_epoch, shrunk.leader_epoch) == (1, 0)
    assert (shrunk.isr, shrunk.leader) == ((1, 2), 1)

    same_leader = merge_change(before, change(leader=1))
    assert (same_leader.partition_epoch, same_leader.leader_epoch) == (1, 1)

    leaderless = merge_change(before, change(leader=NO_LEADER))
    assert (leaderless.leader, leaderless.leader_epoch) == (NO_LEADER, 1)


def test_absent_fields_of_a_change_are_unchanged_and_empty_ones_are_written():
    before = image_of(TOPIC, partition(isr=(), leader=NO_LEADER, elr=(3,), last_known=(1,)))
    after = merge_change(before.partition("t", 0), change(eligible_leader_replicas=()))
    assert (after.elr, after.last_known_elr, after.replicas) == ((), (1,), (1, 2, 3))
    after = merge_change(after, change(leader_recovery_state=RECOVERING, last_known_elr=()))
    assert (after.leader_recovery_state, after.last_known_elr) == (RECOVERING, ())


def test_a_registration_keeps_the_offset_of_its_record_not_its_epoch():
    image = image_of(NoOpRecord(), NoOpRecord(), broker(1, epoch=1))
    assert image.brokers[1].register_record_offset == 2
    assert image.brokers[1].broker_epoch == 1
    assert image.brokers[1].fenced
    assert not image.is_active(1)


def test_registration_changes_touch_only_the_flags_they_name():
    image = image_of(
        broker(1),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=False),
    )
    assert image.is_active(1)
    image.replay(
        2, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, in_controlled_shutdown=True)
    )
    assert not image.brokers[1].fenced
    assert image.brokers[1].in_controlled_shutdown
    assert not image.is_active(1)


@pytest.mark.parametrize(
    "record",
    [
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=4, fenced=False),
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=5, fenced=False),
        UnregisterBrokerRecord(broker_id=1, broker_epoch=4),
    ],
)
def test_a_record_for_another_broker_epoch_fails_hard(record):
    with pytest.raises(InvariantViolation, match="INV-8"):
        image_of(broker(1, epoch=5), record)


@pytest.mark.parametrize(
    "record", [partition(), change(isr=(1,)), RemoveTopicRecord(topic_id=TOPIC_ID)]
)
def test_a_record_for_an_unknown_topic_fails_hard(record):
    with pytest.raises(InvariantViolation, match="INV-5"):
        image_of(record)


def test_records_are_replayed_in_order_only():
    image = image_of(NoOpRecord(), NoOpRecord())
    with pytest.raises(InvariantViolation, match="order of their offsets"):
        image.replay(1, NoOpRecord())


def test_a_copy_is_independent():
    image = image_of(broker(1), TOPIC, partition())
    copy = image.copy()
    assert copy == image
    copy.replay(3, change(leader=2, isr=(2, 3)))
    copy.replay(4, UnregisterBrokerRecord(broker_id=1, broker_epoch=5))
    assert image.partition("t", 0).leader == 1
    assert 1 in image.brokers
    assert image.last_offset == 2


def test_removing_a_topic_removes_its_partitions_and_configurations_only():
    other = UUID(int=8)
    image = image_of(
        ConfigRecord(
            resource_type=TOPIC_RESOURCE, resource_name="t", name=MIN_ISR_CONFIG, value="2"
        ),
        ConfigRecord(
            resource_type=TOPIC_RESOURCE, resource_name="u", name=MIN_ISR_CONFIG, value="3"
        ),
        TOPIC,
        partition(),
        TopicRecord(name="u", topic_id=other),
        partition(topic_id=other),
        RemoveTopicRecord(topic_id=TOPIC_ID),
    )
    assert image.partition("t", 0) is None
    assert image.partition("u", 0) is not None
    assert list(image.topics) == [other]
    assert image.min_insync_replicas("t", 1) == 1
    assert image.min_insync_replicas("u", 1) == 3


def test_look_ups_are_ordered_by_topic_and_index():
    other = UUID(int=1)
    image = image_of(
        TopicRecord(name="b", topic_id=other),
        partition(1, topic_id=other, isr=(2,), elr=(1,), leader=NO_LEADER),
        partition(0, topic_id=other, isr=(1, 2)),
        TopicRecord(name="a", topic_id=TOPIC_ID),
        partition(0, isr=(2, 3), leader=2, elr=()),
        partition(1, isr=(), leader=NO_LEADER, elr=(1, 3)),
    )

    def named(found):
        return [(registration.topic, registration.partition) for registration in found]

    assert named(image.leaderless_partitions()) == [("a", 1), ("b", 1)]
    assert named(image.partitions_with_in_isr(2)) == [("a", 0), ("b", 0), ("b", 1)]
    assert named(image.partitions_with_in_elr(1)) == [("a", 1), ("b", 1)]
    assert named(image.partitions_of(other)) == [("b", 0), ("b", 1)]
    assert image.leads_any(1)
    assert not image.leads_any(3)


def test_min_isr_is_the_topics_then_the_clusters_then_the_default_and_capped_by_the_replicas():
    image = image_of(TOPIC, partition())
    registration = image.partition("t", 0)
    assert image.min_insync_replicas("t", 2) == 2
    cluster = ConfigRecord(
        resource_type=BROKER_RESOURCE, resource_name=CLUSTER_DEFAULT, name=MIN_ISR_CONFIG, value="3"
    )
    image.replay(2, cluster)
    assert image.min_insync_replicas("t", 2) == 3
    topic = ConfigRecord(
        resource_type=TOPIC_RESOURCE, resource_name="t", name=MIN_ISR_CONFIG, value="5"
    )
    image.replay(3, topic)
    assert image.min_insync_replicas("t", 2) == 5
    assert image.effective_min_isr(registration, 2) == 3
    removed = ConfigRecord(
        resource_type=TOPIC_RESOURCE, resource_name="t", name=MIN_ISR_CONFIG, value=None
    )
    image.replay(4, removed)
    assert image.min_insync_replicas("t", 2) == 3


def test_unclean_election_is_the_topics_choice_over_the_default():
    image = image_of(
        ConfigRecord(
            resource_type=TOPIC_RESOURCE,
            resource_name="t",
            name=UNCLEAN_ELECTION_CONFIG,
            value="false",
        )
    )
    assert not image.unclean_election_enabled("t", True)
    assert image.unclean_election_enabled("u", True)
    assert not image.unclean_election_enabled("u", False)


def test_clearing_the_elr_skips_partitions_with_an_empty_isr():
    image = image_of(
        TOPIC,
        partition(0, isr=(1,), elr=(2, 3)),
        partition(1, isr=(), leader=NO_LEADER, elr=(2,), last_known=(1,)),
        ClearElrRecord(topic_name="t"),
    )
    assert image.partition("t", 0).elr == ()
    # [ELR-5] The leader's next proposal must be computed from the new state.
    assert image.partition("t", 0).partition_epoch == 1
    assert image.partition("t", 1).elr == (2,)
    assert image.partition("t", 1).last_known_elr == (1,)


def test_clearing_the_elr_of_another_topic_changes_nothing_and_of_all_topics_everything():
    image = image_of(TOPIC, partition(0, isr=(1,), elr=(2, 3)), ClearElrRecord(topic_name="u"))
    assert image.partition("t", 0).elr == (2, 3)
    image.replay(3, ClearElrRecord(topic_name=""))
    assert image.partition("t", 0).elr == ()


def test_elr_is_on_when_the_feature_is_finalized():
    image = ClusterImage()
    assert not image.elr_on
    image.replay(0, FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
    assert image.elr_on
    image.replay(1, LeaderChangeRecord(leader_id=11, voters=(11, 12, 13)))
    assert image.elr_on
    assert image.last_offset == 1
