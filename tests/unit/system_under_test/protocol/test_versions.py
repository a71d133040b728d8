"""Versions of one message: what is copied, what an old version lacks, what it must not see."""

import asyncio
import importlib
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from system_under_test.protocol import messages as m
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import millis
from system_under_test.protocol.record_batch import encode_batch
from system_under_test.protocol.versions import can_read, converter, layout, wire_type
from system_under_test.protocol.wire import ServerCodec
from tests.unit.system_under_test.broker.node_fakes import run_virtually
from tests.unit.system_under_test.broker.replica_fakes import NATIVE, Broker
from tests.unit.system_under_test.protocol.wire_examples import (
    answer_of,
    api_of,
    arbitrary_request,
    frame_of,
)

CODEC = ServerCodec("broker")
NONE = ErrorCode.NONE


def received(name: str, version: int, /, **values: Any) -> Any:
    """Returns the request as a handler gets it when a client sends this in a version."""
    kind = wire_type(api_of(name), version, "request")
    return CODEC.decode_request(frame_of(api_of(name), kind(**values))).message


def told(name: str, version: int, answer: Any, /, **asked: Any) -> Any:
    """Returns what a client reads from a response to a request of a version."""
    kind = wire_type(api_of(name), version, "request")
    request = CODEC.decode_request(frame_of(api_of(name), kind(**asked)))
    return answer_of(api_of(name), version, CODEC.encode_response(request, answer))[1]


def nested(api: str, version: int, struct: str, /, **values: Any) -> Any:
    """Returns a struct inside the request of a version."""
    module = importlib.import_module(wire_type(api_of(api), version, "request").__module__)
    return getattr(module, struct)(**values)


# --- which versions need no conversion


def test_the_usual_versions_of_hot_requests_are_read_without_conversion():
    for name, versions in (("Produce", (9, 10, 11, 12, 13)), ("Fetch", (12, 15, 16, 17, 18))):
        api = api_of(name)
        for version in versions:
            canonical = next(one for one in api.canonical if one.first <= version <= one.last)
            request = wire_type(api, version, "request")
            assert can_read(canonical.request, request, after_skimming=True)


def test_a_tagged_field_that_only_the_sender_knows_is_skimmed():
    api = api_of("Fetch")
    newer, canonical = wire_type(api, 18, "request"), wire_type(api, 17, "request")
    assert not can_read(canonical, newer)
    assert can_read(canonical, newer, after_skimming=True)
    partition = nested(
        "Fetch",
        18,
        "FetchPartition",
        partition=1,
        fetch_offset=5,
        partition_max_bytes=9,
        high_watermark=3,
    )
    topic = nested("Fetch", 18, "FetchTopic", topic_id=UUID(int=1), partitions=(partition,))
    message = received(
        "Fetch", 18, max_wait=timedelta(0), min_bytes=1, topics=(topic,), forgotten_topics_data=()
    )
    assert type(message) is canonical
    assert message.topics[0].partitions[0].fetch_offset == 5


def test_a_version_with_other_fields_lengths_or_nulls_is_not_read_by_another():
    for name, version in (("Produce", 8), ("Fetch", 11), ("Fetch", 14), ("Metadata", 9)):
        api = api_of(name)
        canonical = next(one for one in api.canonical if one.first <= version <= one.last)
        assert not can_read(canonical.request, wire_type(api, version, "request"))


def test_a_version_with_a_tagged_field_less_is_read_but_not_written_by_the_newer_class():
    api = api_of("Fetch")
    newer, older = wire_type(api, 17, "request"), wire_type(api, 16, "request")
    assert can_read(newer, older)
    assert not can_read(older, newer)
    assert layout(newer) != layout(older)


def test_a_converted_entity_is_like_any_other():
    source, target = (wire_type(api_of("Heartbeat"), version, "request") for version in (0, 4))
    made = converter(source, target)(source(group_id="g", generation_id=3, member_id="m"))
    assert made == target(group_id="g", generation_id=3, member_id="m", group_instance_id=None)
    assert hash(made) == hash(replace(made))
    with pytest.raises(AttributeError):
        made.group_id = "other"


