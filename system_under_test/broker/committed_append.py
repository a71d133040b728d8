"""An append of a coordinator that waits until it is committed, like the append of a produce request."""

import asyncio
from collections.abc import Callable

from system_under_test.broker.partition import Partition
from system_under_test.broker.produce_wait import ProduceWait
from system_under_test.protocol.errors import ErrorCode

Done = Callable[[ErrorCode], None]
"""Called once with the outcome of an append."""


class CommittedAppend:
    """An append that waits for the high watermark, with a deadline, like the part of a produce request."""

    def __init__(
        self, partition: Partition, required_offset: int, timeout_s: float, done: Done
    ) -> None:
        self._done = done
        self._part = part = ProduceWait(partition.index, ErrorCode.REQUEST_TIMED_OUT)
        part.required_offset = required_offset
        part.is_done = False
        part.request = self
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._expire)
        partition.watch_produce(part)

    def part_completed(self) -> None:
        """Called when the high watermark has passed the append, or the partition failed it."""
        self._timer.cancel()
        self._done(self._part.error)

    def _expire(self) -> None:
        if not self._part.is_done:
            self._part.is_done = True
            self._part.request = None
            self._done(ErrorCode.REQUEST_TIMED_OUT)
