"""IncrementalAlterConfigs: settings of topics, and the cluster's defaults for them.

A resource is changed as a whole or not at all. Changing min.insync.replicas is more than a setting (ELR-9): the
same atomic batch empties the ELRs that were filled under the old value.
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
SETTINGS = (MIN_ISR_CONFIG, UNCLEAN_ELECTION_CONFIG)
"""All settings that a topic, or the cluster for all topics, can have here."""


class ConfigRefusedError(Exception):
    """A setting cannot be what was asked for; carries the answer."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        """Keeps the error code and the sentence for the client."""
        self.error = error
        super().__init__(message)


def checked_config(name: str, value: str | None) -> str:
    """Returns a setting's value in its normal form.

    Raises:
        ConfigRefusedError: There is no such setting, or it cannot have this value.
    """
    if name == MIN_ISR_CONFIG and value is not None and value.isdecimal() and int(value) >= 1:
        return str(int(value))
    if name == UNCLEAN_ELECTION_CONFIG and value is not None and value.lower() in ("true", "false"):
        return value.lower()
    if name in SETTINGS:
        message = f"{name} cannot be {value!r}"
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
                    ErrorCode.INVALID_REQUEST, f"{key[1]!r} stands twice in the request"
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
        records=tuple(records), response=alter_configs_answer(tuple(results)), marks=tuple(marks)
    )


def alter_configs_answer(results: tuple[Any, ...]) -> Any:
    """Returns an answer with one result per resource."""
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
                ErrorCode.INVALID_REQUEST, f"{config.name} stands twice in the request"
            )
        records.append(_record(image, resource, config))
    # [ELR-9] Even if the value is what it was (KAFKA-16540).
    if MIN_ISR_CONFIG in names and policy.rules("ELR-9"):
        topic = resource.resource_name if resource.resource_type == TOPIC_RESOURCE else ""
        records.extend(_clear_elr(image, topic, policy))
    return records


def _check_resource(image: ClusterImage, resource: Any) -> None:
    if resource.resource_type == TOPIC_RESOURCE:
        if resource.resource_name not in image.topics_by_name:
            raise ConfigRefusedError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no topic {resource.resource_name!r}",
            )
    elif resource.resource_type != BROKER_RESOURCE or resource.resource_name != CLUSTER_DEFAULT:
        raise ConfigRefusedError(
            ErrorCode.INVALID_REQUEST,
            "only topics and the cluster's defaults (broker resource with an empty name) can be altered",
        )


def _record(image: ClusterImage, resource: Any, config: Any) -> ConfigRecord:
    if config.config_operation == SET:
        value: str | None = checked_config(config.name, config.value)
    elif config.config_operation == DELETE:
        if config.name not in SETTINGS:
            checked_config(config.name, None)  # refuses it by name
        # Without the value, brokers and controllers fall back on static ones, which need not agree.
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
            f"{config.name} is no list; only SET and DELETE are possible",
        )
    return ConfigRecord(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        name=config.name,
        value=value,
    )


def _clear_elr(image: ClusterImage, topic: str, policy: Policy) -> list[MetadataRecord]:
    """Returns what has to stand behind a change of min ISR in the same batch."""
    records: list[MetadataRecord] = []
    if image.elr_on:
        records.append(ClearElrRecord(topic_name=topic))
    # A leader that has not replayed the change must not have an ISR accepted: it would move its high watermark
    # under the old min ISR. A new partition epoch refuses it until it has.
    records.extend(
        PartitionChangeRecord(topic_id=key[0], partition_id=key[1])
        for key, registration in image.partitions.items()
        if topic in ("", registration.topic)
    )
    return records
