"""Distributes run requests: a task passes its batch to a worker process and returns one row per run.

The job does not know how a run is made: lines go in, lines come out. Batches arrive on standard input while the
job runs, one JSON object `{"requests": [...]}` per line. Each is a Spark job of one task, submitted by a thread
of its own, so that the rows of a batch are sent as soon as its task ends and no core waits for another one.
Every message has the key `cores`, how many tasks run at once; after a task it also has `rows`, one line for each
request, in the same order, or `failure`, one sentence.

Workers share no disk with this process. What a run leaves in the folder that its request names as `runs` is
therefore written to a temporary folder of the worker, returned with the task's rows, and stored by this process
before it sends them. If a worker is lost, Spark runs its tasks again on another one; rows and files of a task
arrive together and once.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkers.spark import MESSAGE_PREFIX
from harness.errors import HarnessFailure

TASKS_AT_ONCE_MAX = 1000
"""One thread of this process waits for each task; a larger cluster would need another design."""

RETURNED_BYTES_MAX = 64 << 20
"""Files that a task returns with its rows. A failing run has about a megabyte, and a task some tens of runs; an
executor has a gigabyte of memory by default, and holds them a few times."""


def distribute_job(
    spark: Any,
    arguments: Mapping[str, Any],
    batches: Iterable[str] | None = None,
    send: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Runs every batch of requests, until the input ends.

    Args:
        spark: The Spark context.
        arguments: `worker`: the module that a task starts.
        batches: Lines of JSON; standard input by default.
        send: Sends a message; to standard output by default. Called by several threads.

    Returns:
        Nothing: rows were sent as messages.
    """
    worker = _Worker(arguments["worker"], arguments.get("code", ""))
    emit = send or _Messages()

    def run(line: str) -> None:
        try:
            requests = [
                json.dumps(request, sort_keys=True) for request in json.loads(line)["requests"]
            ]
            results = spark.parallelize(requests, 1).mapPartitions(worker).collect()
            died = [one.text for one in results if one.code]
            if died:
                raise HarnessFailure(died[0])
            rows = [_stored(one) for one in results]
            emit({"cores": spark.defaultParallelism, "rows": rows})
        except Exception as error:  # the edge of a thread: the parent turns it into one sentence
            traceback.print_exc()
            sentence = str(error) if isinstance(error, HarnessFailure) else first_line(error)
            emit({"cores": spark.defaultParallelism, "failure": sentence})

    emit({"cores": spark.defaultParallelism})
    with ThreadPoolExecutor(TASKS_AT_ONCE_MAX) as pool:
        for line in sys.stdin if batches is None else batches:
            pool.submit(run, line)
        if batches is None:
            # The parent stops this process when it has every row. So it has died, and needs none of the rest.
            os._exit(1)
    return {}


class _Messages:
    """Writes messages to standard output, one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, message: dict[str, Any]) -> None:
        with self._lock:
            print(MESSAGE_PREFIX + json.dumps(message), flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """What a task returns for one request.

    Attributes:
        code: 0, or the exit code of the worker process.
        text: The row as a line of JSON; what happened if the process died.
        folder: The folder of stored runs of this process's machine.
        run: The run's name there; empty if it stored nothing.
        files: Its files by their names.
    """

    code: int = 0
    text: str
    folder: str = ""
    run: str = ""
    files: tuple[tuple[str, bytes], ...] = ()


class _Worker:
    """What a task runs: starts the worker module and passes requests through it. Pickled by Spark, by reference.

    Args:
        module: The worker.
        code: The version of the code that the worker must have; any if empty.
    """

    def __init__(self, module: str, code: str = "") -> None:
        self.module = module
        self.code = code

    def __call__(self, lines: Iterable[str]) -> Iterator[_Result]:
        """Returns one result for every line; a single one if the process died."""
        requests = [json.loads(line) for line in lines]
        if not requests:
            return iter(())
        with tempfile.TemporaryDirectory(prefix="laststand-runs-") as folder:
            moved = [
                {**request, "runs": folder} if "runs" in request else request
                for request in requests
            ]
            finished = subprocess.run(
                [sys.executable, "-m", self.module, *([self.code] if self.code else [])],
                input="".join(json.dumps(request, sort_keys=True) + "\n" for request in moved),
                text=True,
                capture_output=True,
                check=False,
            )
            sys.stderr.write(finished.stderr)
            if finished.returncode != 0:
                last = finished.stderr.strip().rpartition("\n")[2]
                sentence = f"a worker process ended with code {finished.returncode}: {last}"
                return iter([_Result(code=finished.returncode, text=sentence)])
            texts = finished.stdout.splitlines()
            left = RETURNED_BYTES_MAX
            results = []
            for request, text in zip(requests, texts, strict=True):
                result = _with_files(request, text, Path(folder), left)
                left -= sum(len(content) for _, content in result.files)
                results.append(result)
            return iter(results)


def _with_files(request: Mapping[str, Any], text: str, folder: Path, limit: int) -> _Result:
    """Returns the row of a request, with what its run stored if that is not larger than a limit."""
    run = request.get("run", "")
    paths = sorted(path for path in (folder / run).rglob("*") if path.is_file()) if run else []
    if not paths:
        return _Result(text=text)
    size = sum(path.stat().st_size for path in paths)
    if size > limit:
        row = json.loads(text)
        row["not_stored"] = (
            f"the failing runs of a task have more than {RETURNED_BYTES_MAX >> 20} MiB; run this seed "
            "without Spark"
        )
        return _Result(text=json.dumps(row, sort_keys=True))
    root = folder / run
    files = tuple((path.relative_to(root).as_posix(), path.read_bytes()) for path in paths)
    return _Result(text=text, folder=request["runs"], run=run, files=files)


def _stored(result: _Result) -> str:
    """Stores what a run left, and returns its row; the directory appears when it is complete."""
    if not result.files:
        return result.text
    directory = Path(result.folder) / result.run
    partial = directory.with_name(f".{directory.name}.{os.getpid()}.partial")
    try:
        for name, content in result.files:
            path = partial / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        shutil.rmtree(directory, ignore_errors=True)
        partial.rename(directory)
    except OSError as error:
        # The row must not depend on a full disk.
        shutil.rmtree(partial, ignore_errors=True)
        row = {**json.loads(result.text), "not_stored": f"{type(error).__name__}: {error}"}
        return json.dumps(row, sort_keys=True)
    return result.text


def first_line(error: Exception) -> str:
    """Returns the readable part of an error; JVM errors fill pages."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
