"""One run against real nodes: the phases in order, driven by the real clock.

Where the nodes live is the experiment's `on`: processes on this machine ("local"), containers ("docker"), hosts
over SSH ("ssh"). The history is written row by row, so a harness that is killed leaves everything recorded so far.
What happens after the last operation (collecting logs, taking everything down) can neither prevent nor change a
verdict.
"""

import asyncio
import shutil
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from harness.environments.local.cluster import ProcessCluster
from harness.environments.local.standing import LocalCluster
from harness.environments.node_files import NodeSettings
from harness.errors import UsageError
from harness.history.writer import HistoryWriter
from harness.runs.experiment import DOCKER, LOCAL, SSH, Experiment
from harness.runs.phases import Deployment, Phases, Progress
from harness.runs.simulated import SCENARIO_CLIENTS, SimulationResult, planned_schedule
from harness.scenarios import find_by_name
from harness.scenarios.steps import Scenario, ScenarioStuck
from harness.simulation.randomness import RandomTree
from nemesis.driver import Nemesis
from nemesis.fault import Fault
from nemesis.local import injector as local_faults
from nemesis.mechanism import Injector

START_LIMIT_MS = 60_000
SCENARIO_LIMIT_MS = 300_000
NODES_FOLDER = "nodes"
QUICK_GROUPS = {"group_initial_rebalance_delay_ms": 100, "group_min_session_timeout_ms": 1000}
"""Group settings that go with the fast timings; Kafka's are 3 s and 6 s."""


class RealInjector(Injector, Protocol):
    """What a run needs of an injector in a real world."""

    def describe(self) -> dict[str, Any]:
        """Returns what the run's record says about how faults are injected."""
        ...


class RealDeployment(Deployment, Protocol):
    """What a run needs of a real cluster besides what phases need."""

    async def start(self) -> None:
        """Makes everything and starts all nodes."""
        ...

    async def end(self) -> None:
        """Removes everything. Never raises."""
        ...

    def describe(self) -> dict[str, Any]:
        """Returns what the run's record says about this world."""
        ...


def check_possible(experiment: Experiment, seed: int) -> None:
    """Raises `UsageError` if this world cannot run this experiment; starts and stores nothing."""
    supported = local_faults.SUPPORTED_FAULTS
    if experiment.on == DOCKER:
        from harness.environments.hosts import docker

        docker.check_machine()
        _check_faults(experiment, seed, [docker.machine_mechanisms()])
        return
    if experiment.on == SSH:
        from harness.environments.hosts import ssh

        inventory, cluster = Path(experiment.inventory), experiment.cluster
        ssh.check_addresses(inventory, cluster.brokers + cluster.controllers)
        _check_faults(experiment, seed, list(ssh.mechanisms(inventory).values()))
        return
    for fault in _faults_of(experiment, seed):
        if fault.fault not in supported:
            raise UsageError(
                f"fault {fault.id}: local processes cannot suffer {fault.fault!r} (they can: "
                f"{', '.join(sorted(supported))}); --on docker can"
            )


def _check_faults(
    experiment: Experiment, seed: int, found: Sequence[Mapping[str, Mapping[str, Any]]]
) -> None:
    """Raises `UsageError` if hosts whose agents found these mechanisms do not support a fault."""
    from nemesis.hosts.capabilities import shared_fault_capabilities

    capabilities = shared_fault_capabilities(found)
    impossible = {name: can.why for name, can in capabilities.items() if not can.is_there}
    for fault in _faults_of(experiment, seed):
        if fault.fault in impossible:
            raise UsageError(
                f"fault {fault.id}: {fault.fault!r} is not possible here: {impossible[fault.fault]}"
            )


def _faults_of(experiment: Experiment, seed: int) -> list[Fault]:
    if experiment.scenario:
        steps = find_by_name(experiment.scenario).steps
        return [step for step in steps if isinstance(step, Fault)]
    return list(planned_schedule(experiment, seed))


