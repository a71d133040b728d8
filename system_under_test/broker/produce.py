"""Produce (replication-protocol section 10): append on the leader, answer as `acks` asks.

What an answer means to a producer: NONE, 2, 3, 10, 19 and 21 are definite. 6, 7, 20 and 56 are not: the records
may have been appended and may yet survive or vanish.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import Any

from system_under_test.broker.metadata_cache import OFFSETS_TOPIC
from system_under_test.broker.partition import ACKS_ALL, Partition
from system_under_test.broker.produce_wait import (
    DelayedProduce,
    Parts,
    ProduceWait,
    produce_answer,
)
from system_under_test.broker.purgatory import Purgatory
from system_under_test.broker.replica_context import ReplicaContext
from system_under_test.log.errors import BatchTooLargeError
from system_under_test.log.log import AppendInfo
from system_under_test.log.producer_state import ProducerRefusedError
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.record_batch import CorruptBatchError, header_at, verify
from system_under_test.protocol.record_check import UnsoundRecordsError, newest_timestamp_ms

ACKS_NONE = 0
ACKS_LEADER = 1
ZSTD_SINCE = 7
"""The version of Produce from which on clients are known to understand zstd (KIP-110)."""

_LENGTH_AND_ATTRIBUTES = struct.Struct(">8xi9xh")
_LENGTH_END = 12
_CODEC_BITS, _LOG_APPEND_TIME_BIT, _TRANSACTIONAL_BIT, _CONTROL_BIT = 0x07, 0x08, 0x10, 0x20
_ZSTD = 4

PartitionLookup = Callable[[str, int], Partition | ErrorCode]
"""Finds a partition by topic name and index, or says why it is not here."""


class ProduceHandler:
    """Answers produce requests of one broker."""

    __slots__ = ("_context", "_lookup", "purgatory")

    def __init__(self, context: ReplicaContext, lookup: PartitionLookup) -> None:
        self._context = context
        self._lookup = lookup
        self.purgatory = Purgatory()

    def handle(self, request: Any, api_version: int = -1) -> Any:
        """Appends, and answers now or later.

        Args:
            request: What to append.
            api_version: Which the request had on the wire, -1 if it did not cross one.

        Returns:
            The response; a future of it for acks=all; None for acks=0.

        Raises:
            ConnectionAbortedError: An append with acks=0 failed; closing is the only way to say so (PROD-3).
        """
        acks = request.acks
        parts: Parts = []
        pending_count = 0
        # PROD-1.
        are_acks_valid = acks in (ACKS_ALL, ACKS_NONE, ACKS_LEADER)
        for topic in request.topic_data:
            topic_parts = []
            for data in topic.partition_data:
                if are_acks_valid:
                    part = self._append(topic.name, data.index, data.records, acks, api_version)
                    pending_count += not part.is_done
                else:
                    part = ProduceWait(data.index, ErrorCode.INVALID_REQUIRED_ACKS)
                topic_parts.append(part)
            parts.append((topic.name, topic_parts))
        if pending_count:
            return self._park(request, parts, pending_count)
        if acks == ACKS_NONE:
            if any(part.error for _, topic_parts in parts for part in topic_parts):
                raise ConnectionAbortedError("an append without acknowledgement failed")
            return None
        return produce_answer(parts)

    def _append(
        self, topic: str, index: int, records: bytes | None, acks: int, api_version: int
    ) -> ProduceWait:
        partition = self._lookup(topic, index)
        if isinstance(partition, ErrorCode):
            return ProduceWait(index, partition)
        info: AppendInfo | ErrorCode
        if not records:
            info = ErrorCode.CORRUPT_MESSAGE
        elif refusal := self._refusal(topic, records, api_version):
            info = refusal
        else:
            try:
                info = partition.append_as_leader(records, acks)
            except CorruptBatchError:
                info = ErrorCode.CORRUPT_MESSAGE
            except ProducerRefusedError as refused:
                info = refused.error
            except BatchTooLargeError:
                info = ErrorCode.MESSAGE_TOO_LARGE
            except OSError as error:
                self._context.on_disk_error(partition, error)
                info = ErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(info, ErrorCode):
            return ProduceWait(index, info)
        part = ProduceWait(index, ErrorCode.NONE)
        part.base_offset = info.first_offset
        part.log_start_offset = partition.log_start_offset
        if acks == ACKS_ALL and self._context.acks_all_waits_for_high_watermark:
            # PROD-3: until somebody says otherwise nobody knows.
            part.error = ErrorCode.REQUEST_TIMED_OUT
            part.required_offset = info.last_offset + 1
            part.is_done = False
        return part

    def _refusal(self, topic: str, records: bytes, api_version: int) -> ErrorCode | None:
        """Returns what is wrong with a client's batch before anything is appended, None if nothing is."""
        refusal = _refusal_by_header(topic, records, api_version)
        if refusal is not None:
            return refusal
        context = self._context
        try:
            ahead_ms = newest_timestamp_ms(records) - context.wall_ms()
            if ahead_ms <= context.message_timestamp_after_max_ms:
                return None
            refusal = ErrorCode.INVALID_TIMESTAMP
        except UnsoundRecordsError:
            refusal = ErrorCode.INVALID_RECORD
        # Sent like that, and never to be taken; or damaged on the way, and worth another try.
        return refusal if _is_intact(records) else ErrorCode.CORRUPT_MESSAGE

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
        # PROD-4: looked up again, because an append of another partition of this request may have taken a failed
        # disk's partitions away.
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


def _refusal_by_header(topic: str, records: bytes, api_version: int) -> ErrorCode | None:
    """Returns what is wrong with a client's batch by its header, None if nothing is.

    Source:
        Kafka's `ProduceRequest.validateRecords`, `LogValidator` and `ReplicaManager.appendRecords`.
    """
    if topic == OFFSETS_TOPIC:
        return ErrorCode.INVALID_TOPIC_EXCEPTION  # only the coordinator writes there
    if len(records) < _LENGTH_AND_ATTRIBUTES.size:
        return ErrorCode.CORRUPT_MESSAGE
    length, attributes = _LENGTH_AND_ATTRIBUTES.unpack_from(records)
    if attributes:
        codec = attributes & _CODEC_BITS
        if codec > _ZSTD or (codec == _ZSTD and 0 <= api_version < ZSTD_SINCE):
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if attributes & _CONTROL_BIT:
            return ErrorCode.INVALID_RECORD
        if attributes & _TRANSACTIONAL_BIT:
            return ErrorCode.INVALID_TXN_STATE  # there are no transactions that it could be part of
        if attributes & _LOG_APPEND_TIME_BIT:
            return ErrorCode.INVALID_TIMESTAMP  # that is for the broker to say
    if 0 <= length < len(records) - _LENGTH_END:
        return ErrorCode.INVALID_RECORD  # exactly one batch per partition
    return None


def _is_intact(records: bytes) -> bool:
    try:
        verify(records, 0, header_at(records, 0))
    except CorruptBatchError:
        return False
    return True
