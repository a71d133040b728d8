"""The last-replica-standing bug and its neighbours come out as predicted, in every profile.

The expected outcomes are those of the table of variants; the golden traces are the committed metadata
that the controllers must write, change by change.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from harness.contracts.verdict import Verdict
from harness.runs.experiment import Experiment
from harness.runs.judge import judge_result
from harness.runs.result import RunResult
from harness.runs.scripted import scenario_experiment
from harness.runs.simulated import simulate
from harness.scenarios import find_by_name
from harness.scenarios.elr_defects import DEFECTS, ELR_DEFECTS
from harness.scenarios.last_replica_standing import VARIANTS
from harness.scenarios.outcome import outcome_word, predicted_outcome
from harness.scenarios.steps import Wait
from harness.systems.reference.adapter import SYSTEM
from nemesis.fault import Fault

SEED = 1
NO_GATE, OFF, ON = PROFILES = ("kafka-3.6", "kafka-4.0", "kafka-4.1")

LOSS = ("loss", "loss", "ok")
NEGATIVE_CONTROL = ("loss", "loss", "loss(f)")
SAFE = ("ok", "ok", "ok")
EVERYWHERE = ("loss", "loss", "loss")
ONLY_WITH_ELR = ("ok", "ok", "loss")
OUTCOMES = {
    "V1": NEGATIVE_CONTROL,
    "V1b": NEGATIVE_CONTROL,
    "V2": LOSS,
    "V3a": LOSS,
    "V3b": LOSS,
    "V3c": LOSS,
    "V3d": LOSS,
    "V3e": LOSS,
    "V3f": LOSS,
    "V4": ("weak+visible", "weak", "weak"),
    "V4c": ("ok", "ok", "weak"),
    "V5": ("visible", "ok", "ok"),
    "V5b": SAFE,
    "V6": NEGATIVE_CONTROL,
    "V7": NEGATIVE_CONTROL,
    "V8": SAFE,
    "V9": NEGATIVE_CONTROL,
    "V9k": NEGATIVE_CONTROL,
    "V10a": LOSS,
    "V10b": LOSS,
    "V11a": ("ok", "ok", "visible"),
    "V11b": EVERYWHERE,
    "V11c": EVERYWHERE,
    "V11d": EVERYWHERE,
    "V11e": EVERYWHERE,
    "V11f": ONLY_WITH_ELR,
    "V11g": ONLY_WITH_ELR,
    "V11h": ONLY_WITH_ELR,
    "V11i": EVERYWHERE,
    "V11j": ONLY_WITH_ELR,
    "V11k": EVERYWHERE,
    "V11l": EVERYWHERE,
    "V12": ("loss(f)", "loss(f)", "ok"),
    "V12b": SAFE,
    "V12c": ("loss(f)", "loss(f)", "loss(f)"),
    "V13a": LOSS,
    "V13b": LOSS,
    "V13c": NEGATIVE_CONTROL,
}
"""Predicted with ELR off and no gate, ELR off, ELR on. Written out again, apart from the product's own table."""

REFUSES_APPENDS = {("V11i", NO_GATE)}
"""Partition 0 has one replica, and before 3.7 leaders do not limit min ISR to that."""


class Row(NamedTuple):
    """One committed state of the partition; a NamedTuple so that a failure prints like a table."""

    leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


def run(experiment: Experiment) -> tuple[RunResult, Verdict]:
    result = simulate(experiment, SEED)
    verdict, _ = judge_result(experiment, SEED, result)
    assert result.final_phase_complete, result.stuck
    assert result.violations == [], "white-box invariants"
    return result, verdict


@cache
def run_variant(variant: str, profile: str) -> tuple[RunResult, Verdict]:
    scenario = find_by_name(f"last-replica-standing:{variant}")
    result = simulate(scenario_experiment(scenario, profile), SEED)
    verdict, _ = judge_result(scenario_experiment(scenario, profile), SEED, result)
    return result, verdict


def committed(result: RunResult) -> list[Row]:
    rows = sorted(
        result.tables["partition_states"].to_pylist(), key=lambda row: row["metadata_offset"]
    )
    return [
        Row(
            row["leader"],
            tuple(row["isr"]),
            tuple(row["elr"]),
            tuple(row["last_known_elr"]),
            row["leader_epoch"],
            row["partition_epoch"],
        )
        for row in rows
    ]


