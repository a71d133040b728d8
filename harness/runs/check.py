"""Judging stored runs: on Spark in a child process, or with the same kernels in this one."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from checkers.jobs.check import at_locations, check_here, plan
from checkers.spark import SparkOptions, run_in_child
from harness.history.parquet import is_finished, table_files
from harness.runs.judge import stored_context
from results.layout import RunFiles


def check_locally(directories: Sequence[Path]) -> list[dict[str, Any]]:
    """Judges runs with the kernels in this process; verdicts as JSON, in the same order.

    The tasks are those of the Spark job, so that both refuse the same histories in the same words.

    Raises:
        HistoryError: A history is missing, truncated or not ours, or a row of it cannot be.
    """
    return check_here(_plan(directories))


def check_on_spark(
    directories: Sequence[Path], spark: SparkOptions, locations: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Judges runs in one Spark job; verdicts as JSON, in the same order.

    Args:
        directories: The runs.
        spark: Where the job runs.
        locations: The URI at which workers read each run; empty for those that they read from its directory.

    Raises:
        HistoryError: A history is missing, truncated or not ours; what can be seen without Spark is
            reported before Spark is started.
        HarnessFailure: The job failed; the sentence names its log.
    """
    result = run_in_child(
        "check",
        {
            **at_locations(_plan(directories), locations),
            "master": spark.master,
            "conf": dict(spark.conf),
        },
        log_path=RunFiles(directories[0]).spark_log,
    )
    verdicts: list[dict[str, Any]] = result["verdicts"]
    return verdicts


def recorded_operations(directories: Sequence[Path]) -> int:
    """Returns how many operations runs have, from their manifests.

    The history of a run whose harness died counts as none: it is a single task, which Spark cannot distribute.

    Raises:
        HistoryError: A manifest is not ours.
    """
    return sum(
        file.rows
        for directory in directories
        if is_finished(directory)
        for file in table_files(directory.resolve())
        if file.table == "operations"
    )


def _plan(directories: Sequence[Path]) -> dict[str, Any]:
    return plan(directories, [asdict(stored_context(directory)) for directory in directories])
