"""Runs that are kept are judged without being simulated, and are the runs that the code gives."""

import json
import zipfile
from pathlib import Path

import pytest

from harness.runs.experiment import Experiment
from harness.runs.resolved import resolve
from tests.evidence import recorded_runs
from tests.evidence.broker_runs import judged_run
from tests.evidence.kinds import SECONDS
from tests.evidence.recorded_runs import DIRECTORY, DifferentRunError, recorded_run

PLANNED = SECONDS.experiment("kafka-4.0")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DIRECTORY, str(tmp_path))
    return tmp_path


def experiment(seed: int) -> Experiment:
    return resolve(PLANNED, seed)[0]


def file_of(directory: Path) -> Path:
    (path,) = directory.rglob("*.zip")
    return path


def test_a_kept_run_is_not_simulated_and_is_the_same(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, reason = recorded_run(experiment(1), 1), judged_run(PLANNED, 1)
    monkeypatch.setattr(recorded_runs, "SimulatedRun", None)
    again = recorded_run(experiment(1), 1)
    tables = again.result.tables
    assert set(tables) == set(first.result.tables)
    assert all(table.equals(first.result.tables[name]) for name, table in tables.items())
    assert (again.result.stuck, again.missing) == ("", first.missing)
    assert again.result.trace_hash == first.result.trace_hash
    assert judged_run(PLANNED, 1) == reason


def test_a_file_that_was_not_written_to_its_end_is_replaced(directory: Path) -> None:
    run = recorded_run(experiment(1), 1).result
    whole = file_of(directory).read_bytes()
    file_of(directory).write_bytes(whole[: len(whole) // 2])
    assert recorded_run(experiment(1), 1).result.trace_hash == run.trace_hash
    assert zipfile.is_zipfile(file_of(directory))


def test_a_kept_run_that_is_another_one_is_refused(directory: Path) -> None:
    recorded_run(experiment(100), 100)
    path = file_of(directory)
    with zipfile.ZipFile(path) as file:
        content = {name: file.read(name) for name in file.namelist()}
    facts = json.loads(content["facts.json"])
    content["facts.json"] = json.dumps(facts | {"trace_hash": "0"}).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, data in content.items():
            file.writestr(name, data)
    with pytest.raises(DifferentRunError, match="another run than seed 100 gives now"):
        recorded_run(experiment(100), 100)


def test_another_experiment_or_another_text_is_another_file(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded_run(experiment(1), 1)
    recorded_run(resolve(SECONDS.experiment("kafka-4.1"), 1)[0], 1)
    assert len(list(directory.rglob("*.zip"))) == 2
    monkeypatch.setattr(recorded_runs, "_text_of_runs", lambda: "changed")
    recorded_run(experiment(1), 1)
    assert len(list(directory.rglob("*.zip"))) == 3