@pytest.mark.parametrize("name", ["Fetch", "Metadata", "JoinGroup", "OffsetCommit"])
def test_every_field_of_a_converted_entity_is_set(name):
    api = api_of(name)
    canonical = api.canonical[0].request
    older = arbitrary_request(api, api.canonical[0].first + 1, 0)
    made = converter(type(older), canonical)(older)
    for item in fields(canonical):
        assert hasattr(made, item.name), item.name


# --- what old requests mean


def test_metadata_version_0_requests_all_topics_by_naming_none():
    assert received("Metadata", 0, topics=()).topics is None
    assert received("Metadata", 1, topics=()).topics == ()
    assert received("Metadata", 1, topics=None).topics is None
    named = nested("Metadata", 0, "MetadataRequestTopic", name="t")
    assert [topic.name for topic in received("Metadata", 0, topics=(named,)).topics] == ["t"]


def test_metadata_before_version_4_may_create_topics():
    assert received("Metadata", 3, topics=()).allow_auto_topic_creation
    assert not received(
        "Metadata", 4, topics=(), allow_auto_topic_creation=False
    ).allow_auto_topic_creation


def test_a_fetch_before_sessions_is_a_full_fetch():
    request = received(
        "Fetch",
        4,
        max_wait=millis(5),
        min_bytes=1,
        max_bytes=9,
        isolation_level=1,
        topics=(),
        replica_id=-1,
    )
    assert (request.session_id, request.session_epoch, request.rack_id) == (0, -1, "")


def test_the_replica_of_fetch_13_and_14_has_no_epoch():
    for version in (13, 14):
        request = received(
            "Fetch",
            version,
            replica_id=3,
            max_wait=millis(5),
            min_bytes=1,
            topics=(),
            forgotten_topics_data=(),
        )
        assert request.replica_state == m.fetch_request.ReplicaState(replica_id=3, replica_epoch=-1)


@pytest.mark.parametrize(
    ("version", "timestamp", "is_known"),
    [
        (1, -1, True), (1, -2, True), (1, 0, True), (1, 5, True), (1, -3, False), (6, -3, False),
        (7, -3, True), (7, -4, False), (8, -4, True), (8, -5, False), (9, -5, True), (9, -6, False),
    ],
)  # fmt: skip
def test_list_offsets_supports_only_the_timestamps_of_its_version(version, timestamp, is_known):
    wanted = nested(
        "ListOffsets", version, "ListOffsetsPartition", partition_index=0, timestamp=timestamp
    )
    topic = nested("ListOffsets", version, "ListOffsetsTopic", name="t", partitions=(wanted,))
    extra = {} if version == 1 else {"isolation_level": 0}
    request = received("ListOffsets", version, replica_id=-1, topics=(topic,), **extra)
    (asked,) = request.topics[0].partitions
    assert (asked.timestamp == timestamp) == (is_known or timestamp == -6)
    broker = Broker()
    broker.lead()
    response = broker.send(request).topics[0].partitions[0]
    assert (response.error_code != ErrorCode.UNSUPPORTED_VERSION) == is_known


def test_find_coordinator_up_to_version_3_is_about_one_group():
    assert received(
        "FindCoordinator", 0, key="g"
    ) == m.find_coordinator_request.FindCoordinatorRequest(key_type=0, coordinator_keys=("g",))
    assert received("FindCoordinator", 3, key="x", key_type=1).key_type == 1
    found = m.find_coordinator_response
    response = found.FindCoordinatorResponse(
        throttle_time=millis(0),
        coordinators=(
            found.Coordinator(
                key="g", node_id=2, host="h", port=9, error_code=NONE, error_message=None
            ),
        ),
    )
    for version in (0, 1, 2, 3):
        read = told(
            "FindCoordinator", version, response, key="g", **({"key_type": 0} if version else {})
        )
        assert (read.node_id, read.host, read.port, read.error_code) == (2, "h", 9, 0)


def test_offset_fetch_up_to_version_7_is_about_one_group():
    topic = nested("OffsetFetch", 5, "OffsetFetchRequestTopic", name="t", partition_indexes=(0, 2))
    request = received("OffsetFetch", 5, group_id="g", topics=(topic,))
    ((group,), stable) = request.groups, request.require_stable
    assert (group.group_id, group.topics[0].partition_indexes, stable) == ("g", (0, 2), False)
    assert received("OffsetFetch", 2, group_id="g", topics=None).groups[0].topics is None
    assert received("OffsetFetch", 7, group_id="g", topics=None, require_stable=True).require_stable


