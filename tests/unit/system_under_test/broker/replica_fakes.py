"""One broker's replicas on fakes: a stopped clock, and metadata that the test sets.

The broker is number 1, the topic is "t" with the partition 0 and the replicas 1, 2 and 3. Everything is real from
the replica manager down to the log, which lies on a storage in memory.
"""

import asyncio
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

from system_under_test.broker.interfaces import IsrResponse, LocalPartitionsDelta
from system_under_test.broker.replica_manager import ReplicaManager
from system_under_test.config import FAST_TIMINGS, LogConfig, NodeConfig, Voter, profile_features
from system_under_test.log.manager import LogManager
from system_under_test.metadata.image import PartitionRegistration
from system_under_test.protocol.messages import (
    fetch_request,
    list_offsets_request,
    millis,
    offset_for_leader_epoch_request,
    produce_request,
)
from system_under_test.protocol.record_batch import decode_records, encode_batch
from system_under_test.rules import Rules
from system_under_test.runtime import RequestContext
from tests.memory_storage import MemoryStorage
from tests.unit.system_under_test.broker.node_fakes import RecordingObserver

TOPIC = "t"
TOPIC_ID = UUID(int=7)
SELF = 1
BROKER_EPOCHS = {1: 101, 2: 102, 3: 103}
LAG_NS = FAST_TIMINGS.replica_lag_time_max_ms * 1_000_000
ALL = -1
NATIVE = RequestContext(peer="test", connection_id=1)
"""A request that did not cross a wire."""


class ManualClock:
    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ms(self) -> int:
        return 0


class StateObserver(RecordingObserver):
    """Keeps the marks and the states of replicas."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[dict[str, Any]] = []

    def replica_changed(self, topic: str, partition: int, **state: Any) -> None:
        self.states.append(state)


class FakeMetadata:
    """What the broker believes of the cluster."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = dict(BROKER_EPOCHS)
        self.fenced: set[int] = set()
        self.stopping: set[int] = set()
        self.min_isr = 2
        self.topics: dict[UUID, str] = {TOPIC_ID: TOPIC}
        self.known = {(TOPIC, 0)}
        self.log_settings = LogConfig()

    def is_isr_eligible(self, broker_id: int) -> bool:
        return (
            broker_id in self.epochs
            and broker_id not in self.fenced
            and broker_id not in self.stopping
        )

    def alive_broker_epoch(self, broker_id: int) -> int | None:
        return None if broker_id in self.fenced else self.epochs.get(broker_id)

    def min_insync_replicas(self, topic: str) -> int:
        return self.min_isr

    def log_config(self, topic: str) -> LogConfig:
        return self.log_settings

    def configs_changed(self) -> bool:
        return True

    def topic_name(self, topic_id: UUID) -> str | None:
        return self.topics.get(topic_id)

    def has_partition(self, topic: str, partition: int) -> bool:
        return (topic, partition) in self.known


class FakeFetchers:
    """Records which leader each partition is fetched from."""

    def __init__(self) -> None:
        self.following: dict[tuple[str, int], tuple[int, int]] = {}
        self.calls: list[tuple[Any, ...]] = []

    def follow(self, partition: Any, leader_id: int, leader_epoch: int) -> None:
        self.calls.append(("follow", leader_id, leader_epoch))
        self.following[partition.topic, partition.index] = (leader_id, leader_epoch)

    def forget(self, topic: str, index: int) -> None:
        self.calls.append(("forget", topic, index))
        self.following.pop((topic, index), None)


