"""What all roles of a quorum member share: its state, its log and its commit position.

`Quorum` is the only writer of the state and of the quorum-state file. It makes a transition durable, lets the
drivers (elections, leader, fetcher) react, and then reports the leader to the listener. It also delivers committed
batches to the listener, each once and in order, after the newest snapshot.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from system_under_test.config import LogConfig, NodeConfig
from system_under_test.invariants import check_invariant
from system_under_test.log.log import Log
from system_under_test.log.segment import write_again
from system_under_test.metadata.image import ClusterImage
from system_under_test.metadata.records import MetadataBatch
from system_under_test.metadata.snapshot import MetadataSnapshot, SnapshotId
from system_under_test.protocol.metadata_codec import METADATA_TOPIC, decode_metadata_batches
from system_under_test.raft.snapshots import SnapshotFiles
from system_under_test.raft.state import (
    NO_NODE,
    Election,
    LogPosition,
    Prospective,
    Resigned,
    State,
    Unattached,
    after_hearing,
    decode_election,
    election_of,
    encode_election,
    initial_state,
)
from system_under_test.raft.transitions import check_transition
from system_under_test.runtime import Host

METADATA_MAX_BATCH_BYTES = 8 * 1024 * 1024
"""Kafka's KafkaRaftClient.MAX_BATCH_SIZE_BYTES; also the most that one fetch or one delivery reads."""

_QUORUM_STATE = "quorum-state"


class RaftListener(Protocol):
    """Is notified of leaders and commits, on the node's loop and never from inside its own calls to `append`."""

    def on_leader_change(self, quorum_epoch: int, leader_id: int) -> None:
        """Handles a new leader; -1 when the leader is no longer known.

        The own id is reported once the LeaderChange record of this epoch has been appended.
        """
        ...

    def on_commit(self, batches: Sequence[MetadataBatch]) -> None:
        """Handles committed batches: contiguous, in order, each once per incarnation.

        They start at offset 0, or continue the last snapshot. LeaderChange batches are included.
        """
        ...

    def on_snapshot(self, snapshot: MetadataSnapshot) -> None:
        """Handles a snapshot that replaces everything delivered before; it covers more."""
        ...

    def snapshot_image(self) -> ClusterImage | None:
        """Returns the image of committed records that a snapshot may describe now, None if there is none.

        It may be older than what was delivered, but never contains a part of a batch.
        """
        ...


class NotLeaderError(Exception):
    """Raised by an append on a node that is not, or no longer, the quorum leader."""


class QuorumStateError(Exception):
    """The quorum-state file cannot be read. The message proposes a repair."""


