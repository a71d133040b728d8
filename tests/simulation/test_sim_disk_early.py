"""The simulated disk: an fsync without changes, and what kernels write back unasked.

All of it was observed on real ext4 and xfs: tests/containers/test_disk_calibration.py.
"""

import asyncio
import random
from collections.abc import Callable

import pytest

from harness.simulation.disk import SimDisk
from harness.simulation.inode import ALWAYS_NS, PAGE_BYTES
from harness.simulation.power_cut import MODES
from tests.simulation.sim_disks import JOURNALLING, PROFILES, content, cut, disk_of
from tests.simulation.sim_helpers import S, call, pair


def durable_disk(profile: str) -> SimDisk:
    """Two durable files, and a third one removed."""
    disk = disk_of(profile)
    for path in ("d/f", "d/g", "e/h"):
        disk.append(path, b"x" * 5_000)
        disk.fsync_blocking(path)
    for folder in ("", "d", "e"):
        disk.fsync_dir(folder)
    disk.remove("e/h")
    disk.append("e/i", b"new")
    return disk


def commits(disk: SimDisk) -> bool:
    """Whether the removal is durable."""
    return "e/h" not in cut(disk)


# What an fsync commits


@pytest.mark.parametrize("profile", PROFILES)
def test_an_fsync_of_an_unchanged_file_commits_nothing(profile: str) -> None:
    disk = durable_disk(profile)
    disk.fsync_blocking("d/f")
    assert not commits(disk)


@pytest.mark.parametrize("profile", JOURNALLING)
@pytest.mark.parametrize(
    "change",
    [
        lambda disk: disk.append("d/f", b"y"),
        lambda disk: disk.truncate("d/f", 4_000),
        lambda disk: disk.write("d/f", b"z" * 5_000),
        lambda disk: (disk.append("d/f", b"y"), disk.truncate("d/f", 5_000)),
        lambda disk: disk.replace("d/g", "d/f"),
    ],
    ids=["append", "truncate", "write", "append and truncate", "replace"],
)
def test_an_fsync_of_a_file_that_changed_in_any_way_commits_the_journal(
    profile: str, change: Callable[[SimDisk], object]
) -> None:
    disk = durable_disk(profile)
    change(disk)
    disk.fsync_blocking("d/f")
    assert commits(disk)


@pytest.mark.parametrize("profile", JOURNALLING)
@pytest.mark.parametrize("change", ["rename", "cut of bytes that were never durable"])
def test_a_change_that_another_fsync_committed_is_no_longer_pending(
    profile: str, change: str
) -> None:
    disk = durable_disk(profile)
    if change == "rename":
        disk.replace("d/f", "d/k")
    else:
        disk.append("d/f", b"y")
        disk.truncate("d/f", 5_000)
        disk.replace("d/f", "d/k")
    disk.fsync_blocking("e/i")
    disk.remove("d/g")
    disk.fsync_blocking("d/k")
    assert "d/g" in cut(disk)


@pytest.mark.parametrize("profile", JOURNALLING)
def test_a_change_that_the_journal_committed_by_itself_is_no_longer_pending(profile: str) -> None:
    disk = disk_of(profile, background=True)
    disk.append("f", b"x")
    disk.fsync_blocking("f")
    disk.append("f", b"y")
    disk.truncate("f", 1)
    disk.append("g", b"x")
    disk.timeline.run_for(31 * S)
    disk.append("h", b"x")
    disk.fsync_blocking("f")
    assert set(cut(disk)) == {"f", "g"}


@pytest.mark.parametrize(("profile", "committed"), [("ext4", True), ("xfs", False)])
def test_an_fsync_of_an_unchanged_folder_commits_on_ext4_and_not_on_xfs(
    profile: str, committed: bool
) -> None:
    disk = durable_disk(profile)
    disk.fsync_dir("d")
    assert commits(disk) is committed


