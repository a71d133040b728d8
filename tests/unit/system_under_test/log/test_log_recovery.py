"""Loading a log after an orderly stop, a killed process, and a power cut (REC-1, EC-5, EC-6)."""

import pytest

from system_under_test.config import LogConfig
from system_under_test.log import Log
from system_under_test.log.segment import (
    CLEANED_SUFFIX,
    SCAN_WINDOW_BYTES,
    segment_path,
    write_again,
)
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.record_batch import decode_records, encode_batch
from system_under_test.rules import Rules
from tests.memory_storage import MemoryStorage

DIRECTORY = "data/t-0"
CONFIG = LogConfig()


def batch(value: bytes, *, offset: int = 0, epoch: int = -1) -> bytes:
    return encode_batch([(None, value)], timestamp_ms=1, base_offset=offset, leader_epoch=epoch)


SIZE = len(batch(b"0"))


def load(storage, *, clean=False, config=CONFIG, **kwargs) -> Log:
    return Log.load(storage, DIRECTORY, config, had_clean_shutdown=clean, **kwargs)


def written(*, count=6, epoch=1, segment_batches=1000) -> tuple[MemoryStorage, Log]:
    storage = MemoryStorage()
    log = load(storage, config=LogConfig(segment_bytes=segment_batches * SIZE))
    for number in range(count):
        log.append_as_leader(VerifiedBatches.verify(batch(b"%d" % number)), epoch)
    return storage, log


def values_of(log: Log) -> list[bytes]:
    data = log.read(log.log_start_offset, 1 << 30, log.log_end_offset)
    return [record.value for _, records in decode_records(data) for record in records]


def digits(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, count)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment_batches", [1, 2, 1000])
def test_a_killed_process_loses_nothing(clean, segment_batches):
    storage, _ = written(segment_batches=segment_batches)
    log = load(storage, clean=clean)
    assert values_of(log) == digits(6)
    assert log.epochs.entries == ((1, 0),)
    assert log.cut_bytes_at_load == 0


def test_a_clean_start_trusts_everything_and_an_unclean_one_only_the_checkpoint():
    storage, _ = written()
    assert load(storage, clean=True).recovery_point == 6
    assert load(storage, recovery_point=4).recovery_point == 4
    # Beyond the end of the log it only proves that something durable is gone.
    assert load(storage, recovery_point=9).recovery_point == 0


@pytest.mark.parametrize("cut", range(1, SIZE))
@pytest.mark.parametrize("clean", [True, False])
def test_a_torn_batch_at_the_end_is_cut(cut, clean):
    storage, _ = written(count=3)
    path = segment_path(DIRECTORY, 0)
    storage.truncate(path, 3 * SIZE - cut)
    log = load(storage, clean=clean)
    assert values_of(log) == digits(2)
    assert storage.size(path) == 2 * SIZE
    assert log.cut_bytes_at_load == SIZE - cut
    (reported,) = log.cuts_at_load
    assert (reported.end_offset, reported.size_bytes) == (2, SIZE - cut)
    assert f"the batch at byte {2 * SIZE} of 00000000000000000000.log: " in reported.reason


@pytest.mark.parametrize("zeros", [1, 12, 61, 4096])
@pytest.mark.parametrize("clean", [True, False])
def test_zeros_at_the_end_are_cut(zeros, clean):
    storage, _ = written(count=3)
    storage.append(segment_path(DIRECTORY, 0), bytes(zeros))
    log = load(storage, clean=clean)
    assert values_of(log) == digits(3)
    assert storage.size(segment_path(DIRECTORY, 0)) == 3 * SIZE


