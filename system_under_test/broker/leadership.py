"""What a broker has of a partition only while it leads it: followers, the ISR, the rules of the high watermark.

A leader watches its followers fetch, proposes changes of the ISR to the controller, and moves the high watermark
(HW) to the smallest log end among all brokers that might be in the ISR. A `Leadership` is created when the broker
becomes leader, survives later leader epochs of the same broker, and is discarded when the broker no longer leads;
a follower has none. Role changes and waiting requests are handled by `partition.py`.
"""

from collections.abc import Callable

from system_under_test.broker.follower_state import FollowerState
from system_under_test.broker.interfaces import IsrProposal, IsrResponse
from system_under_test.broker.isr import (
    Committed,
    IsrState,
    PendingIsr,
    ResponseAction,
    action_for,
    expand,
    shrink,
)
from system_under_test.broker.local_replica import LocalReplica
from system_under_test.broker.replica_context import ReplicaContext
from system_under_test.invariants import check_invariant
from system_under_test.log.log import Log
from system_under_test.metadata.image import PartitionRegistration
from system_under_test.protocol.errors import ErrorCode


class IsrChangeCounts:
    """How often a partition changed its ISR; kept over all leaderships, for the metrics."""

    __slots__ = ("expands", "failures", "shrinks")

    def __init__(self) -> None:
        self.expands = 0
        self.shrinks = 0
        self.failures = 0


