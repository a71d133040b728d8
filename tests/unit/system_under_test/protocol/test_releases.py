"""What a node announces: the versions and feature levels of the release that its profile stands for."""

import struct
from typing import Any

import pytest

from system_under_test.config import PROFILES
from system_under_test.features import levels_of
from system_under_test.metadata.image import ClusterImage
from system_under_test.metadata.records import FeatureLevelRecord
from system_under_test.protocol import messages as m
from system_under_test.protocol.apis import APIS, BROKER, CONTROLLER
from system_under_test.protocol.feature_levels import FeatureLevels
from system_under_test.protocol.releases import RELEASES, oldest_release
from system_under_test.protocol.wire import MalformedRequestError, ServerCodec
from tests.unit.system_under_test.protocol.wire_examples import (
    answer_of,
    api_of,
    arbitrary_request,
    frame_of,
    header,
)

SENT_BY_BROKERS = (
    m.add_partitions_to_txns_request.AddPartitionsToTxnRequest,
    m.fetch_request.FetchRequest,
    m.list_offsets_request.ListOffsetsRequest,
    m.offset_for_leader_epoch_request.OffsetForLeaderEpochRequest,
    m.write_txn_markers_request.WriteTxnMarkersRequest,
)
BY_NAME = {api.name: api for api in APIS if BROKER in api.roles}


def codec(profile: str, levels: FeatureLevels | None = None) -> ServerCodec:
    found = levels or levels_of(PROFILES[profile], ClusterImage())
    return ServerCodec(BROKER, release=RELEASES[profile], levels=lambda: found)


def announced(of: ServerCodec, version: int = 3) -> Any:
    request = of.decode_request(frame_of(api_of("ApiVersions"), arbitrary_request_for(version)))
    assert request.direct is not None
    return answer_of(api_of("ApiVersions"), version, request.direct)[1]


def arbitrary_request_for(version: int) -> Any:
    from system_under_test.protocol.versions import wire_type

    kind = wire_type(api_of("ApiVersions"), version, "request")
    return kind(client_software_name="test", client_software_version="1")


def newest(profile: str) -> dict[int, int]:
    return {one.api_key: one.max_version for one in announced(codec(profile)).api_keys}


def test_every_profile_has_a_release_and_every_row_an_api():
    assert list(RELEASES) == list(PROFILES)
    for release in RELEASES.values():
        assert release.newest.keys() <= BY_NAME.keys()


@pytest.mark.parametrize(
    ("profile", "produce", "fetch", "commit"),
    [
        ("kafka-3.4", 9, 13, 8),
        ("kafka-3.6", 9, 15, 8),
        ("kafka-3.9", 11, 17, 9),
        ("kafka-4.0", 12, 17, 9),
        ("kafka-4.1", 13, 18, 9),
        ("kafka-4.4", 13, 18, 10),
    ],
)
def test_a_profile_announces_the_versions_of_its_release(profile, produce, fetch, commit):
    found = newest(profile)
    assert (found[0], found[1], found[8]) == (produce, fetch, commit)
    assert (75 in found) is (profile not in ("kafka-3.4", "kafka-3.6"))
    assert found.keys() <= {api.key for api in BY_NAME.values()}
    for key, version in found.items():
        api = next(one for one in BY_NAME.values() if one.key == key)
        assert api.min_version <= version <= api.max_version


def test_a_version_that_the_release_does_not_have_is_refused_except_between_nodes():
    frame = frame_of(api_of("Produce"), arbitrary_request(api_of("Produce"), 13, 1))
    assert codec("kafka-4.1").decode_request(frame).version == 13
    with pytest.raises(MalformedRequestError, match=r"Produce version 13 .*\(3 to 12 are\)"):
        codec("kafka-4.0").decode_request(frame)
    # Followers fetch in the canonical version, whatever the profile.
    between = frame_of(api_of("Fetch"), arbitrary_request(api_of("Fetch"), 17, 1))
    assert codec("kafka-3.4").decode_request(between).version == 17
    newer = frame_of(api_of("Fetch"), arbitrary_request(api_of("Fetch"), 16, 1))
    with pytest.raises(MalformedRequestError):
        codec("kafka-3.4").decode_request(newer)


