"""Every fault in the simulation: it takes effect, healing leaves nothing behind, and a near miss has no effect.

`FaultBench.close` also checks each of these runs against the guarantees of Kafka 4.1.
"""

from typing import Any

import pytest
from fault_bench import FaultBench

from nemesis.administration import ACTIONS
from nemesis.faults import FAULT_NAMES, FAULTS

EXAMPLES: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    ("cut", ("b1", "b2"), {}),
    ("cut", ("b1", "b2"), {"direction": "one-way", "at": "sender"}),
    ("cut", ("leader:t-0", "follower:t-0"), {"planes": ["inter-broker"]}),
    ("isolate", ("leader:t-0",), {}),
    ("isolate", ("active_controller",), {"at": "sender"}),
    ("partition", ("all",), {}),
    ("partition", ("all", "controllers"), {"shape": "minority"}),
    ("partition", ("follower:t-0", "all", "controllers"), {"shape": "bridge", "at": "sender"}),
    ("partition", ("all",), {"shape": "majorities_ring", "planes": ["inter-broker"]}),
    ("partition", (), {"shape": "groups", "groups": [["leader:t-0"], ["followers:t-0"]]}),
    ("reject", ("leader:t-0", "follower:t-0"), {}),
    ("reset_connections", ("leader:t-0",), {}),
    ("loss", ("leader:t-0",), {"percent": 40}),
    ("loss", ("b2",), {"percent": 100, "planes": ["inter-broker"]}),
    ("delay", ("leader:t-0",), {"ms": 80, "jitter_ms": 80}),
    ("bandwidth", ("leader:t-0",), {"rate_kib_s": 2}),
    ("pause", ("leader:t-0",), {}),
    ("stop", ("leader:t-0",), {}),
    ("kill", ("leader:t-0",), {}),
    ("restart", ("leader:t-0", "active_controller"), {}),
    ("oom", ("leader:t-0",), {}),
    ("slow_cpu", ("leader:t-0",), {"percent": 2}),
    ("stall_metadata", ("b2",), {}),
    ("power", ("follower:t-0",), {"mode": "lose_all"}),
    ("clock_step", ("all", "active_controller"), {"ms": -120_000}),
    ("clock_drift", ("leader:t-0",), {"ppm": 200_000}),
    ("clock_drift", ("active_controller",), {"ppm": -200_000}),
    ("clock_strobe", ("active_controller",), {"ms": 500, "period_ms": 50}),
    ("wipe", ("follower:t-0",), {}),
    ("wipe_log_dir", ("follower:t-0",), {"log_dir": 1}),
    ("disk_full", ("leader:t-0",), {}),
    ("io_error", ("active_controller",), {"every": 3}),
    ("io_error", ("leader:t-0",), {"op": "all"}),
    ("log_dir_error", ("leader:t-0",), {"log_dir": 1}),
    ("slow_disk", ("active_controller",), {"ms": 40}),
    ("stuck_disk", ("leader:t-0",), {}),
    ("read_only", ("follower:t-0",), {}),
    ("bit_flip", ("follower:t-0",), {}),
    ("truncate_file", ("follower:t-0",), {"bytes": 500}),
    ("alter_config", (), {"topic": "t", "key": "min.insync.replicas", "value": 1}),
    ("hold_messages", (), {"messages": "BrokerHeartbeat from broker to controller"}),
    ("delay_messages", (), {"messages": "FetchResponse from leader:t-0", "ms": 30, "count": 5}),
    ("drop_messages", (), {"messages": "Fetch from follower to leader"}),
    ("duplicate_messages", (), {"messages": "Fetch from follower to leader", "ms": 5}),
    ("reorder_messages", (), {"messages": "BrokerHeartbeat from broker"}),
    ("refuse_messages", (), {"messages": "Fetch from follower to leader"}),
    ("start", ("b3",), {}),
]
"""Fault, targets, parameters."""


