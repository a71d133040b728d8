"""The phases of one run as coroutines, the same in every world.

1. start: wait until all brokers are unfenced, create the topics;
2. main: workload and nemesis side by side (or the steps of a scripted scenario);
3. final: heal everything, start everything, wait until every partition is fully replicated, append until
   acknowledged, read everything.

Who drives them, and what time means, is the business of the world: `simulated.py` for the simulation,
`real.py` for processes.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from checkers.kernels.live_watch import LiveWatch
from harness.contracts.cluster import Deployment, Topic
from harness.contracts.workload import Scriptable, Workload, WorkloadContext
from harness.errors import UsageError
from harness.history.op import Completion, OffsetQuery, ReadRecord
from harness.history.writer import HistoryWriter
from harness.runs.experiment import SHUFFLED, Experiment, TopicConfig
from harness.scenarios.outcome import STAYS_LEADERLESS
from harness.scenarios.steps import Scenario, Story
from harness.simulation.randomness import RandomTree
from nemesis.driver import Nemesis
from nemesis.fault import Fault

FAST = "fast"

MAIN_STEPS = 10
"""How often progress is reported in a main phase."""

Progress = Callable[[str, float], None]
"""Takes the phase's name and the fraction of it that is done."""


class RunRecorder:
    """Stamps a workload's operations with the run's clock. Implements `Recorder`.

    Args:
        now_ns: The clock.
        history: Where operations go.
        watch: Is told of them too, if there is one.
    """

    def __init__(
        self, now_ns: Callable[[], int], history: HistoryWriter, watch: LiveWatch | None = None
    ) -> None:
        self._now_ns = now_ns
        self._history = history
        self._watch = watch

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
        batch: int | None = None,
    ) -> int:
        """Records an invocation now."""
        invoked_ns = self._now_ns()
        op_index = self._history.invoke(
            process=process,
            kind=kind,
            topic=topic,
            partition=partition,
            invoked_ns=invoked_ns,
            acks=acks,
            sequence=sequence,
            key=key,
            position=position,
            final=final,
            batch=batch,
        )
        if self._watch is not None:
            self._watch.invoke(
                op_index,
                kind=kind,
                topic=topic,
                partition=partition,
                invoked_ns=invoked_ns,
                acks=acks,
                position=position,
            )
        return op_index

    def complete(
        self, op_index: int, completion: Completion, records: Sequence[ReadRecord] = ()
    ) -> None:
        """Records a completion now."""
        completed_ns = self._now_ns()
        self._history.complete(op_index, completed_ns, completion, records)
        if self._watch is not None:
            self._watch.complete(op_index, completed_ns, completion, records)

    def offset_query(self, query: OffsetQuery, *, process: int, invoked_ns: int) -> None:
        """Records a question about offsets that ends now."""
        self._history.offset_query(
            query, process=process, invoked_ns=invoked_ns, completed_ns=self._now_ns()
        )

    def group_event(
        self,
        *,
        group: str,
        process: int,
        topic: str,
        partition: int,
        event: str,
        offset: int = -1,
        refers_to: int = -1,
        generation: int = -1,
    ) -> int:
        """Records an event of a consumer group now."""
        return self._history.group_event(
            at_ns=self._now_ns(),
            group=group,
            process=process,
            topic=topic,
            partition=partition,
            event=event,
            offset=offset,
            refers_to=refers_to,
            generation=generation,
        )

    def transaction_event(self, *, transaction: int, process: int, event: str, **more: Any) -> int:
        """Records an event of a transaction now."""
        return self._history.transaction_event(
            at_ns=self._now_ns(), transaction=transaction, process=process, event=event, **more
        )


