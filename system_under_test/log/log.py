"""The log of one replica: segments of record batches, a leader-epoch cache, a recovery point.

Appends go to the page cache. Nothing waits for an fsync unless `flush_messages` says so (LOG-1), which is
why a broker that loses power may come back with a shorter log, and why the whole machinery of clean and
unclean shutdowns exists. `recovery_point` is the offset below which everything is known to be durable.

The class knows nothing of partitions, leaders or high watermarks; the metadata quorum uses it as well.
It is synchronous except for `flush`, so its callers' critical sections need no locks.
"""

import asyncio
import errno
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from system_under_test.config import LogConfig
from system_under_test.invariants import check_invariant
from system_under_test.log.checkpoints import parent
from system_under_test.log.epochs import EPOCH_CHECKPOINT, LeaderEpochCache
from system_under_test.log.errors import BatchTooLargeError, OutOfOrderOffsetError
from system_under_test.log.producer_state import (
    NO_PRODUCER_ID,
    ProducerRefusedError,
    ProducerStates,
    RememberedBatch,
)
from system_under_test.log.recovery import LoadedLog, load_segments
from system_under_test.log.segment import Segment, intact_batches
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.record_batch import (
    BatchHeader,
    BatchSpan,
    CorruptBatchError,
    read_headers,
    spans,
    stamp,
    stamp_in_place,
)
from system_under_test.rules import ALL_RULES, Rules
from system_under_test.runtime import Storage

__all__ = [
    "AppendInfo",
    "BatchTooLargeError",
    "CorruptBatchError",
    "Log",
    "OutOfOrderOffsetError",
]


class AppendInfo(NamedTuple):
    """What an append did. A tuple, because appends are hot.

    Attributes:
        last_offset: `first_offset - 1` when nothing was appended.
    """

    first_offset: int
    last_offset: int
    record_count: int
    size_bytes: int


