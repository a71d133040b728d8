"""What single faults do to a cluster, in more detail than whether they take effect."""

import errno

import pytest
from fault_bench import MS, FaultBench

from nemesis.fault import Fault
from tests.parts import parts


def test_a_wiped_broker_comes_back_with_a_new_empty_disk_and_fetches_everything() -> None:
    bench = FaultBench()
    follower = bench.follower()
    before = bench.broker(follower).logs.directory_ids
    end = bench.log_end(follower)
    assert end > 20
    wiped = bench.inject("wipe", follower)
    reported = bench.evidence(wiped)[follower]
    assert reported["bytes_before"] > 0
    assert reported["bytes_after"] == 0
    assert reported["disk_after"] == reported["disk_before"] + 1
    assert not bench.node(follower).is_alive
    bench.heal(wiped)
    bench.until(bench.is_whole)
    assert bench.broker(follower).logs.directory_ids != before
    assert bench.log_end(follower) >= end
    bench.close()


def test_recovery_finds_a_flipped_bit_and_cuts_the_log_there() -> None:
    bench = FaultBench()
    follower = bench.follower()
    end = bench.log_end(follower)
    flipped = bench.inject("bit_flip", follower)
    reported = bench.evidence(flipped)[follower]
    assert reported["path"].endswith(".log")
    assert reported["byte_before"] ^ reported["byte_after"] == 1 << reported["bit"]
    assert (
        bench.node(follower).disk.peek(reported["path"])[reported["offset"]]
        == reported["byte_after"]
    )
    assert not bench.node(follower).is_alive
    apart = bench.inject(
        "isolate", follower, planes=["inter-broker"]
    )  # nothing has been fetched again yet
    bench.heal(flipped)
    bench.let(800)
    assert len(bench.node(follower).disk.peek(reported["path"])) <= reported["offset"]
    bench.heal(apart)
    bench.until(bench.is_whole)
    assert bench.log_end(follower) >= end
    bench.close()


@pytest.mark.parametrize("seed", parts(range(6), quick=2))
def test_a_bit_flip_on_any_replica_costs_no_record(seed: int) -> None:
    bench = FaultBench(seed, weather="light")
    for target in (bench.leader(), bench.follower()):
        flipped = bench.inject("bit_flip", target)
        assert bench.took_effect(flipped)
        bench.let(300)
        bench.heal(flipped)
        bench.until(bench.is_whole)
    bench.close()


@pytest.mark.parametrize(
    ("fault", "params", "word"),
    [
        ("io_error", {"op": "all"}, "failed"),
        ("disk_full", {}, "is full"),
        ("read_only", {}, "is read-only"),
    ],
)
def test_a_node_ended_by_its_disk_is_an_effect_of_the_fault_and_is_restarted(
    fault: str, params: dict[str, str], word: str
) -> None:
    bench = FaultBench()
    injected = bench.inject(fault, "b2", **params)
    bench.until(lambda: bench.cluster.down_nodes() == ("b2",))
    bench.let(1000)
    assert bench.cluster.down_nodes() == ("b2",)
    bench.heal(injected)
    assert word in bench.evidence(injected)["ended_by_itself"]["b2"]
    assert bench.took_effect(injected)
    assert bench.cluster.down_nodes() == ()
    bench.until(bench.is_whole)
    assert bench.world.failures == []
    bench.close()


def test_a_controller_ended_by_its_disk_is_restarted() -> None:
    bench = FaultBench()
    name = f"c{bench.cluster.metadata.active_controller}"
    injected = bench.inject("io_error", name)
    bench.until(lambda: bench.cluster.down_nodes() == (name,))
    bench.heal(injected)
    assert name in bench.evidence(injected)["ended_by_itself"]
    bench.let(2000)
    assert bench.is_whole()
    bench.close()


def test_healing_a_disk_does_not_start_a_node_that_another_fault_took_down() -> None:
    bench = FaultBench()
    slow = bench.inject("io_error", "b2", every=65_535)
    killed = bench.inject("kill", "b2")
    bench.heal(slow)
    bench.let(1500)
    assert bench.cluster.down_nodes() == ("b2",)
    bench.heal(killed)
    assert bench.cluster.down_nodes() == ()
    bench.close()


