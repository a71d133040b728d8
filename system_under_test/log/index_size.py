"""How full Kafka's index files of a segment would be: a segment whose index is full is closed.

The index of a segment is in memory here and may grow. In Kafka it is two files of at most `segment.index.bytes`:
the offset index with 8 bytes per entry and the time index with 12, whose last entry is kept for when the segment
is closed. Both get an entry with the first batch after more than `index.interval.bytes`, the time index only if
the timestamps have grown. An append that finds one of them full begins the next segment.

Source:
    Kafka's `LogSegment.append` and `shouldRoll`, `OffsetIndex.isFull` and `TimeIndex.isFull`. Kafka keeps the
    files through a clean restart; here the entries are counted anew from the segment file, as after an unclean
    one.
"""

from system_under_test.config import LogConfig
from system_under_test.log.segment import NO_TIMESTAMP, Segment, intact_batches
from system_under_test.runtime import Storage

_OFFSET_ENTRY_BYTES = 8
_TIME_ENTRY_BYTES = 12


class IndexSize:
    """Counts the index entries of one segment. Mutable.

    Args:
        config: The settings that are in force.
        segment: Whose entries are counted.
    """

    __slots__ = (
        "_interval_bytes",
        "_newest_ms",
        "_offset_entries",
        "_offset_entries_max",
        "_time_entries",
        "_time_entries_max",
        "_timestamp_ms",
        "_unindexed_bytes",
        "segment",
        "size_bytes",
    )

    def __init__(self, config: LogConfig, segment: Segment) -> None:
        self._interval_bytes = config.index_interval_bytes
        self._offset_entries_max = config.segment_index_bytes // _OFFSET_ENTRY_BYTES
        self._time_entries_max = config.segment_index_bytes // _TIME_ENTRY_BYTES - 1
        self._offset_entries = self._time_entries = 0
        self._timestamp_ms = self._newest_ms = NO_TIMESTAMP
        self._unindexed_bytes = 0
        self.segment = segment
        self.size_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether one of the two index files has no room for another entry."""
        return (
            self._offset_entries >= self._offset_entries_max
            or self._time_entries >= self._time_entries_max
        )

    def add(self, size_bytes: int, timestamp_ms: int) -> None:
        """Counts a batch at the end of the segment.

        Args:
            size_bytes: Of the batch.
            timestamp_ms: Its newest timestamp.
        """
        self._newest_ms = max(self._newest_ms, timestamp_ms)
        if self._unindexed_bytes > self._interval_bytes:
            self._offset_entries += 1
            if self._newest_ms > self._timestamp_ms:
                self._time_entries += 1
                self._timestamp_ms = self._newest_ms
            self._unindexed_bytes = 0
        self._unindexed_bytes += size_bytes
        self.size_bytes += size_bytes


def may_fill(config: LogConfig) -> bool:
    """Whether an index can be full before its segment is; with Kafka's defaults it cannot."""
    entries_max = config.segment_index_bytes // _TIME_ENTRY_BYTES - 1
    return entries_max * config.index_interval_bytes < config.segment_bytes


def counted(config: LogConfig, segment: Segment, storage: Storage) -> IndexSize:
    """Returns the size of a segment's index, counted from its file.

    Raises:
        OSError: The disk failed.
    """
    size = IndexSize(config, segment)
    for span in intact_batches(storage, segment.path, verify_crc=False):
        if span.position >= segment.size_bytes:
            break
        size.add(span.size_bytes, span.max_timestamp_ms)
    return size
