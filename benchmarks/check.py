"""How long judging a history takes, from its files to the verdict, and how much memory that needs.

`python -m benchmarks.check --operations 1000000 10000000 100000000`

For every size there is a valid history and one with planted anomalies (lost records, a stale log end, a
duplicate), each in one partition and in 64. They are generated and written in pieces to a temporary directory, so
that neither the size nor the number of partitions decides how much memory the benchmark itself needs.

Every history is measured in processes of its own, because the largest memory of a process is known only for all
of its life:

- `read`, `arrays`, `kernel`: CPU seconds for reading each partition, turning it into arrays, and the log kernel;
  partition by partition, so that only one is in memory; a partition that does not fit has none;
- `judge_run`: CPU seconds of the whole judgement of tables in memory, validation included, and its ratio to
  `arrays` and `kernel` together. Larger histories do not fit into memory as tables and have none;
- `here`: wall seconds for judging the files in one process (`laststand check --no-spark`); `spark`: wall seconds
  on a warm Spark session; `spark_first`: of the first call in that session. All must give the same verdict;
- the peak memory of the process for `here`, of Spark's driver (JVM and Python together), and of its largest Python
  worker.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.stored_histories import History, write_history
from checkers.java import find_java
from checkers.jobs.check import check_here, check_job, plan
from checkers.jobs.stored import read_partition
from checkers.kernels.compose import judge_run
from checkers.kernels.history import read_history
from checkers.kernels.linearizability import check_history
from checkers.spark import spark_context
from harness.contracts.run_context import RunContext
from harness.errors import HarnessFailure
from harness.history.schema import OPERATION_TABLES
from results.history_files import read_tables

CONTEXT = RunContext(acked_during_faults_min=0)

IN_MEMORY_MAX = 20_000_000
"""Larger histories are not judged as tables in memory: an operation takes about 300 bytes."""

COLUMNS = (
    "operations",
    "partitions",
    "history",
    "write_s",
    "read_s",
    "arrays_s",
    "kernel_s",
    "judge_run_s",
    "ratio",
    "here_s",
    "here_mb",
    "spark_first_s",
    "spark_s",
    "driver_mb",
    "worker_mb",
    "verdict",
)
MB = 2**20


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--operations", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--histories", nargs="+", choices=History.KINDS, default=History.KINDS)
    parser.add_argument(
        "--repeats", type=int, default=3, help="of calls up to 10 million operations"
    )
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument("--json", action="store_true", help="prints a line of JSON for each row")
    parser.add_argument("--measure", choices=MEASUREMENTS, help=argparse.SUPPRESS)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        numbers = MEASUREMENTS[arguments.measure](arguments.run, arguments)
        print(json.dumps(numbers), flush=True)
        return 0
    if not arguments.json:
        print(" | ".join(COLUMNS), flush=True)
    failed = False
    for history in _histories(arguments):
        row = measure(history, arguments)
        failed |= row["verdict"] != history.verdict
        print(json.dumps(row) if arguments.json else _line(row), flush=True)
    return 1 if failed else 0


def _histories(arguments: argparse.Namespace) -> Iterator[History]:
    for operations in arguments.operations:
        for partitions in arguments.partitions:
            for kind in arguments.histories:
                yield History(operations=operations, partitions=partitions, kind=kind)


def _line(row: dict[str, Any]) -> str:
    return " | ".join("-" if row.get(name) is None else str(row[name]) for name in COLUMNS)


def progress(text: str, *, is_detail: bool = False) -> None:
    """Shows on standard error what is being done; details only on a terminal, where they replace each other."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text and not is_detail:
        print(text, file=sys.stderr, flush=True)


