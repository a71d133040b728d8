"""Forwarding of administrative requests: clients may ask any broker, the active controller decides."""

import asyncio
from typing import Any

from system_under_test.broker.channel import Channel
from system_under_test.broker.tasks import TaskScope
from system_under_test.config import Timings
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    NO_THROTTLE,
    create_topics_request,
    create_topics_response,
    to_millis,
)


class TopicForwarder:
    """Forwards CreateTopics to the active controller, and asks again while there is none.

    A connection that broke leaves open whether the topic was created; the request is repeated all the same
    and may then be answered with TOPIC_ALREADY_EXISTS, as in Kafka.

    Args:
        channel: A channel to the active controller that nothing else uses.
        timings: The pause between attempts.
        scope: Runs one task per forwarded request; they are rare.
    """

    def __init__(self, channel: Channel, timings: Timings, scope: TaskScope) -> None:
        self.channel = channel
        self._pause_s = timings.alter_partition_retry_ms / 1000
        self._scope = scope

    def handle(
        self, request: create_topics_request.CreateTopicsRequest
    ) -> "asyncio.Future[create_topics_response.CreateTopicsResponse]":
        """Returns the future of the controller's answer, or of REQUEST_TIMED_OUT."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._scope.spawn(self._forward(request, answer), "forward-create-topics")
        return answer

    async def _forward(
        self, request: create_topics_request.CreateTopicsRequest, answer: "asyncio.Future[Any]"
    ) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + to_millis(request.timeout) / 1000
        response = None
        while response is None:
            remaining_ms = (deadline_s - loop.time()) * 1000
            if remaining_ms <= 0:
                response = refuse(request, ErrorCode.REQUEST_TIMED_OUT)
                break
            response = await self._attempt(request, remaining_ms)
            if response is None:
                await asyncio.sleep(self._pause_s)
        if not answer.done():
            answer.set_result(response)

    async def _attempt(
        self, request: create_topics_request.CreateTopicsRequest, timeout_ms: float
    ) -> Any:
        try:
            response = await self.channel.send(request, timeout_ms)
        except (ConnectionError, TimeoutError):
            return None
        if any(topic.error_code == ErrorCode.NOT_CONTROLLER for topic in response.topics):
            return None
        return response


def refuse(
    request: create_topics_request.CreateTopicsRequest, error: ErrorCode
) -> create_topics_response.CreateTopicsResponse:
    """Returns the answer that gives every topic of a request the same error."""
    return create_topics_response.CreateTopicsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            create_topics_response.CreatableTopicResult(
                name=topic.name, topic_id=None, error_code=error, error_message=None, configs=None
            )
            for topic in request.topics
        ),
    )
