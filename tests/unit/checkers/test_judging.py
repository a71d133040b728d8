"""What a context means for the log kernel, and how a finding becomes a judged one."""

from dataclasses import replace

import pytest

from checkers.kernels.compose import judge_run
from checkers.kernels.judging import options_of
from checkers.kernels.linearizability import Options
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from harness.contracts.verdict import Judgement
from tests.anomalies.runs import append, final_read, read, run, state


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


@pytest.mark.parametrize(
    ("flagged", "judgement"), [(True, Judgement.EXCUSED), (False, Judgement.FORBIDDEN)]
)
def test_the_first_election_of_a_run_is_named_with_the_record_that_it_lost(
    flagged: bool, judgement: Judgement
) -> None:
    states = [state(50, 2, [2], epoch=1, flagged=flagged)]
    calls = [append(0, 0, at=1), read(1, 10, 0), *final_read(10)]
    verdict = judge_run(run(calls, states=[state(0, 1, [1, 2], epoch=0), *states]), CONTEXT)
    (loss,) = [each for each in verdict.anomalies if each.id == "lost-acked-write"]
    assert loss.judgement == judgement
    assert loss.details["election"]["at_ns"] == 50


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
