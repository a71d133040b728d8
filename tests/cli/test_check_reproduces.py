"""`laststand check` judges a stored run as it was judged first, from its tables alone; marks never matter."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checkers.kernels.verdict_json import verdict_to_json
from harness.cli.main import main
from harness.environments.simulated.monitor import InvariantMonitor
from harness.history.schema import TABLES
from harness.history.writer import HistoryWriter
from harness.runs import experiment_file as experiments
from harness.runs.judge import judge_record
from results.history_files import is_finished, read_tables, write_tables
from system_under_test.invariants import check_invariant
from tests.cli.cli_helpers import call, write

EXPERIMENT = """
name = "short"
weather = "calm"
duration_ms = 1500
[workload]
processes = 4
[[schedule]]
fault = "isolate"
targets = ["isr_follower:t-0"]
at_ms = 300
for_ms = 600
[[schedule]]
fault = "kill"
targets = ["leader:t-0"]
at_ms = 1000
for_ms = 400
"""
SIDE_FILES = ("run.json", "replay.json", "summary.md", "report.html")


def run_short(tmp_path: Path, *, code: int) -> Path:
    path = write(tmp_path / "short.toml", EXPERIMENT)
    words = ["run", str(path), "--no-spark", "--quiet", "--results", str(tmp_path / "runs")]
    assert main(words) == code
    return (tmp_path / "runs" / "latest").resolve()


def simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return run_short(tmp_path, code=0)


def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    words = ["reproduce", "last-replica-standing", "--profile", "kafka-4.0", "--no-spark"]
    assert main([*words, "--quiet", "--results", str(tmp_path / "runs")]) == 1
    return (tmp_path / "runs" / "latest").resolve()


def with_a_broken_invariant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    check = InvariantMonitor.check

    def breaks(self: InvariantMonitor) -> None:
        check(self)
        check_invariant(self.check_count < 20, "INV-9", "this test lets it hold", checks=20)

    monkeypatch.setattr(InvariantMonitor, "check", breaks)
    return run_short(tmp_path, code=1)


def ended_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("harness.runs.simulated.START_LIMIT_MS", 1)
    return run_short(tmp_path, code=2)


def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def dies(history: HistoryWriter, *_: Any, **__: Any) -> None:
        history.flush()
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.runs.simulated.record_end", dies)
    path = write(tmp_path / "short.toml", EXPERIMENT)
    words = ["run", str(path), "--no-spark", "--quiet", "--results", str(tmp_path / "runs")]
    main(words)
    monkeypatch.undo()
    (run,) = (path for path in (tmp_path / "runs" / "short").iterdir() if path.is_dir())
    assert not is_finished(run)
    assert not (run / "verdict.json").exists()
    assert main(["check", str(run), "--no-spark", "--quiet"]) == 2
    return run


@pytest.mark.parametrize(
    ("make", "validity", "reason"),
    [
        (simulated, "valid", ""),
        (scripted, "invalid", "lost-acked-write in t-0 (5)"),
        (with_a_broken_invariant, "invalid", "INV-9: this test lets it hold (checks=20)"),
        (ended_early, "unknown", "the run ended early: "),
        (killed, "unknown", "the run ended early: the harness died before the run was over"),
    ],
)
def test_check_reproduces_the_stored_verdict_from_the_tables_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path, pytest.MonkeyPatch], Path],
    validity: str,
    reason: str,
) -> None:
    run = make(tmp_path, monkeypatch)
    monkeypatch.undo()
    first = (run / "verdict.json").read_bytes()
    verdict = json.loads(first)
    assert verdict["validity"] == validity
    assert any(reason in text for text in verdict["reasons"]) or not reason
    experiment = experiments.load(run / "experiment.toml")
    judged_in_memory = verdict_to_json(judge_record(read_tables(run), experiment))
    assert json.loads(json.dumps(judged_in_memory)) == verdict
    for name in ("verdict.json", *SIDE_FILES):
        (run / name).unlink(missing_ok=True)
    if is_finished(run):
        # Once the run has recorded its context, even the experiment is not used.
        (run / "experiment.toml").unlink()
    main(["check", str(run), "--no-spark", "--quiet"])
    assert (run / "verdict.json").read_bytes() == first


def test_a_killed_run_is_judged_by_its_record_even_if_its_experiment_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = killed(tmp_path, monkeypatch)
    first = (run / "verdict.json").read_bytes()
    (run / "experiment.toml").unlink()
    (run / "run.json").unlink()
    outcome = call(capsys, "check", run, "--no-spark", "--quiet", "--json")
    assert outcome.code == 2
    assert (run / "verdict.json").read_bytes() == first


def _emptied(marks: pa.Table) -> pa.Table:
    return marks.slice(0, 0)


def _renamed(marks: pa.Table) -> pa.Table:
    rows = [{**row, "mark": f"other-{row['mark']}", "details": "{}"} for row in marks.to_pylist()]
    return pa.Table.from_pylist(rows, schema=TABLES["marks"])


@pytest.mark.parametrize("change", [_emptied, _renamed])
@pytest.mark.parametrize("make", [simulated, scripted])
def test_marks_never_influence_a_verdict(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path, pytest.MonkeyPatch], Path],
    change: Callable[[pa.Table], pa.Table],
) -> None:
    run = make(tmp_path, monkeypatch)
    first = (run / "verdict.json").read_bytes()
    tables = read_tables(run)
    assert tables["marks"].num_rows > 0
    other = tmp_path / "other" / run.name
    shutil.copytree(run, other)
    write_tables(other, {**tables, "marks": change(tables["marks"])})
    main(["check", str(other), "--no-spark", "--quiet"])
    assert (other / "verdict.json").read_bytes() == first
