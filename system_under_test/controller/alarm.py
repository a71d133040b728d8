"""A timer that can be set repeatedly and needs only one handle of the loop."""

import asyncio
from collections.abc import Callable

from system_under_test.runtime import Host

NS_PER_SECOND = 1_000_000_000


class Alarm:
    """Calls back once, at or after a deadline. Mutable; belongs to one owner on one loop.

    Args:
        host: Provides the monotonic clock.
        callback: Called at the deadline; it may set the alarm again.
    """

    def __init__(self, host: Host, callback: Callable[[], None]) -> None:
        self._clock = host.clock
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self._deadline_ns = 0

    @property
    def is_set(self) -> bool:
        """Whether a deadline is set."""
        return self._handle is not None

    def set(self, deadline_ns: int) -> None:
        """Sets the deadline; an earlier deadline stays, and its callback has to check what is due."""
        if self._handle is not None:
            if self._deadline_ns <= deadline_ns:
                return
            self._handle.cancel()
        delay_ns = max(deadline_ns - self._clock.monotonic_ns(), 0)
        self._deadline_ns = deadline_ns
        self._handle = asyncio.get_running_loop().call_later(delay_ns / NS_PER_SECOND, self._expire)

    def cancel(self) -> None:
        """Clears the deadline. Idempotent."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _expire(self) -> None:
        self._handle = None
        self._callback()
