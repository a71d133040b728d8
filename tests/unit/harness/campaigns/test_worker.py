import io
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.campaigns import worker
from harness.campaigns.files import PLAN_FILE
from harness.campaigns.kept_runs import is_failing
from harness.campaigns.worker import (
    ROW_KEYS,
    SimulatedRuns,
    _lost,
    failed_row,
    main,
    run_seed,
)
from harness.cli.campaigns import BUILT_IN_EXPERIMENT
from harness.errors import HarnessFailure
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment
from harness.runs.judge import judge_result
from harness.runs.record import finish_run, record_run
from harness.runs.replay import load_replay
from harness.runs.scripted import scenario_experiment
from harness.runs.simulated import simulate
from harness.scenarios import find_scenario
from results.history_files import is_finished
from results.report.build import build_report
from results.store import RunStore

RUN = "arm-1/20260101T000000Z-7"
REQUEST = {"experiment": {}, "seed": 7, "arm": "profile=kafka-4.1", "run": RUN, "keep": False}
TIMES = {"wall_s": 0, "cpu_s": 0}


def run_seed_forked(request: dict[str, Any]) -> dict[str, Any]:
    with SimulatedRuns() as runs:
        return runs.row(request)


def _replaced(monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    monkeypatch.setattr(worker, "run_seed", run)


def test_a_seed_gives_one_row_whether_forked_or_not() -> None:
    experiment = Experiment(weather="calm", duration_ms=300, final_phase_ms=20000)
    request = {**REQUEST, "experiment": experiments.to_data(experiment)}
    here, forked = run_seed(request), run_seed_forked(request)
    assert here["wall_s"] >= here["cpu_s"] * 0.9 > 0
    assert {**json.loads(json.dumps(here)), **TIMES} == {**forked, **TIMES}
    assert here["error"] == ""
    assert here["operations"] > 0
    assert set(here) == set(failed_row(REQUEST, "")) == set(ROW_KEYS)


def test_an_exception_becomes_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> Any:
        raise RuntimeError("no such luck")

    _replaced(monkeypatch, broken)
    row = run_seed_forked(REQUEST)
    assert row == failed_row(REQUEST, "RuntimeError: no such luck")
    assert (row["verdict"], row["seed"]) == ("unknown", 7)


def test_a_row_that_is_no_json_becomes_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    _replaced(monkeypatch, lambda _: {"counters": object()})
    assert "TypeError" in run_seed_forked(REQUEST)["error"]


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by signal 9"),
        (lambda: os._exit(3), "ended with code 3"),
    ],
)
def test_a_child_that_dies_becomes_a_row(
    monkeypatch: pytest.MonkeyPatch, end: Any, said: str
) -> None:
    _replaced(monkeypatch, lambda _: end())
    assert run_seed_forked(REQUEST)["error"] == f"the run's process {said}"


def test_a_child_that_hangs_is_killed_and_becomes_a_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def hang(_: Any) -> Any:
        (tmp_path / "pid").write_text(str(os.getpid()), encoding="utf-8")
        time.sleep(60)

    _replaced(monkeypatch, hang)
    monkeypatch.setattr(worker, "RUN_WALL_S_MAX", 2.0)
    began = time.monotonic()
    row = run_seed_forked(REQUEST)
    assert row["error"] == "the run took longer than 2 s"
    assert time.monotonic() - began < 30
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text(encoding="utf-8")), 0)


def test_a_bad_run_does_not_affect_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(request: Any) -> Any:
        if request["seed"] == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"seed": request["seed"], "error": ""}

    _replaced(monkeypatch, run)
    monkeypatch.setattr(worker, "warm_up", lambda: None)
    lines = "".join(json.dumps({**REQUEST, "seed": seed}) + "\n" for seed in range(3))
    answers = io.StringIO()
    main(io.StringIO(lines + "\n"), answers)
    rows = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert [row["seed"] for row in rows] == [0, 1, 2]
    assert [bool(row["error"]) for row in rows] == [False, True, False]


