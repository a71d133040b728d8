"""Metadata cache: what it returns to partitions of its broker, and to clients that request Metadata."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from system_under_test.broker.metadata_cache import MetadataCache
from system_under_test.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import decode, encode, metadata_request
from tests.unit.system_under_test.broker.node_fakes import broker_config

TOPIC = UUID(int=100)
OTHER = UUID(int=200)


def cache() -> MetadataCache:
    """Brokers 1 (alive), 2 (fenced), 3 (in controlled shutdown); "t" led by 1 and 2, "s" without a leader."""
    made = MetadataCache(replace(broker_config(), min_insync_replicas=2))
    records: list[Any] = [
        RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=UUID(int=broker_id),
            broker_epoch=broker_id * 10,
            address=f"b{broker_id}:9092",
            fenced=broker_id == 2,
        )
        for broker_id in (3, 2, 1)
    ]
    records += [
        BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=30, in_controlled_shutdown=True),
        TopicRecord(name="t", topic_id=TOPIC),
        PartitionRecord(topic_id=TOPIC, partition_id=1, replicas=(2, 1), isr=(2, 1), leader=2),
        PartitionRecord(
            topic_id=TOPIC, partition_id=0, replicas=(1, 2), isr=(1,), leader=1, leader_epoch=4
        ),
        TopicRecord(name="s", topic_id=OTHER),
        PartitionRecord(topic_id=OTHER, partition_id=0, replicas=(2,), isr=(2,), leader=-1),
        ConfigRecord(resource_type=2, resource_name="s", name="min.insync.replicas", value="1"),
    ]
    for offset, record in enumerate(records):
        made.image.replay(offset, record)
    return made


def ask(topics: Any) -> Any:
    request = metadata_request.MetadataRequest(
        topics=topics, include_topic_authorized_operations=False
    )
    response = cache().handle_metadata(request)
    assert decode(type(response), encode(response)) == response
    return response


def named(name: str) -> Any:
    return metadata_request.MetadataRequestTopic(topic_id=UUID(int=0), name=name)


def test_only_an_active_broker_may_join_an_isr() -> None:
    """ISR-5: fenced, in controlled shutdown and unknown brokers may not."""
    assert [cache().is_isr_eligible(broker) for broker in (1, 2, 3, 4)] == [
        True,
        False,
        False,
        False,
    ]


def test_a_broker_is_alive_until_it_is_fenced() -> None:
    assert [cache().alive_broker_epoch(broker) for broker in (1, 2, 3, 4)] == [10, None, 30, None]
    assert [cache().alive_address(broker) for broker in (1, 2)] == ["b1:9092", None]


def test_topics_have_their_own_min_isr_or_the_clusters() -> None:
    assert cache().min_insync_replicas("s") == 1
    assert cache().min_insync_replicas("t") == 2


def test_partitions_are_known_by_name_and_index() -> None:
    assert cache().topic_name(TOPIC) == "t"
    assert cache().topic_name(UUID(int=1)) is None
    assert cache().has_partition("t", 1)
    assert not cache().has_partition("t", 2)
    assert not cache().has_partition("x", 0)


def test_metadata_lists_alive_brokers_and_names_a_broker_as_controller() -> None:
    response = ask(())
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == [
        (1, "b1", 9092),
        (3, "b3", 9092),
    ]
    assert response.controller_id == 1
    assert response.topics == ()


def test_a_leader_that_is_not_alive_is_no_leader_for_clients() -> None:
    (topic,) = ask((named("t"),)).topics
    first, second = topic.partitions
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.NONE, "t", TOPIC)
    assert (first.partition_index, first.leader_id, first.leader_epoch) == (0, 1, 4)
    assert (first.replica_nodes, first.isr_nodes, first.offline_replicas) == ((1, 2), (1,), (2,))
    assert (second.error_code, second.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


def test_a_partition_without_a_leader_is_reported_as_leaderless() -> None:
    (topic,) = ask((named("s"),)).topics
    assert topic.partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_requesting_no_particular_topic_returns_all_sorted_by_name() -> None:
    assert [topic.name for topic in ask(None).topics] == ["s", "t"]


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (named("x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (
            metadata_request.MetadataRequestTopic(topic_id=UUID(int=9), name=None),
            ErrorCode.UNKNOWN_TOPIC_ID,
        ),
    ],
)
def test_an_unknown_topic_is_an_error_of_that_topic_only(wanted: Any, error: ErrorCode) -> None:
    unknown, known = ask((wanted, named("t"))).topics
    assert unknown.error_code == error
    assert known.error_code == ErrorCode.NONE


def test_a_topic_may_be_requested_by_id() -> None:
    wanted = metadata_request.MetadataRequestTopic(topic_id=OTHER, name=None)
    assert ask((wanted,)).topics[0].name == "s"
