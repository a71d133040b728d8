"""Record batches, sound ones and such that are wrong in one place."""

import struct
from typing import Any

from crc32c import crc32c

from system_under_test.protocol.record_batch import encode_batch

CODEC_NONE, CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD = range(5)
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
_CRC, _CRC_START = 17, 21
ATTRIBUTES = 21
LAST_OFFSET_DELTA = 23
MAX_TIMESTAMP = 35
RECORD_COUNT = 57
MAGIC = 16
LENGTH = 8
RECORDS = 61


def batch(now_ms: int, records: int = 1, *, value_bytes: int = 3, **header: Any) -> bytes:
    """Returns a batch of equal records.

    Args:
        now_ms: Their timestamp, unless the header has another.
        records: How many.
        value_bytes: Size of each value.
        header: Further arguments of `encode_batch`.
    """
    header.setdefault("timestamp_ms", now_ms)
    return encode_batch([(b"k", b"v" * value_bytes)] * records, **header)


def patched(
    data: bytes, place: int, form: str, value: int, *, keeps_checksum: bool = False
) -> bytes:
    """Returns a batch in which one number is replaced.

    Args:
        data: One batch.
        place: Where the number begins.
        form: How it is written, as for `struct`: ">h".
        value: The number.
        keeps_checksum: Whether the checksum stays that of the sound batch.
    """
    changed = bytearray(data)
    struct.pack_into(form, changed, place, value)
    if not keeps_checksum:
        struct.pack_into(">I", changed, _CRC, crc32c(bytes(changed[_CRC_START:])))
    return bytes(changed)


def with_attributes(data: bytes, attributes: int) -> bytes:
    """Returns a batch with other attributes and the right checksum."""
    return patched(data, ATTRIBUTES, ">h", attributes)


def with_payload(data: bytes, payload: bytes, attributes: int) -> bytes:
    """Returns a batch whose records are replaced by bytes, for example compressed ones."""
    head = bytearray(data[:RECORDS])
    struct.pack_into(">i", head, LENGTH, RECORDS - LENGTH - 4 + len(payload))
    return with_attributes(bytes(head) + payload, attributes)


MESSAGE_V1 = struct.pack(">qiIbbq", 0, 22, 0, 1, 0, 0) + struct.pack(">ii", -1, -1)
"""A message of format 1, without key and value; its checksum is wrong, but the format is refused first."""
