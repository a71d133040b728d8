"""The record batch codec: golden bytes, an independent reader, and every way in which bytes can be wrong."""

import struct

import pytest
from crc32c import crc32c
from kio.records.readers import read_batch

from system_under_test.protocol.record_batch import (
    HEADER_BYTES,
    CorruptBatchError,
    decode_records,
    encode_batch,
    header_at,
    read_headers,
    span_at,
    spans,
    stamp,
    verify,
)

GOLDEN = bytes.fromhex(
    "00000000 00000007  00000045  00000003  02  1b0f2277"  # offset 7, length 69, epoch 3, magic, crc
    "0000  00000001  0000018b cfe5687b  0000018b cfe5687b"  # attributes, last delta, both timestamps
    "ffffffff ffffffff  ffff  ffffffff  00000002"  # no producer, two records
    "18 00 00 00 02 6b 0a 76616c7565 00"  # length 12, delta 0, key "k", value "value", no headers
    "0c 00 00 02 01 01 00"  # length 6, delta 1, neither key nor value
)


def _golden() -> bytes:
    return encode_batch(
        [(b"k", b"value"), (None, None)],
        timestamp_ms=1700000000123,
        base_offset=7,
        leader_epoch=3,
    )


def _with_crc(batch: bytearray) -> bytes:
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def test_a_batch_has_the_same_bytes_as_in_kafka():
    assert _golden() == GOLDEN


def test_an_independent_reader_understands_a_batch():
    batch, size = read_batch(_golden(), 0)
    assert size == len(GOLDEN)
    assert (batch.base_offset, batch.partition_leader_epoch, batch.last_offset_delta) == (7, 3, 1)
    assert [(record.offset, record.key, record.value) for record in batch.records] == [
        (7, b"k", b"value"),
        (8, None, None),
    ]


def test_the_header_describes_the_encoded_records():
    header = header_at(GOLDEN, 0)
    assert header.base_offset == 7
    assert header.last_offset == 8
    assert header.leader_epoch == 3
    assert header.size_bytes == len(GOLDEN)
    assert header.base_timestamp_ms == header.max_timestamp_ms == 1700000000123
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert header.record_count == 2
    assert not header.is_control


def test_decoding_returns_offsets_timestamps_keys_and_values():
    [(header, records)] = decode_records(GOLDEN)
    assert header.base_offset == 7
    assert [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in records] == [
        (7, 1700000000123, b"k", b"value", ()),
        (8, 1700000000123, None, None, ()),
    ]


def test_a_control_batch_is_marked():
    assert header_at(encode_batch([(b"", b"")], timestamp_ms=0, is_control=True), 0).is_control


def test_empty_bytes_are_not_null():
    [(_, [record])] = decode_records(encode_batch([(b"", b"")], timestamp_ms=0))
    assert (record.key, record.value) == (b"", b"")


def test_record_headers_of_other_producers_are_read():
    body = b"\x00\x00\x00\x01\x01\x02" + b"\x02h" + b"\x04ab"
    record = bytes([len(body) * 2]) + body
    batch = bytearray(encode_batch([(None, None)], timestamp_ms=0)[:HEADER_BYTES] + record)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    [(_, [decoded])] = decode_records(_with_crc(batch))
    assert decoded.headers == (("h", b"ab"),)


def test_a_batch_without_records_cannot_be_made():
    with pytest.raises(ValueError, match="at least one record"):
        encode_batch([], timestamp_ms=0)


def test_stamping_moves_a_batch_without_touching_its_checksum():
    moved = stamp(GOLDEN, base_offset=1 << 40, leader_epoch=9)
    assert moved == encode_batch(
        [(b"k", b"value"), (None, None)],
        timestamp_ms=1700000000123,
        base_offset=1 << 40,
        leader_epoch=9,
    )
    verify(moved, 0, header_at(moved, 0))


