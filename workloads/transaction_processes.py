"""The processes of the workload `transactions` that write: producers, and processors with a consumer group.

A transaction whose commit was never requested certainly does not commit, so it is recorded as `aborted`, whether
or not its abort was acknowledged: the coordinator aborts it for the next producer, or when its time is over. The
same holds if another producer had taken the transactional id over before the commit was requested, and the commit
failed. If a commit fails in any other way, the transaction is `unknown`, and the process is replaced.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.contracts.client import KeepGoing, LogClient
from harness.contracts.host import ClientHost, RandomStream
from harness.contracts.recorder import Recorder
from harness.contracts.transactions import (
    READ_COMMITTED,
    Key,
    MakesTransactions,
    TransactionalProducer,
    TransactionSettings,
)
from harness.errors import UsageError
from harness.history.op import Completion, Outcome, TransactionEvent
from workloads.append import ProcessIds
from workloads.registry import CLIENTS
from workloads.transaction_log import RecordedTransaction
from workloads.transactions_config import TransactionsConfig

GROUP = "laststand-transactions"
RETRY_S = 0.05
SLOW_TIMEOUTS = 2
"""Up to how many transaction timeouts an application works between two sends."""
OPEN_SHARE = 0.5
"""How many short-lived producers that do not abort leave their transaction open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What all processes of a run share.

    Attributes:
        config: Settings.
        recorder: Where the history goes.
        run_id: Part of every payload.
        bootstrap: Broker addresses.
        keys: All partitions.
        ids: Process numbers.
    """

    config: TransactionsConfig
    recorder: Recorder
    run_id: int
    bootstrap: tuple[str, ...]
    keys: tuple[Key, ...]
    ids: ProcessIds

    @property
    def inputs(self) -> tuple[Key, ...]:
        """The partitions that processors consume."""
        return self.keys[: len(self.keys) // 2]

    @property
    def outputs(self) -> tuple[Key, ...]:
        """The partitions that processors send to, none of which they consume."""
        return self.keys[len(self.keys) // 2 :]


class Clients:
    """The client of one process, and others that it makes. Mutable: which are open.

    Args:
        host: The client host it runs on.
        places: What all processes share.

    Raises:
        UsageError: The client does not know transactions.
    """

    def __init__(self, host: ClientHost, places: Places) -> None:
        self._config = places.config
        self._client = CLIENTS.get(self._config.client).make(
            host,
            places.bootstrap,
            request_timeout_ms=self._config.request_timeout_ms,
            connect_timeout_ms=self._config.connect_timeout_ms,
        )
        if not isinstance(self._client, MakesTransactions):
            self._client.close()
            raise UsageError(
                f"the client {self._config.client!r} knows no transactions; choose confluent or native"
            )
        self._transactions: MakesTransactions = self._client
        self._open: list[LogClient | TransactionalProducer] = [self._client]

    def producer(self, transactional_id: str) -> TransactionalProducer:
        """Makes a producer."""
        settings = TransactionSettings(
            transactional_id=transactional_id,
            transaction_timeout_ms=self._config.transaction_timeout_ms,
            delivery_timeout_ms=self._config.delivery_timeout_ms,
        )
        producer = self._transactions.transactional_producer(settings)
        self._open.append(producer)
        return producer

    def isolated(self, isolation: str) -> LogClient:
        """Makes a client that reads with an isolation level."""
        client = self._transactions.isolated(isolation)
        self._open.append(client)
        return client

    async def committed(self, keys: Sequence[Key]) -> Mapping[Key, int] | None:
        """Returns the committed positions of the processors' group; None if they are not available."""
        return await self._transactions.committed(GROUP, keys)

    def release(self, one: LogClient | TransactionalProducer) -> None:
        """Closes a producer or client before the others."""
        one.close()
        self._open.remove(one)

    def close(self) -> None:
        """Closes all."""
        for one in self._open:
            one.close()
        self._open.clear()