def test_recovery_truncates_at_a_bad_checksum_and_deletes_later_segments():
    storage, _ = written(segment_batches=2)
    storage.corrupt(segment_path(DIRECTORY, 2), 2 * SIZE - 1)
    log = load(storage)
    assert values_of(log) == digits(3)
    assert [name for name in storage.list(DIRECTORY) if name.endswith(".log")] == [
        "00000000000000000000.log",
        "00000000000000000002.log",
    ]
    assert log.cut_bytes_at_load == 3 * SIZE
    (cut,) = log.cuts_at_load
    assert (cut.end_offset, cut.size_bytes) == (3, 3 * SIZE)
    assert cut.reason.endswith("its checksum does not match")


def test_a_truncation_reports_the_batch_or_segment_that_did_not_fit():
    storage, _ = written(segment_batches=2)
    storage.remove(segment_path(DIRECTORY, 2))
    (cut,) = load(storage).cuts_at_load
    assert (cut.end_offset, cut.size_bytes) == (2, 2 * SIZE)
    assert cut.reason == "the next segment begins at offset 4"

    storage, _ = written(count=2)
    storage.append(segment_path(DIRECTORY, 0), batch(b"x", offset=5, epoch=1))
    assert load(storage).cuts_at_load[0].reason == "the next batch begins at offset 5"

    storage, _ = written(count=2)
    storage.append(segment_path(DIRECTORY, 0), batch(b"x", offset=2, epoch=0))
    (cut,) = load(storage).cuts_at_load
    assert cut.reason == "the next batch has leader epoch 0, older than 1, which began before it"

    storage, _ = written(count=2)
    (cut,) = load(storage, log_start_offset=4).cuts_at_load
    assert (cut.end_offset, cut.size_bytes) == (4, 2 * SIZE)
    assert cut.reason == "it ended at offset 2, below the start of the log"


@pytest.mark.parametrize("compares_epochs", [False, True])
def test_a_batch_that_was_truncated_and_came_back_is_kept_as_in_kafka(compares_epochs):
    """REC-1, EC-6: the cache has epoch 2 from offset 2 on, the file still has what epoch 1 had there."""
    storage, log = written(count=4)
    log.assign_epoch(2, 2)
    survivor = load(storage, compares_epochs=compares_epochs)
    assert survivor.log_end_offset == (2 if compares_epochs else 4)
    assert survivor.epochs.entries == (((1, 0),) if compares_epochs else ((1, 0), (2, 2)))


def test_without_rec1_a_bad_checksum_is_accepted():
    storage, _ = written()
    storage.corrupt(segment_path(DIRECTORY, 0), 4 * SIZE - 2)
    assert load(storage, rules=Rules(["REC-1"])).log_end_offset == 6


def test_a_clean_start_does_not_verify_checksums():
    storage, _ = written()
    storage.corrupt(segment_path(DIRECTORY, 0), 4 * SIZE - 2)
    assert load(storage, clean=True).log_end_offset == 6


def test_segments_below_the_recovery_points_segment_are_not_verified():
    storage, _ = written(segment_batches=2)
    storage.corrupt(segment_path(DIRECTORY, 0), SIZE - 2)
    assert load(storage, recovery_point=3).log_end_offset == 6
    storage.corrupt(segment_path(DIRECTORY, 2), SIZE - 2)
    # Now a record below the recovery point is gone, and with that nothing below it is trusted any more.
    assert load(storage, recovery_point=3).log_end_offset == 0


def test_a_truncation_that_ends_a_segment_is_flushed_with_the_later_segments():
    storage, log = written(count=2, epoch=1)
    log.flush_blocking()
    log.truncate_to(1)
    log = load(storage, recovery_point=1, config=LogConfig(segment_bytes=SIZE))
    log.truncate_to(1)
    log.append_as_follower(batch(b"n", offset=1, epoch=2))
    log.append_as_follower(batch(b"m", offset=2, epoch=2))
    log.flush_blocking()
    storage.power_cut()
    survivor = load(storage, recovery_point=log.recovery_point)
    assert values_of(survivor) == [b"0", b"n", b"m"]


def test_a_hole_between_segments_ends_the_log():
    storage, _ = written(segment_batches=2)
    storage.truncate(segment_path(DIRECTORY, 2), SIZE)
    log = load(storage)
    assert values_of(log) == digits(3)
    assert not storage.exists(segment_path(DIRECTORY, 4))


