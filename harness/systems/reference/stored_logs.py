"""Reads the logs that nodes of the reference system keep in their files."""

from harness.contracts.system import NodeFiles, StoredBatch
from harness.systems.segment_batches import read_segments
from system_under_test.config import LOG_DIR_NAMES
from system_under_test.log.segment import SEGMENT_SUFFIX


def stored_batches(
    files: NodeFiles, topic: str, partition: int, *, bytes_max: int
) -> list[StoredBatch]:
    """Returns the batches of a replica's log; see `harness.contracts.system.LogReader`.

    Raises:
        OSError: A file cannot be read.
    """
    directory, names = f"{LOG_DIR_NAMES[0]}/{topic}-{partition}", []
    for log_dir in LOG_DIR_NAMES:
        found = f"{log_dir}/{topic}-{partition}"
        # Names are base offsets of equal width, so this is the order of the offsets.
        names = sorted(name for name in files.list(found) if name.endswith(SEGMENT_SUFFIX))
        if names:
            directory = found
            break
    return read_segments(files, directory, names, bytes_max=bytes_max)
