"""The experiments beside the texts about findings show what the texts state."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.contracts.verdict import Judgement, Validity
from harness.runs import experiment_file as experiments
from harness.runs.judge import judge_result
from harness.runs.simulated import simulate
from tests.evidence.known_finding import keeping_pages_dirty, pages_were_lost

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


def test_what_a_failed_fsync_left_in_the_page_cache_is_lost_unless_the_kernel_keeps_it_dirty() -> (
    None
):
    experiment = experiments.load(FOLDER / "page-cache-after-a-failed-fsync.toml")
    verdict, _ = judge_result(experiment, 1, simulate(experiment, 1))
    assert (verdict.validity, verdict.unexcused_lost_records) == (Validity.INVALID, 275)
    assert pages_were_lost(experiment, 1)
    with keeping_pages_dirty():
        verdict, _ = judge_result(experiment, 1, simulate(experiment, 1))
        assert not pages_were_lost(experiment, 1)
    assert verdict.unexcused_lost_records == 0
    # The power cut took nothing.
    assert verdict.reasons == ("the fault 'power' never took effect (f4 power: it met no target)",)


def test_the_monitor_sees_that_a_member_of_the_elr_has_lost_pages() -> None:
    experiment = experiments.load(FOLDER / "page-cache-after-a-failed-fsync.toml")
    result = simulate(replace(experiment, check_invariants=True), 1)
    assert result.violations
    assert all("INV-2" in one for one in result.violations)


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
