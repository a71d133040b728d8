"""Changes the type of a group while its members work: classic to consumer, and back (KIP-848).

A classic group becomes a consumer group when the first member of the consumer protocol joins. What its members
have becomes the target assignment, so nothing moves by the change itself. A consumer group becomes a classic one
when the last member of the consumer protocol leaves and others remain; these then rebalance among themselves. Both
replace all records of the group in one batch.

Source:
    Kafka's `GroupMetadataManager` (`validateOnlineUpgrade`, `validateOnlineDowngradeWithFencedMember`),
    `ConsumerGroup.fromClassicGroup` and `ClassicGroup.fromConsumerGroup`; `group.consumer.migration.policy`.
"""

from system_under_test.config import GroupConfig
from system_under_test.group.consumer.classic_members import NameOf, share_of
from system_under_test.group.consumer.embedded import read_assignment, read_subscription
from system_under_test.group.consumer.group import ConsumerGroup, Draft
from system_under_test.group.consumer.members import (
    ClassicProtocols,
    Partitions,
    Progress,
    Subscription,
)
from system_under_test.group.consumer.records import GroupEpoch, Kind
from system_under_test.group.consumer.requests import GroupError
from system_under_test.group.consumer.topics import Topics
from system_under_test.group.members import Member
from system_under_test.group.records import UnreadableRecordError
from system_under_test.group.state import Group
from system_under_test.group.subscriptions import CONSUMER_PROTOCOL, is_consumer_group
from system_under_test.protocol.errors import ErrorCode

UPGRADES = frozenset({"upgrade", "bidirectional"})
DOWNGRADES = frozenset({"downgrade", "bidirectional"})


def upgraded(classic: Group, topics: Topics, settings: GroupConfig) -> Draft:
    """Returns a consumer group with the members of a classic group, and the records that it consists of.

    Raises:
        GroupError: GROUP_ID_NOT_FOUND, the group has to stay a classic one.
    """
    _check_upgrade(classic, settings)
    draft = Draft(ConsumerGroup(group_id=classic.group_id))
    try:
        members = [(one, _subscription(one), _partitions(one, topics)) for one in _all(classic)]
    except UnreadableRecordError as error:
        raise _refused(
            classic, f"its subscriptions or assignments cannot be read: {error}"
        ) from None
    for member, subscription, _ in members:
        draft.put(Kind.SUBSCRIPTION, subscription, member.member_id)
    draft.put(Kind.GROUP_EPOCH, GroupEpoch(epoch=classic.generation))
    for member, _, partitions in members:
        draft.put(Kind.TARGET, partitions, member.member_id)
    draft.put(Kind.TARGET_EPOCH, classic.generation)
    for member, _, partitions in members:
        progress = Progress(
            epoch=classic.generation, previous_epoch=classic.generation, assigned=partitions
        )
        draft.put(Kind.PROGRESS, progress, member.member_id)
    return draft


def _all(classic: Group) -> list[Member]:
    return list(classic.members.values())


def _check_upgrade(classic: Group, settings: GroupConfig) -> None:
    if settings.group_consumer_migration_policy not in UPGRADES:
        raise _refused(classic, "group.consumer.migration.policy does not allow it")
    if not is_consumer_group(classic):
        raise _refused(classic, "its members are not consumers")
    if len(classic.members) > settings.group_consumer_max_size:
        raise _refused(classic, "it has more members than group.consumer.max.size")


def _refused(classic: Group, reason: str) -> GroupError:
    return GroupError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"the classic group {classic.group_id!r} cannot become a consumer group: {reason}",
    )


def _subscription(member: Member) -> Subscription:
    wanted = read_subscription(member.protocols[0][1])
    return Subscription(
        instance_id=member.instance_id,
        rack_id=wanted.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(set(wanted.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicProtocols(
            session_timeout_ms=member.session_timeout_ms, protocols=member.protocols
        ),
    )


def _partitions(member: Member, topics: Topics) -> Partitions:
    found = read_assignment(member.assignment)
    if found.has_user_data:
        raise UnreadableRecordError("an assignment has data of an assignor that would be lost")
    ids = {one.name: one.topic_id for one in topics.known({topic for topic, _ in found.partitions})}
    return frozenset((ids[topic], index) for topic, index in found.partitions if topic in ids)


# --- back ------------------------------------------------------------------------------------------------


def must_downgrade(before: ConsumerGroup, after: ConsumerGroup, settings: GroupConfig) -> bool:
    """Whether a group becomes a classic one because its last members of the consumer protocol are gone.

    Args:
        before: The group with them.
        after: The members that remain, and those that took a place over.
        settings: The policy, and the largest size of a classic group.
    """
    return (
        settings.group_consumer_migration_policy in DOWNGRADES
        and before.classic_count < len(before.members)
        and bool(after.members)
        and after.classic_count == len(after.members) <= settings.group_max_size
    )


def fill_classic(classic: Group, group: ConsumerGroup, name_of: NameOf, now_ms: int) -> None:
    """Gives a new classic group the members and the epoch of a consumer group; all of them are classic.

    Args:
        classic: The classic group, empty.
        group: The consumer group.
        name_of: Returns the name of a partition's topic.
        now_ms: When the sessions of the members begin anew.
    """
    members = [
        Member(
            member_id=one.member_id,
            instance_id=one.instance_id,
            client_id=one.subscription.client_id,
            client_host=one.subscription.client_host,
            session_timeout_ms=one.subscription.classic.session_timeout_ms,
            rebalance_timeout_ms=one.subscription.rebalance_timeout_ms,
            protocol_type=CONSUMER_PROTOCOL,
            protocols=one.subscription.classic.protocols,
            heard_ms=now_ms,
            assignment=share_of(one, name_of),
            has_synced=True,
        )
        for one in group.members.values()
        if one.subscription.classic is not None
    ]
    classic.restore(
        generation=group.epoch,
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=None,
        leader=members[0].member_id if members else "",
        members=members,
    )
    classic.choose_protocol()
