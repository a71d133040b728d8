"""DescribeProducers: what this broker's replicas know of producers and their open transactions (KIP-664).

Leaders and followers respond alike, as in Kafka: a follower keeps the same state (PID-4).
"""

from collections.abc import Mapping
from typing import Any

from system_under_test.broker.metadata_cache import MetadataCache
from system_under_test.broker.partition import Partition
from system_under_test.metadata.image import is_legal_topic_name
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import NO_THROTTLE, describe_producers_response


def describe_producers(
    metadata: MetadataCache, partitions: Mapping[tuple[str, int], Partition], request: Any
) -> Any:
    """Serves a DescribeProducersRequest.

    Args:
        metadata: The existing partitions.
        partitions: Those of this broker.
        request: Topics and partitions.

    Source:
        Kafka's `ReplicaManager.activeProducerState` and `UnifiedLog.activeProducers`.
    """
    return describe_producers_response.DescribeProducersResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            describe_producers_response.TopicResponse(
                name=topic.name,
                partitions=tuple(
                    _partition(metadata, partitions, topic.name, index)
                    for index in topic.partition_indexes
                ),
            )
            for topic in request.topics
        ),
    )


def _partition(
    metadata: MetadataCache, partitions: Mapping[tuple[str, int], Partition], topic: str, index: int
) -> Any:
    log = None
    error = ErrorCode.NONE
    partition = partitions.get((topic, index))
    if partition is not None:
        log = partition.log
        error = ErrorCode.KAFKA_STORAGE_ERROR if log is None else ErrorCode.NONE
    elif metadata.has_partition(topic, index):
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif is_legal_topic_name(topic):
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    return describe_producers_response.PartitionResponse(
        partition_index=index,
        error_code=error,
        active_producers=()
        if log is None
        else tuple(
            describe_producers_response.ProducerState(
                producer_id=one.producer_id,
                producer_epoch=one.epoch,
                last_sequence=one.last_sequence,
                last_timestamp=one.last_timestamp_ms,
                coordinator_epoch=one.coordinator_epoch,
                current_txn_start_offset=one.transaction_start_offset,
            )
            for one in log.producers.described()
        ),
    )
