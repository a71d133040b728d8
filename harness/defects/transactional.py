"""A transactional producer and a read_committed consumer for stories, request by request.

They follow the protocol as clients do, with retries, but decide nothing by themselves, so that a story can send a
request again, late, or in the name of a producer that was replaced.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from harness.defects.requests import create_topic_request
from harness.defects.story import Story
from system_under_test.broker.fetch import READ_COMMITTED
from system_under_test.group.records import offsets_partition
from system_under_test.protocol.control_records import marker_of
from system_under_test.protocol.entities import fetch_of, fetch_partition, fetch_topic
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    add_partitions_to_txn_request,
    end_txn_request,
    find_coordinator_request,
    init_producer_id_request,
    millis,
    produce_request,
    write_txn_markers_request,
)
from system_under_test.protocol.record_batch import decode_records, encode_batch

LEDGER = "ledger"
STATE_TOPIC = "__transaction_state"
TRANSACTION_KEY_TYPE = 1
ATTEMPTS_MAX = 300
PAUSE_MS = 50
RETRIED = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


def leader_of(story: Story, topic: str, index: int) -> int:
    """Returns the leader of a partition in committed metadata, once there is one that runs."""
    name = f"{topic}-{index}"
    partitions = story.cluster.metadata.partitions
    story.until(lambda: name in partitions and story.is_running(partitions[name].leader))
    leader: int = partitions[name].leader
    return leader


def create_ledger(story: Story, *assignments: tuple[int, ...], min_isr: int = 2) -> None:
    """Creates the topic of the story, with the replicas of each partition."""
    story.send_to_controller(create_topic_request(LEDGER, *assignments, min_isr=min_isr))
    for index in range(len(assignments)):
        leader_of(story, LEDGER, index)


class TransactionalProducer:
    """A producer with a transactional id. Mutable: producer id, epoch and sequences.

    Args:
        story: The run.
        transactional_id: Its id.
    """

    def __init__(self, story: Story, transactional_id: str = "payments") -> None:
        self.producer_id = -1
        self.epoch = -1
        self.story = story
        self.transactional_id = transactional_id
        self._sequences: dict[int, int] = {}

    def coordinator(self) -> int:
        """Returns the broker that coordinates the transactional id; creates the topic if need be."""
        name = f"{STATE_TOPIC}-0"
        partitions = self.story.cluster.metadata.partitions
        if name not in partitions:
            request = find_coordinator_request.FindCoordinatorRequest(
                key_type=TRANSACTION_KEY_TYPE, coordinator_keys=(self.transactional_id,)
            )
            self.story.send_to_broker(leader_of(self.story, LEDGER, 0), request)
            self.story.until(lambda: name in partitions)
        count = sum(each.startswith(f"{STATE_TOPIC}-") for each in partitions)
        return leader_of(self.story, STATE_TOPIC, offsets_partition(self.transactional_id, count))

    def init(self, *, timeout_ms: int = 60_000) -> None:
        """Becomes the producer of the transactional id."""
        response = self.repeated(
            self.coordinator,
            init_producer_id_request.InitProducerIdRequest(
                transactional_id=self.transactional_id, transaction_timeout=millis(timeout_ms)
            ),
            lambda found: found.error_code,
        )
        assert response.error_code == ErrorCode.NONE, response
        self._take(response)

    def add(self, *indexes: int) -> ErrorCode:
        """Adds partitions of the ledger to the transaction; returns the first error."""
        m = add_partitions_to_txn_request
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(m.AddPartitionsToTxnTopic(name=LEDGER, partitions=indexes),),
        )

        def error_of(found: Any) -> int:
            results = found.results_by_topic_v3_and_below[0].results_by_partition
            return max(int(one.partition_error_code) for one in results)

        return ErrorCode(error_of(self.repeated(self.coordinator, request, error_of)))

    def batch(self, value: bytes, index: int = 0) -> Any:
        """Returns the next produce request for a partition; it counts as sent."""
        sequence = self._sequences.get(index, 0)
        self._sequences[index] = sequence + 1
        records = encode_batch(
            [(None, value)],
            timestamp_ms=1,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = produce_request.PartitionProduceData(index=index, records=records)
        return produce_request.ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout=millis(900),
            topic_data=(produce_request.TopicProduceData(name=LEDGER, partition_data=(data,)),),
        )

    def send(self, value: bytes, index: int = 0) -> ErrorCode:
        """Sends one record in the transaction until the response is not retriable; returns the error."""
        return self.deliver(self.batch(value, index), index)

    def deliver(self, request: Any, index: int = 0) -> ErrorCode:
        """Sends a request of `batch`, now or much later."""

        def error_of(found: Any) -> int:
            return int(found.responses[0].partition_responses[0].error_code)

        response = self.repeated(lambda: leader_of(self.story, LEDGER, index), request, error_of)
        return ErrorCode(error_of(response))

    def end_request(self, *, is_commit: bool) -> Any:
        """Returns an EndTxn request."""
        return end_txn_request.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=is_commit,
        )

    def end(self, *, is_commit: bool) -> ErrorCode:
        """Ends the transaction; returns the error."""
        request = self.end_request(is_commit=is_commit)
        response = self.repeated(self.coordinator, request, lambda found: found.error_code)
        if response.error_code == ErrorCode.NONE and response.producer_id >= 0:
            self._take(response)
        return ErrorCode(response.error_code)

    def marker(self, *, is_commit: bool, coordinator_epoch: int) -> Any:
        """Returns the marker that a coordinator of that epoch would send to partition 0."""
        m = write_txn_markers_request
        topic = m.WritableTxnMarkerTopic(name=LEDGER, partition_indexes=(0,))
        marker = m.WritableTxnMarker(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            transaction_result=is_commit,
            topics=(topic,),
            coordinator_epoch=coordinator_epoch,
        )
        return m.WriteTxnMarkersRequest(markers=(marker,))

    def _take(self, response: Any) -> None:
        if (response.producer_id, response.producer_epoch) != (self.producer_id, self.epoch):
            self._sequences.clear()
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch

    def repeated(
        self, broker: Callable[[], int], request: Any, error_of: Callable[[Any], int]
    ) -> Any:
        """Sends a request until it has a response that says more than to try again."""
        for _ in range(ATTEMPTS_MAX):
            try:
                response = self.story.send_to_broker(broker(), request)
            except (ConnectionError, TimeoutError):
                pass
            else:
                if error_of(response) not in RETRIED:
                    return response
            self.story.run_ms(PAUSE_MS)
        raise AssertionError(f"{type(request).__name__}: no response in {ATTEMPTS_MAX} attempts")


def fetched(story: Story, index: int = 0, *, isolation_level: int = READ_COMMITTED) -> Any:
    """Returns what a fetch from the start of a partition of the ledger gets."""
    leader = leader_of(story, LEDGER, index)
    replica = story.broker(leader).replica_manager.partitions[(LEDGER, index)].replica
    request = fetch_of(
        (fetch_topic(replica.topic_id, (fetch_partition(index, -1, 0, 1 << 20),)),),
        millis(0),
        1 << 20,
    )
    request = replace(request, isolation_level=isolation_level)
    return story.send_to_broker(leader, request).responses[0].partitions[0]


def read_committed(story: Story, index: int = 0) -> list[bytes]:
    """Returns the records that a read_committed consumer returns to its application (KIP-98)."""
    data = fetched(story, index)
    begins = {one.first_offset: one.producer_id for one in data.aborted_transactions or ()}
    aborted: set[int] = set()
    values: list[bytes] = []
    for header, records in decode_records(data.records or b""):
        aborted |= {producer for first, producer in begins.items() if first <= header.base_offset}
        begins = {first: one for first, one in begins.items() if first > header.base_offset}
        if header.is_control:
            marker = marker_of(records[0])
            if marker is not None and not marker.is_commit:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            values += [record.value for record in records if record.value is not None]
    return values


def last_stable_offset(story: Story, index: int = 0) -> tuple[int, int]:
    """Returns the last stable offset and the log end of a partition's leader."""
    leader = leader_of(story, LEDGER, index)
    replica = story.broker(leader).replica_manager.partitions[(LEDGER, index)].replica
    return replica.last_stable_offset, replica.log_end_offset
