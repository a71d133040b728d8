"""Batches with fewer records than were appended: what the cleaner of a compacted log writes.

A rewritten batch keeps base offset, last offset, leader epoch, producer, sequence and codec, so that a log with
fewer records has the same offsets. A batch that has tombstones gets a *delete horizon* when it is first rewritten:
the time from which on they may be removed. It is stored as the base timestamp, with bit 6 of the attributes set.

Source:
    KIP-534; Kafka's `MemoryRecords.filterTo` and `DefaultRecordBatch.writeEmptyHeader`.
"""

import struct
import zlib
from collections.abc import Sequence

from crc32c import crc32c

from system_under_test.protocol.record_batch import (
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    BatchSpan,
    CorruptBatchError,
    Record,
    decode_records,
    encode_record,
    header_at,
)

DELETE_HORIZON_BIT = 0x40
_CODEC_BITS, _LOG_APPEND_TIME_BIT = 0x07, 0x08
_GZIP = 1
_GZIP_WINDOW_BITS = 31
DECOMPRESSED_BYTES_MAX = 64 << 20
_CHECKSUMMED = struct.Struct(">hiqqqhii")
_PLACE = struct.Struct(">qiib")
_LENGTH_END, _CRC_START = 12, 21
NO_TIMESTAMP = -1


def readable_records(batch: bytes) -> tuple[Record, ...] | None:
    """Returns the records of one whole batch; None if they cannot be read.

    Uncompressed and gzip are read; of other codecs, and of damaged batches, nothing is known.
    """
    try:
        header = header_at(batch, 0)
        codec = header.attributes & _CODEC_BITS
        if codec == _GZIP:
            stream = zlib.decompressobj(_GZIP_WINDOW_BITS)
            records = stream.decompress(batch[HEADER_BYTES:], DECOMPRESSED_BYTES_MAX)
            if not stream.eof:
                return None
            batch = _batch(header, header.attributes & ~_CODEC_BITS, records)
        elif codec:
            return None
        ((_, found),) = decode_records(batch)
    except (CorruptBatchError, zlib.error, ValueError):
        return None
    return found


def delete_horizon_ms(header: BatchHeader) -> int | None:
    """Returns the time from which on the tombstones of a batch may be removed, None if none was set."""
    return header.base_timestamp_ms if header.attributes & DELETE_HORIZON_BIT else None


def rewritten(
    header: BatchHeader, records: Sequence[Record], *, horizon_ms: int | None = None
) -> bytes:
    """Returns a batch with some of its records, possibly none.

    Args:
        header: Of the batch as it is.
        records: Those that stay, in order.
        horizon_ms: The delete horizon that it gets, or already has.
    """
    attributes = header.attributes
    base_timestamp_ms = header.base_timestamp_ms
    if horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp_ms = horizon_ms
    newest_ms = header.max_timestamp_ms
    if records and not attributes & _LOG_APPEND_TIME_BIT:
        newest_ms = max(record.timestamp_ms for record in records)
    body = b"".join(
        encode_record(record, header.base_offset, base_timestamp_ms) for record in records
    )
    if not records:
        attributes &= ~_CODEC_BITS
    elif attributes & _CODEC_BITS == _GZIP:
        stream = zlib.compressobj(wbits=_GZIP_WINDOW_BITS)
        body = stream.compress(body) + stream.flush()
    return _batch(
        header,
        attributes,
        body,
        record_count=len(records),
        base_timestamp_ms=base_timestamp_ms,
        newest_ms=newest_ms,
    )


def filler(base_offset: int, offset_count: int, leader_epoch: int) -> bytes:
    """Returns a batch without records and without a producer that covers offsets whose records were removed."""
    return _assembled(
        base_offset,
        leader_epoch,
        (0, offset_count - 1, NO_TIMESTAMP, NO_TIMESTAMP, -1, -1, -1, 0),
        b"",
    )


def filler_from(offset: int, span: BatchSpan) -> bytes:
    """Returns the part of a batch without records that begins at an offset inside of it."""
    return filler(offset, span.end_offset - offset, span.leader_epoch)


def is_filler(header: BatchHeader | BatchSpan) -> bool:
    """Whether a batch only covers offsets."""
    return not header.record_count and header.producer_id < 0


def _batch(
    header: BatchHeader,
    attributes: int,
    body: bytes,
    *,
    record_count: int | None = None,
    base_timestamp_ms: int | None = None,
    newest_ms: int | None = None,
) -> bytes:
    """Returns a batch with another body, and the header's other fields as far as they are not given."""
    return _assembled(
        header.base_offset,
        header.leader_epoch,
        (
            attributes,
            header.last_offset_delta,
            header.base_timestamp_ms if base_timestamp_ms is None else base_timestamp_ms,
            header.max_timestamp_ms if newest_ms is None else newest_ms,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count if record_count is None else record_count,
        ),
        body,
    )


def _assembled(base_offset: int, leader_epoch: int, fields: tuple[int, ...], body: bytes) -> bytes:
    checksummed = _CHECKSUMMED.pack(*fields) + body
    length = len(checksummed) + _CRC_START - _LENGTH_END
    place = _PLACE.pack(base_offset, length, leader_epoch, MAGIC)
    return b"".join((place, crc32c(checksummed).to_bytes(4, "big"), checksummed))