class Quorum:
    """State, log and commit position of one member. Mutable; one per node.

    Args:
        on_transition: Called after every transition with the old and the new state.
        on_delivered: Called after every delivery of batches with their size in bytes.
    """

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        listener: RaftListener,
        on_transition: Callable[[State, State], None],
        on_delivered: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.host = host
        self.config = config
        self.listener = listener
        self.node_id = config.node_id
        self.voters = tuple(voter.node_id for voter in config.voters)
        self.is_voter = config.node_id in self.voters
        self.state: State = Unattached(epoch=0)
        self.committed_end = NO_NODE
        """End of what this incarnation knows to be committed, -1 when unknown."""
        self._on_transition = on_transition
        self._on_delivered = on_delivered
        self._directory = f"{config.log_dirs[0]}/{METADATA_TOPIC}-0"
        self._stored: Election | None = None
        self._delivered_end = 0
        self._reported = (0, NO_NODE)
        self.snapshots = SnapshotFiles(host.storage, self._directory)
        self.log: Log
        """Set by `open_log`."""

    def open_log(self) -> None:
        """Loads the metadata log, verifying all of it, and delivers the newest snapshot to the listener.

        Raises:
            SnapshotError: The newest snapshot is damaged.
        """
        self.snapshots.open()
        newest = self.snapshots.newest
        snapshot = None if newest is None else self.snapshots.load(newest)
        self.log = self._load_log()
        if snapshot is not None:
            self._continue_from(snapshot)

    def load_state(self) -> None:
        """Reads the quorum-state file and enters the state that follows from it (RAFT-3).

        Raises:
            QuorumStateError: The file is damaged.
        """
        self._stored = self._read_stored()
        state = initial_state(
            self._stored,
            log_epoch=self.log_position.last_epoch,
            node_id=self.node_id,
            voters=self.voters,
            pre_vote=self.config.features.pre_vote,
        )
        if isinstance(state, Resigned):
            self.host.observer.mark("quorum-restarted-as-resigned", epoch=state.epoch)
        self._enter(None, state)

    @property
    def log_position(self) -> LogPosition:
        """End of the own log; of a log without records, the end of what its snapshot covers."""
        end_offset = self.log.log_end_offset
        last_epoch = self.log.latest_epoch
        if last_epoch < 0:
            newest = self.snapshots.newest
            is_covered = newest is not None and newest.end_offset == end_offset
            last_epoch = newest.epoch if newest is not None and is_covered else 0
        return LogPosition(last_epoch=last_epoch, end_offset=end_offset)

    @property
    def durable_end(self) -> int:
        """End of what is fsynced in the own log."""
        return min(self.log.recovery_point, self.log.log_end_offset)

    def transition(self, state: State) -> None:
        """Enters another state: first durable, then in force, then known to the listener.

        Raises:
            InvariantViolation: `transitions.py` does not list the transition.
        """
        self._enter(self.state, state)

    def _enter(self, old: State | None, state: State) -> None:
        check_transition(old, state)
        self._persist(election_of(state))
        before, self.state = self.state, state
        # A vote that a process finds when it starts was reported by the one that gave it.
        vote = (state.epoch, state.voted_id)
        if old is not None and state.voted_id != NO_NODE and vote != (old.epoch, old.voted_id):
            self.host.observer.mark("quorum-voted", epoch=state.epoch, candidate=state.voted_id)
        self._on_transition(before, state)
        self.report_leader()

    def hear(self, epoch: int, leader_id: int) -> bool:
        """Handles an epoch and leader named by a message; true when the state changed."""
        if leader_id not in self.voters:
            leader_id = NO_NODE
        state = after_hearing(self.state, epoch, leader_id, node_id=self.node_id)
        if state is None:
            return False
        self.transition(state)
        return True

    def remember(self, state: State) -> None:
        """Replaces the state by one that differs only in volatile parts, such as a tally."""
        check_invariant(
            election_of(state) == election_of(self.state),
            "RAFT-1",
            "a change of epoch, leader or vote is made durable",
            old=self.state,
            new=state,
        )
        check_invariant(
            type(state) is type(self.state),
            "INV-12",
            "a change that is not made durable keeps the kind of state",
            old=self.state,
            new=state,
        )
        self.state = state

    def record_vote(self, candidate_id: int) -> None:
        """Votes for a candidate in the current epoch; the vote is durable on return (RAFT-1)."""
        state = self.state
        if isinstance(state, Unattached | Prospective):
            self.transition(replace(state, voted_id=candidate_id))

    def report_leader(self) -> None:
        """Reports the leader to the listener if it has changed."""
        state = self.state
        known = (state.epoch, state.leader_id)
        if known == self._reported:
            return
        self._reported = known
        self.listener.on_leader_change(state.epoch, state.leader_id)

    def commit_to(self, high_watermark: int) -> None:
        """Notes that everything below an offset is committed, and delivers what is new."""
        end = min(high_watermark, self.log.log_end_offset)
        if end <= self.committed_end:
            return
        self.committed_end = end
        while self._delivered_end < end:
            data = self.log.read(self._delivered_end, METADATA_MAX_BATCH_BYTES, end)
            if not data:
                # A high watermark inside a batch, which a correct leader never sends: only complete batches count.
                self.committed_end = self._delivered_end
                return
            batches = decode_metadata_batches(data)
            check_invariant(
                bool(batches) and batches[0].base_offset == self._delivered_end,
                "INV-5",
                "committed metadata is delivered without a gap",
                delivered_end=self._delivered_end,
                committed_end=end,
            )
            self._delivered_end = batches[-1].last_offset + 1
            self.listener.on_commit(batches)
            self._on_delivered(len(data))

    def snapshot_for(self, fetch_offset: int, last_fetched_epoch: int) -> SnapshotId | None:
        """Returns the snapshot that a replica has to load before this log can continue its own; None for none.

        Args:
            fetch_offset: Where the replica's log ends.
            last_fetched_epoch: Quorum epoch of the last record there.

        Source:
            Kafka's `ReplicatedLog.validateOffsetAndEpoch`.
        """
        oldest = self.snapshots.oldest
        if oldest is None:
            return None
        log_start_offset = self.log.log_start_offset
        is_below = fetch_offset < log_start_offset
        diverges_at_start = fetch_offset == log_start_offset and last_fetched_epoch != oldest.epoch
        # [RAFT-8] Where older epochs ended is no longer known, so the two logs cannot be compared.
        if is_below or diverges_at_start or last_fetched_epoch < oldest.epoch:
            return self.snapshots.newest
        return None

    def install(self, path: str, snapshot: MetadataSnapshot) -> None:
        """Continues from a snapshot of the leader; log, image and commit position move to its end.

        A snapshot of no more than what is known to be committed changes nothing.

        Args:
            path: A temporary file whose content is durable.
            snapshot: That content.

        Raises:
            OSError: The disk failed.
        """
        if snapshot.id.end_offset <= self.committed_end:
            self.snapshots.discard(path)
            return
        self.snapshots.publish(path, snapshot.id)
        self._continue_from(snapshot)

    def _continue_from(self, snapshot: MetadataSnapshot) -> None:
        """Makes the log continue the newest snapshot (RAFT-8), and delivers it."""
        covered = LogPosition(last_epoch=snapshot.id.epoch, end_offset=snapshot.id.end_offset)
        # The records in the log are a part of what the snapshot covers, or differ from it; also when a power cut
        # interrupted this after the snapshot had become durable.
        if covered > self.log_position:
            self.log.truncate_fully_and_start_at(snapshot.id.end_offset)
            self.log.flush_blocking()
            self.snapshots.remove_older_than(snapshot.id)
        check_invariant(
            self.log.log_start_offset <= snapshot.id.end_offset <= self.log.log_end_offset,
            "INV-5",
            "snapshot and metadata log leave no gap",
            snapshot=snapshot.id,
            log_start_offset=self.log.log_start_offset,
            log_end_offset=self.log.log_end_offset,
        )
        self._delivered_end = self.committed_end = snapshot.id.end_offset
        self.host.observer.mark(
            "metadata-snapshot-loaded",
            end_offset=snapshot.id.end_offset,
            epoch=snapshot.id.epoch,
            log_start_offset=self.log.log_start_offset,
        )
        self.listener.on_snapshot(snapshot)

    def truncate_to(self, offset: int) -> None:
        """Cuts the log after a divergence from the leader.

        Raises:
            InvariantViolation: The leader requests the removal of records that are known to be committed.
        """
        check_invariant(
            offset >= self.committed_end,
            "INV-5",
            "committed metadata is never truncated",
            truncate_to=offset,
            committed_end=self.committed_end,
            log_end_offset=self.log.log_end_offset,
        )
        self.host.observer.mark(
            "metadata-truncated", offset=offset, log_end_offset=self.log.log_end_offset
        )
        self.log.truncate_to(offset)

    def _load_log(self) -> Log:
        # The metadata log has no clean-shutdown marker and no recovery point: it is small, and every start
        # verifies all of it. `flush.messages` and the switchable rules of logs are for partitions only: a
        # defect there must not damage the metadata as well. When the metadata log is fsynced is decided by
        # RAFT-2.
        config = LogConfig(
            segment_bytes=self.config.metadata_log.metadata_log_segment_bytes
            or self.config.log.segment_bytes,
            max_message_bytes=METADATA_MAX_BATCH_BYTES,
        )
        # The start of the log has no checkpoint either. What lies below the oldest snapshot is not needed, and is
        # removed: after a power cut it may have holes, and a log is cut at a hole.
        oldest = self.snapshots.oldest
        if self.is_voter and self.config.rules("RAFT-11"):
            write_again(self.host.storage, self._directory)
        log = Log.load(
            self.host.storage,
            self._directory,
            config,
            had_clean_shutdown=False,
            log_start_offset=0 if oldest is None else oldest.end_offset,
        )
        for cut in log.cuts_at_load:
            self.host.observer.log_cut(
                METADATA_TOPIC, 0, cut.end_offset, cut.size_bytes, cut.reason
            )
        return log

    def _read_stored(self) -> Election | None:
        path = f"{self._directory}/{_QUORUM_STATE}"
        storage = self.host.storage
        if not storage.exists(path):
            return None
        try:
            return decode_election(storage.read(path))
        except ValueError as error:
            if not self.config.rules("RAFT-1"):
                # Without its fsync a file can survive a power cut with its name but without its content.
                return None
            raise QuorumStateError(
                f"{path} is damaged ({error}); restore it, or wipe this node's metadata directory "
                "if the other voters are healthy"
            ) from error

    def _persist(self, election: Election) -> None:
        if election == self._stored:
            return
        path = f"{self._directory}/{_QUORUM_STATE}"
        temporary = f"{path}.tmp"
        storage = self.host.storage
        storage.write(temporary, encode_election(election))
        # [RAFT-1] The whole node waits: no response and no decision may rest on a state that a power cut could
        # undo.
        is_durable = self.config.rules("RAFT-1")
        if is_durable:
            storage.fsync_blocking(temporary)
        storage.replace(temporary, path)
        if is_durable:
            storage.fsync_dir(self._directory)
        self._stored = election
