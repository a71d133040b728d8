"""The broker's copy of the cluster metadata, for Metadata responses and for its own partitions.

The cache holds the image of the last publish. It may be arbitrarily old, and no caller may assume otherwise. Only
the publisher changes it, without an await between the first and the last record of a publish.
"""

from typing import Any
from uuid import UUID

from system_under_test.config import LogConfig, NodeConfig
from system_under_test.metadata.directories import has_online_replica
from system_under_test.metadata.image import (
    BrokerRegistration,
    ClusterImage,
    PartitionRegistration,
    TopicImage,
    is_legal_topic_name,
)
from system_under_test.metadata.log_settings import log_config
from system_under_test.metadata.records import NO_LEADER
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import NO_THROTTLE, metadata_request, metadata_response

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
NO_ID = UUID(int=0)


class MetadataCache:
    """Knows brokers and topics as of the last publish; implements `MetadataView`.

    Args:
        config: Node id, cluster id and the cluster's default min.insync.replicas.
    """

    def __init__(self, config: NodeConfig) -> None:
        self.image = ClusterImage()
        self._node_id = config.node_id
        self._cluster_id = config.cluster_id
        self._default_min_isr = config.min_insync_replicas
        self._default_log = config.log
        self._known_configs: dict[tuple[int, str, str], str] = {}

    def is_isr_eligible(self, broker_id: int) -> bool:
        """Whether the broker is registered, not fenced and not in controlled shutdown (ISR-5)."""
        return self.image.is_active(broker_id)

    def alive_broker_epoch(self, broker_id: int) -> int | None:
        """Returns the epoch of an unfenced broker, None when it is fenced or unknown."""
        broker = self._alive(broker_id)
        return None if broker is None else broker.broker_epoch

    def alive_address(self, broker_id: int) -> str | None:
        """Returns "host:port" of an unfenced broker, None when it is fenced or unknown."""
        broker = self._alive(broker_id)
        return None if broker is None else broker.address

    def offline_replicas(self, registration: PartitionRegistration) -> tuple[int, ...]:
        """Returns the replicas whose broker is fenced or unknown, or whose log directory is offline."""
        return tuple(
            replica
            for replica in registration.replicas
            if self._alive(replica) is None
            or not has_online_replica(self.image, registration, replica)
        )

    def min_insync_replicas(self, topic: str) -> int:
        """Returns the topic's min.insync.replicas, not yet capped by the replication factor."""
        return self.image.min_insync_replicas(topic, self._default_min_isr)

    def log_config(self, topic: str) -> LogConfig:
        """Returns the settings of a topic's logs: its own, the cluster's, or those of this node's file."""
        return log_config(self.image.configs, topic, self._default_log)

    def configs_changed(self) -> bool:
        """Whether any setting changed since this was last called."""
        if self.image.configs == self._known_configs:
            return False
        self._known_configs = dict(self.image.configs)
        return True

    def topic_name(self, topic_id: UUID) -> str | None:
        """Returns the name of a topic, None when unknown."""
        topic = self.image.topics.get(topic_id)
        return None if topic is None else topic.name

    def topic_id(self, topic: str) -> UUID | None:
        """Returns the id of a topic, None when unknown."""
        named = self.image.topics_by_name.get(topic)
        return None if named is None else named.topic_id

    def has_partition(self, topic: str, partition: int) -> bool:
        """Whether the cache knows the partition, hosted here or not."""
        return self.image.partition(topic, partition) is not None

    def handle_metadata(
        self, request: metadata_request.MetadataRequest
    ) -> metadata_response.MetadataResponse:
        """Serves a Metadata request: all topics when it names none, else the named ones in its order.

        `controller_id` is a broker, as in Kafka's KRaft mode, where administrative requests go to any broker
        and are forwarded; this broker names itself while it is alive.
        """
        alive = [
            broker
            for _, broker in sorted(self.image.brokers.items())
            if not broker.fenced  # one in controlled shutdown still serves requests
        ]
        by_topic: dict[UUID, list[PartitionRegistration]] = {}
        for registration in self.image.partitions.values():
            by_topic.setdefault(registration.topic_id, []).append(registration)
        if request.topics is None:
            topics = [
                self._describe(topic, by_topic)
                for _, topic in sorted(self.image.topics_by_name.items())
            ]
        else:
            # A topic that the request names twice is described once.
            wanted = {(one.name, one.topic_id): one for one in request.topics}
            topics = [self._describe_wanted(one, by_topic) for one in wanted.values()]
        return metadata_response.MetadataResponse(
            throttle_time=NO_THROTTLE,
            brokers=tuple(_broker(broker) for broker in alive),
            cluster_id=self._cluster_id,
            controller_id=self.controller_id(),
            topics=tuple(topics),
        )

    def _alive(self, broker_id: int) -> BrokerRegistration | None:
        broker = self.image.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker

    def controller_id(self) -> int:
        """Returns which broker takes administrative requests: this one, or another while it is not alive."""
        ids = sorted(known for known, broker in self.image.brokers.items() if not broker.fenced)
        if self._node_id in ids:
            return self._node_id
        return ids[0] if ids else NO_LEADER

    def _describe_wanted(
        self,
        wanted: metadata_request.MetadataRequestTopic,
        by_topic: dict[UUID, list[PartitionRegistration]],
    ) -> metadata_response.MetadataResponseTopic:
        # The zero id and no id are the same on the wire; kio reads both as None. An id wins over a name.
        topic_id = wanted.topic_id if wanted.topic_id != NO_ID else None
        name = wanted.name if topic_id is None else None
        if name is not None:
            topic = self.image.topics_by_name.get(name)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            topic = None if topic_id is None else self.image.topics.get(topic_id)
            error = ErrorCode.UNKNOWN_TOPIC_ID
        if topic is not None:
            return self._describe(topic, by_topic)
        if name is not None and not is_legal_topic_name(name):
            error = ErrorCode.INVALID_TOPIC_EXCEPTION
        return metadata_response.MetadataResponseTopic(
            error_code=error, name=name, topic_id=topic_id, partitions=()
        )

    def _describe(
        self, topic: TopicImage, by_topic: dict[UUID, list[PartitionRegistration]]
    ) -> metadata_response.MetadataResponseTopic:
        registrations = sorted(by_topic.get(topic.topic_id, ()), key=lambda one: one.partition)
        return metadata_response.MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=is_internal(topic.name),
            partitions=tuple(self._partition(registration) for registration in registrations),
        )

    def _partition(
        self, registration: PartitionRegistration
    ) -> metadata_response.MetadataResponsePartition:
        # A leader that the cache does not know as alive has no address that a client could use.
        led = self._alive(registration.leader) is not None
        return metadata_response.MetadataResponsePartition(
            error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=registration.partition,
            leader_id=registration.leader if led else NO_LEADER,
            leader_epoch=registration.leader_epoch,
            replica_nodes=registration.replicas,
            isr_nodes=registration.isr,
            offline_replicas=self.offline_replicas(registration),
        )


def is_internal(topic: str) -> bool:
    """Whether a topic is the cluster's own."""
    return topic in (OFFSETS_TOPIC, TRANSACTION_TOPIC)


def _broker(broker: BrokerRegistration) -> Any:
    host, _, port = broker.address.rpartition(":")
    return metadata_response.MetadataResponseBroker(
        node_id=broker.broker_id, host=host, port=int(port)
    )
