"""Signatures: what they depend on, what they do not, and that they tell defects of the reference system apart."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import pyarrow as pa
import pytest

from checkers.expectations import MATRIX
from harness.campaigns.signature import (
    CRASH,
    FINDINGS_MAX,
    HARNESS_ERROR,
    UNEXPECTED_OUTCOME,
    finding_of_error,
    findings_of,
)
from harness.contracts.verdict import Anomaly, Judgement, Validity, Verdict, Witness
from harness.history.schema import TABLES
from harness.runs import experiment_file
from harness.runs.experiment import Experiment
from harness.runs.judge import judge_record
from harness.runs.simulated import simulate
from system_under_test.defects import DEFECTS
from tests.unit.harness.campaigns.test_committed import LAST_REPLICA_STANDING, state

EXPERIMENT = Experiment()
EARLY_ACK, STALE_ELR = "ack-after-append", "elr-not-cleared"

LOSS_RULE = next(row for row in MATRIX if row.name == "loss with ELR").rule


def operation(op_index, invoked_ns, completed_ns, node="b1", kind="append"):
    return {
        "op_index": op_index,
        "process": 1,
        "kind": kind,
        "topic": "t",
        "partition": 0,
        "invoked_ns": invoked_ns,
        "completed_ns": completed_ns,
        "outcome": "ok",
        "acks": -1,
        "sequence": 0,
        "key": "",
        "position": -1,
        "offset": 0,
        "record_count": 0,
        "end_offset": None,
        "error_code": None,
        "error": "",
        "node": node,
        "leader_epoch": 0,
        "final": False,
    }


def violation(at_ns, invariant, sentence, node=""):
    return {"at_ns": at_ns, "node": node, "invariant": invariant, "sentence": sentence}


def tables(*, states=LAST_REPLICA_STANDING, operations=(), violations=(), marks=()):
    rows = {
        "partition_states": states,
        "operations": operations,
        "violations": violations,
        "marks": marks,
    }
    return {
        name: pa.Table.from_pylist(list(rows[name]), schema=TABLES[name])
        if name in rows
        else schema.empty_table()
        for name, schema in TABLES.items()
    }


def anomaly(kind, *ops, judgement=Judgement.FORBIDDEN, rule=LOSS_RULE, partition=0, **details):
    return Anomaly(
        id=kind,
        level="durability",
        topic="t",
        partition=partition,
        count=1,
        judgement=judgement,
        rule=rule,
        sentence=f"{kind} shown by {ops}",
        witnesses=tuple(Witness(op_index=op, text="") for op in ops),
        details=details,
    )


def verdict(*anomalies):
    return Verdict(validity=Validity.INVALID, anomalies=anomalies)


def invariant_broken(table):
    sentences = table["violations"].column("sentence").to_pylist()
    return verdict(*(anomaly("invariant-broken", rule="r") for _ in sentences))


def shifted(rows, by_ns, rename):
    """Returns the same story at another time with other brokers."""
    moved = []
    for one in rows:
        at_ns = one["at_ns"] + by_ns
        new = {
            **one,
            "at_ns": at_ns,
            "metadata_offset": at_ns,
            "leader": rename.get(one["leader"], -1),
        }
        for column in ("isr", "elr", "last_known_elr", "replicas"):
            new[column] = [rename[broker] for broker in one[column]]
        moved.append(new)
    return moved


def test_times_brokers_and_offsets_do_not_change_a_signature():
    loss = anomaly("lost-acked-write", 1, election={"at_ns": 7, "leader": 1})
    (one,) = findings_of(EXPERIMENT, tables(operations=[operation(1, 1, 2)]), verdict(loss))
    later = shifted(LAST_REPLICA_STANDING, 5_000, {1: 3, 2: 1, 3: 2})
    moved = anomaly("lost-acked-write", 77, election={"at_ns": 5_007, "leader": 3})
    operations = [operation(77, 5_001, 5_002, node="b3")]
    (other,) = findings_of(EXPERIMENT, tables(states=later, operations=operations), verdict(moved))
    assert one.signature == other.signature
    assert one.parts["change"] == "leader elected from the ISR"
    assert one.title == "lost-acked-write: loss with ELR (leader elected from the ISR)"
    assert one.parts["before"][-2:] == ["no leader", "leader elected from the ISR"]
    assert (one.parts["at_ns"], other.parts["at_ns"]) == (7, 5_007)


def test_another_system_has_its_own_findings():
    loss = verdict(anomaly("lost-acked-write", election={"at_ns": 7}))
    (one,) = findings_of(EXPERIMENT, tables(), loss)
    (other,) = findings_of(replace(EXPERIMENT, profile="kafka-4.0"), tables(), loss)
    assert other.signature == one.signature
    elsewhere = SimpleNamespace(system="tinylog")
    (third,) = findings_of(elsewhere, tables(), loss)
    assert third.signature != one.signature


def test_what_broke_and_how_the_leader_was_elected_change_a_signature():
    ends = {
        "from the ISR": state(7, 1, [1], epoch=2),
        "from the ELR": state(7, 2, [2], epoch=2),
        "unclean": state(7, 3, [3], epoch=2, flagged=True),
    }
    found = set()
    for last in ends.values():
        states = [state(1, 1, [1, 2, 3]), state(6, -1, [1], elr=[2], epoch=1), last]
        for kind in ("lost-acked-write", "visible-regress"):
            case = verdict(anomaly(kind, 1, election={"at_ns": 7, "leader": 1}))
            (one,) = findings_of(
                EXPERIMENT, tables(states=states, operations=[operation(1, 1, 2)]), case
            )
            found.add(one.signature)
    assert len(found) == 6


def test_the_rule_counts_by_its_name_so_that_its_wording_may_change():
    (one,) = findings_of(
        EXPERIMENT, tables(), verdict(anomaly("lost-acked-write", election={"at_ns": 7}))
    )
    assert one.parts["expectation"] == "loss with ELR"
    (other,) = findings_of(
        EXPERIMENT, tables(), verdict(anomaly("lost-acked-write", rule="of a third party"))
    )
    assert other.parts["expectation"] == "of a third party"


def test_one_lost_tail_is_one_finding_whatever_it_breaks():
    operations = [operation(1, 1, 2), operation(2, 8, 9)]
    broken = verdict(
        anomaly("offset-reused", 1, 2),
        anomaly("lost-acked-write", 1, election={"at_ns": 7, "leader": 1}),
        anomaly("order-inversion", 1, 2),
    )
    (one,) = findings_of(EXPERIMENT, tables(operations=operations), broken)
    assert one.parts["what"] == "lost-acked-write"
    assert one.parts["also"] == ["offset-reused", "order-inversion"]


def test_what_no_election_can_cause_is_a_finding_of_its_own():
    """Corrupt and phantom records, and contradictions without an election between them."""
    operations = [
        operation(1, 1, 2),
        operation(2, 8, 9),
        operation(3, 10, 11),
        operation(4, 12, 13),
    ]
    broken = verdict(
        anomaly("lost-acked-write", 1, election={"at_ns": 7, "leader": 1}),
        anomaly("corrupt-record", 1, 2, rule="integrity"),
        anomaly("order-inversion", 3, 4, rule="order"),
        anomaly("made-by-a-third-party", 1, 2, rule="other"),
    )
    found = findings_of(EXPERIMENT, tables(operations=operations), broken)
    assert [one.parts["what"] for one in found] == [
        "lost-acked-write",
        "corrupt-record",
        "order-inversion",
        "made-by-a-third-party",
    ]
    assert len({one.signature for one in found}) == 4
    assert found[2].parts["change"] == "", "no election is between its operations"


def test_another_partition_has_its_own_finding():
    states = [*LAST_REPLICA_STANDING, *(state(n, 1, [1], partition=1) for n in (1, 2))]
    operations = [operation(1, 1, 2), {**operation(2, 8, 9), "partition": 1}]
    broken = verdict(
        anomaly("lost-acked-write", 1, election={"at_ns": 7}),
        anomaly("visible-regress", 2, partition=1),
    )
    assert len(findings_of(EXPERIMENT, tables(states=states, operations=operations), broken)) == 2


def test_only_forbidden_anomalies_are_findings():
    others = [
        anomaly("lost-acked-write", judgement=j) for j in Judgement if j != Judgement.FORBIDDEN
    ]
    assert findings_of(EXPERIMENT, tables(), verdict(*others)) == []
    violations = [violation(3, "INV-2", "INV-2: never judged")]
    assert (
        findings_of(EXPERIMENT, tables(violations=violations), Verdict(validity=Validity.VALID))
        == []
    )


def test_an_invariant_counts_by_its_statement_and_the_role_of_the_broker():
    def found(sentence, at_ns=5):
        table = tables(violations=[violation(at_ns, "INV-2", sentence)])
        (one,) = findings_of(EXPERIMENT, table, invariant_broken(table))
        return one

    base = found("INV-2: every member has all (broker=1, log_end_offset=5)")
    assert base.parts["what"] == "INV-2"
    assert base.parts["expectation"] == "every member has all"
    assert base.parts["role"] == "leader"
    assert (
        found("INV-2: every member has all (broker=1, log_end_offset=77)").signature
        == base.signature
    )
    assert found("INV-2: every member has all (broker=2, x=1)").signature != base.signature
    assert found("INV-2: another statement (broker=1, x=1)").signature != base.signature
    two = found("INV-2: every member has all (brokers=(2, 1), x=1)")
    assert two.signature == base.signature, "the most important role counts"


def test_a_crash_counts_by_its_sentence_without_numbers_and_names():
    def found(sentence, node):
        table = tables(violations=[violation(5, "", sentence, node)])
        (one,) = findings_of(EXPERIMENT, table, invariant_broken(table))
        return one

    one = found("b1: KeyError: 17 at /var/lib/x/y.log", "b1")
    assert one.parts["what"] == CRASH
    assert one.parts["expectation"] == "X: KeyError: N at PATH"
    assert found("b1: KeyError: 99 at /tmp/z", "b1").signature == one.signature
    assert found("b1: ValueError: 99 at /tmp/z", "b1").signature != one.signature


def test_marks_of_truncations_at_the_broker_group_findings_and_other_marks_do_not():
    def found(*marks):
        rows = [
            {"at_ns": at, "node": node, "mark": mark, "details": "{}"} for at, node, mark in marks
        ]
        violations = [violation(10**9, "INV-2", "INV-2: every member has all (broker=1)")]
        table = tables(violations=violations, marks=rows)
        (one,) = findings_of(EXPERIMENT, table, invariant_broken(table))
        return one

    plain = found()
    late = 10**9 - 1
    assert found((late, "b1", "broker-fenced")).signature == plain.signature
    assert found((late, "b2", "truncated")).signature == plain.signature, "another broker"
    assert found((1, "b1", "truncated")).signature == plain.signature, "long before"
    cut = found((late, "b1", "truncated"))
    assert cut.signature != plain.signature
    assert cut.parts["marks"] == ["truncated"]
    below = (late, "b1", "truncated-below-high-watermark")
    assert found((late, "b1", "truncated"), below).signature == cut.signature


def test_a_finding_does_not_need_metadata_or_witnesses():
    """Third-party systems may record neither."""
    empty = tables(states=())
    (one,) = findings_of(EXPERIMENT, empty, verdict(anomaly("lost-acked-write")))
    assert (one.parts["change"], one.parts["before"]) == ("", [])
    table = tables(states=(), violations=[violation(5, "", "n-x: ended", "n-x")])
    assert len(findings_of(EXPERIMENT, table, invariant_broken(table))) == 1


def test_equal_findings_of_a_run_are_one_and_their_number_is_bounded():
    twice = [
        violation(5, "INV-2", f"INV-2: every member has all (broker=1, n={n})") for n in (1, 2)
    ]
    table = tables(violations=twice)
    (one,) = findings_of(EXPERIMENT, table, invariant_broken(table))
    assert "n=1" in one.parts["sentence"], "the first one is described"
    many = [violation(5, "", f"b1: {'x' * n}", "b1") for n in range(1, 50)]
    table = tables(violations=many)
    assert len(findings_of(EXPERIMENT, table, invariant_broken(table))) == FINDINGS_MAX


def test_a_predicted_loss_of_a_scenario_is_no_finding_and_another_outcome_is_one():
    scripted = SimpleNamespace(
        system="reference", profile="kafka-4.0", scenario="last-replica-standing:V3b"
    )
    loss = verdict(anomaly("lost-acked-write", election={"at_ns": 7}))

    def found(judged, outcome, table=None):
        return [
            one.parts["what"]
            for one in findings_of(
                scripted, table or tables(), judged, outcome=outcome, predicted="loss"
            )
        ]

    assert found(loss, "loss") == []
    assert found(loss, "loss+visible") == ["lost-acked-write"]
    assert found(Verdict(validity=Validity.VALID), "ok") == [UNEXPECTED_OUTCOME]
    broken = tables(violations=[violation(5, "INV-8", "INV-8: one leader")])
    assert found(invariant_broken(broken), "loss", broken) == ["INV-8"], "never predicted"


def test_an_error_of_the_harness_counts_by_its_sentence_without_numbers():
    one = finding_of_error("the run took longer than 300 s")
    assert one.parts["what"] == HARNESS_ERROR
    assert finding_of_error("the run took longer than 20 s").signature == one.signature
    assert finding_of_error("MemoryError: no").signature != one.signature


@cache
def found_with(name, seed):
    defect = next(one for one in DEFECTS.values() if one.name == name)
    experiment = experiment_file.from_data(
        {
            "profile": defect.profile,
            "disabled_rules": list(defect.rules),
            "duration_ms": 12000,
            "workload": {"processes": 4, "appends_per_s": 30.0, "polls_per_s": 15.0},
            "nemesis": {
                "faults": ["cut", "isolate", "kill", "power", "controller", "stop", "pause"],
                "every_family": True,
                "gap_ms": 600,
                "hold_ms": 1500,
                "step_ms": 400,
            },
        }
    )
    result = simulate(experiment, seed)
    judged = judge_record(result.tables, experiment)
    found = findings_of(experiment, result.tables, judged)
    again = findings_of(
        experiment,
        {
            name: table.take(pa.array(range(table.num_rows - 1, -1, -1), pa.int64()))
            for name, table in result.tables.items()
        },
        judged,
    )
    assert [one.to_json() for one in again] == [one.to_json() for one in found], "rows in any order"
    return found


@pytest.mark.slow
@pytest.mark.long
def test_defects_of_the_reference_system_fall_into_few_groups_that_they_do_not_share():
    """One keeps its ELR, the other acknowledges too early: other bugs, other signatures, whatever the seed."""
    groups = {
        defect: [one.signature for seed in range(3) for one in found_with(defect, seed)]
        for defect in (EARLY_ACK, STALE_ELR)
    }
    assert len(groups[STALE_ELR]) >= 2
    assert len(set(groups[STALE_ELR])) == 1
    assert len(groups[EARLY_ACK]) >= 2
    assert len(set(groups[EARLY_ACK])) <= 3
    assert not set(groups[EARLY_ACK]) & set(groups[STALE_ELR])


def test_the_signature_of_a_finding_is_stable():
    """Known failures of users name it. A change of the hash makes all of them new, and needs a changelog line."""
    (one,) = findings_of(
        EXPERIMENT, tables(), verdict(anomaly("lost-acked-write", election={"at_ns": 7}))
    )
    assert one.signature == "70774202ea85"
    renamed = replace(one, title="another title")
    assert renamed.to_json()["signature"] == one.signature
