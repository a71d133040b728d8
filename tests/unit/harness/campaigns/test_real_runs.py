"""Real runs that hang or whose process dies: they become rows, and nothing of them is left."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.campaigns import real_runs, worker
from harness.campaigns.kept_runs import stored_run
from harness.campaigns.real_runs import hang_limit_s, planned_s
from harness.campaigns.row_log import key_of
from harness.campaigns.signature import finding_of_error
from harness.campaigns.worker import failed_row, run_real_seed_forked
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment
from nemesis.agent.processes.procfs import process_start

LOCAL = Experiment(on="local", duration_ms=20_000)
RUN = "job-1/20260301T220000Z-7"
LIMIT_S = 60


def request_of(tmp_path: Path, **values: Any) -> dict[str, Any]:
    runs = tmp_path / "runs"
    data = experiments.to_data(LOCAL)
    request = {"experiment": data, "seed": 7, "arm": "real", "run": RUN, "runs": str(runs)}
    return {**request, "keep": True, "limit_s": 0.5, **values}


@pytest.fixture
def interruptible() -> Any:
    """Handles SIGTERM as a worker process does."""
    before = signal.signal(signal.SIGTERM, worker._interrupted)
    yield
    signal.signal(signal.SIGTERM, before)


def test_the_limit_follows_from_the_planned_length_and_is_longer_than_that_of_the_phases() -> None:
    assert planned_s(LOCAL) == 60 + 20 + 60
    assert hang_limit_s(LOCAL) == 3 * 140
    assert hang_limit_s(LOCAL, 2.0) == 2 * 140
    slow = Experiment(on="local", duration_ms=20_000, time_scale=10)
    assert planned_s(slow) == 10 * planned_s(LOCAL)
    for scale in (0.5, 1, 10):
        for duration_ms in (300, 20_000, 3_600_000):
            one = Experiment(on="local", duration_ms=duration_ms, time_scale=scale)
            start_ms = real_runs.START_LIMIT_MS * scale
            phases_ms = 2 * start_ms + 2 * one.main_phase_ms + one.final_phase_max_ms
            assert hang_limit_s(one) > phases_ms / 1e3


def test_a_run_that_hangs_removes_what_it_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interruptible: None
) -> None:
    def hang(_: Any) -> Any:
        try:
            time.sleep(LIMIT_S)
        except KeyboardInterrupt:
            (tmp_path / "removed").touch()
            raise

    monkeypatch.setattr(worker, "run_real_seed", hang)
    row = run_real_seed_forked(request_of(tmp_path))
    assert row["error"] == "the run did not end within 0.5 s, the limit for a run that hangs"
    assert (row["verdict"], row["repeat"], row["seed"]) == ("unknown", 0, 7)
    assert row["wall_s"] >= 0.5
    assert (tmp_path / "removed").exists()


def test_a_run_that_cannot_be_interrupted_is_killed_with_its_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interruptible: None
) -> None:
    """A stopped node does not notice that its harness is gone."""
    directory = tmp_path / "runs" / RUN

    def hang(_: Any) -> Any:
        (directory / "nodes" / "b1" / "data").mkdir(parents=True)
        (directory / "nodes" / "b1" / "node.log").write_text("started")
        words = [sys.executable, "-c", "import time; time.sleep(600)"]
        node = subprocess.Popen(
            [*words, str(directory / "nodes" / "b1" / "node.toml")], start_new_session=True
        )
        other = subprocess.Popen([*words, str(tmp_path)], start_new_session=True)
        os.kill(node.pid, signal.SIGSTOP)
        for name, process in (("node", node), ("other", other)):
            pid = process.pid
            (tmp_path / name).write_text(f"{pid} {process_start(pid)}")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(LIMIT_S)

    monkeypatch.setattr(worker, "run_real_seed", hang)
    monkeypatch.setattr(worker, "STOP_S", 0.5)
    row = run_real_seed_forked(request_of(tmp_path, limit_s=3.0, repeat=2, repeated=["a"]))
    pid, began = map(int, (tmp_path / "other").read_text().split())
    try:
        assert row["error"] == (
            "the run did not end within 3 s, the limit for a run that hangs, nor within 0.5 s after "
            "SIGTERM, and was killed"
        )
        assert (row["repeat"], row["repeated"]) == (2, ["a"])
        assert process_start(pid) == began, "a process of something else"
        node, node_began = map(int, (tmp_path / "node").read_text().split())
        deadline_s = time.monotonic() + LIMIT_S
        while process_start(node) == node_began and _state(node) != "Z":
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
    finally:
        os.kill(pid, signal.SIGKILL)
    assert stored_run(tmp_path, row) == directory, "its logs can be read"
    assert (directory / "nodes" / "b1" / "node.log").read_text() == "started"
    assert not (directory / "nodes" / "b1" / "data").exists()


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by signal 9"),
        (lambda: os._exit(3), "ended with code 3"),
    ],
)
def test_a_process_that_dies_becomes_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Any, said: str
) -> None:
    monkeypatch.setattr(worker, "run_real_seed", lambda _: end())
    row = run_real_seed_forked(request_of(tmp_path, limit_s=LIMIT_S))
    assert row["error"] == f"the run's process {said}"


def test_an_unexpected_error_becomes_a_row_and_keeps_what_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = tmp_path / "runs" / RUN / "history"

    def broken(_: Any) -> Any:
        history.mkdir(parents=True)
        (history / "journal").write_text("operations")
        raise ValueError("no such thing")

    monkeypatch.setattr(worker, "run_real_seed", broken)
    row = run_real_seed_forked(request_of(tmp_path, limit_s=LIMIT_S))
    assert row["error"] == "ValueError: no such thing"
    assert (history / "journal").read_text() == "operations"
    assert stored_run(tmp_path, row) == history.parent


def test_what_could_not_be_removed_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "run_real_seed", lambda _: os._exit(3))

    def broken(_: Path) -> None:
        raise OSError("the engine\ndoes not respond")

    monkeypatch.setattr(real_runs, "_reset_hosts", broken)
    needs = Experiment(on="ssh", inventory=str(tmp_path / "hosts.toml"))
    data = experiments.to_data(needs)
    row = run_real_seed_forked(request_of(tmp_path, limit_s=LIMIT_S, experiment=data))
    assert row["error"] == (
        "the run's process ended with code 3; not removed: OSError: the engine does not respond"
    )

    monkeypatch.setattr(real_runs, "_reset_hosts", lambda _: time.sleep(LIMIT_S))
    monkeypatch.setattr(real_runs, "REMOVAL_S", 0.5)
    row = run_real_seed_forked(request_of(tmp_path, limit_s=LIMIT_S, experiment=data))
    assert row["error"].endswith("what it left could not be removed; `laststand reset` removes it")


def test_a_repeat_after_its_deadline_is_skipped_under_its_own_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "run_real_seed_forked", lambda one: failed_row(one, ""))
    requests = [
        request_of(tmp_path, repeat=1, repeated=["a"]),
        request_of(tmp_path, repeat=2, repeated=["a"], start_before=time.time() - 1),
    ]
    answers = io.StringIO()
    worker.main(io.StringIO("".join(json.dumps(one) + "\n" for one in requests)), answers)
    first, second = (json.loads(line) for line in answers.getvalue().splitlines())
    assert key_of(first) == ("real", 7, 1)
    assert (key_of(second), second["skipped"]) == (("real", 7, 2), True)


def test_runs_that_hang_are_one_finding_whatever_their_limits(tmp_path: Path) -> None:
    first, second = (
        f"the run did not end within {limit_s} s, the limit for a run that hangs"
        for limit_s in (420, 31.5)
    )
    assert finding_of_error(first).signature == finding_of_error(second).signature
    assert failed_row(request_of(tmp_path), first)["repeat"] == 0
