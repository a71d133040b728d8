"""Every pair of group states: the table decides what is accepted, and the group obeys it."""

import itertools

import pytest

from system_under_test.config import GroupConfig
from system_under_test.group.members import NEVER_MS, JoinRequest, JoinResult
from system_under_test.group.state import Group
from system_under_test.group.transitions import (
    LEGAL_TRANSITIONS,
    GroupState,
    check_group_transition,
)
from system_under_test.invariants import InvariantViolation
from system_under_test.protocol.errors import ErrorCode

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

LEGAL = {
    (EMPTY, PREPARING),
    (PREPARING, EMPTY),
    (PREPARING, COMPLETING),
    (COMPLETING, PREPARING),
    (COMPLETING, STABLE),
    (STABLE, PREPARING),
    (EMPTY, DEAD),
    (PREPARING, DEAD),
    (COMPLETING, DEAD),
    (STABLE, DEAD),
}


@pytest.mark.parametrize(("old", "new"), list(itertools.product(GroupState, GroupState)))
def test_exactly_the_listed_transitions_are_accepted(old: GroupState, new: GroupState) -> None:
    if (old, new) in LEGAL:
        check_group_transition("g", 3, old, new)
    else:
        with pytest.raises(InvariantViolation, match="INV-12") as caught:
            check_group_transition("g", 3, old, new)
        assert caught.value.context == {"old": old, "new": new, "group": "g", "generation": 3}


@pytest.mark.parametrize("state", list(GroupState))
def test_a_group_is_restored_as_empty_or_stable(state: GroupState) -> None:
    if state in (EMPTY, STABLE):
        check_group_transition("g", 3, None, state)
    else:
        with pytest.raises(InvariantViolation, match="INV-12"):
            check_group_transition("g", 3, None, state)


def test_the_table_names_every_state() -> None:
    assert set(LEGAL_TRANSITIONS) == set(GroupState)


def group_with_a_waiting_member() -> Group:
    group = Group(
        group_id="g",
        config=GroupConfig(group_initial_rebalance_delay_ms=0),
        new_member_id=lambda client: f"{client}-1",
    )
    request = JoinRequest(
        member_id="",
        instance_id=None,
        client_id="c",
        client_host="/host",
        session_timeout_ms=6000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
        needs_known_member_id=False,
    )
    group.join(request, "first", 0)
    group.sync("c-1", None, 1, (None, None), {}, "second", 0)
    group.take_results()
    return group


def test_an_abandoned_group_ignores_a_late_write_and_late_timeouts() -> None:
    """The assignment was being written when the leadership of the offsets partition was lost."""
    group = group_with_a_waiting_member()
    assert group.state is COMPLETING
    group.give_up(ErrorCode.NOT_COORDINATOR)
    ((waiter, result),) = group.take_results()
    assert waiter == "second"
    assert not isinstance(result, JoinResult)
    assert result.error is ErrorCode.NOT_COORDINATOR
    group.assignment_stored(1, ErrorCode.NONE, 10)
    group.expire(NEVER_MS - 1)
    assert group.state is DEAD
    assert group.take_results() == []
    assert group.next_deadline_ms() == NEVER_MS


def test_a_group_is_abandoned_only_once() -> None:
    group = group_with_a_waiting_member()
    group.give_up(ErrorCode.NOT_COORDINATOR)
    with pytest.raises(InvariantViolation, match="INV-12"):
        group.give_up(ErrorCode.NOT_COORDINATOR)
