"""Reads the logs that brokers of Apache Kafka keep in their files."""

from collections.abc import Sequence

from harness.contracts.system import NodeFiles, StoredBatch
from harness.systems.apache_kafka.segments import LOG_DIRECTORIES, log_directory
from harness.systems.segment_batches import read_segments


def stored_batches(
    files: NodeFiles,
    topic: str,
    partition: int,
    *,
    bytes_max: int,
    log_directories: Sequence[str] = LOG_DIRECTORIES,
) -> list[StoredBatch]:
    """Returns the batches of a replica's log; see `harness.contracts.system.LogReader`.

    Raises:
        OSError: A file cannot be read.
    """
    directory, names = log_directory(files, f"{topic}-{partition}", log_directories)
    return read_segments(files, directory, names, bytes_max=bytes_max)
