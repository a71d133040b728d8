"""Retention and the log start: which segments are deleted, and what survives a crash in between."""

import asyncio

import pytest

from system_under_test.config import LogConfig
from system_under_test.log import Log
from system_under_test.log.retention import delete_old_segments
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.record_batch import encode_batch
from system_under_test.rules import Rules
from tests.memory_storage import MemoryStorage

DIRECTORY = "data/t-0"
SIZE = len(encode_batch([(None, b"v")], timestamp_ms=1))


def log_of(times_ms, *, storage=None, rules=(), **config) -> Log:
    """Returns a log with one record, and one segment, per timestamp."""
    log = Log.load(
        storage or MemoryStorage(),
        DIRECTORY,
        LogConfig(segment_bytes=SIZE, **config),
        had_clean_shutdown=False,
        rules=Rules(rules),
    )
    for at_ms in times_ms:
        batch = encode_batch([(None, b"v")], timestamp_ms=at_ms)
        log.append_as_leader(VerifiedBatches.verify(batch), 1)
    return log


@pytest.mark.parametrize(
    ("now_ms", "start"),
    [(1100, 0), (1101, 1), (1200, 1), (1201, 2), (1301, 3)],
)
def test_a_segment_is_deleted_when_its_newest_record_is_older_than_the_limit(now_ms, start):
    log = log_of((100, 200, 300), retention_ms=1000)
    assert delete_old_segments(log, high_watermark=3, now_ms=now_ms) is (start > 0)
    assert (log.log_start_offset, log.log_end_offset) == (start, 3)


def test_deletion_ends_at_the_first_segment_that_is_young_enough():
    log = log_of((100, 900, 100), retention_ms=500)
    assert delete_old_segments(log, high_watermark=3, now_ms=1000)
    assert log.log_start_offset == 1


def test_an_active_segment_that_is_too_old_is_replaced_by_an_empty_one():
    log = log_of((100,), retention_ms=10)
    delete_old_segments(log, high_watermark=1, now_ms=1000)
    assert (log.log_start_offset, log.log_end_offset, log.headers()) == (1, 1, [])
    assert not delete_old_segments(log, high_watermark=1, now_ms=2000)
    batch = encode_batch([(None, b"v")], timestamp_ms=2000)
    assert log.append_as_leader(VerifiedBatches.verify(batch), 1).first_offset == 1


@pytest.mark.parametrize(
    ("limit_bytes", "start"), [(-1, 0), (4 * SIZE, 0), (3 * SIZE, 1), (3 * SIZE + 1, 0), (0, 4)]
)
def test_the_oldest_segments_are_deleted_until_the_log_is_small_enough(limit_bytes, start):
    log = log_of((1, 1, 1, 1), retention_ms=-1, retention_bytes=limit_bytes)
    delete_old_segments(log, high_watermark=4, now_ms=10**12)
    assert log.log_start_offset == start


@pytest.mark.parametrize(("rules", "start"), [((), 1), (("RET-1",), 3)])
def test_nothing_at_or_above_the_high_watermark_is_deleted(rules, start):
    log = log_of((1, 1, 1), retention_ms=1, rules=rules)
    delete_old_segments(log, high_watermark=1, now_ms=1000)
    assert log.log_start_offset == start


@pytest.mark.parametrize(
    ("policy", "start"), [("delete", 3), ("compact,delete", 3), ("compact", 0), ("", 0)]
)
def test_only_logs_with_the_policy_delete_lose_segments(policy, start):
    log = log_of((1, 1, 1), retention_ms=1, cleanup_policy=policy)
    delete_old_segments(log, high_watermark=3, now_ms=1000)
    assert log.log_start_offset == start


def test_a_segment_without_timestamps_is_not_too_old():
    log = log_of((-1, -1), retention_ms=1)
    assert not delete_old_segments(log, high_watermark=2, now_ms=10**12)


def test_segment_ms_counts_from_the_first_record_of_the_segment():
    log = Log.load(MemoryStorage(), DIRECTORY, LogConfig(segment_ms=100), had_clean_shutdown=False)
    for at_ms in (1000, 1100, 1101, 1150, 1202):
        batch = encode_batch([(None, b"v")], timestamp_ms=at_ms)
        log.append_as_leader(VerifiedBatches.verify(batch), 1)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]


def test_settings_count_from_the_next_append_on():
    log = log_of((1, 1))
    log.configure(LogConfig())
    for _ in range(3):
        batch = encode_batch([(None, b"v")], timestamp_ms=1)
        log.append_as_leader(VerifiedBatches.verify(batch), 1)
    assert len(log.segments) == 2


def test_the_log_start_is_checkpointed_before_files_are_removed():
    """A power cut may bring back the second file without the first; a load must not see a hole there."""
    storage = MemoryStorage()
    log = log_of((1, 1, 1, 1), storage=storage, retention_ms=1)
    found = []
    log.on_checkpoint_due = lambda: found.append(
        (log.log_start_offset, log.recovery_point, len(storage.list(DIRECTORY)))
    )
    files = len(storage.list(DIRECTORY))
    delete_old_segments(log, high_watermark=3, now_ms=1000)
    assert found == [(3, 3, files)]
    assert len(storage.list(DIRECTORY)) == files - 3


def test_a_flush_does_not_fail_because_of_files_that_retention_removed_meanwhile():
    class Slow(MemoryStorage):
        async def fsync(self, path):
            await asyncio.sleep(0)
            await super().fsync(path)

    log = log_of((1, 1, 1, 1), storage=Slow(), retention_ms=1)

    async def play() -> None:
        flushing = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0)
        delete_old_segments(log, high_watermark=3, now_ms=1000)
        await flushing
        await log.flush()

    asyncio.run(play())
    assert log.unflushed_record_count == 0
    batch = encode_batch([(None, b"v")], timestamp_ms=1)
    assert log.append_as_leader(VerifiedBatches.verify(batch), 1).first_offset == 4


def test_a_raised_log_start_survives_a_load():
    storage = MemoryStorage()
    log = log_of((1, 1, 1, 1), storage=storage)
    log.advance_log_start(2)
    again = Log.load(
        storage,
        DIRECTORY,
        LogConfig(),
        had_clean_shutdown=False,
        recovery_point=log.recovery_point,
        log_start_offset=2,
    )
    assert (again.log_start_offset, again.log_end_offset) == (2, 4)
    assert again.epochs.entries == ((1, 2),)
