"""Campaigns on Spark and without it: the same rows, the same result."""

import json
from pathlib import Path
from typing import Any

import pytest

from checkers.jobs import distribute
from checkers.jobs.distribute import _Worker, distribute_job
from checkers.jobs.in_process import InProcess
from checkers.spark import SparkOptions
from harness.campaigns import crew as crews
from harness.campaigns.compare import Workers, compare_plan, run_campaign
from harness.campaigns.crew import SparkMember
from harness.campaigns.files import ROWS_FILE
from harness.campaigns.plan import CampaignPlan, store_plan
from harness.campaigns.worker import failed_row
from harness.cli.progress import StandardErrorProgress
from harness.errors import HarnessFailure
from harness.runs.experiment import Experiment

VARY = "profile=kafka-4.0,kafka-4.1"


def _plan(seeds: int) -> CampaignPlan:
    """Short calm runs of two arms."""
    base = Experiment(weather="calm", duration_ms=400, final_phase_ms=20000)
    return compare_plan(base, vary=VARY, seeds=seeds, first_seed=0)


def _run(plan: CampaignPlan, directory: Path, spark: SparkOptions) -> dict[str, Any]:
    directory.mkdir(exist_ok=True)
    store_plan(plan, directory)
    progress = StandardErrorProgress(quiet=True)
    return run_campaign(plan, directory, Workers(jobs=2, spark=spark), progress)


@pytest.mark.long
@pytest.mark.spark
def test_a_campaign_on_spark_and_a_local_one_have_the_same_rows(tmp_path: Path) -> None:
    """On Spark it is also interrupted: half of its rows are removed, and it runs again."""
    plan = _plan(2)
    on_spark, here = tmp_path / "spark", tmp_path / "local"
    local = _run(plan, here, SparkOptions(enabled=False))
    assert _timeless(_run(plan, on_spark, SparkOptions())) == _timeless(local)
    assert _rows(on_spark) == _rows(here)
    assert len(_rows(here)) == 4
    assert not any(row["error"] for row in _rows(here))
    assert all(row["operations"] > 0 for row in _rows(here))
    whole = (on_spark / ROWS_FILE).read_bytes()
    (on_spark / ROWS_FILE).write_bytes(b"".join(whole.splitlines(keepends=True)[:2]) + b'{"a')
    assert _timeless(_run(plan, on_spark, SparkOptions())) == _timeless(local)
    assert _rows(on_spark) == _rows(here)


def _rows(directory: Path) -> list[dict[str, Any]]:
    lines = (directory / ROWS_FILE).read_text(encoding="utf-8").splitlines()
    rows = [{**json.loads(line), "wall_s": 0, "cpu_s": 0} for line in lines]
    return sorted(rows, key=lambda row: row["index"])


def _timeless(result: dict[str, Any]) -> dict[str, Any]:
    return {**result, "arms": [{**arm, "wall_s": 0} for arm in result["arms"]]}


def _messages(worker: str, *batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    lines = [json.dumps({"requests": batch}) for batch in batches]
    distribute_job(InProcess(), {"worker": worker}, lines, sent.append)
    return sent


def test_rows_are_sent_batch_by_batch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The stand-in for a worker returns its requests."""
    (tmp_path / "echoes.py").write_text("import sys\nsys.stdout.write(sys.stdin.read())\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    first, *rest = _messages("echoes", [{"seed": 1}, {"seed": 2}], [{"seed": 3}])
    assert first == {"cores": 2}
    assert all(message["cores"] == 2 for message in rest)
    assert sorted(message["rows"] for message in rest) == [
        ['{"seed": 1}', '{"seed": 2}'],
        ['{"seed": 3}'],
    ]


STORING = """
import json, pathlib, sys
for line in sys.stdin:
    request = json.loads(line)
    assert request["runs"] != request["drivers"]
    if request["seed"] % 2:
        history = pathlib.Path(request["runs"]) / request["run"] / "history"
        history.mkdir(parents=True)
        (history / "x.parquet").write_bytes(bytes([request["seed"]]) * 1000)
        (history.parent / "run.json").write_text("{}")
    print(json.dumps({"seed": request["seed"], "not_stored": ""}))
"""


def _storing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *seeds: int) -> list[dict[str, Any]]:
    (tmp_path / "storing.py").write_text(STORING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    runs = str(tmp_path / "runs")
    requests = [
        {"seed": seed, "runs": runs, "drivers": runs, "run": f"arm-1/{seed}"} for seed in seeds
    ]
    _, message = _messages("storing", requests)
    return [json.loads(row) for row in message["rows"]]


def test_runs_that_a_worker_stored_on_its_disk_are_stored_by_the_driver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = _storing(monkeypatch, tmp_path, 1, 2, 3)
    assert rows == [{"seed": seed, "not_stored": ""} for seed in (1, 2, 3)]
    found = {path.relative_to(tmp_path / "runs").as_posix() for path in tmp_path.rglob("runs/**/*")}
    assert found == {
        *("arm-1", "arm-1/1", "arm-1/1/history", "arm-1/1/history/x.parquet", "arm-1/1/run.json"),
        *("arm-1/3", "arm-1/3/history", "arm-1/3/history/x.parquet", "arm-1/3/run.json"),
    }
    assert (tmp_path / "runs/arm-1/3/history/x.parquet").read_bytes() == b"\x03" * 1000


def test_a_run_is_stored_once_if_its_task_ran_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for _ in range(2):
        _storing(monkeypatch, tmp_path, 1)
    assert [path.name for path in (tmp_path / "runs" / "arm-1").iterdir()] == ["1"]


def test_what_a_task_returns_is_bounded_and_the_row_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first of two runs fits."""
    monkeypatch.setattr(distribute, "RETURNED_BYTES_MAX", 1500)
    first, second = _storing(monkeypatch, tmp_path, 1, 3)
    assert first["not_stored"] == ""
    assert "run this seed without Spark" in second["not_stored"]
    assert [path.name for path in (tmp_path / "runs" / "arm-1").iterdir()] == ["1"]


def test_a_run_that_the_driver_cannot_store_still_has_its_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "runs").write_text("a file")
    (row,) = _storing(monkeypatch, tmp_path, 1)
    assert row["seed"] == 1
    assert row["not_stored"].startswith("NotADirectoryError: ")


