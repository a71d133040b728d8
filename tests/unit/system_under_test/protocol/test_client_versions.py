"""A client sends the highest version that both sides know, and loses nothing on the way there and back."""

import asyncio
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from system_under_test.protocol import messages as m
from system_under_test.protocol.apis import APIS, BROKER
from system_under_test.protocol.client_versions import (
    SPOKEN,
    NodeVersions,
    TopicIds,
    UnsupportedVersionError,
    api_versions_of,
    from_wire,
    served_versions,
    to_wire,
    version_to_send_instead,
)
from system_under_test.protocol.entities import fetch_of, fetch_partition, fetch_topic, produce_of
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.lost import LostFieldError
from system_under_test.protocol.messages import NO_THROTTLE, millis
from system_under_test.protocol.versions import wire_type
from system_under_test.protocol.wire import ClientCodec, ServerCodec
from system_under_test.real.host import ClientHost
from tests.unit.system_under_test.protocol.wire_examples import (
    arbitrary_response,
    body_of,
    frame_of,
    in_common,
)

TOPIC, TOPIC_ID = "t", UUID(int=7)
VERSIONS = [
    pytest.param(spoken, version, id=f"{spoken.api.name}-{version}")
    for spoken in SPOKEN.values()
    for version in range(spoken.first, spoken.last + 1)
]
BY_NAME = {("Fetch", 12)}
BY_ID = {("Produce", 13)}


def topics() -> TopicIds:
    """Returns what a client knows after a Metadata response about one topic."""
    known = TopicIds()
    known.learn(metadata_response())
    return known


def metadata_response() -> Any:
    topic = m.metadata_response.MetadataResponseTopic(
        error_code=ErrorCode.NONE, name=TOPIC, topic_id=TOPIC_ID, partitions=()
    )
    return m.metadata_response.MetadataResponse(
        throttle_time=NO_THROTTLE, brokers=(), topics=(topic,)
    )


def fetch(**changed: Any) -> Any:
    wanted = fetch_partition(0, 3, 17, 1 << 20)
    return replace(fetch_of((fetch_topic(TOPIC_ID, (wanted,)),), millis(20), 1 << 20), **changed)


def list_offsets(timestamp: int = -1) -> Any:
    partition = m.list_offsets_request.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=3, timestamp=timestamp
    )
    topic = m.list_offsets_request.ListOffsetsTopic(name=TOPIC, partitions=(partition,))
    return m.list_offsets_request.ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=(topic,)
    )


def offset_commit() -> Any:
    partition = m.offset_commit_request.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=9, committed_leader_epoch=3, committed_metadata=""
    )
    return m.offset_commit_request.OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=4,
        member_id="me",
        group_instance_id="static",
        topics=(
            m.offset_commit_request.OffsetCommitRequestTopic(name=TOPIC, partitions=(partition,)),
        ),
    )


def txn_offset_commit() -> Any:
    partition = m.txn_offset_commit_request.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=9, committed_metadata=""
    )
    return m.txn_offset_commit_request.TxnOffsetCommitRequest(
        transactional_id="id",
        group_id="g",
        producer_id=5,
        producer_epoch=2,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=(
            m.txn_offset_commit_request.TxnOffsetCommitRequestTopic(
                name=TOPIC, partitions=(partition,)
            ),
        ),
    )


def offset_fetch() -> Any:
    topic = m.offset_fetch_request.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=(0, 1))
    group = m.offset_fetch_request.OffsetFetchRequestGroup(group_id="g", topics=(topic,))
    return m.offset_fetch_request.OffsetFetchRequest(groups=(group,), require_stable=True)


