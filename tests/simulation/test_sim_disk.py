"""The simulated disk: what is durable when, and what a power cut may leave.

The rows named "calibration" were observed on real ext4 and xfs by cutting a loop-mounted image off from its
journal; the model must allow what the kernels did.
"""

import asyncio
import errno
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from harness.simulation.disk import SimDisk
from harness.simulation.errors import IllegalPowerCut, NodeIsDead
from harness.simulation.power_cut import MODES, draw_mode
from harness.simulation.weather import CALM, Weather
from harness.simulation.world import World
from tests.simulation.sim_helpers import MS, S, call, outcome, pair

JOURNALLING = ("ext4", "xfs")
PROFILES = ("ext4", "xfs", "posix-strict")


def disk_of(profile: str = "ext4", *, background: bool = False, seed: int = 1) -> SimDisk:
    weather = replace(CALM, disk_profile=profile, background_writeback=background)
    return World(seed, weather=weather).add_node("b1", kind="broker", address="b1:1").disk


def content(disk: SimDisk) -> dict[str, bytes]:
    return {path: disk.read(path) for path in sorted(disk.files)}


def cut(disk: SimDisk, mode: str = "lose_all", **keep: int) -> dict[str, bytes]:
    disk.power_cut(mode, keep=keep)
    return content(disk)


# Reading and writing


def test_files_read_back_as_written() -> None:
    disk = disk_of()
    disk.append("logs/t-0/a.log", b"hello ")
    disk.append("logs/t-0/a.log", b"world")
    disk.write("meta", b"1")
    disk.write("meta", b"22")
    assert disk.read("logs/t-0/a.log") == b"hello world"
    assert disk.read("logs/t-0/a.log", 6) == b"world"
    assert disk.read("logs/t-0/a.log", 6, 2) == b"wo"
    assert disk.read("logs/t-0/a.log", 100, 5) == b""
    assert disk.read("meta") == b"22"
    assert disk.size("logs/t-0/a.log") == 11
    assert disk.list("") == ["logs", "meta"]
    assert disk.list("logs") == ["t-0"]
    assert disk.list("logs/t-0") == ["a.log"]
    assert disk.list("log") == []
    disk.truncate("logs/t-0/a.log", 5)
    disk.append("logs/t-0/a.log", b"!")
    assert disk.read("logs/t-0/a.log") == b"hello!"
    disk.replace("logs/t-0/a.log", "meta")
    assert disk.list("") == ["meta"]
    assert disk.read("meta") == b"hello!"
    disk.remove("meta")
    assert not disk.exists("meta")
    assert disk.list("") == []


@pytest.mark.parametrize(
    "use",
    [
        lambda d: d.read("x"),
        lambda d: d.size("x"),
        lambda d: d.truncate("x", 0),
        lambda d: d.replace("x", "y"),
        lambda d: d.remove("x"),
        lambda d: d.fsync_blocking("x"),
    ],
)
def test_a_missing_file_is_file_not_found(use: Callable[[SimDisk], Any]) -> None:
    with pytest.raises(FileNotFoundError):
        use(disk_of())


def test_paths_stay_inside_the_data_directory() -> None:
    disk = disk_of()
    for path in ("/etc/passwd", "a/../../b", ""):
        with pytest.raises(ValueError, match="relative path"):
            disk.append(path, b"x")
    disk.append("a", b"x")
    with pytest.raises(ValueError, match="cannot be cut"):
        disk.truncate("a", 2)


# Calibration, rows without write-back


@pytest.mark.parametrize("profile", PROFILES)
def test_calibration_create_write_fsync_without_fsync_of_the_directory(profile: str) -> None:
    disk = disk_of(profile)
    disk.append("d/f", b"data")
    disk.fsync_blocking("d/f")
    assert cut(disk) == ({} if profile == "posix-strict" else {"d/f": b"data"})


@pytest.mark.parametrize("profile", JOURNALLING)
def test_calibration_rename_over_existing_with_the_temporary_file_synced(profile: str) -> None:
    disk = disk_of(profile)
    disk.write("f", b"old")
    disk.fsync_blocking("f")
    disk.write("f.tmp", b"new")
    disk.fsync_blocking("f.tmp")
    disk.replace("f.tmp", "f")
    assert cut(disk) == {"f": b"old", "f.tmp": b"new"}


