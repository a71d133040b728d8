"""Kafka's messages about consumer groups: what requests say, and the responses to them."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from system_under_test.group.consumer.group import ConsumerGroup
from system_under_test.group.consumer.members import ConsumerMember, Partitions, by_topic
from system_under_test.group.consumer.requests import HeartbeatRequest, HeartbeatResult
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    NO_THROTTLE,
    consumer_group_describe_response,
    consumer_group_heartbeat_response,
    millis,
    to_millis,
)

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
NO_ID = UUID(int=0)
TopicName = Callable[[UUID], str | None]


def heartbeat_request(request: Any, client_id: str, client_host: str) -> HeartbeatRequest:
    """Returns the content of a ConsumerGroupHeartbeat request."""
    owned = request.topic_partitions
    return HeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=int(to_millis(request.rebalance_timeout)),
        topics=request.subscribed_topic_names,
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None
        if owned is None
        else frozenset((one.topic_id or NO_ID, index) for one in owned for index in one.partitions),
        client_id=client_id,
        client_host=client_host,
    )


def heartbeat_response(result: HeartbeatResult, interval_ms: int) -> Any:
    """Returns the response to a heartbeat that was accepted."""
    m = consumer_group_heartbeat_response
    return m.ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.NONE,
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval=millis(interval_ms),
        assignment=None
        if result.assigned is None
        else m.Assignment(
            topic_partitions=tuple(
                m.TopicPartitions(topic_id=topic_id, partitions=tuple(indexes))
                for topic_id, indexes in by_topic(result.assigned).items()
            )
        ),
    )


def heartbeat_refused(error: ErrorCode, message: str | None = None) -> Any:
    """Returns the refusal of a heartbeat."""
    return consumer_group_heartbeat_response.ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=error,
        error_message=message,
        member_epoch=0,
        heartbeat_interval=millis(0),
    )


def described(groups: list[Any]) -> Any:
    """Returns the response to a ConsumerGroupDescribe request."""
    return consumer_group_describe_response.ConsumerGroupDescribeResponse(
        throttle_time=NO_THROTTLE, groups=tuple(groups)
    )


def description(group: ConsumerGroup, assignor: str, name_of: TopicName) -> Any:
    """Returns the description of a group.

    Args:
        group: The group.
        assignor: The assignor that its members prefer.
        name_of: Returns the name of a topic; partitions of topics that do not exist any more are left out.
    """
    return consumer_group_describe_response.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=assignor,
        members=tuple(
            _member(one, group.targets.get(one.member_id, frozenset()), name_of)
            for one in group.members.values()
        ),
    )


def no_description(group_id: str, error: ErrorCode, message: str | None = None) -> Any:
    """Returns why a group is not described."""
    return consumer_group_describe_response.DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )


def _member(member: ConsumerMember, target: Partitions, name_of: TopicName) -> Any:
    subscription = member.subscription
    return consumer_group_describe_response.Member(
        member_id=member.member_id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=member.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=subscription.topics,
        subscribed_topic_regex=subscription.regex,
        assignment=_assignment(member.progress.assigned, name_of),
        target_assignment=_assignment(target, name_of),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(partitions: Partitions, name_of: TopicName) -> Any:
    m = consumer_group_describe_response
    topics = [
        (topic_id, name, indexes)
        for topic_id, indexes in by_topic(partitions).items()
        if (name := name_of(topic_id)) is not None
    ]
    return m.Assignment(
        topic_partitions=tuple(
            m.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=tuple(indexes))
            for topic_id, name, indexes in topics
        )
    )
