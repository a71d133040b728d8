"""Stops some threads of a process while the others go on, with ptrace.

A process such as a Java virtual machine has threads for separate tasks. A thread that waits when it is stopped
does not hinder the others; one that is stopped in the middle of its work may hold locks that they need.
"""

import ctypes
import os
import re
import threading
from typing import Any

from nemesis.agent.processes.procfs import cpu_ticks, process_state, thread_ids, thread_name
from nemesis.agent.processes.signals import ProcessError, ProcessId

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_WALL = 0x40000000
"""Lets waitpid return threads that are not children (__WALL)."""
_POLL_S = 0.01
_LIMIT_S = 10.0
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


class StoppedThreads:
    """Threads that are stopped from now until `end`. If this process ends, the kernel resumes them.

    Args:
        process: The process that they belong to.
        pattern: Regular expression of whole names. Linux keeps 15 characters of a name.

    Attributes:
        names: Names of the threads, by thread id.

    Raises:
        ProcessError: There is no such thread, or the kernel refused.
    """

    def __init__(self, process: ProcessId, pattern: str) -> None:
        wanted = re.compile(pattern)
        found = {thread: thread_name(process.pid, thread) for thread in thread_ids(process.pid)}
        self.names = {thread: name for thread, name in found.items() if wanted.fullmatch(name)}
        if not self.names:
            raise ProcessError(f"process {process.pid} has no thread {pattern!r}")
        self._process = process
        self._is_over = threading.Event()
        self._is_ready = threading.Event()
        self._problem = ""
        # The kernel accepts requests about a thread only from the one that attached to it.
        self._tracer = threading.Thread(target=self._trace, daemon=True)
        self._tracer.start()
        if not self._is_ready.wait(_LIMIT_S):
            self._problem = "the threads did not stop in time"
        if self._problem:
            self.end()
            raise ProcessError(self._problem)
        self._cpu_ticks = self._now()

    def evidence(self) -> dict[str, Any]:
        """Returns the names of the threads, and whether all are stopped and have used no CPU time since then."""
        pid = self._process.pid
        stopped = all(process_state(pid, thread) in ("t", "T") for thread in self.names)
        return {
            "threads": sorted(self.names.values()),
            "stood_still": stopped and self._now() == self._cpu_ticks,
        }

    def end(self) -> None:
        """Resumes the threads; idempotent."""
        self._is_over.set()
        self._tracer.join(_LIMIT_S)

    def _now(self) -> dict[int, int]:
        return {thread: cpu_ticks(self._process.pid, thread) for thread in self.names}

    def _trace(self) -> None:
        attached: list[int] = []
        try:
            for thread in self.names:
                _ptrace(_SEIZE, thread)
                attached.append(thread)
                _ptrace(_INTERRUPT, thread)
                os.waitpid(thread, _WALL)
        except OSError as error:
            self._problem = f"thread {thread} cannot be stopped: {error.strerror}"
        self._is_ready.set()
        while not self._problem and attached and not self._is_over.wait(_POLL_S):
            # A thread that was killed stays in its process, which cannot end, until it is waited for.
            attached = [thread for thread in attached if not _has_ended(thread)]
        for thread in attached:
            try:
                _ptrace(_DETACH, thread)
            except OSError:
                _has_ended(thread)


def _has_ended(thread: int) -> bool:
    try:
        found, status = os.waitpid(thread, os.WNOHANG | _WALL)
    except ChildProcessError:
        return True
    return found == thread and not os.WIFSTOPPED(status)


def _ptrace(request: int, thread: int) -> None:
    if _libc.ptrace(request, thread, None, None) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
