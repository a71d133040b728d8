"""Produce for clients that identify topics by id (version 13, KIP-516): the ids are replaced by names and back.

A topic that was deleted and created again under the same name has another id; a batch for the old one gets
UNKNOWN_TOPIC_ID, so that it cannot get into the new one.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from system_under_test.broker.converted import converted
from system_under_test.protocol.entities import produced_partition
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    NO_THROTTLE,
    produce_by_id_response,
    produce_request,
)

TopicNameOf = Callable[[UUID], str | None]
"""Returns the name of a topic, None for an id that is unknown here."""

_NO_OFFSET = -1


class ProduceById:
    """Translates for a handler that uses names.

    Args:
        topic_name_of: The broker's metadata cache.
        produce: Serves the canonical request: returns the response, a future of it, or None with acks=0.
    """

    def __init__(self, topic_name_of: TopicNameOf, produce: Callable[[Any, int], Any]) -> None:
        self._topic_name_of = topic_name_of
        self._produce = produce

    def handle(self, request: Any, api_version: int = -1) -> Any:
        """Returns the response, a future of it, or None with acks=0.

        Args:
            request: What to append.
            api_version: The version of the request on the wire, -1 if it did not cross one.

        Raises:
            ConnectionAbortedError: An append with acks=0 failed.
        """
        ids: list[UUID | None] = []
        unknown = []
        topics = []
        for topic in request.topic_data:
            name = None if topic.topic_id is None else self._topic_name_of(topic.topic_id)
            if name is None:
                unknown.append(topic)
                continue
            ids.append(topic.topic_id)
            topics.append(
                produce_request.TopicProduceData(
                    name=name,
                    partition_data=tuple(
                        [
                            produce_request.PartitionProduceData(
                                index=one.index, records=one.records
                            )
                            for one in topic.partition_data
                        ]
                    ),
                )
            )
        response = self._produce(
            produce_request.ProduceRequest(
                transactional_id=request.transactional_id,
                acks=request.acks,
                timeout=request.timeout,
                topic_data=tuple(topics),
            ),
            api_version,
        )
        if response is None:
            if unknown:
                raise ConnectionAbortedError("an append without acknowledgement failed")
            return None
        return converted(response, lambda found: _by_id(found, ids, unknown))


def _by_id(response: Any, ids: list[UUID | None], unknown: list[Any]) -> Any:
    """Returns the response by ids; its topics are in the order of the request's."""
    responses = [
        _topic(topic_id, topic.partition_responses)
        for topic_id, topic in zip(ids, response.responses, strict=True)
    ]
    responses.extend(
        _topic(
            topic.topic_id,
            [
                produced_partition(one.index, ErrorCode.UNKNOWN_TOPIC_ID, _NO_OFFSET, _NO_OFFSET)
                for one in topic.partition_data
            ],
        )
        for topic in unknown
    )
    return produce_by_id_response.ProduceResponse(
        responses=tuple(responses), throttle_time=NO_THROTTLE
    )


def _topic(topic_id: UUID | None, partitions: Any) -> Any:
    return produce_by_id_response.TopicProduceResponse(
        topic_id=topic_id,
        partition_responses=tuple(
            [
                produce_by_id_response.PartitionProduceResponse(
                    index=one.index,
                    error_code=one.error_code,
                    base_offset=one.base_offset,
                    log_append_time=one.log_append_time,
                    log_start_offset=one.log_start_offset,
                    record_errors=(),
                    error_message=one.error_message,
                )
                for one in partitions
            ]
        ),
    )
