"""The index of a segment: it finds the same bytes as a list of all batches, and its memory follows the bytes."""

import random
import sys
import tracemalloc

import pytest

from system_under_test.config import LogConfig
from system_under_test.log import Log
from system_under_test.log.segment import INDEX_INTERVAL_BYTES, RECENT_MAX, Segment
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.record_batch import encode_batch
from tests.memory_storage import MemoryStorage

DIRECTORY = "data/t-0"
EVERYTHING = 1 << 40


class Dense:
    """The model: every batch is known."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, int, int]] = []

    def range_of(self, start: int, max_bytes: int, end: int) -> tuple[int, int]:
        wanted = [one for one in self.batches if one[1] > start and one[1] <= end]
        if not wanted:
            return 0, 0
        begin = wanted[0][2]
        fitting = [one[3] for one in wanted if one[3] - begin <= max_bytes]
        return begin, fitting[-1] if fitting else wanted[0][3]


def filled(stream: random.Random, count: int) -> tuple[Segment, Dense, MemoryStorage]:
    storage, model = MemoryStorage(), Dense()
    segment = Segment(storage, DIRECTORY, 100)
    storage.append(segment.path, b"")
    content = bytearray()
    offset = 100
    for _ in range(count):
        records = stream.randrange(1, 5)
        value = bytes(stream.choice((1, 40, 900, 6000)))
        batch = encode_batch([(None, value)] * records, timestamp_ms=1, base_offset=offset)
        model.batches.append((offset, offset + records, len(content), len(content) + len(batch)))
        content += batch
        segment.add(offset, len(batch), records, 1)
        offset += records
    storage.append(segment.path, bytes(content))
    return segment, model, storage


@pytest.mark.parametrize("is_sealed", [False, True])
def test_reads_find_the_same_bytes_as_with_every_batch_indexed(is_sealed):
    stream = random.Random(1)
    segment, model, _ = filled(stream, 2 * RECENT_MAX)
    if is_sealed:
        segment.seal()
    assert segment.index_entry_count < 2 * RECENT_MAX
    for _ in range(500):
        start = stream.randrange(100, segment.end_offset)
        end = stream.choice((segment.end_offset, stream.randrange(100, segment.end_offset + 1)))
        limit = stream.choice((1, 500, 5000, 100_000, EVERYTHING))
        if end <= start:
            continue
        assert segment.range_of(start, limit, end) == model.range_of(start, limit, end)


def test_a_cut_where_not_every_batch_is_indexed_ends_at_the_batch_of_the_offset():
    stream = random.Random(2)
    for _ in range(20):
        segment, model, storage = filled(stream, RECENT_MAX + 100)
        segment.seal()
        offset = stream.randrange(100, segment.end_offset)
        base, _, position, _ = next(one for one in model.batches if one[0] <= offset < one[1])
        assert segment.base_of(offset) == base
        segment.cut(offset)
        storage.truncate(segment.path, segment.size_bytes)
        assert (segment.end_offset, segment.size_bytes) == (base, position)
        segment.add(base, 10, 1, 1)
        assert segment.range_of(base, EVERYTHING, base + 1) == (position, position + 10)


def test_a_damaged_length_in_the_file_does_not_hide_the_batches_behind_the_next_entry():
    stream = random.Random(3)
    segment, model, storage = filled(stream, RECENT_MAX)
    segment.seal()
    damaged = model.batches[500]
    content = bytearray(storage.read(segment.path))
    for length in (b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"):
        content[damaged[2] + 8 : damaged[2] + 12] = length
        storage.write(segment.path, bytes(content))
        last = model.batches[-1]
        assert segment.base_of(last[0]) == last[0]
        begin, end = segment.range_of(damaged[0], 1 << 20, segment.end_offset)
        assert (begin, end - begin <= (1 << 20) + INDEX_INTERVAL_BYTES) == (damaged[2], True)


def test_the_newest_timestamp_is_found_again_after_a_cut():
    storage = MemoryStorage()
    segment = Segment(storage, DIRECTORY, 0)
    for offset, at_ms in enumerate((5, 9, 7)):
        batch = encode_batch([(None, b"v")], timestamp_ms=at_ms, base_offset=offset)
        storage.append(segment.path, batch)
        segment.add(offset, len(batch), 1, at_ms)
    assert segment.largest_timestamp_ms() == 9
    segment.cut(1)
    storage.truncate(segment.path, segment.size_bytes)
    assert (segment.largest_timestamp_ms(), segment.first_timestamp_ms) == (5, 5)


def index_bytes(log: Log) -> int:
    """Returns the memory of the indexes of a log, as far as it grows with the log."""
    return sum(
        sys.getsizeof(getattr(segment, name))
        + (
            sum(sys.getsizeof(number) for number in getattr(segment, name))
            if name.startswith("_recent")
            else 0
        )
        for segment in log.segments
        for name in ("_recent_bases", "_recent_positions", "_sparse_bases", "_sparse_positions")
    )


def test_the_memory_of_a_log_grows_with_its_bytes_and_not_with_its_batches():
    """Without a limit, the index took 130 bytes per batch, here 8 MB."""
    log = Log.load(MemoryStorage(), DIRECTORY, LogConfig(), had_clean_shutdown=False)
    batch = VerifiedBatches.verify(encode_batch([(None, b"v")], timestamp_ms=1))
    data = batch.data * 1000
    many = VerifiedBatches.verify(data)
    for _ in range(10):
        log.append_as_leader(many, 1)
    after_10_000 = index_bytes(log)
    for _ in range(50):
        log.append_as_leader(many, 1)
    grown = index_bytes(log) - after_10_000
    (segment,) = log.segments
    assert log.log_end_offset == 60_000
    assert segment.index_entry_count <= RECENT_MAX + segment.size_bytes // INDEX_INTERVAL_BYTES
    # Two numbers of 8 bytes per 4096 bytes, in arrays that grow in steps.
    assert grown <= 3 * 16 * (50_000 * len(batch.data)) // INDEX_INTERVAL_BYTES


def test_nothing_else_is_kept_of_a_batch():
    """Whole process: whatever holds memory per batch is found, wherever it is."""

    class Forgetful(MemoryStorage):
        def append(self, path, data):
            pass

    log = Log.load(Forgetful(), DIRECTORY, LogConfig(), had_clean_shutdown=False)
    one = VerifiedBatches.verify(encode_batch([(None, b"v")], timestamp_ms=1))
    many = VerifiedBatches.verify(one.data * 100)
    for _ in range(100):
        log.append_as_leader(many, 1)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(400):
            log.append_as_leader(many, 1)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / 40_000 < 8, "bytes of memory per batch"
