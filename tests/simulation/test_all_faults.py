"""Random faults of every kind: with ELR nothing is lost without an excuse, and no checker or harness fails.

The experiment is `examples/all-faults.toml`. A run in which some fault never took effect is unknown and not
invalid: with twenty-six families in twenty seconds, some come once and meet nothing.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.contracts.verdict import Judgement, Verdict
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment
from harness.runs.judge import judge_result
from harness.runs.simulated import simulate
from nemesis.administration import ACTIONS
from nemesis.faults import FAULT_NAMES
from nemesis.schedule import FAMILIES
from tests.parts import parts

STORM = experiments.load(Path(__file__).parents[2] / "examples" / "all-faults.toml")


def run_seed(experiment: Experiment, seed: int) -> tuple[Verdict, list[dict[str, Any]]]:
    """Returns the verdict and the last row of every fault."""
    result = simulate(experiment, seed)
    assert result.stuck == ""
    assert result.violations == []
    verdict, _ = judge_result(experiment, seed, result)
    rows = {row["fault_id"]: row for row in result.tables["faults"].to_pylist()}
    return verdict, list(rows.values())


def test_the_experiment_has_every_family() -> None:
    assert set(STORM.nemesis.faults) == set(FAMILIES)
    assert STORM.on == "simulation"
    assert STORM.duration_ms == 20_000


@pytest.mark.parametrize("weather", ["light", "stormy"])
@pytest.mark.parametrize("seed", parts(range(15), quick=2))
def test_with_elr_random_faults_lose_no_record_without_excuse(seed: int, weather: str) -> None:
    verdict, _ = run_seed(replace(STORM, weather=weather), seed)
    assert verdict.unexcused_lost_records == 0
    assert [a for a in verdict.anomalies if a.judgement == Judgement.FORBIDDEN] == []
    assert all("never took effect" in reason for reason in verdict.reasons)


@pytest.mark.slow
@pytest.mark.long  # half a minute of processor time
def test_without_elr_some_random_faults_lose_records_and_no_harness_error_hides_it() -> None:
    """Every fault that was drawn often took effect, and most faults with affected nodes took effect."""
    losing, drawn, hit, bit = [], Counter[str](), Counter[str](), Counter[str]()
    for seed in range(30):
        verdict, rows = run_seed(replace(STORM, profile="kafka-4.0"), seed)
        if verdict.unexcused_lost_records:
            losing.append(seed)
            assert verdict.validity == "invalid"
        else:
            assert all("never took effect" in reason for reason in verdict.reasons)
        drawn.update(row["fault"] for row in rows)
        hit.update(row["fault"] for row in rows if row["resolved"])
        bit.update(row["fault"] for row in rows if row["took_effect"])
    assert len(losing) >= 3
    assert set(drawn) == set(FAULT_NAMES) - {
        *("start", "heal", "truncate_file", "log_dir_error", "wipe_log_dir", *ACTIONS),
        "stall_metadata",
        *(name for name in FAULT_NAMES if name.endswith("_messages")),
    }
    assert all(bit[fault] for fault in drawn if drawn[fault] >= 5)
    assert bit.total() > 0.9 * hit.total()
