"""Encodes and decodes metadata records and their batches.

A record is framed as Kafka frames it: three unsigned varints (frame version, record type, record version)
and then the fields in Kafka's flexible encoding: compact strings and arrays, and a section of tagged fields
in which a field that has its default value is left out. Types, versions, field order and tags are those of
Kafka's metadata schemas. They are written down once, in the table `_SCHEMAS`, which drives reading and writing.

One difference from Kafka: an "unchanged" array of uuids is absent and an empty one is written out; Kafka does not
distinguish the two in `BrokerRegistrationChangeRecord`. Older versions are read, because Apache Kafka writes the
smallest version that has all fields. Its records about things that do not exist here are read as `IgnoredRecord`
if nothing depends on them (`_IGNORED`), and are refused by name otherwise (`_REFUSED`).

A batch of records is one record batch v2 whose values are framed records. A `LeaderChangeRecord` is a
separate control batch: key (version, type 2), value a LeaderChangeMessage.

Source:
    Kafka's `MetadataRecordSerde`, `common/metadata/*.json`, `LeaderChangeMessage.json`.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from system_under_test.metadata.records import (
    LEADER_UNCHANGED,
    RECOVERED,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    IgnoredRecord,
    LeaderChangeRecord,
    MetadataBatch,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from system_under_test.protocol.metadata_fields import (
    BOOL,
    BYTE,
    ENDPOINTS,
    FEATURES_AND_RACK,
    FENCED_CHANGE,
    INT,
    INT16_FORM,
    INT32_FORM,
    INTS,
    LONG,
    NEVER_TRUE,
    NULLABLE_STRING,
    SHORT,
    SHUTDOWN_CHANGE,
    STRING,
    UUID_,
    UUIDS,
    FieldType,
    Reader,
    write_int32,
    write_uvarint,
)
from system_under_test.protocol.record_batch import CorruptBatchError, decode_records, encode_batch

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = UUID(int=1)

FRAME_VERSION = 1
LEADER_CHANGE_TYPE = 2
"""Kafka's ControlRecordType.LEADER_CHANGE."""
KRAFT_VERSION_TYPE = 5
KRAFT_VOTERS_TYPE = 6
"""Kafka's ControlRecordType.KRAFT_VERSION and KRAFT_VOTERS (KIP-853)."""
CACHED_BYTES_MAX = 2048
"""Larger runs of batches are read once, at start-up, and are not kept."""

_DYNAMIC_VOTERS = (
    "metadata log: its quorum has dynamic voters (kraft.version 1), which this system does not support; "
    "use a quorum that controller.quorum.voters defines"
)
_CONTROL_KEY = struct.Struct(">hh")


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
    write_uvarint(out, FRAME_VERSION)
    write_uvarint(out, schema.type_id)
    write_uvarint(out, schema.version)
    _write_fields(out, record, schema)
    return bytes(out)


def decode_record(data: bytes) -> MetadataRecord:
    """Decodes one framed record.

    Raises:
        ValueError: The bytes are not such a record, or bytes are left over.
    """
    reader = Reader(data)
    frame_version = reader.uvarint()
    type_id = reader.uvarint()
    version = reader.uvarint()
    if frame_version != FRAME_VERSION:
        raise ValueError(f"metadata record: frame version {frame_version} is not known")
    if type_id in _IGNORED:
        return IgnoredRecord(type_id=type_id)
    found = _BY_TYPE_ID.get(type_id)
    if found is None:
        name = _REFUSED.get(type_id, f"type {type_id}")
        raise ValueError(f"metadata record: {name} is not supported by this system")
    record_type, newest = found
    schema = newest if version == newest.version else _OLDER.get((type_id, version))
    if schema is None:
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
        timestamp_ms: Wall clock of the writer; no decision depends on it.
        base_offset: Offset of the first record; the log may stamp another one.
        quorum_epoch: Epoch of the quorum leader.

    Raises:
        ValueError: There are no records, or a record cannot be encoded.
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


def decode_metadata_batches(data: bytes) -> tuple[MetadataBatch, ...]:
    """Decodes all whole batches in a run of bytes, in order. A trailing partial batch is ignored.

    Raises:
        ValueError: A batch is corrupt or holds something that is not a metadata record.
    """
    if len(data) <= CACHED_BYTES_MAX:
        return _decode_cached(bytes(data))
    return _decode_batches(data)


def _decode_batches(data: bytes) -> tuple[MetadataBatch, ...]:
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
    return tuple(batches)


# In a simulation every node of the cluster decodes the same few bytes at every commit. The values are
# frozen all the way down, so they may share them.
_decode_cached = lru_cache(maxsize=256)(_decode_batches)


