"""One run in a simulated world: the phases in order, driven by virtual time.

1. build the world and start every node, wait until all brokers are unfenced;
2. create the topic;
3. workload and nemesis side by side for `duration_ms` (or the steps of a scripted scenario);
4. heal everything, start everything, wait until every partition is fully replicated;
5. final phase: append until acknowledged, read everything;
6. stop; write the history; only then judge.

A run is a function of (experiment, seed, code version). Nothing after phase 5 can change what was recorded.
"""

from collections.abc import Coroutine
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.contracts.cluster import HARNESS_HOST
from harness.environments.simulated.cluster import SimulatedCluster
from harness.environments.simulated.monitor import InvariantMonitor
from harness.errors import UsageError
from harness.history.writer import HistoryWriter
from harness.runs.experiment import SIMULATION, Experiment
from harness.runs.phases import Phases, Progress
from harness.scenarios import find_by_name
from harness.scenarios.steps import Scenario, ScenarioStuck
from harness.simulation.errors import LimitReached
from harness.simulation.fences import allow_real_io
from harness.simulation.randomness import RandomTree
from harness.simulation.weather import CALM, Weather, draw_weather
from harness.simulation.world import Failure, World
from nemesis.driver import Nemesis
from nemesis.fault import Fault
from nemesis.schedule import random_schedule
from nemesis.simulated.injector import SimulatedInjector
from system_under_test.config import TIMINGS, LogConfig
from system_under_test.invariants import InvariantViolation

START_LIMIT_MS = 120_000
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


@dataclass(slots=True, kw_only=True)
class SimulationResult:
    """What one simulated run left behind. Mutable while the run goes on.

    Attributes:
        tables: The history, one Arrow table per name of `harness.history.schema.TABLES`.
        schedule: The faults as injected, and `resolved` the nodes that each hit.
        final_phase_complete: Whether everything was healed, appended to and read to its end in time.
        stuck: Why a phase did not come to its end; empty when all did.
        violations: Invariants that did not hold, and crashes of nodes, one sentence each.
        trace_hash: Of the whole run.
        virtual_ms: How long it lasted in the world.
        counters: Messages, callbacks and events of the world.
        world: What a real world says about itself: how faults are done there, kernels of its hosts.
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
    world: dict[str, Any] = field(default_factory=dict)


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
        every_family=experiment.nemesis.every_family,
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


def check_simulated(experiment: Experiment) -> None:
    """Raises `UsageError` if an experiment is for another world; seeds by the thousand are simulated."""
    if experiment.on != SIMULATION:
        raise UsageError(
            f"the experiment runs on {experiment.on!r}, and only simulated seeds can be run many at a time; "
            'use `laststand run`, or set on = "simulation"'
        )


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
        check_simulated(experiment)
        self.experiment = experiment
        self.seed = seed
        self.history = history
        self._progress = progress
        self.scenario: Scenario | None = (
            find_by_name(experiment.scenario) if experiment.scenario else None
        )
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
        self.injector = SimulatedInjector(self.cluster)
        self.nemesis = Nemesis(
            self.cluster,
            self.injector,
            lambda row: history.add("faults", row),
            RandomTree(seed).stream("selectors"),
        )
        self.nemesis.check(self.result.schedule)
        self.monitor = InvariantMonitor(self.cluster)
        self.phases = Phases(experiment, seed, self.cluster, self.nemesis, history, self.progress)

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
        self._drive(self.phases.start(), START_LIMIT_MS)
        if self.scenario is not None:
            self._drive(self.phases.scripted(self.scenario), 60 * START_LIMIT_MS)
        else:
            self._drive(
                self.phases.main(self.result.schedule),
                2 * self.experiment.duration_ms + START_LIMIT_MS,
            )
        self.progress("final", 0.0)
        self._drive(self.phases.final(), self.experiment.final_phase_ms)
        self.result.final_phase_complete = True

    def _drive(self, phase: Coroutine[Any, Any, None], limit_ms: float) -> None:
        """Runs the world until a phase has come to its end."""
        task = self.cluster.spawn(HARNESS_HOST, phase)
        self.world.run(until=task.done, limit_ns=int(limit_ms * 1e6))
        task.result()


def _describe(failure: Failure) -> str:
    where = f"{failure.node}: " if failure.node else ""
    if isinstance(failure.error, InvariantViolation):
        return f"{where}{failure.error}"
    return f"{where}{type(failure.error).__name__}: {failure.error}"
