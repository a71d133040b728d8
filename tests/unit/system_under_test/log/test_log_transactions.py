"""Transactions as one log knows them: open and aborted ones, the last stable offset, fencing (TXN-1 to TXN-4)."""

import asyncio

import pytest

from system_under_test.config import LogConfig
from system_under_test.log.cleaner import clean, cleanable
from system_under_test.log.log import Log
from system_under_test.log.producer_state import EXPIRATION_MS, SWEEP_EVERY, ProducerRefusedError
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.control_records import Marker, encode_marker, marker_in
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.record_batch import decode_records, encode_batch
from system_under_test.rules import ALL_RULES, Rules
from tests.memory_storage import MemoryStorage

DIRECTORY = "data/t-0"
COMMIT, ABORT = Marker(True, 3), Marker(False, 3)


def new_log(
    storage: MemoryStorage | None = None, *, rules: Rules = ALL_RULES, policy: str = "delete"
) -> Log:
    return Log.load(
        storage or MemoryStorage(),
        DIRECTORY,
        LogConfig(segment_bytes=300, cleanup_policy=policy),
        had_clean_shutdown=True,
        rules=rules,
    )


def write(
    log: Log,
    sequence: int,
    *,
    producer: int = 5,
    epoch: int = 0,
    count: int = 1,
    key: bytes | None = None,
    at_ms: int = 1,
    is_transactional: bool = True,
) -> int:
    data = encode_batch(
        [(key, b"v")] * count,
        timestamp_ms=at_ms,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    return log.append_as_leader(VerifiedBatches.verify(data), 0).first_offset


def end(log: Log, marker: Marker, *, producer: int = 5, epoch: int = 0) -> int:
    data = encode_marker(marker, producer_id=producer, producer_epoch=epoch, timestamp_ms=1)
    return log.append_as_leader(VerifiedBatches.verify(data), 0).first_offset


def stable(log: Log) -> int:
    """The last stable offset when everything is committed."""
    return log.last_stable_offset(log.log_end_offset)


def refusal(log: Log, action: object) -> ErrorCode:
    before = log.log_end_offset
    with pytest.raises(ProducerRefusedError) as refused:
        action()  # type: ignore[operator]
    assert log.log_end_offset == before
    return refused.value.error


def facts(log: Log) -> object:
    """Everything that a log knows of its transactions and producers."""
    return (
        stable(log),
        log.producers.described(),
        log.producers.transactions.aborted_within(0, log.log_end_offset),
        dict(log.producers.transactions.open),
    )


def test_a_marker_can_be_read_as_it_was_written() -> None:
    for marker in (COMMIT, ABORT, Marker(True, 2**31 - 1)):
        data = encode_marker(marker, producer_id=7, producer_epoch=2, timestamp_ms=9)
        assert marker_in(data) == marker
        ((header, _),) = decode_records(data)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, -1)
        assert header.is_control
        assert header.is_transactional


def test_the_bytes_of_a_marker_are_those_of_kafka() -> None:
    data = encode_marker(COMMIT, producer_id=7, producer_epoch=2, timestamp_ms=9)
    ((header, (record,)),) = decode_records(data)
    assert header.attributes == 0x30
    assert record.key == bytes([0, 0, 0, 1])
    assert record.value == bytes([0, 0, 0, 0, 0, 3])


def test_a_control_batch_without_a_marker_is_not_one() -> None:
    for key in (b"", b"\0\0", bytes([0, 0, 0, 7])):
        data = encode_batch([(key, b"")], timestamp_ms=1, is_control=True, producer_id=1)
        assert marker_in(data) is None


def test_an_open_transaction_holds_back_the_last_stable_offset_until_its_marker_is_committed() -> (
    None
):
    log = new_log()
    assert stable(log) == 0
    write(log, 0, producer=1, is_transactional=False)
    write(log, 0, count=2)
    write(log, 1, producer=1, is_transactional=False)
    assert stable(log) == 1
    end(log, COMMIT)
    # The high watermark has not passed the marker, which is at offset 4.
    assert log.last_stable_offset(4) == 1
    assert log.last_stable_offset(5) == 5


def test_the_oldest_open_transaction_counts() -> None:
    log = new_log()
    write(log, 0, producer=1)
    write(log, 0, producer=2)
    assert stable(log) == 0
    end(log, COMMIT, producer=1)
    assert stable(log) == 1
    write(log, 1, producer=1)
    assert stable(log) == 1
    end(log, ABORT, producer=2)
    assert stable(log) == 3


def test_aborted_transactions_are_found_by_offsets() -> None:
    log = new_log()
    write(log, 0, producer=1)
    write(log, 0, producer=2)
    end(log, ABORT, producer=2)
    end(log, COMMIT, producer=1)
    write(log, 1, producer=1)
    end(log, ABORT, producer=1)
    aborted = log.producers.transactions.aborted_within
    assert [tuple(one) for one in aborted(0, 6)] == [(2, 1, 2), (1, 4, 5)]
    assert [tuple(one) for one in aborted(0, 1)] == []
    assert [tuple(one) for one in aborted(3, 5)] == [(1, 4, 5)]
    assert log.producers.transactions.is_aborted(2, 1)
    assert not log.producers.transactions.is_aborted(1, 0)


@pytest.mark.parametrize("marker", [COMMIT, ABORT])
def test_loading_a_follower_and_truncation_find_the_same_state(marker: Marker) -> None:
    storage = MemoryStorage()
    log, follower = new_log(storage), new_log()
    states = []
    for producer in (1, 2, 3):
        write(log, 0, producer=producer, count=3)
        states.append((log.log_end_offset, facts(log)))
        end(log, marker, producer=producer, epoch=producer - 1)
        states.append((log.log_end_offset, facts(log)))
    write(log, 0, producer=9)
    follower.append_as_follower(log.read(0, 1 << 20, log.log_end_offset))
    assert facts(follower) == facts(log)
    log.close()
    loaded = new_log(storage)
    assert facts(loaded) == facts(follower)
    for end_offset, expected in reversed(states):
        loaded.truncate_to(end_offset)
        assert facts(loaded) == expected