def test_a_node_that_ends_after_a_failed_sync_just_after_its_disk_was_healed_is_started() -> None:
    bench = FaultBench()
    injected = bench.inject("io_error", "b2", op="all")
    bench.let(1)
    node = bench.node("b2")
    bench.heal(injected)
    if node.is_alive:
        node.process_failed(OSError(errno.EIO, "met while the disk was broken"))
    assert not node.is_alive
    bench.until(lambda: node.is_alive, 2000)
    assert "b2" in bench.evidence(injected).get("ended_by_itself", {"b2": ""})
    bench.let(2000)
    assert bench.is_clean()
    bench.close()


def test_starting_a_node_with_a_read_only_disk_heals_the_disk() -> None:
    bench = FaultBench()
    injected = bench.inject("read_only", "b2")
    bench.until(lambda: bench.cluster.down_nodes() == ("b2",))
    bench.inject("start", "b2")
    assert bench.rows[injected][7] is not None
    assert bench.is_clean()
    bench.until(bench.is_whole)
    bench.close()


def test_a_stuck_disk_blocks_writers_until_it_is_healed() -> None:
    bench = FaultBench()
    leader = bench.leader()
    stuck = bench.inject("stuck_disk", leader)
    bench.let(100)
    end = len(bench.node(leader).disk.peek("data/t-0/00000000000000000000.log"))
    bench.let(400)
    assert len(bench.node(leader).disk.peek("data/t-0/00000000000000000000.log")) == end
    assert bench.node(leader).loop.frozen
    bench.heal(stuck)
    assert not bench.node(leader).loop.frozen
    assert bench.evidence(stuck)["calls_that_waited"][leader] >= 1
    bench.until(bench.is_whole)
    bench.close()


def test_every_second_call_of_a_broken_disk_fails() -> None:
    bench = FaultBench()
    disk = bench.node("c11").disk
    fault = disk.io_error("append", every=2)
    outcomes = []
    for _ in range(6):
        try:
            disk.append("probe", b"x")
            outcomes.append("written")
        except OSError:
            outcomes.append("failed")
    disk.heal(fault)
    assert outcomes == ["written", "failed"] * 3
    assert fault.hits == 3
    bench.close()


def test_disk_faults_neither_affect_nor_count_reads_by_the_harness() -> None:
    bench = FaultBench()
    disk = bench.node("b2").disk
    disk.append("probe", b"x")
    fault = disk.io_error("any")
    with bench.world.inspecting():
        assert disk.read("probe") == b"x"
    assert fault.hits == 0
    with pytest.raises(OSError, match="read failed on b2"):
        disk.read("probe")
    disk.heal(fault)
    bench.close()


def test_a_restart_is_clean_and_leaves_every_node_up() -> None:
    bench = FaultBench()
    before = {name: bench.node(name).incarnation for name in ("b1", "b2", "c11")}
    restarted = bench.inject("restart", "b1", "b2", "c11")
    reported = bench.evidence(restarted)
    assert set(reported["ended"].values()) == {"stopped"}
    assert reported["incarnations"] == {name: count + 1 for name, count in before.items()}
    assert bench.cluster.down_nodes() == ()
    bench.until(bench.is_whole)
    bench.close()


def test_the_kernel_reports_which_process_it_killed_when_out_of_memory() -> None:
    bench = FaultBench()
    oom = bench.inject("oom", "b2")
    assert bench.node("b2").exit_reason == "oom"
    assert bench.evidence(oom)["oom_kills"] == {"b2": 1}
    bench.inject("start", "b2")
    assert bench.rows[oom][7] is not None
    bench.close()


def test_a_slow_cpu_stays_slow_when_the_process_is_restarted() -> None:
    bench = FaultBench()
    slowed = bench.inject("slow_cpu", "b2", percent=10)
    cost_ns = bench.node("b2").loop.cpu_ns_per_callback
    assert cost_ns > 0
    bench.inject("restart", "b2")
    assert bench.node("b2").loop.cpu_ns_per_callback == cost_ns
    bench.heal(slowed)
    assert bench.node("b2").loop.cpu_ns_per_callback == 0
    bench.close()