def marks(result: RunResult) -> list[str]:
    names: list[str] = result.tables["marks"].column("mark").to_pylist()
    return names


def lost_offsets(verdict: Verdict) -> list[int]:
    return sorted(
        offset
        for anomaly in verdict.anomalies
        if anomaly.id == "lost-acked-write"
        for offset in anomaly.details["offsets"]
    )


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("variant", OUTCOMES)
def test_every_variant_has_the_predicted_outcome(variant: str, profile: str) -> None:
    result, verdict = run_variant(variant, profile)
    faults = result.tables["faults"].to_pylist()
    assert [row["fault_id"] for row in faults if not row["took_effect"]] == []
    expected = OUTCOMES[variant][PROFILES.index(profile)]
    if (variant, profile) not in REFUSES_APPENDS:
        assert result.stuck == ""
        assert result.final_phase_complete
    assert outcome_word(verdict) == expected
    scenario = find_by_name(f"last-replica-standing:{variant}")
    assert predicted_outcome(scenario, SYSTEM.profiles[profile].outcome_family) == expected, (
        "the product's own table"
    )


@pytest.mark.parametrize("variant", ["V4", "V5"])
def test_a_consumer_follows_a_leader_whose_epoch_rises_with_the_isr(variant: str) -> None:
    """Before Kafka 3.6 every change of the ISR raised the leader epoch; the first poll after it is fenced."""
    _, verdict = run_variant(variant, "kafka-3.4")
    assert outcome_word(verdict) == OUTCOMES[variant][PROFILES.index(NO_GATE)]


def test_no_variant_is_left_out() -> None:
    assert set(OUTCOMES) == set(VARIANTS)


@pytest.mark.parametrize("profile", [NO_GATE, OFF])
def test_v3a_with_elr_off_commits_the_golden_trace(profile: str) -> None:
    result, _ = run_variant("V3a", profile)
    assert committed(result) == [
        Row(1, (1, 2, 3), (), (), 0, 0),
        Row(1, (1, 3), (), (), 0, 1),  # 2 fenced
        Row(1, (1,), (), (), 0, 2),  # 3 fenced
        Row(-1, (1,), (), (), 1, 3),  # 1 fenced: the last member stays in the ISR
        Row(1, (1,), (), (), 2, 4),  # 1 unfenced: it leads with what the power cut left
        Row(1, (1, 2), (), (), 2, 5),
        Row(1, (1, 2, 3), (), (), 2, 6),
    ]
    assert not any(row["flagged"] for row in result.tables["partition_states"].to_pylist())


def test_v3a_with_elr_on_commits_the_golden_trace() -> None:
    result, _ = run_variant("V3a", ON)
    rows = committed(result)
    assert rows[:6] == [
        Row(1, (1, 2, 3), (), (), 0, 0),
        Row(1, (1, 3), (), (), 0, 1),  # 2 fenced: two members are min ISR, so 2 is not remembered
        Row(1, (1,), (3,), (), 0, 2),  # 3 fenced: remembered
        Row(-1, (), (1, 3), (1,), 1, 3),  # 1 fenced: the ISR may become empty
        Row(-1, (), (3,), (1,), 1, 4),  # 1 registers without a marker
        Row(3, (3,), (), (), 2, 5),  # 3 unfenced: elected from the ELR
    ]
    # The first replica to catch up rejoins first; the prediction leaves that open.
    assert [(row.leader, len(row.isr), row.partition_epoch) for row in rows[6:]] == [
        (3, 2, 6),
        (3, 3, 7),
    ]
    assert marks(result).count("elected-from-elr") == 1
    assert not any(row["flagged"] for row in result.tables["partition_states"].to_pylist())


@pytest.mark.parametrize("profile", [NO_GATE, OFF])
def test_v3b_with_elr_off_commits_the_golden_trace(profile: str) -> None:
    result, _ = run_variant("V3b", profile)
    assert committed(result) == [
        Row(1, (1, 2, 3), (), (), 0, 0),
        Row(1, (1,), (), (), 0, 1),  # both followers lag out in one AlterPartition
        Row(-1, (1,), (), (), 1, 2),  # 1 fenced: two complete replicas are up, neither may lead
        Row(1, (1,), (), (), 2, 3),  # 1 unfenced
        Row(1, (1, 2), (), (), 2, 4),
        Row(1, (1, 2, 3), (), (), 2, 5),
    ]


