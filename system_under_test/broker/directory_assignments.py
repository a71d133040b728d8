"""Reports to the controller in which log directory each replica of this broker is (DIR-5, KIP-858).

A broker with several directories chooses where it creates a log. The controller has to know, because a directory
may fail alone. One request at a time contains everything that is not reported yet. A broker whose replicas are
where the metadata say sends nothing and has no task for it.
"""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

from system_under_test.broker.channel import Channel
from system_under_test.broker.tasks import TaskScope, Waker
from system_under_test.config import NodeConfig
from system_under_test.log.manager import LogManager
from system_under_test.metadata.directories import directory_of
from system_under_test.metadata.image import PartitionRegistration
from system_under_test.metadata.records import LOST_DIRECTORY, MIGRATING_DIRECTORY
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import assign_replicas_to_dirs_request
from system_under_test.runtime import Host

REPLICAS_PER_REQUEST_MAX = 2250
"""Kafka's limit; it keeps a request below 64 KiB."""

_Key = tuple[UUID, int]


class DirectoryAssignments:
    """Queues directories of replicas and sends them to the active controller.

    Args:
        host: The node's interfaces to the outside.
        config: Node id and timings.
        channel: A channel to the active controller that nothing else uses (AP-2).
        broker_epoch: Returns the epoch of this incarnation.
        logs: The logs of the broker.
        registration_of: Returns the registration of a partition by topic name and index, None if there is none.
        scope: Runs the task, from the first report on.
    """

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        channel: Channel,
        broker_epoch: Callable[[], int],
        logs: LogManager,
        registration_of: Callable[[str, int], PartitionRegistration | None],
        scope: TaskScope,
    ) -> None:
        self.channel = channel
        self._observer = host.observer
        self._node_id = config.node_id
        self._timings = config.timings
        self._broker_epoch = broker_epoch
        self._logs = logs
        self._registration_of = registration_of
        self._scope = scope
        # Directories to which replicas are about to move.
        self._next: dict[_Key, UUID] = {}
        self._directories: dict[_Key, UUID] = {}
        self._waker = Waker()
        self._is_running = False

    @property
    def pending_count(self) -> int:
        """Replicas whose directory the controller has not confirmed."""
        return len(self._directories)

    def placed(self, registration: PartitionRegistration) -> None:
        """Compares where a replica is with where its registration says, and reports a difference."""
        if not registration.directories and not self._logs.has_several_directories:
            return
        key = (registration.topic_id, registration.partition)
        actual = self._logs.directory_id(registration.topic, registration.partition)
        assigned = directory_of(registration, self._node_id)
        if actual is None:
            # It is in a directory that was offline when the broker started. An id that the metadata have is enough
            # for the controller to know that; without one the replica would pass for usable.
            actual = LOST_DIRECTORY if assigned == MIGRATING_DIRECTORY else assigned
        if assigned == self._next.get(key, actual):
            self._directories.pop(key, None)
        elif key not in self._next:
            self._report(key, actual)

    def request(self, topic: str, index: int, directory: UUID) -> bool:
        """Reports the directory to which a replica is about to move; returns whether the controller knows it."""
        registration = self._registration_of(topic, index)
        if registration is None:
            return False
        key = (registration.topic_id, index)
        is_known = directory_of(registration, self._node_id) == directory
        if self._next.get(key) != directory:
            self._next[key] = directory
            if not is_known:
                self._report(key, directory)
        return is_known

    def end_request(self, topic: str, index: int) -> None:
        """Ends `request`: the replica has moved, or it stays where it is."""
        registration = self._registration_of(topic, index)
        if registration is not None:
            self._next.pop((registration.topic_id, index), None)
            self.placed(registration)

    def _report(self, key: _Key, directory: UUID) -> None:
        self._directories[key] = directory
        self._waker.wake()
        if not self._is_running:
            self._is_running = True
            self._scope.spawn(self._run(), "directory-assignments")

    async def _run(self) -> None:
        """Sends what is queued until cancelled."""
        while True:
            if not self._directories:
                await self._waker.wait(None)
            elif not await self._send():
                await asyncio.sleep(self._timings.alter_partition_retry_ms / 1000)

    async def _send(self) -> bool:
        """Sends one request; returns whether the controller decided about it."""
        sent = dict(list(self._directories.items())[:REPLICAS_PER_REQUEST_MAX])
        request = build_request(self._node_id, self._broker_epoch(), sent)
        try:
            response = await self.channel.send(request, self._timings.replica_socket_timeout_ms)
        except (ConnectionError, TimeoutError):
            return False
        if response.error_code != ErrorCode.NONE:
            self._observer.mark("assignment-refused", error=int(response.error_code))
            return False
        for directory in response.directories:
            for topic in directory.topics:
                for one in topic.partitions:
                    key = (topic.topic_id, one.partition_index)
                    # What was refused is no replica any more. Another directory may be queued meanwhile.
                    if self._directories.get(key) == sent.get(key):
                        self._directories.pop(key, None)
        return True


def build_request(broker_id: int, broker_epoch: int, directories: dict[_Key, UUID]) -> Any:
    """Returns the request with the directories, grouped by directory and topic."""
    m = assign_replicas_to_dirs_request
    grouped: dict[UUID, dict[UUID, list[int]]] = {}
    for (topic_id, partition), directory in directories.items():
        grouped.setdefault(directory, {}).setdefault(topic_id, []).append(partition)
    return m.AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        directories=tuple(
            m.DirectoryData(
                id_=directory,
                topics=tuple(
                    m.TopicData(
                        topic_id=topic_id,
                        partitions=tuple(m.PartitionData(partition_index=one) for one in indexes),
                    )
                    for topic_id, indexes in topics.items()
                ),
            )
            for directory, topics in grouped.items()
        ),
    )
