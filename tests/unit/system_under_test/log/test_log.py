"""Appending, reading, truncating and flushing one log."""

import asyncio
import errno

import pytest

from system_under_test.config import LogConfig
from system_under_test.log import BatchTooLargeError, Log, OutOfOrderOffsetError
from system_under_test.log.epochs import LeaderEpochCache
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.record_batch import (
    CorruptBatchError,
    decode_records,
    encode_batch,
    header_at,
)
from system_under_test.rules import Rules
from tests.memory_storage import MemoryStorage

DIRECTORY = "data/t-0"
EVERYTHING = 1 << 30


def batch(*values: str, base_offset: int = 0, epoch: int = -1) -> bytes:
    return encode_batch(
        [(None, value.encode()) for value in values],
        timestamp_ms=1,
        base_offset=base_offset,
        leader_epoch=epoch,
    )


def new_log(storage=None, *, rules=None, **config) -> Log:
    return Log.load(
        storage or MemoryStorage(),
        DIRECTORY,
        LogConfig(**config),
        had_clean_shutdown=False,
        rules=rules or Rules(),
    )


def filled(storage=None, *, count=6, records_per_batch=1, epoch=1, **config) -> Log:
    log = new_log(storage, **config)
    for number in range(count):
        values = [f"{number}.{index}" for index in range(records_per_batch)]
        log.append_as_leader(VerifiedBatches.verify(batch(*values)), epoch)
    return log


def values_of(log: Log, start: int = 0) -> list[str]:
    data = log.read(start, EVERYTHING, log.log_end_offset)
    return [r.value.decode() for _, records in decode_records(data) for r in records]


def test_a_new_log_is_empty():
    log = new_log()
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)
    assert log.latest_epoch == -1
    assert log.read(0, EVERYTHING, 0) == b""
    assert log.headers() == []


def test_a_leader_assigns_offsets_and_its_epoch():
    """EC-2: on a leader."""
    log = new_log()
    assert log.append_as_leader(VerifiedBatches.verify(batch("a", "b")), 3) == (
        0,
        1,
        2,
        len(batch("a", "b")),
    )
    info = log.append_as_leader(VerifiedBatches.verify(batch("c") + batch("d", "e")), 4)
    assert (info.first_offset, info.last_offset, info.record_count) == (2, 4, 3)
    assert [(h.base_offset, h.last_offset, h.leader_epoch) for h in log.headers()] == [
        (0, 1, 3),
        (2, 2, 4),
        (3, 4, 4),
    ]
    assert log.epochs.entries == ((3, 0), (4, 2))
    assert values_of(log) == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("data", [b"", bytes(100), batch("a")[:-1], batch("a") + b"x"])
def test_a_leader_does_not_append_bytes_that_are_not_batches(data):
    log = filled(count=1)
    with pytest.raises(CorruptBatchError):
        log.append_as_leader(VerifiedBatches.verify(data), 1)
    assert values_of(log) == ["0.0"]


def test_a_leader_refuses_a_damaged_batch():
    damaged = bytearray(batch("a"))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="checksum"):
        new_log().append_as_leader(VerifiedBatches.verify(bytes(damaged)), 1)


def test_a_leader_refuses_a_batch_above_the_limit_and_the_batches_sent_with_it():
    log = new_log(max_message_bytes=100)
    with pytest.raises(BatchTooLargeError, match="exceeds 100"):
        log.append_as_leader(VerifiedBatches.verify(batch("a") + batch("x" * 100)), 1)
    assert log.log_end_offset == 0
    assert log.epochs.entries == ()


def test_a_follower_appends_the_leaders_bytes_unchanged():
    leader, follower = filled(count=3, records_per_batch=2), new_log()
    data = leader.read(0, EVERYTHING, leader.log_end_offset)
    assert follower.append_as_follower(data)[:3] == (0, 5, 6)
    assert follower.read(0, EVERYTHING, 6) == data
    assert follower.epochs.entries == leader.epochs.entries


def test_a_follower_learns_epochs_from_batches():
    """EC-2: on a follower."""
    log = new_log()
    data = batch("a", epoch=1) + batch("b", base_offset=1, epoch=1)
    log.append_as_follower(data + batch("c", base_offset=2, epoch=4))
    assert log.epochs.entries == ((1, 0), (4, 2))


@pytest.mark.parametrize("is_leader", [True, False])
def test_an_epoch_is_recorded_before_its_first_batch(is_leader, monkeypatch):
    """EC-2: in a power cut records must not outlive the entry of their epoch."""
    storage = MemoryStorage()
    log = new_log(storage)
    seen = []
    append = storage.append

    def observed(path, data):
        seen.append(LeaderEpochCache(storage, DIRECTORY).entries)
        return append(path, data)

    monkeypatch.setattr(storage, "append", observed)
    if is_leader:
        log.append_as_leader(VerifiedBatches.verify(batch("a")), 3)
    else:
        log.append_as_follower(batch("a", epoch=3))
    assert seen == [((3, 0),)]


