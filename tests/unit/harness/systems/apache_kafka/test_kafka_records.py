"""Kafka's metadata records: kinds and versions, control records, damage, and recorded logs."""

import random
import struct
from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from harness.systems.apache_kafka.records import (
    KIND_NAMES,
    AbortTransactionRecord,
    BeginTransactionRecord,
    DamagedRecordError,
    EndTransactionRecord,
    OtherControlRecord,
    OtherRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    decode_record,
    read_batches,
)
from system_under_test.metadata.records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    LeaderChangeRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from system_under_test.protocol.metadata_codec import encode_metadata_batch, encode_record
from system_under_test.protocol.record_batch import encode_batch
from tests.unit.harness.systems.apache_kafka.recorded import VERSIONS, recorded

TOPIC = UUID(int=5)
SAME_AS_OURS = (
    TopicRecord(name="t", topic_id=TOPIC),
    PartitionRecord(
        topic_id=TOPIC,
        partition_id=0,
        replicas=(1, 2, 3),
        isr=(1,),
        leader=1,
        leader_recovery_state=1,
        directories=(UUID(int=7),) * 3,
        eligible_leader_replicas=(2,),
        last_known_elr=(3,),
    ),
    PartitionChangeRecord(
        topic_id=TOPIC, partition_id=0, leader=-1, isr=(), leader_recovery_state=0
    ),
    PartitionChangeRecord(
        topic_id=TOPIC, partition_id=0, eligible_leader_replicas=(2,), last_known_elr=(1,)
    ),
    BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=9, fenced=False),
    BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=9, in_controlled_shutdown=True),
    UnregisterBrokerRecord(broker_id=1, broker_epoch=9),
    ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value=None),
    FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
    ClearElrRecord(topic_name="t"),
    RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=UUID(int=3),
        broker_epoch=42,
        address="127.0.0.1:9092",
        fenced=True,
        in_controlled_shutdown=True,
        log_dirs=(UUID(int=8), UUID(int=9)),
    ),
    RegisterBrokerRecord(
        broker_id=1, incarnation_id=UUID(int=3), broker_epoch=42, address="b1:9092", fenced=False
    ),
    ProducerIdsRecord(broker_id=1, broker_epoch=42, next_producer_id=1000),
    NoOpRecord(),
)


@pytest.mark.parametrize("record", SAME_AS_OURS, ids=lambda record: type(record).__name__)
def test_a_record_of_the_newest_version_is_read(record: Any) -> None:
    assert decode_record(encode_record(record)) == record


def framed(kind: int, version: int, fields: bytes) -> bytes:
    return bytes((1, kind, version)) + fields


def compact(text: str) -> bytes:
    return bytes((len(text) + 1,)) + text.encode()


def registration(version: int) -> bytes:
    """A registration with two endpoints, a feature and a rack."""
    endpoint = compact("INTERNAL") + compact("127.0.0.1") + struct.pack(">Hh", 9092, 0) + b"\0"
    second = compact("CLIENT") + compact("127.0.0.1") + struct.pack(">Hh", 9093, 0) + b"\0"
    feature = compact("metadata.version") + struct.pack(">hh", 1, 14) + b"\0"
    fields = struct.pack(">i", 1) + (b"\0" if version >= 2 else b"")
    fields += UUID(int=3).bytes + struct.pack(">q", 42)
    fields += b"\x03" + endpoint + second + b"\x02" + feature + compact("rack-1") + b"\x01"
    fields += b"\x01" if version >= 1 else b""
    content = b"\x11\x02" + UUID(int=8).bytes
    tags = {3: b"\x01\x00" + content, 4: b"\x02\x00" + content + b"\x01" + content}
    return framed(0, version, fields + tags.get(version, b"\0"))


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_every_version_of_a_registration_is_read(version: int) -> None:
    assert decode_record(registration(version)) == RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=UUID(int=3),
        broker_epoch=42,
        address="127.0.0.1:9092",
        fenced=True,
        in_controlled_shutdown=version >= 1,
        log_dirs=(UUID(int=8),) if version >= 3 else (),
    )


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_version_of_a_registration_change_is_read(version: int) -> None:
    directories = b"\x11\x02" + UUID(int=8).bytes
    tags = [b"\x00\x01\xff", b"\x01\x01\x01", b"\x02" + directories, b"\x03" + directories]
    fields = struct.pack(">iq", 2, 9) + bytes((version + 1,)) + b"".join(tags[: version + 1])
    assert decode_record(framed(17, version, fields)) == BrokerRegistrationChangeRecord(
        broker_id=2,
        broker_epoch=9,
        fenced=False,
        in_controlled_shutdown=True if version >= 1 else None,
        log_dirs=(UUID(int=8),) if version >= 2 else None,
    )


