"""`laststand shrink`: what it refuses, and one short search with real runs."""

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from harness import exit_codes
from harness.cli.main import main
from results.store import read_json, write_json
from tests.cli.cli_helpers import Outcome, call, refused, write

LOSING = """
name = "losing"
profile = "kafka-4.0"
weather = "calm"
duration_ms = 1200

[workload]
processes = 2
appends_per_s = 60.0
polls_per_s = 0.0
latests_per_s = 0.0

[[schedule]]
fault = "isolate"
targets = ["leader:t-0"]
at_ms = 50
for_ms = 800

[[schedule]]
fault = "isolate"
targets = ["b3"]
at_ms = 500
for_ms = 450

[[schedule]]
fault = "power"
targets = ["last_in_isr:t-0"]
at_ms = 1050
for_ms = 1

[[schedule]]
fault = "delay"
targets = ["controllers"]
at_ms = 10
for_ms = 1000
params = { ms = 5 }
"""


@pytest.fixture(scope="module")
def losing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stored run that loses records, with a fault that is not needed; tests must not change it."""
    root = tmp_path_factory.mktemp("losing")
    path = write(root / "losing.toml", LOSING)
    assert main(["run", str(path), "--no-spark", "--quiet", "--results", str(root / "runs")]) == 1
    return (root / "runs" / "latest").resolve()


def shrunk(
    capsys: pytest.CaptureFixture[str], run: Path, results: Path, *options: object
) -> Outcome:
    return call(capsys, "shrink", run, "--results", results, "--no-spark", "--quiet", *options)


def test_the_result_is_a_run_with_an_experiment_of_its_own(
    capsys: pytest.CaptureFixture[str], losing: Path, tmp_path: Path
) -> None:
    outcome = shrunk(capsys, losing, tmp_path / "runs", "--max-runs", 5, "--jobs", 1, "--json")
    assert outcome.code == 1
    data = outcome.data
    assert (data["before"]["faults"], data["after"]["faults"]) == (4, 3)
    assert (data["runs"], data["ended"]) == (5, "the limit of 5 runs")
    assert data["title"].startswith("lost-acked-write")
    directory = Path(data["directory"])
    assert directory.parent == tmp_path / "runs" / "losing-shrunk"
    assert (directory / "report.html").is_file()
    assert read_json(directory / "shrink.json")["of"] == str(losing)
    summary = read_json(directory / "run.json")
    assert (summary["verdict"], summary["shrunk_from"]) == ("invalid", str(losing))
    again = call(
        capsys, "run", data["experiment"], "--seed", data["seed"], "--json", "--quiet",
        "--no-spark", "--results", tmp_path / "again",
    )  # fmt: skip
    assert again.code == 1
    assert again.data["trace_hash"] == summary["trace_hash"]


@pytest.mark.long
def test_a_whole_search_gives_the_same_run_with_any_number_of_jobs(
    capsys: pytest.CaptureFixture[str], losing: Path, tmp_path: Path
) -> None:
    results = []
    for jobs in (1, 3):
        outcome = shrunk(capsys, losing, tmp_path / str(jobs), "--jobs", jobs, "--json")
        data: dict[str, Any] = outcome.data
        assert data["ended"] == ""
        assert data["after"]["faults"] == 3
        text = Path(data["experiment"]).read_text()
        trace = read_json(Path(data["directory"]) / "run.json")["trace_hash"]
        results.append((text, trace, data["runs"], data["cause"]))
    assert results[0] == results[1]
    assert [one["fault"] for one in tomllib.loads(results[0][0])["schedule"]] == [
        "isolate",
        "isolate",
        "power",
    ]


@pytest.mark.parametrize("is_json", [True, False])
def test_an_interruption_in_the_other_world_shows_what_the_search_found(
    capsys: pytest.CaptureFixture[str],
    losing: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_json: bool,
) -> None:
    findings = []

    def interrupted(*_: object, finding: str) -> None:
        findings.append(finding)
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.cli.commands.shrink.repeat_elsewhere", interrupted)
    outcome = shrunk(
        capsys, losing, tmp_path / "runs", "--max-runs", 5, "--jobs", 1, "--on", "local",
        *(["--json"] if is_json else []),
    )  # fmt: skip
    assert outcome.code == exit_codes.FAILURE
    assert findings == ["lost-acked-write"]
    if is_json:
        assert "elsewhere" not in outcome.data
        assert Path(outcome.data["report"]).is_file()
    else:
        assert "again: laststand run" in outcome.out


def test_a_scenario_is_refused(
    capsys: pytest.CaptureFixture[str], pristine: Path, tmp_path: Path
) -> None:
    reason = refused(capsys, "shrink", pristine, "--results", tmp_path)
    assert "scripted scenario 'last-replica-standing:V3b'" in reason


def test_attempts_without_a_world_are_refused(
    capsys: pytest.CaptureFixture[str], losing: Path, tmp_path: Path
) -> None:
    reason = refused(capsys, "shrink", losing, "--attempts", 2, "--results", tmp_path)
    assert "name it with --on" in reason


def test_a_finding_that_the_run_does_not_have_is_refused(
    capsys: pytest.CaptureFixture[str], losing: Path, tmp_path: Path
) -> None:
    reason = refused(capsys, "shrink", losing, "--finding", "zz", "--results", tmp_path)
    assert "has no finding 'zz'; it has " in reason
    assert "lost-acked-write" in reason


def test_a_run_without_a_finding_is_refused(
    capsys: pytest.CaptureFixture[str], losing: Path, tmp_path: Path
) -> None:
    copy = copied(losing, tmp_path)
    verdict = read_json(copy / "verdict.json")
    write_json(copy / "verdict.json", {**verdict, "validity": "valid", "anomalies": []})
    reason = refused(capsys, "shrink", copy, "--results", tmp_path / "runs")
    assert "has no finding to keep: its verdict is valid" in reason


def test_a_run_that_was_not_judged_is_refused(
    capsys: pytest.CaptureFixture[str], losing: Path, tmp_path: Path
) -> None:
    copy = copied(losing, tmp_path)
    (copy / "verdict.json").unlink()
    reason = refused(capsys, "shrink", copy, "--results", tmp_path / "runs")
    assert f"was not judged; say `laststand check {copy}` first" in reason


def test_a_run_that_the_simulation_does_not_repeat_is_refused(
    capsys: pytest.CaptureFixture[str], losing: Path, tmp_path: Path
) -> None:
    """As if it had run in containers, where the power cut came; without it, the simulation loses nothing."""
    copy = copied(losing, tmp_path)
    replay = read_json(copy / "replay.json")
    replay["schedule"] = [one for one in replay["schedule"] if one["fault"] != "power"]
    replay["experiment"]["on"] = "docker"
    write_json(copy / "replay.json", replay)
    reason = refused(
        capsys, "shrink", copy, "--results", tmp_path / "runs", "--jobs", "1", "--quiet"
    )
    assert "cannot be shrunk: repeated in the simulation" in reason
    assert "its verdict is valid" in reason
    assert "the run took place on docker, and this was the simulation" in reason


def test_on_names_a_real_environment(capsys: pytest.CaptureFixture[str], losing: Path) -> None:
    reason = refused(capsys, "shrink", losing, "--on", "simulation")
    assert "docker, local, ssh" in reason


def copied(run: Path, tmp_path: Path) -> Path:
    directory = tmp_path / "copy" / run.parent.name / run.name
    shutil.copytree(run, directory)
    return directory
