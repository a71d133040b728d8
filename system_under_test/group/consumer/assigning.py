"""What every change of a consumer group ends with: a new epoch, a new target assignment, a member's next step.

Source:
    Kafka's `TargetAssignmentBuilder` and `GroupMetadataManager` (`updateTargetAssignment`, `maybeReconcile`,
    `maybeUpdateRegularExpressions`); KIP-848. Kafka looks up the topics of a pattern in the background, so members
    get them with a later heartbeat.
"""

from dataclasses import dataclass, replace

from system_under_test.group.consumer.assignors import ASSIGNORS, MemberSpec
from system_under_test.group.consumer.group import ConsumerGroup, Draft
from system_under_test.group.consumer.members import NO_PARTITIONS, ConsumerMember, Partitions
from system_under_test.group.consumer.reconciliation import UnknownStateError, reconciled
from system_under_test.group.consumer.records import GroupEpoch, Kind, ResolvedRegex
from system_under_test.group.consumer.regex import RegexError
from system_under_test.group.consumer.requests import GroupError
from system_under_test.group.consumer.topics import Topics, compiled, hash_of
from system_under_test.protocol.errors import ErrorCode
from system_under_test.rules import Rules

REGEX_REFRESH_MIN_MS = 10_000
"""Age at which the topics of a pattern are looked up again, as in Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What decisions about a group depend on, beside the group.

    Attributes:
        topics: The topics of the cluster.
        wall_ms: Wall clock, for what is stored.
        assignors: Names of the assignors; the first is used where members have no preference.
        stores_hash: Whether the topics of the newest assignment are stored as a hash (Kafka 4.1).
        fenced_may_rejoin: Whether a fenced member may join again before its session is over.
    """

    topics: Topics
    wall_ms: int
    assignors: tuple[str, ...]
    stores_hash: bool
    fenced_may_rejoin: bool
    rules: Rules


def check_regex(pattern: str | None) -> None:
    """Refuses a pattern that is not valid.

    Raises:
        GroupError: INVALID_REGULAR_EXPRESSION.
    """
    try:
        if pattern:
            compiled(pattern)
    except RegexError as error:
        raise GroupError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"the regular expression {pattern!r} is not valid: {error}",
        ) from None


def update_regexes(draft: Draft, around: Surroundings) -> None:
    """Looks up the topics of new patterns and of old results, and forgets patterns without a subscriber."""
    group = draft.group
    wanted = {one.subscription.regex for one in group.members.values()} - {""}
    for pattern in sorted(group.regexes.keys() - wanted):
        draft.put(Kind.REGEX, None, pattern)
    for pattern in sorted(wanted):
        known = group.regexes.get(pattern)
        if known is not None and 0 <= around.wall_ms - known.resolved_ms < REGEX_REFRESH_MIN_MS:
            continue
        try:
            names = around.topics.matching(pattern)
        except RegexError:
            names = ()  # another release stored a pattern that this one cannot read
        if known is None or known.topics != names:
            resolved = ResolvedRegex(
                topics=names, version=around.topics.version, resolved_ms=around.wall_ms
            )
            draft.put(Kind.REGEX, resolved, pattern)


def bump(draft: Draft, around: Surroundings, *, is_needed: bool) -> None:
    """Begins a new epoch of the group if it is needed or the group's topics have changed.

    Args:
        draft: The group, with the changes of its members.
        around: The surroundings.
        is_needed: Whether members or subscriptions have changed.
    """
    group = draft.group
    topics = around.topics.known(group.topic_names(group.members.values()))
    metadata_hash = hash_of(topics) if around.stores_hash else 0
    if around.stores_hash:
        is_needed |= metadata_hash != group.metadata_hash
        if group.topics is not None:  # an older release stored them
            draft.put(Kind.TOPICS, None)
    elif topics != (group.topics or ()):
        is_needed = True
        draft.put(Kind.TOPICS, topics)
    # Epoch 0 is that of a member that joins, so even a group that reads nothing begins with 1.
    if is_needed or group.epoch == 0:
        draft.put(Kind.GROUP_EPOCH, GroupEpoch(epoch=group.epoch + 1, metadata_hash=metadata_hash))


def update_target(draft: Draft, around: Surroundings) -> None:
    """Computes the target assignment of the group's epoch, unless there is one, and stores what differs."""
    group = draft.group
    if group.epoch <= group.target_epoch:
        return
    topics = around.topics.known(group.topic_names(group.members.values()))
    ids = {topic.name: topic.topic_id for topic in topics}
    specs = [
        MemberSpec(
            member_id=one.member_id,
            instance_id=one.instance_id,
            topics=frozenset(ids[name] for name in group.names_of(one.subscription) if name in ids),
            current=group.targets.get(one.member_id, NO_PARTITIONS),
        )
        for one in group.members.values()
    ]
    assign = ASSIGNORS[preferred_assignor(group, around.assignors)]
    found = assign(specs, {topic.topic_id: topic.count for topic in topics})
    for member_id, partitions in sorted(found.items()):
        if group.targets.get(member_id) != partitions:
            draft.put(Kind.TARGET, partitions, member_id)
    draft.put(Kind.TARGET_EPOCH, group.epoch)


def preferred_assignor(group: ConsumerGroup, known: tuple[str, ...]) -> str:
    """Returns the assignor that most members prefer, the first of the known ones without a preference."""
    named = [one.subscription.assignor for one in group.members.values()]
    return max(known, key=named.count)


def reconcile(
    draft: Draft, member_id: str, owned: Partitions | None, around: Surroundings
) -> ConsumerMember:
    """Moves a member towards its target, and returns it.

    Raises:
        GroupError: FENCED_MEMBER_EPOCH, the stored state is unknown.
    """
    group = draft.group
    member = group.members[member_id]
    if member.progress.is_reconciled_to(group.target_epoch):
        return member
    held = group.held_by_others(member_id)
    try:
        progress = reconciled(
            member.progress,
            target_epoch=group.target_epoch,
            target=group.targets.get(member_id, NO_PARTITIONS),
            owned=owned,
            is_free=lambda partition: partition not in held,
            rules=around.rules,
        )
    except UnknownStateError:
        raise GroupError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "the member's stored state is unknown; it has to join again without partitions",
        ) from None
    if progress != member.progress:
        draft.put(Kind.PROGRESS, progress, member_id)
    return group.members[member_id]


def replace_member(draft: Draft, old: ConsumerMember, new_id: str) -> ConsumerMember:
    """Gives the place of a static member to another member id (KIP-345)."""
    target = draft.group.targets.get(old.member_id, NO_PARTITIONS)
    progress = replace(old.progress, epoch=0, previous_epoch=0)
    draft.remove_member(old.member_id)
    draft.put(Kind.SUBSCRIPTION, old.subscription, new_id)
    draft.put(Kind.TARGET, target, new_id)
    draft.put(Kind.PROGRESS, progress, new_id)
    return draft.group.members[new_id]
