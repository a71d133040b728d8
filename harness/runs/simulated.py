"""One run in a simulated world: the phases in order, driven by virtual time.

1. build the world and start every node, wait until all brokers are unfenced;
2. create the topic;
3. workload and nemesis side by side for `duration_ms` (or the steps of a scripted scenario);
4. heal everything, start everything, wait until every partition is fully replicated;
5. final phase: append until acknowledged, read everything;
6. stop; write the history; only then judge.

A run is a function of (experiment, seed, code version). Nothing after phase 5 can change what was recorded.
"""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa

from checkers.kernels.consumer_group import group_counters
from harness.contracts.cluster import HARNESS_HOST
from harness.environments.simulated import rule_decisions
from harness.environments.simulated.cluster import SimulatedCluster
from harness.environments.simulated.monitor import InvariantMonitor
from harness.environments.simulated.world import reference_world, violation_of
from harness.errors import UsageError
from harness.history.digest import digest_of
from harness.history.writer import HistoryWriter
from harness.runs.experiment import DRAWN, Experiment
from harness.runs.phases import Phases, Progress
from harness.runs.planned import planned_schedule, restarted_after
from harness.runs.promises import record_end, record_promises
from harness.runs.replica_logs import LastReplicaStates, record_logs
from harness.runs.result import RunResult
from harness.runs.settings import settings_of
from harness.scenarios import find_by_name
from harness.scenarios.steps import Scenario, ScenarioStuck
from harness.simulation.errors import LimitReached
from harness.simulation.fences import allow_real_io
from harness.simulation.randomness import RandomTree
from harness.simulation.weather import CALM, Weather, draw_weather
from nemesis.driver import Nemesis
from nemesis.simulated.events import SimulatedEvents, needs_messages
from nemesis.simulated.injector import SimulatedInjector

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


def weather_of(experiment: Experiment, seed: int) -> Weather:
    """Returns the weather of a run."""
    if experiment.weather == "calm":
        return replace(CALM, disk_profile=experiment.cluster.filesystem)
    if experiment.weather == "light":
        return replace(LIGHT, disk_profile=experiment.cluster.filesystem)
    drawn = draw_weather(RandomTree(seed).stream("weather"))
    if experiment.cluster.disk != DRAWN:
        drawn = replace(drawn, disk_profile=experiment.cluster.disk)
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


def whole_hash(trace_hash: str, tables: Mapping[str, pa.Table]) -> str:
    """Returns the hash of a run: of everything that happened in its world, and of everything that it recorded.

    A verdict depends on the tables alone, so runs with different verdicts have different hashes, also if the code
    that records them is not deterministic and the world is.
    """
    text = f"{trace_hash} {digest_of(tables)}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def check_simulated(experiment: Experiment) -> None:
    """Raises `UsageError` if an experiment is for another world; seeds by the thousand are simulated."""
    if not experiment.environment.is_simulated:
        raise UsageError(
            f"the experiment runs on {experiment.on!r}, and only simulated seeds can be run many at a time; "
            'use `laststand run`, or set on = "simulation"'
        )


def check_possible(experiment: Experiment, seed: int) -> None:
    """Raises `UsageError` if the simulation cannot carry out this experiment; records and stores nothing."""
    SimulatedRun(experiment, seed, HistoryWriter(None)).world.close()


def simulate(
    experiment: Experiment,
    seed: int,
    *,
    directory: Path | None = None,
    progress: Progress | None = None,
    records_decisions: bool = False,
) -> RunResult:
    """Runs one experiment in a simulated world.

    Args:
        experiment: What to run.
        seed: Decides everything that the experiment leaves open.
        directory: Where the history journal is written while the run goes on; None keeps it in memory.
        progress: Told about phases.
        records_decisions: Whether the decisions of protocol rules are recorded, for its coverage.

    Returns:
        The history and what else is known; never raises for anything that the system under test did.

    Raises:
        UsageError: The experiment asks for something that this environment cannot do.
    """
    if records_decisions:
        rule_decisions.record()
    run = SimulatedRun(experiment, seed, HistoryWriter(directory), progress)
    rule_decisions.begin()
    result = run.run()
    if records_decisions:
        result.rule_decisions = rule_decisions.decisions()
    return result