REQUESTS: dict[str, Callable[[], Any]] = {
    "Produce": lambda: produce_of(TOPIC, 1, b"batch", -1, millis(1500)),
    "Fetch": fetch,
    "ListOffsets": list_offsets,
    "Metadata": lambda: m.metadata_request.MetadataRequest(
        topics=(m.metadata_request.MetadataRequestTopic(topic_id=None, name=TOPIC),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    ),
    "OffsetCommit": offset_commit,
    "OffsetFetch": offset_fetch,
    "FindCoordinator": lambda: m.find_coordinator_request.FindCoordinatorRequest(
        key_type=0, coordinator_keys=("g",)
    ),
    "InitProducerId": lambda: m.init_producer_id_request.InitProducerIdRequest(
        transactional_id=None, transaction_timeout=millis(7), producer_id=5, producer_epoch=2
    ),
    "AddOffsetsToTxn": lambda: m.add_offsets_to_txn_request.AddOffsetsToTxnRequest(
        transactional_id="id", producer_id=5, producer_epoch=2, group_id="g"
    ),
    "EndTxn": lambda: m.end_txn_request.EndTxnRequest(
        transactional_id="id", producer_id=5, producer_epoch=2, committed=True
    ),
    "TxnOffsetCommit": txn_offset_commit,
    "DescribeQuorum": lambda: m.describe_quorum_request.DescribeQuorumRequest(
        topics=(
            m.describe_quorum_request.TopicData(
                topic_name="__cluster_metadata",
                partitions=(m.describe_quorum_request.PartitionData(partition_index=0),),
            ),
        )
    ),
    "AlterPartitionReassignments": lambda: (
        m.alter_reassignments_request.AlterPartitionReassignmentsRequest(
            timeout=millis(1500),
            topics=(
                m.alter_reassignments_request.ReassignableTopic(
                    name=TOPIC,
                    partitions=(
                        m.alter_reassignments_request.ReassignablePartition(
                            partition_index=0, replicas=(1, 2)
                        ),
                    ),
                ),
            ),
        )
    ),
    "DescribeCluster": lambda: m.describe_cluster_request.DescribeClusterRequest(
        include_cluster_authorized_operations=True, include_fenced_brokers=False
    ),
}
"""What the native client sends, with every field that it sets."""


# --- requests


@pytest.mark.parametrize(("spoken", "version"), VERSIONS)
def test_a_request_has_the_same_content_in_every_version(spoken: Any, version: int) -> None:
    request = REQUESTS[spoken.api.name]()
    assert type(request) is spoken.request
    sent = to_wire(request, version, topics())
    assert type(sent) is wire_type(spoken.api, version, "request")
    pairs = in_common(request, sent)
    assert pairs
    for path, mine, theirs in pairs:
        assert mine == theirs, path
    # kio accepts every value that the older class has, so nothing is missing or of a wrong type.
    frame = ClientCodec().encode_request(sent, 1, "client")
    assert struct.unpack_from(">hh", frame, 4) == (spoken.api.key, version)


def test_fetches_name_topics_up_to_version_12_and_identify_them_later() -> None:
    assert [one.topic for one in to_wire(fetch(), 12, topics()).topics] == [TOPIC]
    for version in range(13, 19):
        assert [one.topic_id for one in to_wire(fetch(), version, topics()).topics] == [TOPIC_ID]


def test_the_replica_id_of_a_fetch_keeps_its_value_in_every_version() -> None:
    follower = m.fetch_request.ReplicaState(replica_id=3, replica_epoch=-1)
    assert to_wire(fetch(replica_state=follower), 14, topics()).replica_id == 3
    assert to_wire(fetch(), 14, topics()).replica_id == -1
    assert to_wire(fetch(replica_state=follower), 15, topics()).replica_state.replica_id == 3


def test_produce_requests_name_topics_up_to_version_12_and_identify_them_later() -> None:
    request = REQUESTS["Produce"]()
    assert [one.name for one in to_wire(request, 12, topics()).topic_data] == [TOPIC]
    (topic,) = to_wire(request, 13, topics()).topic_data
    assert topic.topic_id == TOPIC_ID
    assert topic.partition_data[0].records == b"batch"


@pytest.mark.parametrize(
    ("request_", "version", "field"),
    [
        (
            fetch(replica_state=m.fetch_request.ReplicaState(replica_id=3, replica_epoch=5)),
            14,
            "replica_epoch",
        ),
        (list_offsets(-5), 8, "timestamp"),
        (list_offsets(-4), 7, "timestamp"),
        (
            m.describe_cluster_request.DescribeClusterRequest(
                include_cluster_authorized_operations=False, include_fenced_brokers=True
            ),
            1,
            "include_fenced_brokers",
        ),
        (
            m.describe_cluster_request.DescribeClusterRequest(
                include_cluster_authorized_operations=False,
                include_fenced_brokers=False,
                endpoint_type=2,
            ),
            0,
            "endpoint_type",
        ),
    ],
)
def test_what_an_older_version_cannot_express_is_refused_and_never_dropped(
    request_: Any, version: int, field: str
) -> None:
    with pytest.raises(ValueError, match=field):
        to_wire(request_, version, topics())
    assert to_wire(request_, type(request_).__version__, topics()) is request_


def test_a_special_timestamp_is_sent_by_versions_that_have_it() -> None:
    assert to_wire(list_offsets(-4), 8, topics()).topics[0].partitions[0].timestamp == -4
    assert to_wire(list_offsets(-3), 7, topics()).topics[0].partitions[0].timestamp == -3


def test_the_directory_of_a_follower_may_be_lost() -> None:
    wanted = replace(fetch_partition(0, 3, 17, 1 << 20), replica_directory_id=UUID(int=5))
    request = fetch_of((fetch_topic(TOPIC_ID, (wanted,)),), millis(20), 1 << 20)
    (topic,) = to_wire(request, 16, topics()).topics
    assert not hasattr(topic.partitions[0], "replica_directory_id")


def test_a_topic_that_no_metadata_response_reported_cannot_be_named_or_identified() -> None:
    with pytest.raises(ValueError, match="no Metadata response reported"):
        to_wire(fetch(), 12, TopicIds())
    with pytest.raises(ValueError, match="no Metadata response reported"):
        to_wire(REQUESTS["Produce"](), 13, TopicIds())


# --- responses


@pytest.mark.parametrize(("spoken", "version"), VERSIONS)
def test_a_response_of_every_version_becomes_the_canonical_one(spoken: Any, version: int) -> None:
    wire = wire_type(spoken.api, version, "response")
    for seed in range(5):
        sent = known_topics(spoken.api.name, version, arbitrary_response(wire, seed))
        if (spoken.api.name, version) == ("Metadata", 13):
            sent = replace(sent, error_code=ErrorCode.NONE)
        read = from_wire(sent, topics())
        assert type(read) is spoken.response
        for path, mine, theirs in in_common(sent, read):
            assert mine == theirs, path
        assert body_of(read), "the canonical response is complete: kio can write it"


def known_topics(api: str, version: int, response: Any) -> Any:
    """Returns a response whose topics are those that the client knows."""
    if (api, version) in BY_NAME:
        return replace(
            response, responses=tuple(replace(one, topic=TOPIC) for one in response.responses)
        )
    if (api, version) in BY_ID:
        return replace(
            response, responses=tuple(replace(one, topic_id=TOPIC_ID) for one in response.responses)
        )
    return response


def test_topics_of_responses_are_identified_as_in_the_canonical_version() -> None:
    fetched = wire_type(SPOKEN[1].api, 12, "response")
    by_name = known_topics("Fetch", 12, with_topics(fetched))
    assert {one.topic_id for one in from_wire(by_name, topics()).responses} == {TOPIC_ID}
    produced = wire_type(SPOKEN[0].api, 13, "response")
    by_id = known_topics("Produce", 13, with_topics(produced))
    assert {one.name for one in from_wire(by_id, topics()).responses} == {TOPIC}
    with pytest.raises(ValueError, match="no Metadata response reported"):
        from_wire(by_id, TopicIds())


def with_topics(response_type: type[Any]) -> Any:
    return next(
        response
        for seed in range(100)
        if (response := arbitrary_response(response_type, seed)).responses
    )


def test_fields_that_an_older_response_lacks_have_the_defaults_of_the_schema() -> None:
    older = with_topics(wire_type(SPOKEN[0].api, 9, "response"))
    read = from_wire(older, topics())
    assert read.node_endpoints == ()
    for topic in read.responses:
        for one in topic.partition_responses:
            assert (one.current_leader.leader_id, one.current_leader.leader_epoch) == (-1, -1)


def test_an_error_that_only_the_newer_response_can_express_is_not_overlooked() -> None:
    newest = wire_type(SPOKEN[3].api, 13, "response")
    response = replace(
        newest(throttle_time=NO_THROTTLE, brokers=(), topics=(), error_code=ErrorCode.NONE),
        error_code=ErrorCode.UNKNOWN_SERVER_ERROR,
    )
    with pytest.raises(LostFieldError, match="error_code"):
        from_wire(response, topics())


# --- the choice


def node(**served: tuple[int, int]) -> NodeVersions:
    keys = {api.name: api.key for api in APIS}
    return NodeVersions("h:1", {keys[name]: span for name, span in served.items()}, topics())


@pytest.mark.parametrize(
    ("kafka", "api", "served", "sent"),
    [
        ("3.4", "Produce", (0, 9), 9),
        ("3.7", "Produce", (0, 10), 10),
        ("3.9", "Produce", (0, 11), 11),
        ("4.0", "Produce", (0, 12), 12),
        ("4.1", "Produce", (0, 13), 13),
        ("a later one", "Produce", (12, 20), 13),
        ("3.0", "Fetch", (0, 12), 12),
        ("3.4", "Fetch", (0, 13), 13),
        ("3.6", "Fetch", (0, 15), 15),
        ("4.0", "Fetch", (4, 17), 17),
        ("4.1", "Fetch", (4, 18), 18),
        ("3.4", "ListOffsets", (0, 7), 7),
        ("4.0", "ListOffsets", (1, 10), 10),
        ("3.4", "Metadata", (0, 12), 12),
        ("4.0", "Metadata", (0, 13), 13),
        ("4.1", "OffsetCommit", (2, 10), 9),
        ("4.1", "OffsetFetch", (1, 10), 9),
    ],
)
def test_the_highest_version_that_both_sides_know_is_sent(
    kafka: str, api: str, served: tuple[int, int], sent: int
) -> None:
    request = REQUESTS[api]()
    assert node(**{api: served}).outgoing(request).__version__ == sent, kafka


def test_before_the_id_of_a_topic_is_known_produce_requests_name_it() -> None:
    versions = NodeVersions("h:1", {0: (3, 13)}, TopicIds())
    assert versions.outgoing(REQUESTS["Produce"]()).__version__ == 12


def test_metadata_responses_teach_the_client_the_ids_of_topics() -> None:
    versions = NodeVersions("h:1", {0: (3, 13), 3: (0, 12)}, TopicIds())
    versions.incoming(REQUESTS["Metadata"](), metadata_response())
    assert versions.outgoing(REQUESTS["Produce"]()).__version__ == 13


def test_a_node_without_a_common_version_is_named_with_what_it_serves() -> None:
    with pytest.raises(
        UnsupportedVersionError, match=r"h:1 serves Produce in versions 0 to 8.*sends versions 9"
    ):
        node(Produce=(0, 8)).outgoing(REQUESTS["Produce"]())
    with pytest.raises(UnsupportedVersionError, match="h:1 does not serve Produce"):
        node(Fetch=(4, 17)).outgoing(REQUESTS["Produce"]())
    state = m.fetch_request.ReplicaState(replica_id=3, replica_epoch=5)
    with pytest.raises(UnsupportedVersionError, match="Fetch version 14 cannot express"):
        node(Fetch=(4, 14)).outgoing(fetch(replica_state=state))


def test_other_apis_are_sent_in_their_own_version_or_not_at_all() -> None:
    request = m.heartbeat_request.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert node(Heartbeat=(0, 4)).outgoing(request) is request
    with pytest.raises(UnsupportedVersionError, match=r"Heartbeat in versions 0 to 3.*version 4"):
        node(Heartbeat=(0, 3)).outgoing(request)


def test_the_reference_system_reads_every_request_in_the_newest_common_version() -> None:
    codec = ServerCodec(BROKER)
    for name, make in REQUESTS.items():
        api = next(one for one in APIS if one.name == name)
        versions = node(**{name: (api.min_version, api.max_version)})
        sent = versions.outgoing(make())
        assert sent.__version__ == min(api.max_version, SPOKEN[api.key].last)
        assert codec.decode_request(frame_of(api, sent)).version == sent.__version__


# --- ApiVersions


def api_versions(version: int, code: int = 0, *keys: tuple[int, int, int]) -> Any:
    kind = wire_type(next(one for one in APIS if one.key == 18), version, "response")
    row = kind.__annotations__["api_keys"].__args__[0]
    values = {"error_code": ErrorCode(code)} | ({"throttle_time": NO_THROTTLE} if version else {})
    made = tuple(row(api_key=k, min_version=low, max_version=high) for k, low, high in keys)
    return kind(**values, api_keys=made)


def test_an_unknown_version_of_api_versions_is_replaced_by_one_that_the_node_knows() -> None:
    assert version_to_send_instead(4, api_versions(4, 0, (0, 3, 13))) is None
    assert version_to_send_instead(4, api_versions(0, 35, (18, 0, 3))) == 3
    assert version_to_send_instead(4, api_versions(0, 35)) == 0
    assert version_to_send_instead(3, api_versions(0, 35, (18, 0, 7))) == 2
    with pytest.raises(ValueError, match="version 0 has error 35"):
        version_to_send_instead(0, api_versions(0, 35))
    with pytest.raises(ValueError, match="error 42"):
        version_to_send_instead(4, api_versions(4, 42))


def test_the_refusal_of_a_version_of_api_versions_is_read_in_version_0() -> None:
    body = body_of(api_versions(0, 35, (18, 0, 3)))
    for version in (3, 4):
        request_type = type(api_versions_of(version))
        _, read = ClientCodec().decode_response(request_type, b"\0\0\0\x07" + body)
        assert read.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert served_versions(read) == {18: (0, 3)}


class OldNode:
    """Responds as a node that serves only some versions; keeps what it received: (API key, version).

    Args:
        served: Smallest and largest version by API key.
        answers: Makes the response to a request, given API key and version.
        newest_api_versions: Of ApiVersions.
    """

    def __init__(
        self,
        served: dict[int, tuple[int, int]],
        answers: Callable[[int, int], Any],
        newest_api_versions: int = 3,
    ) -> None:
        self._served = served
        self._answers = answers
        self._newest = newest_api_versions
        self.received: list[tuple[int, int]] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._respond(reader, writer)
        finally:
            writer.close()
            self.connections -= 1

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while size := await reader.read(4):
            frame = await reader.readexactly(int.from_bytes(size, "big"))
            key, version, correlation_id = struct.unpack_from(">hhi", frame)
            self.received.append((key, version))
            if key == 18:
                response = self._versions(version)
            else:
                low, high = self._served[key]
                assert low <= version <= high, "Kafka closes the connection"
                response = self._answers(key, version)
            tags = b"\0" if type(response).__header_schema__.__flexible__ else b""
            body = struct.pack(">i", correlation_id) + tags + body_of(response)
            writer.write(struct.pack(">i", len(body)) + body)

    def _versions(self, version: int) -> Any:
        if version > self._newest:
            return api_versions(0, 35, (18, 0, self._newest))
        rows = [(key, *span) for key, span in self._served.items()]
        return api_versions(version, 0, *rows, (18, 0, self._newest))


def use(node: OldNode, story: Callable[[Any], Any]) -> Any:
    """Runs a story with a connection of a client to a node."""

    async def run() -> Any:
        server = await asyncio.start_server(node.serve, "127.0.0.1", 0)
        host = ClientHost("client-0")
        try:
            port = server.sockets[0].getsockname()[1]
            return await story(await host.network.connect(f"127.0.0.1:{port}", 5000))
        finally:
            host.close()
            server.close()
            while node.connections:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0)  # the transport of the last one closes in the next round

    return asyncio.run(run())


