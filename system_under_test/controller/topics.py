"""CreateTopics and DeleteTopics: placement, the first ISR and the topic's configuration.

A topic is created by one atomic batch: its configurations, the topic, its partitions. Configurations come
first, so that no image has a partition with another min ISR than the requested one.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from system_under_test.controller.configs import (
    checked_config,
    checked_topic_configs,
)
from system_under_test.controller.policy import Decision, Policy, RequestRefusedError, mark
from system_under_test.metadata.directories import first_directories
from system_under_test.metadata.image import (
    TOPIC_NAME_LENGTH_MAX,
    TOPIC_RESOURCE,
    ClusterImage,
    TopicImage,
    is_legal_topic_name,
)
from system_under_test.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    create_topics_response,
    delete_topics_response,
    millis,
)
from system_under_test.protocol.metadata_codec import METADATA_TOPIC

PARTITION_COUNT_MAX = 10_000
"""Most partitions of one topic: Kafka's limit on the records of one batch, into which a topic must fit."""
UNSPECIFIED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewTopic:
    records: tuple[MetadataRecord, ...]
    topic_id: UUID
    partition_count: int
    replication_factor: int


def create_topics(
    image: ClusterImage, request: Any, new_topic_id: Callable[[], UUID], policy: Policy
) -> Decision:
    """Decides on a CreateTopicsRequest; every topic succeeds or fails on its own.

    Args:
        image: The latest image.
        request: A CreateTopicsRequest.
        new_topic_id: Draws a topic id; called once for each topic that is created.
        policy: The static part.
    """
    names = [topic.name for topic in request.topics]
    records: list[MetadataRecord] = []
    results = []
    created = []
    # A name that occurs twice gets one result.
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if names.count(topic.name) > 1:
                raise RequestRefusedError(
                    ErrorCode.INVALID_REQUEST, f"the request names topic {topic.name!r} twice"
                )
            new = _new_topic(image, topic, new_topic_id, policy)
        except RequestRefusedError as refused:
            results.append(topic_result(topic.name, refused.error, str(refused)))
            continue
        results.append(
            create_topics_response.CreatableTopicResult(
                name=topic.name,
                topic_id=new.topic_id,
                error_code=ErrorCode.NONE,
                error_message=None,
                num_partitions=new.partition_count,
                replication_factor=new.replication_factor,
                configs=(),
            )
        )
        if not request.validate_only:
            records.extend(new.records)
            created.append(mark("topic-created", topic=topic.name, partitions=new.partition_count))
    return Decision(
        records=tuple(records),
        response=create_topics_response_of(tuple(results)),
        marks=tuple(created),
    )


def create_topics_response_of(results: tuple[Any, ...]) -> Any:
    """Returns a response with one result per topic."""
    return create_topics_response.CreateTopicsResponse(throttle_time=millis(0), topics=results)


def delete_topics(image: ClusterImage, request: Any) -> Decision:
    """Decides on a DeleteTopicsRequest; every topic succeeds or fails on its own."""
    found = [_topic_to_delete(image, wanted) for wanted in request.topics]
    ids = [topic.topic_id for topic in found if isinstance(topic, TopicImage)]
    records = []
    results = []
    counts = Counter((wanted.name, wanted.topic_id) for wanted in request.topics)
    for wanted, topic in zip(request.topics, found, strict=True):
        count = counts.pop((wanted.name, wanted.topic_id), 0)
        if not count:
            continue  # it has its result
        if count > 1 and not isinstance(topic, TopicImage):
            topic = (ErrorCode.INVALID_REQUEST, "the request names the topic twice")
        if isinstance(topic, TopicImage) and ids.count(topic.topic_id) > 1:
            topic = (ErrorCode.INVALID_REQUEST, "the request names the topic twice")
        if isinstance(topic, TopicImage):
            records.append(RemoveTopicRecord(topic_id=topic.topic_id))
            results.append(delete_result(topic.name, topic.topic_id, ErrorCode.NONE, None))
        else:
            results.append(delete_result(wanted.name, wanted.topic_id, *topic))
    return Decision(
        records=tuple(records),
        response=delete_topics_response_of(tuple(results)),
        marks=tuple(mark("topic-deleted", topic_id=str(one.topic_id)) for one in records),
    )


