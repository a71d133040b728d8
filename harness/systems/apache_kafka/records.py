"""Reads Apache Kafka's metadata log.

A record that laststand replays becomes a record type of `system_under_test.metadata.records`. Every other record
is kept as it is: kind, version and bytes. This includes versions of known kinds that Kafka 3.4 to 4.4 do not
write. Their fields are not known, so nothing is read from them.

The log has control records besides: leader changes, the KRaft version, voters, and the header and footer of
snapshots. A metadata transaction is a pair of records around other records, which apply if the transaction ends
and do not apply if it is aborted.

Source:
    Kafka's schemas of metadata records and of control records; KIP-595, KIP-630, KIP-853, KIP-866, KIP-966.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.systems.apache_kafka.fields import Fields, Tags, tagged
from system_under_test.metadata.records import (
    LEADER_UNCHANGED,
    RECOVERED,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    LeaderChangeRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from system_under_test.protocol.record_batch import (
    BatchHeader,
    CorruptBatchError,
    Record,
    decode_records,
)

FRAME_VERSION = 1
KRAFT_VERSION_FEATURE = "kraft.version"

KIND_NAMES = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    9: "RemoveTopicRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
    29: "UnregisterControllerRecord",
}

CONTROL_NAMES = {
    2: "LeaderChangeMessage",
    3: "SnapshotHeaderRecord",
    4: "SnapshotFooterRecord",
    5: "KRaftVersionRecord",
    6: "VotersRecord",
}

_CONTROL_KEY = struct.Struct(">hh")


class DamagedRecordError(ValueError):
    """A metadata record cannot be read. The message names its offset and kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRecord:
    """A record that laststand does not replay: of another kind, or of a version that is not known.

    Attributes:
        kind: Kafka's number of the record type.
        version: Version of the record type.
        data: The fields.
    """

    kind: int
    version: int
    data: bytes

    @property
    def name(self) -> str:
        """The record type as far as it is known."""
        return KIND_NAMES.get(self.kind, f"record of kind {self.kind}")

    @property
    def is_of_image(self) -> bool:
        """Whether records of this kind change what laststand replays, so that skipping one loses something."""
        return self.kind in _READERS or self.kind in _TRANSACTION_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginTransactionRecord:
    """The records up to the end of the transaction apply together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRecord:
    """The records of the transaction apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTransactionRecord:
    """The records of the transaction do not apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersRecord:
    """The voters of the quorum (KIP-853)."""

    voters: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeaderRecord:
    """A snapshot begins."""

    last_contained_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFooterRecord:
    """A snapshot ends; without it the snapshot is not complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherControlRecord:
    """A control record of a type that is not known."""

    kind: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaBatch:
    """One batch of the metadata log.

    Attributes:
        base_offset, last_offset: Offsets of its first and last record.
        epoch: Epoch of the quorum leader that appended it.
        checksum: CRC of its content.
        records: One per offset, in order.
    """

    base_offset: int
    last_offset: int
    epoch: int
    checksum: int
    records: tuple[Any, ...]


def read_batches(data: bytes) -> list[KafkaBatch]:
    """Reads the whole batches of a run of bytes. An incomplete batch at the end is ignored.

    Raises:
        DamagedRecordError: A batch is damaged, or one of its records is.
    """
    try:
        decoded = decode_records(data)
    except CorruptBatchError as error:
        raise DamagedRecordError(f"metadata log: {error}") from None
    return [_batch(header, records) for header, records in decoded]


def _batch(header: BatchHeader, records: tuple[Record, ...]) -> KafkaBatch:
    read = _control if header.is_control else _framed
    expected = range(header.base_offset, header.last_offset + 1)
    if [record.offset for record in records] != list(expected):
        raise DamagedRecordError(
            f"metadata log: the batch at offset {header.base_offset} has {len(records)} records for"
            f" {len(expected)} offsets"
        )
    return KafkaBatch(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        epoch=header.leader_epoch,
        checksum=header.crc,
        records=tuple(read(record) for record in records),
    )


