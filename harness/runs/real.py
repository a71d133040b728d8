"""One run against real nodes: the phases in order, driven by the real clock.

The experiment's `on` determines where the nodes run: as processes on this machine ("local"), in containers
("docker"), or on hosts over SSH ("ssh"). The history is written row by row, so a harness that is killed
leaves everything recorded so far.
What happens after the last operation (collecting logs, taking everything down) can neither prevent nor change a
verdict.
"""

import asyncio
import shutil
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from checkers.kernels.consumer_group import group_counters
from harness.contracts.cluster import AddRow, Deployment
from harness.contracts.messages import NodeClock
from harness.contracts.system import (
    EVENTS_FILE,
    FaultLimits,
    HasFaultPoint,
    HasMetadataThread,
    Node,
    NodeFiles,
    ProgramFiles,
    RecordsMessages,
    System,
)
from harness.contracts.violation import Violation
from harness.environments.request import ClusterRequest, EnvironmentRequest
from harness.errors import UsageError
from harness.history.writer import HistoryWriter
from harness.runs.experiment import Experiment
from harness.runs.metrics_file import MetricsFile
from harness.runs.node_messages import store_node_messages
from harness.runs.phases import Phases, Progress
from harness.runs.planned import (
    drawn_families,
    impossible_targets,
    planned_faults,
    planned_schedule,
    restarted_after,
)
from harness.runs.promises import record_end, record_promises
from harness.runs.replica_logs import LastReplicaStates, record_logs
from harness.runs.result import RunResult
from harness.runs.settings import settings_of
from harness.runs.simulated import SCENARIO_CLIENTS
from harness.scenarios import find_by_name
from harness.scenarios.steps import Scenario, ScenarioStuck
from harness.simulation.randomness import RandomTree
from nemesis.driver import Nemesis
from nemesis.events import EventSource
from nemesis.fault import Fault
from nemesis.mechanism import Injector
from nemesis.message_rules import OF_MESSAGES, check_message_fault, needs_fault_point
from results.layout import RunFiles
from workloads.registry import CLIENTS

START_LIMIT_MS = 60_000
SCENARIO_LIMIT_MS = 300_000
LOG_READING_LIMIT_S = 60
PATIENCE_SHARE = 0.25
"""After this share of the final phase clients no longer wait for recovery. The rest is for what they try then."""
NODES_FOLDER = "nodes"

Mechanisms = Sequence[Mapping[str, Mapping[str, Any]]]
"""What each host's kernel and tools can do."""


class RealInjector(Injector, Protocol):
    """What a run needs of an injector in a real world.

    Attributes:
        events: The events for which faults can wait.
    """

    events: EventSource

    def describe(self) -> dict[str, Any]:
        """Returns, for the run's record, how faults are injected."""
        ...


class RealDeployment(Deployment, Protocol):
    """What a run needs of a real cluster besides what phases need.

    Attributes:
        placed: All nodes.
        unobserved: Why the nodes could not be observed until the end; empty if they could.
        unread: Files of nodes that could not be read at the end, one sentence each.
    """

    placed: tuple[Node, ...]
    unobserved: str
    unread: list[str]

    async def start(self) -> None:
        """Makes everything and starts all nodes."""
        ...

    async def end(self) -> None:
        """Removes everything. Never raises."""
        ...

    def node_files(self, name: str) -> NodeFiles:
        """Returns access to the files of a node; its methods block and may be called on any thread."""
        ...

    def node_clock(self, name: str) -> NodeClock:
        """Returns what converts the clocks of a node to the time of the run."""
        ...

    def describe(self) -> dict[str, Any]:
        """Returns, for the run's record, facts about this environment."""
        ...


class EnvironmentModule(Protocol):
    """The module of an environment, as the registry names it."""

    def make_cluster(self, request: ClusterRequest) -> RealDeployment:
        """Makes a cluster; starts nothing."""
        ...

    def find_mechanisms(self, request: EnvironmentRequest) -> Mechanisms:
        """Returns what the hosts can do; raises `UsageError` if the environment cannot be used."""
        ...


