"""The pure parts of the metadata quorum: states, votes, start-up, commit rule."""

import pytest

from system_under_test.invariants import InvariantViolation
from system_under_test.raft.leadership import UNKNOWN, Leadership
from system_under_test.raft.state import (
    NO_NODE,
    Candidate,
    Election,
    Follower,
    Leader,
    LogPosition,
    Prospective,
    Resigned,
    State,
    Tally,
    Unattached,
    after_hearing,
    begin_election,
    begin_pre_vote,
    decode_election,
    election_of,
    encode_election,
    give_up_pre_vote,
    grants_pre_vote,
    grants_vote,
    initial_state,
)
from system_under_test.rules import ALL_RULES, Rules

VOTERS = (11, 12, 13)
EMPTY_TALLY = Tally(voters=VOTERS)
LOG = LogPosition(last_epoch=3, end_offset=100)


def start(stored: Election | None, *, log_epoch: int = 0, pre_vote: bool = True, node: int = 11):
    return initial_state(
        stored, log_epoch=log_epoch, node_id=node, voters=VOTERS, pre_vote=pre_vote
    )


# --- quorum-state file ---------------------------------------------------------------------------------


def test_the_quorum_state_file_keeps_epoch_leader_and_vote() -> None:
    election = Election(epoch=7, leader_id=12, voted_id=13)
    assert decode_election(encode_election(election)) == election


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"data_version": 1}',
        b'{"data_version": 9, "leaderEpoch": 1, "leaderId": 1, "votedId": 1}',
        b'{"data_version": 1, "leaderEpoch": true, "leaderId": 1, "votedId": 1}',
        b'{"data_version": 1, "leaderEpoch": -1, "leaderId": 1, "votedId": 1}',
        b"\xff\xfe",
    ],
)
def test_a_damaged_quorum_state_file_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="quorum-state"):
        decode_election(data)


# --- start-up (RAFT-3) ---------------------------------------------------------------------------------


def test_a_first_start_is_unattached_in_the_logs_epoch() -> None:
    assert start(None, log_epoch=0) == Unattached(epoch=0)
    assert start(None, log_epoch=4) == Unattached(epoch=4)


def test_a_stored_state_older_than_the_log_is_ignored() -> None:
    assert start(Election(epoch=2, leader_id=12), log_epoch=4) == Unattached(epoch=4)


def test_a_leader_restarts_as_resigned_in_the_same_epoch() -> None:
    state = start(Election(epoch=5, leader_id=11, voted_id=11), log_epoch=5)
    assert state == Resigned(epoch=5, node_id=11, voted_id=11)


def test_a_resigned_leader_that_restarts_is_resigned_again() -> None:
    resigned = Resigned(epoch=5, node_id=11, voted_id=11)
    assert start(election_of(resigned), log_epoch=5) == resigned


def test_a_candidate_restarts_as_candidate_only_without_pre_vote() -> None:
    stored = Election(epoch=5, voted_id=11)
    without = start(stored, log_epoch=4, pre_vote=False)
    assert isinstance(without, Candidate)
    assert without.epoch == 5
    assert without.tally.granted == {11}
    assert start(stored, log_epoch=4, pre_vote=True) == Unattached(epoch=5, voted_id=11)


def test_a_vote_for_another_node_survives_a_restart() -> None:
    assert start(Election(epoch=5, voted_id=12)) == Unattached(epoch=5, voted_id=12)


def test_a_follower_restarts_as_follower() -> None:
    stored = Election(epoch=5, leader_id=13, voted_id=12)
    assert start(stored) == Follower(epoch=5, leader_id=13, voted_id=12)


# --- hearing of epochs and leaders ---------------------------------------------------------------------

ALL_STATES: list[State] = [
    Unattached(epoch=5),
    Prospective(epoch=5, tally=EMPTY_TALLY),
    Candidate(epoch=5, tally=EMPTY_TALLY, voted_id=11),
    Leader(epoch=5, voted_id=11, leader_id=11),
    Follower(epoch=5, leader_id=12),
    Resigned(epoch=5, node_id=11),
]


@pytest.mark.parametrize("state", ALL_STATES, ids=lambda s: type(s).__name__)
def test_a_higher_epoch_ends_every_state_and_forgets_the_vote(state: State) -> None:
    assert after_hearing(state, 6, NO_NODE, node_id=11) == Unattached(epoch=6)
    assert after_hearing(state, 6, 13, node_id=11) == Follower(epoch=6, leader_id=13)


@pytest.mark.parametrize("state", ALL_STATES, ids=lambda s: type(s).__name__)
def test_an_older_epoch_changes_nothing(state: State) -> None:
    assert after_hearing(state, 4, 13, node_id=11) is None


