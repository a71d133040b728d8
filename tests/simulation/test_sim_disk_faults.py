"""The faults of the simulated disk, from a full one to a flipped bit."""

import asyncio
import errno

import pytest

from harness.simulation.weather import CALM
from tests.simulation.sim_disks import content, cut, disk_of
from tests.simulation.sim_helpers import MS, S, call, outcome, pair


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
