"""Elections and lost records at the first and the last value for which something is true."""

from typing import Any

import pytest

from checkers.kernels.destroyed import Alone
from checkers.kernels.fates import Claims, Election, Written
from tests.anomalies.claims import ANY_EPOCH, FOREVER_NS, claim, claims, elections_of, ints
from tests.anomalies.runs import broker, fault, heard, leads, replica, state

Row = dict[str, Any]
UNEXCUSED, UNDECIDED, EXCUSED = 0, 1, 2


# --- what is known of records ---


def test_a_record_is_torn_if_one_of_several_known_epochs_wrote_it() -> None:
    found = claims(low_epoch=[1, 1, 1, -1], high_epoch=[1, 2, ANY_EPOCH, 0])
    assert found.is_torn.tolist() == [False, True, False, True]


def test_unknown_times_stay_unknown_when_claims_are_moved() -> None:
    first = [-FOREVER_NS, -FOREVER_NS + 1, 5, FOREVER_NS]
    found = claims(from_ns=first, by_ns=first)
    assert found.is_timeless.tolist() == [True, False, False, False]
    moved = found.moved(-2, 3)
    assert moved.from_ns.tolist() == [-FOREVER_NS, -FOREVER_NS - 1, 3, FOREVER_NS]
    assert moved.by_ns.tolist() == [-FOREVER_NS, -FOREVER_NS + 4, 8, FOREVER_NS]


def test_stamps_show_which_epoch_wrote_at_which_offset() -> None:
    written = Written.of(ints(1, 0, -1, 1, 0, 1, 0), ints(3, 2, 4, 3, 5, 5, 2))
    pairs = [*zip(written.epoch.tolist(), written.offset.tolist(), strict=True)]
    assert pairs == [(0, 2), (0, 5), (1, 3), (1, 5)]
    offsets = ints(2, 3, 4, 5)
    assert written.at(0, offsets).tolist() == [True, False, False, True]
    assert written.at(1, offsets).tolist() == [False, True, False, True]
    assert written.at(2, offsets).tolist() == [False] * 4
    nothing = Written.of(ints(-1), ints(2))
    assert len(nothing.epoch) == 0
    assert nothing.at(0, offsets).tolist() == [False] * 4


# --- what can excuse ---


@pytest.mark.parametrize(
    ("error_ns", "min_isr", "flagged", "fault_name", "expected"),
    [
        (0, 1, False, "", False),
        (1, 1, False, "", False),
        (0, 1, False, "power", False),
        (1, 1, False, "power", True),
        (1, 2, False, "power", False),
        (1, 1, False, "pause", False),
        (0, 2, True, "", True),
    ],
)
def test_where_clocks_differ_a_fault_that_may_have_destroyed_data_can_excuse(
    error_ns: int, min_isr: int, flagged: bool, fault_name: str, expected: bool
) -> None:
    """Only if one replica may have committed alone."""
    states = [
        state(0, 1, [1, 2], epoch=0, min_isr=2),
        state(50, 2, [2], epoch=1, flagged=flagged, min_isr=min_isr),
    ]
    faults = [fault(60, fault_name, ["b3"])] if fault_name else []
    found = elections_of(states, faults=faults, clock_error_ns=error_ns)
    assert found.can_excuse == expected


@pytest.mark.parametrize(
    ("error_ns", "has_fault", "expected"), [(1, True, True), (1, False, False), (0, True, False)]
)
def test_where_clocks_differ_any_fault_may_justify_a_flagged_election_with_elr(
    error_ns: int, has_fault: bool, expected: bool
) -> None:
    states = [
        state(0, 1, [1, 2], epoch=0, min_isr=2),
        state(50, 2, [2], epoch=1, flagged=True, min_isr=2),
    ]
    faults = [fault(60, "kill", ["b1"])] if has_fault else []
    registered = [broker(0, 1, "registered", clean=True)]
    found = elections_of(states, [], registered, faults, elr_on=True, clock_error_ns=error_ns)
    assert found.can_excuse == expected


@pytest.mark.parametrize(("registered", "expected"), [([], EXCUSED), ([1], UNDECIDED)])
def test_with_elr_a_fault_cannot_justify_a_flagged_election_if_no_brokers_are_recorded(
    registered: list[int], expected: int
) -> None:
    """Then the flag is not checked, so how far the clock of the faults is off decides nothing."""
    states = [state(0, 1, [1, 2], epoch=0), state(50, 2, [2], epoch=1, flagged=True)]
    brokers = [broker(0, each, "registered", clean=True) for each in registered]
    faults = [fault(60, "kill", ["b1"])]
    found = elections_of(states, [], brokers, faults, elr_on=True, clock_error_ns=1)
    assert found.fates(claim(10)).outcome.tolist() == [expected]


