"""The composition: what makes a run unknown, and that it never fails on a history that can be read."""

import json
import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from checkers.anomalies import ANOMALIES, LEVELS
from checkers.expectations import Case, Expectations, judge
from checkers.kernels.compose import (
    acked_during_faults,
    by_partition,
    compose,
    judge_partition,
    judge_run,
    untouched_partitions,
)
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from harness.contracts.verdict import Judgement, Validity
from harness.errors import HistoryError
from harness.history.schema import TABLES
from tests.anomalies.runs import append, fault, final_read, run, violation

CALLS = [append(0, 0, at=10), append(1, 1, at=20), *final_read(50, 0, 1)]


def test_a_quiet_run_without_faults_is_valid() -> None:
    verdict = judge_run(run(CALLS), RunContext())
    assert verdict.validity == Validity.VALID
    assert verdict.reasons == ()
    assert verdict.coverage["appends_acked"] == 2


@pytest.mark.parametrize("checker", LOG_CHECKERS)
def test_one_checker_of_logs_is_enough(checker: str) -> None:
    verdict = judge_run(run(CALLS), RunContext(checkers=(checker,)))
    assert verdict.validity == Validity.VALID


@pytest.mark.parametrize(
    "checkers", [LOG_CHECKERS, *((name,) for name in LOG_CHECKERS)], ids="-".join
)
def test_an_empty_run_is_unknown(checkers: tuple[str, ...]) -> None:
    verdict = judge_run({}, RunContext(checkers=checkers))
    assert verdict.validity == Validity.UNKNOWN
    assert verdict.reasons == ("no append was acknowledged in the whole run",)


def idle(fault_id: str, name: str) -> dict[str, Any]:
    """Returns a fault whose event did not happen."""
    evidence = json.dumps({"not_started": "the event 'election' did not happen"})
    row = fault(50, name, [], healed=50, took_effect=False)
    return row | {"fault_id": fault_id, "evidence": evidence}