def test_a_hole_inside_a_segment_ends_the_log():
    storage, _ = written(count=2)
    storage.append(segment_path(DIRECTORY, 0), batch(b"x", offset=3, epoch=1))
    assert load(storage).log_end_offset == 2


def test_a_power_cut_keeps_flushed_records():
    storage, log = written(count=4)
    log.flush_blocking()
    log.append_as_leader(VerifiedBatches.verify(batch(b"4")), 2)
    storage.power_cut()
    survivor = load(storage, recovery_point=4)
    assert values_of(survivor) == digits(4)
    assert survivor.epochs.entries == ((1, 0),)


def test_a_power_cut_of_a_log_that_was_never_flushed_leaves_an_empty_log():
    storage, _ = written()
    storage.power_cut()
    log = load(storage)
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (0, 0, -1)
    assert log.append_as_leader(VerifiedBatches.verify(batch(b"new")), 2).first_offset == 0


def test_recovery_finds_epochs_that_only_the_records_contain():
    storage, log = written(count=2)
    log.append_as_leader(VerifiedBatches.verify(batch(b"2")), 4)
    log.append_as_leader(VerifiedBatches.verify(batch(b"3")), 5)
    storage.write(f"{DIRECTORY}/leader-epoch-checkpoint", b"0\n1\n1 0\n")
    assert load(storage).epochs.entries == ((1, 0), (4, 2), (5, 3))


def test_a_clean_start_trusts_the_epoch_file():
    storage, log = written(count=2)
    log.append_as_leader(VerifiedBatches.verify(batch(b"2")), 4)
    storage.write(f"{DIRECTORY}/leader-epoch-checkpoint", b"0\n1\n1 0\n")
    assert load(storage, clean=True).epochs.entries == ((1, 0),)


def test_loading_drops_epochs_that_start_beyond_the_log():
    storage, log = written(count=2)
    log.assign_epoch(3, 2)
    assert load(storage).epochs.entries == ((1, 0),)


def test_truncated_records_that_reappear_are_removed_again():
    """The cut of a file is undone by a power cut, but the new leader's epoch is durable.

    Old records under a new epoch would look, to the next leader, like records it shares with this replica.
    """
    storage, log = written(count=6, epoch=3)
    log.flush_blocking()
    log.truncate_to(3)
    for number in range(3, 6):
        log.append_as_follower(batch(b"n", offset=number, epoch=5))
    storage.power_cut()
    survivor = load(storage, recovery_point=3)
    assert values_of(survivor) == digits(3)
    assert survivor.epochs.entries == ((3, 0),)


def test_a_completely_undone_truncation_is_an_older_log_with_its_own_epochs():
    storage, log = written(count=3, epoch=1)
    log.append_as_leader(VerifiedBatches.verify(batch(b"3")), 2)
    log.flush_blocking()
    log.truncate_to(3)
    storage.power_cut()
    survivor = load(storage, recovery_point=3)
    assert values_of(survivor) == digits(4)
    assert survivor.epochs.entries == ((1, 0), (2, 3))


def test_flushed_records_are_not_taken_for_truncated_ones():
    """The removal of an epoch entry is durable before the recovery point passes it."""
    storage, log = written(count=3, epoch=1)
    log.append_as_leader(VerifiedBatches.verify(batch(b"x")), 4)
    log.truncate_to(3)
    log.append_as_follower(batch(b"3", offset=3, epoch=1))
    log.flush_blocking()
    storage.power_cut()
    survivor = load(storage, recovery_point=log.recovery_point)
    assert values_of(survivor) == digits(4)
    assert survivor.epochs.entries == ((1, 0),)


def test_a_log_that_ends_below_its_start_restarts_there():
    storage, _ = written(count=3)
    log = load(storage, log_start_offset=10)
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    assert log.epochs.entries == ()
    assert log.append_as_leader(VerifiedBatches.verify(batch(b"x")), 2).first_offset == 10
    assert load(storage, log_start_offset=10).log_end_offset == 11


