"""Every pair of quorum states, with the same and a higher epoch: the table decides what is accepted."""

import itertools

import pytest

from system_under_test.invariants import InvariantViolation
from system_under_test.raft.state import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    State,
    Tally,
    Unattached,
)
from system_under_test.raft.transitions import (
    LEGAL_TRANSITIONS,
    START_STATES,
    check_transition,
)

TALLY = Tally(voters=(11, 12, 13))


def state_of(kind: type[State], epoch: int) -> State:
    states: dict[type, State] = {
        Unattached: Unattached(epoch=epoch),
        Prospective: Prospective(epoch=epoch, tally=TALLY),
        Candidate: Candidate(epoch=epoch, tally=TALLY, voted_id=11),
        Leader: Leader(epoch=epoch, voted_id=11, leader_id=11),
        Follower: Follower(epoch=epoch, leader_id=12),
        Resigned: Resigned(epoch=epoch, node_id=11),
    }
    return states[kind]


KINDS = (Unattached, Prospective, Candidate, Leader, Follower, Resigned)

# One row per current state, one column per next state in the order of KINDS:
# "s" the same epoch, "h" a higher one, "b" both, "." never.
EXPECTED = """
    Unattached  b s h . b .
    Prospective b s h . b .
    Candidate   h s h s b .
    Leader      h . . . h s
    Follower    h s h . h .
    Resigned    h . . . h .
"""
STEPS = {"s": {0}, "h": {1}, "b": {0, 1}, ".": set()}


def expected_steps(old: type[State], new: type[State]) -> set[int]:
    rows = {line.split()[0]: line.split()[1:] for line in EXPECTED.strip().splitlines()}
    return STEPS[rows[old.__name__][KINDS.index(new)]]


@pytest.mark.parametrize(
    ("old", "new", "epochs"),
    list(itertools.product(KINDS, KINDS, (0, 1))),
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value),
)
def test_exactly_the_listed_transitions_are_accepted(
    old: type[State], new: type[State], epochs: int
) -> None:
    before, after = state_of(old, 5), state_of(new, 5 + epochs)
    if epochs in expected_steps(old, new):
        check_transition(before, after)
    else:
        with pytest.raises(InvariantViolation, match="INV-12") as caught:
            check_transition(before, after)
        assert caught.value.context == {"old": before, "new": after}


@pytest.mark.parametrize(("old", "new"), list(itertools.product(KINDS, KINDS)))
def test_no_transition_goes_back_to_an_older_epoch(old: type[State], new: type[State]) -> None:
    with pytest.raises(InvariantViolation, match="INV-8"):
        check_transition(state_of(old, 5), state_of(new, 4))


@pytest.mark.parametrize("kind", KINDS)
def test_a_member_starts_in_every_state_but_leader_and_prospective(kind: type[State]) -> None:
    if kind in (Leader, Prospective):
        with pytest.raises(InvariantViolation, match="INV-12"):
            check_transition(None, state_of(kind, 5))
    else:
        check_transition(None, state_of(kind, 5))


def test_the_table_names_every_state() -> None:
    assert set(LEGAL_TRANSITIONS) == set(KINDS)
    assert set(KINDS) - START_STATES == {Leader, Prospective}
