"""AllocateProducerIds: a broker gets its own block of producer ids (KIP-730).

The next free id is in the metadata log, so no id is assigned twice, not even by different controllers.
"""

from typing import Any

from system_under_test.controller.policy import Decision, Policy
from system_under_test.metadata.image import ClusterImage
from system_under_test.metadata.records import ProducerIdsRecord
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import NO_THROTTLE, allocate_producer_ids_response

BLOCK_SIZE = 1000
"""Kafka's ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE."""
LAST_BLOCK_START = 2**63 - 1 - BLOCK_SIZE


def allocate_producer_ids(image: ClusterImage, request: Any, policy: Policy) -> Decision:
    """Decides on an AllocateProducerIdsRequest."""
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        return Decision(response=producer_ids_response(ErrorCode.BROKER_ID_NOT_REGISTERED))
    if broker.broker_epoch != request.broker_epoch:
        return Decision(response=producer_ids_response(ErrorCode.STALE_BROKER_EPOCH))
    first = image.next_producer_id
    if first > LAST_BLOCK_START:
        return Decision(response=producer_ids_response(ErrorCode.UNKNOWN_SERVER_ERROR))
    return Decision(
        records=(
            ProducerIdsRecord(
                broker_id=request.broker_id,
                broker_epoch=request.broker_epoch,
                next_producer_id=first + BLOCK_SIZE,
            ),
        ),
        response=producer_ids_response(ErrorCode.NONE, first=first, count=BLOCK_SIZE),
    )


def producer_ids_response(error: ErrorCode, *, first: int = -1, count: int = 0) -> Any:
    """Returns a response with a block, or with an error."""
    return allocate_producer_ids_response.AllocateProducerIdsResponse(
        throttle_time=NO_THROTTLE,
        error_code=error,
        producer_id_start=first,
        producer_id_len=count,
    )
