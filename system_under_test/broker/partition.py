"""One partition on one broker: a replica, a leadership that exists only while leading, and waiting requests.

Theory. The controller decides which broker leads, in which leader epoch, with which ISR. A leader moves the high
watermark (`leadership.py`); a follower copies the leader's log (`local_replica.py`). This module changes the role,
and notifies the requests that wait (`waiters.py`).

Concurrency. Every method runs without awaiting and is a critical section as a whole, so a check made at its
beginning still holds at its end. Waiting requests are completed at the end of a method, when the state is
consistent again.

Epochs. An older registration is ignored (LEAD-1, FOLL-1).
"""

from typing import Any
from uuid import UUID

from system_under_test.broker.leadership import IsrChangeCounts, Leadership
from system_under_test.broker.local_replica import LocalReplica
from system_under_test.broker.produce_wait import ProduceWait
from system_under_test.broker.replica_context import ReplicaContext
from system_under_test.broker.replica_state import ReplicaState
from system_under_test.broker.waiters import DeletionWait, Waiters
from system_under_test.invariants import check_invariant
from system_under_test.log.log import AppendInfo, Log
from system_under_test.log.verified import VerifiedBatches
from system_under_test.metadata.directories import directory_of
from system_under_test.metadata.image import PartitionRegistration
from system_under_test.metadata.records import NO_LEADER
from system_under_test.protocol.errors import ErrorCode

ACKS_ALL = -1


