"""What a quorum leader knows about the other members: their progress, and whether they still fetch.

Bookkeeping of one leadership; the driver is `leader.py`.

Source:
    Kafka's `LeaderState`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from system_under_test.rules import ALL_RULES, Rules

UNKNOWN = -1
PROGRESS_MAX = 1000
"""Most replicas that are remembered: requests are not authenticated and may carry any id."""


class Progress(NamedTuple):
    """Progress of a replica at its last fetch. Times are the leader's wall clock, for display only."""

    end_offset: int
    fetched_ms: int
    caught_up_ms: int


class Leadership:
    """One leadership in one epoch. Mutable, owned by the leader's driver.

    Attributes:
        epoch: The quorum epoch.
        epoch_start_offset: Offset of the LeaderChange record; nothing of this epoch is below it.
        high_watermark: End of what is committed, `UNKNOWN` until a record of this epoch is (RAFT-7).
    """

    __slots__ = (
        "_end_offsets",
        "_fetched_since_reset",
        "_progress",
        "_rules",
        "_sent_high_watermarks",
        "_voters",
        "epoch",
        "epoch_start_offset",
        "high_watermark",
        "node_id",
    )

    def __init__(
        self,
        *,
        node_id: int,
        voters: Sequence[int],
        epoch: int,
        epoch_start_offset: int,
        rules: Rules = ALL_RULES,
    ) -> None:
        self.node_id = node_id
        self.epoch = epoch
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark = UNKNOWN
        self._rules = rules
        self._voters = tuple(voters)
        self._end_offsets = dict.fromkeys(self._voters, UNKNOWN)
        self._fetched_since_reset: list[int] = []
        self._progress: dict[int, Progress] = {}
        self._sent_high_watermarks: dict[int, tuple[int, int]] = {}

    def record_fetch(self, replica_id: int, fetch_offset: int) -> None:
        """Notes that a replica has everything below an offset. Observers are ignored.

        The offset may also move back: a voter that lost its disk fetches from the beginning, and must no longer
        count for the records that it had.
        """
        if replica_id in self._end_offsets and replica_id != self.node_id:
            self._end_offsets[replica_id] = fetch_offset

    def note_progress(
        self, replica_id: int, fetch_offset: int, end_offset: int, now_ms: int
    ) -> None:
        """Notes a fetch of a voter or observer for DescribeQuorum; no decision uses it."""
        if replica_id < 0 or (
            replica_id not in self._progress and len(self._progress) >= PROGRESS_MAX
        ):
            return
        known = self._progress.get(replica_id)
        caught_up_ms = now_ms if fetch_offset >= end_offset else UNKNOWN
        if caught_up_ms == UNKNOWN and known is not None:
            caught_up_ms = known.caught_up_ms
        self._progress[replica_id] = Progress(fetch_offset, now_ms, caught_up_ms)

    def progress(self) -> dict[int, Progress]:
        """Returns the progress of every replica that has fetched in this leadership, ordered by id."""
        return dict(sorted(self._progress.items()))

    def majority_fetched(self, replica_id: int) -> bool:
        """Notes a fetch for RAFT-4; true when a majority, the leader included, has fetched since the last time."""
        if replica_id == self.node_id or replica_id not in self._end_offsets:
            return False
        if replica_id not in self._fetched_since_reset:
            self._fetched_since_reset.append(replica_id)
        if len(self._fetched_since_reset) + 1 < len(self._voters) // 2 + 1:
            return False
        self._fetched_since_reset.clear()
        return True

    def advance(self, own_end_offset: int) -> bool:
        """Moves the high watermark to the end of what a majority has; true when it moved.

        Args:
            own_end_offset: End of what is durable in the leader's own log.
        """
        self._end_offsets[self.node_id] = own_end_offset
        reached = sorted(self._end_offsets.values(), reverse=True)[len(self._voters) // 2]
        # [RAFT-7] The majority must have a record of this epoch. Otherwise a record of an older epoch can be on a
        # majority and still be replaced by the next leader (figure 8 of the Raft paper).
        if reached <= self.epoch_start_offset and self._rules("RAFT-7"):
            return False
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def knows_high_watermark(self, replica_id: int, connection_id: int) -> bool:
        """Whether the current high watermark was already sent to a replica on its current connection.

        A replica that restarted has forgotten the high watermark; it uses a new connection.
        """
        sent = self._sent_high_watermarks.get(replica_id)
        return (
            sent is not None and sent[0] == connection_id and sent[1] >= self.high_watermark
        ) or self.high_watermark == UNKNOWN

    def high_watermark_sent(self, replica_id: int, connection_id: int) -> None:
        """Notes that the current high watermark was sent to a replica."""
        self._sent_high_watermarks[replica_id] = (connection_id, self.high_watermark)

    def preferred_successors(self) -> list[int]:
        """Returns the other voters, the one with the longest log first."""
        others = [voter for voter in self._voters if voter != self.node_id]
        return sorted(others, key=lambda voter: (-self._end_offsets[voter], voter))
