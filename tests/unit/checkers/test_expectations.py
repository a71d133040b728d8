"""The expectation matrix, row by row."""

from typing import Any

import pytest

from checkers.expectations import MATRIX, Case, Expectations, judge
from harness.contracts.verdict import Judgement

WEAK, EXCUSED, UNDECIDED = {"is_weak": True}, {"is_excused": True}, {"is_undecided": True}
WITHOUT_ELR = {"expectations": Expectations(elr_on=False)}
AGAIN = {"expectations": Expectations(at_least_once=True)}

ROWS: list[tuple[str, dict[str, Any], str, Judgement]] = [
    ("slow-recovery", UNDECIDED, "recovery that cannot be measured", Judgement.UNDECIDED),
    ("slow-recovery", {}, "recovery", Judgement.FORBIDDEN),
    ("slow-recovery", WEAK | EXCUSED, "recovery", Judgement.FORBIDDEN),
    ("stuck", {}, "progress", Judgement.FORBIDDEN),
    ("stuck", WEAK | EXCUSED | UNDECIDED, "progress", Judgement.FORBIDDEN),
    ("stale-end", {}, "observations of the log end may be stale", Judgement.INFORMATIONAL),
    (
        "end-regression",
        UNDECIDED,
        "observations of the log end may be stale",
        Judgement.INFORMATIONAL,
    ),
    ("unseen", {}, "unseen", Judgement.INFORMATIONAL),
    ("lost-acked-write-acks1", {}, "acks=1", Judgement.ALLOWED),
    ("duplicate", AGAIN, "at-least-once producers", Judgement.ALLOWED),
    ("duplicate", {}, "integrity", Judgement.FORBIDDEN),
    ("divergent-value", AGAIN, "integrity", Judgement.FORBIDDEN),
    ("reordered-send", {}, "several requests in flight", Judgement.ALLOWED),
    ("high-watermark-regression", {}, "one leader in one epoch", Judgement.FORBIDDEN),
    ("high-watermark-regression", WEAK | EXCUSED, "one leader in one epoch", Judgement.FORBIDDEN),
    ("divergent-replicas", {}, "one log on all replicas", Judgement.FORBIDDEN),
    ("divergent-replicas", WEAK | EXCUSED, "one log on all replicas", Judgement.FORBIDDEN),
    ("offset-reused", WEAK, "rests on acks=1", Judgement.ALLOWED),
    ("offset-reused", WEAK | EXCUSED | UNDECIDED, "rests on acks=1", Judgement.ALLOWED),
    ("phantom-value", WEAK, "integrity", Judgement.FORBIDDEN),
    ("double-ownership", UNDECIDED, "undecided for a consumer group", Judgement.UNDECIDED),
    ("group-skipped-record", UNDECIDED, "undecided for a consumer group", Judgement.UNDECIDED),
    (
        "producer-gap",
        UNDECIDED,
        "undecided for an idempotent producer",
        Judgement.UNDECIDED,
    ),
    ("lost-acked-write", UNDECIDED, "undecided", Judgement.UNDECIDED),
    ("lost-acked-write", UNDECIDED | EXCUSED, "undecided", Judgement.UNDECIDED),
    ("out-of-sequence", UNDECIDED, "undecided", Judgement.UNDECIDED),
    ("phantom-value", UNDECIDED, "integrity", Judgement.FORBIDDEN),
    ("phantom-commit", UNDECIDED, "commits of members", Judgement.FORBIDDEN),
    (
        "out-of-sequence",
        EXCUSED,
        "flagged election under an idempotent producer",
        Judgement.EXCUSED,
    ),
    ("producer-gap", EXCUSED, "flagged election under an idempotent producer", Judgement.EXCUSED),
    ("producer-gap", {}, "idempotent producer", Judgement.FORBIDDEN),
    ("double-ownership", EXCUSED, "flagged election under a consumer group", Judgement.EXCUSED),
    (
        "committed-offset-regressed",
        EXCUSED,
        "flagged election under a consumer group",
        Judgement.EXCUSED,
    ),
    ("double-ownership", {}, "one owner", Judgement.FORBIDDEN),
    ("phantom-commit", {}, "commits of members", Judgement.FORBIDDEN),
    ("phantom-commit", EXCUSED, "commits of members", Judgement.FORBIDDEN),
    ("committed-offset-regressed", {}, "consumer group", Judgement.FORBIDDEN),
    ("group-skipped-record", {}, "consumer group", Judgement.FORBIDDEN),
    (
        "lost-acked-write",
        EXCUSED | WITHOUT_ELR,
        "election without eligible leader replicas",
        Judgement.EXCUSED,
    ),
    ("phantom-value", EXCUSED | WITHOUT_ELR, "integrity", Judgement.FORBIDDEN),
    ("lost-acked-write", EXCUSED, "flagged election", Judgement.EXCUSED),
    ("divergent-value", EXCUSED, "flagged election", Judgement.EXCUSED),
    ("phantom-value", EXCUSED, "integrity", Judgement.FORBIDDEN),
    ("lost-acked-write", {}, "loss with ELR", Judgement.FORBIDDEN),
    ("visible-regress", {}, "loss with ELR", Judgement.FORBIDDEN),
    ("offset-reused", WITHOUT_ELR, "loss without ELR", Judgement.FORBIDDEN),
    ("divergent-value", WITHOUT_ELR, "integrity", Judgement.FORBIDDEN),
    ("torn-fetch", EXCUSED, "integrity", Judgement.FORBIDDEN),
    ("torn-batch", EXCUSED, "integrity", Judgement.FORBIDDEN),
    (
        "torn-batch",
        {"is_undecided": True},
        "undecided for a record batch",
        Judgement.UNDECIDED,
    ),
    ("end-in-batch", EXCUSED, "flagged election", Judgement.EXCUSED),
    ("unsent-in-batch", EXCUSED, "order", Judgement.FORBIDDEN),
    ("hole-before-append", {}, "order", Judgement.FORBIDDEN),
    ("hole-before-append", EXCUSED, "order", Judgement.FORBIDDEN),
]


@pytest.mark.parametrize(("identifier", "more", "name", "judgement"), ROWS)
def test_the_first_row_that_applies_judges(
    identifier: str, more: dict[str, Any], name: str, judgement: Judgement
) -> None:
    plain = {"is_weak": False, "is_excused": False, "expectations": Expectations()}
    row = judge(Case(id=identifier, **plain | more))
    assert (row.name, row.judgement) == (name, judgement)


def test_every_row_of_the_matrix_judges_something() -> None:
    assert {row.name for row in MATRIX} == {name for _, _, name, _ in ROWS}


def test_a_run_has_eligible_leader_replicas_and_sends_once_unless_it_declares_otherwise() -> None:
    assert (Expectations().elr_on, Expectations().at_least_once) == (True, False)
    case = Case(id="stuck", is_weak=False, is_excused=False, expectations=Expectations())
    assert not case.is_undecided
