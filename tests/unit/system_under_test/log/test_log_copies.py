"""A log that moves to another directory: its copy, and what a crash in the middle leaves (EC-7)."""

import asyncio
import random
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from system_under_test.config import NodeConfig, Voter
from system_under_test.log.checkpoints import CLEANER_CHECKPOINT, OffsetCheckpoint
from system_under_test.log.cleaner import clean, cleanable
from system_under_test.log.copies import SUPERSEDED_MARK, UNFINISHED_MARK
from system_under_test.log.manager import LogManager, MoveFailedError
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.record_batch import encode_batch
from tests.memory_storage import MemoryStorage

TOPIC_ID = UUID(int=0x1234)


def logs_of(storage: MemoryStorage, **failures: Any) -> LogManager:
    config = NodeConfig(
        node_id=1,
        role="broker",
        address="b1:9092",
        cluster_id="c",
        voters=(Voter(node_id=11, address="c11:9093"),),
        log_dirs=("d1", "d2"),
    )
    logs = LogManager(storage, config, random.Random(7))
    logs.on_directory_failed = failures.get("failed", lambda *_: None)
    logs.load_all()
    return logs


def append(logs: LogManager, count: int, *, epoch: int = 1) -> None:
    log = logs.get_or_create("t", 0, TOPIC_ID)
    for _ in range(count):
        batch = encode_batch([(None, b"x" * 10)], timestamp_ms=1)
        log.append_as_leader(VerifiedBatches.verify(batch), epoch)


def copy_all(logs: LogManager) -> None:
    for _ in range(100):
        if logs.extend_copy("t", 0, 100):
            return
    raise AssertionError("the copy never has all records")


def test_a_copy_gets_the_records_the_epochs_and_the_directory() -> None:
    storage = MemoryStorage()
    logs = logs_of(storage)
    append(logs, 3, epoch=1)
    append(logs, 2, epoch=3)
    logs.get("t", 0).assign_epoch(5, 5)
    logs.write_high_watermarks({("t", 0): 4})
    logs.begin_copy("t", 0, "d2")
    assert logs.directory_name("t", 0) == "d1"
    copy_all(logs)
    append(logs, 1, epoch=5)
    copy_all(logs)
    log = logs.adopt_copy("t", 0)
    assert log is logs.get("t", 0)
    assert logs.directory_name("t", 0) == "d2"
    assert (log.log_end_offset, log.epochs.entries) == (6, ((1, 0), (3, 3), (5, 5)))
    assert storage.list("d1/t-0") == []
    append(logs, 1, epoch=5)
    again = logs_of(storage)
    assert again.directory_name("t", 0) == "d2"
    assert again.get("t", 0).log_end_offset == 7
    assert again.checkpointed_high_watermark("t", 0) == 4


def test_an_epoch_without_records_moves_as_well() -> None:
    logs = logs_of(MemoryStorage())
    append(logs, 3)
    logs.get("t", 0).assign_epoch(7, 3)
    logs.begin_copy("t", 0, "d2")
    copy_all(logs)
    assert logs.copy_of("t", 0)[2].epochs.entries == ((1, 0),)
    assert logs.adopt_copy("t", 0).epochs.entries == ((1, 0), (7, 3))


def test_a_truncation_lets_the_copy_begin_anew() -> None:
    """Other records may have replaced those that were copied, at the same offsets."""
    logs = logs_of(MemoryStorage())
    append(logs, 5, epoch=1)
    logs.begin_copy("t", 0, "d2")
    copy_all(logs)
    source = logs.get("t", 0)
    source.truncate_to(2)
    append(logs, 3, epoch=2)
    copy_all(logs)
    log = logs.adopt_copy("t", 0)
    assert log.epochs.entries == ((1, 0), (2, 2))
    assert [header.leader_epoch for header in log.headers()] == [1, 1, 2, 2, 2]