@pytest.mark.parametrize(
    ("from_ns", "epoch", "error_ns", "expected"),
    [
        (50, 2, 0, True),
        (51, 2, 0, False),
        (53, 2, 3, True),
        (54, 2, 3, False),
        # A leader acknowledged it that the flagged election deposed, or may have.
        (51, 1, 0, True),
        (51, -1, 0, True),
    ],
)
def test_a_flagged_election_may_have_given_up_what_was_sent_until_then_or_to_an_older_leader(
    from_ns: int, epoch: int, error_ns: int, expected: bool
) -> None:
    """The last flagged election is that at 50, of epoch 2. The one at 80 excuses nothing."""
    states = [
        state(0, 1, [1, 2], epoch=0),
        state(20, 2, [2], epoch=1, flagged=True),
        state(50, 3, [3], epoch=2, flagged=True),
        state(70, -1, [3], epoch=3),
        state(80, 3, [3], epoch=4),
    ]
    found = elections_of(states, clock_error_ns=error_ns)
    assert found.may_excuse_since(ints(from_ns), ints(epoch)).tolist() == [expected]


@pytest.mark.parametrize(
    ("joined", "epoch", "is_hidden"),
    [
        # From the first state on.
        ([state(0, 1, [1], epoch=0, replicas=[1, 3])], 0, False),
        ([state(0, 1, [1], epoch=0, replicas=[1, 3])], 1, True),
        # States before the one that names it are missing, so it may have been a replica in epoch 0 already.
        ([state(0, 1, [1], epoch=1, replicas=[1, 3])], 0, False),
        ([state(0, 1, [1], epoch=1, replicas=[1, 3])], 1, True),
        # It was added in epoch 1.
        (
            [
                state(0, 1, [1], epoch=0, replicas=[1]),
                state(20, 1, [1], epoch=1, replicas=[1, 3]),
            ],
            1,
            False,
        ),
    ],
)
def test_a_log_that_is_empty_when_it_is_first_seen_was_created_if_nobody_has_led_since_it_was_added(
    joined: list[Row], epoch: int, is_hidden: bool
) -> None:
    logs = [
        leads(1, 1, 1, epoch=0, cause="append"),
        replica(40, 3, 0, epoch=epoch, cause="load"),
    ]
    found = elections_of(joined, heard(logs, joined)).logs.may_hide_reader(ints(30), ints(31))
    assert found.tolist() == [is_hidden]


# --- what faults destroyed ---


def outcomes_alone(lost: Claims, alone: Alone, *, was_in_isr: bool = True) -> list[int]:
    """Returns what an election without a flag at 70, in epoch 3, means for records that it lost."""
    found = elections_of([])
    found.elections = [
        Election(
            at_ns=70,
            leader=1,
            leader_epoch=3,
            is_flagged=False,
            was_in_isr=was_in_isr,
            alone=(alone,),
        )
    ]
    outcomes: list[int] = found.fates(lost).outcome.tolist()
    return outcomes


@pytest.mark.parametrize(
    ("from_ns", "by_ns", "expected"),
    [
        (14, 14, UNEXCUSED),
        (14, 15, UNDECIDED),
        (15, 15, UNDECIDED),
        (19, 20, UNDECIDED),
        (20, 20, EXCUSED),
        (60, 60, EXCUSED),
        (60, 61, UNDECIDED),
        (61, 61, UNEXCUSED),
        (20, FOREVER_NS, EXCUSED),
        (61, FOREVER_NS, EXCUSED),
    ],
)
def test_a_fault_explains_the_loss_of_what_was_established_before_it_was_over(
    from_ns: int, by_ns: int, expected: int
) -> None:
    """Broker 1 was certainly alone since 20 and perhaps since 15. The fault was over at 60."""
    alone = Alone(since_ns=20, perhaps_since_ns=15, until_ns=60)
    lost = claims(low_epoch=[2], high_epoch=[2], epoch=[2], from_ns=[from_ns], by_ns=[by_ns])
    assert outcomes_alone(lost, alone) == [expected]


def test_a_record_of_an_unknown_epoch_may_be_older_than_the_fault() -> None:
    alone = Alone(since_ns=20, perhaps_since_ns=15, until_ns=60)
    lost = claims(high_epoch=[2, ANY_EPOCH], epoch=[2, 2], from_ns=[61, 61], by_ns=[61, 61])
    assert outcomes_alone(lost, alone) == [UNEXCUSED, UNDECIDED]


