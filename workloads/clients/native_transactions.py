"""Transactions of the native client: KIP-98, and an epoch per transaction (KIP-890) where the coordinator has it.

A transaction adds each partition at its coordinator (AddPartitionsToTxn) before the first batch for it is sent,
and the group whose positions it commits (AddOffsetsToTxn) before the positions are sent to the group's coordinator
(TxnOffsetCommit). EndTxn commits or aborts it. A coordinator that takes the next epoch after each transaction
returns it with EndTxn.

Requests that fail for a reason that may pass are sent again until the delivery timeout. What a commit then claims:

* `ok` if a response says so;
* `fail` if it was refused, and no attempt before had an unknown outcome;
* `info` otherwise.

A batch that was not acknowledged leaves a gap in the sequence numbers. The transaction has to be aborted; if the
coordinator does not begin another epoch with that, the producer must be initialised again, and `abort` is no `ok`.

Source:
    KIP-98, KIP-447, KIP-890; Kafka's TransactionManager.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from harness.contracts.client import ProducedBatch, ProducerSettings
from harness.contracts.host import ClientHost
from harness.contracts.transactions import Key, RecordsDelivered, TransactionSettings
from harness.history.op import Completion, Outcome
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    add_offsets_to_txn_request,
    add_partitions_to_txn_request,
    end_txn_request,
    init_producer_id_request,
    millis,
    offset_fetch_request,
    txn_offset_commit_request,
)
from workloads.clients.backoff import backoff_ms
from workloads.clients.group_coordinator import TRANSACTION_KEY_TYPE, CoordinatorClient
from workloads.clients.native_cluster import ClusterClient
from workloads.clients.native_producer import ACKS_ALL, NO_PRODUCER, NativeProducer

RETRY_BACKOFF_MS = 20
RETRY_BACKOFF_MAX_MS = 500
NO_GENERATION = -1
"""Of a group without members: its positions are committed by whoever has the transactional id."""
NO_RESPONSE = "no-response"
OK = Completion(outcome=Outcome.OK)

_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_RETRIED = _MOVED | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
}
"""Errors that Kafka's producer takes for temporary. None of them means that the request had an effect."""


class _Batches(NativeProducer):
    """Sends the batches of transactions. Mutable: its id, epoch and sequence numbers, and if one is missing."""

    has_gap = False

    @property
    def identity(self) -> tuple[int, int]:
        """Producer id and epoch."""
        return self._producer_id, self._epoch

    def adopt(self, producer_id: int, epoch: int) -> None:
        """Takes another id or epoch, with which sequence numbers begin again."""
        self._producer_id, self._epoch = producer_id, epoch
        self._next.clear()
        self.has_gap = False

    async def _has_producer_id(self) -> bool:
        return self._producer_id != NO_PRODUCER

    def _begin_epoch(self) -> None:
        # Only the coordinator may begin another epoch of a transactional id.
        self.has_gap = True

    def _may_be_sent_again(self, delivery: Any) -> bool:
        return not self.has_gap and super()._may_be_sent_again(delivery)


