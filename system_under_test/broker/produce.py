"""Produce: append on the leader, respond as `acks` requires.

What a response means to a producer: NONE, 2, 3, 10, 19 and 21 are definite. 6, 7, 20 and 56 are not: the records
may have been appended, and may yet survive or vanish.

A batch is validated once, by `produced_batch.py`; from there on only the validated value is passed.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from system_under_test.broker.metadata_cache import is_internal
from system_under_test.broker.partition import ACKS_ALL, Partition
from system_under_test.broker.produce_wait import (
    NO_OFFSET,
    DelayedProduce,
    Parts,
    ProduceWait,
    produce_response,
)
from system_under_test.broker.produced_batch import AT_THE_LOG, sole_batch, validate
from system_under_test.broker.purgatory import Purgatory
from system_under_test.broker.replica_context import ReplicaContext
from system_under_test.log.errors import BatchTooLargeError
from system_under_test.log.log import AppendInfo
from system_under_test.log.producer_state import ProducerRefusedError
from system_under_test.protocol.errors import ErrorCode

ACKS_NONE = 0
ACKS_LEADER = 1
LOG_APPEND_TIME = "LogAppendTime"
_ACKS = (ACKS_ALL, ACKS_NONE, ACKS_LEADER)

PartitionLookup = Callable[[str, int], Partition | ErrorCode]
"""Finds a partition by topic name and index, or returns why it is not served here."""
Gate = Callable[[Any, int], Any]
"""Serves a request with a transactional id, as `ProduceHandler.append` does."""


class ProduceHandler:
    """Serves the produce requests of one broker."""

    __slots__ = ("_context", "_lookup", "gate", "purgatory")

    def __init__(self, context: ReplicaContext, lookup: PartitionLookup) -> None:
        self._context = context
        self._lookup = lookup
        self.purgatory = Purgatory()
        # Asks the coordinator before the first batch of a transaction; the owner sets it.
        self.gate: Gate | None = None

    def handle(self, request: Any, api_version: int = -1) -> Any:
        """Appends, and responds now or later; what belongs to a transaction passes the gate first (TXN-12).

        Args, returns and raises: as `append`.
        """
        if request.transactional_id is None or self.gate is None:
            return self.append(request, api_version)
        return self.gate(request, api_version)

    def append(
        self,
        request: Any,
        api_version: int = -1,
        refused: Mapping[tuple[str, int], ErrorCode] | None = None,
    ) -> Any:
        """Appends, and responds now or later (PROD-1, PROD-3).

        Args:
            request: What to append.
            api_version: The version of the request on the wire, -1 if it did not cross one.
            refused: Errors of partitions to which nothing may be appended.

        Returns:
            The response; a future of it for acks=all; None for acks=0.

        Raises:
            ConnectionAbortedError: An append with acks=0 failed; only closing the connection can report it
                (PROD-3).
        """
        acks = request.acks
        parts: Parts = []
        pending_count = 0
        for topic in request.topic_data:
            topic_parts = []
            for data in topic.partition_data:
                # PROD-8.
                own = data if self._context.rules("PROD-8") else topic.partition_data[0]
                error = refused.get((topic.name, data.index)) if refused else None
                part = (
                    self._append(request, topic.name, data.index, own.records, api_version)
                    if error is None
                    else ProduceWait(data.index, error)
                )
                pending_count += not part.is_done
                topic_parts.append(part)
            parts.append((topic.name, topic_parts))
        if pending_count:
            return self._park(request, parts, pending_count)
        if acks == ACKS_NONE:
            if any(part.error for _, topic_parts in parts for part in topic_parts):
                raise ConnectionAbortedError("an append without acknowledgement failed")
            return None
        return produce_response(parts)

    def _append(
        self, request: Any, topic: str, index: int, data: bytes | None, api_version: int
    ) -> ProduceWait:
        """Validates and appends the records for one partition (PROD-1, PROD-4)."""
        acks = request.acks
        # PROD-1: only at the leader the records are examined.
        partition = self._lookup(topic, index)
        records = sole_batch(data or b"", api_version)
        refusal = _refusal(topic, partition, records, acks)
        # PROD-7: without the rule such a batch is refused when it is in the log.
        is_refused_late = refusal is ErrorCode.NOT_ENOUGH_REPLICAS and not self._context.rules(
            "PROD-7"
        )
        if refusal is not None and not is_refused_late:
            return ProduceWait(index, refusal)
        assert isinstance(partition, Partition)
        assert isinstance(records, bytes)
        context = self._context
        now_ms = context.wall_ms()
        settings = partition.replica.online_log().config
        ahead_max_ms = settings.message_timestamp_after_max_ms
        if ahead_max_ms is None:
            ahead_max_ms = context.features.message_timestamp_after_max_ms
        append_time_ms = now_ms if settings.message_timestamp_type == LOG_APPEND_TIME else None
        batch = validate(
            records,
            newest_allowed_ms=now_ms + ahead_max_ms,
            append_time_ms=append_time_ms,
            has_transactional_id=request.transactional_id is not None,
        )
        if isinstance(batch, ErrorCode):
            return _refused(partition, index, batch)
        info: AppendInfo | ErrorCode
        try:
            info = partition.append_as_leader(batch, ACKS_LEADER if is_refused_late else acks)
        except ProducerRefusedError as refused:
            info = refused.error
        except BatchTooLargeError:
            info = ErrorCode.MESSAGE_TOO_LARGE
        except OSError as error:
            context.on_disk_error(topic, index, error)
            info = ErrorCode.KAFKA_STORAGE_ERROR
        if refusal is not None and not isinstance(info, ErrorCode):
            info = refusal
        if isinstance(info, ErrorCode):
            return _refused(partition, index, info)
        # PID-6: what is sent again may not be committed yet.
        is_early = info.is_duplicate and not context.rules("PID-6")
        part = ProduceWait(index, ErrorCode.NONE)
        part.base_offset = NO_OFFSET if is_early else info.first_offset
        part.append_time_ms = append_time_ms
        part.log_start_offset = partition.replica.log_start_offset
        # PROD-4: without the rule acks=all is acknowledged like acks=1.
        if acks == ACKS_ALL and not is_early and context.rules("PROD-4"):
            # PROD-3: until the partition completes it, the outcome is unknown.
            part.error = ErrorCode.REQUEST_TIMED_OUT
            part.required_offset = info.last_offset + 1
            part.is_done = False
        return part

    def _park(self, request: Any, parts: Parts, pending_count: int) -> "asyncio.Future[Any] | Any":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        operation = DelayedProduce(parts, pending_count, self._mark_timeout, future)
        for topic, topic_parts in parts:
            for part in topic_parts:
                if not part.is_done:
                    part.request = operation
                    self._watch(topic, part)
        if operation.is_done:
            return future.result()
        self.purgatory.park(operation, request.timeout.total_seconds())
        return future

    def _watch(self, topic: str, part: ProduceWait) -> None:
        # PROD-4: looked up again, because an append to another partition of this request may have taken a failed
        # disk's partitions offline.
        partition = self._lookup(topic, part.index)
        if isinstance(partition, ErrorCode):
            part.complete(partition)
        else:
            partition.watch_produce(part)

    def _mark_timeout(self, parts: Parts) -> None:
        for topic, topic_parts in parts:
            for part in topic_parts:
                self._context.observer.mark(
                    "produce-timed-out",
                    topic=topic,
                    partition=part.index,
                    required_offset=part.required_offset,
                )


def _refusal(
    topic: str, partition: Partition | ErrorCode, records: bytes | ErrorCode, acks: int
) -> ErrorCode | None:
    """Returns why a batch must not be appended whatever it contains, in Kafka's order (PROD-1)."""
    if partition is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return partition
    if isinstance(records, ErrorCode):
        return records
    if acks not in _ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS
    if is_internal(topic):
        return ErrorCode.INVALID_TOPIC_EXCEPTION  # only coordinators write to it
    if isinstance(partition, ErrorCode):
        return partition
    return partition.refusal_to_append(acks)


def _refused(partition: Partition, index: int, error: ErrorCode) -> ProduceWait:
    """Returns the part of a partition whose records were refused, by the log or before."""
    part = ProduceWait(index, error)
    if error in AT_THE_LOG:
        part.log_start_offset = partition.replica.log_start_offset
    return part
