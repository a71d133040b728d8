"""Distributes run requests: a task hands its slice to a worker process and returns one row per run.

The job knows nothing of what a run is: lines go in, lines come out. Rows are also written as Parquet, so that
later campaigns and other tools can aggregate them with plain Spark SQL.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

SLICES_PER_CORE = 6
"""Small enough slices to keep all cores busy to the end, few enough to pay the worker's start only a few times."""

_COLUMNS = (
    "seed long, arm string, verdict string, unexcused_lost_records long, excused_lost_records long, "
    "unavailable_ms double, wall_s double, error string, row string"
)


def distribute_job(session: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Runs every request of a file.

    Args:
        session: The Spark session.
        arguments: `requests` (path, one JSON object a line), `rows` (path for the Parquet rows), `progress`
            (path that workers append a byte to), `worker` (module to start).

    Returns:
        `rows`: every worker's answers, in any order.
    """
    requests = Path(arguments["requests"]).read_text(encoding="utf-8").splitlines()
    context = session.sparkContext
    slices = max(1, min(len(requests), SLICES_PER_CORE * context.defaultParallelism))
    worker = _Worker(arguments["worker"], arguments["progress"])
    lines = context.parallelize(requests, slices).mapPartitions(worker).collect()
    rows = [json.loads(line) for line in lines]
    frame = session.createDataFrame([_flat(row, line) for row, line in zip(rows, lines, strict=True)], _COLUMNS)
    frame.coalesce(1).write.mode("overwrite").parquet(arguments["rows"])
    return {"rows": rows}


class _Worker:
    """What a task runs: starts the worker module and passes lines through it. Pickled by Spark, by reference."""

    def __init__(self, module: str, progress: str) -> None:
        self.module = module
        self.progress = progress

    def __call__(self, lines: Iterable[str]) -> Iterator[str]:
        """Returns the worker's answer lines."""
        requests = "".join(line + "\n" for line in lines)
        if not requests:
            return iter(())
        finished = subprocess.run(
            [sys.executable, "-m", self.module],
            input=requests,
            text=True,
            stdout=subprocess.PIPE,
            env={**os.environ, "LASTSTAND_PROGRESS": self.progress},
            check=True,
        )
        return iter(finished.stdout.splitlines())


def _flat(row: Mapping[str, Any], line: str) -> tuple[Any, ...]:
    return (
        int(row["seed"]),
        str(row["arm"]),
        str(row["verdict"]),
        int(row["unexcused_lost_records"]),
        int(row["excused_lost_records"]),
        float(row["unavailable_ms"]),
        float(row["wall_s"]),
        str(row["error"]),
        line,
    )
