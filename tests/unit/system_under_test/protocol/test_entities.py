"""The quick constructors of hot messages make the same entities as the schema's own constructors."""

import dataclasses
from typing import Any
from uuid import UUID

import pytest

from system_under_test.protocol import entities
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    decode,
    encode,
    fetch_request,
    fetch_response,
    millis,
    produce_request,
    produce_response,
)

TOPIC_ID = UUID(int=7)

WANTED = fetch_request.FetchPartition(
    partition=1,
    current_leader_epoch=2,
    fetch_offset=3,
    last_fetched_epoch=4,
    log_start_offset=5,
    partition_max_bytes=6,
)
TOPIC = fetch_request.FetchTopic(topic_id=TOPIC_ID, partitions=(WANTED,))
REPLICA = fetch_request.ReplicaState(replica_id=3, replica_epoch=9)
LEADER = fetch_response.LeaderIdAndEpoch(leader_id=1, leader_epoch=2)
DIVERGING = fetch_response.EpochEndOffset(epoch=1, end_offset=8)
DATA = fetch_response.PartitionData(
    partition_index=1,
    error_code=ErrorCode.NONE,
    high_watermark=4,
    last_stable_offset=4,
    log_start_offset=2,
    aborted_transactions=None,
    records=b"batches",
)
FETCHED = fetch_response.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=(DATA,))
PRODUCED = produce_response.PartitionProduceResponse(
    index=1,
    error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
    base_offset=-1,
    log_append_time=None,
    log_start_offset=3,
    record_errors=(),
)
PRODUCED_TOPIC = produce_response.TopicProduceResponse(name="t", partition_responses=(PRODUCED,))

PAIRS = {
    "FetchPartition": (
        entities.fetch_partition(1, 2, 3, 6, last_fetched_epoch=4, log_start_offset=5),
        WANTED,
    ),
    "FetchPartition of a consumer": (
        entities.fetch_partition(1, 2, 3, 6),
        fetch_request.FetchPartition(
            partition=1, current_leader_epoch=2, fetch_offset=3, partition_max_bytes=6
        ),
    ),
    "FetchTopic": (entities.fetch_topic(TOPIC_ID, (WANTED,)), TOPIC),
    "FetchRequest": (
        entities.fetch_of((TOPIC,), millis(20), 1024, REPLICA, "cluster"),
        fetch_request.FetchRequest(
            cluster_id="cluster",
            replica_state=REPLICA,
            max_wait=millis(20),
            min_bytes=1,
            max_bytes=1024,
            topics=(TOPIC,),
            forgotten_topics_data=(),
        ),
    ),
    "FetchRequest of a consumer": (
        entities.fetch_of((TOPIC,), millis(20), 1024),
        fetch_request.FetchRequest(
            max_wait=millis(20),
            min_bytes=1,
            max_bytes=1024,
            topics=(TOPIC,),
            forgotten_topics_data=(),
        ),
    ),
    "PartitionData": (entities.fetched_data(1, ErrorCode.NONE, 4, 2, b"batches"), DATA),
    "PartitionData with its tagged fields": (
        entities.fetched_data(
            1, ErrorCode.NONE, 4, 2, b"batches", current_leader=LEADER, diverging_epoch=DIVERGING
        ),
        dataclasses.replace(DATA, current_leader=LEADER, diverging_epoch=DIVERGING),
    ),
    "FetchableTopicResponse": (entities.fetched_topic(TOPIC_ID, (DATA,)), FETCHED),
    "FetchResponse": (
        entities.fetch_response_of(ErrorCode.NONE, (FETCHED,)),
        fetch_response.FetchResponse(
            throttle_time=millis(0), error_code=ErrorCode.NONE, session_id=0, responses=(FETCHED,)
        ),
    ),
    "ProduceRequest": (
        entities.produce_of("t", 1, b"batch", -1, millis(1500)),
        produce_request.ProduceRequest(
            acks=-1,
            timeout=millis(1500),
            topic_data=(
                produce_request.TopicProduceData(
                    name="t",
                    partition_data=(
                        produce_request.PartitionProduceData(index=1, records=b"batch"),
                    ),
                ),
            ),
        ),
    ),
    "PartitionProduceResponse": (
        entities.produced_partition(1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, 3),
        PRODUCED,
    ),
    "TopicProduceResponse": (entities.produced_topic("t", (PRODUCED,)), PRODUCED_TOPIC),
    "ProduceResponse": (
        entities.produce_response_of((PRODUCED_TOPIC,)),
        produce_response.ProduceResponse(responses=(PRODUCED_TOPIC,), throttle_time=millis(0)),
    ),
}


@pytest.mark.parametrize("name", list(PAIRS))
def test_the_fast_constructor_makes_the_same_entity_as_the_schema(name: str) -> None:
    made, expected = PAIRS[name]
    assert type(made) is type(expected)
    assert made == expected
    assert hash(made) == hash(expected)
    assert repr(made) == repr(expected)


@pytest.mark.parametrize("name", list(PAIRS))
def test_an_entity_from_the_fast_constructor_is_frozen(name: str) -> None:
    made: Any = PAIRS[name][0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, dataclasses.fields(made)[0].name, 0)


@pytest.mark.parametrize(
    "name", ["FetchRequest", "FetchResponse", "ProduceRequest", "ProduceResponse"]
)
def test_a_message_from_the_fast_constructor_goes_through_the_codec(name: str) -> None:
    made, expected = PAIRS[name]
    assert encode(made) == encode(expected)
    assert decode(type(made), encode(made)) == made
