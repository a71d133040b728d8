"""Unclean elections that an administrator requested: each excuses what it loses, and nothing else."""

from typing import Any

import pytest

from checkers.kernels.compose import judge_run
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Judgement, Validity, Verdict
from tests.anomalies.runs import append, broker, fault, final_read, heard, replica, run, state

CONTEXT = RunContext(elr_on=True, unclean_election_enabled=False, acked_during_faults_min=0)
"""With eligible leader replicas a flagged election excuses a loss only if it was unavoidable."""

ELECTED_AT = 50
LEADERLESS = [
    state(1, 1, [1, 2], epoch=0),
    state(10, 1, [1], epoch=0),
    state(20, -1, [1], epoch=1),
]


def requested(at: int, partition: str = "t-0", *, refused: bool = False) -> dict[str, Any]:
    return fault(at, "elect_leader", ["b2"], elects_uncleanly=[] if refused else [partition])


def judged(
    faults: list[dict[str, Any]],
    states: list[dict[str, Any]],
    *,
    with_logs: bool = True,
    more: list[dict[str, Any]] | None = None,
    brokers: list[dict[str, Any]] | None = None,
) -> Verdict:
    """Ops 0 and 1 are acknowledged by broker 1; broker 2 has only the first and is elected at 50."""
    logs = [
        replica(1, 1, 1, hw=0, role="leader", cause="append"),
        replica(2, 1, 2, hw=0, role="leader", cause="append"),
        replica(3, 1, 2, hw=2, role="leader", cause="high-watermark"),
        replica(2, 2, 1),
        replica(ELECTED_AT + 1, 2, 1, hw=1, epoch=2, role="leader", cause="role"),
        *(more or []),
    ]
    return judge_run(
        run(
            [append(0, 0, at=1), append(1, 1, at=3), *final_read(10, 0)],
            states=states,
            replicas=heard(logs, states) if with_logs else [],
            brokers=[
                *(broker(0, number, "registered", clean=True) for number in (1, 2, 3)),
                *(brokers or []),
            ],
            faults=faults,
        ),
        CONTEXT,
    )


def loss(verdict: Verdict) -> set[Judgement]:
    return {a.judgement for a in verdict.anomalies if a.id == "lost-acked-write"}


UNCLEAN = state(ELECTED_AT, 2, [2], epoch=2, flagged=True)


@pytest.mark.parametrize("with_logs", [True, False])
def test_a_requested_unclean_election_excuses_what_it_loses(with_logs: bool) -> None:
    verdict = judged([requested(40)], [*LEADERLESS, UNCLEAN], with_logs=with_logs)
    assert loss(verdict) == {Judgement.EXCUSED}
    assert verdict.validity == Validity.VALID, verdict.reasons
    assert (verdict.excused_lost_records, verdict.unexcused_lost_records) == (1, 0)


@pytest.mark.parametrize(
    "faults",
    [
        [],
        [requested(40, refused=True)],
        [requested(40, "t-1")],
        [requested(ELECTED_AT + 1)],
    ],
    ids=["none", "refused", "another partition", "after the election"],
)
@pytest.mark.parametrize("with_logs", [True, False])
def test_an_election_that_was_not_requested_is_not_excused(
    faults: list[dict[str, Any]], with_logs: bool
) -> None:
    verdict = judged(faults, [*LEADERLESS, UNCLEAN], with_logs=with_logs)
    assert loss(verdict) == {Judgement.FORBIDDEN}
    assert verdict.validity == Validity.INVALID


def test_a_request_explains_one_election_only() -> None:
    """The request elected broker 3, which was complete. What was elected later, nobody had requested."""
    states = [
        *LEADERLESS,
        state(30, 3, [3], epoch=2),
        state(45, -1, [3], epoch=3),
        state(ELECTED_AT, 2, [2], epoch=4, flagged=True),
    ]
    logs = [replica(3, 3, 2, hw=2), replica(31, 3, 2, hw=2, epoch=2, role="leader", cause="role")]
    assert loss(judged([requested(25)], states, more=logs)) == {Judgement.FORBIDDEN}
    both = [requested(25), requested(47)]
    assert loss(judged(both, states, more=logs)) == {Judgement.EXCUSED}


