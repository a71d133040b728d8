"""The `transactions` workload: transactions over several partitions, and consumers of both isolation levels.

* **producers** run transactions that send records to several partitions, and commit or abort them;
* **processors** consume, transform and produce: a transaction polls one of the first half of the partitions, sends
  records to the second half, and commits the position of a consumer group. A single partition has no processor;
* **zombies**: now and then another producer takes a transactional id over while a transaction of the first one is
  open. The first one then tries to commit, which has to fail;
* **readers** poll with isolation.level=read_committed or read_uncommitted, each from its own positions.

When the faults are healed, the **final phase** takes every transactional id over, so that no transaction is open,
commits one that sends to every partition, and reads every partition with read_committed from offset 0 until the
last stable offset has reached the log end that was reported when the reads began, and that is behind the last
transaction. What these reads did not return is lost.

Everything is recorded in the table `transaction_events`; a poll of a reader is a transaction that only polls.
Analysis: `checkers.kernels.transactions`.
"""

import asyncio
from collections.abc import Mapping, Sequence

from harness.contracts.client import OFFSET_OUT_OF_RANGE, KeepGoing, LogClient, PollResult
from harness.contracts.host import ClientHost, RandomStream
from harness.contracts.run_context import REPLICA_CHECKER
from harness.contracts.transactions import READ_COMMITTED, READ_UNCOMMITTED, Key
from harness.contracts.workload import Task, WorkloadContext, WorkloadType
from harness.history.op import Outcome, ReadRecord, TransactionEvent
from workloads.append import ProcessIds
from workloads.transaction_log import RecordedTransaction
from workloads.transaction_processes import (
    RETRY_S,
    Clients,
    Places,
    ProcessorProcess,
    ProducerProcess,
)
from workloads.transactions_config import TransactionsConfig


class ReaderProcess:
    """Polls with one isolation level. Mutable: its positions.

    Args:
        host: The client host it runs on.
        places: What all processes share.
        isolation: Its isolation level.
    """

    def __init__(self, host: ClientHost, places: Places, isolation: str) -> None:
        self._places = places
        self._config = places.config
        self._isolation = isolation
        self._random: RandomStream = host.random.stream("workload")
        self._clients = Clients(host, places)
        self._reader: LogClient = self._clients.isolated(isolation)
        self._process = places.ids.take()
        self._positions = dict.fromkeys(places.keys, 0)

    async def run(self, keep_going: KeepGoing) -> None:
        """Polls at random until `keep_going()` is false."""
        config = self._config
        mean_gap_s = (config.readers + config.uncommitted_readers) / config.polls_per_s
        while True:
            await asyncio.sleep(2 * mean_gap_s * self._random.random())
            if not keep_going():
                return
            await self.poll(self._places.keys[int(self._random.random() * len(self._places.keys))])

    async def poll(
        self, key: Key, *, final: bool = False
    ) -> tuple[PollResult, Sequence[ReadRecord]]:
        """Polls from the process's position and records it."""
        config = self._config
        recorded = RecordedTransaction(
            self._places.recorder,
            run_id=self._places.run_id,
            process=self._process,
            isolation=self._isolation,
            final=final,
        )
        result = await self._reader.poll(
            *key,
            self._positions[key],
            max_bytes=config.poll_max_bytes,
            max_wait_ms=config.poll_max_wait_ms,
        )
        records = recorded.polled(key, result)
        if result.completion.outcome == Outcome.OK:
            recorded.end(TransactionEvent.COMMITTED)
        else:
            recorded.end(TransactionEvent.ABORTED, result.completion)
        if records:
            self._positions[key] = records[-1].offset + 1
        elif result.completion.error == OFFSET_OUT_OF_RANGE:
            # Another session begins: it follows nothing that this one read.
            self._process = self._places.ids.take()
            self._positions = dict.fromkeys(self._places.keys, 0)
        return result, records

    async def read_to_end(self, key: Key, beyond: int, keep_going: KeepGoing) -> bool:
        """Reads a partition from offset 0 to its end, for the closing reads.

        Args:
            key: The partition.
            beyond: An offset that has a record: an end that is not behind it comes from a leader that was deposed.
            keep_going: Whether to try once more.

        Returns:
            False when `keep_going()` turned false before that.
        """
        ends = self._clients.isolated(READ_UNCOMMITTED)
        end: int | None = None
        while keep_going():
            if end is None:
                latest = await ends.latest(*key)
                end = latest.offset if latest.outcome == Outcome.OK else None
                if end is not None and end <= beyond:
                    end = None
            if end is not None:
                result, records = await self.poll(key, final=True)
                stable = result.completion.end_offset
                if self._positions[key] >= end:
                    return True
                if not records and stable is not None and stable >= end:
                    return True
                if records:
                    continue
            await asyncio.sleep(RETRY_S)
        return False

    def close(self) -> None:
        """Closes everything."""
        self._clients.close()


