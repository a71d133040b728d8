"""The `append` workload: tests the promises of a replicated log in the simplest way.

Several logical processes work at once, each on one thing at a time:

* **append** sends one self-describing record (`workloads.values`) with acks 0, 1 or all to a partition and
  completes `ok` with an offset, `fail` or `info`. With `records_per_batch_max` and `partitions_per_request_max`
  one request has several of them: a batch for each of several partitions. Each record is an operation of its own
  in the history, so a process may have several open at once. With `enable_idempotence` a producer sends batches
  with acks=all again until they are acknowledged; each record is still one operation, from before the first
  attempt to the end of the last one;
* **poll** fetches from the process's own position in one partition and moves the position past what it got; out of
  range it starts again at the present log end. `follower_fetch_share` of the fetches read from followers. A poll
  may consist of several fetches (`fetches_per_poll_max`), each from where the one before ended, as an operation of
  Jepsen's Kafka workload consists of several polls. It is one operation in the history, with all records in the
  order in which they came (`join_fetches`), so the checkers judge the order within each fetch and between fetches;
* **latest** requests the log end;
* **query** (`queries_per_s`) asks for the offset of a timestamp, or for the end of a leader epoch
  (`workloads.offset_queries`). It has a table of its own.

A process whose append completed `info` is retired and a new process takes its place (Jepsen's rule: it
may still be in the middle of something).

When the faults are healed a **final phase** lets one process append to every partition with acks=all until
one is acknowledged, then read it from offset 0 until it has reached the log end that was reported
afterwards. Only then does a record that no process read count as lost. Analyses (in `checkers`): one order for
all (integrity, order, fresh), lost acknowledged records.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.contracts.client import (
    OFFSET_OUT_OF_RANGE,
    FindsOffsets,
    KeepGoing,
    LogClient,
    MakesProducers,
    PollResult,
    ProducedBatch,
    ReadsFollowers,
)
from harness.contracts.host import ClientHost, RandomStream
from harness.contracts.recorder import Recorder
from harness.contracts.workload import Task, WorkloadContext, WorkloadType
from harness.history.op import Completion, OpKind, Outcome, QueryKind, ReadRecord
from workloads.append_config import ACKS, AppendConfig
from workloads.offset_queries import OffsetQueries
from workloads.registry import CLIENTS
from workloads.values import encode_value, records_of

KEY_COUNT = 16
"""Records carry one of a few keys, as real records do; the protocol ignores them."""

FINAL_RETRY_MS = 50
UNKNOWN_EPOCH = -1


class ProcessIds:
    """Returns process numbers, each once in a run."""

    def __init__(self) -> None:
        self._next = 0

    def take(self) -> int:
        """Returns a number never returned before."""
        self._next += 1
        return self._next - 1


class AppendProcess:
    """One place in which processes do operations, one after the other. Mutable: it is the process.

    Args:
        host: The client host it runs on.
        config: Settings.
        recorder: Where the history goes.
        run_id: Part of every payload.
        topic_partitions: What to work on.
        bootstrap: Broker addresses.
        ids: Process numbers, shared by all places of the run.
    """

    def __init__(
        self,
        host: ClientHost,
        config: AppendConfig,
        recorder: Recorder,
        *,
        run_id: int,
        topic_partitions: Sequence[tuple[str, int]],
        bootstrap: tuple[str, ...],
        ids: ProcessIds,
    ) -> None:
        self._host = host
        self._config = config
        self._recorder = recorder
        self._run_id = run_id
        self._topic_partitions = tuple(topic_partitions)
        self._ids = ids
        self._random: RandomStream = host.random.stream("workload")
        self._client: LogClient = CLIENTS.get(config.client).make(
            host,
            bootstrap,
            request_timeout_ms=config.request_timeout_ms,
            connect_timeout_ms=config.connect_timeout_ms,
        )
        self._producer = (
            self._client.producer(config.producer_settings)
            if config.needs_producer and isinstance(self._client, MakesProducers)
            else None
        )
        self._queries = (
            OffsetQueries(self._client, recorder, host.random.stream("queries"))
            if config.queries_per_s and isinstance(self._client, FindsOffsets)
            else None
        )
        self._keep_going: KeepGoing = lambda: True
        self._process = ids.take()
        self._sequence = 0
        self._positions = dict.fromkeys(self._topic_partitions, 0)

    async def run(self, keep_going: KeepGoing) -> None:
        """Does operations at random until `keep_going()` is false; finishes the one it is in."""
        config = self._config
        self._keep_going = keep_going
        weights = (config.appends_per_s, config.polls_per_s, config.latests_per_s)
        total = sum(weights) + config.queries_per_s
        mean_gap_s = config.processes / total
        while True:
            await asyncio.sleep(2 * mean_gap_s * self._random.random())
            if not keep_going():
                return
            topic, partition = self._pick_partition()
            draw = self._random.random() * total
            if draw < weights[0]:
                acks = config.acks[int(self._random.random() * len(config.acks))]
                await self.append_to(self._pick_more((topic, partition)), ACKS[acks])
            elif draw < weights[0] + weights[1]:
                await self.poll(topic, partition)
            elif draw < sum(weights) or self._queries is None:
                await self.latest(topic, partition)
            else:
                await self._queries.ask((topic, partition), self._process)

    async def append(
        self, topic: str, partition: int, acks: int, *, final: bool = False
    ) -> Completion:
        """Appends one record and records the operation."""
        return (await self.append_to([(topic, partition)], acks, final=final))[0]

    async def append_to(
        self, keys: Sequence[tuple[str, int]], acks: int, *, final: bool = False
    ) -> list[Completion]:
        """Appends a batch to each partition and records one operation per record.

        Args:
            keys: Topics and partitions.
            acks: 0, 1 or -1 (all).
            final: Whether it belongs to the final phase, where a batch has one record.

        Returns:
            How each append ended; the offset is that of the first record.
        """
        begun = [self._begin_batch(key, acks, final=final) for key in keys]
        completions: dict[int, Completion] = {}

        def delivered(index: int, completion: Completion) -> None:
            completions[index] = completion
            for place, op_index in enumerate(begun[index][0]):
                offset = completion.offset
                self._recorder.complete(
                    op_index,
                    completion
                    if not place or offset is None
                    else replace(completion, offset=offset + place),
                )

        if self._producer is not None:
            await self._producer.produce(
                [batch for _, batch in begun], acks, delivered, self._keep_going
            )
        else:
            batch = begun[0][1]
            key, value = batch.records[0]
            completion = await self._client.append(batch.topic, batch.partition, key, value, acks)
            delivered(0, completion)
        ended = [completions[index] for index in range(len(begun))]
        if acks != 0 and any(completion.outcome == Outcome.INFO for completion in ended):
            self._process = self._ids.take()
            self._sequence = 0
        return ended

    def _begin_batch(
        self, key: tuple[str, int], acks: int, *, final: bool
    ) -> tuple[list[int], ProducedBatch]:
        """Makes a batch and records the invocation of its appends; returns their op indexes with it."""
        count = 1 if final else self._draw_count(self._config.records_per_batch_max)
        begun = [self._begin_append(key, acks, final=final)]
        first = begun[0][0]
        begun += [self._begin_append(key, acks, final=final, batch=first) for _ in range(count - 1)]
        topic, partition = key
        records = tuple(record for _, record in begun)
        return (
            [op_index for op_index, _ in begun],
            ProducedBatch(topic=topic, partition=partition, records=records),
        )

    def _begin_append(
        self, of: tuple[str, int], acks: int, *, final: bool, batch: int | None = None
    ) -> tuple[int, tuple[bytes, bytes]]:
        """Records the invocation of an append; returns its op index and its record."""
        topic, partition = of
        key = f"k{int(self._random.random() * KEY_COUNT)}"
        sequence = self._sequence
        self._sequence += 1
        op_index = self._recorder.invoke(
            process=self._process,
            kind=OpKind.APPEND,
            topic=topic,
            partition=partition,
            acks=acks,
            sequence=sequence,
            key=key,
            final=final,
            batch=batch,
        )
        value = encode_value(
            run_id=self._run_id,
            process=self._process,
            sequence=sequence,
            op_index=op_index,
            topic=topic,
            partition=partition,
            size=self._draw_size(),
        )
        return op_index, (key.encode(), value)

    def _draw_count(self, most: int) -> int:
        """Draws a number from 1; without the option it must not draw, or all other draws would move."""
        return 1 if most == 1 else 1 + int(self._random.random() * most)

    def _draw_size(self) -> int:
        """Draws the size of a value; without the option it must not draw, or all other draws would move."""
        most = self._config.record_bytes_max
        return int(self._random.random() * (most + 1)) if most else 0

    async def poll(self, topic: str, partition: int, *, final: bool = False) -> Completion:
        """Polls from the process's position and records the operation."""
        position = self._positions[(topic, partition)]
        op_index = self._recorder.invoke(
            process=self._process,
            kind=OpKind.POLL,
            topic=topic,
            partition=partition,
            position=position,
            final=final,
        )
        completion, read = await self._fetch(op_index, topic, partition, position, final=final)
        self._recorder.complete(op_index, completion, read)
        if read:
            self._positions[(topic, partition)] = read[-1].offset + 1
        elif completion.error == OFFSET_OUT_OF_RANGE:
            await self._reset_position(topic, partition, final=final)
        return completion

    async def ask_about_newest(self, kind: QueryKind, topic: str, partition: int) -> Completion:
        """Asks about the record that it remembered last, which needs a rate of questions in the settings."""
        assert self._queries is not None, "queries_per_s is 0"
        return await self._queries.ask_about_newest(kind, (topic, partition), self._process)

    def _draw_fetches(self, final: bool) -> int:
        """Draws how many fetches a poll has; final reads have one, because only their end counts."""
        return self._draw_count(1 if final else self._config.fetches_per_poll_max)

    async def _fetch_once(
        self, topic: str, partition: int, position: int, *, final: bool
    ) -> PollResult:
        """Fetches from the leader, or from a follower if that is drawn."""
        client, config = self._client, self._config
        sizes = {"max_bytes": config.poll_max_bytes, "max_wait_ms": config.poll_max_wait_ms}
        share = 0.0 if final else config.follower_fetch_share
        if share and isinstance(client, ReadsFollowers) and self._random.random() < share:
            choice = self._random.random()
            return await client.poll_follower(topic, partition, position, choice=choice, **sizes)
        return await client.poll(topic, partition, position, **sizes)

    async def _fetch(
        self, op_index: int, topic: str, partition: int, position: int, *, final: bool
    ) -> tuple[Completion, list[ReadRecord]]:
        """Fetches a number of times that is drawn, each from where the one before ended; a failure ends it."""
        count = self._draw_fetches(final)
        completions: list[Completion] = []
        read: list[ReadRecord] = []
        is_torn = False
        for _ in range(count):
            at = read[-1].offset + 1 if read else position
            result = await self._fetch_once(topic, partition, at, final=final)
            completions.append(result.completion)
            got = records_of(result, run_id=self._run_id, topic=topic, partition=partition)
            read += got
            if self._queries is not None:
                self._queries.remember((topic, partition), op_index, result, got)
            end = result.completion.end_offset
            is_torn = end is not None and bool(got) and got[-1].offset >= end
            if is_torn or result.completion.outcome != Outcome.OK:
                break
        last_offset = read[-1].offset if read else -1
        return join_fetches(completions, last_offset=last_offset, is_torn=is_torn), read

    async def latest(self, topic: str, partition: int, *, final: bool = False) -> Completion:
        """Requests the log end and records the operation."""
        op_index = self._recorder.invoke(
            process=self._process,
            kind=OpKind.LATEST,
            topic=topic,
            partition=partition,
            final=final,
        )
        completion = await self._client.latest(topic, partition)
        self._recorder.complete(op_index, completion)
        return completion

    async def read_to_end(
        self, topic: str, partition: int, keep_going: KeepGoing, *, final: bool
    ) -> bool:
        """Polls from the present position until the log end that was requested first is reached.

        Returns:
            False when `keep_going()` turned false before that.
        """
        while keep_going():
            end = await self.latest(topic, partition, final=final)
            if end.outcome == Outcome.OK and end.offset is not None:
                while keep_going() and self._positions[(topic, partition)] < end.offset:
                    polled = await self.poll(topic, partition, final=final)
                    if polled.outcome != Outcome.OK:
                        await asyncio.sleep(FINAL_RETRY_MS / 1e3)
                if self._positions[(topic, partition)] >= end.offset:
                    return True
            await asyncio.sleep(FINAL_RETRY_MS / 1e3)
        return False

    async def final_phase(self, keep_going: KeepGoing) -> bool:
        """Appends until one append is acknowledged, then reads everything; for every partition.

        Returns:
            Whether all of it was done before `keep_going()` turned false.
        """
        for topic, partition in self._topic_partitions:
            acknowledged = False
            while keep_going() and not acknowledged:
                completion = await self.append(topic, partition, -1, final=True)
                acknowledged = completion.outcome == Outcome.OK
                if not acknowledged:
                    await asyncio.sleep(FINAL_RETRY_MS / 1e3)
            self._positions[(topic, partition)] = 0
            if not await self.read_to_end(topic, partition, keep_going, final=True):
                return False
        return True

    def close(self) -> None:
        """Closes the client's connections."""
        self._client.close()

    async def _reset_position(self, topic: str, partition: int, *, final: bool) -> None:
        """Starts again at the log end, as `auto.offset.reset=latest` does (at 0 in the final phase)."""
        if final:
            self._positions[(topic, partition)] = 0
            return
        end = await self.latest(topic, partition)
        if end.outcome == Outcome.OK and end.offset is not None:
            self._positions[(topic, partition)] = end.offset

    def _pick_partition(self) -> tuple[str, int]:
        if len(self._topic_partitions) == 1:
            return self._topic_partitions[0]
        return self._topic_partitions[int(self._random.random() * len(self._topic_partitions))]

    def _pick_more(self, first: tuple[str, int]) -> list[tuple[str, int]]:
        """Returns the partitions of one append: the first, and others that are drawn."""
        picked = [first]
        most = min(self._config.partitions_per_request_max, len(self._topic_partitions))
        for _ in range(self._draw_count(most) - 1):
            left = [key for key in self._topic_partitions if key not in picked]
            picked.append(left[int(self._random.random() * len(left))])
        return picked