def test_the_table_has_every_fault() -> None:
    # Replicas move between directories in `test_log_directory_faults.py`.
    not_served = set(ACTIONS) - {"alter_config"}
    assert {fault for fault, _, _ in EXAMPLES} == set(FAULT_NAMES) - {"heal"} - not_served


@pytest.mark.parametrize(("fault", "targets", "params"), EXAMPLES)
def test_a_fault_takes_effect_and_healing_leaves_nothing_behind(
    fault: str, targets: tuple[str, ...], params: dict[str, Any]
) -> None:
    bench = FaultBench()
    if fault == "start":
        bench.inject("kill", *targets)
    injected = bench.inject(fault, *targets, **params)
    assert bench.hit(injected)
    if not FAULTS[fault].is_momentary:
        bench.let(1200)
        assert not bench.is_clean()
        bench.heal(injected)
    assert bench.took_effect(injected), bench.evidence(injected)
    assert bench.is_clean()
    committed = bench.high_watermark()
    bench.until(bench.is_whole)
    bench.until(lambda: bench.high_watermark() > committed + 20)
    bench.close()


NEAR_MISSES: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    ("cut", ("client-0", "client-1"), {}),
    ("isolate", ("idle",), {}),
    ("partition", ("client-0", "idle"), {}),
    ("reject", ("client-0", "client-1"), {}),
    ("reset_connections", ("idle",), {}),
    ("loss", ("idle",), {"percent": 90}),
    ("delay", ("idle",), {"ms": 500}),
    ("bandwidth", ("leader:t-0",), {"rate_kib_s": 1 << 20}),
    ("pause", ("idle",), {}),
    ("disk_full", ("leader:t-0",), {"free_bytes": 1 << 40}),
    ("io_error", ("leader:t-0",), {"every": 65_535, "op": "all"}),
    ("log_dir_error", ("leader:t-0",), {"log_dir": 2}),
    ("clock_strobe", ("leader:t-0",), {"ms": 50, "period_ms": 60_000}),
]
"""Faults that are in force and meet nothing. "idle" is a client that sends nothing before the end."""


@pytest.mark.parametrize(("fault", "targets", "params"), NEAR_MISSES)
def test_a_fault_that_affected_no_operation_took_no_effect(
    fault: str, targets: tuple[str, ...], params: dict[str, Any]
) -> None:
    bench = FaultBench()
    injected = bench.inject(
        fault, *(bench.idle_client if t == "idle" else t for t in targets), **params
    )
    assert bench.hit(injected)
    bench.let(1000)
    bench.heal(injected)
    assert not bench.took_effect(injected), bench.evidence(injected)
    assert bench.is_clean()
    bench.close()


ON_THE_DEAD = [
    *("pause", "stop", "kill", "restart", "oom", "wipe", "read_only", "bit_flip"),
    *("slow_cpu", "io_error", "slow_disk", "stall_metadata"),
]


@pytest.mark.parametrize("fault", ON_THE_DEAD)
def test_a_process_fault_does_not_affect_a_node_without_a_process(fault: str) -> None:
    bench = FaultBench()
    dead = bench.inject("kill", "b3")
    params = {"slow_cpu": {"percent": 1}, "slow_disk": {"ms": 100}}.get(fault, {})
    missed = bench.inject(fault, "b3", **params)
    assert bench.hit(missed) == []
    bench.let(500)
    bench.heal(missed)
    assert not bench.took_effect(missed)
    assert bench.cluster.down_nodes() == ("b3",)
    bench.heal(dead)
    assert bench.is_clean()
    bench.close()


