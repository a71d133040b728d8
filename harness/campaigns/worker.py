"""Runs seeds in a separate process: JSON lines in, JSON lines out.

    {"experiment": {...}, "seed": 7, "arm": "profile=kafka-4.1"}  ->  {"seed": 7, "arm": ..., "verdict": ...}

Every seed runs in a freshly forked child of this warmed-up process: forking costs milliseconds, starting
Python and Arrow a second, and no run can leave anything behind for the next. A child that dies or hangs becomes
a row with an error; nothing is lost silently. Spark tasks start this worker as a subprocess, because forking
inside Spark's own Python worker would copy its sockets.

After every run one byte is added to the file that LASTSTAND_PROGRESS names, so that the parent can count.
"""

import contextlib
import gc
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any, NoReturn, TextIO

from harness.runs import experiment_file as experiments
from harness.runs.judge import judge_result
from harness.runs.simulated import simulate

RUN_WALL_S_MAX = 300.0
"""A run of the standard scenario takes seconds; five minutes mean that it hangs."""

SUMMARY_KEYS = (
    "seed",
    "profile",
    "verdict",
    "reasons",
    "unexcused_lost_records",
    "excused_lost_records",
    "anomalies",
    "trace_hash",
    "unavailable_ms",
    "elapsed_ms",
    "operations",
    "faults",
    "counters",
    "marks",
    "violations",
)


def run_seed(request: Mapping[str, Any]) -> dict[str, Any]:
    """Runs and judges one seed in this process.

    Returns:
        One row: the request's arm and seed, and the run's summary.
    """
    began = time.perf_counter()
    experiment = experiments.from_data(request["experiment"])
    result = simulate(experiment, request["seed"])
    _, summary = judge_result(experiment, request["seed"], result)
    row = {key: summary[key] for key in SUMMARY_KEYS}
    row.update(arm=request["arm"], error="", wall_s=time.perf_counter() - began)
    return row


def run_seed_forked(request: Mapping[str, Any]) -> dict[str, Any]:
    """Runs one seed in a forked child; a child that dies or hangs gives a row with an error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _be_child(request, reading, writing)
    os.close(writing)
    try:
        text = _read_all(reading, time.monotonic() + RUN_WALL_S_MAX)
        if text is None:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(reading)
        _, status = os.waitpid(child, 0)
    if text is None:
        return failed_row(request, f"the run took longer than {RUN_WALL_S_MAX:g} s")
    try:
        row: dict[str, Any] = json.loads(text)
    except ValueError:
        return failed_row(request, f"the run's process {_how_it_ended(status)}")
    return row


def failed_row(request: Mapping[str, Any], error: str) -> dict[str, Any]:
    """Returns the row of a run that did not finish: unknown, with nothing counted."""
    return {
        "seed": request["seed"],
        "arm": request["arm"],
        "profile": "",
        "verdict": "unknown",
        "reasons": [error],
        "unexcused_lost_records": 0,
        "excused_lost_records": 0,
        "anomalies": [],
        "trace_hash": "",
        "unavailable_ms": 0.0,
        "elapsed_ms": 0.0,
        "operations": 0,
        "faults": 0,
        "counters": {},
        "marks": {},
        "violations": [],
        "error": error,
        "wall_s": 0.0,
    }


def main(requests: TextIO, responses: TextIO) -> None:
    """Serves requests until the input ends."""
    progress_path = os.environ.get("LASTSTAND_PROGRESS")
    # What is loaded by now is never garbage; without scanning it, no child has to copy its pages.
    gc.collect()
    gc.freeze()
    for line in requests:
        if line.strip():
            responses.write(json.dumps(run_seed_forked(json.loads(line)), sort_keys=True) + "\n")
            responses.flush()
            if progress_path:
                # On another machine the file may not be accessible; the runs count all the same.
                with contextlib.suppress(OSError), open(progress_path, "ab") as progress:
                    progress.write(b".")


def _be_child(request: Mapping[str, Any], reading: int, writing: int) -> NoReturn:
    """Runs the seed, writes the row and leaves without any clean-up of the parent's."""
    try:
        os.close(reading)
        try:
            text = json.dumps(run_seed(request), sort_keys=True)
        except BaseException as error:  # the outermost handler: every error becomes a row
            text = json.dumps(failed_row(request, f"{type(error).__name__}: {error}"))
        data = text.encode()
        while data:
            data = data[os.write(writing, data) :]
    finally:
        # Whatever happens, the child must never continue as if it were the parent.
        os._exit(0)


def _how_it_ended(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


def _read_all(descriptor: int, deadline_s: float) -> str | None:
    """Returns everything until the other end closes, None when the deadline passes first."""
    chunks: list[bytes] = []
    while True:
        remaining_s = deadline_s - time.monotonic()
        if remaining_s <= 0 or not select.select([descriptor], [], [], remaining_s)[0]:
            return None
        chunk = os.read(descriptor, 65536)
        if not chunk:
            return b"".join(chunks).decode()
        chunks.append(chunk)


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)
