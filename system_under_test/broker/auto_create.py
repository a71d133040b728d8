"""auto.create.topics.enable: a Metadata request may create the topics that it asks for.

The answer says that the topic is unknown, as in Kafka; the client asks again, and by then it is there.
"""

import asyncio
from typing import Any

from system_under_test.broker.metadata_cache import OFFSETS_TOPIC
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
    {METADATA_TOPIC, OFFSETS_TOPIC, "__transaction_state", "__share_group_state"}
)
"""Those that come into being when they are needed, never because somebody asked for them."""
TIMEOUT_MS = 10_000
UNDER_WAY_MAX = 100
"""More topics than that are not created at once because somebody asked for them."""


class AutoCreation:
    """Asks the controller for topics, each once at a time.

    Args:
        config: Whether, and how many partitions and replicas.
        forward: Takes a CreateTopicsRequest to the active controller and returns its answer, or a future of it.
    """

    def __init__(self, config: NodeConfig, forward: Any) -> None:
        self._is_enabled = config.auto_create_topics_enable
        self._partitions = config.num_partitions
        self._forward = forward
        self._under_way: dict[str, None] = {}

    def look(
        self,
        request: metadata_request.MetadataRequest,
        response: metadata_response.MetadataResponse,
    ) -> None:
        """Asks for the topics that a Metadata request named in vain, if it wants that."""
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
        answer = self._forward(
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
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(lambda _: self._under_way.pop(name, None))
        else:
            self._under_way.pop(name, None)
