"""The cleaner: compacts a log, so that of all records with the same key only the last one stays.

A log has a clean part, which was compacted before, and a dirty part behind it. A pass builds a map of the last
offset of every key in the dirty part, and rewrites the segments from the start of the log to the end of the map
without the records that the map supersedes.

What is never cleaned (CLEAN-1): the active segment, anything at or above the high watermark, which may still be
truncated and would take the last record of a key with it, anything at or above the last stable offset (CLEAN-4),
and what is younger than min.compaction.lag.ms. A
tombstone (a record without a value) stays for delete.retention.ms after the pass that first met it, so that a
consumer that reads the log from its start learns of the deletion (CLEAN-2). The last batch of an idempotent
producer stays, if need be without records, because the log needs its sequence (CLEAN-3). Records without a key are
removed, and so are those of aborted transactions, which replace nothing (CLEAN-4).

Differences from Kafka. Removed batches leave a batch without records behind that covers their offsets, where
Kafka leaves a gap: a file that a power cut took can then not be mistaken for removed records. Each segment is
rewritten alone; Kafka merges small ones. Transaction markers stay; Kafka removes one when nothing of its
transaction is left. Compressed batches other than gzip are kept as a whole, and behind one no tombstone is
removed, because it may hold an older value of any key.

Source:
    Kafka's `LogCleanerManager`, `Cleaner` and KIP-534.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

from system_under_test.log.log import Log
from system_under_test.log.segment import CLEANED_SUFFIX, SCAN_WINDOW_BYTES, Segment
from system_under_test.protocol.batch_rewrite import (
    delete_horizon_ms,
    filler,
    is_filler,
    readable_records,
    rewritten,
)
from system_under_test.protocol.record_batch import (
    BatchHeader,
    CorruptBatchError,
    Record,
    header_at,
    size_at,
)
from system_under_test.runtime import Storage

KEYS_MAX = 1_000_000
"""Keys in the map of one pass, about 150 MB; a log with more needs several passes."""
STEP_BYTES = 1 << 18
"""How much is read before other work of the node has its turn."""
OFFSETS_MAX = 2**31 - 1
"""Most offsets that one batch can cover."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """A log that may be compacted.

    Attributes:
        segments: Those below the end, the oldest first.
        first_dirty_offset: Where the dirty part begins.
        dirty_ratio: Share of the dirty bytes in these segments.
        is_due: Whether the log is to be compacted now.
    """

    log: Log
    segments: tuple[Segment, ...]
    first_dirty_offset: int
    dirty_ratio: float
    is_due: bool


def cleanable(log: Log, *, high_watermark: int, now_ms: int) -> Cleanable | None:
    """Returns what of a log may be compacted (CLEAN-1), None if nothing may.

    Args:
        log: Any replica's log.
        high_watermark: As the replica knows it.
        now_ms: The node's wall clock.

    Raises:
        OSError: The disk failed.
    """
    config = log.config
    if not config.compacts:
        return None
    first_dirty = max(log.first_dirty_offset, log.log_start_offset)
    # CLEAN-4: what an open transaction wrote replaces nothing yet.
    bound = log.last_stable_offset(high_watermark) if log.rules("CLEAN-4") else high_watermark
    if not log.rules("CLEAN-1"):
        bound = log.log_end_offset
    segments: list[Segment] = []
    clean_bytes = dirty_bytes = 0
    is_due = False
    for segment, following in pairwise(log.segments):
        if following.base_offset > bound:
            break
        is_dirty = segment.end_offset > first_dirty
        if is_dirty and _is_too_young(segment, config.min_compaction_lag_ms, now_ms):
            break
        segments.append(segment)
        if is_dirty:
            dirty_bytes += segment.size_bytes
            is_due = is_due or segment.first_timestamp_ms < now_ms - config.max_compaction_lag_ms
        else:
            clean_bytes += segment.size_bytes
    if not dirty_bytes:
        return None
    ratio = dirty_bytes / (clean_bytes + dirty_bytes)
    return Cleanable(
        log=log,
        segments=tuple(segments),
        first_dirty_offset=first_dirty,
        dirty_ratio=ratio,
        is_due=is_due or ratio > config.min_cleanable_dirty_ratio,
    )


def _is_too_young(segment: Segment, lag_ms: int, now_ms: int) -> bool:
    return lag_ms > 0 and segment.largest_timestamp_ms() > now_ms - lag_ms


async def clean(work: Cleanable, storage: Storage, now_ms: int) -> bool:
    """Compacts a log.

    Args:
        work: From `cleanable`.
        storage: The node's files.
        now_ms: The node's wall clock.

    Returns:
        Whether the pass was completed: it is abandoned if the log is truncated or its front deleted meanwhile.

    Raises:
        CorruptBatchError: A file cannot be read as batches.
        OSError: The disk failed.
    """
    current = _Current(work)
    try:
        return await _clean(work, storage, now_ms, current)
    except (OSError, CorruptBatchError):
        # A file that a truncation or retention removed meanwhile.
        if not current.holds():
            return False
        raise


async def _clean(work: Cleanable, storage: Storage, now_ms: int, current: "_Current") -> bool:
    log = work.log
    passing = await _Pass.begin(work, storage, now_ms)
    for segment in work.segments:
        if segment.base_offset > passing.last_offset:
            break
        path = segment.path + CLEANED_SUFFIX
        try:
            is_changed = await passing.rewrite(segment, path)
        except (OSError, CorruptBatchError):
            # The log may have been deleted; its directory must not keep anything.
            with suppress(OSError):
                storage.remove(path)
            raise
        is_current = current.holds()
        if is_changed and is_current:
            log.replace_segment(segment, path)
        else:
            storage.remove(path)
        if not is_current:
            return False
        current.advance()
    log.first_dirty_offset = passing.last_offset + 1
    return True


class _Current:
    """Whether a log still has the segments that a pass reads. Mutable."""

    def __init__(self, work: Cleanable) -> None:
        self._log = work.log
        self._left = list(work.segments)
        self._generation = work.log.generation

    def holds(self) -> bool:
        """Whether nothing but the pass itself changed the log's segments."""
        present = list(self._log.segments)
        return self._log.generation == self._generation and all(
            segment in present for segment in self._left
        )

    def advance(self) -> None:
        """Notes that the pass is through with a segment, and may have replaced it."""
        del self._left[0]
        self._generation = self._log.generation


