"""The file of a metadata snapshot: Kafka's format, and nothing else is read."""

import pytest

from system_under_test.metadata.records import ConfigRecord, NoOpRecord
from system_under_test.metadata.snapshot import MetadataSnapshot, SnapshotId
from system_under_test.protocol.metadata_codec import encode_metadata_batch
from system_under_test.protocol.record_batch import decode_records, encode_batch
from system_under_test.protocol.snapshot_codec import (
    RECORDS_PER_BATCH,
    decode_header,
    decode_snapshot,
    encode_snapshot,
)

ID = SnapshotId(end_offset=500, epoch=7)
RECORDS = tuple(
    ConfigRecord(resource_type=2, resource_name="t", name=f"n{number}", value="v")
    for number in range(RECORDS_PER_BATCH + 5)
)


def encoded(records=RECORDS) -> bytes:
    return encode_snapshot(records, ID, timestamp_ms=12345)


@pytest.mark.parametrize("count", [0, 1, RECORDS_PER_BATCH, RECORDS_PER_BATCH + 5])
def test_records_survive_the_file(count: int) -> None:
    snapshot = decode_snapshot(encoded(RECORDS[:count]), ID)
    assert snapshot == MetadataSnapshot(id=ID, records=RECORDS[:count])


def test_the_file_is_a_header_batches_and_a_footer_with_contiguous_offsets() -> None:
    batches = decode_records(encoded())
    assert [header.is_control for header, _ in batches] == [True, False, False, True]
    assert {header.leader_epoch for header, _ in batches} == {7}
    assert {header.max_timestamp_ms for header, _ in batches} == {12345}
    offsets = [record.offset for _, records in batches for record in records]
    assert offsets == list(range(len(RECORDS) + 2))
    header, footer = batches[0][1][0], batches[-1][1][0]
    # Keys: version 0, control record types SNAPSHOT_HEADER and SNAPSHOT_FOOTER. Values: version 0, the timestamp,
    # no tagged field.
    assert (header.key, footer.key) == (b"\0\0\0\3", b"\0\0\0\4")
    assert header.value == b"\0\0" + (12345).to_bytes(8, "big") + b"\0"
    assert footer.value == b"\0\0\0"


def test_the_header_is_read_from_the_beginning_of_a_file() -> None:
    assert decode_header(encoded()[:200]).last_contained_log_timestamp_ms == 12345
    with pytest.raises(ValueError, match="it is empty"):
        decode_header(encoded()[:20])
    with pytest.raises(ValueError, match="does not begin with a header"):
        decode_header(encode_batch([(None, b"x")], timestamp_ms=0))


def test_an_incomplete_file_is_refused_wherever_it_ends() -> None:
    data = encoded(RECORDS[:3])
    for end in range(len(data)):
        with pytest.raises(ValueError, match="metadata snapshot"):
            decode_snapshot(data[:end], ID)


def test_every_flipped_bit_that_a_checksum_covers_is_noticed() -> None:
    data = bytearray(encoded(RECORDS[:1]))
    checked = 0
    for position in range(len(data)):
        damaged = bytes(data[:position]) + bytes([data[position] ^ 1]) + bytes(data[position + 1 :])
        try:
            assert decode_snapshot(damaged, ID).records == RECORDS[:1]
        except ValueError:
            checked += 1
    # Only offset and epoch of a batch (12 of its bytes) lie before the checksum.
    assert checked >= len(data) - 3 * 12


def test_other_batches_are_refused() -> None:
    whole = encoded(())
    size = decode_records(whole)[0][0].size_bytes
    header, footer = whole[:size], whole[size:]
    noop = encode_metadata_batch((NoOpRecord(),), timestamp_ms=0, base_offset=1, quorum_epoch=7)
    assert decode_snapshot(header + noop + footer, ID).records == (NoOpRecord(),)
    for data, problem in (
        (noop + footer, "header"),
        (header + noop, "footer"),
        (header, "footer"),
        (header + header + footer, "unknown control record"),
    ):
        with pytest.raises(ValueError, match=problem):
            decode_snapshot(data, ID)
