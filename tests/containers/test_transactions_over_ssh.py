"""The workload `transactions` on two hosts over SSH, on both systems."""

import json
from pathlib import Path

import pytest

from harness.cli.main import main
from tests.kafka_jars import kafka_or_skip

# Some minutes, most of them for copying and starting Java.
pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

VERSION = "4.0.2"
# The faults last long enough for an acknowledgement on a machine that does much else.
EXPERIMENT = """
name = "transactions"
on = "ssh"
timings = "fast"
duration_ms = 14000
[properties]
"log.flush.interval.messages" = "1"
[topic]
count = 2
partitions = 2
[workload]
name = "transactions"
client = "native"
abort_share = 0.3
zombie_share = 0.1
[[schedule]]
fault = "power"
targets = ["b1"]
at_ms = 1000
for_ms = 4000
[[schedule]]
fault = "isolate"
targets = ["b2"]
at_ms = 8000
for_ms = 4000
"""


@pytest.mark.parametrize("system", ["reference", f"apache-kafka:{VERSION}"])
def test_transactions_survive_a_power_cut_and_an_isolation_on_hosts(
    system: str, hosts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if system != "reference":
        kafka_or_skip(VERSION)
    path = tmp_path / "transactions.toml"
    path.write_text(EXPERIMENT)
    words = ["run", path, "--system", system, "--seed", "3", "--hosts", hosts]
    options = ["--no-spark", "--quiet", "--json", "--results", tmp_path / "runs"]
    code = main([str(word) for word in (*words, *options)])
    output = json.loads(capsys.readouterr().out)
    assert (code, output["verdict"]) == (0, "valid"), output["reasons"]
    verdict = json.loads((Path(output["directory"]) / "verdict.json").read_text())
    counted = verdict["coverage"]
    assert counted["producer_transactions_committed"] > 10
    assert counted["producer_transactions_aborted"] > 3
    assert counted["positions_committed"] > 0
    assert output["environment"]["left_behind"] == []
