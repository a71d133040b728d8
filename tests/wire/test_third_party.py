"""A system, a client and a workload of another package, found through entry points; nothing here knows them.

The package is `examples/tinylog`: a log server of one node that acknowledges records while they are in a buffer of
its process. Killing it loses them, and the checkers find that; without the buffer the same faults lose nothing.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.wire, pytest.mark.xdist_group("third-party")]

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT_S = 120


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Installs the package into a folder of its own, as pip does."""
    folder = tmp_path_factory.mktemp("tinylog")
    shutil.copytree(EXAMPLES / "tinylog", folder / "source")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
            *("--no-build-isolation", "--no-index", "--target", folder / "site", folder / "source"),
        ],
        check=True,
        capture_output=True,
        timeout=LIMIT_S,
    )
    return folder / "site"


def laststand(site: Path | None, *words: object) -> "subprocess.CompletedProcess[str]":
    environment = dict(os.environ)
    if site is not None:
        paths = [str(site), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return subprocess.run(
        [sys.executable, "-m", "harness.cli", *(str(word) for word in words)],
        env={**environment, "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=EXAMPLES.parent,
    )


def run(site: Path, folder: Path, *words: object) -> tuple[int, dict[str, Any]]:
    arguments = ("--no-spark", "--quiet", "--json", "--results", folder / "runs")
    done = laststand(site, "run", EXAMPLES / "tinylog" / "kill.toml", *words, *arguments)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_third_party_system_that_loses_records_when_killed_is_found_faulty(
    installed: Path, tmp_path: Path
) -> None:
    code, summary = run(installed, tmp_path)
    assert (code, summary["verdict"]) == (1, "invalid"), summary["reasons"]
    forbidden = {one["id"] for one in summary["anomalies"] if one["judgement"] == "forbidden"}
    assert "lost-acked-write" in forbidden
    assert summary["unexcused_lost_records"] > 0
    assert summary["counters"]["processes"] > 3, "killed servers leave indeterminate appends"


@pytest.mark.long
def test_the_same_faults_lose_nothing_if_records_are_written_first(
    installed: Path, tmp_path: Path
) -> None:
    code, summary = run(installed, tmp_path, "--profile", "written")
    assert (code, summary["verdict"]) == (0, "valid"), summary["reasons"]
    assert summary["faults"] == 3


@pytest.mark.long
def test_a_stored_run_of_a_third_party_system_is_judged_again(
    installed: Path, tmp_path: Path
) -> None:
    _, summary = run(installed, tmp_path)
    words = ("check", "latest", "--no-spark", "--quiet", "--json", "--results", tmp_path / "runs")
    again = laststand(installed, *words)
    assert again.returncode == 1
    assert json.loads(again.stdout)["anomalies"] == summary["anomalies"]


@pytest.mark.long
def test_the_built_in_workload_runs_on_a_third_party_system_with_its_client(
    installed: Path, tmp_path: Path
) -> None:
    text = (EXAMPLES / "tinylog" / "kill.toml").read_text(encoding="utf-8")
    path = tmp_path / "append.toml"
    path.write_text(text.replace('name = "steady"', 'name = "append"'), encoding="utf-8")
    words = ("--profile", "written", "--no-spark", "--quiet", "--json", "--results", tmp_path)
    done = laststand(installed, "run", path, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["operations"] > 0


def test_without_the_package_its_names_are_refused_in_one_sentence(tmp_path: Path) -> None:
    path = EXAMPLES / "tinylog" / "kill.toml"
    done = laststand(None, "run", path, "--results", tmp_path / "runs")
    assert done.returncode == 254
    assert "no system is called 'tinylog'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_what_a_system_cannot_do_is_refused_before_anything_starts(
    installed: Path, tmp_path: Path
) -> None:
    arguments = ("run", EXAMPLES / "tinylog" / "kill.toml", "--results", tmp_path / "runs")
    for words, sentence in (
        (("--on", "docker"), "the system 'tinylog' cannot run in 'docker' (it can: local)"),
        (("--profile", "kafka-4.1"), "no profile is called 'kafka-4.1'"),
    ):
        done = laststand(installed, *arguments, *words)
        assert (done.returncode, len(done.stderr.splitlines())) == (254, 1)
        assert sentence in done.stderr
    assert not (tmp_path / "runs").exists()
