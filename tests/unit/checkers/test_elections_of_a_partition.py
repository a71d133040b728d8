"""Elections at the borders: what happened at the same moment, and which flagged election was unavoidable."""

from typing import Any

import numpy as np
import pytest

from checkers.kernels.compose import judge_run
from checkers.kernels.elections import (
    EXCUSED,
    UNDECIDED,
    UNEXCUSED,
    Claims,
    Election,
    Elections,
)
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Judgement
from tests.anomalies.runs import (
    Call,
    append,
    broker,
    fault,
    final_read,
    replica,
    run,
    state,
    table,
)

Row = dict[str, Any]
CONTEXT = RunContext(elr_on=False, unclean_election_enabled=True)


def last_election(states: list[Row], brokers: list[Row], faults: list[Row]) -> Election:
    return Elections(
        table("partition_states", states),
        table("replica_states", []),
        table("broker_states", brokers),
        table("faults", faults),
        elr_on=True,
    ).elections[-1]


# --- which flagged election was unavoidable ---

SHRUNK = [
    state(20, 1, [1, 2], epoch=0),
    state(30, 1, [1], epoch=0),
    state(40, -1, [], epoch=1),
    state(60, 3, [3], epoch=2, flagged=True),
]
"""Brokers 2 and 1 leave the ISR; min ISR is 2."""


def test_an_isr_that_was_never_large_enough_promised_nothing() -> None:
    """Then there is no last moment with an ISR of min ISR members, and no broker had to leave it."""
    states = [state(20, 1, [1], epoch=0), *SHRUNK[2:]]
    registrations = [broker(10, 1, "registered", clean=True)]
    assert last_election(states, registrations, []).is_lawful
    assert not last_election(SHRUNK, registrations, []).is_lawful


@pytest.mark.parametrize(
    ("first", "last", "is_lawful"), [(20, 40, True), (19, 40, False), (20, 41, False)]
)
def test_a_broker_left_if_it_was_unregistered_between_the_full_isr_and_its_leaving(
    first: int, last: int, is_lawful: bool
) -> None:
    """Both moments count: the changes of one batch are committed at the same one."""
    brokers = [broker(first, 2, "unregistered"), broker(last, 1, "unregistered")]
    assert last_election(SHRUNK, brokers, []).is_lawful is is_lawful


@pytest.mark.parametrize(
    ("name", "at", "healed", "is_lawful"),
    [
        ("power", 29, None, True),
        ("power", 30, None, True),
        ("power", 31, None, False),
        ("power", 11, None, True),
        ("power", 10, None, False),
        ("disk_full", 30, None, True),
        ("disk_full", 31, None, False),
        ("disk_full", 5, 11, True),
        ("disk_full", 5, 10, False),
    ],
)
def test_a_fault_explains_an_unclean_end_from_the_last_clean_start_to_the_registration(
    name: str, at: int, healed: int | None, is_lawful: bool
) -> None:
    """Broker 2 starts cleanly at 10 and registers uncleanly at 30. The fault at 10 was before it had started."""
    brokers = [
        broker(10, 2, "registered", clean=True),
        broker(30, 2, "registered", clean=False),
        broker(40, 1, "unregistered"),
    ]
    faults = [fault(at, name, ["b2"], healed=healed)]
    assert last_election(SHRUNK, brokers, faults).is_lawful is is_lawful


# --- a leader that cuts its own log ---


def leads(at: int, broker_id: int, end: int, *, hw: int, epoch: int, cause: str) -> Row:
    return replica(at, broker_id, end, hw=hw, epoch=epoch, role="leader", cause=cause)


def judgement_of_the_loss(states: list[Row], replicas: list[Row]) -> Judgement:
    """Ops 0 and 1 are acknowledged by broker 1, and only op 0 is there at the end."""
    calls = [append(0, 0, at=1), append(1, 1, at=3), *final_read(10, 0)]
    logs = [
        leads(1, 1, 1, hw=0, epoch=0, cause="append"),
        leads(3, 1, 2, hw=1, epoch=0, cause="append"),
        leads(4, 1, 2, hw=2, epoch=0, cause="high-watermark"),
        *replicas,
    ]
    verdict = judge_run(
        run(calls, states=[state(0, 1, [1], epoch=0), *states], replicas=logs), CONTEXT
    )
    (loss,) = [a for a in verdict.anomalies if a.id == "lost-acked-write"]
    return loss.judgement


