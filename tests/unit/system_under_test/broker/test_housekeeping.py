"""Retention, compaction and flushes on time, and no timers for clusters that need none."""

import asyncio
from dataclasses import replace
from typing import Any

from system_under_test.broker.housekeeping import Housekeeper
from system_under_test.broker.tasks import TaskScope
from system_under_test.config import FAST_TIMINGS, LogConfig
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.record_batch import decode_records, encode_batch
from tests.unit.system_under_test.broker.node_fakes import run_virtually
from tests.unit.system_under_test.broker.replica_fakes import Broker

RETENTION_MS = FAST_TIMINGS.log_retention_check_interval_ms


class Kept:
    """A broker that leads one partition, its housekeeper, and clocks that follow the loop."""

    def __init__(self, settings: LogConfig, **timings: int) -> None:
        self.broker = Broker()
        self.broker.metadata.log_settings = settings
        self.broker.lead(isr=(1,))
        self.failures: list[BaseException] = []
        self.scope = TaskScope(self.failures.append)
        context = self.broker.manager.context
        loop = asyncio.get_running_loop()
        context.monotonic_ns = lambda: int(loop.time() * 1e9)
        context.wall_ms = lambda: int(loop.time() * 1000)
        self.housekeeper = Housekeeper(
            context,
            self.broker.manager.partitions,
            self.broker.storage,
            replace(FAST_TIMINGS, **timings),
            self.scope,
        )
        self.housekeeper.start()

    @property
    def log(self) -> Any:
        return self.broker.partition.log

    def put(self, *pairs: tuple[bytes, bytes | None], at_ms: int = 1) -> None:
        """Appends one batch per pair, all committed."""
        for pair in pairs:
            batch = encode_batch([pair], timestamp_ms=at_ms)
            self.log.append_as_leader(VerifiedBatches.verify(batch), 1)
        self.broker.partition.replica.high_watermark = self.log.log_end_offset

    def pairs(self) -> list[tuple[bytes | None, bytes | None]]:
        data = self.log.read(self.log.log_start_offset, 1 << 30, self.log.log_end_offset)
        return [(one.key, one.value) for _, found in decode_records(data) for one in found]

    def end(self) -> None:
        self.housekeeper.stop()
        self.scope.cancel_all()
        assert self.failures == []
        assert self.broker.storage_failures == []


def timers() -> int:
    """Returns how many timers the running loop has."""
    return len([one for one in asyncio.get_running_loop()._scheduled if not one.cancelled()])


def test_a_broker_without_need_of_it_has_no_timers_and_no_tasks():
    async def play() -> None:
        kept = Kept(LogConfig())
        kept.put((b"k", b"v"))
        kept.housekeeper.tick()
        assert (timers(), len(asyncio.all_tasks())) == (0, 1)
        kept.end()

    run_virtually(play())


def test_retention_is_checked_at_a_tick_after_its_interval():
    async def play() -> None:
        kept = Kept(LogConfig(retention_ms=1))
        kept.put((b"k", b"v"))
        await asyncio.sleep(RETENTION_MS / 1000 - 1)
        kept.housekeeper.tick()
        assert kept.log.log_start_offset == 0
        await asyncio.sleep(1)
        kept.housekeeper.tick()
        assert kept.log.log_start_offset == 1
        assert "segments-deleted" in kept.broker.marks
        kept.put((b"k", b"v"))
        kept.housekeeper.tick()
        assert kept.log.log_start_offset == 1
        kept.end()

    run_virtually(play())


def test_a_shorter_interval_of_retention_has_its_own_timer():
    async def play() -> None:
        kept = Kept(LogConfig(retention_ms=1), log_retention_check_interval_ms=100)
        kept.put((b"k", b"v"))
        await asyncio.sleep(0.25)
        assert kept.log.log_start_offset == 1
        kept.end()

    run_virtually(play())


def test_a_compacted_log_is_cleaned_as_soon_as_it_has_a_full_segment():
    async def play() -> None:
        kept = Kept(LogConfig(cleanup_policy="compact", segment_bytes=100))
        kept.put((b"k", b"1"))
        kept.housekeeper.tick()
        assert timers() == 0
        kept.put((b"k", b"2"), (b"k", b"3"))
        kept.housekeeper.tick()
        await asyncio.sleep(1)
        assert kept.pairs() == [(b"k", b"2"), (b"k", b"3")]
        assert kept.broker.logs.get("t", 0).first_dirty_offset == 2
        # It goes on by itself.
        kept.put((b"k", b"4"), (b"k", b"5"), (b"k", b"6"))
        await asyncio.sleep(2 * FAST_TIMINGS.log_cleaner_backoff_ms / 1000)
        assert kept.pairs() == [(b"k", b"5"), (b"k", b"6")]
        kept.end()

    run_virtually(play())


def test_a_log_that_cannot_be_read_is_left_alone_and_reported():
    async def play() -> None:
        kept = Kept(LogConfig(cleanup_policy="compact", segment_bytes=100))
        kept.put((b"k", b"1"), (b"k", b"2"), (b"k", b"3"))
        path = next(iter(kept.log.segments)).path
        kept.broker.storage.write(path, b"x" * 75)
        kept.housekeeper.tick()
        await asyncio.sleep(10)
        assert kept.broker.marks.count("log-uncleanable") == 1
        assert kept.log is not None
        kept.end()

    run_virtually(play())


def test_where_compaction_ended_survives_a_restart():
    async def play() -> None:
        kept = Kept(LogConfig(cleanup_policy="compact", segment_bytes=100))
        kept.put((b"k", b"1"), (b"k", b"2"), (b"k", b"3"))
        kept.housekeeper.tick()
        await asyncio.sleep(1)
        again = Broker(storage=kept.broker.storage)
        assert again.logs.get("t", 0).first_dirty_offset == 2
        kept.end()

    run_virtually(play())


def test_the_scheduled_flush_writes_logs_whose_oldest_record_is_old_enough():
    async def play() -> None:
        kept = Kept(LogConfig(flush_ms=500), log_flush_scheduler_interval_ms=100)
        kept.put((b"k", b"v"))
        await asyncio.sleep(0.45)
        assert kept.log.unflushed_record_count == 1
        await asyncio.sleep(0.3)
        assert kept.log.unflushed_record_count == 0
        kept.end()

    run_virtually(play())


def test_without_a_schedule_flush_ms_changes_nothing():
    async def play() -> None:
        kept = Kept(LogConfig(flush_ms=1))
        kept.put((b"k", b"v"))
        await asyncio.sleep(10)
        assert kept.log.unflushed_record_count == 1
        kept.end()

    run_virtually(play())


def test_a_failing_disk_takes_the_partition_offline():
    async def play() -> None:
        kept = Kept(LogConfig(retention_ms=1))
        kept.put((b"k", b"v"))
        kept.broker.storage.failing.add("append")
        await asyncio.sleep(RETENTION_MS / 1000)
        kept.housekeeper.tick()
        assert kept.log is None
        assert len(kept.broker.storage_failures) == 1
        kept.housekeeper.stop()

    run_virtually(play())