def test_a_move_that_is_given_up_leaves_nothing() -> None:
    storage = MemoryStorage()
    logs = logs_of(storage)
    append(logs, 3)
    logs.begin_copy("t", 0, "d2")
    copy_all(logs)
    logs.drop_copy("t", 0)
    logs.drop_copy("t", 0)
    assert storage.list("d2/t-0") == []
    assert logs.copy_of("t", 0) is None


def test_a_copy_that_was_not_finished_is_removed_at_the_next_start() -> None:
    storage = MemoryStorage()
    logs = logs_of(storage)
    append(logs, 3)
    logs.begin_copy("t", 0, "d2")
    copy_all(logs)
    again = logs_of(storage)
    assert again.directory_name("t", 0) == "d1"
    assert again.get("t", 0).log_end_offset == 3
    assert storage.list("d2/t-0") == []


def test_a_crash_while_the_copy_replaces_the_log_leaves_exactly_one_of_them() -> None:
    for steps in range(40):
        storage = MemoryStorage()
        logs = logs_of(storage)
        append(logs, 3)
        logs.begin_copy("t", 0, "d2")
        copy_all(logs)
        has_crashed = _crash_after(storage, steps, partial(logs.adopt_copy, "t", 0))
        again = logs_of(storage)
        assert again.get("t", 0).log_end_offset == 3, steps
        for directory in ("d1", "d2"):
            names = storage.list(f"{directory}/t-0")
            assert (names == []) == (again.directory_name("t", 0) != directory), (steps, names)
            assert not {SUPERSEDED_MARK, UNFINISHED_MARK} & set(names), steps
        if not has_crashed:
            assert steps > 8, "the test must have interrupted every step"
            return
    raise AssertionError("adopt_copy has more steps than the test allows")


class Crash(BaseException):
    """The process ends."""


def _crash_after(storage: MemoryStorage, steps: int, action: Any) -> bool:
    """Runs an action and lets the process end after so many changes of the disk; False if it ended before."""
    call, left = storage._call, [steps]

    def counted(operation: str, path: str) -> None:
        if not left[0]:
            raise Crash
        left[0] -= 1
        call(operation, path)

    storage._call = counted  # type: ignore[method-assign]
    try:
        action()
    except Crash:
        return True
    finally:
        storage._call = call  # type: ignore[method-assign]
    return False


def test_a_source_whose_copy_is_in_an_offline_directory_is_not_used() -> None:
    """It is older than the copy, and would pass for the replica."""
    storage = MemoryStorage()
    logs = logs_of(storage)
    append(logs, 3)
    storage.write(f"d1/t-0/{SUPERSEDED_MARK}", b"")
    exists = storage.exists

    def broken(path: str) -> bool:
        if path.startswith("d2/"):
            raise OSError(5, "input/output error", path)
        return exists(path)

    storage.exists = broken  # type: ignore[method-assign]
    assert logs_of(storage).get("t", 0) is None
    storage.exists = exists  # type: ignore[method-assign]
    assert logs_of(storage).get("t", 0).log_end_offset == 3, "there is no copy any more"


def test_a_failed_source_takes_its_copy_along() -> None:
    storage = MemoryStorage()
    logs = logs_of(storage)
    logs.get_or_create("t", 0, TOPIC_ID, logs.directory_ids[1])
    append(logs, 3)
    logs.begin_copy("t", 0, "d1")
    copy_all(logs)
    assert logs.partition_failed("t", 0, OSError(5, "input/output error"))
    assert logs.copy_of("t", 0) is None
    assert storage.list("d1/t-0") == []
    assert logs.get("t", 0) is None


