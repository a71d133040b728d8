"""One run against real processes: the phases in order, driven by the real clock.

The history is written row by row: a harness that is killed leaves all that was said, and its nodes end with it.
"""

import asyncio
import shutil
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from harness.environments.processes import ProcessCluster
from harness.experiment import Experiment
from harness.history import HistoryWriter
from harness.local_cluster import LocalCluster
from harness.phases import Phases, Progress
from harness.runner import SimulationResult, planned_schedule
from harness.simulation.randomness import RandomTree
from nemesis.driver import Nemesis

START_LIMIT_MS = 60_000
NODES_FOLDER = "nodes"
QUICK_GROUPS = {"group_initial_rebalance_delay_ms": 100, "group_min_session_timeout_ms": 1000}
"""Group settings that go with the fast timings; Kafka's are 3 s and 6 s."""


def check_possible(experiment: Experiment, seed: int) -> None:
    """Raises `UsageError` if local processes cannot carry out this experiment; starts and stores nothing."""
    from harness.errors import UsageError

    for fault in planned_schedule(experiment, seed):
        if fault.fault not in ProcessCluster.supported_faults:
            known = ", ".join(sorted(ProcessCluster.supported_faults))
            raise UsageError(
                f"fault {fault.id}: local processes cannot suffer {fault.fault!r} (they can: {known})"
            )


def run_local(
    experiment: Experiment,
    seed: int,
    *,
    directory: Path,
    progress: Progress | None = None,
) -> SimulationResult:
    """Runs one experiment on a cluster of processes that lives and ends with it.

    Args:
        experiment: What to run.
        seed: Decides the schedule, and stands in every payload. Time is real, so no two runs are alike.
        directory: The run directory; nodes' files go below `nodes/`, their data is removed at the end.
        progress: Told about phases.

    Returns:
        The history and what else is known; the trace hash is empty, because nothing could repeat it.

    Raises:
        UsageError: The experiment asks for something that processes cannot do.
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
        self.result = SimulationResult(schedule=planned_schedule(experiment, seed))
        settings = experiment.cluster
        self.local = LocalCluster.create(
            directory / NODES_FOLDER,
            brokers=settings.brokers,
            controllers=settings.controllers,
            profile=experiment.profile,
            timings=experiment.timings,
            with_events=True,
            log={
                "segment_bytes": settings.segment_bytes,
                "flush_messages": settings.flush_messages,
            },
            broker={
                "unclean_leader_election_enable": settings.unclean_leader_election,
                **(QUICK_GROUPS if experiment.timings == "fast" else {}),
            },
            disabled_rules=experiment.disabled_rules,
        )
        self.cluster = ProcessCluster(
            self.local,
            history.add,
            clients=experiment.workload.processes + 1,
            on_violation=self.result.violations.append,
        )
        self.nemesis = Nemesis(
            self.cluster,
            lambda row: history.add("faults", row),
            RandomTree(seed).stream("selectors"),
        )
        self.nemesis.check(self.result.schedule)
        self.phases = Phases(experiment, seed, self.cluster, self.nemesis, history, progress)
        self.progress = progress

    async def carry_out(self) -> SimulationResult:
        """Runs all phases, ends all processes, and returns the result."""
        result = self.result
        try:
            await self._phases()
            result.final_phase_complete = True
        except TimeoutError as late:
            result.stuck = str(late)
        finally:
            # Whatever went wrong: no process stays, and what was recorded is written.
            await self.cluster.end()
            result.virtual_ms = self.cluster.now_ns() / 1e6
            result.tables = self.history.close()
            if self.phases.group is not None:
                result.violations.extend(self.phases.group.findings(result.tables))
            self._remove_data()
        result.resolved = dict(self.nemesis.resolved)
        result.counters = {"operations": result.tables["operations"].num_rows}
        if self.phases.group is not None:
            result.counters |= self.phases.group.ledger.counters()
        return result

    async def _phases(self) -> None:
        experiment = self.experiment
        self.progress("start", 0.0)
        await self.cluster.start()
        await self._within("start", self.phases.start(), START_LIMIT_MS)
        main_limit_ms = 2 * experiment.duration_ms + START_LIMIT_MS
        await self._within("main", self.phases.main(self.result.schedule), main_limit_ms)
        self.progress("final", 0.0)
        await self._within("final", self.phases.final(), experiment.final_phase_ms)

    async def _within(self, name: str, phase: Coroutine[Any, Any, None], limit_ms: float) -> None:
        try:
            await asyncio.wait_for(phase, limit_ms / 1000)
        except TimeoutError:
            raise TimeoutError(
                f"the {name} phase did not end within {limit_ms / 1000:g} s"
            ) from None

    def _remove_data(self) -> None:
        """Removes what nodes stored; what they said stays."""
        for node in self.local.nodes.values():
            shutil.rmtree(node.directory / "data", ignore_errors=True)
            (node.directory / "events.jsonl").unlink(missing_ok=True)
            (node.directory / "skew").unlink(missing_ok=True)
