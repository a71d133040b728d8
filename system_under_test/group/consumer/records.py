"""The records of consumer groups in `__consumer_offsets`, in Kafka's own formats.

A group is stored as several records, each about one thing: the group's epoch, what a member wants, the target
assignment of a member, what a member has. A change of the group is one batch of them, and a coordinator that takes
over reads them back. A record without a value deletes what its key names.

Source:
    Kafka's ConsumerGroup*Key.json and ConsumerGroup*Value.json (KIP-848); the version of a key is the kind of the
    record, and every value has version 0 of a flexible schema.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

from system_under_test.group.consumer.flexible import FlexibleReader, FlexibleWriter
from system_under_test.group.consumer.members import (
    ClassicProtocols,
    MemberState,
    Partitions,
    Progress,
    Subscription,
    by_topic,
    from_topics,
)
from system_under_test.group.records import RecordReader, RecordWriter, UnreadableRecordError

VALUE_VERSION = 0
_CLASSIC_TAG = 0
_HASH_TAG = 0


class Kind(IntEnum):
    """Kinds of records, with the versions of their keys."""

    GROUP_EPOCH = 3
    TOPICS = 4
    SUBSCRIPTION = 5
    TARGET_EPOCH = 6
    TARGET = 7
    PROGRESS = 8
    REGEX = 16


KINDS: frozenset[int] = frozenset(Kind)
_WITH_TAGS = frozenset({Kind.GROUP_EPOCH, Kind.SUBSCRIPTION})
"""Kinds whose tagged fields mean something."""
_WITHOUT_NAME = frozenset({Kind.GROUP_EPOCH, Kind.TOPICS, Kind.TARGET_EPOCH})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKey:
    """Identifies a record.

    Attributes:
        name: Member id, or the regular expression; empty where a group has one record of the kind.
    """

    kind: Kind
    group_id: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEpoch:
    """The epoch of a group: it grows when a new target assignment is needed.

    Attributes:
        metadata_hash: Of the topics that the group reads (since Kafka 4.1), 0 without one.
    """

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTopic:
    """A topic that a group reads, as Kafka 4.0 stores it."""

    topic_id: UUID
    name: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRegex:
    """The topics that a regular expression matched.

    Attributes:
        topics: Their names, sorted.
        version: Offset of the metadata in which they were looked up.
        resolved_ms: Wall clock of the coordinator.
    """

    topics: tuple[str, ...]
    version: int
    resolved_ms: int


Topics = tuple[StoredTopic, ...]
Value = GroupEpoch | Topics | Subscription | int | Partitions | Progress | ResolvedRegex
"""By kind: `GroupEpoch`, topics, `Subscription`, the target's epoch, a member's target, `Progress`, a regex."""


def encode_record(key: RecordKey, value: Value | None) -> tuple[bytes, bytes | None]:
    """Returns the bytes of a record's key and value."""
    writer = RecordWriter().number("h", key.kind).text(key.group_id)
    if key.kind not in _WITHOUT_NAME:
        writer.text(key.name)
    return writer.done(), None if value is None else _encode_value(value)


def is_consumer_group_key(data: bytes) -> bool:
    """Whether a key is that of a record of a consumer group."""
    return int.from_bytes(data[:2], "big") in KINDS


def decode_record_key(data: bytes) -> RecordKey:
    """Decodes the key of a record of a consumer group.

    Raises:
        UnreadableRecordError: It is none.
    """
    reader = RecordReader(data)
    version = reader.number("h")
    if version not in KINDS:
        raise UnreadableRecordError(f"unknown key version {version}")
    kind = Kind(version)
    group_id = reader.text()
    name = "" if kind in _WITHOUT_NAME else reader.text()
    return RecordKey(kind=kind, group_id=group_id, name=name)


def decode_record_value(kind: Kind, data: bytes) -> Value:
    """Decodes the value of a record.

    Raises:
        UnreadableRecordError: The bytes are malformed.
    """
    reader = FlexibleReader(data)
    version = reader.number("h")
    if version != VALUE_VERSION:
        raise UnreadableRecordError(f"unknown value version {version}")
    found = _DECODERS[kind](reader)
    if kind not in _WITH_TAGS:
        reader.tags()
    return found


# --- values ----------------------------------------------------------------------------------------------


