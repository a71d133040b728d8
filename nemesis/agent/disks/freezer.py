"""A frozen file system that is guaranteed to thaw.

A helper process freezes it, and thaws it on request, when its time is up, or when the pipe from the agent closes
because the agent has ended. While the file system is frozen, a second process tries to write to it and measures
for how long it had to wait: the evidence. The agent itself does neither, because a process that waits for a frozen
file system cannot be killed.

A power cut or an unmount has to thaw first: a frozen file system that was shut down can no longer be opened, and
therefore not be thawed.
"""

import contextlib
import fcntl
import json
import os
import select
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from nemesis.agent.errors import AgentError

FIFREEZE = 0xC0045877
FITHAW = 0xC0045878
START_LIMIT_S = 10.0
END_LIMIT_S = 10.0

_HELPER = r"""
import fcntl, json, os, select, sys, time
mount, probe, limit_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
held = os.open(mount, os.O_RDONLY | os.O_DIRECTORY)
file = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
report_out, report_in = os.pipe()
writer = -1
by = "request"
try:
    fcntl.ioctl(held, 0xC0045877, b"\0\0\0\0")
except OSError as error:
    os.unlink(probe)
    sys.exit(str(error))
began = time.monotonic_ns()
try:
    writer = os.fork()
    if not writer:
        os.close(report_out)
        os.write(report_in, b"b")
        at = time.monotonic_ns()
        os.write(file, b"x" * 4096)
        os.write(report_in, str(time.monotonic_ns() - at).encode())
        os._exit(0)
    os.close(report_in)
    os.read(report_out, 1)
    is_blocked = not select.select([report_out], [], [], 0.02)[0]
    print(json.dumps({"frozen": True, "at_ns": began, "probe_blocked": is_blocked}), flush=True)
    ready = select.select([0], [], [], limit_s)[0]
    by = "watchdog" if not ready else "request" if os.read(0, 1) else "end of the agent"
finally:
    try:
        fcntl.ioctl(held, 0xC0045878, b"\0\0\0\0")
    except OSError:
        pass
ended = time.monotonic_ns()
blocked = os.read(report_out, 64)
os.waitpid(writer, 0)
os.close(file)
try:
    os.unlink(probe)
except OSError:
    pass
response = {"thawed_by": by, "frozen_ms": (ended - began) / 1e6, "blocked_ms": int(blocked or 0) / 1e6}
try:
    print(json.dumps(response), flush=True)
except OSError:
    pass
"""


def thaw_now(mountpoint: Path) -> bool:
    """Thaws the file system mounted at a path; returns whether it was frozen."""
    try:
        descriptor = os.open(mountpoint, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.ioctl(descriptor, FITHAW, struct.pack("i", 0))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


class Freezer:
    """One freeze of one file system. Mutable.

    Args:
        mountpoint: Where it is mounted.
        probe: A file on it that the probe may write.
        watchdog_s: It thaws by itself after this time.

    Raises:
        AgentError: It cannot be frozen.
    """

    def __init__(self, mountpoint: Path, probe: Path, watchdog_s: float) -> None:
        self._lock = threading.Lock()
        self._respond: dict[str, Any] | None = None
        # A second way to thaw, should the helper be killed.
        self._held = os.open(mountpoint, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._helper = subprocess.Popen(
            [
                sys.executable,
                "-S",
                "-E",
                "-c",
                _HELPER,
                os.fspath(mountpoint),
                os.fspath(probe),
                str(watchdog_s),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )
        self.evidence = self._line(START_LIMIT_S)
        if not self.evidence.get("frozen"):
            output = self._end()
            raise AgentError(f"{mountpoint} cannot be frozen: {output.strip()[-200:]}")

    def thaw(self) -> dict[str, Any]:
        """Thaws, unless the watchdog has done so; returns how long the probe had to wait. Idempotent."""
        with self._lock:
            if self._respond is None:
                assert self._helper.stdin is not None
                with contextlib.suppress(OSError):
                    self._helper.stdin.write(b"t")
                    self._helper.stdin.flush()
                response = self._line(END_LIMIT_S)
                if not response:
                    with contextlib.suppress(OSError):
                        fcntl.ioctl(self._held, FITHAW, struct.pack("i", 0))
                    response = {"thawed_by": "the agent", "frozen_ms": 0.0, "blocked_ms": 0.0}
                self._end()
                self._respond = {**self.evidence, **response, "frozen": False}
            return self._respond

    def _line(self, limit_s: float) -> dict[str, Any]:
        """Reads one line of JSON from the helper; empty if none comes."""
        assert self._helper.stdout is not None
        deadline_s = time.monotonic() + limit_s
        descriptor = self._helper.stdout.fileno()
        data = b""
        while not data.endswith(b"\n"):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([descriptor], [], [], left_s)[0]:
                return {}
            piece = os.read(descriptor, 1)  # never more than this line
            if not piece:
                return {}
            data += piece
        response: dict[str, Any] = json.loads(data)
        return response

    def _end(self) -> str:
        """Ends the helper and closes everything; returns what it wrote to standard error."""
        os.close(self._held)
        helper = self._helper
        try:
            _, output = helper.communicate(timeout=END_LIMIT_S)
        except subprocess.TimeoutExpired:
            helper.kill()
            _, output = helper.communicate()
        return output.decode(errors="replace")