class ProducerProcess:
    """Runs transactions that send. Mutable: its producer.

    Args:
        host: The client host it runs on.
        places: What all processes share.
        transactional_id: Its id.
    """

    group = ""

    def __init__(self, host: ClientHost, places: Places, transactional_id: str) -> None:
        self._places = places
        self._config = places.config
        self._id = transactional_id
        self._random: RandomStream = host.random.stream("workload")
        self._clients = Clients(host, places)
        self._process = -1
        self._producer: TransactionalProducer | None = None
        self._short_lived_count = 0
        self.last_offsets: Mapping[Key, int] = {}
        """The largest offset that was acknowledged to the last transaction, by partition."""

    async def run(self, keep_going: KeepGoing) -> None:
        """Runs transactions at random until `keep_going()` is false; finishes the one it is in."""
        config = self._config
        mean_gap_s = (config.producers + config.processors) / config.transactions_per_s
        while True:
            await asyncio.sleep(2 * mean_gap_s * self._random.random())
            if not keep_going():
                return
            if self._producer is None and not await self.initialise():
                await asyncio.sleep(RETRY_S)
                continue
            if self._is_drawn(config.short_lived_share):
                await self._short_lived()
            else:
                await self.transaction()

    def _is_drawn(self, share: float) -> bool:
        """Draws whether something happens that happens in a share of the transactions of producers."""
        return share > 0 and not self.group and self._random.random() < share

    async def _short_lived(self) -> None:
        """Runs one transaction with a producer that goes away afterwards, perhaps without ending it."""
        identifier = f"{self._id}-once-{self._short_lived_count}"
        self._short_lived_count += 1
        made = await self._take_over(identifier)
        if made is None:
            return
        producer, process = made
        recorded = self._begin(process=process, transactional_id=identifier)
        completion = await producer.begin()
        if completion.outcome == Outcome.OK:
            completion = await self._work(producer, recorded, final=False)
        if completion.outcome != Outcome.OK or self._random.random() < self._config.abort_share:
            recorded.abort_asked()
            await producer.abort()
            recorded.end(TransactionEvent.ABORTED, completion)
        elif self._random.random() < OPEN_SHARE:
            recorded.end(TransactionEvent.ABORTED)
        else:
            recorded.commit_asked()
            completion = await producer.commit()
            is_committed = completion.outcome == Outcome.OK
            recorded.end(
                TransactionEvent.COMMITTED if is_committed else TransactionEvent.UNKNOWN, completion
            )
        self._clients.release(producer)

    async def initialise(self, *, final: bool = False) -> bool:
        """Makes a producer that takes the transactional id over; returns whether it did."""
        self.drop()
        made = await self._take_over(final=final)
        if made is None:
            return False
        self._producer, self._process = made
        return True

    async def _take_over(
        self, transactional_id: str = "", *, final: bool = False
    ) -> tuple[TransactionalProducer, int] | None:
        transactional_id = transactional_id or self._id
        producer = self._clients.producer(transactional_id)
        process = self._places.ids.take()
        completion = await producer.initialise()
        if completion.outcome != Outcome.OK:
            self._clients.release(producer)
            if final:
                self._places.recorder.transaction_event(
                    transaction=-1,
                    process=process,
                    event=TransactionEvent.NOT_INITIALISED,
                    transactional_id=transactional_id,
                    error_code=completion.error_code,
                    error=completion.error,
                    final=True,
                )
            return None
        self._places.recorder.transaction_event(
            transaction=-1,
            process=process,
            event=TransactionEvent.INITIALISED,
            transactional_id=transactional_id,
        )
        return producer, process

    async def transaction(self, *, final: bool = False) -> bool:
        """Runs one transaction; returns whether it committed."""
        producer = self._producer
        if producer is None:
            return False
        recorded = self._begin(final=final)
        completion = await producer.begin()
        if completion.outcome == Outcome.OK:
            completion = await self._work(producer, recorded, final=final)
        self.last_offsets = recorded.last_offsets
        return await self._end(producer, recorded, completion, final=final)

    def _begin(
        self, *, process: int = -1, transactional_id: str = "", final: bool = False
    ) -> RecordedTransaction:
        return RecordedTransaction(
            self._places.recorder,
            run_id=self._places.run_id,
            process=self._process if process < 0 else process,
            transactional_id=transactional_id or self._id,
            group=self.group,
            isolation=READ_COMMITTED if self.group else "",
            final=final,
        )

    async def _work(
        self, producer: TransactionalProducer, recorded: RecordedTransaction, *, final: bool
    ) -> Completion:
        keys = self._places.keys
        counts = [(key, 1) for key in keys] if final else self._draw_counts(keys)
        completion = await producer.send(recorded.batches(counts), recorded.delivered)
        if final or completion.outcome != Outcome.OK or not self._is_drawn(self._config.slow_share):
            return completion
        longest_s = SLOW_TIMEOUTS * self._config.transaction_timeout_ms / 1e3
        await asyncio.sleep(longest_s * self._random.random())
        # Other partitions, so that the coordinator has to take part again.
        used = [key for key, _ in counts]
        others = [key for key in keys if key not in used] or keys
        return await producer.send(recorded.batches(self._draw_counts(others)), recorded.delivered)

    async def _end(
        self,
        producer: TransactionalProducer,
        recorded: RecordedTransaction,
        completion: Completion,
        *,
        final: bool = False,
    ) -> bool:
        """Ends a transaction as it is drawn; returns whether it committed."""
        config = self._config
        draw = 1.0 if final else self._random.random()
        if completion.outcome != Outcome.OK or draw < config.abort_share:
            await self._abort(producer, recorded, completion)
            return False
        successor = None
        if draw < config.abort_share + config.zombie_share:
            successor = await self._take_over()
        recorded.commit_asked()
        completion = await producer.commit()
        if completion.outcome == Outcome.OK:
            recorded.end(TransactionEvent.COMMITTED)
        elif successor is not None:
            recorded.end(TransactionEvent.ABORTED, completion)
        elif completion.outcome == Outcome.FAIL:
            await self._abort_failed(producer, recorded, completion)
        else:
            recorded.end(TransactionEvent.UNKNOWN, completion)
            self.drop()
        if successor is not None:
            self.drop()
            self._producer, self._process = successor
        return completion.outcome == Outcome.OK

    async def _abort(
        self,
        producer: TransactionalProducer,
        recorded: RecordedTransaction,
        completion: Completion,
    ) -> None:
        """Aborts a transaction whose commit was never requested."""
        recorded.abort_asked()
        aborted = await producer.abort()
        recorded.end(TransactionEvent.ABORTED, completion)
        if aborted.outcome != Outcome.OK:
            self.drop()

    async def _abort_failed(
        self,
        producer: TransactionalProducer,
        recorded: RecordedTransaction,
        completion: Completion,
    ) -> None:
        """Aborts a transaction whose commit failed; only an acknowledged abort proves how it ended."""
        recorded.abort_asked()
        aborted = await producer.abort()
        if aborted.outcome == Outcome.OK:
            recorded.end(TransactionEvent.ABORTED, completion)
        else:
            recorded.end(TransactionEvent.UNKNOWN, completion)
            self.drop()

    def drop(self) -> None:
        """Closes the producer; its transaction stays open until another one takes the id over."""
        if self._producer is not None:
            self._clients.release(self._producer)
            self._producer = None

    def close(self) -> None:
        """Closes everything."""
        self._producer = None
        self._clients.close()

    def _draw_counts(self, keys: Sequence[Key]) -> list[tuple[Key, int]]:
        """Draws some of several partitions, and how many records each is sent."""
        config, left = self._config, list(keys)
        most = min(config.partitions_per_transaction_max, len(left))
        count = 1 + int(self._random.random() * most)
        picked = []
        for _ in range(count):
            key = left.pop(int(self._random.random() * len(left)))
            picked.append((key, 1 + int(self._random.random() * config.records_per_partition_max)))
        return picked


