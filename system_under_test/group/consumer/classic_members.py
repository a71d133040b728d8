"""Members of a consumer group that use the classic protocol: JoinGroup, SyncGroup and Heartbeat.

While the consumers of a group are restarted one by one with the new protocol, or back, members of both kinds share
its partitions. For the coordinator there is one protocol: a JoinGroup of such a member counts as a heartbeat that
reports what it owns, its generation is its member epoch, and its share comes with SyncGroup. Heartbeat tells it to
join again when there is something to learn.

Source:
    Kafka's `GroupMetadataManager` (`classicGroupJoinToConsumerGroup`, `classicGroupSyncToConsumerGroup`,
    `classicGroupHeartbeatToConsumerGroup`); KIP-848.
"""

from collections.abc import Callable
from dataclasses import replace

from system_under_test.group.consumer.assigning import (
    Surroundings,
    bump,
    reconcile,
    replace_member,
    update_regexes,
    update_target,
)
from system_under_test.group.consumer.embedded import (
    EmbeddedSubscription,
    read_subscription,
    write_assignment,
)
from system_under_test.group.consumer.group import ConsumerGroup, Draft
from system_under_test.group.consumer.heartbeat import known_static
from system_under_test.group.consumer.members import (
    ClassicProtocols,
    ConsumerMember,
    MemberState,
    Partition,
    Partitions,
)
from system_under_test.group.consumer.records import Kind
from system_under_test.group.consumer.requests import GroupError
from system_under_test.group.consumer.topics import Topics
from system_under_test.group.members import JoinRequest
from system_under_test.group.records import UnreadableRecordError
from system_under_test.group.subscriptions import CONSUMER_PROTOCOL
from system_under_test.protocol.errors import ErrorCode

NameOf = Callable[[Partition], str | None]
"""Returns the name of a partition's topic, None if it does not exist any more."""


def check_protocols(group: ConsumerGroup, request: JoinRequest) -> None:
    """Refuses a member without a protocol that all members of the classic protocol support.

    Raises:
        GroupError: INCONSISTENT_GROUP_PROTOCOL.
    """
    common = {name for name, _ in request.protocols}
    for member in group.members.values():
        classic = member.subscription.classic
        if classic is not None and member.member_id != request.member_id:
            common &= {name for name, _ in classic.protocols}
    if request.protocol_type != CONSUMER_PROTOCOL or not common:
        raise GroupError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the members have no protocol in common"
        )


def join(
    draft: Draft, request: JoinRequest, member_id: str, around: Surroundings
) -> ConsumerMember:
    """Handles JoinGroup and returns the member; it is new unless it is known by its id or instance id.

    Args:
        draft: The group.
        request: The request; its protocols are supported.
        member_id: The member's id, also if the request has none yet.
        around: The surroundings.

    Raises:
        GroupError: The member is refused.
    """
    wanted = subscription_of(request.protocols[0][1])
    before = _joining(draft, request, member_id)
    old = before.subscription
    subscription = replace(
        old,
        instance_id=request.instance_id or old.instance_id,
        rack_id=wanted.rack_id or old.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=tuple(sorted(set(wanted.topics))),
        regex="",
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicProtocols(
            session_timeout_ms=request.session_timeout_ms, protocols=request.protocols
        ),
    )
    if subscription != old or member_id not in draft.group.members:
        draft.put(Kind.SUBSCRIPTION, subscription, member_id)
    update_regexes(draft, around)
    bump(draft, around, is_needed=(old.topics, old.regex) != (subscription.topics, ""))
    update_target(draft, around)
    return reconcile(draft, member_id, _ids_of(wanted, around.topics), around)


def _joining(draft: Draft, request: JoinRequest, member_id: str) -> ConsumerMember:
    group = draft.group
    if request.instance_id is not None:
        known = group.member_of_instance(request.instance_id)
        if request.member_id:
            return known_static(known, request.instance_id, member_id)
        if known is not None:
            return replace_member(draft, known, member_id)
    return group.members.get(member_id) or ConsumerMember(member_id=member_id)


def subscription_of(data: bytes) -> EmbeddedSubscription:
    """Decodes a subscription.

    Raises:
        GroupError: UNKNOWN_SERVER_ERROR, as in Kafka.
    """
    try:
        return read_subscription(data)
    except UnreadableRecordError as error:
        raise GroupError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"the subscription cannot be read: {error}"
        ) from None


def _ids_of(wanted: EmbeddedSubscription, topics: Topics) -> Partitions:
    ids = {one.name: one.topic_id for one in topics.known({topic for topic, _ in wanted.owned})}
    return frozenset((ids[topic], index) for topic, index in wanted.owned if topic in ids)


def classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Returns the member that sends a request of the classic protocol.

    Raises:
        GroupError: UNKNOWN_MEMBER_ID, also for a member that uses the consumer protocol, or FENCED_INSTANCE_ID.
    """
    if instance_id is None:
        found = group.members.get(member_id)
    else:
        found = known_static(group.member_of_instance(instance_id), instance_id, member_id)
    if found is None or not found.is_classic:
        raise GroupError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is no member of the classic protocol"
        )
    return found


def check_generation(member: ConsumerMember, generation: int) -> None:
    """Refuses a request of another generation.

    Raises:
        GroupError: ILLEGAL_GENERATION.
    """
    if generation != member.epoch:
        raise GroupError(
            ErrorCode.ILLEGAL_GENERATION, f"the member is in epoch {member.epoch}, not {generation}"
        )


def must_join_again(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a Heartbeat tells the member to join again.

    It must learn a newer epoch, give up partitions, or can get some that it waited for.
    """
    if member.epoch < group.epoch or member.progress.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.progress.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    missing = group.targets.get(member.member_id, frozenset()) - member.progress.assigned
    return not missing & group.held_by_others(member.member_id)


def must_join_before_sync(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether SyncGroup comes too late. A member that gives up partitions has joined for this epoch already."""
    is_revoking = member.progress.state is MemberState.UNREVOKED_PARTITIONS
    return group.epoch > member.epoch and not is_revoking


def check_named_protocol(member: ConsumerMember, kind: str | None, name: str | None) -> None:
    """Refuses a SyncGroup with another protocol than the member's first one.

    Raises:
        GroupError: INCONSISTENT_GROUP_PROTOCOL.
    """
    if kind not in (None, CONSUMER_PROTOCOL) or name not in (None, protocol_of(member)):
        raise GroupError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the member joined with another protocol"
        )


def protocol_of(member: ConsumerMember) -> str:
    """Returns the name of the protocol that a member of the classic protocol is told to use."""
    classic = member.subscription.classic
    return classic.protocols[0][0] if classic is not None else ""


def share_of(member: ConsumerMember, name_of: NameOf) -> bytes:
    """Returns the partitions of a member as the clients of the classic protocol read them."""
    classic = member.subscription.classic
    version = 0 if classic is None else subscription_of(classic.protocols[0][1]).version
    named = [(name_of(one), one[1]) for one in member.progress.assigned]
    return write_assignment([(name, index) for name, index in named if name is not None], version)