def test_a_failed_target_ends_the_move_and_not_the_log() -> None:
    storage = MemoryStorage()
    failed: list[UUID] = []
    logs = logs_of(storage, failed=lambda directory, keys, error: failed.append(directory))
    append(logs, 3)
    target = logs.directory_ids[1]
    call = storage._call

    def broken(operation: str, path: str) -> None:
        if path.startswith("d2/"):
            raise OSError(5, "input/output error", path)
        call(operation, path)

    logs.begin_copy("t", 0, "d2")
    storage._call = broken  # type: ignore[method-assign]
    with pytest.raises(MoveFailedError, match="input/output"):
        copy_all(logs)
    assert failed == [target]
    assert logs.copy_of("t", 0) is None
    append(logs, 1)
    assert logs.get("t", 0).log_end_offset == 4
    assert logs.directory_states() == {"d1": True, "d2": False}
    with pytest.raises(MoveFailedError, match="d2 is offline"):
        logs.begin_copy("t", 0, "d2")
    asyncio.run(logs.shutdown(5))


def test_a_log_that_starts_inside_of_a_batch_moves_with_its_log_start() -> None:
    """DeleteRecords raises the log start to any offset; the batch around it is copied as a whole."""
    logs = logs_of(MemoryStorage())
    source = logs.get_or_create("t", 0, TOPIC_ID)
    for epoch in (1, 2):
        batch = encode_batch([(None, b"x")] * 4, timestamp_ms=1)
        source.append_as_leader(VerifiedBatches.verify(batch), epoch)
    source.advance_log_start(2)
    logs.begin_copy("t", 0, "d2")
    copy_all(logs)
    log = logs.adopt_copy("t", 0)
    assert (log.log_start_offset, log.log_end_offset) == (2, 8)
    assert [header.base_offset for header in log.headers()] == [0, 4]
    assert log.epochs.entries == source.epochs.entries == ((1, 2), (2, 4))


def test_a_raised_log_start_reaches_the_copy() -> None:
    logs = logs_of(MemoryStorage())
    append(logs, 6)
    logs.begin_copy("t", 0, "d2")
    logs.extend_copy("t", 0, 100)
    source = logs.get("t", 0)
    source.advance_log_start(source.log_end_offset)
    append(logs, 1)
    copy_all(logs)
    log = logs.adopt_copy("t", 0)
    assert (log.log_start_offset, log.log_end_offset) == (6, 7)


def test_settings_and_the_progress_of_the_cleaner_move_with_a_log() -> None:
    storage = MemoryStorage()
    logs = logs_of(storage)
    append(logs, 4)
    logs.begin_copy("t", 0, "d2")
    copy_all(logs)
    source = logs.get("t", 0)
    source.configure(replace(source.config, segment_bytes=100))
    source.first_dirty_offset = 3
    logs.write_first_dirty_offsets("t", 0)
    log = logs.adopt_copy("t", 0)
    assert (log.config.segment_bytes, log.first_dirty_offset) == (100, 3)
    again = logs_of(storage)
    assert again.get("t", 0).first_dirty_offset == 3
    assert OffsetCheckpoint(storage, f"d1/{CLEANER_CHECKPOINT}").read() == {}


def test_a_compaction_lets_the_copy_begin_anew() -> None:
    """What was copied may have records that the cleaner removed."""
    storage = MemoryStorage()
    logs = logs_of(storage)
    source = logs.get_or_create("t", 0, TOPIC_ID)
    source.configure(replace(source.config, segment_bytes=100, cleanup_policy="compact"))
    for value in (b"1", b"2", b"3"):
        batch = encode_batch([(b"k", value)] * 2, timestamp_ms=1)
        source.append_as_leader(VerifiedBatches.verify(batch), 1)
        source.roll()
    logs.begin_copy("t", 0, "d2")
    copy_all(logs)
    work = cleanable(source, high_watermark=6, now_ms=10)
    assert work is not None
    assert asyncio.run(clean(work, storage, 10))
    copy_all(logs)
    log = logs.adopt_copy("t", 0)
    assert log.size_bytes < 3 * 100
    assert [header.record_count for header in log.headers()] == [0, 0, 1]
