"""Requests that third-party clients can send to a broker and that our clients never send."""

import struct
from typing import Any
from uuid import UUID

import pytest
from crc32c import crc32c

from system_under_test.broker import fetch
from system_under_test.broker.metadata_cache import OFFSETS_TOPIC
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.entities import fetch_of, fetch_partition, fetch_topic, produce_of
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import fetch_request, millis
from system_under_test.protocol.record_batch import encode_batch
from tests.unit.system_under_test.broker.node_fakes import run_virtually
from tests.unit.system_under_test.broker.replica_fakes import TOPIC, TOPIC_ID, Broker

ATTRIBUTES = 21
CRC = 17


def leader() -> Broker:
    """Returns a broker that is its partition's only replica."""
    broker = Broker(min_isr=1)
    broker.lead(isr=(1,), replicas=(1,))
    return broker


def with_attributes(attributes: int, records: bytes = b"", *, timestamp_ms: int = 1) -> bytes:
    """Returns a batch with other attributes, and other bytes for records, that is whole as a batch."""
    made = bytearray(encode_batch([(b"k", b"v")], timestamp_ms=timestamp_ms))
    if records:
        made[61:] = records
        struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">h", made, ATTRIBUTES, attributes)
    struct.pack_into(">I", made, CRC, crc32c(bytes(made[ATTRIBUTES:])))
    return bytes(made)


def with_counts(said: int, have: int = 1) -> bytes:
    """Returns a batch whose header has a wrong number of records, and whose checksum is right."""
    made = bytearray(encode_batch([(b"k", b"v")] * have, timestamp_ms=1))
    struct.pack_into(">i", made, 23, said - 1)
    struct.pack_into(">i", made, 57, said)
    struct.pack_into(">I", made, CRC, crc32c(bytes(made[ATTRIBUTES:])))
    return bytes(made)


def produced(broker: Broker, records: bytes | None, topic: str = TOPIC) -> ErrorCode:
    """Returns the error of a produce request with acks=1."""
    request = produce_of(topic, 0, records, 1, millis(100))  # type: ignore[arg-type]
    found: ErrorCode = broker.send(request).responses[0].partition_responses[0].error_code
    return found


