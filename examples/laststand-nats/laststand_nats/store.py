"""What a server keeps of a stream: the records in its block files.

A request for a stream is answered by its leader, and a direct request by any server that has a replica: JetStream
offers no request that one certain replica answers. So the files are read. A block is a sequence of records:

    length of the record (4 bytes, the highest bit: it has headers), sequence (8), time (8),
    length of the subject (2), subject, [length of the headers (4), headers,] payload, checksum (8)

Numbers are little-endian. A sequence with one of its two highest bits marks a deletion and is no record.
"""

import re
import struct

import crc32c

from harness.contracts.system import NodeFiles, StoredBatch

ACCOUNT = "jetstream/$G/streams"
_HEADER = struct.Struct("<IQQH")
_CHECKSUM_BYTES = 8
_HAS_HEADERS = 1 << 31
_DELETIONS = 3 << 62
_RECORD_MAX = 32 << 20
_NO_EPOCH = -1


def read_records(files: NodeFiles, stream: str, *, bytes_max: int) -> list[StoredBatch]:
    """Returns the records of a stream, in order, up to the first one that cannot be read.

    The records' own checksums are not compared: a record that was damaged differs from that of other replicas.
    """
    folder = f"{ACCOUNT}/{stream}/msgs"
    blocks = sorted(
        int(found[1]) for name in files.list(folder) if (found := re.fullmatch(r"(\d+)\.blk", name))
    )
    records: dict[int, StoredBatch] = {}
    for block in blocks:
        data = files.read(f"{folder}/{block}.blk", bytes_max)
        bytes_max -= len(data)
        if not _read_block(data, records):
            break
    return [records[offset] for offset in sorted(records)]


def _read_block(data: bytes, records: dict[int, StoredBatch]) -> bool:
    """Adds the records of one block by offset; returns whether it could be read to its end."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, sequence, _, _ = _HEADER.unpack_from(data, at)
        length &= ~_HAS_HEADERS
        if not _HEADER.size + _CHECKSUM_BYTES <= length <= min(_RECORD_MAX, len(data) - at):
            return False
        if sequence and not sequence & _DELETIONS:
            content = data[at + 4 : at + length - _CHECKSUM_BYTES]
            offset = sequence - 1
            records[offset] = StoredBatch(offset, offset, _NO_EPOCH, crc32c.crc32c(content))
        at += length
    return at == len(data)