@pytest.mark.parametrize(
    ("completed_ns", "judgement"),
    [
        (30, Judgement.FORBIDDEN),
        (31, Judgement.UNDECIDED),
        (60, Judgement.UNDECIDED),
        (None, Judgement.UNDECIDED),
    ],
)
def test_an_election_while_a_request_is_open_may_be_another_one(
    completed_ns: int | None, judgement: Judgement
) -> None:
    """An administrator requested an election at 25: that at 30, without a flag, or the flagged one at 50."""
    states = [
        *LEADERLESS,
        state(30, 3, [3], epoch=2),
        state(45, -1, [3], epoch=3),
        state(ELECTED_AT, 2, [2], epoch=4, flagged=True),
    ]
    logs = [replica(3, 3, 2, hw=2), replica(31, 3, 2, hw=2, epoch=2, role="leader", cause="role")]
    request = requested(25) | {"completed_ns": completed_ns}
    assert loss(judged([request], states, more=logs)) == {judgement}
    assert loss(judged([request, requested(47)], states, more=logs)) == {Judgement.EXCUSED}
    states[3]["flagged"] = True  # then it was the one that was requested
    assert loss(judged([request], states, more=logs)) == {Judgement.FORBIDDEN}


def test_an_unflagged_election_is_not_excused_by_a_request() -> None:
    """An administrator may ask for the worst; a system that elects without flagging hides what it lost."""
    unflagged = state(ELECTED_AT, 2, [2], epoch=2)
    verdict = judged([requested(40)], [*LEADERLESS, unflagged])
    assert loss(verdict) == {Judgement.FORBIDDEN}


def test_a_request_does_not_excuse_what_was_lost_before() -> None:
    """Broker 2 was elected without op 1 and without a flag at 30; the requested election came later."""
    states = [
        *LEADERLESS,
        state(30, 2, [2], epoch=2),
        state(40, -1, [2], epoch=3),
        state(ELECTED_AT, 3, [3], epoch=4, flagged=True),
    ]
    assert loss(judged([requested(45)], states)) == {Judgement.FORBIDDEN}


def action(at: int, **columns: list[str]) -> dict[str, Any]:
    return fault(at, "alter_config", ["b2"], **columns)


@pytest.mark.parametrize(
    ("faults", "judgement"),
    [
        ([action(15, reconfigures=["t-0"])], Judgement.EXCUSED),
        ([action(15, reconfigures=["t-1"])], Judgement.FORBIDDEN),
        ([action(0, reconfigures=["t-0"])], Judgement.FORBIDDEN),
        ([action(ELECTED_AT + 1, reconfigures=["t-0"])], Judgement.FORBIDDEN),
        ([action(0, allows_unclean=["t-0"])], Judgement.EXCUSED),
        ([action(0, allows_unclean=["t-1"])], Judgement.FORBIDDEN),
        ([action(ELECTED_AT + 1, allows_unclean=["t-0"])], Judgement.FORBIDDEN),
    ],
)
def test_a_change_since_the_isr_was_full_may_have_erased_the_elr(
    faults: list[dict[str, Any]], judgement: Judgement
) -> None:
    """The ISR had min ISR members until 10, from 1 on. Unclean elections stay allowed, whenever that was done."""
    nobody_left = [*LEADERLESS[:-1], state(20, -1, [], epoch=1)]
    assert loss(judged(faults, [*nobody_left, UNCLEAN])) == {judgement}


@pytest.mark.parametrize(
    ("change", "judgement"), [("unfenced", Judgement.FORBIDDEN), ("fenced", Judgement.EXCUSED)]
)
@pytest.mark.parametrize(
    "fault_row",
    [
        requested(45),
        fault(5, "alter_config", ["b2"], allows_unclean=["t-0"]),
    ],
    ids=["requested", "allowed"],
)
def test_a_member_of_the_isr_that_is_active_is_elected_before_any_other_replica(
    fault_row: dict[str, Any], change: str, judgement: Judgement
) -> None:
    """An unclean election tries ISR and ELR first, also if it was requested or allowed."""
    brokers = [broker(30, 1, change)]
    assert loss(judged([fault_row], [*LEADERLESS, UNCLEAN], brokers=brokers)) == {judgement}


def test_a_change_does_not_excuse_an_election_without_a_flag() -> None:
    unflagged = state(ELECTED_AT, 2, [2], epoch=2)
    faults = [action(15, reconfigures=["t-0"], allows_unclean=["t-0"])]
    assert loss(judged(faults, [*LEADERLESS, unflagged])) == {Judgement.FORBIDDEN}
