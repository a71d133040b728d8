"""Contradictions that a loss hides: one operation is named once, with the latest operation that contradicts it."""

import random
from typing import Any

import pyarrow as pa
import pytest

from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Judgement, Verdict
from tests.anomalies.runs import append, broker, fault, final_read, run, state
from tests.property.brute_force import Call
from tests.property.cutting import judged_as_a_whole, judged_in_pieces

ALONE: dict[str, Any] = {"min_isr": 1, "replicas": [1]}
EXCUSED = fault(45, "power", ["b1"], healed=51)
UNDECIDED = EXCUSED | {"failed": True, "took_effect": False}


def contradicted(
    power: dict[str, Any], *, flagged: bool = False
) -> tuple[dict[str, pa.Table], RunContext]:
    """Op 1 was acknowledged at offset 3 before op 2 was sent, which got offset 1: both before any election.

    The power cut destroyed op 1, or may have. Op 4 got offset 2 afterwards, and contradicts op 1 as well.
    """
    calls = [
        append(0, 0, at=1),
        append(1, 3, at=5),
        append(2, 1, at=20),
        Call(op=3, kind="append", process=3, inv=4, res=None, outcome="info"),
        append(4, 2, at=60),
        append(5, 3, at=63),
        *final_read(10, 0, 2, 4, 5),
    ]
    states = [
        state(0, 1, [1], epoch=0, **ALONE),
        state(50, -1, [1], epoch=1, **ALONE),
        state(55, 1, [1], epoch=2, flagged=flagged, **ALONE),
    ]
    brokers = [broker(0, 1, "registered"), broker(52, 1, "registered")]
    context = RunContext(
        elr_on=False,
        min_isr=1,
        replication_factor=1,
        acked_during_faults_min=0,
        unclean_election_enabled=flagged,
    )
    return run(calls, states=states, brokers=brokers, faults=[power]), context


def inversions(verdict: Verdict) -> set[Judgement]:
    return {one.judgement for one in verdict.anomalies if one.id == "order-inversion"}


@pytest.mark.parametrize("power", [EXCUSED, UNDECIDED], ids=["excused", "undecided"])
def test_a_loss_does_not_hide_a_contradiction_from_before_it(power: dict[str, Any]) -> None:
    assert Judgement.FORBIDDEN in inversions(judged_as_a_whole(*contradicted(power)))


@pytest.mark.parametrize("flagged", [False, True], ids=["power cut", "unclean election"])
@pytest.mark.parametrize("width", [1, 2, 1000])
def test_pieces_keep_both_sides_of_a_contradiction_that_a_loss_may_excuse(
    width: int, flagged: bool
) -> None:
    tables, context = contradicted(EXCUSED, flagged=flagged)
    verdict = judged_in_pieces(tables, context, random.Random(width), width=width)
    assert Judgement.FORBIDDEN in inversions(verdict)


@pytest.mark.parametrize(
    ("elr_on", "min_isr", "judgement"),
    [
        (False, 2, Judgement.FORBIDDEN),
        (True, 1, Judgement.FORBIDDEN),
        (False, 1, Judgement.UNDECIDED),
    ],
)
def test_a_power_cut_excuses_nothing_whatever_the_clocks_if_no_replica_commits_alone(
    elr_on: bool, min_isr: int, judgement: Judgement
) -> None:
    states = [
        state(1, 1, [1, 2], epoch=0, min_isr=min_isr),
        state(100, -1, [1], epoch=1, min_isr=min_isr),
        state(200, 1, [1], epoch=2, min_isr=min_isr),
    ]
    tables = run(
        [append(0, 0, at=10), append(1, 1, at=13), *final_read(10, 0)],
        states=states,
        brokers=[broker(0, number, "registered") for number in (1, 2, 3)],
        faults=[fault(90, "power", ["b1"])],
    )
    context = RunContext(
        elr_on=elr_on, min_isr=min_isr, clock_error_ns=1, acked_during_faults_min=0
    )
    verdict = judged_as_a_whole(tables, context)
    losses = {one.judgement for one in verdict.anomalies if one.id == "lost-acked-write"}
    assert losses == {judgement}