UNKNOWN = {
    "nothing acknowledged during the fault": (
        [fault(30, "cut", ["b1"], healed=40)],
        RunContext(),
        "only 0 appends and commits were acknowledged",
    ),
    "a fault took no effect": (
        [fault(5, "cut", ["b1"], healed=40, took_effect=False)],
        RunContext(),
        "the fault 'cut' never took effect",
    ),
    "an enabled fault never came": (
        [],
        RunContext(enabled_faults=("pause",)),
        "'pause' never took effect",
    ),
    "an enabled fault did not begin": (
        [fault(5, "cut", ["b1"], healed=40), idle("f2", "pause")],
        RunContext(enabled_faults=("cut", "pause")),
        "the fault 'pause' never took effect (f2 pause: the event 'election' did not happen)",
    ),
    "one of two enabled faults of a name did not begin": (
        [fault(5, "kill", ["b1"], healed=40) | {"fault_id": "f1"}, idle("f2", "kill")],
        RunContext(enabled_faults=("kill f1", "kill f2")),
        "some of the faults 'kill' never took effect (f2 kill: the event 'election' did not happen)",
    ),
    "an enabled fault of a name is not in the record": (
        [fault(5, "kill", ["b1"], healed=40) | {"fault_id": "f1"}],
        RunContext(enabled_faults=("kill f1", "kill f2")),
        "some of the faults 'kill' never took effect (one was not injected)",
    ),
    "only a fault that may come to nothing took effect": (
        [fault(5, "kill", ["b1"], healed=40) | {"fault_id": "f1"}, idle("f2", "kill")],
        RunContext(enabled_faults=("kill f2",)),
        "some of the faults 'kill' never took effect (f2 kill: the event 'election' did not happen)",
    ),
    "no fault began": (
        [idle("f1", "pause"), idle("f2", "kill")],
        RunContext(acked_during_faults_min=0),
        "no fault was in force (f1 pause: the event 'election' did not happen; f2 kill: the event",
    ),
    "the final phase was cut short": (
        [],
        RunContext(final_phase_complete=False),
        "final phase did not end as planned",
    ),
    "the run ended early": ([], RunContext(incomplete_reason="no events left"), "no events left"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_run_that_could_not_have_failed_is_unknown(name: str) -> None:
    faults, context, reason = UNKNOWN[name]
    verdict = judge_run(run(CALLS, faults=faults), context)
    assert verdict.validity == Validity.UNKNOWN
    assert any(reason in text for text in verdict.reasons)


def test_a_fault_that_may_come_to_nothing_leaves_the_run_valid() -> None:
    faults = [fault(5, "kill", ["b1"], healed=40) | {"fault_id": "f1"}, idle("f2", "kill")]
    for enabled in (None, ("kill",), ("kill f1",)):
        verdict = judge_run(run(CALLS, faults=faults), RunContext(enabled_faults=enabled))
        assert verdict.validity == Validity.VALID
        assert verdict.coverage["fault_families"] == {"kill": True}
    both = RunContext(enabled_faults=("kill f1", "kill f2"))
    verdict = judge_run(run(CALLS, faults=faults), both)
    assert verdict.coverage["fault_families"] == {"kill": False}


def test_effective_faults_during_acknowledged_appends_leave_the_run_valid() -> None:
    faults = [
        fault(5, "cut", ["b1"], healed=40),
        fault(6, "cut", ["b2"], healed=40, took_effect=False),
        fault(45, "heal", ["b1"], took_effect=False),
    ]
    verdict = judge_run(run(CALLS, faults=faults), RunContext(enabled_faults=("cut", "heal")))
    assert verdict.validity == Validity.VALID
    assert verdict.coverage["acked_during_faults"] == 2
    assert verdict.coverage["faults_with_effect"] == 1


def test_a_fault_that_did_not_begin_leaves_the_run_valid_unless_it_is_declared() -> None:
    faults = [fault(5, "cut", ["b1"], healed=40), idle("f2", "pause")]
    assert judge_run(run(CALLS, faults=faults), RunContext()).validity == Validity.VALID


def test_a_scripted_schedule_may_declare_that_nothing_is_acknowledged_during_its_faults() -> None:
    faults = [fault(30, "cut", ["b1"], healed=40)]
    context = RunContext(acked_during_faults_min=0)
    assert judge_run(run(CALLS, faults=faults), context).validity == Validity.VALID


@pytest.mark.parametrize(
    ("began", "healed", "count"),
    [(10, 13, 2), (11, 13, 1), (12, 13, 1), (13, 14, 0), (0, 10, 0), (0, 11, 1), (12, None, 1)],
)
def test_an_acknowledgement_counts_after_the_fault_began_and_until_it_was_healed(
    began: int, healed: int | None, count: int
) -> None:
    """Appends are acknowledged at 11 and 13. What else completed then is no acknowledgement."""
    calls = [
        append(0, 0, at=10),
        append(1, 1, at=12),
        append(2, None, at=12, outcome="fail"),
        append(3, None, at=12, acks=0),
        replace(append(4, 2, at=12), final=True),
        *final_read(5, 0, 1, 4, at=12),
    ]
    tables = run(calls, faults=[fault(began, "cut", ["b1"], healed=healed)])
    assert acked_during_faults(tables["operations"], tables["faults"]) == count
    enough = RunContext(acked_during_faults_min=count)
    assert judge_run(tables, enough).validity == Validity.VALID
    too_few = judge_run(tables, replace(enough, acked_during_faults_min=count + 1))
    assert too_few.validity == Validity.UNKNOWN
    assert too_few.coverage["acked_during_faults"] == count


@pytest.mark.parametrize("failed", [False, True])
def test_a_fault_that_was_never_in_force_makes_no_acknowledgement_count(failed: bool) -> None:
    nowhere = fault(0, "kill", ["b1"] if failed else [], took_effect=False) | {"failed": failed}
    late = fault(30, "cut", ["b1"], healed=40)
    context = RunContext(enabled_faults=("cut",))
    verdict = judge_run(run(CALLS, faults=[nowhere, late]), context)
    assert verdict.coverage["acked_during_faults"] == 0
    assert verdict.validity == Validity.UNKNOWN


def test_faults_that_heal_others_need_no_effect_and_test_nothing() -> None:
    repair = [fault(0, "start", ["b1"], took_effect=False), fault(5, "cut", ["b1"], healed=90)]
    assert repair[0]["heals"]
    verdict = judge_run(run(CALLS, faults=repair), RunContext(enabled_faults=("start", "cut")))
    assert verdict.validity == Validity.VALID
    assert verdict.coverage["faults"] == verdict.coverage["faults_with_effect"] == 1
    alone = judge_run(run(CALLS, faults=repair[:1]), RunContext())
    assert alone.validity == Validity.VALID
    assert alone.coverage["acked_during_faults"] == 0


def test_coverage_adds_up_over_partitions_but_for_truth_values_and_ends() -> None:
    tables = two_partitions()
    coverage = judge_run(tables, RunContext()).coverage
    assert coverage["partitions"] == 2
    assert coverage["appends"] == coverage["appends_acked"] == 4
    assert "final_end_offset" not in coverage
    assert "final_reads_complete" not in coverage
    assert set(coverage["by_partition"]) == {"t-0", "t-1"}


def two_partitions() -> dict[str, pa.Table]:
    """Returns two partitions with the same operations, those of the second with larger indices."""
    first = run(CALLS)
    second = run([append(100, 0, at=10), append(101, 1, at=20), *final_read(150, 100, 101)])
    both = {}
    for name, table in first.items():
        other = second[name]
        if "partition" in table.column_names:
            at = other.column_names.index("partition")
            ones = pa.array([1] * other.num_rows, pa.int32())
            other = other.set_column(at, other.schema.field(at), ones)
            both[name] = pa.concat_tables([other, table])
        else:
            both[name] = table
    return both


def test_a_partition_of_a_tested_topic_that_no_client_touched_is_named() -> None:
    tables = two_partitions()
    places = [("t", 0), ("t", 1), ("t", 2), ("t", 3), ("other", 0)]
    judged = by_partition(tables)
    assert sorted(judged) == [("t", 0), ("t", 1)]
    assert untouched_partitions(places, judged) == ("t-2", "t-3")
    assert untouched_partitions(places[:2], judged) == ()


@pytest.mark.parametrize(
    ("windows", "acked"),
    [
        ([(10, 20)], 1),  # the fault was in force when 20 was acknowledged, not yet at 10
        ([(9, 10), (19, 20)], 2),
        ([(5, 15), (8, 30), (12, 13)], 3),
        ([(5, None), (7, 8)], 3),
        ([(20, 11)], 0),
        ([(30, None)], 0),
    ],
)
def test_an_append_during_several_faults_counts_once(
    windows: list[tuple[int, int | None]], acked: int
) -> None:
    calls = [append(op, op, at=at - 1) for op, at in enumerate((10, 20, 30))]
    tables = run([*calls, *final_read(50, 0, 1, 2)])
    faults = [fault(start, "cut", ["b1"], healed=stop) for start, stop in windows]
    assert acked_during_faults(tables["operations"], run([], faults=faults)["faults"]) == acked


def test_invalid_beats_unknown() -> None:
    calls = [append(0, 0, at=1), append(1, 0, at=5)]
    verdict = judge_run(run(calls), RunContext(final_phase_complete=False))
    assert verdict.validity == Validity.INVALID
    assert any("final phase" in reason for reason in verdict.reasons)


def test_a_broken_invariant_makes_the_run_invalid() -> None:
    verdict = judge_run(run(CALLS, violations=[violation("INV-1: two leaders")]), RunContext())
    assert verdict.validity == Validity.INVALID
    assert verdict.anomalies[0].sentence == "INV-1: two leaders"


def test_a_failing_checker_is_recorded_and_does_not_affect_other_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import checkers.kernels.compose as module

    original = module.judge_partition

    def fails_on_zero(topic: str, partition: int, *rest: object) -> object:
        if partition == 0:
            raise RuntimeError("boom")
        return original(topic, partition, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "judge_partition", fails_on_zero)
    one, other = run(CALLS), run([append(7, 0, at=1), append(8, 0, at=5)])
    tables = {name: pa.concat_tables([one[name], _moved(other[name], 1)]) for name in one}
    verdict = judge_run(tables, RunContext())
    assert verdict.validity == Validity.INVALID
    assert {a.partition for a in verdict.anomalies} == {1}
    assert "t-0: the checker failed (RuntimeError: boom)" in verdict.reasons


def _moved(table: pa.Table, partition: int) -> pa.Table:
    if "partition" not in table.column_names:
        return table.slice(0, 0)
    at = table.schema.get_field_index("partition")
    column = pa.array([partition] * table.num_rows, pa.int32())
    return table.set_column(at, table.schema.field(at), column)


def test_partitions_are_judged_separately_and_in_any_order() -> None:
    parts = [run(CALLS), run([append(7, 0, at=1), append(8, 0, at=5)])]
    judged = [
        judge_partition("t", 0, parts[0], RunContext()),
        judge_partition("t", 1, parts[1], RunContext()),
    ]
    operations = pa.concat_tables([parts[0]["operations"], _moved(parts[1]["operations"], 1)])
    faults, violations = parts[0]["faults"], parts[0]["violations"]
    acked = acked_during_faults(operations, faults)
    verdict = compose(judged, acked, faults, violations, RunContext())
    assert verdict == compose(judged[::-1], acked, faults, violations, RunContext())
    whole = {
        name: pa.concat_tables([parts[0][name], _moved(parts[1][name], 1)]) for name in parts[0]
    }
    assert judge_run(whole, RunContext()) == verdict


# --- the matrix ---


@pytest.mark.parametrize("identifier", ANOMALIES)
@pytest.mark.parametrize("is_weak", [False, True])
@pytest.mark.parametrize("is_excused", [False, True])
@pytest.mark.parametrize("is_undecided", [False, True])
@pytest.mark.parametrize("elr_on", [False, True])
def test_the_matrix_has_a_row_for_every_case(
    identifier: str, is_weak: bool, is_excused: bool, is_undecided: bool, elr_on: bool
) -> None:
    row = judge(
        Case(
            id=identifier,
            is_weak=is_weak,
            is_excused=is_excused,
            is_undecided=is_undecided,
            expectations=Expectations(elr_on=elr_on),
        )
    )
    assert row.rule
    level = ANOMALIES[identifier].level
    assert level in LEVELS
    if level == "fresh" and identifier not in ("slow-recovery", "stuck"):
        assert row.judgement == Judgement.INFORMATIONAL
    plain = not is_weak and not is_excused and not is_undecided
    if identifier == "reordered-send":
        assert row.judgement == Judgement.ALLOWED
    elif plain and level in ("integrity", "order"):
        assert row.judgement == Judgement.FORBIDDEN
    if is_undecided and not is_weak and level != "fresh":
        assert row.judgement != Judgement.EXCUSED


@pytest.mark.parametrize(
    ("identifier", "is_excused", "expectations", "name"),
    [
        ("duplicate", False, Expectations(), "integrity"),
        ("duplicate", False, Expectations(at_least_once=True), "at-least-once producers"),
        ("phantom-value", False, Expectations(at_least_once=True), "integrity"),
        ("lost-acked-write", False, Expectations(), "loss with ELR"),
        ("lost-acked-write", False, Expectations(elr_on=False), "loss without ELR"),
        ("lost-acked-write", True, Expectations(), "flagged election"),
        (
            "lost-acked-write",
            True,
            Expectations(elr_on=False),
            "election without eligible leader replicas",
        ),
    ],
)
def test_the_configuration_decides_which_row_applies(
    identifier: str, is_excused: bool, expectations: Expectations, name: str
) -> None:
    case = Case(id=identifier, is_weak=False, is_excused=is_excused, expectations=expectations)
    assert judge(case).name == name


# --- totality ---

HOSTILE = [-(2**63), -(2**62), -2, -1, 0, 1, 2, 3, 7, 2**31, 2**61, 2**62, 2**62 + 1, 2**63 - 1]


def _hostile_table(rng: random.Random, name: str, rows: int) -> pa.Table:
    words = ["append", "poll", "latest", "ok", "fail", "info", "corrupt", "foreign", "", "t"]
    columns = []
    for field in TABLES[name]:
        values: list[object] = []
        for _ in range(rows):
            if field.nullable and rng.random() < 0.2:
                values.append(None)
            elif pa.types.is_int64(field.type):
                values.append(rng.choice(HOSTILE))
            elif pa.types.is_int32(field.type):
                values.append(rng.choice([-(2**31), -1, 0, 0, 0, 1, 2**31 - 1]))
            elif pa.types.is_boolean(field.type):
                values.append(rng.random() < 0.5)
            elif pa.types.is_string(field.type):
                values.append("t" if field.name == "topic" else rng.choice(words))
            else:
                values.append([1, 2] if pa.types.is_int32(field.type.value_type) else ["b1"])
        columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=TABLES[name])


@pytest.mark.parametrize("seed", range(60))
def test_any_readable_history_is_refused_or_gets_a_verdict_and_no_checker_fails(seed: int) -> None:
    rng = random.Random(seed)
    tables = {name: _hostile_table(rng, name, rng.choice([0, 1, 3, 12])) for name in TABLES}
    context = RunContext(elr_on=rng.random() < 0.5)
    with pytest.raises(HistoryError, match=r"parquet, row \d+: .+; restore the file"):
        judge_run(tables, context)
    # What the validator refuses must not make a kernel fail either.
    for (topic, partition), rows in by_partition(tables).items():
        judgement = judge_partition(topic, partition, {**tables, **rows}, context)
        assert not [why for why in judgement.unknown_reasons if "the checker failed" in why]


@pytest.mark.parametrize(
    ("name", "column"),
    [(name, column) for name, schema in TABLES.items() for column in schema.names],
)
def test_a_table_without_one_of_its_columns_is_refused_by_both_names(
    name: str, column: str
) -> None:
    tables = run(CALLS)
    whole = tables.get(name, TABLES[name].empty_table())
    sentence = f"the table {name} has no column {column}; add it"
    with pytest.raises(HistoryError, match=sentence):
        judge_run({**tables, name: whole.drop_columns([column])}, RunContext())


def test_a_table_may_have_columns_of_its_own() -> None:
    tables = run(CALLS)
    operations = tables["operations"]
    note = pa.nulls(operations.num_rows, pa.string())
    more = {**tables, "operations": operations.append_column("note", note)}
    assert judge_run(more, RunContext()) == judge_run(tables, RunContext())
