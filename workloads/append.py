"""The `append` workload: what a replicated log promises, asked the simplest way.

Several logical processes work at once, each on one thing at a time:

* **append** sends one self-describing record (`workloads.values`) with acks 0, 1 or all to a partition and
  completes `ok` with an offset, `fail` or `info`;
* **poll** fetches once from the process's own position in one partition and moves the position past what it got;
  out of range it starts again at the present log end;
* **latest** asks for the log end.

A process whose append completed `info` is retired and a new process takes its place (Jepsen's rule: it
may still be in the middle of something).

When the faults are healed a **final phase** lets one process append to every partition with acks=all until
one is acknowledged, then read it from offset 0 until it has reached the log end that it was told
afterwards. Only then can a record that nobody read be called lost. Analyses (in `checkers`): one order for all
(integrity, order, fresh), lost acknowledged records.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from harness.contracts.recorder import Recorder
from harness.op import Completion, OpKind, Outcome
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.record_batch import encode_batch
from system_under_test.runtime import Host, RandomStream
from workloads.clients.native import NativeClient, PollResult
from workloads.values import encode_value, read_record

KEY_COUNT = 16
"""Records carry one of a few keys, as real records do; nothing in the protocol looks at them."""

FINAL_RETRY_MS = 50
NATIVE = "native"
CONFLUENT = "confluent"
CLIENTS = (NATIVE, CONFLUENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendConfig:
    """Settings of the workload; rates are totals over all processes and partitions.

    Attributes:
        processes: Concurrent processes.
        appends_per_s, polls_per_s, latests_per_s: Mean rates while operations are quick; a process that
            waits for an answer falls behind and does not catch up.
        acks: Drawn from for every append, for example (-1,) or (-1, -1, 1).
        client: Which client speaks to the cluster: "native", ours, which never retries, or "confluent"
            (confluent-kafka, idempotent, with retries), which only a cluster on TCP can have.
        group_members: Members of a consumer group that reads beside the processes (`workloads.consumer_group`); on
            TCP only.
        request_timeout_ms: Client side; also the produce request's own timeout.
        poll_max_bytes, poll_max_wait_ms: As in Fetch.
    """

    processes: int = 6
    appends_per_s: float = 100.0
    polls_per_s: float = 100.0
    latests_per_s: float = 10.0
    acks: tuple[int, ...] = (-1,)
    client: str = NATIVE
    group_members: int = 0
    request_timeout_ms: int = 1500
    connect_timeout_ms: int = 300
    poll_max_bytes: int = 16384
    poll_max_wait_ms: int = 20


def checkers_needed(config: AppendConfig) -> tuple[str, ...]:
    """Returns the names of the checkers that judge this workload and its consumer group, if it has one."""
    group = ("consumer-group",) if config.group_members else ()
    return ("linearizability", "lost-acked", *group)


class Client(Protocol):
    """What a process speaks to the cluster with. One operation at a time; nothing ever raises."""

    async def append(self, topic: str, partition: int, batch: bytes, acks: int) -> Completion:
        """Appends one batch of one record."""
        ...

    async def poll(
        self, topic: str, partition: int, position: int, *, max_bytes: int, max_wait_ms: int
    ) -> PollResult:
        """Reads once from a position."""
        ...

    async def latest(self, topic: str, partition: int) -> Completion:
        """Asks for the log end."""
        ...

    def close(self) -> None:
        """Closes connections and whatever else the client has."""
        ...


def _make_client(host: Host, bootstrap: tuple[str, ...], config: AppendConfig) -> Client:
    kind: type[Any] = NativeClient
    if config.client == CONFLUENT:
        # Only when it is asked for: the package is optional, and its threads never meet a simulation.
        from workloads.clients.confluent import ConfluentClient

        kind = ConfluentClient
    client: Client = kind(
        host,
        bootstrap,
        request_timeout_ms=config.request_timeout_ms,
        connect_timeout_ms=config.connect_timeout_ms,
    )
    return client


class ProcessIds:
    """Hands out process numbers, each once in a run."""

    def __init__(self) -> None:
        self._next = 0

    def take(self) -> int:
        """Returns a number never returned before."""
        self._next += 1
        return self._next - 1


class AppendProcess:
    """One place in which processes do operations, one after the other. Mutable: it is the process.

    Args:
        host: Doors of the client host it lives on.
        config: Settings.
        recorder: Where the history goes.
        run_id: Stands in every payload.
        topic_partitions: What to work on.
        bootstrap: Broker addresses.
        ids: Process numbers, shared by all places of the run.
    """

    def __init__(
        self,
        host: Host,
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
        self._client = _make_client(host, bootstrap, config)
        self._process = ids.take()
        self._sequence = 0
        self._positions = dict.fromkeys(self._topic_partitions, 0)

    async def run(self, keep_going: Callable[[], bool]) -> None:
        """Does operations at random until `keep_going()` is false; finishes the one it is in."""
        config = self._config
        weights = (config.appends_per_s, config.polls_per_s, config.latests_per_s)
        total = sum(weights)
        mean_gap_s = config.processes / total
        while True:
            await asyncio.sleep(2 * mean_gap_s * self._random.random())
            if not keep_going():
                return
            topic, partition = self._pick_partition()
            draw = self._random.random() * total
            if draw < weights[0]:
                acks = config.acks[int(self._random.random() * len(config.acks))]
                await self.append(topic, partition, acks)
            elif draw < weights[0] + weights[1]:
                await self.poll(topic, partition)
            else:
                await self.latest(topic, partition)

    async def append(
        self, topic: str, partition: int, acks: int, *, final: bool = False
    ) -> Completion:
        """Appends one record and records the operation."""
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
        )
        value = encode_value(
            run_id=self._run_id,
            process=self._process,
            sequence=sequence,
            op_index=op_index,
            topic=topic,
            partition=partition,
        )
        batch = encode_batch([(key.encode(), value)], timestamp_ms=self._host.clock.wall_ms())
        completion = await self._client.append(topic, partition, batch, acks)
        self._recorder.complete(op_index, completion)
        if completion.outcome == Outcome.INFO and acks != 0:
            self._process = self._ids.take()
            self._sequence = 0
        return completion

    async def poll(self, topic: str, partition: int, *, final: bool = False) -> Completion:
        """Polls once from the process's position and records the operation."""
        position = self._positions[(topic, partition)]
        op_index = self._recorder.invoke(
            process=self._process,
            kind=OpKind.POLL,
            topic=topic,
            partition=partition,
            position=position,
            final=final,
        )
        result = await self._client.poll(
            topic,
            partition,
            position,
            max_bytes=self._config.poll_max_bytes,
            max_wait_ms=self._config.poll_max_wait_ms,
        )
        read = [
            read_record(
                record,
                run_id=self._run_id,
                topic=topic,
                partition=partition,
                leader_epoch=header.leader_epoch,
            )
            for header, records in result.batches
            for record in records
        ]
        self._recorder.complete(op_index, result.completion, read)
        if read:
            self._positions[(topic, partition)] = read[-1].offset + 1
        elif result.completion.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._reset_position(topic, partition, final=final)
        return result.completion

    async def latest(self, topic: str, partition: int, *, final: bool = False) -> Completion:
        """Asks for the log end and records the operation."""
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
        self, topic: str, partition: int, keep_going: Callable[[], bool], *, final: bool
    ) -> bool:
        """Polls from the present position until the log end that was asked for first is reached.

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

    async def final_phase(self, keep_going: Callable[[], bool]) -> bool:
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
