"""The log of one replica: segments of record batches, a leader-epoch cache, a recovery point.

Appends go to the page cache. Nothing waits for an fsync unless `flush_messages` requires it (LOG-1). Therefore a
broker that loses power may come back with a shorter log, and clean and unclean shutdowns are distinguished.
`recovery_point` is the offset below which everything is known to be durable.

The class knows nothing of partitions, leaders or high watermarks; the metadata quorum uses it as well.
It is synchronous except for `flush`, so its callers' critical sections need no locks.
"""

import asyncio
import errno
from collections.abc import Callable
from typing import NamedTuple

from system_under_test.config import LogConfig
from system_under_test.invariants import check_invariant
from system_under_test.log.checkpoints import parent
from system_under_test.log.epochs import EPOCH_CHECKPOINT, LeaderEpochCache
from system_under_test.log.errors import BatchTooLargeError, OutOfOrderOffsetError
from system_under_test.log.index_size import IndexSize, counted, may_fill
from system_under_test.log.producer_snapshot import write_snapshot
from system_under_test.log.producer_state import NO_PRODUCER_ID, ProducerStates
from system_under_test.log.recovery import LoadedLog, load_segments
from system_under_test.log.segment import Segment
from system_under_test.log.segment_list import SegmentList
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.batch_rewrite import filler_from, is_filler
from system_under_test.protocol.control_records import marker_in
from system_under_test.protocol.record_batch import BatchHeader, BatchSpan, spans
from system_under_test.rules import ALL_RULES, Rules
from system_under_test.runtime import Storage


class AppendInfo(NamedTuple):
    """The result of an append. A tuple, because appends are hot.

    Attributes:
        last_offset: `first_offset - 1` when nothing was appended.
    """

    first_offset: int
    last_offset: int
    record_count: int
    size_bytes: int

    @property
    def is_duplicate(self) -> bool:
        """Whether the records were in the log before (PID-1)."""
        return self.record_count > 0 and not self.size_bytes


