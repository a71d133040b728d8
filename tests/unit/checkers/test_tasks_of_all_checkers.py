"""A task that reads only the columns that built-in checkers need finds what the whole tables show."""

from dataclasses import asdict
from pathlib import Path

import pytest

from checkers.examples import EXAMPLES
from checkers.jobs.check import judge_task
from checkers.jobs.stored import tasks_of
from checkers.kernels.compose import judge_partition
from checkers.kernels.verdict_json import judgement_to_json
from harness.history.parquet import write_tables
from tests.anomalies.example_histories import Example

NOT_OF_A_PARTITION = ("invariant-broken",)


@pytest.mark.parametrize(
    "identifier", [name for name in EXAMPLES if name not in NOT_OF_A_PARTITION]
)
def test_a_task_judges_a_stored_partition_like_its_tables(identifier: str, tmp_path: Path) -> None:
    example = Example(EXAMPLES[identifier].smallest)
    tables = example.tables()
    write_tables(tmp_path, tables)
    (task,) = (task for task in tasks_of(tmp_path, 0, asdict(example.context)) if "topic" in task)
    (row,) = judge_task(task)
    here = judgement_to_json(judge_partition("t", 0, tables, example.context))
    assert row["judgement"] == here
    assert identifier in {anomaly["id"] for anomaly in row["judgement"]["anomalies"]}
