"""One segment file of a log and the index of its batches, which is kept in memory only.

The index has every batch near the end of the file, where nearly all reads are, and below that one batch per
`index.interval.bytes`; what lies between is found in the file. So the memory of a log grows with its bytes, by
about 0.4 %, and not with the number of its batches.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from system_under_test.protocol.record_batch import (
    BatchSpan,
    CorruptBatchError,
    size_at,
    span_at,
)
from system_under_test.runtime import Storage

SEGMENT_SUFFIX = ".log"
CLEANED_SUFFIX = ".cleaned"
"""What the name of a file ends with that may replace a segment; see `cleaner.py`."""
_NAME_DIGITS = 20

SCAN_WINDOW_BYTES = 1 << 20
"""How much of a file a scan reads at once; a batch larger than that is read whole."""

INDEX_INTERVAL_BYTES = 4096
"""Distance of two entries of the index if no setting says otherwise; Kafka's default of index.interval.bytes."""
RECENT_MAX = 2048
"""Batches at the end of the active segment that are all indexed; half of them leave together."""
SEALED_RECENT_MAX = 64
"""The same for a segment that is full. Small segments, which only tests have, stay indexed as a whole."""
NO_TIMESTAMP = -1
NO_FIRST_TIMESTAMP = 2**62
"""So far ahead that no record is a segment's age younger."""

_PLACE = struct.Struct(">qi")
_LENGTH_END = 12
_LOOK_BYTES = 2 * INDEX_INTERVAL_BYTES


