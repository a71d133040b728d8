"""The broker's own copy of a partition: a log and a high watermark, whatever the role.

The high watermark (HW) is a statement about the whole replica set, kept per replica and always a lower bound
of the truth. A leader computes it (`partition.py`); a follower takes its leader's word for it. What is common
to both is here: where it starts, how it follows a truncation, and who is told when it moves.
"""

from uuid import UUID

from system_under_test.broker.replica_context import ReplicaContext
from system_under_test.broker.truncation import truncation_point
from system_under_test.invariants import check_invariant
from system_under_test.log.log import Log

LEADER = "leader"
FOLLOWER = "follower"
OFFLINE = "offline"


class LocalReplica:
    """A log with a high watermark.

    Attributes:
        log: None before the first registration and after a disk failure.
        high_watermark: Offsets below it are committed as far as this replica knows.
        leader_epoch: Of the registration in force, -1 before the first.
        role: "leader", "follower" or "offline".
        is_leader: Same as `role == "leader"`; the hot paths read it.
    """

    __slots__ = (
        "context",
        "high_watermark",
        "index",
        "is_leader",
        "leader_epoch",
        "log",
        "role",
        "topic",
        "topic_id",
    )

    def __init__(self, context: ReplicaContext, topic: str, topic_id: UUID, index: int) -> None:
        self.context = context
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.leader_epoch = -1
        self.high_watermark = 0
        self.role = FOLLOWER
        self.is_leader = False
        self.log: Log | None = None

    def open_log(self) -> Log:
        """Returns the log; opens or creates it the first time.

        Raises:
            OSError: The disk failed.
        """
        if self.log is None:
            logs = self.context.logs
            log = logs.get_or_create(self.topic, self.index, self.topic_id)
            high_watermark = logs.checkpointed_high_watermark(self.topic, self.index)
            # HW-8: the log may have lost its tail since the checkpoint.
            if self.context.clamps_high_watermark_on_load:
                high_watermark = max(log.log_start_offset, min(high_watermark, log.log_end_offset))
            self.log = log
            self.high_watermark = high_watermark
            self.check_high_watermark()
            self.report("load")
        return self.log

    def online_log(self) -> Log:
        """Returns the log.

        Raises:
            OSError: The replica has none: its disk failed, or it is no replica any more.
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

    def report(self, cause: str) -> None:
        """Tells the observer where this replica stands."""
        self.context.observer.replica_changed(
            self.topic,
            self.index,
            log_end_offset=self.log_end_offset,
            high_watermark=self.high_watermark,
            log_start_offset=self.log_start_offset,
            leader_epoch=self.leader_epoch,
            role=self.role,
            cause=cause,
        )

    def mark(self, name: str, **details: object) -> None:
        """Notes a rare branch of this partition."""
        self.context.observer.mark(name, topic=self.topic, partition=self.index, **details)

    def check_high_watermark(self) -> None:
        """Asserts INV-9's second half: the high watermark is not above the log end."""
        if self.high_watermark <= self.log_end_offset:
            return
        # Where a rule that keeps the promise is switched off on purpose, the checkers outside must find it.
        context = self.context
        check_invariant(
            not (
                context.clamps_high_watermark_on_load and context.truncation_lowers_high_watermark
            ),
            "INV-9",
            "the high watermark is at most the log end",
            topic=self.topic,
            partition=self.index,
            high_watermark=self.high_watermark,
            log_end_offset=self.log_end_offset,
        )

    # The follower's side. Each method gives the leader epoch of the fetch that it answers, because the role may
    # have changed while the answer was under way; it is then ignored.

    def is_following(self, leader_epoch: int) -> bool:
        """Whether this replica still follows the leader of that epoch."""
        return self.role == FOLLOWER and self.leader_epoch == leader_epoch

    def fetch_position(self) -> tuple[int, int, int]:
        """Returns (fetch offset, last fetched epoch or -1, log start offset) of the next fetch (FOLL-4).

        The offset is the log end in every case: a log without epochs was cut to its high watermark when the
        partition became a follower.
        """
        log = self.online_log()
        # Without TRUNC-1 there is no comparison of epochs, as before KIP-101.
        epoch = log.latest_epoch if self.context.truncates_by_epoch else -1
        return log.log_end_offset, epoch, log.log_start_offset

    def prepare_to_follow(self) -> None:
        """Cuts what cannot be compared with a leader by epoch, before the first fetch (FOLL-4)."""
        log = self.online_log()
        if (
            not self.context.truncates_by_epoch or log.latest_epoch < 0
        ) and log.log_end_offset > self.high_watermark:
            self._truncate(self.high_watermark)

    def append_as_follower(
        self, records: bytes, *, leader_epoch: int, high_watermark: int, log_start_offset: int
    ) -> None:
        """Appends what was fetched and takes the leader's high watermark (FF-2, HW-6).

        Args:
            records: Whole batches that continue the log, or nothing.
            leader_epoch: Of the fetch.
            high_watermark: The leader's, at the time it read.
            log_start_offset: The leader's. It never passes ours, because nothing deletes records from the
                front of a log here; a leader that starts later answers OFFSET_OUT_OF_RANGE (TRUNC-2).

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
        # HW-6: clamped to the own log. It may go back: a new leader may know less than the old one did.
        end = log.log_end_offset
        if high_watermark > end:
            high_watermark = end
        if high_watermark < log.log_start_offset:
            high_watermark = log.log_start_offset
        if high_watermark != self.high_watermark:
            self.high_watermark = high_watermark
            self.report("replicate" if records else "high-watermark")
            self.high_watermark_moved()
        elif records:
            self.report("replicate")

    def truncate_on_divergence(self, *, leader_epoch: int, epoch: int, end_offset: int) -> None:
        """Cuts the log where the leader's epochs say that it diverges (TRUNC-1).

        Args:
            leader_epoch: Of the fetch.
            epoch: The diverging epoch the leader answered.
            end_offset: Where the leader's records of that epoch end; -1 if it does not know.
        """
        if not self.is_following(leader_epoch):
            return
        log = self.online_log()
        if end_offset < 0:
            target = self.high_watermark
        else:
            target = truncation_point(
                log.epochs.entries,
                leader_epoch=epoch,
                leader_end_offset=end_offset,
                log_start_offset=log.log_start_offset,
                log_end_offset=log.log_end_offset,
            )
        self._truncate(target)

    def truncate_to(self, *, leader_epoch: int, offset: int) -> None:
        """Cuts the log at an offset (TRUNC-2: the leader's log ends before ours)."""
        if self.is_following(leader_epoch):
            self._truncate(offset)

    def truncate_fully_and_start_at(self, *, leader_epoch: int, offset: int) -> None:
        """Drops the whole log and starts at an offset (TRUNC-2: the leader's log starts after ours)."""
        if not self.is_following(leader_epoch):
            return
        log = self.online_log()
        end_before = log.log_end_offset
        log.truncate_fully_and_start_at(offset)
        self._truncated(end_before, is_restart=True)

    def high_watermark_moved(self) -> None:
        """Is called after a follower's high watermark moved; a partition with waiting clients cares."""

    def _truncate(self, offset: int) -> None:
        log = self.online_log()
        end_before = log.log_end_offset
        log.truncate_to(offset)
        self._truncated(end_before, is_restart=False)

    def _truncated(self, end_before: int, *, is_restart: bool) -> None:
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
            # Not always a loss, but every loss by truncation comes through here.
            self.mark("truncated-below-high-watermark", **details)
        # HW-7; the lower bound matters only for a log that begins anew further on.
        if self.context.truncation_lowers_high_watermark:
            self.high_watermark = max(log.log_start_offset, min(high_watermark, end))
        self.check_high_watermark()
        self.report("truncate")
