"""Trends over nights: SQL over the runs gives the numbers that each night stored."""

from pathlib import Path
from typing import Any

import pytest

from checkers.jobs.trends import trends_job
from checkers.spark import SparkOptions
from harness.campaigns.trends import TREND_KEYS, trends
from tests.unit.harness.campaigns.made_up_nights import BROKEN
from tests.unit.harness.campaigns.test_night_tables import RUNS, row, store


@pytest.mark.long
@pytest.mark.spark
def test_spark_and_the_stored_numbers_agree(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "campaign tables"
    store(root, "2026-11-21", *RUNS[:1])
    store(root, "2026-11-22", *RUNS, row("idle", 9, BROKEN))
    store(root, "2026-11-22-2", row("random", 5, error="killed", verdict="unknown"))
    tables = store(root, "2026-11-23", *RUNS[::-1])
    (root / "night=2026-11-23" / "jobs.parquet").unlink()  # interrupted: this night does not count
    nights = tables.nights()
    arguments = {"runs": [[night, tables.path(night, "runs")] for night in nights]}
    counted = trends_job(spark, arguments)["rows"]
    stored = trends(tables, SparkOptions(enabled=False), log_path=tmp_path / "log")
    assert [(one["night"], one["job"]) for one in counted] == [
        ("2026-11-21", "random"),
        ("2026-11-22", "idle"),
        ("2026-11-22", "random"),
        ("2026-11-22-2", "random"),
    ]
    assert len(counted) == len(stored)
    for one, other in zip(counted, stored, strict=True):
        for key in ("night", "job", *TREND_KEYS):
            assert one[key] == pytest.approx(other[key]), (one["night"], one["job"], key)