def test_a_follower_that_is_sent_nothing_appends_nothing():
    log = filled(count=2)
    assert log.append_as_follower(b"") == (2, 1, 0, 0)


def test_a_follower_may_begin_inside_of_a_batch():
    """The log start of its leader is there, and the leader sends batches as a whole."""
    leader, follower = filled(count=2, records_per_batch=4), new_log()
    follower.truncate_fully_and_start_at(6)
    data = leader.read(6, EVERYTHING, leader.log_end_offset)
    assert follower.append_as_follower(data)[:3] == (4, 7, 4)
    assert (follower.log_start_offset, follower.log_end_offset) == (6, 8)
    assert follower.read(6, EVERYTHING, 8) == data
    with pytest.raises(OutOfOrderOffsetError):
        follower.append_as_follower(data)


@pytest.mark.parametrize("base_offset", [0, 1, 3])
def test_a_follower_appends_only_what_continues_its_log(base_offset):
    log = filled(count=2)
    with pytest.raises(OutOfOrderOffsetError, match="the log ends at 2"):
        log.append_as_follower(batch("x", base_offset=base_offset, epoch=1))
    with pytest.raises(OutOfOrderOffsetError):
        log.append_as_follower(
            batch("x", base_offset=2, epoch=1) + batch("y", base_offset=4, epoch=1)
        )
    assert log.log_end_offset == 2


def test_a_follower_never_appends_a_damaged_batch_unless_ff2_is_off():
    damaged = bytearray(batch("a", epoch=1))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="checksum"):
        new_log().append_as_follower(bytes(damaged))
    careless = new_log(rules=Rules(["FF-2"]))
    careless.append_as_follower(bytes(damaged))
    assert careless.log_end_offset == 1


def test_reads_begin_with_the_batch_that_contains_the_offset():
    log = filled(count=3, records_per_batch=3)
    assert header_at(log.read(4, EVERYTHING, 9), 0).base_offset == 3


def test_reads_end_before_the_bound_with_a_whole_batch():
    log = filled(count=3, records_per_batch=3)
    ends = [len(decode_records(log.read(0, EVERYTHING, bound))) for bound in range(10)]
    assert ends == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]


