"""Groups as administrators see and delete them, on their coordinator and on the one that follows it."""

from typing import Any

import pytest

from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    delete_groups_request,
    describe_groups_request,
    describe_producers_request,
    list_groups_request,
    offset_delete_request,
)
from tests.mutations.test_mutations_clients import PRODUCER, send
from tests.simulation.cluster_story import TOPIC, Cluster
from tests.simulation.group_member import GROUP, Member, subscription_of


def started() -> Cluster:
    cluster = Cluster().start()
    cluster.create_topic()
    return cluster


def describe(member: Member, group: str = GROUP) -> Any:
    request = describe_groups_request.DescribeGroupsRequest(
        groups=(group,), include_authorized_operations=False
    )
    return member.ask(request).groups[0]


def listed(member: Member, *, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> Any:
    request = list_groups_request.ListGroupsRequest(states_filter=states, types_filter=types)
    response = member.ask(request)
    assert response.error_code == 0
    return [(one.group_id, one.protocol_type, one.group_state) for one in response.groups]


def delete(member: Member, *groups: str) -> dict[str, int]:
    request = delete_groups_request.DeleteGroupsRequest(groups_names=groups)
    return {one.group_id: one.error_code for one in member.ask(request).results}


def delete_offsets(member: Member, topic: str, partition: int, group: str = GROUP) -> Any:
    messages = offset_delete_request
    wanted = messages.OffsetDeleteRequestTopic(
        name=topic, partitions=(messages.OffsetDeleteRequestPartition(partition_index=partition),)
    )
    return member.ask(messages.OffsetDeleteRequest(group_id=group, topics=(wanted,)))


def error_of(response: Any) -> int:
    return int(response.topics[0].partitions[0].error_code)


def test_a_stable_group_is_described_with_its_assignment_and_listed_by_state() -> None:
    member = Member(started(), subscription=b"s")
    group = describe(member)
    assert (group.error_code, group.group_state) == (0, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (only,) = group.members
    assert (only.member_id, only.member_metadata, only.member_assignment) == (
        member.member_id,
        b"s",
        b"share",
    )
    assert listed(member) == [(GROUP, "consumer", "Stable")]
    assert listed(member, states=(" stable",), types=("Classic",)) == listed(member)
    assert listed(member, states=("Empty",)) == []
    assert listed(member, types=("share",)) == []


def test_an_unknown_group_is_dead_and_cannot_be_deleted() -> None:
    member = Member(started())
    unknown = next(one for one in map(str, range(100)) if describe(member, one).error_code != 16)
    found = describe(member, unknown)
    assert (found.error_code, found.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert delete(member, unknown, GROUP) == {
        unknown: ErrorCode.GROUP_ID_NOT_FOUND,
        GROUP: ErrorCode.NON_EMPTY_GROUP,
    }
    assert delete_offsets(member, TOPIC, 0, unknown).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_without_members_is_deleted_with_its_offsets_also_for_the_next_coordinator() -> (
    None
):
    cluster = started()
    member = Member(cluster)
    assert member.commit(5, member.generation) == 0
    member.leave()
    assert describe(member).group_state == "Empty"
    assert member.committed() == 5
    assert delete(member, GROUP) == {GROUP: 0}
    assert listed(member) == []
    cluster.node(member.coordinator).kill()
    # A member of a new group of the same name finds nothing.
    successor = Member(cluster)
    assert successor.coordinator != member.coordinator
    assert successor.generation == 1
    assert successor.committed() == -1


def test_offsets_are_deleted_once_no_member_subscribes_to_their_topic() -> None:
    member = Member(started(), subscription=subscription_of("another"))
    assert member.commit(5, member.generation) == 0
    assert error_of(delete_offsets(member, "missing", 0)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error_of(delete_offsets(member, TOPIC, 7)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error_of(delete_offsets(member, TOPIC, 0)) == 0
    assert member.committed() == -1
    assert error_of(delete_offsets(member, TOPIC, 0)) == 0, "again, with nothing to delete"


@pytest.mark.parametrize(
    ("subscription", "protocol_type", "expected"),
    [
        (subscription_of("x", TOPIC), "consumer", ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        (b"unreadable", "consumer", ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        (subscription_of("x"), "connect", ErrorCode.NON_EMPTY_GROUP),
    ],
)
def test_offsets_that_a_member_may_need_are_kept(
    subscription: bytes, protocol_type: str, expected: int
) -> None:
    member = Member(started(), subscription=subscription, protocol_type=protocol_type)
    assert member.commit(5, member.generation) == 0
    response = delete_offsets(member, TOPIC, 0)
    assert response.error_code == expected or error_of(response) == expected
    assert member.committed() == 5


def test_producers_are_described_by_the_leader_and_its_followers() -> None:
    cluster = started()
    assert send(cluster, b"a", 0)[0] == 0
    assert send(cluster, b"b", 1)[0] == 0
    cluster.run_for(0.5)
    messages = describe_producers_request
    topic = messages.TopicRequest(name=TOPIC, partition_indexes=(0, 7))
    bad = messages.TopicRequest(name="no such/name", partition_indexes=(0,))
    request = messages.DescribeProducersRequest(topics=(topic, bad))
    for broker in cluster.brokers:
        known, illegal = cluster.do(cluster._ask(broker, request)).topics
        found, missing = known.partitions
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert illegal.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        (producer,) = found.active_producers
        assert (producer.producer_id, producer.producer_epoch) == (PRODUCER, 0)
        assert (producer.last_sequence, producer.last_timestamp) == (1, 1)
        assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
