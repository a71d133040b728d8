"""The byte form of metadata records, and of the batches they travel in.

A record is framed as Kafka frames it: three unsigned varints (frame version, record type, record version)
and then the fields in Kafka's flexible encoding: compact strings and arrays, and a section of tagged fields
in which a field that has its default value is left out. Types, versions, field order and tags are those of
Kafka's metadata schemas, written down once in `_SCHEMAS`; reading and writing are driven by that table.

Two departures: an array of uuids that is "unchanged" is absent and an empty one is written out (Kafka
cannot tell the two apart in `BrokerRegistrationChangeRecord`), and only the listed version of each record
is understood, because nothing older is ever stored.

A batch of records is one record batch v2 whose values are framed records. A `LeaderChangeRecord` is a
control batch of its own: key (version, type 2), value a LeaderChangeMessage.

Source:
    Kafka's `MetadataRecordSerde`, `common/metadata/*.json`, `LeaderChangeMessage.json`.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from system_under_test.metadata.records import (
    LEADER_UNCHANGED,
    RECOVERED,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    LeaderChangeRecord,
    MetadataBatch,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from system_under_test.protocol.record_batch import CorruptBatchError, decode_records, encode_batch

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = UUID(int=1)

FRAME_VERSION = 1
LEADER_CHANGE_TYPE = 2
"""Kafka's ControlRecordType.LEADER_CHANGE."""
MAX_VARINT_BYTES = 5
"""An unsigned varint holds at most 35 bits here, as in Kafka's ByteUtils."""

_CONTROL_KEY = struct.Struct(">hh")
_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


def encode_record(record: MetadataRecord) -> bytes:
    """Encodes one framed record.

    Raises:
        ValueError: A value does not fit its field, or the record is a `LeaderChangeRecord`, which has no
            frame because it is the content of a control batch.
    """
    schema = _SCHEMAS.get(type(record))
    if schema is None:
        raise ValueError(f"{type(record).__name__} is not a framed metadata record")
    out = bytearray()
    _write_uvarint(out, FRAME_VERSION)
    _write_uvarint(out, schema.type_id)
    _write_uvarint(out, schema.version)
    _write_fields(out, record, schema)
    return bytes(out)


def decode_record(data: bytes) -> MetadataRecord:
    """Decodes one framed record.

    Raises:
        ValueError: The bytes are no such record, or bytes are left over.
    """
    reader = _Reader(data)
    frame_version = reader.uvarint()
    type_id = reader.uvarint()
    version = reader.uvarint()
    if frame_version != FRAME_VERSION:
        raise ValueError(f"metadata record: frame version {frame_version} is not known")
    found = _BY_TYPE_ID.get(type_id)
    if found is None:
        raise ValueError(f"metadata record: type {type_id} is not known")
    record_type, schema = found
    if version != schema.version:
        raise ValueError(f"{record_type.__name__}: version {version} is not known")
    values = _read_fields(reader, record_type.__name__, schema)
    reader.expect_end(record_type.__name__)
    record: MetadataRecord = record_type(**values)
    return record


def encode_metadata_batch(
    records: Sequence[MetadataRecord], *, timestamp_ms: int, base_offset: int, quorum_epoch: int
) -> bytes:
    """Encodes records that belong together as one record batch.

    Args:
        records: At least one; a `LeaderChangeRecord` only alone.
        timestamp_ms: Wall clock of the writer; nothing is decided by it.
        base_offset: Offset of the first record; the log may stamp another one.
        quorum_epoch: Epoch of the quorum leader.

    Raises:
        ValueError: There is nothing to encode, or a record cannot be encoded.
    """
    if not records:
        raise ValueError("a metadata batch holds at least one record")
    first = records[0]
    if isinstance(first, LeaderChangeRecord):
        if len(records) != 1:
            raise ValueError("a LeaderChangeRecord is alone in its batch")
        pairs = [(_CONTROL_KEY.pack(0, LEADER_CHANGE_TYPE), _encode_leader_change(first))]
        is_control = True
    else:
        pairs = [(None, encode_record(record)) for record in records]  # type: ignore[misc]
        is_control = False
    return encode_batch(
        pairs,
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=quorum_epoch,
        is_control=is_control,
    )


def decode_metadata_batches(data: bytes) -> list[MetadataBatch]:
    """Decodes all whole batches in a run of bytes, in order. A trailing partial batch is ignored.

    Raises:
        ValueError: A batch is corrupt or holds something that is not a metadata record.
    """
    try:
        decoded = decode_records(data)
    except CorruptBatchError as error:
        raise ValueError(f"metadata log: {error}") from error
    batches = []
    for header, records in decoded:
        if header.is_control:
            values: tuple[MetadataRecord, ...] = tuple(
                _decode_control_record(record.key, record.value) for record in records
            )
        else:
            values = tuple(decode_record(record.value or b"") for record in records)
        batches.append(
            MetadataBatch(
                base_offset=header.base_offset, quorum_epoch=header.leader_epoch, records=values
            )
        )
    return batches


