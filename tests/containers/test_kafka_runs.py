"""Apache Kafka itself as the system under test. Only one of these runs is part of `make test`."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main
from results.history_files import read_tables
from tests.kafka_jars import kafka_or_skip

State = tuple[int, set[int], int]

LOSS = [
    # leader, ISR, leader epoch: V3b without ELR
    (1, {1, 2, 3}, 0),
    (1, {1}, 0),
    (-1, {1}, 1),
    (1, {1}, 2),
]
CURE = [
    # V3b with ELR: broker 2, which has everything, leads as soon as broker 1 is fenced
    (1, {1, 2, 3}, 0),
    (1, {1}, 0),
    (2, {2}, 1),
]


def run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, *words: str
) -> tuple[int, dict[str, Any]]:
    code = main([*words, "--no-spark", "--quiet", "--json", "--results", str(tmp_path / "runs")])
    output: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, output


def around_elections(trace: list[State]) -> list[State]:
    """Returns the first state, and the last and the first one of each leader epoch.

    On a slow machine a follower may leave the ISR and return before it leaves it for good.
    """
    kept = trace[:1]
    for before, after in pairwise(trace):
        if before[2] != after[2]:
            kept += [state for state in (before, after) if state != kept[-1]]
    return kept


@pytest.mark.parametrize(
    ("version", "code", "outcome", "golden"),
    [
        ("4.0.2", 1, "loss", LOSS),
        pytest.param("4.1.2", 0, "ok", CURE, marks=pytest.mark.long),
        pytest.param("3.9.1", 1, "loss", LOSS, marks=pytest.mark.long),
        pytest.param("4.4.0", 0, "ok", CURE, marks=pytest.mark.long),
    ],
)
def test_the_last_replica_standing_bug_of_a_released_version(
    engine: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    version: str,
    code: int,
    outcome: str,
    golden: list[State],
) -> None:
    kafka_or_skip(version)
    system = f"apache-kafka:{version}"
    words = ("reproduce", "last-replica-standing", "--on", "docker", "--system", system)
    found, output = run(capsys, tmp_path, *words)
    assert (output["outcome"], output["predicted"]) == (outcome, outcome), output["reasons"]
    assert found == code
    assert (output["system"], output["version"]) == ("apache-kafka", version)
    states = read_tables(Path(output["directory"]))["partition_states"].to_pylist()
    states = sorted(states, key=lambda state: state["metadata_offset"])
    states = [state for state in states if state["topic"] == "t"]
    assert [state["partition_epoch"] for state in states] == [*range(len(states))]
    trace = [(state["leader"], set(state["isr"]), state["leader_epoch"]) for state in states]
    assert around_elections(trace)[: len(golden)] == golden
    assert output["environment"].get("left_behind", []) == []


@pytest.mark.long
def test_a_released_version_loses_a_record_although_no_broker_loses_data(
    engine: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """B-69: the leader forgets a proposal that is in force, and a member of the ISR lacks what it acknowledges."""
    kafka_or_skip("4.4.0")
    words = ("--variant", "B-69", "--on", "docker", "--system", "apache-kafka:4.4.0")
    code, output = run(capsys, tmp_path, "reproduce", "kafka-bug", *words)
    assert (output["outcome"], output["predicted"], code) == ("loss", "loss", 1), output["reasons"]
    assert output["unexcused_lost_records"] == 1
    tables = read_tables(Path(output["directory"]))
    assert not any(row["can_lose_data"] for row in tables["faults"].to_pylist())
    last = max(tables["partition_states"].to_pylist(), key=lambda state: state["metadata_offset"])
    assert (last["leader"], last["leader_epoch"]) == (2, 1)
    assert not last["flagged"]
