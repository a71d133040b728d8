"""Idempotent producers as one log knows them (PID-1 to PID-5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from system_under_test.config import LogConfig
from system_under_test.log.log import Log
from system_under_test.log.producer_state import (
    BATCHES_REMEMBERED,
    EXPIRATION_MS,
    SEQUENCE_MAX,
    ProducerRefusedError,
    ProducerStates,
    advanced,
)
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.record_batch import encode_batch, spans
from system_under_test.rules import ALL_RULES
from tests.memory_storage import MemoryStorage

DIRECTORY = "data/t-0"
PRODUCER = 5


def batch(
    sequence: int, count: int = 1, *, epoch: int = 0, producer: int = PRODUCER, at_ms: int = 1
) -> bytes:
    return encode_batch(
        [(None, b"v")] * count,
        timestamp_ms=at_ms,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def new_log(storage: MemoryStorage | None = None, *, clean: bool = True) -> Log:
    return Log.load(
        storage or MemoryStorage(),
        DIRECTORY,
        LogConfig(segment_bytes=300),
        had_clean_shutdown=clean,
    )


def refusal(log: Log, data: bytes) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(ProducerRefusedError) as refused:
        log.append_as_leader(VerifiedBatches.verify(data), 0)
    assert log.log_end_offset == end
    return refused.value.error


def test_a_repeated_batch_gets_the_offset_of_the_first() -> None:
    log = new_log()
    for sequence in range(0, 10, 2):
        log.append_as_leader(VerifiedBatches.verify(batch(sequence, 2)), 0)
    for sequence in range(0, 10, 2):
        info = log.append_as_leader(VerifiedBatches.verify(batch(sequence, 2)), 0)
        assert (info.first_offset, info.last_offset) == (sequence, sequence + 1)
    assert log.log_end_offset == 10


def test_only_the_last_five_batches_are_remembered() -> None:
    log = new_log()
    for sequence in range(BATCHES_REMEMBERED + 1):
        log.append_as_leader(VerifiedBatches.verify(batch(sequence)), 0)
    assert refusal(log, batch(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append_as_leader(VerifiedBatches.verify(batch(1)), 0).first_offset == 1


def test_a_gap_and_an_overlap_are_refused() -> None:
    log = new_log()
    log.append_as_leader(VerifiedBatches.verify(batch(0, 3)), 0)
    for data in (batch(4), batch(2), batch(1, 2), batch(0, 2), batch(0, 4)):
        assert refusal(log, data) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append_as_leader(VerifiedBatches.verify(batch(3)), 0).first_offset == 3


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert new_log().append_as_leader(VerifiedBatches.verify(batch(17)), 0).first_offset == 0


def test_a_new_epoch_starts_at_zero_and_ends_the_old_one() -> None:
    log = new_log()
    log.append_as_leader(VerifiedBatches.verify(batch(0)), 0)
    assert refusal(log, batch(1, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.append_as_leader(VerifiedBatches.verify(batch(0, epoch=1)), 0)
    assert refusal(log, batch(1, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_wrap_around() -> None:
    assert advanced(SEQUENCE_MAX, 1) == 0
    log = new_log()
    log.append_as_leader(VerifiedBatches.verify(batch(SEQUENCE_MAX - 1, 3)), 0)
    info = log.append_as_leader(VerifiedBatches.verify(batch(1)), 0)
    assert info.first_offset == 3
    assert (
        log.append_as_leader(VerifiedBatches.verify(batch(SEQUENCE_MAX - 1, 3)), 0).first_offset
        == 0
    )


@pytest.mark.parametrize("data", [batch(0) + batch(1), batch(-1), batch(0, epoch=-1)])
def test_batches_that_no_idempotent_producer_sends_are_refused(data: bytes) -> None:
    assert refusal(new_log(), data) is ErrorCode.INVALID_RECORD


def test_batches_without_a_producer_are_not_remembered() -> None:
    log = new_log()
    log.append_as_leader(
        VerifiedBatches.verify(encode_batch([(None, b"x")], timestamp_ms=1) * 2), 0
    )
    assert len(log.producers) == 0


def test_a_follower_keeps_the_same_producer_state() -> None:
    leader, follower = new_log(), new_log()
    for sequence in range(7):
        leader.append_as_leader(VerifiedBatches.verify(batch(sequence)), 0)
    follower.append_as_follower(leader.read(0, 1 << 20, 7))
    assert follower.producers.known(PRODUCER) == leader.producers.known(PRODUCER)


@pytest.mark.parametrize("clean", [True, False])
def test_loading_rebuilds_the_producer_state(clean: bool) -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    for sequence in range(12):
        log.append_as_leader(VerifiedBatches.verify(batch(sequence)), 0)
    again = new_log(storage, clean=clean)
    assert again.producers.known(PRODUCER) == log.producers.known(PRODUCER)
    assert again.append_as_leader(VerifiedBatches.verify(batch(11)), 0).first_offset == 11


def test_a_truncated_batch_is_not_a_duplicate() -> None:
    log = new_log()
    for sequence in range(8):
        log.append_as_leader(VerifiedBatches.verify(batch(sequence)), 0)
    log.truncate_to(3)
    assert log.append_as_leader(VerifiedBatches.verify(batch(2)), 0).first_offset == 2
    assert log.append_as_leader(VerifiedBatches.verify(batch(3)), 0).first_offset == 3
    assert log.log_end_offset == 4
    log.truncate_fully_and_start_at(0)
    assert len(log.producers) == 0


def test_idle_producers_expire_by_the_time_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("system_under_test.log.producer_state.SWEEP_EVERY", 3)
    states = ProducerStates(ALL_RULES)
    for offset, (producer, at_ms) in enumerate(
        ((1, 0), (2, EXPIRATION_MS), (2, EXPIRATION_MS + 1))
    ):
        (span,) = spans(batch(offset, producer=producer, at_ms=at_ms), verify_crc=True)
        states.appended(span, offset)
    assert states.known(1) is None
    assert states.known(2) is not None


def test_a_record_from_the_future_does_not_expire_a_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("system_under_test.log.producer_state.SWEEP_EVERY", 3)
    now_ms = 10 * EXPIRATION_MS
    states = ProducerStates(ALL_RULES, lambda: now_ms)
    stamps = ((1, 0), (2, now_ms - EXPIRATION_MS), (3, now_ms + 2 * EXPIRATION_MS))
    for offset, (producer, at_ms) in enumerate(stamps):
        (span,) = spans(batch(offset, producer=producer, at_ms=at_ms), verify_crc=True)
        states.appended(span, offset)
    assert [producer for producer in (1, 2, 3) if states.known(producer)] == [2, 3]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3), st.booleans()), max_size=25))
def test_the_log_always_has_every_sequence_once_and_in_order(
    sent: list[tuple[int, int, bool]],
) -> None:
    log = new_log()
    next_sequence = 0
    for jump, count, truncates in sent:
        if truncates and log.log_end_offset:
            log.truncate_to(log.log_end_offset - 1)
            next_sequence = 0
            for span in spans(log.read(0, 1 << 20, log.log_end_offset), verify_crc=True):
                next_sequence = span.base_sequence + span.record_count
        sequence = max(next_sequence - 3 + jump, 0)
        try:
            log.append_as_leader(VerifiedBatches.verify(batch(sequence, count)), 0)
        except ProducerRefusedError:
            continue
        next_sequence = max(next_sequence, sequence + count)
    expected = None
    for span in spans(log.read(0, 1 << 20, log.log_end_offset), verify_crc=True):
        assert expected is None or span.base_sequence == expected
        expected = span.base_sequence + span.record_count