@pytest.mark.parametrize(
    ("fault", "params"),
    [
        ("disk_full", {}),
        ("stuck_disk", {}),
        ("clock_step", {"ms": 60_000}),
        ("clock_drift", {"ppm": 100_000}),
        ("clock_strobe", {"ms": 60_000, "period_ms": 20}),
    ],
)
def test_a_machine_fault_takes_no_effect_while_no_process_runs(
    fault: str, params: dict[str, Any]
) -> None:
    bench = FaultBench()
    dead = bench.inject("kill", "b3")
    missed = bench.inject(fault, "b3", **params)
    assert bench.hit(missed) == ["b3"]
    bench.let(500)
    bench.heal(missed)
    assert not bench.took_effect(missed), bench.evidence(missed)
    bench.heal(dead)
    assert bench.is_clean()
    bench.close()


def test_starting_a_running_node_affects_no_node() -> None:
    bench = FaultBench()
    started = bench.inject("start", "b2")
    assert bench.hit(started) == []
    assert not bench.took_effect(started)
    bench.close()


def test_a_stop_that_timed_out_was_not_clean() -> None:
    bench = FaultBench()
    paused = bench.inject("pause", "b2")
    bench.let(200)
    stopped = bench.inject("stop", "b2", grace_ms=300)
    assert bench.evidence(stopped)["ended"] == {"b2": "stop-timeout"}
    bench.heal(stopped)
    bench.heal(paused)
    assert not bench.took_effect(stopped)
    assert bench.took_effect(paused)
    bench.close()


def test_slow_cpu_does_not_affect_a_paused_process() -> None:
    bench = FaultBench()
    paused = bench.inject("pause", "b2")
    slowed = bench.inject("slow_cpu", "b2", percent=1)
    bench.let(500)
    bench.heal(slowed)
    bench.heal(paused)
    assert not bench.took_effect(slowed)
    assert bench.evidence(slowed)["callbacks_slowed"] == {"b2": 0}
    bench.close()


def test_a_read_only_fault_of_zero_duration_refused_no_write() -> None:
    bench = FaultBench()
    injected = bench.inject("read_only", "b2")
    bench.heal(injected)
    assert not bench.took_effect(injected)
    assert bench.is_clean()
    bench.close()


def test_a_bit_is_flipped_only_where_recovery_verifies() -> None:
    """After a clean stop everything is below the recovery point, so recovery would not find a flipped bit."""
    bench = FaultBench()
    for client in bench.cluster.clients:
        bench.inject("isolate", client)
    bench.let(500)
    bench.inject("restart", "b2")
    bench.let(1500)
    flipped = bench.inject("bit_flip", "b2")
    assert bench.hit(flipped) == ["b2"]
    assert "no log has a whole batch" in bench.evidence(flipped)["b2"]["why"]
    bench.heal(flipped)
    assert not bench.took_effect(flipped)
    bench.close()


def test_settling_removes_every_fault_in_force() -> None:
    bench = FaultBench()
    for fault, targets, params in EXAMPLES:
        if fault not in ("start", "heal"):
            bench.inject(fault, *targets, **params)
    bench.let(300)
    assert not bench.is_clean()
    bench.do(bench.run.injector.settle())
    bench.do(bench.cluster.settle())
    assert bench.is_clean()
    for fault_id in list(bench.rows):
        bench.heal(fault_id)
    bench.let(3000)
    assert bench.is_clean()
    bench.close()


def test_a_fault_is_healed_only_through_its_own_injection() -> None:
    """Overlapping faults of one kind on one link: when the first is healed the second is still in force."""
    bench = FaultBench()
    first = bench.inject("delay", "b1", ms=100)
    second = bench.inject("delay", "b1", ms=50)
    third = bench.inject("isolate", "b2")
    bench.let(500)
    bench.heal(first)
    assert len(bench.world.network.faults) == 2
    before = [token.dropped_or_stalled for token in bench.world.network.faults]
    bench.let(500)
    assert all(
        token.dropped_or_stalled > count
        for token, count in zip(bench.world.network.faults, before, strict=True)
    )
    bench.heal(third)
    bench.heal(second)
    bench.heal(second)
    assert bench.is_clean()
    assert bench.took_effect(first)
    assert bench.took_effect(second)
    bench.close()
