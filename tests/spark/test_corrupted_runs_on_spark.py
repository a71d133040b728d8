"""Corruptions of recorded runs end on Spark as they do without, cut or not.

All of them are judged in one Spark job. That is among the long tests, because making so many damaged runs takes a
minute or two. A sample is judged run by run, as the command does it.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from checkers.jobs.check import check_job, outcomes_of_runs, plan
from checkers.jobs.in_process import InProcess
from harness.errors import HarnessError
from harness.history.parquet import table_files
from harness.history.schema import OPERATION_TABLES
from harness.runs.check import check_locally
from harness.runs.judge import stored_context
from tests.property.stored_corruption import (
    EXCUSED,
    GROUP,
    PLAIN,
    TRANSACTIONS,
    Corruption,
    assert_ends,
    damaged_copy,
    judged,
    record_runs,
)
from tests.property.test_corrupted_runs import CORRUPTIONS

SAMPLE_SIZE = 20


def sample() -> list[Corruption]:
    """Returns corruptions of every run and ending, evenly over the tables."""
    kinds: dict[tuple[str, str], list[Corruption]] = {}
    for corruption in CORRUPTIONS:
        kinds.setdefault((corruption.run, corruption.ending), []).append(corruption)
    share = SAMPLE_SIZE / len(CORRUPTIONS)
    return [c for kind in kinds.values() for c in _evenly(kind, max(1, round(share * len(kind))))]


def _evenly(corruptions: list[Corruption], count: int) -> list[Corruption]:
    return [corruptions[number * len(corruptions) // count] for number in range(count)]


def on_spark(spark: Any, run: Path, **more: int) -> dict[str, Any]:
    """Returns the verdict of the job; arguments go through JSON, as they do to the child process."""
    arguments = {**plan([run], [asdict(stored_context(run))]), **more}
    verdict: dict[str, Any] = check_job(spark, json.loads(json.dumps(arguments)))["verdicts"][0]
    return verdict


def cut_small(run: Path) -> None:
    """Rewrites the tables of clients in small row groups, so that there are several slices."""
    for file in table_files(run):
        if file.table in OPERATION_TABLES:
            pq.write_table(pq.read_table(file.path), file.path, row_group_size=60)


@pytest.mark.long
def test_corrupted_runs_end_the_same_if_every_partition_is_cut(tmp_path: Path) -> None:
    runs = record_runs(tmp_path)
    cut = 0
    # Files that cannot be read are not cut.
    of_rows = [corruption for corruption in CORRUPTIONS if corruption.edit is not None]
    for number, corruption in enumerate(of_rows[::5]):
        run = tmp_path / str(number)
        damaged_copy(corruption, runs, run)
        cut_small(run)
        expected = judged(lambda run=run: check_locally([run])[0])
        more = {"huge_operations": 0, "bucket_width": (1, 7, 64)[number % 3]}
        outcome = judged(lambda run=run, more=more: on_spark(InProcess(), run, **more))
        assert outcome == expected, corruption.name
        cut += not isinstance(outcome, str)
    assert cut > 10


def plan_of_many(runs: list[Path]) -> tuple[dict[str, Any], dict[Path, str]]:
    """Returns one plan for all runs that can be planned, and why each of the others is refused."""
    joined: dict[str, Any] = {"runs": [], "tasks": []}
    refused = {}
    for run in runs:
        try:
            one = plan([run], [asdict(stored_context(run))])
        except HarnessError as error:
            refused[run] = str(error)
            continue
        joined["tasks"] += [{**task, "run": len(joined["runs"])} for task in one["tasks"]]
        joined["runs"] += one["runs"]
    return joined, refused


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_every_corrupted_run_ends_on_spark_as_without(spark: Any, tmp_path: Path) -> None:
    runs = record_runs(tmp_path)
    damaged = {tmp_path / str(number): each for number, each in enumerate(CORRUPTIONS)}
    for run, corruption in damaged.items():
        damaged_copy(corruption, runs, run)
    arguments, refused = plan_of_many([*runs.values(), *damaged])
    outcomes, _ = outcomes_of_runs(spark, json.loads(json.dumps(arguments)))
    directories = [Path(run["directory"]) for run in arguments["runs"]]
    assert len(directories) > len(CORRUPTIONS) // 2
    ended = dict(zip(directories, outcomes, strict=True)) | refused
    for run, corruption in damaged.items():
        outcome = ended[run]
        outcome = outcome if isinstance(outcome, dict) else str(outcome)
        assert_ends(outcome, corruption, ended[runs[corruption.run]], run)
        assert outcome == judged(lambda run=run: check_locally([run])[0]), corruption.name


@pytest.mark.spark
def test_a_sample_of_corrupted_runs_ends_on_spark_as_without(spark: Any, tmp_path: Path) -> None:
    runs = record_runs(tmp_path)
    undamaged = {name: on_spark(spark, run) for name, run in runs.items()}
    chosen = sample()
    assert {c.run for c in chosen} == {PLAIN, EXCUSED, GROUP, TRANSACTIONS}
    assert {c.ending for c in chosen} == {"refused", "anomaly", "noted", "unknown", "harmless"}
    for number, corruption in enumerate(chosen):
        run = tmp_path / str(number)
        damaged_copy(corruption, runs, run)
        outcome = judged(lambda run=run: on_spark(spark, run))
        assert_ends(outcome, corruption, undamaged[corruption.run], run)
        assert outcome == judged(lambda run=run: check_locally([run])[0]), corruption.name
        if not number % 4:
            more = {"huge_operations": 0, "bucket_width": 7}
            assert outcome == judged(lambda run=run, more=more: on_spark(spark, run, **more))
