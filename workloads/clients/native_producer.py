"""The producer of the native client: batches of records, idempotence and retries as Kafka's producer has them.

Batches for partitions of one leader share a request. Without idempotence a request is sent at most once, so every
outcome can be classified: `ok`, `fail` only if the batch certainly was not appended (refused before the append, or
never sent), else `info`.

With idempotence, a batch with acks=all gets a producer id, an epoch and a sequence number, and is sent again with
the same ones until it is acknowledged, it fails for good, or its time is over:

* a leader that has the batch already acknowledges it, with DUPLICATE_SEQUENCE_NUMBER if it has forgotten where;
* OUT_OF_ORDER_SEQUENCE_NUMBER and UNKNOWN_PRODUCER_ID mean that the log lacks what this producer wrote before, and
  that it did not append the batch. The producer then takes the next epoch, and sends the batch as the first one of
  that epoch (KIP-360; all versions of Kafka that the client works with know it);
* a batch that failed, or whose fate is unknown, leaves a gap behind it, so the next batch of any partition begins
  with the next epoch. Leaders refuse the old epoch from then on; and
* metadata with an older leader epoch is ignored. A deposed leader may lack the batch that its successor has, and
  would ask for the next epoch, with which the successor would append the batch a second time.

One request per partition is in flight. A batch is `info` if at least one attempt may have been appended, whatever
became of the later ones.

Source:
    KIP-98, KIP-360; Kafka's Sender and TransactionManager.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from harness.contracts.client import Delivered, KeepGoing, ProducedBatch, ProducerSettings
from harness.history.op import Completion, Outcome
from system_under_test.protocol.entities import produce_of
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    init_producer_id_request,
    millis,
    produce_request,
)
from system_under_test.protocol.record_batch import encode_batch
from workloads.clients.backoff import backoff_ms
from workloads.clients.connections import send
from workloads.clients.native_cluster import STALE_METADATA, ClusterClient, Leader

GRACE_MS = 250
"""A produce request carries its own timeout, which begins when the broker reads it. The client waits a little
longer, or it would never receive the broker's timeout error."""
ACKS_ALL = -1
ACKS_NONE = 0
NO_PRODUCER = -1
TRANSACTION_TIMEOUT_MS = 2**31 - 1
"""What Kafka's producer sends without transactions; it has no meaning then."""
EPOCH_MAX = 2**15 - 1
SEQUENCE_COUNT = 2**31
"""After the largest sequence number comes 0."""

_NOT_APPENDED = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_RECORD,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""Produce errors that prove that this request appended nothing. NOT_LEADER_OR_FOLLOWER and KAFKA_STORAGE_ERROR do
not: a waiting acks=all request whose record was appended already gets the same codes."""

_GAP = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
"""Errors after which an idempotent producer begins the next epoch and sends the batch again."""

_RETRIED = STALE_METADATA | {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
}
"""Errors that Kafka's producer takes for temporary."""


_NO_PRODUCER_ID = Completion(outcome=Outcome.FAIL, error_code=None, error="no-producer-id")
"""The end of a batch that has not been sent yet."""


class _Delivery:
    """One batch on its way. Mutable: what became of its attempts.

    Attributes:
        index: Its place among the batches of the operation.
        batch: What is to be appended.
        epoch, first_sequence: The numbers that every attempt has; the epoch is -1 until it has any.
        leader_epoch: That of its partition, as it was known when the last attempt was sent.
        sent: How many attempts were sent.
        may_be_appended: Whether one of them had an unknown outcome.
        is_temporary: Whether the last attempt failed for a reason that may pass.
        completion: How the last attempt ended.
    """

    __slots__ = (
        "batch",
        "completion",
        "data",
        "epoch",
        "first_sequence",
        "index",
        "is_temporary",
        "leader_epoch",
        "may_be_appended",
        "sent",
        "timestamp_ms",
    )

    def __init__(self, index: int, batch: ProducedBatch, timestamp_ms: int) -> None:
        self.index = index
        self.batch = batch
        self.timestamp_ms = timestamp_ms
        self.data = b""
        self.epoch = NO_PRODUCER
        self.first_sequence = NO_PRODUCER
        self.leader_epoch = -1
        self.sent = 0
        self.may_be_appended = False
        self.is_temporary = True
        self.completion = _NO_PRODUCER_ID

    @property
    def is_acknowledged(self) -> bool:
        return self.completion.outcome == Outcome.OK

    def encode(self, producer_id: int, *, is_transactional: bool = False) -> None:
        """Encodes the batch with its present numbers."""
        self.data = encode_batch(
            self.batch.records,
            timestamp_ms=self.timestamp_ms,
            producer_id=producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.first_sequence,
            is_transactional=is_transactional,
        )


