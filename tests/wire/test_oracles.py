"""kafka-python and aiokafka as oracles: two third-party codecs read what we write, and the other way round.

Records: what we encode they parse, what they build we parse, and compressed batches go through our log untouched.
Messages: requests and responses in every version that they know are also decoded and encoded again by them, and
must be the same bytes. Two codecs with a schema of their own do not agree on bytes by accident.
"""

import importlib
import inspect
import io
import pkgutil
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from system_under_test.config import LogConfig
from system_under_test.log import Log
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.apis import APIS, BROKER
from system_under_test.protocol.record_batch import (
    CorruptBatchError,
    decode_records,
    encode_batch,
    header_at,
)
from system_under_test.protocol.wire import ServerCodec
from tests.memory_storage import MemoryStorage
from tests.unit.system_under_test.protocol.wire_examples import (
    VERSIONS,
    api_of,
    arbitrary_request,
    arbitrary_response,
    body_of,
    frame_of,
)

pytest.importorskip("kafka", reason="kafka-python is not installed")
pytest.importorskip("aiokafka", reason="aiokafka is not installed")

import aiokafka.codec
import aiokafka.protocol
import kafka.codec
import kafka.protocol
from aiokafka.record import default_records as aiokafka_batches
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.protocol.api_message import ApiMessage
from kafka.record import default_records as kafka_python_batches
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

BUILDERS = {
    "kafka-python": kafka_python_batches.DefaultRecordBatchBuilder,
    "aiokafka": aiokafka_batches.DefaultRecordBatchBuilder,
}
READERS = {"kafka-python": KafkaPythonRecords, "aiokafka": AiokafkaRecords}
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
HAS_CODEC = {"kafka-python": kafka.codec, "aiokafka": aiokafka.codec}
SERVER = {role: ServerCodec(role) for role in ("broker", "controller")}

Flat = list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]
"""(offset, timestamp in ms, key, value, headers) of each record."""

bytes_or_null = st.one_of(st.none(), st.binary(max_size=40))
timestamps = st.integers(min_value=0, max_value=2**42)
headers = st.lists(st.tuples(st.text(max_size=8), bytes_or_null), max_size=3)
records = st.lists(
    st.tuples(timestamps, bytes_or_null, bytes_or_null, headers), min_size=1, max_size=8
)


def parsed_by(oracle: str, data: bytes) -> Flat:
    """Returns what an oracle reads, checksums verified."""
    found: Flat = []
    reader = READERS[oracle](data)
    while reader.has_next():
        batch = reader.next_batch()
        assert batch.validate_crc()
        found.extend(
            (one.offset, one.timestamp, one.key, one.value, list(one.headers)) for one in batch
        )
    return found


def parsed_by_us(data: bytes) -> Flat:
    return [
        (one.offset, one.timestamp_ms, one.key, one.value, list(one.headers))
        for _, batch in decode_records(data)
        for one in batch
    ]


def built_by(
    oracle: str, wanted: Any, *, codec: str = "none", producer: tuple[int, int, int] = (-1, -1, -1)
) -> bytes:
    """Returns a batch that an oracle built of (timestamp, key, value, headers)."""
    producer_id, epoch, sequence = producer
    builder = BUILDERS[oracle](
        magic=2,
        compression_type=CODECS[codec],
        is_transactional=0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=1 << 24,
    )
    for offset, (timestamp, key, value, of_record) in enumerate(wanted):
        assert builder.append(offset, timestamp, key, value, of_record) is not None
    return bytes(builder.build())


def as_read(wanted: Any, first_offset: int = 0) -> Flat:
    return [
        (first_offset + n, timestamp, key, value, list(of_record))
        for n, (timestamp, key, value, of_record) in enumerate(wanted)
    ]


def new_log() -> Log:
    return Log.load(MemoryStorage(), "log/t-0", LogConfig(), had_clean_shutdown=False)


def content(log: Log) -> bytes:
    return log.read(0, 1 << 30, log.log_end_offset)


# --- records


