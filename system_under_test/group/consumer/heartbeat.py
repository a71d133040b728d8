"""Decides about ConsumerGroupHeartbeat requests: joining, staying, leaving, and who is refused.

Everything here works on a `Draft` and returns what the member learns; it knows neither log nor clock nor timers.

Source:
    Kafka's `GroupMetadataManager.consumerGroupHeartbeat` and `consumerGroupLeave`; KIP-848.
"""

from dataclasses import replace

from system_under_test.group.consumer.assigning import (
    Surroundings,
    bump,
    check_regex,
    reconcile,
    replace_member,
    update_regexes,
    update_target,
)
from system_under_test.group.consumer.group import ConsumerGroup, Draft
from system_under_test.group.consumer.members import (
    JOIN_EPOCH,
    NO_PARTITIONS,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    Subscription,
)
from system_under_test.group.consumer.records import Kind
from system_under_test.group.consumer.requests import (
    UNCHANGED_MS,
    GroupError,
    HeartbeatRequest,
    HeartbeatResult,
)
from system_under_test.protocol.errors import ErrorCode
from system_under_test.rules import Rules


def heartbeat(draft: Draft, request: HeartbeatRequest, around: Surroundings) -> HeartbeatResult:
    """Handles the heartbeat of a member, or of a client that becomes one.

    Args:
        draft: The group.
        request: A valid request of a member that does not leave; its member id is not empty.
        around: The surroundings.

    Raises:
        GroupError: The member is refused.
    """
    check_regex(request.regex)
    before = _member(draft, request, around)
    subscription = _updated(before.subscription, request)
    if subscription != before.subscription or before.member_id not in draft.group.members:
        draft.put(Kind.SUBSCRIPTION, subscription, before.member_id)
    update_regexes(draft, around)
    old = before.subscription
    is_needed = (old.topics, old.regex) != (subscription.topics, subscription.regex)
    bump(draft, around, is_needed=is_needed)
    update_target(draft, around)
    after = reconcile(draft, before.member_id, request.owned, around)
    has_changed = after.progress.assigned != before.progress.assigned
    return HeartbeatResult(
        member_id=after.member_id,
        epoch=after.epoch,
        assigned=after.progress.assigned if request.is_full or has_changed else None,
    )


def _member(draft: Draft, request: HeartbeatRequest, around: Surroundings) -> ConsumerMember:
    """Returns the sender; one that is not a member yet is not in the group after this either."""
    group = draft.group
    is_joining = request.epoch == JOIN_EPOCH
    if request.instance_id is None:
        member = group.members.get(request.member_id)
        if member is None and not is_joining:
            raise GroupError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id!r} is not a member of the group"
            )
    else:
        member = group.member_of_instance(request.instance_id)
        if member is not None and is_joining:
            return _returned(draft, member, request, around.rules)
        if member is not None or not is_joining:
            member = known_static(member, request.instance_id, request.member_id)
    if member is None:
        return ConsumerMember(member_id=request.member_id)
    if not (is_joining and around.fenced_may_rejoin):
        _check_epoch(member, request, around.rules)
    return member


def _returned(
    draft: Draft, member: ConsumerMember, request: HeartbeatRequest, rules: Rules
) -> ConsumerMember:
    """Gives a static member that returns its place; the consumer that had it must have left."""
    has_left = member.epoch == STATIC_LEAVE_EPOCH or member.is_classic
    # [GRP-10] Two consumers with one instance id would take the partitions from each other again and again.
    if not has_left and rules("GRP-10"):
        raise GroupError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"the instance id {request.instance_id!r} belongs to the member {member.member_id!r}",
        )
    return replace_member(draft, member, request.member_id)


def known_static(member: ConsumerMember | None, instance_id: str, member_id: str) -> ConsumerMember:
    """Returns a static member if the request is its own.

    Raises:
        GroupError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    """
    if member is None:
        raise GroupError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id!r}"
        )
    if member.member_id != member_id:
        raise GroupError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"the instance id {instance_id!r} belongs to another member than {member_id!r}",
        )
    return member


def _check_epoch(member: ConsumerMember, request: HeartbeatRequest, rules: Rules) -> None:
    known = member.progress
    if request.epoch == known.epoch or not rules("GRP-6"):
        return
    # The response with the new epoch may have been lost. Then the member has at most what it had before.
    if request.epoch == known.previous_epoch and request.epoch < known.epoch:
        owned = request.owned
        if owned is not None and owned <= known.assigned:
            return
    # [GRP-6] A member of another epoch may consume partitions that now belong to others.
    raise GroupError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"the member is in epoch {known.epoch}, not {request.epoch}; it has to join again without partitions",
    )


def _updated(old: Subscription, request: HeartbeatRequest) -> Subscription:
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        old,
        instance_id=_or(request.instance_id, old.instance_id),
        rack_id=_or(request.rack_id, old.rack_id),
        rebalance_timeout_ms=old.rebalance_timeout_ms if timeout_ms == UNCHANGED_MS else timeout_ms,
        assignor=_or(request.assignor, old.assignor),
        topics=old.topics if request.topics is None else tuple(sorted(set(request.topics))),
        regex=old.regex if request.regex is None else request.regex,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )


def _or(new: str | None, old: str | None) -> str | None:
    return old if new is None else new


# --- leaving -----------------------------------------------------------------------------------------------


def leaver(group: ConsumerGroup, request: HeartbeatRequest) -> ConsumerMember:
    """Returns the member that leaves.

    Raises:
        GroupError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    """
    if request.instance_id is not None:
        member = group.member_of_instance(request.instance_id)
        return known_static(member, request.instance_id, request.member_id)
    known = group.members.get(request.member_id)
    if known is None:
        raise GroupError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id!r} is not a member of the group"
        )
    return known


def pause(draft: Draft, member: ConsumerMember) -> None:
    """Lets a static member go for a moment: it keeps its partitions until its session expires (epoch -2)."""
    progress = replace(member.progress, epoch=STATIC_LEAVE_EPOCH, revoking=NO_PARTITIONS)
    draft.put(Kind.PROGRESS, progress, member.member_id)


def remove(draft: Draft, member_ids: list[str], around: Surroundings) -> None:
    """Removes members that left or are fenced; the next heartbeat of another one computes the new target."""
    for member_id in member_ids:
        draft.remove_member(member_id)
    update_regexes(draft, around)
    bump(draft, around, is_needed=True)
