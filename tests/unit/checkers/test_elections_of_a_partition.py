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
    Fates,
)
from checkers.kernels.replica_logs import ANY_EPOCH
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
        ("power", 10, None, True),
        ("power", 9, None, False),
        ("disk_full", 30, None, True),
        ("disk_full", 31, None, False),
        ("disk_full", 5, 11, True),
        ("disk_full", 5, 10, False),
    ],
)
def test_a_fault_explains_an_unclean_end_from_the_last_clean_start_to_the_registration(
    name: str, at: int, healed: int | None, is_lawful: bool
) -> None:
    """Broker 2 starts cleanly at 10 and registers uncleanly at 30. The fault at 9 was before it had started."""
    brokers = [
        broker(10, 2, "registered", clean=True),
        broker(30, 2, "registered", clean=False),
        broker(40, 1, "unregistered"),
    ]
    faults = [fault(at, name, ["b2"], healed=healed)]
    assert last_election(SHRUNK, brokers, faults).is_lawful is is_lawful


@pytest.mark.parametrize(
    ("completed_ns", "is_lawful"), [(9, False), (10, True), (15, True), (None, True)]
)
def test_a_fault_that_is_injected_during_a_clean_start_explains_the_unclean_end_after_it(
    completed_ns: int | None, is_lawful: bool
) -> None:
    """Broker 2 starts cleanly at 10. The power cut begins at 9 and keeps it down from its completion on."""
    brokers = [
        broker(10, 2, "registered", clean=True),
        broker(30, 2, "registered", clean=False),
        broker(40, 1, "unregistered"),
    ]
    power = fault(9, "power", ["b2"], healed=25) | {"completed_ns": completed_ns}
    assert last_election(SHRUNK, brokers, [power]).is_lawful is is_lawful


@pytest.mark.parametrize(
    ("name", "at", "took_effect", "excuses", "may_excuse"),
    [
        ("power", 25, True, True, True),
        ("power", 25, False, False, True),
        ("power", 31, False, False, False),
        ("disk_full", 25, False, False, True),
        ("pause", 25, False, False, False),
    ],
)
def test_an_election_is_undecided_if_a_fault_justifies_it_whose_effect_is_not_known(
    name: str, at: int, took_effect: bool, excuses: bool, may_excuse: bool
) -> None:
    """The fault may have ended broker 2 without damage to its disk."""
    brokers = [broker(30, 2, "registered", clean=False), broker(40, 1, "unregistered")]
    found = last_election(SHRUNK, brokers, [fault(at, name, ["b2"], took_effect=took_effect)])
    assert (found.excuses, found.may_excuse) == (excuses, may_excuse)
    assert ("the evidence does not show" in found.reason) is found.is_undecided


@pytest.mark.parametrize(("cut_short", "is_lawful"), [(["b2"], True), (["b1"], False), ([], False)])
def test_a_stop_explains_an_unclean_end_if_it_did_not_finish(
    cut_short: list[str], is_lawful: bool
) -> None:
    brokers = [broker(30, 2, "registered", clean=False), broker(40, 1, "unregistered")]
    stop = fault(25, "stop", ["b2"], cut_short=cut_short, took_effect=not cut_short)
    found = last_election(SHRUNK, brokers, [stop])
    assert (found.is_lawful, found.is_undecided) == (is_lawful, False)


@pytest.mark.parametrize(
    ("elr_on", "unclean_election_enabled", "is_recorded", "is_lawful"),
    [
        (True, False, True, False),
        (False, False, True, True),
        (True, True, True, True),
        (True, False, False, True),
    ],
)
def test_a_flagged_election_may_be_avoidable_only_with_eligible_leader_replicas(
    elr_on: bool, unclean_election_enabled: bool, is_recorded: bool, is_lawful: bool
) -> None:
    """No broker left by an unclean registration. Without any registrations it is not known how they left."""
    found = Elections(
        table("partition_states", SHRUNK),
        table("replica_states", []),
        table("broker_states", [broker(10, 1, "registered", clean=True)] if is_recorded else []),
        table("faults", []),
        elr_on=elr_on,
        unclean_election_enabled=unclean_election_enabled,
    )
    assert found.elections[-1].is_lawful is is_lawful


