"""Log directories at the controller: placement, failure, AssignReplicasToDirs, elections (DIR-2, DIR-3, DIR-5)."""

from uuid import UUID

import pytest

from system_under_test.controller.directories import assign_replicas
from system_under_test.controller.leader_elections import balance_leaders
from system_under_test.metadata.directories import directory_of, has_online_replica, is_online
from system_under_test.metadata.image import merge_change
from system_under_test.metadata.records import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    PartitionChangeRecord,
)
from system_under_test.metadata.snapshot import (
    MetadataSnapshot,
    SnapshotId,
    image_of,
    snapshot_records,
)
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import assign_replicas_to_dirs_request as m
from tests.controller_story import Story, policy_of


def directories_of(broker_id: int) -> tuple[UUID, UUID]:
    return UUID(int=1000 + broker_id), UUID(int=2000 + broker_id)


def story_of(*, profile: str = "kafka-4.1", without=(), min_isr: int = 2) -> Story:
    """Three brokers with two directories each; every replica of t-0 is in the second one."""
    story = Story(policy_of(profile, without=without))
    for broker_id in (1, 2, 3):
        story.register(broker_id, directories=directories_of(broker_id))
        story.unfence(broker_id)
    story.topic((1, 2, 3), min_isr=min_isr)
    for broker_id in (1, 2, 3):
        assign(story, broker_id, directories_of(broker_id)[1])
    return story


def request_of(story: Story, broker_id: int, directory: UUID | None, *, epoch=None, index=0):
    return m.AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=story.image.brokers[broker_id].broker_epoch if epoch is None else epoch,
        directories=(
            m.DirectoryData(
                id_=directory,
                topics=(
                    m.TopicData(
                        topic_id=story.p.topic_id,
                        partitions=(m.PartitionData(partition_index=index),),
                    ),
                ),
            ),
        ),
    )


def assign(story: Story, broker_id: int, directory: UUID | None, **more):
    request = request_of(story, broker_id, directory, **more)
    return story.apply(assign_replicas(story.image, request, story.policy))


def error_of(response) -> int:
    return response.directories[0].topics[0].partitions[0].error_code


def fail(story: Story, broker_id: int) -> None:
    """The directory with the replica fails, and a heartbeat reports it."""
    story.beat(broker_id, offline=(directories_of(broker_id)[1],))


def test_reserved_ids_and_unknown_directories() -> None:
    """As in Kafka's `DirectoryId`."""
    known = UUID(int=1001)
    assert is_online(UNASSIGNED_DIRECTORY, (known,))
    assert is_online(MIGRATING_DIRECTORY, (known,))
    assert not is_online(LOST_DIRECTORY, (known,))
    assert not is_online(LOST_DIRECTORY, ())
    assert is_online(known, (known,))
    assert not is_online(UUID(int=1002), (known,))
    assert is_online(UUID(int=1002), ()), "the broker reports no directories"


def test_with_one_directory_per_broker_registrations_name_none() -> None:
    story = Story(policy_of("kafka-4.1"))
    story.start(1, 2)
    story.topic((1, 2), min_isr=1)
    assert story.p.directories == ()
    assert directory_of(story.p, 1) == MIGRATING_DIRECTORY
    assert has_online_replica(story.image, story.p, 1)


def test_a_broker_with_a_choice_is_unassigned_and_one_without_is_assigned() -> None:
    story = Story(policy_of("kafka-4.1"))
    story.register(1, directories=directories_of(1))
    story.unfence(1)
    story.start(2)
    story.topic((1, 2), min_isr=1)
    assert story.p.directories == (UNASSIGNED_DIRECTORY, UUID(int=1002))


def test_a_report_changes_the_directory_and_nothing_else() -> None:
    story = story_of()
    before = story.state()
    response = assign(story, 2, directories_of(2)[0])
    assert (response.error_code, error_of(response)) == (0, 0)
    assert response.directories[0].id_ == directories_of(2)[0]
    second = [directories_of(broker_id)[1] for broker_id in (1, 2, 3)]
    assert story.p.directories == (second[0], directories_of(2)[0], second[2])
    assert story.state() == {**before, "PE": before["PE"] + 1}
    count = len(story.log)
    assign(story, 2, directories_of(2)[0])
    assert len(story.log) == count, "it is known already"


