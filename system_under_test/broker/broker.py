"""A broker node: builds its parts, connects them, starts and stops them in the right order.

::

    metadata quorum --> RaftNode (observer) --> MetadataPublisher --> MetadataCache
                                                              `-----> ReplicaManager
    leader brokers  <-- FetcherManager <------------------------------' |  |
    active controller <-- AlterPartitionManager <-----------------------'  |
    active controller <-- BrokerLifecycle (registration, heartbeats)       |
    clients, followers --> BrokerNode.handle ------------------------------'

Every arrow to another node has its own channel (AP-2).
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from system_under_test.broker.alter_partition import AlterPartitionManager
from system_under_test.broker.auto_create import AutoCreation
from system_under_test.broker.channel import Channel
from system_under_test.broker.describe import Describer
from system_under_test.broker.describe_producers import describe_producers
from system_under_test.broker.directory_assignments import DirectoryAssignments
from system_under_test.broker.directory_moves import DirectoryMoves
from system_under_test.broker.fetch_by_name import FetchByName
from system_under_test.broker.forwarding import FORWARDED, ControllerForwarder
from system_under_test.broker.group_coordinator import GroupCoordinator
from system_under_test.broker.housekeeping import Housekeeper
from system_under_test.broker.lifecycle import (
    BrokerExit,
    BrokerLifecycle,
    BrokerState,
    LifecycleHooks,
)
from system_under_test.broker.metadata_cache import MetadataCache
from system_under_test.broker.metrics import broker_metrics
from system_under_test.broker.produce_by_id import ProduceById
from system_under_test.broker.producer_ids import ProducerIds
from system_under_test.broker.publisher import MetadataPublisher
from system_under_test.broker.replica_fetcher import FetcherManager
from system_under_test.broker.replica_manager import ReplicaManager
from system_under_test.broker.tasks import TaskScope
from system_under_test.broker.transactions import Transactions
from system_under_test.config import NodeConfig
from system_under_test.features import levels_of
from system_under_test.log.manager import LogManager
from system_under_test.metadata.image import PartitionRegistration
from system_under_test.protocol.feature_levels import FeatureLevels
from system_under_test.protocol.messages import (
    describe_cluster_request,
    describe_configs_request,
    describe_producers_request,
    describe_topic_partitions_request,
    fetch_by_name_request,
    message_name,
    metadata_request,
    produce_by_id_request,
)
from system_under_test.raft.metrics import raft_metrics
from system_under_test.raft.node import RaftNode
from system_under_test.runtime import Host, RequestContext
from system_under_test.runtime.metrics import Sample


class BrokerNode:
    """One incarnation of a broker.

    Args:
        host: The node's interfaces to the outside.
        config: The configuration of the node.

    Attributes:
        replica_manager: The replicas; tests and the invariant monitor read it.
        lifecycle: State, epoch and fencing as the broker knows them.
        on_failure: Called, with the error, when the node has to end by itself.
    """

    def __init__(self, host: Host, config: NodeConfig) -> None:
        self.node_id = config.node_id
        self.failure: BaseException | None = None
        self._host = host
        self._config = config
        self._scope = TaskScope(self._failed)
        self._accepting = False
        self._checkpoint_timer: asyncio.TimerHandle | None = None
        self.logs = LogManager(
            host.storage,
            config,
            host.random.stream("log-directories"),
            wall_ms=host.clock.wall_ms,
            observer=host.observer,
        )
        self.metadata = MetadataCache(config)
        self.logs.config_of = self.metadata.log_config
        self.replica_manager = ReplicaManager(host, config, self.logs, self.metadata)
        self.housekeeper = Housekeeper(
            self.replica_manager.context,
            self.replica_manager.partitions,
            host.storage,
            config.timings,
            self._scope,
        )
        self.publisher = self._make_publisher()
        self.raft = RaftNode(host, config, self.publisher)
        self.fetchers = FetcherManager(
            host,
            config,
            self._scope,
            alive_address=self.metadata.alive_address,
            broker_epoch=self._own_epoch,
            on_storage_failure=self.replica_manager.replica_failed,
        )
        self.alter_partition = AlterPartitionManager(
            host, config, self._controller_channel("alter-partition"), self._own_epoch
        )
        self.forwarder = ControllerForwarder(
            self._controller_channel("forward"), config.timings, self._scope
        )
        self.producer_ids = ProducerIds(
            config.node_id,
            self._own_epoch,
            self._controller_channel("producer-ids"),
            config.timings,
            self._scope,
        )
        self.assignments = DirectoryAssignments(
            host,
            config,
            self._controller_channel("directory-assignments"),
            self._own_epoch,
            self.logs,
            self._registration_of,
            self._scope,
        )
        self.moves = DirectoryMoves(
            host, config, self.logs, self.replica_manager, self.assignments, self._scope
        )
        self.groups = GroupCoordinator(
            host, config, self.metadata, self.replica_manager, self.forwarder.handle, self._scope
        )
        self.transactions = Transactions(
            host,
            config,
            self.metadata,
            self.replica_manager,
            self.groups,
            self.producer_ids,
            self.forwarder.handle,
            self._scope,
        )
        self.lifecycle = self._make_lifecycle()
        self.replica_manager.attach(
            self.fetchers, self.alter_partition, self._failed, self.assignments.placed
        )
        self.logs.on_directory_failed = self._directory_failed
        self._services = self._make_services()

    @property
    def broker_epoch(self) -> int:
        """The epoch of this incarnation, -1 before it is registered."""
        return self.lifecycle.broker_epoch

    @property
    def state(self) -> BrokerState:
        """The state of the broker's lifecycle."""
        return self.lifecycle.state

    async def start(self) -> None:
        """Starts listening, following the metadata and registering; returns before any of these is complete."""
        await self.raft.start()  # LIFE-1: before the broker registers
        self._accepting = True
        self._host.network.listen(self.handle)
        # LIFE-1: without the rule the broker starts with the old metadata in its own log.
        if not self._config.rules("LIFE-1"):
            self.raft.deliver_local_log()
        self._scope.spawn(self.alter_partition.run(), "alter-partition")
        self._scope.spawn(self.lifecycle.run(), "lifecycle")

    async def stop(self) -> None:
        """Stops cleanly (LIFE-3): leaves with the controller's consent, flushes, and marks itself clean."""
        # CS-5: without the rule a stop ends the process of a broker that is starting, as in Kafka.
        is_marked = self._config.rules("CS-5") or not self.lifecycle.is_starting
        if self._config.controlled_shutdown_enable:
            await self.lifecycle.controlled_shutdown()
        self._accepting = False
        self.publisher.stop()
        if self._checkpoint_timer is not None:
            self._checkpoint_timer.cancel()
        self.fetchers.stop()
        self.replica_manager.stop()
        self.housekeeper.stop()
        self.replica_manager.fail_all_pending()
        self._scope.cancel_all()
        self.producer_ids.stop()
        self.groups.stop()
        self.transactions.stop()
        for part in (
            self.lifecycle,
            self.alter_partition,
            self.assignments,
            self.forwarder,
            self.producer_ids,
        ):
            part.channel.close()
        if is_marked and self.publisher.has_published:
            self.logs.write_high_watermarks(self.replica_manager.high_watermarks())
            await self.logs.shutdown(self.broker_epoch)
        elif is_marked:
            # Before the first publish no log was loaded and no marker removed (CS-3): the disk still
            # has what the previous incarnation left.
            self.logs.renew_markers(self.broker_epoch)
        await self.raft.stop()

    def metrics(self) -> Iterator[Sample]:
        """Yields the metrics of this node."""
        yield from broker_metrics(self.state, self.replica_manager, self.metadata, self.fetchers)
        yield from raft_metrics(self.raft)

    def feature_levels(self) -> FeatureLevels:
        """Returns the feature levels that this node supports, and those in force as far as it knows."""
        return levels_of(self._config.features, self.metadata.image)

    def handle(self, message: Any, context: RequestContext) -> Any:
        """Serves one request of a client or of a follower; see `runtime.network.Handler`."""
        if not self._accepting:
            raise ConnectionAbortedError(f"broker {self.node_id} is stopping")
        if self.replica_manager.handles(message):
            # Before the first publish there is no partition here, and the response is an error.
            return self.replica_manager.handle_request(message, context)
        if not self.publisher.has_published:
            # With an empty cache clients would see no cluster. Kafka does not open its listeners
            # before this point.
            raise ConnectionAbortedError(f"broker {self.node_id} is starting")
        service = self._services.get(type(message))
        if service is None:
            raise ConnectionAbortedError(f"a broker does not serve {message_name(message)}")
        return service(message, context)

    # --- wiring --------------------------------------------------------------------------------------

    def _make_services(self) -> dict[type, Callable[[Any, RequestContext], Any]]:
        """Returns the handler of every type of request that the replica manager does not serve."""
        by_name = FetchByName(self.metadata.topic_id, self.replica_manager.fetch.handle)
        produce_by_id = ProduceById(self.metadata.topic_name, self.replica_manager.produce.handle)
        describer = Describer(self._config, self.metadata)
        auto_creation = AutoCreation(self._config, self.forwarder.handle)

        def metadata(request: Any) -> Any:
            response = self.metadata.handle_metadata(request)
            auto_creation.create_missing(request, response)
            return response

        services: dict[type, Callable[[Any], Any]] = {
            metadata_request.MetadataRequest: metadata,
            describe_cluster_request.DescribeClusterRequest: describer.describe_cluster,
            describe_configs_request.DescribeConfigsRequest: describer.describe_configs,
            describe_topic_partitions_request.DescribeTopicPartitionsRequest: (
                describer.describe_topic_partitions
            ),
            describe_producers_request.DescribeProducersRequest: partial(
                describe_producers, self.metadata, self.replica_manager.partitions
            ),
            **self.moves.services(),
            **dict.fromkeys(FORWARDED, self.forwarder.handle),
        }
        return {
            **{kind: _without_context(service) for kind, service in services.items()},
            fetch_by_name_request.FetchRequest: lambda message, context: by_name.handle(
                message, context.api_version
            ),
            produce_by_id_request.ProduceRequest: lambda message, context: produce_by_id.handle(
                message, context.api_version
            ),
            **self.groups.services(),
            **self.transactions.services(),
        }

    def _make_publisher(self) -> MetadataPublisher:
        return MetadataPublisher(
            self._host,
            self._config,
            self.metadata,
            self.replica_manager,
            broker_epoch=self._own_epoch,
            before_first=self._load_logs,
            after_first=self._first_publish_done,
            after_each=self._replicas_changed,
            on_topics_removed=lambda names: self.groups.topics_removed(names),
            on_failure=self._failed,
        )

    def _make_lifecycle(self) -> BrokerLifecycle:
        return BrokerLifecycle(
            self._host,
            self._config,
            self._controller_channel("heartbeat"),
            directory_ids=self.logs.directory_ids,
            previous_broker_epoch=self.logs.clean_broker_epoch(),  # LIFE-1, CS-2
            hooks=LifecycleHooks(
                metadata_offset=lambda: self.publisher.metadata_offset,
                on_caught_up=self.publisher.allow,
                on_leaving=self.replica_manager.begin_controlled_shutdown,
            ),
        )

    def _controller_channel(self, purpose: str) -> Channel:
        return Channel(
            self._host, lambda: self.raft.leader_address(), self._config.timings, purpose
        )

    def _registration_of(self, topic: str, index: int) -> PartitionRegistration | None:
        return self.metadata.image.partition(topic, index)

    def _own_epoch(self) -> int:
        return self.lifecycle.broker_epoch

    # --- periodic and unrequested work ------------------------------------------------------------------------

    def _load_logs(self) -> None:
        """Loads all logs, then deletes those that are not assigned to this broker (LIFE-1)."""
        self.logs.load_all()
        # LIFE-1: without the rule the image may be older than the logs, and does not justify deleting one.
        if not self._config.rules("LIFE-1"):
            return
        image = self.metadata.image
        for topic, index in self.logs.partitions():
            topic_id = self.logs.topic_id(topic, index)
            if topic_id is None:  # a damaged file; the name has to suffice
                registration = image.partition(topic, index)
            else:
                registration = image.partitions.get((topic_id, index))
            if registration is None or self.node_id not in registration.replicas:
                self._host.observer.mark("stray-log-deleted", topic=topic, partition=index)
                self.logs.delete(topic, index)

    def _replicas_changed(self) -> None:
        self.fetchers.stop_idle()
        self.groups.roles_changed()
        self.transactions.coordinator.roles_changed()

    def _first_publish_done(self) -> None:
        # LIFE-1: checkpoints start only now; earlier ones would replace the content that the
        # previous incarnation wrote by nothing.
        self.replica_manager.start()
        self.housekeeper.start()
        self._arm_checkpoint()

    def _arm_checkpoint(self) -> None:
        self._checkpoint_timer = asyncio.get_running_loop().call_later(
            self._config.timings.log_flush_offset_checkpoint_interval_ms / 1000, self._checkpoint
        )

    def _checkpoint(self) -> None:
        try:
            self.logs.write_recovery_points()
        except OSError as error:
            self._failed(error)
            return
        self.housekeeper.tick()
        self._arm_checkpoint()

    def _directory_failed(
        self, directory_id: UUID, partitions: Sequence[tuple[str, int]], error: OSError
    ) -> None:
        """Continues without a log directory: its replicas are offline, and the controller is told (DIR-1)."""
        self._host.observer.mark(
            "log-directory-failed", directory=str(directory_id), error=str(error)
        )
        self.replica_manager.directory_failed(partitions, error)
        self.lifecycle.directory_failed(directory_id)
        if self._accepting:
            # The failure may have been found in the middle of an append of the group coordinator.
            asyncio.get_running_loop().call_soon(self._replicas_changed)

    def _failed(self, error: BaseException) -> None:
        """Ends the node: the first failure wins, and is raised by a separate task."""
        if self.failure is not None:
            return
        if isinstance(error, OSError):
            # The directory with the metadata log failed, which may be the only one.
            self._host.observer.mark("broker-storage-failed", error=str(error))
            error = BrokerExit(f"broker {self.node_id} lost its disk: {error}")
        self.failure = error
        self._accepting = False
        asyncio.get_running_loop().create_task(_raise(error), name="broker-failure")


def _without_context(service: Callable[[Any], Any]) -> Callable[[Any, RequestContext], Any]:
    return lambda message, _: service(message)


async def _raise(error: BaseException) -> None:
    raise error
