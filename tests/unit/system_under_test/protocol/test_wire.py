"""Frames: every API in every version, headers, ApiVersions, and what is refused."""

import struct

import pytest
from kio.schema.fetch.v17 import request as fetch_v17
from kio.schema.heartbeat.v4 import request as heartbeat_v4

from system_under_test.protocol import messages as m
from system_under_test.protocol import reshaped
from system_under_test.protocol.apis import APIS, BROKER, CONTROLLER
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import millis
from system_under_test.protocol.versions import wire_type
from system_under_test.protocol.wire import ClientCodec, MalformedRequestError, ServerCodec
from tests.unit.system_under_test.protocol.wire_examples import (
    NAMES,
    VERSIONS,
    answer_of,
    api_of,
    arbitrary_request,
    arbitrary_response,
    frame_of,
    header,
    in_common,
)

CODECS = {role: ServerCodec(role) for role in (BROKER, CONTROLLER)}
WITHOUT_API_VERSIONS = [
    pytest.param(role, api, version, id=name)
    for (role, api, version), name in zip(VERSIONS, NAMES, strict=True)
    if api.name != "ApiVersions"
]
SASL_HANDSHAKE, SASL_AUTHENTICATE, DESCRIBE_ACLS = 17, 36, 29


def canonical_of(api, version):
    return next(one for one in api.canonical if one.first <= version <= one.last)


# --- every API in every version


@pytest.mark.parametrize(("role", "api", "version"), WITHOUT_API_VERSIONS)
def test_a_request_of_any_version_becomes_the_canonical_one(role, api, version):
    for seed in range(5):
        sent = arbitrary_request(api, version, seed)
        request = CODECS[role].decode_request(frame_of(api, sent))
        assert (request.api, request.version) == (api, version)
        assert (request.correlation_id, request.client_id) == (7, "me")
        assert request.direct is None
        assert type(request.message) is canonical_of(api, version).request
        if reshaped.find(reshaped.REQUESTS, api.key, version) is None:
            for path, mine, theirs in in_common(sent, request.message):
                assert mine == theirs, path


@pytest.mark.parametrize(("role", "api", "version"), WITHOUT_API_VERSIONS)
def test_a_canonical_response_can_be_read_in_any_version(role, api, version):
    request = CODECS[role].decode_request(frame_of(api, arbitrary_request(api, version, 0)))
    is_by_hand = reshaped.find(reshaped.RESPONSES, api.key, version) is not None
    for seed in range(5):
        response = arbitrary_response(canonical_of(api, version).response, seed)
        correlation_id, read = answer_of(
            api, version, CODECS[role].encode_response(request, response)
        )
        assert correlation_id == 7
        if not is_by_hand:
            for path, mine, theirs in in_common(response, read):
                assert mine == theirs, path


@pytest.mark.parametrize(("role", "api", "version"), WITHOUT_API_VERSIONS)
def test_a_request_that_ends_too_early_is_malformed(role, api, version):
    frame = frame_of(api, arbitrary_request(api, version, 1))
    for size in range(len(frame)):
        with pytest.raises(MalformedRequestError):
            CODECS[role].decode_request(frame[:size])


@pytest.mark.parametrize("role", [BROKER, CONTROLLER])
def test_our_clients_and_servers_understand_one_another(role):
    client = ClientCodec()
    for api in APIS:
        for canonical in api.canonical:
            if role not in api.roles or api.name == "ApiVersions":
                continue
            sent = arbitrary_request(api, canonical.request.__version__, 3)
            frame = client.encode_request(sent, 9, "native")
            assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
            request = CODECS[role].decode_request(frame[4:])
            assert (request.message, request.client_id) == (sent, "native")
            response = arbitrary_response(canonical.response, 3)
            back = CODECS[role].encode_response(request, response)
            assert client.decode_response(canonical.request, back[4:]) == (9, response)


