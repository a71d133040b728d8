"""The simulated disk: reading and writing, and fsyncs that take time."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from harness.simulation.disk import SimDisk
from harness.simulation.errors import NodeIsDead
from harness.simulation.weather import CALM, Weather
from tests.simulation.sim_disks import content, disk_of
from tests.simulation.sim_helpers import MS, S, call, pair

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
