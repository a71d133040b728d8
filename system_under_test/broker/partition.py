"""One partition on one broker: its role, and those who wait for it.

Theory. The controller says who leads, in which leader epoch, with which ISR. A leader moves the high watermark
(`leader_replica.py`); a follower copies the leader's log (`local_replica.py`). Here is the change of roles, and
here are those who wait: produce requests with acks=all until the high watermark has passed their last record,
fetches until there is something to read.

Concurrency. Every method runs without awaiting and is a critical section as a whole (section 1.2), so a check
made at its beginning still holds at its end. What others wait for is completed at the end of a method, when the
state is consistent again. A completion only sets the result of a future, so nothing comes back in.

Epochs. `leader_epoch` and `partition_epoch` never go back: an older registration is ignored (LEAD-1, FOLL-1).
"""

from collections import deque
from typing import Any, Protocol
from uuid import UUID

from system_under_test.broker.follower_state import FollowerState
from system_under_test.broker.isr import Committed
from system_under_test.broker.leader_replica import LeaderReplica
from system_under_test.broker.local_replica import FOLLOWER, LEADER, OFFLINE
from system_under_test.broker.produce_wait import ProduceWait
from system_under_test.broker.replica_context import ReplicaContext
from system_under_test.invariants import check_invariant
from system_under_test.log.log import AppendInfo
from system_under_test.metadata.image import PartitionRegistration
from system_under_test.metadata.records import NO_LEADER
from system_under_test.protocol.errors import ErrorCode

ACKS_ALL = -1


class FetchWait(Protocol):
    """A partition's part of a parked fetch."""

    def bound_moved(self, bound: int) -> None:
        """The offset below which the request may read is now `bound`."""
        ...

    def role_changed(self) -> None:
        """The role or the leader epoch changed."""
        ...


