"""Reads segments of record batches, the format that Kafka and the reference system share."""

from collections.abc import Sequence

from harness.contracts.system import NodeFiles, StoredBatch
from system_under_test.protocol.record_batch import CorruptBatchError, header_at, verify


def read_segments(
    files: NodeFiles, directory: str, names: Sequence[str], *, bytes_max: int
) -> list[StoredBatch]:
    """Returns the batches of a log, from its start to the first one that is incomplete or damaged.

    Args:
        files: Of the node.
        directory: Where the segments are.
        names: The segments in order of their offsets.
        bytes_max: How much is read at most.

    Raises:
        OSError: A file cannot be read.
    """
    batches: list[StoredBatch] = []
    for name in names:
        data = files.read(f"{directory}/{name}", bytes_max)
        bytes_max -= len(data)
        is_whole = _read_segment(data, batches)
        if not is_whole or bytes_max <= 0:
            break
    return batches


def _read_segment(data: bytes, batches: list[StoredBatch]) -> bool:
    """Adds a segment's batches up to the first incomplete or damaged one; returns whether all are intact."""
    position = 0
    try:
        while position < len(data):
            header = header_at(data, position)
            verify(data, position, header)
            if batches and header.base_offset <= batches[-1].last_offset:
                return False
            batches.append(
                StoredBatch(header.base_offset, header.last_offset, header.leader_epoch, header.crc)
            )
            position += header.size_bytes
    except CorruptBatchError:
        return False
    return True