def test_a_fault_that_may_have_destroyed_something_excuses_nothing() -> None:
    alone = Alone(since_ns=FOREVER_NS, perhaps_since_ns=15, until_ns=60)
    lost = claims(
        low_epoch=[2, 2, 2],
        high_epoch=[2, 2, 2],
        epoch=[2, 2, -1],
        from_ns=[20, FOREVER_NS, FOREVER_NS],
        by_ns=[30, FOREVER_NS, FOREVER_NS],
    )
    assert outcomes_alone(lost, alone, was_in_isr=False) == [UNDECIDED, UNDECIDED, UNDECIDED]


@pytest.mark.parametrize(
    ("isr_until_49", "healed_ns", "from_ns", "by_ns", "expected"),
    [
        # Broker 1 was alone at the last moment of its epoch. A deposed leader may establish something later.
        ([1, 2], 55, 48, 48, UNEXCUSED),
        ([1, 2], 55, 49, 49, EXCUSED),
        ([1, 2], 55, 50, 50, EXCUSED),
        # The fault was over before. What nothing is known to have established may be older than its end.
        ([1], 45, 49, FOREVER_NS, EXCUSED),
        ([1], 45, 50, FOREVER_NS, UNDECIDED),
    ],
)
def test_what_is_established_after_an_epoch_counts_as_of_its_last_moment_too(
    isr_until_49: list[int], healed_ns: int, from_ns: int, by_ns: int, expected: int
) -> None:
    """Epoch 0 ends at 50, when nobody leads. Broker 1 is elected again at 60 without the record."""
    states = [
        state(0, 1, isr_until_49, epoch=0, min_isr=1),
        state(49, 1, [1], epoch=0, min_isr=1),
        state(50, -1, [1], epoch=1, min_isr=1),
        state(60, 1, [1], epoch=2, min_isr=1),
    ]
    power = fault(healed_ns - 3, "power", ["b1"], healed=healed_ns)
    lost = claims(low_epoch=[0], high_epoch=[0], epoch=[0], from_ns=[from_ns], by_ns=[by_ns])
    assert elections_of(states, faults=[power]).fates(lost).outcome.tolist() == [expected]


# --- what decides whether elections are checked, and where the log ends ---

FLAGGED = [state(0, 1, [1, 2, 3], epoch=0), state(300, 3, [3], epoch=1, flagged=True)]
"""Broker 3 was elected although brokers 1 and 2 did nothing but register once."""


@pytest.mark.parametrize(
    ("registered", "more", "is_lawful"),
    [
        ([1], {"elr_on": True}, False),
        ([1, 2], {"elr_on": True, "unclean_election_enabled": False}, False),
        ([1], {"elr_on": True, "unclean_election_enabled": True}, True),
        ([1], {"elr_on": False, "unclean_election_enabled": True}, True),
        ([1], {"elr_on": False, "unclean_election_enabled": False}, False),
        ([], {"elr_on": False, "unclean_election_enabled": False}, False),
        ([], {"elr_on": True}, True),
    ],
)
def test_a_flag_is_checked_unless_unclean_elections_are_on_and_with_elr_if_brokers_are_recorded(
    registered: list[int], more: dict[str, bool], is_lawful: bool
) -> None:
    brokers = [broker(0, each, "registered", clean=True) for each in registered]
    assert [e.is_lawful for e in elections_of(FLAGGED, [], brokers, **more).elections] == [
        True,
        is_lawful,
    ]


def test_without_a_leader_and_without_epochs_the_last_look_at_a_leader_shows_the_log_end() -> None:
    looks = [leads(15, 1, 2, epoch=-1, cause="observed")]
    assert elections_of([state(20, -1, [1], epoch=0)], looks).settled_end_offset == 2


@pytest.mark.parametrize(
    ("replicas", "is_gone"),
    [([[1], []], True), ([[1], [], [1]], False), ([[]], False), ([[], []], False), ([[1]], False)],
)
def test_a_log_is_gone_if_it_had_replicas_and_has_none_at_the_end(
    replicas: list[list[int]], is_gone: bool
) -> None:
    states = [
        state(10 * at, 1, each, epoch=0, replicas=each) for at, each in enumerate(replicas, 1)
    ]
    assert elections_of(states).log_is_gone is is_gone


def test_clocks_agree_unless_an_error_is_given() -> None:
    """A record was established at 9, one before the flagged election at 10, or one after it."""
    lost = claims(from_ns=[9, 11], by_ns=[9, 11])
    states = [state(0, 1, [1, 2], epoch=0), state(10, 2, [2], epoch=1, flagged=True)]
    assert elections_of(states).fates(lost).outcome.tolist() == [EXCUSED, UNEXCUSED]
    found = elections_of(states, clock_error_ns=1).fates(lost)
    assert found.outcome.tolist() == [EXCUSED, UNDECIDED]
    assert found.election.tolist() == [1, 1]


