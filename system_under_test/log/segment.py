"""One segment file of a log and the index of its batches, which is kept in memory only."""

from bisect import bisect_right
from collections.abc import Callable, Iterator

from system_under_test.protocol.record_batch import (
    BatchSpan,
    CorruptBatchError,
    size_at,
    span_at,
)
from system_under_test.runtime import Storage

SEGMENT_SUFFIX = ".log"
_NAME_DIGITS = 20

SCAN_WINDOW_BYTES = 1 << 20
"""How much of a file a scan reads at once; a batch larger than that is read whole."""


class Segment:
    """A file of consecutive batches. Mutable; the log that owns it keeps the numbers up to date.

    Attributes:
        base_offset: Offset of the first record, and the file's name.
        end_offset: Offset after the last record.
        batch_bases: Base offset of every batch, ascending.
        batch_positions: Where in the file each batch begins.
        may_regrow: Whether a power cut may bring back what was cut off the file.
    """

    __slots__ = (
        "base_offset",
        "batch_bases",
        "batch_positions",
        "end_offset",
        "may_regrow",
        "path",
        "size_bytes",
    )

    def __init__(self, directory: str, base_offset: int) -> None:
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.path = segment_path(directory, base_offset)
        self.size_bytes = 0
        self.batch_bases: list[int] = []
        self.batch_positions: list[int] = []
        self.may_regrow = False

    def add(self, base_offset: int, size_bytes: int, record_count: int) -> None:
        """Indexes a batch that was written at the end of the file."""
        self.batch_bases.append(base_offset)
        self.batch_positions.append(self.size_bytes)
        self.size_bytes += size_bytes
        self.end_offset = base_offset + record_count

    def range_of(self, start_offset: int, max_bytes: int, end_offset: int) -> tuple[int, int]:
        """Returns the bytes [begin, end) of the whole batches a read of this segment gives.

        They run from the batch that contains `start_offset` to the last one that ends below `end_offset` and
        within `max_bytes`; the first is there even if it alone is larger. An empty range means no batch.
        """
        if start_offset >= self.end_offset:
            return 0, 0
        bases = self.batch_bases
        positions = self.batch_positions
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
        """Returns the first offset of the batch that contains an offset of this segment."""
        return self.batch_bases[bisect_right(self.batch_bases, offset) - 1]

    def cut(self, offset: int) -> None:
        """Drops the batch that contains an offset and all after it from the index; the caller cuts the file."""
        self.may_regrow = True
        keep = bisect_right(self.batch_bases, offset) - 1
        self.end_offset = self.batch_bases[keep]
        self.size_bytes = self.batch_positions[keep]
        del self.batch_bases[keep:]
        del self.batch_positions[keep:]


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
