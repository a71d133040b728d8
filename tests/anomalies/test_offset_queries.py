"""Answers to questions about offsets: the smallest run with each anomaly, and near misses that are valid."""

from dataclasses import replace
from typing import Any

import pytest

from checkers.kernels.compose import judge_run
from harness.contracts.run_context import LOG_CHECKERS, QUERY_CHECKER, RunContext
from harness.contracts.verdict import Judgement, Validity, Verdict
from harness.errors import HistoryError
from tests.anomalies.runs import (
    append,
    fault,
    final_read,
    heard,
    leads,
    offset_query,
    read,
    replica,
    run,
    state,
)

CONTEXT = RunContext(checkers=(*LOG_CHECKERS, QUERY_CHECKER))
WITHOUT_ELR = RunContext(checkers=CONTEXT.checkers, elr_on=False)
TIMESTAMP, EPOCH = "timestamp", "leader-epoch"
CREATED_MS = 1_750_000_000_000


def query(kind: str, **changed: Any) -> dict[str, Any]:
    """Returns a question about the record of op 1 at offset 1, of leader epoch 3; the answer is right."""
    is_time = kind == TIMESTAMP
    about = {"op_index": 2, "record_offset": 1, "record_value": 1, "known_epoch": 3}
    asked = CREATED_MS if is_time else 3
    answer = {"found": asked, "offset": 1 if is_time else 2, "leader_epoch": 3}
    row = offset_query(kind, invoked_ns=40, completed_ns=41, asked=asked, **about, **answer)
    return row | changed


def verdict_of(
    *queries: dict[str, Any], context: RunContext = CONTEXT, **tables: list[dict[str, Any]]
) -> Verdict:
    calls = [append(0, 0, at=1), append(1, 1, at=3), read(2, 20, 0, 1), *final_read(80, 0, 1)]
    return judge_run(run(calls, offset_queries=list(queries), **tables), context)


def found(verdict: Verdict) -> dict[str, tuple[int, Judgement]]:
    return {one.id: (one.count, one.judgement) for one in verdict.anomalies}


WRONG = [
    pytest.param(TIMESTAMP, {"offset": 2}, "lookup-skips-record", id="a later offset"),
    pytest.param(
        TIMESTAMP, {"offset": -1, "found": -1}, "lookup-skips-record", id="no offset at all"
    ),
    # A leader can respond with any number; only -1 stands for nothing.
    pytest.param(TIMESTAMP, {"offset": -7}, "lookup-skips-record", id="an offset below none"),
    pytest.param(EPOCH, {"offset": -7}, "epoch-ends-early", id="an end below none"),
    pytest.param(EPOCH, {"found": -7, "offset": 2}, "epoch-ends-early", id="an epoch below none"),
    pytest.param(EPOCH, {"offset": 1}, "epoch-ends-early", id="the epoch ends at the record"),
    pytest.param(EPOCH, {"found": 2, "offset": 1}, "epoch-ends-early", id="an earlier epoch"),
    pytest.param(EPOCH, {"found": 4, "offset": 9}, "epoch-ends-early", id="a later epoch"),
    pytest.param(EPOCH, {"found": -1, "offset": -1}, "epoch-ends-early", id="no epoch at all"),
]


@pytest.mark.parametrize(("kind", "answer", "anomaly"), WRONG)
def test_an_answer_that_contradicts_a_committed_record_is_forbidden(
    kind: str, answer: dict[str, Any], anomaly: str
) -> None:
    verdict = verdict_of(query(kind, **answer))
    assert found(verdict) == {anomaly: (1, Judgement.FORBIDDEN)}
    assert verdict.validity == Validity.INVALID


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (TIMESTAMP, {}),
        # Another record may have the same timestamp, and a compressed batch counts as a whole.
        (TIMESTAMP, {"offset": 0}),
        (EPOCH, {}),
        (EPOCH, {"offset": 7, "leader_epoch": 5}),
    ],
)
def test_a_right_answer_is_valid(kind: str, answer: dict[str, Any]) -> None:
    verdict = verdict_of(query(kind, **answer))
    assert (verdict.validity, found(verdict)) == (Validity.VALID, {})
    assert verdict.coverage["offset_queries_judged"] == 1


@pytest.mark.parametrize(("kind", "answer", "anomaly"), WRONG)
@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"outcome": "fail", "error": "OFFSET_NOT_AVAILABLE"}, id="it was refused"),
        pytest.param({"leader_epoch": 2}, id="by a leader that was deposed"),
        pytest.param({"leader_epoch": -1}, id="in an unknown epoch"),
        pytest.param({"leader_epoch": -7}, id="in an epoch that the leader invented"),
        pytest.param({"known_epoch": -1}, id="the record was read in an unknown epoch"),
    ],
)
def test_what_is_not_certain_is_not_judged(
    kind: str, answer: dict[str, Any], anomaly: str, changed: dict[str, Any]
) -> None:
    verdict = verdict_of(query(kind, **answer, **changed))
    assert (verdict.validity, found(verdict)) == (Validity.VALID, {}), anomaly


