"""Records and judges runs for a user who waits: each step reports its progress."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from checkers.kernels.verdict_json import verdict_from_json
from checkers.spark import SparkOptions
from harness.contracts.progress import ProgressDisplay
from harness.runs.check import check_locally, check_on_spark, recorded_operations
from harness.runs.experiment import Experiment
from harness.runs.outcomes import add_outcome
from harness.runs.record import finish_run, record_run
from results.store import RunStore


def record(
    experiment: Experiment,
    seed: int,
    store: RunStore,
    progress: ProgressDisplay,
    *,
    coverage: bool = False,
) -> Path:
    """Runs an experiment and stores what happened, with what it reached if `coverage`; returns the run directory.

    Raises:
        UsageError: The experiment's world cannot run it; nothing was stored.
    """
    progress.message(f"seed {seed}, profile {experiment.profile}: {experiment.name}")
    directory, result = record_run(
        experiment,
        seed,
        store,
        now=datetime.now(UTC),
        progress=progress.update,
        coverage=coverage,
    )
    if not experiment.environment.is_simulated:
        progress.message(f"ran {result.elapsed_ms / 1e3:.1f} s on {experiment.on}, seed {seed}")
        return directory
    progress.message(
        f"simulated {result.elapsed_ms / 1e3:.1f} s, {result.counters.get('messages', 0)} messages, "
        f"trace {result.trace_hash}, seed {seed}"
    )
    return directory


def judge(
    directories: Sequence[Path], store: RunStore, spark: SparkOptions, progress: ProgressDisplay
) -> list[dict[str, Any]]:
    """Judges stored runs, writes their verdicts and reports, and returns their summaries in the same order.

    Raises:
        HistoryError: A stored run is missing, truncated or not ours.
        HarnessFailure: The Spark job failed, or the store cannot be written.
    """
    for directory in directories:
        # The record first: it must not depend on whether it can be judged.
        store.publish(directory)
    if spark.enabled and recorded_operations(directories) >= spark.operations_min:
        progress.message("checking on Spark")
        locations = [
            store.location(directory) if spark.is_cluster else "" for directory in directories
        ]
        verdicts = check_on_spark(directories, spark, locations)
    else:
        verdicts = check_locally(directories)
    summaries = [
        add_outcome(
            directory, finish_run(directory, store.run_id(directory), verdict_from_json(verdict))
        )
        for directory, verdict in zip(directories, verdicts, strict=True)
    ]
    for directory in directories:
        store.publish(directory)
    return summaries