class FakeAlterPartition:
    """Keeps proposals; the test responds."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, Any]] = []
        self.accepts = True

    def submit(self, proposal: Any, on_answer: Any) -> bool:
        if self.accepts:
            self.sent.append((proposal, on_answer))
        return self.accepts

    @property
    def last(self) -> Any:
        return self.sent[-1][0]

    @property
    def proposed(self) -> tuple[int, ...]:
        return tuple(member for member, _ in self.last.isr_with_epochs)

    def answer(self, answer: IsrResponse, which: int = -1) -> None:
        self.sent[which][1](answer)

    def accept(self) -> None:
        """Responds as a controller that accepts."""
        proposal = self.last
        self.answer(
            IsrResponse(
                error=0,
                leader_id=SELF,
                leader_epoch=proposal.leader_epoch,
                isr=self.proposed,
                partition_epoch=proposal.partition_epoch + 1,
            )
        )


class FakeHost:
    def __init__(self, storage: MemoryStorage) -> None:
        self.name = "b1"
        self.clock = ManualClock()
        self.observer = StateObserver()
        self.storage = storage


class Broker:
    """The broker of a story."""

    def __init__(
        self,
        *,
        profile: str = "kafka-4.1",
        without: tuple[str, ...] = (),
        min_isr: int = 2,
        storage: MemoryStorage | None = None,
        **features: Any,
    ) -> None:
        self.storage = storage or MemoryStorage()
        self.host = FakeHost(self.storage)
        self.clock = self.host.clock
        self.observer = self.host.observer
        self.metadata = FakeMetadata()
        self.metadata.min_isr = min_isr
        self.fetchers = FakeFetchers()
        self.alter = FakeAlterPartition()
        self.storage_failures: list[OSError] = []
        config = NodeConfig(
            node_id=SELF,
            role="broker",
            address="b1:9092",
            cluster_id="story",
            voters=(Voter(node_id=11, address="c11:9093"),),
            features=replace(profile_features(profile), **features),
            timings=FAST_TIMINGS,
            rules=Rules(without),
        )
        self.logs = LogManager(self.storage, config, Random(1))
        self.logs.load_all()
        self.manager = ReplicaManager(self.host, config, self.logs, self.metadata)
        self.manager.attach(self.fetchers, self.alter, self.storage_failures.append)
        self.registration = PartitionRegistration(
            topic=TOPIC, topic_id=TOPIC_ID, partition=0, replicas=(1, 2, 3), isr=(1, 2, 3)
        )

    # --- what the controller does

    def register(self, *, publish_min_isr: int | None = None, **changes: Any) -> Any:
        """Publishes a new registration; the partition epoch grows unless the test sets it."""
        changes.setdefault("partition_epoch", self.registration.partition_epoch + 1)
        self.registration = replace(self.registration, **changes)
        self.manager.publish_begins()
        if publish_min_isr is not None:
            self.metadata.min_isr = publish_min_isr
        where = "leaders" if self.registration.leader == SELF else "followers"
        self.manager.apply_delta(
            LocalPartitionsDelta(**{where: (self.registration,)}), BROKER_EPOCHS[SELF]
        )
        self.manager.publish_ends()
        return self.partition

    def lead(self, **changes: Any) -> Any:
        """Makes the broker leader in a new leader epoch."""
        return self._elect(SELF, changes)

    def follow(self, leader: int = 2, **changes: Any) -> Any:
        """Makes the broker follow another in a new leader epoch."""
        return self._elect(leader, changes)

    def _elect(self, leader: int, changes: dict[str, Any]) -> Any:
        changes.setdefault("leader_epoch", self.registration.leader_epoch + 1)
        return self.register(leader=leader, **changes)

    @property
    def partition(self) -> Any:
        return self.manager.partitions[TOPIC, 0]

    # --- what clients and followers do

    def produce(
        self, *values: str, acks: int = ALL, timeout_ms: int = 1000, data: bytes | None = None
    ) -> Any:
        """Produces one batch; returns the response or its future."""
        records = batch(*values) if data is None else data
        return self.send(
            produce_request.ProduceRequest(
                acks=acks,
                timeout=millis(timeout_ms),
                topic_data=(
                    produce_request.TopicProduceData(
                        name=TOPIC,
                        partition_data=(
                            produce_request.PartitionProduceData(index=0, records=records),
                        ),
                    ),
                ),
            )
        )

    def fetch(
        self,
        offset: int,
        *,
        replica: int = -1,
        epoch: int | None = None,
        last_epoch: int = -1,
        broker_epoch: int | None = None,
        wait_ms: int = 0,
        min_bytes: int = 1,
        topic_id: UUID = TOPIC_ID,
        partition_max_bytes: int = 1 << 20,
    ) -> Any:
        """Fetches; returns the response or its future."""
        if broker_epoch is None:
            broker_epoch = BROKER_EPOCHS.get(replica, -1)
        return self.send(
            fetch_request.FetchRequest(
                replica_state=fetch_request.ReplicaState(
                    replica_id=replica, replica_epoch=broker_epoch
                ),
                max_wait=millis(wait_ms),
                min_bytes=min_bytes,
                topics=(
                    fetch_request.FetchTopic(
                        topic_id=topic_id,
                        partitions=(
                            fetch_request.FetchPartition(
                                partition=0,
                                current_leader_epoch=(
                                    self.registration.leader_epoch if epoch is None else epoch
                                ),
                                fetch_offset=offset,
                                last_fetched_epoch=last_epoch,
                                log_start_offset=0,
                                partition_max_bytes=partition_max_bytes,
                            ),
                        ),
                    ),
                ),
                forgotten_topics_data=(),
            )
        )

    def follower_fetch(self, replica: int, offset: int, **options: Any) -> Any:
        """Fetches as a follower and returns the partition's part of the response, which is due at once."""
        return only_fetched(self.fetch(offset, replica=replica, **options))

    def list_offsets(self, timestamp: int = -1, *, replica: int = -1, epoch: int = -1) -> Any:
        """Returns the partition's part of a ListOffsets response."""
        request = list_offsets_request.ListOffsetsRequest(
            replica_id=replica,
            isolation_level=0,
            topics=(
                list_offsets_request.ListOffsetsTopic(
                    name=TOPIC,
                    partitions=(
                        list_offsets_request.ListOffsetsPartition(
                            partition_index=0, current_leader_epoch=epoch, timestamp=timestamp
                        ),
                    ),
                ),
            ),
        )
        return self.send(request).topics[0].partitions[0]

    def end_of_epoch(self, epoch: int, *, current: int = -1) -> Any:
        """Returns the partition's part of an OffsetForLeaderEpoch response."""
        request = offset_for_leader_epoch_request.OffsetForLeaderEpochRequest(
            replica_id=2,
            topics=(
                offset_for_leader_epoch_request.OffsetForLeaderTopic(
                    topic=TOPIC,
                    partitions=(
                        offset_for_leader_epoch_request.OffsetForLeaderPartition(
                            partition=0, current_leader_epoch=current, leader_epoch=epoch
                        ),
                    ),
                ),
            ),
        )
        return self.send(request).topics[0].partitions[0]

    def send(self, message: Any) -> Any:
        assert self.manager.handles(message)
        return self.manager.handle_request(message, NATIVE)

    def replicate(self, *batches: bytes, high_watermark: int = 0) -> None:
        """Appends as the follower of the present leader epoch."""
        self.partition.replica.append_as_follower(
            b"".join(batches),
            leader_epoch=self.registration.leader_epoch,
            high_watermark=high_watermark,
            log_start_offset=0,
        )

    # --- queries of the test

    @property
    def marks(self) -> list[str]:
        return self.observer.names

    @property
    def high_watermark(self) -> int:
        return self.partition.high_watermark

    @property
    def log_end(self) -> int:
        return self.partition.replica.log_end_offset


def batch(*values: str, base_offset: int = 0, epoch: int = -1, timestamp_ms: int = 1) -> bytes:
    """Returns one batch."""
    return encode_batch(
        [(None, value.encode()) for value in values],
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=epoch,
    )


def only_produced(response: Any) -> Any:
    """Returns the only partition of a produce response, or of the future of one that is done."""
    (topic,) = _ready(response).responses
    (partition,) = topic.partition_responses
    return partition


def only_fetched(response: Any) -> Any:
    """Returns the only partition of a fetch response, or of the future of one that is done."""
    (topic,) = _ready(response).responses
    (partition,) = topic.partitions
    return partition


def values_of(data: Any) -> list[str]:
    """Returns the values of fetched records."""
    return [
        record.value.decode() for _, records in decode_records(data.records) for record in records
    ]


def _ready(response: Any) -> Any:
    if isinstance(response, asyncio.Future):
        assert response.done(), "the request still waits"
        return response.result()
    return response