def test_a_flagged_election_excuses_unless_something_is_known_against_it() -> None:
    assert Election(at_ns=10, leader=1, leader_epoch=1, is_flagged=True).excuses
    assert not Election(at_ns=10, leader=1, leader_epoch=1, is_flagged=False).may_excuse


def test_broker_0_may_be_elected() -> None:
    assert last_election([state(20, 0, [0], epoch=0)], [], []).leader == 0


@pytest.mark.parametrize(("leader", "expected"), [(0, 1), (1, 2), (2, None), (-1, 2)])
def test_the_log_of_the_last_leader_is_the_log_at_the_end(
    leader: int, expected: int | None
) -> None:
    """If nobody leads at the end, the log of broker 1 counts, which led last. Broker 2 reported nothing."""
    found = Elections(
        table("partition_states", [state(20, leader, [0, 1, 2], epoch=1)]),
        table(
            "replica_states",
            [
                replica(1, 0, 1, role="leader", cause="append"),
                replica(30, 1, 2, epoch=1, role="leader", cause="append"),
            ],
        ),
        table("broker_states", []),
        table("faults", []),
        elr_on=False,
    )
    assert found.settled_end_offset == expected


@pytest.mark.parametrize(("epoch", "expected"), [(1, 2), (2, None)])
def test_a_look_at_the_last_leader_before_its_election_says_nothing_about_the_end(
    epoch: int, expected: int | None
) -> None:
    """The logs were looked at now and then, and broker 1, leader in epoch 1, last while it was."""
    found = Elections(
        table("partition_states", [state(20, 1, [1, 2], epoch=epoch)]),
        table("replica_states", [replica(15, 1, 2, epoch=1, role="leader", cause="observed")]),
        table("broker_states", []),
        table("faults", []),
        elr_on=False,
    )
    assert found.settled_end_offset == expected


def test_of_two_equal_outcomes_the_first_election_is_named() -> None:
    def fates(outcomes: list[int], election: int) -> Fates:
        return Fates(
            outcome=np.array(outcomes, dtype=np.int8),
            election=np.full(len(outcomes), election, dtype=np.int64),
        )

    one = fates([EXCUSED, UNDECIDED, UNEXCUSED, EXCUSED], 1)
    better = one.or_else(fates([EXCUSED, UNDECIDED, EXCUSED, UNEXCUSED], 2))
    assert better.outcome.tolist() == [EXCUSED, UNDECIDED, EXCUSED, EXCUSED]
    assert better.election.tolist() == [1, 1, 2, 1]


@pytest.mark.parametrize(
    ("at", "is_lawful"), [(19, False), (20, True), (25, True), (50, True), (60, True), (61, False)]
)
def test_an_administrator_may_change_a_partition_from_its_full_isr_to_the_election(
    at: int, is_lawful: bool
) -> None:
    """The ISR was full until 30, from 20 on; the election was at 60."""
    change = fault(at, "alter_config", ["b1"], reconfigures=["t-0"])
    registrations = [broker(10, 1, "registered", clean=True)]
    assert last_election(SHRUNK, registrations, [change]).is_lawful is is_lawful


# --- which election lost a record, without recorded logs ---


def claims(*from_ns: int) -> Claims:
    times, unknown = np.array(from_ns), np.full(len(from_ns), -1)
    return Claims(
        offset=np.arange(len(from_ns)),
        low_epoch=unknown,
        high_epoch=np.full(len(from_ns), ANY_EPOCH),
        from_ns=times,
        by_ns=times,
        epoch=unknown,
    )