# --- control records -----------------------------------------------------------------------------------


def _encode_leader_change(record: LeaderChangeRecord) -> bytes:
    out = bytearray(_INT16.pack(0))
    _write_int32(out, record.leader_id)
    _write_uvarint(out, len(record.voters) + 1)
    for voter in record.voters:
        _write_int32(out, voter)
        _write_uvarint(out, 0)
    # The voters that granted their vote: for people who read the log; nothing here uses it.
    _write_uvarint(out, 1)
    _write_uvarint(out, 0)
    return bytes(out)


def _decode_control_record(key: bytes | None, value: bytes | None) -> LeaderChangeRecord:
    name = "LeaderChangeRecord"
    if key is None or len(key) != _CONTROL_KEY.size:
        raise ValueError("metadata log: a control record without a control key")
    control_type = _CONTROL_KEY.unpack(key)[1]
    if control_type != LEADER_CHANGE_TYPE:
        raise ValueError(f"metadata log: control record type {control_type} is not known")
    reader = _Reader(value or b"")
    version = reader.unpack(_INT16)
    if version != 0:
        raise ValueError(f"{name}: version {version} is not known")
    leader_id = reader.unpack(_INT32)
    voters = _read_voters(reader, name)
    _read_voters(reader, name)
    reader.expect_no_tags(name)
    reader.expect_end(name)
    return LeaderChangeRecord(leader_id=leader_id, voters=voters)


def _read_voters(reader: "_Reader", name: str) -> tuple[int, ...]:
    voters = []
    for _ in range(reader.array_length(name)):
        voters.append(reader.unpack(_INT32))
        reader.expect_no_tags(name)
    return tuple(voters)


# --- reading bytes -------------------------------------------------------------------------------------


