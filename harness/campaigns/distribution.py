"""Passes run requests to `harness.campaigns.worker` processes: through Spark, or to two local ones."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkers.spark import SparkOptions, run_in_child
from harness.contracts.progress import ProgressDisplay
from harness.errors import HarnessFailure

WORKER_MODULE = "harness.campaigns.worker"
LOCAL_WORKERS = 2
POLL_S = 0.5
ROWS_FILE = "rows.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """The results of a campaign.

    Attributes:
        rows: One per run, in any order (`harness.campaigns.worker.run_seed`).
        totals: The numbers of every arm by its name, if they were counted already (Spark does).
    """

    rows: list[dict[str, Any]]
    totals: Mapping[str, Mapping[str, Any]] | None = None


def run_on_spark(
    requests: Sequence[dict[str, Any]],
    spark: SparkOptions,
    progress: ProgressDisplay,
    directory: Path,
) -> Campaign:
    """Runs every request in a Spark job, keeps the rows as Parquet and counts them in SQL.

    Raises:
        HarnessFailure: The job failed; the sentence names its log.
    """
    progress_path = directory / "progress"
    progress_path.write_bytes(b"")
    request_path = directory / "requests.jsonl"
    with request_path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(request, sort_keys=True) + "\n" for request in requests)
    with _Watching(lambda: progress_path.stat().st_size, len(requests), progress):
        result = run_in_child(
            "distribute",
            {
                "requests": str(request_path.resolve()),
                "rows": str((directory / ROWS_FILE).resolve()),
                "progress": str(progress_path.resolve()),
                "worker": WORKER_MODULE,
                "master": spark.master,
                "conf": dict(spark.conf),
            },
            log_path=directory / "spark.log",
        )
    progress_path.unlink()
    request_path.unlink()
    return Campaign(rows=result["rows"], totals=result["totals"])


def run_locally(
    requests: Sequence[dict[str, Any]], progress: ProgressDisplay, directory: Path
) -> Campaign:
    """Runs every request in two worker processes of this machine; same rows as on Spark.

    Raises:
        HarnessFailure: A worker process died.
    """
    progress_path = directory / "progress"
    progress_path.write_bytes(b"")
    environment = {**os.environ, "LASTSTAND_PROGRESS": str(progress_path)}
    outputs: list[list[str]] = [[] for _ in range(LOCAL_WORKERS)]
    failures: list[str] = []
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", WORKER_MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(LOCAL_WORKERS)
    ]

    def work(slot: int) -> None:
        mine = "".join(json.dumps(request) + "\n" for request in requests[slot::LOCAL_WORKERS])
        with workers[slot] as worker:
            outputs[slot] = worker.communicate(mine)[0].splitlines()
        if worker.returncode != 0:
            failures.append(f"a worker process ended with code {worker.returncode}")

    with _Watching(lambda: progress_path.stat().st_size, len(requests), progress):
        threads = [threading.Thread(target=work, args=(slot,)) for slot in range(LOCAL_WORKERS)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException:
            # Interrupted. SIGTERM, unlike control-C, reaches this process only, which would wait for its workers.
            for worker in workers:
                worker.kill()
            raise
    progress_path.unlink()
    if failures:
        raise HarnessFailure(failures[0])
    return Campaign(rows=[json.loads(line) for lines in outputs for line in lines])


class _Watching:
    """Shows how many runs are done while the block is executed."""

    def __init__(self, done: Callable[[], int], total: int, progress: ProgressDisplay) -> None:
        self._done = done
        self._total = total
        self._progress = progress
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._began_s = time.monotonic()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None:
            elapsed_s = time.monotonic() - self._began_s
            self._progress.message(f"{self._total} runs in {elapsed_s:.0f} s")

    def _watch(self) -> None:
        while not self._stop.wait(POLL_S):
            done = self._done()
            self._progress.update("runs", done / self._total, f"{done}/{self._total}")