@pytest.mark.parametrize("profile", JOURNALLING)
def test_calibration_rename_over_existing_with_nothing_synced(profile: str) -> None:
    disk = disk_of(profile)
    disk.write("f", b"old")
    disk.fsync_blocking("f")
    disk.write("f.tmp", b"new")
    disk.replace("f.tmp", "f")
    assert cut(disk) == {"f": b"old"}


@pytest.mark.parametrize("profile", PROFILES)
def test_calibration_rename_and_fsync_of_the_directory(profile: str) -> None:
    disk = disk_of(profile)
    disk.write("d/f", b"old")
    disk.fsync_blocking("d/f")
    disk.fsync_dir("d")
    disk.write("d/f.tmp", b"new")
    disk.fsync_blocking("d/f.tmp")
    disk.replace("d/f.tmp", "d/f")
    disk.fsync_dir("d")
    assert cut(disk) == {"d/f": b"new"}


@pytest.mark.parametrize("profile", JOURNALLING)
def test_a_rename_never_makes_the_data_durable(profile: str) -> None:
    disk = disk_of(profile)
    disk.write("f", b"old")
    disk.fsync_blocking("f")
    disk.write("f.tmp", b"new")
    disk.replace("f.tmp", "f")
    disk.fsync_dir("")
    assert cut(disk) == {"f": b""}


@pytest.mark.parametrize("profile", PROFILES)
def test_calibration_truncate_without_fsync_brings_the_old_length_back(profile: str) -> None:
    disk = disk_of(profile)
    disk.append("f", b"0123456789")
    disk.fsync_blocking("f")
    disk.fsync_dir("")
    disk.truncate("f", 4)
    disk.append("f", b"xyz")
    assert disk.read("f") == b"0123xyz"
    assert cut(disk) == {"f": b"0123456789"}


@pytest.mark.parametrize("profile", PROFILES)
def test_calibration_unlink_without_fsync_brings_the_file_back(profile: str) -> None:
    disk = disk_of(profile)
    disk.append("f", b"marker")
    disk.fsync_blocking("f")
    disk.fsync_dir("")
    disk.append("f", b" not synced")
    disk.remove("f")
    assert cut(disk) == {"f": b"marker"}


@pytest.mark.parametrize("profile", PROFILES)
def test_calibration_ten_records_synced_and_five_appended_leave_ten(profile: str) -> None:
    disk = disk_of(profile)
    for i in range(15):
        disk.append("f", b"%02d" % i)
        if i == 9:
            disk.fsync_blocking("f")
            disk.fsync_dir("")
    report = disk.power_cut("lose_all")
    assert content(disk) == {"f": b"00010203040506070809"}
    assert (report.lost_bytes, report.unsynced_bytes) == (10, 10)
    assert report.took_effect


@pytest.mark.parametrize("profile", PROFILES)
def test_calibration_replacing_in_place_without_fsync_leaves_the_old_content(profile: str) -> None:
    disk = disk_of(profile)
    disk.write("f", b"old")
    disk.fsync_blocking("f")
    disk.fsync_dir("")
    disk.write("f", b"newer")
    assert cut(disk) == {"f": b"old"}


def test_an_fsync_of_one_file_makes_an_earlier_unlink_of_another_durable_on_a_journalling_system() -> (
    None
):
    for profile, back in (("ext4", False), ("xfs", False), ("posix-strict", True)):
        disk = disk_of(profile)
        for path in ("f", "g"):
            disk.append(path, b"x")
            disk.fsync_blocking(path)
        disk.fsync_dir("")
        disk.remove("f")
        disk.append("g", b"y")
        disk.fsync_blocking("g")
        assert ("f" in cut(disk)) is back


