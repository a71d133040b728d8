"""TxnOffsetCommit: offsets of a group that count when the producer's transaction is committed (TXN-13).

The offsets are appended to the group's partition of `__consumer_offsets` as a transactional batch. They are
pending until the marker: a committed transaction enters them, an aborted one removes them. Meanwhile
OffsetFetch with `require_stable` gets UNSTABLE_OFFSET_COMMIT for them (KIP-447).

Source:
    KIP-98, KIP-447; Kafka's `GroupCoordinatorService.commitTransactionalOffsets`.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from system_under_test.broker.group_shard import Shard
from system_under_test.broker.metadata_cache import OFFSETS_TOPIC, MetadataCache
from system_under_test.broker.offsets_log import OffsetsLog
from system_under_test.broker.transaction_gate import (
    OFFSETS_ADD_SINCE,
    OFFSETS_KNOW_ABORTABLE_SINCE,
    TransactionGate,
)
from system_under_test.config import GroupConfig
from system_under_test.group.records import CommittedOffset, OffsetKey, encode_key, encode_offset
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import NO_THROTTLE, txn_offset_commit_response
from system_under_test.runtime import Host, RequestContext

Place = tuple[str, int]


class _Producer(NamedTuple):
    producer_id: int
    producer_epoch: int


class TransactionalOffsets:
    """Serves TxnOffsetCommit.

    Args:
        host: The node's interfaces to the outside.
        settings: Of groups.
        metadata: The existing partitions.
        shard_of: Returns the loaded partition that holds a group, or why this broker does not coordinate it.
        refusal: Returns why a member must not commit, NONE if it may.
        log_errors: What a client gets for an error of an append.

    Attributes:
        gate: Asks the transaction coordinator; the owner sets it.
    """

    def __init__(
        self,
        host: Host,
        settings: GroupConfig,
        metadata: MetadataCache,
        *,
        shard_of: Callable[[str], Shard | ErrorCode],
        refusal: Callable[[Shard, Any], ErrorCode],
        log_errors: Mapping[ErrorCode, ErrorCode],
    ) -> None:
        self.gate: TransactionGate | None = None
        self._host = host
        self._settings = settings
        self._metadata = metadata
        self._shard_of = shard_of
        self._refusal = refusal
        self._log_errors = log_errors

    def handle(self, request: Any, context: RequestContext) -> Any:
        """Serves one request; returns the response or a future of it."""
        shard = self._shard_of(request.group_id)
        if isinstance(shard, ErrorCode):
            return _response(request, lambda *_: shard)
        if self.gate is None:
            return self._commit(request, {})
        place = (OFFSETS_TOPIC, shard.log.index)
        version = context.api_version
        return self.gate.check(
            request.transactional_id,
            {place: _Producer(request.producer_id, request.producer_epoch)},
            adds=self.gate.adds_for(version, OFFSETS_ADD_SINCE),
            knows_abortable=not 0 <= version < OFFSETS_KNOW_ABORTABLE_SINCE,
            then=lambda refused: self._commit(request, refused),
        )

    def _commit(self, request: Any, refused: Mapping[Place, ErrorCode]) -> Any:
        """Appends the offsets, unless the transaction coordinator refused."""
        shard = self._shard_of(request.group_id)
        error = shard if isinstance(shard, ErrorCode) else next(iter(refused.values()), None)
        if error is None and isinstance(shard, Shard):
            found = self._refusal(shard, request)
            error = None if found is ErrorCode.NONE else found
        if error is not None or isinstance(shard, ErrorCode):
            outcome = self._log_errors.get(error, error) if error else ErrorCode.NOT_COORDINATOR
            return _response(request, lambda *_: outcome)
        wrong, offsets = self._sorted(request)
        if not offsets:
            return _response(request, lambda *place: wrong[place])
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        log = shard.log

        def stored(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                log.pend(request.producer_id, offsets)
            outcome = self._log_errors.get(error, error)
            if not future.done():
                future.set_result(_response(request, lambda *place: wrong.get(place, outcome)))

        log.append_transactional(
            [(encode_key(key), encode_offset(value)) for key, value in offsets.items()],
            stored,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
        )
        return future.result() if future.done() else future

    def _sorted(
        self, request: Any
    ) -> tuple[dict[Place, ErrorCode], dict[OffsetKey, CommittedOffset]]:
        """Returns the partitions that are refused, and the offsets of the others."""
        now_ms = self._host.clock.wall_ms()
        wrong: dict[Place, ErrorCode] = {}
        offsets: dict[OffsetKey, CommittedOffset] = {}
        for topic in request.topics:
            for one in topic.partitions:
                place = (topic.name, one.partition_index)
                metadata = one.committed_metadata or ""
                if not self._metadata.has_partition(*place):
                    wrong[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif len(metadata.encode()) > self._settings.offset_metadata_max_bytes:
                    wrong[place] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    key = OffsetKey(group=request.group_id, topic=place[0], partition=place[1])
                    offsets[key] = CommittedOffset(
                        offset=one.committed_offset,
                        leader_epoch=one.committed_leader_epoch,
                        metadata=metadata,
                        committed_ms=now_ms,
                    )
        return wrong, offsets


def with_unstable(group: Any, log: OffsetsLog) -> Any:
    """Returns the offsets of one group with an error where a transaction is not decided (KIP-447)."""
    return replace(
        group,
        topics=tuple(
            replace(
                topic,
                partitions=tuple(
                    replace(
                        one,
                        committed_offset=-1,
                        committed_leader_epoch=-1,
                        metadata="",
                        error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
                    )
                    if log.pending.has(
                        OffsetKey(
                            group=group.group_id, topic=topic.name, partition=one.partition_index
                        )
                    )
                    else one
                    for one in topic.partitions
                ),
            )
            for topic in group.topics
        ),
    )


def _response(request: Any, error_of: Callable[[str, int], ErrorCode]) -> Any:
    m = txn_offset_commit_response
    return m.TxnOffsetCommitResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            m.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    m.TxnOffsetCommitResponsePartition(
                        partition_index=one.partition_index,
                        error_code=error_of(topic.name, one.partition_index),
                    )
                    for one in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
