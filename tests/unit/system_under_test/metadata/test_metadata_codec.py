"""Bytes of metadata records: round trips, Kafka's layout, and bad input."""

import contextlib
import io
from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32

from system_under_test.metadata.records import (
    LEADER_UNCHANGED,
    RECOVERING,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    LeaderChangeRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from system_under_test.protocol.metadata_codec import (
    decode_metadata_batches,
    decode_record,
    encode_metadata_batch,
    encode_record,
)

TOPIC_ID = UUID(int=0x1234567890ABCDEF)

ids = st.integers(0, 2**31 - 1)
epochs = st.integers(-1, 2**63 - 1)
flags = st.booleans()
names = st.text(max_size=20)
uuids = st.uuids()
id_lists = st.lists(ids, max_size=4).map(tuple)
uuid_lists = st.lists(uuids, max_size=3).map(tuple)
addresses = st.builds(
    lambda host, port: f"{host}:{port}",
    st.from_regex(r"[a-z0-9.\-]{1,12}", fullmatch=True),
    st.integers(0, 65535),
)


def optional(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | strategy


records = st.one_of(
    st.builds(FeatureLevelRecord, name=names, feature_level=st.integers(-1, 1000)),
    st.builds(
        RegisterBrokerRecord,
        broker_id=ids,
        incarnation_id=uuids,
        broker_epoch=epochs,
        address=addresses,
        fenced=flags,
        in_controlled_shutdown=flags,
        log_dirs=uuid_lists,
    ),
    st.builds(UnregisterBrokerRecord, broker_id=ids, broker_epoch=epochs),
    st.builds(
        BrokerRegistrationChangeRecord,
        broker_id=ids,
        broker_epoch=epochs,
        fenced=optional(flags),
        in_controlled_shutdown=st.sampled_from((None, True)),
        log_dirs=optional(uuid_lists),
    ),
    st.builds(TopicRecord, name=names, topic_id=uuids),
    st.builds(RemoveTopicRecord, topic_id=uuids),
    st.builds(
        PartitionRecord,
        topic_id=uuids,
        partition_id=ids,
        replicas=id_lists,
        isr=id_lists,
        leader=st.integers(-1, 100),
        leader_epoch=ids,
        partition_epoch=ids,
        leader_recovery_state=st.integers(0, 1),
        adding_replicas=id_lists,
        removing_replicas=id_lists,
        directories=uuid_lists,
        eligible_leader_replicas=id_lists,
        last_known_elr=id_lists,
    ),
    st.builds(
        PartitionChangeRecord,
        topic_id=uuids,
        partition_id=ids,
        isr=optional(id_lists),
        leader=st.integers(LEADER_UNCHANGED, 100),
        leader_recovery_state=optional(st.integers(0, 1)),
        replicas=optional(id_lists),
        adding_replicas=optional(id_lists),
        removing_replicas=optional(id_lists),
        directories=optional(uuid_lists),
        eligible_leader_replicas=optional(id_lists),
        last_known_elr=optional(id_lists),
    ),
    st.builds(ClearElrRecord, topic_name=names),
    st.builds(
        ConfigRecord,
        resource_type=st.sampled_from((2, 4)),
        resource_name=names,
        name=names,
        value=optional(names),
    ),
    st.just(NoOpRecord()),
)


@given(records)
def test_every_record_survives_the_round_trip(record: MetadataRecord) -> None:
    assert decode_record(encode_record(record)) == record


@given(st.binary(max_size=80))
def test_arbitrary_bytes_raise_nothing_but_value_error(data: bytes) -> None:
    try:
        record = decode_record(data)
    except ValueError:
        return
    assert decode_record(encode_record(record)) == record


@settings(max_examples=200)
@given(records, st.data())
def test_damaged_records_raise_nothing_but_value_error(
    record: MetadataRecord, data: st.DataObject
) -> None:
    encoded = bytearray(encode_record(record))
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(ValueError):
        decode_record(bytes(encoded))


@given(records)
def test_every_proper_prefix_is_refused(record: MetadataRecord) -> None:
    encoded = encode_record(record)
    for size in range(len(encoded)):
        with pytest.raises(ValueError, match=r"\w"):
            decode_record(encoded[:size])


def test_bytes_left_over_are_refused() -> None:
    with pytest.raises(ValueError, match="left over"):
        decode_record(encode_record(NoOpRecord()) + b"\0")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPartitionChange:
    """PartitionChangeRecord.json version 2, for an independent codec."""

    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(2)
    __flexible__: ClassVar[bool] = True
    partition_id: i32 = field(metadata={"kafka_type": "int32"})
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    isr: tuple[i32, ...] | None = field(metadata={"kafka_type": "int32", "tag": 0}, default=None)
    leader: i32 = field(metadata={"kafka_type": "int32", "tag": 1}, default=i32(-2))
    removing: tuple[i32, ...] | None = field(
        metadata={"kafka_type": "int32", "tag": 3}, default=None
    )
    recovery: i8 = field(metadata={"kafka_type": "int8", "tag": 5}, default=i8(-1))
    elr: tuple[i32, ...] | None = field(metadata={"kafka_type": "int32", "tag": 6}, default=None)


def test_a_partition_change_has_the_bytes_that_an_independent_codec_writes() -> None:
    buffer = io.BytesIO()
    entity_writer(KafkaPartitionChange)(
        buffer,
        KafkaPartitionChange(
            partition_id=3,
            topic_id=TOPIC_ID,
            isr=(1, 2),
            leader=-1,
            removing=(),
            recovery=1,
            elr=(3,),
        ),
    )
    record = PartitionChangeRecord(
        topic_id=TOPIC_ID,
        partition_id=3,
        isr=(1, 2),
        leader=-1,
        removing_replicas=(),
        leader_recovery_state=RECOVERING,
        eligible_leader_replicas=(3,),
    )
    assert encode_record(record) == b"\x01\x05\x02" + buffer.getvalue()


def test_an_unchanged_partition_takes_24_bytes() -> None:
    record = PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0)
    assert encode_record(record) == b"\x01\x05\x02" + bytes(4) + TOPIC_ID.bytes + b"\0"


def test_no_leader_and_leader_unchanged_are_distinguished() -> None:
    gone = PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, leader=-1)
    unchanged = PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0)
    assert decode_record(encode_record(gone)) == gone
    assert decode_record(encode_record(unchanged)) == unchanged


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (UnregisterBrokerRecord(broker_id=2**31, broker_epoch=0), "cannot be encoded"),
        (
            RegisterBrokerRecord(
                broker_id=1, incarnation_id=TOPIC_ID, broker_epoch=0, address="nowhere"
            ),
            "not host:port",
        ),
        (TopicRecord(name=None, topic_id=TOPIC_ID), "cannot be encoded"),  # type: ignore[arg-type]
        (LeaderChangeRecord(leader_id=1, voters=(1,)), "not a framed"),
    ],
)
def test_a_record_that_does_not_fit_is_refused_with_a_message(
    record: MetadataRecord, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        encode_record(record)


def test_a_batch_keeps_its_records_offsets_and_epoch() -> None:
    written = [TopicRecord(name="t", topic_id=TOPIC_ID), NoOpRecord()]
    data = encode_metadata_batch(written, timestamp_ms=5, base_offset=40, quorum_epoch=7)
    (batch,) = decode_metadata_batches(data)
    assert (batch.base_offset, batch.last_offset, batch.quorum_epoch) == (40, 41, 7)
    assert batch.records == tuple(written)


def test_a_leader_change_is_a_control_batch_of_its_own() -> None:
    record = LeaderChangeRecord(leader_id=12, voters=(11, 12, 13))
    data = encode_metadata_batch([record], timestamp_ms=5, base_offset=0, quorum_epoch=3)
    (batch,) = decode_metadata_batches(data)
    assert batch.records == (record,)
    with pytest.raises(ValueError, match="alone"):
        encode_metadata_batch([record, NoOpRecord()], timestamp_ms=5, base_offset=0, quorum_epoch=3)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_metadata_batch([], timestamp_ms=0, base_offset=0, quorum_epoch=1)


def test_a_damaged_batch_is_a_value_error() -> None:
    data = bytearray(
        encode_metadata_batch([NoOpRecord()], timestamp_ms=5, base_offset=0, quorum_epoch=3)
    )
    data[-1] ^= 1
    with pytest.raises(ValueError, match="metadata log"):
        decode_metadata_batches(bytes(data))