class Log:
    """One log. Made by `Log.load`.

    Attributes:
        log_start_offset: Offset of the first record that may be read.
        log_end_offset: Offset that the next record will get.
        recovery_point: Everything below is durable.
        first_dirty_offset: Everything below was compacted; 0 for a log that never was.
        segments: The segment files; change them through the log only.
        epochs: The leader-epoch cache; change it through the log only.
        producers: What is known of idempotent producers; change it through the log only.
        cuts_at_load: What was cut off when it was loaded.
        on_checkpoint_due: Called when a truncation lowered the recovery point or the log start, which must
            reach their checkpoint files before anything is appended (TRUNC-3). The owner sets it.
    """

    __slots__ = (
        "_behind",
        "_config",
        "_directory",
        "_failure",
        "_flush_messages",
        "_generation",
        "_has_unsynced_names",
        "_index_may_fill",
        "_index_size",
        "_is_new",
        "_max_message_bytes",
        "_roll_after_ms",
        "_rules",
        "_segment_bytes",
        "_storage",
        "cuts_at_load",
        "epochs",
        "first_dirty_offset",
        "log_end_offset",
        "log_start_offset",
        "on_checkpoint_due",
        "producers",
        "recovery_point",
        "segments",
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
        self._rules = rules
        self.segments = SegmentList(storage, directory, loaded.segments, rules)
        self.configure(config)
        # Counts truncations: a flush that began before one must not advance the recovery point after it.
        self._generation = 0
        # Whether files were created or removed since the directory was last made durable.
        self._has_unsynced_names = True
        self._is_new = loaded.is_new
        self._failure: OSError | None = None
        self._behind: asyncio.Task[None] | None = None
        self.epochs = epochs
        self.producers = producers
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = self.segments.active.end_offset
        self.recovery_point = loaded.recovery_point
        self.cuts_at_load = loaded.cuts
        self.first_dirty_offset = 0
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
        compares_epochs: bool = True,
    ) -> "Log":
        """Opens the log in a directory, repairing it if need be (REC-1); creates an empty one if there is none.

        Args:
            storage: The node's files.
            directory: Where this log's files are.
            config: Sizes and flushing.
            had_clean_shutdown: Whether the files can be trusted as they are.
            recovery_point: As checkpointed, 0 when unknown.
            log_start_offset: As checkpointed, 0 when unknown.
            rules: The rules that apply.
            wall_ms: The node's clock; without it producers are forgotten by the log's own time.
            compares_epochs: Whether recovery cuts a batch that is older than the epoch cache says.

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
            rules=rules,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            producers=producers,
            compares_epochs=compares_epochs,
            index_interval_bytes=config.index_interval_bytes,
        )
        return cls(storage, directory, config, loaded, epochs, producers, rules)

    def configure(self, config: LogConfig) -> None:
        """Takes other settings; they count from the next append on."""
        self._config = config
        self._segment_bytes = config.segment_bytes
        self._roll_after_ms = config.roll_after_ms
        self._flush_messages = config.flush_messages
        self._max_message_bytes = config.max_message_bytes
        self._index_may_fill = may_fill(config)
        self._index_size: IndexSize | None = None
        self.segments.index_interval_bytes = config.index_interval_bytes
        self.segments.active.index_interval_bytes = config.index_interval_bytes

    @property
    def config(self) -> LogConfig:
        """The settings that are in force."""
        return self._config

    @property
    def rules(self) -> Rules:
        """The rules that apply."""
        return self._rules

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

    @property
    def size_bytes(self) -> int:
        """Length of all segment files."""
        return self.segments.size_bytes

    # Appending

    def append_as_leader(
        self, batches: VerifiedBatches, leader_epoch: int, *, is_coordinator: bool = False
    ) -> AppendInfo:
        """Gives a producer's batches the next offsets and this leader epoch, and appends them.

        A batch that an idempotent producer repeats is not appended again; the result is that of the first time
        (PID-1).

        Args:
            batches: The batches.
            leader_epoch: Of the leadership.
            is_coordinator: Whether a group or transaction coordinator appends, not a client.

        Raises:
            ProducerRefusedError: An idempotent producer must not append this now. Nothing was appended.
            BatchTooLargeError: A batch exceeds `max_message_bytes`. Nothing was appended.
            OSError: The disk failed; nothing is readable of the append.
        """
        found = batches.spans
        is_idempotent = found[0].producer_id != NO_PRODUCER_ID or len(found) > 1
        if is_idempotent:
            duplicate = self.producers.examine(found, batches.data, is_coordinator=is_coordinator)
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
            placed.append((next_offset, span.size_bytes, span.record_count, span.max_timestamp_ms))
            next_offset += span.record_count
        data = batches.stamped(first_offset, leader_epoch)
        # EC-2. Before the records: they must not outlive the entry in a power cut.
        if leader_epoch != self.epochs.latest_epoch and leader_epoch >= 0:
            self.epochs.assign(leader_epoch, first_offset)
        self._write(data, placed)
        if is_idempotent:
            for span, (base_offset, _, _, _) in zip(found, placed, strict=True):
                if span.producer_id != NO_PRODUCER_ID:
                    marker = marker_in(data, span.position) if span.is_control else None
                    self.producers.appended(span, base_offset, marker)
        return AppendInfo(first_offset, next_offset - 1, next_offset - first_offset, len(data))

    def append_as_follower(self, batches: bytes) -> AppendInfo:
        """Appends fetched batches unchanged; their epochs go to the epoch cache (EC-2, FF-2, PID-4).

        Raises:
            CorruptBatchError: The bytes are not a run of whole, intact batches. Nothing was appended.
            OutOfOrderOffsetError: They do not continue the log without a gap. Nothing was appended.
            OSError: The disk failed; nothing is readable of the append.
        """
        # FF-2: a batch that was damaged on its way here, or on the leader's disk, is never appended.
        found = spans(batches, verify_crc=self._rules("FF-2"))
        first_offset = next_offset = self.log_end_offset
        if not found:
            return AppendInfo(first_offset, first_offset - 1, 0, 0)
        if found[0].base_offset < next_offset and self._starts_inside(found[0]):
            return self._append_from_inside(batches, found[0].base_offset)
        if is_filler(found[0]) and found[0].base_offset < next_offset < found[0].end_offset:
            # The leader's cleaner removed batches on both sides of this log's end, and covered them with one.
            covering = filler_from(next_offset, found[0])
            return self.append_as_follower(covering + batches[found[0].size_bytes :])
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
            placed.append((next_offset, span.size_bytes, span.offset_count, span.max_timestamp_ms))
            next_offset += span.offset_count
        # EC-2, before the records as above.
        if new_epochs:
            self.epochs.assign_all(new_epochs)
        self._write(batches, placed)
        for span in found:
            # PID-4: a follower may become leader, and then needs to know its producers.
            if span.producer_id != NO_PRODUCER_ID and self._rules("PID-4"):
                marker = marker_in(batches, span.position) if span.is_control else None
                self.producers.appended(span, span.base_offset, marker)
        return AppendInfo(first_offset, next_offset - 1, next_offset - first_offset, len(batches))

    def _starts_inside(self, span: BatchSpan) -> bool:
        """Whether the log is empty and starts inside of a batch, as the log it is copied from does (RET-3)."""
        end_offset = self.log_end_offset
        return (
            self.log_start_offset == end_offset and span.base_offset < end_offset < span.end_offset
        )

    def _append_from_inside(self, batches: bytes, base_offset: int) -> AppendInfo:
        """Appends the first batches of a log that starts inside of the first of them."""
        log_start_offset = self.log_start_offset
        self.truncate_fully_and_start_at(base_offset)
        appended = self.append_as_follower(batches)
        self.advance_log_start(log_start_offset)
        return appended

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Records that a leader epoch begins at an offset; durable when it returns (EC-1)."""
        self.epochs.assign(epoch, start_offset)

    def _write(self, data: bytes, placed: list[tuple[int, int, int, int]]) -> None:
        """Appends bytes that are (base offset, size, offset count, newest timestamp) per batch (LOG-1)."""
        if self._failure is not None:
            self._raise_failure()
        segment = self.segments.active
        if segment.size_bytes and (
            segment.size_bytes + len(data) > self._segment_bytes
            or placed[-1][3] - segment.first_timestamp_ms > self._roll_after_ms
            or (self._index_may_fill and self._size_of_index(segment).is_full)
        ):
            segment = self._roll()
        try:
            self._storage.append(segment.path, data)
        except OSError:
            self._undo_partial_append(segment)
            raise
        for base_offset, size_bytes, offset_count, timestamp_ms in placed:
            segment.add(base_offset, size_bytes, offset_count, timestamp_ms)
        if self._index_size is not None and self._index_size.segment is segment:
            for _, size_bytes, _, timestamp_ms in placed:
                self._index_size.add(size_bytes, timestamp_ms)
        self.log_end_offset = segment.end_offset
        # LOG-1: an acknowledgement does not wait for fsync, unless so many records are unflushed. Without the rule
        # every append does.
        is_due = segment.end_offset - self.recovery_point >= self._flush_messages
        if is_due or not self._rules("LOG-1"):
            self.flush_blocking()

    def _size_of_index(self, segment: Segment) -> IndexSize:
        """Returns the size of a segment's index; counts it anew if the segment was cut, or is another one."""
        size = self._index_size
        if size is None or size.segment is not segment or size.size_bytes != segment.size_bytes:
            size = self._index_size = counted(self._config, segment, self._storage)
        return size

    def _undo_partial_append(self, segment: Segment) -> None:
        """Removes what a failed append left, or the next append would land behind garbage."""
        try:
            self._storage.truncate(segment.path, segment.size_bytes)
        except OSError as error:
            self._failure = error

    def roll(self) -> None:
        """Begins a new segment, unless the active one is empty.

        Raises:
            OSError: The disk failed.
        """
        if self.segments.active.size_bytes:
            self._roll()

    def _roll(self) -> Segment:
        segment = self.segments.begin(self.log_end_offset)
        self._has_unsynced_names = True
        # LOG-1: the full segment is flushed behind the appends, which do not wait for it.
        if self._behind is None or self._behind.done():
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                # A tool uses the log without a loop; what is not flushed now is flushed by `flush`.
                return segment
            self._behind = loop.create_task(self._flush_rolled())
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
        return self.segments.read(start_offset, max_bytes, end_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """Returns (largest known epoch at or below `epoch`, where it ends here), None if unknown (EC-3)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def headers(self) -> list[BatchHeader]:
        """Returns the headers of all batches, in order; for tools and tests."""
        return self.segments.headers()

    def last_stable_offset(self, high_watermark: int) -> int:
        """Returns the offset below which the outcome of every transaction is known and committed (TXN-1)."""
        transactions = self.producers.transactions
        if not transactions.is_used:
            return high_watermark
        unstable = transactions.first_unstable(high_watermark)
        if unstable is None or unstable >= high_watermark or not self._rules("TXN-1"):
            return high_watermark
        return max(unstable, self.log_start_offset)

    # Truncating

    def truncate_to(self, offset: int) -> None:
        """Removes everything from an offset on; a batch that contains it is removed as a whole (TRUNC-3).

        At or behind the log end, only epochs without records are dropped.

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
        end_offset = self.segments.batch_start(offset)
        if end_offset < self.log_start_offset:
            # Nothing readable is left. If a power cut undid the cut, records from below the log start would be
            # back, whose epochs were dropped with it (EC-4).
            self.truncate_fully_and_start_at(end_offset)
            return
        self._generation += 1
        self._after_truncation(self.segments.cut(offset), self.log_start_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops all records and lets the log begin, empty, at an offset.

        Raises:
            ValueError: The offset is negative.
            OSError: The disk failed.
        """
        if offset < 0:
            raise ValueError(f"cannot begin a log at offset {offset}")
        self._generation += 1
        self.segments.remove_all()
        self.segments.begin(offset)
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
        self.recovery_point = max(self.recovery_point, offset)
        # The checkpoint before the files: a power cut may bring any of them back, and a load that does not know
        # the log start would cut the log at the first one that is missing.
        if self.segments.has_wholly_below(offset) and self.on_checkpoint_due is not None:
            self.on_checkpoint_due()
        self.segments.remove_below(offset)
        self.epochs.truncate_from_start(offset)
        self.producers.transactions.drop_below(offset)
        self._has_unsynced_names = True

    def replace_segment(self, segment: Segment, path: str) -> None:
        """Replaces a segment, not the active one, by a file with the same offsets and fewer records; durable.

        Raises:
            OSError: The disk failed.
        """
        self._generation += 1
        self.segments.replace(segment, path)
        self._storage.fsync_dir(self._directory)

    def _after_truncation(self, end_offset: int, log_start_offset: int) -> None:
        """Lowers everything that was above the new log end (TRUNC-3, PID-5)."""
        # The entries after the records: a stale entry behind the log end is dropped by the next load, a
        # record without its entry would not be noticed.
        self.log_end_offset = end_offset
        self.first_dirty_offset = min(self.first_dirty_offset, end_offset)
        self.epochs.truncate_from_end(end_offset)
        self._has_unsynced_names = True
        is_due = self.recovery_point > end_offset or self.log_start_offset != log_start_offset
        self.recovery_point = min(self.recovery_point, end_offset)
        self.log_start_offset = log_start_offset
        # PID-5: what was cut may come again, and is no duplicate then.
        if self._rules("PID-5") and self.producers.reaches(end_offset):
            self.producers.rebuild(self.segments.marked_spans())
        check_invariant(
            self.log_start_offset <= self.log_end_offset,
            "LOG-START",
            "a log does not begin behind its end",
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
        )
        # TRUNC-3: a recovery would otherwise trust, below the old recovery point, what is not durable. A
        # checkpointed recovery point is never above the one in memory, so it need not be written otherwise.
        if is_due and self.on_checkpoint_due is not None and self._rules("TRUNC-3"):
            self.on_checkpoint_due()

    # Flushing

    async def flush(self) -> None:
        """Makes everything up to the present log end durable, then advances the recovery point to there.

        The log can be used meanwhile. If it is truncated meanwhile, the recovery point stays.

        Raises:
            OSError: The disk failed, now or earlier; what is durable is unknown from then on.
        """
        await self._flush_to(self.log_end_offset)

    async def _flush_to(self, target: int) -> None:
        self._raise_failure()
        generation = self._generation
        try:
            for segment in self.segments.unflushed(self.recovery_point, target):
                try:
                    await self._storage.fsync(segment.path)
                except OSError:
                    if not self.segments.begins_behind(segment):
                        raise
                # The log start may rise meanwhile, which removes segments and leaves all others as they are. The
                # flush goes on: RAFT-2 counts on what it returns for.
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
        """As `flush`, but blocks the whole node meanwhile.

        Raises:
            OSError: As `flush`.
        """
        self._raise_failure()
        target = self.log_end_offset
        try:
            for segment in self.segments.unflushed(self.recovery_point, target):
                self._storage.fsync_blocking(segment.path)
                segment.may_regrow = False
            self._finish_flush(target)
        except OSError as error:
            self._failure = error
            raise

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
            while self.recovery_point < self.segments.active.base_offset:
                generation = self._generation
                await self._flush_to(self.segments.active.base_offset)
                if generation != self._generation:
                    return
        except OSError:
            # Kept in `_failure`: the next append or flush raises it to a caller that can act.
            return

    def _raise_failure(self) -> None:
        # After a failed fsync the kernel forgets which pages were dirty, and a second fsync would succeed without
        # writing them.
        if self._failure is not None:
            raise OSError(
                self._failure.errno or errno.EIO,
                f"the log in {self._directory} is offline since an error: {self._failure}",
            )

    # Ending

    def snapshot_producers(self) -> None:
        """Writes what is known of producers for Apache Kafka, which may open the directory next; durable.

        Raises:
            OSError: The disk failed.
        """
        write_snapshot(self._storage, self._directory, self.log_end_offset, self.producers)

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
        self.segments.remove_all()
        epoch_checkpoint = f"{self._directory}/{EPOCH_CHECKPOINT}"
        if self._storage.exists(epoch_checkpoint):
            self._storage.remove(epoch_checkpoint)
