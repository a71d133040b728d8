"""The replica manager: all partitions of one broker, and the requests that are about them.

It applies metadata changes, runs the periodic tasks that concern replicas, and dispatches Produce, Fetch,
ListOffsets and OffsetForLeaderEpoch. The decisions are in `partition.py`.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from system_under_test.broker.delete_records import RecordDeletion
from system_under_test.broker.fetch import FetchHandler
from system_under_test.broker.interfaces import (
    AlterPartitionControl,
    FetcherControl,
    LocalPartitionsDelta,
    MetadataView,
)
from system_under_test.broker.list_offsets import OffsetsHandler
from system_under_test.broker.partition import Partition
from system_under_test.broker.produce import ProduceHandler
from system_under_test.broker.replica_context import ReplicaContext
from system_under_test.broker.replica_state import ReplicaState
from system_under_test.config import NodeConfig
from system_under_test.log.manager import LogManager, OfflineDirectoryError
from system_under_test.metadata.image import PartitionRegistration
from system_under_test.metadata.records import NO_LEADER
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    delete_records_request,
    fetch_request,
    list_offsets_request,
    offset_for_leader_epoch_request,
    produce_request,
)
from system_under_test.runtime import Host, RequestContext


class ReplicaManager:
    """Owns the partitions of one broker incarnation.

    Args:
        host: The node's interfaces to the outside.
        config: Node id, features, rules, timings.
        logs: The logs of the broker.
        metadata: The broker's metadata cache.

    Attributes:
        partitions: By (topic, index), in the order in which they were first assigned.
    """

    def __init__(
        self, host: Host, config: NodeConfig, logs: LogManager, metadata: MetadataView
    ) -> None:
        self.partitions: dict[tuple[str, int], Partition] = {}
        # A UUID computes its hash in Python: one level per topic costs one hash per topic and request.
        self._by_topic_id: dict[UUID | None, dict[int, Partition]] = {}
        self._logs = logs
        self._metadata = metadata
        self._timings = config.timings
        self._on_storage_failure: Callable[[OSError], None] | None = None
        self._on_placed: Callable[[PartitionRegistration], None] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.context = ReplicaContext(host, config, logs, metadata)
        self.context.on_disk_error = self._disk_failed
        self.produce = ProduceHandler(self.context, self.find)
        self.fetch = FetchHandler(self.context, self.find_by_id)
        self.offsets = OffsetsHandler(self.context, self.find)
        self.deletion = RecordDeletion(self.context, self.find)
        self._handlers: dict[type[Any], Callable[[Any], Any]] = {
            produce_request.ProduceRequest: self.produce.handle,
            fetch_request.FetchRequest: self.fetch.handle,
            list_offsets_request.ListOffsetsRequest: self.offsets.list_offsets,
            delete_records_request.DeleteRecordsRequest: self.deletion.handle,
            offset_for_leader_epoch_request.OffsetForLeaderEpochRequest: (
                self.offsets.offsets_for_leader_epochs
            ),
        }

    def attach(
        self,
        fetchers: FetcherControl,
        alter_partition: AlterPartitionControl,
        on_storage_failure: Callable[[OSError], None] | None = None,
        on_placed: Callable[[PartitionRegistration], None] | None = None,
    ) -> None:
        """Connects the parts that need this one to exist first.

        Args:
            fetchers: Copy the partitions that this broker follows.
            alter_partition: Sends proposed ISR changes to the controller.
            on_storage_failure: Called when the disk failed under a request. The partition is offline then, and
                responds with KAFKA_STORAGE_ERROR; its owner decides whether the broker continues without it. Not
                called if only the log directory of the partition is offline now (DIR-1).
            on_placed: Called with every registration after its replica has a log, or cannot have one (DIR-5).
        """
        self.context.fetchers = fetchers
        self.context.alter_partition = alter_partition
        self._on_storage_failure = on_storage_failure
        self._on_placed = on_placed

    # --- Requests.

    def handles(self, message: Any) -> bool:
        """Whether the replica manager serves a request of this type."""
        return type(message) in self._handlers

    def handle_request(self, message: Any, context: RequestContext) -> Any:
        """Serves a request for which `handles` is true.

        Returns:
            The response, a future of it, or None for a produce request with acks=0.

        Raises:
            ConnectionAbortedError: The connection is to be closed (a failed append with acks=0).
        """
        if context.api_version >= 0 and type(message) is produce_request.ProduceRequest:
            return self.produce.handle(message, context.api_version)
        return self._handlers[type(message)](message)

    def find(self, topic: str, index: int) -> Partition | ErrorCode:
        """Returns a partition by name, or why it is not served here (PROD-1)."""
        partition = self.partitions.get((topic, index))
        if partition is None:
            if self._metadata.has_partition(topic, index):
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.KAFKA_STORAGE_ERROR if partition.replica.log is None else partition

    def find_by_id(self, topic_id: UUID | None, index: int) -> Partition | ErrorCode:
        """Returns a partition by topic id, or why it is not served here (FETCH-1)."""
        topic = self._by_topic_id.get(topic_id)
        partition = None if topic is None else topic.get(index)
        if partition is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR if partition.replica.log is None else partition
        name = None if topic_id is None else self._metadata.topic_name(topic_id)
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if (name, index) in self.partitions:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if self._metadata.has_partition(name, index):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # --- Metadata.

    def publish_begins(self) -> None:
        """Is called before the metadata cache changes.

        Nothing has to be done: until `publish_ends` every partition keeps the min ISR it knew, and one that the
        delta touches takes the larger of old and new (META-5).
        """

    def apply_delta(self, delta: LocalPartitionsDelta, broker_epoch: int) -> None:
        """Applies what a publish changes on this broker: deletes, then leaders, then followers.

        Args:
            delta: The new registrations of hosted partitions.
            broker_epoch: The epoch of this incarnation.

        Raises:
            OSError: The disk failed; the broker cannot follow the metadata, and has to end.
        """
        self.context.broker_epoch = broker_epoch
        for topic, index, topic_was_deleted in delta.deletes:
            self._delete(topic, index, topic_was_deleted=topic_was_deleted)
        for registration in delta.leaders:
            self._apply(registration, self._lead)
        for registration in delta.followers:
            self._apply(registration, self._follow)

    def _apply(
        self,
        registration: PartitionRegistration,
        change: Callable[[Partition, PartitionRegistration], None],
    ) -> None:
        """Changes the role of a replica, unless its log directory is offline or fails now (DIR-1, DIR-4)."""
        partition = self._partition_for(registration)
        if partition.replica.state is ReplicaState.OFFLINE:
            return
        try:
            change(partition, registration)
        except OSError as error:
            if not self._goes_offline(partition, error):
                raise
        if self._on_placed is not None:
            self._on_placed(registration)

    def _goes_offline(self, partition: Partition, error: OSError) -> bool:
        """Takes a replica offline whose log cannot be used; False if the broker cannot continue."""
        topic, index = partition.topic, partition.index
        if not isinstance(error, OfflineDirectoryError) and not self._logs.partition_failed(
            topic, index, error
        ):
            return False
        self._take_offline(topic, index, error)
        return True

    def publish_ends(self) -> None:
        """Takes the settings of the new image and re-tries high watermarks that waited for them (META-5)."""
        min_isr_of = self._metadata.min_insync_replicas
        if self._metadata.configs_changed():
            for partition in self.partitions.values():
                if partition.log is not None:
                    partition.log.configure(self._metadata.log_config(partition.topic))
        for partition in self.partitions.values():
            partition.take_min_isr(min_isr_of(partition.topic), is_publishing=False)

    def _lead(self, partition: Partition, registration: PartitionRegistration) -> None:
        # Before anything else, so that no response that is on its way is appended.
        self.context.fetchers.forget(registration.topic, registration.partition)
        partition.make_leader(registration)

    def _follow(self, partition: Partition, registration: PartitionRegistration) -> None:
        is_new_epoch = partition.make_follower(registration)
        is_out_of_sync = (
            registration.leader == NO_LEADER or self.context.broker_id not in registration.isr
        )
        fetchers = self.context.fetchers
        if self.context.is_stopping and is_out_of_sync:
            # A broker that is about to stop need not catch up.
            fetchers.forget(partition.topic, partition.index)
        elif is_new_epoch and registration.leader == NO_LEADER:
            fetchers.forget(partition.topic, partition.index)
        elif is_new_epoch:
            # The fetchers apply FOLL-2, and know whether the leader is alive.
            fetchers.follow(partition.replica, registration.leader, registration.leader_epoch)

    def _partition_for(self, registration: PartitionRegistration) -> Partition:
        key = (registration.topic, registration.partition)
        partition = self.partitions.get(key)
        if partition is not None and partition.topic_id != registration.topic_id:
            # Deleted and created again within one publish.
            self._delete(*key, topic_was_deleted=True)
            partition = None
        if partition is None:
            partition = Partition(
                self.context, registration.topic, registration.topic_id, registration.partition
            )
            self.partitions[key] = partition
            topic = self._by_topic_id.setdefault(registration.topic_id, {})
            topic[registration.partition] = partition
        partition.take_min_isr(
            self._metadata.min_insync_replicas(registration.topic), is_publishing=True
        )
        return partition

    def _delete(self, topic: str, index: int, *, topic_was_deleted: bool) -> None:
        self.context.fetchers.forget(topic, index)
        partition = self.partitions.pop((topic, index), None)
        if partition is not None:
            by_index = self._by_topic_id[partition.topic_id]
            del by_index[index]
            if not by_index:
                del self._by_topic_id[partition.topic_id]
            partition.remove(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if topic_was_deleted
                else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        self._logs.delete(topic, index)

    # --- Starting and stopping.

    def start(self) -> None:
        """Starts the periodic tasks; call it after the first publish."""
        timings = self._timings
        # A follower that stops is out of the ISR after 1.0 to 1.5 times the lag limit.
        self._every(timings.replica_lag_time_max_ms / 2, "isr-expiration", self._shrink_isrs)
        self._every(
            timings.replica_high_watermark_checkpoint_interval_ms,
            "high-watermark-checkpoint",
            self._checkpoint_high_watermarks,
        )

    def stop(self) -> None:
        """Stops the periodic tasks; idempotent."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def begin_controlled_shutdown(self) -> None:
        """Stops fetching, from now on, partitions that lost their leader or whose ISR this broker left."""
        self.context.is_stopping = True

    def fail_all_pending(self) -> None:
        """Completes every parked request: produce with NOT_LEADER_OR_FOLLOWER, fetch with the data there are."""
        self.produce.purgatory.abandon_all()
        self.fetch.purgatory.abandon_all()
        self.deletion.purgatory.abandon_all()

    def high_watermarks(self) -> dict[tuple[str, int], int]:
        """Returns the high watermark of every replica that is online (REC-2)."""
        return {
            key: partition.high_watermark
            for key, partition in self.partitions.items()
            if partition.log is not None
        }

    def gauges(self) -> dict[str, int]:
        """Returns the replica manager's metrics under Kafka's names."""
        partitions = self.partitions.values()
        led = [one.leadership for one in partitions if one.leadership is not None]
        return {
            "PartitionCount": len(self.partitions),
            "LeaderCount": len(led),
            "OfflineReplicaCount": sum(partition.log is None for partition in partitions),
            "OfflineLogDirectoryCount": len(self._logs.offline_directories),
            "UnderReplicatedPartitions": sum(one.is_under_replicated for one in led),
            "UnderMinIsrPartitionCount": sum(one.is_below_min_isr for one in led),
            "AtMinIsrPartitionCount": sum(
                len(one.state.isr) == one.effective_min_isr for one in led
            ),
            "IsrExpands": sum(one.isr_changes.expands for one in partitions),
            "IsrShrinks": sum(one.isr_changes.shrinks for one in partitions),
            "FailedIsrUpdates": sum(one.isr_changes.failures for one in partitions),
            "ProducePurgatorySize": len(self.produce.purgatory),
            "FetchPurgatorySize": len(self.fetch.purgatory),
            "ProduceExpirations": self.produce.purgatory.expired_count,
            "FetchExpirations": self.fetch.purgatory.expired_count,
        }

    def _every(self, period_ms: float, name: str, task: Callable[[], None]) -> None:
        def run() -> None:
            arm()
            task()

        def arm() -> None:
            self._timers[name] = asyncio.get_running_loop().call_later(period_ms / 1000, run)

        arm()

    def _shrink_isrs(self) -> None:
        for partition in self.partitions.values():
            partition.shrink_if_lagging()

    def _checkpoint_high_watermarks(self) -> None:
        try:
            self._logs.write_high_watermarks(self.high_watermarks())
        except OSError as error:
            self._report_storage_failure(error)

    def _disk_failed(self, topic: str, index: int, error: OSError) -> None:
        if self._logs.partition_failed(topic, index, error):
            return
        partition = self.partitions.get((topic, index))
        # A partition that is offline, or was removed meanwhile, has nothing left to lose.
        if partition is None or partition.log is None:
            self.context.fetchers.forget(topic, index)
        else:
            self._take_offline(topic, index, error)
        self._report_storage_failure(error)

    def _take_offline(self, topic: str, index: int, error: OSError) -> None:
        self.context.fetchers.forget(topic, index)
        partition = self.partitions.get((topic, index))
        if partition is not None and partition.replica.state is not ReplicaState.OFFLINE:
            partition.replica.mark("partition-offline", error=str(error))
            partition.take_offline()

    def directory_failed(self, partitions: Iterable[tuple[str, int]], error: OSError) -> None:
        """Takes the replicas offline whose logs were in a directory that failed (DIR-1)."""
        for topic, index in partitions:
            self._take_offline(topic, index, error)

    def replica_failed(self, topic: str, index: int, error: OSError) -> None:
        """Acts on an error of the disk under a follower's fetch."""
        if not self._logs.partition_failed(topic, index, error):
            self._report_storage_failure(error)

    def _report_storage_failure(self, error: OSError) -> None:
        if self._on_storage_failure is not None:
            self._on_storage_failure(error)