def decode_record(data: bytes) -> Any:
    """Reads one framed record.

    Raises:
        ValueError: The bytes are not a record of the kind and version that they announce.
    """
    kind, version, fields = _frame(data)
    simple = _TRANSACTION_KINDS.get(kind)
    if simple is not None and version == 0:
        fields.tags()
        fields.expect_end(KIND_NAMES[kind])
        return simple()
    known = _READERS.get(kind)
    if known is None or version > known[0]:
        return OtherRecord(kind=kind, version=version, data=data[fields.position :])
    record = known[1](fields, version)
    fields.expect_end(KIND_NAMES[kind])
    return record


def _frame(data: bytes) -> tuple[int, int, Fields]:
    fields = Fields(data)
    frame_version = fields.uvarint()
    if frame_version != FRAME_VERSION:
        raise ValueError(f"frame version {frame_version} is not known")
    return fields.uvarint(), fields.uvarint(), fields


def _framed(record: Record) -> Any:
    data = record.value or b""
    try:
        return decode_record(data)
    except ValueError as error:
        raise DamagedRecordError(
            f"metadata log, offset {record.offset}: {_described(data)} cannot be read: {error}"
        ) from None


def _described(data: bytes) -> str:
    """Returns kind and version of a record that cannot be read, as far as they can be read."""
    try:
        kind, version, _ = _frame(data)
    except ValueError:
        return "a record of unknown kind"
    return f"a {KIND_NAMES.get(kind, 'record')} (kind {kind}, version {version})"


def _control(record: Record) -> Any:
    key, value = record.key or b"", record.value or b""
    if len(key) != _CONTROL_KEY.size:
        raise DamagedRecordError(
            f"metadata log, offset {record.offset}: a control record has a key of {len(key)} bytes"
        )
    kind = _CONTROL_KEY.unpack(key)[1]
    read = _CONTROL_READERS.get(kind)
    if read is None:
        return OtherControlRecord(kind=kind, data=value)
    fields = Fields(value)
    try:
        made = read(fields)
        if not isinstance(made, OtherControlRecord):
            fields.expect_end(CONTROL_NAMES[kind])
    except ValueError as error:
        raise DamagedRecordError(
            f"metadata log, offset {record.offset}: a {CONTROL_NAMES[kind]} (control type {kind}) cannot be read:"
            f" {error}"
        ) from None
    return made


# --- control records -----------------------------------------------------------------------------------


def _leader_change(fields: Fields) -> LeaderChangeRecord | OtherControlRecord:
    version = fields.int16()
    if version > 1:
        return OtherControlRecord(kind=2, data=fields.data)

    def voter() -> int:
        number = fields.int32()
        if version >= 1:
            fields.uuid()
        fields.tags()
        return number

    leader = fields.int32()
    voters = fields.array(voter)
    fields.array(voter)  # those that granted their vote
    fields.tags()
    return LeaderChangeRecord(leader_id=leader, voters=voters)


def _snapshot_header(fields: Fields) -> SnapshotHeaderRecord | OtherControlRecord:
    if fields.int16() > 0:
        return OtherControlRecord(kind=3, data=fields.data)
    timestamp_ms = fields.int64()
    fields.tags()
    return SnapshotHeaderRecord(last_contained_timestamp_ms=timestamp_ms)


def _snapshot_footer(fields: Fields) -> SnapshotFooterRecord | OtherControlRecord:
    if fields.int16() > 0:
        return OtherControlRecord(kind=4, data=fields.data)
    fields.tags()
    return SnapshotFooterRecord()


def _kraft_version(fields: Fields) -> FeatureLevelRecord | OtherControlRecord:
    if fields.int16() > 0:
        return OtherControlRecord(kind=5, data=fields.data)
    level = fields.int16()
    fields.tags()
    return FeatureLevelRecord(name=KRAFT_VERSION_FEATURE, feature_level=level)


