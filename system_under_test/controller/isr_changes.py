"""AlterPartition: a leader proposes an ISR, and the controller accepts or refuses it.

The checks and their order are Kafka's. The order matters to the leader: after `NOT_CONTROLLER` it tries another
controller, after `FENCED_LEADER_EPOCH` and `INVALID_UPDATE_VERSION` it waits for metadata with the proposal still
pending, and `INELIGIBLE_REPLICA` guarantees that nothing was applied (AP-4).
"""

from typing import Any

from system_under_test.controller.broker_changes import change_context
from system_under_test.controller.partition_change import PartitionChange, build_change
from system_under_test.controller.policy import Decision, Policy, mark
from system_under_test.metadata.image import ClusterImage, PartitionKey, PartitionRegistration
from system_under_test.metadata.records import RECOVERED, RECOVERING
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import alter_partition_response, millis

ANY_BROKER_EPOCH = -1


def alter_partition(image: ClusterImage, request: Any, policy: Policy) -> Decision:
    """Decides on an AlterPartitionRequest."""
    sender = image.brokers.get(request.broker_id)
    # [APC-1] A request of an earlier incarnation of the sender describes a log that no longer exists.
    if policy.rules("APC-1") and (sender is None or sender.broker_epoch != request.broker_epoch):
        return Decision(
            response=alter_partition_response_of(ErrorCode.STALE_BROKER_EPOCH),
            marks=(mark("alter-partition-of-stale-epoch", broker_id=request.broker_id),),
        )
    changes: list[PartitionChange] = []
    refusals = []
    topics = []
    seen: set[PartitionKey] = set()
    for topic in request.topics:
        partitions = []
        for proposal in topic.partitions:
            key = (topic.topic_id, proposal.partition_index)
            # A second proposal would be computed from the same registration and would not see the first.
            error = ErrorCode.INVALID_REQUEST if key in seen else ErrorCode.NONE
            seen.add(key)
            registration = image.partitions.get(key)
            error = error or validate(
                image, request.broker_id, topic.topic_id, proposal, registration, policy
            )
            if error is not ErrorCode.NONE or registration is None:
                refusals.append(
                    mark(
                        "alter-partition-refused",
                        broker_id=request.broker_id,
                        topic=registration.topic if registration is not None else "",
                        partition=proposal.partition_index,
                        error=error.name,
                    )
                )
                partitions.append(_refused(proposal.partition_index, error))
                continue
            change = _change(image, registration, proposal, policy)
            if change is not None:
                changes.append(change)
            after = registration if change is None else change.after
            partitions.append(_accepted(request.broker_id, after))
        topics.append(
            alter_partition_response.TopicData(
                topic_id=topic.topic_id, partitions=tuple(partitions)
            )
        )
    return Decision(
        records=tuple(change.record for change in changes),
        response=alter_partition_response_of(ErrorCode.NONE, tuple(topics)),
        marks=(*refusals, *(found for change in changes for found in change.marks())),
    )


def alter_partition_response_of(error: ErrorCode, topics: tuple[Any, ...] = ()) -> Any:
    """Returns the response to the whole request."""
    return alter_partition_response.AlterPartitionResponse(
        throttle_time=millis(0), error_code=error, topics=topics
    )


def validate(
    image: ClusterImage,
    sender_id: int,
    topic_id: Any,
    proposal: Any,
    registration: PartitionRegistration | None,
    policy: Policy,
) -> ErrorCode:
    """Returns the first error that applies, `NONE` for an acceptable proposal."""
    if registration is None:
        known = topic_id in image.topics
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known else ErrorCode.UNKNOWN_TOPIC_ID
    return (
        _validate_epochs(sender_id, proposal, registration, policy)
        or _validate_content(proposal, registration)
        or _validate_members(image, proposal, policy)
    )


def _validate_epochs(
    sender_id: int, proposal: Any, registration: PartitionRegistration, policy: Policy
) -> ErrorCode:
    # [APC-2] If two changes are computed from one state, the second does not know the effect of the first. A
    # higher partition epoch than the registered one is the opposite case: this controller is the one that is
    # behind.
    checks_partition_epoch = policy.rules("APC-2")
    if proposal.leader_epoch > registration.leader_epoch:
        return ErrorCode.NOT_CONTROLLER
    if checks_partition_epoch and proposal.partition_epoch > registration.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < registration.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender_id != registration.leader:
        return ErrorCode.INVALID_REQUEST
    if checks_partition_epoch and proposal.partition_epoch < registration.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return ErrorCode.NONE


def _validate_content(proposal: Any, registration: PartitionRegistration) -> ErrorCode:
    isr = [member.broker_id for member in proposal.new_isr_with_epochs]
    if len(set(isr)) != len(isr) or not set(isr) <= set(registration.replicas):
        return ErrorCode.INVALID_REQUEST
    if registration.leader not in isr:
        return ErrorCode.INVALID_REQUEST
    recovery_state = proposal.leader_recovery_state
    if recovery_state not in (RECOVERED, RECOVERING):
        return ErrorCode.INVALID_REQUEST
    if recovery_state == RECOVERING and len(isr) > 1:
        return ErrorCode.INVALID_REQUEST
    if recovery_state == RECOVERING and registration.leader_recovery_state == RECOVERED:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _validate_members(image: ClusterImage, proposal: Any, policy: Policy) -> ErrorCode:
    # [APC-3] Since KIP-841. [APC-3-EPOCH] Since KIP-903 the incarnation must be the one that the leader knows.
    checks_liveness = policy.rules("APC-3")
    checks_epoch = policy.features.isr_broker_epoch_check and policy.rules("APC-3-EPOCH")
    for member in proposal.new_isr_with_epochs:
        broker = image.brokers.get(member.broker_id)
        if checks_liveness and (broker is None or not broker.is_active):
            return ErrorCode.INELIGIBLE_REPLICA
        if member.broker_epoch == ANY_BROKER_EPOCH or not checks_epoch:
            continue
        if broker is None or member.broker_epoch != broker.broker_epoch:
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _change(
    image: ClusterImage, registration: PartitionRegistration, proposal: Any, policy: Policy
) -> PartitionChange | None:
    return build_change(
        registration,
        change_context(image, policy, registration),
        target_isr=tuple(member.broker_id for member in proposal.new_isr_with_epochs),
        target_recovery_state=proposal.leader_recovery_state,
    )


def _accepted(sender_id: int, after: PartitionRegistration) -> Any:
    # The change is written in any case; a sender that loses the leadership by it must not act on it.
    error = ErrorCode.NONE if after.leader == sender_id else ErrorCode.NEW_LEADER_ELECTED
    return alter_partition_response.PartitionData(
        partition_index=after.partition,
        error_code=error,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=after.isr,
        leader_recovery_state=after.leader_recovery_state,
        partition_epoch=after.partition_epoch,
    )


def _refused(partition: int, error: ErrorCode) -> Any:
    return alter_partition_response.PartitionData(
        partition_index=partition,
        error_code=error,
        leader_id=-1,
        leader_epoch=-1,
        partition_epoch=-1,
    )