def _encode_value(value: Value) -> bytes:
    writer = FlexibleWriter()
    writer.number("h", VALUE_VERSION)
    if isinstance(value, GroupEpoch):
        writer.number("i", value.epoch)
        tagged = FlexibleWriter().number("q", value.metadata_hash).done()
        writer.tags({_HASH_TAG: tagged} if value.metadata_hash else {})
    elif isinstance(value, int):
        writer.number("i", value).tags({})
    elif isinstance(value, frozenset):
        _write_partitions(writer, value)
        writer.tags({})
    elif isinstance(value, Subscription):
        _write_subscription(writer, value)
    elif isinstance(value, Progress):
        writer.number("i", value.epoch).number("i", value.previous_epoch)
        writer.number("b", value.state)
        _write_partitions(writer, value.assigned)
        _write_partitions(writer, value.revoking)
        writer.tags({})
    elif isinstance(value, ResolvedRegex):
        writer.texts(value.topics).number("q", value.version).number("q", value.resolved_ms)
        writer.tags({})
    else:
        writer.count(len(value))
        for topic in value:
            # The racks of partitions are not used, so the list of them is empty, as Kafka 4.0 writes it.
            writer.uuid(topic.topic_id).text(topic.name).number("i", topic.count).count(0).tags({})
        writer.tags({})
    return writer.done()


def _write_partitions(writer: FlexibleWriter, partitions: Partitions) -> None:
    topics = by_topic(partitions)
    writer.count(len(topics))
    for topic_id, indexes in topics.items():
        writer.uuid(topic_id).count(len(indexes))
        for index in indexes:
            writer.number("i", index)
        writer.tags({})


def _read_partitions(reader: FlexibleReader) -> Partitions:
    topics: dict[UUID, list[int]] = {}
    for _ in range(reader.count()):
        topic_id = reader.uuid()
        topics.setdefault(topic_id, []).extend(reader.number("i") for _ in range(reader.count()))
        reader.tags()
    return from_topics(topics)


def _write_subscription(writer: FlexibleWriter, value: Subscription) -> None:
    writer.nullable_text(value.instance_id).nullable_text(value.rack_id)
    writer.text(value.client_id).text(value.client_host)
    writer.texts(value.topics).nullable_text(value.regex)
    writer.number("i", value.rebalance_timeout_ms).nullable_text(value.assignor)
    if value.classic is None:
        writer.tags({})
        return
    tagged = FlexibleWriter().present().number("i", value.classic.session_timeout_ms)
    tagged.count(len(value.classic.protocols))
    for name, subscription in value.classic.protocols:
        tagged.text(name).data(subscription).tags({})
    writer.tags({_CLASSIC_TAG: tagged.tags({}).done()})


def _read_subscription(reader: FlexibleReader) -> Subscription:
    instance_id, rack_id = reader.nullable_text(), reader.nullable_text()
    client_id, client_host = reader.text(), reader.text()
    topics, regex = reader.texts(), reader.nullable_text()
    rebalance_timeout_ms, assignor = reader.number("i"), reader.nullable_text()
    tagged = reader.tags().get(_CLASSIC_TAG)
    return Subscription(
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        topics=topics,
        regex=regex or "",
        rebalance_timeout_ms=rebalance_timeout_ms,
        assignor=assignor,
        classic=None if tagged is None else _read_classic(FlexibleReader(tagged)),
    )


def _read_classic(reader: FlexibleReader) -> ClassicProtocols | None:
    if not reader.is_present():
        return None
    session_timeout_ms = reader.number("i")
    protocols = []
    for _ in range(reader.count()):
        protocols.append((reader.text(), reader.data()))
        reader.tags()
    return ClassicProtocols(session_timeout_ms=session_timeout_ms, protocols=tuple(protocols))


def _read_group_epoch(reader: FlexibleReader) -> GroupEpoch:
    epoch = reader.number("i")
    tagged = reader.tags().get(_HASH_TAG)
    metadata_hash = 0 if tagged is None else FlexibleReader(tagged).number("q")
    return GroupEpoch(epoch=epoch, metadata_hash=metadata_hash)


def _read_topics(reader: FlexibleReader) -> Topics:
    found = []
    for _ in range(reader.count()):
        topic_id, name, count = reader.uuid(), reader.text(), reader.number("i")
        for _ in range(reader.count()):
            reader.number("i")
            reader.texts()
            reader.tags()
        reader.tags()
        found.append(StoredTopic(topic_id=topic_id, name=name, count=count))
    return tuple(found)


def _read_progress(reader: FlexibleReader) -> Progress:
    return Progress(
        epoch=reader.number("i"),
        previous_epoch=reader.number("i"),
        state=MemberState(reader.number("b")),
        assigned=_read_partitions(reader),
        revoking=_read_partitions(reader),
    )


def _read_regex(reader: FlexibleReader) -> ResolvedRegex:
    topics, version, resolved_ms = reader.texts(), reader.number("q"), reader.number("q")
    return ResolvedRegex(topics=topics, version=version, resolved_ms=resolved_ms)


_DECODERS: Mapping[Kind, Callable[[FlexibleReader], Value]] = {
    Kind.GROUP_EPOCH: _read_group_epoch,
    Kind.TOPICS: _read_topics,
    Kind.SUBSCRIPTION: _read_subscription,
    Kind.TARGET_EPOCH: lambda reader: reader.number("i"),
    Kind.TARGET: _read_partitions,
    Kind.PROGRESS: _read_progress,
    Kind.REGEX: _read_regex,
}