def flagged_elections(*are_certain: bool) -> Elections:
    """Returns elections at 10, 20 ... that excuse what they lost, certainly or perhaps."""
    found = Elections(
        **{
            name: table(name, [])
            for name in ("partition_states", "replica_states", "broker_states", "faults")
        },
        elr_on=True,
    )
    found.elections = [
        Election(
            at_ns=10 * epoch,
            leader=1,
            leader_epoch=epoch,
            is_flagged=True,
            is_undecided=not is_certain,
        )
        for epoch, is_certain in enumerate(are_certain, 1)
    ]
    return found


@pytest.mark.parametrize(
    ("first", "second"),
    [(True, True), (True, False), (False, True), (False, False)],
)
def test_the_first_election_that_may_have_lost_a_record_is_named(first: bool, second: bool) -> None:
    """Records were established before both elections, at 10 and 20, between them, and after them."""
    fates = flagged_elections(first, second).fates(claims(5, 15, 25))
    both, last = (EXCUSED if is_certain else UNDECIDED for is_certain in (first and second, second))
    assert fates.outcome.tolist() == [both, last, UNEXCUSED]
    assert fates.election.tolist() == [0, 1, -1]


def test_a_record_and_its_successor_may_be_as_old_as_the_election_between_them() -> None:
    """The election was at 10. Records were established at 9, 10 and 11, and the next ones at 9, 10 and 11."""
    lost, until = claims(9, 9, 9, 10, 10, 11), claims(9, 10, 11, 10, 11, 11)
    fates = flagged_elections(True).fates(lost, until)
    assert fates.outcome.tolist() == [UNEXCUSED, *4 * [EXCUSED], UNEXCUSED]


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


@pytest.mark.parametrize(
    ("copied_at", "elected", "judgement"),
    [(5, 2, Judgement.EXCUSED), (8, 2, Judgement.FORBIDDEN), (8, 1, Judgement.FORBIDDEN)],
)
def test_a_leader_that_cut_its_log_lost_a_record_even_if_it_wrote_another_one_there(
    copied_at: int, elected: int, judgement: Judgement
) -> None:
    """Broker 1 cut op 1 at 6 and wrote another record at its offset at 7, in the same epoch.

    Broker 2 copied what was there before or after that. The flagged election at 80 gave it up.
    """
    replicas = [
        replica(2, 2, 1, hw=0, cause="replicate"),
        replica(5, 2, 2 if copied_at == 5 else 1, hw=1, cause="replicate"),
        leads(6, 1, 1, hw=2, epoch=0, cause="truncate"),
        leads(7, 1, 2, hw=2, epoch=0, cause="append"),
        replica(copied_at, 2, 2, hw=2, cause="replicate"),
        leads(51, elected, 2, hw=2, epoch=1, cause="role"),
        replica(52, 3, 1, hw=1, epoch=1, cause="replicate"),
        leads(81, 3, 1, hw=1, epoch=2, cause="role"),
    ]
    states = [
        state(20, -1, [1, 2], epoch=0),
        state(50, elected, [1, 2], epoch=1),
        state(80, 3, [3], epoch=2, flagged=True),
    ]
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
        [fault(40, "power", ["b1"], healed=55, took_effect=False)],
    ],
)
def test_a_fault_that_destroyed_nothing_there_before_explains_no_loss(harmless: list[Row]) -> None:
    assert judgement_without_elr(ALONE, harmless) == Judgement.FORBIDDEN


def test_a_fault_whose_injection_failed_may_have_destroyed_something() -> None:
    failed = fault(40, "power", ["b1"], healed=55, took_effect=False) | {"failed": True}
    assert judgement_without_elr(ALONE, [failed]) == Judgement.UNDECIDED
    other = fault(40, "power", ["b2"], healed=55, took_effect=False) | {"failed": True}
    assert judgement_without_elr(ALONE, [other]) == Judgement.FORBIDDEN
    power = fault(40, "power", ["b1"], healed=55)
    both = [state(0, 1, [1, 2], epoch=0)]
    assert judgement_without_elr(both, [power, other | {"fault_id": "f2"}]) == Judgement.UNDECIDED


