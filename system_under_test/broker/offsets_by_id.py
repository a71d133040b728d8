"""OffsetCommit and OffsetFetch for clients that identify topics by id (version 10, KIP-848).

Offsets are stored under names, as in Kafka. An id is replaced by the name that the topic has now. An unknown id
gets UNKNOWN_TOPIC_ID for each of its partitions.
"""

from collections.abc import Callable
from typing import Any

from system_under_test.broker.converted import converted
from system_under_test.broker.metadata_cache import MetadataCache
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    offset_commit_by_id_request,
    offset_commit_by_id_response,
    offset_commit_request,
    offset_fetch_by_id_request,
    offset_fetch_by_id_response,
    offset_fetch_request,
)
from system_under_test.runtime import RequestContext

Handler = Callable[[Any, RequestContext], Any]
NO_OFFSET = -1


class OffsetsById:
    """Translates for handlers that use names.

    Args:
        metadata: Names and ids of topics.
        commit: Serves OffsetCommit by name.
        fetch: Serves OffsetFetch by name.
    """

    def __init__(self, metadata: MetadataCache, commit: Handler, fetch: Handler) -> None:
        self._metadata = metadata
        self._commit_by_name = commit
        self._fetch_by_name = fetch

    def services(self) -> dict[type, Handler]:
        """Returns the handler of every type of request."""
        return {
            offset_commit_by_id_request.OffsetCommitRequest: self._commit,
            offset_fetch_by_id_request.OffsetFetchRequest: self._fetch,
        }

    def _name(self, topic: Any) -> str | None:
        return None if topic.topic_id is None else self._metadata.topic_name(topic.topic_id)

    # --- OffsetCommit ----------------------------------------------------------------------------------

    def _commit(self, request: Any, context: RequestContext) -> Any:
        known = [(name, topic) for topic in request.topics if (name := self._name(topic))]
        response = self._commit_by_name(
            offset_commit_request.OffsetCommitRequest(
                group_id=request.group_id,
                generation_id_or_member_epoch=request.generation_id_or_member_epoch,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                topics=tuple(_committed_topic(name, topic) for name, topic in known),
            ),
            context,
        )
        return converted(response, lambda found: self._committed(request, known, found))

    def _committed(self, request: Any, known: list[tuple[str, Any]], found: Any) -> Any:
        schema = offset_commit_by_id_response
        errors = {
            id(topic): [one.error_code for one in result.partitions]
            for (_, topic), result in zip(known, found.topics, strict=True)
        }
        return schema.OffsetCommitResponse(
            throttle_time=found.throttle_time,
            topics=tuple(
                schema.OffsetCommitResponseTopic(
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        schema.OffsetCommitResponsePartition(
                            partition_index=one.partition_index, error_code=error
                        )
                        for one, error in zip(
                            topic.partitions,
                            errors.get(
                                id(topic), [ErrorCode.UNKNOWN_TOPIC_ID] * len(topic.partitions)
                            ),
                            strict=True,
                        )
                    ),
                )
                for topic in request.topics
            ),
        )

    # --- OffsetFetch -----------------------------------------------------------------------------------

    def _fetch(self, request: Any, context: RequestContext) -> Any:
        schema = offset_fetch_request
        groups = tuple(
            schema.OffsetFetchRequestGroup(
                group_id=group.group_id,
                member_id=group.member_id,
                member_epoch=group.member_epoch,
                topics=None
                if group.topics is None
                else tuple(
                    schema.OffsetFetchRequestTopics(
                        name=name, partition_indexes=topic.partition_indexes
                    )
                    for topic in group.topics
                    if (name := self._name(topic))
                ),
            )
            for group in request.groups
        )
        response = self._fetch_by_name(
            schema.OffsetFetchRequest(groups=groups, require_stable=request.require_stable), context
        )
        return converted(response, lambda found: self._fetched(request, found))

    def _fetched(self, request: Any, found: Any) -> Any:
        schema = offset_fetch_by_id_response
        return schema.OffsetFetchResponse(
            throttle_time=found.throttle_time,
            groups=tuple(
                schema.OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    topics=(*self._found_topics(group), *self._missing_topics(wanted, group)),
                    error_code=group.error_code,
                )
                for wanted, group in zip(request.groups, found.groups, strict=True)
            ),
        )

    def _found_topics(self, group: Any) -> list[Any]:
        schema = offset_fetch_by_id_response
        topics = []
        for topic in group.topics:
            topic_id = self._metadata.topic_id(topic.name)
            if topic_id is None:
                continue  # deleted a moment ago; a response by id cannot name it
            partitions = tuple(
                schema.OffsetFetchResponsePartitions(
                    partition_index=one.partition_index,
                    committed_offset=one.committed_offset,
                    committed_leader_epoch=one.committed_leader_epoch,
                    metadata=one.metadata,
                    error_code=one.error_code,
                )
                for one in topic.partitions
            )
            topics.append(
                schema.OffsetFetchResponseTopics(topic_id=topic_id, partitions=partitions)
            )
        return topics

    def _missing_topics(self, wanted: Any, group: Any) -> list[Any]:
        if group.error_code != ErrorCode.NONE:
            return []
        schema = offset_fetch_by_id_response
        return [
            schema.OffsetFetchResponseTopics(
                topic_id=topic.topic_id,
                partitions=tuple(
                    schema.OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=NO_OFFSET,
                        metadata="",
                        error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                    )
                    for index in topic.partition_indexes
                ),
            )
            for topic in wanted.topics or ()
            if self._name(topic) is None
        ]


def _committed_topic(name: str, topic: Any) -> Any:
    return offset_commit_request.OffsetCommitRequestTopic(
        name=name,
        partitions=tuple(
            offset_commit_request.OffsetCommitRequestPartition(
                partition_index=one.partition_index,
                committed_offset=one.committed_offset,
                committed_leader_epoch=one.committed_leader_epoch,
                committed_metadata=one.committed_metadata,
            )
            for one in topic.partitions
        ),
    )
