"""An internal topic whose partitions have coordinators: finds the coordinator of a key, creates the topic."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from system_under_test.broker.metadata_cache import MetadataCache
from system_under_test.group import responses
from system_under_test.group.records import offsets_partition
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import create_topics_request, millis

CREATE_TIMEOUT_MS = 10_000


class InternalTopic:
    """One internal topic.

    Args:
        name: Of the topic.
        metadata: The existing topics, and the brokers that are alive.
        forward: Sends a CreateTopicsRequest to the active controller.
        num_partitions: How many partitions it gets.
        replication_factor: Its replication factor. As in Kafka there is no coordinator until so many brokers have
            registered.
        configs: Its settings as (name, value).
    """

    def __init__(
        self,
        name: str,
        metadata: MetadataCache,
        forward: Callable[[Any], Any],
        *,
        num_partitions: int,
        replication_factor: int,
        configs: Sequence[tuple[str, str]],
    ) -> None:
        self._name = name
        self._metadata = metadata
        self._forward = forward
        self._request = create_topics_request.CreateTopicsRequest(
            topics=(
                create_topics_request.CreatableTopic(
                    name=name,
                    num_partitions=num_partitions,
                    replication_factor=replication_factor,
                    assignments=(),
                    configs=tuple(
                        create_topics_request.CreatableTopicConfig(name=key, value=value)
                        for key, value in configs
                    ),
                ),
            ),
            timeout=millis(CREATE_TIMEOUT_MS),
            validate_only=False,
        )
        self._creation: asyncio.Future[Any] | None = None

    def partition_count(self) -> int:
        """Returns the number of partitions, 0 while the topic does not exist."""
        topic = self._metadata.image.topics_by_name.get(self._name)
        return 0 if topic is None else len(self._metadata.image.partitions_of(topic.topic_id))

    def leader_of(self, key: str) -> int | None:
        """Returns the broker that leads the partition of a key, None if it is not known."""
        image = self._metadata.image
        topic = image.topics_by_name.get(self._name)
        if topic is None:
            return None
        index = offsets_partition(key, len(image.partitions_of(topic.topic_id)))
        leader = image.partitions[(topic.topic_id, index)].leader
        return leader if self._metadata.alive_address(leader) is not None else None

    def coordinator(self, key: str) -> Any:
        """Returns the coordinator of a key for a FindCoordinator response; creates the topic if there is none."""
        if not self.partition_count():
            self._create()
        leader = self.leader_of(key)
        address = None if leader is None else self._metadata.alive_address(leader)
        if leader is None or address is None:
            return responses.coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return responses.coordinator(key, ErrorCode.NONE, leader, address)

    def _create(self) -> None:
        if self._creation is None or self._creation.done():
            response = self._forward(self._request)
            self._creation = response if isinstance(response, asyncio.Future) else None