def test_a_client_refuses_bytes_that_are_not_a_response():
    for frame in (b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\0\0\0\0\0\xff\xff\xff\xff\x07"):
        with pytest.raises(ValueError, match=r"header|cannot be read"):
            ClientCodec().decode_response(m.metadata_request.MetadataRequest, frame)


# --- headers


def heartbeat(**options):
    return frame_of(
        api_of("Heartbeat"),
        heartbeat_v4.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
        **options,
    )


def test_a_client_id_may_be_null_or_empty():
    for client_id in (None, b""):
        assert CODECS[BROKER].decode_request(heartbeat(client_id=client_id)).client_id == ""


def test_a_client_id_must_be_text_and_inside_the_request():
    with pytest.raises(MalformedRequestError, match="UTF-8"):
        CODECS[BROKER].decode_request(heartbeat(client_id=b"\xff"))
    with pytest.raises(MalformedRequestError, match="longer"):
        CODECS[BROKER].decode_request(struct.pack(">hhih", 12, 4, 7, 100) + b"short")


def test_tagged_fields_of_a_header_are_ignored():
    tags = b"\x02\x00\x03abc\x07\x00"
    assert CODECS[BROKER].decode_request(heartbeat(tags=tags)).message.member_id == "m"


def test_bytes_after_a_message_are_ignored():
    assert CODECS[BROKER].decode_request(heartbeat() + b"more").message.member_id == "m"


def test_tagged_fields_that_the_version_does_not_know_are_ignored():
    plain = heartbeat()
    for tags in (b"\x01\x05\x03abc", b"\x02\x05\x03abc\x80\x01\x00"):
        request = CODECS[BROKER].decode_request(plain[:-1] + tags)
        assert request.message == CODECS[BROKER].decode_request(plain).message


def test_unknown_tagged_fields_are_removed_and_known_ones_stay():
    state = b"\0\0\0\5" + b"\0" * 7 + b"\6" + b"\0"
    sent = fetch_v17.FetchRequest(
        max_wait=millis(1), min_bytes=1, topics=(), forgotten_topics_data=(), rack_id="r"
    )
    frame = frame_of(api_of("Fetch"), sent)[:-1]
    frame += b"\x03" + b"\x01\x0d" + state + b"\x09\x02zz" + b"\x0b\x00"
    message = CODECS[BROKER].decode_request(frame).message
    assert (message.replica_state.replica_id, message.replica_state.replica_epoch) == (5, 6)
    assert message.rack_id == "r"


def test_a_tagged_field_with_a_wrong_announced_size_is_malformed():
    sent = fetch_v17.FetchRequest(
        max_wait=millis(1), min_bytes=1, topics=(), forgotten_topics_data=()
    )
    frame = frame_of(api_of("Fetch"), sent)[:-1] + b"\x01\x01\x20" + b"\0" * 32
    with pytest.raises(MalformedRequestError, match="does not have the size it announces"):
        CODECS[BROKER].decode_request(frame)


# --- what is not served


@pytest.mark.parametrize("key", [-1, 4, SASL_HANDSHAKE, DESCRIBE_ACLS, SASL_AUTHENTICATE, 32767])
def test_an_api_that_is_not_served_closes_the_connection(key):
    for codec in CODECS.values():
        with pytest.raises(MalformedRequestError, match="not served here"):
            codec.decode_request(header(key, 0, flexible=False))


def test_a_broker_does_not_serve_what_only_controllers_do():
    frame = frame_of(
        api_of("Vote", CONTROLLER), arbitrary_request(api_of("Vote", CONTROLLER), 2, 0)
    )
    assert CODECS[CONTROLLER].decode_request(frame).message is not None
    with pytest.raises(MalformedRequestError, match="not served here"):
        CODECS[BROKER].decode_request(frame)


@pytest.mark.parametrize("api", [api for api in APIS if api.name != "ApiVersions"])
def test_a_version_that_is_not_served_closes_the_connection(api):
    for version in (api.min_version - 1, api.max_version + 1, -1, 32767):
        with pytest.raises(MalformedRequestError, match=r"version .* is not served"):
            CODECS[api.roles[0]].decode_request(header(api.key, version, flexible=True))


def test_produce_before_version_3_is_advertised_and_refused():
    advertised = {one.api_key: one for one in advertisement(BROKER, 3)}[0]
    assert (advertised.min_version, advertised.max_version) == (0, 13)
    with pytest.raises(MalformedRequestError, match="version 2 is not served"):
        CODECS[BROKER].decode_request(header(0, 2, flexible=False))


def test_a_request_without_a_header_is_malformed():
    for size in range(10):
        with pytest.raises(MalformedRequestError):
            CODECS[BROKER].decode_request(b"\0" * size)


# --- ApiVersions


def ask_for_versions(role, version, name="client", software="1.0"):
    api = api_of("ApiVersions", role)
    kind = wire_type(api, version, "request")
    sent = (
        kind(client_software_name=name, client_software_version=software)
        if version >= 3
        else kind()
    )
    request = CODECS[role].decode_request(frame_of(api, sent))
    assert request.message is None
    # The header of this response has no tagged fields in any version, so that every client can read it.
    assert struct.unpack_from(">i", request.direct, 4) == (7,)
    return answer_of(api, version, request.direct)[1]


def advertisement(role, version):
    response = ask_for_versions(role, version)
    assert response.error_code == 0
    return response.api_keys


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("role", [BROKER, CONTROLLER])
def test_the_table_of_a_role_is_advertised_in_every_version(role, version):
    assert [
        (one.api_key, one.min_version, one.max_version) for one in advertisement(role, version)
    ] == [
        (api.key, 0 if api.name == "Produce" else api.min_version, api.max_version)
        for api in APIS
        if role in api.roles
    ]


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_an_unknown_version_of_apiversions_gets_version_0_and_the_range(version):
    frame = header(18, version, flexible=version >= 3) + b"whatever newer clients say"
    request = CODECS[BROKER].decode_request(frame)
    correlation_id, response = answer_of(api_of("ApiVersions"), 0, request.direct)
    assert correlation_id == 7
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(one.api_key, one.min_version, one.max_version) for one in response.api_keys] == [
        (18, 0, 4)
    ]


