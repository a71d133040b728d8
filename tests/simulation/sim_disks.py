"""Simulated disks for the tests: made without a node's program, and read after a power cut."""

from dataclasses import replace

from harness.simulation.disk import SimDisk
from harness.simulation.weather import CALM
from harness.simulation.world import World

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


def some_unsynced_disk(seed: int) -> tuple[SimDisk, bytes, int]:
    disk = disk_of(seed=seed)
    data = bytes(1 + i % 255 for i in range(30_000))
    disk.append("f", data[:5_000])
    disk.fsync_blocking("f")
    disk.append("f", data[5_000:])
    return disk, data, 5_000
