import io
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from harness.campaigns import worker
from harness.campaigns.worker import SUMMARY_KEYS, failed_row, main, run_seed, run_seed_forked
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment

REQUEST = {"experiment": {}, "seed": 7, "arm": "profile=kafka-4.1"}


def _replaced(monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    monkeypatch.setattr(worker, "run_seed", run)


def test_a_seed_gives_one_row_whether_forked_or_not() -> None:
    experiment = Experiment(weather="calm", duration_ms=300, final_phase_ms=20000)
    request = {**REQUEST, "experiment": experiments.to_data(experiment)}
    here, forked = run_seed(request), run_seed_forked(request)
    assert here["wall_s"] > 0
    assert {**json.loads(json.dumps(here)), "wall_s": 0} == {**forked, "wall_s": 0}
    assert here["error"] == ""
    assert here["operations"] > 0
    assert set(here) == set(failed_row(REQUEST, "")) == {*SUMMARY_KEYS, "arm", "error", "wall_s"}


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


def test_a_bad_run_does_not_affect_the_next_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(request: Any) -> Any:
        if request["seed"] == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"seed": request["seed"], "error": ""}

    _replaced(monkeypatch, run)
    monkeypatch.setenv("LASTSTAND_PROGRESS", str(tmp_path / "progress"))
    lines = "".join(json.dumps({**REQUEST, "seed": seed}) + "\n" for seed in range(3))
    answers = io.StringIO()
    main(io.StringIO(lines + "\n"), answers)
    rows = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert [row["seed"] for row in rows] == [0, 1, 2]
    assert [bool(row["error"]) for row in rows] == [False, True, False]
    assert (tmp_path / "progress").read_bytes() == b"..."


def test_a_progress_file_that_cannot_be_written_loses_no_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _replaced(monkeypatch, lambda request: {"seed": request["seed"]})
    monkeypatch.setenv("LASTSTAND_PROGRESS", str(tmp_path / "nowhere" / "progress"))
    answers = io.StringIO()
    main(io.StringIO(json.dumps(REQUEST)), answers)
    assert json.loads(answers.getvalue()) == {"seed": 7}
