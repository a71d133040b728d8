"""How long checking stored histories takes on a warm Spark session, next to the plain kernels.

`python -m benchmarks.bench_spark --operations 1000000 --partitions 1 4`

Valid synthetic histories are written to a temporary directory first. "plain" reads the same files and judges them
in this process; both must give the same verdict. Times are wall time, the median of several calls after one that
warms up; the first call of the session is shown too.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from checkers.jobs.check import check_job, plan
from checkers.kernels.compose import judge_run
from checkers.kernels.verdict_json import verdict_to_json
from checkers.spark import spark_context
from checkers.synthetic import Shape, synthetic_tables
from harness.contracts.run_context import RunContext
from harness.history.parquet import write_tables
from results.history_files import read_tables

TARGET_S = {1_000_000: 2.0}
"""Warm session, two cores."""

CONTEXT = RunContext(acked_during_faults_min=0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=1_000_000, help="of all partitions")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument(
        "--buckets", action="store_true", help="cut every partition as if it were huge"
    )
    arguments = parser.parse_args()
    began = time.perf_counter()
    spark = spark_context("bench", master=arguments.master)
    print(json.dumps({"session_start_s": round(time.perf_counter() - began, 2)}), flush=True)
    try:
        for partitions in arguments.partitions:
            with tempfile.TemporaryDirectory(prefix="laststand-bench-") as directory:
                numbers = measure(spark, Path(directory), partitions, arguments)
            print(json.dumps(numbers), flush=True)
    finally:
        spark.stop()
    return 0


def measure(
    spark: Any, run: Path, partitions: int, arguments: argparse.Namespace
) -> dict[str, object]:
    """Returns the times for one layout."""
    write_tables(run, history(arguments.operations, partitions))
    extra = {"huge_operations": 0} if arguments.buckets else {}

    def on_spark() -> dict[str, Any]:
        return check_job(spark, {**plan([run], [asdict(CONTEXT)]), **extra})

    def plain() -> dict[str, Any]:
        return verdict_to_json(judge_run(read_tables(run), CONTEXT))

    first_s, result = timed_s(on_spark)
    if result["verdicts"] != [plain()]:
        raise SystemExit("Spark and the plain kernels disagree")
    spark_s = statistics.median(timed_s(on_spark)[0] for _ in range(arguments.repeats))
    plain_s = statistics.median(timed_s(plain)[0] for _ in range(arguments.repeats))
    return {
        "operations": arguments.operations,
        "partitions": partitions,
        "verdict": result["verdicts"][0]["validity"],
        "cut_into_buckets": result["cut"],
        "first_s": round(first_s, 2),
        "warm_s": round(spark_s, 2),
        "target_s": TARGET_S.get(arguments.operations),
        "plain_s": round(plain_s, 2),
        "warm_over_plain": round(spark_s / plain_s, 2),
    }


def history(operations: int, partitions: int) -> dict[str, pa.Table]:
    """Returns a valid history of several partitions of equal size."""
    parts = []
    for partition in range(partitions):
        shape = Shape(operations=operations // partitions, seed=partition + 1)
        parts.append(synthetic_tables(shape, partition=partition))
    return {name: pa.concat_tables([part[name] for part in parts]) for name in parts[0]}


def timed_s(work: Callable[[], dict[str, Any]]) -> tuple[float, dict[str, Any]]:
    """Returns how long a call takes, and what it returns."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


if __name__ == "__main__":
    sys.exit(main())