def test_a_client_speaks_the_versions_of_an_old_node() -> None:
    spoken = {key: SPOKEN[key] for key in (0, 1, 3)}

    def respond(key: int, version: int) -> Any:
        name = spoken[key].api.name
        if key == 3:
            return metadata_response()
        kind = wire_type(spoken[key].api, version, "response")
        return known_topics(name, version, with_topics(kind))

    node = OldNode({0: (0, 9), 1: (0, 12), 3: (0, 12)}, respond, newest_api_versions=3)

    async def story(connection: Any) -> list[Any]:
        requests = [REQUESTS["Metadata"](), REQUESTS["Produce"](), fetch()]
        return [await connection.request(request, 5000) for request in requests]

    metadata, produced, fetched = use(node, story)
    assert node.received == [(18, 4), (18, 3), (3, 12), (0, 9), (1, 12)]
    assert metadata == metadata_response()
    assert isinstance(produced, m.produce_response.ProduceResponse)
    assert isinstance(fetched, m.fetch_response.FetchResponse)
    assert {one.topic_id for one in fetched.responses} == {TOPIC_ID}


def test_a_request_that_no_version_can_express_is_not_sent() -> None:
    node = OldNode({1: (0, 11)}, lambda key, version: None)

    async def story(connection: Any) -> None:
        with pytest.raises(UnsupportedVersionError, match=r"Apache Kafka 3\.4 or later"):
            connection.request(fetch(), 5000)
        with pytest.raises(UnsupportedVersionError, match="does not serve Produce"):
            connection.send(REQUESTS["Produce"]())
        assert connection.is_open

    use(node, story)
    assert node.received == [(18, 4), (18, 3)]


@pytest.mark.parametrize("newest", [4, 3, 0])
def test_api_versions_is_sent_until_the_node_knows_the_version(newest: int) -> None:
    node = OldNode({3: (0, 12)}, lambda key, version: metadata_response(), newest)

    async def story(connection: Any) -> Any:
        return await connection.request(REQUESTS["Metadata"](), 5000)

    assert use(node, story) == metadata_response()
    assert node.received == [(18, 4), *([(18, newest)] if newest < 4 else []), (3, 12)]


def test_a_node_that_refuses_api_versions_is_unreachable() -> None:
    node = OldNode({}, lambda key, version: None, newest_api_versions=-1)
    with pytest.raises(ConnectionError, match="ApiVersions version 0 has error 35"):
        use(node, lambda connection: connection)


# --- error codes


def test_error_codes_of_kafka_that_the_reference_system_does_not_use_have_names() -> None:
    assert ErrorCode(29).name == "TOPIC_AUTHORIZATION_FAILED"
    assert (ErrorCode(29), ErrorCode(6)) == (29, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert (ErrorCode(30_000), ErrorCode(30_000).name) == (30_000, "ERROR_30000")
    assert ErrorCode(29) not in {ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE}
