"""The job that checks stored runs: the same verdicts as without Spark, byte for byte."""

import json
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from checkers.jobs import check
from checkers.jobs.__main__ import result_of
from checkers.jobs.check import at_locations, check_job, judge_task, judge_tasks, plan
from checkers.jobs.in_process import InProcess
from checkers.jobs.registry import JOBS
from checkers.jobs.stored import UNUSED_COLUMNS, read_partition
from checkers.kernels import compose
from checkers.kernels.verdict_json import judgement_to_json
from checkers.spark import RESULT_PREFIX, SparkOptions, run_in_child
from harness.contracts.run_context import RunContext
from harness.errors import HarnessFailure, HistoryError
from harness.history.parquet import table_files
from harness.history.schema import TABLES
from harness.runs.check import check_locally, check_on_spark
from harness.runs.judge import stored_context
from results.history_files import read_tables
from tests.spark.stored_runs import (
    CONTEXT,
    judged_here,
    recounted,
    replaced,
    store,
    synthetic,
    tasks,
    unfinished,
)


def checked(spark: Any, *directories: Path, context: RunContext = CONTEXT, **extra: Any) -> Any:
    """Returns the job's verdicts; arguments go through JSON, as they do to the child process."""
    arguments = plan(directories, [asdict(context)] * len(directories))
    return check_job(spark, json.loads(json.dumps({**arguments, **extra})))["verdicts"]


def same(one: Any, other: Any) -> bool:
    return json.dumps(one) == json.dumps(other)


@pytest.mark.spark
def test_spark_and_the_plain_kernels_give_the_same_bytes(
    spark: Any, tmp_path: Path, real_run: Path
) -> None:
    tables = synthetic(3, 300)
    # One partition in which an acknowledged record is missing from everything that was read.
    records = tables["records_read"]
    is_kept = [offset != 17 for offset in records.column("offset").to_pylist()]
    broken = recounted({**tables, "records_read": records.filter(is_kept)})
    runs = [
        store(tmp_path / "clean", tables),
        store(tmp_path / "broken", broken),
        store(tmp_path / "empty", {}),
        unfinished(tmp_path / "died"),
        real_run,
    ]
    verdicts = checked(spark, *runs)
    assert [verdict["validity"] for verdict in verdicts[:3]] == ["valid", "invalid", "unknown"]
    assert all(same(got, judged_here(run)) for got, run in zip(verdicts, runs, strict=True))


def test_tasks_read_runs_at_uris_and_the_driver_reads_its_copies(
    tmp_path: Path, real_run: Path
) -> None:
    """What tasks would read of the driver's copy is emptied; a huge partition and a journal are read too."""
    runs = [
        store(tmp_path / "clean", synthetic(3, 300)),
        unfinished(tmp_path / "died"),
        Path(shutil.copytree(real_run, tmp_path / "real")),
    ]
    wanted = [judged_here(run) for run in runs]
    contexts = [asdict(CONTEXT), asdict(CONTEXT), asdict(stored_context(real_run))]
    wanted[2] = check_locally([real_run])[0]
    arguments = plan(runs, contexts)
    locations = [f"file://{tmp_path}/away/{run.name}" for run in runs]
    for run in runs:
        away = tmp_path / "away" / run.name
        shutil.copytree(run, away)
        for path in run.rglob("*.parquet"):
            if path.parent.name != "history":  # the driver reads tables that all partitions share
                path.write_bytes(b"")
        (run / "history" / "history.journal").unlink(missing_ok=True)
    moved = at_locations(arguments, locations)
    for extra in ({}, {"huge_operations": 10, "bucket_width": 100}):
        verdicts = check_job(InProcess(), json.loads(json.dumps({**moved, **extra})))["verdicts"]
        assert all(same(got, one) for got, one in zip(verdicts, wanted, strict=True))
    assert at_locations(arguments, ["", "", ""]) == arguments