def test_a_worker_with_other_code_is_refused() -> None:
    sent: list[dict[str, Any]] = []
    lines = [json.dumps({"requests": [{"seed": 1}]})]
    arguments = {"worker": "harness.campaigns.worker", "code": "0123456789abcdef"}
    distribute_job(InProcess(), arguments, lines, sent.append)
    assert "of the code, not 0123456789abcdef; ship the code" in sent[1]["failure"]


def test_a_worker_process_that_dies_is_reported() -> None:
    _, message = _messages("harness.no_such_module", [{}, {}])
    assert message["cores"] == 2
    assert message["failure"].startswith("a worker process ended with code 1: ")
    assert "No module named harness.no_such_module" in message["failure"]


def test_an_empty_slice_starts_no_worker() -> None:
    assert list(_Worker("harness.no_such_module")([])) == []


class FakeStream:
    """Stands in for the process of the job."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.sent: list[Any] = []
        self.messages: list[dict[str, Any]] = []

    def send(self, work: Any) -> None:
        self.sent.append(work)

    def receive(self) -> list[dict[str, Any]]:
        return self.messages


def _row_line(seed: int, wall_s: float) -> str:
    row = failed_row({"seed": seed, "arm": "a", "run": "arm-1/x", "experiment": {}}, "")
    return json.dumps({**row, "wall_s": wall_s})


def test_a_task_gets_about_half_a_minute_of_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The size follows the measured speed, and shrinks when little is left, so that all cores end together."""
    monkeypatch.setattr(crews, "JobStream", FakeStream)
    member = SparkMember(SparkOptions(), tmp_path)
    stream: Any = member._stream
    assert (member.is_busy, member.room) == (True, 0), "until Spark has reported its cores"
    stream.messages = []
    assert member.receive() == []
    assert (member.is_busy, member.room) == (True, 0), "the JVM printed something else"
    stream.messages = [{"cores": 4}]
    assert member.receive() == []
    assert (member.is_busy, member.room) == (False, 4)
    assert member.batch_size(10_000) == 4, "the first rows come soon"
    member.send([{"seed": 1}])
    assert (member.is_busy, member.room) == (True, 3)
    stream.messages = [{"cores": 4, "rows": [_row_line(1, 0.25), _row_line(2, 0.35)]}]
    assert [row["seed"] for row in member.receive()] == [1, 2]
    assert (member.is_busy, member.room) == (False, 4)
    assert [member.batch_size(remaining) for remaining in (10_000, 100, 7, 1)] == [100, 25, 2, 1]
    member.send([{"seed": 3}, {"seed": 4}])
    skipped = '{"arm": "a", "seed": 4, "skipped": true}'
    stream.messages = [{"cores": 4, "rows": [_row_line(3, 400.0), skipped]}]
    assert [row["seed"] for row in member.receive()] == [3, 4]
    assert member.batch_size(10_000) == 1


def test_a_failed_task_fails_the_campaign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(crews, "JobStream", FakeStream)
    member = SparkMember(SparkOptions(), tmp_path)
    stream: Any = member._stream
    stream.messages = [{"cores": 4, "failure": "a worker process ended with code 1"}]
    with pytest.raises(HarnessFailure, match=r"ended with code 1 \(see .*spark.log\)"):
        member.receive()


@pytest.mark.spark
def test_a_job_that_cannot_start_fails_the_campaign(tmp_path: Path) -> None:
    spark = SparkOptions(conf=(("spark.driver.memory", "nonsense"),))
    with pytest.raises(HarnessFailure, match=r"Spark job 'distribute' .* \(see .*spark.log\)"):
        _run(_plan(1), tmp_path, spark)