def test_a_stepped_wall_clock_is_observed_and_restored() -> None:
    bench = FaultBench()
    clock, other = (bench.node(name).host.clock for name in ("c11", "c12"))
    stepped = bench.inject("clock_step", "c11", ms=90_000)
    bench.let(1000)
    assert clock.wall_ms() - other.wall_ms() == 90_000
    bench.heal(stepped)
    assert clock.wall_ms() == other.wall_ms()
    assert bench.evidence(stepped)["wall_clock_ahead_ms"] == {"c11": pytest.approx(90_000, abs=1)}
    bench.close()


@pytest.mark.parametrize("ppm", [200_000, -200_000, -900_000])
def test_a_drifting_host_has_two_wrong_clocks_and_only_its_wall_clock_is_restored(ppm: int) -> None:
    bench = FaultBench()
    clock = bench.node("b2").host.clock
    wall, monotonic = clock.wall_ms(), clock.monotonic_ns()
    drifting = bench.inject("clock_drift", "b2", ppm=ppm)
    bench.let(2000)
    elapsed_ms = 2000 * (1 + ppm / 1e6)
    assert clock.wall_ms() - wall == pytest.approx(elapsed_ms, abs=2)
    assert (clock.monotonic_ns() - monotonic) / MS == pytest.approx(elapsed_ms, abs=2)
    bench.heal(drifting)
    assert clock.wall_ms() - wall == 2000
    assert (clock.monotonic_ns() - monotonic) / MS == pytest.approx(elapsed_ms, abs=2)
    assert bench.evidence(drifting)["clock_gains_ppm"]["b2"] == pytest.approx(ppm, rel=0.01)
    bench.close()


def test_the_clock_of_a_node_that_dies_was_read_before() -> None:
    bench = FaultBench()
    drifting = bench.inject("clock_drift", "b2", ppm=150_000)
    bench.let(500)
    dead = bench.inject("power", "b2")
    bench.let(500)
    bench.heal(drifting)
    bench.heal(dead)
    assert bench.took_effect(drifting)
    bench.close()


def test_a_strobing_clock_is_restored_once_per_period_and_ends_correct() -> None:
    bench = FaultBench()
    for ms in (300, -300):
        strobing = bench.inject("clock_strobe", "c12", ms=ms, period_ms=100)
        bench.let(975)
        bench.heal(strobing)
        assert bench.evidence(strobing)["backward_jumps"]["c12"] in (9, 10)
        assert bench.node("c12").clock.wall_offset_ns() == 0
    bench.let(1000)
    assert bench.node("c12").clock.wall_offset_ns() == 0
    bench.close()


def test_a_bit_is_flipped_on_a_broken_disk_as_well() -> None:
    """The harness reads the log around the faults that the process meets."""
    bench = FaultBench()
    broken = bench.inject("io_error", "b2", op="all", every=65_535)
    flipped = bench.inject("bit_flip", "b2")
    assert bench.took_effect(flipped)
    bench.heal(broken)
    assert bench.evidence(broken)["calls_failed"] == {"b2": 0}
    bench.heal(flipped)
    bench.close()


def test_a_restart_or_a_healed_disk_starts_no_node_without_power() -> None:
    bench = FaultBench()
    for fault, params in (("read_only", {}), ("io_error", {"every": 65_535})):
        broken = bench.inject(fault, "b2", **params)
        dark = bench.inject("power", "b2")
        assert bench.hit(dark) == ["b2"]
        bench.heal(broken)
        bench.let(1500)
        assert bench.cluster.down_nodes() == ("b2",)
        bench.heal(dark)
        bench.until(bench.is_whole)
    bench.inject("pause", "b3")
    restarting = bench.cluster.spawn(
        "harness",
        bench.nemesis.inject(Fault(id="slow", fault="restart", targets=("b3",))),
    )
    bench.let(200)
    dark = bench.inject("power", "b3")
    bench.until(restarting.done)
    assert bench.cluster.down_nodes() == ("b3",)
    assert not bench.took_effect("slow")
    bench.heal(dark)
    bench.close()


