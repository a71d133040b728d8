"""Runs work in forked child processes that return text, and ends a child that takes too long.

Whatever happens to a child, the parent continues: a child that dies or hangs leaves a text that is incomplete
or missing, and its exit status.
"""

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, Self

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


class AnsweringChild:
    """A forked child that answers one request after the other. Mutable; use it as a context manager.

    Forking, and copying the memory that a child writes to, costs as much as a third of a short run.

    Args:
        answer: Returns the answer to a request, a line without its end; must not raise.
    """

    def __init__(self, answer: Callable[[str], str]) -> None:
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._requests)
            os.close(self._answers)
            _answer_all(answer, requests, answers)
        os.close(requests)
        os.close(answers)
        self.is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.is_over:
            self._end()

    def ask(self, request: str, limit_s: float) -> Ended:
        """Returns the answer; if the child dies or takes longer than the limit, it is over afterwards."""
        text: str | None = None
        status = 0
        try:
            # A child that has died cannot be asked; its status tells why.
            with contextlib.suppress(BrokenPipeError):
                _write_all(self._requests, f"{request}\n".encode())
            text = _read_all(self._answers, time.monotonic() + limit_s, until=b"\n")
        finally:
            # Also if this process is interrupted.
            if text is None or not text.endswith("\n"):
                status = self._end()
        return Ended(text=text, pid=self.pid, status=status)

    def _end(self) -> int:
        self.is_over = True
        os.close(self._requests)
        os.close(self._answers)
        # Between two requests it has nothing to lose. A child that has died keeps its own status.
        os.kill(self.pid, signal.SIGKILL)
        return os.waitpid(self.pid, 0)[1]


def _answer_all(answer: Callable[[str], str], requests: int, answers: int) -> NoReturn:
    """Answers every line until there are no more, and leaves without any clean-up of the parent's."""
    try:
        end_with_parent(signal.SIGKILL)
        with os.fdopen(requests, encoding="utf-8") as lines:
            for line in lines:
                _write_all(answers, f"{answer(line.rstrip())}\n".encode())
    finally:
        # Whatever happens, the child must never continue as if it were the parent.
        os._exit(0)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def end_with_parent(number: int) -> None:
    """Makes the kernel send this signal when the parent process dies, even of SIGKILL."""
    _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, number, 0, 0, 0)


def _be_child(work: Callable[[], str], reading: int, writing: int, number: int) -> NoReturn:
    """Does the work, writes the text and leaves without any clean-up of the parent's."""
    try:
        end_with_parent(number)
        os.close(reading)
        _write_all(writing, work().encode())
    finally:
        # Whatever happens, the child must never continue as if it were the parent.
        os._exit(0)


def _read_all(descriptor: int, deadline_s: float, until: bytes = b"") -> str | None:
    """Returns everything to the end of the message or of the pipe; None if the deadline passes first."""
    chunks: list[bytes] = []
    while not (until and chunks and chunks[-1].endswith(until)):
        remaining_s = deadline_s - time.monotonic()
        if remaining_s <= 0 or not select.select([descriptor], [], [], remaining_s)[0]:
            return None
        chunk = os.read(descriptor, 65536)
        if not chunk:
            break
        chunks.append(chunk)
    return b"".join(chunks).decode()
