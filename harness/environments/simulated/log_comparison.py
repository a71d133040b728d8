"""Compares the records of two replicas (INV-4).

Replicas hold the same bytes, except for what was compacted: a batch may lack records, or be gone, in one of them.
A replica also has compacted batches if it fetched them from a leader that had compacted. So in logs that are
compacted only batches that are whole in both are compared.
"""

from system_under_test.log.log import Log
from system_under_test.protocol.batch_rewrite import DELETE_HORIZON_BIT
from system_under_test.protocol.record_batch import BatchSpan, end_offset_of, spans

COMPARED_BYTES = 1 << 20
"""How much of two logs is compared at once."""


def first_difference(log: Log, other: Log, start: int, below: int) -> int | None:
    """Returns where two logs begin to differ between two offsets, None if they agree.

    Args:
        log: Of one replica.
        other: Of another one.
        start: The first offset that is compared; both logs have it.
        below: The first offset that is not compared; both logs end there or later.

    Returns:
        The offset of the first batch that differs, or, in logs that are not compacted, of the chunk that it is in.
    """
    may_lack_records = log.config.compacts or other.config.compacts
    while start < below:
        data = log.read(start, COMPARED_BYTES, below)
        other_data = other.read(start, COMPARED_BYTES, below)
        # A read ends with a segment, and the segments of two replicas may end at different batches.
        common = min(data, other_data, key=len)
        if data[: len(common)] == other_data[: len(common)]:
            start = _end_of(common, below)
            continue
        if not may_lack_records:
            return start
        differing = _differing_batch(data, other_data)
        if differing is not None:
            return differing
        start = min(_end_of(data, below), _end_of(other_data, below))
    return None


def _end_of(data: bytes, if_empty: int) -> int:
    """Returns the offset behind the last batch of what was read."""
    found = end_offset_of(data)
    return if_empty if found is None else found


def _differing_batch(data: bytes, other_data: bytes) -> int | None:
    """Returns the first batch that is whole in both, with different bytes."""
    others = _whole_batches(other_data)
    for base_offset, batch in _whole_batches(data).items():
        if others.get(base_offset, batch) != batch:
            return base_offset
    return None


def _whole_batches(data: bytes) -> dict[int, bytes]:
    """Returns the batches that the cleaner has not written, by their offset."""
    return {
        span.base_offset: data[span.position : span.position + span.size_bytes]
        for span in spans(data, verify_crc=False)
        if not is_rewritten(span)
    }


def is_rewritten(span: BatchSpan) -> bool:
    """Whether the cleaner of a compacted log wrote the batch."""
    return span.record_count < span.offset_count or bool(span.attributes & DELETE_HORIZON_BIT)


def epochs_between(log: Log, start: int, end: int) -> tuple[tuple[int, int], ...]:
    """Returns the leader epochs of a log's records between two offsets, with the first offset of each.

    The first of them begins at `start`, or at the log start if that is larger.
    """
    return clipped(log.epochs.entries, max(start, log.log_start_offset), end)


def clipped(
    epochs: tuple[tuple[int, int], ...], start: int, end: int
) -> tuple[tuple[int, int], ...]:
    """Returns those of some leader epochs that have records between two offsets; the first begins at `start`."""
    found: list[tuple[int, int]] = []
    for epoch, first in epochs:
        if first >= end:
            break
        if first <= start:
            found.clear()
        found.append((epoch, max(first, start)))
    return tuple(found) if start < end else ()
