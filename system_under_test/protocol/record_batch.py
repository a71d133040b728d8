"""Kafka's record batch, magic 2: encode, inspect, verify, decode.

A broker treats batches as opaque bytes: it reads the 61-byte header, checks the CRC-32C, patches the base
offset and the leader epoch (both are before the checksummed part) and never encodes a batch again. Only
clients and log tools read the records inside.

Layout, big endian::

    0 base_offset i64 | 8 length i32 | 12 leader_epoch i32 | 16 magic i8 | 17 crc u32
    21 attributes i16 | 23 last_offset_delta i32 | 27 base_timestamp i64 | 35 max_timestamp i64
    43 producer_id i64 | 51 producer_epoch i16 | 53 base_sequence i32 | 57 record_count i32 | 61 records

`length` counts everything after itself; the CRC covers everything from `attributes` on. Compressed batches
pass through a broker unread, but `decode_records` refuses them: nothing here produces one.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from crc32c import crc32c

HEADER_BYTES = 61
MAGIC = 2

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CHECKSUMMED = struct.Struct(">hiqqqhii")
_PLACE = struct.Struct(">qii")
_BASE_OFFSET_AND_LENGTH = struct.Struct(">qi")
_LENGTH_END = 12
_CRC_START = 21
_COMPRESSION_MASK = 0x07
_LOG_APPEND_TIME_BIT = 0x08
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20
_UNKNOWN = -1

CACHED_BYTES_MAX = 512
"""Larger batches are decoded anew every time, so that the cache stays within a few megabytes."""


class CorruptBatchError(Exception):
    """The bytes are not a complete, intact record batch. The message has the position and the reason."""


class BatchHeader(NamedTuple):
    """The header of one batch. A tuple, because every batch that is read has one.

    Attributes:
        size_bytes: Size of the whole batch, header included.
        record_count: From the header; equals `last_offset_delta + 1` unless a log was compacted.
    """

    base_offset: int
    last_offset_delta: int
    leader_epoch: int
    size_bytes: int
    crc: int
    attributes: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def is_control(self) -> bool:
        """Whether the records are for the protocol and not for consumers."""
        return bool(self.attributes & _CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction, or ends one."""
        return bool(self.attributes & _TRANSACTIONAL_BIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of a batch, with its absolute offset and timestamp."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class BatchSpan(NamedTuple):
    """What a log needs to know about one batch in a run of batches. A tuple, because appends are frequent.

    Attributes:
        record_count: How many records are there; the cleaner of a compacted log removes some, or all.
        offset_count: How many offsets the batch covers, which are never reduced.
    """

    position: int
    size_bytes: int
    base_offset: int
    leader_epoch: int
    record_count: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    max_timestamp_ms: int
    attributes: int
    offset_count: int

    @property
    def end_offset(self) -> int:
        """The first offset behind the batch."""
        return self.base_offset + self.offset_count

    @property
    def is_control(self) -> bool:
        """Whether the records are for the protocol and not for consumers."""
        return bool(self.attributes & _CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction, or ends one."""
        return bool(self.attributes & _TRANSACTIONAL_BIT)


def encode_batch(
    records: Sequence[tuple[bytes | None, bytes | None]],
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    is_control: bool = False,
    is_transactional: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Encodes one uncompressed batch of (key, value) pairs that share a timestamp.

    Raises:
        ValueError: There are no records; Kafka has no empty batches in a log.
    """
    if not records:
        raise ValueError("a batch needs at least one record")
    parts: list[bytes] = []
    for delta, (key, value) in enumerate(records):
        # Attributes and timestamp delta are zero; so is the number of headers at the end.
        body = b"".join((b"\0\0", _varint(delta), _nullable(key), _nullable(value), b"\0"))
        parts.append(_varint(len(body)))
        parts.append(body)
    count = len(records)
    checksummed = _CHECKSUMMED.pack(
        (_CONTROL_BIT if is_control else 0) | (_TRANSACTIONAL_BIT if is_transactional else 0),
        count - 1,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) + b"".join(parts)
    length = len(checksummed) + _CRC_START - _LENGTH_END
    place = _PLACE.pack(base_offset, length, leader_epoch)
    return b"".join((place, b"\x02", crc32c(checksummed).to_bytes(4, "big"), checksummed))


def encode_record(record: Record, base_offset: int, base_timestamp_ms: int) -> bytes:
    """Encodes one record for a batch with this base offset and base timestamp."""
    parts = [
        b"\0",
        _varint(record.timestamp_ms - base_timestamp_ms),
        _varint(record.offset - base_offset),
        _nullable(record.key),
        _nullable(record.value),
        _varint(len(record.headers)),
    ]
    for name, value in record.headers:
        parts.append(_nullable(name.encode()))
        parts.append(_nullable(value))
    body = b"".join(parts)
    return _varint(len(body)) + body


def read_headers(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Yields the position and header of every batch; checksums are not verified.

    Raises:
        CorruptBatchError: The bytes are not a batch, or the last batch is incomplete.
    """
    position = 0
    end = len(data)
    while position < end:
        header = header_at(data, position)
        yield position, header
        position += header.size_bytes


def header_at(data: bytes, position: int) -> BatchHeader:
    """Returns the header of the batch that begins at a position and is completely inside `data`.

    Raises:
        CorruptBatchError: There is no whole batch.
    """
    fields = _fields_at(data, position)
    return BatchHeader(
        fields[0],
        fields[6],
        fields[2],
        _LENGTH_END + fields[1],
        fields[4],
        fields[5],
        fields[7],
        fields[8],
        fields[9],
        fields[10],
        fields[11],
        fields[12],
    )


def verify(data: bytes, position: int, header: BatchHeader) -> None:
    """Compares the checksum of a batch with its content.

    Raises:
        CorruptBatchError: They differ.
    """
    content = memoryview(data)[position + _CRC_START : position + header.size_bytes]
    if crc32c(content) != header.crc:
        raise CorruptBatchError(f"batch at byte {position}: its checksum does not match")


def span_at(data: bytes, position: int, *, verify_crc: bool) -> BatchSpan:
    """Returns what a log needs to know about the batch at a position, after all checks of a log.

    Unlike `header_at` it requires at most one record per offset.

    Raises:
        CorruptBatchError: There is no whole batch, its counts disagree, or its checksum is wrong.
    """
    fields = _fields_at(data, position)
    size_bytes = _LENGTH_END + fields[1]
    count = fields[12]
    if count > fields[6] + 1:
        raise CorruptBatchError(
            f"batch at byte {position}: {count} records in {fields[6] + 1} offsets"
        )
    if verify_crc:
        content = memoryview(data)[position + _CRC_START : position + size_bytes]
        if crc32c(content) != fields[4]:
            raise CorruptBatchError(f"batch at byte {position}: its checksum does not match")
    return BatchSpan(
        position,
        size_bytes,
        fields[0],
        fields[2],
        count,
        fields[9],
        fields[10],
        fields[11],
        fields[8],
        fields[5],
        fields[6] + 1,
    )


def size_at(data: bytes, position: int) -> int:
    """Returns the size that the batch at a position announces; that of a header if it is unreadable."""
    if len(data) - position < _LENGTH_END:
        return HEADER_BYTES
    length: int = _BASE_OFFSET_AND_LENGTH.unpack_from(data, position)[1]
    return max(HEADER_BYTES, _LENGTH_END + length)


def stamp_in_place(
    data: bytearray, span: BatchSpan, *, base_offset: int, leader_epoch: int
) -> None:
    """As `stamp`, for one batch inside a run."""
    length = span.size_bytes - _LENGTH_END
    _PLACE.pack_into(data, span.position, base_offset, length, leader_epoch)


def spans(data: bytes, *, verify_crc: bool) -> list[BatchSpan]:
    """Returns the spans of a run of batches; all or nothing.

    Raises:
        CorruptBatchError: As `span_at`.
    """
    found = []
    position = 0
    end = len(data)
    while position < end:
        span = span_at(data, position, verify_crc=verify_crc)
        found.append(span)
        position += span.size_bytes
    return found


def end_offset_of(data: bytes) -> int | None:
    """Returns the offset behind the last of some checked batches; None if there are none."""
    position, last = 0, None
    while position < len(data):
        last = position
        position += size_at(data, position)
    return None if last is None else header_at(data, last).last_offset + 1


def stamp(batch: bytes, *, base_offset: int, leader_epoch: int) -> bytes:
    """Returns the batch with its place in a log written into it; the checksum stays valid.

    Raises:
        CorruptBatchError: The bytes are too short to be a batch.
    """
    if len(batch) < HEADER_BYTES:
        raise CorruptBatchError(f"{len(batch)} bytes are too short for a batch")
    length = _BASE_OFFSET_AND_LENGTH.unpack_from(batch)[1]
    return _PLACE.pack(base_offset, length, leader_epoch) + batch[_PLACE.size :]


def decode_records(
    data: bytes, *, verify_crc: bool = True
) -> list[tuple[BatchHeader, tuple[Record, ...]]]:
    """Decodes whole batches, as a consumer does.

    A consumer may get the beginning of one more batch than fits; it is ignored.

    Raises:
        CorruptBatchError: A whole batch is not intact, or it is compressed.
    """
    decoded = []
    position = 0
    end = len(data)
    while end - position >= _LENGTH_END:
        length = _BASE_OFFSET_AND_LENGTH.unpack_from(data, position)[1]
        if length >= HEADER_BYTES - _LENGTH_END and position + _LENGTH_END + length > end:
            break
        size_bytes = _LENGTH_END + length
        if verify_crc and HEADER_BYTES <= size_bytes <= CACHED_BYTES_MAX:
            try:
                batch = _decode_small(data[position : position + size_bytes])
            except CorruptBatchError:
                # Decoded again in its place, so that the message names the right byte.
                batch = _decode_at(data, position, verify_crc=True)
        else:
            batch = _decode_at(data, position, verify_crc=verify_crc)
        decoded.append(batch)
        position += batch[0].size_bytes
    return decoded


def _decode_at(
    data: bytes, position: int, *, verify_crc: bool
) -> tuple[BatchHeader, tuple[Record, ...]]:
    header = header_at(data, position)
    if verify_crc:
        verify(data, position, header)
    return header, _records_of(data, position, header)


@lru_cache(maxsize=4096)
def _decode_small(batch: bytes) -> tuple[BatchHeader, tuple[Record, ...]]:
    # In a simulation many consumers read the same few bytes. The result is frozen, so they may share it.
    return _decode_at(batch, 0, verify_crc=True)


def _fields_at(data: bytes, position: int) -> tuple[int, ...]:
    remaining = len(data) - position
    if remaining < HEADER_BYTES:
        raise CorruptBatchError(f"batch at byte {position}: {remaining} bytes are no whole header")
    fields = _HEADER.unpack_from(data, position)
    length = fields[1]
    # The length first: a run of zeros (a torn tail) has magic 0 as well, but the length explains it better.
    if length < HEADER_BYTES - _LENGTH_END:
        raise CorruptBatchError(f"batch at byte {position}: length {length} is too small")
    if fields[3] != MAGIC:
        raise CorruptBatchError(f"batch at byte {position}: magic {fields[3]} instead of {MAGIC}")
    if length > remaining - _LENGTH_END:
        raise CorruptBatchError(f"batch at byte {position}: incomplete, {remaining} bytes are left")
    if fields[0] < 0 or fields[6] < 0 or fields[12] < 0:
        raise CorruptBatchError(f"batch at byte {position}: negative offset or count")
    return fields


def _records_of(data: bytes, position: int, header: BatchHeader) -> tuple[Record, ...]:
    if header.attributes & _COMPRESSION_MASK:
        codec = header.attributes & _COMPRESSION_MASK
        raise CorruptBatchError(f"batch at byte {position}: compression codec {codec} is not read")
    reader = _Reader(data, position + HEADER_BYTES, position + header.size_bytes)
    # Bounded by the bytes, not by the count in the header: a record that does not fit raises.
    records = tuple([reader.record(header) for _ in range(header.record_count)])
    if reader.position != reader.end:
        raise CorruptBatchError(f"batch at byte {position}: bytes are left after the last record")
    return records


class _Reader:
    """Reads records from one batch and never beyond its end."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes, position: int, end: int) -> None:
        self.data = data
        self.position = position
        self.end = end

    def record(self, header: BatchHeader) -> Record:
        length = self.varint()
        record_end = self.position + length
        if length < 0 or record_end > self.end:
            raise CorruptBatchError(f"record at byte {self.position}: it does not fit its batch")
        # The attributes of a record, one byte, have no meaning.
        self.position += 1
        timestamp_ms = header.base_timestamp_ms + self.varint()
        offset = header.base_offset + self.varint()
        if header.attributes & _LOG_APPEND_TIME_BIT:
            # The broker's time counts for all records of the batch.
            timestamp_ms = header.max_timestamp_ms
        key = self.nullable()
        value = self.nullable()
        header_count = self.varint()
        if header_count < 0 or header_count > record_end - self.position:
            raise CorruptBatchError(f"record at byte {self.position}: {header_count} headers")
        headers = tuple([self.header() for _ in range(header_count)]) if header_count else ()
        if self.position != record_end:
            raise CorruptBatchError(f"record before byte {self.position}: its length is wrong")
        return Record(
            offset=offset, timestamp_ms=timestamp_ms, key=key, value=value, headers=headers
        )

    def header(self) -> tuple[str, bytes | None]:
        name = self.nullable()
        if name is None:
            raise CorruptBatchError(f"record header at byte {self.position}: it has no name")
        try:
            return name.decode(), self.nullable()
        except UnicodeDecodeError as error:
            raise CorruptBatchError(
                f"record header at byte {self.position}: its name is not UTF-8"
            ) from error

    def nullable(self) -> bytes | None:
        length = self.varint()
        if length == _UNKNOWN:
            return None
        position = self.position
        if length < 0 or position + length > self.end:
            raise CorruptBatchError(f"field at byte {position}: {length} bytes do not fit")
        self.position = position + length
        return self.data[position : position + length]

    def varint(self) -> int:
        """Reads a zigzag varint of at most ten bytes."""
        position = self.position
        # Nearly all have one byte.
        if position < self.end and (byte := self.data[position]) < 0x80:
            self.position = position + 1
            return (byte >> 1) ^ -(byte & 1)
        value = 0
        # Ten times seven bits hold any 64-bit number; a longer run is not a number.
        for shift in range(0, 70, 7):
            if position >= self.end:
                break
            byte = self.data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                return (value >> 1) ^ -(value & 1)
        raise CorruptBatchError(f"field at byte {self.position}: no whole number")


def _encode_unsigned(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_SMALL = [_encode_unsigned(value) for value in range(4096)]
"""Lengths and deltas are nearly always small; a table is several times faster than the loop."""


def _varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    return _SMALL[zigzag] if zigzag < 4096 else _encode_unsigned(zigzag)


def _nullable(value: bytes | None) -> bytes:
    return b"\x01" if value is None else _varint(len(value)) + value
