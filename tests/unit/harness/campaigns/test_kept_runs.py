import random
from pathlib import Path
from typing import Any

import pytest

from harness.campaigns.kept_runs import KeptRuns, is_failing, keep_error, stored_run
from harness.campaigns.worker import failed_row
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment
from results.store import RunStore

STAMP = "20260101T000000Z"


def _row(index: int, *, failing: bool) -> dict[str, Any]:
    request = {"seed": index, "arm": "a", "run": f"arm-1/{STAMP}-{index}", "experiment": {}}
    row = failed_row(request, "it died" if failing else "")
    return {**row, "verdict": "unknown", "index": index}


def _store(directory: Path, row: dict[str, Any]) -> None:
    data = experiments.to_data(Experiment())
    keep_error(directory / "runs" / row["run"], row["run"], row, data)


def test_invalid_runs_violations_and_errors_are_failing() -> None:
    row = _row(1, failing=False)
    assert not is_failing(row)
    assert not is_failing({**row, "verdict": "valid"})
    assert is_failing({**row, "verdict": "invalid"})
    assert is_failing({**row, "verdict": "valid", "violations": ["INV-1"]})
    assert is_failing({**row, "error": "it hung"})


def test_a_scripted_scenario_fails_if_it_has_another_outcome_than_the_predicted_one() -> None:
    row = {**_row(1, failing=False), "verdict": "invalid", "outcome": "loss", "predicted": "loss"}
    assert not is_failing(row)
    assert is_failing({**row, "predicted": "ok"})
    assert is_failing({**row, "verdict": "valid", "outcome": "ok"})
    assert is_failing({**row, "violations": ["INV-1"]})


@pytest.mark.parametrize("workers", [1, 3, 8])
def test_the_first_failing_runs_of_the_plan_are_stored_for_any_number_of_workers(
    tmp_path: Path, workers: int
) -> None:
    """Runs end in any order; those that were stored too early are removed."""
    draw = random.Random(workers)
    failing = set(draw.sample(range(60), 12))
    kept = KeptRuns(tmp_path, 4)
    flying: list[tuple[int, bool]] = []
    stored = 0
    for index in range(60):
        flying.append((index, kept.wants(index)))
        while len(flying) >= workers or (index == 59 and flying):
            done, keep = flying.pop(draw.randrange(len(flying)))
            row = _row(done, failing=done in failing)
            if keep and is_failing(row):
                _store(tmp_path, row)
                stored += 1
            kept.notice(row)
    expected = {f"{STAMP}-{index}" for index in sorted(failing)[:4]}
    assert {path.name for path in (tmp_path / "runs" / "arm-1").iterdir()} == expected
    assert stored < 4 + workers
    again = KeptRuns(tmp_path, 4)
    for index in range(60):
        again.notice(_row(index, failing=index in failing))
    again.clean()
    assert {path.name for path in (tmp_path / "runs" / "arm-1").iterdir()} == expected


def test_what_an_interrupted_process_left_without_a_row_is_removed(tmp_path: Path) -> None:
    for index in range(3):
        _store(tmp_path, _row(index, failing=True))
    (tmp_path / "runs" / "arm-1" / f".{STAMP}-7.123.partial").mkdir()
    kept = KeptRuns(tmp_path, 10)
    kept.notice(_row(1, failing=True))
    kept.clean()
    assert [path.name for path in (tmp_path / "runs" / "arm-1").iterdir()] == [f"{STAMP}-1"]


def test_nothing_is_stored_if_nothing_is_to_be_kept(tmp_path: Path) -> None:
    kept = KeptRuns(tmp_path, 0)
    assert not kept.wants(0)
    kept.notice(_row(0, failing=True))
    kept.clean()
    assert not kept.wants(5)


def test_real_runs_are_all_stored_if_they_have_a_row(tmp_path: Path) -> None:
    kept = KeptRuns(tmp_path, 0, keeps_all=True)
    for index in range(3):
        assert kept.wants(index)
        _store(tmp_path, _row(index, failing=False))
    kept.notice(_row(0, failing=False))
    kept.notice(_row(2, failing=True))
    kept.clean()
    names = {path.name for path in (tmp_path / "runs" / "arm-1").iterdir()}
    assert names == {f"{STAMP}-0", f"{STAMP}-2"}


def test_a_run_whose_process_died_is_listed_with_its_error(tmp_path: Path) -> None:
    row = _row(3, failing=True)
    assert stored_run(tmp_path, row) is None
    _store(tmp_path, row)
    assert stored_run(tmp_path, row) == tmp_path / "runs" / row["run"]
    (entry,) = RunStore(tmp_path / "runs").list()
    assert (entry.id, entry.verdict, entry.seed) == (row["run"], "unknown", "3")
    assert entry.summary["error"] == "it died"
