"""Legal transitions between the states of a quorum member, as data.

Theory. The states are defined in `state.py`. Within one epoch a member moves towards a leader: it learns the
leader (Follower), or checks whether an election is useful (Prospective), stands for election (Candidate) and wins
(Leader). A higher epoch overrides everything: any member that hears of one becomes Unattached, or Follower if
it hears the leader's name as well. Three rules follow, and the table is their consequence:

* A member starts a new epoch in one way only: it becomes Candidate. All other transitions to a higher epoch repeat
  the message of another member, except that Resigned gives up its own epoch when its election timeout expires.
* A leader leaves its epoch by resigning, or by hearing of a higher epoch. After it resigned it never leads,
  votes or follows in that epoch again (RAFT-3).
* A follower keeps its leader for the whole epoch (INV-8). It may question the leader (Prospective), but not
  forget it.

The table therefore lists not only pairs of states but also whether the epoch stays the same or grows. Loops
such as Unattached -> Unattached in the same epoch stand for a vote that was given away.

Single-voter quorums and profiles without pre-vote use the same table. Without pre-vote, Candidate takes the
place of Prospective: Follower, Unattached and Candidate go to Candidate of the next epoch.

Source:
    Kafka's `QuorumState`, whose class comment lists its transitions.
"""

from collections.abc import Mapping
from enum import Flag, auto

from system_under_test.invariants import check_invariant
from system_under_test.raft.state import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    State,
    Unattached,
)


class EpochStep(Flag):
    """How the epoch changes in a transition."""

    SAME = auto()
    HIGHER = auto()


_SAME = EpochStep.SAME
_HIGHER = EpochStep.HIGHER

START_STATES: frozenset[type[State]] = frozenset({Unattached, Candidate, Follower, Resigned})
"""States that follow from the quorum-state file (RAFT-3); a leader never starts as leader."""

LEGAL_TRANSITIONS: Mapping[type[State], Mapping[type[State], EpochStep]] = {
    Unattached: {
        Unattached: _SAME | _HIGHER,  # it voted; it heard of a higher epoch
        Prospective: _SAME,  # the election timeout expired
        Candidate: _HIGHER,  # the same, without pre-vote
        Follower: _SAME | _HIGHER,  # it heard of a leader
    },
    Prospective: {
        Unattached: _SAME
        | _HIGHER,  # the pre-vote was not won and no leader is known; a higher epoch
        Prospective: _SAME,  # it voted
        Candidate: _HIGHER,  # a majority granted the pre-vote
        Follower: _SAME
        | _HIGHER,  # the pre-vote was not won and a leader is known; it heard of a leader
    },
    Candidate: {
        Unattached: _HIGHER,
        Prospective: _SAME,  # the election timeout expired
        Candidate: _HIGHER,  # the same, without pre-vote
        Leader: _SAME,  # a majority granted the vote
        Follower: _SAME | _HIGHER,  # another member won; it heard of a leader
    },
    Leader: {
        Unattached: _HIGHER,
        Follower: _HIGHER,
        Resigned: _SAME,  # shutdown, or no majority fetched in time (RAFT-4)
    },
    Follower: {
        Unattached: _HIGHER,
        Prospective: _SAME,  # the fetch timeout expired
        Candidate: _HIGHER,  # the same, without pre-vote
        Follower: _HIGHER,
    },
    Resigned: {
        Unattached: _HIGHER,  # the election timeout expired; a higher epoch
        Follower: _HIGHER,
    },
}
"""For every state, its legal successors and how the epoch may change."""


def check_transition(old: State | None, new: State) -> None:
    """Refuses a transition that is not listed.

    Args:
        old: The current state; None when the member starts.
        new: The next state.

    Raises:
        InvariantViolation: INV-8, the epoch would decrease; INV-12, the table does not list the transition.
    """
    if old is None:
        check_invariant(
            type(new) in START_STATES,
            "INV-12",
            "a quorum member starts in a state that follows from its quorum-state file",
            new=new,
        )
        return
    check_invariant(
        new.epoch >= old.epoch,
        "INV-8",
        "the quorum epoch never decreases",
        known=old.epoch,
        new=new.epoch,
    )
    step = _SAME if new.epoch == old.epoch else _HIGHER
    check_invariant(
        step in LEGAL_TRANSITIONS[type(old)].get(type(new), EpochStep(0)),
        "INV-12",
        "the state of a quorum member changes only along listed transitions",
        old=old,
        new=new,
    )
