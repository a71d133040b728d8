"""Which elections excuse the loss of what one replica committed alone, without eligible leader replicas."""

from typing import Any

import numpy as np
import pytest

from checkers.kernels.compose import judge_run
from checkers.kernels.elections import Elections
from checkers.kernels.fates import EXCUSED, UNDECIDED, UNEXCUSED, Claims
from checkers.kernels.history import INF_NS
from checkers.kernels.log_contents import ANY_EPOCH
from checkers.kernels.metadata_gaps import Shown
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Judgement
from tests.anomalies.claims import claim, claims, elections_of
from tests.anomalies.runs import append, fault, final_read, heard, leads, replica, run, state, table

Row = dict[str, Any]


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
    # What failed halfway was undone, and no node is recorded.
    assert judgement_without_elr(ALONE, [failed | {"resolved": []}]) == Judgement.UNDECIDED
    nowhere = fault(40, "power", [], healed=55, took_effect=False)
    assert judgement_without_elr(ALONE, [nowhere]) == Judgement.FORBIDDEN
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
        # Or it led on without the record after that; no logs show which.
        (81, 82, 53, UNDECIDED),
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


def test_a_replica_that_may_have_been_down_when_it_was_elected_may_have_lost_its_data_before() -> (
    None
):
    power = fault(49, "power", ["b1"], healed=60)
    assert outcome_alone(LED_TWICE, [power], 53) == UNEXCUSED
    for shown in (Shown(), Shown(epochs=(4,), ends={4: 1})):
        assert outcome_alone(LED_TWICE, [power], 53, shown=shown) == UNDECIDED
    # By the last election somebody led, and a flagged one counts whether the replica was there or not.
    assert outcome_alone(LED_TWICE[:3], [power], 53, shown=Shown()) == UNEXCUSED
    flagged = [*LED_TWICE[:2], {**LED_TWICE[2], "flagged": True}, *LED_TWICE[3:]]
    assert outcome_alone(flagged, [power], 53, shown=Shown()) == UNEXCUSED


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


SECOND_EPOCH = Shown(epochs=(2,), ends={2: 3})


def outcome_alone(
    states: list[Row],
    faults: list[Row],
    established_ns: int,
    *,
    high_epoch: int = 2,
    shown: Shown = SECOND_EPOCH,
) -> int:
    """Returns what elections mean for the loss of a record of epoch 2, without recorded logs."""
    elections = Elections(
        table("partition_states", states),
        table("replica_states", []),
        table("broker_states", []),
        table("faults", faults),
        elr_on=False,
        unclean_election_enabled=True,
        shown=shown,
    )
    number = np.array([2], dtype=np.int64)
    claim = Claims(
        offset=number,
        low_epoch=number,
        high_epoch=np.array([high_epoch]),
        from_ns=np.array([established_ns]),
        by_ns=np.array([established_ns]),
        epoch=number,
        read_ns=np.array([-INF_NS]),
    )
    return int(elections.fates(claim).outcome[0])


@pytest.mark.parametrize(
    ("isr", "raised_epoch", "expected"),
    [([1], 2, UNDECIDED), ([1], 1, UNEXCUSED), ([1, 2], 2, UNEXCUSED)],
    ids=["while-it-led", "before-it-led", "not-alone"],
)
def test_a_leader_may_not_have_heard_yet_that_min_isr_was_raised(
    isr: list[int], raised_epoch: int, expected: int
) -> None:
    """Min ISR is raised at 51 or at 45, and then the record is established and destroyed."""
    before = state(50, 1, isr, epoch=2, min_isr=1 if raised_epoch == 2 else 2)
    raised = state(
        51 if raised_epoch == 2 else 45,
        1 if raised_epoch == 2 else -1,
        isr,
        epoch=raised_epoch,
        min_isr=2,
    )
    rows = sorted(
        [*LED_TWICE[:2], before, raised, *({**row, "min_isr": 2} for row in LED_TWICE[3:])],
        key=lambda row: row["at_ns"],
    )
    states = [
        {**row, "replicas": [1, 2, 3], "metadata_offset": number} for number, row in enumerate(rows)
    ]
    power = fault(55, "power", ["b1", "b2"], healed=60)
    assert outcome_alone(states, [power], 53) == expected