@pytest.mark.parametrize("oracle", READERS)
@given(
    pairs=st.lists(st.tuples(bytes_or_null, bytes_or_null), min_size=1, max_size=10),
    timestamp_ms=timestamps,
    base_offset=st.integers(min_value=0, max_value=2**40),
)
@settings(max_examples=60, deadline=None)
def test_oracles_read_our_batches(oracle, pairs, timestamp_ms, base_offset):
    data = encode_batch(
        pairs, timestamp_ms=timestamp_ms, base_offset=base_offset, leader_epoch=3
    ) + encode_batch([(b"k", b"v")], timestamp_ms=5, base_offset=base_offset + len(pairs))
    wanted = [(timestamp_ms, key, value, []) for key, value in pairs] + [(5, b"k", b"v", [])]
    assert parsed_by(oracle, data) == as_read(wanted, base_offset) == parsed_by_us(data)


@pytest.mark.parametrize("oracle", BUILDERS)
@given(wanted=records)
@settings(max_examples=60, deadline=None)
def test_we_read_the_batches_of_oracles(oracle, wanted):
    data = built_by(oracle, wanted)
    assert parsed_by_us(data) == as_read(wanted)
    header = header_at(data, 0)
    assert header.record_count == len(wanted)
    assert header.max_timestamp_ms == max(timestamp for timestamp, *_ in wanted)


@pytest.mark.parametrize("oracle", BUILDERS)
def test_we_read_the_producer_of_an_oracles_batch(oracle):
    data = built_by(oracle, [(1, b"k", b"v", [])], producer=(2**40, 7, 2**31 - 1))
    header = header_at(data, 0)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (
        2**40,
        7,
        2**31 - 1,
    )


@pytest.mark.parametrize("oracle", READERS)
def test_oracles_read_the_producer_of_our_batch(oracle):
    data = encode_batch(
        [(b"k", b"v")], timestamp_ms=1, producer_id=2**40, producer_epoch=7, base_sequence=12
    )
    batch = READERS[oracle](data).next_batch()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (2**40, 7, 12)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("oracle", BUILDERS)
def test_batches_go_through_our_log_untouched(oracle, codec):
    """Compressed or not: the log writes its offset and epoch in front, and every reader finds the same records."""
    if codec != "none" and not getattr(HAS_CODEC[oracle], f"has_{codec}")():
        pytest.skip(f"{oracle} finds no library for {codec} here")
    log = new_log()
    expected: Flat = []
    sent = []
    for n in range(4):
        wanted = [
            (1000 + n, b"key", b"value %d " % n * 50, [("trace", b"\0\xff"), ("empty", None)])
        ] * (n + 1)
        sent.append(built_by(oracle, wanted, codec=codec))
        assert bool(header_at(sent[-1], 0).attributes & 7) is (codec != "none")
        expected += as_read(wanted, log.log_end_offset)
        log.append_as_leader(VerifiedBatches.verify(sent[-1]), leader_epoch=2)
    stored = content(log)
    position = 0
    for batch in sent:
        # The producer's part starts after base offset, length, leader epoch and magic.
        assert stored[position + 16 : position + len(batch)] == batch[16:]
        position += len(batch)
    assert position == len(stored)
    for reader in READERS:
        if codec == "none" or getattr(HAS_CODEC[reader], f"has_{codec}")():
            assert parsed_by(reader, stored) == expected
    # A follower gets the same bytes and keeps them.
    follower = new_log()
    follower.append_as_follower(stored)
    assert content(follower) == stored


@pytest.mark.parametrize("oracle", BUILDERS)
@given(wanted=records, position=st.integers(min_value=0), bit=st.integers(min_value=0, max_value=7))
@settings(max_examples=60, deadline=None)
def test_a_batch_with_a_flipped_bit_is_not_appended(oracle, wanted, position, bit):
    data = bytearray(built_by(oracle, wanted))
    # The checksum covers everything after itself, and must itself be right.
    position = 17 + position % (len(data) - 17)
    data[position] ^= 1 << bit
    batch = READERS[oracle](bytes(data)).next_batch()
    assert not batch.validate_crc()
    log = new_log()
    with pytest.raises(CorruptBatchError):
        log.append_as_leader(VerifiedBatches.verify(bytes(data)), leader_epoch=1)
    with pytest.raises(CorruptBatchError):
        log.append_as_follower(bytes(data))
    assert (log.log_end_offset, content(log)) == (0, b"")