class _Reader:
    """A position in bytes. Everything that does not fit is a ValueError."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.end = len(data)

    def take(self, size: int) -> bytes:
        start = self.position
        if size < 0 or start + size > self.end:
            raise ValueError(f"metadata record: {size} bytes wanted, {self.end - start} are left")
        self.position = start + size
        return self.data[start : self.position]

    def unpack(self, form: struct.Struct) -> int:
        value: int = form.unpack(self.take(form.size))[0]
        return value

    def uvarint(self) -> int:
        value = 0
        for index in range(MAX_VARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise ValueError("metadata record: a varint is too long")

    def array_length(self, name: str) -> int:
        length = self.uvarint() - 1
        if length < 0 or length > self.end - self.position:
            raise ValueError(f"{name}: an array of {length} elements cannot be")
        return length

    def expect_no_tags(self, name: str) -> None:
        if self.uvarint() != 0:
            raise ValueError(f"{name}: an unknown tagged field")

    def expect_end(self, name: str) -> None:
        if self.position != self.end:
            raise ValueError(f"{name}: {self.end - self.position} bytes left over")


# --- field types ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Type:
    """How one kind of field is written and read."""

    write: Callable[[bytearray, Any], None]
    read: Callable[[_Reader, str], Any]


def _write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _write_int32(out: bytearray, value: int) -> None:
    out += _INT32.pack(value)


def _integer(form: struct.Struct) -> _Type:
    def write(out: bytearray, value: Any) -> None:
        out += form.pack(value)

    return _Type(write=write, read=lambda reader, name: reader.unpack(form))


def _write_bool(out: bytearray, value: Any) -> None:
    out.append(1 if value else 0)


def _read_bool(reader: _Reader, name: str) -> bool:
    byte = reader.take(1)[0]
    if byte > 1:
        raise ValueError(f"{name}: {byte} is not a boolean")
    return byte == 1


def _write_string(out: bytearray, value: Any) -> None:
    encoded = value.encode()
    _write_uvarint(out, len(encoded) + 1)
    out += encoded


def _read_string(reader: _Reader, name: str) -> str:
    value = _read_nullable_string(reader, name)
    if value is None:
        raise ValueError(f"{name}: a string is null")
    return value


def _write_nullable_string(out: bytearray, value: Any) -> None:
    if value is None:
        out.append(0)
    else:
        _write_string(out, value)


def _read_nullable_string(reader: _Reader, name: str) -> str | None:
    length = reader.uvarint() - 1
    if length < 0:
        return None
    # UnicodeDecodeError is a ValueError.
    return reader.take(length).decode()


def _write_uuid(out: bytearray, value: Any) -> None:
    out += value.bytes


def _read_uuid(reader: _Reader, name: str) -> UUID:
    return UUID(bytes=reader.take(16))


def _array(element: _Type) -> _Type:
    def write(out: bytearray, value: Any) -> None:
        _write_uvarint(out, len(value) + 1)
        for item in value:
            element.write(out, item)

    def read(reader: _Reader, name: str) -> tuple[Any, ...]:
        return tuple(element.read(reader, name) for _ in range(reader.array_length(name)))

    return _Type(write=write, read=read)


def _write_fenced_change(out: bytearray, value: Any) -> None:
    # Kafka: 1 = FENCE, -1 = UNFENCE, 0 (absent) = unchanged.
    out += _INT8.pack(1 if value else -1)


def _read_fenced_change(reader: _Reader, name: str) -> bool | None:
    value = reader.unpack(_INT8)
    if value not in (-1, 0, 1):
        raise ValueError(f"{name}: {value} is not a fencing change")
    return None if value == 0 else value == 1


def _write_shutdown_change(out: bytearray, value: Any) -> None:
    # Kafka only knows 1 = IN_CONTROLLED_SHUTDOWN and 0 = unchanged; -1 is ours, for the way back.
    out += _INT8.pack(1 if value else -1)


def _write_endpoints(out: bytearray, value: Any) -> None:
    """An address "host:port" is a list of one endpoint, an empty address an empty list."""
    if not value:
        _write_uvarint(out, 1)
        return
    host, separator, port = value.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit():
        raise ValueError(f"address {value!r} is not host:port")
    _write_uvarint(out, 2)
    _write_string(out, "PLAINTEXT")
    _write_string(out, host)
    out += _UINT16.pack(int(port))
    out += _INT16.pack(0)
    _write_uvarint(out, 0)


def _read_endpoints(reader: _Reader, name: str) -> str:
    count = reader.array_length(name)
    if count > 1:
        raise ValueError(f"{name}: {count} endpoints, at most one is known here")
    if count == 0:
        return ""
    _read_string(reader, name)
    host = _read_string(reader, name)
    port = reader.unpack(_UINT16)
    reader.unpack(_INT16)
    reader.expect_no_tags(name)
    return f"{host}:{port}"


def _write_nothing_known(out: bytearray, value: Any) -> None:
    # Features (an empty array) and rack (null) of RegisterBrokerRecord: nobody here has any.
    out += b"\x01\x00"


def _read_nothing_known(reader: _Reader, name: str) -> None:
    if reader.take(2) != b"\x01\x00":
        raise ValueError(f"{name}: features and racks are not known here")


_BYTE = _integer(_INT8)
_SHORT = _integer(_INT16)
_INT = _integer(_INT32)
_LONG = _integer(_INT64)
_BOOL = _Type(write=_write_bool, read=_read_bool)
_STRING = _Type(write=_write_string, read=_read_string)
_NULLABLE_STRING = _Type(write=_write_nullable_string, read=_read_nullable_string)
_UUID = _Type(write=_write_uuid, read=_read_uuid)
_INTS = _array(_INT)
_UUIDS = _array(_UUID)
_ENDPOINTS = _Type(write=_write_endpoints, read=_read_endpoints)
_NOTHING_KNOWN = _Type(write=_write_nothing_known, read=_read_nothing_known)
_FENCED_CHANGE = _Type(write=_write_fenced_change, read=_read_fenced_change)
_SHUTDOWN_CHANGE = _Type(write=_write_shutdown_change, read=_read_fenced_change)


# --- schemas -------------------------------------------------------------------------------------------

_NOT_A_FIELD = ""
"""Name of something that is on the wire but not in our record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """One field. With a tag it is left out when it has its default value."""

    name: str
    type: _Type
    tag: int = -1
    default: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Schema:
    """The fields of one record: plain ones in Kafka's order, tagged ones by tag."""

    type_id: int
    version: int
    plain: tuple[_Field, ...]
    tagged: tuple[_Field, ...] = ()


def _plain(name: str, type_: _Type) -> _Field:
    return _Field(name=name, type=type_)


def _tagged(tag: int, name: str, type_: _Type, default: Any = None) -> _Field:
    return _Field(name=name, type=type_, tag=tag, default=default)


