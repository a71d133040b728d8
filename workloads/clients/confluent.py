"""A client on confluent-kafka, configured as its users run it; the interface is that of `NativeClient`.

librdkafka retries, fetches ahead and uses its own threads. What a history row may claim in spite of that:

**append, acks=all** goes through an idempotent producer with retries. A delivery report without an error is `ok`
(without an offset when the broker no longer remembered a repeated record's place). A report with an error is
`info` whatever the error: NOT_ENOUGH_REPLICAS proves that *this* attempt was refused, but an earlier attempt
of the same record may have been written and its response lost. Only what `produce()` itself refuses was certainly
never sent, and is `fail`.

**append, acks=1 and 0** go through producers without retries, because without idempotence a retry may write twice,
which the checkers would call a duplicate. (librdkafka still repeats what a broker refused because it does not
lead; such an attempt wrote nothing.) With one attempt, errors that refuse before the append are `fail`.

**poll** reads by `assign`, never in a group, and begins with a seek, which drops what was fetched ahead: every
record and every "end of partition" that a poll returns belongs to a fetch request that was sent after the poll's
invocation (librdkafka numbers its seeks and drops responses for older numbers). Otherwise a record fetched before
an election and returned after it would look as if it came from the new leader. `end_offset`, which the checkers
read as "the log ended here at some moment after the invocation", is claimed only when the consumer reported the
end of the partition; the cached high watermark, whose age is unknown, is never claimed. A poll without
a response from any broker in time is `fail`, so that silence does not count as success. The seek carries the
leader epoch of the last record read, so librdkafka first checks with the leader whether the log was cut below the
position (KIP-320): with
`auto.offset.reset=error` that ends the poll with the error LOG_TRUNCATION. The next poll from the same position
has no epoch any more, as in an application that ignores the error.

**latest** queries the leader (`cached=False`), after the invocation.

librdkafka reports neither which broker responded nor its leader epoch: `node` is empty, `leader_epoch` is -1.
Nothing here can run in the simulation: librdkafka has its own threads and sockets.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from harness.contracts.client import (
    ClientType,
    FetchedBatch,
    PollResult,
)
from harness.contracts.host import ClientHost
from harness.contracts.transactions import Key, TransactionSettings
from harness.history.op import Completion, Outcome
from workloads.clients.confluent_library import code_and_name, common_settings, ended, library
from workloads.clients.confluent_transactions import (
    ConfluentTransactionalProducer,
    committed_positions,
)

try:
    import confluent_kafka
    from confluent_kafka import KafkaError, KafkaException, TopicPartition
except ImportError:
    confluent_kafka = None

ACKS_ALL = -1
ATTEMPTS = 4
"""Delivery timeout in request timeouts; librdkafka's and Kafka's defaults (120 s and 30 s) have the same ratio."""
MARGIN_MS = 5_000
"""How much later than its delivery timeout a record may get its report. Beyond that librdkafka is stuck."""
POLL_STEP_S = 0.2
MESSAGES_MAX = 10_000
NO_EPOCH = -1
FETCH_BYTES = 16_384
FETCH_WAIT_MS = 20
_T = TypeVar("_T")

_NEVER_APPENDED = frozenset(
    {
        ErrorCode.corrupt_message,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.message_too_large,
        ErrorCode.not_enough_replicas,
        ErrorCode.invalid_required_acks,
        ErrorCode.invalid_timestamp,
        ErrorCode.invalid_record,
    }
)
"""Produce errors that prove, for a record that was sent at most once, that it was not appended."""


class ConfluentClient:
    """One client; one operation at a time. Mutable: a consumer and up to three producers, made when first needed.

    All calls into librdkafka are made by one thread per client; the event loop only waits for its results.

    Args:
        host: Not used; a real client brings its own clock and network.
        bootstrap: Addresses of brokers.
        request_timeout_ms: Of one attempt; an append may take `ATTEMPTS` times as long.
        connect_timeout_ms: After which a connection attempt is given up (at least a second).
        settings: Further librdkafka settings, for example `test.mock.num.brokers`; they win.

    Raises:
        UsageError: confluent-kafka is not installed.
    """

    def __init__(
        self,
        host: ClientHost | None,
        bootstrap: tuple[str, ...],
        *,
        request_timeout_ms: int,
        connect_timeout_ms: int,
        settings: dict[str, Any] | None = None,
    ) -> None:
        library()
        self.request_timeout_ms = request_timeout_ms
        self._more = settings or {}
        self._make: Callable[[dict[str, Any]], ConfluentClient] = lambda more: ConfluentClient(
            host,
            bootstrap,
            request_timeout_ms=request_timeout_ms,
            connect_timeout_ms=connect_timeout_ms,
            settings=self._more | more,
        )
        self._common = {
            **common_settings(
                bootstrap,
                request_timeout_ms=request_timeout_ms,
                connect_timeout_ms=connect_timeout_ms,
            ),
            **self._more,
        }
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="confluent")
        self._producers: dict[int, Any] = {}
        self._reader: _Reader | None = None
        self._is_closed = False

    async def append(
        self, topic: str, partition: int, key: bytes, value: bytes, acks: int
    ) -> Completion:
        """Produces one record."""
        return await self._call(lambda: self._append(topic, partition, key, value, acks))

    async def poll(
        self, topic: str, partition: int, position: int, *, max_bytes: int, max_wait_ms: int
    ) -> PollResult:
        """Reads from a position until something arrives, the end is reached or the request timeout is over."""
        return await self._call(
            lambda: self._reader_of(max_bytes, max_wait_ms).poll(
                topic, partition, position, timeout_ms=self.request_timeout_ms
            )
        )

    async def latest(self, topic: str, partition: int) -> Completion:
        """Requests the log end from the leader."""
        return await self._call(lambda: self._latest(topic, partition))

    def transactional_producer(
        self, settings: TransactionSettings
    ) -> ConfluentTransactionalProducer:
        """Makes a producer with a transactional id; it has connections of its own."""
        return ConfluentTransactionalProducer(self._common, settings)

    def isolated(self, isolation: str) -> "ConfluentClient":
        """Makes a client whose reads have an isolation level; it is closed by itself."""
        return self._make({"isolation.level": isolation})

    async def committed(self, group: str, keys: Sequence[Key]) -> dict[Key, int] | None:
        """Returns the committed positions of a group; None if they are not available."""
        return await self._call(
            lambda: committed_positions(self._common, group, keys, self.request_timeout_ms)
        )

    def close(self) -> None:
        """Ends the client in the background, after the operation it is in; what waits to be sent is dropped."""
        if not self._is_closed:
            self._is_closed = True
            self._thread.submit(self._shut_down)
            self._thread.shutdown(wait=False)

    async def _call(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # -- everything below runs on the client's thread

    def _append(
        self, topic: str, partition: int, key: bytes, value: bytes, acks: int
    ) -> Completion:
        reports: list[tuple[Any, Any]] = []
        try:
            producer = self._producer(acks)
            producer.produce(
                topic,
                value,
                key,
                partition,
                on_delivery=lambda error, message: reports.append((error, message)),
            )
        except BufferError:
            return ended(Outcome.FAIL, None, "_QUEUE_FULL")
        except KafkaException as refused:
            error = refused.args[0]
            self._replace_if_fatal(acks, error)
            return ended(Outcome.FAIL, *code_and_name(error))
        # Not poll: it returns early for every other event, such as a refused connection.
        producer.flush((ATTEMPTS * self.request_timeout_ms + MARGIN_MS) / 1e3)
        if not reports:
            self._discard(acks)
            return ended(Outcome.INFO, None, "no-delivery-report")
        error, message = reports[0]
        if error is not None:
            self._replace_if_fatal(acks, error)
            return classify_append_error(acks, *code_and_name(error))
        if acks == 0:
            return ended(Outcome.INFO, None, "no-ack-requested")
        offset = message.offset()
        return Completion(
            outcome=Outcome.OK, offset=offset if offset is not None and offset >= 0 else None
        )

    def _latest(self, topic: str, partition: int) -> Completion:
        consumer = (self._reader or self._reader_of(FETCH_BYTES, FETCH_WAIT_MS)).consumer
        try:
            _, high = consumer.get_watermark_offsets(
                TopicPartition(topic, partition),
                timeout=self.request_timeout_ms / 1e3,
                cached=False,
            )
        except KafkaException as failed:
            return ended(Outcome.FAIL, *code_and_name(failed.args[0]))
        return Completion(outcome=Outcome.OK, offset=high)

    def _producer(self, acks: int) -> Any:
        producer = self._producers.get(acks)
        if producer is None:
            producer = confluent_kafka.Producer(
                self._common | producer_settings(acks, self.request_timeout_ms)
            )
            self._producers[acks] = producer
        return producer

    def _reader_of(self, max_bytes: int, max_wait_ms: int) -> "_Reader":
        settings = self._common | consumer_settings(max_bytes, max_wait_ms)
        if self._reader is not None and self._reader.settings != settings:
            # librdkafka fixes a consumer's fetch sizes when it is made.
            self._reader.consumer.close()
            self._reader = None
        if self._reader is None:
            self._reader = _Reader(settings)
        return self._reader

    def _replace_if_fatal(self, acks: int, error: Any) -> None:
        # An idempotent producer that met a fatal error refuses everything from then on; users make a new one.
        if error.fatal():
            self._discard(acks)

    def _discard(self, acks: int) -> None:
        producer = self._producers.pop(acks, None)
        if producer is not None:
            producer.purge()
            producer.poll(0)

    def _shut_down(self) -> None:
        for acks in tuple(self._producers):
            self._discard(acks)
        if self._reader is not None:
            self._reader.consumer.close()
            self._reader = None


class _Reader:
    """A consumer that reads one partition at a time from a given position. Mutable: its assignment.

    Args:
        settings: Of the consumer.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.consumer = confluent_kafka.Consumer(settings)
        self._assigned: set[Key] = set()
        self._read_up_to: dict[Key, tuple[int, int]] = {}
        """Per partition, the position behind the last record returned, and that record's leader epoch."""
        self._pending: dict[Key, Completion] = {}
        """Errors that came after records, or for another partition; the next poll reports them."""

    def poll(self, topic: str, partition: int, position: int, *, timeout_ms: int) -> PollResult:
        """Reads once; see the module for what the result claims."""
        key = (topic, partition)
        pending = self._pending.pop(key, None)
        if pending is not None:
            return PollResult(completion=pending)
        try:
            self._go_to(key, position)
            records, end = self._read(key, timeout_ms)
        except KafkaException as failed:
            self._unassign(key)
            return PollResult(completion=ended(Outcome.FAIL, *code_and_name(failed.args[0])))
        if not records and end is None:
            failure = self._pending.pop(key, None)
            return PollResult(completion=failure or ended(Outcome.FAIL, None, "client-timeout"))
        if records:
            self._read_up_to[key] = (records[-1].offset() + 1, _epoch_of(records[-1]))
        return PollResult(
            completion=Completion(outcome=Outcome.OK, end_offset=end), batches=_by_epoch(records)
        )

    def _go_to(self, key: Key, position: int) -> None:
        reached, epoch = self._read_up_to.get(key, (-1, -1))
        place = TopicPartition(
            *key, position, leader_epoch=epoch if reached == position else NO_EPOCH
        )
        if key in self._assigned:
            try:
                self.consumer.seek(place)
                return
            except KafkaException as refused:
                if refused.args[0].code() != KafkaError._STATE:
                    raise
                # librdkafka has stopped reading this partition for an error whose event the seek before this one
                # outdated. An assignment starts it again, and with the epoch finds out the same once more.
                self._unassign(key)
        self.consumer.incremental_assign([place])
        self._assigned.add(key)

    def _read(self, key: Key, timeout_ms: int) -> tuple[list[Any], int | None]:
        """Returns the records that came first, and where the log ends if that was reported."""
        records: list[Any] = []
        end = None
        steps = max(1, int(timeout_ms / 1e3 / POLL_STEP_S))
        for _ in range(steps):
            for message in self._wait():
                if message.error() is not None:
                    end = self._note(key, message, end)
                elif end is None and (message.topic(), message.partition()) == key:
                    # Records behind an end of the log came with a later fetch; the next poll reads them again.
                    records.append(message)
            if records or end is not None or key in self._pending:
                break
        return records, end

    def _wait(self) -> list[Any]:
        message = self.consumer.poll(POLL_STEP_S)
        return [] if message is None else [message, *self.consumer.consume(MESSAGES_MAX, 0)]

    def _note(self, key: Key, message: Any, end: int | None) -> int | None:
        """Takes an event; returns the log end if the event reports it for the partition that is being read."""
        error = message.error()
        of = (message.topic(), message.partition())
        if error.code() == KafkaError._PARTITION_EOF:
            return int(message.offset()) if of == key else end
        if message.topic() is None:
            of = key
        self._pending[of] = ended(Outcome.FAIL, *code_and_name(error))
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            # librdkafka has stopped reading this partition; only a new assignment starts it again.
            self._forget(of)
        return end

    def _forget(self, key: Key) -> None:
        self._read_up_to.pop(key, None)
        self._unassign(key)

    def _unassign(self, key: Key) -> None:
        if key in self._assigned:
            self._assigned.remove(key)
            self.consumer.incremental_unassign([TopicPartition(*key)])