@pytest.mark.parametrize(("kind", "fenced"), [(7, True), (8, False)])
def test_the_old_records_of_fencing_are_read(kind: int, fenced: bool) -> None:
    data = framed(kind, 0, struct.pack(">iq", 2, 9) + b"\0")
    change = BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=9, fenced=fenced)
    assert decode_record(data) == change


def test_a_partition_of_an_old_version_has_no_directories_and_no_elr() -> None:
    replicas = b"\x03" + struct.pack(">ii", 1, 2)
    fields = struct.pack(">i", 0) + TOPIC.bytes + replicas * 2 + b"\x01\x01"
    record = decode_record(framed(3, 0, fields + struct.pack(">iii", 1, 4, 6) + b"\0"))
    assert record == PartitionRecord(
        topic_id=TOPIC,
        partition_id=0,
        replicas=(1, 2),
        isr=(1, 2),
        leader=1,
        leader_epoch=4,
        partition_epoch=6,
    )


@pytest.mark.parametrize(
    ("kind", "version", "of_image"),
    [(3, 3, True), (0, 5, True), (17, 4, True), (27, 0, False), (99, 0, False)],
)
def test_an_unknown_kind_or_version_is_kept_and_not_guessed(
    kind: int, version: int, of_image: bool
) -> None:
    record = decode_record(framed(kind, version, b"anything"))
    assert record == OtherRecord(kind=kind, version=version, data=b"anything")
    assert record.is_of_image == of_image


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(23, BeginTransactionRecord), (24, EndTransactionRecord), (25, AbortTransactionRecord)],
)
def test_metadata_transactions_are_read(kind: int, expected: type[Any]) -> None:
    assert decode_record(framed(kind, 0, b"\x00")) == expected()
    assert decode_record(framed(kind, 0, b"\x01\x00\x03" + compact("ab"))) == expected()


def control(kind: int, value: bytes) -> Any:
    data = encode_batch(
        [(struct.pack(">hh", 0, kind), value)], timestamp_ms=1, leader_epoch=3, is_control=True
    )
    return read_batches(data)[0].records[0]


def test_control_records_are_read() -> None:
    voter = struct.pack(">i", 11)
    old = struct.pack(">hi", 0, 11) + b"\x02" + voter + b"\0" + b"\x01\0"
    assert control(2, old) == LeaderChangeRecord(leader_id=11, voters=(11,))
    directory = UUID(int=1).bytes
    new = struct.pack(">hi", 1, 12) + b"\x02" + voter + directory + b"\0" + b"\x01\0"
    assert control(2, new) == LeaderChangeRecord(leader_id=12, voters=(11,))
    header = SnapshotHeaderRecord(last_contained_timestamp_ms=77)
    assert control(3, struct.pack(">hq", 0, 77) + b"\0") == header
    assert control(4, b"\0\0\0") == SnapshotFooterRecord()
    level = FeatureLevelRecord(name="kraft.version", feature_level=1)
    assert control(5, struct.pack(">hh", 0, 1) + b"\0") == level
    endpoint = compact("CONTROLLER") + compact("localhost") + struct.pack(">H", 9093) + b"\0"
    feature = struct.pack(">hh", 0, 1) + b"\0"
    voters = b"\0\0\x02" + voter + directory + b"\x02" + endpoint + feature + b"\0\0"
    assert control(6, voters) == VotersRecord(voters=(11,))
    assert control(9, b"xy") == OtherControlRecord(kind=9, data=b"xy")
    assert control(2, b"\0\x09xy") == OtherControlRecord(kind=2, data=b"\0\x09xy")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (encode_record(SAME_AS_OURS[0])[:-3], "offset 8: a TopicRecord (kind 2, version 0)"),
        (encode_record(SAME_AS_OURS[0]) + b"\0", "offset 8: a TopicRecord (kind 2, version 0)"),
        (b"", "offset 8: a record of unknown kind"),
        (b"\x02\x02\x00", "frame version 2"),
    ],
)
def test_a_damaged_record_names_its_offset_and_kind(data: bytes, sentence: str) -> None:
    batch = encode_batch(
        [(None, encode_record(NoOpRecord())), (None, data)], timestamp_ms=1, base_offset=7
    )
    with pytest.raises(DamagedRecordError) as caught:
        read_batches(batch)
    assert sentence in str(caught.value)


