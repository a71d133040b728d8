"""Real nodes record their messages: both ends match, a message that nobody read is lost, faults move no time."""

import time
from pathlib import Path

import pytest
from wire_helpers import eventually

from harness.contracts.messages import MESSAGES_FILE
from harness.environments.local.standing import LocalCluster, local_settings
from harness.runs.experiment import Experiment
from harness.runs.message_matching import Row, match_messages
from harness.runs.real import run_real
from harness.systems.reference.message_log import MESSAGE_FILES, recorded_messages
from nemesis.fault import Fault
from results.layout import RunFiles
from results.message_table import read_messages
from system_under_test.real.clock import write_skew
from workloads.append_config import AppendConfig

pytestmark = pytest.mark.wire

HOUR_NS = 3_600_000_000_000
LONGEST_NS = 60_000_000_000
"""A message takes longer only if times are wrong: the faults are as long as the whole run."""


class MachineClock:
    """The monotonic clock of this machine."""

    def of_monotonic(self, at_ns: int) -> int:
        return at_ns

    def of_wall(self, wall_ms: int, not_before_ns: int) -> int:
        raise AssertionError("the reference system writes no wall clock")


def rows_of(cluster: LocalCluster) -> list[Row]:
    """Returns what the nodes of a running cluster have recorded so far."""
    placed = cluster.placed_nodes()
    recorded = {}
    for node in placed:
        paths = [cluster.nodes[node.name].directory / name for name in MESSAGE_FILES]
        files = {path.name: path.read_bytes() for path in paths if path.exists()}
        recorded[node.name] = recorded_messages(node, placed, files, MachineClock())
    return match_messages(recorded)


def run_experiment(directory: Path, *schedule: Fault, switch: str = "auto") -> Path:
    experiment = Experiment(
        name="messages",
        on="local",
        duration_ms=4000,
        record_messages=switch,
        workload=AppendConfig(processes=3, appends_per_s=100, polls_per_s=20),
        schedule=schedule,
    )
    run_real(experiment, 1, directory=directory)
    assert list((directory / "nodes").glob(f"*/{MESSAGES_FILE}*")) == []
    return RunFiles(directory).recorded_messages


def test_a_run_records_both_ends_and_what_was_lost(tmp_path: Path) -> None:
    paused = Fault(id="f1", fault="pause", targets=("b2",), at_ms=1000, for_ms=2500)
    killed = Fault(id="f2", fault="kill", targets=("b2",), at_ms=2000, for_ms=1000)
    rows, remarks = read_messages(run_experiment(tmp_path, paused, killed))
    assert remarks == ()
    whole = [row for row in rows if None not in (row["sent_ns"], row["arrived_ns"])]
    kinds = {row["kind"] for row in whole}
    assert {"fetch", "heartbeat", "metadata", "AlterPartition"} <= kinds
    assert all(0 < row["arrived_ns"] - row["sent_ns"] < LONGEST_NS for row in whole)
    assert {row["src"] for row in whole} == {"b1", "b2", "b3", "c11", "c12", "c13"}
    produced = [row for row in rows if row["kind"] == "produce"]
    assert {None in (row["sent_ns"], row["arrived_ns"]) for row in produced} == {True}
    assert not any(row["lost"] for row in produced)
    # The leader sent records to the paused follower, which was killed before it could read them.
    lost = [row for row in rows if row["lost"] and row["kind"] == "fetch"]
    assert "b2" in {row["dst"] for row in lost}


@pytest.mark.long
def test_a_run_records_nothing_if_the_experiment_says_so(tmp_path: Path) -> None:
    assert not run_experiment(tmp_path, switch="off").exists()


def test_times_are_true_while_a_fault_skews_a_clock(tmp_path: Path) -> None:
    settings = local_settings(timings="fast", with_messages=True)
    with LocalCluster.create(tmp_path, brokers=1, controllers=1, settings=settings) as cluster:
        cluster.start()
        cluster.wait_ready(60)
        skewed_ns = time.monotonic_ns()
        skew_file = cluster.nodes["b1"].directory / "skew"
        write_skew(skew_file, offset_ns=HOUR_NS, rate_ppb=1_000_000_000)

        def heartbeats() -> list[Row]:
            return [
                row
                for row in rows_of(cluster)
                if row["src"] == "b1"
                and row["kind"] == "heartbeat"
                and (row["sent_ns"] or 0) > skewed_ns
                and row["arrived_ns"] is not None
            ]

        eventually(lambda: len(heartbeats()) >= 3)
        found = heartbeats()
        now_ns = time.monotonic_ns()
    assert all(row["sent_ns"] < row["arrived_ns"] < now_ns for row in found)
