"""Whether each level of promises holds."""

import pytest

from checkers.anomalies import ANOMALIES, LEVELS
from checkers.kernels.compose import judge_run
from checkers.kernels.levels import levels_of
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Anomaly, Judgement, Validity
from tests.anomalies.runs import Call, append, final_read, run

ALL_HOLD = dict.fromkeys(LEVELS, "holds")


def anomaly(identifier: str, judgement: Judgement) -> Anomaly:
    return Anomaly(
        id=identifier,
        level=ANOMALIES[identifier].level,
        topic="t",
        partition=0,
        count=1,
        judgement=judgement,
        rule="",
        sentence="",
    )


@pytest.mark.parametrize(
    ("identifier", "judgement", "state"),
    [
        ("lost-acked-write", Judgement.FORBIDDEN, "broken"),
        ("lost-acked-write", Judgement.EXCUSED, "excused"),
        ("lost-acked-write-acks1", Judgement.ALLOWED, "allowed"),
        ("unseen", Judgement.INFORMATIONAL, "unknown"),
        ("stale-end", Judgement.INFORMATIONAL, "allowed"),
        ("future-read", Judgement.FORBIDDEN, "broken"),
    ],
)
def test_an_anomaly_concerns_its_own_level(
    identifier: str, judgement: Judgement, state: str
) -> None:
    expected = {**ALL_HOLD, ANOMALIES[identifier].level: state}
    assert levels_of([anomaly(identifier, judgement)], ()) == expected


def test_the_worst_anomaly_of_a_level_counts_in_any_order() -> None:
    found = [
        anomaly("order-inversion", Judgement.ALLOWED),
        anomaly("late-insert", Judgement.EXCUSED),
        anomaly("future-read", Judgement.FORBIDDEN),
    ]
    for count, state in ((1, "allowed"), (2, "excused"), (3, "broken")):
        assert levels_of(found[:count], ())["order"] == state
        assert levels_of(found[:count][::-1], ())["order"] == state


def test_a_run_that_could_not_have_failed_shows_nothing_but_what_is_broken() -> None:
    found = [anomaly("future-read", Judgement.FORBIDDEN), anomaly("stale-end", Judgement.EXCUSED)]
    assert levels_of(found, ["the final phase did not end as planned"]) == {
        "durability": "unknown",
        "integrity": "unknown",
        "order": "broken",
        "fresh": "unknown",
    }


CALLS = [append(0, 0, at=1), append(1, 1, at=3)]
STALE = Call(op=5, kind="latest", process=9, inv=30, res=31, offset=1)


@pytest.mark.parametrize(
    ("calls", "validity", "levels"),
    [
        ([*CALLS, *final_read(80, 0, 1)], Validity.VALID, ALL_HOLD),
        (
            [*CALLS, STALE, *final_read(80, 0, 1)],
            Validity.VALID,
            {**ALL_HOLD, "fresh": "allowed"},
        ),
        (
            [*CALLS, *final_read(80, 0)],
            Validity.INVALID,
            {**ALL_HOLD, "durability": "broken", "fresh": "allowed"},
        ),
        (CALLS, Validity.UNKNOWN, dict.fromkeys(LEVELS, "unknown")),
    ],
)
def test_the_verdict_of_a_run_states_every_level(
    calls: list[Call], validity: Validity, levels: dict[str, str]
) -> None:
    verdict = judge_run(run(calls), RunContext())
    assert (verdict.validity, verdict.levels) == (validity, levels)
    assert list(verdict.levels) == list(LEVELS), "the most important first"
