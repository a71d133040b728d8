"""Makes the entities of the hot messages, several times faster than their own constructors do.

The constructor of a frozen dataclass sets every field through `object.__setattr__`; that and a dozen keyword arguments
cost four times what the rest of a message costs. Here an entity is filled while it is still mutable: a *draft*
is a class with the same slots and nothing else, and Python allows an object to change to a class of the same layout.
What comes out is an entity like any other: same type, same equality, frozen from then on.

Only messages that are sent once per fetch or produce are here. `tests/unit/test_entities.py` compares every function
with the constructor that it replaces, so that a field that is forgotten here, or added by kio, is found.
"""

from dataclasses import fields
from datetime import timedelta
from typing import Any
from uuid import UUID

from system_under_test.protocol.messages import (
    NO_THROTTLE,
    fetch_request,
    fetch_response,
    produce_request,
    produce_response,
)

_NO_LEADER = fetch_response.LeaderIdAndEpoch()
_NO_DIVERGENCE = fetch_response.EpochEndOffset()
_NO_SNAPSHOT = fetch_response.SnapshotId()
_NO_PRODUCE_LEADER = produce_response.LeaderIdAndEpoch()
_CONSUMER = fetch_request.ReplicaState()


def _draft_of(entity_type: Any) -> Any:
    """Returns a mutable class with the layout of an entity."""
    names = tuple(field.name for field in fields(entity_type))
    return type(f"{entity_type.__name__}Draft", (), {"__slots__": names})


_FetchPartition = fetch_request.FetchPartition
_FetchPartitionDraft = _draft_of(_FetchPartition)
_FetchTopic = fetch_request.FetchTopic
_FetchTopicDraft = _draft_of(_FetchTopic)
_FetchRequest = fetch_request.FetchRequest
_FetchRequestDraft = _draft_of(_FetchRequest)
_PartitionData = fetch_response.PartitionData
_PartitionDataDraft = _draft_of(_PartitionData)
_FetchableTopicResponse = fetch_response.FetchableTopicResponse
_FetchableTopicResponseDraft = _draft_of(_FetchableTopicResponse)
_FetchResponse = fetch_response.FetchResponse
_FetchResponseDraft = _draft_of(_FetchResponse)
_PartitionProduceData = produce_request.PartitionProduceData
_PartitionProduceDataDraft = _draft_of(_PartitionProduceData)
_TopicProduceData = produce_request.TopicProduceData
_TopicProduceDataDraft = _draft_of(_TopicProduceData)
_ProduceRequest = produce_request.ProduceRequest
_ProduceRequestDraft = _draft_of(_ProduceRequest)
_PartitionProduceResponse = produce_response.PartitionProduceResponse
_PartitionProduceResponseDraft = _draft_of(_PartitionProduceResponse)
_TopicProduceResponse = produce_response.TopicProduceResponse
_TopicProduceResponseDraft = _draft_of(_TopicProduceResponse)
_ProduceResponse = produce_response.ProduceResponse
_ProduceResponseDraft = _draft_of(_ProduceResponse)


# --- fetch ---------------------------------------------------------------------------------------------


def fetch_partition(
    partition: int,
    current_leader_epoch: int,
    fetch_offset: int,
    partition_max_bytes: int,
    last_fetched_epoch: int = -1,
    log_start_offset: int = -1,
) -> Any:
    """Makes a `FetchPartition`."""
    made = _FetchPartitionDraft()
    made.partition = partition
    made.current_leader_epoch = current_leader_epoch
    made.fetch_offset = fetch_offset
    made.last_fetched_epoch = last_fetched_epoch
    made.log_start_offset = log_start_offset
    made.partition_max_bytes = partition_max_bytes
    made.replica_directory_id = None
    made.__class__ = _FetchPartition
    return made


def fetch_topic(topic_id: UUID | None, partitions: tuple[Any, ...]) -> Any:
    """Makes a `FetchTopic`."""
    made = _FetchTopicDraft()
    made.topic_id = topic_id
    made.partitions = partitions
    made.__class__ = _FetchTopic
    return made


