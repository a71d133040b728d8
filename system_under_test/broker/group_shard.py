"""The groups of one partition of the offsets topic, as its coordinator holds them."""

import asyncio
from collections import Counter
from collections.abc import Iterable

from system_under_test.broker.offsets_log import OffsetsLog
from system_under_test.group.consumer.deadlines import Deadlines
from system_under_test.group.consumer.group import ConsumerGroup
from system_under_test.group.records import OffsetKey
from system_under_test.group.state import Group

AnyGroup = Group | ConsumerGroup


class Shard:
    """The groups of one offsets partition, while this broker leads it. Mutable.

    Attributes:
        log: The records of the partition.
        groups: Classic groups by id, also those without members that have offsets only.
        consumer_groups: Consumer groups by id (KIP-848); an id is in one of both.
        deadlines: The timeouts of the members of each consumer group.
        timers: The timer of every group that waits for a deadline, by id.
        removed_meanwhile: Topics that were removed while the groups were loaded.
        storing: How many commits of each offset were appended and are not decided yet.
    """

    def __init__(self, log: OffsetsLog) -> None:
        self.log = log
        self.groups: dict[str, Group] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        self.deadlines: dict[str, Deadlines] = {}
        self.timers: dict[str, asyncio.TimerHandle] = {}
        self.removed_meanwhile: set[str] = set()
        self.storing: Counter[OffsetKey] = Counter()

    def group(self, group_id: str) -> AnyGroup | None:
        """Returns a group of whatever type, None if there is none."""
        return self.groups.get(group_id) or self.consumer_groups.get(group_id)

    def all_groups(self) -> list[AnyGroup]:
        """Returns the groups of both types, by id."""
        every: dict[str, AnyGroup] = {**self.groups, **self.consumer_groups}
        return [group for _, group in sorted(every.items())]

    def drop(self, group_id: str) -> None:
        """Forgets a group, of whatever type, and its timer."""
        self.groups.pop(group_id, None)
        self.consumer_groups.pop(group_id, None)
        self.deadlines.pop(group_id, None)
        self.cancel_timer(group_id)

    def cancel_timer(self, group_id: str) -> None:
        """Cancels the timer of a group."""
        timer = self.timers.pop(group_id, None)
        if timer is not None:
            timer.cancel()

    def storing_begins(self, keys: Iterable[OffsetKey]) -> None:
        """Notes that commits of these offsets are being appended."""
        for key in keys:
            self.storing[key] += 1

    def storing_ends(self, keys: Iterable[OffsetKey]) -> None:
        """Notes that commits of these offsets are decided."""
        for key in keys:
            self.storing[key] -= 1
            if not self.storing[key]:
                del self.storing[key]

    def known_offsets(self, group_id: str) -> list[OffsetKey]:
        """Returns the keys of a group's offsets, committed or about to be, in their order."""
        found = {key for key in self.storing if key.group == group_id}
        for topic, partition in self.log.offsets.get(group_id, {}):
            found.add(OffsetKey(group=group_id, topic=topic, partition=partition))
        return sorted(found, key=lambda key: (key.topic, key.partition))