class NativeTransactionalProducer:
    """A producer with a transactional id. Implements `TransactionalProducer`. Mutable: its transaction.

    Args:
        host: The client host it runs on.
        bootstrap: Addresses of brokers.
        settings: How it works.
        request_timeout_ms: After which a request counts as lost.
        connect_timeout_ms: After which a connection attempt is given up.
    """

    def __init__(
        self,
        host: ClientHost,
        bootstrap: tuple[str, ...],
        settings: TransactionSettings,
        *,
        request_timeout_ms: int,
        connect_timeout_ms: int,
    ) -> None:
        self._host = host
        self._settings = settings
        self._id = settings.transactional_id

        def coordinator(key: str, **more: int) -> CoordinatorClient:
            return CoordinatorClient(
                host,
                bootstrap,
                key,
                request_timeout_ms=request_timeout_ms,
                connect_timeout_ms=connect_timeout_ms,
                **more,
            )

        self._of_group = coordinator
        self._coordinator = coordinator(self._id, key_type=TRANSACTION_KEY_TYPE)
        self._groups: dict[str, CoordinatorClient] = {}
        self._cluster = ClusterClient(
            host,
            bootstrap,
            request_timeout_ms=request_timeout_ms,
            connect_timeout_ms=connect_timeout_ms,
        )
        self._batches = _Batches(
            self._cluster,
            ProducerSettings(
                enable_idempotence=True,
                delivery_timeout_ms=settings.delivery_timeout_ms,
                retry_backoff_ms=RETRY_BACKOFF_MS,
                retry_backoff_max_ms=RETRY_BACKOFF_MAX_MS,
            ),
            transactional_id=self._id,
        )
        self._partitions: set[Key] = set()
        self._may_be_known = False
        """Whether the coordinator may know of the transaction, because something was to be added to it."""

    async def initialise(self) -> Completion:
        """Takes the transactional id over."""
        request = init_producer_id_request.InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout=millis(self._settings.transaction_timeout_ms),
            producer_id=NO_PRODUCER,
            producer_epoch=NO_PRODUCER,
        )
        completion, response = await self._repeat(self._coordinator, request, _error_of)
        if response is not None and completion.outcome == Outcome.OK:
            self._batches.adopt(response.producer_id, response.producer_epoch)
        return completion

    async def begin(self) -> Completion:
        """Begins a transaction."""
        self._partitions.clear()
        self._may_be_known = False
        return OK

    async def send(
        self, batches: Sequence[ProducedBatch], delivered: RecordsDelivered
    ) -> Completion:
        """Adds the partitions to the transaction, then sends batches until all are acknowledged."""
        added = await self._add({(batch.topic, batch.partition) for batch in batches})
        if added.outcome != Outcome.OK:
            return added
        failures: list[Completion] = []

        def ended(index: int, completion: Completion) -> None:
            if completion.outcome == Outcome.OK:
                delivered(index, batches[index].offsets_from(completion.offset))
            else:
                failures.append(completion)

        await self._batches.produce(batches, ACKS_ALL, ended, lambda: True)
        return failures[0] if failures else OK

    async def send_offsets(self, group: str, positions: Mapping[Key, int]) -> Completion:
        """Makes positions of a consumer group part of the transaction."""
        producer_id, epoch = self._batches.identity
        self._may_be_known = True
        completion, _ = await self._repeat(
            self._coordinator,
            add_offsets_to_txn_request.AddOffsetsToTxnRequest(
                transactional_id=self._id,
                producer_id=producer_id,
                producer_epoch=epoch,
                group_id=group,
            ),
            _error_of,
        )
        if completion.outcome != Outcome.OK:
            return completion
        if group not in self._groups:
            self._groups[group] = self._of_group(group)
        topics = tuple(
            txn_offset_commit_request.TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=tuple(
                    txn_offset_commit_request.TxnOffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=positions[(topic, partition)],
                        committed_metadata="",
                    )
                    for partition in partitions
                ),
            )
            for topic, partitions in _by_topic(positions).items()
        )
        request = txn_offset_commit_request.TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=NO_GENERATION,
            member_id="",
            group_instance_id=None,
            topics=topics,
        )
        completion, _ = await self._repeat(self._groups[group], request, _error_of_offsets)
        return completion

    async def commit(self) -> Completion:
        """Commits the transaction."""
        return await self._end(is_commit=True)

    async def abort(self) -> Completion:
        """Aborts the transaction."""
        return await self._end(is_commit=False)

    def close(self) -> None:
        """Closes all connections; the transaction stays open."""
        for coordinator in (self._coordinator, *self._groups.values()):
            coordinator.close()
        self._cluster.close()

    async def _add(self, keys: Iterable[Key]) -> Completion:
        """Adds partitions to the transaction that it does not have yet."""
        missing = sorted(set(keys) - self._partitions)
        if not missing:
            return OK
        producer_id, epoch = self._batches.identity
        request = add_partitions_to_txn_request.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=tuple(
                add_partitions_to_txn_request.AddPartitionsToTxnTopic(
                    name=topic, partitions=partitions
                )
                for topic, partitions in _by_topic(missing).items()
            ),
        )
        self._may_be_known = True
        completion, _ = await self._repeat(self._coordinator, request, _error_of_partitions)
        if completion.outcome == Outcome.OK:
            self._partitions.update(missing)
        return completion

    async def _end(self, *, is_commit: bool) -> Completion:
        if not self._may_be_known:
            return OK
        producer_id, epoch = self._batches.identity
        request = end_txn_request.EndTxnRequest(
            transactional_id=self._id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=is_commit,
        )
        completion, response = await self._repeat(self._coordinator, request, _error_of)
        if completion.outcome == Outcome.OK and response is not None:
            is_next = getattr(response, "producer_epoch", NO_PRODUCER) != NO_PRODUCER
            if is_next and response.producer_id != NO_PRODUCER:
                self._batches.adopt(response.producer_id, response.producer_epoch)
            elif self._batches.has_gap:
                return Completion(outcome=Outcome.INFO, error_code=None, error="sequence-gap")
        return completion

    async def _repeat(
        self,
        coordinator: CoordinatorClient,
        request: Any,
        error_of: Callable[[Any], int],
    ) -> tuple[Completion, Any]:
        """Sends a request until it has an outcome or its time is over; returns the last response, too."""
        clock, random = self._host.clock, self._host.random.stream("producer")
        expires_ns = clock.monotonic_ns() + self._settings.delivery_timeout_ms * 1_000_000
        failures, is_certain = 0, True
        while True:
            response = await coordinator.request(request)
            code = None if response is None else ErrorCode(error_of(response))
            if code == ErrorCode.NONE:
                return OK, response
            if code is None:
                is_certain = False
            elif code in _MOVED:
                coordinator.forget()
            wait_ms = backoff_ms(
                failures, first_ms=RETRY_BACKOFF_MS, most_ms=RETRY_BACKOFF_MAX_MS, random=random
            )
            failures += 1
            is_over = clock.monotonic_ns() + wait_ms * 1e6 >= expires_ns
            if is_over or (code is not None and code not in _RETRIED):
                return _refused(code, is_certain=is_certain), response
            await asyncio.sleep(wait_ms / 1e3)


