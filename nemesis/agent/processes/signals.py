"""Process faults: signals, memory, CPU time.

A process is identified by its pid together with its start time, so a pid that the kernel has given to another
process is never touched.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from nemesis.agent.processes.procfs import (
    ControlGroup,
    control_group,
    counter,
    cpu_ticks,
    process_start,
    process_state,
    thread_ids,
)

POLL_S = 0.001
END_LIMIT_S = 15.0
STOP_SEEN_LIMIT_S = 1.0
CPU_PERIOD_US = 100_000
OOM_HEADROOM_BYTES = 4 << 20
OOM_LIMIT_S = 20.0
HOG_BYTES_MAX = 1 << 30

_HOG = """
import os, sys
for path in sys.argv[2:]:
    with open(path, "w") as file:
        file.write(str(os.getpid()))
held = []
while sum(map(len, held)) < int(sys.argv[1]):
    block = bytearray(1 << 20)
    block[::4096] = b"x" * 256
    held.append(block)
print("full", flush=True)
sys.stdin.read()
"""
"""Joins control groups and takes memory, touching every page."""


class ProcessError(Exception):
    """A process fault cannot be injected; the message is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessId:
    """A process, distinguished from later ones with the same pid."""

    pid: int
    began: int

    @property
    def is_alive(self) -> bool:
        """Whether it exists, running or stopped."""
        return self.pid > 0 and self.began > 0 and process_start(self.pid) == self.began


def identify(pid: int) -> ProcessId:
    """Returns the process that has a pid now.

    Raises:
        ProcessError: No process has this pid.
    """
    began = process_start(pid)
    if not began:
        raise ProcessError(f"there is no process {pid}")
    return ProcessId(pid=pid, began=began)


def send(process: ProcessId, number: int) -> bool:
    """Sends a signal; returns whether the process existed."""
    if not process.is_alive:
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def wait_gone(process: ProcessId, limit_s: float = END_LIMIT_S) -> bool:
    """Waits until a process has ended; returns whether it has."""
    deadline_s = time.monotonic() + limit_s
    while process.is_alive:
        if time.monotonic() > deadline_s:
            return False
        time.sleep(POLL_S)
    return True


def freeze(process: ProcessId) -> bool:
    """Stops a process and waits for its threads; returns whether all of them have stopped."""
    if not send(process, signal.SIGSTOP):
        return False
    deadline_s = time.monotonic() + STOP_SEEN_LIMIT_S
    while time.monotonic() < deadline_s:
        states = {process_state(process.pid, thread) for thread in thread_ids(process.pid)}
        if states and states <= {"T", "t"}:
            return True
        if not process.is_alive:
            return False
        time.sleep(POLL_S / 5)
    return False


def thaw(process: ProcessId) -> bool:
    """Resumes a process; returns whether it existed."""
    return send(process, signal.SIGCONT)


def standstill(process: ProcessId) -> dict[str, object]:
    """Returns the evidence that a process is stopped: its state and its CPU time."""
    return {"state": process_state(process.pid), "cpu_ticks": cpu_ticks(process.pid)}


# -- memory


def oom_kill(process: ProcessId) -> dict[str, object]:
    """Lets the kernel run out of memory in the process's control group, so that it kills the process.

    The group's limit is lowered to what it uses, and a helper in the same group allocates more. The process is
    made the kernel's first choice (`oom_score_adj`), so the helper survives it.

    Returns:
        The counter of kills before and after, and the limit.

    Raises:
        ProcessError: The control group cannot be changed here, or the kernel killed no process in time.
    """
    group = control_group(process.pid)
    if group.memory is None:
        raise ProcessError("no memory control group of the process is visible here")
    memory = _Memory(group.version, group.memory)
    before = memory.kills()
    old_limit = memory.limit_text()
    Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000", encoding="ascii")
    folders = [group.memory]
    hog: subprocess.Popen[bytes] | None = None
    try:
        limit = memory.lower()
        hog = _start_hog(folders)
        deadline_s = time.monotonic() + OOM_LIMIT_S
        while process.is_alive and time.monotonic() < deadline_s and hog.poll() is None:
            time.sleep(POLL_S)
        gone = wait_gone(process, 1.0)
    finally:
        if hog is not None:
            _end_hog(hog)
        memory.restore(old_limit)
    after = memory.kills()
    if not gone or after <= before:
        raise ProcessError(
            f"the kernel did not run out of memory at {limit} bytes (kills {before} to {after})"
        )
    return {"oom_kill_before": before, "oom_kill_after": after, "limit_bytes": limit}


