"""CreatePartitions: more partitions for an existing topic.

Source:
    KIP-195; Kafka's `ReplicationControlManager.createPartitions`.
"""

from collections import Counter
from typing import Any

from system_under_test.controller.policy import Decision, Policy, RequestRefusedError, mark
from system_under_test.controller.topics import (
    PARTITION_COUNT_MAX,
    check_assignment,
    partition_record,
    place,
)
from system_under_test.metadata.image import ClusterImage
from system_under_test.metadata.records import PartitionRecord
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import NO_THROTTLE, create_partitions_response


def create_partitions(image: ClusterImage, request: Any, _policy: Policy) -> Decision:
    """Decides on a CreatePartitionsRequest; every topic succeeds or fails on its own."""
    counts = Counter(topic.name for topic in request.topics)
    records: list[PartitionRecord] = []
    results = []
    marks = []
    # A name that occurs twice gets one result.
    for topic in {topic.name: topic for topic in request.topics}.values():
        error = ErrorCode.NONE
        message: str | None = None
        try:
            if counts[topic.name] > 1:
                raise RequestRefusedError(
                    ErrorCode.INVALID_REQUEST, f"the request names topic {topic.name!r} twice"
                )
            new = _new_partitions(image, topic)
            if not request.validate_only:
                records.extend(new)
                marks.append(mark("partitions-created", topic=topic.name, partitions=len(new)))
        except RequestRefusedError as refusal:
            error, message = refusal.error, str(refusal)
        results.append(
            create_partitions_response.CreatePartitionsTopicResult(
                name=topic.name, error_code=error, error_message=message
            )
        )
    return Decision(
        records=tuple(records),
        response=create_partitions_response.CreatePartitionsResponse(
            throttle_time=NO_THROTTLE, results=tuple(results)
        ),
        marks=tuple(marks),
    )


def _new_partitions(image: ClusterImage, topic: Any) -> tuple[PartitionRecord, ...]:
    named = image.topics_by_name.get(topic.name)
    if named is None:
        raise RequestRefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic.name!r}"
        )
    existing = image.partitions_of(named.topic_id)
    count = topic.count - len(existing)
    if count <= 0:
        raise RequestRefusedError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} has {len(existing)} partitions; {topic.count} are not more",
        )
    if topic.count > PARTITION_COUNT_MAX:
        raise RequestRefusedError(
            ErrorCode.INVALID_PARTITIONS, f"a topic has at most {PARTITION_COUNT_MAX} partitions"
        )
    # As in Kafka, the first partition decides, although reassignments may have given others another number.
    replica_count = len(existing[0].replicas)
    if topic.assignments is None:
        assignment = place(image, len(existing), count, replica_count)
    else:
        assignment = _manual(image, topic, count, replica_count, first=len(existing))
    return tuple(
        partition_record(image, named.topic_id, index, replicas)
        for index, replicas in enumerate(assignment, len(existing))
    )


def _manual(
    image: ClusterImage, topic: Any, count: int, replica_count: int, *, first: int
) -> list[tuple[int, ...]]:
    if len(topic.assignments) != count:
        raise RequestRefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{count} partitions are to be added, but {len(topic.assignments)} assignments were given",
        )
    assignment = [tuple(one.broker_ids) for one in topic.assignments]
    check_assignment(image, assignment, replica_count, first=first)
    return assignment