@pytest.mark.parametrize("profile", JOURNALLING)
@pytest.mark.parametrize("change", ["create", "rename into", "rename out of", "remove"])
def test_an_fsync_of_a_changed_folder_commits_the_journal(profile: str, change: str) -> None:
    disk = durable_disk(profile)
    if change == "create":
        disk.append("d/k", b"")
    elif change == "rename into":
        disk.replace("e/i", "d/i")
    elif change == "rename out of":
        disk.replace("d/f", "e/f")
    else:
        disk.remove("d/f")
    disk.fsync_dir("d")
    assert commits(disk)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_folder_removed_with_its_last_file_cannot_be_synced(profile: str) -> None:
    disk = durable_disk(profile)
    disk.remove("e/i")
    disk.fsync_dir("e")
    assert not commits(disk)


@pytest.mark.parametrize("profile", JOURNALLING)
@pytest.mark.parametrize("changes_again", [False, True])
def test_of_two_fsyncs_in_flight_the_second_commits_only_if_the_file_changed_between_them(
    profile: str, changes_again: bool
) -> None:
    world, _, client = pair()
    client.disk.profile = profile
    storage = client.host.storage
    storage.append("g", b"x")
    storage.fsync_blocking("g")

    async def program() -> None:
        storage.append("f", b"1")
        first = asyncio.ensure_future(storage.fsync("f"))
        await asyncio.sleep(0)
        storage.remove("g")
        if changes_again:
            storage.append("f", b"2")
        await asyncio.gather(first, storage.fsync("f"))

    call(world, "k1", program())
    client.power_off("lose_all")
    assert ("g" in client.disk.files) is not changes_again
    assert client.disk.read("f") == (b"12" if changes_again else b"1")


# What is written back early


def outcomes(
    script: Callable[[SimDisk], object], profile: str = "ext4", mode: str = ""
) -> set[bytes]:
    """What a script may leave of the file f, over many seeds."""
    found = set()
    for seed in range(60):
        for chosen in (mode,) if mode else MODES:
            disk = disk_of(profile, seed=seed)
            script(disk)
            disk.power_cut(chosen)
            if disk.exists("f"):
                found.add(disk.read("f"))
    return found


OLD, NEW = b"o" * 13_000, b"n" * 9_000


def commit(disk: SimDisk) -> None:
    disk.append("other", b"x")
    disk.fsync_blocking("other")


@pytest.mark.parametrize("mode", ["prefix", "torn_sector", "pages", "zero_tail"])
def test_a_file_renamed_before_a_sync_may_keep_its_length_at_the_rename(mode: str) -> None:
    def script(disk: SimDisk, is_renamed: bool = True) -> None:
        disk.append("t" if is_renamed else "f", NEW[:5_000])
        if is_renamed:
            disk.replace("t", "f")
        disk.append("f", NEW[5_000:])
        disk.fsync_dir("")

    assert NEW[:5_000] in {found.rstrip(b"\0") for found in outcomes(script, mode=mode)}
    plain = outcomes(lambda disk: script(disk, False), mode=mode)
    assert NEW[:5_000] not in {found.rstrip(b"\0") for found in plain}


def test_what_is_synced_is_not_written_back_early() -> None:
    def script(disk: SimDisk) -> None:
        disk.append("t", NEW[:5_000])
        disk.fsync_blocking("t")
        disk.replace("t", "f")
        disk.append("f", NEW[5_000:])
        assert disk.files["f"].ends == ()

    assert all(len(found) >= 5_000 for found in outcomes(script))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("commits_the_cut", [False, True])
def test_bytes_written_back_and_then_truncated_may_return_until_the_truncation_commits(
    profile: str, commits_the_cut: bool
) -> None:
    def script(disk: SimDisk) -> None:
        disk.append("t", NEW[:1_531])
        disk.replace("t", "f")
        disk.fsync_dir("")
        commit(disk)
        disk.truncate("f", 747)
        if commits_the_cut:
            disk.fsync_blocking("f")

    found = outcomes(script, profile)
    assert (NEW[:1_531] in found) is not commits_the_cut
    assert NEW[:747] in found
    assert max(len(one) for one in found) == (747 if commits_the_cut else 1_531)