def run_real(
    experiment: Experiment,
    seed: int,
    *,
    directory: Path,
    progress: Progress | None = None,
) -> SimulationResult:
    """Runs one experiment on a real cluster that is made for it and removed afterwards.

    Args:
        experiment: What to run.
        seed: Decides the schedule, and is part of every payload. Time is real, so no two runs are the same.
        directory: The run directory; the nodes' logs go to `nodes/`, their data is removed at the end.
        progress: Told about phases.

    Returns:
        The history and what else is known; the trace hash is empty, because nothing could repeat it.

    Raises:
        UsageError: The experiment asks for something that this world cannot do.
        HarnessFailure: The world could not be made.
    """
    history = HistoryWriter(directory, frame_rows=1)
    run = _RealRun(experiment, seed, history, directory, progress or (lambda *_: None))
    return asyncio.run(run.carry_out())


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
        self.result = SimulationResult(schedule=planned_schedule(experiment, seed))
        self.cluster, self.injector = _make_cluster(
            experiment, seed, history, directory, self.result
        )
        self.nemesis = Nemesis(
            self.cluster,
            self.injector,
            lambda row: history.add("faults", row),
            RandomTree(seed).stream("selectors"),
        )
        self.phases = Phases(experiment, seed, self.cluster, self.nemesis, history, progress)
        self.progress = progress

    async def carry_out(self) -> SimulationResult:
        """Runs all phases, ends everything, and returns the result."""
        result = self.result
        try:
            # Here, because a world that refuses the schedule has to be ended, too.
            self.nemesis.check(result.schedule)
            await self._phases()
            result.final_phase_complete = True
        except (TimeoutError, ScenarioStuck) as late:
            result.stuck = str(late)
        finally:
            # Whatever went wrong: nothing stays, and what was recorded is written.
            result.virtual_ms = self.cluster.now_ns() / 1e6
            await self.cluster.end()
            result.tables = self.history.close()
            if self.phases.group is not None:
                result.violations.extend(self.phases.group.findings(result.tables))
            self._remove_data()
        result.resolved = dict(self.nemesis.resolved)
        result.world = {**self.injector.describe(), **self.cluster.describe()}
        result.counters = {"operations": result.tables["operations"].num_rows}
        if self.phases.group is not None:
            result.counters |= self.phases.group.ledger.counters()
        return result

    async def _phases(self) -> None:
        experiment = self.experiment
        self.progress("start", 0.0)
        await self.cluster.start()
        await self._within("start", self.phases.start(), START_LIMIT_MS)
        if self.scenario is not None:
            await self._within("main", self.phases.scripted(self.scenario), SCENARIO_LIMIT_MS)
        else:
            main_limit_ms = 2 * experiment.duration_ms + START_LIMIT_MS
            await self._within("main", self.phases.main(self.result.schedule), main_limit_ms)
        self.progress("final", 0.0)
        await self._within("final", self.phases.final(), experiment.final_phase_ms)

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
            for name in ("events.jsonl", "skew"):
                (folder / name).unlink(missing_ok=True)


def _make_cluster(
    experiment: Experiment,
    seed: int,
    history: HistoryWriter,
    directory: Path,
    result: SimulationResult,
) -> tuple[RealDeployment, RealInjector]:
    settings = experiment.cluster
    clients = SCENARIO_CLIENTS if experiment.scenario else experiment.workload.processes + 1
    log = {"segment_bytes": settings.segment_bytes, "flush_messages": settings.flush_messages}
    broker = {
        "unclean_leader_election_enable": settings.unclean_leader_election,
        **(QUICK_GROUPS if experiment.timings == "fast" else {}),
    }
    if experiment.on == LOCAL:
        local = LocalCluster.create(
            directory / NODES_FOLDER,
            brokers=settings.brokers,
            controllers=settings.controllers,
            profile=experiment.profile,
            timings=experiment.timings,
            with_events=True,
            log=log,
            broker=broker,
            disabled_rules=experiment.disabled_rules,
        )
        processes = ProcessCluster(
            local, history.add, clients=clients, on_violation=result.violations.append
        )
        return processes, local_faults.make_injector(processes)
    from harness.environments.hosts.cluster import HostCluster, Placement
    from nemesis.hosts.injector import make_injector

    told = NodeSettings(
        profile=experiment.profile,
        timings=experiment.timings,
        disabled_rules=experiment.disabled_rules,
        log=log,
        broker={
            "default_replication_factor": min(settings.brokers, 3),
            "offsets_topic_replication_factor": min(settings.brokers, 3),
            **broker,
        },
    )
    placement: Placement
    if experiment.on == DOCKER:
        from harness.environments.hosts.docker import DockerPlacement

        placement = DockerPlacement(
            told,
            brokers=settings.brokers,
            controllers=settings.controllers,
            clients=clients,
            filesystem=settings.disk,
            logs_to=directory / NODES_FOLDER,
        )
    else:
        from harness.environments.hosts.inventory import load_inventory
        from harness.environments.hosts.ssh import SshPlacement

        placement = SshPlacement(
            told,
            load_inventory(Path(experiment.inventory)),
            brokers=settings.brokers,
            controllers=settings.controllers,
            clients=clients,
            filesystem=settings.disk,
            logs_to=directory / NODES_FOLDER,
        )
    cluster = HostCluster(
        placement,
        history.add,
        clients=clients,
        on_violation=result.violations.append,
        seed=seed,
    )
    return cluster, make_injector(cluster)