def test_broker_0_may_be_the_last_leader_whose_log_was_looked_at_now_and_then() -> None:
    states = [state(10, 1, [0, 1], epoch=0), state(20, 0, [0, 1], epoch=1)]
    looks = [leads(25, 0, 2, epoch=1, cause="observed")]
    assert elections_of(states, looks).settled_end_offset == 2


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([state(0, 1, [1], epoch=0), state(10, 2, [2], epoch=2)], [False, True]),
        # No state is missing, and nobody was in the ISR before.
        (
            [
                state(0, 1, [1], epoch=0),
                state(5, -1, [], epoch=1),
                state(10, 2, [2], epoch=2, flagged=True),
            ],
            [False, False],
        ),
    ],
)
def test_an_election_follows_a_gap_if_states_are_missing_right_before_it(
    states: list[Row], expected: list[bool]
) -> None:
    found = elections_of(states).elections
    assert [election.follows_gap for election in found] == expected
    assert [election.is_undecided for election in found] == expected


# --- with recorded logs ---

LOGS = [
    leads(1, 1, 1, epoch=0),
    leads(3, 1, 2, hw=1, epoch=0),
    replica(4, 2, 1, hw=1),
    replica(4, 3, 1, hw=1),
    leads(21, 2, 1, hw=1, epoch=1, cause="role"),
    leads(30, 2, 2, hw=1, epoch=1),
    leads(51, 3, 1, hw=1, epoch=2, cause="role"),
    leads(60, 3, 2, hw=2, epoch=2),
]
"""Brokers 1 and 2 both wrote offset 1, in epochs 0 and 1. Broker 3 wrote it after both, in epoch 2."""


@pytest.mark.parametrize(
    ("flags", "at_the_end", "before_another_one"),
    [
        ((True, True), EXCUSED, EXCUSED),
        ((False, False), UNEXCUSED, UNDECIDED),
        ((False, True), UNDECIDED, UNDECIDED),
        ((True, False), UNDECIDED, UNDECIDED),
    ],
)
def test_a_torn_record_has_the_fate_that_both_of_its_epochs_give(
    flags: tuple[bool, bool], at_the_end: int, before_another_one: int
) -> None:
    """Brokers 1 and 2 both wrote offset 1, and what each wrote was lost by the next election, at 20 or 50."""
    states = [
        state(0, 1, [1, 2, 3], epoch=0),
        state(20, 2, [2, 3], epoch=1, flagged=flags[0]),
        state(50, 3, [3], epoch=2, flagged=flags[1]),
    ]
    found = elections_of(states, heard(LOGS, states))
    assert found.logs.has_all_changes
    lost = claims(offset=[1], low_epoch=[0], high_epoch=[1], from_ns=[3], by_ns=[40])
    until = claims(offset=[1], low_epoch=[2], high_epoch=[2], epoch=[2], from_ns=[60], by_ns=[60])
    assert found.fates(lost).outcome.tolist() == [at_the_end]
    assert found.fates(lost, until).outcome.tolist() == [before_another_one]


@pytest.mark.parametrize(
    ("between", "at_the_end", "before_another_one"),
    [(True, EXCUSED, EXCUSED), (False, UNDECIDED, UNDECIDED)],
)
def test_a_torn_record_has_the_fate_that_an_epoch_between_its_first_and_its_last_gives_too(
    between: bool, at_the_end: int, before_another_one: int
) -> None:
    """Leaders of three epochs wrote offset 1, and what each wrote was lost by the next election, at 20, 50 or 70.

    The elections at 20 and 70 are flagged, the one at 50 may be.
    """
    states = [
        state(0, 1, [1, 2, 3], epoch=0),
        state(20, 2, [2, 3], epoch=1, flagged=True),
        state(50, 3, [3], epoch=2, flagged=between),
        state(70, 2, [2], epoch=3, flagged=True),
    ]
    logs = [
        *LOGS,
        replica(65, 2, 1, hw=1, epoch=2, cause="truncate"),
        leads(71, 2, 1, hw=1, epoch=3, cause="role"),
        leads(80, 2, 2, hw=2, epoch=3),
    ]
    found = elections_of(states, heard(logs, states))
    assert found.logs.has_all_changes
    lost = claims(offset=[1], low_epoch=[0], high_epoch=[2], from_ns=[3], by_ns=[60])
    until = claims(offset=[1], low_epoch=[3], high_epoch=[3], epoch=[3], from_ns=[80], by_ns=[80])
    assert found.fates(lost).outcome.tolist() == [at_the_end]
    assert found.fates(lost, until).outcome.tolist() == [before_another_one]