def test_runs_share_a_child_and_leave_nothing_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fourth run gets a new child; the hashes are those of runs that were alone."""
    monkeypatch.setattr(worker, "RUNS_PER_CHILD", 3)
    experiment = experiments.load(BUILT_IN_EXPERIMENT, duration_ms=1000)
    request = {**REQUEST, "experiment": experiments.to_data(experiment)}
    children: list[int] = []
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: children.append(fork()) or children[-1])
    with SimulatedRuns() as runs:
        together = [runs.row({**request, "seed": seed}) for seed in (1, 2, 3, 1)]
    assert len(children) == 2
    alone = [run_seed_forked({**request, "seed": seed}) for seed in (1, 2, 3)]
    assert [{**row, **TIMES} for row in together] == [
        {**row, **TIMES} for row in [*alone, alone[0]]
    ]
    assert len({row["trace_hash"] for row in together}) == 3
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


def _kept(tmp_path: Path, experiment: Experiment, **values: Any) -> dict[str, Any]:
    data = experiments.to_data(experiment)
    return {**REQUEST, "experiment": data, "keep": True, "runs": str(tmp_path / "runs"), **values}


def test_a_failing_run_is_stored_like_one_that_was_run_alone(tmp_path: Path) -> None:
    """The worker stores it from memory; `laststand run` writes it while it runs."""
    experiment = experiments.load(BUILT_IN_EXPERIMENT, profile="kafka-4.0")
    row = run_seed_forked(_kept(tmp_path, experiment))
    assert (row["verdict"], row["error"], row["not_stored"]) == ("invalid", "", "")
    directory = tmp_path / "runs" / RUN
    store = RunStore(tmp_path / "alone")
    alone, result = record_run(experiment, 7, store, now=datetime.now(UTC))
    finish_run(alone, RUN, judge_result(experiment, 7, result)[0])
    files, expected = _files(directory), _files(alone)
    assert {"report.html", "verdict.json", "replay.json", "experiment.toml"} < set(files)
    assert set(files) == set(expected)
    # The report and the summaries contain the name of the run.
    named = {"run.json", "report.html", "summary.md"}
    assert {name for name in files if files[name] != expected[name]} <= named
    summary = json.loads(files["run.json"])
    assert summary == {**json.loads(expected["run.json"]), "run": RUN}
    assert summary["trace_hash"] == row["trace_hash"]


def test_a_run_whose_number_is_not_its_seed_is_stored_with_its_seed(tmp_path: Path) -> None:
    """The corpus of a guided search runs under the seeds of its parents."""
    experiment = experiments.load(BUILT_IN_EXPERIMENT, profile="kafka-4.0")
    name = "arm-1/20261128T000000Z-1000"
    (tmp_path / PLAN_FILE).write_text("{}")
    request = _kept(tmp_path, experiment, seed=1000, root_seed=7, run=name)
    row = run_seed_forked(request)
    assert (row["seed"], row["verdict"], row["not_stored"]) == (1000, "invalid", "")
    directory = tmp_path / "runs" / name
    again, seed, data = load_replay(directory)
    assert (seed, data["trace_hash"]) == (7, row["trace_hash"])
    assert simulate(again, seed).trace_hash == row["trace_hash"]
    assert json.loads((directory / "run.json").read_text())["seed"] == 7
    # The page is made before the directory has its name, and its command works.
    summary = (directory / "summary.md").read_text()
    assert summary.startswith(f"# invalid: {name}")
    command = f"laststand replay {directory}"
    assert command in summary
    assert command in (directory / "report.html").read_text()
    # `laststand report` makes the same page again.
    page = (directory / "report.html").read_bytes()
    assert build_report(directory).read_bytes() == page
    # What is known of a run whose process died, too.
    _lost(request, "the run's process died")
    assert json.loads((directory / "run.json").read_text())["seed"] == 7


def _files(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_valid_run_and_one_that_is_not_to_be_kept_are_not_stored(tmp_path: Path) -> None:
    experiment = Experiment(weather="calm", duration_ms=300, final_phase_ms=20000)
    assert run_seed(_kept(tmp_path, experiment))["verdict"] == "valid"
    assert not (tmp_path / "runs").exists()


def test_a_run_that_cannot_be_judged_is_stored_without_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise HarnessFailure("the run was recorded wrongly: row 3")

    monkeypatch.setattr(worker, "judge_result", broken)
    experiment = Experiment(weather="calm", duration_ms=300, final_phase_ms=20000)
    row = run_seed(_kept(tmp_path, experiment))
    assert row["error"] == "HarnessFailure: the run was recorded wrongly: row 3"
    (entry,) = RunStore(tmp_path / "runs").list()
    assert entry.verdict == "unchecked"
    assert is_finished(entry.directory)


def test_a_run_whose_process_dies_is_stored_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _replaced(monkeypatch, lambda _: os._exit(3))
    row = run_seed_forked(_kept(tmp_path, Experiment()))
    (entry,) = RunStore(tmp_path / "runs").list()
    assert (entry.id, entry.summary["error"]) == (RUN, "the run's process ended with code 3")
    assert row["not_stored"] == ""


def test_a_run_that_cannot_be_stored_has_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").write_text("a file", encoding="utf-8")
    _replaced(monkeypatch, lambda _: os._exit(3))
    row = run_seed_forked(_kept(tmp_path, Experiment()))
    assert "NotADirectoryError" in row["not_stored"]


def test_a_replay_by_another_process_has_the_same_trace_hash() -> None:
    experiment = Experiment(weather="calm", duration_ms=300, final_phase_ms=20000)
    request = {**REQUEST, "experiment": experiments.to_data(experiment), "keep": True}
    row = run_seed({**request, "keep": False})
    with worker.Replayer() as replayer:
        assert replayer.compare(request, row) == "same"
        assert replayer.compare(request, {**row, "trace_hash": "other"}) == "different hash"
        assert replayer.compare(request, {**row, "verdict": "invalid"}) == "different verdict"
        wrong = {**request, "experiment": {**request["experiment"], "profile": "kafka-9"}}
        assert replayer.compare(wrong, row).startswith("no replay: UsageError: no profile")


def test_a_replay_whose_process_dies_is_no_confirmation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with worker.Replayer() as replayer:
        for _ in range(2):
            assert replayer.compare(REQUEST, {}) == "no replay: its process ended"


def test_failing_simulated_runs_are_replayed_if_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    def row(request: Any) -> dict[str, Any]:
        verdict = "invalid" if request["seed"] else "valid"
        return {**failed_row(request, ""), "verdict": verdict, "trace_hash": "h"}

    monkeypatch.setattr(worker, "warm_up", lambda: None)
    monkeypatch.setattr(SimulatedRuns, "row", lambda _, request: row(request))
    monkeypatch.setattr(worker.Replayer, "compare", lambda *_: "different hash")
    requests = [{**REQUEST, "seed": seed, "replay": seed != 2} for seed in range(3)]
    answers = io.StringIO()
    main(io.StringIO("".join(json.dumps(request) + "\n" for request in requests)), answers)
    rows = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert [one["replayed"] for one in rows] == ["", "different hash", ""]


def test_no_run_starts_after_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "warm_up", lambda: None)
    monkeypatch.setattr(SimulatedRuns, "row", lambda _, request: failed_row(request, ""))
    now_s = time.time()
    requests = [{**REQUEST, "start_before": now_s + more_s} for more_s in (-1, 600)]
    answers = io.StringIO()
    main(io.StringIO("".join(json.dumps(request) + "\n" for request in requests)), answers)
    late, early = (json.loads(line) for line in answers.getvalue().splitlines())
    assert late == {"arm": REQUEST["arm"], "seed": 7, "skipped": True}
    assert "skipped" not in early


def test_a_scripted_run_states_its_outcome_and_the_predicted_one() -> None:
    data = experiments.to_data(
        scenario_experiment(find_scenario("last-replica-standing"), "kafka-4.0")
    )
    row = run_seed({**REQUEST, "experiment": data})
    assert (row["outcome"], row["predicted"], row["verdict"]) == ("loss", "loss", "invalid")
    assert not is_failing(row)


def test_a_warmed_up_worker_loads_nothing_more_for_a_run() -> None:
    """Every child would load it again, which costs as much as a short run."""
    code = (
        "import sys\nfrom harness.campaigns import worker\nworker.warm_up()\n"
        "before = set(sys.modules)\nimport json\nrow = worker.run_seed(json.loads(sys.argv[1]))\n"
        "assert row['error'] == '', row\nprint(sorted(set(sys.modules) - before))\n"
    )
    data = experiments.to_data(experiments.load(BUILT_IN_EXPERIMENT, duration_ms=1500))
    request = json.dumps({**REQUEST, "experiment": data})
    done = subprocess.run(
        [sys.executable, "-c", code, request], stdout=subprocess.PIPE, text=True, check=True
    )
    loaded = json.loads(done.stdout.replace("'", '"'))
    assert len(loaded) <= 3, loaded


def test_a_worker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Also in the middle of a run: SIGKILL leaves no time to stop anything."""
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdin=subprocess.PIPE)\n"
        "child.stdin.write(b'{\"experiment\": {}}\\n'); child.stdin.flush(); time.sleep(600)\n"
    )
    child = (
        "import os, time\nfrom harness.campaigns import worker\nworker.warm_up = lambda: None\n"
        f"def run(_): open({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getppid()}} {{os.getpid()}}\\n')"
        " or time.sleep(600)\n"
        "worker.run_seed = run\nworker._serve()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, child])
    try:
        deadline_s = time.monotonic() + 60
        while not (tmp_path / "pids").exists() or not (tmp_path / "pids").read_text("utf-8"):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
    finally:
        parent.kill()
        parent.wait()
    for pid in (tmp_path / "pids").read_text("utf-8").split():
        while Path(f"/proc/{pid}").exists() and _state(pid) != "Z":
            assert time.monotonic() < deadline_s + 60
            time.sleep(0.05)


def _state(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"