def test_an_fsync_of_another_file_commits_a_truncation_and_not_the_data_after_it() -> None:
    for profile, expected in (("ext4", b"0123"), ("posix-strict", b"0123456789")):
        disk = disk_of(profile)
        disk.append("f", b"0123456789")
        disk.fsync_blocking("f")
        disk.append("g", b"x")
        disk.fsync_dir("")
        disk.truncate("f", 4)
        disk.append("f", b"abc")
        disk.fsync_blocking("g")
        assert cut(disk)["f"] == expected


# Calibration, rows with write-back that the program did not request


def appends_for(profile: str, seconds: int) -> SimDisk:
    """Appends a record of 852 bytes 50 times a second, with no fsync."""
    disk = disk_of(profile, background=True)
    for _ in range(seconds * 50):
        disk.append("f", b"r" * 852)
        disk.timeline.run_for(20 * MS)
    return disk


@pytest.mark.parametrize(
    ("profile", "seconds", "kept_s"),
    [
        ("ext4", 2, None),
        ("ext4", 8, 0),
        ("ext4", 20, 0),
        ("ext4", 45, 15),
        ("xfs", 2, None),
        ("xfs", 8, None),
        ("xfs", 20, None),
        ("xfs", 45, 0),
        ("xfs", 65, 30),
    ],
)
def test_calibration_appends_without_fsync(profile: str, seconds: int, kept_s: int | None) -> None:
    """What was older than 30 s when the flusher last ran before the last commit."""
    disk = appends_for(profile, seconds)
    appended = disk.size("f")
    left = cut(disk)
    assert ("f" in left) is (kept_s is not None)
    if kept_s is not None:
        assert abs(len(left["f"]) / appended - kept_s / seconds) < 0.02
        assert set(left["f"]) <= {ord("r")}


def test_calibration_zeros_may_follow_the_records_that_were_written_back() -> None:
    tails = set()
    for seed in range(20):
        disk = disk_of("ext4", background=True, seed=seed)
        disk.append("f", b"r" * 100_000)
        disk.timeline.run_for(45 * S)
        disk.append("f", b"r" * 100_000)
        data = cut(disk, "zero_tail")["f"]
        valid = data.rstrip(b"\0")
        assert len(valid) >= 100_000
        assert set(valid) == {ord("r")}
        tails.add(len(data) > len(valid))
    assert True in tails


@pytest.mark.parametrize("profile", JOURNALLING)
@pytest.mark.parametrize("seconds", [1, 4, 7, 20, 40])
def test_calibration_an_unlinked_file_comes_back_until_the_journal_commits(
    profile: str, seconds: int
) -> None:
    disk = disk_of(profile, background=True)
    disk.append("marker", b"clean")
    disk.fsync_blocking("marker")
    disk.remove("marker")
    for _ in range(seconds):
        disk.append("f", b"x")
        disk.timeline.run_for(1 * S)
    back = "marker" in cut(disk)
    assert back is (seconds < (5 if profile == "ext4" else 30))


# The modes


def some_unsynced_disk(seed: int) -> tuple[SimDisk, bytes, int]:
    disk = disk_of(seed=seed)
    data = bytes(1 + i % 255 for i in range(30_000))
    disk.append("f", data[:5_000])
    disk.fsync_blocking("f")
    disk.append("f", data[5_000:])
    return disk, data, 5_000


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_leaves_the_documented_part_of_appended_bytes(mode: str) -> None:
    lengths, torn, holes, zeros = set(), 0, 0, 0
    for seed in range(30):
        disk, data, durable = some_unsynced_disk(seed)
        left = cut(disk, mode)["f"]
        assert left[:durable] == data[:durable], "synced bytes are never lost"
        assert len(left) <= len(data)
        assert all(a in (0, b) for a, b in zip(left, data, strict=False)), "no byte is invented"
        lengths.add(len(left))
        valid = left.rstrip(b"\0")
        zeros += len(left) > len(valid)
        holes += 0 in valid
        torn += len(left) % 4096 not in (0, durable % 4096, len(data) % 4096)
    assert (lengths == {durable}) is (mode == "lose_all")
    assert (lengths == {len(data)}) is (mode == "keep_all")
    assert (torn > 0) is (mode in ("torn_sector", "zero_tail"))
    assert (holes > 0) is (mode == "pages")
    assert (zeros > 0) is (mode == "zero_tail")


