"""The broker's own copy of a partition: a log, a high watermark and the epochs it knows, whatever its role.

The high watermark (HW) is a statement about the whole replica set, kept per replica and always a lower bound of
the truth. A leader computes it (`leadership.py`); a follower takes its leader's value. This module has what both
share: where the high watermark starts, how it follows a truncation, and who is notified when it moves. It also has
what a follower does with fetched records.

Epochs. `leader_epoch` and `partition_epoch` never go back.
"""

from collections.abc import Callable
from uuid import UUID

from system_under_test.broker.replica_context import ReplicaContext
from system_under_test.broker.replica_state import REPORTED_ROLES, TRANSITIONS, ReplicaState
from system_under_test.broker.truncation import truncation_point
from system_under_test.invariants import check_invariant, check_transition
from system_under_test.log.log import Log
from system_under_test.log.retention import delete_old_segments
from system_under_test.metadata.records import MIGRATING_DIRECTORY


class LocalReplica:
    """A log with a high watermark. Mutable; implements `FollowedPartition`.

    Args:
        context: What all replicas of the broker share.
        topic: Name of the topic.
        topic_id: Its id.
        index: The partition's number in its topic.
        on_high_watermark_moved: Called after a fetch moved a follower's high watermark.

    Attributes:
        state: Changed by `become` only.
        log: None before the first registration, and when the replica is offline or removed.
        high_watermark: Offsets below it are committed as far as this replica knows.
        leader_epoch: Of the registration in force, -1 before the first.
        partition_epoch: Of the newest registration or AlterPartition response, -1 before the first.
    """

    __slots__ = (
        "_on_high_watermark_moved",
        "_role",
        "context",
        "high_watermark",
        "index",
        "leader_epoch",
        "log",
        "partition_epoch",
        "state",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        context: ReplicaContext,
        topic: str,
        topic_id: UUID,
        index: int,
        *,
        on_high_watermark_moved: Callable[[], None],
    ) -> None:
        self.context = context
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.state = ReplicaState.UNLOADED
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.high_watermark = 0
        self.log: Log | None = None
        self._on_high_watermark_moved = on_high_watermark_moved
        self._role = REPORTED_ROLES[self.state]

    def become(self, state: ReplicaState) -> None:
        """Changes the state; an offline or removed replica has no log.

        Raises:
            InvariantViolation: The transition table does not allow it.
        """
        check_transition(
            TRANSITIONS, self.state, state, of="a replica", topic=self.topic, partition=self.index
        )
        self.state = state
        self._role = REPORTED_ROLES[state]
        if state in (ReplicaState.OFFLINE, ReplicaState.REMOVED):
            self.log = None

    def open_log(self, assigned: UUID = MIGRATING_DIRECTORY) -> Log:
        """Returns the log; opens or creates it the first time (HW-8).

        Args:
            assigned: The directory that the metadata name for this replica, or a reserved id.

        Raises:
            OSError: The disk failed.
        """
        if self.log is None:
            logs = self.context.logs
            log = logs.get_or_create(self.topic, self.index, self.topic_id, assigned)
            high_watermark = logs.checkpointed_high_watermark(self.topic, self.index)
            # HW-8: the log may have lost its tail since the checkpoint.
            if self.context.rules("HW-8"):
                high_watermark = max(log.log_start_offset, min(high_watermark, log.log_end_offset))
            self.log = log
            self.high_watermark = high_watermark
            self.check_high_watermark()
            self.report("load")
        return self.log

    def online_log(self) -> Log:
        """Returns the log.

        Raises:
            OSError: There is no log: the disk failed, or the replica was removed.
        """
        if self.log is None:
            raise OSError(f"partition {self.topic}-{self.index} is offline")
        return self.log

    @property
    def log_start_offset(self) -> int:
        """Offset of the first record that may be read, -1 while offline."""
        return -1 if self.log is None else self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record, -1 while offline."""
        return -1 if self.log is None else self.log.log_end_offset

    def consumer_bound(self, log: Log) -> int:
        """Returns the offset below which consumers may read `log`, which is this replica's (FETCH-6).

        Between the high watermark and the log end there is nothing for a consumer, and no error.
        """
        bound = log.log_end_offset
        if self.high_watermark < bound and self.context.rules("FETCH-6"):
            return self.high_watermark
        return bound

    @property
    def last_stable_offset(self) -> int:
        """The offset below which no transaction can change (TXN-1); the high watermark while offline."""
        log = self.log
        return self.high_watermark if log is None else log.last_stable_offset(self.high_watermark)

    def report(self, cause: str) -> None:
        """Reports offsets, epoch and role of this replica to the observer."""
        self.context.observer.replica_changed(
            self.topic,
            self.index,
            log_end_offset=self.log_end_offset,
            high_watermark=self.high_watermark,
            log_start_offset=self.log_start_offset,
            leader_epoch=self.leader_epoch,
            role=self._role,
            cause=cause,
        )

    def report_isr(self) -> None:
        """Reports to the observer that what this leader knows of its ISR may have changed."""
        self.context.observer.leader_isr_changed(self.topic, self.index)

    def report_served(self, offset: int, records: bytes, to_follower: bool) -> None:
        """Reports to the observer what a fetch from an offset returns."""
        self.context.observer.records_served(self.topic, self.index, offset, records, to_follower)

    def mark(self, name: str, **details: object) -> None:
        """Marks a rare branch of this partition."""
        self.context.observer.mark(name, topic=self.topic, partition=self.index, **details)

    def check_high_watermark(self) -> None:
        """Asserts the second half of INV-9: the high watermark is not above the log end."""
        if self.high_watermark <= self.log_end_offset:
            return
        # When HW-7 or HW-8, which keep the promise, is switched off on purpose, a checker must find the
        # consequences, so the run continues.
        rules = self.context.rules
        check_invariant(
            not (rules("HW-7") and rules("HW-8")),
            "INV-9",
            "the high watermark is at most the log end",
            topic=self.topic,
            partition=self.index,
            high_watermark=self.high_watermark,
            log_end_offset=self.log_end_offset,
        )

    # --- The follower's side. Each method takes the leader epoch of the fetch whose response it applies: the role
    # may have changed while the response was on its way, which is then ignored.

    def is_following(self, leader_epoch: int) -> bool:
        """Whether this replica still follows the leader of that epoch."""
        return self.state is ReplicaState.FOLLOWER and self.leader_epoch == leader_epoch

    def fetch_position(self) -> tuple[int, int, int]:
        """Returns (fetch offset, last fetched epoch or -1, log start offset) of the next fetch (FOLL-4).

        The offset is the log end in every case: a log without epochs was truncated to its high watermark when the
        partition became a follower.
        """
        log = self.online_log()
        # Without TRUNC-1 epochs are not compared, as before KIP-101.
        epoch = log.latest_epoch if self.context.rules("TRUNC-1") else -1
        return log.log_end_offset, epoch, log.log_start_offset

    def prepare_to_follow(self) -> None:
        """Truncates what cannot be compared with a leader by epoch, before the first fetch (FOLL-4)."""
        log = self.online_log()
        # TRUNC-1: without the rule every log is truncated to its high watermark, as before KIP-101.
        is_comparable = log.latest_epoch >= 0 and self.context.rules("TRUNC-1")
        if not is_comparable and log.log_end_offset > self.high_watermark:
            self._truncate(self.high_watermark)

    def append_as_follower(
        self, records: bytes, *, leader_epoch: int, high_watermark: int, log_start_offset: int
    ) -> None:
        """Appends fetched records and takes the leader's high watermark (FF-2, HW-6).

        Args:
            records: Whole batches that continue the log, or nothing.
            leader_epoch: Of the fetch.
            high_watermark: The leader's, at the time it read.
            log_start_offset: The leader's, which is never behind the end of what it sent.

        Raises:
            CorruptBatchError: Nothing was appended.
            OutOfOrderOffsetError: Nothing was appended.
            OSError: The disk failed.
        """
        if not self.is_following(leader_epoch):
            return
        log = self.online_log()
        if records:
            log.append_as_follower(records)
        # HW-6: clamped to this log. It may go back: a new leader may know less than the old one did.
        end = log.log_end_offset
        if high_watermark > end:
            high_watermark = end
        if high_watermark < log.log_start_offset:
            high_watermark = log.log_start_offset
        if high_watermark != self.high_watermark:
            self.high_watermark = high_watermark
            self.report("replicate" if records else "high-watermark")
            self._on_high_watermark_moved()
        elif records:
            self.report("replicate")
        # RET-2: after the high watermark, which is never below the log start.
        if log_start_offset > log.log_start_offset and self.context.rules("RET-2"):
            self.raise_log_start(min(log_start_offset, self.high_watermark))

    def raise_log_start(self, offset: int) -> None:
        """Raises the log start to an offset that is not above the high watermark; a lower one changes nothing.

        Raises:
            OSError: The disk failed.
        """
        log = self.online_log()
        if offset > log.log_start_offset:
            log.advance_log_start(offset)
            self.report("log-start")

    def delete_old_segments(self, now_ms: int) -> None:
        """Deletes what retention does not keep (RET-1).

        Raises:
            OSError: The disk failed.
        """
        log = self.online_log()
        if delete_old_segments(log, high_watermark=self.high_watermark, now_ms=now_ms):
            self.high_watermark = max(self.high_watermark, log.log_start_offset)
            self.mark("segments-deleted", log_start_offset=log.log_start_offset)
            self.report("log-start")

    def truncate_on_divergence(self, *, leader_epoch: int, epoch: int, end_offset: int) -> bool:
        """Truncates the log to where it diverges from the leader's epochs (TRUNC-1).

        Args:
            leader_epoch: Of the fetch.
            epoch: The diverging epoch in the leader's response.
            end_offset: Where the leader's records of that epoch end; -1 if the leader does not know.

        Returns:
            Whether the logs agree now; otherwise the leader's epoch was unknown here, and the comparison must be
            repeated with the epoch that is the newest one now.
        """
        if not self.is_following(leader_epoch):
            return True
        log = self.online_log()
        is_final = True
        if end_offset < 0:
            target = self.high_watermark
        else:
            found = log.end_offset_for_epoch(epoch)
            is_final = found is None or found[0] == epoch
            target = truncation_point(
                log.epochs.entries,
                leader_epoch=epoch,
                leader_end_offset=end_offset,
                log_end_offset=log.log_end_offset,
            )
        self._truncate(target)
        return is_final

    def truncate_to(self, *, leader_epoch: int, offset: int) -> None:
        """Truncates the log to an offset (TRUNC-2: the leader's log ends before ours)."""
        if self.is_following(leader_epoch):
            self._truncate(offset)

    def truncate_fully_and_start_at(self, *, leader_epoch: int, offset: int) -> None:
        """Drops the whole log and starts at an offset (TRUNC-2: the leader's log starts after ours)."""
        if not self.is_following(leader_epoch):
            return
        log = self.online_log()
        end_before = log.log_end_offset
        log.truncate_fully_and_start_at(offset)
        self._after_truncation(end_before, is_restart=True)

    def _truncate(self, offset: int) -> None:
        log = self.online_log()
        end_before = log.log_end_offset
        log.truncate_to(offset)
        self._after_truncation(end_before, is_restart=False)

    def _after_truncation(self, end_before: int, *, is_restart: bool) -> None:
        """Lowers the high watermark to the new log end (HW-7)."""
        log = self.online_log()
        end = log.log_end_offset
        if end == end_before and not is_restart:
            return
        high_watermark = self.high_watermark
        details = {
            "leader_epoch": self.leader_epoch,
            "end_before": end_before,
            "end_after": end,
            "high_watermark": high_watermark,
        }
        self.mark("truncated", **details)
        if end < high_watermark:
            # Not always a loss, but every loss by truncation passes here.
            self.mark("truncated-below-high-watermark", **details)
        # HW-7. The lower bound matters only for a log that was dropped and starts at a higher offset.
        if self.context.rules("HW-7"):
            self.high_watermark = max(log.log_start_offset, min(high_watermark, end))
        self.check_high_watermark()
        self.report("truncate")