def test_v3b_with_elr_on_commits_the_golden_trace() -> None:
    result, _ = run_variant("V3b", ON)
    rows = committed(result)
    assert rows[:4] == [
        Row(1, (1, 2, 3), (), (), 0, 0),
        Row(1, (1,), (2, 3), (), 0, 1),
        Row(2, (2,), (1, 3), (), 1, 2),  # 1 fenced: the first live ELR member leads at once
        Row(2, (2,), (3,), (), 1, 3),  # 1 registers without a marker
    ]
    assert [(row.leader, len(row.isr), row.elr, row.partition_epoch) for row in rows[4:]] == [
        (2, 2, (), 4),
        (2, 3, (), 5),
    ]
    assert marks(result).count("elected-from-elr") == 1


@pytest.mark.parametrize("variant", ["V3a", "V3b"])
def test_the_lossy_broker_never_leads_before_it_is_back_in_the_isr_with_elr_on(
    variant: str,
) -> None:
    result, _ = run_variant(variant, ON)
    restart = max(
        row["metadata_offset"]
        for row in result.tables["broker_states"].to_pylist()
        if row["broker"] == 1 and row["change"] == "registered"
    )
    states = sorted(
        result.tables["partition_states"].to_pylist(), key=lambda row: row["metadata_offset"]
    )
    after = [state for state in states if state["metadata_offset"] > restart]
    returned = next(index for index, state in enumerate(after) if 1 in state["isr"])
    assert returned > 0, "there is a time in between"
    assert all(state["leader"] != 1 for state in after[:returned])


@pytest.mark.parametrize(
    ("variant", "profile", "offsets", "excused"),
    [
        # With min ISR 1 the last replica committed five records on its own, which the power cut then destroyed.
        ("V1", OFF, range(5, 15), 5),
        ("V2", OFF, range(5, 10), 0),
        ("V3a", OFF, range(5, 10), 0),
        ("V3b", NO_GATE, range(5, 10), 0),
        ("V3b", OFF, range(5, 10), 0),
        ("V3e", OFF, range(10), 0),
        ("V10b", OFF, range(10), 0),
        ("V11k", ON, range(10), 0),
    ],
)
def test_exactly_the_records_after_the_cut_are_named_as_lost(
    variant: str, profile: str, offsets: range, excused: int
) -> None:
    _, verdict = run_variant(variant, profile)
    assert lost_offsets(verdict) == list(offsets)
    assert verdict.excused_lost_records == excused
    assert verdict.unexcused_lost_records == len(offsets) - excused
    assert "faults destroyed" not in verdict.reasons[0]


@pytest.mark.parametrize(("profile", "code"), [(NO_GATE, 20), (OFF, 7), (ON, 7)])
def test_v5_completes_the_request_in_flight_with_the_error_code_of_its_profile(
    profile: str, code: int
) -> None:
    """NOT_ENOUGH_REPLICAS_AFTER_APPEND without the gate; with it the request waits until it times out."""
    result, _ = run_variant("V5", profile)
    in_flight = [
        row
        for row in result.tables["operations"].to_pylist()
        if row["kind"] == "append" and row["outcome"] != "ok"
    ]
    assert [(row["error_code"], row["outcome"]) for row in in_flight] == [(code, "info")]


def test_v4_loses_more_acks_1_records_with_elr_on_than_with_elr_off() -> None:
    weak = {}
    for profile in (OFF, ON):
        _, verdict = run_variant("V4", profile)
        (anomaly,) = [a for a in verdict.anomalies if a.id == "lost-acked-write-acks1"]
        weak[profile] = sorted(anomaly.details["offsets"])
    assert weak == {OFF: [12, 13, 14], ON: [10, 11, 12, 13, 14]}