@pytest.mark.parametrize("cut_at", [50, 51])
def test_a_leader_that_cuts_its_log_when_it_is_deposed_loses_nothing(cut_at: int) -> None:
    """Broker 2 has op 1 and leads from 50 on. Only the flagged election at 80 gives it up."""
    judgement = judgement_of_the_loss(
        [state(50, 2, [2], epoch=1), state(80, 3, [3], epoch=2, flagged=True)],
        [
            replica(5, 2, 2, hw=2, cause="replicate"),
            replica(5, 3, 1, hw=1, cause="replicate"),
            leads(cut_at, 1, 1, hw=1, epoch=0, cause="truncate"),
            leads(52, 2, 2, hw=2, epoch=1, cause="role"),
            leads(81, 3, 1, hw=1, epoch=2, cause="role"),
        ],
    )
    assert judgement == Judgement.EXCUSED


@pytest.mark.parametrize(
    ("cut_at", "judgement"), [(50, Judgement.EXCUSED), (51, Judgement.FORBIDDEN)]
)
def test_at_the_same_moment_an_election_comes_before_what_its_leader_does(
    cut_at: int, judgement: Judgement
) -> None:
    """Broker 2, flagged and elected at 50, had op 1 until it cut its log, at that moment or later."""
    replicas = [
        replica(5, 2, 2, hw=2, cause="replicate"),
        leads(50, 2, 2, hw=2, epoch=1, cause="role"),
        leads(cut_at, 2, 1, hw=1, epoch=1, cause="truncate"),
    ]
    states = [state(50, 2, [2], epoch=1, flagged=True)]
    assert judgement_of_the_loss(states, replicas) == judgement


def test_a_leader_that_cut_its_log_did_not_lose_what_a_later_leader_showed() -> None:
    """Op 5 was sent before broker 1 cut its log at 40, but broker 2 returned log end 2, in epoch 1.

    The flagged election at 80 gave the record up. So op 2, which got its offset, is no broken promise.
    """
    calls = [
        append(0, 0, at=1),
        Call(op=1, kind="append", process=1, inv=3, res=None, outcome="info"),
        Call(op=5, kind="latest", process=5, inv=38, res=50, offset=2, epoch=1),
        append(2, 1, at=90),
        *final_read(10, 0, 2),
    ]
    states = [
        state(0, 1, [1, 2], epoch=0),
        state(45, 2, [2], epoch=1),
        state(80, 3, [3], epoch=2, flagged=True),
    ]
    replicas = [
        leads(1, 1, 1, hw=0, epoch=0, cause="append"),
        leads(3, 1, 2, hw=1, epoch=0, cause="append"),
        replica(5, 2, 2, hw=1, cause="replicate"),
        replica(5, 3, 1, hw=1, cause="replicate"),
        leads(6, 1, 2, hw=2, epoch=0, cause="high-watermark"),
        leads(40, 1, 1, hw=1, epoch=0, cause="truncate"),
        leads(46, 2, 2, hw=2, epoch=1, cause="role"),
        leads(81, 3, 1, hw=1, epoch=2, cause="role"),
        leads(90, 3, 2, hw=2, epoch=2, cause="append"),
    ]
    verdict = judge_run(run(calls, states=states, replicas=replicas), CONTEXT)
    (late,) = [a for a in verdict.anomalies if a.id == "late-insert"]
    assert late.judgement == Judgement.EXCUSED


# --- the first election of a run ---

FIRST = [state(15, 2, [2], epoch=1, flagged=True)]


def test_the_first_election_of_a_run_may_excuse_a_loss() -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=3), *final_read(10, 0)]
    verdict = judge_run(run(calls, states=FIRST), CONTEXT)
    (loss,) = [a for a in verdict.anomalies if a.id == "lost-acked-write"]
    assert loss.judgement == Judgement.EXCUSED
    assert (loss.details["election"]["leader"], loss.details["election"]["at_ns"]) == (2, 15)


def test_what_the_first_election_of_a_run_excuses_hides_nothing() -> None:
    """Op 3 overtook op 1 after the election. Op 2 had overtaken it before."""
    calls = [append(1, 2, at=1), append(2, 0, at=5), append(3, 1, at=20), *final_read(10, 2, 3)]
    verdict = judge_run(run(calls, states=FIRST), CONTEXT)
    (inversion,) = [a for a in verdict.anomalies if a.id == "order-inversion"]
    assert inversion.judgement == Judgement.FORBIDDEN
    assert [witness.op_index for witness in inversion.witnesses] == [1, 2]


