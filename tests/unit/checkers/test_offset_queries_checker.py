"""Answers to questions about offsets: their borders, and the sentences about them."""

from dataclasses import replace
from typing import Any

import pytest

from checkers.kernels.queries.checker import OFFSET_QUERIES, is_judged
from checkers.kernels.queries.validation import check_offset_queries
from checkers.kernels.validation import check_partition, partition_names
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Judgement, Validity
from harness.errors import HistoryError
from tests.anomalies.runs import append, read, run
from tests.anomalies.test_offset_queries import CONTEXT, EPOCH, TIMESTAMP, found, query, verdict_of


@pytest.mark.parametrize(
    ("known_epoch", "leader_epoch", "judged"),
    [(0, 0, True), (0, 1, True), (1, 0, False), (-1, 0, False), (-1, -1, False), (3, 3, True)],
)
def test_an_answer_of_the_first_epoch_is_judged_too(
    known_epoch: int, leader_epoch: int, judged: bool
) -> None:
    row = {
        "known_epoch": known_epoch,
        "leader_epoch": leader_epoch,
        "record_offset": 1,
        "record_value": 7,
    }
    assert is_judged(row, {(1, 7)}) is judged
    assert not is_judged(row, {(1, 8), (2, 7)})
    wrong = query(TIMESTAMP, offset=2, known_epoch=known_epoch, leader_epoch=leader_epoch)
    expected = {"lookup-skips-record": (1, Judgement.FORBIDDEN)} if judged else {}
    assert found(verdict_of(wrong)) == expected


@pytest.mark.parametrize(
    ("kind", "answer", "text"),
    [
        (TIMESTAMP, {"offset": 5}, "returned offset 5 for timestamp 1750000000000 ms, which"),
        (TIMESTAMP, {"offset": -1}, "returned no offset for timestamp 1750000000000 ms, which"),
        (EPOCH, {"found": 2, "offset": 1}, "returned epoch 2 and offset 1 for the end of epoch 3,"),
        (EPOCH, {"found": -1, "offset": -1}, "returned no epoch for the end of epoch 3, which"),
    ],
)
def test_a_sentence_states_what_the_leader_returned(
    kind: str, answer: dict[str, Any], text: str
) -> None:
    (anomaly,) = verdict_of(query(kind, **answer)).anomalies
    assert text in anomaly.sentence


def test_without_an_answer_nothing_was_judged() -> None:
    refused = query(EPOCH, outcome="fail", error="NOT_LEADER_OR_FOLLOWER")
    for tables in (run([]), run([], offset_queries=[refused])):
        report = OFFSET_QUERIES.check(tables, RunContext())
        assert report.coverage == {"offset_queries": 0, "offset_queries_judged": 0}


def test_a_query_may_begin_when_the_poll_has_returned() -> None:
    """The poll returned at 21."""
    assert verdict_of(query(EPOCH, invoked_ns=21)).validity == Validity.VALID
    with pytest.raises(HistoryError, match="no poll with op_index 2 had returned the record"):
        verdict_of(query(EPOCH, invoked_ns=20))
    with pytest.raises(HistoryError, match="no poll with op_index 3 had returned the record"):
        verdict_of(query(EPOCH, op_index=3))


def test_a_process_with_another_clock_may_ask_before_that_of_the_poll_shows_its_end() -> None:
    """The poll of process 99 returned at 21."""
    skewed = replace(CONTEXT, clock_error_ns=5)
    verdict = verdict_of(query(EPOCH, invoked_ns=16), context=skewed)
    assert verdict.coverage["offset_queries_judged"] == 1
    for refused in ({"invoked_ns": 15}, {"invoked_ns": 20, "process": 99}):
        with pytest.raises(HistoryError, match="no poll with op_index 2 had returned the record"):
            verdict_of(query(EPOCH) | refused, context=skewed)


def test_clocks_are_exact_unless_it_is_said() -> None:
    """The poll of process 99 returned at 21, and another process asked at 20."""
    calls = [append(0, 0, at=1), append(1, 1, at=3), read(2, 20, 0, 1)]
    tables = run(calls, offset_queries=[query(EPOCH, invoked_ns=20)])
    checks = (
        lambda **more: check_partition(tables, partition_names("t", 0), **more),
        lambda **more: check_offset_queries(tables, "offset_queries", **more),
    )
    for check in checks:
        check(clock_error_ns=1)
        with pytest.raises(HistoryError, match="no poll with op_index 2 had returned the record"):
            check()
