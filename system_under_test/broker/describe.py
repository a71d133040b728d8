"""The Describe requests: cluster, topics and settings, from the broker's copy of the metadata.

The copy may be old, as for Metadata; the controller is not queried.
"""

from collections.abc import Iterable
from typing import Any

from system_under_test.broker.metadata_cache import MetadataCache, is_internal
from system_under_test.config import LogConfig, NodeConfig
from system_under_test.metadata.image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    MIN_ISR_CONFIG,
    TOPIC_RESOURCE,
    UNCLEAN_ELECTION_CONFIG,
    ClusterImage,
    is_legal_topic_name,
)
from system_under_test.metadata.records import NO_LEADER
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    NO_THROTTLE,
    describe_cluster_response,
    describe_configs_response,
    describe_topic_partitions_response,
)

TOPIC_CONFIG, DEFAULT_BROKER_CONFIG, STATIC_CONFIG, DEFAULT_CONFIG = 1, 3, 4, 5
"""Kafka's ConfigSource codes: the topic's own, the cluster's default, the node's file, Kafka's default."""
BOOLEAN, STRING, INT, LONG = 1, 2, 3, 5
"""Kafka's ConfigType codes."""
BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS = 1, 2
PARTITION_LIMIT_MAX = 2000
"""Kafka's max.request.partition.size.limit."""

DOCUMENTATION = {
    MIN_ISR_CONFIG: "how many replicas must be in sync for acks=all to be accepted and committed",
    UNCLEAN_ELECTION_CONFIG: "whether a replica that may lack committed records may lead",
}
_TYPES = {MIN_ISR_CONFIG: INT, UNCLEAN_ELECTION_CONFIG: BOOLEAN}
_KAFKA_DEFAULTS = {MIN_ISR_CONFIG: "1", UNCLEAN_ELECTION_CONFIG: "false"}