LED_TWICE = [
    state(0, 1, [1], epoch=0, min_isr=1),
    state(40, -1, [1], epoch=1, min_isr=1),
    state(50, 1, [1], epoch=2, min_isr=1),
    state(70, -1, [1], epoch=3, min_isr=1),
    state(80, 1, [1], epoch=4, min_isr=1),
]


@pytest.mark.parametrize(
    ("invoked_ns", "completed_ns", "established_ns", "expected"),
    [
        (49, 49, 53, UNEXCUSED),
        (49, 50, 53, EXCUSED),
        (50, 50, 53, EXCUSED),
        (49, 55, 53, EXCUSED),
        (49, None, 53, EXCUSED),
        (49, 55, 60, EXCUSED),
        (49, 55, 61, UNEXCUSED),
        (49, 51, 53, EXCUSED),
        (80, 82, 53, EXCUSED),
        (81, 82, 53, UNEXCUSED),
    ],
)
def test_a_fault_that_is_injected_during_an_election_explains_the_next_loss_too(
    invoked_ns: int, completed_ns: int | None, established_ns: int, expected: int
) -> None:
    """Broker 1 is elected at 50 and at 80. A record of its second epoch is gone; the fault is over at 60."""
    power = fault(invoked_ns, "power", ["b1"], healed=max(invoked_ns, 60))
    assert (
        outcome_alone(LED_TWICE, [power | {"completed_ns": completed_ns}], established_ns)
        == expected
    )


def test_it_is_undecided_if_the_isr_grew_while_a_fault_was_injected() -> None:
    """Broker 2 has the record if the power cut came after it had joined the ISR at 54."""
    grown = [*LED_TWICE[:3], state(54, 1, [1, 2], epoch=2, min_isr=1)]
    states = [*grown, state(58, 1, [1], epoch=2, min_isr=1), *LED_TWICE[3:]]
    power = fault(49, "power", ["b1"], healed=60)
    assert outcome_alone(states, [power | {"completed_ns": 53}], 53) == EXCUSED
    assert outcome_alone(states, [power | {"completed_ns": 55}], 53) == UNDECIDED
    assert outcome_alone(states, [power | {"invoked_ns": 54, "completed_ns": 55}], 53) == UNEXCUSED


def test_what_a_leader_committed_alone_while_a_fault_was_injected_is_excused() -> None:
    """Broker 2 leaves the ISR at 52, and has what was established before."""
    states = [
        *LED_TWICE[:2],
        state(50, 1, [1, 2], epoch=2, min_isr=1),
        state(52, 1, [1], epoch=2, min_isr=1),
        *LED_TWICE[3:],
    ]
    power = fault(49, "power", ["b1"], healed=60) | {"invoked_ns": 51, "completed_ns": 55}
    assert outcome_alone(states, [power], 52) == EXCUSED
    assert outcome_alone(states, [power], 51) == UNEXCUSED
    failed = power | {"took_effect": False, "failed": True}
    assert outcome_alone(states, [failed], 52) == UNDECIDED


def test_a_record_of_an_unknown_epoch_may_be_older_than_a_fault_that_was_over_when_it_was_seen() -> (
    None
):
    power = fault(49, "power", ["b1"], healed=60) | {"completed_ns": 55}
    assert outcome_alone(LED_TWICE, [power], 61, high_epoch=ANY_EPOCH) == UNDECIDED


def outcome_alone(
    states: list[Row], faults: list[Row], established_ns: int, *, high_epoch: int = 2
) -> int:
    """Returns what elections mean for the loss of a record of epoch 2, without recorded logs."""
    elections = Elections(
        table("partition_states", states),
        table("replica_states", []),
        table("broker_states", []),
        table("faults", faults),
        elr_on=False,
    )
    number = np.array([2], dtype=np.int64)
    claim = Claims(
        offset=number,
        low_epoch=number,
        high_epoch=np.array([high_epoch]),
        from_ns=np.array([established_ns]),
        by_ns=np.array([established_ns]),
        epoch=number,
    )
    return int(elections.fates(claim).outcome[0])


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
