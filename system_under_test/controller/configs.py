"""IncrementalAlterConfigs: settings of topics, the cluster's defaults for them, and throttles of single brokers.

A resource is changed as a whole or not at all. A change of min.insync.replicas also empties, in the same atomic
batch, the ELRs that were filled under the old value (ELR-9).
"""

from typing import Any

from system_under_test.controller.policy import Decision, Policy, RequestRefusedError, mark
from system_under_test.metadata.image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    MIN_ISR_CONFIG,
    TOPIC_RESOURCE,
    ClusterImage,
    is_legal_topic_name,
)
from system_under_test.metadata.records import (
    ClearElrRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
)
from system_under_test.metadata.topic_configs import (
    BROKER_CONFIGS,
    CLUSTER_CONFIGS,
    LIST,
    TOPIC_CONFIGS,
    InvalidConfigError,
    TopicConfigKey,
    canonical,
    check_together,
)
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import NO_THROTTLE, incremental_alter_configs_response

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
"""Kafka's operations on a setting; the last two change the elements of a list."""
SEGMENT_BYTES = "segment.bytes"
OTHER_RESOURCES = (8, 32)
"""Kafka's types of resources that have settings there: broker loggers and groups."""


def checked_config(name: str, value: str | None, policy: Policy) -> str:
    """Returns the value of a topic's setting in canonical form.

    Raises:
        RequestRefusedError: The setting does not exist, or the value is invalid.
    """
    key = TOPIC_CONFIGS.get(name)
    if key is None:
        raise RequestRefusedError(ErrorCode.INVALID_CONFIG, f"no topic setting is called {name}")
    return _checked(key, name, value, policy)


def checked_topic_configs(values: dict[str, str]) -> None:
    """Checks the settings of one topic together.

    Raises:
        RequestRefusedError: They contradict each other.
    """
    try:
        check_together(values)
    except InvalidConfigError as error:
        raise RequestRefusedError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _checked(key: TopicConfigKey, name: str, value: str | None, policy: Policy) -> str:
    try:
        found = canonical(key, "" if value is None else value, name=name)
    except InvalidConfigError as error:
        raise RequestRefusedError(ErrorCode.INVALID_CONFIG, str(error)) from None
    least = policy.features.segment_bytes_min
    if key.name == SEGMENT_BYTES and int(found) < least:
        raise RequestRefusedError(
            ErrorCode.INVALID_CONFIG, f"{found} is not a valid value of {name}: use {least} or more"
        )
    return found


def alter_configs(image: ClusterImage, request: Any, policy: Policy) -> Decision:
    """Decides on an IncrementalAlterConfigsRequest; every resource succeeds or fails on its own."""
    resources = [(one.resource_type, one.resource_name) for one in request.resources]
    records: list[MetadataRecord] = []
    results = []
    marks = []
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        try:
            if resources.count(key) > 1:
                raise RequestRefusedError(
                    ErrorCode.INVALID_REQUEST, f"the request names {key[1]!r} twice"
                )
            new = _records(image, resource, policy)
        except RequestRefusedError as refused:
            results.append(config_result(*key, refused.error, str(refused)))
            continue
        results.append(config_result(*key, ErrorCode.NONE, None))
        if not request.validate_only:
            records.extend(new)
            marks.append(mark("configs-altered", resource=key[1], records=len(new)))
    return Decision(
        records=tuple(records), response=alter_configs_response(tuple(results)), marks=tuple(marks)
    )


def alter_configs_response(results: tuple[Any, ...]) -> Any:
    """Returns a response with one result per resource."""
    return incremental_alter_configs_response.IncrementalAlterConfigsResponse(
        throttle_time=NO_THROTTLE, responses=results
    )


def config_result(
    resource_type: int, resource_name: str, error: ErrorCode, message: str | None
) -> Any:
    """Returns the result of one resource."""
    return incremental_alter_configs_response.AlterConfigsResourceResponse(
        error_code=error,
        error_message=message,
        resource_type=resource_type,
        resource_name=resource_name,
    )


def _records(image: ClusterImage, resource: Any, policy: Policy) -> list[MetadataRecord]:
    _check_resource(image, resource)
    names = [config.name for config in resource.configs]
    records: list[MetadataRecord] = []
    for config in resource.configs:
        if names.count(config.name) > 1:
            raise RequestRefusedError(
                ErrorCode.INVALID_REQUEST, f"the request names {config.name} twice"
            )
        records.append(_record(image, resource, config, policy))
    if resource.resource_type == TOPIC_RESOURCE:
        checked_topic_configs(_own_values(image, resource.resource_name, records))
    # [ELR-9] Even if the value does not change (KAFKA-16540).
    if MIN_ISR_CONFIG in names and policy.rules("ELR-9"):
        topic = resource.resource_name if resource.resource_type == TOPIC_RESOURCE else ""
        records.extend(_clear_elr(image, topic, policy))
    return records


