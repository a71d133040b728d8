"""Trends over nights, in SQL over the campaign tables (`results.campaign_tables`): numbers per night and job.

The nights are named one by one: a night that was interrupted while its tables were written is not among them.
"""

from collections.abc import Mapping
from typing import Any

from checkers.spark import sql_session

_SETTINGS = {
    # Otherwise Spark takes 2026-11-22 for a date, and fails at 2026-11-22-2.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
}

TRENDS = """
WITH found AS (
    SELECT night, job, count(DISTINCT signature) AS findings
    FROM (SELECT night, job, explode(signatures) AS signature FROM runs)
    GROUP BY night, job
), reached AS (
    SELECT night, job, count(DISTINCT mark.mark) AS marks
    FROM (SELECT night, job, explode(marks) AS mark FROM runs WHERE error = '')
    GROUP BY night, job
), counted AS (
    SELECT night,
           job,
           count(*) AS runs,
           count_if(error = '' AND verdict = 'valid') AS valid,
           count_if(error = '' AND verdict = 'invalid') AS invalid,
           count_if(error = '' AND verdict NOT IN ('valid', 'invalid')) AS unknown,
           count_if(error <> '') AS errors,
           coalesce(sum(operations) FILTER (WHERE error = ''), 0) AS operations,
           coalesce(sum(faults) FILTER (WHERE error = ''), 0) AS faults,
           percentile(unavailable_ms, 0.5) FILTER (WHERE error = '') AS unavailable_ms_median,
           sum(wall_s) AS wall_s,
           CASE WHEN sum(wall_s) > 0 THEN 60 * count(*) / sum(wall_s) ELSE 0.0D END AS runs_per_min
    FROM runs
    GROUP BY night, job
)
SELECT counted.*, coalesce(found.findings, 0) AS findings, coalesce(reached.marks, 0) AS marks
FROM counted
LEFT JOIN found ON counted.night = found.night AND counted.job = found.job
LEFT JOIN reached ON counted.night = reached.night AND counted.job = reached.job
ORDER BY counted.night, counted.job
"""
"""One row per night and job."""


def trends_job(spark: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Counts the runs of several nights.

    Args:
        spark: The Spark context.
        arguments: `root` (of the tables) and `runs` (the file of each night), as paths or URIs that Spark takes.

    Returns:
        `rows`: one per night and job, in their order.
    """
    session = sql_session(spark)
    for key, value in _SETTINGS.items():
        session.conf.set(key, value)
    stored = session.read.option("basePath", arguments["root"]).parquet(*arguments["runs"])
    stored.createOrReplaceTempView("runs")
    return {"rows": [row.asDict() for row in session.sql(TRENDS).collect()]}
