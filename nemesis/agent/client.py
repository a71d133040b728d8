"""The harness's end of an agent: it sends commands and receives responses and events.

The agent may be a child of this process or at the far end of an SSH channel; both are a pair of streams.
"""

import asyncio
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any, Protocol

from nemesis.agent.child import end_child
from nemesis.agent.errors import AgentError

RESPONSE_LIMIT_S = 60.0
END_LIMIT_S = 15.0

Response = dict[str, Any]


class AgentGoneError(Exception):
    """The agent ended, or is no longer reachable."""


class Stream(Protocol):
    """A pair of byte streams to an agent."""

    def write(self, data: bytes) -> None:
        """Sends bytes."""
        ...

    def read_line(self) -> bytes:
        """Returns the next line; empty at the end."""
        ...

    def close(self) -> None:
        """Ends the agent's input and waits until the agent has ended."""
        ...

    def final_log_lines(self) -> str:
        """Returns the end of what the agent wrote to standard error."""
        ...


class LocalStream:
    """An agent that is a child of this process.

    Args:
        run: State directory of the run.
    """

    def __init__(self, run: Path) -> None:
        run.mkdir(parents=True, exist_ok=True)
        self._errors = run / "agent.log"
        with open(self._errors, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "nemesis.agent", "--run", os.fspath(run)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def write(self, data: bytes) -> None:
        """Sends bytes."""
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def read_line(self) -> bytes:
        """Returns the next line; empty at the end."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def close(self) -> None:
        """Ends the agent's input and waits until the agent has ended."""
        end_child(self._process, END_LIMIT_S)

    def close_output(self) -> None:
        """Closes the reading end, after the reader has ended."""
        assert self._process.stdout is not None
        self._process.stdout.close()

    def final_log_lines(self) -> str:
        """Returns the end of what the agent wrote to standard error."""
        try:
            return self._errors.read_text(encoding="utf-8", errors="replace")[-2000:]
        except OSError:
            return ""


class AgentClient:
    """Sends commands to one agent, from any thread.

    Args:
        stream: The streams to the agent.
        name: The name of its host, for messages.
        on_event: Called with each event of the agent, on the reader's thread.
    """

    def __init__(
        self, stream: Stream, name: str, on_event: Callable[[Response], None] | None = None
    ) -> None:
        self.name = name
        self.on_event = on_event
        self._stream = stream
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._is_gone = False
        self._reader = threading.Thread(target=self._read, name=f"agent-{name}", daemon=True)
        self._reader.start()

    def submit(self, command: str, **arguments: Any) -> "Future[Any]":
        """Sends a command; the future holds its response.

        Raises:
            AgentGoneError: The agent is gone; the future may raise it as well.
        """
        future: Future[Any] = Future()
        request_id = next(self._ids)
        line = json.dumps({"id": request_id, "do": command, "args": arguments}).encode() + b"\n"
        with self._lock:
            if self._is_gone:
                raise AgentGoneError(self._gone_message())
            self._waiting[request_id] = future
            try:
                self._stream.write(line)
            except OSError:
                del self._waiting[request_id]
                raise AgentGoneError(self._gone_message()) from None
        return future

    def call(self, command: str, *, limit_s: float = RESPONSE_LIMIT_S, **arguments: Any) -> Any:
        """Sends a command and waits for its response.

        Raises:
            AgentError: The command failed.
            AgentGoneError: The agent is gone, or does not respond in time.
        """
        try:
            return self.submit(command, **arguments).result(limit_s)
        except FutureTimeoutError:
            raise AgentGoneError(
                f"the agent on {self.name} did not respond to {command!r} within {limit_s:g} s"
            ) from None

    async def request(
        self, command: str, *, limit_s: float = RESPONSE_LIMIT_S, **arguments: Any
    ) -> Any:
        """Sends a command and awaits its response; raises as `call` does."""
        future = self.submit(command, **arguments)
        try:
            async with asyncio.timeout(limit_s):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise AgentGoneError(
                f"the agent on {self.name} did not respond to {command!r} within {limit_s:g} s"
            ) from None

    def close(self) -> None:
        """Ends the agent; idempotent."""
        self._stream.close()
        self._reader.join(END_LIMIT_S)
        if isinstance(self._stream, LocalStream):
            self._stream.close_output()

    def _read(self) -> None:
        try:
            while line := self._stream.read_line():
                self._take(line)
        except (OSError, ValueError):
            pass  # closed while it was read, which is the same as its end
        with self._lock:
            self._is_gone = True
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.set_exception(AgentGoneError(self._gone_message()))

    def _take(self, line: bytes) -> None:
        message = json.loads(line)
        if "event" in message:
            if self.on_event is not None:
                self.on_event(message)
            return
        with self._lock:
            future = self._waiting.pop(message["id"], None)
        if future is None or future.cancelled():
            return
        if "error" in message:
            future.set_exception(AgentError(message["error"]))
        else:
            future.set_result(message["ok"])

    def _gone_message(self) -> str:
        lines = self._stream.final_log_lines().strip().splitlines()
        return f"the agent on {self.name} is gone" + (f": {lines[-1]}" if lines else "")
