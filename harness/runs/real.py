"""One run against real nodes: the phases in order, driven by the real clock.

Where the nodes live is the experiment's `on`: processes on this machine ("local"), containers ("docker"), hosts
over SSH ("ssh"). The history is written row by row, so a harness that is killed leaves all that was said. What
happens after the last operation (collecting logs, taking everything down) can neither prevent nor change a
verdict.
"""

import asyncio
import shutil
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Protocol

from checkers.kernels.consumer_group import group_counters
from harness.contracts.cluster import Deployment
from harness.contracts.violation import Violation
from harness.environments.local.cluster import ProcessCluster
from harness.environments.local.standing import LocalCluster
from harness.environments.node_files import NodeSettings
from harness.errors import UsageError
from harness.history.writer import HistoryWriter
from harness.runs.experiment import Experiment
from harness.runs.phases import Phases, Progress
from harness.runs.planned import planned_faults, planned_schedule
from harness.runs.promises import record_end, record_promises
from harness.runs.result import RunResult
from harness.runs.simulated import SCENARIO_CLIENTS
from harness.scenarios import find_by_name
from harness.scenarios.steps import Scenario, ScenarioStuck
from harness.simulation.randomness import RandomTree
from nemesis.adapter import ClusterInjector, FaultyCluster
from nemesis.driver import Nemesis

START_LIMIT_MS = 60_000
SCENARIO_LIMIT_MS = 300_000
NODES_FOLDER = "nodes"
QUICK_GROUPS = {"group_initial_rebalance_delay_ms": 100, "group_min_session_timeout_ms": 1000}
"""Group settings that go with the fast timings; Kafka's are 3 s and 6 s."""


class RealDeployment(Deployment, FaultyCluster, Protocol):
    """What a run needs of a real cluster besides what phases need."""

    async def start(self) -> None:
        """Makes everything and starts all nodes."""
        ...

    async def end(self) -> None:
        """Removes everything. Never raises."""
        ...

    def describe(self) -> dict[str, Any]:
        """Returns what a run should say about this world."""
        ...


def check_possible(experiment: Experiment, seed: int) -> None:
    """Raises `UsageError` if this world cannot carry out this experiment; starts and stores nothing."""
    supported: frozenset[str] = ProcessCluster.supported_faults
    if experiment.on == "docker":
        from harness.environments.hosts import docker

        docker.check_machine()
        capabilities = docker.docker_capabilities()
        _check_faults(
            experiment,
            seed,
            {name: can.why for name, can in capabilities.items() if not can.is_there},
        )
        return
    if experiment.on == "ssh":
        from harness.environments.hosts import ssh

        _check_faults(experiment, seed, ssh.check_hosts(experiment))
        return
    for fault in planned_faults(experiment, seed):
        if fault.fault not in supported:
            raise UsageError(
                f"fault {fault.id}: local processes cannot suffer {fault.fault!r} (they can: "
                f"{', '.join(sorted(supported))}); --on docker can"
            )


def _check_faults(experiment: Experiment, seed: int, impossible: dict[str, str]) -> None:
    for fault in planned_faults(experiment, seed):
        if fault.fault in impossible:
            raise UsageError(
                f"fault {fault.id}: {fault.fault!r} is not possible here: {impossible[fault.fault]}"
            )


def run_real(
    experiment: Experiment,
    seed: int,
    *,
    directory: Path,
    progress: Progress | None = None,
) -> RunResult:
    """Runs one experiment on a real cluster that lives and ends with it.

    Args:
        experiment: What to run.
        seed: Decides the schedule, and stands in every payload. Time is real, so no two runs are alike.
        directory: The run directory; what nodes said goes below `nodes/`, their data is removed at the end.
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
        self.result = RunResult(schedule=planned_schedule(experiment, seed))
        self.cluster = _make_cluster(experiment, seed, history, directory)
        self.nemesis = Nemesis(
            self.cluster,
            ClusterInjector(self.cluster),
            lambda row: history.add("faults", row),
            RandomTree(seed).stream("selectors"),
        )
        self.phases = Phases(experiment, seed, self.cluster, self.nemesis, history, progress)
        self.progress = progress

    async def carry_out(self) -> RunResult:
        """Runs all phases, ends everything, and returns the result."""
        result = self.result
        record_promises(self.history, self.experiment)
        has_ended = False
        try:
            # Here, because a world that refuses the schedule has to be ended, too.
            self.nemesis.check(result.schedule)
            await self._phases()
            result.final_phase_complete = has_ended = True
        except (TimeoutError, ScenarioStuck) as late:
            result.stuck = str(late)
            has_ended = True
        finally:
            # Whatever went wrong: nothing stays, and what was recorded is written.
            result.elapsed_ms = self.cluster.now_ns() / 1e6
            await self.cluster.end()
            if has_ended:
                record_end(
                    self.history,
                    self.experiment,
                    final_phase_complete=result.final_phase_complete,
                    incomplete_reason=result.stuck,
                )
            result.tables = self.history.close()
            self._remove_data()
        result.resolved = dict(self.nemesis.resolved)
        result.environment = self.cluster.describe()
        result.counters = {"operations": result.tables["operations"].num_rows}
        result.counters |= self.phases.workload.counters()
        if result.tables["group_events"].num_rows:
            result.counters |= group_counters(result.tables)
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
        """Removes what nodes stored; what they said stays."""
        for folder in (self.directory / NODES_FOLDER).glob("*"):
            shutil.rmtree(folder / "data", ignore_errors=True)
            for name in ("events.jsonl", "skew"):
                (folder / name).unlink(missing_ok=True)


def _make_cluster(
    experiment: Experiment,
    seed: int,
    history: HistoryWriter,
    directory: Path,
) -> RealDeployment:
    def record_violation(violation: Violation) -> None:
        history.add("violations", violation.to_row())

    settings = experiment.cluster
    clients = SCENARIO_CLIENTS if experiment.scenario else experiment.workload.client_hosts + 1
    log = {"segment_bytes": settings.segment_bytes, "flush_messages": settings.flush_messages}
    broker = {
        "unclean_leader_election_enable": settings.unclean_leader_election,
        **(QUICK_GROUPS if experiment.timings == "fast" else {}),
    }
    if experiment.on == "local":
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
        return ProcessCluster(local, history.add, clients=clients, on_violation=record_violation)
    from harness.environments.hosts.cluster import HostCluster, Placement

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
    if experiment.on == "docker":
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
    return HostCluster(
        placement,
        history.add,
        clients=clients,
        on_violation=record_violation,
        seed=seed,
    )
