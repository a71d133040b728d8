"""The states of a classic group and the legal transitions between them, as data.

::

             join                       all joined, or the time is up
    EMPTY ----------> PREPARING_REBALANCE -------------------------> COMPLETING_REBALANCE
      ^                 ^    ^    ^                                    |            |
      | no member left  |    |    |  join, leave, expiry, no sync      |            | the leader's assignment
      +-----------------+    |    +------------------------------------+            v
                             +------------------------------------------------- STABLE

Theory. A *generation* is one agreement on members, protocol and leader. PREPARING_REBALANCE collects the
members of the next generation, COMPLETING_REBALANCE waits for the leader's assignment, STABLE has it. Every
change of membership after the collection starts the next rebalance, so both later states lead back to
PREPARING_REBALANCE, and a group loses its last member only there: EMPTY follows from no other state.

DEAD means that this coordinator has given the group up: another broker coordinates it now, or this one stops.
Every state may end in DEAD, and nothing follows it. A coordinator that takes over restores the group from the
log, as EMPTY or STABLE; the states between them are not stored, so an interrupted rebalance starts over.

Source:
    Kafka's `ClassicGroupState` and its valid previous states. Kafka enters DEAD also for a group that is deleted;
    here a deleted group is forgotten, whatever its state (GRP-5 requires EMPTY).
"""

from collections.abc import Mapping
from enum import StrEnum

from system_under_test.invariants import check_invariant, check_transition


class GroupState(StrEnum):
    """State of a group, with Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


LEGAL_TRANSITIONS: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.DEAD}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.PREPARING_REBALANCE, GroupState.STABLE, GroupState.DEAD}
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}
"""For every state, its legal successors."""

RESTORED_STATES = frozenset({GroupState.EMPTY, GroupState.STABLE})
"""States in which a group begins when it is created, or restored from the log."""


def check_group_transition(
    group_id: str, generation: int, old: GroupState | None, new: GroupState
) -> None:
    """Refuses a transition that is not listed.

    Args:
        group_id: For the message.
        generation: For the message.
        old: The current state; None for a group that is restored from the log.
        new: The next state.

    Raises:
        InvariantViolation: INV-12, the table does not list the transition.
    """
    if old is None:
        check_invariant(
            new in RESTORED_STATES,
            "INV-12",
            "a group is restored as empty or stable",
            group=group_id,
            generation=generation,
            new=new,
        )
        return
    check_transition(
        LEGAL_TRANSITIONS, old, new, of="a group", group=group_id, generation=generation
    )