@pytest.mark.parametrize(
    ("back_ns", "healed_ns", "expected"),
    [
        (42, 38, Judgement.FORBIDDEN),
        (42, 41, Judgement.FORBIDDEN),
        # Its power was cut until then, so it is not known what it copied.
        (42, 42, Judgement.EXCUSED),
        (None, 38, Judgement.EXCUSED),
    ],
    ids=["back", "just-back", "not-over-yet", "not-back"],
)
def test_a_member_that_joined_the_isr_after_its_fault_has_the_record_again(
    back_ns: int | None, healed_ns: int, expected: Judgement
) -> None:
    """Broker 2 loses op 1 at 32, copies it and joins the ISR again, and leaves it before broker 1 loses op 1."""
    states = [state(0, 1, [1, 2], epoch=0), state(35, 1, [1], epoch=0)]
    if back_ns is not None:
        states += [state(back_ns, 1, [1, 2], epoch=0), state(44, 1, [1], epoch=0)]
    power = [
        fault(32, "power", ["b2"], healed=healed_ns),
        fault(46, "power", ["b1"], healed=55),
    ]
    assert judgement_without_elr(states, power) == expected


@pytest.mark.parametrize(
    ("healed_ns", "expected"), [(28, Judgement.FORBIDDEN), (29, Judgement.EXCUSED)]
)
def test_a_member_of_the_isr_has_what_is_established_after_its_last_fault(
    healed_ns: int, expected: Judgement
) -> None:
    """Op 1 is written and acknowledged at 29. Broker 2 never left the ISR."""
    both = [state(0, 1, [1, 2], epoch=0)]
    power = [
        fault(20, "power", ["b2"], healed=healed_ns),
        fault(40, "power", ["b1"], healed=55),
    ]
    assert judgement_without_elr(both, power) == expected


def test_each_member_of_the_isr_has_what_was_established_between_its_faults_and_its_leaving() -> (
    None
):
    """Broker 2 has lost what was established by 5, and not what was between then and 20, when it left the ISR."""
    states = [
        state(0, 1, [1, 2], epoch=2, min_isr=1),
        state(20, 1, [1], epoch=2, min_isr=1),
        *LED_TWICE[3:],
    ]
    power = [fault(2, "power", ["b2"], healed=5), fault(30, "power", ["b1"], healed=35)]
    found = [outcome_alone(states, power, at_ns) for at_ns in (0, 5, 6, 19, 20, 35, 36)]
    assert found == [EXCUSED, EXCUSED, UNEXCUSED, UNEXCUSED, EXCUSED, EXCUSED, UNEXCUSED]


def test_a_fault_that_is_over_when_a_state_begins_destroyed_what_was_established_then() -> None:
    """Broker 2 is in the ISR from 0 until 20, and its power is cut until 0. Broker 1 loses everything at 30."""
    states = [
        state(0, 1, [1, 2], epoch=2, min_isr=1),
        state(20, 1, [1], epoch=2, min_isr=1),
        *LED_TWICE[3:],
    ]
    power = [fault(-5, "power", ["b2"], healed=0), fault(30, "power", ["b1"], healed=35)]
    found = [outcome_alone(states, power, at_ns) for at_ns in (0, 1, 19, 20)]
    assert found == [EXCUSED, UNEXCUSED, UNEXCUSED, EXCUSED]


@pytest.mark.parametrize(("healed_ns", "expected"), [(20, EXCUSED), (18, UNDECIDED)])
def test_a_fault_that_is_over_when_a_member_leaves_the_isr_destroyed_all_that_it_had(
    healed_ns: int, expected: int
) -> None:
    """Broker 2 leaves the ISR at 20. The record was established at 19, 20 or 21, and broker 1 lost it at 30."""
    states = [
        state(0, 1, [1, 2], epoch=2, min_isr=1),
        state(20, 1, [1], epoch=2, min_isr=1),
        *LED_TWICE[3:],
    ]
    power = [fault(10, "power", ["b2"], healed=healed_ns), fault(30, "power", ["b1"], healed=35)]
    lost = claims(low_epoch=[2], high_epoch=[2], epoch=[2], from_ns=[19], by_ns=[21])
    assert elections_of(states, faults=power).fates(lost).outcome.tolist() == [expected]