def test_reads_respect_the_byte_limit_but_return_at_least_one_batch():
    log = filled(count=3)
    size = len(batch("0.0"))
    counts = [len(log.read(0, limit, 3)) // size for limit in (0, size - 1, size, 2 * size + 1)]
    assert counts == [1, 1, 1, 2]


def test_reads_at_the_end_return_nothing_and_outside_the_log_are_errors():
    log = filled(count=3)
    assert log.read(3, EVERYTHING, 3) == b""
    with pytest.raises(ValueError, match=r"offset 4 is outside of \[0, 3\]"):
        log.read(4, EVERYTHING, 3)
    with pytest.raises(ValueError, match="offset -1"):
        log.read(-1, EVERYTHING, 3)


@pytest.mark.parametrize("limit_in_batches", [1, 2, 3, 4, 7, 100])
def test_reads_continue_across_segments(limit_in_batches):
    size = len(batch("0.0"))
    log = filled(count=7, segment_bytes=2 * size)
    for start in range(7):
        got = decode_records(log.read(start, limit_in_batches * size, 7))
        offsets = [header.base_offset for header, _ in got]
        assert offsets == list(range(start, min(start + limit_in_batches, 7)))


def test_segments_are_named_by_their_base_offset():
    storage = MemoryStorage()
    filled(storage, count=5, segment_bytes=2 * len(batch("0.0")))
    assert [name for name in storage.list(DIRECTORY) if name.endswith(".log")] == [
        "00000000000000000000.log",
        "00000000000000000002.log",
        "00000000000000000004.log",
    ]


def test_a_batch_larger_than_a_segment_gets_one_of_its_own():
    log = new_log(segment_bytes=10)
    log.append_as_leader(VerifiedBatches.verify(batch("a")), 1)
    log.append_as_leader(VerifiedBatches.verify(batch("b")), 1)
    assert values_of(log) == ["a", "b"]


@pytest.mark.parametrize("segment_bytes", [1 << 30, 200])
@pytest.mark.parametrize("offset", range(13))
def test_truncation_removes_the_batch_that_contains_the_offset(offset, segment_bytes):
    log = filled(count=4, records_per_batch=3, segment_bytes=segment_bytes)
    before = values_of(log)
    log.truncate_to(offset)
    assert log.log_end_offset == offset // 3 * 3
    assert values_of(log) == before[: log.log_end_offset]
    log.append_as_leader(VerifiedBatches.verify(batch("new")), 2)
    assert values_of(log) == [*before[: log.log_end_offset - 1], "new"]


def test_truncation_beyond_the_end_forgets_only_epochs_without_records():
    log = filled(count=3, epoch=1)
    log.assign_epoch(2, 3)
    log.truncate_to(7)
    assert log.log_end_offset == 3
    assert log.epochs.entries == ((1, 0),)


def test_truncation_forgets_the_epochs_of_removed_records():
    log = filled(count=3, epoch=1)
    log.append_as_leader(VerifiedBatches.verify(batch("x", "y")), 2)
    log.append_as_leader(VerifiedBatches.verify(batch("z")), 3)
    log.truncate_to(4)
    assert log.log_end_offset == 3
    assert log.epochs.entries == ((1, 0),)
    assert log.end_offset_for_epoch(1) == (1, 3)
    assert log.end_offset_for_epoch(2) is None


def test_truncation_lowers_the_recovery_point_and_has_it_checkpointed():
    log = filled(count=4)
    seen = []
    log.on_checkpoint_due = lambda: seen.append((log.recovery_point, log.log_end_offset))
    log.flush_blocking()
    assert log.recovery_point == 4
    log.truncate_to(2)
    assert seen == [(2, 2)]
    log.append_as_leader(VerifiedBatches.verify(batch("x")), 1)
    log.truncate_to(2)
    assert seen == [(2, 2)]


def test_without_trunc3_the_recovery_point_is_not_checkpointed():
    log = new_log(rules=Rules(["TRUNC-3"]))
    log.append_as_leader(VerifiedBatches.verify(batch("a")), 1)
    log.flush_blocking()
    seen = []
    log.on_checkpoint_due = lambda: seen.append(log.recovery_point)
    log.truncate_to(0)
    assert log.recovery_point == 0
    assert seen == []


def test_negative_offsets_cannot_be_truncated_to():
    with pytest.raises(ValueError, match="-1"):
        new_log().truncate_to(-1)
    with pytest.raises(ValueError, match="-1"):
        new_log().truncate_fully_and_start_at(-1)


@pytest.mark.parametrize("offset", [0, 2, 6, 100])
def test_a_log_can_be_dropped_and_begin_anywhere(offset):
    storage = MemoryStorage()
    log = filled(storage, count=6, segment_bytes=200)
    log.truncate_fully_and_start_at(offset)
    assert (log.log_start_offset, log.log_end_offset) == (offset, offset)
    assert log.recovery_point <= offset
    assert log.epochs.entries == ()
    log.append_as_leader(VerifiedBatches.verify(batch("x")), 7)
    assert values_of(log, offset) == ["x"]
    assert len([name for name in storage.list(DIRECTORY) if name.endswith(".log")]) == 1


def test_truncating_below_the_first_segment_drops_everything():
    log = new_log()
    log.truncate_fully_and_start_at(10)
    log.append_as_leader(VerifiedBatches.verify(batch("x")), 1)
    log.truncate_to(4)
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)


def test_raising_the_log_start_removes_whole_segments_and_trims_epochs():
    storage = MemoryStorage()
    log = filled(storage, count=5, segment_bytes=2 * len(batch("0.0")))
    log.advance_log_start(3)
    log.advance_log_start(1)
    assert log.log_start_offset == 3
    assert log.epochs.entries == ((1, 3),)
    assert len([name for name in storage.list(DIRECTORY) if name.endswith(".log")]) == 2
    assert values_of(log, 3) == ["3.0", "4.0"]
    with pytest.raises(ValueError, match="outside"):
        log.read(2, EVERYTHING, 5)
    with pytest.raises(ValueError, match="behind the log end 5"):
        log.advance_log_start(6)


def test_an_append_is_not_durable_by_itself():
    storage = MemoryStorage()
    filled(storage)
    assert not [call for call in storage.calls if "fsync" in call[0] and call[1].endswith(".log")]


def test_flushing_advances_the_recovery_point():
    log = filled(count=4)
    assert log.unflushed_record_count == 4
    asyncio.run(log.flush())
    assert log.recovery_point == 4
    assert log.unflushed_record_count == 0


def test_a_flush_covers_the_log_at_its_start():
    class SlowStorage(MemoryStorage):
        async def fsync(self, path):
            await asyncio.sleep(0)
            await super().fsync(path)

    async def scenario():
        log = filled(SlowStorage(), count=4)
        flush = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0)
        log.append_as_leader(VerifiedBatches.verify(batch("late")), 1)
        await flush
        assert log.recovery_point == 4

    asyncio.run(scenario())