def fetch_of(
    topics: tuple[Any, ...],
    max_wait: timedelta,
    max_bytes: int,
    replica_state: Any = _CONSUMER,
    cluster_id: str | None = None,
) -> Any:
    """Makes a `FetchRequest` without a session, for at least one byte of what is visible without transactions."""
    made = _FetchRequestDraft()
    made.cluster_id = cluster_id
    made.replica_state = replica_state
    made.max_wait = max_wait
    made.min_bytes = 1
    made.max_bytes = max_bytes
    made.isolation_level = 0
    made.session_id = 0
    made.session_epoch = -1
    made.topics = topics
    made.forgotten_topics_data = ()
    made.rack_id = ""
    made.__class__ = _FetchRequest
    return made


def fetched_data(
    partition_index: int,
    error_code: int,
    high_watermark: int,
    log_start_offset: int,
    records: bytes | None,
    current_leader: Any = _NO_LEADER,
    diverging_epoch: Any = _NO_DIVERGENCE,
) -> Any:
    """Makes the `PartitionData` of a fetch response; without transactions, all that is committed is stable."""
    made = _PartitionDataDraft()
    made.partition_index = partition_index
    made.error_code = error_code
    made.high_watermark = high_watermark
    made.last_stable_offset = high_watermark
    made.log_start_offset = log_start_offset
    made.diverging_epoch = diverging_epoch
    made.current_leader = current_leader
    made.snapshot_id = _NO_SNAPSHOT
    made.aborted_transactions = None
    made.preferred_read_replica = -1
    made.records = records
    made.__class__ = _PartitionData
    return made


def fetched_topic(topic_id: UUID | None, partitions: tuple[Any, ...]) -> Any:
    """Makes a `FetchableTopicResponse`."""
    made = _FetchableTopicResponseDraft()
    made.topic_id = topic_id
    made.partitions = partitions
    made.__class__ = _FetchableTopicResponse
    return made


def fetch_answer(error_code: int, responses: tuple[Any, ...]) -> Any:
    """Makes a `FetchResponse` without a session."""
    made = _FetchResponseDraft()
    made.throttle_time = NO_THROTTLE
    made.error_code = error_code
    made.session_id = 0
    made.responses = responses
    made.node_endpoints = ()
    made.__class__ = _FetchResponse
    return made


# --- produce -------------------------------------------------------------------------------------------


def produce_of(topic: str, partition: int, records: bytes, acks: int, timeout: timedelta) -> Any:
    """Makes a `ProduceRequest` for one partition."""
    data = _PartitionProduceDataDraft()
    data.index = partition
    data.records = records
    data.__class__ = _PartitionProduceData
    topic_data = _TopicProduceDataDraft()
    topic_data.name = topic
    topic_data.partition_data = (data,)
    topic_data.__class__ = _TopicProduceData
    made = _ProduceRequestDraft()
    made.transactional_id = None
    made.acks = acks
    made.timeout = timeout
    made.topic_data = (topic_data,)
    made.__class__ = _ProduceRequest
    return made


def produced_partition(
    index: int, error_code: int, base_offset: int, log_start_offset: int
) -> Any:
    """Makes a `PartitionProduceResponse`; timestamps are the producer's."""
    made = _PartitionProduceResponseDraft()
    made.index = index
    made.error_code = error_code
    made.base_offset = base_offset
    made.log_append_time = None
    made.log_start_offset = log_start_offset
    made.record_errors = ()
    made.error_message = None
    made.current_leader = _NO_PRODUCE_LEADER
    made.__class__ = _PartitionProduceResponse
    return made


def produced_topic(name: str, partition_responses: tuple[Any, ...]) -> Any:
    """Makes a `TopicProduceResponse`."""
    made = _TopicProduceResponseDraft()
    made.name = name
    made.partition_responses = partition_responses
    made.__class__ = _TopicProduceResponse
    return made


def produce_answer(responses: tuple[Any, ...]) -> Any:
    """Makes a `ProduceResponse`."""
    made = _ProduceResponseDraft()
    made.responses = responses
    made.throttle_time = NO_THROTTLE
    made.node_endpoints = ()
    made.__class__ = _ProduceResponse
    return made