@pytest.mark.parametrize(("epoch", "expected"), [(-1, EXCUSED), (0, UNEXCUSED), (1, EXCUSED)])
def test_an_election_does_not_explain_what_was_established_in_an_earlier_epoch(
    epoch: int, expected: int
) -> None:
    """The flagged election at 20 lost offset 1; another record was established at 30, in some epoch."""
    states = [
        state(0, 1, [1, 2, 3], epoch=0),
        state(20, 2, [2, 3], epoch=1, flagged=True),
        state(50, 3, [3], epoch=2, flagged=True),
    ]
    lost = claims(offset=[1], low_epoch=[0], high_epoch=[0], epoch=[0], from_ns=[3], by_ns=[4])
    until = claims(
        offset=[1], low_epoch=[epoch], high_epoch=[epoch], epoch=[epoch], from_ns=[30], by_ns=[30]
    )
    assert elections_of(states, heard(LOGS, states)).fates(lost, until).outcome.tolist() == [
        expected
    ]


# --- without recorded logs ---


@pytest.mark.parametrize(("epoch", "expected"), [(2, EXCUSED), (3, UNDECIDED)])
def test_elections_that_are_not_recorded_may_bring_a_record_back(epoch: int, expected: int) -> None:
    """The leader of epoch 1 lacked the record. The one at 40 is not flagged, and may have lost it again."""
    states = [
        state(0, 1, [1, 2, 3], epoch=0),
        state(10, 2, [2], epoch=1, flagged=True),
        state(30, -1, [2], epoch=epoch),
        state(40, 3, [3], epoch=epoch + 1),
    ]
    lost = claims(low_epoch=[0], high_epoch=[0], epoch=[0], from_ns=[5], by_ns=[5])
    fates = elections_of(states).fates(lost, None, Written.of(ints(1), ints(0)))
    assert fates.outcome.tolist() == [expected]


def test_a_deposed_leader_may_have_written_what_was_established_after_a_flagged_election() -> None:
    """Broker 2 was not in the ISR when it was elected at 10."""
    states = [state(0, 1, [1], epoch=0), state(10, 2, [2], epoch=1, flagged=True)]
    lost = claims(from_ns=[10, 11], by_ns=[12, 12])
    assert elections_of(states).fates(lost).outcome.tolist() == [EXCUSED, UNDECIDED]


def one_election(at_ns: int, epoch: int, **more: Any) -> Election:
    return Election(at_ns=at_ns, leader=1, leader_epoch=epoch, is_flagged=True, **more)


def outcomes_of(elections: list[Election], lost: Claims, until: Claims | None = None) -> list[int]:
    found = elections_of([])
    found.elections = elections
    outcomes: list[int] = found.fates(lost, until).outcome.tolist()
    return outcomes


@pytest.mark.parametrize(
    ("low_epoch", "high_epoch", "epoch", "expected"),
    [
        # Perhaps a deposed leader wrote it, unless it was established in an earlier epoch.
        (-1, ANY_EPOCH, -1, UNDECIDED),
        (-1, ANY_EPOCH, 0, EXCUSED),
        (-1, ANY_EPOCH, 2, EXCUSED),
        (-1, ANY_EPOCH, 3, UNEXCUSED),
        (2, ANY_EPOCH, -1, UNDECIDED),
        (3, ANY_EPOCH, -1, UNEXCUSED),
        (1, 2, -1, EXCUSED),
        (1, 3, -1, UNEXCUSED),
        (1, 2, 2, EXCUSED),
        (1, 2, 3, UNEXCUSED),
    ],
)
def test_epochs_show_that_a_record_is_older_than_an_election_before_it_was_seen(
    low_epoch: int, high_epoch: int, epoch: int, expected: int
) -> None:
    """The record was first seen at 11, after the election at 10 of epoch 3 from outside of the ISR."""
    lost = claims(
        low_epoch=[low_epoch], high_epoch=[high_epoch], epoch=[epoch], from_ns=[11], by_ns=[12]
    )
    assert outcomes_of([one_election(10, 3, was_in_isr=False)], lost) == [expected]


NOTHING_DESTROYED = Alone(since_ns=FOREVER_NS, perhaps_since_ns=FOREVER_NS, until_ns=FOREVER_NS)
LATE = {"epoch": [0], "from_ns": [11], "by_ns": [12]}
"""A record of epoch 0 that was first seen after the election at 10."""


