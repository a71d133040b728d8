"""Self-describing values: a record names its writer, so that a phantom or misplaced one is a named anomaly.

Layout, big-endian: magic "LSv1", run id u64, process i64, sequence i64, op index i64, partition i32,
CRC-32C of topic name u32, CRC-32C of everything before it u32. The key is the record's Kafka key. A padded value
has the magic "LSv2", and zeros before the last checksum.
"""

import struct
from functools import lru_cache

import crc32c

from harness.contracts.client import FetchedRecord, PollResult
from harness.history.op import ReadRecord

_MAGIC = b"LSv1"
_PADDED_MAGIC = b"LSv2"
_BODY = struct.Struct(">4sQqqqiI")
_CHECKSUM = struct.Struct(">I")
VALUE_SIZE_BYTES = _BODY.size + _CHECKSUM.size


@lru_cache(maxsize=1024)
def _topic_crc(topic: str) -> int:
    return int(crc32c.crc32c(topic.encode()))


def encode_value(
    *,
    run_id: int,
    process: int,
    sequence: int,
    op_index: int,
    topic: str,
    partition: int,
    size: int = 0,
) -> bytes:
    """Returns the payload of one append, padded if it would be smaller than `size` bytes."""
    padding = size - VALUE_SIZE_BYTES
    magic = _PADDED_MAGIC if padding > 0 else _MAGIC
    body = _BODY.pack(magic, run_id, process, sequence, op_index, partition, _topic_crc(topic))
    body += bytes(max(padding, 0))
    return body + _CHECKSUM.pack(crc32c.crc32c(body))


def read_record(
    record: FetchedRecord, *, run_id: int, topic: str, partition: int, leader_epoch: int
) -> ReadRecord:
    """Returns a record that was read, with what its payload claims about it.

    A payload of the wrong size, magic or checksum is "corrupt"; one that is intact but of another run, topic or
    partition is "foreign". Neither has a value that can be trusted.
    """
    return _read(
        record.offset,
        record.key or b"",
        record.value or b"",
        run_id,
        topic,
        partition,
        leader_epoch,
    )


def records_of(result: PollResult, *, run_id: int, topic: str, partition: int) -> list[ReadRecord]:
    """Returns the records of one fetch, each with what its payload claims about it."""
    return [
        read_record(
            record,
            run_id=run_id,
            topic=topic,
            partition=partition,
            leader_epoch=batch.leader_epoch,
        )
        for batch in result.batches
        for record in batch.records
    ]


# Every process reads the records of every other. The result is frozen, so they may share it.
@lru_cache(maxsize=4096)
def _read(
    offset: int,
    key_bytes: bytes,
    value: bytes,
    run_id: int,
    topic: str,
    partition: int,
    leader_epoch: int,
) -> ReadRecord:
    key = key_bytes.decode("utf-8", "replace")
    if not _is_intact(value):
        return ReadRecord(
            offset=offset,
            value=-1,
            status="corrupt",
            process=-1,
            sequence=-1,
            key=key,
            leader_epoch=leader_epoch,
        )
    _, of_run, process, sequence, op_index, of_partition, of_topic = _BODY.unpack_from(value)
    ours = (of_run, of_partition, of_topic) == (
        run_id,
        partition,
        _topic_crc(topic),
    )
    return ReadRecord(
        offset=offset,
        value=op_index if ours else -1,
        status="ok" if ours else "foreign",
        process=process,
        sequence=sequence,
        key=key,
        leader_epoch=leader_epoch,
    )


def _is_intact(value: bytes) -> bool:
    is_padded = len(value) > VALUE_SIZE_BYTES
    return (
        len(value) >= VALUE_SIZE_BYTES
        and value.startswith(_PADDED_MAGIC if is_padded else _MAGIC)
        and _CHECKSUM.unpack_from(value, len(value) - _CHECKSUM.size)[0]
        == crc32c.crc32c(value[: -_CHECKSUM.size])
    )