def test_a_leader_of_the_current_epoch_is_followed_and_the_vote_is_kept() -> None:
    voted = Unattached(epoch=5, voted_id=13)
    assert after_hearing(voted, 5, 12, node_id=11) == Follower(epoch=5, leader_id=12, voted_id=13)


@pytest.mark.parametrize(
    "state",
    [
        Leader(epoch=5, voted_id=11, leader_id=11),
        Follower(epoch=5, leader_id=12),
        Resigned(epoch=5, node_id=11),
    ],
    ids=lambda s: type(s).__name__,
)
def test_two_leaders_of_one_epoch_are_a_violation(state: State) -> None:
    with pytest.raises(InvariantViolation, match="INV-8"):
        after_hearing(state, 5, 13, node_id=11)


def test_a_claim_by_another_node_does_not_make_this_node_leader() -> None:
    assert after_hearing(Unattached(epoch=5), 5, 11, node_id=11) is None
    assert after_hearing(Unattached(epoch=5), 6, 11, node_id=11) == Unattached(epoch=6)


# --- nominees ------------------------------------------------------------------------------------------


def test_a_pre_vote_keeps_epoch_leader_and_vote() -> None:
    state = begin_pre_vote(Follower(epoch=5, leader_id=12, voted_id=13), node_id=11, voters=VOTERS)
    assert election_of(state) == Election(epoch=5, leader_id=12, voted_id=13)
    assert give_up_pre_vote(state) == Follower(epoch=5, leader_id=12, voted_id=13)


def test_a_lost_pre_vote_without_a_leader_is_unattached_again() -> None:
    state = begin_pre_vote(Unattached(epoch=5, voted_id=13), node_id=11, voters=VOTERS)
    assert give_up_pre_vote(state) == Unattached(epoch=5, voted_id=13)


def test_a_candidate_votes_for_itself_in_the_next_epoch() -> None:
    state = begin_election(Unattached(epoch=5, voted_id=13), node_id=11, voters=VOTERS)
    assert election_of(state) == Election(epoch=6, voted_id=11)
    assert state.tally.granted == {11}


def test_a_majority_wins_and_an_impossible_majority_loses() -> None:
    tally = Tally(voters=VOTERS, granted=frozenset({11}))
    assert not tally.is_won
    assert tally.with_response(12, True).is_won
    once_rejected = tally.with_response(12, False)
    assert not once_rejected.is_lost
    assert once_rejected.with_response(13, False).is_lost


def test_votes_by_non_voters_and_repeated_votes_do_not_count() -> None:
    tally = Tally(voters=VOTERS, granted=frozenset({11}))
    assert not tally.with_response(99, True).is_won
    assert tally.with_response(12, True).with_response(12, False).is_won


def test_a_single_voter_wins_at_once() -> None:
    assert Tally(voters=(11,), granted=frozenset({11})).is_won


# --- votes (RAFT-5, RAFT-6) ----------------------------------------------------------------------------


def vote(state: State, *, candidate: int = 12, log: LogPosition = LOG, own: LogPosition = LOG):
    return grants_vote(
        state, candidate_id=candidate, candidate_log=log, own_log=own, rules=ALL_RULES
    )


@pytest.mark.parametrize(
    ("log", "granted"),
    [
        (LogPosition(last_epoch=3, end_offset=100), True),
        (LogPosition(last_epoch=3, end_offset=99), False),
        (LogPosition(last_epoch=4, end_offset=1), True),
        (LogPosition(last_epoch=2, end_offset=1000), False),
    ],
)
def test_a_vote_needs_an_up_to_date_log(log: LogPosition, granted: bool) -> None:
    assert vote(Unattached(epoch=5), log=log) is granted
    assert grants_vote(
        Unattached(epoch=5),
        candidate_id=12,
        candidate_log=log,
        own_log=LOG,
        rules=Rules(["RAFT-5"]),
    )


def test_one_vote_per_epoch_and_the_same_again_for_the_same_candidate() -> None:
    state = Unattached(epoch=5, voted_id=12)
    assert vote(state, candidate=12)
    assert not vote(state, candidate=13)


def test_no_vote_is_granted_in_an_epoch_whose_leader_is_known() -> None:
    assert not vote(Prospective(epoch=5, tally=EMPTY_TALLY, leader_id=13))
    assert vote(Prospective(epoch=5, tally=EMPTY_TALLY))


@pytest.mark.parametrize("state", ALL_STATES[2:], ids=lambda s: type(s).__name__)
def test_candidate_leader_follower_and_resigned_never_vote_in_their_epoch(state: State) -> None:
    assert not vote(state)


