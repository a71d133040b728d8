"""Distributes run requests: a task passes its batch to a worker process and returns one row per run.

The job does not know how a run is made: lines go in, lines come out. Batches arrive on standard input while the
job runs, one JSON object `{"requests": [...]}` per line. Each is a Spark job of one task, submitted by a thread
of its own, so that the rows of a batch are sent as soon as its task ends and no core waits for another one.
Every message has the key `cores`, how many tasks run at once; after a task it also has `rows`, one line for each
request, in the same order, or `failure`, one sentence.
"""

import json
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from checkers.spark import MESSAGE_PREFIX
from harness.errors import HarnessFailure

TASKS_AT_ONCE_MAX = 1000
"""One thread of this process waits for each task; a larger cluster would need another design."""


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
    worker = _Worker(arguments["worker"])
    emit = send or _Messages()

    def run(line: str) -> None:
        try:
            requests = [
                json.dumps(request, sort_keys=True) for request in json.loads(line)["requests"]
            ]
            results = spark.parallelize(requests, 1).mapPartitions(worker).collect()
            died = [text for code, text in results if code]
            if died:
                raise HarnessFailure(died[0])
            emit({"cores": spark.defaultParallelism, "rows": [text for _, text in results]})
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


class _Worker:
    """What a task runs: starts the worker module and passes lines through it. Pickled by Spark, by reference."""

    def __init__(self, module: str) -> None:
        self.module = module

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
            check=False,
        )
        if finished.returncode != 0:
            return iter([(1, f"a worker process ended with code {finished.returncode}")])
        return iter([(0, line) for line in finished.stdout.splitlines()])


def first_line(error: Exception) -> str:
    """Returns the readable part of an error; JVM errors fill pages."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