@pytest.mark.parametrize(("low_epoch", "expected"), [(2, UNDECIDED), (3, EXCUSED), (4, EXCUSED)])
def test_the_epoch_of_the_next_record_shows_that_an_election_came_between(
    low_epoch: int, expected: int
) -> None:
    until = claims(low_epoch=[low_epoch], from_ns=[9], by_ns=[20])
    election = one_election(10, 3, was_in_isr=False)
    assert outcomes_of([election], claims(**LATE), until) == [expected]


@pytest.mark.parametrize(("from_ns", "expected"), [(9, UNDECIDED), (10, EXCUSED), (11, EXCUSED)])
def test_the_time_of_the_next_record_shows_it_if_no_leader_may_have_been_deposed(
    from_ns: int, expected: int
) -> None:
    until = claims(from_ns=[from_ns], by_ns=[20])
    election = one_election(10, 3, alone=(NOTHING_DESTROYED,))
    assert outcomes_of([election], claims(**LATE), until) == [expected]


@pytest.mark.parametrize(("other_at", "expected"), [(10, UNDECIDED), (11, EXCUSED)])
def test_only_an_election_until_then_may_have_deposed_a_leader_that_does_not_know_it(
    other_at: int, expected: int
) -> None:
    until = claims(from_ns=[11], by_ns=[20])
    elections = [
        one_election(10, 3, alone=(NOTHING_DESTROYED,)),
        one_election(other_at, 4, was_in_isr=False),
    ]
    assert outcomes_of(elections, claims(**LATE), until) == [expected]


@pytest.mark.parametrize(("last_state_at", "expected"), [(10, UNDECIDED), (20, EXCUSED)])
def test_an_election_that_is_not_recorded_may_have_deposed_a_leader_since_the_last_state(
    last_state_at: int, expected: int
) -> None:
    """The leader of epoch 1, elected at 10, lacked the record. Epoch 2 is not recorded."""
    led = [state(at, 2, [2, 3], epoch=1, flagged=at == 10) for at in {10, last_state_at}]
    states = [state(0, 1, [1, 2, 3], epoch=0), *led, state(30, -1, [2, 3], epoch=3)]
    lost = claims(low_epoch=[0], high_epoch=[0], epoch=[0], from_ns=[5], by_ns=[5])
    until = claims(from_ns=[40], by_ns=[40])
    fates = elections_of(states).fates(lost, until, Written.of(ints(1), ints(0)))
    assert fates.outcome.tolist() == [expected]


@pytest.mark.parametrize(("by_ns", "expected"), [(10, EXCUSED), (11, UNDECIDED)])
def test_a_record_may_be_established_at_the_moment_of_the_election_that_lost_it(
    by_ns: int, expected: int
) -> None:
    """The leader of epoch 1, elected at 10, lacked the record. If it came later, the next one may have lost it."""
    states = [
        state(0, 1, [1, 2, 3], epoch=0),
        state(10, 2, [2, 3], epoch=1, flagged=True),
        state(40, 3, [3], epoch=2),
    ]
    lost = claims(low_epoch=[0], high_epoch=[0], from_ns=[5], by_ns=[by_ns])
    fates = elections_of(states).fates(lost, None, Written.of(ints(1), ints(0)))
    assert fates.outcome.tolist() == [expected]


@pytest.mark.parametrize("elr_on", [False, True])
def test_a_member_of_the_isr_brings_nothing_back_that_its_leader_lacked(elr_on: bool) -> None:
    """The leader of epoch 1, elected at 10, lacked the record, so the elections after it lost nothing."""
    states = [
        state(0, 1, [1, 2, 3], epoch=0),
        state(10, 2, [2, 3], epoch=1, flagged=True),
        state(40, 3, [2, 3], epoch=2),
        state(50, 2, [2], epoch=3),
    ]
    lost = claims(low_epoch=[0], high_epoch=[0], epoch=[0], from_ns=[5], by_ns=[5])
    found = elections_of(states, elr_on=elr_on)
    fates = found.fates(lost, None, Written.of(ints(1), ints(0)))
    assert (fates.outcome.tolist(), fates.election.tolist()) == ([EXCUSED], [1])


def test_broker_0_can_be_elected() -> None:
    states = [
        state(0, 0, [0, 1], epoch=0),
        state(5, -1, [0, 1], epoch=1),
        state(10, 0, [0, 1], epoch=2),
        state(20, 1, [1], epoch=3),
    ]
    found = elections_of(states).elections
    assert [(election.leader, election.at_ns) for election in found] == [(0, 0), (0, 10), (1, 20)]


