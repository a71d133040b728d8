"""The segment files of one log, in offset order; the last one, the active segment, is appended to."""

from bisect import bisect_right
from collections.abc import Iterator

from system_under_test.invariants import check_invariant
from system_under_test.log.segment import INDEX_INTERVAL_BYTES, Segment, intact_batches
from system_under_test.protocol.control_records import Marker, marker_in
from system_under_test.protocol.record_batch import BatchHeader, BatchSpan, read_headers
from system_under_test.rules import Rules
from system_under_test.runtime import Storage


class SegmentList:
    """The segments of one log, and their files. Mutable; the log that owns it makes names and content durable.

    Attributes:
        active: The last segment.
        index_interval_bytes: Distance of two index entries in the segments that it creates.
    """

    __slots__ = (
        "_bases",
        "_directory",
        "_has_cuts",
        "_rules",
        "_segments",
        "_storage",
        "active",
        "index_interval_bytes",
    )

    def __init__(
        self, storage: Storage, directory: str, segments: list[Segment], rules: Rules
    ) -> None:
        self._storage = storage
        self._rules = rules
        self._directory = directory
        self._segments = segments
        # The base offset of every segment, for binary search.
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.index_interval_bytes = INDEX_INTERVAL_BYTES
        # Whether a segment below the recovery point may regrow; only then all of them are looked at.
        self._has_cuts = True

    def begin(self, base_offset: int) -> Segment:
        """Creates an empty segment behind all others and makes it the active one.

        Raises:
            OSError: The disk failed.
        """
        segment = Segment(self._storage, self._directory, base_offset, self.index_interval_bytes)
        self._storage.append(segment.path, b"")
        if self._segments:
            self._segments[-1].seal()
        self._segments.append(segment)
        self._bases.append(base_offset)
        self.active = segment
        return segment

    def begins_behind(self, segment: Segment) -> bool:
        """Whether a segment was removed because the log start rose."""
        return segment.base_offset < self._bases[0]

    def __iter__(self) -> Iterator[Segment]:
        """Yields the segments in offset order; the list must not change meanwhile."""
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(segment.size_bytes for segment in self._segments)

    # Reading

    def read(self, start_offset: int, max_bytes: int, end_offset: int) -> bytes:
        """Returns whole batches from the one that contains `start_offset` on; see `Log.read`.

        Raises:
            OSError: The disk failed.
        """
        segment = self.active
        if start_offset >= segment.base_offset:
            begin, end = segment.range_of(start_offset, max_bytes, end_offset)
            return self._storage.read(segment.path, begin, end - begin) if end > begin else b""
        return self._read_across(start_offset, max_bytes, end_offset)

    def _read_across(self, start_offset: int, max_bytes: int, end_offset: int) -> bytes:
        parts: list[bytes] = []
        size_bytes = 0
        index = bisect_right(self._bases, start_offset) - 1
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
            # FETCH-8: a batch that does not fit must not be passed over, though one behind it might fit.
            is_cut = end < segment.size_bytes and self._rules("FETCH-8")
            if size_bytes >= max_bytes or is_cut:
                break
        # FETCH-9.
        return b"".join(parts if self._rules("FETCH-9") else reversed(parts))

    def headers(self) -> list[BatchHeader]:
        """Returns the headers of all batches, in order."""
        found: list[BatchHeader] = []
        for segment in self._segments:
            data = self._storage.read(segment.path, 0, segment.size_bytes)
            found.extend(header for _, header in read_headers(data))
        return found

    def spans(self) -> Iterator[BatchSpan]:
        """Yields the spans of all batches, in order."""
        for segment in self._segments:
            yield from intact_batches(self._storage, segment.path, verify_crc=False)

    def marked_spans(self) -> Iterator[tuple[BatchSpan, Marker | None]]:
        """Yields the spans of all batches, in order, each with the marker that it is."""
        for segment in self._segments:
            for span in intact_batches(self._storage, segment.path, verify_crc=False):
                yield span, stored_marker(self._storage, segment.path, span)

    def batch_start(self, offset: int) -> int:
        """Returns the first offset of the batch that contains `offset`; `offset` itself before all segments."""
        index = bisect_right(self._bases, offset) - 1
        return self._segments[index].base_of(offset) if index >= 0 else offset

    def unflushed(self, recovery_point: int, target: int) -> list[Segment]:
        """Returns the segments to fsync before everything below `target` can be called durable."""
        first = max(bisect_right(self._bases, recovery_point) - 1, 0)
        # A cut counts as content: below the recovery point it leaves a segment that ends exactly there, and if
        # the cut came back later, the old records would overlap the segments behind it.
        cut = [one for one in self._segments[:first] if one.may_regrow] if self._has_cuts else []
        self._has_cuts = bool(cut)
        return cut + [
            one for one in self._segments[first:] if one.base_offset < target or one.may_regrow
        ]

    def replace(self, segment: Segment, path: str) -> None:
        """Replaces the file of a segment, not the active one, by another with the same offsets.

        Raises:
            OSError: The disk failed.
        """
        self._storage.replace(path, segment.path)
        made = Segment(
            self._storage, self._directory, segment.base_offset, self.index_interval_bytes
        )
        for span in intact_batches(self._storage, segment.path, verify_crc=False):
            made.add(span.base_offset, span.size_bytes, span.offset_count, span.max_timestamp_ms)
        check_invariant(
            made.end_offset == segment.end_offset,
            "LOG-OFFSETS",
            "a compacted segment has the offsets that it had",
            end_offset=made.end_offset,
            before=segment.end_offset,
        )
        made.may_regrow = segment.may_regrow
        self._has_cuts |= made.may_regrow
        made.seal()
        self._segments[self._segments.index(segment)] = made

    # Removing

    def cut(self, offset: int) -> int:
        """Removes the batch that contains an offset and everything behind it; returns the new log end.

        Raises:
            OSError: The disk failed.
        """
        self._remove_behind(bisect_right(self._bases, offset))
        segment = self.active = self._segments[-1]
        segment.cut(offset)
        self._has_cuts = True
        self._storage.truncate(segment.path, segment.size_bytes)
        return segment.end_offset

    def remove_all(self) -> None:
        """Removes all files; a segment must begin before the list is used again.

        Raises:
            OSError: The disk failed.
        """
        self._remove_behind(0)

    def has_wholly_below(self, offset: int) -> bool:
        """Whether `remove_below` would remove anything."""
        return len(self._segments) > 1 and self._bases[1] <= offset

    def remove_below(self, offset: int) -> None:
        """Removes the segments that lie wholly below an offset, but never the active one.

        Raises:
            OSError: The disk failed.
        """
        while self.has_wholly_below(offset):
            self._storage.remove(self._segments[0].path)
            del self._segments[0], self._bases[0]

    def _remove_behind(self, keep_count: int) -> None:
        # From the end, so that an interruption never leaves a hole.
        while len(self._segments) > keep_count:
            self._storage.remove(self._segments[-1].path)
            del self._segments[-1], self._bases[-1]


def stored_marker(storage: Storage, path: str, span: BatchSpan) -> Marker | None:
    """Returns the transaction marker that a batch of a segment file is, None if it is none.

    Raises:
        OSError: The disk failed.
    """
    if not span.is_control:
        return None
    return marker_in(storage.read(path, span.position, span.size_bytes))
