"""The last member of the ISR loses the end of its log on its disk, and returns.

Two brokers that hold every acknowledged record leave the ISR, one after the other. The one that is left is
killed, and its log is cut off. Without eligible leader replicas it leads again, with the shorter log, and the
others truncate to match. With them, one of the others leads, and the broker fetches what it lost.
"""

import pytest

from harness.contracts.verdict import Judgement, Verdict
from harness.runs.experiment import Experiment
from harness.runs.judge import judge_result
from harness.runs.simulated import simulate
from nemesis.fault import Fault
from workloads.append_config import AppendConfig

SCHEDULE = (
    Fault(
        id="first",
        fault="isolate",
        targets=("isr_follower:t-0",),
        at_ms=1500,
        for_ms=5000,
        params={"planes": ("inter-broker",)},
    ),
    Fault(
        id="second",
        fault="isolate",
        targets=("isr_follower:t-0",),
        at_ms=2500,
        for_ms=4000,
        params={"planes": ("inter-broker",)},
    ),
    Fault(
        id="cut-off",
        fault="truncate_file",
        targets=("last_in_isr:t-0",),
        at_ms=5000,
        for_ms=2500,
        params={"bytes": 1 << 20},
    ),
)


def verdict_of(profile: str, seed: int) -> Verdict:
    """Runs the schedule, checks that every fault took effect, and returns the verdict."""
    experiment = Experiment(
        name="truncated-log",
        profile=profile,
        timings="fast",
        weather="calm",
        duration_ms=9000,
        schedule=SCHEDULE,
        workload=AppendConfig(processes=3, appends_per_s=60.0, polls_per_s=20.0),
    )
    result = simulate(experiment, seed)
    assert result.stuck == ""
    assert result.violations == []
    rows = {row["fault_id"]: row for row in result.tables["faults"].to_pylist()}
    assert all(row["took_effect"] and row["healed_ns"] for row in rows.values())
    assert len(rows["cut-off"]["resolved"]) == 1
    verdict, _ = judge_result(experiment, seed, result)
    return verdict


@pytest.mark.parametrize("seed", range(2))
def test_without_elr_the_last_replica_loses_the_truncated_records(seed: int) -> None:
    verdict = verdict_of("kafka-4.0", seed)
    assert verdict.validity == "invalid"
    assert verdict.unexcused_lost_records > 0
    forbidden = {a.id for a in verdict.anomalies if a.judgement is Judgement.FORBIDDEN}
    assert "lost-acked-write" in forbidden


@pytest.mark.parametrize("seed", range(2))
def test_with_elr_the_last_replica_fetches_the_end_of_its_log_from_the_others(seed: int) -> None:
    verdict = verdict_of("kafka-4.1", seed)
    assert verdict.validity == "valid"
    assert verdict.unexcused_lost_records == 0
