"""A cluster that administrators change under load, with failing log directories and metadata snapshots.

The experiment is `examples/cluster-changes.toml`, which a job of the default night has as well.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from harness.campaigns.nightly_plan import load_nightly
from harness.contracts.verdict import Judgement
from harness.runs import experiment_file as experiments
from harness.runs.judge import judge_result
from harness.runs.planned import planned_schedule
from harness.runs.simulated import simulate

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster-changes.toml"
CHANGES = experiments.load(EXAMPLE)


def test_the_night_has_the_experiment_of_the_example() -> None:
    (job,) = (job for job in load_nightly(None) if job.name == "cluster-changes")
    assert replace(job.experiment, name=CHANGES.name) == CHANGES


def test_its_schedules_have_every_change_and_failed_directories() -> None:
    drawn = Counter(
        (fault.fault, fault.params.get("election", ""))
        for seed in range(40)
        for fault in planned_schedule(CHANGES, seed)
    )
    assert set(drawn) == {
        *(("alter_config", ""), ("reassign", ""), ("move_replica", ""), ("log_dir_error", "")),
        *(("elect_leader", ""), ("elect_leader", "unclean"), ("power", ""), ("kill", "")),
        *(("isolate", ""), ("cut", ""), ("stop", ""), ("pause", "")),
    }
    assert all(drawn[name, ""] >= 10 for name in ("reassign", "move_replica", "log_dir_error"))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_changes_lose_no_record_without_excuse_and_controllers_write_snapshots(seed: int) -> None:
    result = simulate(CHANGES, seed)
    assert result.stuck == ""
    assert result.violations == []
    verdict, _ = judge_result(CHANGES, seed, result)
    assert verdict.unexcused_lost_records == 0
    assert [one for one in verdict.anomalies if one.judgement == Judgement.FORBIDDEN] == []
    marks = result.tables["marks"].column("mark").to_pylist()
    assert marks.count("metadata-snapshot-written") >= 3