@pytest.mark.parametrize("mode", MODES)
def test_the_surviving_names_are_those_of_one_moment(mode: str) -> None:
    """Names change in the order of the journal: what is left was visible at some point in the past."""
    seen = set()
    for seed in range(30):
        disk = disk_of(seed=seed)
        history = [frozenset(disk.files)]
        for i in range(4):
            disk.write(f"f{i}", b"x")
            history.append(frozenset(disk.files))
            disk.replace(f"f{i}", "f")
            history.append(frozenset(disk.files))
        disk.remove("f")
        history.append(frozenset(disk.files))
        left = frozenset(cut(disk, mode))
        assert left in history
        seen.add(history.index(left))
    assert (len(seen) > 3) is (mode not in ("lose_all", "keep_all"))


def test_modes_are_drawn_with_their_weights() -> None:
    stream = World(1).random.stream("test")
    drawn = [draw_mode(stream) for _ in range(4_000)]
    share = {mode: drawn.count(mode) / 4_000 for mode in MODES}
    assert share.pop("keep_all") == 0
    for mode, expected in zip(share, (0.30, 0.25, 0.15, 0.15, 0.15), strict=True):
        assert share[mode] == pytest.approx(expected, abs=0.04)


def test_after_a_power_cut_everything_on_the_disk_is_durable() -> None:
    disk, _, _ = some_unsynced_disk(3)
    left = cut(disk, "prefix")
    assert cut(disk, "lose_all") == left
    assert not disk.power_cut("lose_all").took_effect


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("mode", MODES)
def test_after_every_call_a_cut_leaves_synced_bytes_intact_and_invents_nothing(
    profile: str, mode: str
) -> None:
    """Cuts a random script of calls after every call, against a model that remembers every content."""
    for seed in range(6):
        stream = World(seed).random.stream("script")
        script = [(stream.randrange(0, 9), stream.randrange(0, 3), i) for i in range(40)]
        for length in range(1, len(script) + 1, 3):
            disk = disk_of(profile, seed=seed)
            ever, floor = _play(disk, script[:length])
            left = cut(disk, mode)
            for path, data in left.items():
                assert any(
                    all(a in (0, b) for a, b in itertools.zip_longest(data, old[: len(data)]))
                    for old in ever
                    if len(old) >= len(data)
                ), f"{path} holds what was never written"
            for path, data in floor.items():
                assert left[path][: len(data)] == data


