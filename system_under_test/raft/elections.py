"""Elections: when a member stands for leader, and whom it votes for.

One deadline is running at any time in every state but Leader: the fetch timeout of a follower, the election
timeout of everybody else. Moving a deadline back is only an assignment; its timer is re-armed when it fires
early, so that a busy quorum does not fill the loop's heap with cancelled timers.

Rules: RAFT-5 and RAFT-6 (the decisions are in `state.py`), timers of section 17.2, votes of 17.3 and 17.4.
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
    NOBODY,
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
"""Kafka's 50 ms for a maximal back-off of 1000 ms, in proportion for faster timings."""

MAX_BACKOFF_DOUBLINGS = 10
"""The configured maximum is reached long before."""


class Elections:
    """Drives a voter's election and fetch timeouts, and answers votes for voters and observers."""

    def __init__(self, quorum: Quorum, links: dict[int, Link]) -> None:
        self._quorum = quorum
        self._links = links
        self._timings = quorum.config.timings
        self._pre_vote = quorum.config.features.pre_vote
        self._requires_up_to_date = quorum.config.rules("RAFT-5")
        self._random = quorum.host.random.stream("raft")
        self._mark = quorum.host.observer.mark
        self._deadline_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = 0.0
        self._is_backing_off = False
        self._leader_has_resigned = False
        self._lost_elections = 0
        self._round = 0
        """Counts changes of state; what belongs to an older one is ignored."""

    def stop(self) -> None:
        """Stops the timer and forgets the round."""
        self._round += 1
        self._clear_deadline()

    def fetch_succeeded(self) -> None:
        """Starts the fetch timeout anew: the leader answered."""
        # An answer that was under way when the leader resigned does not call it back.
        if self._quorum.is_voter and not self._leader_has_resigned:
            self._set_deadline(self._timings.controller_quorum_fetch_timeout_ms)

    # --- states ----------------------------------------------------------------------------------------

    def entered(self, old: State, new: State) -> None:
        """Arms the timer of a new state, and asks for votes if it is a nominee's."""
        if not self._quorum.is_voter:
            return
        same_epoch = new.epoch == old.epoch
        if isinstance(new, Prospective) and isinstance(old, Prospective) and same_epoch:
            # It gave its vote away while it runs its pre-vote, which goes on.
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
                self._ask_for_votes()
            case Resigned():
                self._set_deadline(self._election_timeout_ms())
            case Unattached():
                self._entered_unattached(old, new, was_backing_off)

    def _entered_unattached(self, old: State, new: Unattached, was_backing_off: bool) -> None:
        if len(self._quorum.voters) == 1:
            # Nobody to wait for.
            self._set_deadline(0)
            return
        has_just_voted = new.voted_id != NOBODY and new.epoch == old.epoch
        was_waiting = isinstance(old, Unattached | Candidate | Prospective | Resigned)
        # A higher epoch alone does not push an election away: only granting a vote does, and losing a leader.
        if not was_waiting or has_just_voted or was_backing_off or self._deadline_s is None:
            self._set_deadline(self._election_timeout_ms())

    def shorten_fetch_timeout(self, position: int) -> None:
        """Reacts to the leader's resignation: the first of its preferred successors stands at once.

        Args:
            position: Place among the preferred successors; the later, the longer the wait.
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
        # A loop may call a timer a clock tick early; `_timer_due_s` says which deadline it was for.
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
                self._stand()
            case Unattached():
                self._stand()
            case Prospective():
                self._quorum.transition(give_up_pre_vote(state))
            case Candidate():
                if self._pre_vote or self._is_backing_off:
                    self._stand()
                else:
                    self._back_off()
            case Resigned():
                self._quorum.transition(Unattached(epoch=state.epoch + 1))
            case Leader():
                pass

    def _stand(self) -> None:
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
        # A candidate that lost waits a random time, so that two of them do not split every vote.
        self._lost_elections += 1
        longest = self._backoff_ms(self._lost_elections)
        self._is_backing_off = True
        self._set_deadline(self._random.randrange(0, longest + 1))

    # --- asking ----------------------------------------------------------------------------------------

    def _ask_for_votes(self) -> None:
        # A transition never nests another: a voter without peers wins in the loop's next turn.
        asyncio.get_running_loop().call_soon(self._count, self._round)
        for voter_id in self._quorum.voters:
            if voter_id != self._quorum.node_id:
                self._ask(voter_id, self._round)

    def _ask(self, voter_id: int, round_: int) -> None:
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
            partial(self._answered, voter_id, round_),
        )

    def _answered(self, voter_id: int, round_: int, response: Any) -> None:
        if response is None:
            if round_ == self._round:
                delay_s = self._links[voter_id].retry_delay_s
                asyncio.get_running_loop().call_later(delay_s, self._ask, voter_id, round_)
            return
        answer = messages.read_answer(response)
        if self._quorum.hear(answer.epoch, answer.leader_id) or round_ != self._round:
            return
        state = self._quorum.state
        if isinstance(state, Prospective | Candidate):
            tally = state.tally.with_answer(voter_id, answer.vote_granted)
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
            elif not self._is_backing_off:
                self._back_off()

    # --- answering -------------------------------------------------------------------------------------

    def handle_vote(self, request: Any) -> Any:
        """Answers a Vote request (17.3), checks in Kafka's order."""
        quorum = self._quorum
        if request.cluster_id is not None and request.cluster_id != quorum.config.cluster_id:
            return self._refuse_all(request, ErrorCode.INCONSISTENT_CLUSTER_ID)
        asked = messages.only_partition(request)
        if asked is None or not _is_sane(asked):
            return self._refuse_all(request, ErrorCode.INVALID_REQUEST)
        if asked.replica_epoch < quorum.state.epoch:
            return self._answer(request, ErrorCode.FENCED_LEADER_EPOCH)
        # For pre-votes too: an epoch that exists somewhere is adopted.
        quorum.hear(asked.replica_epoch, NOBODY)
        if request.voter_id not in (NOBODY, quorum.node_id):
            return self._answer(request, ErrorCode.INVALID_VOTER_KEY)
        candidate_log = LogPosition(
            last_epoch=asked.last_offset_epoch, end_offset=asked.last_offset
        )
        if asked.pre_vote:
            granted = grants_pre_vote(
                quorum.state,
                candidate_log=candidate_log,
                own_log=quorum.log_position,
                requires_up_to_date=self._requires_up_to_date,
            )
            if not granted:
                self._mark("pre-vote-rejected", candidate=asked.replica_id)
            return self._answer(request, ErrorCode.NONE, granted)
        granted = grants_vote(
            quorum.state,
            candidate_id=asked.replica_id,
            candidate_log=candidate_log,
            own_log=quorum.log_position,
            requires_up_to_date=self._requires_up_to_date,
        )
        if granted and quorum.state.voted_id != asked.replica_id:
            # RAFT-1: durable before the answer leaves.
            quorum.record_vote(asked.replica_id)
        return self._answer(request, ErrorCode.NONE, granted)

    def _answer(self, request: Any, error: ErrorCode, granted: bool = False) -> Any:
        state = self._quorum.state
        return messages.build_answer(
            request,
            error=error,
            epoch=state.epoch,
            leader_id=state.leader_id,
            vote_granted=granted,
        )

    def _refuse_all(self, request: Any, error: ErrorCode) -> Any:
        return messages.build_answer(
            request, error=ErrorCode.NONE, epoch=-1, leader_id=NOBODY, request_error=error
        )


def _is_sane(asked: Any) -> bool:
    if asked.last_offset < 0 or asked.last_offset_epoch < 0 or asked.replica_epoch < 0:
        return False
    if asked.pre_vote:
        return bool(asked.last_offset_epoch <= asked.replica_epoch)
    return bool(asked.last_offset_epoch < asked.replica_epoch)