def test_a_marker_with_a_new_epoch_fences_the_old_one() -> None:
    log = new_log()
    write(log, 0, count=2)
    end(log, ABORT, epoch=1)
    assert refusal(log, lambda: write(log, 2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    # The new epoch begins at 0.
    assert refusal(log, lambda: write(log, 2, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(log, 0, epoch=1) == 3


def test_sequences_continue_after_a_marker_with_the_same_epoch() -> None:
    log = new_log()
    write(log, 0, count=2)
    end(log, COMMIT)
    assert refusal(log, lambda: write(log, 5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(log, 2) == 3


def test_of_a_producer_with_only_markers_left_any_sequence_is_accepted() -> None:
    log = new_log()
    end(log, COMMIT)
    assert write(log, 17) == 1


def test_a_marker_of_an_old_producer_epoch_is_refused() -> None:
    log = new_log()
    write(log, 0, epoch=4)
    assert refusal(log, lambda: end(log, ABORT, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert stable(log) == 0
    lax = new_log(rules=Rules(["TXN-3"]))
    write(lax, 0, epoch=4)
    end(lax, ABORT, epoch=3)
    assert stable(lax) == 2


def test_a_marker_of_a_replaced_coordinator_is_refused() -> None:
    log = new_log()
    write(log, 0)
    end(log, COMMIT)
    write(log, 1)
    old = Marker(False, 2)
    assert refusal(log, lambda: end(log, old)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    lax = new_log(rules=Rules(["TXN-4"]))
    write(lax, 0)
    end(lax, COMMIT)
    write(lax, 1)
    end(lax, old)
    assert stable(lax) == 4


def test_without_txn_2_the_last_stable_offset_is_ahead_of_the_marker() -> None:
    log = new_log(rules=Rules(["TXN-2"]))
    write(log, 0, count=4)
    end(log, COMMIT)
    assert log.last_stable_offset(2) == 2
    assert new_log().last_stable_offset(0) == 0


def test_without_txn_1_an_open_transaction_holds_nothing_back() -> None:
    log = new_log(rules=Rules(["TXN-1"]))
    write(log, 0)
    assert stable(log) == 1


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    log = new_log()
    write(log, 0)
    outside = refusal(log, lambda: write(log, 1, is_transactional=False))
    assert outside is ErrorCode.INVALID_TXN_STATE


def test_only_a_coordinator_appends_without_sequences() -> None:
    log = new_log()
    data = encode_batch(
        [(b"k", b"v")], timestamp_ms=1, producer_id=5, producer_epoch=0, is_transactional=True
    )
    batches = VerifiedBatches.verify(data)
    assert refusal(log, lambda: log.append_as_leader(batches, 0)) is ErrorCode.INVALID_RECORD
    log.append_as_leader(batches, 0, is_coordinator=True)
    log.append_as_leader(batches, 0, is_coordinator=True)
    assert stable(log) == 0
    assert log.producers.described()[0].last_sequence == -1


def test_the_last_stable_offset_is_not_below_the_log_start() -> None:
    log = new_log()
    for sequence in range(6):
        write(log, sequence)
    log.advance_log_start(4)
    assert stable(log) == 4


def test_aborted_transactions_below_the_log_start_are_forgotten() -> None:
    log = new_log()
    for sequence in range(2):
        write(log, sequence)
        end(log, ABORT)
    log.advance_log_start(2)
    found = log.producers.transactions.aborted_within(0, 4)
    assert [one.first_offset for one in found] == [2]


def test_a_producer_with_an_open_transaction_does_not_expire() -> None:
    log = new_log()
    write(log, 0, producer=1)
    write(log, 0, producer=2, is_transactional=False)
    states = log.producers
    late_ms = EXPIRATION_MS + 5
    for sequence in range(SWEEP_EVERY):
        write(log, sequence, producer=3, at_ms=late_ms, is_transactional=False)
    assert states.known(2) is None
    assert states.known(1) is not None
    assert stable(log) == 0


def compacted(log: Log, storage: MemoryStorage) -> list[int]:
    """Rolls and compacts a log; returns the offsets of its data records."""
    log.roll()
    work = cleanable(log, high_watermark=log.log_end_offset, now_ms=10)
    if work is not None:
        assert asyncio.run(clean(work, storage, 10))
    data = log.read(log.log_start_offset, 1 << 20, log.log_end_offset)
    return [
        record.offset
        for header, records in decode_records(data)
        for record in records
        if not header.is_control
    ]


def test_aborted_records_replace_nothing_and_are_removed() -> None:
    storage = MemoryStorage()
    log = new_log(storage, policy="compact")
    write(log, 0, key=b"k")
    end(log, COMMIT)
    write(log, 1, key=b"k")
    end(log, ABORT)
    assert compacted(log, storage) == [0]
    kept = [header.base_offset for header in log.headers() if header.is_control]
    assert kept == [1, 3]
    assert stable(log) == 4


def test_nothing_is_compacted_that_an_open_transaction_may_replace() -> None:
    for rules, expected in ((ALL_RULES, [0, 2]), (Rules(["CLEAN-4"]), [2])):
        storage = MemoryStorage()
        log = new_log(storage, policy="compact", rules=rules)
        write(log, 0, key=b"k")
        end(log, COMMIT)
        log.roll()
        write(log, 1, key=b"k")
        assert compacted(log, storage) == expected
