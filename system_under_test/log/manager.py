"""All partition logs of one broker: its directories, their checkpoints, and the clean-shutdown marker.

A directory that cannot be read when the broker starts is *offline* until the process ends: its logs are not
there, and the start does not count as clean (CS-2). A directory that fails later is offline from then on, and the
broker continues with the others (DIR-1). The first directory also has the metadata log, without which a broker
cannot continue, so its failure is the failure of the broker, as is that of the only directory.
"""

import contextlib
import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn
from uuid import UUID

from system_under_test.config import LogConfig, NodeConfig
from system_under_test.log.checkpoints import (
    read_topic_id,
    write_topic_id,
)
from system_under_test.log.copies import (
    finish_moves,
    mark_finished,
    mark_superseded,
    mark_unfinished,
    remove_log_files,
)
from system_under_test.log.directory import LogDirectory, identify, log_path, parse_log_name
from system_under_test.log.errors import LogDirectoryError
from system_under_test.log.log import Log
from system_under_test.log.preferred import PreferredDirectories
from system_under_test.metadata.records import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from system_under_test.runtime import Observer, RandomStream, SilentObserver, Storage

DirectoryFailed = Callable[[UUID, Sequence[tuple[str, int]], OSError], None]


class MoveFailedError(Exception):
    """A move was given up, because one of its directories is offline now."""


class OfflineDirectoryError(OSError):
    """A log is in a directory that is offline, or may be in one (DIR-4)."""


@dataclass(slots=True)
class _Copy:
    """A log that is being copied to another directory; `generation` is that of the source when it began."""

    directory: LogDirectory
    log: Log
    generation: int


