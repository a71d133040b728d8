"""What a leader does beyond appending: it watches its followers, proposes ISRs, moves the high watermark.

A leader appends, watches its followers fetch (section 8.1), proposes changes of the ISR to the controller (8.2 to
8.4), and moves the high watermark (HW) to the smallest log end among everybody who might be in the ISR (9). Which
role this broker has, and who waits for the HW, is the business of `partition.py`.
"""

from uuid import UUID

from system_under_test.broker.follower_state import FollowerState
from system_under_test.broker.interfaces import IsrAnswer, IsrProposal
from system_under_test.broker.isr import (
    AnswerAction,
    Committed,
    IsrState,
    PendingIsr,
    action_for,
    expand,
    shrink,
)
from system_under_test.broker.local_replica import LocalReplica
from system_under_test.broker.replica_context import ReplicaContext
from system_under_test.invariants import check_invariant
from system_under_test.protocol.errors import ErrorCode


class LeaderReplica(LocalReplica):
    """A local replica that can lead.

    Attributes:
        leader_epoch_start_offset: The log end when this leader epoch began; None unless leader.
        partition_epoch: Of the newest registration or AlterPartition answer, -1 before the first.
        followers: Exactly the assigned followers, in assignment order; empty unless leader.
        state: The ISR as far as it is known; see `isr.py`.
        topic_min_isr: `min.insync.replicas`; while a publish is applied the larger of old and new (META-5).
        effective_min_isr: The same, capped by the number of replicas (MIN-1).
    """

    __slots__ = (
        "_gated_state",
        "effective_min_isr",
        "failed_isr_updates",
        "followers",
        "isr_expands",
        "isr_shrinks",
        "leader_epoch_start_offset",
        "partition_epoch",
        "state",
        "topic_min_isr",
    )

    def __init__(self, context: ReplicaContext, topic: str, topic_id: UUID, index: int) -> None:
        super().__init__(context, topic, topic_id, index)
        self.partition_epoch = -1
        self.leader_epoch_start_offset: int | None = None
        self.followers: dict[int, FollowerState] = {}
        self.state: IsrState = Committed(isr=())
        self.topic_min_isr = 1
        self.effective_min_isr = 1
        self.isr_expands = self.isr_shrinks = self.failed_isr_updates = 0
        # The state for which "high-watermark-gated" was marked, so that it is marked once per state.
        self._gated_state: IsrState | None = None

    # --- min.insync.replicas (MIN-1, META-5).

    def take_min_isr(self, topic_min_isr: int, *, is_publishing: bool) -> None:
        """Sets the topic's min ISR; while a publish is being applied it may only grow (META-5)."""
        if is_publishing:
            topic_min_isr = max(topic_min_isr, self.topic_min_isr)
        if topic_min_isr == self.topic_min_isr:
            return
        self.topic_min_isr = topic_min_isr
        self.refresh_effective_min_isr()
        if self.is_leader and not is_publishing and self.advance_high_watermark():
            self.high_watermark_moved()

    def refresh_effective_min_isr(self) -> None:
        """Caps the topic's min ISR by the number of assigned replicas (MIN-1)."""
        # A topic with fewer replicas than its min ISR would otherwise never commit.
        self.effective_min_isr = min(self.topic_min_isr, len(self.followers) + 1)

    # --- Followers' progress (section 8.1).

    def record_follower_fetch(
        self,
        follower: FollowerState,
        *,
        fetch_offset: int,
        log_start_offset: int,
        arrival_ns: int,
        leader_leo: int,
        broker_epoch: int,
    ) -> ErrorCode:
        """Takes a follower's fetch into account: its progress, the ISR, the high watermark.

        Args:
            follower: Whose fetch it is.
            fetch_offset: Where it began, which is the follower's log end.
            log_start_offset: The follower's.
            arrival_ns: When it arrived.
            leader_leo: This log's end before the records for the fetch were read.
            broker_epoch: The follower's, -1 if it gave none.

        Returns:
            NOT_LEADER_OR_FOLLOWER for a fetch of an incarnation that is gone (FS-2), else NONE.
        """
        context = self.context
        # FS-2: an old incarnation's fetch may arrive after the new one's; its offset says nothing (KAFKA-15221).
        if broker_epoch != -1 and context.refuses_old_broker_epoch:
            alive_epoch = context.metadata.alive_broker_epoch(follower.broker_id)
            if alive_epoch is not None and alive_epoch > broker_epoch:
                self.mark(
                    "fenced-fetch",
                    follower=follower.broker_id,
                    broker_epoch=broker_epoch,
                    alive_broker_epoch=alive_epoch,
                )
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
        has_moved = follower.log_end_offset != fetch_offset
        follower.record_fetch(
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            arrival_ns=arrival_ns,
            leader_leo=leader_leo,
            broker_epoch=broker_epoch,
        )
        if follower.broker_id not in self.state.isr:
            self._maybe_expand(follower)
        if has_moved and self.advance_high_watermark():
            self.high_watermark_moved()
        return ErrorCode.NONE

    # --- The ISR (sections 8.2 to 8.4).

    def shrink_if_lagging(self) -> None:
        """Proposes to remove every lagging member, all in one request (ISR-2); driven by a timer."""
        state = self.state
        # ISR-1: one change at a time.
        if not self.is_leader or not isinstance(state, Committed):
            return
        leader_leo = self.log_end_offset
        out = tuple(
            member
            for member in state.isr
            if member != self.context.broker_id and not self._is_caught_up(member, leader_leo)
        )
        if not out:
            return
        counts_when_committed = self.context.shrink_counts_when_committed
        pending = shrink(state, out, counts_when_committed=counts_when_committed)
        self.mark("isr-shrink-proposed", out=out, isr=state.isr)
        self._propose(pending)
        if not counts_when_committed and self.state is pending:
            self.isr_changed()

    def _is_caught_up(self, member: int, leader_leo: int) -> bool:
        # A member without state is no assigned replica any more and counts as out.
        follower = self.followers.get(member)
        context = self.context
        return follower is not None and follower.is_caught_up(
            leader_leo=leader_leo, now_ns=context.monotonic_ns(), lag_max_ns=context.lag_max_ns
        )

    def _maybe_expand(self, follower: FollowerState) -> None:
        # ISR-3, ISR-7: called only from a fetch of this follower. Kafka tests twice, without and with the lock,
        # and reads the broker epochs under it; here test, proposal and epochs share one critical section.
        state = self.state
        if not isinstance(state, Committed) or not self._may_join(follower):
            return
        self.mark("isr-expand-proposed", follower=follower.broker_id, isr=state.isr)
        self._propose(expand(state, follower.broker_id))

    def _may_join(self, follower: FollowerState) -> bool:
        context = self.context
        follower_leo = follower.log_end_offset
        if follower_leo < self.high_watermark:
            return False
        # ISR-4: the high watermark of a new leader lags; everything below the epoch's start may be committed
        # (KAFKA-7128).
        epoch_start = self.leader_epoch_start_offset
        if (
            context.isr_join_needs_epoch_start
            and epoch_start is not None
            and follower_leo < epoch_start
        ):
            return False
        # ISR-5.
        if not context.checks_isr_eligibility:
            return True
        if not context.metadata.is_isr_eligible(follower.broker_id):
            return False
        if not context.checks_isr_broker_epoch or follower.broker_epoch == -1:
            return True
        alive_epoch = context.metadata.alive_broker_epoch(follower.broker_id)
        return alive_epoch is not None and alive_epoch == follower.broker_epoch

    def _propose(self, pending: PendingIsr) -> None:
        context = self.context
        proposal = IsrProposal(
            topic=self.topic,
            topic_id=self.topic_id,
            partition=self.index,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            isr_with_epochs=tuple(
                (member, self._broker_epoch_of(member)) for member in pending.proposed_isr
            ),
            leader_recovery_state=pending.recovery_state,
        )
        check_invariant(
            not context.shrink_counts_when_committed
            or set(pending.maximal_isr) >= set(pending.last_committed.isr),
            "INV-3",
            "the maximal ISR contains the committed one",
            topic=self.topic,
            partition=self.index,
            maximal_isr=pending.maximal_isr,
            isr=pending.last_committed.isr,
        )
        self.state = pending
        if not self._submit(pending, proposal) and self.state is pending:
            # AP-2: an item of this partition is still queued; ours was not attempted. A later fetch or tick
            # proposes again.
            self.state = pending.last_committed

    def _broker_epoch_of(self, member: int) -> int:
        # AP-1. -1 ("cannot check") is safe for an existing member that has not fetched yet: had it restarted,
        # the controller would have removed it and the partition epoch would no longer match.
        if not self.context.checks_isr_broker_epoch:
            return -1
        if member == self.context.broker_id:
            return self.context.broker_epoch
        follower = self.followers.get(member)
        return -1 if follower is None or follower.broker_epoch is None else follower.broker_epoch

    def _submit(self, pending: PendingIsr, proposal: IsrProposal) -> bool:
        return self.context.alter_partition.submit(
            proposal, lambda answer: self._on_isr_answer(pending, proposal, answer)
        )

    def _on_isr_answer(self, pending: PendingIsr, proposal: IsrProposal, answer: IsrAnswer) -> None:
        """Applies the controller's answer (AP-4)."""
        # Metadata or another leadership was faster: the answer is about a state that is gone.
        if self.state is not pending:
            return
        action = action_for(answer.error, keeps_pending=self.context.isr_error_keeps_pending)
        if action is AnswerAction.COMMIT:
            self._commit_isr(pending, answer)
        elif action is AnswerAction.ROLL_BACK:
            self.failed_isr_updates += 1
            self.state = pending.last_committed
            self.isr_changed()
        elif action is AnswerAction.STAY_PENDING:
            self.failed_isr_updates += 1
        else:
            # Should the resend be refused, the state stays pending: the first attempt may have been applied.
            self._submit(pending, proposal)

    def _commit_isr(self, pending: PendingIsr, answer: IsrAnswer) -> None:
        if (
            answer.leader_epoch != self.leader_epoch
            or answer.partition_epoch < self.partition_epoch
        ):
            self.failed_isr_updates += 1
            return
        if len(answer.isr) > len(pending.isr):
            self.isr_expands += 1
        elif len(answer.isr) < len(pending.isr):
            self.isr_shrinks += 1
        self.state = Committed(isr=answer.isr, recovery_state=answer.leader_recovery_state)
        self.partition_epoch = answer.partition_epoch
        self.isr_changed()

    def isr_changed(self) -> None:
        """Re-examines the high watermark after the ISR may have changed (LEAD-5)."""
        # LEAD-5, AP-4 (KAFKA-13091): on an idle partition nothing else would move the high watermark.
        if self.context.isr_change_moves_high_watermark and self.advance_high_watermark():
            self.high_watermark_moved()

    # --- The high watermark (section 9).

    def advance_high_watermark(self) -> bool:
        """Moves the high watermark as far as it may go; returns whether it moved."""
        context = self.context
        log = self.log
        if log is None:
            return False
        before = self.high_watermark
        is_monotonic = context.high_watermark_is_monotonic
        candidate = leader_leo = log.log_end_offset
        if candidate <= before and is_monotonic:
            return False
        state = self.state
        # HW-1: the committed ISR, because the maximal one need not contain the ELR.
        if context.gates_high_watermark and len(state.isr) < self.effective_min_isr:
            if self._gated_state is not state:
                self._gated_state = state
                self.mark("high-watermark-gated", isr=state.isr, min_isr=self.effective_min_isr)
            return False
        # HW-2, HW-3.
        waits_for = state.maximal_isr if context.high_watermark_waits_for_maximal_isr else state.isr
        for follower in self.followers.values():
            follower_leo = follower.log_end_offset
            if follower_leo < candidate and (
                follower.broker_id in waits_for or self._holds_back(follower, leader_leo)
            ):
                # An unknown log end (-1) of a member blocks.
                candidate = follower_leo
                if candidate <= before and is_monotonic:
                    return False
        candidate = max(candidate, log.log_start_offset)
        if candidate == before:
            return False
        # HW-5. Asserted as INV-9 demands; the rule itself is in the comparisons above.
        if candidate < before and is_monotonic:
            check_invariant(
                False,
                "INV-9",
                "a leader's high watermark never moves back",
                before=before,
                after=candidate,
            )
        self.high_watermark = candidate
        self.check_high_watermark()
        self.report("high-watermark")
        return True

    def _holds_back(self, follower: FollowerState, leader_leo: int) -> bool:
        # HW-4: without waiting for a follower that keeps up, one that chases a lone leader may never reach the
        # high watermark and never join. Ineligible ones would only delay commits (KAFKA-15021).
        context = self.context
        return (
            context.high_watermark_waits_for_caught_up
            and follower.is_caught_up(
                leader_leo=leader_leo,
                now_ns=context.monotonic_ns(),
                lag_max_ns=context.lag_max_ns,
            )
            and (
                context.metadata.is_isr_eligible(follower.broker_id)
                or not context.high_watermark_waits_for_eligible_only
            )
        )