def delete_topics_response_of(results: tuple[Any, ...]) -> Any:
    """Returns a response with one result per topic."""
    return delete_topics_response.DeleteTopicsResponse(throttle_time=millis(0), responses=results)


def delete_result(
    name: str | None, topic_id: UUID | None, error: ErrorCode, message: str | None
) -> Any:
    """Returns the result of deleting one topic."""
    return delete_topics_response.DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=error, error_message=message
    )


def _topic_to_delete(image: ClusterImage, wanted: Any) -> TopicImage | tuple[ErrorCode, str]:
    if wanted.name is not None and wanted.topic_id is not None:
        return ErrorCode.INVALID_REQUEST, "give the topic's name or its id, not both"
    if wanted.name is not None:
        named = image.topics_by_name.get(wanted.name)
        missing = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wanted.name!r}")
        return missing if named is None else named
    if wanted.topic_id is None:
        return ErrorCode.INVALID_REQUEST, "give the topic's name or its id"
    topic = image.topics.get(wanted.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {wanted.topic_id}"
    return topic


def topic_result(name: str, error: ErrorCode, message: str) -> Any:
    """Returns the result of a topic that was not created."""
    return create_topics_response.CreatableTopicResult(
        name=name, topic_id=None, error_code=error, error_message=message, configs=()
    )


def _new_topic(
    image: ClusterImage, topic: Any, new_topic_id: Callable[[], UUID], policy: Policy
) -> _NewTopic:
    _check_name(image, topic.name)
    configs = tuple(
        ConfigRecord(
            resource_type=TOPIC_RESOURCE,
            resource_name=topic.name,
            name=name,
            value=value,
        )
        for name, value in _checked_configs(topic, policy).items()
    )
    assignment = (
        _manual_assignment(image, topic)
        if topic.assignments
        else _round_robin_assignment(image, topic, policy)
    )
    topic_id = new_topic_id()
    partitions = tuple(
        partition_record(image, topic_id, index, replicas)
        for index, replicas in enumerate(assignment)
    )
    return _NewTopic(
        records=(*configs, TopicRecord(name=topic.name, topic_id=topic_id), *partitions),
        topic_id=topic_id,
        partition_count=len(assignment),
        replication_factor=len(assignment[0]),
    )


def _check_name(image: ClusterImage, name: str) -> None:
    if name == METADATA_TOPIC:
        # Its log would use the same files as the metadata log.
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"{name} is reserved for the cluster")
    if not is_legal_topic_name(name):
        raise RequestRefusedError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic name {name!r} is not 1 to {TOPIC_NAME_LENGTH_MAX} of a-z A-Z 0-9 . _ -",
        )
    if name in image.topics_by_name:
        raise RequestRefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
    if "." in name or "_" in name:
        # Metric names contain "_" for both characters, so such topics would share metrics.
        alike = name.replace(".", "_")
        for other in image.topics_by_name:
            if other.replace(".", "_") == alike:
                raise RequestRefusedError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"topic {name!r} collides with existing topic {other!r}",
                )


def _checked_configs(topic: Any, policy: Policy) -> dict[str, str]:
    """Returns the canonical values of a new topic's settings; of one that is named twice the last value."""
    values = {
        config.name: checked_config(config.name, config.value, policy) for config in topic.configs
    }
    checked_topic_configs(values)
    return values


