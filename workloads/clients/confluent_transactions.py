"""Transactions with confluent-kafka, as its users run them.

librdkafka repeats requests to the coordinator by itself as long as a call's timeout allows. What the end of a
transaction may claim in spite of that:

* a commit without an error is `ok`;
* a commit that fails with an error after which librdkafka requires an abort never reached the coordinator, because
  records or positions of the transaction failed before: `fail`;
* everything else is `info`. A commit that was fenced may have been carried out by an earlier attempt whose
  response was lost.

Every producer has a thread of its own. `close` purges what waits to be sent and tells the coordinator nothing, so
that the transaction stays open, as after the death of a process.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from harness.contracts.client import ProducedBatch
from harness.contracts.transactions import Key, RecordsDelivered, TransactionSettings
from harness.history.op import Completion, Outcome
from workloads.clients.confluent_library import code_and_name, ended, library

_T = TypeVar("_T")

_LOGGER = logging.getLogger("laststand.librdkafka")
"""Takes what librdkafka would print: with log_level 0 that is every fatal error, and being fenced is one."""
_LOGGER.addHandler(logging.NullHandler())
_LOGGER.propagate = False

OK = Completion(outcome=Outcome.OK)


class ConfluentTransactionalProducer:
    """A producer with a transactional id. Implements `TransactionalProducer`. Mutable: its transaction.

    Args:
        common: librdkafka settings that all clients share.
        settings: How it works.

    Raises:
        UsageError: confluent-kafka is not installed.
    """

    def __init__(self, common: Mapping[str, Any], settings: TransactionSettings) -> None:
        self._kafka = library()
        self._common = dict(common)
        self._settings = settings
        self._timeout_s = settings.delivery_timeout_ms / 1e3
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="transactions")
        self._producer: Any = None
        self._groups: dict[str, Any] = {}
        self._is_closed = False

    async def initialise(self) -> Completion:
        """Takes the transactional id over."""
        return await self._call(self._initialise)

    async def begin(self) -> Completion:
        """Begins a transaction."""
        return await self._attempt(lambda: self._producer.begin_transaction())

    async def send(
        self, batches: Sequence[ProducedBatch], delivered: RecordsDelivered
    ) -> Completion:
        """Sends batches and waits for their delivery reports.

        librdkafka may send the records of one call in several batches, of which only some are acknowledged.
        """
        offsets: dict[int, dict[int, int | None]] = {}
        completion = await self._call(lambda: self._send(batches, offsets))
        for index, of_batch in sorted(offsets.items()):
            delivered(index, of_batch)
        return completion

    async def send_offsets(self, group: str, positions: Mapping[Key, int]) -> Completion:
        """Makes positions of a consumer group part of the transaction."""
        places = [
            self._kafka.TopicPartition(*key, position)
            for key, position in sorted(positions.items())
        ]
        return await self._attempt(
            lambda: self._producer.send_offsets_to_transaction(
                places, self._consumer(group).consumer_group_metadata(), self._timeout_s
            )
        )

    async def commit(self) -> Completion:
        """Commits the transaction."""
        return await self._attempt(
            lambda: self._producer.commit_transaction(self._timeout_s), is_end=True
        )

    async def abort(self) -> Completion:
        """Aborts the transaction."""
        return await self._attempt(lambda: self._producer.abort_transaction(self._timeout_s))

    def close(self) -> None:
        """Ends the producer in the background, after the call it is in."""
        if not self._is_closed:
            self._is_closed = True
            self._thread.submit(self._shut_down)
            self._thread.shutdown(wait=False)

    async def _call(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _attempt(self, work: Callable[[], Any], *, is_end: bool = False) -> Completion:
        return await self._call(lambda: self._completed(work, is_end=is_end))

    # -- everything below runs on the producer's thread

    def _completed(self, work: Callable[[], Any], *, is_end: bool = False) -> Completion:
        try:
            work()
        except self._kafka.KafkaException as failed:
            error = failed.args[0]
            is_certain = not is_end or error.txn_requires_abort()
            outcome = Outcome.FAIL if is_certain else Outcome.INFO
            return ended(outcome, *code_and_name(error))
        return OK

    def _initialise(self) -> Completion:
        settings = self._settings
        if self._producer is None:
            self._producer = self._kafka.Producer(
                {
                    **self._common,
                    "transactional.id": settings.transactional_id,
                    "transaction.timeout.ms": settings.transaction_timeout_ms,
                    "delivery.timeout.ms": min(
                        settings.delivery_timeout_ms, settings.transaction_timeout_ms
                    ),
                    "linger.ms": 0,
                },
                logger=_LOGGER,
            )
        return self._completed(lambda: self._producer.init_transactions(self._timeout_s))

    def _send(
        self, batches: Sequence[ProducedBatch], offsets: dict[int, dict[int, int | None]]
    ) -> Completion:
        failures: list[Any] = []
        waiting = sum(len(batch.records) for batch in batches)

        def report(index: int, place: int) -> Callable[[Any, Any], None]:
            def reported(error: Any, message: Any) -> None:
                nonlocal waiting
                waiting -= 1
                if error is not None:
                    failures.append(error)
                else:
                    offset = message.offset()
                    is_known = offset is not None and offset >= 0
                    offsets.setdefault(index, {})[place] = offset if is_known else None

            return reported

        def produce() -> None:
            for index, batch in enumerate(batches):
                for place, (key, value) in enumerate(batch.records):
                    self._producer.produce(
                        batch.topic, value, key, batch.partition, on_delivery=report(index, place)
                    )

        try:
            completion = self._completed(produce)
        except BufferError:
            return ended(Outcome.FAIL, None, "_QUEUE_FULL")
        if completion.outcome != Outcome.OK:
            return completion
        self._producer.flush(self._timeout_s)
        if failures:
            return ended(Outcome.FAIL, *code_and_name(failures[0]))
        return OK if not waiting else ended(Outcome.FAIL, None, "no-delivery-report")

    def _consumer(self, group: str) -> Any:
        if group not in self._groups:
            self._groups[group] = self._kafka.Consumer({**self._common, "group.id": group})
        return self._groups[group]

    def _shut_down(self) -> None:
        for consumer in self._groups.values():
            consumer.close()
        if self._producer is not None:
            self._producer.purge()
            self._producer.poll(0)
        self._producer = None


def committed_positions(
    common: Mapping[str, Any], group: str, keys: Sequence[Key], timeout_ms: int
) -> dict[Key, int] | None:
    """Returns the committed positions of a group, None if they are not available; blocks.

    librdkafka asks for stable positions only (KIP-447) because the consumer reads committed records.
    """
    kafka = library()
    consumer = kafka.Consumer({**common, "group.id": group, "isolation.level": "read_committed"})
    try:
        places = consumer.committed([kafka.TopicPartition(*key) for key in keys], timeout_ms / 1e3)
        if any(place.error is not None for place in places):
            return None
        return {(p.topic, p.partition): p.offset for p in places if p.offset >= 0}
    except kafka.KafkaException:
        return None
    finally:
        consumer.close()
