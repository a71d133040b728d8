"""ListOffsets and OffsetForLeaderEpoch. Both respond at once."""

from collections import Counter
from typing import Any, NamedTuple

from system_under_test.broker.fetch import READ_COMMITTED, leader_epoch_error
from system_under_test.broker.leadership import Leadership
from system_under_test.broker.local_replica import LocalReplica
from system_under_test.broker.produce import PartitionLookup
from system_under_test.broker.replica_context import ReplicaContext
from system_under_test.log.log import Log
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    list_offsets_response,
    millis,
    offset_for_leader_epoch_response,
)
from system_under_test.protocol.record_batch import (
    BatchHeader,
    CorruptBatchError,
    Record,
    decode_records,
)

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
"""The same as the earliest one: there is no tiered storage here."""
LATEST_TIERED_TIMESTAMP = -5
"""For the same reason there is no such offset."""

_UNKNOWN = -1
_NO_THROTTLE = millis(0)

Found = tuple[int, int, int]
"""(offset, timestamp in ms, leader epoch); -1 for what does not exist."""


class _Led(NamedTuple):
    """A partition that this broker leads."""

    replica: LocalReplica
    leadership: Leadership
    log: Log


class OffsetsHandler:
    """Serves requests for offsets."""

    __slots__ = ("_context", "_lookup")

    def __init__(self, context: ReplicaContext, lookup: PartitionLookup) -> None:
        self._context = context
        self._lookup = lookup

    def list_offsets(self, request: Any) -> Any:
        """Returns the response to a ListOffsets request."""
        is_replica = request.replica_id >= 0
        is_committed = request.isolation_level == READ_COMMITTED
        return list_offsets_response.ListOffsetsResponse(
            throttle_time=_NO_THROTTLE,
            topics=tuple(
                list_offsets_response.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=self._list_topic(
                        topic, is_replica=is_replica, is_committed=is_committed
                    ),
                )
                for topic in request.topics
            ),
        )

    def offsets_for_leader_epochs(self, request: Any) -> Any:
        """Returns the response to an OffsetForLeaderEpoch request."""
        return offset_for_leader_epoch_response.OffsetForLeaderEpochResponse(
            throttle_time=_NO_THROTTLE,
            topics=tuple(
                offset_for_leader_epoch_response.OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=tuple(
                        self._end_of_epoch(topic.topic, wanted) for wanted in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )

    def _find(self, topic: str, index: int, current_leader_epoch: int) -> _Led | ErrorCode:
        partition = self._lookup(topic, index)
        if isinstance(partition, ErrorCode):
            return partition
        # FETCH-2, FETCH-3.
        error = leader_epoch_error(self._context, partition.replica, current_leader_epoch)
        if error is not None:
            return error
        if partition.leadership is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        replica = partition.replica
        return _Led(replica, partition.leadership, replica.online_log())

    def _list_topic(self, topic: Any, *, is_replica: bool, is_committed: bool) -> tuple[Any, ...]:
        """Returns one response per partition; one that the request names twice is refused."""
        by_index = {wanted.partition_index: wanted for wanted in topic.partitions}
        if len(by_index) == len(topic.partitions):
            return tuple(
                self._list_one(topic.name, wanted, is_replica=is_replica, is_committed=is_committed)
                for wanted in topic.partitions
            )
        counts = Counter(wanted.partition_index for wanted in topic.partitions)
        return tuple(
            self._list_one(topic.name, wanted, is_replica=is_replica, is_committed=is_committed)
            if counts[index] == 1
            else _offset_response(index, ErrorCode.INVALID_REQUEST)
            for index, wanted in by_index.items()
        )

    def _list_one(self, topic: str, wanted: Any, *, is_replica: bool, is_committed: bool) -> Any:
        index = wanted.partition_index
        led = self._find(topic, index, wanted.current_leader_epoch)
        if isinstance(led, ErrorCode):
            return _offset_response(index, led)
        try:
            found = self._offset_at(
                led, wanted.timestamp, is_replica=is_replica, is_committed=is_committed
            )
        except OSError as error:
            self._context.on_disk_error(topic, index, error)
            found = ErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(found, ErrorCode):
            # LO-2.
            return _offset_response(index, found if self._context.rules("LO-2") else ErrorCode.NONE)
        return _offset_response(index, ErrorCode.NONE, found)

    def _offset_at(
        self, led: _Led, timestamp: int, *, is_replica: bool, is_committed: bool
    ) -> Found | ErrorCode:
        """Returns what is at a timestamp or at one of the special ones (LO-1)."""
        replica, leadership, log = led
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            start = log.log_start_offset
            return start, _UNKNOWN, log.epochs.epoch_at(start)
        # LO-1: a new leader does not know yet how far the log was committed; the latest offset might go back.
        is_behind = (
            not is_replica
            and leadership.epoch_start_offset > replica.high_watermark
            and self._context.rules("LO-1")
        )
        bound = log.log_end_offset if is_replica else replica.high_watermark
        if is_committed and not is_replica:
            bound = replica.last_stable_offset  # TXN-1
        if timestamp == LATEST_TIMESTAMP:
            if is_behind:
                return ErrorCode.OFFSET_NOT_AVAILABLE
            return bound, _UNKNOWN, replica.leader_epoch
        if timestamp == LATEST_TIERED_TIMESTAMP:
            return _UNKNOWN, _UNKNOWN, _UNKNOWN
        if timestamp < MAX_TIMESTAMP:
            return ErrorCode.UNSUPPORTED_VERSION
        found = _search(log, timestamp)
        if found is not None and found[0] < bound:
            return found
        return ErrorCode.OFFSET_NOT_AVAILABLE if is_behind else (_UNKNOWN, _UNKNOWN, _UNKNOWN)

    def _end_of_epoch(self, topic: str, wanted: Any) -> Any:
        led = self._find(topic, wanted.partition, wanted.current_leader_epoch)
        if isinstance(led, ErrorCode):
            return offset_for_leader_epoch_response.EpochEndOffset(
                error_code=led, partition=wanted.partition
            )
        epoch, end = led.log.end_offset_for_epoch(wanted.leader_epoch) or (_UNKNOWN, _UNKNOWN)
        return offset_for_leader_epoch_response.EpochEndOffset(
            error_code=ErrorCode.NONE,
            partition=wanted.partition,
            leader_epoch=epoch,
            end_offset=end,
        )


def _offset_response(
    index: int, error: ErrorCode, found: Found = (_UNKNOWN, _UNKNOWN, _UNKNOWN)
) -> Any:
    offset, timestamp, leader_epoch = found
    return list_offsets_response.ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=error,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=leader_epoch,
    )


def _search(log: Log, timestamp: int) -> Found | None:
    """Returns the first record at or after a timestamp, or the one with the largest timestamp.

    The broker has no codecs and cannot read compressed records. For a compressed batch it returns the first
    offset, from which a consumer reads a few records too many, never one too few.
    """
    headers: list[BatchHeader] = log.headers()
    if timestamp == MAX_TIMESTAMP:
        timestamp = max((header.max_timestamp_ms for header in headers), default=_UNKNOWN)
    for header in headers:
        if header.max_timestamp_ms >= timestamp and header.last_offset >= log.log_start_offset:
            start = max(header.base_offset, log.log_start_offset)
            records = _records(log.read(start, 1, log.log_end_offset))
            if records is None:
                return start, header.max_timestamp_ms, header.leader_epoch
            for record in records:
                if record.timestamp_ms >= timestamp:
                    return record.offset, record.timestamp_ms, header.leader_epoch
    return None


def _records(batch: bytes) -> tuple[Record, ...] | None:
    """Returns the records of one batch, None if they cannot be read: compressed or malformed."""
    try:
        return tuple(record for _, records in decode_records(batch) for record in records)
    except CorruptBatchError:
        return None
