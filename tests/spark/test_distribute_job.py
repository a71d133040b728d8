"""Campaigns on Spark and without it: the same rows, the same numbers."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from checkers.jobs.distribute import ROWS, _Worker, distribute_job, totals_of, write_rows
from checkers.spark import sql_session
from harness.campaigns.compare import arm_totals
from harness.campaigns.distribution import WORKER_MODULE, run_locally
from harness.campaigns.worker import failed_row
from harness.cli.progress import StandardErrorProgress
from harness.errors import HarnessFailure
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment
from tests.spark.local_spark import LocalSpark

ARMS = ("profile=kafka-4.0", "profile=kafka-4.1")


def _requests(seeds: int) -> list[dict[str, Any]]:
    """Returns short calm runs of both arms."""
    base = Experiment(weather="calm", duration_ms=400, final_phase_ms=20000)
    return [
        {
            "experiment": experiments.to_data(
                experiments.vary(base, "profile", arm.partition("=")[2])
            ),
            "seed": seed,
            "arm": arm,
        }
        for seed in range(seeds)
        for arm in ARMS
    ]


def _row(arm: str, seed: int, **values: Any) -> dict[str, Any]:
    row = {**failed_row({"seed": seed, "arm": arm}, ""), "verdict": "valid", "reasons": []}
    return {**row, **values}


MADE_UP = [
    _row("a", 1, unavailable_ms=10.5, wall_s=0.5),
    _row("a", 2, unavailable_ms=0.1, unexcused_lost_records=3, verdict="invalid", wall_s=0.25),
    _row("a", 3, unavailable_ms=7.3, unexcused_lost_records=2, verdict="invalid"),
    _row("a", 4, unavailable_ms=1e9, excused_lost_records=4, verdict="unknown"),
    failed_row({"seed": 5, "arm": "a"}, "it hung"),
    _row("b", 1, unavailable_ms=3.25, violations=["INV-1", "INV-2"], verdict="invalid"),
    _row("b", 2, unavailable_ms=1 / 3),
    failed_row({"seed": 1, "arm": "c"}, "it died"),
]
for _index, _kind in enumerate(("lost-acked-write", "stale-end", "stale-end", "duplicate")):
    MADE_UP[_index]["anomalies"] = [
        {"id": _kind, "count": 2, "judgement": "forbidden"},
        {"id": "late-insert", "count": 1, "judgement": "informational"},
    ]


@pytest.mark.spark
def test_sql_over_the_stored_rows_and_python_count_the_same(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write_rows(path, [json.dumps(row) for row in MADE_UP])
    totals = totals_of(sql_session(spark), path)
    assert totals == {
        arm: arm_totals([row for row in MADE_UP if row["arm"] == arm]) for arm in ("a", "b", "c")
    }
    assert totals["a"]["unexcused_lost_records"] == 5
    assert totals["c"]["unavailable_ms_median"] is None


@pytest.mark.spark
def test_a_campaign_on_spark_and_a_local_one_have_the_same_rows(spark: Any, tmp_path: Path) -> None:
    requests = _requests(1)
    (tmp_path / "requests").write_text(
        "".join(json.dumps(request) + "\n" for request in requests), encoding="utf-8"
    )
    arguments = {
        "requests": str(tmp_path / "requests"),
        "rows": str(tmp_path / "rows.parquet"),
        "progress": str(tmp_path / "progress"),
        "worker": WORKER_MODULE,
    }
    response = distribute_job(spark, arguments)
    (tmp_path / "local").mkdir()
    local = run_locally(requests, StandardErrorProgress(quiet=True), tmp_path / "local")
    assert [(row["seed"], row["arm"]) for row in response["rows"]] == [
        (request["seed"], request["arm"]) for request in requests
    ]
    assert _timeless(response["rows"]) == _timeless(local.rows)
    assert not any(row["error"] for row in response["rows"])
    assert all(row["operations"] > 0 for row in response["rows"])
    for arm in ARMS:
        counted = arm_totals([row for row in local.rows if row["arm"] == arm])
        assert {**response["totals"][arm], "wall_s": 0} == {**counted, "wall_s": 0}
    stored = pq.read_table(tmp_path / "rows.parquet")
    assert stored.schema.equals(ROWS)
    assert [json.loads(row) for row in stored.column("row").to_pylist()] == response["rows"]
    assert (tmp_path / "progress").stat().st_size == len(requests)


def test_a_worker_process_that_dies_fails_the_campaign(tmp_path: Path) -> None:
    requests = tmp_path / "requests"
    requests.write_text("{}\n{}\n", encoding="utf-8")
    arguments = {
        "requests": str(requests),
        "rows": str(tmp_path / "rows.parquet"),
        "progress": str(tmp_path / "progress"),
        "worker": "harness.no_such_module",
    }
    with pytest.raises(HarnessFailure, match="a worker process ended with code 1"):
        distribute_job(LocalSpark(), arguments)
    assert not (tmp_path / "rows.parquet").exists()


def test_an_empty_slice_starts_no_worker() -> None:
    assert list(_Worker("harness.no_such_module", "")([])) == []


def _timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ordered = sorted(rows, key=lambda row: (row["seed"], row["arm"]))
    return [{key: value for key, value in row.items() if key != "wall_s"} for row in ordered]
