"""Runs in containers in which something else misbehaves: an anomaly stays an anomaly, a verdict a verdict."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main
from harness.environments.hosts.docker import LABEL_RUN, STATE_ROOT, DockerPlacement
from nemesis.agent import state
from results.history_files import read_tables

EXPERIMENT = """
name = "short"
on = "docker"
timings = "fast"
duration_ms = 4000
[workload]
processes = 3
appends_per_s = 40.0
[[schedule]]
fault = "isolate"
targets = ["isr_follower:t-0"]
at_ms = 500
for_ms = 1500
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "short.toml"
    path.write_text(EXPERIMENT)
    return path


def run_experiment(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str
) -> dict[str, Any]:
    arguments = ["run", str(path), "--no-spark", "--quiet", "--json", *words]
    code = main([*arguments, "--results", str(tmp_path / "runs")])
    output: dict[str, Any] = json.loads(capsys.readouterr().out)
    output["exit_code"] = code
    return output


def kill_when_it_works(node: str, is_over: threading.Event) -> None:
    """Kills a node's process without the harness, once it has worked for a while, unless the run ends before."""
    ours = f"{os.getpid():x}-"
    while not is_over.is_set():
        for path in STATE_ROOT.glob(f"{ours}*/processes/{node}.json"):
            began_s = path.stat().st_mtime
            if time.time() - began_s > 3.0:
                os.kill(json.loads(path.read_text())["pid"], signal.SIGKILL)
                return
        time.sleep(0.05)


