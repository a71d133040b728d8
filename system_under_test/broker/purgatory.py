"""Waiting requests: one ordered list of deadlines and one timer, whatever the number of requests.

What a request waits for is known to the partitions, which keep the waiting parts; the purgatory only knows the
deadlines. An operation that completed early stays in the heap until its deadline or until the next clean-up,
whichever comes first: removing it at once would cost more than it is worth.
"""

import asyncio
from heapq import heapify, heappop, heappush
from typing import Protocol

COMPACTION_MINIMUM = 64
"""Below this size finished operations are not worth removing."""


class DelayedOperation(Protocol):
    """A parked request."""

    is_done: bool

    def expire(self) -> None:
        """Responds at the deadline; called at most once, and not when done."""
        ...

    def abandon(self) -> None:
        """Responds because the broker stops; called at most once, and not when done."""
        ...


class Purgatory:
    """Keeps the deadlines of parked requests.

    Attributes:
        expired_count: Operations that reached their deadline.
    """

    __slots__ = ("_armed_at", "_compact_at", "_heap", "_sequence", "_timer", "expired_count")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, DelayedOperation]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._armed_at = 0.0
        self._compact_at = COMPACTION_MINIMUM
        # Ties are broken by the order of arrival.
        self._sequence = 0
        self.expired_count = 0

    def __len__(self) -> int:
        return sum(not operation.is_done for _, _, operation in self._heap)

    def park(self, operation: DelayedOperation, timeout_s: float) -> None:
        """Lets the operation expire after a time.

        Args:
            operation: What waits.
            timeout_s: Seconds; 0 or less expires it on the next turn of the loop.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max(timeout_s, 0.0)
        heap = self._heap
        if len(heap) >= self._compact_at:
            self._compact()
        self._sequence += 1
        heappush(heap, (deadline, self._sequence, operation))
        if self._timer is None or deadline < self._armed_at:
            self._arm(loop, deadline)

    def abandon_all(self) -> None:
        """Completes everything that waits and stops the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = sorted(self._heap)
        self._heap.clear()
        for _, _, operation in waiting:
            if not operation.is_done:
                operation.abandon()

    def _arm(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_at = deadline
        self._timer = loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        # A loop may fire a timer one clock tick early.
        now = max(loop.time(), self._armed_at)
        heap = self._heap
        while heap and (heap[0][2].is_done or heap[0][0] <= now):
            operation = heappop(heap)[2]
            if not operation.is_done:
                self.expired_count += 1
                operation.expire()
        if heap and self._timer is None:
            self._arm(loop, heap[0][0])

    def _compact(self) -> None:
        # In place: `park` holds a reference.
        self._heap[:] = [entry for entry in self._heap if not entry[2].is_done]
        heapify(self._heap)
        self._compact_at = max(COMPACTION_MINIMUM, 2 * len(self._heap))
