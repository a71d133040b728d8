"""The snapshot files of a metadata log: `<end offset>-<epoch>.checkpoint` beside its segments (RAFT-8).

A file gets its name only when its content is durable: it is written under a temporary name, fsynced, renamed, and
then the directory is fsynced. So a file with a snapshot's name is complete, also after a power cut. Temporary
files of an earlier process are removed when the directory is opened.

Snapshots are removed before the segments of the log that they make superfluous. So what a power cut leaves of the
log never begins behind the oldest snapshot.

Source:
    KIP-630; Kafka's `Snapshots`, `FileRawSnapshotWriter`, `KafkaMetadataLog`.
"""

import re

from system_under_test.metadata.snapshot import MetadataSnapshot, SnapshotId
from system_under_test.protocol.snapshot_codec import decode_header, decode_snapshot
from system_under_test.runtime import Storage

SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"

_NAME = re.compile(r"(?a:(\d{20})-(\d{10}))" + re.escape(SUFFIX))
_HEADER_BYTES_MAX = 1024
"""More than the first batch of a snapshot has."""


class SnapshotError(Exception):
    """A snapshot cannot be read. The message proposes a repair."""


def snapshot_name(snapshot_id: SnapshotId) -> str:
    """Returns Kafka's name for the file of a snapshot."""
    return f"{snapshot_id.end_offset:020d}-{snapshot_id.epoch:010d}{SUFFIX}"


class SnapshotFiles:
    """The snapshots in one directory. Mutable: which there are.

    Args:
        storage: The node's files.
        directory: Where they are.
    """

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._directory = directory
        self._ids: list[SnapshotId] = []
        self._part_count = 0

    def open(self) -> None:
        """Finds the snapshots; removes temporary files, which an earlier process did not complete."""
        self._ids = []
        for name in self._storage.list(self._directory):
            found = _NAME.fullmatch(name)
            if found is not None:
                self._ids.append(SnapshotId(end_offset=int(found[1]), epoch=int(found[2])))
            elif name.endswith(PART_SUFFIX):
                self._storage.remove(f"{self._directory}/{name}")
        self._ids.sort()

    @property
    def ids(self) -> tuple[SnapshotId, ...]:
        """All snapshots, the oldest first."""
        return tuple(self._ids)

    @property
    def oldest(self) -> SnapshotId | None:
        """The oldest snapshot, None without any."""
        return self._ids[0] if self._ids else None

    @property
    def newest(self) -> SnapshotId | None:
        """The newest snapshot, None without any."""
        return self._ids[-1] if self._ids else None

    def size(self, snapshot_id: SnapshotId) -> int:
        """Returns the length of a snapshot in bytes."""
        return self._storage.size(self._path(snapshot_id))

    def read(self, snapshot_id: SnapshotId, position: int, length: int) -> bytes:
        """Returns bytes of a snapshot."""
        return self._storage.read(self._path(snapshot_id), position, length)

    def load(self, snapshot_id: SnapshotId) -> MetadataSnapshot:
        """Returns the content of a snapshot.

        Raises:
            SnapshotError: The file is damaged.
        """
        path = self._path(snapshot_id)
        try:
            return decode_snapshot(self._storage.read(path), snapshot_id)
        except ValueError as error:
            raise SnapshotError(
                f"{path} is damaged ({error}); restore it, or wipe this node's metadata directory "
                "if the other voters are healthy"
            ) from error

    def timestamp_ms(self, snapshot_id: SnapshotId) -> int:
        """Returns the timestamp of the last record that a snapshot covers.

        Raises:
            SnapshotError: The file is damaged.
        """
        try:
            head = self.read(snapshot_id, 0, _HEADER_BYTES_MAX)
            return decode_header(head).last_contained_log_timestamp_ms
        except ValueError as error:
            raise SnapshotError(f"{self._path(snapshot_id)} is damaged ({error})") from error

    def begin(self, snapshot_id: SnapshotId) -> str:
        """Returns the path of a new temporary file for a snapshot."""
        self._part_count += 1
        stem = snapshot_name(snapshot_id).removesuffix(SUFFIX)
        path = f"{self._directory}/{stem}-{self._part_count}{PART_SUFFIX}"
        self._storage.write(path, b"")
        return path

    async def sync(self, path: str) -> None:
        """Makes the content of a temporary file durable.

        Raises:
            OSError: The disk failed.
        """
        await self._storage.fsync(path)

    def publish(self, path: str, snapshot_id: SnapshotId) -> None:
        """Gives a temporary file, whose content is durable, the snapshot's name; durable when it returns.

        Raises:
            OSError: The disk failed.
        """
        self._storage.replace(path, self._path(snapshot_id))
        self._storage.fsync_dir(self._directory)
        if snapshot_id not in self._ids:
            self._ids.append(snapshot_id)
            self._ids.sort()

    def append(self, path: str, data: bytes) -> None:
        """Appends content to a temporary file.

        Raises:
            OSError: The disk failed.
        """
        self._storage.append(path, data)

    def read_part(self, path: str, snapshot_id: SnapshotId) -> MetadataSnapshot:
        """Returns the content of a temporary file.

        Raises:
            ValueError: It is damaged or incomplete.
        """
        return decode_snapshot(self._storage.read(path), snapshot_id)

    def discard(self, path: str) -> None:
        """Removes a temporary file."""
        if self._storage.exists(path):
            self._storage.remove(path)

    def remove_older_than(self, snapshot_id: SnapshotId) -> None:
        """Removes all snapshots before one; durable when it returns.

        Raises:
            OSError: The disk failed.
        """
        older = [one for one in self._ids if one < snapshot_id]
        if not older:
            return
        for one in older:
            self._storage.remove(self._path(one))
            self._ids.remove(one)
        self._storage.fsync_dir(self._directory)

    def _path(self, snapshot_id: SnapshotId) -> str:
        return f"{self._directory}/{snapshot_name(snapshot_id)}"
