"""Responses that give every item of an administrative request the same error.

Brokers use them when they cannot forward a request, and controllers when they cannot decide about one.
"""

from collections.abc import Callable
from typing import Any

from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    NO_THROTTLE,
    alter_reassignments_request,
    alter_reassignments_response,
    create_partitions_request,
    create_partitions_response,
    elect_leaders_request,
    elect_leaders_response,
    list_reassignments_request,
    list_reassignments_response,
)


def _elect_leaders(request: Any, error: ErrorCode, message: str | None) -> Any:
    m = elect_leaders_response
    return m.ElectLeadersResponse(
        throttle_time=NO_THROTTLE,
        error_code=error,
        replica_election_results=tuple(
            m.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=tuple(
                    m.PartitionResult(partition_id=index, error_code=error, error_message=message)
                    for index in topic.partitions
                ),
            )
            for topic in request.topic_partitions or ()
        ),
    )


def _alter_reassignments(request: Any, error: ErrorCode, message: str | None) -> Any:
    m = alter_reassignments_response
    return m.AlterPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        error_code=error,
        error_message=message,
        responses=tuple(
            m.ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(
                    m.ReassignablePartitionResponse(
                        partition_index=one.partition_index,
                        error_code=error,
                        error_message=message,
                    )
                    for one in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _list_reassignments(_request: Any, error: ErrorCode, message: str | None) -> Any:
    return list_reassignments_response.ListPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE, error_code=error, error_message=message, topics=()
    )


def _create_partitions(request: Any, error: ErrorCode, message: str | None) -> Any:
    m = create_partitions_response
    return m.CreatePartitionsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            m.CreatePartitionsTopicResult(name=topic.name, error_code=error, error_message=message)
            for topic in request.topics
        ),
    )


_BUILDERS: dict[type[Any], Callable[[Any, ErrorCode, str | None], Any]] = {
    alter_reassignments_request.AlterPartitionReassignmentsRequest: _alter_reassignments,
    create_partitions_request.CreatePartitionsRequest: _create_partitions,
    elect_leaders_request.ElectLeadersRequest: _elect_leaders,
    list_reassignments_request.ListPartitionReassignmentsRequest: _list_reassignments,
}
REFUSABLE: tuple[type[Any], ...] = tuple(_BUILDERS)
"""The requests that `refused` knows."""


def refused(request: Any, error: ErrorCode, message: str | None = None) -> Any:
    """Returns the response to a request of one of the types in `REFUSABLE`."""
    return _BUILDERS[type(request)](request, error, message)


RESPONSES: tuple[type[Any], ...] = (
    alter_reassignments_response.AlterPartitionReassignmentsResponse,
    create_partitions_response.CreatePartitionsResponse,
    elect_leaders_response.ElectLeadersResponse,
    list_reassignments_response.ListPartitionReassignmentsResponse,
)
"""The responses to them."""


def errors_of(response: Any) -> list[ErrorCode]:
    """Returns the error of one of `RESPONSES`; where it has none for the whole request, those of its items."""
    if isinstance(response, create_partitions_response.CreatePartitionsResponse):
        return [topic.error_code for topic in response.results]
    return [response.error_code]
