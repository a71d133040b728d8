"""Apache Kafka on two hosts over SSH that have neither Java nor Kafka before."""

import json
from pathlib import Path
from typing import Any

import pytest
from pace import slower

from harness.cli.main import main
from results.history_files import read_tables
from tests.kafka_jars import kafka_or_skip

# Some minutes, most of them for copying and starting Java.
pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

CLOCKS = """
name = "clocks"
on = "ssh"
system = "apache-kafka"
version = "4.0.2"
timings = "fast"
duration_ms = 7500
[workload]
processes = 3
appends_per_s = 20.0
[[schedule]]
fault = "clock_step"
targets = ["follower:t-0", "active_controller"]
at_ms = 300
for_ms = 1500
params = { ms = -60000 }
[[schedule]]
fault = "clock_drift"
targets = ["follower:t-0", "one_controller"]
at_ms = 2500
for_ms = 2000
params = { ppm = 200000 }
[[schedule]]
fault = "clock_strobe"
targets = ["follower:t-0", "one_controller"]
at_ms = 5000
for_ms = 2000
params = { ms = 500, period_ms = 100 }
"""


def call(
    capsys: pytest.CaptureFixture[str], results: Path, *words: object
) -> tuple[int, dict[str, Any]]:
    options = ("--no-spark", "--quiet", "--json", "--results", results)
    code = main([str(word) for word in (*words, *options)])
    output: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, output


def test_the_bug_reproduces_on_hosts_that_had_nothing(
    hosts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka_or_skip("4.0.2")
    words = ("reproduce", "last-replica-standing", "--on", "ssh", "--hosts", hosts)
    code, output = call(capsys, tmp_path, *words, "--system", "apache-kafka:4.0.2")
    assert (code, output["outcome"], output["predicted"]) == (1, "loss", "loss"), output["reasons"]
    assert output["environment"]["left_behind"] == []


def test_clocks_of_brokers_and_controllers_move_on_hosts(
    hosts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka_or_skip("4.0.2")
    path = tmp_path / "clocks.toml"
    path.write_text(CLOCKS)
    for times in (1, 2, 3):
        # On a busy machine no follower may be in the ISR again when the next fault looks for one.
        paced = slower(path, tmp_path / f"slower-{times}", times)
        code, output = call(capsys, tmp_path / "runs", "run", paced, "--hosts", hosts)
        faults = read_tables(Path(output["directory"]))["faults"].to_pylist()
        if all(row["resolved"] for row in faults):
            break
    assert (code, output["verdict"]) == (0, "valid"), output["reasons"]
    assert [row["fault"] for row in faults] == ["clock_step", "clock_drift", "clock_strobe"]
    for row in faults:
        assert row["took_effect"], row
        assert {name[0] for name in row["resolved"]} == {"b", "c"}, row
    assert output["environment"]["left_behind"] == []


def test_the_proxies_change_messages_on_hosts(
    hosts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Several nodes of one host, each with its proxy; the hosts have only what the harness copied."""
    kafka_or_skip("4.0.2")
    example = Path(__file__).parents[2] / "examples" / "faults-on-messages-of-kafka.toml"
    words = ("run", example, "--on", "ssh", "--hosts", hosts, "--system", "apache-kafka:4.0.2")
    code, output = call(capsys, tmp_path / "runs", *words, "--seed", "1")
    assert (code, output["verdict"]) == (0, "valid"), output["reasons"]
    assert output["environment"]["left_behind"] == []
    rows = read_tables(Path(output["directory"]))["faults"].to_pylist()
    assert {row["fault_id"]: row["took_effect"] for row in rows} == dict.fromkeys(
        (row["fault_id"] for row in rows), True
    )
    assert len(rows) == 8
