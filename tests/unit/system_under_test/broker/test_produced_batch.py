"""What a client may produce: one validation, its order, and the value that the partition gets."""

import struct

import pytest
from crc32c import crc32c

from system_under_test.broker.produced_batch import validate
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.record_batch import encode_batch
from tests.unit.system_under_test.broker.replica_fakes import Broker, only_produced

NEWEST_MS = 1000


def batch(timestamp_ms=1, count=2):
    return encode_batch([(b"k", b"v")] * count, timestamp_ms=timestamp_ms)


def outcome(records, *, topic="t", api_version=-1):
    return validate(topic, records, api_version=api_version, newest_allowed_ms=NEWEST_MS)


def sealed(damaged):
    """Returns a batch with a checksum that fits."""
    damaged[17:21] = crc32c(bytes(damaged[21:])).to_bytes(4, "big")
    return bytes(damaged)


def with_attributes(attributes):
    changed = bytearray(batch())
    struct.pack_into(">h", changed, 21, attributes)
    return sealed(changed)


def with_count(count):
    changed = bytearray(batch())
    struct.pack_into(">i", changed, 57, count)
    return changed


def test_a_sound_batch_becomes_a_verified_one():
    found = outcome(batch())
    assert isinstance(found, VerifiedBatches)
    assert found.data == batch()
    assert [span.record_count for span in found.spans] == [2]


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (None, ErrorCode.CORRUPT_MESSAGE),
        (b"", ErrorCode.CORRUPT_MESSAGE),
        (batch()[:20], ErrorCode.CORRUPT_MESSAGE),
        (batch()[:-1], ErrorCode.CORRUPT_MESSAGE),
        (batch()[:-1] + b"\x05", ErrorCode.CORRUPT_MESSAGE),
        (batch() * 2, ErrorCode.INVALID_RECORD),
        (with_attributes(0x20), ErrorCode.INVALID_RECORD),
        (with_attributes(0x10), ErrorCode.INVALID_TXN_STATE),
        (with_attributes(0x08), ErrorCode.INVALID_TIMESTAMP),
        (with_attributes(0x07), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (sealed(with_count(3)), ErrorCode.INVALID_RECORD),
        (bytes(with_count(3)), ErrorCode.CORRUPT_MESSAGE),
        (batch(timestamp_ms=NEWEST_MS + 1), ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_other_batches_are_refused_with_a_reason(records, error):
    assert outcome(records) is error


def test_a_record_timestamp_may_be_at_the_limit():
    assert isinstance(outcome(batch(timestamp_ms=NEWEST_MS)), VerifiedBatches)


def test_zstd_is_refused_only_for_clients_that_do_not_support_it():
    compressed = with_attributes(4)
    assert outcome(compressed, api_version=6) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert isinstance(outcome(compressed, api_version=7), VerifiedBatches)


def test_only_the_coordinator_writes_offsets():
    assert outcome(batch(), topic="__consumer_offsets") is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_only_a_leader_that_may_append_reports_a_damaged_batch():
    """As in Kafka, leadership and min ISR are tested before the checksum."""
    broker = Broker()
    damaged = batch()[:-2] + b"\x00\x01"
    broker.follow(2)
    refused = only_produced(broker.produce(data=damaged))
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.lead(isr=(1,))
    refused = only_produced(broker.produce(data=damaged))
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    broker.lead(isr=(1, 2, 3))
    assert only_produced(broker.produce(data=damaged)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert broker.log_end == 0