@dataclass(slots=True)
class _Pass:
    """One pass over a log.

    Attributes:
        last_of_key: The last offset of every key in the dirty part.
        last_offset: Up to where the map reaches.
        last_of_producer: The last offset of every idempotent producer that the log knows.
        meets_unreadable: Whether a batch that cannot be read was met.
    """

    log: Log
    storage: Storage
    now_ms: int
    last_of_key: dict[bytes, int] = field(default_factory=dict)
    last_offset: int = -1
    last_of_producer: dict[int, int] = field(default_factory=dict)
    meets_unreadable: bool = False

    @classmethod
    async def begin(cls, work: Cleanable, storage: Storage, now_ms: int) -> "_Pass":
        """Builds the map of the dirty part, at most as large as its limit."""
        log = work.log
        made = cls(log, storage, now_ms)
        if log.rules("CLEAN-3"):
            made.last_of_producer = log.producers.last_offsets()
        for segment in work.segments:
            if segment.end_offset <= work.first_dirty_offset:
                continue
            async for header, batch in _batches(storage, segment):
                if len(made.last_of_key) >= KEYS_MAX:
                    return made
                made.last_offset = header.last_offset
                if made.is_no_data(header):
                    continue
                for record in readable_records(batch) or ():
                    if record.key is not None and record.offset >= work.first_dirty_offset:
                        made.last_of_key[record.key] = record.offset
        return made

    def is_no_data(self, header: BatchHeader) -> bool:
        """Whether a batch is a marker, or was written by a transaction that was aborted (CLEAN-4)."""
        if not self.log.rules("CLEAN-4"):
            return header.is_control
        return header.is_control or (
            header.is_transactional
            and self.log.producers.transactions.is_aborted(header.producer_id, header.base_offset)
        )

    async def rewrite(self, segment: Segment, path: str) -> bool:
        """Writes what stays of a segment to a file, durably; returns whether it differs from the segment."""
        self.storage.write(path, b"")
        output = _Output(self.storage, path)
        is_changed = False
        async for header, batch in _batches(self.storage, segment):
            kept = batch if header.base_offset > self.last_offset else self._kept(header, batch)
            if kept is None:
                is_changed |= not is_filler(header) or output.has_gap(header.leader_epoch)
                output.remove(header)
            else:
                is_changed |= kept is not batch
                output.keep(kept)
        output.close()
        await self.storage.fsync(path)
        return is_changed

    def _kept(self, header: BatchHeader, batch: bytes) -> bytes | None:
        """Returns the batch as it stays, None if nothing of it does."""
        if is_filler(header):
            return None
        if header.is_control:
            return batch
        if self.is_no_data(header):
            return self._without_records(header, batch)
        records = readable_records(batch)
        if records is None:
            self.meets_unreadable = True
            return batch
        horizon_ms = delete_horizon_ms(header)
        kept = [record for record in records if self._stays(record, horizon_ms)]
        if not kept:
            return self._without_records(header, batch)
        if horizon_ms is None and any(record.value is None for record in kept):
            horizon_ms = self.now_ms + self.log.config.delete_retention_ms
        elif len(kept) == len(records):
            return batch
        return rewritten(header, kept, horizon_ms=horizon_ms)

    def _without_records(self, header: BatchHeader, batch: bytes) -> bytes | None:
        """Returns a batch without its records if the log needs its sequence (CLEAN-3), else None."""
        is_last = self.last_of_producer.get(header.producer_id) == header.last_offset
        if header.producer_id < 0 or not is_last:
            return None
        return rewritten(header, ()) if header.record_count else batch

    def _stays(self, record: Record, horizon_ms: int | None) -> bool:
        if record.offset > self.last_offset:
            return True
        if record.key is None or self.last_of_key.get(record.key, -1) > record.offset:
            return False
        # CLEAN-2.
        if record.value is not None or self.meets_unreadable:
            return True
        if not self.log.rules("CLEAN-2"):
            return False
        return horizon_ms is None or self.now_ms < horizon_ms


