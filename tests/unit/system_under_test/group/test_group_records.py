"""Records of the offsets topic: Kafka's own bytes, and nothing that is not a record gets through."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from system_under_test.group.records import (
    CommittedOffset,
    OffsetKey,
    StoredGroup,
    StoredMember,
    UnreadableRecordError,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_key,
    encode_offset,
    java_hash,
    offsets_partition,
)

TEXT = st.text(max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
MEMBER = st.builds(
    StoredMember,
    member_id=TEXT,
    instance_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout_ms=INT32,
    session_timeout_ms=INT32,
    subscription=st.binary(max_size=30),
    assignment=st.binary(max_size=30),
)


@given(st.builds(OffsetKey, group=TEXT, topic=TEXT, partition=INT32) | TEXT)
def test_keys_survive_a_round_trip(key: OffsetKey | str) -> None:
    assert decode_key(encode_key(key)) == key


@given(
    st.builds(CommittedOffset, offset=INT64, leader_epoch=INT32, metadata=TEXT, committed_ms=INT64)
)
def test_offsets_survive_a_round_trip(value: CommittedOffset) -> None:
    assert decode_offset(encode_offset(value)) == value


@given(
    st.builds(
        StoredGroup,
        protocol_type=TEXT,
        generation=INT32,
        protocol_name=st.none() | TEXT,
        leader=st.none() | TEXT,
        changed_ms=INT64,
        members=st.lists(MEMBER, max_size=3).map(tuple),
    )
)
def test_groups_survive_a_round_trip(value: StoredGroup) -> None:
    assert decode_group(encode_group(value)) == value


def test_the_bytes_match_kafkas() -> None:
    assert encode_key(OffsetKey(group="g", topic="t", partition=2)).hex() == (
        "0001" "000167" "000174" "00000002"
    )  # fmt: skip
    assert encode_key("g").hex() == "0002000167"
    value = CommittedOffset(offset=7, leader_epoch=3, metadata="m", committed_ms=9)
    assert encode_offset(value).hex() == (
        "0003" "0000000000000007" "00000003" "00016d" "0000000000000009"
    )  # fmt: skip


@given(st.binary(max_size=60))
def test_anything_else_is_refused(data: bytes) -> None:
    for decode in (decode_key, decode_offset, decode_group):
        try:
            decode(data)
        except UnreadableRecordError:
            continue


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_record_that_is_cut_short_is_refused(cut: int) -> None:
    data = encode_offset(CommittedOffset(offset=1, metadata="words"))
    with pytest.raises(UnreadableRecordError):
        decode_offset(data[:-cut])


def test_groups_are_placed_by_javas_hash() -> None:
    # Values of String.hashCode as Java's documentation defines it.
    assert java_hash("") == 0
    assert java_hash("a") == 97
    assert java_hash("hello") == 99162322
    assert java_hash("polygenelubricants") == -(2**31)
    assert java_hash("\U0001f600") == 31 * 0xD83D + 0xDE00
    assert offsets_partition("polygenelubricants", 50) == 0
    assert offsets_partition("hello", 50) == 99162322 % 50


def test_an_offset_as_apache_kafka_4_1_writes_it_is_read() -> None:
    recorded = bytes.fromhex("000400000000000003e80000000001000001a20856bbb800")
    assert decode_offset(recorded) == CommittedOffset(
        offset=1000, leader_epoch=0, metadata="", committed_ms=0x1A20856BBB8
    )


def test_an_offset_with_long_metadata_and_a_topic_id_is_read() -> None:
    metadata = "m" * 200
    value = struct.pack(">hqi", 4, 7, 5) + b"\xc9\x01" + metadata.encode()
    value += struct.pack(">q", 9) + b"\x01\x00\x10" + bytes(16)
    assert decode_offset(value) == CommittedOffset(
        offset=7, leader_epoch=5, metadata=metadata, committed_ms=9
    )


@pytest.mark.parametrize("version", [0, 1, 2])
def test_offsets_of_older_versions_have_no_leader_epoch(version: int) -> None:
    value = struct.pack(">hqh", version, 7, 1) + b"m" + struct.pack(">q", 9)
    value += struct.pack(">q", 11) if version == 1 else b""
    assert decode_offset(value) == CommittedOffset(
        offset=7, leader_epoch=-1, metadata="m", committed_ms=9
    )


@pytest.mark.parametrize(
    "value",
    [
        struct.pack(">hqi", 4, 7, 5) + b"\x00" + struct.pack(">q", 9),
        struct.pack(">hqi", 4, 7, 5) + b"\xff" * 9,
        struct.pack(">hqi", 5, 7, 5),
        struct.pack(">hqi", -1, 7, 5),
    ],
    ids=["null-metadata", "endless-varint", "later-version", "negative-version"],
)
def test_a_malformed_offset_is_refused(value: bytes) -> None:
    with pytest.raises(UnreadableRecordError):
        decode_offset(value)