class _Memory:
    """The memory controller of one group, in both versions."""

    def __init__(self, version: int, folder: Path) -> None:
        self._limit = folder / ("memory.limit_in_bytes" if version == 1 else "memory.max")
        self._usage = folder / ("memory.usage_in_bytes" if version == 1 else "memory.current")
        self._kills = folder / ("memory.oom_control" if version == 1 else "memory.events")
        self._swap = folder / ("memory.memsw.limit_in_bytes" if version == 1 else "memory.swap.max")

    def kills(self) -> int:
        return counter(self._kills, "oom_kill")

    def limit_text(self) -> str:
        return self._limit.read_text(encoding="ascii").strip()

    def lower(self) -> int:
        """Lowers the limit to just above what is used; the kernel refuses less than it can reclaim to."""
        for _ in range(20):
            limit = int(self._usage.read_text(encoding="ascii")) + OOM_HEADROOM_BYTES
            try:
                self._limit.write_text(str(limit), encoding="ascii")
            except OSError:
                time.sleep(POLL_S)
                continue
            with contextlib.suppress(OSError):
                # Without this a machine with swap would swap instead.
                self._swap.write_text(str(limit) if "memsw" in self._swap.name else "0")
            return limit
        raise ProcessError("the memory limit cannot be lowered")

    def restore(self, limit: str) -> None:
        with contextlib.suppress(OSError):
            self._swap.write_text("-1" if "memsw" in self._swap.name else "max")
        with contextlib.suppress(OSError):
            no_limit = limit.isdecimal() and int(limit) > 1 << 60  # how version 1 shows it
            self._limit.write_text("-1" if no_limit else limit, encoding="ascii")


def _start_hog(folders: list[Path]) -> "subprocess.Popen[bytes]":
    paths = [os.fspath(folder / "cgroup.procs") for folder in folders]
    return subprocess.Popen(
        [sys.executable, "-c", _HOG, str(HOG_BYTES_MAX), *paths],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _end_hog(hog: "subprocess.Popen[bytes]") -> None:
    hog.kill()
    hog.wait()
    if hog.stdin is not None:
        hog.stdin.close()


# -- CPU time


class SlowCpu:
    """Limits the CPU time of a process, by its control group or, weaker, by stopping it periodically.

    Args:
        process: The process to slow down.
        percent: The percentage of one core that it may use.
    """

    def __init__(self, process: ProcessId, percent: int) -> None:
        self.process = process
        self.percent = percent
        group = control_group(process.pid)
        self._quota = _Quota(group) if group.cpu is not None else None
        self._is_over = threading.Event()
        self._stops = 0
        self._thread: threading.Thread | None = None
        if self._quota is not None:
            try:
                self._quota.set(percent)
                self._before = self._quota.throttled()
                return
            except OSError:
                self._quota = None
        self._thread = threading.Thread(target=self._take_turns, daemon=True)
        self._thread.start()

    @property
    def mechanism(self) -> str:
        """How the process is slowed down."""
        return "cpu quota" if self._quota is not None else "stopped in turns"

    def evidence(self) -> dict[str, object]:
        """Returns how often the process was throttled so far."""
        quota = self._quota
        count = self._stops if quota is None else quota.throttled() - self._before
        return {"mechanism": self.mechanism, "throttled": count}

    def end(self) -> None:
        """Removes the limit; idempotent."""
        self._is_over.set()
        if self._quota is not None:
            with contextlib.suppress(OSError):
                self._quota.clear()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _take_turns(self) -> None:
        period_s = CPU_PERIOD_US / 1e6
        running_s = period_s * self.percent / 100
        while not self._is_over.wait(running_s):
            if not send(self.process, signal.SIGSTOP):
                return
            self._stops += 1
            self._is_over.wait(period_s - running_s)
            send(self.process, signal.SIGCONT)


class _Quota:
    """The bandwidth control of a cpu group, in both versions."""

    def __init__(self, group: ControlGroup) -> None:
        assert group.cpu is not None
        self._version = group.version
        self._folder = group.cpu

    def set(self, percent: int) -> None:
        quota_us = max(1000, CPU_PERIOD_US * percent // 100)
        if self._version == 1:
            (self._folder / "cpu.cfs_period_us").write_text(str(CPU_PERIOD_US))
            (self._folder / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (self._folder / "cpu.max").write_text(f"{quota_us} {CPU_PERIOD_US}")

    def clear(self) -> None:
        if self._version == 1:
            (self._folder / "cpu.cfs_quota_us").write_text("-1")
        else:
            (self._folder / "cpu.max").write_text("max")

    def throttled(self) -> int:
        return counter(self._folder / "cpu.stat", "nr_throttled")
