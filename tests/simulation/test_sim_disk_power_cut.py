"""The simulated disk: what a power cut may leave."""

import itertools

import pytest

from harness.simulation.disk import SimDisk
from harness.simulation.errors import IllegalPowerCut
from harness.simulation.power_cut import MODES, draw_mode
from harness.simulation.world import World
from tests.simulation.sim_disks import PROFILES, cut, disk_of, some_unsynced_disk

# The modes


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