def join_fetches(
    completions: Sequence[Completion], *, last_offset: int, is_torn: bool = False
) -> Completion:
    """Returns the completion of a poll that consists of one or more fetches.

    A fetch has no effect, so a poll is `ok` if its first fetch was, with what it got until one failed. Of the log
    ends the largest one counts: a new leader may report a smaller one than its predecessor did, and no fetch
    should return a record at or beyond its own. If a later fetch, whose own end is not known, returned a record
    beyond the largest one, none counts. The leader epoch is known only if all responses had the same.

    Args:
        completions: Of the fetches, in their order; only the last one may not be `ok`.
        last_offset: Of the last record that they returned, -1 if they returned none.
        is_torn: Whether the last fetch returned a record at or beyond its own log end. Then that log end counts,
            because a larger one would hide it.
    """
    good = [each for each in completions if each.outcome == Outcome.OK]
    if len(completions) == 1 or not good:
        return completions[0]
    end = max((each.end_offset for each in good if each.end_offset is not None), default=None)
    if is_torn:
        end = good[-1].end_offset
    elif end is not None and last_offset >= end:
        end = None
    epochs = {each.leader_epoch for each in good}
    return replace(
        good[-1],
        end_offset=end,
        leader_epoch=epochs.pop() if len(epochs) == 1 else UNKNOWN_EPOCH,
    )


