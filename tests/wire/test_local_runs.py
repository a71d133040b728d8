"""Runs against real processes: kill -9 under load loses nothing, and what goes wrong is found."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main
from harness.errors import UsageError
from harness.runs import experiment_file as experiments
from harness.runs.experiment import ClusterConfig, Experiment, TopicConfig
from harness.runs.judge import judge_result
from harness.runs.phases import Phases
from harness.runs.real import run_real
from nemesis.agent.processes.procfs import process_start
from nemesis.fault import Fault
from workloads.append_config import AppendConfig

pytestmark = pytest.mark.wire

WORKLOAD = AppendConfig(processes=5, appends_per_s=150, polls_per_s=60, latests_per_s=5)


def local(*schedule: Fault, **changes: Any) -> Experiment:
    values: dict[str, Any] = {
        "name": "local",
        "on": "local",
        "duration_ms": 6000,
        "topic": TopicConfig(partitions=2),
        "workload": WORKLOAD,
        "schedule": schedule,
        **changes,
    }
    return Experiment(**values)


def fault(name: str, target: str, at_ms: int, for_ms: int = 700) -> Fault:
    return Fault(id=f"{name}{at_ms}", fault=name, targets=(target,), at_ms=at_ms, for_ms=for_ms)


def test_kill_9_and_restart_of_any_node_under_load_loses_nothing(tmp_path: Path) -> None:
    experiment = local(
        fault("kill", "leader:t-0", 500),
        fault("kill", "active_controller", 1700),
        fault("kill", "isr_follower:t-1", 2900),
        fault("pause", "leader:t-1", 3900),
        fault("stop", "leader:t-0", 4800),
        duration_ms=6500,
    )
    result = run_real(experiment, 3, directory=tmp_path)
    verdict, summary = judge_result(experiment, 3, result)
    assert result.violations == []
    assert str(verdict.validity) == "valid", verdict.reasons
    assert verdict.unexcused_lost_records == 0
    # On a slow machine the followers of t-1 may not be back in the ISR when one of them is to be killed.
    assert verdict.coverage["faults_with_effect"] >= 4
    assert verdict.coverage["appends_acked"] > 20  # how many more depends on the machine
    assert verdict.coverage["acked_read_back"] == verdict.coverage["appends_acked"]
    assert summary["marks"]["controller-activated"] >= 2
    evidence = [json.loads(row["evidence"]) for row in result.tables["faults"].to_pylist()]
    assert {-9} == {code for one in evidence for code in one.get("exit_codes", {}).values()} - {0}


@pytest.mark.long
def test_a_replica_moves_to_another_log_directory_of_a_real_broker_under_load(
    tmp_path: Path,
) -> None:
    move = Fault(
        id="move",
        fault="move_replica",
        targets=("leader:t-0",),
        at_ms=800,
        params={"partition": "t-0"},
    )
    experiment = local(
        move,
        fault("kill", "leader:t-0", 2500),
        cluster=ClusterConfig(log_dirs=2),
        duration_ms=4500,
    )
    result = run_real(experiment, 3, directory=tmp_path)
    verdict, _ = judge_result(experiment, 3, result)
    assert result.violations == []
    assert str(verdict.validity) == "valid", verdict.reasons
    assert verdict.coverage["acked_read_back"] == verdict.coverage["appends_acked"]
    moved = next(row for row in result.tables["faults"].to_pylist() if row["fault_id"] == "move")
    assert moved["took_effect"]
    paths = {key: json.loads(moved["evidence"])[key] for key in ("from", "to")}
    assert [path.rpartition("/")[2] for path in paths.values()] == ["data", "data2"]
    logs = result.tables["replica_batches"].to_pylist()
    assert len({row["broker"] for row in logs if row["partition"] == 0}) == 3


@pytest.mark.long
def test_a_defect_is_found_on_real_processes_as_well(tmp_path: Path) -> None:
    """Without PROD-4 a leader acknowledges what only it has; killed, it loses that."""
    experiment = local(
        Fault(id="p", fault="pause", targets=("b2", "b3"), at_ms=1000, for_ms=3000),
        fault("kill", "b1", 1350, 5000),
        topic=TopicConfig(partitions=1),
        disabled_rules=("PROD-4",),
        duration_ms=6500,
    )
    result = run_real(experiment, 3, directory=tmp_path)
    verdict, _ = judge_result(experiment, 3, result)
    assert verdict.unexcused_lost_records > 0
    assert str(verdict.validity) == "invalid"


@pytest.mark.long
def test_a_node_that_ends_unexpectedly_is_an_anomaly_and_not_a_harness_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main_phase = Phases.main

    async def external_kill(self: Phases, schedule: Any) -> None:
        import os

        os.kill(self._cluster.local.nodes["b2"].pid, 9)  # type: ignore[attr-defined]
        await main_phase(self, schedule)

    monkeypatch.setattr(Phases, "main", external_kill)
    experiment = local(duration_ms=3000)
    result = run_real(experiment, 1, directory=tmp_path)
    verdict, _ = judge_result(experiment, 1, result)
    assert [text.partition(" (")[0] for text in result.violations] == ["b2 ended by itself"]
    assert str(verdict.validity) == "invalid"


def test_faults_that_do_not_apply_to_processes_are_refused_before_anything_starts(
    tmp_path: Path,
) -> None:
    path = tmp_path / "power.toml"
    path.write_text(experiments.dumps(local(fault("power", "leader:t-0", 100))), encoding="utf-8")
    assert main(["run", str(path), "--results", str(tmp_path / "runs"), "--no-spark"]) == 254
    assert not list((tmp_path / "runs").glob("*/*"))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"on": "mars"}, "no world is called|known: simulation, local|mars"),
        ({"scenario": "last-replica-standing:V3b"}, "cuts links and power"),
        (
            {"on": "simulation", "workload": AppendConfig(client="confluent")},
            "cannot run in a sim",
        ),
        ({"workload": AppendConfig(client="telnet")}, "telnet"),
    ],
)
def test_incompatible_environments_and_clients_are_refused(
    changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        local(**changes)


def test_a_killed_harness_leaves_its_history_and_no_nodes(tmp_path: Path) -> None:
    path = tmp_path / "long.toml"
    path.write_text(experiments.dumps(local(duration_ms=60_000)), encoding="utf-8")
    runs = tmp_path / "runs"
    command = [sys.executable, "-m", "harness.cli", "run", str(path), "--results", str(runs)]
    harness = subprocess.Popen([*command, "--no-spark", "--quiet"])
    try:
        deadline_s = time.monotonic() + 60
        state: dict[str, Any] = {}
        while time.monotonic() < deadline_s:
            found = list(runs.glob("local/*/nodes/cluster.json"))
            journals = list(runs.glob("local/*/history/*"))
            if found and sum(one.stat().st_size for one in journals) > 400_000:
                state = json.loads(found[0].read_text())
                break
            time.sleep(0.1)
        assert state, "the run did not begin"
    finally:
        harness.kill()
        harness.wait()
    pids = [node["pid"] for node in state["nodes"]]
    while any(process_start(pid) for pid in pids):
        assert time.monotonic() < deadline_s + 20, "a node outlived its run"
        time.sleep(0.05)
    assert main(["check", "latest", "--results", str(runs), "--no-spark"]) == 2
    verdict = json.loads((runs / "latest" / "verdict.json").read_text())
    assert verdict["coverage"]["appends_acked"] > 20


def test_arms_of_a_comparison_share_one_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "--vary", "on=simulation,local", "--seeds", "2", "--no-spark"]
    assert main([*words, "--results", str(tmp_path / "runs")]) == 254
    assert "in one environment" in capsys.readouterr().err


@pytest.mark.long
def test_a_swarm_of_processes_runs_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "local.toml"
    path.write_text(experiments.dumps(local()), encoding="utf-8")
    words = ["swarm", str(path), "--seeds", "2", "--no-spark", "--quiet"]
    assert main([*words, "--results", str(tmp_path / "runs")]) == 0
    (folder,) = (tmp_path / "runs").glob("swarm-*")
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert [(row["seed"], row["verdict"], row["trace_hash"]) for row in rows] == [
        (0, "valid", ""),
        (1, "valid", ""),
    ]
    assert len(list((folder / "runs").glob("*/*/report.html"))) == 2