def test_a_broker_whose_log_was_cut_off_fetches_the_end_from_its_peers() -> None:
    bench = FaultBench()
    follower = bench.follower()
    end = bench.log_end(follower)
    cut = bench.inject("truncate_file", follower, bytes=900)
    file = bench.evidence(cut)["truncated"][follower]
    assert "__cluster_metadata" not in file["path"]
    assert file["bytes_after"] == file["bytes_before"] - 900
    assert len(bench.node(follower).disk.peek(file["path"])) == file["bytes_after"]
    assert not bench.node(follower).is_alive
    apart = bench.inject("isolate", follower, planes=["inter-broker"])  # nothing is fetched yet
    bench.heal(cut)
    bench.let(800)
    assert bench.log_end(follower) < end
    bench.heal(apart)
    bench.until(bench.is_whole)
    assert bench.log_end(follower) >= end
    bench.close()


def test_truncating_more_than_the_file_size_empties_it_and_a_power_cut_restores_nothing() -> None:
    bench = FaultBench()
    follower = bench.follower()
    cut = bench.inject("truncate_file", follower, bytes=1 << 30)
    file = bench.evidence(cut)["truncated"][follower]
    assert file["bytes_before"] > file["bytes_after"] == 0
    bench.node(follower).disk.power_cut("lose_all")
    assert bench.node(follower).disk.peek(file["path"]) == b""
    bench.heal(cut)
    bench.until(bench.is_whole)
    bench.close()


def test_the_log_of_a_stopped_broker_is_truncated_and_healing_the_stop_starts_it() -> None:
    """Its stop was clean, so its recovery point is beyond the truncated end; it recovers nevertheless."""
    bench = FaultBench()
    follower = bench.follower()
    stopped = bench.inject("stop", follower)
    cut = bench.inject("truncate_file", follower, bytes=50)
    assert bench.hit(cut) == [follower]
    bench.heal(cut)
    assert bench.took_effect(cut)
    assert bench.cluster.down_nodes() == (follower,)
    bench.heal(stopped)
    bench.until(bench.is_whole)
    bench.close()


def test_a_broker_without_a_partition_log_has_nothing_to_truncate() -> None:
    bench = FaultBench()
    wiped = bench.inject("wipe", "b2")
    cut = bench.inject("truncate_file", "b2", bytes=50)
    assert bench.evidence(cut)["truncated"] == {"b2": {}}
    assert not bench.took_effect(cut)
    bench.heal(wiped)
    bench.heal(cut)
    bench.until(bench.is_whole)
    bench.close()


def test_truncation_works_on_a_disk_that_is_read_only_for_its_node() -> None:
    bench = FaultBench()
    bench.inject("read_only", "b2")
    cut = bench.inject("truncate_file", "b2", bytes=50)
    assert bench.took_effect(cut)
    bench.do(bench.nemesis.settle())
    bench.until(bench.is_whole)
    bench.close()


def test_a_power_cut_of_a_killed_broker_takes_what_its_kernel_had_not_written() -> None:
    bench = FaultBench()
    follower = bench.follower()
    killed = bench.inject("kill", follower)
    cut = bench.inject("power", follower)
    assert bench.hit(cut) == [follower]
    assert bench.took_effect(cut)
    lost = bench.evidence(cut)[follower]
    assert lost["lost_bytes"] > 0
    assert lost["log_end_before"] == {}
    assert bench.node(follower).state == "off"
    bench.heal(cut)
    assert not bench.node(follower).is_alive  # what had ended it starts it
    bench.heal(killed)
    bench.until(bench.is_whole)
    bench.close()


def test_a_power_cut_of_a_node_that_has_nothing_to_lose_has_no_effect() -> None:
    bench = FaultBench()
    follower = bench.follower()
    first = bench.inject("power", follower)
    second = bench.inject("power", follower)
    assert bench.hit(first) == [follower]
    assert bench.hit(second) == []
    assert not bench.took_effect(second)
    bench.heal(second)
    assert bench.node(follower).state == "off"
    bench.heal(first)
    bench.until(bench.is_whole)
    bench.close()


def test_the_power_of_a_majority_of_the_controllers_is_cut_at_one_instant() -> None:
    bench = FaultBench()
    cut = bench.inject("power", "majority_controllers")
    assert len(bench.hit(cut)) == 2
    assert set(bench.hit(cut)) < {"c11", "c12", "c13"}
    assert bench.took_effect(cut)
    bench.heal(cut)
    bench.until(bench.is_whole)
    bench.close()
