"""Validates what a client produces to one partition: the only place that does.

In this order: what the header of the batch claims, the records inside (lengths, offsets, timestamps), the
checksum. The result is a `VerifiedBatches`; partition and log rely on it and verify nothing again.

Source:
    Kafka's `ProduceRequest.validateRecords`, `LogValidator` and `ReplicaManager.appendRecords`.
"""

import struct

from system_under_test.broker.metadata_cache import OFFSETS_TOPIC
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.record_batch import CorruptBatchError, header_at, verify
from system_under_test.protocol.record_check import UnsoundRecordsError, newest_timestamp_ms

ZSTD_SINCE = 7
"""The version of Produce from which on clients are known to understand zstd (KIP-110)."""

_LENGTH_AND_ATTRIBUTES = struct.Struct(">8xi9xh")
_LENGTH_END = 12
_CODEC_BITS, _LOG_APPEND_TIME_BIT, _TRANSACTIONAL_BIT, _CONTROL_BIT = 0x07, 0x08, 0x10, 0x20
_ZSTD = 4


def validate(
    topic: str, records: bytes | None, *, api_version: int, newest_allowed_ms: int
) -> VerifiedBatches | ErrorCode:
    """Validates one partition's records of a produce request (PROD-1).

    Args:
        topic: Name of the topic.
        records: As received.
        api_version: The version of the request on the wire, -1 if it did not cross one.
        newest_allowed_ms: The largest timestamp that a record may have, in milliseconds since the epoch.

    Returns:
        The batch, or why it must not be appended.
    """
    if not records:
        return ErrorCode.CORRUPT_MESSAGE
    refusal = _refusal_by_header(topic, records, api_version)
    if refusal is not None:
        return refusal
    try:
        newest_ms = newest_timestamp_ms(records)
    except UnsoundRecordsError:
        # An intact batch was malformed on purpose and must be rejected; a damaged one is worth another attempt.
        return ErrorCode.INVALID_RECORD if _is_intact(records) else ErrorCode.CORRUPT_MESSAGE
    try:
        batch = VerifiedBatches.verify(records)
    except CorruptBatchError:
        return ErrorCode.CORRUPT_MESSAGE
    return batch if newest_ms <= newest_allowed_ms else ErrorCode.INVALID_TIMESTAMP


def _refusal_by_header(topic: str, records: bytes, api_version: int) -> ErrorCode | None:
    """Returns what is wrong with a client's batch by its header, None if nothing is."""
    if topic == OFFSETS_TOPIC:
        return ErrorCode.INVALID_TOPIC_EXCEPTION  # only the coordinator writes to it
    if len(records) < _LENGTH_AND_ATTRIBUTES.size:
        return ErrorCode.CORRUPT_MESSAGE
    length, attributes = _LENGTH_AND_ATTRIBUTES.unpack_from(records)
    if attributes:
        codec = attributes & _CODEC_BITS
        if codec > _ZSTD or (codec == _ZSTD and 0 <= api_version < ZSTD_SINCE):
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if attributes & _CONTROL_BIT:
            return ErrorCode.INVALID_RECORD
        if attributes & _TRANSACTIONAL_BIT:
            return ErrorCode.INVALID_TXN_STATE  # transactions are not supported
        if attributes & _LOG_APPEND_TIME_BIT:
            return ErrorCode.INVALID_TIMESTAMP  # only a broker sets this bit
    if 0 <= length < len(records) - _LENGTH_END:
        return ErrorCode.INVALID_RECORD  # exactly one batch per partition
    return None


def _is_intact(records: bytes) -> bool:
    try:
        verify(records, 0, header_at(records, 0))
    except CorruptBatchError:
        return False
    return True
