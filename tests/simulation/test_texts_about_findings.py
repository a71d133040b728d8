"""The experiments beside the texts about findings show what the texts state."""

from pathlib import Path

import pytest

from harness.contracts.verdict import Judgement, Validity
from harness.runs import experiment_file as experiments
from harness.runs.judge import judge_result
from harness.runs.simulated import simulate

FOLDER = Path(__file__).parents[2] / "docs" / "findings"


@pytest.mark.parametrize(
    ("disk", "validity"), [("posix-strict", Validity.INVALID), ("ext4", Validity.VALID)]
)
def test_recovery_keeps_truncated_records_where_an_fsync_makes_one_file_durable(
    disk: str, validity: Validity
) -> None:
    path = FOLDER / "recovery-keeps-truncated-records.toml"
    experiment = experiments.vary(experiments.load(path), "cluster.disk", disk)
    seed = 101693682364654
    verdict, _ = judge_result(experiment, seed, simulate(experiment, seed))
    assert verdict.validity == validity
    found = {anomaly.id for anomaly in verdict.anomalies}
    assert ("divergent-replicas" in found) == (validity == Validity.INVALID)


@pytest.mark.long
@pytest.mark.parametrize(("seed", "anomaly"), [(10, "divergent-replicas"), (107, "stuck")])
def test_kept_records_show_in_the_example_with_power_cuts(seed: int, anomaly: str) -> None:
    experiment = experiments.load(FOLDER.parents[1] / "examples" / "power-cuts.toml")
    verdict, _ = judge_result(experiment, seed, simulate(experiment, seed))
    forbidden = {one.id for one in verdict.anomalies if one.judgement == Judgement.FORBIDDEN}
    assert forbidden == {anomaly}
    experiment = experiments.vary(experiment, "cluster.disk", "ext4")
    verdict, _ = judge_result(experiment, seed, simulate(experiment, seed))
    assert verdict.validity == Validity.VALID
