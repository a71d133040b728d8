"""The records of `__consumer_offsets`: committed offsets and group metadata, in Kafka's own formats.

A key begins with a version that determines the kind of record: 0 and 1 an offset, 2 a group. A record without a
value deletes the entry of its key. Values of both kinds are written in version 3; other versions are not
expected in a log that only this code writes.

Source:
    Kafka's OffsetCommitKey/Value.json and GroupMetadataKey/Value.json.
"""

import struct
from dataclasses import dataclass
from typing import Self

OFFSET_KEY_VERSION = 1
FLEXIBLE_OFFSET_VERSION = 4
"""Version of an offset's value that brokers write from Apache Kafka 4.1 on."""
GROUP_KEY_VERSION = 2
VALUE_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetKey:
    """Identifies a committed offset."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """A committed offset.

    Attributes:
        leader_epoch: Epoch of the last record before the offset, -1 if the client did not send it.
        metadata: Free text of the client.
        committed_ms: Wall clock of the coordinator at the commit.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMember:
    """A member as stored in the log."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """A generation of a group as stored in the log."""

    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: str | None
    changed_ms: int
    members: tuple[StoredMember, ...]


class UnreadableRecordError(ValueError):
    """Bytes in the offsets topic that are not one of its records."""


class RecordWriter:
    """Writes one key or value."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def raw(self, value: bytes) -> Self:
        """Writes bytes without their length."""
        self._parts.append(value)
        return self

    def number(self, form: str, value: int) -> Self:
        """Writes a number in a form of `struct`."""
        return self.raw(struct.pack(">" + form, value))

    def text(self, value: str | None) -> Self:
        """Writes a text; None is null."""
        if value is None:
            return self.number("h", -1)
        data = value.encode()
        return self.number("h", len(data)).raw(data)

    def data(self, value: bytes) -> Self:
        """Writes bytes."""
        return self.number("i", len(value)).raw(value)

    def done(self) -> bytes:
        """Returns everything that was written."""
        return b"".join(self._parts)