def _check_resource(image: ClusterImage, resource: Any) -> None:
    if resource.resource_type == TOPIC_RESOURCE:
        if resource.resource_name not in image.topics_by_name:
            raise RequestRefusedError(
                _missing_topic(resource.resource_name),
                f"there is no topic {resource.resource_name!r}",
            )
    elif resource.resource_type in OTHER_RESOURCES:
        raise RequestRefusedError(
            ErrorCode.INVALID_CONFIG, "broker loggers and groups have no settings here"
        )
    elif resource.resource_type != BROKER_RESOURCE or not (
        resource.resource_name == CLUSTER_DEFAULT or _is_broker(image, resource.resource_name)
    ):
        raise RequestRefusedError(
            ErrorCode.INVALID_REQUEST,
            "only topics, brokers and the cluster's defaults (broker resource with an empty name) can be altered",
        )


def _missing_topic(name: str) -> ErrorCode:
    if not name:
        return ErrorCode.INVALID_REQUEST
    if not is_legal_topic_name(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _is_broker(image: ClusterImage, name: str) -> bool:
    return name.isdecimal() and int(name) in image.brokers


def _own_values(image: ClusterImage, topic: str, changes: list[MetadataRecord]) -> dict[str, str]:
    """Returns the values that a topic itself has after the changes."""
    values = {
        name: value
        for (kind, resource, name), value in image.configs.items()
        if (kind, resource) == (TOPIC_RESOURCE, topic)
    }
    for change in changes:
        if isinstance(change, ConfigRecord):
            values.pop(change.name, None)
            if change.value is not None:
                values[change.name] = change.value
    return values


def _key(resource: Any, name: str) -> TopicConfigKey:
    """Returns the setting that a resource calls by a name."""
    if resource.resource_type == TOPIC_RESOURCE:
        kind, known = "topic", TOPIC_CONFIGS
    elif resource.resource_name == CLUSTER_DEFAULT:
        kind, known = "cluster", CLUSTER_CONFIGS
    else:
        kind, known = "broker", BROKER_CONFIGS
    key = known.get(name)
    if key is None:
        raise RequestRefusedError(
            ErrorCode.INVALID_CONFIG, f"no {kind} setting that can be altered is called {name}"
        )
    return key


def _record(image: ClusterImage, resource: Any, config: Any, policy: Policy) -> ConfigRecord:
    key = _key(resource, config.name)
    operation = config.config_operation
    value: str | None = None
    if operation == DELETE:
        # Without the value, brokers and controllers use their static defaults, which may differ.
        if (
            config.name == MIN_ISR_CONFIG
            and resource.resource_type == BROKER_RESOURCE
            and image.elr_on
        ):
            raise RequestRefusedError(
                ErrorCode.INVALID_CONFIG,
                f"the cluster's {MIN_ISR_CONFIG} cannot be deleted while ELR is on",
            )
    elif config.value is None:
        raise RequestRefusedError(
            ErrorCode.INVALID_REQUEST, f"{config.name} cannot be set to null; delete it instead"
        )
    elif operation == SET:
        value = _checked(key, config.name, config.value, policy)
    elif operation in (APPEND, SUBTRACT) and key.kind == LIST:
        value = _checked(key, config.name, _changed_list(image, resource, key, config), policy)
    else:
        raise RequestRefusedError(
            ErrorCode.INVALID_CONFIG,
            f"{config.name} is not a list; only SET and DELETE are possible",
        )
    return ConfigRecord(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        name=config.name,
        value=value,
    )


def _changed_list(image: ClusterImage, resource: Any, key: TopicConfigKey, config: Any) -> str:
    """Returns a list with elements added or removed; one that was not set begins with Kafka's default."""
    stored = image.configs.get((resource.resource_type, resource.resource_name, config.name))
    before = [part for part in (key.default if stored is None else stored).split(",") if part]
    named = [part.strip() for part in config.value.split(",") if part.strip()]
    if config.config_operation == APPEND:
        return ",".join([*before, *(part for part in named if part not in before)])
    return ",".join(part for part in before if part not in named)


def _clear_elr(image: ClusterImage, topic: str, policy: Policy) -> list[MetadataRecord]:
    """Returns the records that must follow a change of min ISR in the same batch."""
    if not image.elr_on:
        return []
    records: list[MetadataRecord] = [ClearElrRecord(topic_name=topic)]
    # ELR-9-EPOCH, stricter than Kafka. A leader that has not replayed the change would move its high watermark
    # under the old min ISR, so its ISR proposals must not be accepted. They carry an old partition epoch and are
    # refused until it has.
    raises_epoch = policy.rules("ELR-9-EPOCH")
    # ELR-9-LEADERLESS, stricter than Kafka: without ELR and last-known leader nobody could be elected.
    erases = not policy.rules("ELR-9-LEADERLESS")
    for key, registration in image.partitions.items():
        if topic not in ("", registration.topic):
            continue
        nothing = () if erases and not registration.isr else None
        if raises_epoch or nothing is not None:
            records.append(
                PartitionChangeRecord(
                    topic_id=key[0],
                    partition_id=key[1],
                    eligible_leader_replicas=nothing,
                    last_known_elr=nothing,
                )
            )
    return records
