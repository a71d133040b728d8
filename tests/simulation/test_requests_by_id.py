"""Clients that identify topics by id: Produce 13, OffsetCommit 10 and OffsetFetch 10."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    millis,
    offset_commit_by_id_request,
    offset_commit_request,
    offset_fetch_by_id_request,
    produce_by_id_request,
)
from system_under_test.protocol.record_batch import encode_batch
from system_under_test.runtime import RequestContext
from tests.simulation.cluster_story import TOPIC, Cluster
from tests.simulation.group_member import GROUP, Member

UNKNOWN = UUID(int=77)


def started() -> Cluster:
    cluster = Cluster().start()
    cluster.create_topic()
    return cluster


def topic_id(cluster: Cluster) -> UUID:
    registration = cluster.partition()
    assert registration is not None
    return registration.topic_id


def produce(cluster: Cluster, *wanted: UUID, acks: int = -1) -> Any:
    messages = produce_by_id_request
    data = messages.PartitionProduceData(
        index=0, records=encode_batch([(None, b"v")], timestamp_ms=1)
    )
    request = messages.ProduceRequest(
        acks=acks,
        timeout=millis(1500),
        topic_data=tuple(
            messages.TopicProduceData(topic_id=one, partition_data=(data,)) for one in wanted
        ),
    )
    return cluster.do(cluster._ask(cluster.leader(), request))


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_batch_is_appended_to_the_topic_with_the_id_and_to_no_other(acks: int) -> None:
    cluster = started()
    response = produce(cluster, UNKNOWN, topic_id(cluster), acks=acks)
    found = {one.topic_id: one.partition_responses[0] for one in response.responses}
    assert found[topic_id(cluster)].error_code == 0
    assert found[topic_id(cluster)].base_offset == 0
    assert found[UNKNOWN].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert found[UNKNOWN].base_offset == -1
    assert cluster.read_all() == [b"v"]


def test_without_acks_an_unknown_id_closes_the_connection() -> None:
    cluster = started()
    with pytest.raises(ConnectionError):
        produce(cluster, UNKNOWN, acks=0)


def commit(member: Member, wanted: UUID, offset: int) -> Any:
    messages = offset_commit_by_id_request
    partition = messages.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata="text"
    )
    topics = (messages.OffsetCommitRequestTopic(topic_id=wanted, partitions=(partition,)),)
    request = messages.OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=None,
        topics=topics,
    )
    (topic,) = member.ask(request).topics
    assert topic.topic_id == wanted
    return topic.partitions[0].error_code


def committed(member: Member, *wanted: UUID) -> Any:
    messages = offset_fetch_by_id_request
    topics = tuple(
        messages.OffsetFetchRequestTopics(topic_id=one, partition_indexes=(0,)) for one in wanted
    )
    group = messages.OffsetFetchRequestGroup(group_id=GROUP, topics=topics or None)
    response = member.ask(messages.OffsetFetchRequest(groups=(group,), require_stable=False))
    return {
        one.topic_id: (one.partitions[0].committed_offset, one.partitions[0].error_code)
        for one in response.groups[0].topics
    }


def test_offsets_are_committed_and_fetched_by_id() -> None:
    cluster = started()
    member = Member(cluster)
    known = topic_id(cluster)
    assert commit(member, known, 5) == 0
    assert commit(member, UNKNOWN, 5) == ErrorCode.UNKNOWN_TOPIC_ID
    assert member.committed() == 5, "by name it is the same offset"
    assert committed(member, known) == {known: (5, 0)}
    assert committed(member) == {known: (5, 0)}, "all of them"
    assert committed(member, UNKNOWN, known) == {
        known: (5, 0),
        UNKNOWN: (-1, ErrorCode.UNKNOWN_TOPIC_ID),
    }


@pytest.mark.parametrize(
    ("version", "error"),
    [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_a_generation_of_a_group_that_does_not_exist_is_refused(version: int, error: int) -> None:
    cluster = started()
    coordinator = cluster.node(Member(cluster).coordinator).process
    messages = offset_commit_request
    partition = messages.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    request = messages.OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=3,
        member_id="m",
        group_instance_id=None,
        topics=(messages.OffsetCommitRequestTopic(name=TOPIC, partitions=(partition,)),),
    )
    context = RequestContext(peer="client:1", connection_id=1, api_version=version)
    # Another group of the same partition of the offsets topic.
    others = (f"other-{number}" for number in range(100))
    errors = [
        coordinator.handle(replace(request, group_id=one), context)
        .topics[0]
        .partitions[0]
        .error_code
        for one in others
    ]
    assert set(errors) == {error, ErrorCode.NOT_COORDINATOR}
