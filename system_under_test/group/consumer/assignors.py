"""How the coordinator divides partitions among members: the assignors `uniform` and `range`.

Both are functions of their arguments alone: members are sorted, static ones by instance id first, then by member
id, so every coordinator computes the same assignment.

`range` gives each subscriber of a topic one contiguous range of its partitions, so that equal indexes of topics
with equally many partitions and the same subscribers go to one member.

`uniform` gives all members as many partitions as their subscriptions allow, and moves few of them:

1. Members keep what they have of the topics that they subscribe to.
2. Each partition without a member goes to the subscriber with the fewest partitions.
3. While a member has at least two partitions more than another one, and partitions can be passed on between
   them, perhaps through others, one is. No assignment is then more balanced: a better one would contain such a
   path. Every step makes the sum of squared loads smaller, so this ends.

Source:
    Kafka's `RangeAssignor` and `UniformAssignor`; KIP-848. Kafka's `uniform` balances members with different
    subscriptions by a limited number of passes; the result here is never less balanced.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from system_under_test.group.consumer.members import NO_PARTITIONS, Partitions

RANGE = "range"
UNIFORM = "uniform"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """What an assignor knows of a member.

    Attributes:
        topics: Topics that it subscribes to; all of them exist.
        current: Partitions that the newest target assignment gives it.
    """

    member_id: str
    instance_id: str | None = None
    topics: frozenset[UUID]
    current: Partitions = NO_PARTITIONS

    @property
    def rank(self) -> tuple[bool, str]:
        """Its place among the members: static ones come first."""
        is_dynamic = self.instance_id is None
        return is_dynamic, self.member_id if is_dynamic else self.instance_id or ""


Assignment = dict[str, Partitions]
"""Partitions by member id; every member has an entry."""
Assignor = Callable[[Iterable[MemberSpec], Mapping[UUID, int]], Assignment]
"""Divides the partitions of topics, which are given by their numbers of partitions."""


def assign_ranges(members: Iterable[MemberSpec], counts: Mapping[UUID, int]) -> Assignment:
    """Returns contiguous ranges of every topic; the first members get one more where the division has a rest."""
    ordered = sorted(members, key=lambda one: one.rank)
    found: dict[str, set[tuple[UUID, int]]] = {one.member_id: set() for one in ordered}
    for topic_id, count in sorted(counts.items()):
        subscribers = [one.member_id for one in ordered if topic_id in one.topics]
        if not subscribers:
            continue
        quota, rest = divmod(count, len(subscribers))
        start = 0
        for place, member_id in enumerate(subscribers):
            end = start + quota + (place < rest)
            found[member_id].update((topic_id, index) for index in range(start, end))
            start = end
    return {member_id: frozenset(of) for member_id, of in found.items()}


def assign_uniformly(members: Iterable[MemberSpec], counts: Mapping[UUID, int]) -> Assignment:
    """Returns as equal shares as the subscriptions allow, close to the current ones."""
    return _Shares(sorted(members, key=lambda one: one.rank), counts).balanced()


class _Shares:
    """Shares in the making. Members are known by their place in the order.

    Attributes:
        of: By member and topic, the indexes of the partitions, ascending.
        loads: Number of partitions of each member.
    """

    def __init__(self, members: Sequence[MemberSpec], counts: Mapping[UUID, int]) -> None:
        self._members = members
        self._counts = dict(sorted(counts.items()))
        self._subscribers = {
            topic_id: [place for place, one in enumerate(members) if topic_id in one.topics]
            for topic_id in self._counts
        }
        self.of: list[dict[UUID, list[int]]] = [{} for _ in members]
        self.loads = [0] * len(members)

    def balanced(self) -> Assignment:
        taken = self._keep_current()
        # Topics with few subscribers first: their partitions have the least choice.
        by_choice = sorted(self._counts, key=lambda topic_id: len(self._subscribers[topic_id]))
        for topic_id in by_choice:
            if self._subscribers[topic_id]:
                for index in range(self._counts[topic_id]):
                    if (topic_id, index) not in taken:
                        self._give(self._least_loaded(topic_id), topic_id, index)
        while self._improve():
            pass
        return {
            one.member_id: frozenset(
                (topic_id, index) for topic_id, indexes in of.items() for index in indexes
            )
            for one, of in zip(self._members, self.of, strict=True)
        }

    def _keep_current(self) -> set[tuple[UUID, int]]:
        taken: set[tuple[UUID, int]] = set()
        for place, member in enumerate(self._members):
            for topic_id, index in sorted(member.current):
                is_wanted = topic_id in member.topics and index < self._counts.get(topic_id, 0)
                if is_wanted and (topic_id, index) not in taken:
                    taken.add((topic_id, index))
                    self._give(place, topic_id, index)
        return taken

    def _least_loaded(self, topic_id: UUID) -> int:
        return min(self._subscribers[topic_id], key=lambda place: (self.loads[place], place))

    def _give(self, place: int, topic_id: UUID, index: int) -> None:
        self.of[place].setdefault(topic_id, []).append(index)
        self.loads[place] += 1

    def _take(self, place: int, topic_id: UUID) -> int:
        indexes = self.of[place][topic_id]
        index = indexes.pop()
        if not indexes:
            del self.of[place][topic_id]
        self.loads[place] -= 1
        return index

    def _improve(self) -> bool:
        """Passes one partition from a member to one with at least two fewer; false if there is none."""
        loads = self.loads
        for start in sorted(range(len(loads)), key=lambda place: (-loads[place], place)):
            if loads[start] < min(loads) + 2:
                return False
            path = self._path_from(start)
            if path:
                for giver, topic_id, taker in path:
                    self._give(taker, topic_id, self._take(giver, topic_id))
                return True
        return False

    def _path_from(self, start: int) -> list[tuple[int, UUID, int]]:
        """Returns a shortest chain of gifts (giver, topic, taker) to the least loaded member within reach."""
        came: dict[int, tuple[int, UUID] | None] = {start: None}
        level = [start]
        while level:
            reached: list[int] = []
            for giver in level:
                for topic_id in sorted(self.of[giver]):
                    for taker in self._subscribers[topic_id]:
                        if taker not in came:
                            came[taker] = (giver, topic_id)
                            reached.append(taker)
            best = min(reached, key=lambda place: (self.loads[place], place), default=None)
            if best is not None and self.loads[best] <= self.loads[start] - 2:
                return _chain(came, best)
            level = reached
        return []


def _chain(came: Mapping[int, tuple[int, UUID] | None], end: int) -> list[tuple[int, UUID, int]]:
    chain = []
    step = came[end]
    while step is not None:
        giver, topic_id = step
        chain.append((giver, topic_id, end))
        end, step = giver, came[giver]
    return chain


ASSIGNORS: Mapping[str, Assignor] = {UNIFORM: assign_uniformly, RANGE: assign_ranges}
"""Every assignor by its name."""
