"""The `steady` workload: every process appends and reads in turn, as fast as the server responds.

It shows what a workload needs at least. Operations are recorded before they leave and when they have ended.
Values name their writer. A process whose append may still happen is replaced. The final phase reads everything.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.contracts.client import KeepGoing
from harness.contracts.workload import Task, WorkloadContext, WorkloadType
from harness.history.op import Completion, OpKind, Outcome
from workloads.registry import CLIENTS
from workloads.values import encode_value, read_record

PAUSE_S = 0.01
RETRY_S = 0.05
POLL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyConfig:
    """Settings of the workload.

    Attributes:
        processes: Concurrent processes.
        client: Which kind of client they use.
    """

    processes: int = 3
    client: str = "tinylog"

    @property
    def client_hosts(self) -> int:
        """Every process has a client host of its own."""
        return self.processes


class SteadyProcess:
    """One process at a time on one client host. Mutable."""

    def __init__(
        self, host: str, config: SteadyConfig, context: WorkloadContext, ids: list[int]
    ) -> None:
        self._context = context
        self._ids = ids
        self._recorder = context.recorder
        self._client = CLIENTS.get(config.client).make(
            context.client_host(host),
            context.bootstrap,
            request_timeout_ms=1000,
            connect_timeout_ms=300,
        )
        self._positions = dict.fromkeys(context.topic_partitions, 0)
        self._become_new()

    async def run(self, keep_going: KeepGoing) -> None:
        """Appends and reads in turn until `keep_going()` is false."""
        while keep_going():
            for place in self._context.topic_partitions:
                await self.append(place)
                await self.poll(place)
            await asyncio.sleep(PAUSE_S)

    async def append(self, place: tuple[str, int], *, final: bool = False) -> Completion:
        """Appends one record."""
        topic, partition = place
        op_index = self._recorder.invoke(
            process=self._process,
            kind=OpKind.APPEND,
            topic=topic,
            partition=partition,
            acks=-1,
            sequence=self._sequence,
            key="k",
            final=final,
        )
        value = encode_value(
            run_id=self._context.run_id,
            process=self._process,
            sequence=self._sequence,
            op_index=op_index,
            topic=topic,
            partition=partition,
        )
        self._sequence += 1
        completion = await self._client.append(topic, partition, b"k", value, -1)
        self._recorder.complete(op_index, completion)
        if completion.outcome == Outcome.INFO:
            # The append may still happen, so this process must not do anything else.
            self._become_new()
        return completion

    async def poll(self, place: tuple[str, int], *, final: bool = False) -> Completion:
        """Reads once from the process's position."""
        topic, partition = place
        position = self._positions[place]
        op_index = self._recorder.invoke(
            process=self._process,
            kind=OpKind.POLL,
            topic=topic,
            partition=partition,
            position=position,
            final=final,
        )
        result = await self._client.poll(
            topic, partition, position, max_bytes=POLL_BYTES, max_wait_ms=0
        )
        read = [
            read_record(
                record,
                run_id=self._context.run_id,
                topic=topic,
                partition=partition,
                leader_epoch=batch.leader_epoch,
            )
            for batch in result.batches
            for record in batch.records
        ]
        self._recorder.complete(op_index, result.completion, read)
        if read:
            self._positions[place] = read[-1].offset + 1
        elif result.completion.error == "OFFSET_OUT_OF_RANGE":
            self._positions[place] = 0
        return result.completion

    async def finish(self, place: tuple[str, int], keep_going: KeepGoing) -> bool:
        """Appends until one append is acknowledged, then reads from offset 0 to the log end."""
        while (await self.append(place, final=True)).outcome != Outcome.OK:
            if not keep_going():
                return False
            await asyncio.sleep(RETRY_S)
        self._positions[place] = 0
        while keep_going():
            polled = await self.poll(place, final=True)
            end = polled.end_offset
            if polled.outcome == Outcome.OK and end is not None and self._positions[place] >= end:
                return True
        return False

    def close(self) -> None:
        """Closes the client."""
        self._client.close()

    def _become_new(self) -> None:
        self._process = len(self._ids)
        self._ids.append(self._process)
        self._sequence = 0


class SteadyWorkload:
    """The workload of one run. Implements `Workload`."""

    def __init__(self, config: SteadyConfig, context: WorkloadContext) -> None:
        self._config = config
        self._context = context
        self._ids: list[int] = []
        self._open: list[SteadyProcess] = []

    def tasks(self) -> Sequence[Task]:
        """Makes the processes of the main phase."""
        hosts = self._context.hosts[: self._config.processes]
        return [Task(host=host, run=self._process(host).run) for host in hosts]

    def close(self) -> None:
        """Closes the clients of the phase that has ended."""
        for process in self._open:
            process.close()
        self._open.clear()

    async def final_phase(self, keep_going: KeepGoing) -> bool:
        """Appends to every partition and reads it to its end."""
        process = self._process(self._context.hosts[-1])
        for place in self._context.topic_partitions:
            if not await process.finish(place, keep_going):
                return False
        return True

    def counters(self) -> Mapping[str, int]:
        """Returns how many processes there were."""
        return {"processes": len(self._ids)}

    def _process(self, host: str) -> SteadyProcess:
        process = SteadyProcess(host, self._config, self._context, self._ids)
        self._open.append(process)
        return process


STEADY = WorkloadType(
    name="steady",
    config=SteadyConfig,
    make=SteadyWorkload,
    checkers=("linearizability", "lost-acked"),
    runs_in_simulation=False,
)
