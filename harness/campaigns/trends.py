"""Trends: what every night found and how much it ran, per night and job.

With Spark the numbers come from SQL over the runs of all nights (`checkers.jobs.trends`), which scales with the
cluster. Without it, or if the workers of a cluster cannot read the tables because they are on this machine, the
numbers come from the table `jobs`, where each night stored the same ones when it ended.
"""

from pathlib import Path
from typing import Any

from checkers.spark import SparkOptions, run_in_child
from harness.campaigns.night import night_order
from harness.campaigns.night_tables import NightTables
from harness.history.filesystems import is_uri

NIGHTS_MAX = 60
"""Nights in a chart: two months. Older ones stay in the tables."""

TREND_KEYS = (
    *("runs", "valid", "invalid", "unknown", "errors", "findings", "operations", "faults", "marks"),
    *("unavailable_ms_median", "wall_s", "runs_per_min"),
)
"""Numbers of one night and job; `results.campaign_tables.JOBS` explains them."""


def trends(tables: NightTables, spark: SparkOptions, *, log_path: Path) -> list[dict[str, Any]]:
    """Returns one row per night and job (`night`, `job` and `TREND_KEYS`), oldest night first.

    Args:
        tables: The campaign tables.
        spark: Whether and where to use Spark.
        log_path: Where Spark's log goes.

    Raises:
        HistoryError: A table cannot be read.
        HarnessFailure: The Spark job failed; the sentence names its log.
    """
    nights = tables.nights()[-NIGHTS_MAX:]
    if not nights:
        return []
    is_readable = is_uri(tables.root) or not spark.is_cluster
    rows = (
        _from_spark(tables, nights, spark, log_path)
        if spark.enabled and is_readable
        else _stored(tables, nights)
    )
    rows.sort(key=lambda row: (night_order(row["night"]), row["job"]))
    return rows


def _stored(tables: NightTables, nights: list[str]) -> list[dict[str, Any]]:
    return [
        {"night": night, "job": row["job"], **{key: row[key] for key in TREND_KEYS}}
        for night in nights
        for row in tables.read(night, "jobs")
        if row["runs"]
    ]


def _from_spark(
    tables: NightTables, nights: list[str], spark: SparkOptions, log_path: Path
) -> list[dict[str, Any]]:
    result = run_in_child(
        "trends",
        {
            "runs": [[night, tables.path(night, "runs")] for night in nights],
            "master": spark.master,
            "conf": dict(spark.conf),
        },
        log_path=log_path,
    )
    return [{key: row[key] for key in ("night", "job", *TREND_KEYS)} for row in result["rows"]]
