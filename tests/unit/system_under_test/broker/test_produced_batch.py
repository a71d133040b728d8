"""What a client may produce: one validation, its order, and the value that the partition gets."""

import gzip
import struct

import pytest
from crc32c import crc32c

from system_under_test.broker.produced_batch import sole_batch, validate
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol import record_check
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import millis, produce_request
from system_under_test.protocol.record_batch import encode_batch
from tests.unit.system_under_test.broker.replica_fakes import Broker, only_produced

NEWEST_MS = 1000


def batch(timestamp_ms=1, count=2):
    return encode_batch([(b"k", b"v")] * count, timestamp_ms=timestamp_ms)


def outcome(records, *, api_version=-1, **options):
    found = sole_batch(records or b"", api_version)
    if isinstance(found, ErrorCode):
        return found
    return validate(found, newest_allowed_ms=NEWEST_MS, **options)


def sealed(damaged):
    """Returns a batch with a checksum that fits."""
    damaged[17:21] = crc32c(bytes(damaged[21:])).to_bytes(4, "big")
    return bytes(damaged)


def with_attributes(attributes):
    changed = bytearray(batch())
    struct.pack_into(">h", changed, 21, attributes)
    return sealed(changed)


def with_payload(payload, attributes):
    """Returns a batch whose records are replaced."""
    changed = bytearray(batch()[:61]) + payload
    struct.pack_into(">i", changed, 8, len(changed) - 12)
    struct.pack_into(">h", changed, 21, attributes)
    return sealed(changed)


def gzipped(records):
    return with_payload(gzip.compress(records, mtime=0), 1)


def with_magic(magic):
    changed = bytearray(batch())
    changed[16] = magic
    return bytes(changed)


def with_length(length):
    changed = bytearray(batch())
    struct.pack_into(">i", changed, 8, length)
    return bytes(changed)


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
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (batch()[:5], ErrorCode.INVALID_RECORD),
        (batch()[:12], ErrorCode.INVALID_RECORD),
        (batch()[:20], ErrorCode.INVALID_RECORD),
        (batch()[:-1], ErrorCode.INVALID_RECORD),
        (with_magic(0), ErrorCode.INVALID_RECORD),
        (with_magic(1), ErrorCode.INVALID_RECORD),
        (with_magic(3), ErrorCode.CORRUPT_MESSAGE),
        (with_magic(0x80), ErrorCode.CORRUPT_MESSAGE),
        (with_length(0), ErrorCode.CORRUPT_MESSAGE),
        (with_length(-1), ErrorCode.CORRUPT_MESSAGE),
        (with_length(20), ErrorCode.INVALID_RECORD),
        (bytes(100), ErrorCode.CORRUPT_MESSAGE),
        (batch() + bytes(20), ErrorCode.CORRUPT_MESSAGE),
        (b"\0" * 7 + b"\x4d" + batch()[8:], ErrorCode.INVALID_RECORD),
        (batch()[:-1] + b"\x05", ErrorCode.CORRUPT_MESSAGE),
        (batch() * 2, ErrorCode.INVALID_RECORD),
        (with_attributes(0x20), ErrorCode.INVALID_RECORD),
        (with_attributes(0x10), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (with_attributes(0x01), ErrorCode.UNKNOWN_SERVER_ERROR),
        (
            with_payload(gzip.compress(batch()[61:], mtime=0)[:-9], 1),
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
        (gzipped(batch(count=1)[61:]), ErrorCode.INVALID_RECORD),
        (gzipped(batch()[61:] + b"\0\0"), ErrorCode.INVALID_RECORD),
        (with_attributes(0x07), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (sealed(with_count(3)), ErrorCode.INVALID_RECORD),
        (bytes(with_count(3)), ErrorCode.CORRUPT_MESSAGE),
        (batch(timestamp_ms=NEWEST_MS + 1), ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_other_batches_are_refused_with_a_reason(records, error):
    assert outcome(records) is error


def test_a_damaged_gzip_batch_is_reported_as_damaged():
    damaged = bytearray(with_attributes(0x01))
    damaged[-1] ^= 1
    assert outcome(bytes(damaged)) is ErrorCode.CORRUPT_MESSAGE


def test_sound_gzip_is_stored_as_it_is_and_its_records_count():
    compressed = gzipped(batch()[61:])
    assert outcome(compressed).data == compressed
    late = gzipped(batch(timestamp_ms=1)[61:])
    ahead = bytearray(late)
    struct.pack_into(">q", ahead, 27, NEWEST_MS + 1)
    assert outcome(sealed(ahead)) is ErrorCode.INVALID_TIMESTAMP


def test_gzip_that_would_not_fit_into_memory_is_refused(monkeypatch):
    monkeypatch.setattr(record_check, "DECOMPRESSED_BYTES_MAX", 10)
    assert outcome(gzipped(batch()[61:])) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_transactional_batch_needs_a_transactional_id():
    found = outcome(with_attributes(0x10), has_transactional_id=True)
    assert isinstance(found, VerifiedBatches)
    assert found.spans[0].is_transactional
    refused = outcome(with_attributes(0x10), has_transactional_id=False)
    assert refused is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_the_log_append_time_bit_of_a_client_is_cleared():
    assert outcome(with_attributes(0x08)).data == batch()


@pytest.mark.parametrize("more", [b"\0", batch()[:12], batch()[:40], batch()[:-1]])
def test_an_incomplete_batch_at_the_end_is_ignored(more):
    assert outcome(batch() + more).data == batch()


def test_a_record_timestamp_may_be_at_the_limit():
    assert isinstance(outcome(batch(timestamp_ms=NEWEST_MS)), VerifiedBatches)


def test_zstd_is_refused_only_for_clients_that_do_not_support_it():
    compressed = with_attributes(4)
    assert outcome(compressed, api_version=6) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert isinstance(outcome(compressed, api_version=7), VerifiedBatches)


def test_only_the_coordinator_writes_offsets():
    broker = Broker()
    broker.metadata.known.add(("__consumer_offsets", 0))
    data = produce_request.PartitionProduceData(index=0, records=batch())
    response = broker.send(
        produce_request.ProduceRequest(
            acks=1,
            timeout=millis(1000),
            topic_data=(
                produce_request.TopicProduceData(name="__consumer_offsets", partition_data=(data,)),
            ),
        )
    )
    assert only_produced(response).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


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
