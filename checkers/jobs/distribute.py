"""Distributes run requests: a task passes its slice to a worker process and returns one row per run.

The job does not know how a run is made: lines go in, lines come out. The rows are also written as Parquet, and the
numbers of every arm come from that file in plain SQL, so that later campaigns and other tools can query many of
them in the same way.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from checkers.spark import sql_session
from harness.errors import HarnessFailure

SLICES_PER_CORE = 6
"""Small enough slices to keep all cores busy to the end."""

RUNS_PER_SLICE_MIN = 4
"""A slice pays the worker's start, about a second; a run takes about as long."""

ROWS = pa.schema(
    [
        ("seed", pa.int64()),
        ("arm", pa.string()),
        ("verdict", pa.string()),
        ("unexcused_lost_records", pa.int64()),
        ("excused_lost_records", pa.int64()),
        ("unavailable_ms", pa.float64()),
        ("wall_s", pa.float64()),
        ("violations", pa.int64()),
        ("error", pa.string()),
        ("anomalies", pa.list_(pa.struct([("id", pa.string()), ("judgement", pa.string())]))),
        ("row", pa.string()),
    ]
)
"""One row per run; `row` is all of it as JSON, the other columns are what queries use."""

_SMALL_DATA = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""A campaign has some thousands of rows: compiling the plan would cost more than running it."""

_TOTALS = """
SELECT arm,
       count(*) AS runs,
       count_if(error = '') AS judged,
       count_if(error = '' AND unexcused_lost_records > 0) AS runs_with_unexcused_loss,
       coalesce(sum(unexcused_lost_records) FILTER (WHERE error = ''), 0) AS unexcused_lost_records,
       count_if(error = '' AND excused_lost_records > 0) AS runs_with_excused_loss,
       percentile(unavailable_ms, 0.5) FILTER (WHERE error = '') AS unavailable_ms_median,
       count_if(error = '' AND verdict = 'valid') AS valid,
       count_if(error = '' AND verdict = 'invalid') AS invalid,
       count_if(error = '' AND verdict = 'unknown') AS unknown,
       count_if(error = '' AND violations > 0) AS violations,
       coalesce(sum(wall_s) FILTER (WHERE error = ''), 0.0D) AS wall_s
FROM campaign GROUP BY arm
"""

_ANOMALIES = """
SELECT arm, anomaly.id AS id, anomaly.judgement AS judgement, count(*) AS runs
FROM (SELECT arm, explode(array_distinct(anomalies)) AS anomaly FROM campaign WHERE error = '')
GROUP BY arm, anomaly.id, anomaly.judgement
ORDER BY arm, id, judgement
"""


def distribute_job(spark: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Runs every request of a file.

    Args:
        spark: The Spark context.
        arguments: `requests` (path, one JSON object a line), `rows` (the Parquet file to write), `progress` (path
            that workers append a byte to after every run), `worker` (module to start).

    Returns:
        `rows`: the workers' results, in the order of the requests; `totals`: the numbers of every arm.

    Raises:
        HarnessFailure: A worker process died.
    """
    requests = Path(arguments["requests"]).read_text(encoding="utf-8").splitlines()
    cores = spark.defaultParallelism
    slices = min(len(requests) // RUNS_PER_SLICE_MIN, SLICES_PER_CORE * cores)
    slices = max(slices, min(len(requests), cores), 1)
    worker = _Worker(arguments["worker"], arguments["progress"])
    results = spark.parallelize(requests, slices).mapPartitions(worker).collect()
    died = [text for code, text in results if code]
    if died:
        raise HarnessFailure(died[0])
    lines = [text for _, text in results]
    write_rows(Path(arguments["rows"]), lines)
    return {
        "rows": [json.loads(line) for line in lines],
        "totals": totals_of(sql_session(spark), Path(arguments["rows"])),
    }


def write_rows(path: Path, lines: Sequence[str]) -> None:
    """Writes the rows of a campaign as one Parquet file; see `ROWS`."""
    columns: dict[str, list[Any]] = {name: [] for name in ROWS.names}
    for line in lines:
        row = json.loads(line)
        flat = {**row, "violations": len(row["violations"]), "row": line}
        flat["anomalies"] = [{key: a[key] for key in ("id", "judgement")} for a in row["anomalies"]]
        for name, values in columns.items():
            values.append(flat[name])
    pq.write_table(pa.table(columns, schema=ROWS), path, compression="zstd")


def totals_of(session: Any, path: Path) -> dict[str, dict[str, Any]]:
    """Returns the numbers of every arm of a stored campaign, by arm.

    Args:
        session: The SQL session.
        path: What `write_rows` wrote.
    """
    for key, value in _SMALL_DATA.items():
        session.conf.set(key, value)
    session.read.parquet(str(path)).createOrReplaceTempView("campaign")
    totals = {
        row["arm"]: {**row.asDict(), "anomalies": []} for row in session.sql(_TOTALS).collect()
    }
    for row in session.sql(_ANOMALIES).collect():
        kinds: list[dict[str, Any]] = totals[row["arm"]]["anomalies"]
        kinds.append({"id": row["id"], "judgement": row["judgement"], "runs": row["runs"]})
    for numbers in totals.values():
        del numbers["arm"]
    return totals


class _Worker:
    """What a task runs: starts the worker module and passes lines through it. Pickled by Spark, by reference."""

    def __init__(self, module: str, progress: str) -> None:
        self.module = module
        self.progress = progress

    def __call__(self, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
        """Returns (0, result line) for every line; (1, what happened) if the process died."""
        requests = "".join(line + "\n" for line in lines)
        if not requests:
            return iter(())
        finished = subprocess.run(
            [sys.executable, "-m", self.module],
            input=requests,
            text=True,
            stdout=subprocess.PIPE,
            env={**os.environ, "LASTSTAND_PROGRESS": self.progress},
            check=False,
        )
        if finished.returncode != 0:
            return iter([(1, f"a worker process ended with code {finished.returncode}")])
        return iter([(0, line) for line in finished.stdout.splitlines()])
