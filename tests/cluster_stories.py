"""What must hold on a Spark cluster whose workers share no disk with the driver: results as on one machine.

Each story runs the same command on this machine, and on a cluster with a store in an S3-compatible server, as a
user would, in processes of their own.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.s3_server import S3Server

LIMIT_S = 900.0
COMPARE = ("compare", "--vary", "profile=kafka-4.0,kafka-4.1", "--first-seed", "5", "--seeds", "3")
FAILING_SEED = 7
"""Under kafka-4.0 the built-in experiment loses records with this seed."""

PLAN = f"""
[[jobs]]
name = "losing"
experiment = "elr-compare"
profiles = ["kafka-4.0"]
seeds = [{FAILING_SEED}]

[[jobs]]
name = "calm"
[jobs.experiment]
weather = "calm"
duration_ms = 300
final_phase_ms = 20000
"""

SHORT = 'name = "short"\nweather = "calm"\nduration_ms = 2000\nfinal_phase_ms = 20000\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A running cluster.

    Attributes:
        master: Its URL.
        conf: What a driver on this machine has to configure.
        server: The S3-compatible server, which workers reach too.
        kill_worker: Kills one of its workers without warning.
    """

    master: str
    conf: Mapping[str, str]
    server: S3Server
    kill_worker: Callable[[], None]

    def options(self) -> list[str]:
        """Returns the options of a command that uses the cluster."""
        words = ["--spark-master", self.master]
        for key, value in self.conf.items():
            words += ["--spark-conf", f"{key}={value}"]
        return words


@dataclass(frozen=True, slots=True)
class Driver:
    """Runs commands in a directory of its own: a machine as far as working directories are concerned."""

    directory: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def start(self, *words: object) -> "subprocess.Popen[str]":
        """Starts a command."""
        self.directory.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [sys.executable, "-m", "harness.cli", *map(str, words), "--quiet", "--json"],
            cwd=self.directory,
            env={**os.environ, **self.variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: object, code: int = 0) -> dict[str, Any]:
        """Runs a command that must end with this exit code, and returns what it printed."""
        with self.start(*words) as process:
            out, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == code, (words, process.returncode, out[-2000:], err[-4000:])
        data: dict[str, Any] = json.loads(out.splitlines()[-1])
        return data


