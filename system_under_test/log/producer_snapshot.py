"""The snapshot of a log's producers at a clean stop, `<log end offset>.snapshot`, for Apache Kafka only.

A load here reads every batch header and needs no snapshot (PID-5). Apache Kafka does not read the batches after a
clean shutdown: without a snapshot it would forget which batch each producer sent last, and open transactions.

A file of version 1: version i16, CRC-32C u32 of what follows, number of producers i32, then per producer: id i64,
epoch i16, last sequence i32, last offset i64, length of the last batch in offsets minus one i32, timestamp i64,
coordinator epoch i32, first offset of the open transaction i64.

Source:
    Kafka's `ProducerStateManager.writeSnapshot`, KIP-98.
"""

import struct
from collections.abc import Sequence

from crc32c import crc32c

from system_under_test.log.producer_state import ProducerStates
from system_under_test.runtime import Storage

SNAPSHOT_SUFFIX = ".snapshot"
DERIVED_SUFFIXES = (SNAPSHOT_SUFFIX, ".index", ".timeindex", ".txnindex")
"""Names of the files that Apache Kafka derives from segments end with these."""

_VERSION = struct.Struct(">h")
_CRC = struct.Struct(">I")
_COUNT = struct.Struct(">i")
_PRODUCER = struct.Struct(">qhiqiqiq")


def encode_snapshot(producers: ProducerStates) -> bytes:
    """Returns the content of a snapshot file."""
    entries = []
    for one in producers.described():
        known = producers.known(one.producer_id)
        last = known[1][-1] if known is not None and known[1] else None
        entries.append(
            _PRODUCER.pack(
                one.producer_id,
                one.epoch,
                one.last_sequence,
                -1 if last is None else last.last_offset,
                0 if last is None else last.last_offset - last.first_offset,
                one.last_timestamp_ms,
                one.coordinator_epoch,
                one.transaction_start_offset,
            )
        )
    content = _COUNT.pack(len(entries)) + b"".join(entries)
    return _VERSION.pack(1) + _CRC.pack(crc32c(content)) + content


def write_snapshot(
    storage: Storage, directory: str, end_offset: int, producers: ProducerStates
) -> None:
    """Writes the snapshot of a log that ends at an offset, durably; nothing if it has no producers.

    Raises:
        OSError: The disk failed.
    """
    if not len(producers):
        return
    path = f"{directory}/{end_offset:020d}{SNAPSHOT_SUFFIX}"
    storage.write(path, encode_snapshot(producers))
    storage.fsync_blocking(path)
    storage.fsync_dir(directory)


def remove_derived_files(storage: Storage, directory: str, names: Sequence[str]) -> None:
    """Removes the files that Apache Kafka derived from segments, and the snapshot of the last clean stop.

    Appends and truncations here would not change them, and Apache Kafka would trust them later. It rebuilds what
    is missing.

    Args:
        storage: The node's files.
        directory: Of the log.
        names: Of the files in it.

    Raises:
        OSError: The disk failed.
    """
    for name in names:
        if name.endswith(DERIVED_SUFFIXES):
            storage.remove(f"{directory}/{name}")