@pytest.mark.parametrize(
    ("name", "software"),
    [("", "1"), ("a", ""), ("-a", "1"), ("a-", "1"), ("a b", "1"), ("a", "1_0"), ("a\n", "1")],
)
def test_a_malformed_client_name_is_an_invalid_request(name, software):
    response = ask_for_versions(BROKER, 3, name, software)
    assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, ())


def test_names_of_common_clients_are_accepted():
    for name, software in (("confluent-kafka-python", "2.16.1-rdkafka-2.16.0"), ("k", "0")):
        assert ask_for_versions(BROKER, 3, name, software).error_code == 0


# --- responses


def test_a_response_that_an_old_version_cannot_express_closes_the_connection():
    """A flexible version may have brought a name into a group that is too long for the leader's own version."""
    join = m.join_group_response
    response = join.JoinGroupResponse(
        throttle_time=millis(0),
        error_code=ErrorCode.NONE,
        generation_id=1,
        protocol_name="range",
        leader="l",
        member_id="l",
        members=(join.JoinGroupResponseMember(member_id="x" * 40_000, metadata=b""),),
    )
    api = api_of("JoinGroup")
    for version, fits in ((5, False), (9, True)):
        request = CODECS[BROKER].decode_request(frame_of(api, arbitrary_request(api, version, 0)))
        if fits:
            assert len(CODECS[BROKER].encode_response(request, response)) > 40_000
        else:
            with pytest.raises(MalformedRequestError, match="JoinGroup version 5"):
                CODECS[BROKER].encode_response(request, response)
