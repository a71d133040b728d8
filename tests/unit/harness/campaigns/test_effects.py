"""When a campaign is unknown: a fault took effect in fewer than half of its runs, or a run has no verdict."""

from dataclasses import replace
from typing import Any

import pytest

from checkers.idle_faults import never_took_effect
from checkers.kernels.compose import judge_run
from harness import exit_codes
from harness.campaigns.effects import SEEDS_LISTED_MAX, CampaignEffects, row_of_effects
from harness.campaigns.listing import worst_verdict
from harness.campaigns.totals import ArmTotals
from harness.campaigns.worker import failed_row
from harness.cli.campaigns import _exit_code
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Validity, Verdict
from harness.runs.experiment import Experiment, NemesisConfig
from nemesis.fault import Fault
from tests.anomalies.runs import append, fault, run
from tests.unit.harness.campaigns.fake_crew import made_up_row

TOO_FEW = (
    "only 0 appends and commits were acknowledged while a fault was in force; at least 1 are needed"
    " for the faults to have tested anything"
)


def row(seed: int, *, cut: bool = True, reason: str = "", **values: Any) -> dict[str, Any]:
    """The row of a run with the fault "cut"; unknown if it had no effect, or for this reason."""
    families = {"cut": cut, "pause": True}
    request = {"seed": seed, "arm": "a", "run": f"arm-1/x-{seed}", "experiment": {}}
    verdict = "valid" if cut and not reason else "unknown"
    reasons = [one for one in ("" if cut else never_took_effect("cut"), reason) if one]
    found = {"verdict": verdict, "reasons": reasons, "unknown_reason": reason}
    return made_up_row(request, **{"fault_families": families, **found, **values})


def effects_of(*rows: dict[str, Any]) -> CampaignEffects:
    effects = CampaignEffects()
    for one in rows:
        effects.add(one)
    return effects


def result_of(*rows: dict[str, Any]) -> dict[str, Any]:
    totals = ArmTotals()
    for one in rows:
        totals.add(one)
    return {"arms": [totals.to_json("a")]}


@pytest.mark.parametrize(("without", "code"), [(0, 0), (1, 0), (5, 0), (6, 2), (10, 2)])
def test_a_fault_must_take_effect_in_half_of_its_runs(without: int, code: int) -> None:
    result = result_of(*(row(seed, cut=seed >= without) for seed in range(10)))
    assert _exit_code(result, is_comparison=False) == code
    assert worst_verdict(result["arms"]) == {0: "valid", 2: "unknown"}[code]
    (arm,) = result["arms"]
    assert arm["unknown"] == without, "each such run stays unknown"
    assert arm["fault_families"]["cut"] == {"enabled": 10, "took_effect": 10 - without}
    if code:
        (reason,) = arm["unknown_reasons"]
        assert f"'cut' took effect in {10 - without} of the 10 runs" in reason
        assert "seeds 0, 1, 2, 3, 4, 5" in reason


def test_the_number_of_a_guided_run_is_not_called_its_seed() -> None:
    search = {"parent": 3, "operators": ["move"], "kinds": [], "root_seed": 3}
    good = [row(seed) for seed in range(3)]
    guided = row(33, reason="the final phase did not end as planned", search=search)
    (reason,) = effects_of(*good, guided, row(34, reason="x")).unknown_reasons
    assert "2 runs are unknown" in reason
    assert "(seeds 34, 3 (of the guided run 33))" in reason


def test_a_run_that_did_not_enable_a_fault_says_nothing_about_it() -> None:
    others = [row(seed, fault_families={"pause": True}) for seed in range(10)]
    effects = effects_of(*others, row(10), row(11, cut=False))
    assert effects.families["cut"] == {"enabled": 2, "took_effect": 1}
    assert effects.unknown_reasons == []
    (reason,) = effects_of(*others, row(10), row(11, cut=False), row(12, cut=False)).unknown_reasons
    assert "1 of the 3 runs" in reason
    assert reason.endswith("seeds 11, 12")


@pytest.mark.parametrize(("without", "code"), [(0, 0), (5, 0), (6, 2)])
def test_half_of_the_runs_must_have_tested_something(without: int, code: int) -> None:
    idle = {"verdict": "unknown", "reasons": [TOO_FEW], "tested_nothing": True}
    result = result_of(*(row(seed, **(idle if seed < without else {})) for seed in range(10)))
    assert _exit_code(result, is_comparison=False) == code
    assert result["arms"][0]["unknown"] == without, "each such run stays unknown"
    if code:
        (reason,) = result["arms"][0]["unknown_reasons"]
        assert "in 6 of the 10 runs too little was acknowledged" in reason
        assert reason.endswith("(seeds 0, 1, 2, 3, 4, 5)")