class Phases:
    """The phases of one run.

    Args:
        experiment: What to run.
        seed: Written into every payload; decides a shuffled assignment.
        cluster: Where.
        nemesis: Injects and heals the faults.
        history: Where operations go.
        progress: Called with the name of a phase and the fraction of it that is done.

    Attributes:
        workload: Made when the main phase begins.
        healed_ns: When every fault had been healed and every node been started for the final phase; None before.
        cut_short: Why the main phase ended before its time; empty if it did not. What was not injected then may be
            what would have lost something.
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
        self._progress = progress
        self._topic = experiment.topic
        self._is_main_phase = True
        self._is_final_phase = False
        self.healed_ns: int | None = None
        self.cut_short = ""
        self._watch = LiveWatch(self._wake) if experiment.stop_on_violation else None
        self._asleep: asyncio.Future[None] | None = None
        self._stopped_early = ""
        self.workload: Workload = experiment.workload_type.make(
            experiment.workload,
            WorkloadContext(
                run_id=seed,
                topic_partitions=self._topic.topic_partitions(),
                bootstrap=cluster.bootstrap,
                hosts=cluster.clients,
                client_host=cluster.client_host,
                recorder=RunRecorder(cluster.now_ns, history, self._watch),
                has_fast_timings=experiment.timings == FAST,
            ),
        )

    async def start(self) -> None:
        """Waits for the brokers and creates the topics."""
        await self._wait_until(self._all_brokers_are_up)
        for index in range(self._topic.count):
            await self._create_topic(index)
        await self._wait_until(self._all_partitions_exist)

    async def main(self, schedule: tuple[Fault, ...]) -> None:
        """Runs the workload, and the faults beside it."""
        working = [
            self._cluster.spawn(task.host, task.run(lambda: self._is_main_phase))
            for task in self.workload.tasks()
        ]
        faults = asyncio.get_running_loop().create_task(self._nemesis.run(schedule))
        await self._main_time()
        self._nemesis.end_waiting()
        self._stopped_early = self._finding
        if self.stopped_early:
            self.cut_short = f"the watch saw a violation ({self.stopped_early})"
            await self._nemesis.cut_short(faults)
        else:
            await faults
        self._is_main_phase = False
        self._progress("main", 1.0)
        here = asyncio.get_running_loop()
        for work in working:
            await _task_done(work, here)
        # All of them are asked: asyncio prints the exception of a task that nobody asked, with its stack.
        failures = [work for work in working if work.cancelled() or work.exception() is not None]
        for work in failures:
            work.result()
        self.workload.close()

    @property
    def stopped_early(self) -> str:
        """What the live watch saw, so that the main phase was ended; empty when it was not."""
        return self._stopped_early

    @property
    def _finding(self) -> str:
        return self._watch.finding if self._watch is not None else ""

    async def _main_time(self) -> None:
        """Waits until the main phase is over, or until the live watch has seen something."""
        for step in range(MAIN_STEPS):
            if self._finding:
                return
            self._progress("main", step / MAIN_STEPS)
            await self._sleep(self._experiment.main_phase_ms / (1e3 * MAIN_STEPS))

    async def _sleep(self, delay_s: float) -> None:
        """Sleeps as `asyncio.sleep` does, but not longer than until the live watch has seen something.

        A timer more would change a simulated run: each one draws how late it is.
        """
        here = asyncio.get_running_loop()
        self._asleep = here.create_future()
        timer = here.call_later(delay_s, _finish, self._asleep)
        try:
            await self._asleep
        finally:
            timer.cancel()

    def _wake(self) -> None:
        """Ends the present sleep; called by the live watch."""
        if self._asleep is not None and not self._asleep.done():
            self._asleep.get_loop().call_soon_threadsafe(_finish, self._asleep)

    async def scripted(self, scenario: Scenario) -> None:
        """Runs the steps of a scenario."""
        if not isinstance(self.workload, Scriptable):
            raise UsageError(
                f"the workload {self._experiment.workload_name!r} cannot be driven by a scenario"
            )
        client, other = self._cluster.clients[:2]
        producer, consumer = self.workload.process(client), self.workload.process(other)
        hosts = {id(producer): client, id(consumer): other}
        story = Story(
            self._cluster,
            self._nemesis,
            producer,
            consumer,
            topic=self._topic.names()[0],
            partition=scenario.partition,
            run_on_client=lambda process, work: asyncio.get_running_loop().create_task(
                self._cluster.call(hosts[id(process)], work)
            ),
        )
        await story.run(scenario.steps)

    async def final(self, patience_ms: float | None = None) -> None:
        """Heals and starts everything, then appends and reads.

        Args:
            patience_ms: How long to wait for recovery before clients try nevertheless: what can be read then
                shows more than nothing, and what cannot shows that the partition is not served. Without it
                they wait for recovery. The phase ends only after recovery, whatever the clients achieved.
        """
        self._is_main_phase = False
        self._is_final_phase = True
        await self._nemesis.settle()
        await self._cluster.settle()
        self.healed_ns = self._cluster.now_ns()
        is_recovered = await self._recovers_within(patience_ms)
        complete = await self._cluster.call(
            self._cluster.clients[-1], self.workload.final_phase(lambda: True)
        )
        self.workload.close()
        assert complete
        if not is_recovered:
            await self._wait_until(self.is_recovered)

    async def _recovers_within(self, patience_ms: float | None) -> bool:
        """Waits until everything is recovered, for a limited time or without a limit; returns whether it is."""
        if patience_ms is None:
            await self._wait_until(self.is_recovered)
            return True
        try:
            async with asyncio.timeout(patience_ms / 1e3):
                await self._wait_until(self.is_recovered)
        except TimeoutError:
            return False
        return True

    def _all_brokers_are_up(self) -> bool:
        metadata = self._cluster.metadata
        return all(not metadata.is_fenced(broker) for broker in self._cluster.brokers.values())

    def _all_partitions_exist(self) -> bool:
        known = {
            (each.topic, each.partition) for each in self._cluster.metadata.partitions.values()
        }
        return known >= set(self._topic.topic_partitions())

    def is_recovered(self) -> bool:
        """Whether every broker is unfenced and every partition has a leader and a full ISR."""
        return self._all_brokers_are_up() and all(
            state.leader >= 0 and len(state.isr) == len(state.replicas)
            for state in self._cluster.metadata.partitions.values()
        )

    def unavailability(self) -> str:
        """Returns which partitions have no leader though everything was healed, one sentence; "" if none.

        A broker that is fenced explains a partition without a leader, so partitions with such a replica are left
        out.
        """
        if not self._is_final_phase:
            return ""
        metadata = self._cluster.metadata
        return "; ".join(
            f"{name} {STAYS_LEADERLESS}, although the brokers of all its replicas are unfenced "
            f"(replicas {list(state.replicas)}, ISR {list(state.isr)}, ELR {list(state.elr)}, "
            f"last-known leader {list(state.last_known_elr)})"
            for name, state in sorted(metadata.partitions.items())
            if state.leader < 0 and not any(metadata.is_fenced(one) for one in state.replicas)
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

    async def _create_topic(self, number: int) -> None:
        topic = Topic(
            name=self._topic.names()[number],
            min_insync_replicas=self._topic.min_insync_replicas,
            assignments=assignments(
                self._topic, number, tuple(self._cluster.brokers.values()), self._seed
            ),
        )
        host = self._cluster.client_host(self._cluster.harness_host)
        await self._experiment.system_under_test.create_topic(host, self._cluster.bootstrap, topic)
        self._cluster.topic_created(topic)


def assignments(
    topic: TopicConfig, number: int, brokers: Sequence[int], seed: int
) -> tuple[tuple[int, ...], ...]:
    """Returns the replicas of every partition of a topic, the preferred leader first.

    Round robin, broker 1 leads partition 0 of the first topic. Every further topic begins one broker later, so
    that topics with few partitions have different leaders.

    Args:
        topic: Settings of all topics.
        number: Which of them, from 0.
        brokers: Ids of all brokers.
        seed: Of the run; it decides a shuffled assignment.
    """
    if topic.assignment == SHUFFLED:
        stream = RandomTree(seed).stream("assignment", number)
        return tuple(
            tuple(stream.sample(list(brokers), topic.replication_factor))
            for _ in range(topic.partitions)
        )
    return tuple(
        tuple(
            brokers[(number + index + place) % len(brokers)]
            for place in range(topic.replication_factor)
        )
        for index in range(topic.partitions)
    )


async def _task_done(task: "asyncio.Task[Any]", here: asyncio.AbstractEventLoop) -> None:
    done = here.create_future()
    task.add_done_callback(lambda _: here.call_soon(_finish, done))
    await done


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
