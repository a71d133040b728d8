"""Sends the markers of decided transactions to the leaders of their partitions.

A marker is sent until the partition's leader confirms that it is committed, or until this broker does not
coordinate the transaction any more (TXN-8). A partition that was deleted needs none.

Source:
    Kafka's `TransactionMarkerChannelManager` and `TransactionMarkerRequestCompletionHandler`.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from system_under_test.broker.channel import Channel
from system_under_test.broker.metadata_cache import MetadataCache
from system_under_test.config import NodeConfig
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import write_txn_markers_request
from system_under_test.runtime import Host
from system_under_test.transaction.transaction import (
    TopicPartition,
    Transaction,
    TransactionState,
)

REQUEST_TIMEOUT_MS = 5000
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""A newer producer epoch or coordinator is known to the partition: this one has nothing left to do."""
_DONE = (ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)


class BrokerChannels:
    """One channel per broker for requests between coordinators and leaders.

    Args:
        host: The node's interfaces to the outside.
        config: Node id and timings.
        metadata: The addresses of the brokers.
        purpose: As in `Channel`.
    """

    def __init__(
        self, host: Host, config: NodeConfig, metadata: MetadataCache, purpose: str
    ) -> None:
        self._host = host
        self._timings = config.timings
        self._metadata = metadata
        self._purpose = purpose
        self._channels: dict[int, Channel] = {}

    async def send(self, broker_id: int, request: Any) -> Any:
        """Sends a request to a broker; returns the response, None if there was none."""
        channel = self._channels.get(broker_id)
        if channel is None:
            channel = self._channels[broker_id] = Channel(
                self._host,
                lambda: self._metadata.alive_address(broker_id),
                self._timings,
                f"{self._purpose}-{broker_id}",
            )
        try:
            return await channel.send(request, REQUEST_TIMEOUT_MS)
        except (ConnectionError, TimeoutError):
            return None

    def close(self) -> None:
        """Closes all connections."""
        for channel in self._channels.values():
            channel.close()


class MarkerSender:
    """Sends markers.

    Args:
        config: Node id, rules, timings.
        metadata: The leaders of the partitions.
        channels: To the other brokers.
        write_here: Serves a WriteTxnMarkersRequest on this broker.
    """

    def __init__(
        self,
        config: NodeConfig,
        metadata: MetadataCache,
        channels: BrokerChannels,
        write_here: Callable[[Any], Any],
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._channels = channels
        self._write_here = write_here

    async def send(
        self, transaction: Transaction, coordinator_epoch: int, *, is_current: Callable[[], bool]
    ) -> bool:
        """Sends the markers of a decided transaction to all of its partitions.

        Args:
            transaction: The transaction.
            coordinator_epoch: Of this coordinator.
            is_current: Whether this broker still coordinates it.

        Returns:
            Whether all partitions have their marker; False if this broker is not to continue.
        """
        left = list(transaction.partitions)
        while left and is_current():
            left = [one for one in left if self._metadata.has_partition(*one)]
            by_leader: dict[int, list[TopicPartition]] = {}
            for place in left:
                leader = self._leader_of(*place)
                if leader is not None:
                    by_leader.setdefault(leader, []).append(place)
            results: dict[TopicPartition, ErrorCode] = {}
            for found in await asyncio.gather(
                *(
                    self._send_to(leader, places, transaction, coordinator_epoch)
                    for leader, places in sorted(by_leader.items())
                )
            ):
                results.update(found)
            if any(error in _FENCED for error in results.values()):
                return False
            left = [one for one in left if results.get(one) not in _DONE]
            # TXN-8: without the rule a marker is sent once.
            if not self._config.rules("TXN-8"):
                return True
            if left:
                await asyncio.sleep(self._config.timings.transaction_marker_retry_ms / 1000)
        return is_current()

    def _leader_of(self, topic: str, index: int) -> int | None:
        registration = self._metadata.image.partition(topic, index)
        if registration is None or self._metadata.alive_address(registration.leader) is None:
            return None
        return registration.leader

    async def _send_to(
        self,
        leader: int,
        places: list[TopicPartition],
        transaction: Transaction,
        coordinator_epoch: int,
    ) -> dict[TopicPartition, ErrorCode]:
        by_topic: dict[str, list[int]] = {}
        for topic, index in places:
            by_topic.setdefault(topic, []).append(index)
        request = write_txn_markers_request.WriteTxnMarkersRequest(
            markers=(
                write_txn_markers_request.WritableTxnMarker(
                    producer_id=transaction.producer_id,
                    producer_epoch=transaction.producer_epoch,
                    transaction_result=transaction.state is TransactionState.PREPARE_COMMIT,
                    topics=tuple(
                        write_txn_markers_request.WritableTxnMarkerTopic(
                            name=topic, partition_indexes=tuple(indexes)
                        )
                        for topic, indexes in by_topic.items()
                    ),
                    coordinator_epoch=coordinator_epoch,
                    transaction_version=transaction.client_version,
                ),
            )
        )
        if leader == self._config.node_id:
            response = self._write_here(request)
            if isinstance(response, asyncio.Future):
                response = await response
        else:
            response = await self._channels.send(leader, request)
        if response is None:
            return {}
        return {
            (topic.name, one.partition_index): ErrorCode(one.error_code)
            for marker in response.markers
            for topic in marker.topics
            for one in topic.partitions
        }
