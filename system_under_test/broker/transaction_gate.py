"""What a partition's leader does before the first batch of a transaction (TXN-12, KIP-890).

Without it, a batch that is late, after the marker of its transaction, would begin a transaction that nothing ends,
and read_committed consumers would never read beyond it. So the leader asks the coordinator first: whether the
partition belongs to the transaction, or, with `transaction.version` 2, to add it. If a marker for the producer is
appended meanwhile, the response is about a transaction that is over.

With `transaction.version` 2 a producer may begin its next transaction before the markers of the one before are
written. The leader then lets the producer wait and does not ask the coordinator, because it would take that marker
for one of the new transaction.

Source:
    Kafka's `AddPartitionsToTxnManager` and `VerificationGuard`; KAFKA-18575 for transactions that follow closely.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from system_under_test.broker.internal_topics import InternalTopic
from system_under_test.broker.partition import Partition
from system_under_test.broker.replica_manager import ReplicaManager
from system_under_test.broker.tasks import TaskScope
from system_under_test.broker.transaction_markers import BrokerChannels
from system_under_test.config import NodeConfig
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import add_partitions_to_txns_request
from system_under_test.transaction.transaction import BUMPS_EPOCHS, TopicPartition

ADDS_SINCE = 12
"""First version of Produce whose clients leave it to the leader to add the partition."""
KNOWS_ABORTABLE_SINCE = 11
"""First version of Produce whose clients know TRANSACTION_ABORTABLE."""
OFFSETS_ADD_SINCE, OFFSETS_KNOW_ABORTABLE_SINCE = 5, 4
"""The same for TxnOffsetCommit."""

_RETRIED = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class Producer(Protocol):
    """Who sends batches: a header or a span of a batch."""

    @property
    def producer_id(self) -> int:
        """Its id."""
        ...

    @property
    def producer_epoch(self) -> int:
        """Its epoch."""
        ...


class TransactionGate:
    """Lets transactional batches pass.

    Args:
        config: Node id, features, rules, settings.
        replicas: The partitions of this broker.
        topic: Knows the coordinators.
        channels: To the other brokers.
        add_here: Serves an AddPartitionsToTxnRequest of a broker on this one.
        scope: Runs the requests that wait.
    """

    def __init__(
        self,
        config: NodeConfig,
        replicas: ReplicaManager,
        topic: InternalTopic,
        channels: BrokerChannels,
        add_here: Callable[[Any], Any],
        scope: TaskScope,
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._topic = topic
        self._channels = channels
        self._add_here = add_here
        self._scope = scope
        features = config.features
        self._adds = features.transaction_version >= BUMPS_EPOCHS
        self._verifies = (
            features.verifies_transactions
            and config.transaction.transaction_partition_verification_enable
            and config.rules("TXN-12")
        )

    def check(
        self,
        transactional_id: str,
        producers: Mapping[TopicPartition, Producer],
        *,
        adds: bool,
        knows_abortable: bool,
        then: Callable[[Mapping[TopicPartition, ErrorCode]], Any],
    ) -> Any:
        """Asks the coordinator where that is necessary, then continues.

        Args:
            transactional_id: Of the producer.
            producers: The producer of every partition's batch.
            adds: Whether partitions that are not in the transaction are added.
            knows_abortable: Whether the client knows TRANSACTION_ABORTABLE.
            then: Called with the partitions that are refused; returns the response, a future of it, or None.

        Returns:
            What `then` returns, or a future of it.
        """
        if not (adds or self._verifies):
            return then({})
        asked = {
            place: (partition, producer)
            for place, producer in producers.items()
            if isinstance(partition := self._replicas.find(*place), Partition)
            and partition.is_leader
            and not _is_open(partition, producer)
        }
        # The marker of the transaction before is still to come.
        waiting = {
            place: ErrorCode.CONCURRENT_TRANSACTIONS
            for place, (partition, producer) in asked.items()
            if adds and _has_open_predecessor(partition, producer)
        }
        for place in waiting:
            del asked[place]
        if not asked:
            return then(waiting)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def ask() -> None:
            refused = await self._ask(transactional_id, asked, adds=adds)
            known = waiting | {
                place: _as_known(error, adds=adds, knows_abortable=knows_abortable)
                for place, error in refused.items()
            }
            try:
                response = then(known)
                if isinstance(response, asyncio.Future):
                    response = await response
            except ConnectionError as error:
                if not future.done():
                    future.set_exception(error)
                return
            if not future.done():
                future.set_result(response)

        self._scope.spawn(ask(), "verify-transaction")
        return future

    def adds_for(self, api_version: int, since: int) -> bool:
        """Whether the partitions of a request are added; a request that did not cross a wire is the newest."""
        return self._adds and (api_version < 0 or api_version >= since)

    async def _ask(
        self,
        transactional_id: str,
        asked: Mapping[TopicPartition, tuple[Partition, Producer]],
        *,
        adds: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """Returns the partitions that are refused."""
        before = {
            place: _last_marker(partition, producer)
            for place, (partition, producer) in asked.items()
        }
        by_topic: dict[str, list[int]] = {}
        for topic, index in asked:
            by_topic.setdefault(topic, []).append(index)
        first = next(iter(asked.values()))[1]
        response = await self._send(
            transactional_id,
            add_partitions_to_txns_request.AddPartitionsToTxnRequest(
                transactions=(
                    add_partitions_to_txns_request.AddPartitionsToTxnTransaction(
                        transactional_id=transactional_id,
                        producer_id=first.producer_id,
                        producer_epoch=first.producer_epoch,
                        verify_only=not adds,
                        topics=tuple(
                            add_partitions_to_txns_request.AddPartitionsToTxnTopic(
                                name=topic, partitions=tuple(indexes)
                            )
                            for topic, indexes in by_topic.items()
                        ),
                    ),
                )
            ),
        )
        if response is None:
            return dict.fromkeys(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        errors = {
            (topic.name, one.partition_index): ErrorCode(one.partition_error_code)
            for result in response.results_by_transaction
            for topic in result.topic_results
            for one in topic.results_by_partition
        }
        for place, (partition, producer) in asked.items():
            # A marker arrived while the coordinator responded.
            if not errors[place] and _last_marker(partition, producer) != before[place]:
                errors[place] = ErrorCode.INVALID_TXN_STATE
        return {place: error for place, error in errors.items() if error}

    async def _send(self, transactional_id: str, request: Any) -> Any:
        leader = self._topic.leader_of(transactional_id)
        if leader is None:
            return None
        if leader != self._config.node_id:
            return await self._channels.send(leader, request)
        return await self._add_here(request)


def _is_open(partition: Partition, producer: Producer) -> bool:
    log = partition.replica.online_log()
    known = log.producers.known(producer.producer_id)
    return (
        known is not None
        and known[0] == producer.producer_epoch
        and log.producers.has_open_transaction(producer.producer_id)
    )


def _has_open_predecessor(partition: Partition, producer: Producer) -> bool:
    """Whether a transaction with a smaller epoch of the same producer is open in the partition."""
    producers = partition.replica.online_log().producers
    known = producers.known(producer.producer_id)
    return (
        known is not None
        and known[0] < producer.producer_epoch
        and producers.has_open_transaction(producer.producer_id)
    )


def _last_marker(partition: Partition, producer: Producer) -> int:
    log = partition.log
    return -1 if log is None else log.producers.last_marker_offset(producer.producer_id)


def _as_known(error: ErrorCode, *, adds: bool, knows_abortable: bool) -> ErrorCode:
    """Returns an error as the client's version knows it."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    if error in _RETRIED or (error is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        # Every client repeats its request after this error.
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return error