def test_an_invalid_run_has_tested_something() -> None:
    lost = {"verdict": "invalid", "reasons": [TOO_FEW], "tested_nothing": True}
    result = result_of(row(0, **lost))
    assert result["arms"][0]["unknown_reasons"] == []
    assert _exit_code(result, is_comparison=False) == exit_codes.INVALID


def test_one_run_that_is_unknown_for_another_reason_makes_the_campaign_unknown() -> None:
    good = [row(seed) for seed in range(100)]
    result = result_of(*good, row(100, reason="the final phase did not end as planned"))
    assert _exit_code(result, is_comparison=False) == exit_codes.UNKNOWN
    assert result["arms"][0]["unknown_reasons"] == [
        "1 run is unknown (seed 100), because: the final phase did not end as planned"
    ]
    assert result["arms"][0]["unknown_seed"] == 100
    assert result_of(*good)["arms"][0]["unknown_seed"] is None
    assert _exit_code(result_of(*good), is_comparison=False) == exit_codes.VALID
    assert _exit_code(result, is_comparison=True) == exit_codes.VALID


def test_the_reason_is_another_one_only_beside_runs_whose_faults_tested_nothing() -> None:
    good, idle = [row(seed) for seed in range(5)], row(5, cut=False)
    two = row(6, reason="it ended early"), row(7, reason="no leader")
    (reason,) = effects_of(*good, *two).unknown_reasons
    assert reason == "2 runs are unknown (seeds 6, 7), the first one because: it ended early"
    (reason,) = effects_of(*good, idle, two[0]).unknown_reasons
    assert reason == "1 run is unknown for another reason (seed 6), because: it ended early"


def test_invalid_runs_and_errors_come_first() -> None:
    lost = row(1, verdict="invalid", reasons=["gone"])
    unknown = row(2, reason="the run ended early")
    assert _exit_code(result_of(lost, unknown), is_comparison=False) == exit_codes.INVALID
    request = {"seed": 3, "arm": "a", "run": "arm-1/x-3", "experiment": {}}
    result = result_of(lost, unknown, failed_row(request, "it died"))
    assert _exit_code(result, is_comparison=False) == exit_codes.FAILURE


def test_only_the_first_seeds_are_named() -> None:
    rows = [row(seed, cut=False) for seed in range(SEEDS_LISTED_MAX + 1)]
    (reason,) = effects_of(*rows).unknown_reasons
    assert reason.endswith(f" {SEEDS_LISTED_MAX - 1} and others")
    assert f" {SEEDS_LISTED_MAX} and" not in reason


def test_rows_of_earlier_versions_are_unknown_for_their_first_reason() -> None:
    old = row(4, cut=False)
    del old["fault_families"], old["unknown_reason"]
    (reason,) = effects_of(old).unknown_reasons
    assert never_took_effect("cut") in reason


def test_what_a_row_states_comes_from_the_verdict() -> None:
    def stated(validity: Validity, *reasons: str) -> tuple[dict[str, bool], str]:
        coverage = {"fault_families": {"cut": False, "pause": True}}
        verdict = Verdict(validity=validity, reasons=reasons, coverage=coverage)
        row = row_of_effects(Experiment(), verdict)
        return row["fault_families"], row["unknown_reason"]

    families = {"cut": False, "pause": True}
    without = never_took_effect("cut")
    assert stated(Validity.UNKNOWN, without) == (families, "")
    assert stated(Validity.UNKNOWN, without, "it ended early") == (families, "it ended early")
    assert stated(Validity.UNKNOWN, never_took_effect("pause"))[1], "it did take effect"
    assert stated(Validity.INVALID, "gone", without) == (families, "")
    assert stated(Validity.VALID) == (families, "")


def test_a_run_that_tested_nothing_is_one_of_several() -> None:
    context = replace(RunContext(), acked_during_faults_min=1)
    verdict = judge_run(run([append(0, 0, at=1)], faults=[fault(2, "kill", ["b1"])]), context)
    assert TOO_FEW in verdict.reasons, "the sentence is that of the verdict"
    row = row_of_effects(Experiment(), verdict)
    assert row["tested_nothing"]
    assert row["unknown_reason"] != TOO_FEW


def test_drawn_administrative_actions_are_one_family() -> None:
    coverage = {"fault_families": {"cut": True, "elect_leader": False, "reassign": True}}
    verdict = Verdict(validity=Validity.VALID, coverage=coverage)

    def families(**keys: Any) -> dict[str, bool]:
        found: dict[str, bool] = row_of_effects(Experiment(**keys), verdict)["fault_families"]
        return found

    drawn = NemesisConfig(faults=("admin",))
    named = Fault(id="f0", fault="elect_leader", params={"partition": "t-0"})
    assert families(nemesis=drawn) == {"cut": True, "admin": True}
    assert families() == coverage["fault_families"], "without the family, each was asked for"
    assert families(nemesis=drawn, schedule=(named,)) == {
        "cut": True,
        "elect_leader": False,
        "admin": True,
    }