class Leadership:
    """The state of a leader. Mutable.

    Args:
        context: What all replicas of the broker share.
        replica: The leader's own log and high watermark.
        registration: Names this broker leader.
        counts: Counts ISR changes.
        topic_min_isr: `min.insync.replicas` of the topic.
        on_high_watermark_moved: Called, with the state consistent, after the high watermark moved.

    Attributes:
        epoch_start_offset: The log end when the leader epoch began.
        followers: Exactly the assigned followers, in assignment order.
        state: The ISR as far as it is known; see `isr.py`.
        effective_min_isr: `min.insync.replicas`, capped by the number of replicas (MIN-1).
        original_replica_count: Replicas without those that a reassignment is adding.

    Raises:
        OSError: The disk failed.
    """

    __slots__ = (
        "_context",
        "_counts",
        "_gated_state",
        "_on_high_watermark_moved",
        "_replica",
        "_topic_min_isr",
        "effective_min_isr",
        "epoch_start_offset",
        "followers",
        "original_replica_count",
        "state",
    )

    def __init__(
        self,
        context: ReplicaContext,
        replica: LocalReplica,
        registration: PartitionRegistration,
        *,
        counts: IsrChangeCounts,
        topic_min_isr: int,
        on_high_watermark_moved: Callable[[], None],
    ) -> None:
        self._context = context
        self._replica = replica
        self._counts = counts
        self._topic_min_isr = topic_min_isr
        self._on_high_watermark_moved = on_high_watermark_moved
        self.state: IsrState = Committed(isr=registration.isr)
        # The state for which "high-watermark-gated" was marked, so that it is marked once per state.
        self._gated_state: IsrState | None = None
        self.followers: dict[int, FollowerState] = {}
        self._take_assignment(registration)
        self._begin_epoch(registration, is_new_leader=True)
        # HW-9: records above the high watermark were not promised to any client, and other replicas may not
        # have them.
        if not context.rules("HW-9"):
            replica.high_watermark = self.epoch_start_offset

    @property
    def is_below_min_isr(self) -> bool:
        """Whether the committed ISR has fewer members than min ISR."""
        return len(self.state.isr) < self.effective_min_isr

    @property
    def is_under_replicated(self) -> bool:
        """Whether replicas are missing from the ISR."""
        return len(self.state.isr) < self.original_replica_count

    # --- Registrations.

    def renew(self, registration: PartitionRegistration) -> None:
        """Takes a registration that names this broker leader again, in the same or a later epoch (LEAD-2).

        Raises:
            OSError: The disk failed.
        """
        replica = self._replica
        self._take_assignment(registration)
        rules = self._context.rules
        is_news = registration.partition_epoch > replica.partition_epoch
        # LEAD-2: whatever was proposed, this is what the controller decided. LEAD-6: if an AlterPartition response
        # has brought the partition epoch before, the proposal was made since, and may be in force. Without the
        # rule the high watermark does not wait for the member that it adds until the metadata show it.
        cancels = rules("LEAD-2") if is_news else not rules("LEAD-6")
        if cancels or not self.state.is_pending:
            if self.state.is_pending and not is_news:
                replica.mark("isr-change-cancelled", proposed_isr=self.state.maximal_isr)
            self.state = Committed(isr=registration.isr)
        if registration.leader_epoch > replica.leader_epoch:
            self._begin_epoch(registration, is_new_leader=False)

    def end(self) -> None:
        """Drops a pending proposal: its response, should it still come, is about a leadership that is over."""
        self.state = Committed(isr=())

    def _take_assignment(self, registration: PartitionRegistration) -> None:
        known = self.followers
        self.original_replica_count = len(registration.replicas) - len(registration.adding_replicas)
        self.followers = {
            replica: known.get(replica) or FollowerState(replica)
            for replica in registration.replicas
            if replica != self._context.broker_id
        }
        self._cap_min_isr()

    def _begin_epoch(self, registration: PartitionRegistration, *, is_new_leader: bool) -> None:
        """Begins a leader epoch at the log end (LEAD-3, LEAD-4).

        Raises:
            OSError: The disk failed.
        """
        log = self._replica.online_log()
        start = log.log_end_offset
        # LEAD-3: durable before anything is served, or a later comparison of epochs would be wrong (KAFKA-7415).
        if self._context.rules("LEAD-3"):
            # EC-8: what a new leader has above its high watermark is of older epochs.
            log.assign_epoch(
                registration.leader_epoch,
                start if self._context.rules("EC-8") else self._replica.high_watermark,
            )
        self.epoch_start_offset = start
        now_ns = self._context.monotonic_ns()
        for follower in self.followers.values():
            follower.reset(
                is_in_isr=follower.broker_id in registration.isr,
                is_new_leader=is_new_leader,
                now_ns=now_ns,
                leader_leo=start,
            )

    # --- min.insync.replicas.

    def take_min_isr(self, topic_min_isr: int) -> None:
        """Sets the topic's min ISR."""
        self._topic_min_isr = topic_min_isr
        self._cap_min_isr()

    def _cap_min_isr(self) -> None:
        # MIN-1: a topic with fewer replicas than its min ISR would otherwise never commit.
        # Without the cap (before Kafka 3.7) it can only refuse acks=all for ever.
        self.effective_min_isr = self._topic_min_isr
        if self._context.features.caps_min_isr:
            self.effective_min_isr = min(self._topic_min_isr, len(self.followers) + 1)

    # --- Followers' progress.

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
        """Records a follower's fetch: its progress, the ISR, the high watermark (FS-2).

        Args:
            follower: The follower that fetches.
            fetch_offset: Where the fetch began, which is the follower's log end.
            log_start_offset: The follower's.
            arrival_ns: When it arrived.
            leader_leo: This log's end before the records for the fetch were read.
            broker_epoch: The follower's, -1 if it gave none.

        Returns:
            NOT_LEADER_OR_FOLLOWER for a fetch of an incarnation that has ended (FS-2), else NONE.
        """
        context = self._context
        # FS-2: a fetch of an older incarnation may arrive after the new one's; its offset means nothing
        # (KAFKA-15221).
        if broker_epoch != -1 and context.features.isr_broker_epoch_check and context.rules("FS-2"):
            alive_epoch = context.metadata.alive_broker_epoch(follower.broker_id)
            if alive_epoch is not None and alive_epoch > broker_epoch:
                self._replica.mark(
                    "fenced-fetch",
                    follower=follower.broker_id,
                    broker_epoch=broker_epoch,
                    alive_broker_epoch=alive_epoch,
                )
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
        has_moved = follower.log_end_offset != fetch_offset
        # FS-4-EPOCH: without the rule an older fetch is mixed with the newer incarnation's epoch.
        if not context.rules("FS-4-EPOCH") and follower.broker_epoch is not None:
            broker_epoch = max(broker_epoch, follower.broker_epoch)
        follower.record_fetch(
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            arrival_ns=arrival_ns,
            leader_leo=leader_leo,
            broker_epoch=broker_epoch,
        )
        if follower.broker_id not in self.state.isr:
            self._maybe_expand(follower)
        if has_moved:
            self.advance_high_watermark()
            # PROD-4-ISR: without the rule a record is acknowledged with its min ISR-th copy.
            if not context.rules("PROD-4-ISR"):
                self._on_high_watermark_moved()
        return ErrorCode.NONE

    def low_watermark(self) -> int:
        """Returns the smallest log start of the replicas that are alive; -1 if one is unknown."""
        alive_epoch = self._context.metadata.alive_broker_epoch
        found = [self._replica.log_start_offset]
        found.extend(
            follower.log_start_offset
            for follower in self.followers.values()
            if alive_epoch(follower.broker_id) is not None
        )
        return min(found)

    def copied_end(self) -> int:
        """Returns the offset below which min ISR replicas have all records, whichever they are."""
        ends = [
            self._replica.log_end_offset,
            *(one.log_end_offset for one in self.followers.values()),
        ]
        return sorted(ends, reverse=True)[min(self.effective_min_isr, len(ends)) - 1]

    # --- The ISR.

    def shrink_if_lagging(self) -> None:
        """Proposes to remove every lagging member, all in one request (ISR-2); driven by a timer."""
        state = self.state
        # ISR-1: one change at a time.
        if not isinstance(state, Committed):
            return
        context = self._context
        # ISR-3: without the rule, what is known of a follower suffices, whatever happened to it since.
        if not context.rules("ISR-3"):
            for follower in self.followers.values():
                if follower.broker_id not in state.isr:
                    self._maybe_expand(follower)
        leader_leo = self._replica.log_end_offset
        out = tuple(
            member
            for member in state.isr
            if member != context.broker_id and not self._is_caught_up(member, leader_leo)
        )
        if not out:
            return
        pending = shrink(state, out, context.rules)
        self._replica.mark("isr-shrink-proposed", out=out, isr=state.isr)
        self._propose(pending)
        # Without ISR-2 the smaller ISR counts at once, and the high watermark may move.
        if self.state is pending and pending.maximal_isr != state.isr:
            self.isr_changed()

    def _is_caught_up(self, member: int, leader_leo: int) -> bool:
        # A member without state is not an assigned replica any more and counts as lagging.
        follower = self.followers.get(member)
        context = self._context
        return follower is not None and follower.is_caught_up(
            leader_leo=leader_leo, now_ns=context.monotonic_ns(), lag_max_ns=context.lag_max_ns
        )

    def _maybe_expand(self, follower: FollowerState) -> None:
        # ISR-3, ISR-7: called only from a fetch of this follower. Kafka tests twice, without and with the lock,
        # and reads the broker epochs under it; here test, proposal and epochs share one critical section.
        state = self.state
        if not isinstance(state, Committed) or not self._may_join(follower):
            return
        self._replica.mark("isr-expand-proposed", follower=follower.broker_id, isr=state.isr)
        self._propose(expand(state, follower.broker_id))

    def _may_join(self, follower: FollowerState) -> bool:
        """Whether a follower may join the ISR (ISR-4, ISR-5)."""
        context = self._context
        follower_leo = follower.log_end_offset
        if follower_leo < self._replica.high_watermark:
            return False
        # ISR-4: the high watermark of a new leader lags; everything below the epoch's start may be committed
        # (KAFKA-7128).
        if follower_leo < self.epoch_start_offset and context.rules("ISR-4"):
            return False
        return not context.rules("ISR-5") or self._is_eligible(follower)

    def _is_eligible(self, follower: FollowerState) -> bool:
        """Whether a follower is active, in the incarnation that fetched last (ISR-5)."""
        context = self._context
        if not context.metadata.is_isr_eligible(follower.broker_id):
            return False
        if not context.features.isr_broker_epoch_check or follower.broker_epoch == -1:
            return True
        alive_epoch = context.metadata.alive_broker_epoch(follower.broker_id)
        return alive_epoch is not None and alive_epoch == follower.broker_epoch

    def _propose(self, pending: PendingIsr) -> None:
        context = self._context
        replica = self._replica
        proposal = IsrProposal(
            topic=replica.topic,
            topic_id=replica.topic_id,
            partition=replica.index,
            leader_epoch=replica.leader_epoch,
            partition_epoch=replica.partition_epoch,
            isr_with_epochs=tuple(
                (member, self._broker_epoch_of(member)) for member in pending.proposed_isr
            ),
            leader_recovery_state=pending.recovery_state,
        )
        # Without ISR-2 the invariant is broken on purpose, and a checker must find the consequences.
        check_invariant(
            not context.rules("ISR-2")
            or set(pending.maximal_isr) >= set(pending.last_committed.isr),
            "INV-3",
            "the maximal ISR contains the committed one",
            topic=replica.topic,
            partition=replica.index,
            maximal_isr=pending.maximal_isr,
            isr=pending.last_committed.isr,
        )
        self.state = pending
        if not self._submit(pending, proposal) and self.state is pending:
            # AP-2: an item of this partition is still queued; ours was not attempted. A later fetch or timer
            # proposes again.
            self.state = pending.last_committed
        replica.report_isr()

    def _broker_epoch_of(self, member: int) -> int:
        # AP-1. -1 ("cannot check") is safe for an existing member that has not fetched yet: had it restarted,
        # the controller would have removed it and the partition epoch would no longer match.
        context = self._context
        if not context.features.isr_broker_epoch_check:
            return -1
        if member == context.broker_id:
            return context.broker_epoch
        follower = self.followers.get(member)
        return -1 if follower is None or follower.broker_epoch is None else follower.broker_epoch

    def _submit(self, pending: PendingIsr, proposal: IsrProposal) -> bool:
        return self._context.alter_partition.submit(
            proposal, lambda response: self._on_isr_response(pending, proposal, response)
        )

    def _on_isr_response(
        self, pending: PendingIsr, proposal: IsrProposal, response: IsrResponse
    ) -> None:
        """Applies the controller's response (AP-4)."""
        # Metadata were faster, or the leadership is over: the response is about a state that has been replaced.
        if self.state is not pending:
            return
        action = action_for(response.error, self._context.rules)
        if action is ResponseAction.COMMIT:
            self._commit_isr(pending, response)
        elif action is ResponseAction.ROLL_BACK:
            self._counts.failures += 1
            self.state = pending.last_committed
            self.isr_changed()
        elif action is ResponseAction.STAY_PENDING:
            self._counts.failures += 1
        else:
            # Should the resend be refused, the state stays pending: the first attempt may have been applied.
            self._submit(pending, proposal)

    def _commit_isr(self, pending: PendingIsr, response: IsrResponse) -> None:
        replica = self._replica
        if (
            response.leader_epoch != replica.leader_epoch
            or response.partition_epoch < replica.partition_epoch
        ):
            self._counts.failures += 1
            return
        if len(response.isr) > len(pending.isr):
            self._counts.expands += 1
        elif len(response.isr) < len(pending.isr):
            self._counts.shrinks += 1
        self.state = Committed(isr=response.isr, recovery_state=response.leader_recovery_state)
        replica.partition_epoch = response.partition_epoch
        self.isr_changed()

    def isr_changed(self) -> None:
        """Reports the ISR, which may have changed, and re-examines the high watermark (LEAD-5)."""
        self._replica.report_isr()
        # LEAD-5, AP-4 (KAFKA-13091): on an idle partition nothing else would move the high watermark.
        if self._context.rules("LEAD-5"):
            self.advance_high_watermark()

    # --- The high watermark.

    def advance_high_watermark(self) -> None:
        """Moves the high watermark as far as it may go (HW-2, HW-5), and reports that it moved."""
        replica = self._replica
        log = replica.log
        if log is None:
            return
        before = replica.high_watermark
        is_monotonic = self._context.rules("HW-5")
        if is_monotonic and log.log_end_offset <= before:
            return
        if len(self.state.isr) < self.effective_min_isr and self._is_gated():
            return
        candidate = self._committed_end(log, before if is_monotonic else None)
        # HW-5: a leader's high watermark never moves back. Without the rule it follows the slowest replica.
        if candidate == before or (candidate < before and is_monotonic):
            return
        replica.high_watermark = candidate
        replica.check_high_watermark()
        replica.report("high-watermark")
        self._on_high_watermark_moved()

    def _is_gated(self) -> bool:
        """Whether a committed ISR below min ISR keeps the high watermark from moving (HW-1)."""
        state = self.state
        context = self._context
        # HW-1: the committed ISR counts, because the maximal one need not contain the ELR.
        if not context.features.hw_min_isr_gate or not context.rules("HW-1"):
            return False
        if self._gated_state is not state:
            self._gated_state = state
            self._replica.mark(
                "high-watermark-gated", isr=state.isr, min_isr=self.effective_min_isr
            )
        return True

    def _committed_end(self, log: Log, enough: int | None) -> int:
        """Returns the smallest log end of the replicas that the high watermark waits for (HW-2, HW-3).

        Args:
            log: The leader's.
            enough: The search ends as soon as the result cannot be above this offset.
        """
        candidate = leader_leo = log.log_end_offset
        state = self.state
        waits_for = state.isr
        # HW-3: the members of a proposed ISR count as well.
        if state.is_pending and self._context.rules("HW-3"):
            waits_for = state.maximal_isr
        for follower in self.followers.values():
            follower_leo = follower.log_end_offset
            if follower_leo < candidate and (
                follower.broker_id in waits_for or self._holds_back(follower, leader_leo)
            ):
                # An unknown log end (-1) of a member blocks.
                candidate = follower_leo
                if enough is not None and candidate <= enough:
                    return candidate
        return max(candidate, log.log_start_offset)

    def _holds_back(self, follower: FollowerState, leader_leo: int) -> bool:
        """Whether the high watermark waits for a follower outside the ISR (HW-4, HW-4-ELIGIBLE)."""
        context = self._context
        # HW-4: without waiting for a follower that keeps up, one that chases a lone leader may never reach the
        # high watermark and never join.
        if not context.rules("HW-4") or not follower.is_caught_up(
            leader_leo=leader_leo, now_ns=context.monotonic_ns(), lag_max_ns=context.lag_max_ns
        ):
            return False
        if self._is_eligible(follower):
            return True
        # HW-4-ELIGIBLE: a follower that may not join would only delay commits (KAFKA-15021).
        return not context.rules("HW-4-ELIGIBLE")
