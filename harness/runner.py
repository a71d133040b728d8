"""The phases of one run, in order, and nothing else.

1. build the world and start every node, wait until all brokers are unfenced;
2. create the topic;
3. workload and nemesis side by side for `duration_ms` (or the steps of a scripted scenario);
4. heal everything, start everything, wait until every partition is fully replicated;
5. final phase: append until acknowledged, read everything;
6. stop; write the history; only then judge.

A run is a function of (experiment, seed, code version). Nothing after phase 5 can change what was recorded.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.environments.monitor import InvariantMonitor
from harness.environments.simulated import HARNESS_NODE, SimulatedCluster
from harness.experiment import Experiment
from harness.history import HistoryWriter
from harness.op import Completion, ReadRecord
from harness.scenario import Scenario, ScenarioStuck, Story
from harness.scenarios import find_by_name
from harness.simulation.errors import LimitReached
from harness.simulation.fences import allow_real_io
from harness.simulation.randomness import RandomTree
from harness.simulation.weather import CALM, Weather, draw_weather
from harness.simulation.world import Failure, World
from nemesis.driver import Nemesis
from nemesis.fault import Fault
from nemesis.schedule import random_schedule
from system_under_test.config import TIMINGS, LogConfig
from system_under_test.invariants import InvariantViolation
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import create_topics_request, millis
from workloads.append import AppendProcess, ProcessIds

START_LIMIT_MS = 120_000
RECENTLY_MS = 20
SCENARIO_CLIENTS = 3
FAST_FACTOR = 10
LIGHT = replace(
    CALM,
    name="light",
    latency_base_ns=200_000,
    latency_tail_ns=1_000_000,
    timer_lateness_mean_ns=50_000,
    shuffle_ties=True,
    fsync_tail_ns=1_000_000,
)
Progress = Callable[[str, float], None]
"""Takes the phase's name and the fraction of it that is done."""


@dataclass(slots=True, kw_only=True)
class SimulationResult:
    """What one simulated run left behind. Mutable while the run goes on.

    Attributes:
        tables: The history, one Arrow table per name of `harness.schema.TABLES`.
        schedule: The faults as injected, and `resolved` the nodes that each hit.
        final_phase_complete: Whether everything was healed, appended to and read to its end in time.
        stuck: Why a phase did not come to its end; empty when all did.
        violations: Invariants that did not hold, and crashes of nodes, one sentence each.
        trace_hash: Of the whole run.
        virtual_ms: How long it lasted in the world.
        counters: Messages, callbacks and events of the world.
    """

    tables: dict[str, pa.Table] = field(default_factory=dict)
    schedule: tuple[Fault, ...] = ()
    resolved: dict[str, tuple[str, ...]] = field(default_factory=dict)
    final_phase_complete: bool = False
    stuck: str = ""
    violations: list[str] = field(default_factory=list)
    trace_hash: str = ""
    virtual_ms: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)
    weather: dict[str, Any] = field(default_factory=dict)


class WorldRecorder:
    """Stamps a workload's operations with the world's true time. Implements `Recorder`."""

    def __init__(self, world: World, history: HistoryWriter) -> None:
        self._world = world
        self._history = history

    def now_ns(self) -> int:
        """Returns the world's true time."""
        return self._world.now

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
            invoked_ns=self._world.now,
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
        self._history.complete(op_index, self._world.now, completion, records)


def planned_schedule(experiment: Experiment, seed: int) -> tuple[Fault, ...]:
    """Returns the faults of a run: the explicit schedule, or one drawn from the seed."""
    if experiment.schedule or experiment.scenario or not experiment.nemesis.faults:
        return experiment.schedule
    return random_schedule(
        RandomTree(seed).stream("fault"),
        families=experiment.nemesis.faults,
        duration_ms=experiment.duration_ms,
        partitions=[f"{topic}-{index}" for topic, index in experiment.topic.topic_partitions()],
        rhythm=experiment.nemesis.rhythm(),
    )


def weather_of(experiment: Experiment, seed: int) -> Weather:
    """Returns the weather of a run."""
    if experiment.weather == "calm":
        return replace(CALM, disk_profile=experiment.cluster.disk)
    if experiment.weather == "light":
        return replace(LIGHT, disk_profile=experiment.cluster.disk)
    drawn = draw_weather(RandomTree(seed).stream("weather"))
    if experiment.timings == "fast":
        # Timeouts are a tenth of Kafka's, so the world must be ten times as quick to be as bad.
        drawn = replace(
            drawn,
            latency_base_ns=drawn.latency_base_ns // FAST_FACTOR,
            latency_tail_ns=drawn.latency_tail_ns // FAST_FACTOR,
            client_latency_base_ns=drawn.client_latency_base_ns // FAST_FACTOR,
            timer_lateness_mean_ns=drawn.timer_lateness_mean_ns // FAST_FACTOR,
            fsync_base_ns=drawn.fsync_base_ns // FAST_FACTOR,
            fsync_tail_ns=drawn.fsync_tail_ns // FAST_FACTOR,
        )
    return drawn


