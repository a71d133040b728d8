"""What a context means for the log kernel, and how a finding becomes a judged one."""

from dataclasses import replace
from typing import Any

import pytest

from checkers.kernels.compose import judge_run
from checkers.kernels.judging import options_of
from checkers.kernels.linearizability import Options
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from harness.contracts.verdict import Anomaly, Judgement
from tests.anomalies.runs import (
    Call,
    append,
    fault,
    final_read,
    leads,
    read,
    replica,
    run,
    state,
)


@pytest.mark.parametrize("sent_again", [False, True])
def test_producers_send_again_if_their_sessions_are_checked(sent_again: bool) -> None:
    more = ("idempotent-producer",) if sent_again else ("replicas",)
    context = RunContext(
        checkers=(*LOG_CHECKERS, *more), clock_error_ns=3, log_start_offset=7, sparse_offsets=True
    )
    assert options_of(context) == Options(
        sparse=True, clock_error_ns=3, log_start_offset=7, sent_again=sent_again, sent_twice=False
    )


CONTEXT = RunContext(elr_on=False, unclean_election_enabled=True, acked_during_faults_min=0)


def losses(calls: list[Call], **tables: Any) -> list[Anomaly]:
    verdict = judge_run(run(calls, **tables), CONTEXT)
    return [each for each in verdict.anomalies if each.id == "lost-acked-write"]


@pytest.mark.parametrize(("acks", "judgement"), [(-1, Judgement.FORBIDDEN), (1, Judgement.ALLOWED)])
def test_the_acks_of_a_lost_append_decide_under_which_row_it_falls(
    acks: int, judgement: Judgement
) -> None:
    """The record at offset 1 is gone although the log is longer; without acks=1 that is a broken promise."""
    calls = [
        append(0, 0, at=1),
        append(1, 1, at=3, acks=acks),
        append(2, 1, at=5),
        *final_read(10, 0, 2),
    ]
    found = {each.id: each.judgement for each in judge_run(run(calls), CONTEXT).anomalies}
    assert found["two-acks-one-offset"] == judgement


@pytest.mark.parametrize("earlier", [[state(0, 1, [1, 2], epoch=0)], []])
def test_the_election_that_lost_a_record_is_named_if_it_is_the_first_of_the_run_too(
    earlier: list[dict[str, Any]],
) -> None:
    states = [*earlier, state(50, 2, [2], epoch=1, flagged=True)]
    calls = [append(0, 0, at=1), read(1, 10, 0), *final_read(10)]
    (loss,) = losses(calls, states=states)
    assert loss.judgement == Judgement.EXCUSED
    assert loss.details["election"]["at_ns"] == 50


def test_a_loss_without_an_election_names_none() -> None:
    (loss,) = losses([append(0, 0, at=1), *final_read(10)], states=[])
    assert loss.judgement == Judgement.FORBIDDEN
    assert "election" not in loss.details


def test_what_faults_had_destroyed_is_the_reason_for_excused_losses_only() -> None:
    """Broker 1 was alone from 20 on, and a fault destroyed its log. Op 0 was on both brokers before."""
    more = {"min_isr": 1, "replicas": [1, 2]}
    states = [
        state(0, 1, [1, 2], epoch=0),
        state(20, 1, [1], epoch=0),
        state(50, -1, [1], epoch=1),
        state(60, 1, [1], epoch=2),
    ]
    logs = [
        leads(1, 1, 1, hw=1, epoch=0, cause="append"),
        leads(29, 1, 2, hw=1, epoch=0, cause="append"),
        leads(30, 1, 2, hw=2, epoch=0, cause="high-watermark"),
        replica(55, 1, 0, cause="load"),
        leads(61, 1, 0, epoch=2, cause="role"),
    ]
    found = losses(
        [append(0, 0, at=1), append(1, 1, at=28), *final_read(70)],
        states=[{**row, **more} for row in states],
        replicas=logs,
        faults=[fault(40, "power", ["b1"], healed=55)],
    )
    reason = "(min ISR was 1, and faults destroyed what was established since"
    assert {each.judgement: (each.count, reason in each.sentence) for each in found} == {
        Judgement.FORBIDDEN: (1, False),
        Judgement.EXCUSED: (1, True),
    }


def test_an_excused_contradiction_hides_no_other_one() -> None:
    """Op 1 was acknowledged at offset 1 before ops 2 and 3 were sent, which are at offset 0 one after the other.

    The election at 100 lost ops 1 and 2, so op 3 does not contradict them.
    """
    calls = [
        replace(append(1, 1, at=10), res=12),
        append(2, 0, at=20),
        append(3, 0, at=110),
        *final_read(10, 3),
    ]
    states = [state(0, 1, [1], epoch=0), state(100, 2, [2], epoch=1, flagged=True)]
    verdict = judge_run(run(calls, states=states), CONTEXT)
    found = [each for each in verdict.anomalies if each.id == "order-inversion"]
    assert {each.judgement: [w.op_index for w in each.witnesses] for each in found} == {
        Judgement.FORBIDDEN: [1, 2],
        Judgement.EXCUSED: [2, 3],
    }
