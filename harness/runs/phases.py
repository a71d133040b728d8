"""The phases of one run as coroutines, the same in every world.

1. start: wait until all brokers are unfenced, create the topic;
2. main: workload and nemesis side by side (or the steps of a scripted scenario);
3. final: heal everything, start everything, wait until every partition is fully replicated, append until
   acknowledged, read everything.

Who drives them, and what time means, is the business of the world: `simulated.py` for the simulation,
`real.py` for processes.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from harness.contracts.cluster import Cluster
from harness.history.op import Completion, ReadRecord
from harness.history.writer import HistoryWriter
from harness.runs.experiment import Experiment
from harness.scenarios.steps import Scenario, Story
from nemesis.driver import Nemesis
from nemesis.fault import Fault
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import create_topics_request, millis
from system_under_test.runtime import Host
from workloads.append import AppendProcess, ProcessIds

RECENTLY_MS = 20
Progress = Callable[[str, float], None]
"""Takes the phase's name and the fraction of it that is done."""


class Deployment(Cluster, Protocol):
    """A cluster together with the hosts on which clients live.

    Attributes:
        brokers: Node ids by name.
        clients: Names of client hosts.
        harness_host: Name of the host from which the harness itself speaks to the cluster.
        bootstrap: Addresses of all brokers.
    """

    brokers: dict[str, int]
    clients: tuple[str, ...]
    harness_host: str
    bootstrap: tuple[str, ...]

    def client_host(self, name: str) -> Host:
        """Returns the doors of a client host, or of the harness's."""
        ...

    def spawn(self, node: str, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Runs a coroutine on a client host."""
        ...

    async def call(self, node: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Runs a coroutine on a client host and waits for it."""
        ...

    async def settle(self) -> None:
        """Starts every node that is down, once no fault is in force; the first step of the final phase."""
        ...


class RunRecorder:
    """Stamps a workload's operations with the run's clock. Implements `Recorder`."""

    def __init__(self, now_ns: Callable[[], int], history: HistoryWriter) -> None:
        self._now_ns = now_ns
        self._history = history

    def now_ns(self) -> int:
        """Returns nanoseconds since the start of the run."""
        return self._now_ns()

    def invoke(
        self,
        *,
        process: int,
        kind: str,
        topic: str,
        partition: int,
        acks: int = 0,
        sequence: int = -1,
        key: str = "",
        position: int = -1,
        final: bool = False,
    ) -> int:
        """Records an invocation now."""
        return self._history.invoke(
            process=process,
            kind=kind,
            topic=topic,
            partition=partition,
            invoked_ns=self._now_ns(),
            acks=acks,
            sequence=sequence,
            key=key,
            position=position,
            final=final,
        )

    def complete(
        self, op_index: int, completion: Completion, records: Sequence[ReadRecord] = ()
    ) -> None:
        """Records a completion now."""
        self._history.complete(op_index, self._now_ns(), completion, records)


class Phases:
    """The phases of one run.

    Args:
        experiment: What to run.
        seed: Stands in every payload.
        cluster: Where.
        nemesis: Carries out the faults.
        history: Where operations go.
        progress: Told about phases.

    Attributes:
        process_ids: Process numbers of the run.
    """

    def __init__(
        self,
        experiment: Experiment,
        seed: int,
        cluster: Deployment,
        nemesis: Nemesis,
        history: HistoryWriter,
        progress: Progress,
    ) -> None:
        self._experiment = experiment
        self._seed = seed
        self._cluster = cluster
        self._nemesis = nemesis
        self._recorder = RunRecorder(cluster.now_ns, history)
        self._progress = progress
        self._topic = experiment.topic
        self.process_ids = ProcessIds()
        self._is_main_phase = True
        self.group = self._consumer_group() if experiment.workload.group_members else None

    async def start(self) -> None:
        """Waits for the brokers and creates the topic."""
        await self._wait_until(
            lambda: all(
                not self._cluster.metadata.is_fenced(broker)
                for broker in self._cluster.brokers.values()
            )
        )
        await self._create_topic()
        await self._wait_until(
            lambda: (
                sum(
                    state.topic == self._topic.name
                    for state in self._cluster.metadata.partitions.values()
                )
                >= self._topic.partitions
            )
        )

    async def main(self, schedule: tuple[Fault, ...]) -> None:
        """Runs the workload, and the faults beside it."""
        processes = self._processes(self._experiment.workload.processes)
        working = [
            self._cluster.spawn(client, process.run(lambda: self._is_main_phase))
            for client, process in processes
        ]
        faults = asyncio.get_running_loop().create_task(self._nemesis.run(schedule))
        if self.group is not None:
            client = self._cluster.clients[-1]
            working.append(self._cluster.spawn(client, self.group.run(lambda: self._is_main_phase)))
        for tenth in range(10):
            self._progress("main", tenth / 10)
            await asyncio.sleep(self._experiment.duration_ms / 1e4)
        await faults
        self._is_main_phase = False
        self._progress("main", 1.0)
        here = asyncio.get_running_loop()
        for task in working:
            await _task_done(task, here)
            task.result()
        for _, process in processes:
            process.close()

    async def scripted(self, scenario: Scenario) -> None:
        """Carries out the steps of a scenario."""
        ((client, producer), (other, consumer)) = self._processes(2)
        hosts = {producer: client, consumer: other}
        story = Story(
            self._cluster,
            self._nemesis,
            producer,
            consumer,
            topic=self._topic.name,
            partition=0,
            run_on_client=lambda process, work: asyncio.get_running_loop().create_task(
                self._cluster.call(hosts[process], work)
            ),
        )
        await story.run(scenario.steps)

    async def final(self) -> None:
        """Heals and starts everything, then appends and reads."""
        self._is_main_phase = False
        await self._nemesis.settle()
        await self._cluster.settle()
        await self._wait_until(self._recovered)
        client = self._cluster.clients[-1]
        process = self._process(client)
        complete = await self._cluster.call(client, process.final_phase(lambda: True))
        process.close()
        assert complete
        if self.group is not None:
            await self._cluster.call(client, self.group.drain(lambda: True))

    def _recovered(self) -> bool:
        """Whether every broker is unfenced and every partition has a leader and a full ISR."""
        metadata = self._cluster.metadata
        return all(
            not metadata.is_fenced(broker) for broker in self._cluster.brokers.values()
        ) and all(
            state.leader >= 0 and len(state.isr) == len(state.replicas)
            for state in metadata.partitions.values()
        )

    # -- helpers

    def _processes(self, count: int) -> list[tuple[str, AppendProcess]]:
        return [(client, self._process(client)) for client in self._cluster.clients[:count]]

    def _consumer_group(self) -> Any:
        # Only when it is asked for: confluent-kafka is optional, and its threads never meet a simulation.
        from workloads.consumer_group import ConsumerGroup, GroupWorkloadConfig

        return ConsumerGroup(
            self._cluster.bootstrap,
            GroupWorkloadConfig(
                members=self._experiment.workload.group_members,
                session_timeout_ms=2000 if self._experiment.timings == "fast" else 10_000,
            ),
            self._recorder,
            run_id=self._seed,
            topic_partitions=self._topic.topic_partitions(),
            ids=self.process_ids,
            random=self._cluster.client_host(self._cluster.clients[-1]).random.stream("group"),
        )

    def _process(self, client: str) -> AppendProcess:
        return AppendProcess(
            self._cluster.client_host(client),
            self._experiment.workload,
            self._recorder,
            run_id=self._seed,
            topic_partitions=self._topic.topic_partitions(),
            bootstrap=self._cluster.bootstrap,
            ids=self.process_ids,
        )

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        """Waits for a condition on committed metadata; the phase's limit bounds it."""
        metadata = self._cluster.metadata
        here = asyncio.get_running_loop()
        while not condition():
            changed = here.create_future()

            def wake(changed: "asyncio.Future[None]" = changed) -> None:
                here.call_soon(_finish, changed)

            metadata.watch(wake)
            try:
                await changed
            finally:
                metadata.unwatch(wake)

    async def _create_topic(self) -> None:
        """Creates the topic with an explicit round-robin assignment, so that broker 1 leads partition 0."""
        brokers = list(self._cluster.brokers.values())
        count = len(brokers)
        assignments = tuple(
            create_topics_request.CreatableReplicaAssignment(
                partition_index=index,
                broker_ids=tuple(
                    brokers[(index + place) % count]
                    for place in range(self._topic.replication_factor)
                ),
            )
            for index in range(self._topic.partitions)
        )
        request = create_topics_request.CreateTopicsRequest(
            topics=(
                create_topics_request.CreatableTopic(
                    name=self._topic.name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=assignments,
                    configs=(
                        create_topics_request.CreatableTopicConfig(
                            name="min.insync.replicas", value=str(self._topic.min_insync_replicas)
                        ),
                    ),
                ),
            ),
            timeout=millis(5000),
            validate_only=False,
        )
        host = self._cluster.client_host(self._cluster.harness_host)
        while True:
            for address in self._cluster.bootstrap:
                try:
                    connection = await host.network.connect(address, 500)
                    answer = await connection.request(request, 5000)
                except OSError:
                    continue
                code = ErrorCode(answer.topics[0].error_code)
                connection.close()
                if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    return
            await asyncio.sleep(RECENTLY_MS / 1e3)


async def _task_done(task: "asyncio.Task[Any]", here: asyncio.AbstractEventLoop) -> None:
    done = here.create_future()
    task.add_done_callback(lambda _: here.call_soon(_finish, done))
    await done


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