def check_possible(experiment: Experiment, seed: int) -> None:
    """Raises `UsageError` if the simulation cannot carry out this experiment; records and stores nothing."""
    _Run(experiment, seed, HistoryWriter(None), lambda *_: None).world.close()


def simulate(
    experiment: Experiment,
    seed: int,
    *,
    directory: Path | None = None,
    progress: Progress | None = None,
) -> SimulationResult:
    """Runs one experiment in a simulated world.

    Args:
        experiment: What to run.
        seed: Decides everything that the experiment leaves open.
        directory: Where the history journal is written while the run goes on; None keeps it in memory.
        progress: Told about phases.

    Returns:
        The history and what else is known; never raises for anything that the system under test did.

    Raises:
        UsageError: The experiment asks for something that this environment cannot do.
    """
    run = _Run(experiment, seed, HistoryWriter(directory), progress or (lambda *_: None))
    return run.carry_out()


class _Run:
    """One run; its methods are the phases."""

    def __init__(
        self, experiment: Experiment, seed: int, history: HistoryWriter, progress: Progress
    ) -> None:
        self.experiment = experiment
        self.seed = seed
        self.history = history
        self._progress = progress
        self.scenario: Scenario | None = (
            find_by_name(experiment.scenario) if experiment.scenario else None
        )
        self.topic = experiment.topic
        weather = weather_of(experiment, seed)
        self.world = World(seed, weather=weather, sim_wire=experiment.sim_wire)
        self.result = SimulationResult(
            schedule=planned_schedule(experiment, seed), weather=asdict(weather)
        )
        clients = SCENARIO_CLIENTS if self.scenario else experiment.workload.processes + 1
        self.cluster = SimulatedCluster(
            self.world,
            history.add,
            brokers=experiment.cluster.brokers,
            controllers=experiment.cluster.controllers,
            clients=clients,
            profile=experiment.profile,
            timings=TIMINGS[experiment.timings],
            log=LogConfig(
                segment_bytes=experiment.cluster.segment_bytes,
                flush_messages=experiment.cluster.flush_messages,
            ),
            unclean_leader_election=experiment.cluster.unclean_leader_election,
            disabled_rules=experiment.disabled_rules,
        )
        self.nemesis = Nemesis(
            self.cluster,
            lambda row: history.add("faults", row),
            RandomTree(seed).stream("selectors"),
        )
        self.nemesis.check(self.result.schedule)
        self.monitor = InvariantMonitor(self.cluster)
        self.main_phase = True
        self.process_ids = ProcessIds()

    def carry_out(self) -> SimulationResult:
        """Runs all phases and returns the result."""
        result = self.result
        try:
            self._phases()
        except ScenarioStuck as stuck:
            result.stuck = str(stuck)
        except LimitReached as limit:
            result.stuck = str(limit)
        except Exception as error:
            # What the system under test did wrong is a finding; the world keeps it among its failures.
            if not any(failure.error is error for failure in self.world.failures):
                raise
        result.violations.extend(_describe(failure) for failure in self.world.failures)
        result.trace_hash = self.world.trace_hash
        self.world.close()
        result.tables = self.history.close()
        result.resolved = dict(self.nemesis.resolved)
        result.virtual_ms = self.world.now / 1e6
        result.counters = {
            "messages": self.world.messages,
            "callbacks": self.world.callbacks,
            "events": self.world.events,
        }
        return result

    def progress(self, phase: str, fraction: float) -> None:
        """Tells whoever watches; that is outside of the world."""
        with allow_real_io():
            self._progress(phase, fraction)

    def _phases(self) -> None:
        self.cluster.start()
        self.monitor.start()
        self.progress("start", 0.0)
        self._drive(self._start(), START_LIMIT_MS)
        if self.scenario is not None:
            self._drive(self._scripted(self.scenario), 60 * START_LIMIT_MS)
        else:
            self._drive(self._random(), 2 * self.experiment.duration_ms + START_LIMIT_MS)
        self.progress("final", 0.0)
        self._drive(self._final(), self.experiment.final_phase_ms)
        self.result.final_phase_complete = True

    def _drive(self, phase: Coroutine[Any, Any, None], limit_ms: float) -> None:
        """Runs the world until a phase has come to its end."""
        task = self.cluster.spawn(HARNESS_NODE, phase)
        self.world.run(until=task.done, limit_ns=int(limit_ms * 1e6))
        task.result()

    # -- phases

    async def _start(self) -> None:
        await self._wait_until(
            lambda: all(
                not self.cluster.metadata.is_fenced(broker)
                for broker in self.cluster.brokers.values()
            )
        )
        await self._create_topic()
        await self._wait_until(
            lambda: len(self.cluster.metadata.partitions) >= self.topic.partitions
        )

    async def _random(self) -> None:
        processes = self._processes(self.experiment.workload.processes)
        working = [
            self.cluster.spawn(client, process.run(lambda: self.main_phase))
            for client, process in processes
        ]
        faults = asyncio.get_running_loop().create_task(self.nemesis.run(self.result.schedule))
        for tenth in range(10):
            self.progress("main", tenth / 10)
            await asyncio.sleep(self.experiment.duration_ms / 1e4)
        await faults
        self.main_phase = False
        self.progress("main", 1.0)
        here = asyncio.get_running_loop()
        for task in working:
            await self._task_done(task, here)
            task.result()
        for _, process in processes:
            process.close()

    async def _scripted(self, scenario: Scenario) -> None:
        ((client, producer), (other, consumer)) = self._processes(2)
        hosts = {producer: client, consumer: other}
        story = Story(
            self.cluster,
            self.nemesis,
            producer,
            consumer,
            topic=self.topic.name,
            partition=0,
            run_on_client=lambda process, work: asyncio.get_running_loop().create_task(
                self.cluster.call(hosts[process], work)
            ),
        )
        await story.run(scenario.steps)

    async def _final(self) -> None:
        await self.nemesis.heal_all()
        self.world.network.heal_all()
        self.world.network.reset_connections()
        self.cluster.start_all_down()
        await self._wait_until(self._recovered)
        client = self.cluster.clients[-1]
        process = self._process(client)
        complete = await self.cluster.call(client, process.final_phase(lambda: True))
        process.close()
        assert complete

    def _recovered(self) -> bool:
        """Whether every broker is unfenced and every partition has a leader and a full ISR."""
        metadata = self.cluster.metadata
        return all(
            not metadata.is_fenced(broker) for broker in self.cluster.brokers.values()
        ) and all(
            state.leader >= 0 and len(state.isr) == len(state.replicas)
            for state in metadata.partitions.values()
        )

    # -- helpers

    def _processes(self, count: int) -> list[tuple[str, AppendProcess]]:
        return [(client, self._process(client)) for client in self.cluster.clients[:count]]

    def _process(self, client: str) -> AppendProcess:
        return AppendProcess(
            self.cluster.client_host(client),
            self.experiment.workload,
            WorldRecorder(self.world, self.history),
            run_id=self.seed,
            topic_partitions=self.topic.topic_partitions(),
            bootstrap=self.cluster.bootstrap,
            ids=self.process_ids,
        )

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        """Waits for a condition on committed metadata; the phase's limit bounds it."""
        metadata = self.cluster.metadata
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

    async def _task_done(self, task: "asyncio.Task[Any]", here: asyncio.AbstractEventLoop) -> None:
        done = here.create_future()
        task.add_done_callback(lambda _: here.call_soon(_finish, done))
        await done

    async def _create_topic(self) -> None:
        """Creates the topic with an explicit round-robin assignment, so that broker 1 leads partition 0."""
        brokers = list(self.cluster.brokers.values())
        count = len(brokers)
        assignments = tuple(
            create_topics_request.CreatableReplicaAssignment(
                partition_index=index,
                broker_ids=tuple(
                    brokers[(index + place) % count]
                    for place in range(self.topic.replication_factor)
                ),
            )
            for index in range(self.topic.partitions)
        )
        request = create_topics_request.CreateTopicsRequest(
            topics=(
                create_topics_request.CreatableTopic(
                    name=self.topic.name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=assignments,
                    configs=(
                        create_topics_request.CreatableTopicConfig(
                            name="min.insync.replicas", value=str(self.topic.min_insync_replicas)
                        ),
                    ),
                ),
            ),
            timeout=millis(5000),
            validate_only=False,
        )
        host = self.cluster.client_host(HARNESS_NODE)
        while True:
            for address in self.cluster.bootstrap:
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


def _describe(failure: Failure) -> str:
    where = f"{failure.node}: " if failure.node else ""
    if isinstance(failure.error, InvariantViolation):
        return f"{where}{failure.error}"
    return f"{where}{type(failure.error).__name__}: {failure.error}"


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
