"""The Describe requests: cluster, topics and settings, from the broker's copy of the metadata.

The copy may be old, as for Metadata; the controller is not queried.
"""

from collections.abc import Iterable
from typing import Any

from system_under_test.broker.metadata_cache import MetadataCache, is_internal
from system_under_test.config import (
    KAFKA_TIMINGS,
    NEVER_MS,
    GroupConfig,
    MetadataLogConfig,
    NodeConfig,
    TransactionConfig,
)
from system_under_test.metadata.image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    MIN_ISR_CONFIG,
    TOPIC_RESOURCE,
    UNCLEAN_ELECTION_CONFIG,
    ClusterImage,
    is_legal_topic_name,
)
from system_under_test.metadata.log_settings import IN_FORCE, field_of
from system_under_test.metadata.records import NO_LEADER
from system_under_test.metadata.topic_configs import (
    BROKER_CONFIGS,
    CLUSTER_CONFIGS,
    INT,
    STRING,
    SYNONYMS,
    TOPIC_CONFIGS,
    TopicConfigKey,
)
from system_under_test.properties import PROPERTIES
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    NO_THROTTLE,
    describe_cluster_response,
    describe_configs_response,
    describe_topic_partitions_response,
)

TOPIC_CONFIG, BROKER_CONFIG, DEFAULT_BROKER_CONFIG, STATIC_CONFIG, DEFAULT_CONFIG = 1, 2, 3, 4, 5
"""Kafka's ConfigSource codes: a topic's, a broker's, the cluster's default, the node's file, Kafka's default."""
BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS = 1, 2
AFTER_MAX = "log.message.timestamp.after.max.ms"
"""Its default depends on the release."""
COORDINATED_PARTITIONS = ("offsets.topic.num.partitions", "transaction.state.log.num.partitions")
METADATA_SEGMENT_BYTES = "metadata.log.segment.bytes"
PARTITION_LIMIT_MAX = 2000
"""Kafka's max.request.partition.size.limit."""


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
            offline_replicas=self._metadata.offline_replicas(registration),
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
                configs = self._topic(name, request)
            else:
                error, message = _missing_topic(name), f"there is no topic {name!r}"
        elif resource.resource_type == BROKER_RESOURCE and name == CLUSTER_DEFAULT:
            configs = self._cluster(request)
        elif resource.resource_type == BROKER_RESOURCE and name == str(self._config.node_id):
            configs = [*self._static(), *self._defaults(request), *self._own(request)]
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

    def _topic(self, topic: str, request: Any) -> list[Any]:
        """Returns all settings of a topic."""
        own = self._image.configs
        described = []
        for key in TOPIC_CONFIGS.values():
            if key.is_internal:
                continue
            layers = self._layers([synonym.name for synonym in key.synonyms])
            value = own.get((TOPIC_RESOURCE, topic, key.name))
            if value is not None:
                layers.insert(0, (key.name, value, TOPIC_CONFIG))
            described.append(_described(key.name, key, _effective(key, layers), layers, request))
        return described

    def _cluster(self, request: Any) -> list[Any]:
        """Returns the cluster's defaults, as far as they were set."""
        described = []
        for name, key in CLUSTER_CONFIGS.items():
            layers = self._layers([name])
            if layers and layers[0][2] == DEFAULT_BROKER_CONFIG:
                described.append(
                    _described(name, key, (layers[0][1], layers[0][2]), layers, request)
                )
        return described

    def _defaults(self, request: Any) -> list[Any]:
        """Returns what this broker uses for topics without settings of their own."""
        described = []
        for name, key in CLUSTER_CONFIGS.items():
            layers = self._layers([name])
            first = (layers[0][1], layers[0][2]) if layers else (None, DEFAULT_CONFIG)
            described.append(_described(name, key, first, layers, request))
        return described

    def _own(self, request: Any) -> list[Any]:
        """Returns what was set for this broker alone."""
        described = []
        for name, key in BROKER_CONFIGS.items():
            layers = [(name, key.default, DEFAULT_CONFIG)]
            own = self._image.configs.get((BROKER_RESOURCE, str(self._config.node_id), name))
            if own is not None:
                layers.insert(0, (name, own, BROKER_CONFIG))
            described.append(_described(name, key, layers[0][1:], layers, request))
        return described

    def _layers(self, names: Iterable[str]) -> list[tuple[str, str, int]]:
        """Returns (name, value, source) of every place that sets or defaults a setting; the first one counts.

        Args:
            names: What brokers call the setting, the name that counts most first.
        """
        layers = []
        for name in names:
            cluster = self._image.configs.get((BROKER_RESOURCE, CLUSTER_DEFAULT, name))
            if cluster is not None:
                layers.append((name, cluster, DEFAULT_BROKER_CONFIG))
            static = _static_value(self._config, name)
            if static is not None:
                layers.append((name, static, STATIC_CONFIG))
            default = SYNONYMS[name][1].default
            if name == AFTER_MAX:
                default = _never(self._config.features.message_timestamp_after_max_ms)
            if default is not None:
                layers.append((name, default, DEFAULT_CONFIG))
        return layers

    def _static(self) -> list[Any]:
        """Returns what a node's file alone can set."""
        return [
            describe_configs_response.DescribeConfigsResourceResult(
                name=name,
                value=value,
                read_only=True,
                config_source=STATIC_CONFIG if value != default else DEFAULT_CONFIG,
                is_sensitive=False,
                synonyms=(),
                config_type=kind,
                documentation=None,
            )
            for name, value, default, kind in _broker_settings(self._config)
        ]