class Describer:
    """Serves DescribeCluster, DescribeTopicPartitions and DescribeConfigs.

    Args:
        config: This node's configuration.
        metadata: This node's copy of the metadata.
    """

    def __init__(self, config: NodeConfig, metadata: MetadataCache) -> None:
        self._config = config
        self._metadata = metadata

    @property
    def _image(self) -> ClusterImage:
        return self._metadata.image

    # --- cluster ---------------------------------------------------------------------------------------

    def describe_cluster(self, request: Any) -> Any:
        """Serves a DescribeClusterRequest. A broker knows brokers only, no controllers."""
        is_known_type = request.endpoint_type == BROKER_ENDPOINTS
        error = ErrorCode.NONE
        if request.endpoint_type == CONTROLLER_ENDPOINTS:
            error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        elif not is_known_type:
            error = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        brokers = []
        for _, broker in sorted(self._image.brokers.items()):
            if is_known_type and (request.include_fenced_brokers or not broker.fenced):
                host, _, port = broker.address.rpartition(":")
                brokers.append(
                    describe_cluster_response.DescribeClusterBroker(
                        broker_id=broker.broker_id,
                        host=host,
                        port=int(port),
                        is_fenced=broker.fenced,
                    )
                )
        return describe_cluster_response.DescribeClusterResponse(
            throttle_time=NO_THROTTLE,
            error_code=error,
            error_message=None if is_known_type else "a broker describes broker endpoints (1) only",
            endpoint_type=BROKER_ENDPOINTS,
            cluster_id=self._config.cluster_id,
            controller_id=self._metadata.controller_id() if is_known_type else NO_LEADER,
            brokers=tuple(brokers),
        )

    # --- topics ----------------------------------------------------------------------------------------

    def describe_topic_partitions(self, request: Any) -> Any:
        """Serves a DescribeTopicPartitionsRequest: topics by name, with ELR, one page of them (KIP-966)."""
        messages = describe_topic_partitions_response
        names = sorted({topic.name for topic in request.topics} or set(self._image.topics_by_name))
        cursor = request.cursor
        start = 0
        if cursor is not None:
            names = [name for name in names if name >= cursor.topic_name]
            start = max(cursor.partition_index, 0) if cursor.topic_name in names[:1] else 0
        room = min(max(request.response_partition_limit, 1), PARTITION_LIMIT_MAX)
        topics = []
        next_cursor = None
        for name in names:
            if room <= 0:
                next_cursor = messages.Cursor(topic_name=name, partition_index=0)
                break
            topic = self._image.topics_by_name.get(name)
            error = _missing_topic(name) if topic is None else ErrorCode.NONE
            if cursor is not None and cursor.partition_index < 0 and name == cursor.topic_name:
                error = ErrorCode.INVALID_REQUEST
            if topic is None or error is not ErrorCode.NONE:
                topics.append(
                    messages.DescribeTopicPartitionsResponseTopic(
                        error_code=error, name=name, topic_id=None, partitions=()
                    )
                )
                continue
            partitions = self._image.partitions_of(topic.topic_id)[start:]
            start_of_rest = start + room
            start = 0
            topics.append(
                messages.DescribeTopicPartitionsResponseTopic(
                    error_code=ErrorCode.NONE,
                    name=name,
                    topic_id=topic.topic_id,
                    is_internal=is_internal(name),
                    partitions=tuple(self._partition(one) for one in partitions[:room]),
                )
            )
            if len(partitions) > room:
                next_cursor = messages.Cursor(topic_name=name, partition_index=start_of_rest)
                break
            room -= len(partitions)
        return messages.DescribeTopicPartitionsResponse(
            throttle_time=NO_THROTTLE, topics=tuple(topics), next_cursor=next_cursor
        )

    def _partition(self, registration: Any) -> Any:
        is_led = self._metadata.alive_address(registration.leader) is not None
        return describe_topic_partitions_response.DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.NONE if is_led else ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=registration.partition,
            leader_id=registration.leader,
            leader_epoch=registration.leader_epoch,
            replica_nodes=registration.replicas,
            isr_nodes=registration.isr,
            eligible_leader_replicas=registration.elr,
            last_known_elr=registration.last_known_elr,
            offline_replicas=tuple(
                replica
                for replica in registration.replicas
                if self._metadata.is_offline(registration, replica)
            ),
        )

    # --- settings --------------------------------------------------------------------------------------

    def describe_configs(self, request: Any) -> Any:
        """Serves a DescribeConfigsRequest for topics, brokers and the cluster's defaults."""
        return describe_configs_response.DescribeConfigsResponse(
            throttle_time=NO_THROTTLE,
            results=tuple(self._resource(request, resource) for resource in request.resources),
        )

    def _resource(self, request: Any, resource: Any) -> Any:
        error, message = ErrorCode.NONE, None
        configs: Iterable[Any] = ()
        name = resource.resource_name
        if resource.resource_type == TOPIC_RESOURCE:
            if name in self._image.topics_by_name:
                configs = self._dynamic(name, request)
            else:
                error, message = _missing_topic(name), f"there is no topic {name!r}"
        elif resource.resource_type == BROKER_RESOURCE and name == CLUSTER_DEFAULT:
            configs = self._dynamic(None, request)
        elif resource.resource_type == BROKER_RESOURCE and name == str(self._config.node_id):
            configs = [*self._static(), *self._dynamic(None, request, of_cluster=False)]
        elif resource.resource_type == BROKER_RESOURCE:
            error = ErrorCode.INVALID_REQUEST
            message = f"send this request to broker {name!r}; this is broker {self._config.node_id}"
        else:
            error, message = ErrorCode.INVALID_REQUEST, "only topics and brokers have settings here"
        # An empty list means all of them, as none does.
        wanted = resource.configuration_keys or None
        return describe_configs_response.DescribeConfigsResult(
            error_code=error,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=name,
            configs=tuple(one for one in configs if wanted is None or one.name in wanted),
        )

    def _dynamic(self, topic: str | None, request: Any, *, of_cluster: bool = True) -> list[Any]:
        """Returns the settings of a topic, of the cluster (None), or of this broker (not `of_cluster`)."""
        described = []
        for name in DOCUMENTATION:
            values = self._layers(topic, name)
            if topic is None and of_cluster:
                values = [value for value in values if value[1] == DEFAULT_BROKER_CONFIG]
                if not values:
                    continue  # only defaults that were set are the cluster's
            value, source = values[0]
            described.append(
                describe_configs_response.DescribeConfigsResourceResult(
                    name=name,
                    value=value,
                    read_only=False,
                    config_source=source,
                    is_sensitive=False,
                    synonyms=tuple(
                        describe_configs_response.DescribeConfigsSynonym(
                            name=name, value=layer, source=origin
                        )
                        for layer, origin in values
                    )
                    if request.include_synonyms
                    else (),
                    config_type=_TYPES[name],
                    documentation=DOCUMENTATION[name] if request.include_documentation else None,
                )
            )
        return described

    def _layers(self, topic: str | None, name: str) -> list[tuple[str, int]]:
        """Returns (value, source) of every place that sets or defaults a setting; the first one counts."""
        configs = self._image.configs
        layers = []
        if topic is not None and (TOPIC_RESOURCE, topic, name) in configs:
            layers.append((configs[(TOPIC_RESOURCE, topic, name)], TOPIC_CONFIG))
        if (BROKER_RESOURCE, CLUSTER_DEFAULT, name) in configs:
            layers.append(
                (configs[(BROKER_RESOURCE, CLUSTER_DEFAULT, name)], DEFAULT_BROKER_CONFIG)
            )
        static = {
            MIN_ISR_CONFIG: str(self._config.min_insync_replicas),
            UNCLEAN_ELECTION_CONFIG: _text(self._config.unclean_leader_election_enable),
        }[name]
        if static != _KAFKA_DEFAULTS[name]:
            layers.append((static, STATIC_CONFIG))
        layers.append((_KAFKA_DEFAULTS[name], DEFAULT_CONFIG))
        return layers

    def _static(self) -> list[Any]:
        return [
            describe_configs_response.DescribeConfigsResourceResult(
                name=name,
                value=_text(value),
                read_only=True,
                config_source=STATIC_CONFIG if value != default else DEFAULT_CONFIG,
                is_sensitive=False,
                synonyms=(),
                config_type=_type(value),
                documentation=None,
            )
            for name, value, default in _broker_settings(self._config)
        ]