@pytest.mark.parametrize(
    ("started", "expected"), [({2: 25, 3: 15}, EXCUSED), ({2: 15, 3: 25}, UNDECIDED)]
)
def test_an_election_of_a_broker_that_did_not_register_until_the_next_one_had_no_effect(
    started: dict[int, int], expected: int
) -> None:
    """Broker 2 was down when it was elected at 10. The flagged election of broker 3 was at 20."""
    states = [
        state(0, 1, [1, 2, 3], epoch=0),
        state(10, 2, [2, 3], epoch=1),
        state(20, 3, [3], epoch=2, flagged=True),
    ]
    looks = [replica(4, 2, 2, role="offline", cause="down")]
    brokers = [broker(at, each, "registered", clean=True) for each, at in started.items()]
    lost = claims(low_epoch=[0], high_epoch=[0], epoch=[0], from_ns=[5], by_ns=[5])
    assert elections_of(states, looks, brokers).fates(lost).outcome.tolist() == [expected]


@pytest.mark.parametrize(("high_epoch", "expected"), [(2, UNDECIDED), (3, UNEXCUSED)])
def test_elections_that_are_not_recorded_lost_nothing_of_their_last_epoch(
    high_epoch: int, expected: int
) -> None:
    """Epochs 1 and 2 are not recorded, and epoch 3 began before 20. The record was first seen after that."""
    states = [state(0, 1, [1, 2, 3], epoch=0), state(20, 2, [2], epoch=3)]
    lost = claims(low_epoch=[1], high_epoch=[high_epoch], from_ns=[21], by_ns=[22])
    assert elections_of(states).fates(lost).outcome.tolist() == [expected]


UNKNOWN_EPOCHS = [
    state(0, 1, [1, 2, 3], epoch=0),
    state(10, 1, [1, 2, 3], epoch=0, metadata_offset=10),
    state(20, -1, [2], epoch=4),
]
"""Between 10 and 20, leaders of the epochs 1 to 3 may have been elected."""


@pytest.mark.parametrize(("from_ns", "expected"), [(20, UNDECIDED), (21, UNEXCUSED)])
def test_a_gap_may_have_lost_what_was_established_until_its_end(
    from_ns: int, expected: int
) -> None:
    lost = claims(low_epoch=[1], high_epoch=[3], from_ns=[from_ns], by_ns=[30])
    assert elections_of(UNKNOWN_EPOCHS).fates(lost).outcome.tolist() == [expected]


@pytest.mark.parametrize(("by_ns", "expected"), [(9, UNEXCUSED), (10, UNDECIDED)])
def test_a_gap_may_explain_what_was_established_since_its_beginning(
    by_ns: int, expected: int
) -> None:
    lost = claims(low_epoch=[0], high_epoch=[0], from_ns=[5], by_ns=[5])
    until = claims(from_ns=[5], by_ns=[by_ns])
    assert elections_of(UNKNOWN_EPOCHS).fates(lost, until).outcome.tolist() == [expected]


# --- states that were read late ---


@pytest.mark.parametrize("first_after_ns", [None, -5])
@pytest.mark.parametrize(
    ("at_ns", "after_ns", "outcome", "election"),
    [
        (30, 20, EXCUSED, 1),
        (31, None, UNEXCUSED, -1),
        (31, 31, UNEXCUSED, -1),
        # It may have been committed before the other record was established.
        (40, 20, UNDECIDED, 1),
        (40, 30, UNDECIDED, 1),
        (40, 31, UNEXCUSED, -1),
    ],
)
def test_an_election_that_was_read_late_may_have_been_before_the_other_record(
    first_after_ns: int | None, at_ns: int, after_ns: int | None, outcome: int, election: int
) -> None:
    """The lost record was established by 5, and the other one at its offset by 30."""
    states = [
        state(0, 1, [1, 2], epoch=0) | {"after_ns": first_after_ns},
        state(at_ns, 2, [2], epoch=1, flagged=True) | {"after_ns": after_ns},
    ]
    lost = claims(low_epoch=[0], high_epoch=[0], from_ns=[4], by_ns=[5])
    until = claims(from_ns=[29], by_ns=[30])
    fates = elections_of(states).fates(lost, until)
    assert (fates.outcome.tolist(), fates.election.tolist()) == ([outcome], [election])


