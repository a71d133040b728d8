"""Produce, and InitProducerId with what idempotent producers may do."""

import gzip
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from harness.conformance.catalogue.batches import (
    ATTRIBUTES,
    CODEC_GZIP,
    CODEC_LZ4,
    CODEC_SNAPPY,
    CODEC_ZSTD,
    CONTROL,
    DELETE_HORIZON,
    LAST_OFFSET_DELTA,
    LENGTH,
    LOG_APPEND_TIME,
    MAGIC,
    MAX_TIMESTAMP,
    MESSAGE_V1,
    RECORD_COUNT,
    RECORDS,
    TRANSACTIONAL,
    batch,
    patched,
    with_attributes,
    with_payload,
)
from harness.conformance.connection import SILENCE_LIMIT_S
from harness.conformance.probe import WRITE_TOPIC, Case, Probe

HOUR_MS = 3_600_000
LAST_BY_NAME, NEWEST = 12, 13
VERSION = 11
UNKNOWN_ID = uuid.UUID("12345678-1234-1234-1234-123456789abc")
LARGEST_VALUE = 1_048_588
"""The default of message.max.bytes; a batch has more than its value."""


def produce(
    probe: Probe,
    records: bytes | None,
    *,
    acks: int = -1,
    topic: str = WRITE_TOPIC,
    partition: int | None = None,
    to: str | None = None,
    version: int = VERSION,
    transactional_id: str | None = None,
    topic_id: uuid.UUID | None = None,
    more: Sequence[Mapping[str, Any]] = (),
    **options: Any,
) -> Any:
    """Sends records for one partition, by default the case's own, to its leader."""
    index = probe.partition if partition is None else partition
    data = [{"index": index, "records": records}, *more]
    values: dict[str, Any] = {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": 15_000,
        "topic_data": [{"name": topic, "topic_id": topic_id, "partition_data": data}],
    }
    if version > LAST_BY_NAME and topic_id is None:
        values["topic_data"][0]["topic_id"] = probe.topic_id(topic)
    leader = to or probe.leader(WRITE_TOPIC, max(probe.partition, 0))
    return probe.ask("produce", version, values, to=leader, drops_unknown=True, **options)


def stored(probe: Probe) -> None:
    """Reads the case's partition once all of it is committed: what the log holds is compared too."""
    to = probe.leader(WRITE_TOPIC, probe.partition)
    probe.wait("committed log", lambda: _is_committed(probe, to))
    partition = {
        "partition": probe.partition,
        "fetch_offset": 0,
        "partition_max_bytes": 1 << 20,
    }
    values = {
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "topics": [{"topic": WRITE_TOPIC, "partitions": [partition]}],
    }
    probe.ask("fetch", 12, values, to=to)


def _is_committed(probe: Probe, to: str) -> bool:
    """Whether the high watermark of the case's partition is at the log end."""
    epoch = probe.leader_epoch(WRITE_TOPIC, probe.partition)
    end = {"partition": probe.partition, "current_leader_epoch": -1, "leader_epoch": epoch}
    values: dict[str, Any] = {
        "replica_id": -1,
        "topics": [{"topic": WRITE_TOPIC, "partitions": [end]}],
    }
    log_end = probe.prepare("offset_for_leader_epoch", 4, values, to=to).topics[0].partitions[0]
    latest = {"partition_index": probe.partition, "current_leader_epoch": -1, "timestamp": -1}
    values = {"replica_id": -1, "topics": [{"name": WRITE_TOPIC, "partitions": [latest]}]}
    committed = probe.prepare("list_offsets", 9, values, to=to).topics[0].partitions[0]
    return bool(committed.error_code == 0 and committed.offset >= log_end.end_offset)


def _written(case: str, make: Callable[[int], bytes | None], **options: Any) -> Case:
    """A case that produces once and reads the partition."""

    def run(probe: Probe) -> None:
        produce(probe, make(probe.target.now_ms), **options)
        stored(probe)

    return Case(id=f"produce/{case}", run=run, writes=True)


def _gzipped(now_ms: int) -> bytes:
    sound = batch(now_ms, 2)
    # A fixed time in the header of gzip: the same bytes in every run.
    return with_payload(sound, gzip.compress(sound[RECORDS:], mtime=0), CODEC_GZIP)


