"""WriteTxnMarkers: appends the markers of transactions to the partitions that this broker leads.

Like an append with acks=all, a marker is confirmed when the high watermark has passed it. The marker for a
partition of `__consumer_offsets` also decides on the offsets that the transaction committed.

Source:
    Kafka's `KafkaApis.handleWriteTxnMarkersRequest`.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from system_under_test.broker.committed_append import CommittedAppend
from system_under_test.broker.metadata_cache import OFFSETS_TOPIC
from system_under_test.broker.partition import ACKS_ALL, Partition
from system_under_test.broker.replica_manager import ReplicaManager
from system_under_test.log.producer_state import ProducerRefusedError
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.control_records import Marker, encode_marker
from system_under_test.protocol.errors import ErrorCode
from system_under_test.runtime import Host, RequestContext
from system_under_test.transaction import responses
from system_under_test.transaction.transaction import BUMPS_EPOCHS

APPEND_TIMEOUT_MS = 5000
OffsetsDecided = Callable[[int, int, bool], None]
"""Called with a partition of `__consumer_offsets`, a producer id, and whether its transaction was committed."""


class MarkerWriter:
    """Serves WriteTxnMarkers.

    Args:
        host: The node's interfaces to the outside.
        replicas: The partitions of this broker.
        on_offsets_decided: Called when a marker in `__consumer_offsets` is committed.
    """

    def __init__(
        self, host: Host, replicas: ReplicaManager, on_offsets_decided: OffsetsDecided
    ) -> None:
        self._host = host
        self._replicas = replicas
        self._on_offsets_decided = on_offsets_decided

    def handle(self, request: Any, _context: RequestContext | None = None) -> Any:
        """Appends the markers; returns the response or a future of it."""
        results: dict[tuple[int, str, int], ErrorCode] = {}
        places = [
            (number, topic.name, index)
            for number, marker in enumerate(request.markers)
            for topic in marker.topics
            for index in topic.partition_indexes
        ]
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def decided(place: tuple[int, str, int], error: ErrorCode) -> None:
            results[place] = error
            if len(results) == len(places) and not future.done():
                future.set_result(responses.written_markers(request, results))

        if not places:
            return responses.written_markers(request, results)
        for place in places:
            self._write(place, request.markers[place[0]], decided)
        return future

    def _write(
        self,
        place: tuple[int, str, int],
        marker: Any,
        decided: Callable[[tuple[int, str, int], ErrorCode], None],
    ) -> None:
        _, topic, index = place
        partition = self._replicas.find(topic, index)
        if isinstance(partition, ErrorCode):
            decided(place, partition)
            return

        def done(error: ErrorCode) -> None:
            if error is ErrorCode.NONE and topic == OFFSETS_TOPIC:
                self._on_offsets_decided(index, marker.producer_id, marker.transaction_result)
            decided(place, error)

        end_offset = self._append(partition, marker)
        if isinstance(end_offset, ErrorCode):
            done(end_offset)
        else:
            CommittedAppend(partition, end_offset, APPEND_TIMEOUT_MS / 1000, done)

    def _append(self, partition: Partition, marker: Any) -> int | ErrorCode:
        """Appends one marker; returns the high watermark that commits it, or an error."""
        batch = encode_marker(
            Marker(is_commit=marker.transaction_result, coordinator_epoch=marker.coordinator_epoch),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp_ms=self._host.clock.wall_ms(),
        )
        replica = partition.replica
        if self._is_late(partition, marker):
            return self._refuse(partition, marker, ErrorCode.INVALID_PRODUCER_EPOCH)
        try:
            info = partition.append_as_leader(
                VerifiedBatches.verify(batch), ACKS_ALL, is_coordinator=True
            )
        except ProducerRefusedError as refused:
            return self._refuse(partition, marker, refused.error)
        except OSError as error:
            replica.context.on_disk_error(replica.topic, replica.index, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return info if isinstance(info, ErrorCode) else info.last_offset + 1

    def _is_late(self, partition: Partition, marker: Any) -> bool:
        """Whether a marker is that of the transaction before the one that is open (TXN-14)."""
        context, log = partition.replica.context, partition.log
        if (
            log is None
            or marker.transaction_version < BUMPS_EPOCHS
            or not context.features.strict_marker_epochs
            or not log.producers.has_open_transaction(marker.producer_id)
        ):
            return False
        known = log.producers.known(marker.producer_id)
        has_its_epoch = known is not None and known[0] == marker.producer_epoch
        return has_its_epoch and context.rules("TXN-14")

    def _refuse(self, partition: Partition, marker: Any, error: ErrorCode) -> ErrorCode:
        partition.replica.mark("marker-refused", producer_id=marker.producer_id, error=error.name)
        return error
