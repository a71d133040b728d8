"""DescribeLogDirs and AlterReplicaLogDirs: where replicas are, and moving them between log directories (KIP-113).

A replica is moved while it is used: its records are copied to a second log. When both are equal, the new directory
is reported to the controller. When the controller has accepted it and both are still equal, the second log becomes
the log. One task per broker does all moves.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from system_under_test.broker.directory_assignments import DirectoryAssignments
from system_under_test.broker.partition import Partition
from system_under_test.broker.replica_manager import ReplicaManager
from system_under_test.broker.tasks import TaskScope, Waker
from system_under_test.config import NodeConfig
from system_under_test.log.log import Log
from system_under_test.log.manager import LogManager, MoveFailedError
from system_under_test.log.segment import SEGMENT_SUFFIX
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    NO_THROTTLE,
    alter_replica_log_dirs_request,
    alter_replica_log_dirs_response,
    describe_log_dirs_request,
    describe_log_dirs_response,
)
from system_under_test.runtime import Host

COPY_BYTES = 1 << 20
"""How much is copied without letting the node do other work; Kafka's replica.fetch.max.bytes."""

_Key = tuple[str, int]


class DirectoryMoves:
    """Serves both requests and moves replicas.

    Args:
        host: The node's interfaces to the outside.
        config: The names of the directories, and timings.
        logs: The logs of the broker.
        replicas: The replicas of the broker.
        assignments: Reports the new directories to the controller.
        scope: Runs the task, from the first move on.
    """

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        logs: LogManager,
        replicas: ReplicaManager,
        assignments: DirectoryAssignments,
        scope: TaskScope,
    ) -> None:
        self._host = host
        self._root = config.log_dirs_root
        self._pause_s = config.timings.alter_partition_retry_ms / 1000
        self._logs = logs
        self._replicas = replicas
        self._assignments = assignments
        self._scope = scope
        self._moves: dict[_Key, str] = {}
        self._waker = Waker()
        self._is_running = False

    def services(self) -> dict[type, Callable[[Any], Any]]:
        """Returns the handlers by type of request."""
        return {
            describe_log_dirs_request.DescribeLogDirsRequest: self.describe,
            alter_replica_log_dirs_request.AlterReplicaLogDirsRequest: self.alter,
        }

    # --- DescribeLogDirs

    def describe(self, request: Any) -> Any:
        """Lists the directories and the replicas in them; those of the named topics, or all."""
        wanted: set[_Key] | None = None
        if request.topics is not None:
            wanted = {
                (topic.topic, index) for topic in request.topics for index in topic.partitions
            }
        m = describe_log_dirs_response
        results = []
        for name, is_online in self._logs.directory_states().items():
            error = ErrorCode.KAFKA_STORAGE_ERROR
            topics: tuple[Any, ...] = ()
            if is_online:
                # Whatever fails here is acted upon by the next append or checkpoint.
                with suppress(OSError):
                    topics = self._topics_in(name, wanted)
                    error = ErrorCode.NONE
            results.append(
                m.DescribeLogDirsResult(error_code=error, log_dir=self._path(name), topics=topics)
            )
        return m.DescribeLogDirsResponse(
            throttle_time=NO_THROTTLE, error_code=ErrorCode.NONE, results=tuple(results)
        )

    def _topics_in(self, name: str, wanted: set[_Key] | None) -> tuple[Any, ...]:
        m = describe_log_dirs_response
        topics: dict[str, list[Any]] = {}
        for key in self._logs.partitions():
            if wanted is not None and key not in wanted:
                continue
            topic, index = key
            log = self._logs.get(topic, index)
            copy = self._logs.copy_of(topic, index)
            found = topics.setdefault(topic, [])
            if log is not None and self._logs.directory_name(topic, index) == name:
                # As in Kafka: how far the log is behind the high watermark, which is 0 for a leader.
                lag = max(0, self._high_watermark(key) - log.log_end_offset)
                found.append(self._described(index, log, lag, is_future=False))
            if log is not None and copy is not None and copy[0] == name:
                lag = max(0, log.log_end_offset - copy[2].log_end_offset)
                found.append(self._described(index, copy[2], lag, is_future=True))
        return tuple(
            m.DescribeLogDirsTopic(name=topic, partitions=tuple(found))
            for topic, found in topics.items()
            if found
        )

    def _described(self, index: int, log: Log, lag: int, *, is_future: bool) -> Any:
        storage = self._host.storage
        segments = [one for one in storage.list(log.directory) if one.endswith(SEGMENT_SUFFIX)]
        return describe_log_dirs_response.DescribeLogDirsPartition(
            partition_index=index,
            partition_size=sum(storage.size(f"{log.directory}/{one}") for one in segments),
            offset_lag=lag,
            is_future_key=is_future,
        )

    def _high_watermark(self, key: _Key) -> int:
        partition = self._replicas.partitions.get(key)
        return 0 if partition is None else partition.high_watermark

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    # --- AlterReplicaLogDirs

    def alter(self, request: Any) -> Any:
        """Begins the requested moves; every partition succeeds or fails on its own."""
        m = alter_replica_log_dirs_response
        topics: dict[str, list[Any]] = {}
        for directory in request.dirs:
            for topic in directory.topics:
                for index in topic.partitions:
                    error = self._begin((topic.name, index), directory.path)
                    topics.setdefault(topic.name, []).append(
                        m.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
                    )
        return m.AlterReplicaLogDirsResponse(
            throttle_time=NO_THROTTLE,
            results=tuple(
                m.AlterReplicaLogDirTopicResult(topic_name=name, partitions=tuple(results))
                for name, results in topics.items()
            ),
        )

    def _begin(self, key: _Key, path: str) -> ErrorCode:
        states = self._logs.directory_states()
        name = next((name for name in states if self._path(name) == path), None)
        if name is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if not states[name]:
            return ErrorCode.KAFKA_STORAGE_ERROR
        found = self._replicas.find(*key)
        if isinstance(found, ErrorCode):
            return self._prefer(key, name, found)
        if self._logs.directory_name(*key) == name:
            # It is where it shall be; a move to elsewhere that is under way is given up.
            self._moves.pop(key, None)
            self._logs.drop_copy(*key)
            return ErrorCode.NONE
        # As in Kafka: another copy of the log may be in a directory that is offline.
        if not all(states.values()) and self._moves.get(key) != name:
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._moves[key] = name
        self._waker.wake()
        if not self._is_running:
            self._is_running = True
            self._scope.spawn(self._run(), "directory-moves")
        return ErrorCode.NONE

    def _prefer(self, key: _Key, name: str, error: ErrorCode) -> ErrorCode:
        """Remembers where to create a log that the broker does not have; returns the error of the response.

        Kafka's tool for reassignments names the directories before it begins one, and ignores the error that a
        broker without the replica returns.
        """
        if key in self._replicas.partitions:
            return error  # its log is in a directory that failed
        self._logs.preferred.remember(key, name)
        return (
            ErrorCode.REPLICA_NOT_AVAILABLE if error is ErrorCode.NOT_LEADER_OR_FOLLOWER else error
        )

    async def _run(self) -> None:
        """Moves what was requested until cancelled."""
        while True:
            if not self._moves:
                await self._waker.wait(None)
                continue
            for key, name in list(self._moves.items()):
                try:
                    is_over = self._step(key, name)
                except MoveFailedError:
                    is_over = True
                if is_over:
                    self._end(key, name)
            await asyncio.sleep(self._pause_s)

    def _end(self, key: _Key, name: str) -> None:
        if self._moves.get(key) == name:
            del self._moves[key]
        self._assignments.end_request(*key)

    def _step(self, key: _Key, name: str) -> bool:
        """Does the next part of a move without awaiting; returns whether the move is over.

        Raises:
            MoveFailedError: The other directory failed.
        """
        partition = self._replicas.partitions.get(key)
        if self._moves.get(key) != name or partition is None or partition.log is None:
            return True
        try:
            return self._copy_or_finish(partition, key, name)
        except OSError as error:
            self._replicas.replica_failed(*key, error)
            return True

    def _copy_or_finish(self, partition: Partition, key: _Key, name: str) -> bool:
        copy = self._logs.copy_of(*key)
        if copy is None or copy[0] != name:
            self._logs.begin_copy(*key, name)
            self._host.observer.mark("move-began", topic=key[0], partition=key[1], directory=name)
            copy = self._logs.copy_of(*key)
        assert copy is not None
        if not self._logs.extend_copy(*key, COPY_BYTES):
            return False
        if not self._assignments.request(*key, copy[1]):
            return False
        partition.take_log(self._logs.adopt_copy(*key))
        self._host.observer.mark("move-ended", topic=key[0], partition=key[1], directory=name)
        return True