def _effective(key: TopicConfigKey, layers: list[tuple[str, str, int]]) -> tuple[str | None, int]:
    """Returns the value of a topic's setting in the topic's unit, and its source."""
    if not layers:
        return key.default, DEFAULT_CONFIG
    name, value, source = layers[0]
    if name in SYNONYMS and SYNONYMS[name][1].factor > 1:
        value = str(int(value) * SYNONYMS[name][1].factor)
    return value, source


def _described(
    name: str,
    key: TopicConfigKey,
    value: tuple[str | None, int],
    layers: list[tuple[str, str, int]],
    request: Any,
) -> Any:
    """Returns one setting of a topic, or of a broker for all topics."""
    return describe_configs_response.DescribeConfigsResourceResult(
        name=name,
        value=value[0],
        read_only=False,
        config_source=value[1],
        is_sensitive=False,
        synonyms=tuple(
            describe_configs_response.DescribeConfigsSynonym(
                name=layer, value=layer_value, source=source
            )
            for layer, layer_value, source in layers
        )
        if request.include_synonyms
        else (),
        config_type=key.kind,
        documentation=key.documentation if request.include_documentation else None,
    )


def _static_value(config: NodeConfig, name: str) -> str | None:
    """Returns what a node's file sets for all topics, None if that is Kafka's default."""
    key, _ = SYNONYMS[name]
    stated = dict(config.properties)
    if name in stated:
        return stated[name]
    # What was set in another way is described under the name that counts most.
    if name != key.synonyms[0].name or any(one.name in stated for one in key.synonyms):
        return None
    if key.name == MIN_ISR_CONFIG:
        value = str(config.min_insync_replicas)
    elif key.name == UNCLEAN_ELECTION_CONFIG:
        value = _text(config.unclean_leader_election_enable)
    elif key.name in IN_FORCE:
        field = getattr(config.log, field_of(key.name))
        value = key.default if field is None else _text(field)
    else:
        return None
    return None if value == key.default else value


def _missing_topic(name: str) -> ErrorCode:
    """Returns the error about a topic that does not exist; some names no topic can have."""
    if is_legal_topic_name(name):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.INVALID_TOPIC_EXCEPTION


def _broker_settings(config: NodeConfig) -> list[tuple[str, str | None, str | None, int]]:
    """Returns (Kafka's name, value, Kafka's default, type) of what a node's file alone can set."""
    voters = ",".join(f"{voter.node_id}@{voter.address}" for voter in config.voters)
    settings: list[tuple[str, str | None, str | None, int]] = [
        ("node.id", str(config.node_id), None, INT),
        ("process.roles", config.role, None, STRING),
        ("advertised.listeners", config.advertised_address or config.address, None, STRING),
        ("controller.quorum.voters", voters, None, STRING),
    ]
    usual = {
        "timings": KAFKA_TIMINGS,
        "group": GroupConfig(),
        "transaction": TransactionConfig(),
        "metadata_log": MetadataLogConfig(metadata_log_segment_bytes=1 << 30),
        "node": _USUAL_NODE,
    }
    for name, found in PROPERTIES.items():
        part: Any = config if found.part == "node" else getattr(config, found.part)
        default = _text(getattr(usual[found.part], found.field))
        if name in COORDINATED_PARTITIONS:
            default = "50"  # see `GroupConfig`
        value = getattr(part, found.field)
        if name == METADATA_SEGMENT_BYTES:
            value = value or config.log.segment_bytes  # see `MetadataLogConfig`
        settings.append((name, _text(value), default, found.kind))
    for name, (key, synonym) in SYNONYMS.items():
        if not synonym.is_dynamic and name not in PROPERTIES:
            value = _static_value(config, name) or synonym.default
            settings.append((name, value, synonym.default, key.kind))
    return settings


_USUAL_NODE = NodeConfig(node_id=0, role="broker", address="", cluster_id="", voters=())


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return _never(value) if isinstance(value, int) else str(value)


def _never(value: int) -> str:
    """Returns a number as Kafka writes it; practically infinite ones are the largest there."""
    return str(value if value < NEVER_MS else 2**63 - 1)
