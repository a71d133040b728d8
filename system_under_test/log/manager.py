"""All partition logs of one broker: its directories, their checkpoints, and the clean-shutdown marker.

A directory that cannot be read when the broker starts is *offline* until the process ends: its logs are not
there, and the start does not count as clean (CS-2).
"""

from collections.abc import Callable, Mapping
from uuid import UUID

from system_under_test.config import LogConfig, NodeConfig
from system_under_test.log.checkpoints import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    CleanShutdownMarker,
    MetaProperties,
    OffsetCheckpoint,
    read_topic_id,
    write_topic_id,
)
from system_under_test.log.errors import LogDirectoryError
from system_under_test.log.log import Log
from system_under_test.runtime import Observer, RandomStream, SilentObserver, Storage

METADATA_TOPIC = "__cluster_metadata"
"""Its log is in the same directory but belongs to the quorum."""


class _Directory:
    """One log directory that is online."""

    def __init__(self, storage: Storage, name: str, directory_id: UUID) -> None:
        self.name = name
        self.directory_id = directory_id
        self.marker = CleanShutdownMarker(storage, name)
        self.high_watermarks = OffsetCheckpoint(storage, f"{name}/{HIGH_WATERMARK_CHECKPOINT}")
        self.recovery_points = OffsetCheckpoint(storage, f"{name}/{RECOVERY_POINT_CHECKPOINT}")
        self.log_starts = OffsetCheckpoint(storage, f"{name}/{LOG_START_CHECKPOINT}")
        self.first_dirty = OffsetCheckpoint(storage, f"{name}/{CLEANER_CHECKPOINT}")
        self.had_clean_shutdown = self.marker.exists
        self.is_loaded = False
        self.logs: dict[tuple[str, int], Log] = {}