def _manual_assignment(image: ClusterImage, topic: Any) -> list[tuple[int, ...]]:
    if topic.num_partitions != UNSPECIFIED or topic.replication_factor != UNSPECIFIED:
        raise RequestRefusedError(
            ErrorCode.INVALID_REQUEST,
            "with an assignment, partition count and replication factor must be -1",
        )
    by_index = {entry.partition_index: tuple(entry.broker_ids) for entry in topic.assignments}
    if sorted(by_index) != list(range(len(topic.assignments))):
        raise RequestRefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions must be numbered 0, 1, 2 ... once each",
        )
    assignment = [by_index[index] for index in range(len(by_index))]
    check_assignment(image, assignment, len(assignment[0]))
    return assignment


def check_assignment(
    image: ClusterImage, assignment: Sequence[Sequence[int]], replica_count: int, *, first: int = 0
) -> None:
    """Checks the replicas that a client chose for new partitions.

    Args:
        image: The cluster.
        assignment: The replicas of each new partition.
        replica_count: How many replicas each must have.
        first: Index of the first new partition.

    Raises:
        RequestRefusedError: A partition cannot have these replicas.
    """
    for index, replicas in enumerate(assignment, first):
        problem = assignment_problem(image, replicas, replica_count)
        if problem is not None:
            raise RequestRefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {index}: {problem}"
            )


def assignment_problem(
    image: ClusterImage, replicas: Sequence[int], replica_count: int
) -> str | None:
    """Returns why a new partition cannot have these replicas, None if it can."""
    if not replicas:
        return "it has no replicas"
    if len(set(replicas)) != len(replicas):
        return "it names a broker twice"
    if len(replicas) != replica_count:
        return "all partitions must have the same number of replicas"
    unknown = [broker_id for broker_id in replicas if broker_id not in image.brokers]
    if unknown:
        return f"broker {unknown[0]} is not registered"
    if not any(image.is_active(broker_id) for broker_id in replicas):
        return "none of its brokers is active"
    return None


def _round_robin_assignment(
    image: ClusterImage, topic: Any, policy: Policy
) -> list[tuple[int, ...]]:
    partition_count = topic.num_partitions
    if partition_count == UNSPECIFIED:
        partition_count = policy.default_partition_count
    if not 1 <= partition_count <= PARTITION_COUNT_MAX:
        raise RequestRefusedError(
            ErrorCode.INVALID_PARTITIONS,
            f"the partition count must be -1 or 1 to {PARTITION_COUNT_MAX}, not {partition_count}",
        )
    replica_count = topic.replication_factor
    if replica_count == UNSPECIFIED:
        replica_count = policy.default_replication_factor
    # Starting where the last topic ended also spreads topics with one partition.
    return place(image, len(image.partitions), partition_count, replica_count)


def place(
    image: ClusterImage, start: int, partition_count: int, replica_count: int
) -> list[tuple[int, ...]]:
    """Returns the replicas of new partitions, round robin.

    Args:
        image: The latest image.
        start: Where in the ring of brokers the first partition starts.
        partition_count: How many partitions.
        replica_count: How many replicas each of them has.

    Raises:
        RequestRefusedError: There are too few brokers.
    """
    active = [broker_id for broker_id in sorted(image.brokers) if image.is_active(broker_id)]
    others = [broker_id for broker_id in sorted(image.brokers) if not image.is_active(broker_id)]
    if not active or not 1 <= replica_count <= len(image.brokers):
        raise RequestRefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replica_count} is not possible with {len(image.brokers)} registered"
            f" brokers, {len(active)} of them active",
        )
    # Fenced brokers are used only if there are too few others, and then at the end of the list, so that every
    # partition has a leader.
    assignment = []
    for index in range(partition_count):
        shift = (start + index) % len(active)
        ring = active[shift:] + active[:shift] + others
        assignment.append(tuple(ring[:replica_count]))
    return assignment


def partition_record(
    image: ClusterImage, topic_id: UUID, index: int, replicas: tuple[int, ...]
) -> PartitionRecord:
    """Returns a new partition, whose ISR are all replicas that are active; at least one must be."""
    isr = tuple(broker_id for broker_id in replicas if image.is_active(broker_id))
    return PartitionRecord(
        topic_id=topic_id,
        partition_id=index,
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        directories=first_directories(image, replicas),
    )
