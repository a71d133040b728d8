"""Builds the responses of the group protocol as Kafka's messages."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from system_under_test.group.members import JoinResult, SyncResult
from system_under_test.group.records import CommittedOffset
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    NO_THROTTLE,
    find_coordinator_response,
    heartbeat_response,
    join_group_response,
    leave_group_response,
    offset_commit_response,
    offset_fetch_response,
    sync_group_response,
)

NO_OFFSET = -1
NO_NODE = -1


def find_coordinator(coordinators: Iterable[Any]) -> Any:
    """Returns the response to a FindCoordinator request."""
    return find_coordinator_response.FindCoordinatorResponse(
        throttle_time=NO_THROTTLE, coordinators=tuple(coordinators)
    )


def coordinator(key: str, error: ErrorCode, node_id: int = NO_NODE, address: str = ":-1") -> Any:
    """Returns the coordinator of one group, or why it is not known."""
    host, _, port = address.rpartition(":")
    return find_coordinator_response.Coordinator(
        key=key,
        node_id=node_id,
        host=host,
        port=int(port),
        error_code=error,
        error_message=None if error is ErrorCode.NONE else "the coordinator is not available",
    )


def no_such_type(key: str) -> Any:
    """Returns the refusal of a key that is neither a group nor a transactional id."""
    return find_coordinator_response.Coordinator(
        key=key,
        node_id=NO_NODE,
        host="",
        port=NO_NODE,
        error_code=ErrorCode.INVALID_REQUEST,
        error_message="only groups and transactional ids have coordinators here",
    )


def join_refused(error: ErrorCode, member_id: str) -> Any:
    """Returns the refusal of a JoinGroup request."""
    return of_result(JoinResult(error=error, member_id=member_id))


def sync_refused(error: Any) -> Any:
    """Returns the refusal of a SyncGroup request."""
    return of_result(SyncResult(error=error))


def of_result(result: JoinResult | SyncResult) -> Any:
    """Returns a result as a message."""
    if isinstance(result, SyncResult):
        return sync_group_response.SyncGroupResponse(
            throttle_time=NO_THROTTLE,
            error_code=result.error,
            protocol_type=result.protocol_type,
            protocol_name=result.protocol_name,
            assignment=result.assignment,
        )
    return join_group_response.JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=tuple(
            join_group_response.JoinGroupResponseMember(
                member_id=member_id, group_instance_id=instance_id, metadata=subscription
            )
            for member_id, instance_id, subscription in result.members
        ),
    )


def heartbeat(error: Any) -> Any:
    """Returns the response to a Heartbeat request."""
    return heartbeat_response.HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=error)


def leave_refused(error: Any) -> Any:
    """Returns the refusal of a LeaveGroup request."""
    return leave_group_response.LeaveGroupResponse(
        throttle_time=NO_THROTTLE, error_code=error, members=()
    )


def leave(results: Iterable[tuple[Any, ErrorCode]]) -> Any:
    """Returns the response to a LeaveGroup request, member by member."""
    return leave_group_response.LeaveGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.NONE,
        members=tuple(
            leave_group_response.MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=error,
            )
            for member, error in results
        ),
    )


def commit(request: Any, error_of: Callable[[str, int], Any]) -> Any:
    """Returns the response to an OffsetCommit request.

    Args:
        request: The OffsetCommit request.
        error_of: Returns the outcome for a topic's partition.
    """
    return offset_commit_response.OffsetCommitResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            offset_commit_response.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    offset_commit_response.OffsetCommitResponsePartition(
                        partition_index=one.partition_index,
                        error_code=error_of(topic.name, one.partition_index),
                    )
                    for one in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def fetched(groups: tuple[Any, ...]) -> Any:
    """Returns the response to an OffsetFetch request."""
    return offset_fetch_response.OffsetFetchResponse(throttle_time=NO_THROTTLE, groups=groups)


def fetched_group(
    wanted: Any, error: ErrorCode, offsets: Mapping[tuple[str, int], CommittedOffset]
) -> Any:
    """Returns the offsets of one group: the requested ones, or all; -1 where nothing was committed."""
    places: dict[str, list[int]] = {}
    if error is not ErrorCode.NONE:
        pass
    elif wanted.topics is None:
        for topic, index in sorted(offsets):
            places.setdefault(topic, []).append(index)
    else:
        for one in wanted.topics:
            places.setdefault(one.name, []).extend(one.partition_indexes)
    return offset_fetch_response.OffsetFetchResponseGroup(
        group_id=wanted.group_id,
        topics=tuple(
            offset_fetch_response.OffsetFetchResponseTopics(
                name=topic,
                partitions=tuple(_fetched(index, offsets.get((topic, index))) for index in indexes),
            )
            for topic, indexes in places.items()
        ),
        error_code=error,
    )


def _fetched(index: int, found: CommittedOffset | None) -> Any:
    return offset_fetch_response.OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=NO_OFFSET if found is None else found.offset,
        committed_leader_epoch=-1 if found is None else found.leader_epoch,
        metadata="" if found is None else found.metadata,
        error_code=ErrorCode.NONE,
    )