@pytest.mark.parametrize(
    ("first_ns", "established_ns", "expected"),
    [(None, 10, EXCUSED), (5, 10, UNDECIDED), (5, 20, EXCUSED)],
)
def test_whether_one_replica_could_commit_alone_before_the_first_state_is_not_known(
    first_ns: int | None, established_ns: int, expected: int
) -> None:
    """The flagged election at 30 gave up what broker 2 lacked, and a fault destroyed the rest there.

    If an operation was invoked at 5, min ISR may have been larger between then and 20.
    """
    states = [
        state(20, 1, [1, 2], epoch=0, min_isr=1),
        state(30, 2, [2], epoch=1, flagged=True, min_isr=1),
        state(50, -1, [2], epoch=2, min_isr=1),
        state(60, 2, [2], epoch=3, min_isr=1),
    ]
    power = fault(40, "power", ["b2"], healed=55)
    found = elections_of(states, faults=[power], shown=Shown(first_ns=first_ns))
    assert found.fates(claim(established_ns)).outcome.tolist() == [expected]


def test_a_member_that_joins_the_isr_has_what_its_leader_got_after_a_fault() -> None:
    """Broker 1 leads on after a power cut at 10, and loses the record in the next one. Broker 2 joins at 20."""
    states = [
        state(0, 1, [1], epoch=2, min_isr=1),
        state(20, 1, [1, 2], epoch=2, min_isr=1),
        *LED_TWICE[3:],
    ]
    power = [fault(10, "power", ["b1"], healed=12), fault(55, "power", ["b1"], healed=60)]
    found = [outcome_alone(states, power, at_ns) for at_ns in (9, 12, 13, 19)]
    assert found == [EXCUSED, EXCUSED, UNEXCUSED, UNEXCUSED]


@pytest.mark.parametrize(
    ("invoked_ns", "completed_ns", "expected"),
    [(14, 15, UNDECIDED), (14, 25, UNDECIDED), (20, 20, UNEXCUSED), (30, 30, UNEXCUSED)],
)
def test_a_member_may_have_joined_the_isr_under_a_leader_that_had_lost_the_record(
    invoked_ns: int, completed_ns: int, expected: int
) -> None:
    """Broker 2 loses a record at 10, joins the ISR again at 20, and is elected without it at 40.

    Broker 1 lost data at 14 or later, and led on. What it still had at 20, broker 2 copied.
    """
    states = [
        state(0, 1, [1, 2], epoch=2, min_isr=1),
        state(12, 1, [1], epoch=2, min_isr=1),
        state(20, 1, [1, 2], epoch=2, min_isr=1),
        state(40, 2, [1, 2], epoch=3, min_isr=1),
    ]
    led_on = fault(invoked_ns, "power", ["b1"], healed=35) | {"completed_ns": completed_ns}
    assert outcome_alone(states, [fault(10, "power", ["b2"], healed=12), led_on], 5) == expected


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ({"b2": 10, "b1": 20}, EXCUSED),
        ({"b2": 17, "b1": 20}, EXCUSED),
        ({"b1": 20}, UNEXCUSED),
        # It has the record when it is elected at 15.
        ({"b2": 10, "b1": 14}, UNEXCUSED),
    ],
    ids=["before-the-election", "after-it", "one-of-two", "before-it-led"],
)
def test_faults_may_destroy_all_copies_one_after_the_other(
    faults: dict[str, int], expected: int
) -> None:
    """Broker 2 leads first. Broker 1 is elected at 15 with the record, and at 30 without it."""
    states = [
        state(0, 2, [2, 1], epoch=0, min_isr=1),
        state(15, 1, [1], epoch=1, min_isr=1),
        state(25, -1, [1], epoch=2, min_isr=1),
        state(30, 1, [1], epoch=3, min_isr=1),
    ]
    logs = [
        replica(1, 1, 0, cause="load"),
        leads(5, 2, 1, epoch=0),
        replica(5, 1, 1),
        leads(6, 2, 1, hw=1, epoch=0, cause="high-watermark"),
        leads(16, 1, 1, hw=1, epoch=1, cause="role"),
        replica(28, 1, 0, epoch=1, cause="load"),
        leads(31, 1, 0, epoch=3, cause="role"),
    ]
    elections = elections_of(
        states,
        heard(logs, states),
        faults=[fault(at_ns, "power", [node], healed=at_ns + 7) for node, at_ns in faults.items()],
    )
    assert elections.fates(claim(6)).outcome.tolist() == [expected]