class AppendWorkload:
    """The workload of one run. Implements `Workload` and `Scriptable`.

    Args:
        config: Settings.
        context: The run.
    """

    def __init__(self, config: AppendConfig, context: WorkloadContext) -> None:
        self._config = config
        self._context = context
        self.process_ids = ProcessIds()
        self._processes: list[AppendProcess] = []

    def process(self, host: str) -> AppendProcess:
        """Makes a process on a client host."""
        context = self._context
        return AppendProcess(
            context.client_host(host),
            self._config,
            context.recorder,
            run_id=context.run_id,
            topic_partitions=context.topic_partitions,
            bootstrap=context.bootstrap,
            ids=self.process_ids,
        )

    def tasks(self) -> Sequence[Task]:
        """Makes the processes of the main phase, one per client host."""
        hosts = self._context.hosts[: self._config.processes]
        self._processes = [self.process(host) for host in hosts]
        return [
            Task(host=host, run=process.run)
            for host, process in zip(hosts, self._processes, strict=True)
        ]

    def close(self) -> None:
        """Closes the clients of the phase that has ended."""
        for process in self._processes:
            process.close()
        self._processes.clear()

    async def final_phase(self, keep_going: KeepGoing) -> bool:
        """Appends and reads with one more process; see the module."""
        process = self.process(self._context.hosts[-1])
        self._processes.append(process)
        return await process.final_phase(keep_going)

    def counters(self) -> Mapping[str, int]:
        """Counts nothing: the history contains everything."""
        return {}


APPEND = WorkloadType(
    name="append",
    config=AppendConfig,
    make=AppendWorkload,
    checkers=("linearizability", "lost-acked", "replicas", "measures", "progress"),
)
