"""Metadata records that only Apache Kafka writes: older versions, several listeners, other types.

`recorded/kafka-4.1.2-metadata.bin` has the first batch with each kind of record from the metadata log of a
controller of Apache Kafka 4.1.2.
"""

import struct
from pathlib import Path
from uuid import UUID

import pytest

from system_under_test.metadata.records import (
    BrokerRegistrationChangeRecord,
    IgnoredRecord,
    LeaderChangeRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from system_under_test.protocol.metadata_codec import (
    decode_metadata_batches,
    decode_record,
    encode_record,
)
from system_under_test.protocol.record_batch import encode_batch

RECORDED = Path(__file__).parent / "recorded" / "kafka-4.1.2-metadata.bin"
TOPIC = UUID(int=7)


def recorded() -> list[MetadataRecord]:
    batches = decode_metadata_batches(RECORDED.read_bytes())
    return [record for batch in batches for record in batch.records]


def test_a_metadata_log_of_apache_kafka_is_read() -> None:
    records = recorded()
    assert records[0] == LeaderChangeRecord(leader_id=11, voters=(11,))
    # The begin and end of the first transaction, and the registration of the controller.
    ignored = [record.type_id for record in records if isinstance(record, IgnoredRecord)]
    assert ignored == [23, 24, 27]


def test_a_registration_with_features_is_read_without_them() -> None:
    (broker,) = [record for record in recorded() if isinstance(record, RegisterBrokerRecord)]
    assert (broker.broker_id, broker.broker_epoch) == (1, 9)
    assert broker.address == "127.0.0.1:27564"
    assert len(broker.log_dirs) == 1


def text(value: str) -> bytes:
    return bytes((len(value) + 1,)) + value.encode()


def registration(version: int) -> bytes:
    """Returns a registration with two endpoints, a feature and a rack, in a version."""
    endpoints = b"".join(
        text(name) + text("127.0.0.1") + struct.pack(">Hh", port, 0) + b"\0"
        for name, port in (("INTERNAL", 9092), ("CLIENT", 9093))
    )
    feature = text("metadata.version") + struct.pack(">hh", 1, 14) + b"\0"
    return b"".join(
        (
            bytes((1, 0, version)) + struct.pack(">i", 1),
            b"\0" if version >= 2 else b"",
            UUID(int=3).bytes + struct.pack(">q", 42),
            b"\x03" + endpoints + b"\x02" + feature + text("rack-1") + b"\x01",
            b"\x01" if version >= 1 else b"",
            b"\x01\x00\x11\x02" + UUID(int=8).bytes if version >= 3 else b"\0",
        )
    )


@pytest.mark.parametrize("version", [0, 1, 2, 3])
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


@pytest.mark.parametrize("version", [0, 1])
def test_a_partition_of_an_older_version_is_read(version: int) -> None:
    framed = b"".join(
        (
            bytes((1, 3, version)) + struct.pack(">i", 4) + TOPIC.bytes,
            b"\x02" + struct.pack(">i", 1),
            b"\x02" + struct.pack(">i", 1),
            b"\x01\x01" + struct.pack(">iii", 1, 5, 6),
            b"\x02" + UUID(int=8).bytes if version >= 1 else b"",
            b"\0",
        )
    )
    assert decode_record(framed) == PartitionRecord(
        topic_id=TOPIC,
        partition_id=4,
        replicas=(1,),
        isr=(1,),
        leader=1,
        leader_epoch=5,
        partition_epoch=6,
        directories=(UUID(int=8),) if version >= 1 else (),
    )


def test_a_permission_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="AccessControlEntryRecord is not supported"):
        decode_record(bytes((1, 18, 0)))


def control_batch(kind: int, value: bytes) -> bytes:
    key = struct.pack(">hh", 0, kind)
    return encode_batch([(key, value)], timestamp_ms=1, is_control=True)


def test_a_quorum_with_static_voters_is_read() -> None:
    (batch,) = decode_metadata_batches(control_batch(5, struct.pack(">hhB", 0, 0, 0)))
    assert batch.records == (IgnoredRecord(type_id=5),)


@pytest.mark.parametrize(("kind", "value"), [(5, struct.pack(">hhB", 0, 1, 0)), (6, b"\0\0\1\0")])
def test_a_quorum_with_dynamic_voters_is_refused(kind: int, value: bytes) -> None:
    with pytest.raises(ValueError, match=r"dynamic voters \(kraft.version 1\)"):
        decode_metadata_batches(control_batch(kind, value))


def test_no_registration_change_ends_a_controlled_shutdown() -> None:
    change = BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=2, in_controlled_shutdown=False
    )
    with pytest.raises(ValueError, match="cannot end a controlled shutdown"):
        encode_record(change)
    # -1, which Kafka does not have.
    with pytest.raises(ValueError, match="-1 is not a shutdown change"):
        decode_record(bytes((1, 17, 2)) + struct.pack(">iq", 1, 2) + b"\x01\x01\x01\xff")
