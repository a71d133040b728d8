"""Checks the records of a producer's batch without decoding their values.

A consumer that reads a batch whose records contradict its header fails, or reads one offset twice, and the log
cannot be repaired. So a leader checks the records once, before it appends them. Records that are compressed with
gzip are decompressed for it; other codecs are not in the standard library, and of such a batch only the header is
checked.

Source:
    Kafka's `LogValidator`.
"""

import struct
import zlib

from system_under_test.protocol.record_batch import HEADER_BYTES

_FIELDS = struct.Struct(">21xhiqq14xi")
_COMPRESSION_MASK = 0x07
_GZIP = 1
_GZIP_WINDOW_BITS = 31
DECOMPRESSED_BYTES_MAX = 64 << 20
"""A megabyte of gzip can hold a gigabyte, for which a node has no memory."""


class UnsoundRecordsError(Exception):
    """The records of a batch contradict its header."""


class UnreadableRecordsError(Exception):
    """The records of a batch cannot be decompressed."""


def newest_timestamp_ms(batch: bytes) -> int:
    """Walks over one batch, whose checksum need not have been verified.

    Returns:
        The newest timestamp of its records; for a codec other than gzip the header's.

    Raises:
        UnsoundRecordsError: Offsets or lengths disagree, bytes are left over, or the header is incomplete.
        UnreadableRecordsError: The records are not gzip although the header says so, or too large.
    """
    if len(batch) < HEADER_BYTES:
        raise UnsoundRecordsError("there is no whole header")
    attributes, last_offset_delta, base_ms, header_max_ms, count = _FIELDS.unpack_from(batch)
    if count < 1 or count != last_offset_delta + 1:
        raise UnsoundRecordsError(f"{count} records in {last_offset_delta + 1} offsets")
    position, newest_delta = HEADER_BYTES, None
    codec = attributes & _COMPRESSION_MASK
    if codec == _GZIP:
        batch, position = _gunzipped(batch[HEADER_BYTES:]), 0
    elif codec:
        return int(header_max_ms)
    try:
        for index in range(count):
            position, delta = _walk_record(batch, position, index)
            if newest_delta is None or delta > newest_delta:
                newest_delta = delta
    except IndexError:
        raise UnsoundRecordsError("a record ends beyond its batch") from None
    if position != len(batch):
        raise UnsoundRecordsError("bytes are left after the last record")
    return int(base_ms + newest_delta)


def _gunzipped(payload: bytes) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW_BITS)
    try:
        records = stream.decompress(payload, DECOMPRESSED_BYTES_MAX)
    except zlib.error as error:
        raise UnreadableRecordsError(str(error)) from None
    if not stream.eof:
        raise UnreadableRecordsError("the stream is incomplete or too large")
    return records


def _walk_record(batch: bytes, position: int, index: int) -> tuple[int, int]:
    """Returns where a record ends, and its timestamp delta.

    Raises:
        UnsoundRecordsError: It is not a record, or not the expected one.
        IndexError: It exceeds the batch.
    """
    length, position = _varint(batch, position)
    end = position + length
    # The attributes of a record, one byte, have no meaning.
    timestamp_delta, position = _varint(batch, position + 1)
    offset_delta, position = _varint(batch, position)
    if offset_delta != index:
        raise UnsoundRecordsError(f"record {index} has the offset delta {offset_delta}")
    position = _skip(batch, position)
    position = _skip(batch, position)
    header_count, position = _varint(batch, position)
    if header_count < 0 or header_count > end - position:
        raise UnsoundRecordsError(f"record {index} has {header_count} headers")
    for _ in range(header_count):
        name_length, position = _varint(batch, position)
        if name_length < 0:
            raise UnsoundRecordsError(f"a header of record {index} has no name")
        position = _skip(batch, position + name_length)
    if position != end or end > len(batch):
        raise UnsoundRecordsError(f"the length of record {index} is wrong")
    return end, timestamp_delta


def _skip(batch: bytes, position: int) -> int:
    """Returns where a field ends that begins with its length; -1 stands for null."""
    length, position = _varint(batch, position)
    if length < -1:
        raise UnsoundRecordsError(f"a field of {length} bytes")
    return position + length if length > 0 else position


def _varint(batch: bytes, position: int) -> tuple[int, int]:
    """Returns a zigzag number and where it ends."""
    byte = batch[position]
    if byte < 0x80:  # nearly all
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = byte & 0x7F
    for shift in range(7, 70, 7):
        position += 1
        byte = batch[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
    raise UnsoundRecordsError("a number of more than ten bytes")