def test_reports_that_are_refused() -> None:
    story = story_of()
    stale = assign(story, 2, directories_of(2)[0], epoch=0)
    assert (stale.error_code, stale.directories) == (ErrorCode.STALE_BROKER_EPOCH, ())
    unknown = assign(story, 2, directories_of(2)[0], index=7)
    assert error_of(unknown) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    story.register(4, directories=directories_of(4))
    assert error_of(assign(story, 4, directories_of(4)[0])) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    other = m.AssignReplicasToDirsRequest(
        broker_id=2,
        broker_epoch=story.image.brokers[2].broker_epoch,
        directories=(
            m.DirectoryData(
                id_=None,
                topics=(
                    m.TopicData(
                        topic_id=UUID(int=77), partitions=(m.PartitionData(partition_index=0),)
                    ),
                ),
            ),
        ),
    )
    response = story.apply(assign_replicas(story.image, other, story.policy))
    assert error_of(response) == ErrorCode.UNKNOWN_TOPIC_ID
    assert "assignment-of-stale-epoch" in story.marks


def test_a_replica_reported_in_an_offline_directory_leaves_the_isr() -> None:
    """DIR-5: the directory failed before the controller knew that the replica is in it."""
    story = story_of()
    assign(story, 1, UUID(int=9999))
    assert (story.p.leader, story.p.isr) == (2, (2, 3))
    assert directory_of(story.p, 1) == UUID(int=9999)


def test_a_failed_directory_removes_the_replica_and_elects_another_leader() -> None:
    story = story_of()
    fail(story, 1)
    assert (story.p.leader, story.p.isr) == (2, (2, 3))
    assert story.image.brokers[1].log_dirs == directories_of(1)[:1]
    assert not story.image.brokers[1].fenced
    assert "log-directory-offline" in story.marks
    count = len(story.log)
    fail(story, 1)
    assert len(story.log) == count, "every later heartbeat reports it again"


def test_a_failed_directory_leaves_replicas_in_others_alone() -> None:
    story = story_of()
    assign(story, 1, directories_of(1)[0])
    fail(story, 1)
    assert (story.p.leader, story.p.isr) == (1, (1, 2, 3))


def test_a_replica_whose_directory_failed_is_eligible_but_is_not_elected() -> None:
    """DIR-2 and DIR-3: it has everything, and cannot be read."""
    story = story_of()
    story.fence(2, 3)
    assert story.p.isr == (1,)
    fail(story, 1)
    assert (story.p.leader, story.p.isr, set(story.p.elr)) == (NO_LEADER, (), {1, 3})
    story.unfence(2)
    assert story.p.leader == NO_LEADER, "2 was removed while the ISR was large enough"
    story.unfence(3)
    assert (story.p.leader, story.p.isr) == (3, (3,))


def test_without_elr_the_last_member_stays_and_cannot_lead() -> None:
    story = story_of(profile="kafka-4.0")
    story.fence(2, 3)
    fail(story, 1)
    assert (story.p.leader, story.p.isr) == (NO_LEADER, (1,))
    story.unfence(2, 3)
    assert story.p.leader == NO_LEADER
    story.register(1, directories=directories_of(1), incarnation=1)
    assert story.image.brokers[1].log_dirs == directories_of(1)
    story.fence(2)
    story.unfence(2)
    assert story.p.leader == 1, "the directory is back"


def test_without_dir_3_a_replica_in_an_offline_directory_is_elected() -> None:
    story = story_of(profile="kafka-4.0", without=("DIR-3",))
    story.fence(2, 3)
    fail(story, 1)
    assert story.p.leader == NO_LEADER
    story.unfence(2)
    assert story.p.leader == 1


def test_without_dir_2_a_failed_directory_changes_nothing() -> None:
    story = story_of(without=("DIR-2",))
    fail(story, 1)
    assert (story.p.leader, story.p.isr) == (1, (1, 2, 3))


