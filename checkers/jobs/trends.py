"""Trends over nights, in SQL over the campaign tables (`results.campaign_tables`): numbers per night and job.

Spark distributes the paths or URIs of the files, and tasks read them with PyArrow: Spark itself reads object
stores only with libraries that its distributions lack. The nights are named one by one: a night that was
interrupted while its tables were written is not among them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from checkers.spark import sql_session
from harness.history.filesystems import located, parquet_file

READ = """
night string, job string, error string, verdict string, operations bigint, faults bigint, unavailable_ms double,
wall_s double, signatures array<string>, marks array<struct<mark: string, count: bigint>>
"""
"""The columns that are read, as Spark declares them."""

COLUMNS = (
    *("night", "job", "error", "verdict", "operations", "faults", "unavailable_ms", "wall_s"),
    *("signatures", "marks"),
)

TASKS_MAX = 32
"""Nights are small files; more tasks would only cost scheduling."""

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
        arguments: `runs`: (night, path or URI of its table `runs`), one for each night.

    Returns:
        `rows`: one per night and job, in their order.
    """
    session = sql_session(spark)
    session.conf.set("spark.sql.shuffle.partitions", "4")
    files = [tuple(each) for each in arguments["runs"]]
    slices = min(len(files), TASKS_MAX)
    rdd = spark.parallelize(files, slices)
    stored = session.createDataFrame(rdd, "night string, path string").mapInArrow(_read, READ)
    stored.createOrReplaceTempView("runs")
    return {"rows": [row.asDict() for row in session.sql(TRENDS).collect()]}


def _read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Reads the files that a task was given, one row group at a time."""
    for batch in batches:
        for file in batch.to_pylist():
            with parquet_file(located(file["path"])) as parquet:
                for rows in parquet.iter_batches(columns=list(COLUMNS[1:])):
                    night = pa.array([file["night"]] * rows.num_rows, pa.string())
                    columns = [night, *(rows.column(name) for name in COLUMNS[1:])]
                    yield pa.RecordBatch.from_arrays(columns, names=list(COLUMNS))
