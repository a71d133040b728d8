"""Conversions between versions that differ by more than added or removed fields.

Either the shape changed (one group becomes many), or an old version has restrictions: it must not get error codes
that its clients do not know, or requests that it did not allow.

A function takes the message in its own version and the target's type, and returns the target. A function for
responses also takes the request in its canonical version.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from system_under_test.protocol import messages as m
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.versions import converter

ReshapeRequest = Callable[[Any, type[Any]], Any]
ReshapeResponse = Callable[[Any, type[Any], Any], Any]

MAX_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP = -3, -4, -5
TIMESTAMPS_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL_TIMESTAMP: 8, LATEST_TIERED_TIMESTAMP: 9}
"""The first version of ListOffsets that allows each special timestamp."""
MEANINGLESS_TIMESTAMP = -6
"""No version knows it, so the response is UNSUPPORTED_VERSION."""


def metadata_request(message: Any, target: type[Any]) -> Any:
    """Version 0 cannot express "no topics": an empty list means all topics."""
    converted = converter(type(message), target)(message)
    return converted if message.topics else replace(converted, topics=None)


def metadata_response(message: Any, target: type[Any], _request: Any) -> Any:
    """Version 0 reports offline replicas by an error code and leaves them out of the lists."""
    converted = converter(type(message), target)(message)
    topics = [
        replace(
            topic,
            partitions=tuple(
                _without_offline(partition, original.offline_replicas)
                for partition, original in zip(topic.partitions, given.partitions, strict=True)
            ),
        )
        for topic, given in zip(converted.topics, message.topics, strict=True)
    ]
    return replace(converted, topics=tuple(topics))


def _without_offline(partition: Any, offline: tuple[int, ...]) -> Any:
    if not offline:
        return partition
    error = partition.error_code
    return replace(
        partition,
        error_code=ErrorCode.REPLICA_NOT_AVAILABLE if error == ErrorCode.NONE else error,
        replica_nodes=tuple(one for one in partition.replica_nodes if one not in offline),
        isr_nodes=tuple(one for one in partition.isr_nodes if one not in offline),
    )


def fetch_request(message: Any, target: type[Any]) -> Any:
    """Up to version 14 the replica id is a separate field; later versions add the broker epoch."""
    converted = converter(type(message), target)(message)
    state = m.fetch_request.ReplicaState(replica_id=message.replica_id, replica_epoch=-1)
    return replace(converted, replica_state=state)


def fetch_response(message: Any, target: type[Any], _request: Any) -> Any:
    """Up to version 5 clients give up on KAFKA_STORAGE_ERROR; NOT_LEADER_OR_FOLLOWER makes them retry."""
    return _with_error(
        converter(type(message), target)(message),
        "responses",
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )


def find_coordinator_request(message: Any, target: type[Any]) -> Any:
    """Up to version 3 a request is about one key."""
    return target(key_type=getattr(message, "key_type", 0), coordinator_keys=(message.key,))


def find_coordinator_response(message: Any, target: type[Any], _request: Any) -> Any:
    """Up to version 3 a response is about one key."""
    return converter(type(message.coordinators[0]), target)(message.coordinators[0])


def offset_fetch_request(message: Any, target: type[Any]) -> Any:
    """Up to version 7 a request is about one group."""
    topics = message.topics
    return target(
        groups=(
            m.offset_fetch_request.OffsetFetchRequestGroup(
                group_id=message.group_id,
                topics=None
                if topics is None
                else tuple(
                    m.offset_fetch_request.OffsetFetchRequestTopics(
                        name=topic.name, partition_indexes=topic.partition_indexes
                    )
                    for topic in topics
                ),
            ),
        ),
        require_stable=getattr(message, "require_stable", False),
    )


def offset_fetch_response(message: Any, target: type[Any], _request: Any) -> Any:
    """Up to version 7 a response is about one group."""
    (group,) = message.groups
    return converter(type(group), target)(group)


def offset_fetch_response_v1(message: Any, target: type[Any], request: Any) -> Any:
    """Version 1 has errors of partitions only: an error of the group is repeated for each partition."""
    (group,) = message.groups
    if group.error_code != ErrorCode.NONE:
        wanted = request.groups[0].topics or ()
        group = replace(
            group,
            topics=tuple(
                m.offset_fetch_response.OffsetFetchResponseTopics(
                    name=topic.name,
                    partitions=tuple(
                        m.offset_fetch_response.OffsetFetchResponsePartitions(
                            partition_index=index,
                            committed_offset=-1,
                            metadata="",
                            error_code=group.error_code,
                        )
                        for index in topic.partition_indexes
                    ),
                )
                for topic in wanted
            ),
        )
    return converter(type(group), target)(group)


def leave_group_request(message: Any, target: type[Any]) -> Any:
    """Up to version 2 one member leaves."""
    member = m.leave_group_request.MemberIdentity(
        member_id=message.member_id, group_instance_id=None, reason=None
    )
    return target(group_id=message.group_id, members=(member,))


def leave_group_response(message: Any, target: type[Any], _request: Any) -> Any:
    """Up to version 2 there is one error, that of the only member."""
    converted = converter(type(message), target)(message)
    if message.error_code == ErrorCode.NONE and message.members:
        return replace(converted, error_code=message.members[0].error_code)
    return converted


def delete_topics_request(message: Any, target: type[Any]) -> Any:
    """Up to version 5 topics have names only."""
    return target(
        topics=tuple(
            m.delete_topics_request.DeleteTopicState(name=name, topic_id=None)
            for name in message.topic_names
        ),
        timeout=message.timeout,
    )


def list_offsets_request(version: int) -> ReshapeRequest:
    """Returns a conversion that replaces timestamps which a version does not allow."""
    too_new = tuple(one for one, since in TIMESTAMPS_SINCE.items() if version < since)

    def reshape(message: Any, target: type[Any]) -> Any:
        converted = converter(type(message), target)(message)
        requested = [one.timestamp for topic in message.topics for one in topic.partitions]
        if not any(timestamp in too_new for timestamp in requested):
            return converted
        return replace(
            converted,
            topics=tuple(
                replace(
                    topic,
                    partitions=tuple(
                        replace(one, timestamp=MEANINGLESS_TIMESTAMP)
                        if one.timestamp in too_new
                        else one
                        for one in topic.partitions
                    ),
                )
                for topic in converted.topics
            ),
        )

    return reshape


def list_offsets_response(message: Any, target: type[Any], _request: Any) -> Any:
    """Up to version 4 clients do not know OFFSET_NOT_AVAILABLE, but retry after LEADER_NOT_AVAILABLE (KIP-207)."""
    return _with_error(
        converter(type(message), target)(message),
        "topics",
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
    )


def _with_error(message: Any, topics: str, error: ErrorCode, instead: ErrorCode) -> Any:
    """Returns a response with one error of its partitions replaced by another."""
    return replace(
        message,
        **{
            topics: tuple(
                replace(
                    topic,
                    partitions=tuple(
                        replace(one, error_code=instead) if one.error_code == error else one
                        for one in topic.partitions
                    ),
                )
                for topic in getattr(message, topics)
            )
        },
    )


REQUESTS: dict[tuple[int, range], ReshapeRequest] = {
    (1, range(13, 15)): fetch_request,
    **{(2, range(one, one + 1)): list_offsets_request(one) for one in range(1, 9)},
    (3, range(1)): metadata_request,
    (9, range(1, 8)): offset_fetch_request,
    (10, range(4)): find_coordinator_request,
    (13, range(3)): leave_group_request,
    (20, range(1, 6)): delete_topics_request,
}
"""By API key and the versions of the request on the wire."""

RESPONSES: dict[tuple[int, range], ReshapeResponse] = {
    (1, range(4, 6)): fetch_response,
    (2, range(1, 5)): list_offsets_response,
    (3, range(1)): metadata_response,
    (9, range(1, 2)): offset_fetch_response_v1,
    (9, range(2, 8)): offset_fetch_response,
    (10, range(4)): find_coordinator_response,
    (13, range(3)): leave_group_response,
}


def find(table: dict[tuple[int, range], Any], key: int, version: int) -> Any:
    """Returns the handwritten conversion for a version, None if there is none."""
    for (api_key, versions), reshape in table.items():
        if api_key == key and version in versions:
            return reshape
    return None