def _voters(fields: Fields) -> VotersRecord | OtherControlRecord:
    if fields.int16() > 0:
        return OtherControlRecord(kind=6, data=fields.data)

    def endpoint() -> None:
        fields.text()
        fields.text()
        fields.uint16()
        fields.tags()

    def voter() -> int:
        number = fields.int32()
        fields.uuid()
        fields.array(endpoint)
        fields.int16()  # smallest and largest supported KRaft version
        fields.int16()
        fields.tags()
        fields.tags()
        return number

    voters = fields.array(voter)
    fields.tags()
    return VotersRecord(voters=voters)


_CONTROL_READERS: dict[int, Callable[[Fields], Any]] = {
    2: _leader_change,
    3: _snapshot_header,
    4: _snapshot_footer,
    5: _kraft_version,
    6: _voters,
}


# --- metadata records ----------------------------------------------------------------------------------


def _ints(fields: Fields) -> tuple[int, ...] | None:
    return fields.nullable_array(fields.int32)


def _uuids(fields: Fields) -> Any:
    return fields.nullable_array(fields.uuid)


def _or_empty(tags: Tags, tag: int, read: Callable[[Fields], Any]) -> tuple[Any, ...]:
    return tagged(tags, tag, read, None) or ()


def _register_broker(fields: Fields, version: int) -> RegisterBrokerRecord:
    broker_id = fields.int32()
    if version >= 2:
        fields.boolean()  # whether it migrates from ZooKeeper
    incarnation_id, broker_epoch = fields.uuid(), fields.int64()

    def endpoint() -> str:
        fields.text()
        host, port = fields.text(), fields.uint16()
        fields.int16()
        fields.tags()
        return f"{host}:{port}"

    def feature() -> None:
        fields.text()
        fields.int16()
        fields.int16()
        fields.tags()

    endpoints = fields.array(endpoint)
    fields.array(feature)
    fields.nullable_text()  # rack
    fenced = fields.boolean()
    in_controlled_shutdown = fields.boolean() if version >= 1 else False
    # Version 4 adds cordoned log directories as tag 1; nothing here depends on them.
    tags = fields.tags()
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=incarnation_id,
        broker_epoch=broker_epoch,
        address=endpoints[0] if endpoints else "",
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=_or_empty(tags, 0, _uuids) if version >= 3 else (),
    )


def _unregister_broker(fields: Fields, _version: int) -> UnregisterBrokerRecord:
    record = UnregisterBrokerRecord(broker_id=fields.int32(), broker_epoch=fields.int64())
    fields.tags()
    return record


def _topic(fields: Fields, _version: int) -> TopicRecord:
    record = TopicRecord(name=fields.text(), topic_id=fields.uuid())
    fields.tags()
    return record


def _partition(fields: Fields, version: int) -> PartitionRecord:
    partition_id, topic_id = fields.int32(), fields.uuid()
    replicas, isr = fields.array(fields.int32), fields.array(fields.int32)
    removing, adding = fields.array(fields.int32), fields.array(fields.int32)
    leader, leader_epoch, partition_epoch = fields.int32(), fields.int32(), fields.int32()
    directories = fields.array(fields.uuid) if version >= 1 else ()
    tags = fields.tags()
    return PartitionRecord(
        topic_id=topic_id,
        partition_id=partition_id,
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        leader_recovery_state=tagged(tags, 0, Fields.int8, RECOVERED),
        adding_replicas=adding,
        removing_replicas=removing,
        directories=directories,
        eligible_leader_replicas=_or_empty(tags, 1, _ints),
        last_known_elr=_or_empty(tags, 2, _ints),
    )


def _config(fields: Fields, _version: int) -> ConfigRecord:
    record = ConfigRecord(
        resource_type=fields.int8(),
        resource_name=fields.text(),
        name=fields.text(),
        value=fields.nullable_text(),
    )
    fields.tags()
    return record