def test_a_compressed_batch_is_stored_unchanged():
    for codec in (2, 3, 4):
        broker = leader()
        sent = with_attributes(codec, b"whatever the codec makes of it")
        assert produced(broker, sent) == ErrorCode.NONE
        log = broker.partition.log
        # The offset and the leader epoch are the log's; everything else is the producer's.
        stored = log.read(0, 1 << 20, log.log_end_offset)
        assert stored[16:] == sent[16:]


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (b"short", ErrorCode.INVALID_RECORD),
        (b"\0" * 100, ErrorCode.CORRUPT_MESSAGE),
        (encode_batch([(b"k", b"v")], timestamp_ms=1) * 2, ErrorCode.INVALID_RECORD),
        (encode_batch([(b"k", b"v")], timestamp_ms=1)[:-1], ErrorCode.INVALID_RECORD),
        (with_attributes(5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (with_attributes(7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (with_attributes(0x10), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (with_attributes(0x20), ErrorCode.INVALID_RECORD),
        (with_attributes(1, b"no gzip"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (with_attributes(0, b"\xff" * 20), ErrorCode.INVALID_RECORD),
        (with_counts(1 << 30), ErrorCode.INVALID_RECORD),
        (with_counts(5), ErrorCode.INVALID_RECORD),
        (with_counts(1, 2), ErrorCode.INVALID_RECORD),
    ],
    ids=[
        "null", "empty", "short", "zeros", "two-batches", "torn", "codec-5", "codec-7", "transactional", "control",
        "no-gzip", "garbage", "2^30-records-of-one", "five-records-of-one", "one-record-of-two",
    ],
)  # fmt: skip
def test_anything_but_one_intact_client_batch_is_refused(records, error):
    broker = leader()
    assert produced(broker, records) == error
    assert broker.partition.log.log_end_offset == 0


@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_batch_with_a_wrong_checksum_is_refused(bit):
    good = encode_batch([(b"k", b"value")], timestamp_ms=1)
    for position in range(ATTRIBUTES + 2, len(good)):
        broken = bytearray(good)
        broken[position] ^= 1 << bit
        broker = leader()
        assert produced(broker, bytes(broken)) == ErrorCode.CORRUPT_MESSAGE
        assert broker.partition.log.log_end_offset == 0


@pytest.mark.parametrize("profile", ["kafka-3.9", "kafka-4.0", "kafka-4.1"])
def test_from_kafka_4_a_record_may_be_at_most_an_hour_ahead(profile):
    broker = Broker(min_isr=1, profile=profile)
    broker.lead(isr=(1,), replicas=(1,))
    limit_ms = broker.host.clock.wall_ms() + 3_600_000
    assert produced(broker, encode_batch([(b"k", b"v")], timestamp_ms=limit_ms)) == ErrorCode.NONE
    late = produced(broker, encode_batch([(b"k", b"v")], timestamp_ms=limit_ms + 1))
    assert late == (ErrorCode.NONE if profile == "kafka-3.9" else ErrorCode.INVALID_TIMESTAMP)


def test_only_the_coordinator_writes_committed_offsets():
    broker = leader()
    broker.register(topic=OFFSETS_TOPIC, topic_id=UUID(int=99))
    sent = encode_batch([(b"k", b"v")], timestamp_ms=1)
    assert produced(broker, sent, OFFSETS_TOPIC) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert broker.manager.partitions[OFFSETS_TOPIC, 0].log.log_end_offset == 0


def test_a_timestamp_inside_a_compressed_batch_maps_to_its_first_offset():
    broker = leader()
    plain = encode_batch([(b"k", b"a"), (b"k", b"b")], timestamp_ms=100)
    closed = with_attributes(2, b"compressed", timestamp_ms=200)
    nonsense = with_attributes(0, b"\x01\x02\x03", timestamp_ms=300)
    for records in (plain, closed):
        assert produced(broker, records) == ErrorCode.NONE
    broker.partition.append_as_leader(
        VerifiedBatches.verify(nonsense), 1
    )  # as in a log that another program wrote
    assert produced(broker, encode_batch([(b"k", b"z")], timestamp_ms=400)) == ErrorCode.NONE
    assert [
        (found.offset, found.timestamp)
        for found in (broker.list_offsets(at) for at in (50, 150, 250, 350, 450, -3))
    ] == [(0, 100), (2, 200), (3, 300), (4, 400), (-1, -1), (4, 400)]


# --- fetch


def fetch_one(broker: Broker, *, min_bytes: int, max_bytes: int, wait_ms: int = 1000) -> Any:
    request = fetch_request.FetchRequest(
        max_wait=millis(wait_ms),
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=(fetch_topic(TOPIC_ID, (fetch_partition(0, -1, 0, 1 << 30),)),),
        forgotten_topics_data=(),
    )
    return broker.send(request)


def test_a_fetch_never_waits_for_more_bytes_than_a_response_may_have():
    async def story() -> list[bool]:
        broker = leader()
        produced(broker, encode_batch([(b"k", b"v" * 100)], timestamp_ms=1))
        answers = [
            fetch_one(broker, min_bytes=1 << 20, max_bytes=max_bytes)
            for max_bytes in (150, 1 << 20)
        ]
        return [hasattr(response, "responses") for response in answers]

    assert run_virtually(story()) == [True, False]


def test_a_response_is_limited_whatever_is_requested(monkeypatch):
    monkeypatch.setattr(fetch, "FETCH_MAX_BYTES", 250)
    broker = leader()
    for _ in range(5):
        produced(broker, encode_batch([(b"k", b"v" * 30)], timestamp_ms=1))
    size = len(encode_batch([(b"k", b"v" * 30)], timestamp_ms=1))
    response = fetch_one(broker, min_bytes=1, max_bytes=2**31 - 1)
    assert len(response.responses[0].partitions[0].records) == 250 // size * size


def test_the_first_batch_gets_through_any_limit():
    broker = leader()
    sent = encode_batch([(b"k", b"v" * 1000)], timestamp_ms=1)
    produced(broker, sent)
    for max_bytes in (0, 1, -1, -(2**31)):
        response = fetch_one(broker, min_bytes=1, max_bytes=max_bytes)
        assert len(response.responses[0].partitions[0].records) == len(sent)


def test_what_is_committed_is_stable_in_both_isolation_levels():
    broker = leader()
    produced(broker, encode_batch([(b"k", b"v")], timestamp_ms=1))
    answers = [
        broker.send(
            fetch_request.FetchRequest(
                max_wait=millis(0),
                min_bytes=1,
                isolation_level=level,
                topics=(fetch_topic(TOPIC_ID, (fetch_partition(0, -1, 0, 1 << 20),)),),
                forgotten_topics_data=(),
                rack_id="some rack",
            )
        )
        for level in (0, 1)
    ]
    assert answers[0] == answers[1]
    (data,) = answers[0].responses[0].partitions
    assert (data.high_watermark, data.last_stable_offset) == (1, 1)
    assert (data.aborted_transactions, data.preferred_read_replica) == (None, -1)
    assert broker.send(fetch_of((), millis(0), 100)).responses == ()