class _Output:
    """The file of a cleaned segment, without gaps in its offsets."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._parts: list[bytes] = []
        self._size_bytes = 0
        self._gap: tuple[int, int, int] | None = None

    def has_gap(self, leader_epoch: int) -> bool:
        """Whether the batch before was removed and had the same epoch."""
        return self._gap is not None and self._gap[2] == leader_epoch

    def keep(self, batch: bytes) -> None:
        """Adds a batch."""
        self._close_gap()
        self._add(batch)

    def remove(self, header: BatchHeader) -> None:
        """Leaves out a batch; its offsets stay covered, with those of its neighbours of the same epoch."""
        first, epoch = header.base_offset, header.leader_epoch
        if self._gap is not None:
            gap_first, _, gap_epoch = self._gap
            if gap_epoch == epoch and header.last_offset - gap_first < OFFSETS_MAX:
                first = gap_first
            else:
                self._close_gap()
        self._gap = (first, header.last_offset, epoch)

    def close(self) -> None:
        """Writes the rest."""
        self._close_gap()
        self._flush()

    def _close_gap(self) -> None:
        if self._gap is not None:
            first, last, epoch = self._gap
            self._gap = None
            self._add(filler(first, last - first + 1, epoch))

    def _add(self, batch: bytes) -> None:
        self._parts.append(batch)
        self._size_bytes += len(batch)
        if self._size_bytes >= STEP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._parts:
            self._storage.append(self._path, b"".join(self._parts))
        self._parts, self._size_bytes = [], 0


async def _batches(storage: Storage, segment: Segment) -> AsyncIterator[tuple[BatchHeader, bytes]]:
    """Yields the batches of a segment; the node does other work in between.

    Raises:
        CorruptBatchError: The file cannot be read as batches.
    """
    position = 0
    window_bytes = STEP_BYTES
    while position < segment.size_bytes:
        window = storage.read(segment.path, position, window_bytes)
        used = 0
        while used < len(window):
            size_bytes = size_at(window, used)
            if used + size_bytes > len(window):
                break
            yield header_at(window, used), window[used : used + size_bytes]
            used += size_bytes
        if not used:
            if len(window) < window_bytes:
                raise CorruptBatchError(f"{segment.path}: there is no batch at byte {position}")
            window_bytes = max(SCAN_WINDOW_BYTES, size_at(window, 0))
            continue
        position += used
        await asyncio.sleep(0)
