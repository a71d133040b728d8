"""Power cuts of real disks: what each mode leaves, of one node and of several at one instant."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nemesis.agent.disks.disk import NodeDisk
from nemesis.agent.disks.images import FLUSH, LOG_FLUSH
from nemesis.agent.disks.power_cut import CutPlan, CutReport, cut
from nemesis.agent.disks.snapshot import take_snapshot
from nemesis.agent.disks.synthesis import MODES
from nemesis.agent.errors import AgentError
from system_under_test.protocol.record_batch import encode_batch
from tests.containers.disk_rig import FILESYSTEMS, disk_folder, make, write

SYNCED = bytes(range(1, 251)) * 24  # 6000 bytes
UNSYNCED = bytes(range(250, 0, -1)) * 120  # 30000 bytes, none of them zero
WHOLE = SYNCED + UNSYNCED
BATCH_BYTES = len(encode_batch([(None, b"v" * 40)], timestamp_ms=1))


@pytest.fixture
def folder() -> Iterator[Path]:
    with disk_folder() as folder:
        yield folder


@pytest.fixture(params=FILESYSTEMS)
def disk(request: pytest.FixtureRequest, folder: Path) -> NodeDisk:
    return make(folder, "b1", request.param)


def cut_one(disk: NodeDisk, mode: str = "lose_all", seed: int = 1, **plan: int) -> CutReport:
    (report,) = cut([disk], [CutPlan(mode=mode, seed=seed, **plan)], lambda _: None)
    return report


def outcomes(disk: NodeDisk, mode: str, seeds: range) -> list[bytes]:
    """Returns what is left of a file of which only a part is durable, once per seed."""
    path = disk.data / "f"
    found = []
    for seed in seeds:
        path.unlink(missing_ok=True)
        write(path, SYNCED, sync=True)
        write(path, UNSYNCED)
        report = cut_one(disk, mode, seed)
        left = path.read_bytes()
        assert left[: len(SYNCED)] == SYNCED
        assert report.unsynced_bytes_before == len(UNSYNCED)
        same = next(
            (at for at, (a, b) in enumerate(zip(left, WHOLE, strict=False)) if a != b), len(left)
        )
        assert report.lost_bytes == len(WHOLE) - same
        found.append(left)
    return found


# Modes


def test_lose_all_leaves_what_was_synced(disk: NodeDisk) -> None:
    assert outcomes(disk, "lose_all", range(2)) == [SYNCED, SYNCED]


def test_keep_all_leaves_everything(disk: NodeDisk) -> None:
    assert outcomes(disk, "keep_all", range(2)) == [WHOLE, WHOLE]


def test_prefix_ends_at_a_page(disk: NodeDisk) -> None:
    left = outcomes(disk, "prefix", range(8))
    assert len(set(left)) > 3
    for content in left:
        assert WHOLE.startswith(content)
        assert len(content) % 4096 == 0 or content in (SYNCED, WHOLE)


def test_a_torn_sector_ends_at_a_sector(disk: NodeDisk) -> None:
    left = outcomes(disk, "torn_sector", range(8))
    assert any(len(content) % 4096 for content in left)
    for content in left:
        assert WHOLE.startswith(content)
        assert len(content) % 512 == 0 or content in (SYNCED, WHOLE)


def test_a_zero_tail_is_a_prefix_followed_by_zeros(disk: NodeDisk) -> None:
    left = outcomes(disk, "zero_tail", range(8))
    assert any(content.endswith(b"\0") for content in left)
    for content in left:
        assert WHOLE.startswith(content.rstrip(b"\0"))
        assert len(content) <= len(WHOLE)


def test_any_subset_of_the_unsynced_pages_may_survive(disk: NodeDisk) -> None:
    left = outcomes(disk, "pages", range(8))
    assert any(b"\0" in content for content in left)
    for content in left:
        for at in range(0, len(content), 4096):
            page = content[max(at, len(SYNCED)) : at + 4096]
            assert page in (WHOLE[max(at, len(SYNCED)) : at + 4096], bytes(len(page)))


@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_leaves_the_same_content(disk: NodeDisk, mode: str) -> None:
    first = outcomes(disk, mode, range(3))
    assert outcomes(disk, mode, range(3)) == first


def test_unknown_power_cut_modes_are_refused() -> None:
    with pytest.raises(AgentError, match="known: lose_all, prefix"):
        CutPlan(mode="lose_some")


# Names


def change_names(disk: NodeDisk) -> None:
    """Leaves a rename, a removal, a new file and a new folder, none of them durable."""
    write(disk.data / "checkpoint", b"old", sync=True)
    write(disk.data / "marker", b"clean", sync=True)
    write(disk.data / "checkpoint.tmp", b"new one", sync=True)
    os.rename(disk.data / "checkpoint.tmp", disk.data / "checkpoint")
    os.unlink(disk.data / "marker")
    write(disk.data / "t-0" / "0.log", b"record")
    os.chmod(disk.data / "t-0" / "0.log", 0o640)


def test_unsynced_name_changes_are_undone(disk: NodeDisk) -> None:
    change_names(disk)
    report = cut_one(disk)
    assert sorted(os.listdir(disk.data)) == ["checkpoint", "checkpoint.tmp", "marker"]
    assert (disk.data / "checkpoint").read_bytes() == b"old"
    assert report.returned == ("checkpoint.tmp", "marker")
    assert report.missing == ("t-0", "t-0/0.log")
    assert report.took_effect


def test_name_changes_survive_together(disk: NodeDisk) -> None:
    change_names(disk)
    report = cut_one(disk, "keep_all")
    assert sorted(os.listdir(disk.data)) == ["checkpoint", "t-0"]
    assert (disk.data / "checkpoint").read_bytes() == b"new one"
    assert (disk.data / "t-0" / "0.log").read_bytes() == b"record"
    assert (disk.data / "t-0" / "0.log").stat().st_mode & 0o777 == 0o640
    assert (report.returned, report.missing, report.lost_bytes) == ((), (), 0)
    assert not report.took_effect


def test_swapped_files_survive_under_their_new_names(disk: NodeDisk) -> None:
    write(disk.data / "a", b"first", sync=True)
    write(disk.data / "b", b"second", sync=True)
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        os.rename(disk.data / old, disk.data / new)
    cut_one(disk, "keep_all")
    assert (disk.data / "a").read_bytes() == b"second"
    assert (disk.data / "b").read_bytes() == b"first"
    cut_one(disk)
    assert sorted(os.listdir(disk.data)) == ["a", "b"], "what was given back is durable"


def test_the_oldest_of_several_creations_may_come_back_alone(disk: NodeDisk) -> None:
    names = [f"f{number}" for number in range(6)]
    seen = set()
    for seed in range(10):
        for name in names:
            write(disk.data / name, b"x")
            # The clock of inodes is coarse, and files of one tick stay together.
            os.sched_yield()
            subprocess.run(["sleep", "0.005"], check=True)
        cut_one(disk, "prefix", seed)
        left = sorted(os.listdir(disk.data))
        assert left == names[: len(left)]
        seen.add(len(left))
        for name in left:
            os.unlink(disk.data / name)
        cut_one(disk, "keep_all")
    assert len(seen) > 2


def test_inspecting_a_file_does_not_write_it_back(folder: Path) -> None:
    """Closing a file that was cut makes xfs write it back, whichever process closes it."""
    disk = make(folder, "b1", "xfs")
    path = disk.data / "f"
    write(path, b"A" * 13096, sync=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.ftruncate(descriptor, 1055)
        os.write(descriptor, b"B" * 4000)
        report = cut([disk], [CutPlan()], lambda _: os.close(descriptor))[0]
    except BaseException:
        os.close(descriptor)
        raise
    assert path.read_bytes() == b"A" * 13096
    assert report.lost_bytes == 4000


@pytest.mark.parametrize(
    ("flag", "left"), [(FLUSH, {"f": b"content"}), (LOG_FLUSH, {"f": b""})], ids=["all", "log"]
)
def test_a_file_system_may_write_something_before_it_dies(
    disk: NodeDisk, flag: int, left: dict[str, bytes]
) -> None:
    write(disk.data / "f", b"content")
    cut_one(disk, flag=flag)
    assert {path.name: path.read_bytes() for path in disk.data.iterdir()} == left


# Exact cuts


def write_log(disk: NodeDisk, partition: str, count: int, synced: int = 0, first: int = 0) -> Path:
    path = disk.data / "data" / partition / "00000000000000000000.log"
    for offset in range(first, first + count):
        batch = encode_batch([(None, b"v" * 40)], timestamp_ms=1, base_offset=offset)
        write(path, batch, sync=offset < synced)
    return path


def test_an_exact_cut_keeps_exactly_the_given_number_of_records(disk: NodeDisk) -> None:
    logs = [write_log(disk, f"t-{index}", count) for index, count in enumerate((8, 3, 6))]
    cut_one(disk, keep_records=5)
    sizes = [log.stat().st_size for log in logs]
    assert sizes == [5 * BATCH_BYTES, 3 * BATCH_BYTES, 5 * BATCH_BYTES]


def test_an_exact_cut_may_tear_the_record_after_it(disk: NodeDisk) -> None:
    log = write_log(disk, "t-0", 8, synced=2)
    whole = log.read_bytes()
    cut_one(disk, keep_records=5, torn_bytes=20)
    assert log.read_bytes() == whole[: 5 * BATCH_BYTES + 20]


def test_an_exact_cut_never_removes_durable_bytes(disk: NodeDisk) -> None:
    log = write_log(disk, "t-0", 8, synced=6)
    report = cut_one(disk, keep_records=5)
    assert log.stat().st_size == 6 * BATCH_BYTES
    (note,) = report.notes
    assert (
        f"{6 * BATCH_BYTES} bytes were durable, more than the requested {5 * BATCH_BYTES}" in note
    )


def test_an_exact_cut_leaves_other_files_to_the_mode(disk: NodeDisk) -> None:
    # All syncs first: a commit of ext4's journal includes bytes appended to a block on disk.
    log = write_log(disk, "t-0", 1, synced=1)
    metadata = write_log(disk, "__cluster_metadata-0", 7, synced=7)
    write_log(disk, "t-0", 7, first=1)
    write_log(disk, "__cluster_metadata-0", 1, first=7)
    cut_one(disk, keep_records=5)
    assert log.stat().st_size == 5 * BATCH_BYTES
    assert metadata.stat().st_size == 7 * BATCH_BYTES


# Several nodes, and their processes


def test_nodes_lose_power_together_before_their_processes_end(folder: Path) -> None:
    disks = [make(folder, f"b{index}", FILESYSTEMS[index % 2]) for index in range(3)]
    for disk in disks:
        write(disk.data / "f", SYNCED, sync=True)
        write(disk.data / "f", UNSYNCED)
    errors: dict[int, int] = {}

    def kill(index: int) -> None:
        try:
            write(disks[index].data / "f", b"too late")
        except OSError as error:
            errors[index] = error.errno or 0

    modes = ("lose_all", "keep_all", "prefix")
    reports = cut(disks, [CutPlan(mode=mode, seed=3) for mode in modes], kill)
    assert errors == {index: errno.EIO for index in range(3)}
    assert [report.mode for report in reports] == list(modes)
    assert [report.cached_bytes for report in reports] == [len(WHOLE)] * 3
    assert reports[0].lost_bytes == len(UNSYNCED)
    assert reports[1].lost_bytes == 0
    assert len({report.skew_ns for report in reports}) == 1
    assert reports[0].skew_ns < 50_000_000
    assert all(disk.is_mounted for disk in disks)
    assert reports[2].to_json()["timings_ms"]["total"] > 0


def test_a_process_with_open_files_loses_its_disk_and_is_ended(disk: NodeDisk) -> None:
    program = (
        "import os, sys\nfile = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\n"
        "os.write(file, b'x' * 9000)\nos.fsync(file)\nprint('synced', flush=True)\n"
        "while True: os.write(file, b'y')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, os.fspath(disk.data / "f")], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)

        def kill(index: int) -> None:
            process.kill()
            process.wait()

        (report,) = cut([disk], [CutPlan()], kill)
    finally:
        process.kill()
        process.communicate()
    assert (disk.data / "f").read_bytes()[:9000] == b"x" * 9000
    assert report.cached_bytes >= 9000


def test_one_node_that_cannot_be_ended_does_not_keep_the_others_down(folder: Path) -> None:
    disks = [make(folder, f"b{index}", "ext4") for index in range(2)]

    def kill(index: int) -> None:
        if index == 1:
            raise AgentError("b1's process does not die")

    with pytest.raises(AgentError, match="does not die"):
        cut(disks, [CutPlan(), CutPlan()], kill)
    assert disks[0].probe_write()["errno"] == 0
    disks[1].unmount()
    disks[1].mount()
    assert disks[1].probe_write()["errno"] == 0


def test_a_disk_that_is_already_shut_down_is_mounted_again(disk: NodeDisk) -> None:
    write(disk.data / "f", b"x", sync=True)
    disk.shutdown()
    report = cut_one(disk, "keep_all")
    assert report.notes == (
        "nothing was written back to this disk: it was shut down before the cut",
    )
    assert not report.took_effect
    assert (disk.data / "f").read_bytes() == b"x"


def test_a_read_only_disk_is_read_only_after_a_power_cut(disk: NodeDisk) -> None:
    write(disk.data / "f", b"x")
    disk.unmount()
    disk.mount(read_only=True)
    report = cut_one(disk, "keep_all")
    assert disk.is_read_only
    assert (disk.data / "f").read_bytes() == b"x"
    assert not report.took_effect


@pytest.mark.parametrize("filesystem", FILESYSTEMS)
def test_the_steps_of_a_power_cut_are_timed(folder: Path, filesystem: str) -> None:
    """`benchmarks.bench_faults` prints how long they take."""
    disks = [make(folder, f"b{index}", filesystem) for index in range(3)]
    for disk in disks:
        for partition in range(20):
            path = disk.data / f"t-{partition}" / "1.log"
            write(path, os.urandom(50000), sync=partition % 4 == 0)
    plans = [CutPlan(mode=mode, seed=1) for mode in MODES[:3]]
    for report in cut(disks, plans, lambda _: None):
        steps = dict(report.timings_ms)
        total = steps.pop("total")
        assert steps
        assert 0 < max(steps.values()) <= total


# Snapshots


def test_a_large_snapshot_is_kept_outside_memory(disk: NodeDisk, folder: Path) -> None:
    contents = {f"f{index}": os.urandom(70000) for index in range(4)}
    for name, content in contents.items():
        write(disk.data / name, content)
    with take_snapshot(disk.data, spool_folder=folder, memory_max=150000) as snapshot:
        read = {name: entry.read(0, 70000) for name, entry in snapshot.contents.items()}
        assert read == contents
        assert snapshot.contents["f3"].read(69990, 100) == contents["f3"][69990:]
        assert snapshot.size_bytes == 280000
    disk.unmount()