def measure(history: History, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns one row of the table."""
    row: dict[str, Any] = asdict(history) | {"history": history.kind}
    with tempfile.TemporaryDirectory(prefix="laststand-bench-") as directory:
        run = Path(directory)
        began = time.perf_counter()
        progress(f"{history}: write")
        write_history(run, history, lambda done: progress(f"{history}: {done}", is_detail=True))
        row["write_s"] = round(time.perf_counter() - began, 1)
        for name in ("kernels", "memory", "here", "spark"):
            if name == "memory" and history.operations > IN_MEMORY_MAX:
                continue
            if name == "spark" and (arguments.no_spark or not _has_java()):
                continue
            progress(f"{history}: {name}")
            row |= _in_child(name, run, arguments)
    progress("")
    verdicts = {row.pop(key) for key in ("verdict_here", "verdict_spark") if key in row}
    row["verdict"] = "/".join(sorted(json.loads(verdict)["validity"] for verdict in verdicts))
    if len(verdicts) > 1:
        row["verdict"] += " (different)"
    if "judge_run_s" in row:
        row["ratio"] = round(row["judge_run_s"] / (row["arrays_s"] + row["kernel_s"]), 2)
    return row


def _has_java() -> bool:
    try:
        find_java()
    except HarnessFailure:
        return False
    return True


def _in_child(name: str, run: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measures in a process of its own.

    Raises:
        SystemExit: The process failed.
    """
    command = [sys.executable, "-m", "benchmarks.check", "--measure", name, "--run", str(run)]
    command += ["--repeats", str(arguments.repeats), "--master", arguments.master]
    child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if child.returncode:
        raise SystemExit(f"measuring {name} failed with code {child.returncode}")
    numbers: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return numbers


def _arguments_of(run: Path) -> dict[str, Any]:
    return plan([run], [asdict(CONTEXT)])


def _repeats(arguments: argparse.Namespace, operations: int) -> int:
    return arguments.repeats if operations <= 10_000_000 else 1


def cpu_s(work: Callable[[], object], repeats: int) -> float:
    """Returns the least CPU time of several calls; on a busy machine only that measures the code."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def measure_kernels(run: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the sums over all partitions; nothing if one does not fit into memory."""
    total = dict.fromkeys(("read_s", "arrays_s", "kernel_s"), 0.0)
    for task in _arguments_of(run)["tasks"]:
        if task["operations"] > IN_MEMORY_MAX:
            return {}
        repeats = _repeats(arguments, task["operations"])
        total["read_s"] += cpu_s(lambda: read_partition(task), repeats)  # noqa: B023
        tables = read_partition(task)
        history = read_history(*(tables[name] for name in OPERATION_TABLES))
        total["arrays_s"] += cpu_s(
            lambda: read_history(*(_fresh(tables)[name] for name in OPERATION_TABLES)),  # noqa: B023
            repeats,
        )
        total["kernel_s"] += cpu_s(lambda: check_history(history), repeats)  # noqa: B023
    return {name: round(seconds, 3) for name, seconds in total.items()}


def _fresh(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Returns the tables as new objects, of which nothing is known yet."""
    return {name: table.slice(0) for name, table in tables.items()}


def measure_memory(run: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the time for judging tables in memory."""
    tables = read_tables(run)
    repeats = _repeats(arguments, tables["operations"].num_rows)
    judge_run_s = cpu_s(lambda: judge_run(_fresh(tables), CONTEXT), repeats)
    return {"judge_run_s": round(judge_run_s, 3)}


def measure_here(run: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the time and the memory for judging files in this process."""
    times, verdict = [], {}
    operations = sum(task["operations"] for task in _arguments_of(run)["tasks"])
    for _ in range(_repeats(arguments, operations)):
        began = time.perf_counter()
        (verdict,) = check_here(_arguments_of(run))
        times.append(time.perf_counter() - began)
    return {
        "here_s": round(statistics.median(times), 2),
        "here_mb": _peak_bytes(os.getpid()) // MB,
        "verdict_here": json.dumps(verdict, sort_keys=True),
    }


def measure_spark(run: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the time and the memory for judging files on Spark."""
    job = _arguments_of(run)
    operations = sum(task["operations"] for task in job["tasks"])
    memory = Memory()
    memory.start()
    spark = spark_context("bench", master=arguments.master, large=job["large"])
    try:
        times, result = [], {}
        for _ in range(1 + _repeats(arguments, operations)):
            began = time.perf_counter()
            result = check_job(spark, _arguments_of(run))
            times.append(time.perf_counter() - began)
    finally:
        memory.stop()
        spark.stop()
    return {
        "spark_first_s": round(times[0], 2),
        "spark_s": round(statistics.median(times[1:]), 2),
        "driver_mb": memory.driver_bytes // MB,
        "worker_mb": memory.worker_bytes // MB,
        "verdict_spark": json.dumps(result["verdicts"][0], sort_keys=True),
    }


MEASUREMENTS: dict[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
    "kernels": measure_kernels,
    "memory": measure_memory,
    "here": measure_here,
    "spark": measure_spark,
}
"""What is measured in a process of its own, in this order."""


class Memory(threading.Thread):
    """Watches the peak memory of this process and of its descendants, as Linux counts it. Mutable.

    Attributes:
        driver_bytes: Of this process and the largest JVM together.
        worker_bytes: Of the largest Python process below the JVM.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._stopped = threading.Event()
        self._jvm_bytes = 0
        self.worker_bytes = 0

    @property
    def driver_bytes(self) -> int:
        """Driver and JVM; they need not have reached their peaks at the same time."""
        return _peak_bytes(os.getpid()) + self._jvm_bytes

    def run(self) -> None:
        """Looks at all descendants twenty times a second; each process remembers its own peak."""
        while not self._stopped.wait(0.05):
            for process in _descendants(os.getpid()):
                peak = _peak_bytes(process)
                if _name(process) == "java":
                    self._jvm_bytes = max(self._jvm_bytes, peak)
                else:
                    self.worker_bytes = max(self.worker_bytes, peak)

    def stop(self) -> None:
        """Stops watching."""
        self._stopped.set()
        self.join()


def _descendants(process: int) -> list[int]:
    """Returns the processes below a process; none where /proc does not list them."""
    found: list[int] = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        children = [int(child) for child in _text(path).split()]
        for child in children:
            found += [child, *_descendants(child)]
    return found


def _peak_bytes(process: int) -> int:
    for line in _text(Path(f"/proc/{process}/status")).splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _name(process: int) -> str:
    return _text(Path(f"/proc/{process}/comm")).strip()


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        # The process ended meanwhile.
        return ""


if __name__ == "__main__":
    sys.exit(main())
