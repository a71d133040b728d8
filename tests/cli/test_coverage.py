"""`--coverage`: what simulated runs reached, without guidance."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.campaigns.files import ROWS_FILE
from harness.campaigns.row_log import whole_rows
from tests.cli.cli_helpers import refused, write

TEXT = "duration_ms = 1500\nfinal_phase_ms = 60000\n[nemesis]\nfaults = ['kill']\ngap_ms = 300\n"


def output(*arguments: object) -> str:
    """Runs a command in a process of its own: recording decisions replaces code of the process."""
    command = [sys.executable, "-m", "harness.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 2), done.stderr
    return done.stdout


@pytest.mark.long
def test_a_run_states_what_it_reached(tmp_path: Path) -> None:
    file, where = write(tmp_path / "mine.toml", TEXT), ("--results", tmp_path / "runs")
    data: dict[str, Any] = json.loads(
        output("run", file, "--coverage", "--json", "--no-spark", *where)
    )
    stored = json.loads((Path(data["directory"]) / "run.json").read_text(encoding="utf-8"))
    assert data["coverage"] == stored["coverage"]
    kinds = {name.split()[0] for name in data["coverage"]["features"]}
    assert {"mark", "partition", "replica", "rule", "margin"} <= kinds
    assert data["coverage"]["margins"]
    text = output("run", file, "--coverage", "--quiet", "--no-spark", *where)
    count = len(data["coverage"]["features"])
    assert f"coverage: {count} features, " in text
    assert "smallest margins: INV-" in text
    plain = json.loads(output("run", file, "--json", "--no-spark", *where))
    assert "coverage" not in plain
    assert plain["trace_hash"] == data["trace_hash"]


@pytest.mark.long
def test_a_swarm_counts_what_its_runs_reached(tmp_path: Path) -> None:
    file, where = write(tmp_path / "mine.toml", TEXT), ("--results", tmp_path / "runs")
    command = ("swarm", file, "--seeds", 5, "--jobs", 1, "--no-spark", *where)
    data: dict[str, Any] = json.loads(output(*command, "--coverage", "--json"))
    reached = data["guided"]
    assert reached["share"] == 0
    assert reached["drawn"]["runs"] == 5
    assert reached["drawn"]["new"] >= 1
    assert reached["mutants"]["runs"] == reached["weighted"]["runs"] == 0
    (directory,) = (tmp_path / "runs").glob("swarm-*")
    rows = list(whole_rows(directory / ROWS_FILE))
    assert reached["features"] == len({key for row in rows for key in row["coverage"]})
    assert not any("search" in row for row in rows)
    assert "runs reached something new" in output("swarm", "--resume", directory, "--no-spark")


def test_coverage_is_refused_where_there_is_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = write(tmp_path / "mine.toml", TEXT)
    where = ("--no-spark", "--results", tmp_path / "runs")
    for command in ("run", "swarm"):
        error = refused(capsys, command, file, "--on", "local", "--coverage", *where)
        assert "only simulated runs have coverage" in error
    output("swarm", file, "--seeds", 1, "--jobs", 1, *where)
    (directory,) = (tmp_path / "runs").glob("swarm-*")
    error = refused(capsys, "swarm", "--resume", directory, "--coverage", *where)
    assert "was started without --coverage" in error