class TransactionsWorkload:
    """The workload of one run. Implements `Workload`. Mutable: its processes.

    Args:
        config: Settings.
        context: The run.
    """

    def __init__(self, config: TransactionsConfig, context: WorkloadContext) -> None:
        self._config = config
        self._context = context
        self._places = Places(
            config=config,
            recorder=context.recorder,
            run_id=context.run_id,
            bootstrap=context.bootstrap,
            keys=context.topic_partitions,
            ids=ProcessIds(),
        )
        self._open: list[ProducerProcess | ReaderProcess] = []
        self._ids: list[str] = []

    def tasks(self) -> Sequence[Task]:
        """Makes the processes of the main phase, one per client host."""
        config, places = self._config, self._places
        names = iter(self._context.hosts)
        tasks = []

        def add(process: ProducerProcess | ReaderProcess, host: str) -> None:
            self._open.append(process)
            tasks.append(Task(host=host, run=process.run))

        for number in range(config.producers):
            host = next(names)
            add(ProducerProcess(self._host(host), places, self._new_id("producer", number)), host)
        # A processor without a partition would have nothing to do.
        for number in range(min(config.processors, len(places.inputs))):
            host = next(names)
            mine = places.inputs[number :: config.processors]
            identifier = self._new_id("processor", number)
            add(ProcessorProcess(self._host(host), places, identifier, mine), host)
        isolations = [READ_COMMITTED] * config.readers
        isolations += [READ_UNCOMMITTED] * config.uncommitted_readers
        for isolation in isolations:
            host = next(names)
            add(ReaderProcess(self._host(host), places, isolation), host)
        return tasks

    def close(self) -> None:
        """Closes the clients of the phase that has ended."""
        for process in self._open:
            process.close()
        self._open.clear()

    async def final_phase(self, keep_going: KeepGoing) -> bool:
        """Ends all transactions, commits one, and reads everything; see the module."""
        host = self._host(self._context.hosts[-1])
        for identifier in (*self._ids, "final"):
            writer = ProducerProcess(host, self._places, identifier)
            self._open.append(writer)
            while not await writer.initialise(final=True):
                if not keep_going():
                    return False
                await asyncio.sleep(RETRY_S)
        while not await writer.transaction(final=True):
            if not keep_going():
                return False
            await asyncio.sleep(RETRY_S)
            await writer.initialise(final=True)
        reader = ReaderProcess(host, self._places, READ_COMMITTED)
        self._open.append(reader)
        for key in self._places.keys:
            if not await reader.read_to_end(key, writer.last_offsets.get(key, -1), keep_going):
                return False
        return True

    def counters(self) -> Mapping[str, int]:
        """Counts nothing: the history contains everything."""
        return {}

    def _host(self, name: str) -> ClientHost:
        return self._context.client_host(name)

    def _new_id(self, role: str, number: int) -> str:
        identifier = f"{role}-{number}"
        self._ids.append(identifier)
        return identifier


TRANSACTIONS = WorkloadType(
    name="transactions",
    config=TransactionsConfig,
    make=TransactionsWorkload,
    checkers=("transactions", REPLICA_CHECKER),
)
