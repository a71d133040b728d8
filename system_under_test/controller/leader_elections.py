"""ElectLeaders, and the automatic balancing of leaders: elections that no failure causes (rules EL-3, EL-4).

A preferred election moves the leadership to the first replica without removing the old leader from the ISR. The
automatic balancing does the same for every partition that its preferred leader does not lead. Kafka's threshold
`leader.imbalance.per.broker.percentage` has no effect with KRaft.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from system_under_test.controller.broker_changes import change_context
from system_under_test.controller.partition_change import PartitionChange, build_change
from system_under_test.controller.policy import Decision, Mark, Policy, mark
from system_under_test.metadata.image import ClusterImage, PartitionRegistration
from system_under_test.metadata.records import NO_LEADER
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import NO_THROTTLE, elect_leaders_response
from system_under_test.protocol.refusals import refused

PREFERRED, UNCLEAN = 0, 1
BALANCED_MAX = 1000
"""At most so many partitions get another leader in one run of the balancing; the next run follows at once."""


def elect_leaders(image: ClusterImage, request: Any, policy: Policy) -> Decision:
    """Decides on an ElectLeadersRequest; every partition succeeds or fails on its own."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        problem = f"there is no election type {request.election_type}"
        return Decision(response=refused(request, ErrorCode.INVALID_REQUEST, problem))
    is_unclean = request.election_type == UNCLEAN
    changes: list[PartitionChange] = []
    results: dict[str, list[Any]] = {}
    for topic, index in _wanted(image, request):
        outcome = _elect(image, topic, index, policy, is_unclean=is_unclean)
        error = ErrorCode.NONE
        message: str | None = None
        if isinstance(outcome, PartitionChange):
            changes.append(outcome)
        else:
            error, message = outcome
        result = results.setdefault(topic, [])
        # A request for all partitions reports only those that might have had an election.
        if request.topic_partitions is not None or error is not ErrorCode.ELECTION_NOT_NEEDED:
            result.append(
                elect_leaders_response.PartitionResult(
                    partition_id=index, error_code=error, error_message=message
                )
            )
    return Decision(
        records=tuple(change.record for change in changes),
        response=elect_leaders_response.ElectLeadersResponse(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.NONE,
            replica_election_results=tuple(
                elect_leaders_response.ReplicaElectionResult(
                    topic=topic, partition_result=tuple(partitions)
                )
                for topic, partitions in results.items()
            ),
        ),
        marks=_marks("leader-elected-on-request", changes),
    )


def balance_leaders(image: ClusterImage, policy: Policy) -> Decision:
    """Elects the preferred leaders that may lead, for at most `BALANCED_MAX` partitions (EL-4)."""
    changes: list[PartitionChange] = []
    for registration in image.imbalanced_partitions():
        change = _preferred(image, registration, policy)
        if change is not None:
            changes.append(change)
        if len(changes) >= BALANCED_MAX:
            break
    return Decision(
        records=tuple(change.record for change in changes),
        marks=_marks("leader-balanced", changes),
    )


def _wanted(image: ClusterImage, request: Any) -> Iterator[tuple[str, int]]:
    if request.topic_partitions is None:
        yield from ((one.topic, one.partition) for one in image.partitions.values())
        return
    for topic in request.topic_partitions:
        yield from ((topic.topic, index) for index in topic.partitions)


def _elect(
    image: ClusterImage, topic: str, index: int, policy: Policy, *, is_unclean: bool
) -> PartitionChange | tuple[ErrorCode, str | None]:
    registration = image.partition(topic, index)
    if registration is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}"
    if is_unclean:
        if registration.leader != NO_LEADER:
            return ErrorCode.ELECTION_NOT_NEEDED, None
        context = replace(change_context(image, policy, registration), unclean_allowed=True)
        change = build_change(registration, context)
        return change or (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, None)
    if registration.has_preferred_leader:
        return ErrorCode.ELECTION_NOT_NEEDED, None
    change = _preferred(image, registration, policy)
    return change or (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, None)


def _preferred(
    image: ClusterImage, registration: PartitionRegistration, policy: Policy
) -> PartitionChange | None:
    """Returns the change of a preferred election, which is never unclean, whatever the topic allows."""
    context = replace(
        change_context(image, policy, registration), prefers_first=True, unclean_allowed=False
    )
    return build_change(registration, context)


def _marks(name: str, changes: list[PartitionChange]) -> tuple[Mark, ...]:
    found: list[Mark] = []
    for change in changes:
        after = change.after
        found.append(mark(name, topic=after.topic, partition=after.partition, leader=after.leader))
        found.extend(change.marks())
    return tuple(found)
