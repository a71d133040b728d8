"""One contract for every storage: the real one, the simulated one, and the one that tests use."""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.simulation.storage import NodeStorage
from harness.simulation.world import World
from system_under_test.config import LogConfig
from system_under_test.log.log import Log
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.record_batch import encode_batch
from system_under_test.real.storage import DirectoryInUseError, RealStorage
from tests.memory_storage import MemoryStorage

KINDS = ("real", "simulated", "memory")


@pytest.fixture(params=KINDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "real":
        real = RealStorage(tmp_path / "data")
        yield real
        real.close()
    elif request.param == "simulated":
        with World(1) as world:
            node = world.add_node("b1", kind="broker", address="b1:9092")
            yield NodeStorage(node.disk, None)
    else:
        yield MemoryStorage()


def test_appended_bytes_are_read_back(storage: Any) -> None:
    storage.append("a/b/log", b"one")
    storage.append("a/b/log", b"two")
    assert storage.read("a/b/log") == b"onetwo"
    assert storage.read("a/b/log", 2, 3) == b"etw"
    assert storage.read("a/b/log", 6, 10) == b""
    assert storage.read("a/b/log", 4) == b"wo"
    assert storage.size("a/b/log") == 6


def test_an_empty_append_creates_the_file(storage: Any) -> None:
    assert not storage.exists("a/log")
    storage.append("a/log", b"")
    assert storage.exists("a/log")
    assert storage.size("a/log") == 0


def test_write_replaces_the_content(storage: Any) -> None:
    storage.write("f", b"long content")
    storage.write("f", b"short")
    assert storage.read("f") == b"short"


def test_names_are_listed_sorted_files_and_directories_alike(storage: Any) -> None:
    for path in ("d/z", "d/a", "d/sub/x", "other"):
        storage.append(path, b"x")
    assert storage.list("d") == ["a", "sub", "z"]
    assert storage.list("no-such-directory") == []
    assert storage.list("d/sub") == ["x"]


def test_a_file_is_cut(storage: Any) -> None:
    storage.append("f", b"123456")
    storage.truncate("f", 2)
    storage.append("f", b"x")
    assert storage.read("f") == b"12x"


def test_a_rename_replaces_the_target(storage: Any) -> None:
    storage.write("d/new", b"new")
    storage.write("d/file", b"old")
    storage.replace("d/new", "d/file")
    assert storage.read("d/file") == b"new"
    assert storage.list("d") == ["file"]
    storage.append("d/file", b"er")
    assert storage.read("d/file") == b"newer"


def test_a_removed_file_is_gone_and_can_be_recreated_empty(storage: Any) -> None:
    storage.append("d/f", b"x")
    storage.remove("d/f")
    assert not storage.exists("d/f")
    assert storage.list("d") == []
    storage.append("d/f", b"y")
    assert storage.read("d/f") == b"y"


@pytest.mark.parametrize("call", ["read", "size", "remove"])
def test_a_missing_file_is_not_found(storage: Any, call: str) -> None:
    with pytest.raises(FileNotFoundError):
        getattr(storage, call)("no/such/file")


def test_fsync_does_not_change_what_is_read(storage: Any) -> None:
    storage.append("d/f", b"x")
    storage.fsync_blocking("d/f")
    storage.fsync_dir("d")
    assert storage.read("d/f") == b"x"


def test_a_log_works_on_every_storage(storage: Any) -> None:
    config = LogConfig(segment_bytes=300)
    log = Log.load(storage, "data/t-0", config, had_clean_shutdown=True)
    for value in range(20):
        log.append_as_leader(
            VerifiedBatches.verify(encode_batch([(None, b"%d" % value)], timestamp_ms=1)), 3
        )
    log.truncate_to(11)
    log.flush_blocking()
    again = Log.load(storage, "data/t-0", config, had_clean_shutdown=False)
    assert (again.log_end_offset, again.latest_epoch, again.cut_bytes_at_load) == (11, 3, 0)
    again.delete()
    assert storage.list("data") == []


# --- what only the real one can show


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealStorage]:
    storage = RealStorage(tmp_path / "data")
    yield storage
    storage.close()


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a\0b"])
def test_no_path_leaves_the_data_directory(real: RealStorage, path: str) -> None:
    for call in (real.read, real.remove, real.size):
        with pytest.raises(ValueError, match="not a relative path"):
            call(path)
    with pytest.raises(ValueError, match="not a relative path"):
        real.append(path, b"x")


def test_a_directory_belongs_to_one_process(real: RealStorage) -> None:
    with pytest.raises(DirectoryInUseError, match="in use by another process"):
        RealStorage(real.root)


def test_a_closed_directory_may_be_opened_again(tmp_path: Path) -> None:
    first = RealStorage(tmp_path)
    first.append("f", b"x")
    first.close()
    second = RealStorage(tmp_path)
    assert second.read("f") == b"x"
    second.close()


def test_more_files_than_the_open_file_limit_can_be_used(
    real: RealStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("system_under_test.real.storage.OPEN_FILES_MAX", 4)
    for number in range(20):
        real.append(f"f{number}", b"%d" % number)
    for number in range(20):
        real.append(f"f{number}", b"!")
        assert real.read(f"f{number}") == b"%d!" % number


def test_an_awaited_fsync_survives_the_removal_of_its_file(real: RealStorage) -> None:
    async def fsync_and_remove() -> None:
        real.append("f", b"x")
        waiting = asyncio.ensure_future(real.fsync("f"))
        await asyncio.sleep(0)
        real.remove("f")
        await waiting

    asyncio.run(fsync_and_remove())
    assert not real.exists("f")


def test_a_full_disk_leaves_a_prefix_and_raises_an_error(
    real: RealStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write: Callable[[int, Any], int] = os.write
    room = [5]

    def limited(descriptor: int, data: Any) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        count = min(room[0], len(data))
        room[0] -= count
        return write(descriptor, data[:count])

    monkeypatch.setattr(os, "write", limited)
    with pytest.raises(OSError, match="No space left"):
        real.append("f", b"12345678")
    assert real.read("f") == b"12345"


def test_new_directories_are_made_durable_up_to_the_root(
    real: RealStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(real, "_fsync_one_directory", synced.append)
    real.append("a/b/f", b"x")
    real.fsync_dir("a/b")
    assert synced == ["a/b", "a", ""]
    real.fsync_dir("a/b")
    assert synced == ["a/b", "a", "", "a/b"]