@pytest.mark.long
def test_a_node_that_dies_unexpectedly_is_an_anomaly_and_not_a_crash(
    engine: Any, experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    is_over = threading.Event()
    killer = threading.Thread(target=kill_when_it_works, args=("b3", is_over))
    killer.start()
    try:
        output = run_experiment(experiment, tmp_path, capsys)
    finally:
        is_over.set()
        killer.join()
    assert output["exit_code"] == 1
    assert [v for v in output["violations"] if v.startswith("b3 ended by itself")]
    assert output["unexcused_lost_records"] == 0


@pytest.mark.long
def test_failures_of_teardown_logs_or_plots_do_not_change_a_verdict(
    engine: Any,
    experiment: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = DockerPlacement.end

    async def end_badly(self: DockerPlacement) -> list[str]:
        await honest(self)
        raise OSError("the engine fell over")

    async def collect_badly(self: DockerPlacement) -> None:
        raise PermissionError("no logs today")

    def no_report(directory: Path, *, place: Path | None = None) -> Path:
        raise ValueError("no plots today")

    monkeypatch.setattr(DockerPlacement, "end", end_badly)
    monkeypatch.setattr(DockerPlacement, "collect", collect_badly)
    monkeypatch.setattr("harness.runs.record.build_report", no_report)
    output = run_experiment(experiment, tmp_path, capsys)
    assert (output["exit_code"], output["verdict"]) == (0, "valid")
    assert output["environment"]["left_behind"] == [
        "collect_badly: PermissionError: no logs today",
        "OSError: the engine fell over",
    ]
    assert "no plots today" in output["report_error"]


def test_a_fault_that_this_environment_cannot_inject_is_refused_before_anything_starts(
    engine: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from harness.environments.hosts import docker

    missing = {"strace": {"level": "no", "how": "", "why": "install strace"}}
    found = {**docker.machine_mechanisms(), **missing}
    monkeypatch.setattr(docker, "machine_mechanisms", lambda: found)
    path = tmp_path / "slow.toml"
    path.write_text(EXPERIMENT.replace('"isolate"', '"io_error"'))
    words = ["run", str(path), "--no-spark", "--results", str(tmp_path / "runs")]
    assert main(words) == 254
    assert "install strace" in capsys.readouterr().err
    assert not list((tmp_path / "runs").glob("*/*"))


def test_simulation_only_conditions_cannot_be_expressed_in_containers(
    engine: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "strict.toml"
    path.write_text(
        EXPERIMENT.replace('"docker"', '"simulation"') + '[cluster]\ndisk = "posix-strict"\n'
    )
    simulated = run_experiment(path, tmp_path, capsys)
    words = ["replay", simulated["run"], "--on", "docker", "--no-spark", "--json", "--quiet"]
    assert main([*words, "--results", str(tmp_path / "runs")]) == 2
    replayed = json.loads(capsys.readouterr().out)
    assert replayed["result"] == "cannot be expressed"
    assert "posix-strict" in replayed["reason"]


def test_a_bridge_that_a_killed_engine_left_is_removed_with_its_run(
    root: None, tmp_path: Path
) -> None:
    run, name = tmp_path / "run", f"ls{os.getpid():08x}"
    state.begin_run(run)
    state.record_interface(run, name)
    subprocess.run(["ip", "link", "add", "name", name, "type", "bridge"], check=True)
    try:
        assert f"interface {name}" in state.remove_run(run)
        assert not Path("/sys/class/net", name).exists()
    finally:
        subprocess.run(["ip", "link", "del", name], check=False, capture_output=True)


@pytest.mark.long
def test_two_runs_that_start_together_get_separate_networks(
    engine: Any, experiment: Path, tmp_path: Path
) -> None:
    # Two clusters on a busy machine take seconds until they acknowledge something without the follower.
    experiment.write_text(EXPERIMENT.replace("4000", "12000").replace("1500", "8000"))
    command = [sys.executable, "-m", "harness.cli", "run", str(experiment), "--no-spark", "--quiet"]
    runs = [
        subprocess.Popen(
            [*command, "--results", str(tmp_path / str(number))],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    try:
        output = [run.communicate(timeout=240)[1] for run in runs]
    finally:
        # One that is still there ends as if it was interrupted, so that nothing of it is left to other tests.
        for run in runs:
            run.terminate()
            run.communicate()
    assert [run.returncode for run in runs] == [0, 0], output


def test_a_run_that_is_refused_for_its_selectors_leaves_nothing(
    engine: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "no_target.toml"
    path.write_text(EXPERIMENT.replace("isr_follower:t-0", "b9"))
    words = ["run", str(path), "--no-spark", "--quiet", "--results", str(tmp_path / "runs")]
    assert main(words) == 254
    assert "b9" in capsys.readouterr().err
    ours = f"{os.getpid():x}-"
    assert not list(STATE_ROOT.glob(f"{ours}*"))
    networks = engine.networks.list(filters={"label": LABEL_RUN})
    assert not [n for n in networks if n.attrs["Labels"][LABEL_RUN].startswith(ours)]


def test_a_terminated_run_removes_its_containers(
    engine: Any, experiment: Path, tmp_path: Path
) -> None:
    experiment.write_text(EXPERIMENT.replace("4000", "60000"))
    command = [sys.executable, "-m", "harness.cli", "run", str(experiment), "--no-spark", "--quiet"]
    run = subprocess.Popen(
        [*command, "--results", str(tmp_path / "runs")], stderr=subprocess.PIPE, text=True
    )
    deadline_s = time.monotonic() + 60
    while not list(STATE_ROOT.glob(f"{run.pid:x}-*/processes/b3.json")):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    run.send_signal(signal.SIGTERM)
    _, output = run.communicate(timeout=60)
    assert (run.returncode, output) == (255, "laststand: interrupted\n")
    ours = f"{run.pid:x}-"
    assert not list(STATE_ROOT.glob(f"{ours}*"))
    containers = engine.containers.list(all=True, filters={"label": LABEL_RUN}, ignore_removed=True)
    assert not [c for c in containers if c.labels[LABEL_RUN].startswith(ours)]
    networks = engine.networks.list(filters={"label": LABEL_RUN})
    assert not [n for n in networks if n.attrs["Labels"][LABEL_RUN].startswith(ours)]


DOWN = """
name = "down"
on = "docker"
timings = "fast"
duration_ms = 8000
[workload]
appends_per_s = 200.0
[[schedule]]
id = "killed"
fault = "kill"
targets = ["follower:t-0"]
at_ms = 2000
for_ms = 4000
[[schedule]]
id = "cut"
fault = "power"
targets = ["down"]
at_ms = 2300
for_ms = 1500
"""


@pytest.mark.long
def test_power_is_cut_on_a_node_that_is_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A killed process leaves what it wrote to the kernel; a power cut takes that."""
    path = tmp_path / "down.toml"
    path.write_text(DOWN)
    output = run_experiment(path, tmp_path, capsys)
    assert (output["exit_code"], output["verdict"]) == (0, "valid"), output["reasons"]
    rows = read_tables(Path(output["directory"]))["faults"].to_pylist()
    killed, cut = rows
    assert killed["resolved"] == cut["resolved"] != []
    assert cut["took_effect"]
    (node,) = cut["resolved"]
    evidence = json.loads(cut["evidence"])[node]
    assert evidence["lost_bytes"] > 0
    assert not evidence["stood"], "it had no process"
    # Its power comes back before the end of the other fault, which keeps it down.
    assert cut["healed_ns"] < killed["healed_ns"]
