"""The simulated disk: what is durable when.

The rows named "calibration" were observed on real ext4 and xfs by cutting a loop-mounted image off from its
journal; the model must allow what the kernels did.
"""

import pytest

from harness.simulation.disk import SimDisk
from tests.simulation.sim_disks import JOURNALLING, PROFILES, content, cut, disk_of
from tests.simulation.sim_helpers import MS, S

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


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("synced", "is_back"), [("d", False), ("d/e", True)])
def test_that_a_folder_is_gone_is_durable_once_its_parent_is_synced(
    profile: str, synced: str, is_back: bool
) -> None:
    """A folder is removed with its last file. Near miss: the folder itself cannot be synced any more."""
    disk = disk_of(profile)
    for path in ("d/e/f", "d/e/g", "d/h"):
        disk.append(path, b"x")
        disk.fsync_blocking(path)
    for folder in ("d/e", "d", ""):
        disk.fsync_dir(folder)
    for path in ("d/e/f", "d/e/g"):
        disk.remove(path)
    disk.fsync_dir(synced)
    assert sorted(cut(disk)) == (["d/e/f", "d/e/g", "d/h"] if is_back else ["d/h"])


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
