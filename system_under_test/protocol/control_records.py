"""Transaction markers: the control batches that end a transaction in a partition.

A marker is a batch with one record, written by a transaction coordinator. Its key is the type (version i16, type
i16), its value the epoch of the coordinator (version i16, epoch i32); producer id and epoch are in the header of
the batch. Consumers never see it.

Source:
    KIP-98; Kafka's `EndTransactionMarker` and `ControlRecordType`.
"""

import struct
from typing import NamedTuple

from system_under_test.protocol.record_batch import (
    CorruptBatchError,
    Record,
    decode_records,
    encode_batch,
    size_at,
)

ABORT_TYPE, COMMIT_TYPE = 0, 1
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0


class Marker(NamedTuple):
    """What a marker states.

    Attributes:
        is_commit: Whether the transaction was committed, not aborted.
        coordinator_epoch: Leader epoch of the partition of `__transaction_state` whose leader decided it.
    """

    is_commit: bool
    coordinator_epoch: int


def encode_marker(
    marker: Marker, *, producer_id: int, producer_epoch: int, timestamp_ms: int
) -> bytes:
    """Encodes a marker as a batch."""
    key = _KEY.pack(_VERSION, COMMIT_TYPE if marker.is_commit else ABORT_TYPE)
    return encode_batch(
        [(key, _VALUE.pack(_VERSION, marker.coordinator_epoch))],
        timestamp_ms=timestamp_ms,
        is_control=True,
        is_transactional=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def marker_in(data: bytes, position: int = 0) -> Marker | None:
    """Returns the marker in the control batch at a position, None if it is another control record or unreadable.

    A record of a later version may have more fields, which are ignored.
    """
    batch = data[position : position + size_at(data, position)]
    try:
        ((_, (record, *_)),) = decode_records(batch, verify_crc=False)
    except (CorruptBatchError, ValueError):
        return None
    return marker_of(record)


def marker_of(record: Record) -> Marker | None:
    """Returns the marker that a record of a control batch is, None if it is another control record."""
    try:
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind not in (ABORT_TYPE, COMMIT_TYPE):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except struct.error:
        return None
    return Marker(is_commit=kind == COMMIT_TYPE, coordinator_epoch=coordinator_epoch)
