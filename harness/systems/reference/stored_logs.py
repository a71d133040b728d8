"""Reads the logs that nodes of the reference system keep in their files."""

from harness.contracts.system import NodeFiles, StoredBatch
from system_under_test.log.segment import SEGMENT_SUFFIX
from system_under_test.protocol.record_batch import CorruptBatchError, header_at, verify

LOG_DIRECTORY = "data"
"""Where nodes keep their logs unless they are configured otherwise; the harness does not."""


def stored_batches(
    files: NodeFiles, topic: str, partition: int, *, bytes_max: int
) -> list[StoredBatch]:
    """Returns the batches of a replica's log; see `harness.contracts.system.LogReader`.

    Raises:
        OSError: A file cannot be read.
    """
    directory = f"{LOG_DIRECTORY}/{topic}-{partition}"
    # Names are base offsets of equal width, so this is the order of the offsets.
    names = sorted(name for name in files.list(directory) if name.endswith(SEGMENT_SUFFIX))
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