@pytest.mark.parametrize("segment_bytes", [1 << 30, 100])
def test_a_truncation_during_a_flush_keeps_the_recovery_point_down(segment_bytes):
    class SlowStorage(MemoryStorage):
        async def fsync(self, path):
            await asyncio.sleep(0)
            await super().fsync(path)

    async def scenario():
        log = filled(SlowStorage(), count=4, segment_bytes=segment_bytes)
        flush = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0)
        log.truncate_to(1)
        log.append_as_leader(VerifiedBatches.verify(batch("new", "newer", "newest")), 2)
        await flush
        assert log.recovery_point <= 1

    asyncio.run(scenario())


def test_a_rising_log_start_does_not_end_a_flush():
    class SlowStorage(MemoryStorage):
        async def fsync(self, path):
            await asyncio.sleep(0)
            await super().fsync(path)

    async def scenario():
        log = filled(SlowStorage(), count=4, segment_bytes=100)
        assert len(log.segments) > 2
        flush = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0)
        log.advance_log_start(list(log.segments)[1].base_offset)
        await flush
        assert log.recovery_point == 4

    asyncio.run(scenario())


def test_flush_messages_flushes_inside_the_append():
    storage = MemoryStorage()
    log = new_log(storage, flush_messages=3)
    points = []
    for _ in range(7):
        log.append_as_leader(VerifiedBatches.verify(batch("x")), 1)
        points.append(log.recovery_point)
    assert points == [0, 0, 3, 3, 3, 6, 6]
    storage.power_cut()
    assert new_log(storage).log_end_offset == 6


def test_without_log1_every_append_is_durable():
    storage = MemoryStorage()
    log = new_log(storage, rules=Rules(["LOG-1"]))
    log.append_as_leader(VerifiedBatches.verify(batch("a")), 1)
    assert log.recovery_point == 1
    storage.power_cut()
    assert values_of(new_log(storage)) == ["a"]


def test_a_full_segment_is_flushed_in_the_background():
    async def scenario():
        storage = MemoryStorage()
        log = filled(storage, count=5, segment_bytes=2 * len(batch("0.0")))
        assert log.recovery_point == 0
        await asyncio.sleep(0)
        assert log.recovery_point == 4
        storage.power_cut()
        assert new_log(storage).log_end_offset == 4

    asyncio.run(scenario())


def test_a_failed_flush_takes_the_log_offline():
    storage = MemoryStorage()
    log = filled(storage, count=2)
    storage.failing = {"fsync", "fsync_blocking"}
    with pytest.raises(OSError, match="input/output"):
        asyncio.run(log.flush())
    storage.failing = set()
    assert log.recovery_point == 0
    with pytest.raises(OSError, match="offline since") as caught:
        log.append_as_leader(VerifiedBatches.verify(batch("x")), 1)
    assert caught.value.errno == errno.EIO
    with pytest.raises(OSError, match="offline since"):
        asyncio.run(log.flush())


def test_a_failed_flush_of_a_full_segment_is_reported_by_the_next_append():
    async def scenario():
        storage = MemoryStorage()
        storage.failing = {"fsync"}
        log = filled(storage, count=3, segment_bytes=100)
        await asyncio.sleep(0)
        with pytest.raises(OSError, match="offline since"):
            log.append_as_leader(VerifiedBatches.verify(batch("x")), 1)

    asyncio.run(scenario())


def test_a_full_disk_leaves_no_half_batch_behind():
    storage = MemoryStorage()
    log = filled(storage, count=2)
    storage.space = 30
    with pytest.raises(OSError, match="no space"):
        log.append_as_leader(VerifiedBatches.verify(batch("lost")), 1)
    assert log.log_end_offset == 2
    storage.space = None
    log.append_as_leader(VerifiedBatches.verify(batch("kept")), 1)
    assert values_of(log) == ["0.0", "1.0", "kept"]


def test_a_half_batch_that_cannot_be_removed_takes_the_log_offline():
    storage = MemoryStorage()
    log = filled(storage, count=2)
    storage.space = 30
    storage.failing = {"truncate"}
    with pytest.raises(OSError, match="no space"):
        log.append_as_leader(VerifiedBatches.verify(batch("lost")), 1)
    storage.space = None
    with pytest.raises(OSError, match="offline since"):
        log.append_as_leader(VerifiedBatches.verify(batch("x")), 1)


def test_a_deleted_log_leaves_no_files_and_takes_no_appends():
    storage = MemoryStorage()
    log = filled(storage, count=6, segment_bytes=200)
    log.delete()
    assert storage.list(DIRECTORY) == []
    with pytest.raises(OSError, match="deleted"):
        log.append_as_leader(VerifiedBatches.verify(batch("x")), 1)
