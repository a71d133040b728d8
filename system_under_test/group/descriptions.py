"""Builds the responses about whole groups: their lists, descriptions and deletions."""

from collections.abc import Iterable, Mapping
from typing import Any

from system_under_test.group.consumer.group import ConsumerGroup
from system_under_test.group.members import Member
from system_under_test.group.state import Group
from system_under_test.group.subscriptions import CONSUMER_PROTOCOL
from system_under_test.group.transitions import GroupState
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    NO_THROTTLE,
    delete_groups_response,
    describe_groups_response,
    list_groups_response,
    offset_delete_response,
)

CLASSIC, CONSUMER = "classic", "consumer"
"""Types of groups (KIP-848)."""
NOT_FOUND_SINCE = 6
"""First version of DescribeGroups with an error for a group that does not exist (KIP-1043)."""


def listing(group: Group | ConsumerGroup) -> Any:
    """Returns the entry of a group in a list."""
    protocol_type, group_type = CONSUMER_PROTOCOL, CONSUMER
    if isinstance(group, Group):
        protocol_type, group_type = group.protocol_type or "", CLASSIC
    return list_groups_response.ListedGroup(
        group_id=group.group_id,
        protocol_type=protocol_type,
        group_state=group.state.value,
        group_type=group_type,
    )


def listed(error: ErrorCode, groups: Iterable[Any] = ()) -> Any:
    """Returns the response to a ListGroups request."""
    return list_groups_response.ListGroupsResponse(
        throttle_time=NO_THROTTLE, error_code=error, groups=tuple(groups)
    )


def described(groups: Iterable[Any]) -> Any:
    """Returns the response to a DescribeGroups request."""
    return describe_groups_response.DescribeGroupsResponse(
        throttle_time=NO_THROTTLE, groups=tuple(groups)
    )


def description(group: Group) -> Any:
    """Returns the description of a group; subscriptions and assignments only of a stable one."""
    is_stable = group.state is GroupState.STABLE
    protocol = group.protocol_name if is_stable else None
    return describe_groups_response.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=tuple(_member(one, protocol, is_stable) for one in group.members.values()),
    )


def _member(member: Member, protocol: str | None, is_stable: bool) -> Any:
    return describe_groups_response.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.subscription(protocol) if is_stable else b"",
        member_assignment=member.assignment if is_stable else b"",
    )


def no_description(group_id: str, error: ErrorCode, state: str = "") -> Any:
    """Returns why a group is not described."""
    is_unknown = error is ErrorCode.GROUP_ID_NOT_FOUND
    return describe_groups_response.DescribedGroup(
        error_code=error,
        error_message=f"there is no group {group_id!r}" if is_unknown else None,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=(),
    )


def unknown_group(group_id: str, version: int) -> Any:
    """Returns the description of a group that does not exist; before version 6 that is no error."""
    has_error = not 0 <= version < NOT_FOUND_SINCE
    error = ErrorCode.GROUP_ID_NOT_FOUND if has_error else ErrorCode.NONE
    return no_description(group_id, error, GroupState.DEAD.value)


def deleted(results: Mapping[str, ErrorCode]) -> Any:
    """Returns the response to a DeleteGroups request."""
    return delete_groups_response.DeleteGroupsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            delete_groups_response.DeletableGroupResult(group_id=group_id, error_code=error)
            for group_id, error in results.items()
        ),
    )


def offsets_refused(error: ErrorCode) -> Any:
    """Returns the refusal of an OffsetDelete request."""
    return offset_delete_response.OffsetDeleteResponse(
        error_code=error, throttle_time=NO_THROTTLE, topics=()
    )


def offsets_deleted(request: Any, errors: Mapping[tuple[str, int], ErrorCode]) -> Any:
    """Returns the response to an OffsetDelete request; topics without partitions are left out, as in Kafka."""
    topics = (
        offset_delete_response.OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=tuple(
                offset_delete_response.OffsetDeleteResponsePartition(
                    partition_index=one.partition_index,
                    error_code=errors[(topic.name, one.partition_index)],
                )
                for one in topic.partitions
            ),
        )
        for topic in request.topics
        if topic.partitions
    )
    return offset_delete_response.OffsetDeleteResponse(
        error_code=ErrorCode.NONE, throttle_time=NO_THROTTLE, topics=tuple(topics)
    )
