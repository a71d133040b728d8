"""What happens without the rules about retention, the log start and compaction."""

import asyncio

from system_under_test.config import LogConfig
from system_under_test.log import Log
from system_under_test.log.cleaner import clean, cleanable
from system_under_test.log.retention import delete_old_segments
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.record_batch import decode_records, encode_batch
from system_under_test.rules import Rules
from tests.memory_storage import MemoryStorage
from tests.mutations.coverage import shows
from tests.unit.system_under_test.broker.test_log_start import delete, followed, led, result

DIRECTORY = "data/t-0"


def new_log(storage: MemoryStorage, without: tuple[str, ...], **config: object) -> Log:
    return Log.load(
        storage,
        DIRECTORY,
        LogConfig(segment_bytes=80, **config),  # type: ignore[arg-type]
        had_clean_shutdown=False,
        rules=Rules(without),
    )


def put(log: Log, key: bytes, value: bytes | None, **producer: int) -> None:
    batch = encode_batch([(key, value)], timestamp_ms=1000, **producer)
    log.append_as_leader(VerifiedBatches.verify(batch), 1)


def compact(log: Log, storage: MemoryStorage, high_watermark: int | None = None) -> None:
    end = log.log_end_offset if high_watermark is None else high_watermark
    work = cleanable(log, high_watermark=end, now_ms=2000)
    if work is not None:
        assert asyncio.run(clean(work, storage, 2000))


def pairs(log: Log) -> list[tuple[bytes | None, bytes | None]]:
    data = log.read(log.log_start_offset, 1 << 30, log.log_end_offset)
    return [(one.key, one.value) for _, records in decode_records(data) for one in records]


@shows("RET-1")
def test_without_ret1_retention_deletes_what_a_follower_still_needs() -> None:
    for without, start in (((), 2), (("RET-1",), 5)):
        log = new_log(MemoryStorage(), without, retention_ms=1)
        for _ in range(5):
            put(log, b"k", b"v")
        # Followers have two of five records.
        delete_old_segments(log, high_watermark=2, now_ms=10**6)
        assert log.log_start_offset == start


@shows("RET-2")
def test_without_ret2_a_new_leader_serves_records_that_were_deleted() -> None:
    for without, start in (((), 3), (("RET-2",), 0)):
        broker = followed(without=without)
        broker.partition.replica.append_as_follower(
            b"", leader_epoch=1, high_watermark=5, log_start_offset=3
        )
        broker.lead()
        assert broker.list_offsets(-2).offset == start


@shows("RET-3")
def test_without_ret3_records_are_reported_deleted_that_other_replicas_have() -> None:
    async def play(without: tuple[str, ...]) -> tuple[bool, list[int]]:
        broker = led(without=without)
        response = delete(broker, 3)
        is_complete = not isinstance(response, asyncio.Future) or response.done()
        if is_complete:
            assert result(response)[0] == ErrorCode.NONE
        followers = broker.partition.leadership.followers.values()
        return is_complete, [one.log_start_offset for one in followers]

    assert asyncio.run(play(())) == (False, [0, 0])
    assert asyncio.run(play(("RET-3",))) == (True, [0, 0])


@shows("CLEAN-1")
def test_without_clean1_a_truncation_takes_the_last_record_of_a_key() -> None:
    for without, is_there in (((), True), (("CLEAN-1",), False)):
        storage = MemoryStorage()
        log = new_log(storage, without, cleanup_policy="compact")
        put(log, b"k", b"committed")
        put(log, b"k", b"not committed")
        put(log, b"other", b"v")
        compact(log, storage, high_watermark=1)
        # Another leader never had the second record.
        log.truncate_to(1)
        assert ((b"k", b"committed") in pairs(log)) is is_there


@shows("CLEAN-2")
def test_without_clean2_a_consumer_does_not_learn_of_a_deletion() -> None:
    for without, is_there in (((), True), (("CLEAN-2",), False)):
        storage = MemoryStorage()
        log = new_log(storage, without, cleanup_policy="compact")
        put(log, b"k", b"v")
        put(log, b"k", None)
        put(log, b"other", b"v")
        compact(log, storage)
        assert (b"k", b"v") not in pairs(log)
        assert ((b"k", None) in pairs(log)) is is_there


@shows("CLEAN-3")
def test_without_clean3_a_repeated_batch_is_appended_twice() -> None:
    for without, end in (((), 3), (("CLEAN-3",), 4)):
        storage = MemoryStorage()
        log = new_log(storage, without, cleanup_policy="compact")
        put(log, b"k", b"v", producer_id=7, producer_epoch=0, base_sequence=0)
        put(log, b"k", b"w")
        put(log, b"other", b"v")
        compact(log, storage)
        # A new leader has its producers from its log.
        log = Log.load(storage, DIRECTORY, LogConfig(), had_clean_shutdown=True)
        put(log, b"k", b"v", producer_id=7, producer_epoch=0, base_sequence=0)
        assert log.log_end_offset == end
