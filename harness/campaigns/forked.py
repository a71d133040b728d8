"""Runs work in a forked child process that returns text, and ends the child after a limit.

Whatever happens to the child, the parent continues: a child that dies or hangs leaves a text that is incomplete
or missing, and its exit status.
"""

import ctypes
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

_SET_PARENT_DEATH_SIGNAL = 1
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a child ended.

    Attributes:
        text: What it returned; None if it did not end within its limit.
        pid: Its process, which is gone.
        status: Its exit status, as `os.waitpid` returns it.
    """

    text: str | None
    pid: int
    status: int

    @property
    def was_killed(self) -> bool:
        """Whether a signal ended it."""
        return os.waitstatus_to_exitcode(self.status) < 0

    @property
    def sentence(self) -> str:
        """How it ended, as the end of a sentence."""
        code = os.waitstatus_to_exitcode(self.status)
        return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


def run_in_child(work: Callable[[], str], limit_s: float, *, stop_s: float = 0.0) -> Ended:
    """Runs work in a forked child, and returns when the child has ended.

    Args:
        work: Returns the text; must not raise.
        limit_s: A child that takes longer is ended.
        stop_s: How long a child that is ended has, after SIGTERM, to remove what it made; then, and without
            such a time at once, it gets SIGKILL.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _be_child(work, reading, writing, signal.SIGTERM if stop_s else signal.SIGKILL)
    os.close(writing)
    text: str | None = None
    try:
        text = _read_all(reading, time.monotonic() + limit_s)
    finally:
        # Also if this process is interrupted.
        if text is None:
            if stop_s:
                os.kill(child, signal.SIGTERM)
                _read_all(reading, time.monotonic() + stop_s)
            os.kill(child, signal.SIGKILL)
        os.close(reading)
        _, status = os.waitpid(child, 0)
    return Ended(text=text, pid=child, status=status)


def end_with_parent(number: int) -> None:
    """Makes the kernel send this signal when the parent process dies, even of SIGKILL."""
    _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, number, 0, 0, 0)


def _be_child(work: Callable[[], str], reading: int, writing: int, number: int) -> NoReturn:
    """Does the work, writes the text and leaves without any clean-up of the parent's."""
    try:
        end_with_parent(number)
        os.close(reading)
        data = work().encode()
        while data:
            data = data[os.write(writing, data) :]
    finally:
        # Whatever happens, the child must never continue as if it were the parent.
        os._exit(0)


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