@pytest.mark.parametrize(
    ("after_ns", "from_ns", "by_ns", "outcome"),
    [
        (50, 60, 70, UNDECIDED),
        (60, 60, 70, EXCUSED),
        (59, 60, 70, UNDECIDED),
        (None, 60, 70, EXCUSED),
        # Whenever the election was committed, the record was sent after it.
        (50, 101, 102, UNDECIDED),
    ],
)
def test_an_election_that_was_read_late_may_have_been_before_the_lost_record(
    after_ns: int | None, from_ns: int, by_ns: int, outcome: int
) -> None:
    """The flagged election was committed by 100. Clients know no epochs, so the new leader may have the record."""
    states = [
        state(0, 1, [1, 2], epoch=0),
        state(100, 3, [3], epoch=1, flagged=True) | {"after_ns": after_ns},
    ]
    fates = elections_of(states).fates(claims(from_ns=[from_ns], by_ns=[by_ns]))
    assert (fates.outcome.tolist(), fates.election.tolist()) == ([outcome], [1])


@pytest.mark.parametrize(
    ("at_ns", "after_ns", "outcome"),
    [(40, None, EXCUSED), (40, 20, UNDECIDED), (25, None, UNDECIDED), (40, 30, EXCUSED)],
)
def test_an_election_that_was_read_late_may_have_been_before_a_read_of_the_record(
    at_ns: int, after_ns: int | None, outcome: int
) -> None:
    """The record was established at 5, and a read that began at 30 shows it."""
    states = [
        state(0, 1, [1, 2], epoch=0),
        state(at_ns, 2, [2], epoch=1, flagged=True) | {"after_ns": after_ns},
    ]
    lost = claims(low_epoch=[0], high_epoch=[0], from_ns=[4], by_ns=[5], read_ns=[30])
    assert elections_of(states).fates(lost).outcome.tolist() == [outcome]


def test_an_election_may_have_been_between_two_records_at_a_moment_within_its_bounds() -> None:
    """Read at 100 it is after both, committed at 50 before both; between them it excuses the loss."""
    states = [
        state(0, 1, [1, 2], epoch=0),
        state(100, 3, [1, 3], epoch=1, flagged=True) | {"after_ns": 50},
    ]
    lost, until = claims(from_ns=[60], by_ns=[61]), claims(from_ns=[70], by_ns=[71])
    assert elections_of(states).fates(lost, until).outcome.tolist() == [UNDECIDED]


def test_the_first_election_is_named_if_one_that_was_read_late_may_have_had_the_record() -> None:
    """Election 0 lost the record, and the replica that was elected later, by 40 but perhaps at 20, has it."""
    states = [
        state(10, 1, [1], epoch=1, flagged=True),
        state(40, 2, [1, 2], epoch=2) | {"after_ns": 20},
    ]
    logs = [
        leads(2, 1, 1, epoch=0, cause="append"),
        replica(3, 2, 1, epoch=0, cause="replicate"),
        replica(9, 1, 0, epoch=0, cause="truncate"),
    ]
    lost = claims(offset=[0], low_epoch=[0], high_epoch=[0], from_ns=[4], by_ns=[5])
    until = claims(from_ns=[29], by_ns=[30])
    found = elections_of(states, heard(logs, states))
    late = elections_of([states[0], {**states[1], "after_ns": None}], heard(logs, states))
    for elections, outcome in ((found, UNDECIDED), (late, EXCUSED)):
        fates = elections.fates(lost, until)
        assert (fates.outcome.tolist(), fates.election.tolist()) == ([outcome], [0])


# --- records that were read after the election that lost them ---


@pytest.mark.parametrize(
    ("high_epoch", "read_ns", "until_ns", "outcome"),
    [
        # What the new leader wrote there shows that it lacked the record: a deposed leader showed it.
        (0, 60, None, EXCUSED),
        # It may have been written in the new leader's epoch.
        (1, 60, None, UNDECIDED),
        (1, 50, None, EXCUSED),
        (1, 51, None, UNDECIDED),
        # Only a read before the other record was established shows that it was still there.
        (1, 60, 60, UNDECIDED),
        (1, 60, 59, EXCUSED),
    ],
)
def test_a_record_that_was_read_after_the_election_may_not_have_been_lost_by_it(
    high_epoch: int, read_ns: int, until_ns: int | None, outcome: int
) -> None:
    states = [state(0, 1, [1, 2], epoch=0), state(50, 2, [2], epoch=1, flagged=True)]
    lost = claims(
        offset=[5],
        low_epoch=[0],
        high_epoch=[high_epoch],
        from_ns=[4],
        by_ns=[60],
        read_ns=[read_ns],
    )
    until = None if until_ns is None else claims(from_ns=[52], by_ns=[until_ns])
    fates = elections_of(states).fates(lost, until, Written.of(ints(1), ints(5)))
    assert fates.outcome.tolist() == [outcome]
