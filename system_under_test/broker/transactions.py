"""Everything about transactions on one broker: builds the parts and connects them."""

from collections.abc import Callable
from typing import Any

from system_under_test.broker.group_coordinator import GroupCoordinator
from system_under_test.broker.internal_topics import InternalTopic
from system_under_test.broker.metadata_cache import TRANSACTION_TOPIC, MetadataCache
from system_under_test.broker.producer_ids import ProducerIds
from system_under_test.broker.replica_manager import ReplicaManager
from system_under_test.broker.tasks import TaskScope
from system_under_test.broker.transaction_coordinator import TransactionCoordinator
from system_under_test.broker.transaction_gate import TransactionGate
from system_under_test.broker.transaction_markers import BrokerChannels, MarkerSender
from system_under_test.broker.transaction_queries import TransactionQueries
from system_under_test.broker.transactional_produce import produce_gate
from system_under_test.broker.write_markers import MarkerWriter
from system_under_test.config import NodeConfig
from system_under_test.protocol.messages import (
    init_producer_id_request,
    write_txn_markers_request,
)
from system_under_test.runtime import Host, RequestContext


class Transactions:
    """The transactions of one broker.

    Args:
        host: The node's interfaces to the outside.
        config: Settings, features, rules, timings.
        metadata: The existing topics and their leaders.
        replicas: The partitions of this broker.
        groups: The groups whose offsets belong to transactions.
        producer_ids: Allocates producer ids, and serves producers without transactions.
        forward: Sends a CreateTopicsRequest to the active controller.
        scope: Runs the tasks.
    """

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        producer_ids: ProducerIds,
        forward: Callable[[Any], Any],
        scope: TaskScope,
    ) -> None:
        settings = config.transaction
        topic = InternalTopic(
            TRANSACTION_TOPIC,
            metadata,
            forward,
            num_partitions=settings.transaction_state_log_num_partitions,
            replication_factor=settings.transaction_state_log_replication_factor,
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", str(settings.transaction_state_log_min_isr)),
                ("segment.bytes", str(settings.transaction_state_log_segment_bytes)),
                ("unclean.leader.election.enable", "false"),
            ),
        )
        self._producer_ids = producer_ids
        self._channels = BrokerChannels(host, config, metadata, "transactions")
        self._writer = MarkerWriter(host, replicas, groups.transaction_ended)
        self.coordinator = TransactionCoordinator(
            host,
            config,
            metadata,
            replicas,
            topic,
            next_producer_id=producer_ids.next_id,
            sender=MarkerSender(config, metadata, self._channels, self._writer.handle),
            scope=scope,
        )
        self._queries = TransactionQueries(host, self.coordinator)
        gate = TransactionGate(
            config, replicas, topic, self._channels, self.coordinator.add_for_brokers, scope
        )
        replicas.produce.gate = produce_gate(gate, replicas.produce)
        groups.transactional.gate = gate
        groups.coordinator_of_transaction = topic.coordinator

    def services(self) -> dict[type, Callable[[Any, RequestContext], Any]]:
        """Returns the handler of every type of request."""
        return {
            init_producer_id_request.InitProducerIdRequest: self._init_producer_id,
            write_txn_markers_request.WriteTxnMarkersRequest: self._writer.handle,
            **self.coordinator.services(),
            **self._queries.services(),
        }

    def stop(self) -> None:
        """Stops coordinating and closes the connections."""
        self.coordinator.stop()
        self._channels.close()

    def _init_producer_id(self, request: Any, context: RequestContext) -> Any:
        if request.transactional_id is None:
            return self._producer_ids.handle(request)
        return self.coordinator.init_producer_id(request, context)
