"""The groups of one partition of the offsets topic, as its coordinator holds them."""

import asyncio
from collections import Counter
from collections.abc import Iterable

from system_under_test.broker.offsets_log import OffsetsLog
from system_under_test.group.records import OffsetKey
from system_under_test.group.state import Group


class Shard:
    """The groups of one offsets partition, while this broker leads it. Mutable.

    Attributes:
        log: The records of the partition.
        groups: By id.
        timers: The timer of every group that waits for a deadline, by id.
        removed_meanwhile: Topics that were removed while the groups were loaded.
        storing: How many commits of each offset were appended and are not decided yet.
    """

    def __init__(self, log: OffsetsLog) -> None:
        self.log = log
        self.groups: dict[str, Group] = {}
        self.timers: dict[str, asyncio.TimerHandle] = {}
        self.removed_meanwhile: set[str] = set()
        self.storing: Counter[OffsetKey] = Counter()

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