def _missing_topic(name: str) -> ErrorCode:
    """Returns the error about a topic that does not exist; some names no topic can have."""
    if is_legal_topic_name(name):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.INVALID_TOPIC_EXCEPTION


def _broker_settings(config: NodeConfig) -> list[tuple[str, Any, Any]]:
    """Returns (Kafka's name, value, Kafka's default) of what a node's file can set."""
    usual = LogConfig()
    return [
        ("node.id", config.node_id, None),
        ("process.roles", config.role, None),
        ("advertised.listeners", config.advertised_address or config.address, None),
        (
            "controller.quorum.voters",
            ",".join(f"{voter.node_id}@{voter.address}" for voter in config.voters),
            None,
        ),
        ("auto.create.topics.enable", config.auto_create_topics_enable, True),
        ("default.replication.factor", config.default_replication_factor, 1),
        ("num.partitions", config.num_partitions, 1),
        ("log.segment.bytes", config.log.segment_bytes, usual.segment_bytes),
        ("log.flush.interval.messages", config.log.flush_messages, usual.flush_messages),
        ("message.max.bytes", config.log.max_message_bytes, usual.max_message_bytes),
        ("broker.session.timeout.ms", config.timings.broker_session_timeout_ms, 9000),
        ("broker.heartbeat.interval.ms", config.timings.broker_heartbeat_interval_ms, 2000),
        ("replica.lag.time.max.ms", config.timings.replica_lag_time_max_ms, 30000),
        ("replica.fetch.wait.max.ms", config.timings.replica_fetch_wait_max_ms, 500),
        ("replica.fetch.max.bytes", config.replica_fetch_max_bytes, 1048576),
        ("offsets.topic.num.partitions", config.group.offsets_topic_num_partitions, 50),
        ("offsets.topic.replication.factor", config.group.offsets_topic_replication_factor, 3),
        (
            "group.initial.rebalance.delay.ms",
            config.group.group_initial_rebalance_delay_ms,
            3000,
        ),
        ("group.min.session.timeout.ms", config.group.group_min_session_timeout_ms, 6000),
        ("group.max.session.timeout.ms", config.group.group_max_session_timeout_ms, 1800000),
    ]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _type(value: Any) -> int:
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        return INT if value < 2**31 else LONG
    return STRING