# --- control records -----------------------------------------------------------------------------------


def _encode_leader_change(record: LeaderChangeRecord) -> bytes:
    out = bytearray(INT16_FORM.pack(0))
    write_int32(out, record.leader_id)
    write_uvarint(out, len(record.voters) + 1)
    for voter in record.voters:
        write_int32(out, voter)
        write_uvarint(out, 0)
    # The voters that granted their vote: for people who read the log; nothing here uses it.
    write_uvarint(out, 1)
    write_uvarint(out, 0)
    return bytes(out)


def _decode_control_record(
    key: bytes | None, value: bytes | None
) -> LeaderChangeRecord | IgnoredRecord:
    name = "LeaderChangeRecord"
    if key is None or len(key) != _CONTROL_KEY.size:
        raise ValueError("metadata log: a control record without a control key")
    control_type = _CONTROL_KEY.unpack(key)[1]
    if control_type == KRAFT_VERSION_TYPE:
        _require_static_voters(value or b"")
        return IgnoredRecord(type_id=control_type)
    if control_type == KRAFT_VOTERS_TYPE:
        raise ValueError(_DYNAMIC_VOTERS)
    if control_type != LEADER_CHANGE_TYPE:
        raise ValueError(f"metadata log: control record type {control_type} is not known")
    reader = Reader(value or b"")
    version = reader.unpack(INT16_FORM)
    if version != 0:
        raise ValueError(f"{name}: version {version} is not known")
    leader_id = reader.unpack(INT32_FORM)
    voters = _read_voters(reader, name)
    _read_voters(reader, name)
    reader.expect_no_tags(name)
    reader.expect_end(name)
    return LeaderChangeRecord(leader_id=leader_id, voters=voters)


def _require_static_voters(value: bytes) -> None:
    reader = Reader(value)
    reader.unpack(INT16_FORM)
    if reader.unpack(INT16_FORM) != 0:
        raise ValueError(_DYNAMIC_VOTERS)


def _read_voters(reader: Reader, name: str) -> tuple[int, ...]:
    voters = []
    for _ in range(reader.array_length(name)):
        voters.append(reader.unpack(INT32_FORM))
        reader.expect_no_tags(name)
    return tuple(voters)


# --- schemas -------------------------------------------------------------------------------------------

_NOT_A_FIELD = ""
"""Name of something that is on the wire but not in our record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """One field. With a tag it is left out when it has its default value."""

    name: str
    type: FieldType
    tag: int = -1
    default: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Schema:
    """The fields of one record: plain ones in Kafka's order, tagged ones by tag."""

    type_id: int
    version: int
    plain: tuple[_Field, ...]
    tagged: tuple[_Field, ...] = ()


def _plain(name: str, type_: FieldType) -> _Field:
    return _Field(name=name, type=type_)


def _tagged(tag: int, name: str, type_: FieldType, default: Any = None) -> _Field:
    return _Field(name=name, type=type_, tag=tag, default=default)


