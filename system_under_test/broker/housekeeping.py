"""What a broker does to its logs from time to time: retention, compaction, and the scheduled flush.

Retention is checked when the checkpoint timer of the broker fires, at most every
`log.retention.check.interval.ms`. The cleaner and the scheduled flush run only while a log needs them, so that a
cluster that uses neither has no timers for them.

Source:
    Kafka's `LogManager.cleanupLogs`, `LogManager.flushDirtyLogs` and `LogCleaner`.
"""

import asyncio
from collections.abc import Callable, Iterator

from system_under_test.broker.partition import Partition
from system_under_test.broker.replica_context import ReplicaContext
from system_under_test.broker.tasks import TaskScope
from system_under_test.config import NEVER_MS, Timings
from system_under_test.log.cleaner import Cleanable, clean, cleanable
from system_under_test.log.log import Log
from system_under_test.protocol.record_batch import CorruptBatchError
from system_under_test.runtime import Storage

NS_PER_MS = 1_000_000

_Key = tuple[str, int]


class Housekeeper:
    """Deletes old segments, compacts logs and flushes them on schedule. Mutable.

    Args:
        context: What the replicas of the broker share.
        partitions: Those of the broker by (topic, index); it may change.
        storage: The node's files.
        timings: The intervals.
        scope: Runs the cleaner.
    """

    def __init__(
        self,
        context: ReplicaContext,
        partitions: dict[_Key, Partition],
        storage: Storage,
        timings: Timings,
        scope: TaskScope,
    ) -> None:
        self._context = context
        self._partitions = partitions
        self._storage = storage
        self._timings = timings
        self._scope = scope
        self._next_retention_ns = 0
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._cleaner: asyncio.Task[None] | None = None
        self._uncleanable: set[Log] = set()
        # The first unflushed offset of a log, and since when it is that.
        self._unflushed: dict[_Key, tuple[int, int]] = {}

    def start(self) -> None:
        """Begins; the first check of retention comes after one interval."""
        timings = self._timings
        retention_ms = timings.log_retention_check_interval_ms
        self._next_retention_ns = self._context.monotonic_ns() + retention_ms * NS_PER_MS
        # An interval that is shorter than that of the checkpoints needs a timer of its own.
        if retention_ms < timings.log_flush_offset_checkpoint_interval_ms:
            self._every(retention_ms, "retention", self.check_retention)
        if timings.log_flush_scheduler_interval_ms < NEVER_MS:
            self._every(timings.log_flush_scheduler_interval_ms, "flush", self._begin_flush)

    def stop(self) -> None:
        """Stops the timers; the scope stops the cleaner."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def tick(self) -> None:
        """Does what is due; called when the checkpoint timer fires."""
        if self._context.monotonic_ns() >= self._next_retention_ns:
            self._next_retention_ns = (
                self._context.monotonic_ns()
                + self._timings.log_retention_check_interval_ms * NS_PER_MS
            )
            self.check_retention()
        if (self._cleaner is None or self._cleaner.done()) and self._has_work_for_cleaner():
            self._cleaner = self._scope.spawn(self._clean_logs(), "log-cleaner")

    def check_retention(self) -> None:
        """Deletes what the retention of each log does not keep (RET-1)."""
        now_ms = self._context.wall_ms()
        for partition, _ in self._online():
            try:
                partition.replica.delete_old_segments(now_ms)
            except OSError as error:
                self._context.on_disk_error(partition.topic, partition.index, error)

    # --- compaction

    def _has_work_for_cleaner(self) -> bool:
        return any(
            log.config.compacts and len(log.segments) > 1 and log not in self._uncleanable
            for _, log in self._online()
        )

    async def _clean_logs(self) -> None:
        """Compacts the dirtiest log again and again, until no log has segments to compact."""
        backoff_s = self._timings.log_cleaner_backoff_ms / 1000
        while self._has_work_for_cleaner():
            if not await self.clean_dirtiest():
                await asyncio.sleep(backoff_s)

    async def clean_dirtiest(self) -> bool:
        """Compacts the log that is due and has the largest dirty ratio; returns whether there was one."""
        now_ms = self._context.wall_ms()
        best: tuple[Partition, Cleanable] | None = None
        for partition, log in self._online():
            found = None if log in self._uncleanable else self._due(partition, log, now_ms)
            if found is not None and (best is None or found.dirty_ratio > best[1].dirty_ratio):
                best = partition, found
        if best is None:
            return False
        partition, work = best
        replica = partition.replica
        try:
            if not await clean(work, self._storage, now_ms):
                return False
            self._context.logs.write_first_dirty_offsets(replica.topic, replica.index)
        except CorruptBatchError as error:
            # Like Kafka's: other logs are still compacted.
            self._uncleanable.add(work.log)
            replica.mark("log-uncleanable", error=str(error))
        except OSError as error:
            # The log may have been deleted meanwhile.
            if replica.log is work.log:
                self._context.on_disk_error(replica.topic, replica.index, error)
            return False
        else:
            replica.mark("log-compacted", first_dirty_offset=work.log.first_dirty_offset)
        return True

    def _due(self, partition: Partition, log: Log, now_ms: int) -> Cleanable | None:
        try:
            found = cleanable(log, high_watermark=partition.high_watermark, now_ms=now_ms)
        except OSError as error:
            self._context.on_disk_error(partition.topic, partition.index, error)
            return None
        return found if found is not None and found.is_due else None

    # --- flush.ms

    def _begin_flush(self) -> None:
        self._scope.spawn(self._flush_old(), "log-flush")

    async def _flush_old(self) -> None:
        """Flushes every log whose oldest unflushed record is older than its flush.ms."""
        now_ns = self._context.monotonic_ns()
        for partition, log in list(self._online()):
            key = (partition.topic, partition.index)
            first, since_ns = self._unflushed.get(key, (-1, now_ns))
            if not log.unflushed_record_count:
                self._unflushed.pop(key, None)
                continue
            if first != log.recovery_point:
                since_ns = now_ns
                self._unflushed[key] = (log.recovery_point, now_ns)
            if now_ns - since_ns >= log.config.flush_ms * NS_PER_MS:
                try:
                    await log.flush()
                except OSError as error:
                    if partition.log is log:
                        self._context.on_disk_error(*key, error)

    # --- common

    def _online(self) -> Iterator[tuple[Partition, Log]]:
        """Yields the partitions that have a log, with it."""
        for partition in list(self._partitions.values()):
            if partition.log is not None:
                yield partition, partition.log

    def _every(self, period_ms: float, name: str, task: Callable[[], None]) -> None:
        def run() -> None:
            arm()
            task()

        def arm() -> None:
            self._timers[name] = asyncio.get_running_loop().call_later(period_ms / 1000, run)

        arm()