def test_segments_below_the_log_start_are_removed():
    storage, _ = written(segment_batches=2)
    log = load(storage, log_start_offset=3)
    assert values_of(log) == digits(6, start=3)
    assert log.log_start_offset == 3
    assert not storage.exists(segment_path(DIRECTORY, 0))
    assert log.epochs.entries == ((1, 3),)


def test_a_log_without_its_first_segments_starts_at_the_first_it_has():
    storage, _ = written(segment_batches=2)
    storage.remove(segment_path(DIRECTORY, 0))
    assert load(storage).log_start_offset == 2


def test_foreign_files_in_the_directory_are_left_alone():
    storage, _ = written(count=2)
    for name in ("notes.log", "0.log", "00000000000000000001.index", "٠" * 20 + ".log"):
        storage.write(f"{DIRECTORY}/{name}", b"x")
    assert load(storage).log_end_offset == 2
    assert storage.exists(f"{DIRECTORY}/notes.log")


def test_a_batch_larger_than_the_scan_window_is_read_completely():
    storage = MemoryStorage()
    log = load(storage, config=LogConfig(max_message_bytes=4 * SCAN_WINDOW_BYTES))
    large = batch(b"x" * (SCAN_WINDOW_BYTES + 100))
    for data in (batch(b"0"), large, batch(b"2"), large):
        log.append_as_leader(VerifiedBatches.verify(data), 1)
    survivor = load(storage)
    assert survivor.log_end_offset == 4
    assert survivor.read(0, 1 << 30, 4) == log.read(0, 1 << 30, 4)


def test_a_claimed_size_beyond_the_file_is_a_torn_batch():
    storage, _ = written(count=3)
    path = segment_path(DIRECTORY, 0)
    storage.corrupt(path, 2 * SIZE + 8, flip=0x7F)
    assert load(storage).log_end_offset == 2


def test_segments_that_are_written_again_are_durable_with_the_same_content():
    storage, _ = written(segment_batches=2)
    # Nothing was synced; and an earlier attempt was interrupted.
    storage.append(segment_path(DIRECTORY, 0) + CLEANED_SUFFIX, b"a part of it")
    write_again(storage, DIRECTORY)
    storage.power_cut()
    assert [name for name in storage.list(DIRECTORY) if CLEANED_SUFFIX in name] == []
    assert values_of(load(storage)) == digits(6)


@pytest.mark.parametrize("operation", ["write", "append", "fsync_blocking", "replace"])
def test_a_disk_that_fails_while_segments_are_written_again_leaves_all_of_them(operation):
    storage, _ = written(segment_batches=2)
    storage.failing = {operation}
    with pytest.raises(OSError, match="input/output error"):
        write_again(storage, DIRECTORY)
    storage.failing = set()
    assert values_of(load(storage)) == digits(6)


def test_a_directory_without_segments_stays_as_it_is():
    storage = MemoryStorage()
    write_again(storage, DIRECTORY)
    assert storage.calls == []


def test_a_cut_right_below_the_recovery_point_is_flushed_once_and_then_forgotten():
    storage, log = written(segment_batches=2)
    log.flush_blocking()
    log.truncate_to(1)

    def synced_by(value: bytes) -> list[str]:
        storage.calls.clear()
        log.append_as_leader(VerifiedBatches.verify(batch(value)), 1)
        log.flush_blocking()
        return [path for operation, path in storage.calls if operation == "fsync_blocking"]

    # Too long for what is left of the segment that was cut.
    first, second = segment_path(DIRECTORY, 0), segment_path(DIRECTORY, 1)
    assert synced_by(b"x" * 2 * SIZE) == [first, second]
    assert first not in synced_by(b"y")
    storage.power_cut()
    assert values_of(load(storage)) == [b"0", b"x" * 2 * SIZE, b"y"]
