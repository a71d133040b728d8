"""The producer snapshot of a clean stop: Kafka's layout, and removal of files that may be stale."""

from system_under_test.config import LogConfig
from system_under_test.log.log import Log
from system_under_test.log.producer_snapshot import encode_snapshot
from system_under_test.log.producer_state import ProducerStates
from system_under_test.protocol.control_records import Marker, encode_marker
from system_under_test.protocol.record_batch import encode_batch, spans
from system_under_test.rules import ALL_RULES
from tests.memory_storage import MemoryStorage

RECORDED = bytes.fromhex(
    "0001b94693380000000200000000000000000000"
    "00003afe0000000000003afe0000000e000001a2"
    "0856b02bffffffffffffffffffffffff00000000"
    "000000010001ffffffffffffffffffffffff0000"
    "0000000001a20856b74200000000ffffffffffff"
    "ffff"
)
"""A file of Apache Kafka 4.1.2: an idempotent producer, and one whose transaction a marker ended."""
WRITTEN_MS, ENDED_MS = 0x1A20856B02B, 0x1A20856B742


def recorded_producers() -> ProducerStates:
    """Returns what the batches leave that Apache Kafka had when it wrote the recorded file."""
    producers = ProducerStates(ALL_RULES)
    (last,) = spans(
        encode_batch(
            [(None, b"value")] * 15,
            timestamp_ms=WRITTEN_MS,
            producer_id=0,
            producer_epoch=0,
            base_sequence=0x3AFE - 14,
        ),
        verify_crc=True,
    )
    producers.appended(last, 0x3AFE - 14)
    marker = Marker(is_commit=True, coordinator_epoch=0)
    (control,) = spans(
        encode_marker(marker, producer_id=1, producer_epoch=1, timestamp_ms=ENDED_MS),
        verify_crc=True,
    )
    producers.appended(control, 15_869, marker)
    return producers


def test_a_snapshot_has_the_bytes_that_apache_kafka_writes() -> None:
    assert encode_snapshot(recorded_producers()) == RECORDED


def open_log(storage: MemoryStorage) -> Log:
    return Log.load(storage, "t-0", LogConfig(), had_clean_shutdown=True)


def test_a_load_removes_files_that_its_appends_would_make_stale() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    log.producers = recorded_producers()
    log.snapshot_producers()
    storage.write("t-0/00000000000000000000.index", b"")
    storage.write("t-0/00000000000000000000.timeindex", b"")
    storage.write("t-0/00000000000000000000.txnindex", b"")
    assert storage.read("t-0/00000000000000000000.snapshot") == RECORDED
    assert len(storage.list("t-0")) == 5
    open_log(storage)
    assert storage.list("t-0") == ["00000000000000000000.log"]


def test_a_log_without_producers_has_no_snapshot() -> None:
    storage = MemoryStorage()
    open_log(storage).snapshot_producers()
    assert storage.list("t-0") == ["00000000000000000000.log"]