def test_no_other_replica_has_the_record_because_min_isr_was_raised_after_it() -> None:
    """The leader may commit alone at 45 too, if it has not heard of the change at 40."""
    states = [
        state(0, 1, [1], epoch=2, min_isr=1),
        state(40, 1, [1], epoch=2, min_isr=2),
        *({**row, "min_isr": 2} for row in LED_TWICE[3:]),
    ]
    power = fault(55, "power", ["b1"], healed=60)
    assert outcome_alone(states, [power], 39) == EXCUSED
    assert outcome_alone(states, [power], 45) == UNDECIDED


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
        unclean_election_enabled=True,
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
            read_ns=number - INF_NS,
        )
        return int(elections.fates(claim).outcome[0])

    assert outcome(20, 25) == EXCUSED
    assert outcome(19, 25) == UNDECIDED
    assert outcome(10, 19) == UNEXCUSED


BACK_AND_GONE = [
    state(0, 1, [1, 2], epoch=0),
    state(50, -1, [1, 2], epoch=1),
    state(60, 1, [1, 2], epoch=2),
    state(70, 2, [2], epoch=3),
    state(80, 1, [1], epoch=4),
]
"""Both lose power at 40, and broker 1 its log. Broker 2 leads at 70, and broker 1, outside of the ISR, at 80."""


@pytest.mark.parametrize(
    ("isr_at_65", "expected"),
    [
        # It may have kept the record, which the last election then lost without an excuse.
        ([1, 2], UNDECIDED),
        # It joined the ISR again, as a follower of the leader that did not have the record.
        ([1], EXCUSED),
    ],
)
def test_a_member_of_the_isr_may_have_kept_what_the_leader_lost(
    isr_at_65: list[int], expected: int
) -> None:
    looks = [
        leads(5, 1, 1, hw=1, epoch=0, cause="observed"),
        leads(61, 1, 0, epoch=2, cause="role"),
        leads(81, 1, 0, epoch=4, cause="role"),
    ]
    states = [
        *BACK_AND_GONE[:3],
        state(65, 1, isr_at_65, epoch=2),
        state(67, 1, [1, 2], epoch=2),
        *BACK_AND_GONE[3:],
    ]
    elections = elections_of(
        [{**row, "min_isr": 1} for row in states],
        looks,
        faults=[fault(40, "power", ["b1", "b2"])],
    )
    assert elections.fates(claim(10)).outcome.tolist() == [expected]


@pytest.mark.parametrize(("at_ns", "is_known"), [(0, True), (20, False)])
def test_whether_a_flagged_replica_was_in_the_isr_is_not_known_from_the_first_recorded_state(
    at_ns: int, is_known: bool
) -> None:
    """The deposed leader, which the record does not show, may have established the record later."""
    states = [state(0, 1, [1], epoch=0), state(20, 2, [2], epoch=1, flagged=True)]
    states += [state(40, -1, [2], epoch=2), state(50, 2, [2], epoch=3)]
    elections = elections_of([row for row in states if row["at_ns"] >= at_ns])
    assert [election.was_in_isr for election in elections.elections] == [
        *([True] if is_known else []),
        False,
        True,
    ]
    assert elections.fates(claims(from_ns=[30], by_ns=[35])).outcome.tolist() == [UNDECIDED]