def _offsets(error: ErrorCode, topics: Any) -> Any:
    fetched = m.offset_fetch_response
    return fetched.OffsetFetchResponse(
        throttle_time=millis(0),
        groups=(fetched.OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=error),),
    )


def test_offset_fetch_version_1_gets_a_group_error_per_partition():
    topic = nested("OffsetFetch", 1, "OffsetFetchRequestTopic", name="t", partition_indexes=(0, 2))
    read = told(
        "OffsetFetch", 1, _offsets(ErrorCode.NOT_COORDINATOR, ()), group_id="g", topics=(topic,)
    )
    assert [
        (topic.name, one.partition_index, one.committed_offset, one.error_code)
        for topic in read.topics
        for one in topic.partitions
    ] == [("t", 0, -1, ErrorCode.NOT_COORDINATOR), ("t", 2, -1, ErrorCode.NOT_COORDINATOR)]
    newer = told(
        "OffsetFetch", 2, _offsets(ErrorCode.NOT_COORDINATOR, ()), group_id="g", topics=None
    )
    assert (newer.error_code, newer.topics) == (ErrorCode.NOT_COORDINATOR, ())


def test_every_version_gets_the_found_offsets():
    fetched = m.offset_fetch_response
    one = fetched.OffsetFetchResponsePartitions(
        partition_index=3,
        committed_offset=7,
        committed_leader_epoch=2,
        metadata="x",
        error_code=NONE,
    )
    found = _offsets(NONE, (fetched.OffsetFetchResponseTopics(name="t", partitions=(one,)),))
    for version in range(1, 8):
        read = told("OffsetFetch", version, found, group_id="g", topics=())
        partition = read.topics[0].partitions[0]
        assert (partition.partition_index, partition.committed_offset, partition.metadata) == (
            3,
            7,
            "x",
        )


def test_leave_group_up_to_version_2_is_about_one_member():
    request = received("LeaveGroup", 2, group_id="g", member_id="m")
    assert [(one.member_id, one.group_instance_id) for one in request.members] == [("m", None)]
    left = m.leave_group_response
    member = left.MemberResponse(
        member_id="m", group_instance_id=None, error_code=ErrorCode.UNKNOWN_MEMBER_ID
    )
    response = left.LeaveGroupResponse(throttle_time=millis(0), error_code=NONE, members=(member,))
    for version in (0, 1, 2):
        read = told("LeaveGroup", version, response, group_id="g", member_id="m")
        assert read.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    refused = replace(response, error_code=ErrorCode.NOT_COORDINATOR, members=())
    assert told("LeaveGroup", 0, refused, group_id="g", member_id="m").error_code == 16


def test_delete_topics_up_to_version_5_uses_names_only():
    request = received("DeleteTopics", 5, topic_names=("a", "b"), timeout=millis(9))
    assert [(one.name, one.topic_id) for one in request.topics] == [("a", None), ("b", None)]
    assert request.timeout == millis(9)


def test_old_members_get_a_missing_group_protocol_as_an_empty_name():
    response = m.join_group_response.JoinGroupResponse(
        throttle_time=millis(0), error_code=ErrorCode.UNKNOWN_MEMBER_ID, generation_id=-1,
        protocol_name=None, leader="", member_id="m", members=(),
    )  # fmt: skip
    asked = {
        "group_id": "g", "session_timeout": millis(1), "rebalance_timeout": millis(1), "member_id": "m",
        "protocol_type": "consumer", "protocols": (),
    }  # fmt: skip
    assert told("JoinGroup", 6, response, **asked).protocol_name == ""
    assert told("JoinGroup", 7, response, **asked).protocol_name is None


# --- what old versions must not see