@pytest.mark.parametrize(("kind", "answer", "anomaly"), WRONG)
@pytest.mark.parametrize("final", [(0,), (0, 7)], ids=["no record", "another record"])
def test_a_record_that_is_not_there_in_the_end_is_left_to_other_checkers(
    kind: str, answer: dict[str, Any], anomaly: str, final: tuple[int, ...]
) -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=3), read(2, 20, 0, 1), *final_read(80, *final)]
    verdict = judge_run(run(calls, offset_queries=[query(kind, **answer)]), CONTEXT)
    assert verdict.validity == Validity.INVALID
    assert anomaly not in found(verdict)


IMPOSSIBLE = [
    ({"kind": "magic"}, "kind is 'magic'"),
    ({"outcome": "info"}, "outcome is 'info'"),
    ({"completed_ns": 39}, "completed_ns is 39, which is before invoked_ns 40"),
    ({"invoked_ns": 20}, "no poll with op_index 2 had returned the record of op 1 at offset 1"),
    ({"op_index": 1}, "no poll with op_index 1 had"),
    ({"record_value": 0}, "the record of op 0 at offset 1"),
    ({"query_index": -1}, "query_index is -1"),
    ({"known_epoch": -2}, "known_epoch is -2"),
    ({"asked": -2}, "asked is -2"),
]


@pytest.mark.parametrize(("changed", "sentence"), IMPOSSIBLE)
def test_a_row_that_cannot_be_is_bad_input(changed: dict[str, Any], sentence: str) -> None:
    for context in (CONTEXT, RunContext()):
        with pytest.raises(HistoryError) as refused:
            verdict_of(query(EPOCH) | changed, context=context)
        assert str(refused.value).startswith("offset_queries/t-0.parquet, row 0: ")
        assert sentence in str(refused.value)


def test_a_query_about_a_partition_that_no_poll_read_is_bad_input() -> None:
    with pytest.raises(HistoryError, match=r"t-1.parquet, row 0: no poll with op_index 2 had"):
        verdict_of(query(EPOCH, partition=1))


def test_an_index_belongs_to_one_query() -> None:
    verdict_of(query(EPOCH), query(EPOCH, query_index=1))
    with pytest.raises(HistoryError, match="row 1: query_index 0 is in row 0, too"):
        verdict_of(query(EPOCH), query(EPOCH))


@pytest.mark.parametrize(("kind", "answer", "anomaly"), WRONG)
def test_an_answer_of_a_leader_that_may_lawfully_lack_the_record_is_undecided(
    kind: str, answer: dict[str, Any], anomaly: str
) -> None:
    wrong = query(kind, **answer, leader_epoch=5)
    flagged = [state(30, 2, [2], epoch=4, flagged=True)]
    verdict = verdict_of(wrong, states=flagged)
    assert found(verdict) == {anomaly: (1, Judgement.UNDECIDED)}
    assert verdict.validity == Validity.UNKNOWN
    power = [fault(30, "power", ["b1"])]
    verdict = verdict_of(wrong, context=WITHOUT_ELR, faults=power)
    assert found(verdict) == {anomaly: (1, Judgement.UNDECIDED)}
    assert found(verdict_of(wrong, faults=power))[anomaly][1] == Judgement.FORBIDDEN
    assert found(verdict_of(wrong, context=WITHOUT_ELR))[anomaly][1] == Judgement.FORBIDDEN


@pytest.mark.parametrize(
    ("copied", "asked_in", "judgement"),
    [
        (1, 1, Judgement.EXCUSED),
        # It had the record, or the leader before it was asked.
        (2, 1, Judgement.UNDECIDED),
        (1, 0, Judgement.FORBIDDEN),
    ],
)
@pytest.mark.parametrize("kind", [TIMESTAMP, EPOCH])
def test_an_answer_of_a_leader_whose_log_lacked_what_an_election_had_lost_is_excused(
    kind: str, copied: int, asked_in: int, judgement: Judgement
) -> None:
    """Smallest history: b2 is elected uncleanly at 30 without the second record, which is sent again."""
    states = [state(0, 1, [1, 2], epoch=0), state(30, 2, [2], epoch=1, flagged=True)]
    logs = [leads(2, 1, 1, epoch=0), leads(4, 1, 2, hw=2, epoch=0)]
    logs += [replica(5 + end, 2, end) for end in range(1, copied + 1)]
    logs += [leads(31, 2, copied, epoch=1, cause="role"), leads(60, 2, 2, hw=2, epoch=1)]
    ended = {"asked": 0, "found": 0, "offset": 1} if kind == EPOCH else {"offset": 2}
    wrong = query(kind, known_epoch=0, leader_epoch=asked_in, **ended)
    calls = [append(0, 0, at=1), append(1, 1, at=3), read(2, 20, 0, 1), *final_read(80, 0, 1)]
    tables = run(calls, offset_queries=[wrong], states=states, replicas=heard(logs, states))
    verdict = judge_run(tables, CONTEXT)
    (one,) = (one for one in verdict.anomalies if one.id.endswith(("-record", "-early")))
    assert (one.count, one.judgement) == (1, judgement)
    if judgement == Judgement.EXCUSED:
        assert one.rule.startswith("Excused: a lawful flagged election lost the record")
        assert not any(one.id in reason for reason in verdict.reasons)


