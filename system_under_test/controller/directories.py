"""Log directories of brokers: which replica is in which one, and what happens when one fails (KIP-858).

A broker reports the directories that it has when it registers, the directory of each of its replicas with
AssignReplicasToDirs, and a directory that failed with its next heartbeat.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from system_under_test.controller.broker_changes import change_context, remove_from_partitions
from system_under_test.controller.partition_change import PartitionChange, build_change
from system_under_test.controller.policy import Decision, Policy, mark
from system_under_test.metadata.directories import is_online, partitions_in, with_directory
from system_under_test.metadata.image import ClusterImage, PartitionKey, PartitionRegistration
from system_under_test.metadata.records import BrokerRegistrationChangeRecord
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import assign_replicas_to_dirs_response, millis


def directories_failed(
    image: ClusterImage,
    policy: Policy,
    broker_id: int,
    directories: Sequence[UUID | None],
    *,
    after: Decision,
) -> Decision:
    """Decides on directories that a broker reported as offline; those known to be offline change nothing.

    Args:
        image: The latest image.
        policy: The static part.
        broker_id: The registered broker that reported them.
        directories: Their ids.
        after: What the same heartbeat changes before.

    Returns:
        `after` with the changes of the directories appended.
    """
    broker = image.brokers[broker_id]
    failed = [directory for directory in broker.log_dirs if directory in directories]
    # [DIR-2] Nobody else would end a leadership that cannot serve, or let the high watermark move again.
    if not failed or not policy.rules("DIR-2"):
        return after
    if after.records:
        # Changes of the same partitions must build upon one another.
        image = image.copy()
        for offset, record in enumerate(after.records, image.last_offset + 1):
            image.replay(offset, record)
    changes = remove_from_partitions(
        image, policy, broker_id, partitions_in(image, broker_id, failed)
    )
    record = BrokerRegistrationChangeRecord(
        broker_id=broker_id,
        broker_epoch=broker.broker_epoch,
        log_dirs=tuple(one for one in broker.log_dirs if one not in failed),
    )
    reported = mark(
        "log-directory-offline", broker_id=broker_id, directories=[str(one) for one in failed]
    )
    return Decision(
        records=(*after.records, *(change.record for change in changes), record),
        marks=(
            *after.marks,
            reported,
            *(found for change in changes for found in change.marks()),
        ),
    )


def assign_replicas(image: ClusterImage, request: Any, policy: Policy) -> Decision:
    """Decides on an AssignReplicasToDirsRequest; every partition succeeds or fails on its own (DIR-5)."""
    sender = image.brokers.get(request.broker_id)
    if sender is None or sender.broker_epoch != request.broker_epoch:
        return Decision(
            response=assignment_response(ErrorCode.STALE_BROKER_EPOCH),
            marks=(mark("assignment-of-stale-epoch", broker_id=request.broker_id),),
        )
    # A partition that the request names twice is changed twice, one change after the other.
    latest: dict[PartitionKey, PartitionRegistration] = {}
    changes: list[PartitionChange] = []
    m = assign_replicas_to_dirs_response
    results = []
    for directory in request.directories:
        topics = []
        for topic in directory.topics:
            partitions = []
            for one in topic.partitions:
                key = (topic.topic_id, one.partition_index)
                registration = latest.get(key) or image.partitions.get(key)
                error = _refusal(image, topic.topic_id, registration, request.broker_id)
                if registration is not None and error is ErrorCode.NONE:
                    made = _assign(image, policy, registration, request.broker_id, directory.id_)
                    changes += made
                    latest[key] = made[-1].after if made else registration
                partitions.append(
                    m.PartitionData(partition_index=one.partition_index, error_code=error)
                )
            topics.append(m.TopicData(topic_id=topic.topic_id, partitions=tuple(partitions)))
        results.append(m.DirectoryData(id_=directory.id_, topics=tuple(topics)))
    return Decision(
        records=tuple(change.record for change in changes),
        response=assignment_response(ErrorCode.NONE, tuple(results)),
        marks=tuple(found for change in changes for found in change.marks()),
    )


def assignment_response(error: ErrorCode, directories: tuple[Any, ...] = ()) -> Any:
    """Returns the response to the whole request."""
    return assign_replicas_to_dirs_response.AssignReplicasToDirsResponse(
        throttle_time=millis(0), error_code=error, directories=directories
    )


def _refusal(
    image: ClusterImage,
    topic_id: UUID | None,
    registration: PartitionRegistration | None,
    broker_id: int,
) -> ErrorCode:
    if topic_id not in image.topics:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if registration is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in registration.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def _assign(
    image: ClusterImage,
    policy: Policy,
    registration: PartitionRegistration,
    broker_id: int,
    directory: UUID | None,
) -> list[PartitionChange]:
    """Returns the change that records a directory, and the one that follows if the directory is offline."""
    # The codec reads the all-zero uuid, a reserved id, as None.
    directory = directory or UUID(int=0)
    directories = with_directory(registration, broker_id, directory)
    # A replica whose directory is online again may end a time without a leader.
    context = change_context(image, policy, replace(registration, directories=directories))
    # [DIR-5] Without the switch the ELR would be emptied by a request that has nothing to do with it.
    if not policy.rules("DIR-5"):
        context = replace(context, elr_on=False)
    change = build_change(registration, context, target_directories=directories)
    after = registration if change is None else change.after
    changes = [] if change is None else [change]
    if not is_online(directory, image.brokers[broker_id].log_dirs):
        changes += remove_from_partitions(image, policy, broker_id, (after,))
    return changes