class ProcessorProcess(ProducerProcess):
    """Runs transactions that consume, transform and produce. Mutable: its producer and its positions.

    Positions are those that the group committed; a processor reads them when it begins, after it has taken its
    transactional id over, as Kafka Streams does. Each input partition has one processor.

    Args:
        host: The client host it runs on.
        places: What all processes share.
        transactional_id: Its id.
        inputs: The partitions that it consumes, at least one.
    """

    group = GROUP

    def __init__(
        self, host: ClientHost, places: Places, transactional_id: str, inputs: Sequence[Key]
    ) -> None:
        super().__init__(host, places, transactional_id)
        self._inputs = tuple(inputs)
        self._reader = self._clients.isolated(READ_COMMITTED)
        self._positions: dict[Key, int] = {}
        self._read_for = -1
        """The process that read the positions."""

    async def transaction(self, *, final: bool = False) -> bool:
        """Polls one partition, and sends a record for each that it got."""
        producer = self._producer
        if producer is None or not await self._has_positions():
            return False
        key = self._inputs[int(self._random.random() * len(self._inputs))]
        recorded = self._begin(final=final)
        config = self._config
        result = await self._reader.poll(
            *key,
            self._positions[key],
            max_bytes=config.poll_max_bytes,
            max_wait_ms=config.poll_max_wait_ms,
        )
        records = recorded.polled(key, result)
        if not records:
            recorded.end(TransactionEvent.ABORTED, result.completion)
            return False
        position = records[-1].offset + 1
        completion = await producer.begin()
        if completion.outcome == Outcome.OK:
            completion = await self._transform(producer, recorded, len(records), key, position)
        is_committed = await self._end(producer, recorded, completion, final=final)
        if is_committed:
            self._positions[key] = position
        return is_committed

    async def _has_positions(self) -> bool:
        """Whether this process knows the positions of the group, after reading them if necessary."""
        if self._read_for == self._process:
            return True
        found = await self._clients.committed(self._inputs)
        if found is None:
            return False
        self._positions = {key: found.get(key, 0) for key in self._inputs}
        self._read_for = self._process
        return True

    async def _transform(
        self,
        producer: TransactionalProducer,
        recorded: RecordedTransaction,
        count: int,
        key: Key,
        position: int,
    ) -> Completion:
        outputs = self._places.outputs
        drawn = [int(self._random.random() * len(outputs)) for _ in range(count)]
        counts = [
            (output, drawn.count(index)) for index, output in enumerate(outputs) if index in drawn
        ]
        completion = await producer.send(recorded.batches(counts), recorded.delivered)
        if completion.outcome != Outcome.OK:
            return completion
        recorded.position(key, position)
        return await producer.send_offsets(self.group, {key: position})
