"""The tasks and waits of a node: long-lived loops that must not die silently, and a wait that can be cut short.

A node runs a handful of tasks as long as it runs (heartbeats, one fetcher per leader, the AlterPartition
client). None of them may end with an error unnoticed: a broker without heartbeats would be fenced but continue.
`TaskScope` therefore reports every failure to its owner, which ends the process.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class TaskScope:
    """Owns tasks; reports the first error of any of them, and cancels them together.

    Args:
        on_failure: Called once per task that ended with an exception (not for a cancellation).
    """

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        # A dictionary, not a set: cancellation follows the order of creation.
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        """Starts a task that belongs to the scope."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def cancel_all(self) -> None:
        """Cancels every task except the one that calls."""
        current = asyncio.current_task()
        for task in list(self._tasks):
            if task is not current:
                task.cancel()

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._on_failure(error)


class Waker:
    """Lets one task wait for a call or for a time, whichever comes first.

    A wake without a waiting task is kept: the next wait returns at once.
    """

    __slots__ = ("_future", "_woken")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._woken = False

    def wake(self) -> None:
        """Ends the present wait, or the next one if there is none."""
        self._woken = True
        if self._future is not None:
            _resolve(self._future)

    async def wait(self, timeout_ms: float | None) -> None:
        """Waits for `wake`, at most that long; None means without end."""
        if not self._woken:
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()
            timer = None
            if timeout_ms is not None:
                timer = loop.call_later(timeout_ms / 1000, _resolve, self._future)
            try:
                await self._future
            finally:
                self._future = None
                if timer is not None:
                    timer.cancel()
        self._woken = False


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