def test_list_offsets_up_to_version_4_gets_an_error_that_its_clients_know():
    found = m.list_offsets_response
    topics = (
        found.ListOffsetsTopicResponse(
            name="t",
            partitions=tuple(
                found.ListOffsetsPartitionResponse(partition_index=n, error_code=error)
                for n, error in enumerate(
                    (ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.FENCED_LEADER_EPOCH)
                )
            ),
        ),
    )
    response = found.ListOffsetsResponse(throttle_time=millis(0), topics=topics)
    for version in range(1, 10):
        extra = {} if version == 1 else {"isolation_level": 0}
        read = told("ListOffsets", version, response, replica_id=-1, topics=(), **extra)
        assert [one.error_code for one in read.topics[0].partitions] == [
            ErrorCode.LEADER_NOT_AVAILABLE if version < 5 else ErrorCode.OFFSET_NOT_AVAILABLE,
            ErrorCode.FENCED_LEADER_EPOCH,
        ]


def test_fetch_up_to_version_5_gets_a_failed_disk_as_not_leader():
    found = m.fetch_by_name_response
    partition = found.PartitionData(
        partition_index=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR, high_watermark=-1,
        aborted_transactions=None, records=b"",
    )  # fmt: skip
    response = found.FetchResponse(
        throttle_time=millis(0), error_code=NONE, session_id=0,
        responses=(found.FetchableTopicResponse(topic="t", partitions=(partition,)),),
    )  # fmt: skip
    for version in range(4, 13):
        later = {"forgotten_topics_data": ()} if version >= 7 else {}
        read = told(
            "Fetch", version, response, replica_id=-1, max_wait=millis(0), min_bytes=0, isolation_level=0,
            topics=(), **later,
        )  # fmt: skip
        assert read.responses[0].partitions[0].error_code == (
            ErrorCode.NOT_LEADER_OR_FOLLOWER if version < 6 else ErrorCode.KAFKA_STORAGE_ERROR
        )


def test_metadata_version_0_reports_offline_replicas_by_an_error():
    found = m.metadata_response
    topic = found.MetadataResponseTopic(
        error_code=NONE, name="t", topic_id=UUID(int=1),
        partitions=tuple(
            found.MetadataResponsePartition(
                error_code=error, partition_index=n, leader_id=1, replica_nodes=(1, 2, 3),
                isr_nodes=(1, 2), offline_replicas=offline,
            )
            for n, (error, offline) in enumerate(
                ((NONE, ()), (NONE, (2,)), (ErrorCode.LEADER_NOT_AVAILABLE, (1, 3)))
            )
        ),
    )  # fmt: skip
    response = found.MetadataResponse(
        throttle_time=millis(0), brokers=(), cluster_id="c", controller_id=1, topics=(topic,)
    )
    old = told("Metadata", 0, response, topics=())
    assert [
        (one.error_code, one.replica_nodes, one.isr_nodes) for one in old.topics[0].partitions
    ] == [
        (NONE, (1, 2, 3), (1, 2)),
        (ErrorCode.REPLICA_NOT_AVAILABLE, (1, 3), (1,)),
        (ErrorCode.LEADER_NOT_AVAILABLE, (2,), (2,)),
    ]
    newer = told("Metadata", 1, response, topics=())
    assert [one.error_code for one in newer.topics[0].partitions] == [NONE, NONE, 5]


# --- what the version decides inside a broker


def test_zstd_is_refused_for_clients_that_may_not_support_it():
    broker = Broker()
    broker.lead()
    zstd = bytearray(encode_batch([(b"k", b"v")], timestamp_ms=1))
    zstd[22] |= 4  # its checksum is now wrong: what is looked at first is the codec

    async def errors() -> list[Any]:
        found = []
        for version in (3, 6, 7, 11, -1):
            context = replace(NATIVE, api_version=version)
            request = m.produce_request.ProduceRequest(
                acks=1,
                timeout=millis(100),
                topic_data=(
                    m.produce_request.TopicProduceData(
                        name="t",
                        partition_data=(
                            m.produce_request.PartitionProduceData(index=0, records=bytes(zstd)),
                        ),
                    ),
                ),
            )
            response = broker.manager.handle_request(request, context)
            assert not isinstance(response, asyncio.Future)
            found.append(response.responses[0].partition_responses[0].error_code)
        return found

    refused, corrupt = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.CORRUPT_MESSAGE
    assert run_virtually(errors()) == [refused, refused, corrupt, corrupt, corrupt]
