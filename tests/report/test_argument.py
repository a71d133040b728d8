"""Arguments: what an anomaly rests on, when it was decided, and what would change its judgement."""

import json
from pathlib import Path
from typing import Any

import pytest

from checkers.expectations import MATRIX, Case, Expectations, judge
from harness.contracts.verdict import Judgement
from results.layout import RunFiles
from results.report.argument import Argument, arguments_of
from results.report.run import RunData
from results.report.story import find_losses
from results.store import write_json
from tests.report.made_up_run import make_lost_run

MS = 1_000_000


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return make_lost_run(tmp_path)


def arguments(run_dir: Path) -> tuple[Argument, ...]:
    run = RunData(run_dir)
    return arguments_of(run, find_losses(run))


def changed(run_dir: Path, index: int, **keys: Any) -> None:
    path = RunFiles(run_dir).verdict
    verdict = json.loads(path.read_text())
    verdict["anomalies"][index].update(keys)
    write_json(path, verdict)


def test_forbidden_anomalies_come_first_and_have_their_witnesses_from_the_history(
    run_dir: Path,
) -> None:
    found = arguments(run_dir)
    assert [one.id for one in found] == ["lost-acked-write", "offset-reused", "stale-read"]
    assert [one.anchor for one in found] == ["anomaly-1", "anomaly-2", "anomaly-3"]
    first = found[0].witnesses[0]
    operation = RunData(run_dir).tables["operations"].to_pylist()[first.op_index]
    assert (first.process, first.outcome) == (operation["process"], "ok")
    assert (first.begin_ns, first.end_ns) == (operation["invoked_ns"], operation["completed_ns"])
    assert found[1].witnesses == ()
    assert found[1].at_ns is None


def test_without_an_election_the_moment_is_that_of_the_loss(run_dir: Path) -> None:
    moment = arguments(run_dir)[0].moment
    assert moment is not None
    assert moment.at_ns == 7250 * MS
    assert moment.title == "t-0 continues without the records"
    assert moment.lines == (
        "Before: b1 led t-0 in leader epoch 2. ISR {b1}, min ISR 2.",
        "Log ends just before: b1 5; b2 10; b3 10.",
        "At 7.402 s b2 cut t-0 off from 10 to 5.",
        "At 7.403 s b3 cut t-0 off from 10 to 5.",
    )


def test_the_election_that_the_verdict_names_is_the_moment_of_all_anomalies_around_it(
    run_dir: Path,
) -> None:
    election = {
        "at_ns": 7200 * MS,
        "leader": 1,
        "leader_epoch": 2,
        "log_end_offset": 5,
        "flagged": True,
        "objection": "b2 was eligible",
    }
    changed(run_dir, 1, details={"election": election})
    witnesses = [{"op_index": one.op_index, "text": ""} for one in arguments(run_dir)[0].witnesses]
    changed(run_dir, 2, witnesses=witnesses)
    found = arguments(run_dir)
    for one in found[:2]:
        assert one.moment is not None
        assert one.moment.title == "b1 is elected leader of t-0"
        assert (
            "At 7.200 s b1 was elected in leader epoch 2 with log end 5, flagged as unclean; ISR {b1}; b2 was "
            "eligible." in one.moment.lines
        )
        assert "the partition had no leader any more" in one.moment.lines[0]
    assert found[2].moment is None


@pytest.mark.parametrize("election", [7, {"at_ns": "x", "leader": 1}, {"leader": 1}, {"at_ns": 5}])
def test_a_strange_election_in_the_verdict_is_ignored(run_dir: Path, election: object) -> None:
    values = arguments(run_dir)[0].details["values"]
    changed(
        run_dir,
        1,
        details={"election": election, "values": values},
        witnesses=[None, {"op_index": "x"}],
    )
    found = arguments(run_dir)[0]
    assert found.moment is not None
    assert found.moment.title == "t-0 continues without the records"
    assert [one.op_index for one in found.witnesses] == [-1]


@pytest.mark.parametrize("identifier", ["lost-acked-write", "phantom-value", "duplicate"])
def test_what_would_change_the_judgement_is_what_the_matrix_says(
    run_dir: Path, identifier: str
) -> None:
    case = Case(id=identifier, is_weak=False, is_excused=False, expectations=Expectations())
    row = judge(case)
    assert row.judgement == Judgement.FORBIDDEN
    changed(run_dir, 1, id=identifier, rule=row.rule)
    text = " ".join(arguments(run_dir)[0].otherwise)
    rules = {one.name: one.rule for one in MATRIX}
    assert (rules["flagged election"] in text) == (identifier != "phantom-value")
    assert (rules["rests on acks=1"] in text) == (identifier != "phantom-value")
    assert (rules["at-least-once producers"] in text) == (identifier == "duplicate")
    assert ("no election and no configuration" in text) == (identifier == "phantom-value")


def test_a_slow_recovery_depends_on_the_limit_of_the_experiment(run_dir: Path) -> None:
    rule = next(row.rule for row in MATRIX if row.name == "recovery")
    changed(run_dir, 1, id="slow-recovery", rule=rule)
    assert "recovery_max_ms" in arguments(run_dir)[0].otherwise[0]


def test_anomalies_of_other_checkers_have_an_argument_too(run_dir: Path) -> None:
    changed(run_dir, 1, id="my-own", rule="mine")
    found = next(one for one in arguments(run_dir) if one.id == "my-own")
    assert found.definition == ""
    assert found.why == "Forbidden: mine"
    assert "does not judge it" in found.otherwise[0]
    assert arguments(run_dir)[-1].otherwise == ("It does not make the run invalid.",)