class Segment:
    """A file of consecutive batches. Mutable; the log that owns it keeps the numbers up to date.

    Attributes:
        base_offset: Offset of the first record, and the file's name.
        end_offset: Offset after the last record.
        first_timestamp_ms: The newest timestamp of the first batch, `NO_FIRST_TIMESTAMP` if there is none.
        index_interval_bytes: Distance of two index entries far from the end of the file.
        may_regrow: Whether a power cut may bring back what was cut off the file.
    """

    __slots__ = (
        "_largest_timestamp_ms",
        "_recent_bases",
        "_recent_positions",
        "_sparse_bases",
        "_sparse_positions",
        "_storage",
        "_timestamps_are_known",
        "base_offset",
        "end_offset",
        "first_timestamp_ms",
        "index_interval_bytes",
        "may_regrow",
        "path",
        "size_bytes",
    )

    def __init__(
        self,
        storage: Storage,
        directory: str,
        base_offset: int,
        index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    ) -> None:
        self._storage = storage
        self.index_interval_bytes = index_interval_bytes
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.path = segment_path(directory, base_offset)
        self.size_bytes = 0
        self.may_regrow = False
        self.first_timestamp_ms = NO_FIRST_TIMESTAMP
        self._largest_timestamp_ms = NO_TIMESTAMP
        self._timestamps_are_known = True
        # All batches from the first of these on; below, entries that are an interval apart.
        self._recent_bases: list[int] = []
        self._recent_positions: list[int] = []
        self._sparse_bases = array("q")
        self._sparse_positions = array("q")

    @property
    def index_entry_count(self) -> int:
        """Number of batches in the index."""
        return len(self._recent_bases) + len(self._sparse_bases)

    def add(self, base_offset: int, size_bytes: int, offset_count: int, timestamp_ms: int) -> None:
        """Indexes a batch that was written at the end of the file.

        Args:
            base_offset: Of the batch.
            size_bytes: Of the batch.
            offset_count: How many offsets it covers.
            timestamp_ms: Its newest timestamp.
        """
        if not self.size_bytes:
            self.first_timestamp_ms = timestamp_ms if timestamp_ms >= 0 else NO_FIRST_TIMESTAMP
        self._recent_bases.append(base_offset)
        self._recent_positions.append(self.size_bytes)
        self.size_bytes += size_bytes
        self.end_offset = base_offset + offset_count
        if timestamp_ms > self._largest_timestamp_ms:
            self._largest_timestamp_ms = timestamp_ms
        if len(self._recent_bases) > RECENT_MAX:
            self._thin(RECENT_MAX // 2)

    def seal(self) -> None:
        """Prepares for no more appends: keeps a smaller index."""
        if len(self._recent_bases) > SEALED_RECENT_MAX:
            self._thin(len(self._recent_bases))

    def largest_timestamp_ms(self) -> int:
        """Returns the newest timestamp in the file, -1 if there is none.

        Raises:
            OSError: The disk failed.
        """
        if not self._timestamps_are_known:
            self._largest_timestamp_ms = max(
                (
                    span.max_timestamp_ms
                    for span in intact_batches(self._storage, self.path, verify_crc=False)
                ),
                default=NO_TIMESTAMP,
            )
            self._timestamps_are_known = True
        return self._largest_timestamp_ms

    # Finding batches

    def range_of(self, start_offset: int, max_bytes: int, end_offset: int) -> tuple[int, int]:
        """Returns the bytes [begin, end) of the whole batches a read of this segment gives.

        They run from the batch that contains `start_offset` to the last one that ends below `end_offset` and
        within `max_bytes`; the first is there even if it alone is larger. An empty range means no batch.

        Raises:
            OSError: The disk failed.
        """
        if start_offset >= self.end_offset:
            return 0, 0
        bases = self._recent_bases
        if not bases or start_offset < bases[0]:
            return self._older_range(start_offset, max_bytes, end_offset)
        positions = self._recent_positions
        first = bisect_right(bases, start_offset) - 1
        # Batch i ends where batch i + 1 begins, so the batches below `end_offset` can be counted by bases.
        stop = len(bases) if end_offset >= self.end_offset else bisect_right(bases, end_offset) - 1
        if stop <= first:
            return 0, 0
        begin = positions[first]
        end = positions[stop] if stop < len(positions) else self.size_bytes
        if end - begin > max_bytes:
            stop = max(bisect_right(positions, begin + max_bytes) - 1, first + 1)
            end = positions[stop] if stop < len(positions) else self.size_bytes
        return begin, end

    def base_of(self, offset: int) -> int:
        """Returns the first offset of the batch that contains an offset of this segment.

        Raises:
            OSError: The disk failed.
        """
        return self._batch_with(offset)[0]

    def cut(self, offset: int) -> None:
        """Drops the batch that contains an offset and all after it from the index; the caller cuts the file.

        Raises:
            OSError: The disk failed.
        """
        base_offset, position = self._batch_with(offset)
        self.may_regrow = True
        self.end_offset = base_offset
        self.size_bytes = position
        keep = bisect_left(self._recent_positions, position)
        del self._recent_bases[keep:]
        del self._recent_positions[keep:]
        keep = bisect_left(self._sparse_positions, position)
        del self._sparse_bases[keep:]
        del self._sparse_positions[keep:]
        self._timestamps_are_known = False
        if not position:
            self.first_timestamp_ms = NO_FIRST_TIMESTAMP

    def _older_range(self, start_offset: int, max_bytes: int, end_offset: int) -> tuple[int, int]:
        """As `range_of`, for a read that begins where not every batch is indexed."""
        begin = self._batch_with(start_offset)[1]
        end = self.size_bytes
        if end_offset < self.end_offset:
            end = self._batch_with(end_offset)[1]
        if end - begin > max_bytes:
            end = self._last_boundary(begin, begin + max_bytes)
        return begin, end

    def _batch_with(self, offset: int) -> tuple[int, int]:
        """Returns base offset and position of the batch that contains an offset of this segment."""
        bases = self._recent_bases
        if bases and offset >= bases[0]:
            index = bisect_right(bases, offset) - 1
            return bases[index], self._recent_positions[index]
        found = self._sparse_entry(bisect_right(self._sparse_bases, offset) - 1)
        for base_offset, position, _ in self._walk(found[1]):
            if base_offset > offset:
                break
            found = base_offset, position
        return found

    def _last_boundary(self, begin: int, limit: int) -> int:
        """Returns the last end of a batch at or below a position, at least the end of the batch at `begin`."""
        entry = bisect_right(self._sparse_positions, limit) - 1
        start = max(begin, self._sparse_entry(entry)[1])
        recent = self._recent_positions
        if recent and recent[0] <= limit:
            start = max(begin, recent[bisect_right(recent, limit) - 1])
        boundary = start
        for _, position, end in self._walk(start):
            if end > limit:
                return end if position == begin else boundary
            boundary = end
        return boundary

    def _sparse_entry(self, index: int) -> tuple[int, int]:
        """Returns base offset and position of an entry; those of the file's first batch for -1."""
        if index < 0:
            return self.base_offset, 0
        return self._sparse_bases[index], self._sparse_positions[index]

    def _walk(self, position: int) -> Iterator[tuple[int, int, int]]:
        """Yields base offset, begin and end of the batches from a position on, read from the file."""
        window, window_start = b"", position
        indexed = position
        while position < self.size_bytes:
            at = position - window_start
            if at + _LENGTH_END > len(window):
                window, window_start, at = (
                    self._storage.read(self.path, position, _LOOK_BYTES),
                    position,
                    0,
                )
            if position >= indexed:
                indexed = self._next_indexed(position)
            end = indexed
            base_offset = self.base_offset
            if at + _LENGTH_END <= len(window):
                base_offset, length = _PLACE.unpack_from(window, at)
                # A damaged length: what lies up to the next entry of the index counts as one batch, and its reader
                # finds the damage.
                if length > 0 and position + _LENGTH_END + length <= indexed:
                    end = position + _LENGTH_END + length
            yield base_offset, position, end
            position = end

    def _next_indexed(self, position: int) -> int:
        """Returns the position of the first indexed batch behind a position, or the end of the file."""
        index = bisect_right(self._sparse_positions, position)
        if index < len(self._sparse_positions):
            return self._sparse_positions[index]
        recent = self._recent_positions
        index = bisect_right(recent, position)
        return recent[index] if index < len(recent) else self.size_bytes

    def _thin(self, count: int) -> None:
        """Keeps only every so many bytes one of the oldest indexed batches."""
        bases, positions = self._sparse_bases, self._sparse_positions
        for base_offset, position in zip(
            self._recent_bases[:count], self._recent_positions[:count], strict=True
        ):
            if not positions or position - positions[-1] >= self.index_interval_bytes:
                bases.append(base_offset)
                positions.append(position)
        del self._recent_bases[:count]
        del self._recent_positions[:count]


def segment_path(directory: str, base_offset: int) -> str:
    """Returns the path of the segment that begins at an offset."""
    return f"{directory}/{base_offset:0{_NAME_DIGITS}d}{SEGMENT_SUFFIX}"


def segment_bases(storage: Storage, directory: str) -> list[int]:
    """Returns the base offsets of all segment files in a directory, ascending."""
    bases = []
    for name in storage.list(directory):
        digits = name.removesuffix(SEGMENT_SUFFIX)
        if len(digits) == _NAME_DIGITS and digits != name and digits.isascii() and digits.isdigit():
            bases.append(int(digits))
    return sorted(bases)


def write_again(storage: Storage, directory: str) -> None:
    """Replaces every segment of a directory by a durable copy of what can be read (RAFT-11).

    When an fsync fails, the kernel marks pages clean although they are not durable. Every reader still gets their
    content, and the next fsync does not write them.

    Raises:
        OSError: The disk failed; every segment is still there.
    """
    bases = segment_bases(storage, directory)
    for base_offset in bases:
        path = segment_path(directory, base_offset)
        copy = path + CLEANED_SUFFIX
        storage.write(copy, b"")
        for position in range(0, storage.size(path), SCAN_WINDOW_BYTES):
            storage.append(copy, storage.read(path, position, SCAN_WINDOW_BYTES))
        storage.fsync_blocking(copy)
        storage.replace(copy, path)
    if bases:
        storage.fsync_dir(directory)


def intact_batches(
    storage: Storage,
    path: str,
    *,
    verify_crc: bool,
    on_defect: Callable[[str], None] | None = None,
) -> Iterator[BatchSpan]:
    """Yields the batches of a file from its start until the first that is torn, zeroed or corrupt.

    Args:
        storage: The node's files.
        path: Of the file.
        verify_crc: Whether a batch has to match its checksum.
        on_defect: Called with what is wrong with the batch that ends the scan.
    """
    size = storage.size(path)
    position = 0
    window_bytes = SCAN_WINDOW_BYTES
    while position < size:
        window = storage.read(path, position, window_bytes)
        if not window:
            return
        reaches_end = position + len(window) >= size
        used = 0
        needed = 0
        while used < len(window):
            needed = size_at(window, used)
            if not reaches_end and used + needed > len(window):
                break
            try:
                span = span_at(window, used, verify_crc=verify_crc)
            except CorruptBatchError as error:
                if on_defect is not None:
                    # The error counts from the beginning of the window.
                    what = str(error).partition(": ")[2]
                    name = path.rpartition("/")[2]
                    on_defect(f"the batch at byte {position + used} of {name}: {what}")
                return
            yield span._replace(position=position + used)
            used += span.size_bytes
        position += used
        window_bytes = max(SCAN_WINDOW_BYTES, needed)
