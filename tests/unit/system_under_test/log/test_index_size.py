"""A segment is closed when its index would be full in Kafka."""

import pytest

from system_under_test.config import LogConfig
from system_under_test.log import Log
from system_under_test.log.index_size import IndexSize, may_fill
from system_under_test.log.segment import Segment
from system_under_test.metadata.log_settings import log_config
from system_under_test.protocol.record_batch import encode_batch
from tests.memory_storage import MemoryStorage

DIRECTORY = "data/t-0"
BATCH_BYTES = len(encode_batch([(None, b"x")], timestamp_ms=1))


def loaded(storage: MemoryStorage, **config: int) -> Log:
    return Log.load(storage, DIRECTORY, LogConfig(**config), had_clean_shutdown=True)


def append(log: Log, timestamp_ms: int = 1) -> None:
    batch = encode_batch([(None, b"x")], timestamp_ms=timestamp_ms, base_offset=log.log_end_offset)
    log.append_as_follower(batch)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_with_the_default_settings_a_segment_is_full_first():
    assert not may_fill(LogConfig())
    assert not may_fill(LogConfig(segment_bytes=2**31 - 1))
    assert may_fill(LogConfig(index_interval_bytes=1000))
    assert may_fill(LogConfig(segment_index_bytes=1 << 20))
    log = loaded(MemoryStorage())
    append(log)
    append(log)
    assert log._index_size is None


def test_an_append_that_finds_the_time_index_full_begins_a_segment():
    # 36 bytes have room for four offsets, or for three times of which the last is kept. An entry comes with the
    # second and the third batch, so the fourth finds the time index full.
    log = loaded(MemoryStorage(), index_interval_bytes=0, segment_index_bytes=36)
    for timestamp_ms in range(1, 8):
        append(log, timestamp_ms)
    assert bases(log) == [0, 3, 6]


def test_timestamps_that_do_not_grow_need_no_entry_so_the_offset_index_decides():
    log = loaded(MemoryStorage(), index_interval_bytes=0, segment_index_bytes=36)
    for _ in range(11):
        append(log, 1)
    assert bases(log) == [0, 5, 10]


def test_a_larger_interval_needs_more_bytes_per_entry():
    size = 2 * BATCH_BYTES
    log = loaded(MemoryStorage(), index_interval_bytes=size, segment_index_bytes=36)
    for timestamp_ms in range(1, 9):
        append(log, timestamp_ms)
    # Entries with the fourth and the seventh batch: more than two batches lie behind each.
    assert bases(log) == [0, 7]


def test_without_room_for_an_entry_every_append_begins_a_segment():
    log = loaded(MemoryStorage(), segment_index_bytes=4)
    for _ in range(3):
        append(log)
    assert bases(log) == [0, 1, 2]


def test_entries_are_counted_anew_after_a_cut_and_after_a_start():
    storage = MemoryStorage()
    settings = {"index_interval_bytes": 0, "segment_index_bytes": 36}
    log = loaded(storage, **settings)
    for timestamp_ms in (1, 2, 3):
        append(log, timestamp_ms)
    log.truncate_to(1)
    append(log, 4)
    assert bases(log) == [0]
    again = loaded(storage, **settings)
    append(again, 5)
    assert bases(again) == [0]
    append(again, 6)
    assert bases(again) == [0, 3]


def test_settings_count_from_the_next_append_on():
    log = loaded(MemoryStorage())
    for timestamp_ms in (1, 2, 3):
        append(log, timestamp_ms)
    log.configure(LogConfig(index_interval_bytes=0, segment_index_bytes=36))
    append(log, 4)
    assert bases(log) == [0, 3]
    log.configure(LogConfig())
    append(log, 5)
    append(log, 6)
    append(log, 7)
    append(log, 8)
    assert bases(log) == [0, 3]


@pytest.mark.parametrize(("interval_bytes", "entries"), [(0, 200), (1000, 14), (1 << 20, 1)])
def test_the_index_in_memory_has_the_distance_of_the_setting(interval_bytes: int, entries: int):
    segment = Segment(MemoryStorage(), DIRECTORY, 0, interval_bytes)
    for offset in range(200):
        segment.add(offset, BATCH_BYTES, 1, 1)
    segment.seal()
    assert segment.index_entry_count == entries


def test_a_log_passes_the_interval_to_every_segment():
    storage = MemoryStorage()
    settings = {"index_interval_bytes": 7, "segment_bytes": 100}
    log = loaded(storage, **settings)
    for _ in range(4):
        append(log)
    assert {segment.index_interval_bytes for segment in log.segments} == {7}
    assert {one.index_interval_bytes for one in loaded(storage, **settings).segments} == {7}


def test_topics_set_both_sizes():
    configs = {
        (2, "t", "index.interval.bytes"): "7",
        (2, "t", "segment.index.bytes"): "90",
    }
    made = log_config(configs, "t", LogConfig())
    assert (made.index_interval_bytes, made.segment_index_bytes) == (7, 90)


def test_an_empty_segment_has_an_empty_index():
    size = IndexSize(LogConfig(segment_index_bytes=36), Segment(MemoryStorage(), DIRECTORY, 0))
    assert not size.is_full