def producer_settings(acks: int, request_timeout_ms: int) -> dict[str, Any]:
    """Returns what a producer of the given acks has besides the common settings."""
    is_idempotent = acks == ACKS_ALL
    settings = {
        "acks": "all" if is_idempotent else str(acks),
        "enable.idempotence": is_idempotent,
        "request.timeout.ms": request_timeout_ms,
        "delivery.timeout.ms": ATTEMPTS * request_timeout_ms,
        "linger.ms": 0,
    }
    return settings if is_idempotent else settings | {"retries": 0}


def consumer_settings(max_bytes: int, max_wait_ms: int) -> dict[str, Any]:
    """Returns what a consumer by assignment has besides the common settings."""
    return {
        "fetch.message.max.bytes": max_bytes,
        "fetch.wait.max.ms": max_wait_ms,
        # The library insists on a group; nothing joins it and nothing is committed to it.
        "group.id": "laststand-assign",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "check.crcs": True,
        "fetch.error.backoff.ms": 20,
        # What is fetched ahead is dropped by the next seek anyway, and a full queue must not delay it by a second.
        "queued.min.messages": 1000,
        "queued.max.messages.kbytes": 1024,
        "fetch.queue.backoff.ms": 20,
    }


def classify_append_error(acks: int, code: int | None, name: str) -> Completion:
    """Returns how an append ended whose delivery report carries an error; see the module."""
    once = acks != ACKS_ALL
    certain = once and (name == "_PURGE_QUEUE" or code in _NEVER_APPENDED)
    return ended(Outcome.FAIL if certain else Outcome.INFO, code, name)


@dataclass(frozen=True, slots=True)
class LibraryRecord:
    """A record as librdkafka returned it. Implements `FetchedRecord`."""

    offset: int
    key: bytes | None
    value: bytes | None


def _by_epoch(messages: list[Any]) -> tuple[FetchedBatch, ...]:
    """Returns messages as batches, one per run of a leader epoch; consumers do not learn the real boundaries."""
    return tuple(
        FetchedBatch(
            leader_epoch=epoch,
            records=tuple(
                LibraryRecord(message.offset(), message.key(), message.value()) for message in run
            ),
        )
        for epoch, run in groupby(messages, key=_epoch_of)
    )


def _epoch_of(message: Any) -> int:
    epoch = message.leader_epoch()
    return -1 if epoch is None else int(epoch)


def confluent_versions() -> Mapping[str, str]:
    """Returns the versions of the package and of librdkafka.

    Raises:
        UsageError: The package is not installed.
    """
    package = library()
    return {"confluent-kafka": package.version()[0], "librdkafka": package.libversion()[0]}


CONFLUENT = ClientType(name="confluent", make=ConfluentClient, versions=confluent_versions)
