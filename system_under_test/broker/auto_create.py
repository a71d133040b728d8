"""auto.create.topics.enable: a Metadata request may create the topics that it names.

The response reports the topic as unknown, as in Kafka; by the time the client tries again, it exists.
"""

import asyncio
from typing import Any

from system_under_test.broker.metadata_cache import OFFSETS_TOPIC, TRANSACTION_TOPIC
from system_under_test.config import NodeConfig
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    create_topics_request,
    metadata_request,
    metadata_response,
    millis,
)
from system_under_test.protocol.metadata_codec import METADATA_TOPIC

UNSPECIFIED = -1
INTERNAL_TOPICS = frozenset(
    {METADATA_TOPIC, OFFSETS_TOPIC, TRANSACTION_TOPIC, "__share_group_state"}
)
"""Topics that are created when a broker needs them, never because a client named them."""
TIMEOUT_MS = 10_000
UNDER_WAY_MAX = 100
"""Limit on the topics that are being created at the same time because clients named them."""


class AutoCreation:
    """Requests topics from the controller, each once at a time.

    Args:
        config: Whether topics are created, and with how many partitions.
        forward: Sends a CreateTopicsRequest to the active controller and returns the response, or a future of it.
    """

    def __init__(self, config: NodeConfig, forward: Any) -> None:
        self._is_enabled = config.auto_create_topics_enable
        self._partitions = config.num_partitions
        self._forward = forward
        self._under_way: dict[str, None] = {}

    def create_missing(
        self,
        request: metadata_request.MetadataRequest,
        response: metadata_response.MetadataResponse,
    ) -> None:
        """Creates the topics that a Metadata request named and that do not exist, if the request allows it."""
        if not self._is_enabled or not request.allow_auto_topic_creation:
            return
        for topic in response.topics:
            if (
                topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                and topic.name is not None
                and topic.name not in INTERNAL_TOPICS
                and topic.name not in self._under_way
                and len(self._under_way) < UNDER_WAY_MAX
            ):
                self._create(topic.name)

    def _create(self, name: str) -> None:
        self._under_way[name] = None
        response = self._forward(
            create_topics_request.CreateTopicsRequest(
                topics=(
                    create_topics_request.CreatableTopic(
                        name=name,
                        num_partitions=self._partitions,
                        replication_factor=UNSPECIFIED,
                        assignments=(),
                        configs=(),
                    ),
                ),
                timeout=millis(TIMEOUT_MS),
                validate_only=False,
            )
        )
        if isinstance(response, asyncio.Future):
            response.add_done_callback(lambda _: self._under_way.pop(name, None))
        else:
            self._under_way.pop(name, None)
