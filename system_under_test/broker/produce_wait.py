"""One partition's part of a produce request, and the request that waits for its parts."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from system_under_test.protocol import entities
from system_under_test.protocol.errors import ErrorCode

NO_OFFSET = -1


class PartOwner(Protocol):
    """What is notified when a part is done."""

    def part_completed(self) -> None:
        """Called once per part."""
        ...


class ProduceWait:
    """The state of one partition's records in a produce request.

    Attributes:
        required_offset: The high watermark that commits the records (last offset + 1).
        error: The error of the response if nothing else happens; REQUEST_TIMED_OUT while waiting (PROD-3).
        is_done: Whether the error is final.
        append_time_ms: The timestamp of the records if the log gave them one.
        request: The parked request, None if nothing waits.
    """

    __slots__ = (
        "append_time_ms",
        "base_offset",
        "error",
        "index",
        "is_done",
        "log_start_offset",
        "request",
        "required_offset",
    )

    def __init__(self, index: int, error: ErrorCode) -> None:
        self.index = index
        self.error = error
        self.base_offset = NO_OFFSET
        self.append_time_ms: int | None = None
        self.log_start_offset = NO_OFFSET
        self.required_offset = NO_OFFSET
        self.is_done = True
        self.request: PartOwner | None = None

    def complete(self, error: ErrorCode) -> None:
        """Sets the partition's final error; the request is completed with its last part."""
        self.is_done = True
        self.error = error
        request = self.request
        if request is not None:
            # Breaks the cycle of request and parts, so that no garbage collector is needed.
            self.request = None
            request.part_completed()


Parts = list[tuple[str, list[ProduceWait]]]
"""The parts of one request: (topic name, its partitions) in the order of the request."""


class DelayedProduce:
    """A produce request with acks=all that waits for the high watermark of its partitions.

    Args:
        parts: At least one of them waits.
        pending_count: How many wait.
        on_timeout: Called at the deadline with the parts that still wait.
        future: Gets the response.
    """

    __slots__ = ("_on_timeout", "_parts", "_pending_count", "future", "is_done")

    def __init__(
        self,
        parts: Parts,
        pending_count: int,
        on_timeout: Callable[[Parts], None],
        future: "asyncio.Future[Any]",
    ) -> None:
        self._parts = parts
        self._pending_count = pending_count
        self._on_timeout = on_timeout
        self.future = future
        self.is_done = False

    def part_completed(self) -> None:
        """Counts down; responds when no partition is pending."""
        self._pending_count -= 1
        if self._pending_count == 0 and not self.is_done:
            self._respond()

    def expire(self) -> None:
        """Responds at the deadline; pending partitions get REQUEST_TIMED_OUT: the outcome is unknown."""
        self._on_timeout(
            [(topic, [part for part in parts if not part.is_done]) for topic, parts in self._parts]
        )
        self._finish(ErrorCode.REQUEST_TIMED_OUT)

    def abandon(self) -> None:
        """Responds because the broker stops."""
        self._finish(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _finish(self, error: ErrorCode) -> None:
        for _, parts in self._parts:
            for part in parts:
                if not part.is_done:
                    part.is_done = True
                    part.request = None
                    part.error = error
        self._respond()

    def _respond(self) -> None:
        self.is_done = True
        # The connection may be closed, which cancels the future.
        if not self.future.done():
            self.future.set_result(produce_response(self._parts))


def produce_response(parts: Parts) -> Any:
    """Returns the response to a produce request."""
    return entities.produce_response_of(
        tuple(
            [
                entities.produced_topic(
                    topic, tuple([_partition_response(part) for part in topic_parts])
                )
                for topic, topic_parts in parts
            ]
        )
    )


def _partition_response(part: ProduceWait) -> Any:
    # As in Kafka the offset is also returned with the errors of records that were appended (6, 7, 20), although it
    # may come to hold another record.
    return entities.produced_partition(
        part.index, part.error, part.base_offset, part.log_start_offset, part.append_time_ms
    )
