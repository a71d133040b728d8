"""The last-replica-standing bug in containers, with the committed metadata that the simulation shows."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main
from results.history_files import read_tables
from results.layout import RunFiles
from results.message_table import read_messages

GOLDEN = {
    # leader, ISR, ELR, last-known ELR, leader epoch, partition epoch, for V3a
    "kafka-4.0": [
        (1, {1, 2, 3}, set(), (), 0, 0),
        (1, {1, 3}, set(), (), 0, 1),
        (1, {1}, set(), (), 0, 2),
        (-1, {1}, set(), (), 1, 3),
        (1, {1}, set(), (), 2, 4),
    ],
    "kafka-4.1": [
        (1, {1, 2, 3}, set(), (), 0, 0),
        (1, {1, 3}, set(), (), 0, 1),
        (1, {1}, {3}, (), 0, 2),
        (-1, set(), {1, 3}, (1,), 1, 3),
        (-1, set(), {3}, (1,), 1, 4),
        (3, {3}, set(), (), 2, 5),
    ],
}


def reproduce(tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code = main(
        [
            *("reproduce", "last-replica-standing", "--no-spark", "--quiet", "--json"),
            *("--results", str(tmp_path / "runs"), *words),
        ]
    )
    output: dict[str, Any] = json.loads(capsys.readouterr().out)
    output["exit_code"] = code
    return output


@pytest.mark.parametrize(
    ("profile", "outcome"),
    [pytest.param("kafka-4.0", "loss", marks=pytest.mark.long), ("kafka-4.1", "ok")],
)
def test_containers_show_the_golden_trace(
    profile: str, outcome: str, engine: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = reproduce(tmp_path, capsys, "--variant", "V3a", "--on", "docker", "--profile", profile)
    assert output["outcome"] == outcome == output["predicted"]
    assert output["exit_code"] == (1 if outcome == "loss" else 0)
    states = read_tables(Path(output["directory"]))["partition_states"].to_pylist()
    trace = [
        (
            state["leader"],
            set(state["isr"]),
            set(state["elr"]),
            tuple(state["last_known_elr"]),
            state["leader_epoch"],
            state["partition_epoch"],
        )
        for state in sorted(states, key=lambda state: state["metadata_offset"])
    ]
    assert trace[: len(GOLDEN[profile])] == GOLDEN[profile]
    # A controller sent metadata to the isolated broker, or that sent a heartbeat, and it did not arrive before
    # the network was healed.
    messages, _ = read_messages(RunFiles(Path(output["directory"])).recorded_messages)
    assert any(
        one["lost"] or one["arrived_ns"] - one["sent_ns"] > 200_000_000
        for one in messages
        if "b2" in (one["src"], one["dst"])
        and one["sent_ns"]
        and (one["lost"] or one["arrived_ns"])
    )


@pytest.mark.long
def test_a_simulated_finding_is_confirmed_in_containers(
    engine: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated = reproduce(tmp_path, capsys, "--profile", "kafka-4.0")
    words = ["replay", simulated["run"], "--on", "docker", "--attempts", "1", "--json", "--quiet"]
    code = main([*words, "--no-spark", "--results", str(tmp_path / "runs")])
    output = json.loads(capsys.readouterr().out)
    assert (code, output["finding"], output["result"]) == (1, "loss", "confirmed 1 of 1")