BATCHES: Mapping[str, Callable[[int], bytes | None]] = {
    "one record": batch,
    "three records": lambda now: batch(now, 3),
    "wrong checksum": lambda now: patched(batch(now), 65, ">B", 0xFF, keeps_checksum=True),
    "1.1 MB": lambda now: batch(now, value_bytes=1_100_000),
    "largest value, too large a batch": lambda now: batch(now, value_bytes=LARGEST_VALUE),
    "last offset delta wrong": lambda now: patched(batch(now, 2), LAST_OFFSET_DELTA, ">i", 7),
    "record count too large": lambda now: patched(batch(now, 2), RECORD_COUNT, ">i", 3),
    "record count too small": lambda now: patched(batch(now, 2), RECORD_COUNT, ">i", 1),
    "record count 0": lambda now: patched(batch(now), RECORD_COUNT, ">i", 0),
    "record count -1": lambda now: patched(batch(now), RECORD_COUNT, ">i", -1),
    "empty records": lambda now: b"",
    "two batches": lambda now: batch(now) + batch(now),
    "truncated by 2 bytes": lambda now: batch(now)[:-2],
    "truncated in the header": lambda now: batch(now)[:40],
    "12 bytes": lambda now: batch(now)[:12],
    "5 bytes": lambda now: batch(now)[:5],
    "one byte more": lambda now: batch(now) + b"\0",
    "half a batch more": lambda now: batch(now) + batch(now)[:30],
    "garbage of 100 bytes": lambda now: b"\x55" * 100,
    "zeros of 100 bytes": lambda now: bytes(100),
    "length 0": lambda now: patched(batch(now), LENGTH, ">i", 0, keeps_checksum=True),
    "length -1": lambda now: patched(batch(now), LENGTH, ">i", -1, keeps_checksum=True),
    "magic 0": lambda now: patched(batch(now), MAGIC, ">b", 0),
    "magic 1": lambda now: MESSAGE_V1,
    "magic 3": lambda now: patched(batch(now), MAGIC, ">b", 3),
    "base offset 77": lambda now: batch(now, base_offset=77),
    "base offset -1": lambda now: batch(now, base_offset=-1),
    "leader epoch 99 in the batch": lambda now: batch(now, leader_epoch=99),
    "control batch": lambda now: batch(now, is_control=True),
    "control and transactional": lambda now: with_attributes(batch(now), CONTROL | TRANSACTIONAL),
    "transactional batch, no transactional id": lambda now: with_attributes(
        batch(now, producer_id=5, producer_epoch=0, base_sequence=0), TRANSACTIONAL
    ),
    "transactional batch, no producer id": lambda now: with_attributes(batch(now), TRANSACTIONAL),
    "compression codec 5": lambda now: with_attributes(batch(now), 5),
    "compression codec 7": lambda now: with_attributes(batch(now), 7),
    "sound gzip": _gzipped,
    "gzip bits, plain payload": lambda now: with_attributes(batch(now), CODEC_GZIP),
    "gzip, cut": lambda now: with_payload(
        batch(now), gzip.compress(batch(now)[RECORDS:], mtime=0)[:-9], CODEC_GZIP
    ),
    "gzip, one record too few": lambda now: with_payload(
        batch(now, 2), gzip.compress(batch(now)[RECORDS:], mtime=0), CODEC_GZIP
    ),
    "gzip, bytes left over": lambda now: with_payload(
        batch(now), gzip.compress(batch(now)[RECORDS:] + b"\0\0\0", mtime=0), CODEC_GZIP
    ),
    "snappy bits, plain payload": lambda now: with_attributes(batch(now), CODEC_SNAPPY),
    "lz4 bits, plain payload": lambda now: with_attributes(batch(now), CODEC_LZ4),
    "zstd bits, plain payload": lambda now: with_attributes(batch(now), CODEC_ZSTD),
    "log-append-time bit": lambda now: with_attributes(batch(now), LOG_APPEND_TIME),
    "delete-horizon bit": lambda now: with_attributes(batch(now), DELETE_HORIZON),
    "unused attribute bit": lambda now: with_attributes(batch(now), 0x80),
    "timestamp 2 h ahead": lambda now: batch(now, timestamp_ms=now + 2 * HOUR_MS),
    "timestamp 30 min ahead": lambda now: batch(now, timestamp_ms=now + HOUR_MS // 2),
    "timestamp -1": lambda now: batch(now, timestamp_ms=-1),
    "timestamp -2": lambda now: batch(now, timestamp_ms=-2),
    "timestamp 0": lambda now: batch(now, timestamp_ms=0),
    "max timestamp in the header is wrong": lambda now: patched(batch(now), MAX_TIMESTAMP, ">q", 5),
    "record attributes 1": lambda now: patched(batch(now), RECORDS + 1, ">B", 1),
    "producer id without sequence": lambda now: batch(
        now, producer_id=77, producer_epoch=0, base_sequence=-1
    ),
    "producer id, epoch -1": lambda now: batch(
        now, producer_id=77, producer_epoch=-1, base_sequence=0
    ),
    "producer id, epoch -1, no sequence": lambda now: batch(
        now, producer_id=77, producer_epoch=-1, base_sequence=-1
    ),
    "unassigned producer id": lambda now: batch(
        now, producer_id=987654, producer_epoch=0, base_sequence=0
    ),
    "unassigned producer id, sequence 9": lambda now: batch(
        now, producer_id=987654, producer_epoch=0, base_sequence=9
    ),
    "sequence without producer id": lambda now: batch(now, base_sequence=3),
}
"""Batches that are produced with acks=all in the newest version."""


def _sent(case: str, run: Callable[..., Any]) -> Case:
    return Case(id=f"produce/{case}", run=run, writes=True)


def _now(probe: Probe, **header: Any) -> bytes:
    return batch(probe.target.now_ms, **header)


def _requests() -> Iterator[Case]:
    """Cases in which the request is special, not the batch."""
    for version in range(3, NEWEST + 1):
        yield _written(f"version {version}", batch, version=version)
    for name, topic_id in (("unknown id", UNKNOWN_ID), ("id 0", uuid.UUID(int=0))):
        yield _sent(
            name, lambda p, wanted=topic_id: produce(p, _now(p), version=NEWEST, topic_id=wanted)
        )
        yield _sent(
            f"{name}, acks 0",
            lambda p, wanted=topic_id: produce(
                p, _now(p), acks=0, version=NEWEST, topic_id=wanted, limit_s=SILENCE_LIMIT_S
            ),
        )
    for acks in (0, 1):
        limit_s = SILENCE_LIMIT_S if acks == 0 else 20.0
        yield _written(f"acks {acks}", batch, acks=acks, limit_s=limit_s)
    for acks in (2, -2, 32767):
        yield _written(f"acks {acks}", batch, acks=acks)
    yield _sent(
        "acks 0, unknown partition",
        lambda p: produce(p, _now(p), acks=0, partition=9999, limit_s=SILENCE_LIMIT_S),
    )
    yield _sent("null records", lambda p: produce(p, None, limit_s=SILENCE_LIMIT_S))
    for name in ("nope", "", "a b", "__cluster_metadata", "__consumer_offsets"):
        yield _sent(
            f"topic {name!r}", lambda p, name=name: produce(p, _now(p), topic=name, partition=0)
        )
    for index in (9999, -1):
        yield _sent(
            f"partition {index}", lambda p, index=index: produce(p, _now(p), partition=index)
        )
    yield _sent(
        "to a follower",
        lambda p: produce(p, _now(p), to=p.follower(WRITE_TOPIC, p.partition)),
    )
    yield _sent(
        "wrong checksum, to a follower",
        lambda p: produce(
            p,
            patched(_now(p), 65, ">B", 0xFF, keeps_checksum=True),
            to=p.follower(WRITE_TOPIC, p.partition),
        ),
    )

    def twice(probe: Probe) -> None:
        again = {"index": probe.partition, "records": _now(probe)}
        produce(probe, _now(probe), more=[again])
        stored(probe)

    yield _sent("same partition twice", twice)
    yield _sent(
        "one partition good, one bad",
        lambda p: produce(p, _now(p), more=[{"index": 9999, "records": _now(p)}]),
    )
    yield _sent("no topics", lambda p: p.ask("produce", VERSION, {"acks": -1, "timeout": 1000}))
    yield _sent(
        "transactional id, plain batch", lambda p: produce(p, _now(p), transactional_id="tx")
    )
    yield _sent(
        "transactional id and batch",
        lambda p: produce(
            p,
            with_attributes(
                _now(p, producer_id=5, producer_epoch=0, base_sequence=0), TRANSACTIONAL
            ),
            transactional_id="tx",
        ),
    )
    yield _sent(
        "zstd bits, version 6",
        lambda p: produce(p, with_attributes(_now(p), CODEC_ZSTD), version=6),
    )
    yield _sent(
        "attributes bit 15",
        lambda p: produce(p, patched(_now(p), ATTRIBUTES, ">H", 0x8000)),
    )


IDEMPOTENT: Mapping[str, Sequence[tuple[int, int, int]]] = {
    "0, 1": ((0, 0, 1), (1, 0, 1)),
    "duplicate": ((0, 0, 1), (0, 0, 1)),
    "duplicate of the fifth last": (*((i, 0, 1) for i in range(5)), (0, 0, 1)),
    "duplicate of the sixth last": (*((i, 0, 1) for i in range(6)), (0, 0, 1)),
    "gap": ((0, 0, 1), (5, 0, 1)),
    "begins at 5": ((5, 0, 1),),
    "epoch + 1 begins at 0": ((0, 0, 1), (0, 1, 1)),
    "epoch + 1 begins at 3": ((0, 0, 1), (3, 1, 1)),
    "older epoch": ((0, 1, 1), (1, 0, 1)),
    "older epoch begins at 0": ((0, 1, 1), (0, 0, 1)),
    "same sequence, smaller batch": ((0, 0, 2), (0, 0, 1)),
    "same sequence, larger batch": ((0, 0, 1), (0, 0, 2)),
    "inside of the last batch": ((0, 0, 3), (1, 0, 1)),
    "three, then the next": ((0, 0, 3), (3, 0, 1)),
}
"""Steps of (sequence, epoch delta, records) of one new producer."""


def _idempotent(case: str, steps: Sequence[tuple[int, int, int]]) -> Case:
    def run(probe: Probe) -> None:
        producer_id, producer_epoch = probe.new_producer()
        for sequence, epoch_delta, records in steps:
            produce(
                probe,
                _now(
                    probe,
                    records=records,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch + epoch_delta,
                    base_sequence=sequence,
                ),
            )
        stored(probe)

    return Case(id=f"idempotent/{case}", run=run, writes=True)


INIT_PRODUCER_ID: Mapping[str, Mapping[str, Any]] = {
    "transactional id ''": {"transactional_id": ""},
    "producer id 5, no epoch": {"producer_id": 5},
    "producer id 5, epoch 0": {"producer_id": 5, "producer_epoch": 0},
    "no producer id, epoch 3": {"producer_epoch": 3},
    "producer id -2": {"producer_id": -2},
    "producer id -1, epoch -2": {"producer_epoch": -2},
    "timeout 0": {"transaction_timeout": 0},
    "timeout -1": {"transaction_timeout": -1},
    "transactional id": {"transactional_id": "transaction-1"},
    "transactional id, timeout 0": {"transactional_id": "transaction-2", "transaction_timeout": 0},
}


def _init(case: str, values: Mapping[str, Any], version: int = 4) -> Case:
    default = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}

    def run(probe: Probe) -> None:
        probe.new_producer()  # the broker has a block of ids from here on
        probe.ask("init_producer_id", version, {**default, **values}, drops_unknown=True)

    return Case(id=f"init producer id/{case}", run=run)


def cases() -> Iterator[Case]:
    """Yields the cases of this family."""
    for name, make in BATCHES.items():
        yield _written(name, make)
    yield from _requests()
    for name, steps in IDEMPOTENT.items():
        yield _idempotent(name, steps)
    for version in range(6):
        yield _init(f"version {version}", {}, version)
    for name, values in INIT_PRODUCER_ID.items():
        yield _init(name, values)
