"""The small text files beside the logs.

All are replaced as a whole: temporary file, fsync, rename, fsync of the directory. So a reader finds the old
or the new content. A file that it cannot parse, because the disk damaged it, is treated as absent where that is
safe.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from system_under_test.log.errors import LogDirectoryError
from system_under_test.runtime import Storage

HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"

_VERSION = "0"


def replace_file(storage: Storage, path: str, content: bytes) -> None:
    """Replaces a file as a whole, durably; blocks the whole node meanwhile."""
    replace_content(storage, path, content)
    storage.fsync_dir(parent(path))


def replace_content(storage: Storage, path: str, content: bytes) -> None:
    """Replaces a file as a whole; a power cut may bring the old content back, but never half of one."""
    temporary = path + ".tmp"
    storage.write(temporary, content)
    # Without this fsync the rename could become durable before the content: an empty file after a power cut.
    storage.fsync_blocking(temporary)
    storage.replace(temporary, path)


def parent(path: str) -> str:
    """Returns the directory of a path; "" is the root of the storage."""
    return path.rpartition("/")[0]


def encode_uuid(value: UUID) -> str:
    """Returns a UUID as Kafka writes it in files: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> UUID:
    """Parses what `encode_uuid` wrote.

    Raises:
        ValueError: It is something else.
    """
    return UUID(bytes=urlsafe_b64decode(text + "=="))


def read_lines(storage: Storage, path: str) -> list[str] | None:
    """Returns the entry lines of a checkpoint, None when it is absent, torn or of another version."""
    if not storage.exists(path):
        return None
    try:
        lines = storage.read(path).decode("ascii").split("\n")
        if len(lines) < 3 or lines[0] != _VERSION or lines[-1] != "":
            return None
        entries = lines[2:-1]
        return entries if int(lines[1]) == len(entries) else None
    except ValueError:
        return None


def format_lines(entries: list[str]) -> bytes:
    """Returns the content of a checkpoint: version, count, entries."""
    return "\n".join([_VERSION, str(len(entries)), *entries, ""]).encode("ascii")


class OffsetCheckpoint:
    """One offset per partition, in one file per directory; lines are `topic partition offset`."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._written: bytes | None = None

    def read(self) -> dict[tuple[str, int], int]:
        """Returns all offsets; none when the file is absent, torn or unparsable."""
        offsets: dict[tuple[str, int], int] = {}
        for line in read_lines(self._storage, self._path) or ():
            fields = line.split(" ")
            try:
                topic, partition, offset = fields[0], int(fields[1]), int(fields[2])
            except (ValueError, IndexError):
                return {}
            if len(fields) != 3 or offset < 0:
                return {}
            offsets[topic, partition] = offset
        return offsets

    def write(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Replaces all offsets, durably. Does nothing when they are what was last written."""
        content = format_lines(
            [
                f"{topic} {partition} {offsets[topic, partition]}"
                for topic, partition in sorted(offsets)
            ]
        )
        if content != self._written:
            # Reset first: when this write fails, the next one must not assume that it succeeded.
            self._written = None
            replace_file(self._storage, self._path, content)
            self._written = content


class CleanShutdownMarker:
    """The file that proves that the previous process flushed everything; has its broker epoch (CS-1 ... CS-4)."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._directory = directory
        self._path = f"{directory}/{CLEAN_SHUTDOWN_MARKER}"

    @property
    def exists(self) -> bool:
        """Whether there is a marker, readable or not."""
        return self._storage.exists(self._path)

    def read(self) -> int | None:
        """Returns the broker epoch in the marker; None when it is absent or unparsable."""
        if not self.exists:
            return None
        try:
            content = json.loads(self._storage.read(self._path))
        except (ValueError, RecursionError):
            return None
        if not isinstance(content, dict) or content.get("version") != 0:
            return None
        epoch = content.get("brokerEpoch")
        return epoch if isinstance(epoch, int) and not isinstance(epoch, bool) else None

    def write(self, broker_epoch: int) -> None:
        """Writes the marker; blocks the node, which has nothing else to do any more.

        As in Kafka the file is durable and its name is not: after a power cut right behind a clean stop the start
        may be unclean (CS-1).
        """
        content = {"version": 0, "brokerEpoch": broker_epoch}
        self._storage.write(self._path, json.dumps(content, separators=(",", ":")).encode())
        self._storage.fsync_blocking(self._path)

    def delete(self) -> None:
        """Removes the marker. As in Kafka not durably: it may come back, and CS-4 protects against that."""
        if self.exists:
            self._storage.remove(self._path)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The owner of a directory; written once, before its first use."""

    cluster_id: str
    node_id: int
    directory_id: UUID

    @classmethod
    def read(cls, storage: Storage, directory: str) -> "MetaProperties | None":
        """Returns the properties of a directory, None when it is new.

        Raises:
            LogDirectoryError: The file is there and cannot be understood.
        """
        path = f"{directory}/{META_PROPERTIES}"
        if not storage.exists(path):
            return None
        try:
            lines = storage.read(path).decode("utf-8").splitlines()
            fields = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
            return cls(
                cluster_id=fields["cluster.id"],
                node_id=int(fields["node.id"]),
                directory_id=decode_uuid(fields["directory.id"]),
            )
        except (ValueError, KeyError) as error:
            raise LogDirectoryError(
                f"{path} is damaged; restore it, or empty the directory to start as a new replica"
            ) from error

    def write(self, storage: Storage, directory: str) -> None:
        """Writes the properties durably."""
        lines = [
            "version=1",
            f"cluster.id={self.cluster_id}",
            f"node.id={self.node_id}",
            f"directory.id={encode_uuid(self.directory_id)}",
            "",
        ]
        replace_file(storage, f"{directory}/{META_PROPERTIES}", "\n".join(lines).encode())
        storage.fsync_dir(parent(directory))


def read_topic_id(storage: Storage, directory: str) -> UUID | None:
    """Returns the topic id in a log's `partition.metadata`, None when it is absent or unparsable."""
    path = f"{directory}/{PARTITION_METADATA}"
    if not storage.exists(path):
        return None
    try:
        for line in storage.read(path).decode("ascii").splitlines():
            name, _, value = line.partition(": ")
            if name == "topic_id":
                return decode_uuid(value)
    except ValueError:
        return None
    return None


def write_topic_id(storage: Storage, directory: str, topic_id: UUID) -> None:
    """Writes `partition.metadata` durably, and with it the log's directory itself."""
    content = f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n"
    replace_file(storage, f"{directory}/{PARTITION_METADATA}", content.encode("ascii"))
    storage.fsync_dir(parent(directory))
