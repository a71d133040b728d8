"""AlterPartitionReassignments and ListPartitionReassignments: other replicas for existing partitions (rules REAS).

A reassignment only begins here. Whichever change makes the ISR sufficient completes it (`partition_change.py`):
usually the leader's proposal to add the last new replica, or the first record itself if nothing is added.

Source:
    KIP-455; Kafka's `ReplicationControlManager.alterPartitionReassignments`.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

from system_under_test.controller.assignment import Assignment, begin, revert
from system_under_test.controller.broker_changes import change_context
from system_under_test.controller.partition_change import PartitionChange, build_change
from system_under_test.controller.policy import Decision, Policy, RequestRefusedError
from system_under_test.metadata.image import ClusterImage, PartitionRegistration
from system_under_test.metadata.records import NO_LEADER
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    NO_THROTTLE,
    alter_reassignments_response,
    list_reassignments_response,
)


def alter_reassignments(image: ClusterImage, request: Any, policy: Policy) -> Decision:
    """Decides on an AlterPartitionReassignmentsRequest; every partition succeeds or fails on its own."""
    counts = Counter(
        (topic.name, one.partition_index) for topic in request.topics for one in topic.partitions
    )
    changes: list[PartitionChange] = []
    topics = []
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            error = ErrorCode.NONE
            message: str | None = None
            try:
                # Both changes would be computed from one registration, and neither would know the other.
                if counts[topic.name, wanted.partition_index] > 1:
                    raise RequestRefusedError(
                        ErrorCode.INVALID_REQUEST, "the request names the partition twice"
                    )
                change = _change(image, request, topic.name, wanted, policy)
                changes += [] if change is None else [change]
            except RequestRefusedError as refusal:
                error, message = refusal.error, str(refusal)
            partitions.append(
                alter_reassignments_response.ReassignablePartitionResponse(
                    partition_index=wanted.partition_index, error_code=error, error_message=message
                )
            )
        topics.append(
            alter_reassignments_response.ReassignableTopicResponse(
                name=topic.name, partitions=tuple(partitions)
            )
        )
    return Decision(
        records=tuple(change.record for change in changes),
        response=alter_reassignments_response.AlterPartitionReassignmentsResponse(
            throttle_time=NO_THROTTLE,
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_code=ErrorCode.NONE,
            error_message=None,
            responses=tuple(topics),
        ),
        marks=tuple(found for change in changes for found in change.marks()),
    )


def list_reassignments(image: ClusterImage, request: Any, _policy: Policy) -> Decision:
    """Reports the reassignments in progress, of all partitions or of those that the request names."""
    if request.topics is None:
        wanted = list(image.partitions.values())
    else:
        named = [
            image.partition(topic.name, index)
            for topic in request.topics
            for index in topic.partition_indexes
        ]
        wanted = [registration for registration in named if registration is not None]
    topics: dict[str, list[Any]] = {}
    for registration in wanted:
        if Assignment.of(registration).is_changing:
            topics.setdefault(registration.topic, []).append(
                list_reassignments_response.OngoingPartitionReassignment(
                    partition_index=registration.partition,
                    replicas=registration.replicas,
                    adding_replicas=registration.adding_replicas,
                    removing_replicas=registration.removing_replicas,
                )
            )
    return Decision(
        response=list_reassignments_response.ListPartitionReassignmentsResponse(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.NONE,
            error_message=None,
            topics=tuple(
                list_reassignments_response.OngoingTopicReassignment(
                    name=name, partitions=tuple(partitions)
                )
                for name, partitions in topics.items()
            ),
        )
    )


def _change(
    image: ClusterImage, request: Any, topic: str, wanted: Any, policy: Policy
) -> PartitionChange | None:
    registration = image.partition(topic, wanted.partition_index)
    if registration is None:
        raise RequestRefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no partition {topic}-{wanted.partition_index}",
        )
    if wanted.replicas is None:
        return _cancel(image, registration, policy)
    target = tuple(wanted.replicas)
    _check_target(image, target)
    if not request.allow_replication_factor_change:
        _check_count(registration, target)
    # Kafka elects no leader uncleanly here, whatever the topic allows.
    context = replace(change_context(image, policy, registration), unclean_allowed=False)
    return build_change(registration, context, target_assignment=begin(registration, target))


def _check_target(image: ClusterImage, target: tuple[int, ...]) -> None:
    problem = ""
    if not target:
        problem = "the new replicas are empty; give null to cancel a reassignment"
    elif len(set(target)) != len(target):
        problem = "the new replicas name a broker twice"
    else:
        unknown = [broker_id for broker_id in target if broker_id not in image.brokers]
        if unknown:
            problem = f"broker {unknown[0]} is not registered"
    if problem:
        raise RequestRefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _check_count(registration: PartitionRegistration, target: tuple[int, ...]) -> None:
    """Refuses another number of replicas than the reassignment in progress leads to (KIP-860)."""
    count = len(Assignment.of(registration).target)
    if len(target) != count:
        raise RequestRefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the partition has {count} replicas, and the request does not allow to change that",
        )


def _cancel(
    image: ClusterImage, registration: PartitionRegistration, policy: Policy
) -> PartitionChange | None:
    """Returns the change that cancels a reassignment (REAS-3)."""
    if not Assignment.of(registration).is_changing:
        raise RequestRefusedError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress"
        )
    assignment, isr = revert(registration)
    context = change_context(image, policy, registration)
    if isr:
        return build_change(registration, context, target_isr=isr, target_assignment=assignment)
    # [REAS-3] Only an unclean election can give the partition a leader then, so the topic must allow it. Kafka
    # puts the first remaining replica into the ISR, alive or not, and does not flag that.
    if not context.unclean_allowed:
        raise RequestRefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "none of the replicas that would remain is in the ISR, and the topic allows no unclean election",
        )
    change = build_change(registration, context, target_isr=(), target_assignment=assignment)
    if change is None or change.after.leader == NO_LEADER:
        raise RequestRefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "none of the replicas that would remain is active"
        )
    return change
