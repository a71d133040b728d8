"""The consumer protocol inside the classic group protocol: subscriptions and assignments as clients encode them.

The coordinator reads and writes them only for members that use the classic protocol in a consumer group, and when
a group changes its type.

Source:
    Kafka's ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json, versions 0 to 3.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from system_under_test.group.records import RecordReader, RecordWriter, UnreadableRecordError

TopicPartition = tuple[str, int]
_OWNED_SINCE, _GENERATION_SINCE, _RACK_SINCE = 1, 2, 3
_ENTRIES_MAX = 100_000
"""More than fit into a request; bounds what a malformed length can cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSubscription:
    """What a consumer of the classic protocol wants.

    Attributes:
        owned: The partitions that it has, as (topic, index).
    """

    version: int
    topics: tuple[str, ...]
    owned: frozenset[TopicPartition] = frozenset()
    rack_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedAssignment:
    """What the leader of a classic group assigned to a member."""

    partitions: frozenset[TopicPartition]
    has_user_data: bool


def read_subscription(data: bytes) -> EmbeddedSubscription:
    """Decodes a subscription.

    Raises:
        UnreadableRecordError: The bytes are malformed.
    """
    reader = RecordReader(data)
    version = reader.number("h")
    topics = tuple(reader.text() for _ in range(_count(reader)))
    _read_user_data(reader)
    owned = _read_partitions(reader) if version >= _OWNED_SINCE else frozenset()
    if version >= _GENERATION_SINCE:
        reader.number("i")
    rack_id = reader.nullable_text() if version >= _RACK_SINCE else None
    return EmbeddedSubscription(version=version, topics=topics, owned=owned, rack_id=rack_id)


def read_assignment(data: bytes) -> EmbeddedAssignment:
    """Decodes an assignment; no bytes are an empty one.

    Raises:
        UnreadableRecordError: The bytes are malformed.
    """
    if not data:
        return EmbeddedAssignment(partitions=frozenset(), has_user_data=False)
    reader = RecordReader(data)
    reader.number("h")
    partitions = _read_partitions(reader)
    return EmbeddedAssignment(partitions=partitions, has_user_data=bool(_read_user_data(reader)))


def write_assignment(partitions: Iterable[TopicPartition], version: int) -> bytes:
    """Encodes an assignment in the version of a member's subscription."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    writer = RecordWriter().number("h", version).number("i", len(topics))
    for topic, indexes in topics.items():
        writer.text(topic).number("i", len(indexes))
        for index in indexes:
            writer.number("i", index)
    return writer.number("i", -1).done()


def _count(reader: RecordReader) -> int:
    count = reader.number("i")
    if not 0 <= count <= _ENTRIES_MAX:
        raise UnreadableRecordError(f"{count} entries")
    return count


def _read_user_data(reader: RecordReader) -> bytes:
    size = reader.number("i")
    return b"" if size == -1 else reader.raw(size)


def _read_partitions(reader: RecordReader) -> frozenset[TopicPartition]:
    found: set[TopicPartition] = set()
    for _ in range(_count(reader)):
        topic = reader.text()
        found.update((topic, reader.number("i")) for _ in range(_count(reader)))
    return frozenset(found)
