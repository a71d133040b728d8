"""Record batches: what is encoded is decoded, and no bytes make the codec raise anything unexpected."""

from contextlib import suppress

from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from system_under_test.protocol.record_batch import (
    CorruptBatchError,
    decode_records,
    encode_batch,
    read_headers,
    spans,
    stamp,
    verify,
)

FIELDS = st.none() | st.binary(max_size=80) | st.binary(min_size=5000, max_size=5001)
RECORDS = st.lists(st.tuples(FIELDS, FIELDS), min_size=1, max_size=8)
OFFSETS = st.integers(0, 2**62)
EPOCHS = st.integers(-1, 2**31 - 1)
TIMESTAMPS = st.integers(0, 2**53)


@given(
    st.lists(st.tuples(RECORDS, TIMESTAMPS, OFFSETS, EPOCHS, st.booleans()), max_size=4), st.data()
)
def test_encoding_and_decoding_round_trips(batches, data):
    encoded = [
        encode_batch(
            records,
            timestamp_ms=timestamp_ms,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            is_control=is_control,
        )
        for records, timestamp_ms, base_offset, leader_epoch, is_control in batches
    ]
    run = b"".join(encoded)
    trailing = data.draw(st.integers(0, 60))
    decoded = decode_records(run + encode_batch([(None, None)], timestamp_ms=0)[:trailing])
    assert [
        (
            [(record.key, record.value) for record in records],
            header.base_timestamp_ms,
            header.base_offset,
            header.leader_epoch,
            header.is_control,
        )
        for header, records in decoded
    ] == batches
    for header, records in decoded:
        offsets = [record.offset for record in records]
        assert offsets == list(range(header.base_offset, header.last_offset + 1))
    assert [span.size_bytes for span in spans(run, verify_crc=True)] == [len(b) for b in encoded]


@given(RECORDS, OFFSETS, EPOCHS, OFFSETS, EPOCHS)
def test_stamping_equals_encoding_with_final_offsets(records, offset, epoch, old_offset, old_epoch):
    wanted = encode_batch(records, timestamp_ms=3, base_offset=offset, leader_epoch=epoch)
    made = encode_batch(records, timestamp_ms=3, base_offset=old_offset, leader_epoch=old_epoch)
    assert stamp(made, base_offset=offset, leader_epoch=epoch) == wanted


def _use_everything(data: bytes) -> None:
    for verify_crc in (True, False):
        with suppress(CorruptBatchError):
            decode_records(data, verify_crc=verify_crc)
        with suppress(CorruptBatchError):
            spans(data, verify_crc=verify_crc)
    with suppress(CorruptBatchError):
        for position, header in read_headers(data):
            verify(data, position, header)
    with suppress(CorruptBatchError):
        stamp(data, base_offset=1, leader_epoch=1)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_raise_only_corrupt_record_errors(data):
    _use_everything(data)


@settings(max_examples=300)
@given(RECORDS, st.data())
def test_damaged_batches_raise_only_corrupt_record_errors(records, data):
    damaged = bytearray(encode_batch(records, timestamp_ms=1, leader_epoch=2))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    if len(damaged) > 21 and data.draw(st.booleans()):
        # With a checksum that fits, so that the parser of the records is reached as well.
        damaged[17:21] = crc32c(bytes(damaged[21:])).to_bytes(4, "big")
    _use_everything(bytes(damaged))


@given(RECORDS, st.data())
def test_a_changed_byte_under_the_checksum_never_goes_unnoticed(records, data):
    batch = bytearray(encode_batch(records, timestamp_ms=1))
    batch[data.draw(st.integers(21, len(batch) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        spans(bytes(batch), verify_crc=True)
    except CorruptBatchError:
        return
    raise AssertionError("a damaged batch was accepted")
