"""Validates what a client produces to one partition: the only place that does.

First, on any broker, that there is exactly one batch (`sole_batch`); then, at the leader, what its header claims,
the records inside (lengths, offsets, timestamps), the checksum (`validate`). The result is a `VerifiedBatches`;
partition and log rely on it and verify nothing again.

Source:
    Kafka's `ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords` and `LogValidator`.
"""

import struct

from crc32c import crc32c

from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.record_batch import HEADER_BYTES, MAGIC, CorruptBatchError
from system_under_test.protocol.record_check import (
    UnreadableRecordsError,
    UnsoundRecordsError,
    newest_timestamp_ms,
)

ZSTD_SINCE = 7
"""The version of Produce from which on clients are known to understand zstd (KIP-110)."""
AT_THE_LOG = (
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
"""Errors that Kafka finds at the log, whose start it then returns with the error."""

_LENGTH = struct.Struct(">i")
_LENGTH_PLACE, _LENGTH_END = 8, 12
_LENGTH_MIN = 14
"""Of a message of format 0; no batch of any format is shorter."""
_MAGIC_PLACE, _MAGIC_END = 16, 17
_ATTRIBUTES = struct.Struct(">h")
_ATTRIBUTES_PLACE = 21
_CRC = struct.Struct(">I")
_CRC_PLACE, _CRC_START = 17, 21
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_PLACE = 35
_BASE_OFFSET_BYTES = 8
_CODEC_BITS, _LOG_APPEND_TIME_BIT, _TRANSACTIONAL_BIT, _CONTROL_BIT = 0x07, 0x08, 0x10, 0x20
_ZSTD = 4


def validate(
    batch: bytes,
    *,
    newest_allowed_ms: int,
    append_time_ms: int | None = None,
    has_transactional_id: bool = False,
) -> VerifiedBatches | ErrorCode:
    """Validates one partition's batch of a produce request (PROD-1).

    Args:
        batch: From `sole_batch`.
        newest_allowed_ms: The largest timestamp that a record may have, in milliseconds since the epoch.
        append_time_ms: The time that replaces all timestamps of the batch, for a topic with LogAppendTime; None
            for one that keeps its producers' timestamps.
        has_transactional_id: Whether the request has one.

    Returns:
        The batch, or why it must not be appended.
    """
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_PLACE)
    if attributes:
        refusal = _refusal_by_attributes(attributes, has_transactional_id)
        if refusal is not None:
            return refusal
    if any(batch[:_BASE_OFFSET_BYTES]):
        return ErrorCode.INVALID_RECORD  # the leader assigns offsets, a producer begins at 0
    try:
        newest_ms = newest_timestamp_ms(batch)
    except UnsoundRecordsError:
        # An intact batch was malformed on purpose and must be rejected; a damaged one is worth another attempt.
        return ErrorCode.INVALID_RECORD if _is_intact(batch) else ErrorCode.CORRUPT_MESSAGE
    except UnreadableRecordsError:
        # Kafka has no error for it either: its decompression fails with an exception that has no code.
        return ErrorCode.UNKNOWN_SERVER_ERROR if _is_intact(batch) else ErrorCode.CORRUPT_MESSAGE
    try:
        verified = VerifiedBatches.verify(batch)
        if append_time_ms is not None:
            return VerifiedBatches.verify(_with_append_time(batch, attributes, append_time_ms))
        if attributes & _LOG_APPEND_TIME_BIT:
            verified = VerifiedBatches.verify(_with_create_time(batch, attributes))
    except CorruptBatchError:
        return ErrorCode.CORRUPT_MESSAGE
    return verified if newest_ms <= newest_allowed_ms else ErrorCode.INVALID_TIMESTAMP


def sole_batch(records: bytes, api_version: int = -1) -> bytes | ErrorCode:
    """Returns the only batch of a partition, or what is wrong with the request on any broker.

    A batch that is incomplete at the end is ignored, as a fetch response may have one; what is too short to be
    one, another whole batch, and zstd from a client of a version without it are refused.

    Args:
        records: Of one partition in a produce request.
        api_version: The version of the request on the wire, -1 if it did not cross one.

    Source:
        Kafka's `ProduceRequest.validateRecords`.
    """
    size_bytes = _whole_batch(records, 0)
    if isinstance(size_bytes, ErrorCode):
        return size_bytes
    if not size_bytes or records[_MAGIC_PLACE] != MAGIC or size_bytes < HEADER_BYTES:
        return ErrorCode.INVALID_RECORD
    if 0 <= api_version < ZSTD_SINCE:
        (attributes,) = _ATTRIBUTES.unpack_from(records, _ATTRIBUTES_PLACE)
        if attributes & _CODEC_BITS == _ZSTD:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if size_bytes == len(records):
        return records
    more = _whole_batch(records, size_bytes)
    if isinstance(more, ErrorCode):
        return more
    return ErrorCode.INVALID_RECORD if more else records[:size_bytes]


def _whole_batch(records: bytes, position: int) -> int | ErrorCode:
    """Returns the size of the batch or message that begins at a position, 0 if it is incomplete."""
    left = len(records) - position
    if left < _LENGTH_END:
        return 0
    (length,) = _LENGTH.unpack_from(records, position + _LENGTH_PLACE)
    if length < _LENGTH_MIN:
        return ErrorCode.CORRUPT_MESSAGE
    if left < _MAGIC_END:
        return 0
    if records[position + _MAGIC_PLACE] > MAGIC:
        return ErrorCode.CORRUPT_MESSAGE
    size_bytes: int = _LENGTH_END + length
    return size_bytes if size_bytes <= left else 0


def _refusal_by_attributes(attributes: int, has_transactional_id: bool) -> ErrorCode | None:
    """Returns what is wrong with a client's batch by its attributes, None if nothing is."""
    if attributes & _TRANSACTIONAL_BIT and not has_transactional_id:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if attributes & _CODEC_BITS > _ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return ErrorCode.INVALID_RECORD if attributes & _CONTROL_BIT else None


def _with_create_time(batch: bytes, attributes: int) -> bytes:
    """Returns the batch without the log-append-time bit, which only a broker may set; the records keep theirs."""
    changed = bytearray(batch)
    _ATTRIBUTES.pack_into(changed, _ATTRIBUTES_PLACE, attributes & ~_LOG_APPEND_TIME_BIT)
    _CRC.pack_into(changed, _CRC_PLACE, crc32c(bytes(changed[_CRC_START:])))
    return bytes(changed)


def _with_append_time(batch: bytes, attributes: int, append_time_ms: int) -> bytes:
    """Returns the batch with the time of its append, which counts instead of the timestamps of its records."""
    changed = bytearray(batch)
    _ATTRIBUTES.pack_into(changed, _ATTRIBUTES_PLACE, attributes | _LOG_APPEND_TIME_BIT)
    _MAX_TIMESTAMP.pack_into(changed, _MAX_TIMESTAMP_PLACE, append_time_ms)
    _CRC.pack_into(changed, _CRC_PLACE, crc32c(bytes(changed[_CRC_START:])))
    return bytes(changed)


def _is_intact(batch: bytes) -> bool:
    (checksum,) = _CRC.unpack_from(batch, _CRC_PLACE)
    return bool(crc32c(batch[_CRC_START:]) == checksum)
