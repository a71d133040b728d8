"""Bugs of Apache Kafka as scenarios on the reference system, which does not have them."""

from dataclasses import replace

import pytest

from harness.runs.judge import judge_result
from harness.runs.scripted import scenario_experiment
from harness.runs.simulated import simulate
from harness.scenarios import find_scenario
from harness.scenarios.kafka_bugs import VARIANTS
from harness.scenarios.outcome import outcome_word, predicted_outcome
from harness.systems.reference.adapter import SYSTEM


def test_a_clock_that_steps_back_does_not_keep_controllers_from_an_election() -> None:
    scenario = find_scenario("kafka-bug", "raft-timers")
    experiment = scenario_experiment(scenario, "kafka-4.1")
    result = simulate(experiment, 1)
    verdict, _ = judge_result(experiment, 1, result)
    assert result.stuck == ""
    faults = {row["fault_id"]: row for row in result.tables["faults"].to_pylist()}
    assert all(faults[name]["took_effect"] for name in ("ahead", "kill-active", "start-killed"))
    assert faults["start-killed"]["resolved"] == faults["kill-active"]["resolved"]
    assert outcome_word(verdict) == "ok"
    assert predicted_outcome(scenario, "elr-on") == "ok"


@pytest.mark.parametrize("profile", ["kafka-3.4", "kafka-4.0", "kafka-4.1"])
@pytest.mark.parametrize("variant", ["B-48", "B-48r"])
def test_a_changed_min_isr_of_a_leaderless_partition_does_not_prevent_its_recovery(
    variant: str, profile: str
) -> None:
    scenario = find_scenario("kafka-bug", variant)
    experiment = scenario_experiment(scenario, profile)
    result = simulate(experiment, 1)
    verdict, _ = judge_result(experiment, 1, result)
    assert result.stuck == ""
    altered = [row for row in result.tables["faults"].to_pylist() if row["fault_id"] == "min-isr"]
    assert [row["took_effect"] for row in altered] == [True]
    expected = "ok" if profile == "kafka-4.1" else "loss"
    assert outcome_word(verdict) == expected
    assert predicted_outcome(scenario, SYSTEM.profiles[profile].outcome_family) == expected


@pytest.mark.parametrize(("profile", "expected"), [("kafka-4.0", "loss"), ("kafka-4.1", "ok")])
def test_a_member_of_the_elr_that_was_stopped_while_it_started_leads(
    profile: str, expected: str
) -> None:
    scenario = find_scenario("kafka-bug", "B-68")
    experiment = scenario_experiment(scenario, profile)
    result = simulate(experiment, 1)
    verdict, _ = judge_result(experiment, 1, result)
    assert outcome_word(verdict) == expected
    assert predicted_outcome(scenario, SYSTEM.profiles[profile].outcome_family) == expected
    registered = [
        row["clean"]
        for row in result.tables["broker_states"].to_pylist()
        if row["broker"] == 2 and row["change"] == "registered"
    ]
    # Once when the cluster began, then for the start that was interrupted, and for the next one.
    assert registered == [False, True, True]


@pytest.mark.parametrize("profile", ["kafka-4.0", "kafka-4.1"])
@pytest.mark.parametrize(("without", "expected"), [((), "ok"), (("LEAD-6",), "loss")])
def test_news_of_an_isr_change_do_not_cancel_the_next_one(
    profile: str, without: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the rule, as in Kafka, an acknowledged record is lost although no broker loses data."""
    scenario = find_scenario("kafka-bug", "B-69")
    changed = replace(scenario, disabled_rules=without, is_watched=not without)
    monkeypatch.setitem(VARIANTS, "B-69", changed)
    experiment = scenario_experiment(changed, profile)
    result = simulate(experiment, 1)
    verdict, _ = judge_result(experiment, 1, result)
    assert result.stuck == ""
    assert outcome_word(verdict) == expected
    assert predicted_outcome(scenario, SYSTEM.profiles[profile].outcome_family) == "ok"
