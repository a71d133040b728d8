"""Metrics of real nodes: over HTTP for Prometheus, and recorded in a run."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from wire_helpers import eventually

from harness.cli.main import main
from results.layout import RunFiles

pytestmark = pytest.mark.wire

LEADERS = "kafka_server_replicamanager_leadercount"
ACTIVE = "kafka_controller_kafkacontroller_activecontrollercount"
EXPERIMENT = """
name = "metrics"
on = "local"
duration_ms = 4000

[topic]
partitions = 2

[workload]
name = "append"

[[schedule]]
fault = "kill"
targets = ["b1"]
at_ms = 500
for_ms = 1500
"""


def read(url: str) -> dict[str, float]:
    """Returns the values of a node by series."""
    with urllib.request.urlopen(url, timeout=30) as response:  # an address on loopback
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        lines = response.read().decode().splitlines()
    pairs = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {series: float(value) for series, _, value in pairs}


def test_every_node_serves_its_metrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = ["--directory", str(tmp_path / "cluster")]
    words = ["up", "--timings", "fast", "--controllers", "1", "--metrics", "--json"]
    assert main(["cluster", *words, *directory]) == 0
    try:
        urls = json.loads(capsys.readouterr().out)["metrics"]
        assert set(urls) == {"b1", "b2", "b3", "c11"}
        found: dict[str, Any] = {name: read(url) for name, url in urls.items()}
        assert found["c11"][ACTIVE] == 1
        assert found["c11"]["kafka_controller_kafkacontroller_activebrokercount"] == 3
        for name in ("b1", "b2", "b3"):
            assert found[name]["kafka_server_kafkaserver_brokerstate"] == 3
            assert LEADERS in found[name]
        assert main(["cluster", "kill", "b1", *directory]) == 0
        fenced = "kafka_controller_kafkacontroller_fencedbrokercount"
        eventually(lambda: read(urls["c11"])[fenced] == 1)
    finally:
        assert main(["cluster", "down", *directory]) == 0


@pytest.mark.long
def test_a_run_records_them_and_the_report_draws_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(EXPERIMENT)
    store = tmp_path / "runs"
    assert main(["run", str(path), "--seed", "1", "--results", str(store), "--quiet"]) == 0
    (directory,) = (store / "metrics").iterdir()
    lines = [json.loads(line) for line in RunFiles(directory).metrics.read_text().splitlines()]
    first: dict[str, Any] = {}
    for line in lines:
        first.setdefault(line["node"], line)
    assert set(first) == {"b1", "b2", "b3", "c11", "c12", "c13"}
    assert all(LEADERS in first[name]["values"] for name in ("b1", "b2", "b3"))
    of_killed = [line for line in lines if line["node"] == "b1"]
    down = next(index for index, line in enumerate(of_killed) if line.get("down"))
    again = of_killed[down + 1]
    assert LEADERS in again["values"], "the first line after a start has all values"
    assert [line["at_ns"] for line in of_killed] == sorted(line["at_ns"] for line in of_killed)
    page = RunFiles(directory).report.read_text()
    assert 'id="metrics"' in page
    assert "under-replicated partitions, per leader" in page
    capsys.readouterr()