def test_an_unknown_version_of_apiversions_gets_the_range_of_the_release():
    request = codec("kafka-3.4").decode_request(header(18, 4, flexible=True) + b"newer")
    response = answer_of(api_of("ApiVersions"), 0, request.direct)[1]
    (only,) = response.api_keys
    assert (only.min_version, only.max_version) == (0, 3)
    assert struct.unpack_from(">i", request.direct, 4) == (7,)


def image_of(profile: str) -> ClusterImage:
    features = PROFILES[profile]
    image = ClusterImage()
    image.replay(
        5, FeatureLevelRecord(name="metadata.version", feature_level=features.metadata_version)
    )
    image.replay(
        6,
        FeatureLevelRecord(
            name="eligible.leader.replicas.version", feature_level=features.elr_version
        ),
    )
    if features.group_version is not None:
        image.replay(
            7, FeatureLevelRecord(name="group.version", feature_level=features.group_version)
        )
    image.replay(
        8,
        FeatureLevelRecord(name="transaction.version", feature_level=features.transaction_version),
    )
    return image


def levels(response: Any) -> tuple[dict[str, tuple[int, int]], dict[str, int], int]:
    supported = {
        one.name: (one.min_version, one.max_version) for one in response.supported_features
    }
    finalized = {one.name: one.max_version_level for one in response.finalized_features}
    for one in response.finalized_features:
        assert one.min_version_level == one.max_version_level
    return supported, finalized, response.finalized_features_epoch


def test_feature_levels_are_those_of_the_profile_and_of_the_metadata():
    elr, group, version = "eligible.leader.replicas.version", "group.version", "metadata.version"
    transactions = "transaction.version"
    before = levels(announced(codec("kafka-4.1"), 4))
    supported = {version: (7, 27), elr: (0, 1), group: (0, 1), transactions: (0, 2)}
    assert before == (supported, {}, -1)
    known = levels_of(PROFILES["kafka-4.1"], image_of("kafka-4.1"))
    after = levels(announced(codec("kafka-4.1", known), 4))
    assert after == (supported, {version: 27, elr: 1, group: 1, transactions: 2}, 8)
    # A level of 0 is not in force, and clients of older versions cannot read that it is supported.
    off = levels_of(PROFILES["kafka-4.0"], image_of("kafka-4.0"))
    in_force = {version: 25, group: 1, transactions: 2}
    assert levels(announced(codec("kafka-4.0", off), 3)) == ({version: (7, 25)}, in_force, 8)
    old = levels_of(PROFILES["kafka-3.9"], image_of("kafka-3.9"))
    assert levels(announced(codec("kafka-3.9", old), 4)) == ({version: (1, 21)}, {version: 21}, 8)


def test_a_controller_announces_feature_levels_too():
    known = levels_of(PROFILES["kafka-4.1"], image_of("kafka-4.1"))
    controller = ServerCodec(CONTROLLER, release=RELEASES["kafka-4.1"], levels=lambda: known)
    assert levels(announced(controller, 4))[1]["metadata.version"] == 27


@pytest.mark.parametrize(
    ("name", "version", "release"),
    [
        ("EndTxn", 5, "4.0"),
        ("EndTxn", 4, "3.9"),
        ("Produce", 3, "3.4"),
        ("EndTxn", 99, ""),
        ("No", 1, ""),
    ],
)
def test_the_oldest_release_that_serves_a_version(name: str, version: int, release: str) -> None:
    assert oldest_release(name, version) == release


@pytest.mark.parametrize("profile", PROFILES)
def test_a_broker_reads_what_brokers_send_whatever_its_release(profile: str) -> None:
    for kind in SENT_BY_BROKERS:
        api = next(api for api in APIS if api.key == kind.__api_key__)
        request = arbitrary_request(api, kind.__version__, seed=1)
        assert codec(profile).decode_request(frame_of(api, request)).message == request
