"""Compaction: what stays of a log, and that it stays a log."""

import asyncio
import random

import pytest
from crc32c import crc32c

from system_under_test.config import LogConfig
from system_under_test.log import Log
from system_under_test.log.cleaner import clean, cleanable
from system_under_test.log.producer_state import ProducerRefusedError
from system_under_test.log.segment import CLEANED_SUFFIX
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.batch_rewrite import readable_records
from system_under_test.protocol.record_batch import decode_records, encode_batch, spans
from system_under_test.rules import Rules
from tests.memory_storage import MemoryStorage

DIRECTORY = "data/t-0"
EVERYTHING = 1 << 40
DAY_MS = 86_400_000


def new_log(storage, *, rules=(), **config) -> Log:
    settings = {"segment_bytes": 400, "cleanup_policy": "compact", **config}
    return Log.load(
        storage, DIRECTORY, LogConfig(**settings), had_clean_shutdown=False, rules=Rules(rules)
    )


def put(log, *pairs, epoch=1, at_ms=1000, **producer):
    data = [
        (key.encode() if key is not None else None, value.encode() if value is not None else None)
        for key, value in pairs
    ]
    batch = encode_batch(data, timestamp_ms=at_ms, **producer)
    return log.append_as_leader(VerifiedBatches.verify(batch), epoch)


def compact(log, storage, *, high_watermark=None, now_ms=2000) -> bool:
    end = log.log_end_offset if high_watermark is None else high_watermark
    work = cleanable(log, high_watermark=end, now_ms=now_ms)
    return work is not None and work.is_due and asyncio.run(clean(work, storage, now_ms))


def content(log) -> list[tuple[int, str | None, str | None]]:
    data = log.read(log.log_start_offset, EVERYTHING, log.log_end_offset)
    return [
        (one.offset, one.key and one.key.decode(), one.value and one.value.decode())
        for _, records in decode_records(data)
        for one in records
    ]


def check_offsets(log) -> None:
    """Every offset is covered, in order, whatever was removed."""
    expected = next(iter(log.segments)).base_offset
    for span in log.segments.spans():
        assert span.base_offset == expected
        expected += span.offset_count
    assert expected == log.log_end_offset


def test_the_last_record_of_every_key_stays_at_its_offset():
    storage = MemoryStorage()
    log = new_log(storage)
    for number in range(12):
        put(log, (f"k{number % 3}", f"v{number}"), (f"k{number % 2}", f"w{number}"))
    before = content(log)
    active = log.segments.active.base_offset
    assert compact(log, storage)
    last = {key: offset for offset, key, _ in before if offset < active}
    assert content(log) == [one for one in before if one[0] >= active or last[one[1]] == one[0]]
    check_offsets(log)
    assert log.first_dirty_offset == active


