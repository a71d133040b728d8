"""Batches with fewer records: what they keep, and that the result is a batch that everybody reads."""

import zlib

import pytest

from system_under_test.protocol.batch_rewrite import (
    delete_horizon_ms,
    filler,
    is_filler,
    readable_records,
    rewritten,
)
from system_under_test.protocol.record_batch import (
    decode_records,
    encode_batch,
    header_at,
    spans,
)

PAIRS = [(b"a", b"1"), (b"b", None), (None, b"3"), (b"c", b"")]
BATCH = encode_batch(
    PAIRS,
    timestamp_ms=5000,
    base_offset=40,
    leader_epoch=3,
    producer_id=7,
    producer_epoch=2,
    base_sequence=9,
)
HEADER = header_at(BATCH, 0)
RECORDS = readable_records(BATCH)
KEPT = ("base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch")


def gzipped() -> bytes:
    """Returns the batch with compressed records."""
    stream = zlib.compressobj(wbits=31)
    body = stream.compress(BATCH[61:]) + stream.flush()
    made = bytearray(BATCH[:61]) + body
    made[8:12] = (len(made) - 12).to_bytes(4, "big")
    made[21:23] = (1).to_bytes(2, "big")
    from crc32c import crc32c

    made[17:21] = crc32c(bytes(made[21:])).to_bytes(4, "big")
    return bytes(made)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
def test_a_batch_keeps_its_place_its_producer_and_the_chosen_records(count):
    made = rewritten(HEADER, RECORDS[4 - count :])
    ((header, records),) = decode_records(made)
    assert records == RECORDS[4 - count :]
    assert [getattr(header, name) for name in KEPT] == [getattr(HEADER, name) for name in KEPT]
    assert header.base_sequence == HEADER.base_sequence
    (span,) = spans(made, verify_crc=True)
    assert (span.record_count, span.offset_count) == (count, 4)


def test_all_records_give_the_same_bytes():
    assert rewritten(HEADER, RECORDS) == BATCH


def test_headers_of_records_stay():
    made = encode_batch(PAIRS, timestamp_ms=1)
    record = RECORDS[0]
    with_headers = type(record)(
        offset=40, timestamp_ms=6000, key=b"k", value=b"v", headers=(("h", b"x"), ("n", None))
    )
    assert made
    ((header, (found,)),) = decode_records(rewritten(HEADER, [with_headers]))
    assert found == with_headers
    assert header.max_timestamp_ms == 6000


def test_a_delete_horizon_changes_no_timestamp():
    made = rewritten(HEADER, RECORDS[1:], horizon_ms=99_000)
    header = header_at(made, 0)
    assert delete_horizon_ms(HEADER) is None
    assert delete_horizon_ms(header) == 99_000
    assert [record.timestamp_ms for record in readable_records(made)] == [5000] * 3
    again = rewritten(header, readable_records(made)[1:], horizon_ms=99_000)
    assert delete_horizon_ms(header_at(again, 0)) == 99_000
    assert [record.timestamp_ms for record in readable_records(again)] == [5000] * 2


def test_gzip_is_read_and_written():
    batch = gzipped()
    assert readable_records(batch) == RECORDS
    made = rewritten(header_at(batch, 0), RECORDS[:2])
    assert header_at(made, 0).attributes & 7 == 1
    assert readable_records(made) == RECORDS[:2]


@pytest.mark.parametrize("codec", [2, 3, 4])
def test_other_codecs_are_not_read(codec):
    changed = bytearray(BATCH)
    changed[22] |= codec
    assert readable_records(bytes(changed)) is None


def test_a_damaged_batch_is_not_read():
    for batch in (BATCH, gzipped()):
        damaged = bytearray(batch)
        damaged[-3] ^= 1
        assert readable_records(bytes(damaged)) is None


def test_a_filler_covers_offsets_and_has_nothing():
    made = filler(10, 5, 2)
    (span,) = spans(made, verify_crc=True)
    assert (span.base_offset, span.offset_count, span.leader_epoch) == (10, 5, 2)
    assert (span.record_count, span.producer_id, span.max_timestamp_ms) == (0, -1, -1)
    assert is_filler(header_at(made, 0))
    assert not is_filler(header_at(rewritten(HEADER, ()), 0))
    assert not is_filler(HEADER)