def pre_vote(state: State, log: LogPosition = LOG) -> bool:
    return grants_pre_vote(state, candidate_log=log, own_log=LOG, rules=ALL_RULES)


def test_a_pre_vote_is_refused_by_a_node_that_knows_the_leader_is_alive() -> None:
    assert not pre_vote(Leader(epoch=5, voted_id=11, leader_id=11))
    assert not pre_vote(Follower(epoch=5, leader_id=12, has_fetched=True))


@pytest.mark.parametrize(
    "state",
    [
        Unattached(epoch=5, voted_id=13),
        Prospective(epoch=5, tally=EMPTY_TALLY, leader_id=13),
        Candidate(epoch=5, tally=EMPTY_TALLY, voted_id=11),
        Resigned(epoch=5, node_id=11),
        Follower(epoch=5, leader_id=12),
    ],
    ids=lambda s: type(s).__name__,
)
def test_a_pre_vote_is_granted_by_other_nodes_if_the_log_is_up_to_date(state: State) -> None:
    assert pre_vote(state)
    assert not pre_vote(state, LogPosition(last_epoch=3, end_offset=99))


# --- the leader's bookkeeping --------------------------------------------------------------------------


def leadership(voters: tuple[int, ...] = VOTERS, *, start: int = 10, own_only: bool = True):
    return Leadership(
        node_id=voters[0],
        voters=voters,
        epoch=5,
        epoch_start_offset=start,
        rules=ALL_RULES if own_only else Rules(["RAFT-7"]),
    )


@pytest.mark.parametrize(
    ("own", "others", "committed"),
    [
        (100, (100, 98), 100),
        (100, (98, 98), 98),
        (100, (50, 20), 50),
        (40, (100, 60), 60),
    ],
)
def test_the_high_watermark_is_the_offset_that_a_majority_of_three_has(
    own: int, others: tuple[int, int], committed: int
) -> None:
    leader = leadership()
    leader.record_fetch(12, others[0])
    leader.record_fetch(13, others[1])
    assert leader.advance(own)
    assert leader.high_watermark == committed


@pytest.mark.parametrize(
    ("voters", "ends", "committed"),
    [((1,), {}, 100), ((1, 2), {2: 70}, 70), ((1, 2, 3, 4), {2: 90, 3: 80, 4: 70}, 80)],
)
def test_the_majority_of_other_sizes(
    voters: tuple[int, ...], ends: dict[int, int], committed: int
) -> None:
    leader = leadership(voters)
    for voter, end in ends.items():
        leader.record_fetch(voter, end)
    assert leader.advance(100)
    assert leader.high_watermark == committed


def test_nothing_is_committed_before_a_record_of_the_current_epoch() -> None:
    leader = leadership(start=10)
    leader.record_fetch(12, 10)
    assert not leader.advance(11)
    assert leader.high_watermark == UNKNOWN
    leader.record_fetch(12, 11)
    assert leader.advance(11)
    assert leader.high_watermark == 11


def test_without_raft_7_a_majority_is_enough() -> None:
    leader = leadership(start=10, own_only=False)
    leader.record_fetch(12, 10)
    assert leader.advance(11)
    assert leader.high_watermark == 10


def test_the_high_watermark_never_moves_back() -> None:
    leader = leadership(start=0)
    leader.record_fetch(12, 50)
    assert leader.advance(50)
    leader.record_fetch(12, 20)
    assert not leader.advance(50)
    assert leader.high_watermark == 50


def test_observers_do_not_count() -> None:
    leader = leadership(start=0)
    leader.record_fetch(1, 50)
    assert not leader.advance(50)
    assert not leader.majority_fetched(1)


def test_check_quorum_counts_every_voter_once_until_a_majority_was_there() -> None:
    """RAFT-4: what counts as a majority."""
    leader = leadership((1, 2, 3, 4, 5))
    assert not leader.majority_fetched(2)
    assert not leader.majority_fetched(2)
    assert leader.majority_fetched(3)
    assert not leader.majority_fetched(3)
    assert leader.majority_fetched(2)


def test_the_best_successor_has_the_longest_log() -> None:
    leader = leadership()
    leader.record_fetch(12, 5)
    leader.record_fetch(13, 9)
    assert leader.preferred_successors() == [13, 12]


def test_a_replica_on_a_new_connection_gets_the_high_watermark_again() -> None:
    leader = leadership(start=0)
    assert leader.knows_high_watermark(1, 7)
    leader.record_fetch(12, 5)
    leader.advance(5)
    assert not leader.knows_high_watermark(1, 7)
    leader.high_watermark_sent(1, 7)
    assert leader.knows_high_watermark(1, 7)
    assert not leader.knows_high_watermark(1, 8)