@pytest.mark.parametrize("variant", ["V1", "V6", "V7"])
def test_the_last_known_leader_is_elected_and_flagged_when_no_other_replica_is_left(
    variant: str,
) -> None:
    result, verdict = run_variant(variant, ON)
    flagged = [row for row in result.tables["partition_states"].to_pylist() if row["flagged"]]
    assert [(tuple(row["isr"]), row["leader"]) for row in flagged] == [
        ((row["leader"],), row["leader"]) for row in flagged
    ]
    assert len(flagged) == 1
    assert verdict.unexcused_lost_records == 0
    assert verdict.excused_lost_records > 0


def test_elr_brings_a_leader_back_within_a_session_while_elr_off_waits_for_the_lossy_one() -> None:
    """V3b: two complete replicas are up all the time. Only with ELR may one of them lead."""
    gap_ms = {}
    for profile in (OFF, ON):
        result, _ = run_variant("V3b", profile)
        states = result.tables["partition_states"].to_pylist()
        gap_ms[profile] = sum(
            (after["at_ns"] - before["at_ns"]) / 1e6
            for before, after in pairwise(states)
            if before["leader"] < 0
        )
    assert gap_ms[OFF] > 0
    assert gap_ms[ON] == 0


def test_v10b_the_new_directory_takes_the_broker_out_of_the_elr() -> None:
    """The directory fails, the broker stops cleanly, and its marker is in the other directory only."""
    result, _ = run_variant("V10b", ON)
    rows = [(row.leader, row.isr, row.elr) for row in committed(result)]
    failed = rows.index((-1, (), (1, 3)))
    # A report of the new directory is a change of its own, of neither leader nor ISR.
    assert list(dict.fromkeys(rows[failed:]))[:3] == [rows[failed], (-1, (), (3,)), (3, (3,), ())]
    assert "elected-from-elr" in marks(result)


@pytest.mark.parametrize("variant", sorted(DEFECTS))
def test_without_its_defect_a_variant_of_v11_loses_nothing_that_elr_protects(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same steps with every rule on, and with the invariant monitor."""
    original = ELR_DEFECTS[variant]
    scenario = replace(
        original,
        name="last-replica-standing:healthy",
        disabled_rules=(),
        is_watched=True,
        steps=tuple(
            # Without the defect this append is not acknowledged, or only later.
            step
            for step in original.steps
            if step != Wait(isr=(1,)) or variant != "V11f"
        ),
    )
    monkeypatch.setitem(VARIANTS, "healthy", scenario)
    _, verdict = run(scenario_experiment(scenario, ON))
    assert outcome_word(verdict) == "ok"


def varied(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Fault], Fault], profile: str, **cluster: Any
) -> tuple[RunResult, Verdict]:
    """Runs V3b with its faults changed, and with other broker settings."""
    original = VARIANTS["V3b"]
    steps = tuple(change(step) if isinstance(step, Fault) else step for step in original.steps)
    scenario = replace(original, name="last-replica-standing:varied", steps=steps)
    monkeypatch.setitem(VARIANTS, "varied", scenario)
    experiment = scenario_experiment(scenario, profile)
    return run(replace(experiment, cluster=replace(experiment.cluster, **cluster)))


@pytest.mark.parametrize("kept", [0, 3, 9, 10])
def test_the_lost_records_are_those_that_the_power_cut_took_from_the_last_replica(
    monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    def cut_at(fault: Fault) -> Fault:
        return (
            replace(fault, params={**fault.params, "keep_records": kept})
            if fault.fault == "power"
            else fault
        )

    _, verdict = varied(monkeypatch, cut_at, OFF)
    assert lost_offsets(verdict) == list(range(kept, 10))
    assert outcome_word(verdict) == ("ok" if kept == 10 else "loss")


@pytest.mark.parametrize("profile", PROFILES)
def test_nothing_is_lost_when_every_record_is_flushed(
    monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    """With flush.messages = 1 a power cut has nothing to take: the bug needs an un-fsynced tail."""

    def lose_what_is_not_flushed(fault: Fault) -> Fault:
        return replace(fault, params={"mode": "lose_all"}) if fault.fault == "power" else fault

    _, verdict = varied(monkeypatch, lose_what_is_not_flushed, profile, flush_messages=1)
    assert outcome_word(verdict) == "ok"