def _refused(code: ErrorCode | None, *, is_certain: bool) -> Completion:
    outcome = Outcome.FAIL if is_certain else Outcome.INFO
    if code is None:
        return Completion(outcome=outcome, error_code=None, error=NO_RESPONSE)
    return Completion(outcome=outcome, error_code=int(code), error=code.name)


def _error_of(response: Any) -> int:
    return int(response.error_code)


def _error_of_partitions(response: Any) -> int:
    codes = [
        int(one.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    ]
    return _worst(codes)


def _error_of_offsets(response: Any) -> int:
    return _worst([int(one.error_code) for topic in response.topics for one in topic.partitions])


def _worst(codes: Sequence[int]) -> int:
    """Returns an error that ends the attempts if there is one, else one after which they go on, else none."""
    errors = [code for code in codes if code]
    final = [code for code in errors if ErrorCode(code) not in _RETRIED]
    return (*final, *errors, int(ErrorCode.NONE))[0]


def _by_topic(keys: Iterable[Key]) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(keys):
        found.setdefault(topic, []).append(partition)
    return {topic: tuple(partitions) for topic, partitions in found.items()}


async def stable_positions(
    host: ClientHost,
    bootstrap: tuple[str, ...],
    group: str,
    keys: Sequence[Key],
    *,
    request_timeout_ms: int,
    connect_timeout_ms: int,
) -> dict[Key, int] | None:
    """Returns the committed positions of a group that no open transaction may change (KIP-447).

    Returns:
        Positions by partition; None if the coordinator did not return all of them.
    """
    coordinator = CoordinatorClient(
        host,
        bootstrap,
        group,
        request_timeout_ms=request_timeout_ms,
        connect_timeout_ms=connect_timeout_ms,
    )
    request = offset_fetch_request.OffsetFetchRequest(
        groups=(
            offset_fetch_request.OffsetFetchRequestGroup(
                group_id=group,
                topics=tuple(
                    offset_fetch_request.OffsetFetchRequestTopics(
                        name=topic, partition_indexes=partitions
                    )
                    for topic, partitions in _by_topic(keys).items()
                ),
            ),
        ),
        require_stable=True,
    )
    try:
        response = await coordinator.request(request)
    finally:
        coordinator.close()
    if response is None or response.groups[0].error_code:
        return None
    found = {
        (topic.name, one.partition_index): one
        for topic in response.groups[0].topics
        for one in topic.partitions
    }
    if any(key not in found or found[key].error_code for key in keys):
        return None
    return {key: found[key].committed_offset for key in keys if found[key].committed_offset >= 0}