class SimulatedRun:
    """One run in a simulated world. Mutable: it is the run.

    Args:
        experiment: What to run.
        seed: Decides everything that the experiment leaves open.
        history: Where the history is written.
        progress: Called with the name of a phase and the fraction of it that is done.

    Attributes:
        world, cluster, nemesis, monitor, phases: The parts of the run, for tests that drive it step by step.
        result: What is known so far.

    Raises:
        UsageError: The experiment asks for something that the simulation cannot do.
    """

    def __init__(
        self,
        experiment: Experiment,
        seed: int,
        history: HistoryWriter,
        progress: Progress | None = None,
    ) -> None:
        check_simulated(experiment)
        if experiment.space:
            raise ValueError("what the seed draws from the space must be resolved first")
        self.experiment = experiment
        self.seed = seed
        self.history = history
        self._progress = progress or (lambda *_: None)
        self.scenario: Scenario | None = (
            find_by_name(experiment.scenario) if experiment.scenario else None
        )
        weather = weather_of(experiment, seed)
        self.world = reference_world(seed, weather=weather, sim_wire=experiment.sim_wire)
        self.result = RunResult(
            schedule=planned_schedule(experiment, seed), weather=asdict(weather)
        )
        clients = SCENARIO_CLIENTS if self.scenario else experiment.workload.client_hosts + 1
        self._replica_states = LastReplicaStates(history.add)
        self.cluster = SimulatedCluster(
            self.world,
            self._replica_states.add,
            brokers=experiment.cluster.brokers,
            controllers=experiment.cluster.controllers,
            clients=clients,
            settings=settings_of(experiment),
        )
        self.injector = SimulatedInjector(self.cluster)
        self._events = SimulatedEvents(
            self.cluster, hears_messages=needs_messages(self.result.schedule)
        )
        self.nemesis = Nemesis(
            self.cluster,
            self.injector,
            lambda row: history.add("faults", row),
            RandomTree(seed).stream("selectors"),
            self._events,
            restarted_after=restarted_after(experiment),
        )
        self.nemesis.check(self.result.schedule)
        for fault in self.result.schedule:
            self.injector.check(fault)
        self.monitor = InvariantMonitor(self.cluster)
        self.phases = Phases(experiment, seed, self.cluster, self.nemesis, history, self.progress)

    def run(self, play: Callable[[], None] | None = None) -> RunResult:
        """Runs all phases and returns the result.

        Args:
            play: Drives the world instead of the phases; for tests.
        """
        result = self.result
        record_promises(self.history, self.experiment, result.schedule)
        try:
            (play or self._phases)()
        except ScenarioStuck as stuck:
            result.stuck = str(stuck)
        except LimitReached as limit:
            result.stuck = "; ".join(filter(None, (str(limit), self.phases.unavailability())))
        except Exception as error:
            # What the system under test did wrong is a finding; the world keeps it among its failures.
            if not any(failure.error is error for failure in self.world.failures):
                raise
        if not result.final_phase_complete:
            self._record_effects()
        for failure in self.world.failures:
            self.history.add("violations", violation_of(failure).to_row())
        record_logs(
            self.experiment.system_under_test,
            self._replica_states,
            self.cluster.node_files,
            self.history.add,
        )
        record_end(
            self.history,
            self.experiment,
            result.schedule,
            final_phase_complete=result.final_phase_complete,
            incomplete_reason=result.stuck or self.phases.cut_short,
            healed_ns=self.phases.healed_ns,
            ended_ns=self.world.now,
        )
        result.stopped_early = self.phases.stopped_early
        trace_hash = self.world.trace_hash
        self.world.close()
        result.tables = self.history.close()
        result.trace_hash = whole_hash(trace_hash, result.tables)
        result.resolved = dict(self.nemesis.resolved)
        result.elapsed_ms = self.world.now / 1e6
        result.message_orders = tuple(self._events.orders)
        result.counters = {
            "messages": self.world.messages,
            "callbacks": self.world.callbacks,
            "events": self.world.events,
        }
        result.counters |= self.phases.workload.counters()
        if result.tables["group_events"].num_rows:
            result.counters |= group_counters(result.tables)
        return result

    def _record_effects(self) -> None:
        """Records what the faults in force have done, in a world that has ended."""
        recording = self.nemesis.record_effects()
        try:
            recording.send(None)
        except StopIteration:
            return
        recording.close()
        raise AssertionError("evidence in the simulation is read at once")

    def progress(self, phase: str, fraction: float) -> None:
        """Reports progress to the caller, outside of the world."""
        with allow_real_io():
            self._progress(phase, fraction)

    def _phases(self) -> None:
        self.cluster.start()
        is_watched = self.scenario is None or self.scenario.is_watched
        if self.experiment.check_invariants and is_watched:
            self.monitor.start()
        self.progress("start", 0.0)
        self.drive(self.phases.start(), START_LIMIT_MS)
        if self.scenario is not None:
            self.drive(self.phases.scripted(self.scenario), 60 * START_LIMIT_MS)
        else:
            self.drive(
                self.phases.main(self.result.schedule),
                2 * self.experiment.main_phase_ms + START_LIMIT_MS,
            )
        self.progress("final", 0.0)
        self.drive(self.phases.final(), self.experiment.final_phase_max_ms)
        self.result.final_phase_complete = True

    def drive(self, phase: Coroutine[Any, Any, None], limit_ms: float) -> None:
        """Runs the world until a phase has come to its end."""
        task = self.cluster.spawn(HARNESS_HOST, phase)
        self.world.run(until=task.done, limit_ns=int(limit_ms * 1e6))
        task.result()