_SCHEMAS: dict[type[Any], _Schema] = {
    RegisterBrokerRecord: _Schema(
        type_id=0,
        version=3,
        plain=(
            _plain("broker_id", INT),
            _plain(_NOT_A_FIELD, NEVER_TRUE),
            _plain("incarnation_id", UUID_),
            _plain("broker_epoch", LONG),
            _plain("address", ENDPOINTS),
            _plain(_NOT_A_FIELD, FEATURES_AND_RACK),
            _plain("fenced", BOOL),
            _plain("in_controlled_shutdown", BOOL),
        ),
        tagged=(_tagged(0, "log_dirs", UUIDS, ()),),
    ),
    UnregisterBrokerRecord: _Schema(
        type_id=1,
        version=0,
        plain=(_plain("broker_id", INT), _plain("broker_epoch", LONG)),
    ),
    TopicRecord: _Schema(
        type_id=2, version=0, plain=(_plain("name", STRING), _plain("topic_id", UUID_))
    ),
    PartitionRecord: _Schema(
        type_id=3,
        version=2,
        plain=(
            _plain("partition_id", INT),
            _plain("topic_id", UUID_),
            _plain("replicas", INTS),
            _plain("isr", INTS),
            _plain("removing_replicas", INTS),
            _plain("adding_replicas", INTS),
            _plain("leader", INT),
            _plain("leader_epoch", INT),
            _plain("partition_epoch", INT),
            _plain("directories", UUIDS),
        ),
        tagged=(
            _tagged(0, "leader_recovery_state", BYTE, RECOVERED),
            _tagged(1, "eligible_leader_replicas", INTS, ()),
            _tagged(2, "last_known_elr", INTS, ()),
        ),
    ),
    ConfigRecord: _Schema(
        type_id=4,
        version=0,
        plain=(
            _plain("resource_type", BYTE),
            _plain("resource_name", STRING),
            _plain("name", STRING),
            _plain("value", NULLABLE_STRING),
        ),
    ),
    PartitionChangeRecord: _Schema(
        type_id=5,
        version=2,
        plain=(_plain("partition_id", INT), _plain("topic_id", UUID_)),
        tagged=(
            _tagged(0, "isr", INTS),
            _tagged(1, "leader", INT, LEADER_UNCHANGED),
            _tagged(2, "replicas", INTS),
            _tagged(3, "removing_replicas", INTS),
            _tagged(4, "adding_replicas", INTS),
            _tagged(5, "leader_recovery_state", BYTE),
            _tagged(6, "eligible_leader_replicas", INTS),
            _tagged(7, "last_known_elr", INTS),
            _tagged(8, "directories", UUIDS),
        ),
    ),
    RemoveTopicRecord: _Schema(type_id=9, version=0, plain=(_plain("topic_id", UUID_),)),
    FeatureLevelRecord: _Schema(
        type_id=12, version=0, plain=(_plain("name", STRING), _plain("feature_level", SHORT))
    ),
    ProducerIdsRecord: _Schema(
        type_id=15,
        version=0,
        plain=(
            _plain("broker_id", INT),
            _plain("broker_epoch", LONG),
            _plain("next_producer_id", LONG),
        ),
    ),
    BrokerRegistrationChangeRecord: _Schema(
        type_id=17,
        version=2,
        plain=(_plain("broker_id", INT), _plain("broker_epoch", LONG)),
        tagged=(
            _tagged(0, "fenced", FENCED_CHANGE),
            _tagged(1, "in_controlled_shutdown", SHUTDOWN_CHANGE),
            _tagged(2, "log_dirs", UUIDS),
        ),
    ),
    NoOpRecord: _Schema(type_id=20, version=0, plain=()),
    ClearElrRecord: _Schema(type_id=28, version=0, plain=(_plain("topic_name", STRING),)),
}
_BY_TYPE_ID = {schema.type_id: (type_, schema) for type_, schema in _SCHEMAS.items()}


def _without(schema: _Schema, version: int, *names: str) -> _Schema:
    """Returns an older version of a schema, which lacks plain fields. Tags it cannot have simply do not occur."""
    return _Schema(
        type_id=schema.type_id,
        version=version,
        plain=tuple(field for field in schema.plain if field.name not in names),
        tagged=schema.tagged,
    )


_REGISTRATION = _SCHEMAS[RegisterBrokerRecord]
_REGISTRATION_1 = _Schema(
    type_id=0,
    version=1,
    plain=tuple(field for field in _REGISTRATION.plain if field.type is not NEVER_TRUE),
)
_PARTITION = _SCHEMAS[PartitionRecord]
_OLDER = {
    (schema.type_id, schema.version): schema
    for schema in (
        _without(_REGISTRATION_1, 0, "in_controlled_shutdown"),
        _REGISTRATION_1,
        _without(_REGISTRATION, 2),
        _without(_PARTITION, 0, "directories"),
        _without(_PARTITION, 1),
        _without(_SCHEMAS[PartitionChangeRecord], 0),
        _without(_SCHEMAS[PartitionChangeRecord], 1),
        _without(_SCHEMAS[BrokerRegistrationChangeRecord], 0),
        _without(_SCHEMAS[BrokerRegistrationChangeRecord], 1),
    )
}
"""Older versions by type and version."""
_IGNORED = {21: "ZkMigrationStateRecord", 23: "BeginTransactionRecord", 24: "EndTransactionRecord"}
_IGNORED |= {27: "RegisterControllerRecord"}
"""Nothing here depends on them. Records of a metadata transaction (KIP-868) count without waiting for its end;
Kafka uses one to write the first records of a cluster, which no node reads before the end is committed."""
_REFUSED = {
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    14: "ClientQuotaRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    22: "RemoveUserScramCredentialRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
}
"""Ignoring them would drop permissions, credentials or quotas, or keep what was aborted."""


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
            write_uvarint(tags, field.tag)
            write_uvarint(tags, len(content))
            tags += content
            count += 1
    except (struct.error, TypeError, AttributeError) as error:
        raise ValueError(f"{type(record).__name__} cannot be encoded: {error}") from error
    write_uvarint(out, count)
    out += tags


def _read_fields(reader: Reader, name: str, schema: _Schema) -> dict[str, Any]:
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
        content = Reader(reader.take(size))
        values[known.name] = known.type.read(content, name)
        content.expect_end(name)
    return values