# --- messages


def modules_of(package: ModuleType) -> Iterator[ModuleType]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they use what Python is about to lose
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if ".old" not in found.name and not found.name.endswith("generate_stubs"):
                yield importlib.import_module(found.name)


def _classes_of_kafka_python() -> dict[tuple[int, str], Any]:
    list(modules_of(kafka.protocol))
    found: dict[tuple[int, str], Any] = {}
    left = list(ApiMessage.__subclasses__())
    while left:
        one = left.pop()
        left.extend(one.__subclasses__())
        found.setdefault((one.API_KEY, one.type), one)
    return found


def _classes_of_aiokafka() -> dict[tuple[int, int, str], Any]:
    found = {}
    for module in modules_of(aiokafka.protocol):
        for one in vars(module).values():
            if inspect.isclass(one) and isinstance(getattr(one, "API_VERSION", None), int):
                kind = "request" if hasattr(one, "RESPONSE_TYPE") else "response"
                found[(one.API_KEY, one.API_VERSION, kind)] = one
    return found


KAFKA_PYTHON = _classes_of_kafka_python()
AIOKAFKA = _classes_of_aiokafka()
AIOKAFKA_IS_WRONG = {("ListOffsets", 4), ("ListOffsets", 5)}
"""It takes leader epochs for 64 bits and never sends these; Kafka's schema and kafka-python say 32."""
NOT_IN_KAFKA_PYTHON = frozenset({"ConsumerGroupDescribe", "ConsumerGroupHeartbeat"})
"""It has no messages of KIP-848."""
SEEDS = range(8)


def requests_and_responses() -> Iterator[tuple[Any, int, bytes, bytes]]:
    """Yields (API, version, request frame, response frame) for everything that brokers serve."""
    for role, api, version in VERSIONS:
        if role != BROKER or api.name == "ApiVersions":
            continue
        canonical = next(one for one in api.canonical if one.first <= version <= one.last)
        for seed in SEEDS:
            frame = frame_of(api, arbitrary_request(api, version, seed))
            request = SERVER[role].decode_request(frame)
            response = arbitrary_response(canonical.response, seed)
            yield api, version, frame, SERVER[role].encode_response(request, response)


def test_kafka_python_agrees_with_every_version_of_every_message():
    checked = set()
    for api, version, frame, answer in requests_and_responses():
        if api.name in NOT_IN_KAFKA_PYTHON:
            assert (api.key, "request") not in KAFKA_PYTHON
            continue
        request_class = KAFKA_PYTHON[(api.key, "request")]
        request = request_class.decode(frame, version=version, header=True)
        assert (request.header.correlation_id, request.header.client_id) == (7, "me")
        assert bytes(request.encode(version=version, header=True)) == frame, (api.name, version)
        response_class = KAFKA_PYTHON[(api.key, "response")]
        response = response_class.decode(answer, version=version, header=True, framed=True)
        assert response.header.correlation_id == 7
        response._header = None  # it cannot encode a response that has one
        body = bytes(response.encode(version=version))
        assert answer.endswith(body), (api.name, version)
        header_bytes = 9 if response_class.flexible_version_q(version) else 8
        assert len(answer) == header_bytes + len(body), (api.name, version)
        checked.add((api.name, version))
    assert checked == {
        (api.name, version)
        for role, api, version in VERSIONS
        if role == BROKER and api.name not in {"ApiVersions", *NOT_IN_KAFKA_PYTHON}
    }