class LogManager:
    """Owns the logs of one broker.

    Attributes:
        directory_ids: Of the directories that are online, in the order of the configuration.
        offline_directories: Names of those that could not be read at the start.
        config_of: Returns the settings of a topic's logs; at first the node's for all. The owner sets it.
    """

    def __init__(
        self,
        storage: Storage,
        config: NodeConfig,
        random_stream: RandomStream,
        *,
        wall_ms: Callable[[], int] | None = None,
        observer: Observer | None = None,
    ) -> None:
        """Reads the owners of the directories, and marks new ones as this node's, durably.

        Raises:
            LogDirectoryError: A directory belongs to another node or cluster, or is damaged.
            OSError: No directory can be used.
        """
        self._storage = storage
        self._config = config
        self._wall_ms = wall_ms
        self._observer = observer or SilentObserver()
        self._rules = config.rules
        self.config_of: Callable[[str], LogConfig] = lambda _: config.log
        self._directories: list[_Directory] = []
        self.offline_directories: tuple[str, ...] = ()
        failure: OSError | None = None
        for name in config.log_dirs:
            try:
                directory_id = self._identify(name, random_stream)
                self._directories.append(_Directory(storage, name, directory_id))
            except OSError as error:
                self.offline_directories += (name,)
                failure = error
        if not self._directories and failure is not None:
            raise failure
        self.directory_ids = tuple(directory.directory_id for directory in self._directories)
        self._homes: dict[tuple[str, int], _Directory] = {}
        self._high_watermarks: dict[tuple[str, int], int] = {}
        self._topic_ids: dict[tuple[str, int], UUID] = {}

    # Starting

    def clean_broker_epoch(self) -> int:
        """Returns the broker epoch of the last clean shutdown, -1 unless this start is clean (CS-2)."""
        epochs = [directory.marker.read() for directory in self._directories]
        if not self._rules("CS-2"):
            return max((epoch for epoch in epochs if epoch is not None), default=-1)
        # CS-2: a directory that is missing, or from another session, may hold logs older than the epoch claims.
        first = epochs[0]
        if self.offline_directories or first is None or any(epoch != first for epoch in epochs):
            return -1
        return first

    def load_all(self) -> None:
        """Deletes the clean-shutdown markers and opens every log that is found; called once (CS-3).

        Raises:
            LogDirectoryError: A log lies in two directories.
            OSError: The disk failed.
        """
        for directory in self._directories:
            # CS-3: first, or the next start would take a crash while loading for a clean shutdown.
            if self._rules("CS-3"):
                directory.marker.delete()
        for directory in self._directories:
            self._load_directory(directory)

    def _load_directory(self, directory: _Directory) -> None:
        recovery_points = directory.recovery_points.read()
        log_starts = directory.log_starts.read()
        high_watermarks = directory.high_watermarks.read()
        first_dirty = directory.first_dirty.read()
        for name in self._storage.list(directory.name):
            key = _parse_log_name(name)
            if key is None or not self._storage.list(f"{directory.name}/{name}"):
                continue
            if key in self._homes:
                raise LogDirectoryError(
                    f"the log of {name} lies in {self._homes[key].name} and in {directory.name}; "
                    "remove the older copy"
                )
            topic_id = read_topic_id(self._storage, f"{directory.name}/{name}")
            if topic_id is not None:
                self._topic_ids[key] = topic_id
            log = self._open(
                directory,
                key,
                recovery_point=recovery_points.get(key, 0),
                log_start_offset=log_starts.get(key, 0),
            )
            log.first_dirty_offset = min(first_dirty.get(key, 0), log.log_end_offset)
            if key in high_watermarks:
                self._high_watermarks[key] = high_watermarks[key]
        directory.is_loaded = True
        # Offsets of removed logs would be applied to a new log of the same name.
        if any(key not in directory.logs for key in (*recovery_points, *log_starts)):
            self._write_recovery_points(directory)
        if any(key not in directory.logs for key in high_watermarks):
            self._write_high_watermarks(directory)

    def _open(
        self,
        directory: _Directory,
        key: tuple[str, int],
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
    ) -> Log:
        log = Log.load(
            self._storage,
            _log_path(directory, key),
            self.config_of(key[0]),
            had_clean_shutdown=directory.had_clean_shutdown,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            rules=self._rules,
            wall_ms=self._wall_ms,
            compares_epochs=self._config.features.recovery_compares_epochs,
        )
        for cut in log.cuts_at_load:
            self._observer.log_cut(*key, cut.end_offset, cut.size_bytes, cut.reason)
        log.on_checkpoint_due = lambda: self._write_recovery_points(directory)
        directory.logs[key] = log
        self._homes[key] = directory
        return log

    def _identify(self, name: str, random_stream: RandomStream) -> UUID:
        config = self._config
        found = MetaProperties.read(self._storage, name)
        if found is None:
            directory_id = UUID(int=random_stream.getrandbits(128), version=4)
            MetaProperties(
                cluster_id=config.cluster_id, node_id=config.node_id, directory_id=directory_id
            ).write(self._storage, name)
            return directory_id
        if (found.cluster_id, found.node_id) != (config.cluster_id, config.node_id):
            raise LogDirectoryError(
                f"directory {name} belongs to node {found.node_id} of cluster {found.cluster_id}, "
                f"and this is node {config.node_id} of cluster {config.cluster_id}; use another directory"
            )
        return found.directory_id

    # Logs

    def get(self, topic: str, index: int) -> Log | None:
        """Returns a partition's log, None if there is none here."""
        directory = self._homes.get((topic, index))
        return None if directory is None else directory.logs[topic, index]

    def get_or_create(self, topic: str, index: int, topic_id: UUID) -> Log:
        """Returns a partition's log; creates it, with a durable `partition.metadata`, if there is none.

        A log of the same name and another topic id is what a deleted topic left behind. It is removed: its
        records have no topic any more, and must not appear in the new one.

        Raises:
            OSError: The disk failed.
        """
        key = (topic, index)
        log = self.get(topic, index)
        if log is not None:
            known_id = self._topic_ids.get(key)
            if known_id == topic_id:
                return log
            if known_id is None:
                # The file is damaged. It was durable before the first record, so the log is not a leftover.
                self._write_topic_id(self._homes[key], key, topic_id)
                return log
            self.delete(topic, index)
        directory = min(self._directories, key=lambda candidate: len(candidate.logs))
        self._write_topic_id(directory, key, topic_id)
        return self._open(directory, key)

    def delete(self, topic: str, index: int) -> None:
        """Removes a partition's log, if there is one, and forgets its checkpoints.

        Raises:
            OSError: The disk failed.
        """
        key = (topic, index)
        directory = self._homes.pop(key, None)
        if directory is None:
            return
        self._high_watermarks.pop(key, None)
        self._topic_ids.pop(key, None)
        log = directory.logs.pop(key)
        log.delete()
        if log.first_dirty_offset:
            self.write_first_dirty_offsets()
        # The topic id is removed last, so that what an interruption leaves is recognised as a leftover.
        path = _log_path(directory, key)
        names = self._storage.list(path)
        for name in sorted(names, key=lambda name: name == PARTITION_METADATA):
            self._storage.remove(f"{path}/{name}")
        self._write_recovery_points(directory)
        self._write_high_watermarks(directory)

    def partitions(self) -> list[tuple[str, int]]:
        """Returns (topic, index) of every log here, sorted."""
        return sorted(self._homes)

    def topic_id(self, topic: str, index: int) -> UUID | None:
        """Returns the topic id that a log was created for, None when unknown; strays are found by it."""
        return self._topic_ids.get((topic, index))

    def directory_id(self, topic: str, index: int) -> UUID | None:
        """Returns the id of the directory that a log lies in, None if there is no such log."""
        directory = self._homes.get((topic, index))
        return None if directory is None else directory.directory_id

    def _write_topic_id(self, directory: _Directory, key: tuple[str, int], topic_id: UUID) -> None:
        write_topic_id(self._storage, _log_path(directory, key), topic_id)
        self._topic_ids[key] = topic_id

    # Checkpoints

    def checkpointed_high_watermark(self, topic: str, index: int) -> int:
        """Returns the high watermark last checkpointed for a log, 0 if there is none (REC-2)."""
        return self._high_watermarks.get((topic, index), 0)

    def write_high_watermarks(self, values: Mapping[tuple[str, int], int]) -> None:
        """Checkpoints high watermarks, durably; logs that are not named keep theirs (REC-2).

        Raises:
            OSError: The disk failed.
        """
        for key, value in values.items():
            if key in self._homes:
                self._high_watermarks[key] = value
        for directory in self._directories:
            self._write_high_watermarks(directory)

    def _write_high_watermarks(self, directory: _Directory) -> None:
        # Before the logs are loaded nothing is known, and writing that would erase what is.
        if directory.is_loaded:
            known = self._high_watermarks
            directory.high_watermarks.write(
                {key: known[key] for key in directory.logs if key in known}
            )

    def write_recovery_points(self) -> None:
        """Checkpoints recovery points and log starts, durably.

        Raises:
            OSError: The disk failed.
        """
        for directory in self._directories:
            self._write_recovery_points(directory)

    def _write_recovery_points(self, directory: _Directory) -> None:
        if not directory.is_loaded:
            return
        # The recovery points first: one too low only means a longer recovery.
        directory.recovery_points.write(
            {key: log.recovery_point for key, log in directory.logs.items()}
        )
        directory.log_starts.write(
            {key: log.log_start_offset for key, log in directory.logs.items()}
        )

    def write_first_dirty_offsets(self) -> None:
        """Checkpoints, durably, up to where each log was compacted.

        Raises:
            OSError: The disk failed.
        """
        for directory in self._directories:
            offsets = {
                key: log.first_dirty_offset
                for key, log in directory.logs.items()
                if log.first_dirty_offset
            }
            directory.first_dirty.write(offsets)

    # Stopping

    async def shutdown(self, broker_epoch: int) -> None:
        """Flushes every log, writes all checkpoints, and then marks the shutdown as clean (LIFE-3, CS-1).

        A directory that cannot be flushed gets no marker; the others do. Nothing may append any more.

        Args:
            broker_epoch: Of the session that ends; the next start registers with it.
        """
        # CS-1: without the rule the marker is written before anything is flushed.
        if not self._rules("CS-1"):
            for directory in self._directories:
                directory.marker.write(broker_epoch)
        for directory in self._directories:
            try:
                for key in sorted(directory.logs):
                    await directory.logs[key].flush()
                    directory.logs[key].close()
                self._write_recovery_points(directory)
                # CS-1: last of all. A directory that never finished loading is as clean as it was before.
                if self._rules("CS-1") and (directory.is_loaded or directory.had_clean_shutdown):
                    directory.marker.write(broker_epoch)
            except OSError:
                # Without a marker the next start of this directory is unclean, as it must be.
                continue


def _log_path(directory: _Directory, key: tuple[str, int]) -> str:
    return f"{directory.name}/{key[0]}-{key[1]}"


def _parse_log_name(name: str) -> tuple[str, int] | None:
    topic, dash, digits = name.rpartition("-")
    if not dash or not topic or not digits.isascii() or not digits.isdigit():
        return None
    if topic == METADATA_TOPIC or digits != str(int(digits)):
        return None
    return topic, int(digits)
