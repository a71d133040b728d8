"""A node's disk on this kernel: made, wiped, filled, frozen, read-only, damaged, and removed without a trace."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nemesis.agent.disks import freezer, log_files, mounts
from nemesis.agent.disks.disk import NodeDisk
from nemesis.agent.disks.disk_capabilities import capabilities
from nemesis.agent.disks.images import image_of
from nemesis.agent.disks.power_cut import CutPlan, cut, leftovers, reset
from nemesis.agent.errors import AgentError
from system_under_test.log.segment import intact_batches
from system_under_test.protocol.record_batch import encode_batch
from system_under_test.real.storage import RealStorage
from tests.containers.disk_rig import FILESYSTEMS, disk_folder, make, write

ROOT = Path(__file__).parents[2]
WRITER = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
print("ready", flush=True)
while sys.stdin.read(1):
    os.write(file, b"x")
    print("written", flush=True)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with disk_folder() as folder:
        yield folder


@pytest.fixture(params=FILESYSTEMS)
def disk(request: pytest.FixtureRequest, folder: Path) -> NodeDisk:
    return make(folder, "b1", request.param)


def start(*arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()


def error_of_write(path: Path) -> int:
    try:
        write(path, b"x", sync=True)
    except OSError as error:
        return error.errno or -1
    return 0


# Life


def test_a_new_disk_is_mounted_empty_and_durable(disk: NodeDisk) -> None:
    assert disk.is_mounted
    assert os.listdir(disk.data) == []
    assert disk.data.stat().st_dev != disk.directory.stat().st_dev
    cut([disk], [CutPlan()], lambda _: None)
    assert os.listdir(disk.data) == [], "a power cut right away takes nothing"


def test_an_image_occupies_only_the_space_that_is_used(disk: NodeDisk) -> None:
    status = disk.image.stat()
    assert status.st_size == disk.size_mib << 20
    assert status.st_blocks * 512 < 100 << 20


def test_a_disk_does_not_replace_an_existing_one(disk: NodeDisk) -> None:
    write(disk.data / "f", b"x")
    with pytest.raises(AgentError, match="already; attach or destroy it"):
        NodeDisk.create(disk.directory, filesystem="ext4")
    assert (disk.data / "f").exists()


@pytest.mark.parametrize(
    ("filesystem", "size_mib", "words"),
    [("btrfs", 512, "use ext4 or xfs"), ("xfs", 64, "at least 300 MiB")],
)
def test_an_impossible_disk_is_refused_with_a_reason(
    folder: Path, filesystem: str, size_mib: int, words: str
) -> None:
    with pytest.raises(AgentError, match=words):
        NodeDisk.create(folder / "b1", filesystem=filesystem, size_mib=size_mib)
    assert leftovers(folder) == []


def test_a_restarted_agent_finds_its_disks_again(disk: NodeDisk) -> None:
    write(disk.data / "f", b"content")
    again = NodeDisk.attach(disk.directory)
    assert again.filesystem == disk.filesystem
    assert again.is_mounted
    again.unmount()
    assert not again.is_mounted
    again.mount()
    assert (again.data / "f").read_bytes() == b"content"
    with pytest.raises(AgentError, match="there is no disk"):
        NodeDisk.attach(disk.directory.with_name("missing"))


def test_destroying_a_disk_leaves_nothing_and_can_be_repeated(disk: NodeDisk, folder: Path) -> None:
    disk.destroy()
    disk.destroy()
    assert leftovers(folder) == []
    assert list(folder.iterdir()) == []


def test_reset_removes_what_a_crashed_agent_left(disk: NodeDisk, folder: Path) -> None:
    other = make(folder, "b2", "ext4")
    other.unmount()
    held = other.directory.with_name("b3.img")
    held.write_bytes(bytes(1 << 20))
    device, descriptor = mounts.attach_loop(held)
    try:
        freeze_and_forget(disk)
        found = leftovers(folder)
        assert f"mount {disk.mountpoint}" in found
        assert f"loop device {device} of {held}" in found
        removed = reset(folder)
    finally:
        os.close(descriptor)
        freezer.thaw_now(disk.mountpoint)
    assert any("frozen" in line for line in removed)
    assert leftovers(folder) == []
    assert list(folder.iterdir()) == []
    assert reset(folder) == []


def freeze_and_forget(disk: NodeDisk) -> None:
    descriptor = os.open(disk.mountpoint, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, freezer.FIFREEZE, bytes(4))
    finally:
        os.close(descriptor)


def test_a_failed_unmount_names_the_processes_that_use_the_disk(disk: NodeDisk) -> None:
    process = start(sys.executable, "-c", WRITER, os.fspath(disk.data / "f"))
    try:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(AgentError, match=rf"\({process.pid}\): end these first"):
            mounts.unmount(disk.mountpoint, limit_s=0.05)
        assert disk.is_mounted
    finally:
        end(process)
    disk.unmount()


def test_an_image_is_never_mounted_twice(disk: NodeDisk) -> None:
    disk.unmount()
    device, descriptor = mounts.attach_loop(disk.image)
    try:
        with pytest.raises(AgentError, match=f"still attached to {device}"):
            disk.mount()
    finally:
        os.close(descriptor)
    disk.mount()


# Other mount namespaces


def in_namespace(process: "subprocess.Popen[bytes]", *command: str) -> str:
    done = subprocess.run(
        ["nsenter", "-t", str(process.pid), "-m", *command], capture_output=True, text=True
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("propagation", ["slave", "private"])
def test_a_power_cut_reaches_other_mount_namespaces(disk: NodeDisk, propagation: str) -> None:
    """A container that sees the directory as a slave follows; one with a copy does not keep the old one alive."""
    process = start("unshare", "-m", "--propagation", propagation, "sh", "-c", "echo ready; cat")
    try:
        assert process.stdout is not None
        process.stdout.readline()
        write(disk.data / "kept", b"new", sync=True)
        write(disk.data / "lost", b"old")
        assert in_namespace(process, "cat", os.fspath(disk.data / "lost")) == "old"
        cut([disk], [CutPlan()], lambda _: None)
        assert os.listdir(disk.data) == ["kept"]
        seen = in_namespace(process, "cat", os.fspath(disk.data / "kept"))
        assert (seen == "new") == (propagation == "slave")
        assert "No such file" in in_namespace(process, "cat", os.fspath(disk.data / "lost"))
    finally:
        end(process)


# Faults


def test_wiping_gives_a_new_empty_file_system(disk: NodeDisk) -> None:
    write(disk.data / "t-0" / "0.log", b"x" * 5000)
    evidence = disk.wipe()
    assert evidence["bytes_before"] == 5000
    assert evidence["bytes_after"] == 0
    assert evidence["filesystem_id_before"] != evidence["filesystem_id_after"]
    assert os.listdir(disk.data) == []


def test_a_disk_that_was_shut_down_fails_until_it_is_mounted_again(disk: NodeDisk) -> None:
    write(disk.data / "f", b"x", sync=True)
    disk.shutdown()
    assert error_of_write(disk.data / "f") == errno.EIO
    assert disk.probe_write()["errno"] == errno.EIO
    disk.unmount()
    disk.mount()
    assert error_of_write(disk.data / "f") == 0


def test_a_read_only_disk_refuses_writes_and_can_be_read(disk: NodeDisk) -> None:
    write(disk.data / "f", b"content")
    disk.unmount()
    disk.mount(read_only=True)
    assert error_of_write(disk.data / "f") == errno.EROFS
    assert disk.probe_write()["errno"] == errno.EROFS
    assert (disk.data / "f").read_bytes() == b"content"
    with pytest.raises(AgentError, match="unmount it first"):
        disk.mount()
    disk.unmount()
    disk.mount()
    assert error_of_write(disk.data / "f") == 0


@pytest.mark.parametrize("free_bytes", [0, 1 << 20])
def test_a_full_disk_has_exactly_the_space_that_was_left_free(
    disk: NodeDisk, free_bytes: int
) -> None:
    write(disk.data / "f", b"x" * 4096, sync=True)
    evidence = disk.fill(free_bytes)
    assert evidence["probe"]["errno"] == errno.ENOSPC
    assert abs(evidence["probe"]["written_bytes"] - free_bytes) <= 65536
    room = room_in(disk.data / "f", free_bytes + (8 << 20))
    assert abs(room - free_bytes) <= 128 << 10
    with pytest.raises(AgentError, match="full already"):
        disk.fill()
    disk.unfill()
    disk.unfill()
    write(disk.data / "f", b"x" * (1 << 20), sync=True)
    assert sorted(os.listdir(disk.mountpoint)) == sorted({"data", *ignored(disk)})


def room_in(path: Path, most_bytes: int) -> int:
    """Returns how many bytes a file takes until the disk is full, and fails if it never is."""
    room = 0

    def write_until_full() -> None:
        nonlocal room
        with open(path, "ab", buffering=0) as file:
            while room < most_bytes:
                room += file.write(bytes(4096))

    with pytest.raises(OSError, match="No space left on device"):
        write_until_full()
    return room


def ignored(disk: NodeDisk) -> list[str]:
    return ["lost+found"] if disk.filesystem == "ext4" else []


def test_a_disk_stays_full_through_a_power_cut(disk: NodeDisk) -> None:
    write(disk.data / "f", b"x" * 10000, sync=True)
    disk.fill()
    cut([disk], [CutPlan()], lambda _: None)
    assert (disk.data / "f").stat().st_size == 10000
    assert disk.probe_write(1 << 20)["errno"] == errno.ENOSPC
    disk.unfill()
    assert disk.probe_write(1 << 20)["errno"] == 0


def test_a_disk_cannot_be_filled_to_leave_more_than_it_has(disk: NodeDisk) -> None:
    with pytest.raises(AgentError, match="bytes are free"):
        disk.fill(1 << 40)
    assert disk.probe_write()["errno"] == 0


def test_writers_to_a_frozen_disk_wait_for_the_thaw(disk: NodeDisk) -> None:
    process = start(sys.executable, "-c", WRITER, os.fspath(disk.data / "f"))
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        assert disk.freeze(10)["probe_blocked"] is True
        process.stdin.write(b"g")
        process.stdin.flush()
        time.sleep(0.15)
        state = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").split(") ")[1][0]
        assert state == "D"
        with pytest.raises(AgentError, match="frozen already"):
            disk.freeze(10)
        evidence = disk.thaw()
        assert process.stdout.readline() == b"written\n"
    finally:
        disk.thaw()
        end(process)
    assert evidence["thawed_by"] == "request"
    assert evidence["blocked_ms"] >= 150
    assert disk.thaw() == evidence
    assert ".probe" not in os.listdir(disk.mountpoint)


def test_a_frozen_disk_is_not_filled_and_is_emptied_when_it_thaws(disk: NodeDisk) -> None:
    disk.fill()
    disk.freeze(30)
    try:
        disk.unfill()  # does not wait
        with pytest.raises(AgentError, match="frozen"):
            disk.fill()
    finally:
        disk.thaw()
    assert disk.probe_write(1 << 20)["errno"] == 0


def test_a_thaw_caused_by_a_kill_is_reported_to_the_fault_that_froze_the_disk(
    disk: NodeDisk,
) -> None:
    disk.freeze(30)
    time.sleep(0.1)
    disk.unmount()
    disk.mount()
    assert disk.thaw()["blocked_ms"] >= 50


def test_the_watchdog_thaws_a_disk_that_no_heal_thaws(disk: NodeDisk) -> None:
    disk.freeze(0.2)
    began_s = time.monotonic()
    write(disk.data / "f", b"x")
    assert 0.05 < time.monotonic() - began_s < 5
    evidence = disk.thaw()
    assert evidence["thawed_by"] == "watchdog"
    assert 150 < evidence["blocked_ms"] < 5000


def test_ending_the_agent_thaws_its_disks(disk: NodeDisk) -> None:
    agent = start(
        sys.executable,
        "-c",
        "import sys, time\nfrom pathlib import Path\nfrom nemesis.agent.disks.disk import NodeDisk\n"
        "NodeDisk.attach(Path(sys.argv[1])).freeze(60)\nprint('frozen', flush=True)\ntime.sleep(60)",
        os.fspath(disk.directory),
    )
    try:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"frozen\n"
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        began_s = time.monotonic()
        write(disk.data / "f", b"x")
        assert time.monotonic() - began_s < 5
    finally:
        end(agent)


def test_a_power_cut_of_a_frozen_disk_thaws_it_first(disk: NodeDisk) -> None:
    write(disk.data / "kept", b"x", sync=True)
    disk.freeze(20)
    (report,) = cut([disk], [CutPlan()], lambda _: None)
    assert report.timings_ms["total"] < 5000
    write(disk.data / "kept", b"y", sync=True)


# Flipped bits


def write_log(disk: NodeDisk, partition: str, batch_count: int) -> Path:
    path = disk.data / "data" / partition / "00000000000000000000.log"
    for offset in range(batch_count):
        write(path, encode(offset))
    return path


def encode(offset: int) -> bytes:
    return encode_batch([(None, b"v" * 50)], timestamp_ms=1, base_offset=offset, leader_epoch=0)


def intact(disk: NodeDisk, path: Path) -> int:
    storage = RealStorage(disk.data)
    try:
        relative = path.relative_to(disk.data).as_posix()
        return sum(1 for _ in intact_batches(storage, relative, verify_crc=True))
    finally:
        storage.close()


@pytest.mark.parametrize("seed", range(6))
def test_a_flipped_bit_is_where_recovery_must_find_it(disk: NodeDisk, seed: int) -> None:
    path = write_log(disk, "t-0", 20)
    metadata = write_log(disk, "__cluster_metadata-0", 20)
    write(path.parents[1] / log_files.RECOVERY_POINTS, b"0\n1\nt 0 12\n")
    old = path.read_bytes()
    evidence = disk.flip_bit(seed)
    new = path.read_bytes()
    (changed,) = [at for at in range(len(old)) if old[at] != new[at]]
    assert evidence["path"] == path.relative_to(disk.data).as_posix()
    assert evidence["offset"] == changed
    assert evidence["byte_before"] == old[changed]
    assert evidence["byte_after"] == new[changed] == old[changed] ^ 1 << evidence["bit"]
    assert 12 <= intact(disk, path) < 20
    assert intact(disk, metadata) == 20
    cut([disk], [CutPlan()], lambda _: None)
    assert path.read_bytes() == new, "it is the disk that is damaged, not the cache"


@pytest.mark.parametrize("seed", range(6))
def test_without_a_recovery_point_any_byte_may_be_flipped(disk: NodeDisk, seed: int) -> None:
    path = write_log(disk, "t-0", 20)
    assert disk.flip_bit(seed)["bit"] is not None
    assert intact(disk, path) < 20


def test_bytes_below_the_recovery_point_are_not_flipped(disk: NodeDisk) -> None:
    path = write_log(disk, "t-0", 20)
    write(path.parents[1] / log_files.RECOVERY_POINTS, b"0\n1\nt 0 20\n")
    assert disk.flip_bit(1)["bit"] is None
    assert intact(disk, path) == 20


NO_BATCH = "no partition log has a whole batch beyond its recovery point"


def test_without_a_log_no_bit_is_flipped(disk: NodeDisk) -> None:
    write_log(disk, "__cluster_metadata-0", 3)
    assert disk.flip_bit(1) == {"bit": None, "why": NO_BATCH}


@pytest.mark.parametrize("size", [1, 700, 1 << 20])
def test_the_end_of_the_largest_log_is_cut_off_and_stays_cut_off(disk: NodeDisk, size: int) -> None:
    small = write_log(disk, "t-0", 5)
    large = write_log(disk, "t-1", 20)
    metadata = write_log(disk, "__cluster_metadata-0", 40)
    old = {path: path.read_bytes() for path in (small, large, metadata)}
    left = max(0, len(old[large]) - size)
    assert disk.truncate_file(size) == {
        "path": large.relative_to(disk.data).as_posix(),
        "bytes_before": len(old[large]),
        "bytes_after": left,
    }
    assert metadata.read_bytes() == old[metadata]
    cut([disk], [CutPlan()], lambda _: None)
    assert large.read_bytes() == old[large][:left], "the disk itself is cut, not the cache"
    assert intact(disk, large) < 20


def test_the_newest_segment_that_has_records_is_cut(disk: NodeDisk) -> None:
    first = write_log(disk, "t-0", 20)
    newest = first.with_name("00000000000000000020.log")
    write(newest, first.read_bytes(), sync=True)
    write(first.with_name("00000000000000000040.log"), b"", sync=True)
    assert disk.truncate_file(9)["path"] == newest.relative_to(disk.data).as_posix()
    assert intact(disk, first) == 20


def test_without_a_partition_log_nothing_is_cut(disk: NodeDisk) -> None:
    metadata = write_log(disk, "__cluster_metadata-0", 3)
    assert disk.truncate_file(9) == {}
    assert intact(disk, metadata) == 3


# Capabilities


def test_capability_probes_leave_nothing_behind(folder: Path) -> None:
    found = capabilities(folder)
    assert set(found) == {"loop-mount", "shutdown-ioctl", "freeze", "strace", "blkio"}
    for entry in found.values():
        assert entry["level"] in ("yes", "weaker", "no")
        assert entry["how"] or entry["why"]
    assert found["loop-mount"]["level"] == found["shutdown-ioctl"]["level"] == "yes"
    assert leftovers(folder) == []
    assert list(folder.iterdir()) == []


def test_a_capability_that_cannot_be_probed_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.fspath(folder))
    found = capabilities(folder)
    assert found["loop-mount"]["level"] == "no"
    assert "install e2fsprogs" in found["loop-mount"]["why"]
    assert "install strace" in found["strace"]["why"]
    assert found["freeze"]["level"] == "no"
    assert image_of(folder / "x").name == "x.img"


def test_a_crash_during_capability_probes_leaves_nothing_that_reset_misses(folder: Path) -> None:
    scratch = folder / "laststand-probe-x"
    scratch.mkdir()
    make(scratch, "ext4", "ext4")
    make(scratch, "xfs", "xfs").unmount()
    assert reset(folder)
    assert leftovers(folder) == []
    assert list(scratch.iterdir()) == []