def test_a_fencing_and_a_failed_directory_in_one_heartbeat() -> None:
    """The changes build upon one another: the second must not undo or repeat the first."""
    story = story_of()
    epoch = story.p.partition_epoch
    story.beat(1, want_stop=True, want_fence=True, offline=(directories_of(1)[1],))
    assert story.image.brokers[1].fenced
    assert (story.p.leader, story.p.isr) == (2, (2, 3))
    assert story.p.partition_epoch == epoch + 1


def test_a_replica_that_is_online_again_ends_a_time_without_leader() -> None:
    """The disk was replaced: the assigned directory does not exist, and the broker reports another one."""
    story = story_of(profile="kafka-4.0")
    story.fence(2, 3)
    fail(story, 1)
    replaced = (directories_of(1)[0], UUID(int=3001))
    story.fence(1)
    story.register(1, directories=replaced)
    story.unfence(1)
    assert story.p.leader == NO_LEADER
    assign(story, 1, replaced[1])
    assert story.p.leader == 1


@pytest.mark.parametrize("without", [(), ("DIR-5",)])
def test_a_report_keeps_the_elr_unless_dir_5_is_off(without: tuple[str, ...]) -> None:
    """B-28."""
    story = story_of(without=without)
    story.fence(2, 3)
    assert set(story.p.elr) == {3}
    assign(story, 1, directories_of(1)[0])
    assert set(story.p.elr) == (set() if without else {3})


def test_directories_follow_their_replicas_when_the_replicas_change() -> None:
    story = story_of()
    change = PartitionChangeRecord(topic_id=story.p.topic_id, partition_id=0, replicas=(3, 4, 1))
    after = merge_change(story.p, change)
    assert after.directories == (directories_of(3)[1], UNASSIGNED_DIRECTORY, directories_of(1)[1])


def test_a_reassignment_keeps_the_directories_of_replicas_that_stay() -> None:
    story = story_of()
    story.register(4, directories=directories_of(4))
    story.unfence(4)
    story.start(5)
    second = {broker_id: directories_of(broker_id)[1] for broker_id in (1, 2, 3)}
    assert story.reassign(3, 4, 5) == 0
    assert story.p.replicas == (3, 4, 5, 1, 2)
    only = UUID(int=1005)
    assert story.p.directories == (second[3], UNASSIGNED_DIRECTORY, only, second[1], second[2])
    assign(story, 4, directories_of(4)[0])
    story.propose(1, 2, 3, 4, 5)
    assert story.p.replicas == (3, 4, 5)
    assert story.p.directories == (second[3], directories_of(4)[0], only)


def test_a_reassignment_to_brokers_with_several_directories_names_all_directories() -> None:
    """Those that were not recorded stay known to their brokers only."""
    story = Story(policy_of("kafka-4.1"))
    story.start(1, 2)
    story.topic((1, 2), min_isr=1)
    story.register(3, directories=directories_of(3))
    story.unfence(3)
    assert story.reassign(1, 3) == 0
    assert story.p.directories == (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)


def test_a_cancelled_reassignment_forgets_the_directory_of_the_added_replica() -> None:
    story = story_of()
    story.register(4, directories=directories_of(4))
    story.unfence(4)
    before = story.p.directories
    assert story.reassign(1, 2, 4) == 0
    assert story.cancel() == 0
    assert (story.p.replicas, story.p.directories) == ((1, 2, 3), before)


def test_a_preferred_leader_whose_directory_is_offline_is_not_elected() -> None:
    story = story_of()
    fail(story, 1)
    assert story.p.leader == 2
    assert story.elect() == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert balance_leaders(story.image, story.policy).records == ()


def test_directories_outlive_a_snapshot() -> None:
    story = story_of()
    fail(story, 2)
    story.reassign(1, 2)
    snapshot = MetadataSnapshot(
        id=SnapshotId(end_offset=story.image.last_offset + 1, epoch=1),
        records=tuple(snapshot_records(story.image)),
    )
    loaded = image_of(snapshot, like=story.image)
    assert loaded.partitions == story.image.partitions
    assert loaded.brokers[2].log_dirs == directories_of(2)[:1]
    assert not has_online_replica(loaded, next(iter(loaded.partitions.values())), 2)