def test_a_damaged_control_record_names_its_offset_and_kind() -> None:
    with pytest.raises(
        DamagedRecordError, match=r"offset 0: a LeaderChangeMessage \(control type 2\)"
    ):
        control(2, b"\0\0\0")


# --- recorded logs ---


@pytest.mark.parametrize("version", VERSIONS)
def test_every_record_of_a_real_log_is_read(version: str) -> None:
    log = recorded(version)
    records = [
        record
        for batch in read_batches(log.log)
        for offset, record in enumerate(batch.records, batch.base_offset)
        if offset < log.end
    ]
    assert len(records) == log.end
    assert Counter(type(record).__name__ for record in records) == log.facts["records"]
    others = [record for record in records if isinstance(record, OtherRecord)]
    assert not [record for record in others if record.is_of_image]
    assert {record.kind for record in others} <= set(KIND_NAMES)
    levels = {r.name: r.feature_level for r in records if isinstance(r, FeatureLevelRecord)}
    assert {name: level for name, level in levels.items() if level} == {
        name: level for name, level in log.facts["features"].items() if level
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_a_real_snapshot_is_read(version: str) -> None:
    batches = read_batches(recorded(version).snapshot[2])
    records = [record for batch in batches for record in batch.records]
    assert isinstance(records[0], SnapshotHeaderRecord)
    assert isinstance(records[-1], SnapshotFooterRecord)
    assert sum(isinstance(record, RegisterBrokerRecord) for record in records) == 3


def count_of(data: bytes) -> int | None:
    """Returns how many records are read; None if they are refused with one sentence."""
    try:
        return sum(len(batch.records) for batch in read_batches(data))
    except DamagedRecordError:
        return None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_log_that_is_cut_anywhere_gives_fewer_records(version: str) -> None:
    data = recorded(version).log
    whole = count_of(data)
    ends = [0]
    for batch in read_batches(data):
        ends.append(ends[-1] + len(batch.records))
    assert whole == ends[-1]
    for end in range(0, len(data), 7):
        assert count_of(data[:end]) in ends[:-1]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_flipped_bit_gives_an_error_or_fewer_records(version: str) -> None:
    """Offset and epoch of a batch are not covered by its checksum: then only the number of records is the same."""
    data = recorded(version).log
    whole = count_of(data)
    assert whole is not None
    draw = random.Random(version)
    refused = 0
    for _ in range(400):
        position, bit = draw.randrange(len(data)), draw.randrange(8)
        flipped = bytearray(data)
        flipped[position] ^= 1 << bit
        count = count_of(bytes(flipped))
        assert count is None or count <= whole
        refused += count is None
    assert refused > 200


def test_our_own_batches_are_read_with_epoch_and_checksum() -> None:
    data = encode_metadata_batch(SAME_AS_OURS, timestamp_ms=1, base_offset=4, quorum_epoch=2)
    (batch,) = read_batches(data)
    assert (batch.base_offset, batch.last_offset, batch.epoch) == (4, 3 + len(SAME_AS_OURS), 2)
    assert batch.records == SAME_AS_OURS
    assert batch.checksum == struct.unpack_from(">I", data, 17)[0]
