"""DeleteRecords: raises the log start of partitions, and responds when all replicas that are alive have followed.

The leader raises its own log start at once, never above the high watermark (RET-3). A follower learns it with its
next fetch, raises its own, and reports it with the fetch after that. The *low watermark* is the smallest log start
of the replicas that are alive; a replica that is not alive follows when it returns, and keeps nobody waiting.

Source:
    KIP-107; Kafka's `ReplicaManager.deleteRecords`, `DelayedDeleteRecords` and `Partition.lowWatermarkIfLeader`.
"""

import asyncio
from typing import Any

from system_under_test.broker.metadata_cache import is_internal
from system_under_test.broker.partition import Partition
from system_under_test.broker.produce import PartitionLookup
from system_under_test.broker.purgatory import Purgatory
from system_under_test.broker.replica_context import ReplicaContext
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import NO_THROTTLE, delete_records_response

TO_HIGH_WATERMARK = -1
"""The offset that stands for the high watermark."""
NO_WATERMARK = -1


class _Part:
    """One partition's part of a request; while it is parked the leader calls it when a log start moved.

    Attributes:
        required_offset: The low watermark that completes it.
        low_watermark: Of the response.
    """

    __slots__ = ("error", "index", "is_done", "low_watermark", "request", "required_offset")

    def __init__(self, index: int, error: ErrorCode = ErrorCode.NONE) -> None:
        self.index = index
        self.error = error
        self.is_done = True
        self.low_watermark = NO_WATERMARK
        self.required_offset = NO_WATERMARK
        self.request: _Delayed | None = None

    def low_watermark_is(self, low_watermark: int) -> bool:
        """Completes the part if the low watermark suffices; returns whether it is done."""
        if not self.is_done and low_watermark >= self.required_offset:
            self.low_watermark = low_watermark
            self.complete(ErrorCode.NONE)
        return self.is_done

    def complete(self, error: ErrorCode) -> None:
        """Sets the final error; the request is completed with its last part."""
        self.is_done = True
        self.error = error
        request, self.request = self.request, None
        if request is not None:
            request.part_completed()


class _Delayed:
    """A request that waits for followers."""

    __slots__ = ("_parts", "_pending_count", "future", "is_done")

    def __init__(self, parts: list[tuple[str, list[_Part]]], pending_count: int) -> None:
        self._parts = parts
        self._pending_count = pending_count
        self.is_done = False
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def part_completed(self) -> None:
        """Counts down; responds when no partition is pending."""
        self._pending_count -= 1
        if not self._pending_count and not self.is_done:
            self._respond()

    def expire(self) -> None:
        """Responds at the deadline: the records are deleted at the leader, other replicas may still have them."""
        self._finish(ErrorCode.REQUEST_TIMED_OUT)

    def abandon(self) -> None:
        """Responds because the broker stops."""
        self._finish(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _finish(self, error: ErrorCode) -> None:
        for _, parts in self._parts:
            for part in parts:
                if not part.is_done:
                    part.is_done, part.request, part.error = True, None, error
        self._respond()

    def _respond(self) -> None:
        self.is_done = True
        # The connection may be closed, which cancels the future.
        if not self.future.done():
            self.future.set_result(_response(self._parts))


class RecordDeletion:
    """Serves the DeleteRecords requests of one broker."""

    def __init__(self, context: ReplicaContext, lookup: PartitionLookup) -> None:
        self._context = context
        self._lookup = lookup
        self.purgatory = Purgatory()

    def handle(self, request: Any) -> Any:
        """Raises log starts; returns the response or a future of it (RET-3)."""
        parts = [
            (topic.name, [self._delete(topic.name, wanted) for wanted in topic.partitions])
            for topic in request.topics
        ]
        waiting = [part for _, found in parts for part in found if not part.is_done]
        if not waiting:
            return _response(parts)
        delayed = _Delayed(parts, len(waiting))
        for part in waiting:
            part.request = delayed
        self.purgatory.park(delayed, request.timeout.total_seconds())
        return delayed.future

    def _delete(self, topic: str, wanted: Any) -> _Part:
        index = wanted.partition_index
        if is_internal(topic):
            return _Part(index, ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = self._lookup(topic, index)
        if isinstance(partition, ErrorCode):
            return _Part(index, partition)
        try:
            offset = _raise_log_start(partition, wanted.offset)
        except OSError as error:
            self._context.on_disk_error(topic, index, error)
            return _Part(index, ErrorCode.KAFKA_STORAGE_ERROR)
        if isinstance(offset, ErrorCode):
            return _Part(index, offset)
        part = _Part(index)
        part.is_done = False
        # RET-3: without the rule the leader's own log start is enough.
        part.required_offset = offset if self._context.rules("RET-3") else NO_WATERMARK
        partition.watch_deletion(part)
        return part


def _raise_log_start(partition: Partition, offset: int) -> int | ErrorCode:
    """Raises a leader's log start; returns the offset it had to reach, or why it may not."""
    replica = partition.replica
    if partition.leadership is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    # A compacted log must keep the last record of every key.
    if not replica.online_log().config.deletes:
        return ErrorCode.POLICY_VIOLATION
    if offset == TO_HIGH_WATERMARK:
        offset = replica.high_watermark
    if not 0 <= offset <= replica.high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    replica.raise_log_start(offset)
    return offset


def _response(parts: list[tuple[str, list[_Part]]]) -> Any:
    return delete_records_response.DeleteRecordsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            delete_records_response.DeleteRecordsTopicResult(
                name=topic,
                partitions=tuple(
                    delete_records_response.DeleteRecordsPartitionResult(
                        partition_index=part.index,
                        low_watermark=part.low_watermark,
                        error_code=part.error,
                    )
                    for part in found
                ),
            )
            for topic, found in parts
        ),
    )