class Partition(LeaderReplica):
    """The state machine of section 3.2.

    Attributes:
        leader_id: Who leads, -1 for nobody.
        assignment: All replicas, the preferred leader first.
        original_replica_count: Replicas without those that a reassignment is adding.
        produce_waits: acks=all appends in the order of their offsets.
        follower_fetches: Parked fetches of followers by the number of their operation.
        consumer_fetches: Those of consumers.
    """

    __slots__ = (
        "assignment",
        "consumer_fetches",
        "follower_fetches",
        "last_read",
        "last_read_key",
        "last_response",
        "leader_id",
        "original_replica_count",
        "produce_waits",
    )

    def __init__(self, context: ReplicaContext, topic: str, topic_id: UUID, index: int) -> None:
        super().__init__(context, topic, topic_id, index)
        self.leader_id = NO_LEADER
        self.assignment: tuple[int, ...] = ()
        self.original_replica_count = 0
        self.produce_waits: deque[ProduceWait] = deque()
        self.follower_fetches: dict[int, FetchWait] = {}
        self.consumer_fetches: dict[int, FetchWait] = {}
        # The last fetched data, what determines them, and a response of nothing else; see `fetch.py`.
        self.last_read_key: tuple[int, ...] = ()
        self.last_read: Any = None
        self.last_response: Any = None

    # --- Becoming leader, follower, gone (section 7).

    def make_leader(self, registration: PartitionRegistration) -> bool:
        """Leads the partition as the registration says (LEAD-1 ... LEAD-5).

        Returns:
            False when the registration is older than what is known.

        Raises:
            OSError: The disk failed; the caller takes the partition offline.
        """
        # LEAD-1: an AlterPartition answer may have been faster than the metadata log.
        if registration.partition_epoch < self.partition_epoch:
            return False
        broker_id = self.context.broker_id
        check_invariant(
            broker_id in registration.isr,
            "INV-7",
            "the leader is in the ISR",
            topic=self.topic,
            partition=self.index,
            leader=broker_id,
            isr=registration.isr,
        )
        self.open_log()
        is_new_leader = not self.is_leader
        self._take_assignment(registration)
        # LEAD-2: whatever was proposed, this is what the controller decided. A registration with the partition
        # epoch that an AlterPartition answer told us before is no news and cancels nothing: a proposal made since
        # may be in force by now, and the high watermark must respect it (INV-3). Kafka cancels here, too.
        is_news = registration.partition_epoch > self.partition_epoch
        if not self.state.is_pending or (is_news and self.context.registration_cancels_isr_change):
            self.state = Committed(isr=registration.isr)
        is_new_epoch = registration.leader_epoch > self.leader_epoch
        if is_new_epoch:
            self._begin_leader_epoch(registration, is_new_leader=is_new_leader)
        self.partition_epoch = registration.partition_epoch
        self.leader_id = broker_id
        self.is_leader = True
        self.role = LEADER
        if is_new_epoch:
            self.mark("became-leader", leader_epoch=self.leader_epoch, isr=registration.isr)
            self.report("role")
            # Followers that wait in the old epoch must hear that it is over.
            self.wake_all_fetches()
        self.isr_changed()
        return True

    def make_follower(self, registration: PartitionRegistration) -> bool:
        """Follows whoever the registration names, possibly nobody (FOLL-1, FOLL-3, FOLL-4).

        Returns:
            Whether the leader epoch is new, so that fetching has to begin anew (FOLL-2).

        Raises:
            OSError: The disk failed; the caller takes the partition offline.
        """
        # FOLL-1.
        if registration.partition_epoch < self.partition_epoch:
            return False
        was_leader = self.is_leader
        is_new_epoch = registration.leader_epoch > self.leader_epoch
        self.is_leader = False
        self.role = FOLLOWER
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self.leader_epoch_start_offset = None
        self.assignment = registration.replicas
        self.state = Committed(isr=(), recovery_state=registration.leader_recovery_state)
        self.followers = {}
        self.refresh_effective_min_isr()
        # The log is there even if nobody leads, so that its high watermark is checkpointed (REC-2).
        self.open_log()
        if is_new_epoch:
            self.prepare_to_follow()
            self.report("role")
        if was_leader:
            self.mark("became-follower", leader_epoch=self.leader_epoch, leader=self.leader_id)
            # FOLL-3: the records may survive or not; only the new leader's log will tell. PROD-6 asks for nothing
            # beyond it: no log is truncated without coming through here first.
            if self.context.deposed_leader_fails_produces:
                self._fail_produces(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.wake_all_fetches()
        return is_new_epoch

    def leave(self, error: ErrorCode) -> None:
        """Stops being a replica (or loses its disk); everything that waits gets the error."""
        self.is_leader = False
        self.role = OFFLINE
        self.log = None
        self.leader_id = NO_LEADER
        self.leader_epoch_start_offset = None
        self.state = Committed(isr=())
        self.followers = {}
        self.report("role")
        self._fail_produces(error)
        self.wake_all_fetches()

    @property
    def is_under_replicated(self) -> bool:
        """Whether this broker leads and replicas are missing from the ISR (section 19)."""
        return self.is_leader and len(self.state.isr) < self.original_replica_count

    def _take_assignment(self, registration: PartitionRegistration) -> None:
        known = self.followers
        self.assignment = registration.replicas
        self.original_replica_count = len(registration.replicas) - len(registration.adding_replicas)
        self.followers = {
            replica: known.get(replica) or FollowerState(replica)
            for replica in registration.replicas
            if replica != self.context.broker_id
        }
        self.refresh_effective_min_isr()

    def _begin_leader_epoch(
        self, registration: PartitionRegistration, *, is_new_leader: bool
    ) -> None:
        log = self.online_log()
        start = log.log_end_offset
        # LEAD-3: durable before anything is served, or a later comparison of epochs would be wrong (KAFKA-7415).
        if self.context.leader_records_its_epoch:
            log.assign_epoch(registration.leader_epoch, start)
        self.leader_epoch_start_offset = start
        # HW-9: what this log has beyond the high watermark was promised to nobody, and others may not have it.
        if is_new_leader and not self.context.new_leader_keeps_high_watermark:
            self.high_watermark = start
        now_ns = self.context.monotonic_ns()
        for follower in self.followers.values():
            follower.reset(
                is_in_isr=follower.broker_id in registration.isr,
                is_new_leader=is_new_leader,
                now_ns=now_ns,
                leader_leo=start,
            )
        self.leader_epoch = registration.leader_epoch

    # --- Appending.

    def append_as_leader(self, records: bytes, acks: int) -> AppendInfo | ErrorCode:
        """Appends a producer's batches and lets followers fetch them.

        Returns:
            Where the records are, or why nothing was written.

        Raises:
            CorruptBatchError: The records are not well formed; nothing was written.
            BatchTooLargeError: Likewise.
            OSError: The disk failed.
        """
        log = self.log
        if log is None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        # PROD-2: the committed ISR counts, not the maximal one.
        if (
            acks == ACKS_ALL
            and len(self.state.isr) < self.effective_min_isr
            and self.context.acks_all_needs_min_isr
        ):
            self.mark("not-enough-replicas", isr=self.state.isr, min_isr=self.effective_min_isr)
            return ErrorCode.NOT_ENOUGH_REPLICAS
        info = log.append_as_leader(records, self.leader_epoch)
        self.report("append")
        if self.advance_high_watermark():
            self.high_watermark_moved()
        if self.follower_fetches:
            for wait in list(self.follower_fetches.values()):
                wait.bound_moved(log.log_end_offset)
        if self.consumer_fetches and not self.context.consumers_stop_at_high_watermark:
            self._wake_consumers()
        return info

    # --- Those who wait.

    def high_watermark_moved(self) -> None:
        """Completes what waited for the high watermark: acks=all appends and consumers' fetches."""
        waits = self.produce_waits
        high_watermark = self.high_watermark
        if waits:
            # PROD-4. Without FOLL-3 (a defect) also a follower gets here, and knows nothing about the ISR.
            error = ErrorCode.NONE
            if (
                self.is_leader
                and len(self.state.maximal_isr) < self.effective_min_isr
                and self.context.late_acks_need_min_isr  # PROD-5
            ):
                error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            while waits and waits[0].required_offset <= high_watermark:
                wait = waits.popleft()
                if not wait.is_done:
                    self._complete_produce(wait, error)
        if self.consumer_fetches:
            self._wake_consumers()

    def watch_produce(self, wait: ProduceWait) -> None:
        """Lets an acks=all append wait; completes it at once if the high watermark has passed it."""
        waits = self.produce_waits
        index = len(waits)
        # A repeated batch lies below what others wait for.
        while index and waits[index - 1].required_offset > wait.required_offset:
            index -= 1
        waits.insert(index, wait)
        if wait.required_offset <= self.high_watermark:
            self.high_watermark_moved()

    def wake_all_fetches(self) -> None:
        """Lets every parked fetch read again: the role or the epoch changed, and each must hear it."""
        for waits in (self.follower_fetches, self.consumer_fetches):
            for wait in list(waits.values()):
                wait.role_changed()

    def _wake_consumers(self) -> None:
        # FETCH-6.
        bound = self.high_watermark
        if not self.context.consumers_stop_at_high_watermark and self.log is not None:
            bound = self.log.log_end_offset
        for wait in list(self.consumer_fetches.values()):
            wait.bound_moved(bound)

    def _complete_produce(self, wait: ProduceWait, error: ErrorCode) -> None:
        if error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            self.mark(
                "not-enough-replicas-after-append",
                required_offset=wait.required_offset,
                maximal_isr=self.state.maximal_isr,
                min_isr=self.effective_min_isr,
            )
        wait.complete(error)

    def _fail_produces(self, error: ErrorCode) -> None:
        waits, self.produce_waits = self.produce_waits, deque()
        for wait in waits:
            if not wait.is_done:
                wait.complete(error)