def test_stamping_too_few_bytes_is_refused():
    with pytest.raises(CorruptBatchError, match="too short"):
        stamp(GOLDEN[:60], base_offset=0, leader_epoch=0)


def test_headers_of_consecutive_batches_have_their_positions():
    second = encode_batch([(None, b"x")], timestamp_ms=5, base_offset=9, leader_epoch=4)
    found = [(position, header.base_offset) for position, header in read_headers(GOLDEN + second)]
    assert found == [(0, 7), (len(GOLDEN), 9)]


def test_empty_input_contains_no_batches():
    assert list(read_headers(b"")) == []
    assert spans(b"", verify_crc=True) == []
    assert decode_records(b"") == []


@pytest.mark.parametrize("size", [1, 11, 12, 60, 61, len(GOLDEN) - 1])
def test_a_partial_batch_is_corrupt_for_a_log_and_ignored_by_a_consumer(size):
    with pytest.raises(CorruptBatchError):
        list(read_headers(GOLDEN + GOLDEN[:size]))
    with pytest.raises(CorruptBatchError):
        spans(GOLDEN + GOLDEN[:size], verify_crc=False)
    assert len(decode_records(GOLDEN + GOLDEN[:size])) == 1


@pytest.mark.parametrize("position", [*range(17, 21), *range(21, len(GOLDEN))])
def test_a_flipped_bit_in_or_under_the_checksum_is_found(position):
    damaged = bytearray(GOLDEN)
    damaged[position] ^= 0x10
    with pytest.raises(CorruptBatchError):
        decode_records(bytes(damaged))
    with pytest.raises(CorruptBatchError):
        spans(bytes(damaged), verify_crc=True)


def test_the_base_offset_is_not_covered_by_the_checksum():
    moved = bytearray(GOLDEN)
    moved[0:8] = (123).to_bytes(8, "big")
    moved[12:16] = (45).to_bytes(4, "big")
    span = span_at(bytes(moved), 0, verify_crc=True)
    assert (span.base_offset, span.leader_epoch) == (123, 45)


def test_other_magic_values_are_refused():
    old = bytearray(GOLDEN)
    old[16] = 1
    with pytest.raises(CorruptBatchError, match="magic 1"):
        decode_records(bytes(old))


def test_zeros_are_not_a_batch():
    with pytest.raises(CorruptBatchError, match="length 0 is too small"):
        list(read_headers(bytes(200)))


def test_a_batch_whose_counts_disagree_is_corrupt_for_a_log():
    batch = bytearray(GOLDEN)
    struct.pack_into(">i", batch, 57, 3)
    with pytest.raises(CorruptBatchError, match="3 records in 2 offsets"):
        span_at(_with_crc(batch), 0, verify_crc=True)


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (57, (3).to_bytes(4, "big")),  # more records than there are
        (57, (1).to_bytes(4, "big")),  # fewer
        (57, (2**31 - 1).to_bytes(4, "big")),  # absurdly more
        (61, b"\x1a"),  # a record longer than it is
        (61, b"\x01"),  # a record of negative length
        (61, b"\xff" * 12),  # a varint that never ends
        (65, b"\x7f"),  # a key beyond the batch
        (65, b"\x03"),  # a key of length -2
        (73, b"\x7e"),  # more headers than bytes
    ],
)
def test_records_that_contradict_their_frame_are_corrupt_even_with_a_good_checksum(position, value):
    batch = bytearray(GOLDEN)
    batch[position : position + len(value)] = value
    with pytest.raises(CorruptBatchError):
        decode_records(_with_crc(batch))


def test_compressed_batches_are_passed_through_but_not_decoded():
    batch = bytearray(GOLDEN)
    batch[22] = 1
    compressed = _with_crc(batch)
    assert span_at(compressed, 0, verify_crc=True).record_count == 2
    with pytest.raises(CorruptBatchError, match="compression codec 1"):
        decode_records(compressed)
