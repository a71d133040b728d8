"""Encodes and decodes the file of a metadata snapshot, in Kafka's format.

A file is a run of record batches: a control batch with the snapshot header, batches of framed metadata records,
and a control batch with the snapshot footer. Offsets count from 0, and the leader epoch of every batch is the
epoch of the snapshot. A file without its footer is incomplete.

Source:
    KIP-630; Kafka's `RecordsSnapshotWriter`, `SnapshotHeaderRecord.json`, `SnapshotFooterRecord.json`.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from system_under_test.metadata.records import MetadataRecord
from system_under_test.metadata.snapshot import MetadataSnapshot, SnapshotId
from system_under_test.protocol.metadata_codec import decode_record, encode_record
from system_under_test.protocol.record_batch import (
    BatchHeader,
    CorruptBatchError,
    Record,
    decode_records,
    encode_batch,
)

SNAPSHOT_HEADER_TYPE = 3
SNAPSHOT_FOOTER_TYPE = 4
"""Kafka's ControlRecordType.SNAPSHOT_HEADER and SNAPSHOT_FOOTER."""
RECORDS_PER_BATCH = 1024
"""Kafka's limit for one batch of a snapshot (`MAX_RECORDS_PER_BATCH` of its image writers)."""

_CONTROL_KEY = struct.Struct(">hh")
_HEADER_VALUE = struct.Struct(">hqB")
"""Version, timestamp of the last record that is covered, number of tagged fields."""
_FOOTER_VALUE = struct.Struct(">hB")


class SnapshotHeader(NamedTuple):
    """Content of the header that decisions need."""

    last_contained_log_timestamp_ms: int


def encode_snapshot(
    records: Iterable[MetadataRecord], snapshot_id: SnapshotId, *, timestamp_ms: int
) -> bytes:
    """Returns the content of a snapshot file.

    Args:
        records: Any number of framed metadata records.
        snapshot_id: Which prefix of the log they stand for.
        timestamp_ms: Timestamp of the last record of that prefix.

    Raises:
        ValueError: A record cannot be encoded.
    """
    parts = [
        _control_batch(
            SNAPSHOT_HEADER_TYPE,
            _HEADER_VALUE.pack(0, timestamp_ms, 0),
            0,
            snapshot_id,
            timestamp_ms,
        )
    ]
    offset = 1
    every = list(records)
    for first in range(0, len(every), RECORDS_PER_BATCH):
        group = every[first : first + RECORDS_PER_BATCH]
        parts.append(
            encode_batch(
                [(None, encode_record(record)) for record in group],
                timestamp_ms=timestamp_ms,
                base_offset=offset,
                leader_epoch=snapshot_id.epoch,
            )
        )
        offset += len(group)
    footer = _FOOTER_VALUE.pack(0, 0)
    parts.append(_control_batch(SNAPSHOT_FOOTER_TYPE, footer, offset, snapshot_id, timestamp_ms))
    return b"".join(parts)


def decode_snapshot(data: bytes, snapshot_id: SnapshotId) -> MetadataSnapshot:
    """Reads the content of a snapshot file.

    Raises:
        ValueError: The file is damaged or incomplete.
    """
    batches = _batches(data)
    records: list[MetadataRecord] = []
    _require(_control_type(batches[0]) == SNAPSHOT_HEADER_TYPE, "it does not begin with a header")
    _require(
        len(batches) > 1 and _control_type(batches[-1]) == SNAPSHOT_FOOTER_TYPE,
        "it does not end with a footer",
    )
    for header, found in batches[1:-1]:
        _require(not header.is_control, "it contains an unknown control record")
        records.extend(decode_record(record.value or b"") for record in found)
    return MetadataSnapshot(id=snapshot_id, records=tuple(records))


def decode_header(data: bytes) -> SnapshotHeader:
    """Reads the header of a snapshot.

    Args:
        data: The content of the file, or its first part, which contains the first batch.

    Raises:
        ValueError: The first batch is damaged, or is no header.
    """
    try:
        batches = decode_records(data)
    except CorruptBatchError as error:
        raise ValueError(f"metadata snapshot: {error}") from error
    _require(bool(batches), "it is empty")
    _require(_control_type(batches[0]) == SNAPSHOT_HEADER_TYPE, "it does not begin with a header")
    value = batches[0][1][0].value or b""
    _require(len(value) == _HEADER_VALUE.size, "its header has the wrong length")
    return SnapshotHeader(last_contained_log_timestamp_ms=_HEADER_VALUE.unpack(value)[1])


def _control_batch(
    control_type: int, value: bytes, offset: int, snapshot_id: SnapshotId, timestamp_ms: int
) -> bytes:
    return encode_batch(
        [(_CONTROL_KEY.pack(0, control_type), value)],
        timestamp_ms=timestamp_ms,
        base_offset=offset,
        leader_epoch=snapshot_id.epoch,
        is_control=True,
    )


def _batches(data: bytes) -> Sequence[tuple[BatchHeader, Sequence[Record]]]:
    try:
        batches = decode_records(data)
    except CorruptBatchError as error:
        raise ValueError(f"metadata snapshot: {error}") from error
    _require(bool(batches), "it is empty")
    size_bytes = sum(header.size_bytes for header, _ in batches)
    _require(size_bytes == len(data), "its last batch is incomplete")
    return batches


def _control_type(batch: tuple[BatchHeader, Sequence[Record]]) -> int | None:
    """Returns the type of a batch with one control record, None for any other batch."""
    header, records = batch
    key = records[0].key if header.is_control and len(records) == 1 else None
    if key is None or len(key) != _CONTROL_KEY.size:
        return None
    control_type: int = _CONTROL_KEY.unpack(key)[1]
    return control_type


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ValueError(f"metadata snapshot: {problem}")
