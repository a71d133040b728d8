"""System calls that fail, lie or take longer, with `strace`: one tracer per process.

Tracing slows down every system call of a process, so a tracer is used only where no other mechanism can inject the
fault. It ends with the agent, because its standard input closes then.
"""

import contextlib
import os
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from nemesis.agent.errors import AgentError

ATTACH_LIMIT_S = 5.0
END_LIMIT_S = 5.0
POLL_S = 0.002
WORDS_MAX = 20

INJECTIONS = ("fsync-error", "fsync-delay", "fsync-lies")

_SYNCS = "fsync,fdatasync"
_HIT = re.compile(rb"\((?:INJECTED|DELAYED)\)$")
_LEASH = 'strace "$@" & read -r go; kill -TERM $! 2>/dev/null; wait $!'
"""Ends the tracer cleanly, so that it detaches from the process, on request or when the agent is gone."""


class TracerBusyError(AgentError):
    """The process has another tracer."""


class Tracer:
    """One tracer of one process; used once. Mutable."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._calls = 0
        self._hits = 0
        self._output: list[str] = []

    def start(self, pid: int, *, inject: str, every: int = 1, delay_ms: float = 0) -> None:
        """Attaches to all threads of a process; returns when it is attached.

        Args:
            pid: The process.
            inject: "fsync-error" (they fail with EIO and do nothing), "fsync-delay" (they return late) or
                "fsync-lies" (they return success and do nothing).
            every: Only every n-th call of each thread is hit.
            delay_ms: The delay.

        Raises:
            TracerBusyError: It has another tracer.
            AgentError: It cannot be traced.
        """
        if self._process is not None:
            raise AgentError("this tracer was started already")
        expression = _expression(inject, every, delay_ms)
        if shutil.which("strace") is None:
            raise AgentError("strace is missing on this host; install strace")
        if not _threads(pid):
            raise AgentError(f"there is no process {pid}")
        if any(_tracer_of(pid, thread) for thread in _threads(pid)):
            raise TracerBusyError(
                f"process {pid} is being traced already, and a process can have one tracer"
            )
        arguments = ["-qq", "-f", "-e", f"trace={_SYNCS}", "-e", "signal=none"]
        arguments += ["-e", expression, "-p", str(pid)]
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _LEASH, "sh", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        deadline_s = time.monotonic() + ATTACH_LIMIT_S
        while not _is_traced(pid):
            if time.monotonic() > deadline_s or not self._reader.is_alive():
                self.stop()
                output = " ".join(self._output)[-300:]
                raise AgentError(f"process {pid} cannot be traced: {output or 'it takes too long'}")
            time.sleep(POLL_S)

    def evidence(self) -> dict[str, Any]:
        """Returns how many calls were hit, and how many were made."""
        return {"calls": self._hits, "calls_seen": self._calls}

    def stop(self) -> None:
        """Detaches from the process; idempotent."""
        process = self._process
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdin = None
        try:
            process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            # Only the tracer, not the traced process, is in the process group of the shell.
            with contextlib.suppress(OSError):
                os.killpg(process.pid, 9)
            process.wait()
        if self._reader is not None:
            self._reader.join(END_LIMIT_S)
        if process.stderr is not None:
            process.stderr.close()

    def _read(self) -> None:
        """Counts the lines of the tracer; a line begins with the name of the call."""
        assert self._process is not None
        assert self._process.stderr is not None
        for line in self._process.stderr:
            line = line.rstrip()
            if b"sync(" in line or b"sync resumed" in line:
                if b"<unfinished" not in line:
                    self._calls += 1
                self._hits += bool(_HIT.search(line))
            elif len(self._output) < WORDS_MAX:
                self._output.append(line.decode(errors="replace"))


def _expression(inject: str, every: int, delay_ms: float) -> str:
    if inject not in INJECTIONS:
        raise AgentError(f"{inject!r} cannot be injected; known: {', '.join(INJECTIONS)}")
    if every < 1:
        raise AgentError("every must be 1 or more")
    if inject == "fsync-delay":
        if delay_ms <= 0:
            raise AgentError("a delay must be longer than 0 ms")
        effect = f"delay_exit={round(delay_ms * 1000)}"
    else:
        effect = "error=EIO" if inject == "fsync-error" else "retval=0"
    return f"inject={_SYNCS}:{effect}:when={every}+{every}"


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _is_traced(pid: int) -> bool:
    threads = _threads(pid)
    return bool(threads) and all(_tracer_of(pid, thread) for thread in threads)


def _tracer_of(pid: int, thread: int) -> int:
    try:
        text = Path(f"/proc/{pid}/task/{thread}/status").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return 0
    for line in text.splitlines():
        if line.startswith("TracerPid:"):
            return int(line.split()[1])
    return 0
