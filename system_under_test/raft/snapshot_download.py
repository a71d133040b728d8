"""A snapshot on its way from the leader: parts are collected in a temporary file, then verified and adopted.

A download belongs to one quorum epoch. After a change of leader it is dropped: the next leader may have other
snapshots. A process that ends leaves a temporary file, which the next one removes.

Source:
    KIP-630; Kafka's `KafkaRaftClient.handleFetchSnapshotResponse`. Kafka checks the content when it loads it.
"""

from typing import Any

from system_under_test.metadata.snapshot import SnapshotId
from system_under_test.raft import messages
from system_under_test.raft.quorum import Quorum
from system_under_test.raft.state import Leader


class SnapshotDownload:
    """One download. Mutable: how much has arrived.

    Args:
        quorum: State and snapshots of this node.
        snapshot_id: The snapshot that the leader named.

    Attributes:
        epoch: The quorum epoch in which it began.
        is_complete: Whether everything has arrived.
    """

    def __init__(self, quorum: Quorum, snapshot_id: SnapshotId) -> None:
        self.epoch = quorum.state.epoch
        self.is_complete = False
        self._quorum = quorum
        self._id = snapshot_id
        self._path = quorum.snapshots.begin(snapshot_id)
        self._position = 0

    def next_request(self) -> Any:
        """Returns the request for the next part."""
        config = self._quorum.config
        return messages.build_fetch_snapshot(
            config,
            epoch=self.epoch,
            snapshot_id=self._id,
            position=self._position,
            max_bytes=config.metadata_log.controller_quorum_fetch_snapshot_max_bytes,
        )

    def add(self, part: Any) -> bool:
        """Takes a part; false if it is not the next one.

        Raises:
            OSError: The disk failed.
        """
        data = bytes(part.unaligned_records or b"")
        named = part.snapshot_id
        is_next = (
            (named.end_offset, named.epoch) == (self._id.end_offset, self._id.epoch)
            and part.position == self._position
            and 0 < len(data) <= part.size - self._position
        )
        if is_next:
            self._quorum.snapshots.append(self._path, data)
            self._position += len(data)
            self.is_complete = self._position == part.size
        return is_next

    async def install(self) -> bool:
        """Checks a complete snapshot and continues from it; drops one that is damaged, and then returns False.

        Raises:
            OSError: The disk failed.
        """
        files = self._quorum.snapshots
        await files.sync(self._path)
        try:
            snapshot = files.read_part(self._path, self._id)
        except ValueError as error:
            self._quorum.host.observer.mark("metadata-snapshot-corrupt", error=str(error))
            files.discard(self._path)
            return False
        if isinstance(self._quorum.state, Leader):
            # Elected meanwhile. The log of a leader has everything that is committed.
            files.discard(self._path)
        else:
            self._quorum.install(self._path, snapshot)
        return True

    def discard(self) -> None:
        """Removes what has arrived."""
        self._quorum.snapshots.discard(self._path)
