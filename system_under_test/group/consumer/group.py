"""One consumer group (KIP-848): what its records say, and nothing else.

The group's *epoch* grows when its members, their subscriptions or its topics change. The coordinator then computes
a *target assignment* and gives it that epoch. Every member follows on its own, with an epoch of its own, so a
rebalance stops only those who lose partitions. Every change is a list of records: `apply` is used for the records
that a coordinator appends and for those that it reads when it takes over, so both have the same group.

A request works on a `Draft`, a copy of the group together with the records that made it differ. The draft becomes
the group when the log has taken the records.

Source:
    Kafka's `ConsumerGroup`; KIP-848.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, cast

from system_under_test.group.consumer.members import (
    LEAVE_EPOCH,
    ConsumerMember,
    Partition,
    Partitions,
    Progress,
    Subscription,
)
from system_under_test.group.consumer.records import (
    GroupEpoch,
    Kind,
    RecordKey,
    ResolvedRegex,
    StoredTopic,
    Value,
)


class ConsumerGroupState(StrEnum):
    """State of a consumer group, with Kafka's names. It follows from members and epochs."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(slots=True, kw_only=True)
class ConsumerGroup:
    """One group. Mutable.

    Attributes:
        epoch: The group's epoch.
        metadata_hash: Of the topics for which the newest target was computed, 0 if it is not known.
        topics: These topics, if an older release stored them.
        target_epoch: Epoch of the newest target assignment.
        targets: The newest target assignment, by member id.
        regexes: The topics that each subscribed pattern matched.
    """

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    topics: tuple[StoredTopic, ...] | None = None
    target_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)

    @property
    def state(self) -> ConsumerGroupState:
        """The current state."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(one.progress.is_reconciled_to(self.target_epoch) for one in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def classic_count(self) -> int:
        """Number of members that use the classic protocol."""
        return sum(one.is_classic for one in self.members.values())

    def member_of_instance(self, instance_id: str | None) -> ConsumerMember | None:
        """Returns the member with a static name, None without one."""
        if instance_id is None:
            return None
        members = self.members.values()
        return next((one for one in members if one.instance_id == instance_id), None)

    def held_by_others(self, member_id: str) -> set[Partition]:
        """Returns the partitions that other members have or still have to give up."""
        return {
            partition
            for one in self.members.values()
            if one.member_id != member_id
            for partition in one.progress.held
        }

    def topic_names(self, members: Iterable[ConsumerMember]) -> set[str]:
        """Returns the names of the topics that members subscribe to, by name or by pattern."""
        names: set[str] = set()
        for member in members:
            names.update(self.names_of(member.subscription))
        return names

    def names_of(self, subscription: Subscription) -> set[str]:
        """Returns the names of the topics of one subscription."""
        resolved = self.regexes.get(subscription.regex)
        return {*subscription.topics, *(resolved.topics if resolved is not None else ())}

    def apply(self, key: RecordKey, value: Value | None) -> None:
        """Applies one record; None deletes what the key names."""
        match key.kind:
            case Kind.GROUP_EPOCH:
                found = cast(GroupEpoch, value or GroupEpoch(epoch=0))
                self.epoch, self.metadata_hash = found.epoch, found.metadata_hash
            case Kind.TOPICS:
                self.topics = cast(tuple[StoredTopic, ...] | None, value)
            case Kind.TARGET_EPOCH:
                self.target_epoch = cast(int, value or 0)
            case Kind.SUBSCRIPTION | Kind.PROGRESS:
                self._apply_to_member(key, cast(Subscription | Progress | None, value))
            case Kind.TARGET | Kind.REGEX:
                of: dict[str, Any] = self.targets if key.kind is Kind.TARGET else self.regexes
                if value is None:
                    of.pop(key.name, None)
                else:
                    of[key.name] = value

    def _apply_to_member(self, key: RecordKey, value: Subscription | Progress | None) -> None:
        member_id = key.name
        member = self.members.get(member_id)
        if key.kind is Kind.SUBSCRIPTION and value is None:
            self.members.pop(member_id, None)
            return
        if value is None:
            if member is None:
                return
            value = Progress(epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH)
        member = member or ConsumerMember(member_id=member_id)
        if isinstance(value, Subscription):
            self.members[member_id] = replace(member, subscription=value)
        else:
            self.members[member_id] = replace(member, progress=value)

    def copy(self) -> "ConsumerGroup":
        """Returns a copy that can be changed independently."""
        return replace(
            self,
            members=dict(self.members),
            targets=dict(self.targets),
            regexes=dict(self.regexes),
        )


class Draft:
    """A group that a request is changing.

    Args:
        group: The group as it is; it is not changed.

    Attributes:
        group: The group as it will be.
        records: The changes, in the order in which they have to be appended.
    """

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group.copy()
        self.records: list[tuple[RecordKey, Value | None]] = []

    def put(self, kind: Kind, value: Value | None, name: str = "") -> None:
        """Makes one change."""
        key = RecordKey(kind=kind, group_id=self.group.group_id, name=name)
        self.records.append((key, value))
        self.group.apply(key, value)

    def remove_member(self, member_id: str) -> None:
        """Removes everything about a member."""
        for kind in (Kind.PROGRESS, Kind.TARGET, Kind.SUBSCRIPTION):
            self.put(kind, None, member_id)

    def remove_group(self) -> None:
        """Removes the group, member by member."""
        for key in list(keys_of(self.group)):
            self.put(key.kind, None, key.name)


def keys_of(group: ConsumerGroup) -> Iterator[RecordKey]:
    """Yields the keys of all records of a group, in the order in which Kafka deletes them."""
    for kind, names in (
        (Kind.PROGRESS, group.members),
        (Kind.TARGET, group.members),
        (Kind.TARGET_EPOCH, ("",)),
        (Kind.SUBSCRIPTION, group.members),
        (Kind.TOPICS, ("",) if group.topics is not None else ()),
        (Kind.REGEX, group.regexes),
        (Kind.GROUP_EPOCH, ("",)),
    ):
        for name in list(names):
            yield RecordKey(kind=kind, group_id=group.group_id, name=name)