class LogManager:
    """Owns the logs of one broker.

    Attributes:
        directory_ids: Of the directories that were online at the start, in the order of the configuration.
        offline_directories: Names of those that are offline.
        config_of: Returns the settings of a topic's logs; at first the node's for all. The owner sets it.
        on_directory_failed: Called with the id of a directory that failed, the partitions that had logs in it, and
            the error, when the broker continues without it. The owner sets it; until then errors are raised.
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
            OSError: The first directory, which also has the metadata log, cannot be used.
        """
        self._storage = storage
        self._config = config
        self._wall_ms = wall_ms
        self._observer = observer or SilentObserver()
        self._rules = config.rules
        self.config_of: Callable[[str], LogConfig] = lambda _: config.log
        self._directories: list[LogDirectory] = []
        self.offline_directories: tuple[str, ...] = ()
        self.on_directory_failed: DirectoryFailed | None = None
        failure: OSError | None = None
        for name in config.log_dirs:
            try:
                directory_id = identify(storage, config, name, random_stream)
                self._directories.append(LogDirectory(storage, name, directory_id))
            except OSError as error:
                self.offline_directories += (name,)
                failure = error
        # Without the first directory there is no metadata log.
        if failure is not None and config.log_dirs[0] in self.offline_directories:
            raise failure
        self.directory_ids = tuple(directory.directory_id for directory in self._directories)
        self.preferred = PreferredDirectories()
        self._copies: dict[tuple[str, int], _Copy] = {}
        self._superseded: frozenset[str] = frozenset()
        self._homes: dict[tuple[str, int], LogDirectory] = {}
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
                self._or_fail(directory, lambda one: one.marker.delete())
        if self.has_several_directories:
            self._superseded = finish_moves(
                self._storage,
                [directory.name for directory in self._online()],
                are_all_online=not self.offline_directories,
            )
        for directory in self._online():
            self._or_fail(directory, self._load_directory)

    def _load_directory(self, directory: LogDirectory) -> None:
        recovery_points = directory.recovery_points.read()
        log_starts = directory.log_starts.read()
        high_watermarks = directory.high_watermarks.read()
        first_dirty = directory.first_dirty.read()
        for name in self._storage.list(directory.name):
            key = parse_log_name(name)
            path = f"{directory.name}/{name}"
            if key is None or path in self._superseded or not self._storage.list(path):
                continue
            if key in self._homes:
                raise LogDirectoryError(
                    f"the log of {name} lies in {self._homes[key].name} and in {directory.name}; "
                    "remove the older copy"
                )
            topic_id = read_topic_id(self._storage, path)
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
        if any(key not in directory.logs for key in first_dirty):
            self._write_first_dirty_offsets(directory)

    def _open(
        self,
        directory: LogDirectory,
        key: tuple[str, int],
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
    ) -> Log:
        log = self._load(
            directory, key, recovery_point=recovery_point, log_start_offset=log_start_offset
        )
        for cut in log.cuts_at_load:
            self._observer.log_cut(*key, cut.end_offset, cut.size_bytes, cut.reason)
        log.on_checkpoint_due = lambda: self._write_recovery_points(directory)
        directory.logs[key] = log
        self._homes[key] = directory
        return log

    def _load(
        self,
        directory: LogDirectory,
        key: tuple[str, int],
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
    ) -> Log:
        return Log.load(
            self._storage,
            log_path(directory, key),
            self.config_of(key[0]),
            had_clean_shutdown=directory.had_clean_shutdown,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            rules=self._rules,
            wall_ms=self._wall_ms,
            compares_epochs=self._config.features.recovery_compares_epochs,
        )

    # Logs

    def get(self, topic: str, index: int) -> Log | None:
        """Returns a partition's log, None if there is none here."""
        directory = self._homes.get((topic, index))
        return None if directory is None else directory.logs.get((topic, index))

    def get_or_create(
        self,
        topic: str,
        index: int,
        topic_id: UUID,
        assigned: UUID = MIGRATING_DIRECTORY,
    ) -> Log:
        """Returns a partition's log; creates it, with a durable `partition.metadata`, if there is none.

        A log of the same name and another topic id is what a deleted topic left behind. It is removed: its
        records have no topic any more, and must not appear in the new one.

        Args:
            topic: Name of the topic.
            index: The partition's number in its topic.
            topic_id: The topic's id.
            assigned: The directory that the metadata name for this replica, or a reserved id.

        Raises:
            OfflineDirectoryError: The log is in a directory that is offline, or may be in one (DIR-4).
            OSError: The disk failed.
        """
        key = (topic, index)
        self._check_online(key, topic_id)
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
        directory = self._place(key, assigned)
        # From now on an error of this log is one of this directory.
        self._homes[key] = directory
        self._write_topic_id(directory, key, topic_id)
        return self._open(directory, key)

    def _check_online(self, key: tuple[str, int], topic_id: UUID) -> None:
        """Refuses a log in a directory that failed; one that a deleted topic left there is no log any more."""
        home = self._homes.get(key)
        if home is None or home.is_online:
            return
        if self._topic_ids.get(key) in (topic_id, None):
            raise OfflineDirectoryError(errno.EIO, f"its directory {home.name} is offline")
        self._forget(key)

    def _place(self, key: tuple[str, int], assigned: UUID) -> LogDirectory:
        """Returns the directory for a new log: the requested or assigned one, or that with the fewest (DIR-4)."""
        online = self._online()
        if (chosen := self.preferred.choose(key, assigned, online)) is not None:
            return chosen
        if preferred := self.preferred.name_of(key):
            raise OfflineDirectoryError(
                errno.EIO, f"the preferred directory {preferred} is offline"
            )
        is_new = assigned == UNASSIGNED_DIRECTORY
        # DIR-4: a replica that is not new has a log, and it may be in the directory that cannot be read. An empty
        # one would look like the whole replica.
        if self.offline_directories and not is_new and self._rules("DIR-4"):
            raise OfflineDirectoryError(
                errno.EIO,
                f"the log of {key[0]}-{key[1]} may be in {', '.join(self.offline_directories)}, "
                "which is offline",
            )
        return min(online, key=lambda candidate: len(candidate.logs))

    def delete(self, topic: str, index: int) -> None:
        """Removes a partition's log, if there is one, and forgets its checkpoints.

        Raises:
            OSError: The disk failed.
        """
        key = (topic, index)
        self.drop_copy(topic, index)
        directory = self._forget(key)
        log = None if directory is None else directory.logs.pop(key, None)
        if directory is None or log is None:
            # What is in an offline directory is found by the next start that can read it.
            return
        self._or_fail(directory, lambda one: self._remove_files(one, key, log))

    def _remove_files(self, directory: LogDirectory, key: tuple[str, int], log: Log) -> None:
        log.delete()
        if log.first_dirty_offset:
            self._write_first_dirty_offsets(directory)
        remove_log_files(self._storage, log_path(directory, key))
        # Otherwise a power cut may bring the log back when the next one is in another directory already. Kafka too
        # makes it durable that a log which it deletes has another name (`LogManager.asyncDelete`).
        self._storage.fsync_dir(directory.name)
        self._write_recovery_points(directory)
        self._write_high_watermarks(directory)

    def _forget(self, key: tuple[str, int]) -> LogDirectory | None:
        self._high_watermarks.pop(key, None)
        self._topic_ids.pop(key, None)
        return self._homes.pop(key, None)

    def partitions(self) -> list[tuple[str, int]]:
        """Returns (topic, index) of every log that is online here, sorted."""
        return sorted(key for key, home in self._homes.items() if home.is_online)

    def topic_id(self, topic: str, index: int) -> UUID | None:
        """Returns the topic id that a log was created for, None when unknown; strays are found by it."""
        return self._topic_ids.get((topic, index))

    def directory_id(self, topic: str, index: int) -> UUID | None:
        """Returns the id of the directory that a log lies in, None if there is no such log."""
        directory = self._homes.get((topic, index))
        return None if directory is None else directory.directory_id

    def _write_topic_id(
        self, directory: LogDirectory, key: tuple[str, int], topic_id: UUID
    ) -> None:
        write_topic_id(self._storage, log_path(directory, key), topic_id)
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
        for directory in self._online():
            self._or_fail(directory, self._write_high_watermarks)

    def _write_high_watermarks(self, directory: LogDirectory) -> None:
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
        for directory in self._online():
            self._or_fail(directory, self._write_recovery_points)

    def _write_recovery_points(self, directory: LogDirectory) -> None:
        if not directory.is_loaded:
            return
        # The recovery points first: one too low only means a longer recovery.
        directory.recovery_points.write(
            {key: log.recovery_point for key, log in directory.logs.items()}
        )
        directory.log_starts.write(
            {key: log.log_start_offset for key, log in directory.logs.items()}
        )

    def write_first_dirty_offsets(self, topic: str, index: int) -> None:
        """Checkpoints, durably, up to where the logs in the directory of a log were compacted.

        Raises:
            OSError: The disk failed.
        """
        directory = self._homes.get((topic, index))
        if directory is not None and directory.is_online:
            self._write_first_dirty_offsets(directory)

    def _write_first_dirty_offsets(self, directory: LogDirectory) -> None:
        offsets = {
            key: log.first_dirty_offset
            for key, log in directory.logs.items()
            if log.first_dirty_offset
        }
        directory.first_dirty.write(offsets)

    # Moving a log to another directory

    def directory_states(self) -> dict[str, bool]:
        """Returns whether each configured directory is online, by name, in the order of the configuration."""
        return {name: name not in self.offline_directories for name in self._config.log_dirs}

    def directory_name(self, topic: str, index: int) -> str | None:
        """Returns the name of the directory that a log lies in, None if there is no such log."""
        directory = self._homes.get((topic, index))
        return None if directory is None else directory.name

    def copy_of(self, topic: str, index: int) -> tuple[str, UUID, Log] | None:
        """Returns name and id of the directory to which a log is being moved, and the copy, None without one."""
        found = self._copies.get((topic, index))
        if found is None:
            return None
        return found.directory.name, found.directory.directory_id, found.log

    def begin_copy(self, topic: str, index: int, name: str) -> Log:
        """Creates an empty log in another directory, to which the owner copies the records; replaces another one.

        Raises:
            MoveFailedError: The other directory failed, also before the move began.
            OSError: The directory with the metadata log failed.
        """
        key = (topic, index)
        self.drop_copy(topic, index)
        directory = next((one for one in self._online() if one.name == name), None)
        if directory is None:
            raise MoveFailedError(f"the directory {name} is offline")
        path = log_path(directory, key)
        try:
            mark_unfinished(self._storage, path)
            write_topic_id(self._storage, path, self._topic_ids[key])
            log = self._load(directory, key)
        except OSError as error:
            self._give_up_move(directory, error)
        self._copies[key] = _Copy(directory, log, self._homes[key].logs[key].generation)
        return log

    def extend_copy(self, topic: str, index: int, bytes_max: int) -> bool:
        """Copies the next records; returns whether the copy has all records of the log now.

        Raises:
            MoveFailedError: The other directory failed.
            OSError: The directory of the log failed, or the one with the metadata log.
        """
        key = (topic, index)
        copy = self._copies[key]
        source = self._homes[key].logs[key]
        begins_anew = (
            copy.generation != source.generation
            or copy.log.log_end_offset < source.log_start_offset
        )
        records = b""
        if not begins_anew:
            records = source.read(copy.log.log_end_offset, bytes_max, source.log_end_offset)
        try:
            if begins_anew:
                # What was truncated meanwhile may have been replaced by other records.
                copy.log.truncate_fully_and_start_at(source.log_start_offset)
                copy.generation = source.generation
            else:
                copy.log.append_as_follower(records)
                copy.log.advance_log_start(source.log_start_offset)
        except OSError as error:
            self._give_up_move(copy.directory, error)
        return copy.log.log_end_offset == source.log_end_offset

    def drop_copy(self, topic: str, index: int) -> None:
        """Gives up a move; without one nothing happens."""
        key = (topic, index)
        found = self._copies.pop(key, None)
        if found is not None and found.directory.is_online:
            self._or_fail(found.directory, lambda one: self._remove_copy(one, key, found.log))

    def _remove_copy(self, directory: LogDirectory, key: tuple[str, int], log: Log) -> None:
        log.delete()
        remove_log_files(self._storage, log_path(directory, key))

    def adopt_copy(self, topic: str, index: int) -> Log:
        """Makes the copy the log; it has the same records, and gets the same epochs and high watermark (EC-7).

        Raises:
            MoveFailedError: The other directory failed.
            OSError: The directory of the log failed, or the one with the metadata log.
        """
        key = (topic, index)
        old_directory = self._homes[key]
        old = old_directory.logs[key]
        mark_superseded(self._storage, log_path(old_directory, key))
        copy = self._copies.pop(key)
        directory, log = copy.directory, copy.log
        try:
            # EC-7: an epoch that has no records yet is in the cache only.
            if self._rules("EC-7"):
                log.epochs.assign_all(old.epochs.entries)
            log.configure(old.config)
            log.first_dirty_offset = old.first_dirty_offset
            mark_finished(self._storage, log_path(directory, key))
        except OSError as error:
            self._give_up_move(directory, error)
        self._homes[key] = directory
        directory.logs[key] = log
        log.on_checkpoint_due = lambda: self._write_recovery_points(directory)
        del old_directory.logs[key]
        self._or_fail(old_directory, lambda one: self._remove_files(one, key, old))
        self._or_fail(directory, self._write_checkpoints)
        return log

    def _write_checkpoints(self, directory: LogDirectory) -> None:
        self._write_recovery_points(directory)
        self._write_high_watermarks(directory)
        self._write_first_dirty_offsets(directory)

    def _give_up_move(self, directory: LogDirectory, error: OSError) -> NoReturn:
        """Takes the directory of a copy offline; raises the error itself if the broker cannot continue."""
        if not self._fail(directory, error):
            raise error
        raise MoveFailedError(str(error)) from error

    # Failing

    @property
    def has_several_directories(self) -> bool:
        """Whether this broker is configured with more than one directory."""
        return len(self._config.log_dirs) > 1

    def online_directory_ids(self) -> tuple[UUID, ...]:
        """Returns the ids of the directories that are online now, in the order of the configuration."""
        return tuple(directory.directory_id for directory in self._online())

    def partition_failed(self, topic: str, index: int, error: OSError) -> bool:
        """Takes the directory offline in which an operation on a log failed (DIR-1).

        Returns:
            Whether the broker can continue without it. If not, nothing was done.
        """
        directory = self._homes.get((topic, index))
        return directory is not None and self._fail(directory, error)

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if directory.is_online]

    def _or_fail(self, directory: LogDirectory, action: Callable[[LogDirectory], None]) -> None:
        """Does something with a directory; an error takes it offline if the broker can continue without it."""
        try:
            action(directory)
        except OSError as error:
            if not self._fail(directory, error):
                raise

    def _fail(self, directory: LogDirectory, error: OSError) -> bool:
        is_metadata_directory = directory.name == self._config.log_dirs[0]
        if is_metadata_directory or self.on_directory_failed is None:
            return False
        if not directory.is_online:
            return True
        directory.is_online = False
        self.offline_directories += (directory.name,)
        for log in directory.logs.values():
            log.close()
        directory.logs.clear()
        for key in [key for key, copy in self._copies.items() if copy.directory is directory]:
            del self._copies[key]
        keys = sorted(key for key, home in self._homes.items() if home is directory)
        self.on_directory_failed(directory.directory_id, keys, error)
        for topic, index in keys:
            self.drop_copy(topic, index)
        return True

    # Stopping

    def renew_markers(self, broker_epoch: int) -> None:
        """Gives the markers of the last clean shutdown a newer epoch, if no log was loaded since (CS-5).

        The controller knows this incarnation's epoch only, and would take the next start for an unclean one.

        Args:
            broker_epoch: Of this incarnation; -1 if it did not register, which changes nothing.
        """
        if broker_epoch < 0 or self.clean_broker_epoch() < 0:
            return
        for directory in self._directories:
            with contextlib.suppress(OSError):
                directory.marker.write(broker_epoch)

    async def shutdown(self, broker_epoch: int) -> None:
        """Flushes every log, writes all checkpoints, and then marks the shutdown as clean (LIFE-3, CS-1).

        A directory that cannot be flushed gets no marker; the others do. Nothing may append any more.

        Args:
            broker_epoch: Of the session that ends; the next start registers with it.
        """
        # CS-1: without the rule the marker is written before anything is flushed.
        if not self._rules("CS-1"):
            for directory in self._online():
                directory.marker.write(broker_epoch)
        for directory in self._online():
            try:
                for key in sorted(directory.logs):
                    await directory.logs[key].flush()
                    directory.logs[key].snapshot_producers()
                    directory.logs[key].close()
                self._write_recovery_points(directory)
                # CS-1: last of all. A directory that never finished loading is as clean as it was before.
                if self._rules("CS-1") and (directory.is_loaded or directory.had_clean_shutdown):
                    directory.marker.write(broker_epoch)
            except OSError:
                # Without a marker the next start of this directory is unclean, as it must be.
                continue
