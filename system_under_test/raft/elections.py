"""Elections: when a member stands for election, and for whom it votes.

In every state but Leader exactly one deadline runs: the fetch timeout in Follower, the election timeout in all
other states. Postponing a deadline is only an assignment; the timer is re-armed when it fires early, so that a
busy quorum does not fill the loop's heap with cancelled timers.

The decisions on votes (RAFT-5, RAFT-6) are in `state.py`.
"""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

from system_under_test.protocol.errors import ErrorCode
from system_under_test.raft import messages
from system_under_test.raft.link import Link
from system_under_test.raft.quorum import Quorum
from system_under_test.raft.state import (
    NO_NODE,
    Candidate,
    Follower,
    Leader,
    LogPosition,
    Prospective,
    Resigned,
    State,
    Unattached,
    begin_election,
    begin_pre_vote,
    give_up_pre_vote,
    grants_pre_vote,
    grants_vote,
)

BACKOFF_BASE_DIVISOR = 20
"""Kafka's 50 ms for a longest back-off of 1000 ms, in proportion for faster timings."""

MAX_BACKOFF_DOUBLINGS = 10
"""Keeps the exponent small; the configured maximum is reached long before."""


class Elections:
    """Drives a voter's election and fetch timeouts, and decides votes, for voters and observers."""

    def __init__(self, quorum: Quorum, links: dict[int, Link]) -> None:
        self._quorum = quorum
        self._links = links
        self._timings = quorum.config.timings
        self._pre_vote = quorum.config.features.pre_vote
        self._backs_off = quorum.config.features.candidate_backs_off
        self._random = quorum.host.random.stream("raft")
        self._mark = quorum.host.observer.mark
        self._deadline_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = 0.0
        self._is_backing_off = False
        self._leader_has_resigned = False
        self._lost_elections = 0
        self._round = 0
        """Number of changes of state; responses and timers of an older round are ignored."""

    def stop(self) -> None:
        """Stops the timer and ends the round."""
        self._round += 1
        self._clear_deadline()

    def fetch_succeeded(self) -> None:
        """Restarts the fetch timeout: the leader responded."""
        # A response that was in flight when the leader resigned does not postpone the election.
        if self._quorum.is_voter and not self._leader_has_resigned:
            self._set_deadline(self._timings.controller_quorum_fetch_timeout_ms)

    # --- states ----------------------------------------------------------------------------------------

    def entered(self, old: State, new: State) -> None:
        """Arms the timer of a new state, and requests votes if the state needs them."""
        if not self._quorum.is_voter:
            return
        same_epoch = new.epoch == old.epoch
        if isinstance(new, Prospective) and isinstance(old, Prospective) and same_epoch:
            # It voted during its own pre-vote, which continues.
            return
        self._round += 1
        self._leader_has_resigned = False
        was_backing_off, self._is_backing_off = self._is_backing_off, False
        match new:
            case Leader():
                self._lost_elections = 0
                self._clear_deadline()
            case Follower():
                self._lost_elections = 0
                self._set_deadline(self._timings.controller_quorum_fetch_timeout_ms)
            case Prospective() | Candidate():
                self._set_deadline(self._election_timeout_ms())
                self._request_votes()
            case Resigned():
                self._set_deadline(self._election_timeout_ms())
            case Unattached():
                self._entered_unattached(old, new, was_backing_off)

    def _entered_unattached(self, old: State, new: Unattached, was_backing_off: bool) -> None:
        if len(self._quorum.voters) == 1:
            # There is no other voter to wait for.
            self._set_deadline(0)
            return
        has_just_voted = new.voted_id != NO_NODE and new.epoch == old.epoch
        was_waiting = isinstance(old, Unattached | Candidate | Prospective | Resigned)
        # A higher epoch alone does not postpone an election: only granting a vote does, and losing a leader.
        if not was_waiting or has_just_voted or was_backing_off or self._deadline_s is None:
            self._set_deadline(self._election_timeout_ms())

    def shorten_fetch_timeout(self, position: int) -> None:
        """Handles the leader's resignation: the first of its preferred successors stands for election at once.

        Args:
            position: Position among the preferred successors; a later one waits longer.
        """
        if isinstance(self._quorum.state, Follower) and self._quorum.is_voter:
            self._leader_has_resigned = True
            self._set_deadline(0 if position == 0 else self._backoff_ms(position))

    # --- the timer -------------------------------------------------------------------------------------

    def _election_timeout_ms(self) -> int:
        shortest = self._timings.controller_quorum_election_timeout_ms
        return self._random.randrange(shortest, 2 * shortest)

    def _backoff_ms(self, doublings: int) -> int:
        longest = self._timings.controller_quorum_election_backoff_max_ms
        base = max(longest // BACKOFF_BASE_DIVISOR, 1)
        return min(base << min(doublings, MAX_BACKOFF_DOUBLINGS), longest)

    def _set_deadline(self, delay_ms: float) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + delay_ms / 1000
        self._deadline_s = due_s
        if self._timer is None or self._timer_due_s > due_s:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(due_s, self._timer_fired)
            self._timer_due_s = due_s

    def _clear_deadline(self) -> None:
        self._deadline_s = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _timer_fired(self) -> None:
        self._timer = None
        deadline_s = self._deadline_s
        if deadline_s is None:
            return
        # A loop may call a timer one clock tick early; `_timer_due_s` is the deadline that it was set for.
        if deadline_s > self._timer_due_s:
            self._timer = asyncio.get_running_loop().call_at(deadline_s, self._timer_fired)
            self._timer_due_s = deadline_s
            return
        self._deadline_s = None
        self._expired()

    def _expired(self) -> None:
        state = self._quorum.state
        match state:
            case Follower():
                self._mark("quorum-fetch-timeout", epoch=state.epoch, leader=state.leader_id)
                self._begin_pre_vote_or_election()
            case Unattached():
                self._begin_pre_vote_or_election()
            case Prospective():
                self._quorum.transition(give_up_pre_vote(state))
            case Candidate():
                if self._pre_vote or self._is_backing_off:
                    self._begin_pre_vote_or_election()
                else:
                    self._back_off()
            case Resigned():
                self._quorum.transition(Unattached(epoch=state.epoch + 1))
            case Leader():
                pass

    def _begin_pre_vote_or_election(self) -> None:
        quorum = self._quorum
        if self._pre_vote:
            quorum.transition(
                begin_pre_vote(quorum.state, node_id=quorum.node_id, voters=quorum.voters)
            )
        else:
            self._begin_election()

    def _begin_election(self) -> None:
        quorum = self._quorum
        quorum.transition(
            begin_election(quorum.state, node_id=quorum.node_id, voters=quorum.voters)
        )

    def _back_off(self) -> None:
        # A candidate that lost waits for a random time, so that two candidates do not split every vote.
        self._lost_elections += 1
        longest = self._backoff_ms(self._lost_elections)
        self._is_backing_off = True
        self._set_deadline(self._random.randrange(0, longest + 1))

    # --- requesting votes ------------------------------------------------------------------------------

    def _request_votes(self) -> None:
        # Transitions do not nest: a voter without peers wins in the loop's next turn.
        asyncio.get_running_loop().call_soon(self._count, self._round)
        for voter_id in self._quorum.voters:
            if voter_id != self._quorum.node_id:
                self._request_vote(voter_id, self._round)

    def _request_vote(self, voter_id: int, round_: int) -> None:
        state = self._quorum.state
        if round_ != self._round or not isinstance(state, Prospective | Candidate):
            return
        request = messages.build_vote_request(
            self._quorum.config,
            voter_id=voter_id,
            epoch=state.epoch,
            log=self._quorum.log_position,
            pre_vote=isinstance(state, Prospective),
        )
        self._links[voter_id].send(
            request,
            self._timings.controller_quorum_request_timeout_ms,
            partial(self._vote_received, voter_id, round_),
        )

    def _vote_received(self, voter_id: int, round_: int, response: Any) -> None:
        if response is None:
            if round_ == self._round:
                delay_s = self._links[voter_id].retry_delay_s
                asyncio.get_running_loop().call_later(delay_s, self._request_vote, voter_id, round_)
            return
        content = messages.read_response(response)
        if self._quorum.hear(content.epoch, content.leader_id) or round_ != self._round:
            return
        state = self._quorum.state
        if isinstance(state, Prospective | Candidate):
            tally = state.tally.with_response(voter_id, content.vote_granted)
            self._quorum.remember(replace(state, tally=tally))
            self._count(round_)

    def _count(self, round_: int) -> None:
        state = self._quorum.state
        if round_ != self._round or not isinstance(state, Prospective | Candidate):
            return
        if state.tally.is_won:
            if isinstance(state, Prospective):
                self._begin_election()
            else:
                node_id = self._quorum.node_id
                self._quorum.transition(
                    Leader(epoch=state.epoch, voted_id=node_id, leader_id=node_id)
                )
        elif state.tally.is_lost:
            if isinstance(state, Prospective):
                self._mark("pre-vote-lost", epoch=state.epoch)
                self._quorum.transition(give_up_pre_vote(state))
            elif self._backs_off and not self._is_backing_off:
                # RAFT-10: since Kafka 4.1 it waits for the rest of its election timeout instead.
                self._back_off()

    # --- voting ----------------------------------------------------------------------------------------

    def handle_vote(self, request: Any) -> Any:
        """Returns the response to a Vote request. The order of the checks is Kafka's."""
        quorum = self._quorum
        if request.cluster_id is not None and request.cluster_id != quorum.config.cluster_id:
            return self._refuse_all(request, ErrorCode.INCONSISTENT_CLUSTER_ID)
        wanted = messages.only_partition(request)
        if wanted is None or not _is_sane(wanted):
            return self._refuse_all(request, ErrorCode.INVALID_REQUEST)
        if wanted.replica_epoch < quorum.state.epoch:
            return self._respond(request, ErrorCode.FENCED_LEADER_EPOCH)
        # Also for pre-votes: an epoch that exists somewhere is adopted.
        quorum.hear(wanted.replica_epoch, NO_NODE)
        if request.voter_id not in (NO_NODE, quorum.node_id):
            return self._respond(request, ErrorCode.INVALID_VOTER_KEY)
        candidate_log = LogPosition(
            last_epoch=wanted.last_offset_epoch, end_offset=wanted.last_offset
        )
        if wanted.pre_vote:
            granted = grants_pre_vote(
                quorum.state,
                candidate_log=candidate_log,
                own_log=quorum.log_position,
                rules=quorum.config.rules,
            )
            if not granted:
                self._mark("pre-vote-rejected", candidate=wanted.replica_id)
            return self._respond(request, ErrorCode.NONE, granted)
        granted = grants_vote(
            quorum.state,
            candidate_id=wanted.replica_id,
            candidate_log=candidate_log,
            own_log=quorum.log_position,
            rules=quorum.config.rules,
        )
        if granted and quorum.state.voted_id != wanted.replica_id:
            # [RAFT-1] The vote is durable before the response is sent.
            quorum.record_vote(wanted.replica_id)
        return self._respond(request, ErrorCode.NONE, granted)

    def _respond(self, request: Any, error: ErrorCode, granted: bool = False) -> Any:
        state = self._quorum.state
        return messages.build_response(
            request,
            error=error,
            epoch=state.epoch,
            leader_id=state.leader_id,
            vote_granted=granted,
        )

    def _refuse_all(self, request: Any, error: ErrorCode) -> Any:
        return messages.build_response(
            request, error=ErrorCode.NONE, epoch=-1, leader_id=NO_NODE, request_error=error
        )


def _is_sane(wanted: Any) -> bool:
    if wanted.last_offset < 0 or wanted.last_offset_epoch < 0 or wanted.replica_epoch < 0:
        return False
    if wanted.pre_vote:
        return bool(wanted.last_offset_epoch <= wanted.replica_epoch)
    return bool(wanted.last_offset_epoch < wanted.replica_epoch)
