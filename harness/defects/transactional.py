"""A transactional producer and a read_committed consumer for stories, request by request.

They follow the protocol as clients do, with retries, but decide nothing by themselves, so that a story can send a
request again, late, or in the name of a producer that was replaced. What they do is recorded as the workload
`transactions` records it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from harness.defects.requests import create_topic_request
from harness.defects.story import Story
from harness.history.op import TransactionEvent
from system_under_test.broker.fetch import READ_COMMITTED
from system_under_test.group.records import offsets_partition
from system_under_test.protocol.control_records import marker_of
from system_under_test.protocol.entities import fetch_of, fetch_partition, fetch_topic
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    add_offsets_to_txn_request,
    add_partitions_to_txn_request,
    end_txn_request,
    find_coordinator_request,
    init_producer_id_request,
    millis,
    offset_fetch_request,
    produce_request,
    txn_offset_commit_request,
    write_txn_markers_request,
)
from system_under_test.protocol.record_batch import decode_records, encode_batch
from workloads.transaction_log import RecordedTransaction

LEDGER = "ledger"
STATE_TOPIC = "__transaction_state"
OFFSETS_TOPIC = "__consumer_offsets"
GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
CLOSING_READS_MAX = 100
"""How often the end of a partition is read for: longer than markers take."""
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


class NoResponseError(AssertionError):
    """A request of a story had no response that says more than to try again."""


def leader_of(story: Story, topic: str, index: int) -> int:
    """Returns the leader of a partition in committed metadata, once there is one that runs."""
    name = f"{topic}-{index}"
    partitions = story.cluster.metadata.partitions
    story.until(lambda: name in partitions and story.is_running(partitions[name].leader))
    leader: int = partitions[name].leader
    return leader


def create_ledger(story: Story, *assignments: tuple[int, ...], min_isr: int = 2) -> None:
    """Creates the topic of the story, with the replicas of each partition; the closing reads are those of it."""
    story.send_to_controller(create_topic_request(LEDGER, *assignments, min_isr=min_isr))
    for index in range(len(assignments)):
        leader_of(story, LEDGER, index)
    story.closing_reads = lambda: read_to_the_end(story, len(assignments))


def coordinator_of(story: Story, topic: str, key_type: int, name: str) -> int:
    """Returns the broker that coordinates a transactional id or a group; creates the topic if need be."""
    first = f"{topic}-0"
    partitions = story.cluster.metadata.partitions
    if first not in partitions:
        request = find_coordinator_request.FindCoordinatorRequest(
            key_type=key_type, coordinator_keys=(name,)
        )
        story.send_to_broker(leader_of(story, LEDGER, 0), request)
        story.until(lambda: first in partitions)
    count = sum(each.startswith(f"{topic}-") for each in partitions)
    return leader_of(story, topic, offsets_partition(name, count))


class TransactionalProducer:
    """A producer with a transactional id. Mutable: producer id, epoch, sequences and its open transaction.

    Args:
        story: The run.
        transactional_id: Its id.
        group: The consumer group whose positions its transactions commit; empty for none.
        is_final: Whether it runs when everything is healed.
    """

    def __init__(
        self,
        story: Story,
        transactional_id: str = "payments",
        *,
        group: str = "",
        is_final: bool = False,
    ) -> None:
        self.producer_id = -1
        self.epoch = -1
        self.story = story
        self.transactional_id = transactional_id
        self.group = group
        self._is_final = is_final
        self._sequences: dict[int, int] = {}
        self._process = -1
        self._recorded: RecordedTransaction | None = None
        self._unacknowledged: Any = None
        """The recorded batch that was not acknowledged yet."""

    def coordinator(self) -> int:
        """Returns the broker that coordinates the transactional id; creates the topic if need be."""
        return coordinator_of(self.story, STATE_TOPIC, TRANSACTION_KEY_TYPE, self.transactional_id)

    def group_coordinator(self) -> int:
        """Returns the broker that coordinates the group; creates the topic if need be."""
        return coordinator_of(self.story, OFFSETS_TOPIC, GROUP_KEY_TYPE, self.group)

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
        self._process = self.story.transactions.initialised(self.transactional_id)
        self._recorded = None

    def _open(self) -> RecordedTransaction:
        if self._recorded is None:
            self._recorded = self.story.transactions.begin(
                self._process, self.transactional_id, self.group, final=self._is_final
            )
        return self._recorded

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

    def batch(self, word: bytes, index: int = 0, *, is_late: bool = False) -> Any:
        """Returns the next produce request for a partition; it counts as sent.

        Args:
            word: What the story calls the record.
            index: The partition.
            is_late: Whether its transaction ends without it; it is then not recorded as a part of it.
        """
        key = (LEDGER, index)
        value = word if is_late else self.story.transactions.payload(self._open(), key, word)
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
        request = produce_request.ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout=millis(900),
            topic_data=(produce_request.TopicProduceData(name=LEDGER, partition_data=(data,)),),
        )
        self._unacknowledged = None if is_late else request
        return request

    def send(self, word: bytes, index: int = 0) -> ErrorCode:
        """Sends one record in the transaction until the response is not retriable; returns the error."""
        return self.deliver(self.batch(word, index), index)

    def deliver(self, request: Any, index: int = 0) -> ErrorCode:
        """Sends a request of `batch`, now or much later."""

        def error_of(found: Any) -> int:
            return int(found.responses[0].partition_responses[0].error_code)

        response = self.repeated(lambda: leader_of(self.story, LEDGER, index), request, error_of)
        error = ErrorCode(error_of(response))
        if request is self._unacknowledged and error is ErrorCode.NONE:
            offset = int(response.responses[0].partition_responses[0].base_offset)
            self._open().delivered(0, {0: offset})
            self._unacknowledged = None
        return error

    def poll(self, index: int = 0, *, position: int = 0, count: int | None = None) -> list[bytes]:
        """Polls committed records in the transaction, at most `count`; returns their words."""
        records = committed_records(self.story, index, position=position)[:count]
        return self.story.transactions.polled(self._open(), (LEDGER, index), records)

    def send_position(self, offset: int, index: int = 0) -> ErrorCode:
        """Makes the group's next position in a partition a part of the transaction; returns the error."""
        self.group_coordinator()
        self._open().position((LEDGER, index), offset)
        added = self.repeated(
            self.coordinator,
            add_offsets_to_txn_request.AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=self.group,
            ),
            lambda response: response.error_code,
        )
        if added.error_code != ErrorCode.NONE:
            return ErrorCode(added.error_code)
        m = txn_offset_commit_request
        one = m.TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=""
        )
        stored = self.repeated(
            self.group_coordinator,
            m.TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=self.group,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                topics=(m.TxnOffsetCommitRequestTopic(name=LEDGER, partitions=(one,)),),
            ),
            lambda response: response.topics[0].partitions[0].error_code,
        )
        return ErrorCode(stored.topics[0].partitions[0].error_code)

    def position(self, index: int = 0, *, require_stable: bool = True) -> tuple[ErrorCode, int]:
        """Returns error and committed position of the group in a partition."""
        m = offset_fetch_request
        wanted = m.OffsetFetchRequestTopics(name=LEDGER, partition_indexes=(index,))
        group = m.OffsetFetchRequestGroup(group_id=self.group, topics=(wanted,))
        response = self.story.send_to_broker(
            self.group_coordinator(),
            m.OffsetFetchRequest(groups=(group,), require_stable=require_stable),
        )
        one = response.groups[0].topics[0].partitions[0]
        return ErrorCode(one.error_code), int(one.committed_offset)

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
        self._ask(is_commit=is_commit)
        response = self.repeated(self.coordinator, request, lambda found: found.error_code)
        if response.error_code == ErrorCode.NONE and response.producer_id >= 0:
            self._take(response)
        error = ErrorCode(response.error_code)
        self._note_end(is_commit=is_commit, is_acknowledged=error is ErrorCode.NONE)
        return error

    def commit_at(self, broker: int) -> bool:
        """Requests the commit of the transaction from one broker, once; returns whether that acknowledged it."""
        self._ask(is_commit=True)
        try:
            response = self.story.send_to_broker(broker, self.end_request(is_commit=True))
            is_acknowledged = ErrorCode(response.error_code) is ErrorCode.NONE
        except (ConnectionError, TimeoutError):
            is_acknowledged = False
        self._note_end(is_commit=True, is_acknowledged=is_acknowledged)
        return is_acknowledged

    def _ask(self, *, is_commit: bool) -> None:
        if self._recorded is not None:
            (self._recorded.commit_asked if is_commit else self._recorded.abort_asked)()

    def _note_end(self, *, is_commit: bool, is_acknowledged: bool) -> None:
        """Records how the transaction ended; one whose commit was never requested can only have been aborted."""
        if self._recorded is None:
            return
        outcome = TransactionEvent.ABORTED
        if is_commit:
            outcome = TransactionEvent.COMMITTED if is_acknowledged else TransactionEvent.UNKNOWN
        self._recorded.end(outcome)
        self._recorded = None

    def marker(
        self, *, is_commit: bool, coordinator_epoch: int, transaction_version: int = 0
    ) -> Any:
        """Returns the marker that a coordinator of that epoch would send to partition 0."""
        m = write_txn_markers_request
        topic = m.WritableTxnMarkerTopic(name=LEDGER, partition_indexes=(0,))
        marker = m.WritableTxnMarker(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            transaction_result=is_commit,
            topics=(topic,),
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
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
        raise NoResponseError(f"{type(request).__name__}: no response in {ATTEMPTS_MAX} attempts")


def fetched(
    story: Story, index: int = 0, *, position: int = 0, isolation_level: int = READ_COMMITTED
) -> Any:
    """Returns what a fetch from a partition of the ledger gets."""
    leader = leader_of(story, LEDGER, index)
    replica = story.broker(leader).replica_manager.partitions[(LEDGER, index)].replica
    request = fetch_of(
        (fetch_topic(replica.topic_id, (fetch_partition(index, -1, position, 1 << 20),)),),
        millis(0),
        1 << 20,
    )
    request = replace(request, isolation_level=isolation_level)
    return story.send_to_broker(leader, request).responses[0].partitions[0]


def committed_records(
    story: Story, index: int = 0, *, position: int = 0
) -> list[tuple[int, bytes]]:
    """Returns offsets and payloads of what a read_committed consumer returns to its application (KIP-98)."""
    data = fetched(story, index, position=position)
    begins = {one.first_offset: one.producer_id for one in data.aborted_transactions or ()}
    aborted: set[int] = set()
    found: list[tuple[int, bytes]] = []
    for header, records in decode_records(data.records or b""):
        aborted |= {producer for first, producer in begins.items() if first <= header.base_offset}
        begins = {first: one for first, one in begins.items() if first > header.base_offset}
        if header.is_control:
            marker = marker_of(records[0])
            if marker is not None and not marker.is_commit:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            found += [(one.offset, one.value) for one in records if one.value is not None]
    return [(offset, payload) for offset, payload in found if offset >= position]


def read_committed(story: Story, index: int = 0, *, is_final: bool = False) -> list[bytes]:
    """Returns the words of the records that a new read_committed consumer returns to its application.

    Args:
        story: The run.
        index: The partition, which it reads from its start.
        is_final: Whether it is a closing read.
    """
    recorded = story.transactions.begin_read(final=is_final)
    records = committed_records(story, index)
    words = story.transactions.polled(recorded, (LEDGER, index), records)
    recorded.end(TransactionEvent.COMMITTED)
    return words


def read_to_the_end(story: Story, partition_count: int) -> bool:
    """Ends all transactions, commits one and reads the ledger to its end, as the workload's final phase does.

    Returns:
        False if a transaction stays open, so that consumers do not reach the end.
    """
    try:
        for transactional_id in tuple(story.transactions.transactional_ids):
            TransactionalProducer(story, transactional_id).init()
        last = TransactionalProducer(story, "final", is_final=True)
        last.init()
        for index in range(partition_count):
            last.add(index)
            last.send(b"final", index)
        last.end(is_commit=True)
    except NoResponseError:
        return False
    for index in range(partition_count):
        for _ in range(CLOSING_READS_MAX):
            stable, end = last_stable_offset(story, index)
            if stable == end:
                break
            story.run_ms(PAUSE_MS)
        else:
            return False
        read_committed(story, index, is_final=True)
    return True


def last_stable_offset(story: Story, index: int = 0) -> tuple[int, int]:
    """Returns the last stable offset and the log end of a partition's leader."""
    leader = leader_of(story, LEDGER, index)
    replica = story.broker(leader).replica_manager.partitions[(LEDGER, index)].replica
    return replica.last_stable_offset, replica.log_end_offset
