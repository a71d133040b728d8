"""The committed records of one partition, as its leaders committed them.

The shadow log holds the leader epoch of every committed offset and the bytes of every committed batch. A stored
batch contains its leader epoch, base offset and checksum, so equal bytes are the same batch. A compacted log lacks
records; there only batches that the cleaner has not written are compared (`log_comparison.py`).
"""

from bisect import bisect_left, bisect_right
from struct import Struct

from harness.environments.simulated.log_comparison import (
    COMPARED_BYTES,
    epochs_between,
    is_rewritten,
)
from system_under_test.log.log import Log
from system_under_test.protocol.record_batch import CorruptBatchError, span_at, spans

_PLACE = Struct(">qi11xi")
"""Base offset, length and last offset delta of a batch. Whole headers take too long to decode at every commit."""
_LENGTH_END = 12
"""The length of a batch counts the bytes behind this one."""


class ShadowLog:
    """The committed records of one partition. Mutable: it grows with what leaders commit.

    Attributes:
        end_offset: The end of what was committed.
        lacks_records: Whether some replica of the partition is or was compacted.
    """

    def __init__(self) -> None:
        self.end_offset = 0
        self.lacks_records = False
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._batches = bytearray()
        self._base_offsets: list[int] = []
        self._positions: list[int] = []
        self._batches_end = 0

    def epoch_at(self, offset: int) -> int:
        """Returns the leader epoch of a committed offset, -1 if it was never seen."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else -1

    def extend(self, log: Log, end_offset: int) -> None:
        """Takes what a leader committed beyond the end.

        Args:
            log: Of the leader.
            end_offset: Its high watermark.

        Raises:
            OSError: The records cannot be read.
        """
        newest = self._epochs[-1] if self._epochs else -1
        if newest != log.epochs.epoch_at(end_offset - 1):
            for epoch, start in epochs_between(log, self.end_offset, end_offset):
                if not self._epochs or self._epochs[-1] != epoch:
                    self._epochs.append(epoch)
                    self._starts.append(start)
        self.end_offset = end_offset
        start = max(self._batches_end, log.log_start_offset)
        while start < end_offset:
            data = log.read(start, COMPARED_BYTES, end_offset)
            if not data:
                break
            self._take(data)
            start = max(self._batches_end, start + 1)

    def _take(self, data: bytes) -> None:
        """Keeps whole batches that follow those that are known."""
        at, size, end = 0, len(data), self._batches_end
        offset_in_all = len(self._batches)
        begin = 0
        while at < size:
            base_offset, length, last_delta = _PLACE.unpack_from(data, at)
            if base_offset < end and self._base_offsets:
                # It overlaps a known batch; the order of base offsets must be kept.
                begin = at + _LENGTH_END + length
            else:
                self._base_offsets.append(base_offset)
                self._positions.append(offset_in_all + at - begin)
                end = base_offset + last_delta + 1
            at += _LENGTH_END + length
        self._batches += data[begin:] if begin else data
        self._batches_end = end

    def compare(self, data: bytes, start: int, below: int) -> tuple[int | None, int]:
        """Compares whole batches with what was committed.

        Damage that the checksum shows is not a difference, because every reader refuses such a batch.

        Args:
            data: Batches that were read together.
            start: The offset from which they were read.
            below: Batches that end above it are not compared.

        Returns:
            Where the first difference is, None if there is none; and the end of the batches, -1 if it is unknown.
        """
        base_offset = _PLACE.unpack_from(data)[0]
        index = bisect_left(self._base_offsets, base_offset)
        if (
            base_offset <= start
            and index < len(self._base_offsets)
            and self._base_offsets[index] == base_offset
        ):
            position = self._positions[index]
            end = position + len(data)
            if self._batches[position:end] == data:
                if end == len(self._batches):
                    return None, self._batches_end
                return None, self._base_offsets[bisect_left(self._positions, end)]
        return self._compare_batches(data, start, below)

    def _compare_batches(self, data: bytes, start: int, below: int) -> tuple[int | None, int]:
        try:
            found = spans(data, verify_crc=False)
        except CorruptBatchError:
            return None, -1
        expected = start
        for span in found:
            end_offset = span.base_offset + span.offset_count
            if span.base_offset > expected and expected < below and not self.lacks_records:
                return expected, -1
            expected = end_offset
            if end_offset <= below and self._differs(
                data[span.position : span.position + span.size_bytes], span.base_offset
            ):
                return span.base_offset, -1
        return None, expected

    def _differs(self, batch: bytes, base_offset: int) -> bool:
        """Whether another batch than this one was committed at its offset."""
        index = bisect_right(self._base_offsets, base_offset) - 1
        if index < 0:
            return False
        position = self._positions[index]
        first, length, last_delta = _PLACE.unpack_from(self._batches, position)
        if base_offset > first + last_delta:
            return False  # nothing is known of that offset
        committed = bytes(self._batches[position : position + _LENGTH_END + length])
        if batch == committed:
            return False
        if self.lacks_records and any(
            is_rewritten(span_at(one, 0, verify_crc=False)) for one in (batch, committed)
        ):
            return False
        try:
            span_at(batch, 0, verify_crc=True)
        except CorruptBatchError:
            return False
        return True