class RecordReader:
    """Reads one key or value. Every method raises `UnreadableRecordError` if the bytes are not what it reads."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def left(self) -> int:
        """Number of bytes that were not read yet."""
        return len(self._data) - self._position

    def raw(self, count: int) -> bytes:
        """Reads a number of bytes."""
        end = self._position + count
        if count < 0 or end > len(self._data):
            raise UnreadableRecordError(f"{count} bytes are missing at position {self._position}")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def number(self, form: str) -> int:
        """Reads a number in a form of `struct`."""
        form = ">" + form
        value: int = struct.unpack(form, self.raw(struct.calcsize(form)))[0]
        return value

    def text(self) -> str:
        """Reads a text."""
        value = self.nullable_text()
        if value is None:
            raise UnreadableRecordError("a required text is null")
        return value

    def nullable_text(self) -> str | None:
        """Reads a text that may be null."""
        size = self.number("h")
        return None if size == -1 else self.decoded(self.raw(size))

    def compact_text(self) -> str:
        """Reads a text whose length plus one is an unsigned varint."""
        size, shift = 0, 0
        while (byte := self.number("B")) >= 0x80 and shift < 28:
            size |= (byte & 0x7F) << shift
            shift += 7
        return self.decoded(self.raw((size | byte << shift) - 1))

    def decoded(self, data: bytes) -> str:
        """Returns bytes as text."""
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise UnreadableRecordError("a text is not UTF-8") from None

    def data(self) -> bytes:
        """Reads bytes."""
        return self.raw(self.number("i"))


def encode_key(key: OffsetKey | str) -> bytes:
    """Encodes the key of an offset, or of a group (its id)."""
    if isinstance(key, str):
        return RecordWriter().number("h", GROUP_KEY_VERSION).text(key).done()
    writer = RecordWriter().number("h", OFFSET_KEY_VERSION).text(key.group).text(key.topic)
    return writer.number("i", key.partition).done()


def decode_key(data: bytes) -> OffsetKey | str:
    """Decodes the key of an offset, or of a group (its id).

    Raises:
        UnreadableRecordError: The key is neither.
    """
    reader = RecordReader(data)
    version = reader.number("h")
    if version in (0, OFFSET_KEY_VERSION):
        return OffsetKey(group=reader.text(), topic=reader.text(), partition=reader.number("i"))
    if version == GROUP_KEY_VERSION:
        return reader.text()
    raise UnreadableRecordError(f"unknown key version {version}")


def encode_offset(value: CommittedOffset) -> bytes:
    """Encodes the value of an offset."""
    writer = RecordWriter().number("h", VALUE_VERSION).number("q", value.offset)
    writer.number("i", value.leader_epoch).text(value.metadata)
    return writer.number("q", value.committed_ms).done()


def decode_offset(data: bytes) -> CommittedOffset:
    """Decodes the value of an offset, in any version that Apache Kafka has written.

    What follows the time of the commit is not used: the expiration time of version 1, and the topic id in the
    tagged fields of version 4.

    Raises:
        UnreadableRecordError: The bytes are malformed.
    """
    reader = RecordReader(data)
    version = reader.number("h")
    if not 0 <= version <= FLEXIBLE_OFFSET_VERSION:
        raise UnreadableRecordError(f"unknown value version {version}")
    return CommittedOffset(
        offset=reader.number("q"),
        leader_epoch=reader.number("i") if version >= VALUE_VERSION else -1,
        metadata=reader.compact_text() if version == FLEXIBLE_OFFSET_VERSION else reader.text(),
        committed_ms=reader.number("q"),
    )


def encode_group(value: StoredGroup) -> bytes:
    """Encodes the value of a group."""
    writer = RecordWriter().number("h", VALUE_VERSION).text(value.protocol_type)
    writer.number("i", value.generation).text(value.protocol_name).text(value.leader)
    writer.number("q", value.changed_ms).number("i", len(value.members))
    for member in value.members:
        writer.text(member.member_id).text(member.instance_id).text(member.client_id)
        writer.text(member.client_host).number("i", member.rebalance_timeout_ms)
        writer.number("i", member.session_timeout_ms)
        writer.data(member.subscription).data(member.assignment)
    return writer.done()


def decode_group(data: bytes) -> StoredGroup:
    """Decodes the value of a group.

    Raises:
        UnreadableRecordError: The bytes are malformed.
    """
    reader = RecordReader(data)
    _check_version(reader)
    protocol_type = reader.text()
    generation = reader.number("i")
    protocol_name = reader.nullable_text()
    leader = reader.nullable_text()
    changed_ms = reader.number("q")
    members = tuple(_read_member(reader) for _ in range(reader.number("i")))
    return StoredGroup(
        protocol_type=protocol_type,
        generation=generation,
        protocol_name=protocol_name,
        leader=leader,
        changed_ms=changed_ms,
        members=members,
    )


def _read_member(reader: RecordReader) -> StoredMember:
    return StoredMember(
        member_id=reader.text(),
        instance_id=reader.nullable_text(),
        client_id=reader.text(),
        client_host=reader.text(),
        rebalance_timeout_ms=reader.number("i"),
        session_timeout_ms=reader.number("i"),
        subscription=reader.data(),
        assignment=reader.data(),
    )


def _check_version(reader: RecordReader) -> None:
    version = reader.number("h")
    if version != VALUE_VERSION:
        raise UnreadableRecordError(f"unknown value version {version}")


def java_hash(text: str) -> int:
    """Returns Java's `String.hashCode`, from which Kafka computes the offsets partition of a group."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[index : index + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def offsets_partition(group: str, count: int) -> int:
    """Returns the partition of the offsets topic that holds a group's records."""
    # Like Kafka's Utils.abs: clears the sign bit instead of negating the number.
    return (java_hash(group) & 0x7FFFFFFF) % count