def _play(disk: SimDisk, script: list[tuple[int, int, int]]) -> tuple[set[bytes], dict[str, bytes]]:
    """Plays a script; returns every content a file ever had, and what must survive any cut."""
    ever: set[bytes] = {b""}
    floor: dict[str, bytes] = {}
    for kind, file, i in script:
        path, other = f"f{file}", f"f{(file + 1) % 3}"
        exists = disk.exists(path)
        if kind <= 3 or not exists:
            disk.append(path, bytes([1 + i]) * (50 * kind + 1))
        elif kind == 4:
            disk.write(path, bytes([1 + i]) * 70)
            floor.pop(path, None)
        elif kind == 5:
            disk.truncate(path, disk.size(path) // 2)
            floor.pop(path, None)
        elif kind == 6:
            disk.replace(path, other)
            floor.pop(path, None)
            floor.pop(other, None)
        elif kind == 7:
            disk.remove(path)
            floor.pop(path, None)
        else:
            disk.fsync_blocking(path)
            disk.fsync_dir("")
            floor[path] = disk.read(path)
        ever.update(disk.read(p) for p in disk.files)
    return ever, floor


# Exact cuts


def test_keep_leaves_exactly_the_prefix_that_a_scenario_asks_for() -> None:
    disk, data, _ = some_unsynced_disk(1)
    report = disk.power_cut("lose_all", keep={"f": 12_345})
    assert disk.read("f") == data[:12_345]
    (file,) = report.files
    assert (file.path, file.cached_bytes, file.unsynced_bytes) == ("f", 30_000, 25_000)
    assert (file.kept_bytes, file.lost_bytes, file.size_after) == (12_345, 17_655, 12_345)


def test_keep_also_keeps_the_name_of_a_new_file() -> None:
    disk = disk_of()
    disk.append("new", b"abcdef")
    assert cut(disk, new=4) == {"new": b"abcd"}


def test_keep_after_a_truncation_counts_the_cached_bytes() -> None:
    disk = disk_of()
    disk.append("f", b"0123456789")
    disk.fsync_blocking("f")
    disk.truncate("f", 4)
    disk.append("f", b"abc")
    assert cut(disk, f=6) == {"f": b"0123ab"}


@pytest.mark.parametrize(("path", "size"), [("f", 4_999), ("f", 30_001), ("g", 0)])
def test_keep_refuses_impossible_outcomes(path: str, size: int) -> None:
    disk, data, _ = some_unsynced_disk(1)
    with pytest.raises(IllegalPowerCut):
        disk.power_cut("lose_all", keep={path: size})
    assert disk.read("f") == data, "nothing happened"
    with pytest.raises(ValueError, match="no power cut mode"):
        disk.power_cut("lose_some")


# Fsync over time


def test_an_fsync_takes_time_and_fsyncs_run_one_after_the_other() -> None:
    world, _, client = pair()
    storage = client.host.storage

    async def program() -> list[int]:
        ends = []
        storage.append("f", b"1")
        storage.append("g", b"2")

        async def sync(path: str) -> None:
            await storage.fsync(path)
            ends.append(world.now)

        await asyncio.gather(sync("f"), sync("g"))
        return ends

    assert call(world, "k1", program()) == [CALM.fsync_base_ns, 2 * CALM.fsync_base_ns]


def test_an_fsync_covers_the_content_at_its_start() -> None:
    world, _, client = pair()
    storage = client.host.storage
    storage.append("f", b"before")
    task = world.spawn("k1", storage.fsync("f"))
    world.run_for(1)
    storage.append("f", b" after")
    world.run(task.done, limit_ns=1 * S)
    client.power_off("lose_all")
    assert client.disk.read("f") == b"before"


@pytest.mark.parametrize("rewrite", ["truncate", "write"])
def test_an_fsync_in_flight_while_the_file_is_cut_covers_the_old_content(rewrite: str) -> None:
    world, _, client = pair()
    storage = client.host.storage
    storage.append("f", b"0123456789")
    task = world.spawn("k1", storage.fsync("f"))
    world.run_for(1)
    if rewrite == "truncate":
        storage.truncate("f", 3)
    else:
        storage.write("f", b"new")
    storage.append("f", b"xyz")
    world.run(task.done, limit_ns=1 * S)
    client.power_off("lose_all")
    assert client.disk.read("f") == b"0123456789"


def test_an_fsync_in_flight_at_the_cut_counts_as_done_or_not() -> None:
    left = set()
    for seed in range(20):
        world, _, client = pair(seed=seed)
        client.host.storage.append("f", b"x" * 10)
        world.spawn("k1", client.host.storage.fsync("f"))
        world.run_for(1)
        client.power_off("torn_sector")
        left.add(client.disk.read("f") if client.disk.exists("f") else None)
        world.run_for(1 * S)
    assert {None, b"x" * 10} <= left


def test_a_killed_process_keeps_its_page_cache() -> None:
    world, _, client = pair()
    client.host.storage.append("f", b"not synced")
    client.kill()
    client.start()
    world.run_for(0)
    assert client.host.storage.read("f") == b"not synced"


def test_the_storage_of_a_dead_process_is_closed() -> None:
    _, _, client = pair()
    storage = client.host.storage
    storage.append("f", b"alive")
    client.kill()
    for use in (
        lambda: storage.append("f", b"dead"),
        lambda: storage.append("g", b"dead"),
        lambda: storage.write("f", b"dead"),
        lambda: storage.truncate("f", 0),
        lambda: storage.replace("f", "g"),
        lambda: storage.remove("f"),
        lambda: storage.fsync_blocking("f"),
        lambda: storage.fsync_dir(""),
        lambda: storage.read("f"),
        lambda: storage.exists("f"),
        lambda: storage.list(""),
    ):
        with pytest.raises(NodeIsDead):
            use()
    assert content(client.disk) == {"f": b"alive"}


def test_a_blocking_fsync_that_takes_time_delays_everything_the_node_does_next() -> None:
    weather = Weather(name="slow", blocking_fsync_takes_time=True, fsync_base_ns=5 * MS)
    world, broker, client = pair(weather)

    async def program() -> tuple[int, int]:

        connection = await client.host.network.connect("b1:9092", 1_000)
        began = world.now
        client.host.storage.append("f", b"x")
        client.host.storage.fsync_blocking("f")
        connection.send("after the fsync")
        await asyncio.sleep(0)
        return began, world.now

    began, resumed = call(world, "k1", program())
    world.run_for(1 * S)
    assert resumed - began == 5 * MS
    arrived_ns, message = broker.process.received[0]  # type: ignore[union-attr]
    true_ns = arrived_ns - broker.clock.monotonic_ns() + world.now
    assert message == "after the fsync"
    assert true_ns == began + 5 * MS + weather.client_latency_base_ns


@pytest.mark.parametrize("how", ["kill", "power_off"])
def test_code_after_a_blocking_fsync_never_runs_if_the_node_dies_in_it(how: str) -> None:
    weather = Weather(name="slow", blocking_fsync_takes_time=True, fsync_base_ns=5 * MS)
    world, broker, client = pair(weather)

    async def program() -> None:
        connection = await client.host.network.connect("b1:9092", 1_000)
        client.host.storage.append("f", b"x")
        client.host.storage.fsync_blocking("f")
        connection.send("after the fsync")

    world.spawn("k1", program())
    world.run_for(1 * MS)
    if how == "kill":
        client.kill()
    else:
        client.power_off("lose_all")
        assert content(client.disk) == {}
    world.run_for(1 * S)
    assert broker.process.received == []  # type: ignore[union-attr]


# Faults


def test_a_full_disk_takes_part_of_an_append_and_has_space_after_a_removal() -> None:
    disk = disk_of()
    disk.append("old", b"12345")
    fault = disk.full(free_bytes=4)
    with pytest.raises(OSError, match="full") as caught:
        disk.append("f", b"abcdefgh")
    assert caught.value.errno == errno.ENOSPC
    assert disk.read("f") == b"abcd"
    assert fault.hits == 1
    disk.remove("old")
    disk.append("f", b"EFGHI")
    with pytest.raises(OSError, match="full"):
        disk.append("f", b"J")
    disk.heal(fault)
    disk.append("f", b"J")
    assert disk.read("f") == b"abcdEFGHIJ"


def test_an_io_error_affects_the_operation_and_files_it_names() -> None:
    disk = disk_of()
    disk.append("a/f", b"x")
    fault = disk.io_error("append", "a/", count=2)
    for _ in range(2):
        with pytest.raises(OSError, match="append failed") as caught:
            disk.append("a/f", b"y")
        assert caught.value.errno == errno.EIO
    disk.append("a/f", b"z")
    disk.append("b/f", b"z")
    assert (fault.hits, fault.active) == (2, False)
    assert disk.read("a/f") == b"xz"
    read_fault = disk.io_error("read")
    with pytest.raises(OSError, match="read failed"):
        disk.read("a/f")
    disk.heal(read_fault)
    with pytest.raises(ValueError, match="not one of"):
        disk.io_error("fsyncc")


@pytest.mark.parametrize("blocking", [True, False])
def test_after_a_failed_fsync_the_next_one_succeeds_and_the_data_is_not_there(
    blocking: bool,
) -> None:
    """The kernel reports a failed write-back once and calls the pages clean: the fsync gate of 2018."""
    world, _, client = pair()
    storage = client.host.storage
    storage.append("f", b"durable.")
    storage.fsync_blocking("f")
    storage.append("f", b"lost.")
    client.disk.io_error("fsync", "f", count=1)

    async def sync() -> None:
        if blocking:
            storage.fsync_blocking("f")
        else:
            await storage.fsync("f")

    with pytest.raises(OSError, match="fsync failed"):
        call(world, "k1", sync())
    storage.append("f", b"later.")
    storage.fsync_blocking("f")
    assert storage.read("f") == b"durable.lost.later.", "the page cache still shows it"
    client.power_off("lose_all")
    assert client.disk.read("f") == b"durable.\0\0\0\0\0later."


def test_a_read_only_disk_refuses_changes_and_can_be_read() -> None:
    disk = disk_of()
    disk.append("f", b"x")
    fault = disk.read_only()
    for change in (
        lambda: disk.append("f", b"y"),
        lambda: disk.write("g", b"y"),
        lambda: disk.remove("f"),
        lambda: disk.replace("f", "g"),
        lambda: disk.truncate("f", 0),
    ):
        with pytest.raises(OSError, match="read-only") as caught:
            change()
        assert caught.value.errno == errno.EROFS
    assert content(disk) == {"f": b"x"}
    assert fault.hits == 5


def test_a_slow_disk_takes_longer() -> None:
    world, _, client = pair()
    client.host.storage.append("f", b"x")
    fault = client.disk.slow(extra_ns=100 * MS, factor=2.0)
    began = world.now
    call(world, "k1", client.host.storage.fsync("f"))
    assert world.now - began == 100 * MS + 2 * CALM.fsync_base_ns
    assert fault.hits == 1


def test_a_stuck_disk_completes_nothing_until_healed_and_freezes_waiting_processes() -> None:
    world, broker, client = pair()
    storage = client.host.storage
    fault = client.disk.stuck()
    reached: list[str] = []

    async def awaits() -> None:
        storage.append("f", b"x")
        await storage.fsync("f")
        reached.append("awaited")

    async def blocks() -> None:
        connection = await client.host.network.connect("b1:9092", 1_000)
        storage.append("g", b"x")
        storage.fsync_blocking("g")
        connection.send("never before the fsync is done")

        await asyncio.sleep(0)
        reached.append("blocked")

    awaiting = world.spawn("k1", awaits())
    world.run_for(1 * S)
    assert outcome(awaiting) == "pending"
    world.spawn("k1", blocks())
    world.run_for(10 * S)
    assert reached == []
    assert broker.process.received == []  # type: ignore[union-attr]
    assert fault.hits == 2
    client.disk.heal(fault)
    world.run_for(1 * S)
    assert sorted(reached) == ["awaited", "blocked"]
    assert len(broker.process.received) == 1  # type: ignore[union-attr]
    client.power_off("lose_all")
    assert content(client.disk) == {"f": b"x", "g": b"x"}


def test_a_process_frozen_by_a_stuck_disk_can_be_killed() -> None:
    world, _, client = pair()
    fault = client.disk.stuck()

    async def blocks() -> None:
        client.host.storage.append("g", b"x")
        client.host.storage.fsync_blocking("g")

    world.spawn("k1", blocks())
    world.run_for(1 * S)
    client.kill()
    client.start()
    client.disk.heal(fault)
    call(world, "k1", client.host.storage.fsync("g"))
    assert client.state == "running"


def test_a_lying_fsync_makes_nothing_durable() -> None:
    disk = disk_of()
    fault = disk.fsync_lies()
    disk.append("f", b"x")
    disk.fsync_blocking("f")
    assert fault.hits == 1
    assert cut(disk) == {}


def test_a_wiped_disk_has_a_new_identity() -> None:
    disk = disk_of()
    disk.append("f", b"x")
    disk.fsync_blocking("f")
    before = disk.disk_id
    disk.wipe()
    assert content(disk) == {}
    assert disk.disk_id != before
    disk.append("f", b"y")
    disk.fsync_blocking("f")
    assert cut(disk) == {"f": b"y"}


def test_a_flipped_bit_stays_flipped() -> None:
    disk = disk_of()
    disk.append("f", b"aaaa")
    disk.fsync_blocking("f")
    disk.bit_flip("f", 2, 1)
    assert disk.read("f") == b"aaca"
    assert cut(disk) == {"f": b"aaca"}
    with pytest.raises(ValueError, match="4 bytes"):
        disk.bit_flip("f", 4)