def test_growth_in_the_last_block_of_a_log_may_return_after_a_truncation_on_ext4_only() -> None:
    def script(disk: SimDisk) -> None:
        disk.append("f", NEW[:5_000])
        disk.fsync_blocking("f")
        disk.append("f", NEW[5_000:7_000])
        disk.truncate("f", 6_000)

    assert max(len(one) for one in outcomes(script, "ext4")) == 7_000
    assert max(len(one) for one in outcomes(script, "xfs")) == 6_000


@pytest.mark.parametrize("mode", MODES)
def test_an_undone_truncation_may_expose_new_bytes_of_its_page(mode: str) -> None:
    def script(disk: SimDisk) -> None:
        disk.append("f", OLD)
        disk.fsync_blocking("f")
        disk.truncate("f", 1_055)
        disk.append("f", NEW[:4_000])
        disk.truncate("f", 3_055)
        disk.append("f", NEW)

    patched = OLD[:1_055] + NEW[:2_000] + bytes(PAGE_BYTES - 3_055) + OLD[PAGE_BYTES:]
    found = outcomes(script, "xfs", mode)
    assert (patched in found) is (mode not in ("lose_all", "keep_all"))
    assert (OLD in found) is (mode != "keep_all")


@pytest.mark.parametrize("profile", PROFILES)
def test_an_early_write_back_never_changes_what_lose_all_leaves_or_what_is_durable(
    profile: str,
) -> None:
    disk = disk_of(profile)
    disk.append("f", OLD)
    disk.fsync_blocking("f")
    disk.fsync_dir("")
    disk.append("f", NEW)
    disk.truncate("f", 14_000)
    disk.append("f", NEW)
    disk.replace("f", "g")
    disk.truncate("g", 13_500)
    assert content(disk)["g"] == OLD + NEW[:500]
    assert cut(disk) == {"f": OLD}


def _random_steps(disk: SimDisk, seed: int, *, looks_at_all: bool) -> list[object]:
    """Does random things to a disk, with pauses; returns what every file is like after each of them."""
    stream = random.Random(seed)
    world = disk.timeline
    seen: list[object] = []
    for _ in range(60):
        names = sorted(disk.files)
        name = stream.choice([*names, "a", "b", "c/d"])
        step = stream.choice(
            ("append", "append", "fsync", "fsync_dir", "truncate", "move", "wait", "remove")
        )
        if step == "append":
            disk.append(name, bytes(stream.choice((1, 700, 9000))))
        elif step == "wait":
            world.run_for(stream.choice((10**8, 2 * 10**9, 17 * 10**9, 40 * 10**9)))
        elif step == "fsync_dir":
            disk.fsync_dir("")
        elif name not in names:
            continue
        elif step == "fsync":
            disk.fsync_blocking(name)
        elif step == "truncate":
            disk.truncate(name, stream.randrange(len(disk.peek(name)) + 1))
        elif step == "move":
            disk.replace(name, stream.choice(("a", "b", "e")))
        else:
            disk.remove(name)
        if looks_at_all:
            for inode in (*disk.files.values(), *disk.names.values()):
                inode.settles_at_ns = ALWAYS_NS
        disk.settle()
        seen += [
            (name, one.durable_size, one.durable, one.ends, *one.ages, *one.truncations)
            for files in (disk.files, disk.names)
            for name, one in sorted(files.items())
        ]
    return seen


@pytest.mark.parametrize("profile", PROFILES)
def test_files_that_the_kernel_has_nothing_to_do_for_can_be_left_out(profile: str) -> None:
    kept = 0
    for seed in range(120):
        disks = [disk_of(profile, background=True, seed=seed) for _ in range(2)]
        whole, left_out = (
            _random_steps(disk, seed, looks_at_all=all_of_them)
            for disk, all_of_them in zip(disks, (True, False), strict=True)
        )
        assert whole == left_out, seed
        kept += sum(one.settles_at_ns != ALWAYS_NS for one in disks[1].files.values())
    assert kept > 50