class Log:
    """One log. Made by `Log.load`.

    Attributes:
        log_start_offset: Offset of the first record that may be read.
        log_end_offset: Offset that the next record will get.
        recovery_point: Everything below is durable.
        epochs: The leader-epoch cache; change it through the log only.
        producers: What is known of idempotent producers; change it through the log only.
        cuts_at_load: What was cut off when it was loaded.
        on_checkpoint_due: Called when a truncation lowered the recovery point or the log start, which must
            reach their checkpoint files before anything is appended (TRUNC-3). The owner sets it.
    """

    __slots__ = (
        "_active",
        "_behind",
        "_checkpoints_truncations",
        "_directory",
        "_failure",
        "_flush_messages",
        "_follows_producers",
        "_generation",
        "_has_unsynced_names",
        "_is_new",
        "_max_message_bytes",
        "_rebuilds_producers",
        "_segment_bases",
        "_segment_bytes",
        "_segments",
        "_storage",
        "_verifies_fetched",
        "cuts_at_load",
        "epochs",
        "log_end_offset",
        "log_start_offset",
        "on_checkpoint_due",
        "producers",
        "recovery_point",
    )

    def __init__(
        self,
        storage: Storage,
        directory: str,
        config: LogConfig,
        loaded: LoadedLog,
        epochs: LeaderEpochCache,
        producers: ProducerStates,
        rules: Rules,
    ) -> None:
        self._storage = storage
        self._directory = directory
        self._segment_bytes = config.segment_bytes
        self._max_message_bytes = config.max_message_bytes
        # LOG-1: an acknowledgement does not wait for fsync. Without the rule every append does.
        self._flush_messages = config.flush_messages if rules("LOG-1") else 1
        self._verifies_fetched = rules("FF-2")
        self._checkpoints_truncations = rules("TRUNC-3")
        self._segments = loaded.segments
        self._segment_bases = [segment.base_offset for segment in loaded.segments]
        self._active = loaded.segments[-1]
        # Counts truncations: a flush that began before one must not advance the recovery point after it.
        self._generation = 0
        # Whether files were created or removed since the directory was last made durable.
        self._has_unsynced_names = True
        self._is_new = loaded.is_new
        self._failure: OSError | None = None
        self._behind: asyncio.Task[None] | None = None
        self.epochs = epochs
        self.producers = producers
        self._follows_producers = rules("PID-4")
        self._rebuilds_producers = rules("PID-5")
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = self._active.end_offset
        self.recovery_point = loaded.recovery_point
        self.cuts_at_load = loaded.cuts
        self.on_checkpoint_due: Callable[[], None] | None = None

    @classmethod
    def load(
        cls,
        storage: Storage,
        directory: str,
        config: LogConfig,
        *,
        had_clean_shutdown: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        rules: Rules = ALL_RULES,
        wall_ms: Callable[[], int] | None = None,
    ) -> "Log":
        """Opens the log in a directory, repairing it if need be (REC-1); creates an empty one if there is none.

        Args:
            storage: The node's files.
            directory: Where this log's files are.
            config: Sizes and flushing.
            had_clean_shutdown: Whether the files can be trusted as they are.
            recovery_point: As checkpointed, 0 when unknown.
            log_start_offset: As checkpointed, 0 when unknown.
            rules: Which rules apply.
            wall_ms: The node's clock; without it producers are forgotten by the log's own time.

        Raises:
            OSError: The disk failed.
        """
        epochs = LeaderEpochCache(storage, directory, rules)
        producers = ProducerStates(rules, wall_ms)
        loaded = load_segments(
            storage,
            directory,
            epochs,
            is_trusted=had_clean_shutdown,
            verify_crc=rules("REC-1"),
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            producers=producers if rules("PID-5") else None,
        )
        return cls(storage, directory, config, loaded, epochs, producers, rules)

    @property
    def directory(self) -> str:
        """Where the log's files are."""
        return self._directory

    @property
    def cut_bytes_at_load(self) -> int:
        """How much was cut off when it was loaded."""
        return sum(cut.size_bytes for cut in self.cuts_at_load)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch, -1 when there is none."""
        return self.epochs.latest_epoch

    @property
    def generation(self) -> int:
        """Changes when something that was read before may read differently now."""
        return self._generation

    @property
    def unflushed_record_count(self) -> int:
        """How many records are not known to be durable."""
        return self.log_end_offset - self.recovery_point

    # Appending

    def append_as_leader(self, batches: bytes, leader_epoch: int) -> AppendInfo:
        """Gives a producer's batches the next offsets and this leader epoch, and appends them.

        A batch that an idempotent producer repeats is not appended again; the answer says where it is (PID-1).

        Raises:
            ProducerRefusedError: An idempotent producer must not append this now. Nothing was appended.
            CorruptBatchError: The bytes are no run of whole, intact batches. Nothing was appended.
            BatchTooLargeError: A batch exceeds `max_message_bytes`. Nothing was appended.
            OSError: The disk failed; nothing is readable of the append.
        """
        found = spans(batches, verify_crc=True)
        if not found:
            raise CorruptBatchError("there is no batch to append")
        is_idempotent = found[0].producer_id != NO_PRODUCER_ID or len(found) > 1
        if is_idempotent:
            duplicate = self._examine(found)
            if duplicate is not None:
                _, _, first, last = duplicate
                return AppendInfo(first, last, last - first + 1, 0)
        first_offset = next_offset = self.log_end_offset
        placed = []
        for span in found:
            if span.size_bytes > self._max_message_bytes:
                raise BatchTooLargeError(
                    f"a batch of {span.size_bytes} bytes exceeds {self._max_message_bytes}"
                )
            placed.append((next_offset, span.size_bytes, span.record_count))
            next_offset += span.record_count
        if len(found) == 1:
            data = stamp(batches, base_offset=first_offset, leader_epoch=leader_epoch)
        else:
            buffer = bytearray(batches)
            for span, (base_offset, _, _) in zip(found, placed, strict=True):
                stamp_in_place(buffer, span, base_offset=base_offset, leader_epoch=leader_epoch)
            data = bytes(buffer)
        # EC-2. Before the records: they must not outlive the entry in a power cut.
        if leader_epoch != self.epochs.latest_epoch and leader_epoch >= 0:
            self.epochs.assign(leader_epoch, first_offset)
        self._write(data, placed)
        if is_idempotent:
            for span, (base_offset, _, _) in zip(found, placed, strict=True):
                if span.producer_id != NO_PRODUCER_ID:
                    self.producers.appended(span, base_offset)
        return AppendInfo(first_offset, next_offset - 1, next_offset - first_offset, len(data))

    def _examine(self, found: list[BatchSpan]) -> RememberedBatch | None:
        """Returns the batch that is repeated, None if all are to be appended."""
        if len(found) > 1:
            if any(span.producer_id != NO_PRODUCER_ID for span in found):
                # The second could not be judged before the first is in the log.
                raise ProducerRefusedError(
                    ErrorCode.INVALID_RECORD, "an idempotent producer sends one batch at a time"
                )
            return None
        return self.producers.examine(found[0])

    def append_as_follower(self, batches: bytes) -> AppendInfo:
        """Appends fetched batches unchanged; their epochs go to the epoch cache.

        Raises:
            CorruptBatchError: The bytes are no run of whole, intact batches. Nothing was appended.
            OutOfOrderOffsetError: They do not continue the log without a gap. Nothing was appended.
            OSError: The disk failed; nothing is readable of the append.
        """
        # FF-2: a batch that was damaged on its way here, or on the leader's disk, is never appended.
        found = spans(batches, verify_crc=self._verifies_fetched)
        first_offset = next_offset = self.log_end_offset
        if not found:
            return AppendInfo(first_offset, first_offset - 1, 0, 0)
        placed = []
        epoch = self.epochs.latest_epoch
        new_epochs = []
        for span in found:
            if span.base_offset != next_offset:
                raise OutOfOrderOffsetError(
                    f"a fetched batch begins at {span.base_offset}, the log ends at {next_offset}"
                )
            if span.leader_epoch != epoch and span.leader_epoch >= 0:
                epoch = span.leader_epoch
                new_epochs.append((epoch, next_offset))
            placed.append((next_offset, span.size_bytes, span.record_count))
            next_offset += span.record_count
        # EC-2, before the records as above.
        if new_epochs:
            self.epochs.assign_all(new_epochs)
        self._write(batches, placed)
        if self._follows_producers:  # PID-4
            for span in found:
                if span.producer_id != NO_PRODUCER_ID:
                    self.producers.appended(span, span.base_offset)
        return AppendInfo(first_offset, next_offset - 1, next_offset - first_offset, len(batches))

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Records that a leader epoch begins at an offset; durable when it returns (EC-1)."""
        self.epochs.assign(epoch, start_offset)

    def _write(self, data: bytes, placed: list[tuple[int, int, int]]) -> None:
        """Appends bytes that are (base offset, size, record count) per batch."""
        if self._failure is not None:
            self._raise_failure()
        segment = self._active
        if segment.size_bytes and segment.size_bytes + len(data) > self._segment_bytes:
            segment = self._roll()
        try:
            self._storage.append(segment.path, data)
        except OSError:
            self._undo_partial_append(segment)
            raise
        for base_offset, size_bytes, record_count in placed:
            segment.add(base_offset, size_bytes, record_count)
        self.log_end_offset = segment.end_offset
        if segment.end_offset - self.recovery_point >= self._flush_messages:
            self.flush_blocking()

    def _undo_partial_append(self, segment: Segment) -> None:
        """Removes what a failed append left, or the next append would land behind garbage."""
        try:
            self._storage.truncate(segment.path, segment.size_bytes)
        except OSError as error:
            self._failure = error

    def _roll(self) -> Segment:
        segment = self._begin_segment(self.log_end_offset)
        # LOG-1: the full segment is flushed behind the appends, which do not wait for it.
        if self._behind is None or self._behind.done():
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                # A tool works on the log without a loop; what is not flushed now is flushed by `flush`.
                return segment
            self._behind = loop.create_task(self._flush_rolled())
        return segment

    def _begin_segment(self, base_offset: int) -> Segment:
        segment = Segment(self._directory, base_offset)
        self._storage.append(segment.path, b"")
        self._segments.append(segment)
        self._segment_bases.append(base_offset)
        self._active = segment
        self._has_unsynced_names = True
        return segment

    # Reading

    def read(self, start_offset: int, max_bytes: int, end_offset: int) -> bytes:
        """Returns whole batches from the one that contains `start_offset` on.

        All of them end below `end_offset`, an exclusive bound. The first is returned even when it is larger than
        `max_bytes`; b"" means that there is none.

        Raises:
            ValueError: `start_offset` lies outside of the log.
            OSError: The disk failed.
        """
        if not self.log_start_offset <= start_offset <= self.log_end_offset:
            raise ValueError(
                f"offset {start_offset} is outside of "
                f"[{self.log_start_offset}, {self.log_end_offset}]"
            )
        segment = self._active
        if start_offset >= segment.base_offset:
            begin, end = segment.range_of(start_offset, max_bytes, end_offset)
            return self._storage.read(segment.path, begin, end - begin) if end > begin else b""
        return self._read_across(start_offset, max_bytes, end_offset)

    def _read_across(self, start_offset: int, max_bytes: int, end_offset: int) -> bytes:
        parts: list[bytes] = []
        size_bytes = 0
        index = bisect_right(self._segment_bases, start_offset) - 1
        while index < len(self._segments):
            segment = self._segments[index]
            offset = max(start_offset, segment.base_offset)
            begin, end = segment.range_of(offset, max_bytes - size_bytes, end_offset)
            # Only the very first batch may exceed the limit.
            if end == begin or (parts and size_bytes + end - begin > max_bytes):
                break
            parts.append(self._storage.read(segment.path, begin, end - begin))
            size_bytes += end - begin
            index += 1
            if size_bytes >= max_bytes or end < segment.size_bytes:
                break
        return b"".join(parts)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """Returns (largest known epoch at or below `epoch`, where it ends here), None if unknown (EC-3)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def headers(self) -> list[BatchHeader]:
        """Returns the headers of all batches, in order; for tools and oracles."""
        found: list[BatchHeader] = []
        for segment in self._segments:
            data = self._storage.read(segment.path, 0, segment.size_bytes)
            found.extend(header for _, header in read_headers(data))
        return found

    def _spans(self) -> Iterator[BatchSpan]:
        for segment in self._segments:
            yield from intact_batches(self._storage, segment.path, verify_crc=False)

    # Truncating

    def truncate_to(self, offset: int) -> None:
        """Cuts everything from an offset on; a batch that contains it goes as a whole (TRUNC-3).

        At or behind the log end, only epochs without records are forgotten.

        Raises:
            ValueError: The offset is negative.
            OSError: The disk failed.
        """
        if offset < 0:
            raise ValueError(f"cannot truncate to offset {offset}")
        if offset >= self.log_end_offset:
            if self.epochs.truncate_from_end(self.log_end_offset):
                self._has_unsynced_names = True
            return
        keep = bisect_right(self._segment_bases, offset)
        end_offset = self._segments[keep - 1].base_of(offset) if keep else offset
        if end_offset < self.log_start_offset:
            # Nothing that anybody may read is left. If a power cut undid the cut, records from below the log start
            # would be back, whose epochs were forgotten with it (EC-4).
            self.truncate_fully_and_start_at(end_offset)
            return
        self._generation += 1
        self._remove_segments(keep)
        segment = self._active = self._segments[-1]
        segment.cut(offset)
        self._storage.truncate(segment.path, segment.size_bytes)
        self._after_truncation(segment.end_offset, self.log_start_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops all records and lets the log begin, empty, at an offset.

        Raises:
            ValueError: The offset is negative.
            OSError: The disk failed.
        """
        if offset < 0:
            raise ValueError(f"cannot begin a log at offset {offset}")
        self._generation += 1
        self._remove_segments(0)
        self._begin_segment(offset)
        self.epochs.clear()
        # Durable at once, unlike a cut: what a power cut brings back of the old log would not border on the new.
        self._storage.fsync_dir(self._directory)
        self._after_truncation(offset, offset)

    def advance_log_start(self, offset: int) -> None:
        """Raises the log start; segments wholly below it are removed. Lower offsets change nothing.

        Raises:
            ValueError: The offset lies behind the log end.
            OSError: The disk failed.
        """
        if offset > self.log_end_offset:
            raise ValueError(f"log start {offset} is behind the log end {self.log_end_offset}")
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        while len(self._segments) > 1 and self._segment_bases[1] <= offset:
            self._storage.remove(self._segments[0].path)
            del self._segments[0], self._segment_bases[0]
        self.epochs.truncate_from_start(offset)
        self._has_unsynced_names = True

    def _remove_segments(self, keep: int) -> None:
        # From the end, so that an interruption never leaves a hole.
        while len(self._segments) > keep:
            self._storage.remove(self._segments[-1].path)
            del self._segments[-1], self._segment_bases[-1]
            self._has_unsynced_names = True

    def _after_truncation(self, end_offset: int, log_start_offset: int) -> None:
        # The entries after the records: a stale entry behind the log end is dropped by the next load, a
        # record without its entry would not be noticed.
        self.log_end_offset = end_offset
        self.epochs.truncate_from_end(end_offset)
        self._has_unsynced_names = True
        is_due = self.recovery_point > end_offset or self.log_start_offset != log_start_offset
        self.recovery_point = min(self.recovery_point, end_offset)
        self.log_start_offset = log_start_offset
        # PID-5: what was cut may come again, and is no duplicate then.
        if self._rebuilds_producers and self.producers.reaches(end_offset):
            self.producers.rebuild(self._spans())
        check_invariant(
            self.log_start_offset <= self.log_end_offset,
            "LOG-START",
            "a log does not begin behind its end",
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
        )
        # TRUNC-3: a recovery would otherwise trust, below the old recovery point, what is not durable. A
        # checkpointed recovery point is never above the one in memory, so it need not be written otherwise.
        if is_due and self._checkpoints_truncations and self.on_checkpoint_due is not None:
            self.on_checkpoint_due()

    # Flushing

    async def flush(self) -> None:
        """Makes everything up to the present log end durable, then advances the recovery point to there.

        The log goes on working meanwhile. If it is truncated meanwhile, the recovery point stays.

        Raises:
            OSError: The disk failed, now or earlier; what is durable is unknown from then on.
        """
        await self._flush_to(self.log_end_offset)

    async def _flush_to(self, target: int) -> None:
        self._raise_failure()
        generation = self._generation
        try:
            for segment in self._unflushed(target):
                await self._storage.fsync(segment.path)
                if generation != self._generation:
                    return
                segment.may_regrow = False
            self._finish_flush(target)
        except OSError as error:
            # A file that a truncation removed meanwhile.
            if generation == self._generation:
                self._failure = error
                raise

    def flush_blocking(self) -> None:
        """As `flush`, with the whole node waiting.

        Raises:
            OSError: As `flush`.
        """
        self._raise_failure()
        target = self.log_end_offset
        try:
            for segment in self._unflushed(target):
                self._storage.fsync_blocking(segment.path)
                segment.may_regrow = False
            self._finish_flush(target)
        except OSError as error:
            self._failure = error
            raise

    def _unflushed(self, target: int) -> list[Segment]:
        """Returns the segments to fsync before everything below `target` can be called durable."""
        first = max(bisect_right(self._segment_bases, self.recovery_point) - 1, 0)
        # A cut counts as content: below the recovery point it leaves a segment that ends exactly there, and if
        # the cut came back later, the old records would overlap the segments behind it.
        return [
            segment
            for index, segment in enumerate(self._segments)
            if (index >= first and segment.base_offset < target) or segment.may_regrow
        ]

    def _finish_flush(self, target: int) -> None:
        # The names before the recovery point: files that a power cut brings back, or an epoch cache without
        # its last removal, must not meet records that are trusted.
        if self._has_unsynced_names:
            self._storage.fsync_dir(self._directory)
            if self._is_new:
                self._storage.fsync_dir(parent(self._directory))
                self._is_new = False
            self._has_unsynced_names = False
        self.recovery_point = max(self.recovery_point, target)

    async def _flush_rolled(self) -> None:
        """Flushes the segments that are full, until the active one is the only one that is not."""
        try:
            while self.recovery_point < self._active.base_offset:
                generation = self._generation
                await self._flush_to(self._active.base_offset)
                if generation != self._generation:
                    return
        except OSError:
            # Kept in `_failure`: the next append or flush reports it to somebody who can act.
            return

    def _raise_failure(self) -> None:
        # After a failed fsync the kernel forgets which pages were dirty, and a second fsync would lie.
        if self._failure is not None:
            raise OSError(
                self._failure.errno or errno.EIO,
                f"the log in {self._directory} is offline since an error: {self._failure}",
            )

    # Ending

    def close(self) -> None:
        """Stops background work; the files stay as they are."""
        self._generation += 1
        if self._behind is not None:
            self._behind.cancel()
            self._behind = None

    def delete(self) -> None:
        """Removes the files of the log. It cannot be used any more.

        Raises:
            OSError: The disk failed.
        """
        self.close()
        self._failure = OSError(errno.ENOENT, "it was deleted")
        self._remove_segments(0)
        epoch_checkpoint = f"{self._directory}/{EPOCH_CHECKPOINT}"
        if self._storage.exists(epoch_checkpoint):
            self._storage.remove(epoch_checkpoint)
