import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from checkers.spark import SparkOptions
from harness.campaigns import compare as campaigns
from harness.campaigns import distribution
from harness.campaigns.compare import RESULT_FILE, RUNS_FILE, arm_totals, compare, swarm
from harness.campaigns.distribution import Campaign, run_locally
from harness.campaigns.worker import failed_row
from harness.cli.progress import StandardErrorProgress
from harness.errors import HarnessFailure, UsageError
from harness.runs.experiment import Experiment

OFF, ON = "profile=kafka-4.0", "profile=kafka-4.1"


def _row(request: dict[str, Any], lost: int = 0, **values: Any) -> dict[str, Any]:
    row = failed_row(request, "")
    row.update(verdict="invalid" if lost else "valid", unexcused_lost_records=lost, reasons=[])
    if lost:
        row["reasons"] = [f"{lost} records are lost"]
        row["anomalies"] = [{"id": "lost-acked-write", "count": lost, "judgement": "forbidden"}]
    return {**row, **values}


def _arguments(tmp_path: Path, seeds: int) -> dict[str, Any]:
    return {
        "seeds": seeds,
        "first_seed": 10,
        "spark": SparkOptions(enabled=False),
        "progress": StandardErrorProgress(quiet=True),
        "directory": tmp_path / "campaign",
    }


def _answering(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    """Replaces the runs by made-up rows, returned in no useful order."""

    def run(requests: Sequence[dict[str, Any]], *_: Any) -> Campaign:
        return Campaign(rows=[row for row in map(answer, reversed(requests)) if row is not None])

    monkeypatch.setattr(campaigns, "run_locally", run)


def test_arms_are_compared_seed_by_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        lost = 4 if request["arm"] == OFF and request["seed"] < 18 else 0
        return _row(request, lost, unavailable_ms=float(request["seed"]))

    _answering(monkeypatch, answer)
    result = compare(Experiment(), vary="profile=kafka-4.0,kafka-4.1", **_arguments(tmp_path, 10))
    off, on = result["arms"]
    assert (off["name"], on["name"]) == (OFF, ON)
    assert (off["runs"], off["runs_with_unexcused_loss"], off["unexcused_lost_records"]) == (
        10,
        8,
        32,
    )
    assert (on["runs_with_unexcused_loss"], on["errors"], on["valid"]) == (0, 0, 10)
    assert off["unavailable_ms_median"] == 14.5
    assert off["anomalies"] == [{"id": "lost-acked-write", "judgement": "forbidden", "runs": 8}]
    assert result["mcnemar_p"] == 2 / 2**8
    assert result["difference_interval"][0] > 0
    assert [item["seed"] for item in result["discordant"]] == list(range(10, 18))
    assert result["discordant"][0]["losses"] == {OFF: 4, ON: 0}
    directory = tmp_path / "campaign"
    assert result["discordant"][0]["commands"][OFF].endswith(f"{directory}/arm-1.toml --seed 10")
    assert json.loads((directory / RESULT_FILE).read_text(encoding="utf-8")) == result
    rows = [json.loads(line) for line in (directory / RUNS_FILE).read_text("utf-8").splitlines()]
    assert [(row["seed"], row["arm"]) for row in rows[:3]] == [(10, OFF), (10, ON), (11, OFF)]


def test_every_arm_gets_the_same_seeds_and_its_own_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        return _row(request)

    _answering(monkeypatch, answer)
    compare(Experiment(), vary="profile=kafka-4.0,kafka-4.1,kafka-3.6", **_arguments(tmp_path, 3))
    seeds = {arm: sorted(r["seed"] for r in asked if r["arm"] == arm) for arm in (OFF, ON)}
    assert seeds == {OFF: [10, 11, 12], ON: [10, 11, 12]}
    assert len(asked) == 9
    assert all(r["arm"] == f"profile={r['experiment']['profile']}" for r in asked)


def test_errors_are_counted_listed_first_and_kept_out_of_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["seed"] == 12:
            return failed_row(request, "the run took longer than 300 s")
        lost = 1 if request["arm"] == OFF else 0
        broken = ["INV-3"] if request["seed"] == 11 and request["arm"] == ON else []
        return _row(request, lost, violations=broken)

    _answering(monkeypatch, answer)
    result = compare(Experiment(), vary="profile=kafka-4.0,kafka-4.1", **_arguments(tmp_path, 3))
    assert [arm["errors"] for arm in result["arms"]] == [1, 1]
    assert [arm["violations"] for arm in result["arms"]] == [0, 1]
    assert result["mcnemar_p"] == 0.5
    reasons = [item["reason"] for item in result["attention"]]
    assert reasons[:3] == ["the run took longer than 300 s"] * 2 + ["INV-3"]
    assert reasons[3:] == ["1 records are lost"] * 2


def test_an_arm_in_which_every_run_failed_has_no_median() -> None:
    totals = arm_totals([failed_row({"seed": 1, "arm": "a"}, "it died")])
    assert (totals["runs"], totals["judged"], totals["unavailable_ms_median"]) == (1, 0, None)
    assert totals["unknown"] == 0


def test_a_row_that_is_missing_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _answering(monkeypatch, lambda request: None if request["seed"] == 10 else _row(request))
    with pytest.raises(HarnessFailure, match="4 runs were requested, but 2 came back"):
        compare(Experiment(), vary="profile=kafka-4.0,kafka-4.1", **_arguments(tmp_path, 2))


def test_a_swarm_has_one_arm_and_no_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _answering(monkeypatch, lambda request: _row(request, request["seed"] == 11))
    result = swarm(Experiment(profile="kafka-4.1"), **_arguments(tmp_path, 4))
    assert [arm["name"] for arm in result["arms"]] == [ON]
    assert result["mcnemar_p"] is None
    assert [item["seed"] for item in result["attention"]] == [11]


@pytest.mark.parametrize(
    "vary", ["profile", "profile=kafka-4.0", "profile=kafka-4.0,kafka-4.0", "=a,b", "nonsense=1,2"]
)
def test_a_setting_that_cannot_be_varied_is_refused_before_anything_runs(
    tmp_path: Path, vary: str
) -> None:
    with pytest.raises(UsageError):
        compare(Experiment(), vary=vary, **_arguments(tmp_path, 1))
    assert not (tmp_path / "campaign").exists()


def test_a_local_worker_that_dies_fails_the_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dies.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(distribution, "WORKER_MODULE", "dies")
    with pytest.raises(HarnessFailure, match="a worker process ended with code -11"):
        run_locally([{"seed": 1}], StandardErrorProgress(quiet=True), tmp_path)