def test_a_read_from_a_removed_offset_gives_what_follows():
    storage = MemoryStorage()
    log = new_log(storage)
    for number in range(12):
        put(log, ("k", f"v{number}"))
    compact(log, storage)
    for start in range(log.log_end_offset):
        data = log.read(start, EVERYTHING, log.log_end_offset)
        offsets = [one.offset for _, records in decode_records(data) for one in records]
        assert offsets == [offset for offset, _, _ in content(log) if offset >= start]
        assert spans(data, verify_crc=True)[-1].base_offset == log.log_end_offset - 1


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_compacted_log_is_loaded_as_it_was(is_trusted):
    storage = MemoryStorage()
    log = new_log(storage)
    for number in range(20):
        put(log, (f"k{number % 3}", f"v{number}"), epoch=1 + number // 7)
    compact(log, storage)
    again = Log.load(storage, DIRECTORY, LogConfig(), had_clean_shutdown=is_trusted)
    assert again.cuts_at_load == ()
    assert content(again) == content(log)
    assert again.epochs.entries == log.epochs.entries
    assert (again.log_start_offset, again.log_end_offset) == (0, 20)


def test_a_follower_can_copy_a_compacted_log():
    storage = MemoryStorage()
    log = new_log(storage)
    for number in range(20):
        put(log, (f"k{number % 3}", f"v{number}"), epoch=1 + number // 7)
    compact(log, storage)
    follower = Log.load(MemoryStorage(), DIRECTORY, LogConfig(), had_clean_shutdown=False)
    while follower.log_end_offset < log.log_end_offset:
        follower.append_as_follower(log.read(follower.log_end_offset, 1, log.log_end_offset))
    assert content(follower) == content(log)
    assert follower.epochs.entries == log.epochs.entries


@pytest.mark.parametrize("copied", range(1, 20))
def test_a_follower_that_copied_a_part_before_the_compaction_copies_the_rest_after_it(copied):
    """One batch then covers what was removed on both sides of the follower's log end."""
    storage = MemoryStorage()
    log = new_log(storage)
    for number in range(20):
        put(log, (f"k{number % 3}", f"v{number}"), epoch=1 + number // 7)
    follower = Log.load(MemoryStorage(), DIRECTORY, LogConfig(), had_clean_shutdown=False)
    while follower.log_end_offset < copied:
        follower.append_as_follower(log.read(follower.log_end_offset, 1, log.log_end_offset))
    compact(log, storage)
    while follower.log_end_offset < log.log_end_offset:
        follower.append_as_follower(log.read(follower.log_end_offset, 1, log.log_end_offset))
    check_offsets(follower)
    kept = content(log)
    assert [one for one in content(follower) if one[0] >= copied] == [
        one for one in kept if one[0] >= copied
    ]
    assert follower.epochs.entries == log.epochs.entries


@pytest.mark.parametrize(("rules", "is_kept"), [((), True), (("CLEAN-1",), False)])
def test_a_record_above_the_high_watermark_supersedes_nothing(rules, is_kept):
    """The later record may still be truncated; the key would then be gone."""
    storage = MemoryStorage()
    log = new_log(storage, rules=rules)
    for number in range(12):
        put(log, (f"k{number}", "v"))
    committed = log.log_end_offset
    for number in range(12):
        put(log, (f"k{number}", "w"))
    compact(log, storage, high_watermark=committed)
    log.truncate_to(committed)
    assert ({key for _, key, _ in content(log)} == {f"k{n}" for n in range(12)}) is is_kept


def test_the_active_segment_is_never_changed():
    storage = MemoryStorage()
    log = new_log(storage, segment_bytes=1 << 20)
    for number in range(12):
        put(log, ("k", f"v{number}"))
    assert not compact(log, storage)
    assert len(content(log)) == 12


@pytest.mark.parametrize(("lag_ms", "count"), [(0, 1), (500, 5)])
def test_young_records_are_not_compacted(lag_ms, count):
    storage = MemoryStorage()
    log = new_log(storage, segment_bytes=100, min_compaction_lag_ms=lag_ms)
    for number in range(10):
        put(log, ("k", f"v{number}"), at_ms=1000 + 100 * number)
    compact(log, storage, now_ms=1900 + 1)
    # Offset 9 is in the active segment.
    assert len(content(log)) == count + 1


def test_a_log_is_due_by_its_dirty_ratio_or_by_the_age_of_its_oldest_dirty_record():
    storage = MemoryStorage()
    log = new_log(storage, segment_bytes=100, max_compaction_lag_ms=5000)
    for number in range(10):
        put(log, (f"k{number}", "v"))
    assert compact(log, storage)
    put(log, ("k0", "w"))
    put(log, ("k1", "w"))
    work = cleanable(log, high_watermark=log.log_end_offset, now_ms=2000)
    assert work is not None
    assert (work.dirty_ratio < 0.5, work.is_due) == (True, False)
    late = cleanable(log, high_watermark=log.log_end_offset, now_ms=6001)
    assert late is not None
    assert late.is_due


@pytest.mark.parametrize(
    ("rules", "passes", "is_there"),
    [
        ((), (2000,), True),
        ((), (2000, 2000 + DAY_MS - 1), True),
        ((), (2000, 2000 + DAY_MS), False),
        (("CLEAN-2",), (2000,), False),
    ],
)
def test_a_tombstone_stays_for_its_time_after_the_first_pass(rules, passes, is_there):
    storage = MemoryStorage()
    log = new_log(storage, rules=rules, segment_bytes=100, min_cleanable_dirty_ratio=0.0)
    put(log, ("k", "v"))
    put(log, ("k", None))
    for now_ms in passes:
        put(log, ("other", "v"))
        put(log, ("other", "v"))
        assert compact(log, storage, now_ms=now_ms)
    keys = [key for _, key, _ in content(log)]
    assert ("k" in keys) is is_there
    assert ("k", "v") not in [(key, value) for _, key, value in content(log)]
    (found, *_) = [
        one
        for _, records in decode_records(log.read(0, EVERYTHING, log.log_end_offset))
        for one in records
    ]
    assert found.timestamp_ms == 1000


@pytest.mark.parametrize(("rules", "is_known"), [((), True), (("CLEAN-3",), False)])
def test_the_last_batch_of_a_producer_stays_so_that_its_repetition_is_recognised(rules, is_known):
    storage = MemoryStorage()
    log = new_log(storage, rules=rules, segment_bytes=100)
    for sequence in range(3):
        put(log, ("k", "v"), producer_id=7, producer_epoch=0, base_sequence=sequence)
    for _ in range(3):
        put(log, ("k", "w"))
    assert compact(log, storage)
    again = Log.load(storage, DIRECTORY, LogConfig(), had_clean_shutdown=True)
    assert (again.producers.known(7) is not None) is is_known
    if is_known:
        repeated = put(again, ("k", "v"), producer_id=7, producer_epoch=0, base_sequence=2)
        assert repeated.first_offset == 2
        with pytest.raises(ProducerRefusedError):
            put(again, ("k", "v"), producer_id=7, producer_epoch=0, base_sequence=5)
    check_offsets(again)


def test_records_without_a_key_are_removed():
    storage = MemoryStorage()
    log = new_log(storage, segment_bytes=100)
    put(log, (None, "v"))
    put(log, ("k", "v"))
    put(log, ("k", "w"))
    assert compact(log, storage)
    assert [key for _, key, _ in content(log)] == ["k", "k"]


def test_a_batch_that_cannot_be_read_stays_and_keeps_the_tombstones_behind_it():
    storage = MemoryStorage()
    log = new_log(storage, segment_bytes=100, min_cleanable_dirty_ratio=0.0, delete_retention_ms=0)
    unreadable = bytearray(encode_batch([(b"k", b"v")], timestamp_ms=1))
    unreadable[22] |= 3  # lz4
    unreadable[17:21] = crc32c(bytes(unreadable[21:])).to_bytes(4, "big")
    assert readable_records(bytes(unreadable)) is None
    log.append_as_leader(VerifiedBatches.verify(bytes(unreadable)), 1)
    put(log, ("k", None))
    for now_ms in (2000, 3000, 4000):
        put(log, ("other", "v"))
        put(log, ("other", "v"))
        compact(log, storage, now_ms=now_ms)
    data = log.read(1, EVERYTHING, log.log_end_offset)
    assert next(one.key for _, found in decode_records(data) for one in found) == b"k"
    assert spans(log.read(0, 1, 1), verify_crc=True)[0].record_count == 1


@pytest.mark.parametrize(
    ("meddle", "start", "end"),
    [
        (lambda log: log.truncate_to(3), 0, 3),
        (lambda log: log.advance_log_start(4), 4, 10),
        (lambda log: log.truncate_fully_and_start_at(20), 20, 20),
    ],
)
def test_a_pass_is_abandoned_when_segments_disappear_meanwhile(meddle, start, end):
    storage = MemoryStorage()
    log = new_log(storage, segment_bytes=100)
    for number in range(10):
        put(log, ("k", f"v{number}"))
    work = cleanable(log, high_watermark=log.log_end_offset, now_ms=2000)
    assert work is not None

    async def play() -> bool:
        cleaning = asyncio.ensure_future(clean(work, storage, 2000))
        await asyncio.sleep(0)
        meddle(log)
        return await cleaning

    assert asyncio.run(play()) is False
    found = (log.log_start_offset, log.log_end_offset, log.first_dirty_offset)
    assert found == (start, end, 0)
    check_offsets(log)
    assert not any(name.endswith(CLEANED_SUFFIX) for name in storage.list(DIRECTORY))


def test_a_load_removes_what_an_interrupted_pass_left():
    storage = MemoryStorage()
    put(new_log(storage), ("k", "v"))
    storage.write(f"{DIRECTORY}/x{CLEANED_SUFFIX}", b"half")
    assert len(content(new_log(storage))) == 1
    assert not any(name.endswith(CLEANED_SUFFIX) for name in storage.list(DIRECTORY))


def test_a_power_cut_leaves_each_segment_as_it_was_or_compacted():
    storage = MemoryStorage()
    log = new_log(storage, segment_bytes=100)
    for number in range(10):
        put(log, ("k", f"v{number}"))
    log.flush_blocking()
    compact(log, storage)
    storage.power_cut()
    again = Log.load(storage, DIRECTORY, LogConfig(), had_clean_shutdown=False, recovery_point=10)
    assert again.cuts_at_load == ()
    assert content(again)[-1] == (9, "k", "v9")
    check_offsets(again)


def test_random_logs_keep_the_newest_value_of_every_key():
    """Compared with a dictionary; passes, loads and appends in random order."""
    for seed in range(30):
        stream = random.Random(seed)
        storage = MemoryStorage()
        log = new_log(storage, segment_bytes=300, min_cleanable_dirty_ratio=0.0)
        newest: dict[str, str | None] = {}
        now_ms = 1000
        for number in range(60):
            now_ms += stream.randrange(1, DAY_MS)
            pairs = []
            for _ in range(stream.randrange(1, 4)):
                key = f"k{stream.randrange(6)}"
                value = None if stream.random() < 0.2 else f"v{number}"
                pairs.append((key, value))
                newest[key] = value
            put(log, *pairs, epoch=1 + number // 20, at_ms=now_ms)
            if stream.random() < 0.2:
                compact(log, storage, now_ms=now_ms)
            if stream.random() < 0.1:
                log = Log.load(
                    storage, DIRECTORY, log.config, had_clean_shutdown=stream.random() < 0.5
                )
            check_offsets(log)
        replayed = {key: value for _, key, value in content(log)}
        alive = {key: value for key, value in newest.items() if value is not None}
        assert {key: value for key, value in replayed.items() if value is not None} == alive