class Partition:
    """One partition. Mutable.

    Attributes:
        replica: The broker's own copy.
        leadership: What a leader has; None while this broker does not lead.
        waiters: The requests that wait.
        leader_id: The broker that leads, -1 for none.
        topic_min_isr: `min.insync.replicas`; while a publish is applied the larger of old and new (META-5).
        isr_changes: How often the ISR was changed here.
        last_read_key: Determines `last_read`, the data that were fetched last; see `fetch.py`.
        last_response: A fetch response of nothing but `last_read`, None before it is needed.
    """

    __slots__ = (
        "_context",
        "isr_changes",
        "last_read",
        "last_read_key",
        "last_response",
        "leader_id",
        "leadership",
        "replica",
        "topic_min_isr",
        "waiters",
    )

    def __init__(self, context: ReplicaContext, topic: str, topic_id: UUID, index: int) -> None:
        self._context = context
        self.replica = LocalReplica(
            context,
            topic,
            topic_id,
            index,
            on_high_watermark_moved=self._high_watermark_moved,
        )
        self.leadership: Leadership | None = None
        self.waiters = Waiters()
        self.leader_id = NO_LEADER
        self.topic_min_isr = 1
        self.isr_changes = IsrChangeCounts()
        self.last_read_key: tuple[int, ...] = ()
        self.last_read: Any = None
        self.last_response: Any = None

    # --- Read by other parts.

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self.replica.topic

    @property
    def topic_id(self) -> UUID:
        """Id of the topic."""
        return self.replica.topic_id

    @property
    def index(self) -> int:
        """The partition's number in its topic."""
        return self.replica.index

    @property
    def log(self) -> Log | None:
        """The log, None while there is none."""
        return self.replica.log

    @property
    def high_watermark(self) -> int:
        """Offsets below it are committed as far as this replica knows."""
        return self.replica.high_watermark

    @property
    def leader_epoch(self) -> int:
        """Of the registration in force, -1 before the first."""
        return self.replica.leader_epoch

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self.leadership is not None

    # --- Role changes.

    def make_leader(self, registration: PartitionRegistration) -> bool:
        """Leads the partition as the registration states (LEAD-1 ... LEAD-5).

        Returns:
            False when the registration is older than what is known.

        Raises:
            OSError: The disk failed; the caller takes the partition offline.
        """
        replica = self.replica
        # LEAD-1: an AlterPartition response may have been faster than the metadata log.
        if registration.partition_epoch < replica.partition_epoch:
            return False
        broker_id = self._context.broker_id
        check_invariant(
            broker_id in registration.isr,
            "INV-7",
            "the leader is in the ISR",
            topic=replica.topic,
            partition=replica.index,
            leader=broker_id,
            isr=registration.isr,
        )
        replica.open_log(directory_of(registration, broker_id))
        is_new_epoch = registration.leader_epoch > replica.leader_epoch
        leadership = self.leadership
        if leadership is None:
            leadership = Leadership(
                self._context,
                replica,
                registration,
                counts=self.isr_changes,
                topic_min_isr=self.topic_min_isr,
                on_high_watermark_moved=self._high_watermark_moved,
            )
        else:
            leadership.renew(registration)
        replica.become(ReplicaState.LEADER)
        replica.leader_epoch = registration.leader_epoch
        replica.partition_epoch = registration.partition_epoch
        self.leader_id = broker_id
        self.leadership = leadership
        if is_new_epoch:
            replica.mark("became-leader", leader_epoch=replica.leader_epoch, isr=registration.isr)
            replica.report("role")
            # The followers whose fetches wait in the old epoch must learn that it is over.
            self.waiters.role_changed()
        leadership.isr_changed()
        return True

    def make_follower(self, registration: PartitionRegistration) -> bool:
        """Follows the leader that the registration names, possibly none (FOLL-1, FOLL-3, FOLL-4).

        Returns:
            Whether the leader epoch is new, so that fetching has to begin anew (FOLL-2).

        Raises:
            OSError: The disk failed; the caller takes the partition offline.
        """
        replica = self.replica
        # FOLL-1.
        if registration.partition_epoch < replica.partition_epoch:
            return False
        is_new_epoch = registration.leader_epoch > replica.leader_epoch
        was_leader = self._end_leadership()
        replica.become(ReplicaState.FOLLOWER)
        replica.leader_epoch = registration.leader_epoch
        replica.partition_epoch = registration.partition_epoch
        self.leader_id = registration.leader
        # The log is opened even if no broker leads, so that its high watermark is checkpointed (REC-2).
        replica.open_log(directory_of(registration, self._context.broker_id))
        if is_new_epoch:
            replica.prepare_to_follow()
            replica.report("role")
        if was_leader:
            replica.mark(
                "became-follower", leader_epoch=replica.leader_epoch, leader=self.leader_id
            )
            # FOLL-3: the records may survive or not; only the new leader's log decides. PROD-6 requires nothing
            # beyond it: no log is truncated without passing here first.
            if self._context.rules("FOLL-3"):
                self.waiters.fail_produces(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.waiters.fail_deletions(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.waiters.role_changed()
        return is_new_epoch

    def take_log(self, log: Log) -> None:
        """Uses another log with the same records: the replica was moved to another directory."""
        self.replica.log = log
        self.last_read_key = ()
        self.last_read = self.last_response = None

    def take_offline(self) -> None:
        """Drops the log, whose disk failed; everything that waits is completed with an error."""
        self._give_up(ReplicaState.OFFLINE, ErrorCode.KAFKA_STORAGE_ERROR)

    def remove(self, error: ErrorCode) -> None:
        """Stops being a replica for good; everything that waits is completed with the error."""
        self._give_up(ReplicaState.REMOVED, error)

    def _give_up(self, state: ReplicaState, error: ErrorCode) -> None:
        self._end_leadership()
        self.leader_id = NO_LEADER
        self.replica.become(state)
        self.replica.report("role")
        self.waiters.fail_produces(error)
        self.waiters.fail_deletions(error)
        self.waiters.role_changed()

    def _end_leadership(self) -> bool:
        """Discards the leadership; returns whether there was one."""
        leadership = self.leadership
        if leadership is None:
            return False
        leadership.end()
        self.leadership = None
        return True

    # --- What a leader does.

    def take_min_isr(self, topic_min_isr: int, *, is_publishing: bool) -> None:
        """Sets the topic's min ISR; while a publish is applied it may only grow (META-5)."""
        if topic_min_isr == self.topic_min_isr:
            return
        is_raised = topic_min_isr > self.topic_min_isr
        if is_publishing and is_raised and not self._context.rules("META-5-RAISED"):
            return
        if is_publishing and not is_raised and self._context.rules("META-5-LOWERED"):
            return
        self.topic_min_isr = topic_min_isr
        leadership = self.leadership
        if leadership is not None:
            leadership.take_min_isr(topic_min_isr)
            self.replica.report_isr()
            if not (is_publishing and is_raised):
                leadership.advance_high_watermark()

    def shrink_if_lagging(self) -> None:
        """Proposes to remove lagging members from the ISR, if this broker leads."""
        if self.leadership is not None:
            self.leadership.shrink_if_lagging()

    def refusal_to_append(self, acks: int) -> ErrorCode | None:
        """Returns why a producer's batch must not be appended whatever it contains, None if it may be (PROD-2)."""
        replica = self.replica
        if replica.log is None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        leadership = self.leadership
        if leadership is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        # PROD-2: the committed ISR counts, not the maximal one.
        if acks == ACKS_ALL and leadership.is_below_min_isr and self._context.rules("PROD-2"):
            replica.mark(
                "not-enough-replicas",
                isr=leadership.state.isr,
                min_isr=leadership.effective_min_isr,
            )
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return None

    def append_as_leader(
        self, batches: VerifiedBatches, acks: int, *, is_coordinator: bool = False
    ) -> AppendInfo | ErrorCode:
        """Appends a producer's batches and lets followers fetch them.

        Args:
            batches: The batches.
            acks: What the producer waits for.
            is_coordinator: Whether a group or transaction coordinator appends, not a client.

        Returns:
            Where the records are, or why nothing was written.

        Raises:
            ProducerRefusedError: An idempotent producer must not append this now; nothing was written.
            BatchTooLargeError: Nothing was written.
            OSError: The disk failed.
        """
        refusal = self.refusal_to_append(acks)
        if refusal is not None:
            return refusal
        replica, leadership = self.replica, self.leadership
        log = replica.log
        assert log is not None
        assert leadership is not None
        info = log.append_as_leader(batches, replica.leader_epoch, is_coordinator=is_coordinator)
        replica.report("append")
        leadership.advance_high_watermark()
        waiters = self.waiters
        if waiters.follower_fetches:
            waiters.wake_followers(log.log_end_offset)
        # FETCH-6: without the rule consumers do not wait for the high watermark.
        if waiters.consumer_fetches and not self._context.rules("FETCH-6"):
            waiters.wake_consumers(log.log_end_offset)
        return info

    # --- Waiting requests.

    def watch_produce(self, wait: ProduceWait) -> None:
        """Lets an acks=all append wait; completes it at once if the high watermark has passed it (PROD-4)."""
        self.waiters.add_produce(wait)
        if wait.required_offset <= self.replica.high_watermark:
            self._high_watermark_moved()

    def watch_deletion(self, wait: DeletionWait) -> None:
        """Lets a DeleteRecords request wait for the low watermark; completes it at once if that suffices."""
        self.waiters.deletions.append(wait)
        self.log_starts_moved()

    def log_starts_moved(self) -> None:
        """Completes the DeleteRecords requests that the log starts of all replicas have reached (RET-3)."""
        if self.waiters.deletions and self.leadership is not None:
            self.waiters.low_watermark_is(self.leadership.low_watermark())

    def _high_watermark_moved(self) -> None:
        """Completes what waited for the high watermark: acks=all appends and consumers' fetches (PROD-4)."""
        waiters = self.waiters
        if waiters.produces:
            self._complete_produces()
        if waiters.consumer_fetches:
            replica = self.replica
            log = replica.log
            waiters.wake_consumers(
                replica.high_watermark if log is None else replica.consumer_bound(log)
            )

    def _complete_produces(self) -> None:
        """Completes the appends that the high watermark has passed (PROD-4, PROD-5)."""
        replica = self.replica
        leadership = self.leadership
        committed_end = replica.high_watermark
        if leadership is not None and not self._context.rules("PROD-4-ISR"):
            committed_end = max(committed_end, leadership.copied_end())
        # PROD-5. Without FOLL-3 also a follower gets here, and knows nothing about the ISR.
        if (
            leadership is None
            or len(leadership.state.maximal_isr) >= leadership.effective_min_isr
            or not self._context.rules("PROD-5")
        ):
            for wait in self.waiters.take_committed(committed_end):
                wait.complete(ErrorCode.NONE)
            return
        for wait in self.waiters.take_committed(committed_end):
            replica.mark(
                "not-enough-replicas-after-append",
                required_offset=wait.required_offset,
                maximal_isr=leadership.state.maximal_isr,
                min_isr=leadership.effective_min_isr,
            )
            wait.complete(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
