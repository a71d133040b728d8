"""Batches that were verified once: what is accepted, and where a log writes its offsets."""

import dataclasses

import pytest

from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.batch_rewrite import readable_records, rewritten
from system_under_test.protocol.record_batch import (
    CorruptBatchError,
    encode_batch,
    header_at,
    spans,
)

ONE = encode_batch([(None, b"a")], timestamp_ms=1)
TWO = encode_batch([(None, b"b"), (None, b"c")], timestamp_ms=2)


def test_the_spans_are_those_of_the_data():
    verified = VerifiedBatches.verify(ONE + TWO)
    assert verified.data == ONE + TWO
    assert list(verified.spans) == spans(ONE + TWO, verify_crc=True)


@pytest.mark.parametrize("data", [b"", ONE[:-1], ONE + b"\0", ONE[:-1] + b"\x07", TWO + ONE[:30]])
def test_other_data_is_not_a_verified_batch(data):
    with pytest.raises(CorruptBatchError):
        VerifiedBatches.verify(data)


def test_a_producers_batch_has_a_record_for_every_offset():
    """A follower copies batches that a cleaner made shorter; a producer must not send one."""
    batch = rewritten(header_at(TWO, 0), readable_records(TWO)[:1])
    assert spans(batch, verify_crc=True)[0].offset_count == 2
    with pytest.raises(CorruptBatchError, match="1 records in 2 offsets"):
        VerifiedBatches.verify(batch)


def test_a_verified_batch_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        VerifiedBatches.verify(ONE).data = b""


@pytest.mark.parametrize("data", [TWO, ONE + TWO, TWO + ONE + TWO])
def test_stamping_gives_consecutive_offsets_and_keeps_the_checksums(data):
    stamped = VerifiedBatches.verify(data).stamped(40, 7)
    offset = 40
    for span in spans(stamped, verify_crc=True):
        assert (span.base_offset, span.leader_epoch) == (offset, 7)
        offset += span.record_count
    assert len(stamped) == len(data)