def rows_of(directory: Path) -> list[dict[str, Any]]:
    """Returns the rows of a campaign in the order of its plan, without times and the campaign's start."""
    lines = (directory / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows:
        row.update(wall_s=0, cpu_s=0, at_s=0, run=row["run"].rpartition("-")[2])
        if "stored" in row:
            row["stored"] = row["stored"].rpartition("-")[2]
    return sorted(rows, key=lambda row: row["index"])


def histories(root: Path) -> dict[str, bytes]:
    """Returns the Parquet files of stored runs by the seed of the run and their name."""
    return {
        f"{path.parts[-4 if path.parent.parent.name == 'history' else -3].rpartition('-')[2]} {path.name} "
        f"{path.parent.name}": path.read_bytes()
        for path in root.rglob("*.parquet")
    }


def only(root: Path, pattern: str) -> Path:
    """Returns the only path that matches."""
    (found,) = root.glob(pattern)
    return found


def compare_and_check(cluster: Cluster, tmp_path: Path) -> None:
    """A comparison has the same rows and stored runs; a stored run has the same verdict, from any machine."""
    uri = cluster.server.uri("compare")
    here, there = Driver(tmp_path / "here"), Driver(tmp_path / "there", cluster.server.variables)
    alone = here.run(*COMPARE, "--no-spark", "--jobs", 2)
    together = there.run(*COMPARE, "--results", uri, *cluster.options())
    for key in ("mcnemar_p", "failing"):
        assert alone[key] == together[key], key
    mine = only(here.directory, "results/runs/compare-*")
    theirs = only(there.directory, "results/remote/*/compare-*")
    assert rows_of(theirs) == rows_of(mine)
    assert len(rows_of(mine)) == 6
    found = histories(mine / "runs")
    assert found, "a run failed and is stored"
    assert histories(theirs / "runs") == found
    # Another machine, which has the URI only.
    third = Driver(tmp_path / "third", cluster.server.variables)
    store = f"{uri}/{theirs.name}/runs"
    runs = third.run("list", "--results", store)["runs"]
    assert [(run["seed"], run["verdict"]) for run in runs] == [(str(FAILING_SEED), "invalid")]
    checked = third.run("check", "latest", "--results", store, *cluster.options(), code=1)
    before = json.loads(next((mine / "runs").rglob("verdict.json")).read_text(encoding="utf-8"))
    after = json.loads(next(third.directory.rglob("verdict.json")).read_text(encoding="utf-8"))
    assert after == before
    assert checked["verdict"] == "invalid"
    replayed = third.run("replay", "latest", "--results", store, "--no-spark", code=1)
    assert replayed["same_trace"] is True


def nights(cluster: Cluster, tmp_path: Path) -> None:
    """Two nights find the same as on one machine, and trends are counted by the cluster."""
    uri = cluster.server.uri("nights")
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN, encoding="utf-8")
    here, there = Driver(tmp_path / "here"), Driver(tmp_path / "there", cluster.server.variables)
    for number in (1, 2):
        alone = here.run("nightly", plan, "--runs", 6, "--no-spark", "--jobs", 2, code=1)
        together = there.run(
            "nightly", plan, "--runs", 6, "--results", uri, *cluster.options(), code=1
        )
        assert together["trends_error"] == ""
        for key in ("counts", "exit_code"):
            assert together[key] == alone[key], key
        status = {one["signature"]: one["status"] for one in alone["findings"]}
        assert {one["signature"]: one["status"] for one in together["findings"]} == status
        assert set(status.values()) == {"new" if number == 1 else "open"}
        counted = [{**row, "wall_s": 0, "runs_per_min": 0} for row in alone["trends"]]
        assert [{**row, "wall_s": 0, "runs_per_min": 0} for row in together["trends"]] == counted
    for mine, theirs in zip(
        sorted(here.directory.glob("results/runs/nightly-*")),
        sorted(there.directory.glob("results/remote/*/nightly-*")),
        strict=True,
    ):
        assert rows_of(theirs) == rows_of(mine)
        assert histories(theirs / "runs") == histories(mine / "runs") != {}
    third = Driver(tmp_path / "third", cluster.server.variables)
    listed = third.run("list", "--results", uri)["campaigns"]
    assert [(one["runs_done"], one["failing"]) for one in listed] == [(6, 1), (6, 1)]


def killed_worker(cluster: Cluster, tmp_path: Path) -> None:
    """A worker that is killed costs time: its seeds run again, and none has two rows."""
    uri = cluster.server.uri("killed")
    experiment = tmp_path / "short.toml"
    experiment.write_text(SHORT, encoding="utf-8")
    words = ("swarm", experiment, "--seeds", 60)
    here, there = Driver(tmp_path / "here"), Driver(tmp_path / "there", cluster.server.variables)
    here.run(*words, "--no-spark", "--jobs", 2)
    with there.start(*words, "--results", uri, *cluster.options()) as process:
        deadline_s = time.monotonic() + LIMIT_S
        while not list(there.directory.glob("results/remote/*/swarm-*/rows.jsonl")) or not any(
            path.read_bytes()
            for path in there.directory.glob("results/remote/*/swarm-*/rows.jsonl")
        ):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline_s, "no run ended"
            time.sleep(0.1)
        cluster.kill_worker()
        out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, (out[-2000:], err[-4000:])
    theirs = only(there.directory, "results/remote/*/swarm-*")
    mine = only(here.directory, "results/runs/swarm-*")
    assert rows_of(theirs) == rows_of(mine)
    assert len(rows_of(mine)) == 60
