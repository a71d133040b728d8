"""IncrementalAlterConfigs: settings of topics, and the cluster's defaults for them.

A resource is changed as a whole or not at all. A change of min.insync.replicas also empties, in the same atomic
batch, the ELRs that were filled under the old value (ELR-9).
"""

from typing import Any

from system_under_test.controller.policy import Decision, Policy, mark
from system_under_test.metadata.image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    MIN_ISR_CONFIG,
    TOPIC_RESOURCE,
    UNCLEAN_ELECTION_CONFIG,
    ClusterImage,
    is_legal_topic_name,
)
from system_under_test.metadata.records import (
    ClearElrRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
)
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import NO_THROTTLE, incremental_alter_configs_response

SET = 0
DELETE = 1
OTHER_RESOURCES = (8, 32)
"""Kafka's types of resources that have settings there: broker loggers and groups."""
INT32_MAX = 2**31 - 1
SETTINGS = (MIN_ISR_CONFIG, UNCLEAN_ELECTION_CONFIG)
"""All supported settings of topics, and of the cluster as defaults for topics."""


class ConfigRefusedError(Exception):
    """A requested setting is refused; carries the error of the response."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        """Stores the error code and the sentence for the client."""
        self.error = error
        super().__init__(message)


def checked_config(name: str, value: str | None) -> str:
    """Returns a setting's value in canonical form.

    Raises:
        ConfigRefusedError: The setting does not exist, or the value is invalid.
    """
    text = "" if value is None else value.strip()
    if name == MIN_ISR_CONFIG and text.isdecimal() and 1 <= int(text) <= INT32_MAX:
        return str(int(text))
    if name == UNCLEAN_ELECTION_CONFIG and text.lower() in ("true", "false"):
        return text.lower()
    if name in SETTINGS:
        message = f"{value!r} is not a valid value of {name}"
    else:
        message = f"{name} is not supported (only {', '.join(SETTINGS)})"
    raise ConfigRefusedError(ErrorCode.INVALID_CONFIG, message)


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
                raise ConfigRefusedError(
                    ErrorCode.INVALID_REQUEST, f"the request names {key[1]!r} twice"
                )
            new = _records(image, resource, policy)
        except ConfigRefusedError as refused:
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
            raise ConfigRefusedError(
                ErrorCode.INVALID_REQUEST, f"the request names {config.name} twice"
            )
        records.append(_record(image, resource, config))
    # [ELR-9] Even if the value does not change (KAFKA-16540).
    if MIN_ISR_CONFIG in names and policy.rules("ELR-9"):
        topic = resource.resource_name if resource.resource_type == TOPIC_RESOURCE else ""
        records.extend(_clear_elr(image, topic, policy))
    return records


def _check_resource(image: ClusterImage, resource: Any) -> None:
    if resource.resource_type == TOPIC_RESOURCE:
        if resource.resource_name not in image.topics_by_name:
            raise ConfigRefusedError(
                _missing_topic(resource.resource_name),
                f"there is no topic {resource.resource_name!r}",
            )
    elif resource.resource_type == BROKER_RESOURCE and _is_broker(image, resource.resource_name):
        raise ConfigRefusedError(
            ErrorCode.INVALID_CONFIG,
            "a single broker has no settings of its own that can be altered",
        )
    elif resource.resource_type in OTHER_RESOURCES:
        raise ConfigRefusedError(
            ErrorCode.INVALID_CONFIG, "broker loggers and groups have no settings here"
        )
    elif resource.resource_type != BROKER_RESOURCE or resource.resource_name != CLUSTER_DEFAULT:
        raise ConfigRefusedError(
            ErrorCode.INVALID_REQUEST,
            "only topics and the cluster's defaults (broker resource with an empty name) can be altered",
        )


def _missing_topic(name: str) -> ErrorCode:
    if not name:
        return ErrorCode.INVALID_REQUEST
    if not is_legal_topic_name(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _is_broker(image: ClusterImage, name: str) -> bool:
    return name.isdecimal() and int(name) in image.brokers


def _record(image: ClusterImage, resource: Any, config: Any) -> ConfigRecord:
    if config.config_operation == SET:
        if config.value is None:
            raise ConfigRefusedError(
                ErrorCode.INVALID_REQUEST, f"{config.name} cannot be set to null; delete it instead"
            )
        value: str | None = checked_config(config.name, config.value)
    elif config.config_operation == DELETE:
        if config.name not in SETTINGS:
            checked_config(config.name, None)  # refuses it by name
        # Without the value, brokers and controllers use their static defaults, which may differ.
        if (
            config.name == MIN_ISR_CONFIG
            and resource.resource_type == BROKER_RESOURCE
            and image.elr_on
        ):
            raise ConfigRefusedError(
                ErrorCode.INVALID_CONFIG,
                f"the cluster's {MIN_ISR_CONFIG} cannot be deleted while ELR is on",
            )
        value = None
    else:
        raise ConfigRefusedError(
            ErrorCode.INVALID_CONFIG,
            f"{config.name} is not a list; only SET and DELETE are possible",
        )
    return ConfigRecord(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        name=config.name,
        value=value,
    )


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