class InjectorModule(Protocol):
    """The module that injects faults in an environment, as the registry names it."""

    def make_injector(self, cluster: Any) -> RealInjector:
        """Returns the injector of a cluster that the environment made."""
        ...

    def impossible_faults(self, found: Mechanisms) -> Mapping[str, str]:
        """Returns why faults cannot be injected there, by fault."""
        ...


def check_possible(experiment: Experiment, seeds: Iterable[int]) -> None:
    """Raises `UsageError` if the environment cannot run this experiment; starts and stores nothing.

    Args:
        experiment: What is to be run.
        seeds: With which seeds; each has its own faults.
    """
    environment, injectors = _modules(experiment)
    cluster = experiment.cluster
    found = environment.find_mechanisms(
        EnvironmentRequest(
            brokers=cluster.brokers,
            controllers=cluster.controllers,
            inventory=Path(experiment.inventory),
        )
    )
    impossible = dict(injectors.impossible_faults(found))
    system = experiment.system_under_test
    if not isinstance(system, HasMetadataThread):
        impossible["stall_metadata"] = (
            f"processes of {system.name} have no thread that does nothing but apply committed metadata"
        )
    if isinstance(system, FaultLimits):
        impossible |= system.impossible_faults()
    if not isinstance(system, HasFaultPoint):
        why = f"nodes of {system.name} have no fault point, and a kernel sees packets, not messages"
        impossible |= dict.fromkeys(OF_MESSAGES, why)
    for family in drawn_families(experiment):
        if family in impossible:
            raise UsageError(
                f"nemesis.faults: {family!r} is not possible here: {impossible[family]}"
            )
    for seed in seeds:
        for fault in planned_faults(experiment, seed):
            if isinstance(system, HasFaultPoint):
                check_message_fault(fault, system.message_names, system.wholly_refusable)
            for name in (fault.fault, *(f"{fault.fault}.{key}" for key in fault.params)):
                if name in impossible:
                    raise UsageError(
                        f"fault {fault.id}: {name!r} is not possible here: {impossible[name]}"
                    )
            _check_targets(fault, system)
    check_programs(experiment)


def _check_targets(fault: Fault, system: System) -> None:
    """Raises `UsageError` if a fault can find no target in any cluster of a system."""
    impossible = impossible_targets(system)
    groups = [selector for group in fault.params.get("groups", ()) for selector in group]
    for selector in (*fault.targets, *groups):
        name = selector.partition(":")[0]
        if name in impossible:
            raise UsageError(
                f"fault {fault.id}: the target {selector!r} is no node here: {impossible[name]}"
            )
    if not system.has_controllers and tuple(fault.params.get("planes", ())) == ("controller",):
        raise UsageError(
            f"fault {fault.id}: there are no packets of controllers: the system {system.name!r} has no controllers"
        )


def check_programs(experiment: Experiment) -> None:
    """Raises `UsageError` if this machine lacks the system's program, or that of the client."""
    system = experiment.system_under_test
    if isinstance(system, ProgramFiles):
        system.program_paths()
    client_versions(experiment)


def client_versions(experiment: Experiment) -> Mapping[str, str]:
    """Returns the versions of the programs that the workload's client is made of; none for the native client.

    Raises:
        UsageError: The client cannot be used on this machine.
    """
    versions = CLIENTS.get(experiment.workload.client).versions
    return {} if versions is None else versions()


def _modules(experiment: Experiment) -> tuple[EnvironmentModule, InjectorModule]:
    environment = experiment.environment
    return (
        cast(EnvironmentModule, import_module(environment.module)),
        cast(InjectorModule, import_module(environment.injector)),
    )