_SCHEMAS: dict[type[Any], _Schema] = {
    RegisterBrokerRecord: _Schema(
        type_id=0,
        version=3,
        plain=(
            _plain("broker_id", _INT),
            _plain("incarnation_id", _UUID),
            _plain("broker_epoch", _LONG),
            _plain("address", _ENDPOINTS),
            _plain(_NOT_A_FIELD, _NOTHING_KNOWN),
            _plain("fenced", _BOOL),
            _plain("in_controlled_shutdown", _BOOL),
        ),
        tagged=(_tagged(1, "log_dirs", _UUIDS, ()),),
    ),
    UnregisterBrokerRecord: _Schema(
        type_id=1,
        version=0,
        plain=(_plain("broker_id", _INT), _plain("broker_epoch", _LONG)),
    ),
    TopicRecord: _Schema(
        type_id=2, version=0, plain=(_plain("name", _STRING), _plain("topic_id", _UUID))
    ),
    PartitionRecord: _Schema(
        type_id=3,
        version=2,
        plain=(
            _plain("partition_id", _INT),
            _plain("topic_id", _UUID),
            _plain("replicas", _INTS),
            _plain("isr", _INTS),
            _plain("removing_replicas", _INTS),
            _plain("adding_replicas", _INTS),
            _plain("leader", _INT),
            _plain("leader_epoch", _INT),
            _plain("partition_epoch", _INT),
            _plain("directories", _UUIDS),
        ),
        tagged=(
            _tagged(0, "leader_recovery_state", _BYTE, RECOVERED),
            _tagged(1, "eligible_leader_replicas", _INTS, ()),
            _tagged(2, "last_known_elr", _INTS, ()),
        ),
    ),
    ConfigRecord: _Schema(
        type_id=4,
        version=0,
        plain=(
            _plain("resource_type", _BYTE),
            _plain("resource_name", _STRING),
            _plain("name", _STRING),
            _plain("value", _NULLABLE_STRING),
        ),
    ),
    PartitionChangeRecord: _Schema(
        type_id=5,
        version=2,
        plain=(_plain("partition_id", _INT), _plain("topic_id", _UUID)),
        tagged=(
            _tagged(0, "isr", _INTS),
            _tagged(1, "leader", _INT, LEADER_UNCHANGED),
            _tagged(2, "replicas", _INTS),
            _tagged(3, "removing_replicas", _INTS),
            _tagged(4, "adding_replicas", _INTS),
            _tagged(5, "leader_recovery_state", _BYTE),
            _tagged(6, "eligible_leader_replicas", _INTS),
            _tagged(7, "last_known_elr", _INTS),
            _tagged(8, "directories", _UUIDS),
        ),
    ),
    RemoveTopicRecord: _Schema(type_id=9, version=0, plain=(_plain("topic_id", _UUID),)),
    FeatureLevelRecord: _Schema(
        type_id=12, version=0, plain=(_plain("name", _STRING), _plain("feature_level", _SHORT))
    ),
    BrokerRegistrationChangeRecord: _Schema(
        type_id=17,
        version=2,
        plain=(_plain("broker_id", _INT), _plain("broker_epoch", _LONG)),
        tagged=(
            _tagged(0, "fenced", _FENCED_CHANGE),
            _tagged(1, "in_controlled_shutdown", _SHUTDOWN_CHANGE),
            _tagged(2, "log_dirs", _UUIDS),
        ),
    ),
    NoOpRecord: _Schema(type_id=20, version=0, plain=()),
    ClearElrRecord: _Schema(type_id=28, version=0, plain=(_plain("topic_name", _STRING),)),
}
_BY_TYPE_ID = {schema.type_id: (type_, schema) for type_, schema in _SCHEMAS.items()}


def _write_fields(out: bytearray, record: Any, schema: _Schema) -> None:
    try:
        for field in schema.plain:
            field.type.write(out, getattr(record, field.name) if field.name else None)
        tags = bytearray()
        count = 0
        for field in schema.tagged:
            value = getattr(record, field.name)
            if value == field.default:
                continue
            content = bytearray()
            field.type.write(content, value)
            _write_uvarint(tags, field.tag)
            _write_uvarint(tags, len(content))
            tags += content
            count += 1
    except (struct.error, TypeError, AttributeError) as error:
        raise ValueError(f"{type(record).__name__} cannot be encoded: {error}") from error
    _write_uvarint(out, count)
    out += tags


def _read_fields(reader: _Reader, name: str, schema: _Schema) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in schema.plain:
        value = field.type.read(reader, name)
        if field.name:
            values[field.name] = value
    by_tag = {field.tag: field for field in schema.tagged}
    last_tag = -1
    for _ in range(reader.uvarint()):
        tag = reader.uvarint()
        size = reader.uvarint()
        known = by_tag.get(tag)
        if known is None or tag <= last_tag:
            raise ValueError(f"{name}: tag {tag} is unknown or out of order")
        last_tag = tag
        content = _Reader(reader.take(size))
        values[known.name] = known.type.read(content, name)
        content.expect_end(name)
    return values