@pytest.mark.parametrize(
    ("election_epoch", "leader_epoch", "judgement"),
    [
        (3, 3, Judgement.FORBIDDEN),  # it made the leader that had the record
        (4, 3, Judgement.FORBIDDEN),  # it came after the leader that was asked
        (4, 4, Judgement.UNDECIDED),
        (4, 5, Judgement.UNDECIDED),
        (5, 4, Judgement.FORBIDDEN),
    ],
)
def test_only_a_flagged_election_between_the_poll_and_the_answer_explains_it(
    election_epoch: int, leader_epoch: int, judgement: Judgement
) -> None:
    wrong = query(TIMESTAMP, offset=2, leader_epoch=leader_epoch)
    before = [state(epoch, 1 + epoch % 2, [1, 2], epoch=epoch) for epoch in range(election_epoch)]
    flagged = state(10, 1 + election_epoch % 2, [1], epoch=election_epoch, flagged=True)
    verdict = verdict_of(wrong, states=[*before, flagged])
    assert found(verdict) == {"lookup-skips-record": (1, judgement)}


@pytest.mark.parametrize(
    ("at_ns", "healed_ns", "changed", "error_ns", "judgement"),
    [
        (41, None, {}, 0, Judgement.UNDECIDED),
        (42, None, {}, 0, Judgement.FORBIDDEN),
        (42, None, {}, 1, Judgement.UNDECIDED),
        # The record was sent at 3.
        (1, 3, {}, 0, Judgement.UNDECIDED),
        (1, 2, {}, 0, Judgement.FORBIDDEN),
        (1, 2, {}, 1, Judgement.UNDECIDED),
        (30, 31, {"took_effect": False}, 0, Judgement.FORBIDDEN),
        # Whether it took effect, and whether it is over, is not known.
        (30, 31, {"took_effect": False, "failed": True}, 0, Judgement.UNDECIDED),
        (1, 2, {"took_effect": False, "failed": True}, 0, Judgement.UNDECIDED),
    ],
)
def test_only_a_fault_that_may_have_destroyed_the_record_before_the_answer_explains_it(
    at_ns: int, healed_ns: int | None, changed: dict[str, Any], error_ns: int, judgement: Judgement
) -> None:
    context = replace(WITHOUT_ELR, clock_error_ns=error_ns, enabled_faults=())
    faults = [{**fault(at_ns, "wipe", ["b1"], healed=healed_ns), **changed}]
    verdict = verdict_of(query(EPOCH, offset=1), context=context, faults=faults)
    assert found(verdict) == {"epoch-ends-early": (1, judgement)}


@pytest.mark.parametrize(
    ("epochs", "judgement"),
    [
        ((2, 3, 4), Judgement.FORBIDDEN),
        ((2, 4), Judgement.UNDECIDED),
        ((3, 4, 6), Judgement.FORBIDDEN),
        ((1, 3, 4), Judgement.FORBIDDEN),
        # The answer shows epoch 4, which is not recorded.
        ((2, 3), Judgement.UNDECIDED),
    ],
)
def test_an_election_that_is_not_recorded_may_explain_an_answer(
    epochs: tuple[int, ...], judgement: Judgement
) -> None:
    wrong = query(TIMESTAMP, offset=2, leader_epoch=4)
    states = [state(10 * at, 1 + epoch % 2, [1, 2], epoch=epoch) for at, epoch in enumerate(epochs)]
    verdict = verdict_of(wrong, states=states)
    assert found(verdict) == {"lookup-skips-record": (1, judgement)}


def test_answers_that_a_leader_explains_are_counted_apart() -> None:
    rows = [
        query(TIMESTAMP, query_index=index, offset=2, leader_epoch=epoch)
        for index, epoch in enumerate((3, 4, 4))
    ]
    verdict = verdict_of(*rows, states=[state(30, 2, [2], epoch=4, flagged=True)])
    assert [(one.count, one.judgement) for one in verdict.anomalies] == [
        (1, Judgement.FORBIDDEN),
        (2, Judgement.UNDECIDED),
    ]
    assert verdict.validity == Validity.INVALID


def test_wrong_answers_are_counted_and_the_first_is_shown() -> None:
    rows = [
        query(TIMESTAMP, query_index=index, offset=offset, completed_ns=41 + index)
        for index, offset in enumerate((1, 4, -1))
    ]
    (anomaly,) = verdict_of(*rows).anomalies
    assert anomaly.count == 2
    assert "b1, leader in epoch 3, returned offset 4 for timestamp" in anomaly.sentence
    assert anomaly.witnesses[0].op_index == 2
