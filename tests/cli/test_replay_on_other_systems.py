"""`laststand replay` where a run cannot be repeated exactly: in a real world, or on another system or version."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from harness.contracts.system import Promises
from harness.runs import real
from harness.runs.experiment import Experiment
from harness.runs.outcomes import finding_of
from harness.runs.result import RunResult
from harness.runs.simulated import simulate
from harness.systems.reference.adapter import ReferenceSystem
from harness.systems.registry import SYSTEMS
from tests.cli.cli_helpers import call, refused, write

KILLS = """
name = "kills"
on = "local"
profile = "kafka-4.0"
duration_ms = 2000

[[schedule]]
fault = "kill"
targets = ["leader:t-0"]
at_ms = 500
for_ms = 301

[[schedule]]
fault = "pause"
targets = ["isr_follower:t-0"]
at_ms = 1999
for_ms = 300
"""


class Twin(ReferenceSystem):
    """The reference system in two versions: 1.0 without eligible leader replicas, 2.0 with them."""

    name = "twin"
    versions = ("1.0", "2.0")
    default_version = "2.0"

    def __init__(self, version: str = "2.0") -> None:
        super().__init__()
        profile = {"1.0": "kafka-4.0", "2.0": "kafka-4.1"}[version]
        self.profiles: Any = MappingProxyType({profile: self.profiles[profile]})

    def of_version(self, version: str, features: Any) -> "Twin":
        return Twin(version)


SYSTEM = Twin()


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SYSTEMS.built_in, "twin", f"{__name__}:SYSTEM")  # type: ignore[arg-type]


@pytest.fixture
def real_runs(monkeypatch: pytest.MonkeyPatch) -> list[Experiment]:
    """Simulates real runs; returns the experiments that were run."""
    asked: list[Experiment] = []

    def run(experiment: Experiment, seed: int, *, directory: Path, progress: Any) -> RunResult:
        asked.append(experiment)
        simulated = {"system": "reference", "version": "", "on": "simulation", "time_scale": 1.0}
        result = simulate(replace(experiment, **simulated), seed, directory=directory)
        return replace(result, trace_hash="", schedule=real.planned_schedule(experiment, seed))

    monkeypatch.setattr(real, "run_real", run)
    monkeypatch.setattr(real, "check_programs", lambda _: None)
    return asked


Stored = Callable[..., Path]


@pytest.fixture
def kills(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, real_runs: list[Experiment]
) -> Stored:
    """Runs the experiment with kills, and returns its run directory."""

    def run(*options: str) -> Path:
        file = write(tmp_path / "kills.toml", KILLS)
        where = ("--seed", 3, "--no-spark", "--json", "--results", tmp_path / "runs")
        outcome = call(capsys, "run", file, *options, *where)
        real_runs.clear()
        return tmp_path / "runs" / str(outcome.data["run"])

    return run


def replayed(capsys: pytest.CaptureFixture[str], run: Path, *options: object) -> dict[str, Any]:
    store = ("--no-spark", "--json", "--results", run.parent.parent)
    return call(capsys, "replay", run, *options, *store).data


def times(experiment: Experiment) -> list[tuple[int, int | None]]:
    return [(fault.at_ms, fault.for_ms) for fault in real.planned_schedule(experiment, 3)]


def test_a_real_run_is_repeated_and_its_verdicts_are_compared(
    capsys: pytest.CaptureFixture[str], kills: Stored, real_runs: list[Experiment]
) -> None:
    run = kills()
    data = replayed(capsys, run, "--attempts", 2)
    assert data["result"] == "confirmed 2 of 2"
    assert data["finding"] == finding_of(json.loads((run / "run.json").read_text(encoding="utf-8")))
    assert data["of"] == "reference, kafka-4.0, local"
    assert data["of"] == data["at"]
    assert data["equal"] == ["the schedule (2 faults), the topics and the workload"]
    assert any("time is real" in sentence for sentence in data["not_equal"])
    first, second = real_runs
    assert first == second
    assert times(first) == [(500, 301), (1999, 300)]
    for name in data["runs"]:
        summary = json.loads((run.parent.parent / name / "run.json").read_text(encoding="utf-8"))
        assert summary["replay_of"] == data["replay_of"]


def test_a_schedule_keeps_its_times_on_a_system_of_another_speed(
    capsys: pytest.CaptureFixture[str], kills: Stored, real_runs: list[Experiment]
) -> None:
    run = kills()
    data = replayed(capsys, run, "--system", "apache-kafka:4.0.2", "--attempts", 1)
    (kafka,) = real_runs
    assert (kafka.system, kafka.version, kafka.profile) == ("apache-kafka", "4.0.2", "kafka-4.0")
    assert times(kafka) == [(2000, 1204), (7996, 1200)]
    assert data["at"] == "apache-kafka 4.0.2, kafka-4.0, local"
    assert "the times: all are multiplied by 4 instead of 1" in data["not_equal"]
    # And back: a run on the slower system has its times already multiplied.
    real_runs.clear()
    slow = run.parent.parent / data["runs"][0]
    back = replayed(capsys, slow, "--system", "reference", "--attempts", 1)
    (reference,) = real_runs
    assert (reference.profile, reference.time_scale) == ("kafka-4.0", 1)
    assert times(reference) == [(500, 301), (1999, 300)]
    assert back["of"] == data["at"]


def test_a_run_of_one_version_is_repeated_on_another(
    capsys: pytest.CaptureFixture[str], twin: None, tmp_path: Path
) -> None:
    where = ("--no-spark", "--json", "--results", tmp_path)
    lost = call(capsys, "reproduce", "last-replica-standing", "--system", "twin:1.0", *where).data
    assert (lost["outcome"], lost["system"], lost["version"]) == ("loss", "twin", "1.0")
    run = tmp_path / lost["run"]
    same = call(capsys, "replay", run, "--system", "twin:1.0", *where).data
    assert same["same_trace"] is True
    data = replayed(capsys, run, "--system", "twin:2.0")
    assert (data["finding"], data["result"], data["attempts"]) == ("loss", "not reproduced", 1)
    assert data["equal"] == ["the steps of the scenario"]
    assert data["not_equal"] == ["what is promised: eligible leader replicas are on now"]
    text = call(capsys, "replay", run, "--system", "twin", "--no-spark", "--results", tmp_path)
    assert "(twin 1.0, kafka-4.0, simulation) found 'loss'; on twin 2.0, " in text.out
    assert "not equal: what is promised: eligible leader replicas are on now" in text.out


def test_systems_and_worlds_that_do_not_exist_are_refused(
    capsys: pytest.CaptureFixture[str], stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LASTSTAND_CACHE", str(stored / "no-cache"))
    for option, value, sentence in (
        ("--system", "apache-kafka:4.1.9", "did you mean '4.1.2'"),
        ("--system", "apache-kafk", "did you mean 'apache-kafka'"),
        ("--system", "reference:4.1.2", "has no versions"),
        ("--on", "doker", "did you mean 'docker'"),
    ):
        assert sentence in refused(capsys, "replay", stored, "--no-spark", option, value)


def test_several_attempts_where_all_would_be_the_same_run_are_refused(
    capsys: pytest.CaptureFixture[str], stored: Path, kills: Stored
) -> None:
    sentence = (
        "a simulated run is the same every time; leave it out, or add --on local, docker or ssh"
    )
    before = len(list(stored.parent.iterdir()))
    for words in (
        (stored, "--attempts", 7),
        (stored, "--attempts", 7, "--on", "simulation"),
        (kills(), "--attempts", 2, "--on", "simulation"),
    ):
        assert sentence in refused(capsys, "replay", *words, "--no-spark")
    assert len(list(stored.parent.iterdir())) == before
    store = ("--no-spark", "--json", "--results", stored.parent.parent)
    once = call(capsys, "replay", stored, "--attempts", 1, *store).data
    assert once["same_trace"] is True


def test_a_version_that_was_not_fetched_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str], kills: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = kills()
    monkeypatch.undo()
    monkeypatch.setenv("LASTSTAND_CACHE", str(run / "no-cache"))
    sentence = refused(capsys, "replay", run, "--no-spark", "--system", "apache-kafka:4.1.2")
    assert "`laststand system fetch apache-kafka 4.1.2`" in sentence


def test_what_a_system_cannot_do_in_a_world_is_no_failure(
    capsys: pytest.CaptureFixture[str], stored: Path
) -> None:
    outcome = call(capsys, "replay", stored, "--no-spark", "--system", "apache-kafka:4.1.2")
    assert outcome.code == 2
    assert "cannot be expressed on simulation: the system 'apache-kafka' cannot run" in outcome.out


def test_a_simulated_run_with_longer_times_is_repeated_exactly(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = KILLS.replace('on = "local"', 'time_scale = 2.5\nweather = "calm"')
    where = ("--no-spark", "--json", "--results", tmp_path / "runs")
    run = call(capsys, "run", write(tmp_path / "kills.toml", text), *where).data
    again = call(capsys, "replay", tmp_path / "runs" / run["run"], *where).data
    assert again["same_trace"] is True
    assert again["trace_hash"] == run["trace_hash"]


def test_promises_of_the_twins_differ() -> None:
    promises: list[Promises] = [
        next(iter(SYSTEM.of_version(one, {}).profiles.values())) for one in Twin.versions
    ]
    assert [one.elr_on for one in promises] == [False, True]
