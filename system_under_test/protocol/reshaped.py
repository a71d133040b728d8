"""Conversions between versions whose shape differs, one pair of functions per change.

A function takes the message in its own version and the target's type, and returns the target.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from system_under_test.protocol import messages as m
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.versions import converter

Reshape = Callable[[Any, type[Any]], Any]


def metadata_request(message: Any, target: type[Any]) -> Any:
    """Version 0 cannot say "no topics": an empty list means all of them."""
    converted = converter(type(message), target)(message)
    return converted if message.topics else replace(converted, topics=None)


def fetch_request(message: Any, target: type[Any]) -> Any:
    """Until version 14 the replica stands alone, later together with its broker epoch."""
    converted = converter(type(message), target)(message)
    state = m.fetch_request.ReplicaState(replica_id=message.replica_id, replica_epoch=-1)
    return replace(converted, replica_state=state)


def find_coordinator_request(message: Any, target: type[Any]) -> Any:
    """Until version 3 a request is about one key."""
    return target(key_type=getattr(message, "key_type", 0), coordinator_keys=(message.key,))


def find_coordinator_response(message: Any, target: type[Any]) -> Any:
    """Until version 3 the answer is about one key."""
    return converter(type(message.coordinators[0]), target)(message.coordinators[0])


def offset_fetch_request(message: Any, target: type[Any]) -> Any:
    """Until version 7 a request is about one group."""
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


def offset_fetch_response(message: Any, target: type[Any]) -> Any:
    """Until version 7 the answer is about one group; version 1 has no error but those of partitions."""
    (group,) = message.groups
    return converter(type(group), target)(group)


def leave_group_request(message: Any, target: type[Any]) -> Any:
    """Until version 2 one member leaves."""
    member = m.leave_group_request.MemberIdentity(
        member_id=message.member_id, group_instance_id=None, reason=None
    )
    return target(group_id=message.group_id, members=(member,))


def leave_group_response(message: Any, target: type[Any]) -> Any:
    """Until version 2 there is one error for the one member."""
    converted = converter(type(message), target)(message)
    if message.error_code == ErrorCode.NONE and message.members:
        return replace(converted, error_code=message.members[0].error_code)
    return converted


def delete_topics_request(message: Any, target: type[Any]) -> Any:
    """Until version 5 topics have names only."""
    return target(
        topics=tuple(
            m.delete_topics_request.DeleteTopicState(name=name, topic_id=None)
            for name in message.topic_names
        ),
        timeout=message.timeout,
    )


def list_offsets_response(message: Any, target: type[Any]) -> Any:
    """Until version 4 clients know no OFFSET_NOT_AVAILABLE, but ask again after LEADER_NOT_AVAILABLE (KIP-207)."""
    converted = converter(type(message), target)(message)
    return replace(
        converted,
        topics=tuple(
            replace(
                topic,
                partitions=tuple(
                    replace(one, error_code=ErrorCode.LEADER_NOT_AVAILABLE)
                    if one.error_code == ErrorCode.OFFSET_NOT_AVAILABLE
                    else one
                    for one in topic.partitions
                ),
            )
            for topic in converted.topics
        ),
    )


REQUESTS: dict[tuple[int, range], Reshape] = {
    (3, range(1)): metadata_request,
    (1, range(13, 15)): fetch_request,
    (10, range(4)): find_coordinator_request,
    (9, range(1, 8)): offset_fetch_request,
    (13, range(3)): leave_group_request,
    (20, range(1, 6)): delete_topics_request,
}
"""By API key and the versions that the request has on the wire."""

RESPONSES: dict[tuple[int, range], Reshape] = {
    (2, range(1, 5)): list_offsets_response,
    (10, range(4)): find_coordinator_response,
    (9, range(1, 8)): offset_fetch_response,
    (13, range(3)): leave_group_response,
}


def find(table: dict[tuple[int, range], Reshape], key: int, version: int) -> Reshape | None:
    """Returns the conversion by hand of a version, None if there is none."""
    for (api_key, versions), reshape in table.items():
        if api_key == key and version in versions:
            return reshape
    return None