def _partition_change(fields: Fields, _version: int) -> PartitionChangeRecord:
    partition_id, topic_id = fields.int32(), fields.uuid()
    tags = fields.tags()
    recovery = tagged(tags, 5, Fields.int8, -1)
    return PartitionChangeRecord(
        topic_id=topic_id,
        partition_id=partition_id,
        isr=tagged(tags, 0, _ints, None),
        leader=tagged(tags, 1, Fields.int32, LEADER_UNCHANGED),
        replicas=tagged(tags, 2, _ints, None),
        removing_replicas=tagged(tags, 3, _ints, None),
        adding_replicas=tagged(tags, 4, _ints, None),
        leader_recovery_state=None if recovery == -1 else recovery,
        eligible_leader_replicas=tagged(tags, 6, _ints, None),
        last_known_elr=tagged(tags, 7, _ints, None),
        directories=tagged(tags, 8, _uuids, None),
    )


def _fence_broker(fields: Fields, _version: int) -> BrokerRegistrationChangeRecord:
    return _fencing(fields, fenced=True)


def _unfence_broker(fields: Fields, _version: int) -> BrokerRegistrationChangeRecord:
    return _fencing(fields, fenced=False)


def _fencing(fields: Fields, *, fenced: bool) -> BrokerRegistrationChangeRecord:
    record = BrokerRegistrationChangeRecord(
        broker_id=fields.int32(), broker_epoch=fields.int64(), fenced=fenced
    )
    fields.tags()
    return record


def _remove_topic(fields: Fields, _version: int) -> RemoveTopicRecord:
    record = RemoveTopicRecord(topic_id=fields.uuid())
    fields.tags()
    return record


def _feature_level(fields: Fields, _version: int) -> FeatureLevelRecord:
    record = FeatureLevelRecord(name=fields.text(), feature_level=fields.int16())
    fields.tags()
    return record


def _producer_ids(fields: Fields, _version: int) -> ProducerIdsRecord:
    record = ProducerIdsRecord(
        broker_id=fields.int32(), broker_epoch=fields.int64(), next_producer_id=fields.int64()
    )
    fields.tags()
    return record


_FENCING = {0: None, 1: True, -1: False}
_SHUTDOWN = {0: None, 1: True}


def _registration_change(fields: Fields, _version: int) -> BrokerRegistrationChangeRecord:
    broker_id, broker_epoch = fields.int32(), fields.int64()
    tags = fields.tags()
    fenced = tagged(tags, 0, Fields.int8, 0)
    shutdown = tagged(tags, 1, Fields.int8, 0)
    if fenced not in _FENCING or shutdown not in _SHUTDOWN:
        raise ValueError(f"fenced is {fenced} and in controlled shutdown is {shutdown}")
    return BrokerRegistrationChangeRecord(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        fenced=_FENCING[fenced],
        in_controlled_shutdown=_SHUTDOWN[shutdown],
        log_dirs=tagged(tags, 2, _uuids, None),
    )


def _no_op(fields: Fields, _version: int) -> NoOpRecord:
    fields.tags()
    return NoOpRecord()


def _clear_elr(fields: Fields, _version: int) -> ClearElrRecord:
    record = ClearElrRecord(topic_name=fields.nullable_text() or "")
    fields.tags()
    return record


_TRANSACTION_KINDS: dict[int, type[Any]] = {
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
}

_READERS: dict[int, tuple[int, Callable[[Fields, int], Any]]] = {
    0: (4, _register_broker),
    1: (0, _unregister_broker),
    2: (0, _topic),
    3: (2, _partition),
    4: (0, _config),
    5: (2, _partition_change),
    7: (0, _fence_broker),
    8: (0, _unfence_broker),
    9: (0, _remove_topic),
    12: (0, _feature_level),
    15: (0, _producer_ids),
    17: (3, _registration_change),
    20: (0, _no_op),
    28: (0, _clear_elr),
}
"""By kind: the newest version that is read, and how. Older versions are read by the same function."""
