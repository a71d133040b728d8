"""Snapshot files: Kafka's names, and only complete ones, whatever a power cut leaves."""

import asyncio

import pytest

from system_under_test.metadata.records import ConfigRecord
from system_under_test.metadata.snapshot import SnapshotId
from system_under_test.protocol.snapshot_codec import encode_snapshot
from system_under_test.raft.snapshots import SnapshotError, SnapshotFiles, snapshot_name
from tests.memory_storage import MemoryStorage

DIRECTORY = "data/__cluster_metadata-0"
FIRST = SnapshotId(end_offset=10, epoch=1)
SECOND = SnapshotId(end_offset=200, epoch=3)
RECORDS = (ConfigRecord(resource_type=2, resource_name="t", name="n", value="v"),)


def opened(storage: MemoryStorage) -> SnapshotFiles:
    files = SnapshotFiles(storage, DIRECTORY)
    files.open()
    return files


def write(files: SnapshotFiles, snapshot_id: SnapshotId, timestamp_ms: int = 5) -> None:
    path = files.begin(snapshot_id)
    files.append(path, encode_snapshot(RECORDS, snapshot_id, timestamp_ms=timestamp_ms))
    asyncio.run(files.sync(path))
    files.publish(path, snapshot_id)


def test_names_are_kafkas() -> None:
    assert snapshot_name(SECOND) == "00000000000000000200-0000000003.checkpoint"


def test_what_was_published_survives_a_power_cut_and_is_found_in_order() -> None:
    storage = MemoryStorage()
    files = opened(storage)
    write(files, SECOND)
    write(files, FIRST)
    assert files.ids == (FIRST, SECOND)
    storage.power_cut()
    again = opened(storage)
    assert (again.oldest, again.newest) == (FIRST, SECOND)
    assert again.load(SECOND).records == RECORDS
    assert again.timestamp_ms(SECOND) == 5


def test_temporary_files_and_other_names_are_no_snapshots() -> None:
    storage = MemoryStorage()
    files = opened(storage)
    write(files, FIRST)
    part = files.begin(SECOND)
    storage.write(f"{DIRECTORY}/quorum-state", b"{}")
    storage.write(f"{DIRECTORY}/1-2.checkpoint", b"")
    again = opened(storage)
    assert again.ids == (FIRST,)
    assert not storage.exists(part)
    assert storage.exists(f"{DIRECTORY}/quorum-state")


def test_two_temporary_files_of_one_snapshot_do_not_meet() -> None:
    files = opened(MemoryStorage())
    assert files.begin(FIRST) != files.begin(FIRST)


def test_older_snapshots_are_gone_for_good_before_anything_else_is_removed() -> None:
    storage = MemoryStorage()
    files = opened(storage)
    write(files, FIRST)
    write(files, SECOND)
    files.remove_older_than(SECOND)
    storage.power_cut()
    assert opened(storage).ids == (SECOND,)


def test_a_damaged_snapshot_names_its_file_and_a_repair() -> None:
    storage = MemoryStorage()
    files = opened(storage)
    write(files, FIRST)
    path = f"{DIRECTORY}/{snapshot_name(FIRST)}"
    storage.write(path, storage.read(path)[:-1])
    with pytest.raises(SnapshotError, match=f"{path} is damaged.*restore it, or wipe"):
        files.load(FIRST)
