"""Builds the responses of the transaction protocol as Kafka's messages."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    NO_THROTTLE,
    add_offsets_to_txn_response,
    add_partitions_to_txn_response,
    add_partitions_to_txns_response,
    end_txn_response,
    init_producer_id_response,
    write_txn_markers_response,
)


def init_producer_id(error: ErrorCode, producer_id: int = -1, producer_epoch: int = -1) -> Any:
    """Returns the response to InitProducerId."""
    return init_producer_id_response.InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=error,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def added_partitions(request: Any, error_of: Callable[[str, int], ErrorCode]) -> Any:
    """Returns the response to AddPartitionsToTxn of a producer.

    Args:
        request: The request.
        error_of: Returns the outcome for a topic's partition.
    """
    m = add_partitions_to_txn_response
    return m.AddPartitionsToTxnResponse(
        throttle_time=NO_THROTTLE,
        results_by_topic_v3_and_below=tuple(
            m.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    m.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=error_of(topic.name, index)
                    )
                    for index in topic.partitions
                ),
            )
            for topic in request.v3_and_below_topics
        ),
    )


def added_for_broker(wanted: Any, errors: Mapping[tuple[str, int], ErrorCode]) -> Any:
    """Returns the outcome of one transaction in an AddPartitionsToTxn request of a broker."""
    m = add_partitions_to_txns_response
    return m.AddPartitionsToTxnResult(
        transactional_id=wanted.transactional_id,
        topic_results=tuple(
            m.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    m.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=errors[(topic.name, index)]
                    )
                    for index in topic.partitions
                ),
            )
            for topic in wanted.topics
        ),
    )


def added_for_brokers(results: Iterable[Any]) -> Any:
    """Returns the response to AddPartitionsToTxn of a broker."""
    return add_partitions_to_txns_response.AddPartitionsToTxnResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.NONE,
        results_by_transaction=tuple(results),
    )


def added_offsets(error: ErrorCode) -> Any:
    """Returns the response to AddOffsetsToTxn."""
    return add_offsets_to_txn_response.AddOffsetsToTxnResponse(
        throttle_time=NO_THROTTLE, error_code=error
    )


def ended(error: ErrorCode, producer_id: int = -1, producer_epoch: int = -1) -> Any:
    """Returns the response to EndTxn; id and epoch are those of the next transaction."""
    return end_txn_response.EndTxnResponse(
        throttle_time=NO_THROTTLE,
        error_code=error,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def written_markers(request: Any, results: Mapping[tuple[int, str, int], ErrorCode]) -> Any:
    """Returns the response to WriteTxnMarkers.

    Args:
        request: The request.
        results: By the place of the marker in the request, topic and partition.
    """
    m = write_txn_markers_response
    return m.WriteTxnMarkersResponse(
        markers=tuple(
            m.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=tuple(
                    m.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=tuple(
                            m.WritableTxnMarkerPartitionResult(
                                partition_index=index,
                                error_code=results[(number, topic.name, index)],
                            )
                            for index in topic.partition_indexes
                        ),
                    )
                    for topic in marker.topics
                ),
            )
            for number, marker in enumerate(request.markers)
        )
    )