# --- what one replica committed alone, without eligible leader replicas ---


def judgement_without_elr(
    states: list[Row], faults: list[Row], *, min_isr: int = 1, replicas: tuple[int, ...] = (1, 2)
) -> Judgement:
    """Op 1 is established at 30 by broker 1, whose log ends before it when it is elected again at 60."""
    calls = [append(0, 0, at=1), append(1, 1, at=28), *final_read(70, 0)]
    logs = [
        leads(1, 1, 1, hw=1, epoch=0, cause="append"),
        leads(29, 1, 2, hw=1, epoch=0, cause="append"),
        leads(30, 1, 2, hw=2, epoch=0, cause="high-watermark"),
        replica(55, 1, 1, hw=1, cause="load"),
        leads(61, 1, 1, hw=1, epoch=2, cause="role"),
    ]
    more = {"min_isr": min_isr, "replicas": list(replicas)}
    after = [state(50, -1, [1], epoch=1, **more), state(60, 1, [1], epoch=2, **more)]
    rows = [{**row, **more} for row in states] + after
    verdict = judge_run(
        run(calls, states=rows, replicas=logs, faults=faults), RunContext(elr_on=False)
    )
    (loss,) = [a for a in verdict.anomalies if a.id == "lost-acked-write"]
    return loss.judgement


ALONE = [state(0, 1, [1, 2], epoch=0), state(20, 1, [1], epoch=0)]
"""Broker 2 has left the ISR before op 1 was written."""


def test_what_one_replica_may_commit_alone_may_be_destroyed_with_it() -> None:
    power = fault(40, "power", ["b1"], healed=55)
    assert judgement_without_elr(ALONE, [power]) == Judgement.EXCUSED
    assert judgement_without_elr(ALONE, [power], replicas=(1,), min_isr=2) == Judgement.EXCUSED


def test_two_replicas_must_have_it_if_min_isr_is_two() -> None:
    power = fault(40, "power", ["b1"], healed=55)
    assert judgement_without_elr(ALONE, [power], min_isr=2) == Judgement.FORBIDDEN


@pytest.mark.parametrize(
    "harmless",
    [
        [],
        [fault(40, "kill", ["b1"], healed=55)],
        [fault(40, "power", ["b2"], healed=55)],
        [fault(61, "power", ["b1"], healed=65)],
    ],
)
def test_a_fault_that_destroyed_nothing_there_before_explains_no_loss(harmless: list[Row]) -> None:
    assert judgement_without_elr(ALONE, harmless) == Judgement.FORBIDDEN


def test_another_member_of_the_isr_has_the_record() -> None:
    """Broker 2 leaves the ISR only after op 1 was established."""
    states = [state(0, 1, [1, 2], epoch=0), state(35, 1, [1], epoch=0)]
    power = fault(40, "power", ["b1"], healed=55)
    assert judgement_without_elr(states, [power]) == Judgement.FORBIDDEN
    both = [state(0, 1, [1, 2], epoch=0)]
    assert judgement_without_elr(both, [power]) == Judgement.FORBIDDEN
    assert judgement_without_elr(both, [fault(40, "power", ["b1", "b2"])]) == Judgement.EXCUSED


def test_it_is_undecided_if_the_isr_shrank_while_the_record_was_being_established() -> None:
    states = [*ALONE, state(50, -1, [1], epoch=1), state(60, 1, [1], epoch=2)]
    elections = Elections(
        table("partition_states", [{**row, "min_isr": 1} for row in states]),
        table("replica_states", []),
        table("broker_states", []),
        table("faults", [fault(40, "power", ["b1"])]),
        elr_on=False,
    )
    number = np.array([0], dtype=np.int64)

    def outcome(from_ns: int, by_ns: int) -> int:
        claim = Claims(
            offset=number,
            low_epoch=number,
            high_epoch=number,
            from_ns=number + from_ns,
            by_ns=number + by_ns,
            epoch=number,
        )
        return int(elections.fates(claim).outcome[0])

    assert outcome(20, 25) == EXCUSED
    assert outcome(19, 25) == UNDECIDED
    assert outcome(10, 19) == UNEXCUSED
