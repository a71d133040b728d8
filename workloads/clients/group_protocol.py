"""What members of a classic consumer group send each other through the coordinator, and the range assignor.

The coordinator passes subscriptions and assignments on as bytes. Here they have version 0 of Kafka's formats,
which every consumer reads.

Source:
    Kafka's ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json and `RangeAssignor`.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

VERSION = 0
PROTOCOL_TYPE = "consumer"
RANGE = "range"

Key = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member as the leader of the group learns of it.

    Attributes:
        instance_id: Of a static member; None for the others.
        topics: What it subscribed to.
    """

    member_id: str
    instance_id: str | None
    topics: tuple[str, ...]

    @property
    def rank(self) -> tuple[bool, str, str]:
        """Sorts static members by instance id before all others, and those by member id."""
        return self.instance_id is None, self.instance_id or "", self.member_id


def encode_subscription(topics: Sequence[str]) -> bytes:
    """Returns a subscription to topics, without user data."""
    return struct.pack(">hi", VERSION, len(topics)) + b"".join(map(_text, topics)) + _NO_DATA


def decode_subscription(data: bytes) -> tuple[str, ...]:
    """Returns the topics of a subscription of any version.

    Raises:
        ValueError: The bytes are malformed.
    """
    reader = _Reader(data)
    reader.number(">h")
    return tuple(reader.text() for _ in range(reader.number(">i")))


def encode_assignment(partitions: Iterable[Key]) -> bytes:
    """Returns an assignment of partitions, without user data."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    topics = [
        _text(topic) + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
        for topic, indexes in by_topic.items()
    ]
    return struct.pack(">hi", VERSION, len(topics)) + b"".join(topics) + _NO_DATA


def decode_assignment(data: bytes) -> tuple[Key, ...]:
    """Returns the partitions of an assignment of any version, in its order; none for no bytes at all.

    Raises:
        ValueError: The bytes are malformed.
    """
    if not data:
        return ()  # a member that the leader did not know of
    reader = _Reader(data)
    reader.number(">h")
    found: list[Key] = []
    for _ in range(reader.number(">i")):
        topic = reader.text()
        found += [(topic, reader.number(">i")) for _ in range(reader.number(">i"))]
    return tuple(found)


def range_assignment(
    members: Iterable[Subscriber], partition_counts: Mapping[str, int]
) -> dict[str, tuple[Key, ...]]:
    """Divides the partitions of each topic into ranges, one per member that subscribed to it.

    The first members get one partition more if the partitions cannot be divided evenly.

    Args:
        members: All members of the generation.
        partition_counts: Number of partitions by topic; topics that are missing here are not assigned.

    Returns:
        The partitions of every member, by member id.
    """
    ranked = sorted(members, key=lambda member: member.rank)
    assigned: dict[str, list[Key]] = {member.member_id: [] for member in ranked}
    for topic, count in sorted(partition_counts.items()):
        consumers = [member for member in ranked if topic in member.topics]
        if not consumers:
            continue
        each, extra = divmod(count, len(consumers))
        for index, member in enumerate(consumers):
            first = each * index + min(index, extra)
            size = each + (index < extra)
            assigned[member.member_id] += [(topic, first + offset) for offset in range(size)]
    return {member_id: tuple(partitions) for member_id, partitions in assigned.items()}


_NO_DATA = struct.pack(">i", -1)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self, form: str) -> int:
        value: int = struct.unpack(form, self._take(struct.calcsize(form)))[0]
        return value

    def text(self) -> str:
        return self._take(self.number(">h")).decode()

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise ValueError(f"{size} bytes are missing at position {self._position}")
        taken = self._data[self._position : end]
        self._position = end
        return taken