def test_aiokafka_agrees_with_every_message_that_it_knows():
    checked = set()
    for api, version, frame, response in requests_and_responses():
        request_class = AIOKAFKA.get((api.key, version, "request"))
        if request_class is None or (api.name, version) in AIOKAFKA_IS_WRONG:
            continue
        flexible = request_class.FLEXIBLE_VERSION
        body = frame[13 if flexible else 12 :]
        request = request_class.decode(io.BytesIO(body))
        assert request.encode() == body, (api.name, version)
        response_class = AIOKAFKA[(api.key, version, "response")]
        body = response[9 if flexible else 8 :]
        assert response_class.decode(io.BytesIO(body)).encode() == body, (api.name, version)
        checked.add((api.name, version))
    # Those that it uses: it must still have them.
    assert {
        ("Produce", 7),
        ("Fetch", 11),
        ("Metadata", 5),
        ("ListOffsets", 3),
        ("FindCoordinator", 1),
        ("JoinGroup", 5),
        ("SyncGroup", 3),
        ("Heartbeat", 1),
        ("LeaveGroup", 1),
        ("OffsetCommit", 3),
        ("OffsetFetch", 3),
        ("InitProducerId", 0),
        ("CreateTopics", 3),
    } <= checked


@pytest.mark.parametrize("version", range(5))
def test_oracles_read_the_table_of_apis(version):
    api = api_of("ApiVersions")
    asked = KAFKA_PYTHON[(api.key, "request")](
        version=version, client_software_name="kafka-python", client_software_version="3.0"
    )
    asked.with_header(correlation_id=7, client_id="me")
    request = SERVER["broker"].decode_request(bytes(asked.encode(version=version, header=True)))
    answer = KAFKA_PYTHON[(api.key, "response")].decode(
        request.direct, version=version, header=True, framed=True
    )
    assert answer.error_code == 0
    expected = [
        (one.key, one.min_version if one.advertised_min is None else 0, one.max_version)
        for one in APIS
        if BROKER in one.roles
    ]
    assert [(one.api_key, one.min_version, one.max_version) for one in answer.api_keys] == expected
    if (api.key, version, "response") in AIOKAFKA:
        response = AIOKAFKA[(api.key, version, "response")].decode(io.BytesIO(request.direct[8:]))
        assert [tuple(one) for one in response.api_versions] == expected


def read_by_kafka_python(name: str, version: int, sent: Any) -> Any:
    return KAFKA_PYTHON[(api_of(name).key, "request")].decode(body_of(sent), version=version)


def test_oracles_read_our_messages_as_written():
    """Bytes that agree could still be called by wrong names: values are compared for the messages that matter."""
    for version in range(4, 13):
        sent = arbitrary_request(api_of("Fetch"), version, 3)
        read = read_by_kafka_python("Fetch", version, sent)
        assert (read.replica_id, read.min_bytes, read.max_bytes, read.isolation_level) == (
            sent.replica_id,
            sent.min_bytes,
            sent.max_bytes,
            sent.isolation_level,
        )
        assert [
            (topic.topic, one.partition, one.fetch_offset, one.partition_max_bytes)
            for topic in read.topics
            for one in topic.partitions
        ] == [
            (topic.topic, one.partition, one.fetch_offset, one.partition_max_bytes)
            for topic in sent.topics
            for one in topic.partitions
        ]
    for version in range(3, 12):
        sent = arbitrary_request(api_of("Produce"), version, 3)
        read = read_by_kafka_python("Produce", version, sent)
        assert (read.acks, read.transactional_id) == (sent.acks, sent.transactional_id)
        assert [
            (topic.name, one.index, one.records and bytes(one.records))
            for topic in read.topic_data
            for one in topic.partition_data
        ] == [
            (topic.name, one.index, one.records)
            for topic in sent.topic_data
            for one in topic.partition_data
        ]
    for version in range(13):
        sent = arbitrary_request(api_of("Metadata"), version, 1)
        read = read_by_kafka_python("Metadata", version, sent)
        assert [one.name for one in read.topics or ()] == [one.name for one in sent.topics or ()]
    for version in range(10):
        sent = arbitrary_request(api_of("JoinGroup"), version, 1)
        read = read_by_kafka_python("JoinGroup", version, sent)
        assert (read.group_id, read.member_id, read.protocol_type) == (
            sent.group_id,
            sent.member_id,
            sent.protocol_type,
        )
        assert [(one.name, bytes(one.metadata)) for one in read.protocols] == [
            (one.name, one.metadata) for one in sent.protocols
        ]