def run_real(
    experiment: Experiment,
    seed: int,
    *,
    directory: Path,
    progress: Progress | None = None,
) -> RunResult:
    """Runs one experiment on a real cluster that is made for it and removed afterwards.

    Args:
        experiment: What to run.
        seed: Decides the schedule, and is part of every payload. Time is real, so no two runs are the same.
        directory: The run directory; the nodes' logs go to `nodes/`, their data is removed at the end.
        progress: Called with the progress of the phases.

    Returns:
        The history and what else is known; the trace hash is empty, because nothing could repeat it.

    Raises:
        UsageError: The experiment requires something that this environment does not support.
        HarnessFailure: The environment could not be set up.
    """
    history = HistoryWriter(directory, frame_rows=1)
    run = _RealRun(experiment, seed, history, directory, progress or (lambda *_: None))
    return asyncio.run(run.run())


class _RealRun:
    """One run; its methods are the steps around the phases."""

    def __init__(
        self,
        experiment: Experiment,
        seed: int,
        history: HistoryWriter,
        directory: Path,
        progress: Progress,
    ) -> None:
        self.experiment = experiment
        self.history = history
        self.directory = directory
        self.scenario: Scenario | None = (
            find_by_name(experiment.scenario) if experiment.scenario else None
        )
        self.result = RunResult(schedule=planned_schedule(experiment, seed))
        environment, injectors = _modules(experiment)
        self._replica_states = LastReplicaStates(history.add)
        self._metrics = MetricsFile(RunFiles(directory).metrics)
        request = replace(
            _request(experiment, seed, history, self._replica_states.add, directory),
            metrics=self._metrics,
        )
        self.cluster = environment.make_cluster(request)
        self.injector = injectors.make_injector(self.cluster)
        self.nemesis = Nemesis(
            self.cluster,
            self.injector,
            lambda row: history.add("faults", row),
            RandomTree(seed).stream("selectors"),
            self.injector.events,
            restarted_after=restarted_after(experiment),
        )
        self.phases = Phases(experiment, seed, self.cluster, self.nemesis, history, progress)
        # Now, because the clients were made: a process that serves them has started.
        self._client_versions = client_versions(experiment)
        self._unread_messages = ""
        self.progress = progress

    async def run(self) -> RunResult:
        """Runs all phases, ends everything, and returns the result."""
        result = self.result
        record_promises(self.history, self.experiment, result.schedule)
        has_ended = False
        unread: list[str] = []
        try:
            # Here, because the environment has to be removed even if it refuses the schedule.
            self.nemesis.check(result.schedule)
            await self._phases()
            result.final_phase_complete = has_ended = True
        except (TimeoutError, ScenarioStuck) as late:
            result.stuck = "; ".join(filter(None, (str(late), self.phases.unavailability())))
            has_ended = True
        finally:
            # After any error, everything is removed, and what was recorded is written.
            ended_ns = self.cluster.now_ns()
            result.elapsed_ms = ended_ns / 1e6
            if has_ended:
                unread = await self._record_logs()
            await self.cluster.end()
            unread = [*unread, *self.cluster.unread]
            if self.cluster.unobserved and not result.stuck:
                result.stuck = self.cluster.unobserved
                result.final_phase_complete = False
            if has_ended:
                record_end(
                    self.history,
                    self.experiment,
                    result.schedule,
                    final_phase_complete=result.final_phase_complete,
                    incomplete_reason=result.stuck or self.phases.cut_short,
                    healed_ns=self.phases.healed_ns,
                    ended_ns=None if self.cluster.unobserved else ended_ns,
                )
            result.tables = self.history.close()
            self._metrics.close()
            self._store_messages()
            self._remove_data()
        result.stopped_early = self.phases.stopped_early
        result.resolved = dict(self.nemesis.resolved)
        result.environment = {**self.injector.describe(), **self.cluster.describe()}
        if self._client_versions:
            result.environment["client"] = dict(self._client_versions)
        if self._unread_messages:
            result.environment["messages_not_read"] = self._unread_messages
        if unread:
            result.environment["logs_not_read"] = unread
        result.counters = {"operations": result.tables["operations"].num_rows}
        result.counters |= self.phases.workload.counters()
        if result.tables["group_events"].num_rows:
            result.counters |= group_counters(result.tables)
        return result

    async def _phases(self) -> None:
        experiment = self.experiment
        self.progress("start", 0.0)
        await self.cluster.start()
        start_limit_ms = START_LIMIT_MS * experiment.time_scale
        await self._within("start", self.phases.start(), start_limit_ms)
        if self.scenario is not None:
            scenario_limit_ms = SCENARIO_LIMIT_MS * experiment.time_scale
            await self._within("main", self.phases.scripted(self.scenario), scenario_limit_ms)
        else:
            main_limit_ms = 2 * experiment.main_phase_ms + start_limit_ms
            await self._within("main", self.phases.main(self.result.schedule), main_limit_ms)
        self.progress("final", 0.0)
        limit_ms = experiment.final_phase_max_ms
        await self._within("final", self.phases.final(limit_ms * PATIENCE_SHARE), limit_ms)

    async def _record_logs(self) -> list[str]:
        """Records the logs of the replicas; returns those that could not be read."""
        rows: list[tuple[str, tuple[Any, ...]]] = []
        try:
            async with asyncio.timeout(LOG_READING_LIMIT_S):
                unread = await asyncio.to_thread(
                    record_logs,
                    self.experiment.system_under_test,
                    self._replica_states,
                    self.cluster.node_files,
                    lambda table, row: rows.append((table, row)),
                )
        except TimeoutError:
            return [f"the logs were not read within {LOG_READING_LIMIT_S} s"]
        for table, row in rows:
            self.history.add(table, row)
        return unread

    def _store_messages(self) -> None:
        """Stores the messages that the nodes recorded; a run without them is as good, apart from its report."""
        system = self.experiment.system_under_test
        if not (self.experiment.records_messages and isinstance(system, RecordsMessages)):
            return
        try:
            store_node_messages(
                system,
                self.cluster.placed,
                self.cluster.node_clock,
                self.directory / NODES_FOLDER,
                RunFiles(self.directory).recorded_messages,
            )
        except Exception as error:  # whatever it is, the verdict does not depend on it
            self._unread_messages = f"{type(error).__name__}: {error}"

    async def _within(self, name: str, phase: Coroutine[Any, Any, None], limit_ms: float) -> None:
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await phase
        except TimeoutError:
            raise TimeoutError(
                f"the {name} phase did not end within {limit_ms / 1000:g} s"
            ) from None

    def _remove_data(self) -> None:
        """Removes the nodes' data; their logs stay."""
        for folder in (self.directory / NODES_FOLDER).glob("*"):
            shutil.rmtree(folder / "data", ignore_errors=True)
            for name in (EVENTS_FILE, "skew"):
                (folder / name).unlink(missing_ok=True)


def _request(
    experiment: Experiment, seed: int, history: HistoryWriter, add_row: AddRow, directory: Path
) -> ClusterRequest:
    def record_violation(violation: Violation) -> None:
        history.add("violations", violation.to_row())

    cluster, system = experiment.cluster, experiment.system_under_test
    settings = settings_of(experiment)
    if needs_fault_point(planned_faults(experiment, seed)):
        settings = replace(settings, with_fault_point=True)
    return ClusterRequest(
        system=system,
        settings=settings,
        brokers=cluster.brokers,
        controllers=cluster.controllers if system.has_controllers else 0,
        clients=SCENARIO_CLIENTS if experiment.scenario else experiment.workload.client_hosts + 1,
        disk=cluster.filesystem,
        inventory=Path(experiment.inventory),
        logs_to=directory / NODES_FOLDER,
        add_row=add_row,
        on_violation=record_violation,
        collected=system.message_files
        if experiment.records_messages and isinstance(system, RecordsMessages)
        else (),
        seed=seed,
    )
