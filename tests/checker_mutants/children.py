"""Runs a function in a forked process with limits, and returns what it reports."""

import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEMORY_BYTES_MAX = 3 * 2**30
"""What a child may reserve beyond what it has at its start: a mutant can ask for an array of 2^62 elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a child ended.

    Attributes:
        report: What its function returned; None if a signal ended it or it exited on its own.
        cpu_s: Processor time.
    """

    report: Any
    cpu_s: float


def run_in_child(
    function: Callable[[], Any],
    *,
    cpu_limit_s: float,
    elapsed_limit_s: float,
    is_quiet: bool = True,
) -> Ended:
    """Forks, runs the function there, and waits.

    Args:
        function: Returns a value of JSON.
        cpu_limit_s: Processor time after which the kernel ends the child.
        elapsed_limit_s: Time after which this process kills it, for one that waits for ever.
        is_quiet: Whether the child's output is dropped.
    """
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        os.close(reader)
        _be_the_child(function, writer, cpu_limit_s, is_quiet)
    os.close(writer)
    report = _everything(reader, pid, time.monotonic() + elapsed_limit_s)
    os.close(reader)
    _, _, usage = os.wait4(pid, 0)
    return Ended(
        report=json.loads(report) if report else None,
        cpu_s=round(usage.ru_utime + usage.ru_stime, 3),
    )


def _be_the_child(
    function: Callable[[], Any], writer: int, cpu_limit_s: float, is_quiet: bool
) -> None:
    code = 1
    try:
        if is_quiet:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
        seconds = max(1, round(cpu_limit_s))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 2))
        memory = _virtual_bytes() + MEMORY_BYTES_MAX
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        report = json.dumps(function()).encode()
        while report:
            report = report[os.write(writer, report) :]
        code = 0
    finally:
        # No exit handler of the parent runs here.
        os._exit(code)


def _virtual_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _everything(reader: int, pid: int, deadline: float) -> bytes:
    """Returns what the child writes until it ends; kills it at the deadline."""
    parts = []
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            return b""
        part = os.read(reader, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