@pytest.mark.long  # `test_choice_of_spark.py` starts a child process each time
@pytest.mark.spark
def test_a_stored_run_is_judged_by_its_own_context_in_the_child_process(real_run: Path) -> None:
    verdicts = check_on_spark([real_run], SparkOptions())
    assert same(verdicts, check_locally([real_run]))
    assert verdicts[0]["unexcused_lost_records"] == 5
    assert not stored_context(real_run).elr_on
    assert (real_run / "spark.log").exists()


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_truncated_file_is_an_error_of_the_history_not_of_the_harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store(tmp_path / "run", synthetic(1, 50))
    (path,) = (file.path for file in table_files(run) if file.table == "records_read")
    path.write_bytes(path.read_bytes()[:-100])
    arguments = plan([run], [asdict(CONTEXT)])
    response = result_of({"job": "check", "arguments": arguments})
    assert list(response) == ["history_error"]
    text = f"something else\n{RESULT_PREFIX}{json.dumps(response)}\n".encode()
    child = subprocess.CompletedProcess([], 0, stdout=text)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: child)
    with pytest.raises(HistoryError, match=r"records_read.*damaged or not a Parquet file"):
        run_in_child("check", arguments, log_path=tmp_path / "spark.log")


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_failing_job_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setitem(JOBS, "check", broken)
    assert result_of({"job": "check", "arguments": {}}) == {"failure": "RuntimeError: first line"}


def test_a_child_that_dies_is_reported_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = subprocess.CompletedProcess([], -9, stdout=b"")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: child)
    with pytest.raises(HarnessFailure, match=r"code -9 and no result \(see .*spark\.log\)"):
        run_in_child("check", {}, log_path=tmp_path / "spark.log")


def test_an_unknown_job_fails_without_starting_spark(tmp_path: Path) -> None:
    with pytest.raises(HarnessFailure, match="the Spark job 'nonsense' failed: KeyError"):
        run_in_child("nonsense", {}, log_path=tmp_path / "spark.log")


def test_a_missing_history_is_reported_before_spark_is_started(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(HistoryError, match="holds no history"):
        plan([tmp_path / "run"], [asdict(CONTEXT)])


def test_the_first_damaged_file_is_named_regardless_of_the_task_that_found_it(
    tmp_path: Path,
) -> None:
    run = store(tmp_path / "run", synthetic(2, 50))
    for file in table_files(run):
        if file.table == "operations":
            file.path.write_bytes(b"nothing of ours")
    with pytest.raises(HistoryError, match=r"operations/synthetic-0\.parquet is damaged"):
        checked(InProcess(), run)


def test_a_checker_that_fails_gives_the_same_unknown_as_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store(tmp_path / "run", synthetic(2, 50))
    original = compose.judge_partition

    def broken(topic: str, partition: int, *rest: Any) -> Any:
        if partition == 1:
            raise ZeroDivisionError("by zero")
        return original(topic, partition, *rest)

    monkeypatch.setattr(compose, "judge_partition", broken)
    (verdict,) = checked(InProcess(), run)
    assert verdict["validity"] == "unknown"
    assert "synthetic-1: the checker failed (ZeroDivisionError: by zero)" in verdict["reasons"]
    assert same(verdict, judged_here(run))


def test_columns_that_are_not_read_are_not_verified(tmp_path: Path, real_run: Path) -> None:
    run = store(tmp_path / "run", synthetic(1, 200))
    tables = read_tables(run)
    tables["operations"] = replaced(tables["operations"], "offset", 3, 1)
    for directory in (real_run, store(tmp_path / "odd", tables)):
        (task,) = tasks(directory)
        pruned = read_partition(task)
        for table, unused in UNUSED_COLUMNS.items():
            assert unused <= set(TABLES[table].names)
            if pruned[table].num_rows:
                assert not unused & set(pruned[table].column_names)
        (row,) = judge_task(task)
        full = compose.judge_partition(
            task["topic"], task["partition"], read_tables(directory), CONTEXT
        )
        assert full.anomalies
        assert same(row["judgement"], judgement_to_json(full))


def test_the_largest_partitions_are_judged_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [store(tmp_path / str(size), synthetic(1, size)) for size in (30, 90, 60)]
    seen: list[int] = []
    monkeypatch.setattr(
        check, "judge_tasks", lambda pack: (seen.extend(_sizes(pack)), judge_tasks(pack))[1]
    )
    verdicts = checked(InProcess(), *runs)
    assert seen == sorted(seen, reverse=True)
    assert [v["coverage"]["operations"] > 0 for v in verdicts] == [True] * 3


def test_partitions_share_tasks_when_there_are_fewer_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "TASKS_MAX", 2)
    run = store(tmp_path / "run", synthetic(5, 40))
    (verdict,) = checked(InProcess(), run)
    assert same(verdict, judged_here(run))


def _sizes(pack: list[str]) -> list[int]:
    return [json.loads(line)["size"] for line in pack]
