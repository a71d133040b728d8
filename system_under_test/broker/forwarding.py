"""Forwarding of administrative requests: clients may send them to any broker, the active controller decides.

When a connection breaks, the request may or may not have been executed. It is repeated all the same, and may then
find its own effect (TOPIC_ALREADY_EXISTS), as in Kafka.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from system_under_test.broker.channel import Channel
from system_under_test.broker.tasks import TaskScope
from system_under_test.config import Timings
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    NO_THROTTLE,
    create_topics_request,
    create_topics_response,
    delete_topics_request,
    delete_topics_response,
    describe_quorum_request,
    describe_quorum_response,
    incremental_alter_configs_request,
    incremental_alter_configs_response,
    to_millis,
)
from system_under_test.protocol.refusals import REFUSABLE, RESPONSES, errors_of, refused

DEFAULT_TIMEOUT_MS = 30_000
"""For requests without a timeout; Kafka's request.timeout.ms."""
IN_FLIGHT_MAX = 1000
"""At most so many forwarded requests wait in one broker; further ones are refused."""
_CONTROLLER_MOVED = (ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class ControllerForwarder:
    """Forwards to the active controller, and retries while there is none.

    Args:
        channel: A channel to the active controller that nothing else uses.
        timings: The pause between attempts.
        scope: Runs one task per forwarded request; they are rare.
    """

    def __init__(self, channel: Channel, timings: Timings, scope: TaskScope) -> None:
        self.channel = channel
        self._pause_s = timings.alter_partition_retry_ms / 1000
        self._scope = scope
        self._in_flight = 0

    def handle(self, request: Any) -> Any:
        """Returns the future of the controller's response, or of REQUEST_TIMED_OUT."""
        if self._in_flight >= IN_FLIGHT_MAX:
            return refuse(request, ErrorCode.REQUEST_TIMED_OUT)
        self._in_flight += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._scope.spawn(self._forward(request, future), "forward")
        return future

    async def _forward(self, request: Any, future: "asyncio.Future[Any]") -> None:
        try:
            loop = asyncio.get_running_loop()
            deadline_s = loop.time() + _timeout_ms(request) / 1000
            response = None
            while response is None:
                remaining_ms = (deadline_s - loop.time()) * 1000
                if remaining_ms <= 0:
                    response = refuse(request, ErrorCode.REQUEST_TIMED_OUT)
                    break
                response = await self._attempt(request, remaining_ms)
                if response is None:
                    await asyncio.sleep(self._pause_s)
            if not future.done():
                future.set_result(response)
        finally:
            self._in_flight -= 1

    async def _attempt(self, request: Any, timeout_ms: float) -> Any:
        try:
            response = await self.channel.send(request, timeout_ms)
        except (ConnectionError, TimeoutError):
            return None
        if any(error in _CONTROLLER_MOVED for error in _errors(response)):
            return None
        return response


def _timeout_ms(request: Any) -> float:
    timeout = getattr(request, "timeout", None)
    return DEFAULT_TIMEOUT_MS if timeout is None else to_millis(timeout)


def _errors(response: Any) -> list[ErrorCode]:
    """Returns the error of every item of a response."""
    if isinstance(response, create_topics_response.CreateTopicsResponse):
        return [topic.error_code for topic in response.topics]
    if isinstance(response, RESPONSES):
        return errors_of(response)
    if isinstance(response, describe_quorum_response.DescribeQuorumResponse):
        return [one.error_code for topic in response.topics for one in topic.partitions]
    return [one.error_code for one in response.responses]


def _refuse_create_topics(request: Any, error: ErrorCode) -> Any:
    return create_topics_response.CreateTopicsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            create_topics_response.CreatableTopicResult(
                name=topic.name, topic_id=None, error_code=error, error_message=None, configs=None
            )
            for topic in request.topics
        ),
    )


def _refuse_delete_topics(request: Any, error: ErrorCode) -> Any:
    return delete_topics_response.DeleteTopicsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(
            delete_topics_response.DeletableTopicResult(
                name=topic.name, topic_id=topic.topic_id, error_code=error, error_message=None
            )
            for topic in request.topics
        ),
    )


def _refuse_alter_configs(request: Any, error: ErrorCode) -> Any:
    return incremental_alter_configs_response.IncrementalAlterConfigsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(
            incremental_alter_configs_response.AlterConfigsResourceResponse(
                error_code=error,
                error_message=None,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            for one in request.resources
        ),
    )


def _refuse_describe_quorum(_request: Any, error: ErrorCode) -> Any:
    return describe_quorum_response.DescribeQuorumResponse(
        error_code=error, error_message=None, topics=(), nodes=()
    )


_REFUSALS: dict[type[Any], Callable[[Any, ErrorCode], Any]] = {
    create_topics_request.CreateTopicsRequest: _refuse_create_topics,
    delete_topics_request.DeleteTopicsRequest: _refuse_delete_topics,
    incremental_alter_configs_request.IncrementalAlterConfigsRequest: _refuse_alter_configs,
    describe_quorum_request.DescribeQuorumRequest: _refuse_describe_quorum,
    **dict.fromkeys(REFUSABLE, refused),
}
FORWARDED: tuple[type[Any], ...] = tuple(_REFUSALS)
"""Requests that a broker forwards."""


def refuse(request: Any, error: ErrorCode) -> Any:
    """Returns the response that gives every item of a request the same error."""
    return _REFUSALS[type(request)](request, error)
