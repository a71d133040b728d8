"""System calls that fail, lie or take longer, by `strace`: one tracer per process.

A traced process is slowed down by every call of every kind that it makes while `strace` looks at it, so a tracer
is for what no other mechanism can do. It ends with the agent, however that ends: then its standard input closes.
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
"""Ends the tracer in order, so that it lets go of the process, when the agent says so or is gone."""


class TracerBusyError(AgentError):
    """Something else traces the process already."""


class Tracer:
    """One tracer of one process; used once. Mutable."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._calls = 0
        self._hits = 0
        self._words: list[str] = []

    def start(self, pid: int, *, inject: str, every: int = 1, delay_ms: float = 0) -> None:
        """Attaches to all threads of a process; returns when it has.

        Args:
            pid: Whose calls.
            inject: "fsync-error" (they fail with EIO and do nothing), "fsync-delay" (they return late) or
                "fsync-lies" (they return success and do nothing).
            every: Only every so manieth call of each thread is hit.
            delay_ms: How late.

        Raises:
            TracerBusyError: Something else traces it.
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
            raise TracerBusyError(f"process {pid} is being traced already, and only one can")
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
                words = " ".join(self._words)[-300:]
                raise AgentError(f"process {pid} cannot be traced: {words or 'it takes too long'}")
            time.sleep(POLL_S)

    def evidence(self) -> dict[str, Any]:
        """Returns how many calls were hit, and how many there were."""
        return {"calls": self._hits, "calls_seen": self._calls}

    def stop(self) -> None:
        """Lets go of the process; idempotent."""
        process = self._process
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdin = None
        try:
            process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            # The tracer alone, not the traced: it is in the group of the leash.
            with contextlib.suppress(OSError):
                os.killpg(process.pid, 9)
            process.wait()
        if self._reader is not None:
            self._reader.join(END_LIMIT_S)
        if process.stderr is not None:
            process.stderr.close()

    def _read(self) -> None:
        """Counts what the tracer says; a line begins with the name of the call."""
        assert self._process is not None
        assert self._process.stderr is not None
        for line in self._process.stderr:
            line = line.rstrip()
            if b"sync(" in line or b"sync resumed" in line:
                if b"<unfinished" not in line:
                    self._calls += 1
                self._hits += bool(_HIT.search(line))
            elif len(self._words) < WORDS_MAX:
                self._words.append(line.decode(errors="replace"))


def _expression(inject: str, every: int, delay_ms: float) -> str:
    if inject not in INJECTIONS:
        raise AgentError(f"nothing called {inject!r} can be injected: {', '.join(INJECTIONS)}")
    if every < 1:
        raise AgentError("every is 1 or more")
    if inject == "fsync-delay":
        if delay_ms <= 0:
            raise AgentError("a delay takes more than 0 ms")
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
