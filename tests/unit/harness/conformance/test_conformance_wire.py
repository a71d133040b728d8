"""Requests from mappings in any version, checked against the codec of the reference system."""

import uuid

import pytest

from harness.conformance import wire
from system_under_test.protocol.wire import ServerCodec


def served(frame: bytes) -> object:
    """Returns the request as a broker of the reference system reads it."""
    return ServerCodec("broker").decode_request(frame[4:]).message


def test_a_broker_reads_what_is_built_from_a_mapping():
    topic = {"name": "t", "num_partitions": 2, "replication_factor": 3}
    message = served(wire.request_frame("create_topics", 7, {"topics": [topic], "timeout": 50}))
    assert (message.topics[0].name, message.topics[0].num_partitions) == ("t", 2)
    assert message.timeout.total_seconds() == 0.05
    assert message.topics[0].configs == ()


def test_missing_fields_get_the_default_of_the_schema_or_zero():
    partition = {"partition": 3, "fetch_offset": 1}
    values = {"topics": [{"topic": "t", "partitions": [partition]}]}
    (topic,) = served(wire.request_frame("fetch", 12, values)).topics
    assert topic.partitions[0].current_leader_epoch == -1
    assert topic.partitions[0].partition_max_bytes == 0


def test_a_field_that_does_not_exist_is_refused_unless_versions_are_swept():
    with pytest.raises(ValueError, match="MetadataRequest has no field nonsense"):
        wire.request_frame("metadata", 12, {"nonsense": 1})
    values = {"topics": [{"name": "t", "topic_id": uuid.UUID(int=1)}]}
    frame = wire.request_frame("metadata", 1, values, drops_unknown=True)
    assert served(frame).topics[0].name == "t"


def test_the_size_is_in_front():
    frame = wire.request_frame("api_versions", 0, {})
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


def test_a_version_that_does_not_exist_is_a_lookup_error():
    with pytest.raises(LookupError, match="metadata has no version 99"):
        wire.request_frame("metadata", 99, {})


def test_bytes_that_are_no_response_are_a_value_error():
    with pytest.raises(ValueError, match="Buffer is exhausted"):
        wire.read_response("metadata", 12, b"\0\0\0\7\0")
    body = wire.framed(b"")  # four bytes of a correlation id
    with pytest.raises(ValueError, match="left after the response"):
        wire.read_response("heartbeat", 0, body + b"\0\0" + b"more")


def test_keys_of_apis():
    assert (wire.api_key("produce"), wire.api_key("describe_topic_partitions")) == (0, 75)
