"""Fetch for clients that name topics (versions 4 to 12): translated to ids, and the response back to names.

The topic may be deleted and created again while the request is parked; the response is about the topic that had
the name when the request arrived. Forgotten topics belong to sessions, which are declined (`fetch.py`). The rack
of the client is ignored: no broker has one.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from system_under_test.broker.converted import converted
from system_under_test.protocol.entities import fetch_partition, fetch_topic
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    fetch_by_name_request,
    fetch_by_name_response,
    fetch_request,
)

TopicIdOf = Callable[[str], UUID | None]
"""Returns the id of a topic, None for one that is unknown here."""

FOLLOWERS_SERVE_SINCE = 11
"""The version since which consumers may read from followers (KIP-392)."""

_NO_OFFSET = -1
_NO_TIME = timedelta(0)


class FetchByName:
    """Translates for a handler that uses topic ids.

    Args:
        topic_id_of: The broker's metadata cache.
        fetch: Serves the canonical request, now or later.
    """

    def __init__(self, topic_id_of: TopicIdOf, fetch: Callable[..., Any]) -> None:
        self._topic_id_of = topic_id_of
        self._fetch = fetch

    def handle(self, request: fetch_by_name_request.FetchRequest, api_version: int = -1) -> Any:
        """Returns the response, or a future of it.

        Args:
            request: What to fetch.
            api_version: The version of the request on the wire, -1 if it did not cross one.
        """
        names: dict[UUID, str] = {}
        unknown = []
        topics = []
        for topic in request.topics:
            topic_id = self._topic_id_of(topic.topic)
            if topic_id is None:
                unknown.append(topic)
                continue
            names[topic_id] = topic.topic
            topics.append(_by_id(topic_id, topic))
        canonical = fetch_request.FetchRequest(
            replica_state=fetch_request.ReplicaState(
                replica_id=request.replica_id, replica_epoch=-1
            ),
            # An error is reported at once, even if other partitions have nothing to read yet.
            max_wait=request.max_wait if not unknown else _NO_TIME,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            isolation_level=request.isolation_level,
            session_id=request.session_id,
            session_epoch=request.session_epoch,
            topics=tuple(topics),
            forgotten_topics_data=(),
            rack_id=request.rack_id,
        )
        response = self._fetch(
            canonical, knows_followers_serve=not 0 <= api_version < FOLLOWERS_SERVE_SINCE
        )
        return converted(response, lambda found: _named(found, names, unknown))


def _by_id(topic_id: UUID, topic: Any) -> Any:
    return fetch_topic(
        topic_id,
        tuple(
            [
                fetch_partition(
                    wanted.partition,
                    wanted.current_leader_epoch,
                    wanted.fetch_offset,
                    wanted.partition_max_bytes,
                    wanted.last_fetched_epoch,
                    wanted.log_start_offset,
                )
                for wanted in topic.partitions
            ]
        ),
    )


def _named(response: Any, names: dict[UUID, str], unknown: list[Any]) -> Any:
    if response.error_code != ErrorCode.NONE:
        unknown = []  # an error of the session is not about topics
    responses = [
        fetch_by_name_response.FetchableTopicResponse(
            topic=names[topic.topic_id],
            partitions=tuple(_partition(one) for one in topic.partitions),
        )
        for topic in response.responses
    ]
    responses.extend(
        fetch_by_name_response.FetchableTopicResponse(
            topic=topic.topic,
            partitions=tuple(
                fetch_by_name_response.PartitionData(
                    partition_index=wanted.partition,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    high_watermark=_NO_OFFSET,
                    aborted_transactions=None,
                    records=b"",
                )
                for wanted in topic.partitions
            ),
        )
        for topic in unknown
    )
    return fetch_by_name_response.FetchResponse(
        throttle_time=response.throttle_time,
        error_code=response.error_code,
        session_id=response.session_id,
        responses=tuple(responses),
    )


def _partition(one: Any) -> Any:
    error = one.error_code
    if error in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID):
        error = (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )  # the client named topics and does not know ids
    return fetch_by_name_response.PartitionData(
        partition_index=one.partition_index,
        error_code=error,
        high_watermark=one.high_watermark,
        last_stable_offset=one.last_stable_offset,
        log_start_offset=one.log_start_offset,
        aborted_transactions=one.aborted_transactions,
        preferred_read_replica=one.preferred_read_replica,
        diverging_epoch=fetch_by_name_response.EpochEndOffset(
            epoch=one.diverging_epoch.epoch, end_offset=one.diverging_epoch.end_offset
        ),
        # The current leader is for versions from 16 on, though version 12 has the field (KIP-951).
        records=one.records,
    )
