"""Whole runs with confluent-kafka as the client: recorded, healed, read to the end, judged like any other."""

import json
from pathlib import Path

import pytest

from harness.cli.main import main

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
pytestmark = pytest.mark.wire

EXPERIMENT = """
on = "local"
timings = "fast"
duration_ms = 8000
final_phase_ms = 60000

[topic]
partitions = 2
replication_factor = 3
min_insync_replicas = 2

[workload]
name = "consumer-group"
client = "confluent"
processes = 3
acks = ["all", "all", "1"]
members = 2

[[schedule]]
fault = "kill"
targets = ["leader:t-0"]
at_ms = 1500
for_ms = 1500

[[schedule]]
fault = "kill"
targets = ["active_controller"]
at_ms = 5000
for_ms = 1000
"""


def test_a_run_with_the_confluent_client_and_a_group_is_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "clients.toml"
    path.write_text(EXPERIMENT, encoding="utf-8")
    results = tmp_path / "runs"
    arguments = ["run", str(path), "--seed", "5", "--results", str(results)]
    code = main([*arguments, "--no-spark", "--quiet", "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert code == 0, printed
    stored = json.loads((results / "latest" / "run.json").read_text(encoding="utf-8"))
    assert stored["verdict"] == "valid"
    assert stored["violations"] == []
    # The group did something, and survived the death of a broker and of a controller.
    assert stored["counters"]["group_assignments"] >= 2
    assert stored["counters"]["group_commits"] >= 5
    assert stored["counters"]["group_records"] >= 50
    assert stored["faults"] == 2


def test_a_simulation_refuses_real_clients(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in ('client = "confluent"', 'name = "consumer-group"'):
        path = tmp_path / "wrong.toml"
        path.write_text(f"[workload]\n{line}\n", encoding="utf-8")
        assert main(["run", str(path), "--quiet"]) == 254
        assert "cannot live in a simulation" in capsys.readouterr().err
