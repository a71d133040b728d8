"""Writes snapshots of the metadata, and deletes what they make superfluous (RAFT-8).

Every member does this on its own, from the image of its listener, so a snapshot contains committed records only.
Whether one is due is decided when records were delivered; no timer runs. A snapshot that cannot be written is
retried when the next one is due: the log still has everything.

Deletion follows Kafka: the newest snapshot stays, and older ones, with the log from the oldest of them on, as
long as together they are neither too large nor too old. It happens right after a snapshot was written; Kafka
checks once a minute instead.

Source:
    KIP-630; Kafka's `SnapshotGenerator`, `KafkaMetadataLog.maybeClean`.
"""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import pairwise
from typing import Any

from system_under_test.metadata.image import ClusterImage
from system_under_test.metadata.snapshot import SnapshotId, snapshot_records
from system_under_test.protocol.record_batch import header_at
from system_under_test.protocol.snapshot_codec import encode_snapshot
from system_under_test.raft.quorum import Quorum

NS_PER_MS = 1_000_000


class SnapshotWriter:
    """Decides when a snapshot is due, writes it, and cleans up. Mutable: what happened since the newest one.

    Args:
        quorum: State, log and snapshots of this node.
        spawn: Starts a task whose failure ends the node.
    """

    def __init__(self, quorum: Quorum, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._quorum = quorum
        self._spawn = spawn
        self._settings = quorum.config.metadata_log
        self._byte_count = 0
        self._began_ns = 0
        self._is_writing = False

    def start(self) -> None:
        """Measures age from now on."""
        self._began_ns = self._quorum.host.clock.monotonic_ns()

    def delivered(self, size_bytes: int) -> None:
        """Notes that the listener got records of this size, and begins a snapshot if one is due."""
        self._byte_count += size_bytes
        if self._is_writing or not self._is_due():
            return
        image = self._quorum.listener.snapshot_image()
        if image is not None:
            self._begin(image)

    def _is_due(self) -> bool:
        if self._byte_count >= self._settings.metadata_log_max_record_bytes_between_snapshots:
            return True
        interval_ns = self._settings.metadata_log_max_snapshot_interval_ms * NS_PER_MS
        return 0 < interval_ns <= self._quorum.host.clock.monotonic_ns() - self._began_ns

    def _begin(self, image: ClusterImage) -> None:
        quorum = self._quorum
        end_offset = image.last_offset + 1
        newest = quorum.snapshots.newest
        if end_offset <= (0 if newest is None else newest.end_offset):
            return
        last_batch = quorum.log.read(image.last_offset, 1, end_offset)
        if not last_batch:
            # A listener with a part of a batch: the next delivery completes it.
            return
        header = header_at(last_batch, 0)
        snapshot_id = SnapshotId(end_offset=end_offset, epoch=header.leader_epoch)
        # [RAFT-8] Everything that decisions depend on is part of a snapshot, the ELR included.
        records = snapshot_records(image, with_elr=quorum.config.rules("RAFT-8"))
        data = encode_snapshot(records, snapshot_id, timestamp_ms=header.max_timestamp_ms)
        self._byte_count = 0
        self.start()
        self._is_writing = True
        self._spawn(self._write(snapshot_id, data))

    async def _write(self, snapshot_id: SnapshotId, data: bytes) -> None:
        files = self._quorum.snapshots
        mark = self._quorum.host.observer.mark
        path = ""
        try:
            path = files.begin(snapshot_id)
            files.append(path, data)
            await files.sync(path)
            files.publish(path, snapshot_id)
        except OSError as error:
            with suppress(OSError):
                files.discard(path)
            mark("metadata-snapshot-failed", end_offset=snapshot_id.end_offset, error=str(error))
            return
        finally:
            self._is_writing = False
        mark(
            "metadata-snapshot-written",
            end_offset=snapshot_id.end_offset,
            epoch=snapshot_id.epoch,
            size_bytes=len(data),
        )
        self._clean()

    def _clean(self) -> None:
        """Removes superfluous snapshots, the oldest first, and the part of the log that only they needed.

        Raises:
            OSError: The disk failed.
        """
        files = self._quorum.snapshots
        for older, following in pairwise(files.ids):
            if not self._is_superfluous(older):
                return
            # Snapshots first: the log never begins behind the oldest one that a power cut leaves.
            files.remove_older_than(following)
            self._quorum.log.advance_log_start(following.end_offset)
            self._quorum.host.observer.mark(
                "metadata-log-prefix-deleted", log_start_offset=following.end_offset
            )

    def _is_superfluous(self, snapshot_id: SnapshotId) -> bool:
        quorum, files = self._quorum, self._quorum.snapshots
        if snapshot_id.end_offset < quorum.log.log_start_offset:
            return True
        bytes_max = self._settings.metadata_max_retention_bytes
        if bytes_max >= 0:
            size_bytes = quorum.log.size_bytes + sum(files.size(one) for one in files.ids)
            if size_bytes > bytes_max:
                return True
        age_max_ms = self._settings.metadata_max_retention_ms
        return (
            age_max_ms >= 0
            and quorum.host.clock.wall_ms() - files.timestamp_ms(snapshot_id) > age_max_ms
        )
