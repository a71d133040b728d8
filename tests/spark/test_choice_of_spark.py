"""Small runs are judged without Spark: with which options, up to which size, and with which verdict."""

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from checkers.spark import SparkOptions
from harness.cli.main import build_parser
from harness.cli.options import SMALL_OPERATIONS, parse_judging_options
from harness.cli.progress import StandardErrorProgress
from harness.runs import execute
from harness.runs.check import recorded_operations
from results.layout import RunFiles
from results.store import RunStore
from tests.spark.stored_runs import store, synthetic, unfinished

QUIET = StandardErrorProgress(quiet=True)


def parsed(*words: str) -> argparse.Namespace:
    return build_parser().parse_args(list(words))


@pytest.mark.parametrize(
    ("words", "least"),
    [
        ((), SMALL_OPERATIONS),
        (("--spark",), 0),
        (("--spark-master", "local[4]"), 0),
        (("--spark-conf", "spark.executor.memory=2g"), 0),
    ],
)
@pytest.mark.parametrize(
    "command", [("check", "latest"), ("run", "a.toml"), ("reproduce", "kafka-bug"), ("replay", "r")]
)
def test_spark_judges_large_runs_and_whatever_the_user_names_it_for(
    command: tuple[str, ...], words: tuple[str, ...], least: int
) -> None:
    spark = parse_judging_options(parsed(*command, *words))
    assert (spark.enabled, spark.operations_min) == (True, least)
    assert not parse_judging_options(parsed(*command, "--no-spark")).enabled


def test_the_number_of_operations_is_that_of_all_finished_histories(tmp_path: Path) -> None:
    runs = [store(tmp_path / str(number), synthetic(2, 60)) for number in (1, 2)]
    each = recorded_operations(runs[:1])
    assert each == synthetic(2, 60)["operations"].num_rows
    assert recorded_operations([*runs, unfinished(tmp_path / "died")]) == 2 * each


def test_the_number_of_operations_decides(real_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = recorded_operations([real_run])
    used: list[str] = []

    def note(name: str) -> Any:
        def judged(directories: Sequence[Path], *_: object) -> list[dict[str, Any]]:
            used.append(name)
            return []

        return judged

    monkeypatch.setattr(execute, "check_on_spark", note("Spark"))
    monkeypatch.setattr(execute, "check_locally", note("here"))
    for least in (0, count, count + 1):
        with pytest.raises(ValueError, match="shorter"):  # the verdict that nobody gave
            execute.judge(
                [real_run], RunStore(real_run.parent), SparkOptions(operations_min=least), QUIET
            )
    assert used == ["Spark", "Spark", "here"]


@pytest.mark.spark
def test_stored_runs_get_the_same_bytes_with_and_without_spark(
    tmp_path: Path, real_run: Path
) -> None:
    """The command line's own path: a lost record, a history that died half-way, and one without any operation."""
    for name in ("here", "spark"):
        folder = tmp_path / name / "runs"
        shutil.copytree(real_run, folder / "20260101T000000Z-1")
        RunFiles(folder / "20260101T000000Z-1").spark_log.unlink(missing_ok=True)
        died = folder / "20260101T000001Z-1"
        shutil.copytree(real_run, died)
        shutil.rmtree(RunFiles(died).history)
        unfinished(died)
        empty = folder / "20260101T000002Z-1"
        shutil.copytree(real_run, empty)
        shutil.rmtree(RunFiles(empty).history)
        store(empty, {})
    pages: dict[str, list[bytes]] = {}
    verdicts = {}
    for name, options in (
        ("here", SparkOptions(operations_min=SMALL_OPERATIONS)),
        ("spark", SparkOptions()),
    ):
        directories = sorted((tmp_path / name / "runs").iterdir())
        execute.judge(directories, RunStore(tmp_path / name), options, QUIET)
        files = [RunFiles(directory) for directory in directories]
        assert files[0].spark_log.exists() == (name == "spark")
        pages[name] = [
            path.read_bytes()
            for each in files
            for path in (each.verdict, each.run, each.report, each.summary)
        ]
        verdicts[name] = [json.loads(each.verdict.read_text())["validity"] for each in files]
    assert pages["here"] == pages["spark"]
    assert verdicts["here"] == ["invalid", "invalid", "unknown"]
