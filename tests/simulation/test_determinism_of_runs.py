"""A whole run is a function of (experiment, seed, code): same seed, same trace hash, same bytes on disk.

Calm scripted scenarios would hide what random faults show, so the schedule is random and the weather stormy. The
two processes get different hash seeds: whatever iterates over a set where order matters gives itself away.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CHILD = """
import json, sys
from dataclasses import replace
from pathlib import Path
from harness.runs import experiment_file as experiment
from harness.runs.judge import judge_result
from harness.runs.simulated import simulate
storm = replace(experiment.load(Path(sys.argv[1])), duration_ms=6000, profile=sys.argv[4])
result = simulate(storm, int(sys.argv[3]), directory=Path(sys.argv[2]))
verdict, summary = judge_result(storm, int(sys.argv[3]), result)
print(json.dumps({
    "trace_hash": result.trace_hash,
    "faults": result.tables["faults"].num_rows,
    "operations": result.tables["operations"].num_rows,
    "summary": summary,
}, sort_keys=True))
"""
STORM = ROOT / "harness" / "experiments" / "elr-compare.toml"


def start(directory: Path, seed: int, profile: str, hash_seed: str) -> "subprocess.Popen[str]":
    return child_of(STORM, directory, seed, profile, hash_seed)


def child_of(
    experiment: Path, directory: Path, seed: int, profile: str, hash_seed: str
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(experiment), str(directory), str(seed), profile],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def answer(child: "subprocess.Popen[str]") -> dict[str, Any]:
    text, _ = child.communicate(timeout=120)
    assert child.returncode == 0
    data: dict[str, Any] = json.loads(text)
    return data


@pytest.mark.parametrize(("seed", "profile"), [(3, "kafka-4.1"), (11, "kafka-4.0")])
def test_one_seed_gives_the_same_trace_and_the_same_bytes_whatever_the_hash_seed(
    tmp_path: Path, seed: int, profile: str
) -> None:
    children = [
        start(tmp_path / hash_seed, seed, profile, hash_seed) for hash_seed in ("1", "20261")
    ]
    first, second = (answer(child) for child in children)
    assert first == second
    assert first["faults"] > 0, "a schedule without faults proves nothing"
    assert first["operations"] > 50
    files = files_of(tmp_path / "1")
    assert "history/manifest.json" in files
    assert "history/operations/t-0.parquet" in files
    assert files == files_of(tmp_path / "20261")


def test_another_seed_gives_another_trace(tmp_path: Path) -> None:
    """The hash would be worthless if everything had the same."""
    children = [start(tmp_path / str(seed), seed, "kafka-4.1", "0") for seed in (4, 5)]
    assert len({answer(child)["trace_hash"] for child in children}) == 2