class NativeProducer:
    """A producer; one operation at a time. Mutable: its id, epoch and sequence numbers.

    Args:
        cluster: Its connections and leaders.
        settings: How it sends.
        transactional_id: Of a producer with transactions (`native_transactions`).
    """

    def __init__(
        self,
        cluster: ClusterClient,
        settings: ProducerSettings,
        *,
        transactional_id: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._transactional_id = transactional_id
        self._producer_id = NO_PRODUCER
        self._epoch = 0
        self._next: dict[tuple[str, int], tuple[int, int]] = {}
        """Per partition, the epoch of its last batch, and the sequence number after it."""

    async def produce(
        self,
        batches: Sequence[ProducedBatch],
        acks: int,
        delivered: Delivered,
        keep_going: KeepGoing,
    ) -> None:
        """Appends batches, at most one per partition; see the module.

        Args:
            batches: What to append.
            acks: 0, 1 or -1 (all).
            delivered: Called once for each batch, as soon as its outcome is known.
            keep_going: Whether to send a batch again that failed.
        """
        timestamp_ms = self._cluster.host.clock.wall_ms()
        deliveries = [_Delivery(index, batch, timestamp_ms) for index, batch in enumerate(batches)]
        if self._settings.enable_idempotence and acks == ACKS_ALL:
            await self._produce_once_each(deliveries, delivered, keep_going)
            return
        for delivery in deliveries:
            delivery.encode(NO_PRODUCER)
        await self._attempt(
            deliveries, acks, lambda one: delivered(one.index, one.completion), never_older=False
        )

    async def _produce_once_each(
        self, pending: list[_Delivery], delivered: Delivered, keep_going: KeepGoing
    ) -> None:
        """Sends batches until each is acknowledged, has failed for good, or its time is over."""
        settings, clock = self._settings, self._cluster.host.clock
        random = self._cluster.host.random.stream("producer")
        expires_ns = clock.monotonic_ns() + int(settings.delivery_timeout_ms * 1e6)

        def report(delivery: _Delivery) -> None:
            if delivery.is_acknowledged:
                delivered(delivery.index, delivery.completion)

        failures = 0
        while True:
            if await self._has_producer_id():
                for delivery in pending:
                    self._number(delivery)
                await self._attempt(pending, ACKS_ALL, report, never_older=True)
            pending = [delivery for delivery in pending if not delivery.is_acknowledged]
            if not pending:
                return
            wait_ms = backoff_ms(
                failures,
                first_ms=settings.retry_backoff_ms,
                most_ms=settings.retry_backoff_max_ms,
                random=random,
            )
            failures += 1
            is_over = not keep_going() or clock.monotonic_ns() + wait_ms * 1e6 >= expires_ns
            ended = [one for one in pending if is_over or not self._may_be_sent_again(one)]
            for delivery in ended:
                self._give_up(delivery)
                delivered(delivery.index, delivery.completion)
            pending = [delivery for delivery in pending if delivery not in ended]
            if not pending:
                return
            await asyncio.sleep(wait_ms / 1e3)

    def _may_be_sent_again(self, delivery: _Delivery) -> bool:
        return delivery.is_temporary and delivery.sent <= self._settings.retries

    def _give_up(self, delivery: _Delivery) -> None:
        """Ends a batch that was not acknowledged."""
        if delivery.may_be_appended:
            delivery.completion = replace(delivery.completion, outcome=Outcome.INFO)
        if delivery.epoch == self._epoch:
            self._begin_epoch()

    # --- numbers

    async def _has_producer_id(self) -> bool:
        """Whether there is a producer id, after a request for one if necessary."""
        if self._producer_id != NO_PRODUCER:
            return True
        address = self._cluster.next_broker()
        connection = await self._cluster.open(address)
        if connection is None:
            return False
        request = init_producer_id_request.InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout=millis(TRANSACTION_TIMEOUT_MS),
            producer_id=NO_PRODUCER,
            producer_epoch=NO_PRODUCER,
        )
        response = await self._cluster.request(
            connection, address, request, self._cluster.request_timeout_ms
        )
        if isinstance(response, str) or response.error_code:
            return False
        self._producer_id, self._epoch = response.producer_id, response.producer_epoch
        return True

    def _number(self, delivery: _Delivery) -> None:
        """Gives a batch its epoch and sequence numbers, unless it has them: attempts repeat them."""
        if delivery.epoch != NO_PRODUCER:
            return
        key = (delivery.batch.topic, delivery.batch.partition)
        epoch, sequence = self._next.get(key, (NO_PRODUCER, 0))
        delivery.epoch = self._epoch
        delivery.first_sequence = sequence if epoch == self._epoch else 0
        following = (delivery.first_sequence + len(delivery.batch.records)) % SEQUENCE_COUNT
        self._next[key] = (self._epoch, following)
        delivery.encode(self._producer_id, is_transactional=self._transactional_id is not None)

    def _begin_epoch(self) -> None:
        """Begins the next epoch; after the last one comes another producer id."""
        if self._epoch < EPOCH_MAX:
            self._epoch += 1
        else:
            self._producer_id = NO_PRODUCER
            self._next.clear()

    # --- attempts

    async def _attempt(
        self,
        deliveries: Iterable[_Delivery],
        acks: int,
        report: Callable[[_Delivery], None],
        *,
        never_older: bool,
    ) -> None:
        """Sends every batch once, in one request per leader; `report` is called with each when that has ended."""
        groups: dict[str, tuple[Leader, list[_Delivery]]] = {}
        for delivery in deliveries:
            batch = delivery.batch
            leader = await self._cluster.leader(
                batch.topic, batch.partition, never_older=never_older
            )
            if leader is None:
                self._not_sent(delivery, "no-leader-known", "")
                report(delivery)
            else:
                delivery.leader_epoch = leader.leader_epoch
                groups.setdefault(leader.address, (leader, []))[1].append(delivery)
        sending = [self._send(leader, some, acks, report) for leader, some in groups.values()]
        if len(sending) == 1:
            await sending[0]
        elif sending:
            await asyncio.gather(*sending)

    async def _send(
        self,
        leader: Leader,
        deliveries: Sequence[_Delivery],
        acks: int,
        report: Callable[[_Delivery], None],
    ) -> None:
        """Sends one request to a leader; calls `report` with each of its batches."""
        connection = await self._cluster.open(leader.address)
        if connection is None:
            for delivery in deliveries:
                self._not_sent(delivery, "connect-failed", leader.host)
                report(delivery)
            return
        timeout_ms = self._cluster.request_timeout_ms
        request = _request_of(deliveries, acks, timeout_ms, self._transactional_id)
        for delivery in deliveries:
            delivery.sent += 1
        if acks == ACKS_NONE:
            send(connection, request)
            response: Any = "no-ack-requested"
        else:
            response = await self._cluster.request(
                connection, leader.address, request, timeout_ms + GRACE_MS
            )
        if isinstance(response, str):
            for delivery in deliveries:
                self._no_response(delivery, response, leader.host, acks)
                report(delivery)
            return
        results = {
            (topic.name, result.index): result
            for topic in response.responses
            for result in topic.partition_responses
        }
        for delivery in deliveries:
            batch = delivery.batch
            self._judge(delivery, results[batch.topic, batch.partition], leader)
            report(delivery)

    def _not_sent(self, delivery: _Delivery, error: str, node: str) -> None:
        self._forget_leader(delivery)
        delivery.is_temporary = True
        delivery.completion = _never_sent(error, node)

    def _no_response(self, delivery: _Delivery, error: str, node: str, acks: int) -> None:
        if acks != ACKS_NONE:
            self._forget_leader(delivery)
        delivery.may_be_appended = delivery.is_temporary = True
        delivery.completion = Completion(
            outcome=Outcome.INFO, error_code=None, error=error, node=node
        )

    def _judge(self, delivery: _Delivery, result: Any, leader: Leader) -> None:
        """Takes the response about one batch."""
        code = ErrorCode(result.error_code)
        has_numbers = delivery.epoch != NO_PRODUCER
        is_known = has_numbers and code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if code == ErrorCode.NONE or is_known:
            delivery.completion = Completion(
                outcome=Outcome.OK,
                # -1 is how Kafka says that a batch was appended at an offset that the leader does not know.
                offset=None if is_known or result.base_offset == -1 else result.base_offset,
                node=leader.host,
                leader_epoch=delivery.leader_epoch,
            )
            return
        if code in STALE_METADATA:
            self._forget_leader(delivery)
        is_certain = code in _NOT_APPENDED
        delivery.may_be_appended |= not is_certain
        delivery.is_temporary = code in _RETRIED
        delivery.completion = Completion(
            outcome=Outcome.FAIL if is_certain else Outcome.INFO,
            error_code=int(code),
            error=code.name,
            node=leader.host,
        )
        if has_numbers and code in _GAP:
            delivery.is_temporary = True
            if delivery.epoch == self._epoch:
                self._begin_epoch()
            delivery.epoch = NO_PRODUCER

    def _forget_leader(self, delivery: _Delivery) -> None:
        self._cluster.forget_leader(delivery.batch.topic, delivery.batch.partition)


def _request_of(
    deliveries: Sequence[_Delivery], acks: int, timeout_ms: int, transactional_id: str | None
) -> Any:
    timeout = millis(timeout_ms)
    if len(deliveries) == 1 and transactional_id is None:
        batch = deliveries[0].batch
        return produce_of(batch.topic, batch.partition, deliveries[0].data, acks, timeout)
    by_topic: dict[str, list[Any]] = {}
    for delivery in deliveries:
        data = produce_request.PartitionProduceData(
            index=delivery.batch.partition, records=delivery.data
        )
        by_topic.setdefault(delivery.batch.topic, []).append(data)
    return produce_request.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout=timeout,
        topic_data=tuple(
            produce_request.TopicProduceData(name=topic, partition_data=tuple(data))
            for topic, data in by_topic.items()
        ),
    )


def _never_sent(error: str, node: str) -> Completion:
    return Completion(outcome=Outcome.FAIL, error_code=None, error=error, node=node)
