"""Records of consumer groups: Kafka's bytes, and nothing that is not a record gets through."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from system_under_test.group.consumer.members import (
    ClassicProtocols,
    MemberState,
    Progress,
    Subscription,
)
from system_under_test.group.consumer.records import (
    GroupEpoch,
    Kind,
    RecordKey,
    ResolvedRegex,
    StoredTopic,
    Value,
    decode_record_key,
    decode_record_value,
    encode_record,
    is_consumer_group_key,
)
from system_under_test.group.records import OffsetKey, UnreadableRecordError, encode_key

TEXT = st.text(max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.frozensets(st.tuples(st.uuids(), INT32), max_size=6)
VALUES: dict[Kind, st.SearchStrategy[Value]] = {
    Kind.GROUP_EPOCH: st.builds(GroupEpoch, epoch=INT32, metadata_hash=INT64),
    Kind.TOPICS: st.lists(
        st.builds(StoredTopic, topic_id=st.uuids(), name=TEXT, count=INT32), max_size=3
    ).map(tuple),
    Kind.SUBSCRIPTION: st.builds(
        Subscription,
        instance_id=st.none() | TEXT,
        rack_id=st.none() | TEXT,
        client_id=TEXT,
        client_host=TEXT,
        topics=st.lists(TEXT, max_size=3).map(tuple),
        regex=TEXT,
        rebalance_timeout_ms=INT32,
        assignor=st.none() | TEXT,
        classic=st.none()
        | st.builds(
            ClassicProtocols,
            session_timeout_ms=INT32,
            protocols=st.lists(st.tuples(TEXT, st.binary(max_size=200)), max_size=3).map(tuple),
        ),
    ),
    Kind.TARGET_EPOCH: INT32,
    Kind.TARGET: PARTITIONS,
    Kind.PROGRESS: st.builds(
        Progress,
        epoch=INT32,
        previous_epoch=INT32,
        state=st.sampled_from(MemberState),
        assigned=PARTITIONS,
        revoking=PARTITIONS,
    ),
    Kind.REGEX: st.builds(
        ResolvedRegex,
        topics=st.lists(TEXT, max_size=3).map(tuple),
        version=INT64,
        resolved_ms=INT64,
    ),
}
NAMELESS = (Kind.GROUP_EPOCH, Kind.TOPICS, Kind.TARGET_EPOCH)


@pytest.mark.parametrize("kind", list(Kind))
@given(data=st.data())
def test_records_survive_a_round_trip_and_no_part_of_one_is_a_record(
    kind: Kind, data: st.DataObject
) -> None:
    name = "" if kind in NAMELESS else data.draw(TEXT)
    key = RecordKey(kind=kind, group_id=data.draw(TEXT), name=name)
    value = data.draw(VALUES[kind])
    encoded_key, encoded = encode_record(key, value)
    assert is_consumer_group_key(encoded_key)
    assert decode_record_key(encoded_key) == key
    assert encoded is not None
    assert decode_record_value(kind, encoded) == value
    for end in (0, 1, len(encoded) // 2, len(encoded) - 1):
        with pytest.raises(UnreadableRecordError):
            decode_record_value(kind, encoded[:end])
    assert encode_record(key, None) == (encoded_key, None)


def test_the_bytes_are_kafkas() -> None:
    topic = UUID("00000000-0000-0001-0000-000000000002")

    def encoded(kind: Kind, value: Value, name: str = "") -> tuple[str, str]:
        key, data = encode_record(RecordKey(kind=kind, group_id="g", name=name), value)
        assert data is not None
        return key.hex(), data.hex()

    # Key: version, group. Value: version, epoch, and the hash as the tagged field 0 of 8 bytes.
    found = encoded(Kind.GROUP_EPOCH, GroupEpoch(epoch=5, metadata_hash=-1))
    assert found == ("0003000167", "000000000005010008ffffffffffffffff")
    assert encoded(Kind.GROUP_EPOCH, GroupEpoch(epoch=5))[1] == "00000000000500"
    found = encoded(Kind.TARGET, frozenset({(topic, 7), (topic, 1)}), "m")
    partitions = "02" + topic.hex + "03" + "00000001" + "00000007" + "00"
    assert found == ("000700016700016d", "0000" + partitions + "00")
    progress = Progress(
        epoch=3,
        previous_epoch=2,
        state=MemberState.UNREVOKED_PARTITIONS,
        revoking=frozenset({(topic, 1), (topic, 7)}),
    )
    found = encoded(Kind.PROGRESS, progress, "m")
    assert found[1] == "0000" + "00000003" + "00000002" + "01" + "01" + partitions + "00"
    classic = ClassicProtocols(session_timeout_ms=9, protocols=(("r", b"\x01"),))
    found = encoded(Kind.SUBSCRIPTION, Subscription(topics=("t",), classic=classic), "m")
    tagged = "01" + "00000009" + "02" + "0272" + "0201" + "00" + "00"
    assert found[1] == "0000" + "0000" + "0101" + "020274" + "01" + "ffffffff" + "00" + (
        "0100" + f"{len(tagged) // 2:02x}" + tagged
    )


def test_an_unknown_state_is_kept_apart_and_unknown_tags_are_skipped() -> None:
    _, data = encode_record(
        RecordKey(kind=Kind.PROGRESS, group_id="g", name="m"), Progress(state=MemberState.UNKNOWN)
    )
    assert data is not None
    newer = data.replace(b"\x7f", b"\x55")
    found = decode_record_value(Kind.PROGRESS, newer)
    assert isinstance(found, Progress)
    assert found.state is MemberState.UNKNOWN
    assert decode_record_value(Kind.TARGET_EPOCH, bytes.fromhex("00000000000401070199")) == 4


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Kind.TARGET_EPOCH, "0001" + "00000004" + "00"),
        (Kind.TARGET, "0000" + "ffffffff7f"),
        (Kind.TARGET, "0000" + "ffffffffffff"),
        (Kind.REGEX, "0000" + "0203ffff"),
    ],
)
def test_malformed_values_are_refused(kind: Kind, data: str) -> None:
    with pytest.raises(UnreadableRecordError):
        decode_record_value(kind, bytes.fromhex(data))


def test_keys_of_other_records_are_none_of_consumer_groups() -> None:
    for key in (encode_key("g"), encode_key(OffsetKey(group="g", topic="t", partition=0)), b""):
        assert not is_consumer_group_key(key)
        with pytest.raises(UnreadableRecordError):
            decode_record_key(key)
