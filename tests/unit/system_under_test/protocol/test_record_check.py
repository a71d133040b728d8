"""The walk over a producer's records: it takes what can be read, and nothing else."""

import gzip
import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from system_under_test.protocol.record_batch import (
    CorruptBatchError,
    decode_records,
    encode_batch,
)
from system_under_test.protocol.record_check import (
    UnreadableRecordsError,
    UnsoundRecordsError,
    newest_timestamp_ms,
)

HEADER = 61
some_bytes = st.one_of(st.none(), st.binary(max_size=200))
HEADERED = bytes.fromhex("1c 00 04 00 02 6b 02 76 02 02 68 02 78".replace(" ", ""))
"""A record with timestamp delta 2 and a header h=x."""


def whole(count: int, body: bytes, base_ms: int = 100) -> bytes:
    """Returns a batch with these bytes for records, and a checksum that is right."""
    made = bytearray(encode_batch([(b"k", b"v")] * count, timestamp_ms=base_ms)[:HEADER] + body)
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">I", made, 17, crc32c(bytes(made[21:])))
    return bytes(made)


def is_sound(batch: bytes) -> bool:
    try:
        newest_timestamp_ms(batch)
    except UnsoundRecordsError:
        return False
    return True


def can_be_read(batch: bytes) -> bool:
    """Whether a consumer gets every offset once."""
    try:
        ((header, records),) = decode_records(batch)
    except (CorruptBatchError, ValueError):
        return False
    offsets = [record.offset for record in records]
    return offsets == list(range(header.base_offset, header.last_offset + 1))


@given(st.lists(st.tuples(some_bytes, some_bytes), min_size=1, max_size=5), st.integers(0, 2**42))
def test_encoder_output_is_sound(
    pairs: list[tuple[bytes | None, bytes | None]], at_ms: int
) -> None:
    assert newest_timestamp_ms(encode_batch(pairs, timestamp_ms=at_ms)) == at_ms


def test_the_newest_record_is_found_at_any_position() -> None:
    late = bytes([2 * (len(HEADERED) - 1), *HEADERED[1:]])
    early = bytearray(late)
    early[2], early[3] = 1, 2  # one millisecond before the batch, and the second record
    assert newest_timestamp_ms(whole(2, late + bytes(early))) == 102


@given(
    st.lists(st.tuples(some_bytes, some_bytes), min_size=1, max_size=3),
    st.integers(min_value=0),
    st.integers(0, 255),
)
def test_changed_records_are_sound_only_if_they_can_be_read(
    pairs: list[tuple[bytes | None, bytes | None]], place: int, byte: int
) -> None:
    body = bytearray(encode_batch(pairs, timestamp_ms=100)[HEADER:])
    body[place % len(body)] = byte
    batch = whole(len(pairs), bytes(body))
    assert is_sound(batch) == can_be_read(batch)


@given(st.integers(1, 3), st.binary(max_size=60))
def test_any_bytes_are_sound_only_if_they_can_be_read(count: int, body: bytes) -> None:
    batch = whole(count, body)
    # A header name that is not UTF-8 is left to the consumer.
    assert is_sound(batch) >= can_be_read(batch)
    if is_sound(batch) and not can_be_read(batch):
        with pytest.raises(CorruptBatchError, match="UTF-8"):
            decode_records(batch)


@pytest.mark.parametrize("cut", range(1, 9))
def test_records_that_end_too_early_are_refused(cut: int) -> None:
    batch = encode_batch([(b"k", b"value")], timestamp_ms=1)
    with pytest.raises(UnsoundRecordsError):
        newest_timestamp_ms(batch[:-cut])


@pytest.mark.parametrize("codec", [2, 3, 4])
def test_records_of_codecs_other_than_gzip_are_not_decompressed(codec: int) -> None:
    batch = bytearray(whole(1, b"whatever"))
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">q", batch, 35, 4711)
    assert newest_timestamp_ms(bytes(batch)) == 4711


def test_gzip_is_decompressed_and_its_records_are_checked() -> None:
    plain = encode_batch([(b"k", b"value")], timestamp_ms=4711)
    batch = bytearray(whole(1, gzip.compress(plain[61:])))
    struct.pack_into(">h", batch, 21, 1)
    struct.pack_into(">q", batch, 27, 4711)
    assert newest_timestamp_ms(bytes(batch)) == 4711
    struct.pack_into(">i", batch, 57, 2)
    struct.pack_into(">i", batch, 23, 1)
    with pytest.raises(UnsoundRecordsError):
        newest_timestamp_ms(bytes(batch))


def test_what_is_no_gzip_cannot_be_read() -> None:
    batch = bytearray(whole(1, b"whatever"))
    struct.pack_into(">h", batch, 21, 1)
    with pytest.raises(UnreadableRecordsError):
        newest_timestamp_ms(bytes(batch))
