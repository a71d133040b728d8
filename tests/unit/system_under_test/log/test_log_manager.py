"""The logs of one broker: directories, checkpoints, the clean-shutdown marker (CS-1 ... CS-3, LIFE-3, REC-2)."""

import asyncio
import random
from uuid import UUID

import pytest

from system_under_test.config import LogConfig, NodeConfig, Voter
from system_under_test.log import LogDirectoryError, LogManager
from system_under_test.log.checkpoints import (
    CleanShutdownMarker,
    OffsetCheckpoint,
    decode_uuid,
    encode_uuid,
)
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.record_batch import decode_records, encode_batch
from system_under_test.rules import Rules
from tests.memory_storage import MemoryStorage

TOPIC_ID = UUID(int=0x1234)
MARKER = "data/.kafka_cleanshutdown"
RECOVERY_POINTS = "data/recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "data/replication-offset-checkpoint"


def config_of(*, log_dirs=("data",), rules=(), node_id=1, cluster_id="c", log=None) -> NodeConfig:
    return NodeConfig(
        node_id=node_id,
        role="broker",
        address="b1:9092",
        cluster_id=cluster_id,
        voters=(Voter(node_id=11, address="c11:9093"),),
        log_dirs=log_dirs,
        rules=Rules(rules),
        log=log or LogConfig(),
    )


def start(storage, *, seed=7, load=True, **config) -> LogManager:
    manager = LogManager(storage, config_of(**config), random.Random(seed))
    if load:
        manager.load_all()
    return manager


def batch(value: str = "x") -> bytes:
    return encode_batch([(None, value.encode())], timestamp_ms=1)


def append(manager: LogManager, *values: str, topic="t", index=0, epoch=1):
    log = manager.get_or_create(topic, index, TOPIC_ID)
    for value in values:
        log.append_as_leader(VerifiedBatches.verify(batch(value)), epoch)
    return log


def values_of(log) -> list[str]:
    data = log.read(log.log_start_offset, 1 << 30, log.log_end_offset)
    return [record.value.decode() for _, records in decode_records(data) for record in records]


def stop(manager: LogManager, broker_epoch: int) -> None:
    asyncio.run(manager.shutdown(broker_epoch))


class BrokenDirectory(MemoryStorage):
    """A storage in which one directory cannot be touched."""

    broken = "none"

    def exists(self, path):
        if path.startswith(self.broken + "/"):
            raise OSError(5, "input/output error", path)
        return super().exists(path)


# Identity


def test_a_directory_gets_a_durable_identity_once():
    storage = MemoryStorage()
    [first] = start(storage, seed=7).directory_ids
    storage.power_cut()
    [second] = start(storage, seed=8).directory_ids
    assert first == second
    assert first.version == 4
    text = storage.read("data/meta.properties").decode()
    assert "cluster.id=c\nnode.id=1\n" in text
    assert f"directory.id={encode_uuid(first)}\n" in text


def test_directory_ids_come_from_the_random_stream():
    assert (
        start(MemoryStorage(), seed=1).directory_ids == start(MemoryStorage(), seed=1).directory_ids
    )
    assert (
        start(MemoryStorage(), seed=1).directory_ids != start(MemoryStorage(), seed=2).directory_ids
    )


@pytest.mark.parametrize("other", [{"node_id": 2}, {"cluster_id": "d"}])
def test_a_directory_of_another_broker_is_refused(other):
    storage = MemoryStorage()
    start(storage)
    with pytest.raises(LogDirectoryError, match="belongs to node 1 of cluster c"):
        start(storage, **other)


@pytest.mark.parametrize("content", [b"", b"garbage", b"cluster.id=c\nnode.id=x\n", b"\xff"])
def test_a_damaged_identity_is_one_clear_sentence(content):
    storage = MemoryStorage()
    storage.write("data/meta.properties", content)
    with pytest.raises(LogDirectoryError, match=r"data/meta\.properties is damaged"):
        start(storage)


def test_uuids_are_written_as_kafka_writes_them():
    assert encode_uuid(UUID(int=0)) == "A" * 22
    assert decode_uuid(encode_uuid(TOPIC_ID)) == TOPIC_ID


# Logs


def test_a_log_is_created_once_and_found_again():
    manager = start(MemoryStorage())
    assert manager.get("t", 0) is None
    log = manager.get_or_create("t", 0, TOPIC_ID)
    assert manager.get_or_create("t", 0, TOPIC_ID) is log
    assert manager.get("t", 0) is log
    assert manager.partitions() == [("t", 0)]
    assert manager.directory_id("t", 0) == manager.directory_ids[0]
    assert manager.directory_id("t", 1) is None


def test_the_topic_id_is_durable_before_the_first_record():
    storage = MemoryStorage()
    start(storage).get_or_create("t", 0, TOPIC_ID)
    storage.power_cut()
    assert start(storage).topic_id("t", 0) == TOPIC_ID


def test_logs_are_found_by_the_next_process():
    storage = MemoryStorage()
    manager = start(storage)
    append(manager, "a", "b", topic="with-dash", index=3)
    append(manager, "c", topic="t", index=10)
    again = start(storage)
    assert again.partitions() == [("t", 10), ("with-dash", 3)]
    assert values_of(again.get("with-dash", 3)) == ["a", "b"]


def test_folders_that_are_not_partition_logs_are_not_loaded():
    storage = MemoryStorage()
    for name in ("__cluster_metadata-0", "t-01", "t-x", "-1", "t", "t-٣"):
        storage.write(f"data/{name}/00000000000000000000.log", b"")
    storage.write("data/file-1.tmp", b"")
    assert start(storage).partitions() == []


def test_a_log_of_a_deleted_topic_does_not_survive_under_its_name():
    storage = MemoryStorage()
    append(start(storage), "old")
    manager = start(storage)
    manager.write_high_watermarks({("t", 0): 1})
    log = manager.get_or_create("t", 0, UUID(int=2))
    assert log.log_end_offset == 0
    assert manager.checkpointed_high_watermark("t", 0) == 0
    assert start(storage).topic_id("t", 0) == UUID(int=2)


def test_a_log_whose_topic_id_was_damaged_is_kept():
    storage = MemoryStorage()
    append(start(storage), "kept")
    storage.write("data/t-0/partition.metadata", b"version: 0\ntopic_id: ???\n")
    manager = start(storage)
    assert manager.topic_id("t", 0) is None
    assert values_of(manager.get_or_create("t", 0, TOPIC_ID)) == ["kept"]
    assert manager.topic_id("t", 0) == TOPIC_ID


def test_a_deleted_log_is_gone_with_its_checkpoints_and_its_topic_id_last():
    storage = MemoryStorage()
    manager = start(storage)
    append(manager, "a").flush_blocking()
    manager.write_high_watermarks({("t", 0): 1})
    manager.write_recovery_points()
    storage.calls.clear()
    manager.delete("t", 0)
    manager.delete("t", 0)
    removed = [path for operation, path in storage.calls if operation == "remove"]
    assert removed[-1] == "data/t-0/partition.metadata"
    assert manager.get("t", 0) is None
    assert storage.list("data/t-0") == []
    assert OffsetCheckpoint(storage, RECOVERY_POINTS).read() == {}
    assert OffsetCheckpoint(storage, HIGH_WATERMARKS).read() == {}


def test_a_deleted_log_does_not_come_back_with_a_power_cut():
    storage = MemoryStorage()
    manager = start(storage)
    append(manager, "a").flush_blocking()
    manager.delete("t", 0)
    storage.power_cut()
    assert start(storage).get("t", 0) is None


def test_checkpoints_of_deleted_logs_are_not_used_for_new_ones():
    storage = MemoryStorage()
    manager = start(storage)
    append(manager, "a", "b").flush_blocking()
    manager.write_high_watermarks({("t", 0): 2})
    manager.write_recovery_points()
    for name in storage.list("data/t-0"):
        storage.remove(f"data/t-0/{name}")
    append(start(storage), "new", "newer")
    again = start(storage)
    assert again.checkpointed_high_watermark("t", 0) == 0
    assert again.get("t", 0).recovery_point == 0


# Checkpoints


def test_high_watermarks_survive_a_power_cut():
    storage = MemoryStorage()
    manager = start(storage)
    append(manager, "a", "b")
    append(manager, "c", index=1)
    assert manager.checkpointed_high_watermark("t", 0) == 0
    manager.write_high_watermarks({("t", 0): 2, ("t", 1): 1, ("unknown", 0): 5})
    manager.write_high_watermarks({("t", 0): 1})
    storage.power_cut()
    again = start(storage)
    assert again.checkpointed_high_watermark("t", 0) == 1
    assert again.checkpointed_high_watermark("t", 1) == 1
    assert again.checkpointed_high_watermark("unknown", 0) == 0


def test_an_unchanged_checkpoint_is_not_written_again():
    storage = MemoryStorage()
    manager = start(storage)
    append(manager, "a")
    manager.write_high_watermarks({("t", 0): 1})
    storage.calls.clear()
    manager.write_high_watermarks({("t", 0): 1})
    assert storage.calls == []


def test_a_checkpoint_that_failed_is_written_again():
    storage = MemoryStorage()
    manager = start(storage)
    append(manager, "a")
    storage.failing = {"fsync_dir"}
    with pytest.raises(OSError, match="input/output"):
        manager.write_high_watermarks({("t", 0): 1})
    storage.failing = set()
    manager.write_high_watermarks({("t", 0): 1})
    storage.power_cut()
    assert OffsetCheckpoint(storage, HIGH_WATERMARKS).read() == {("t", 0): 1}


def test_checkpoints_have_kafkas_format():
    storage = MemoryStorage()
    OffsetCheckpoint(storage, "data/c").write({("t", 1): 5, ("s", 0): 7})
    assert storage.read("data/c") == b"0\n2\ns 0 7\nt 1 5\n"


@pytest.mark.parametrize(
    "content",
    [b"", b"0\n1\n", b"0\n2\nt 0 5\n", b"2\n1\nt 0 5\n", b"0\n1\nt 0\n", b"0\n1\nt 0 5 6\n",
     b"0\n1\nt 0 x\n", b"0\n1\nt 0 -5\n", b"0\n1\nt 0 5", b"\xff", bytes(64)],
)  # fmt: skip
def test_a_torn_or_unparsable_checkpoint_is_absent(content):
    storage = MemoryStorage()
    storage.write("data/c", content)
    assert OffsetCheckpoint(storage, "data/c").read() == {}


def test_writing_checkpoints_before_loading_does_not_erase_them():
    storage = MemoryStorage()
    manager = start(storage)
    append(manager, "a").flush_blocking()
    manager.write_recovery_points()
    manager.write_high_watermarks({("t", 0): 1})
    early = start(storage, load=False)
    early.write_recovery_points()
    early.write_high_watermarks({})
    early.load_all()
    assert early.get("t", 0).recovery_point == 1
    assert early.checkpointed_high_watermark("t", 0) == 1


def test_a_truncation_checkpoints_the_lower_recovery_point_at_once():
    storage = MemoryStorage()
    manager = start(storage)
    log = append(manager, "a", "b", "c")
    log.flush_blocking()
    manager.write_recovery_points()
    log.truncate_to(1)
    storage.power_cut()
    assert OffsetCheckpoint(storage, RECOVERY_POINTS).read() == {("t", 0): 1}


def test_without_trunc3_the_checkpoint_stays_too_high():
    storage = MemoryStorage()
    manager = start(storage, rules=["TRUNC-3"])
    log = append(manager, "a", "b", "c")
    log.flush_blocking()
    manager.write_recovery_points()
    log.truncate_to(1)
    assert OffsetCheckpoint(storage, RECOVERY_POINTS).read() == {("t", 0): 3}


def test_a_log_reset_to_an_offset_still_starts_there_after_a_power_cut():
    storage = MemoryStorage()
    manager = start(storage)
    log = append(manager, "a", "b", "c")
    log.flush_blocking()
    log.truncate_fully_and_start_at(100)
    storage.power_cut()
    log = start(storage).get("t", 0)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)


def test_records_cut_below_the_log_start_do_not_return_without_their_epoch():
    storage = MemoryStorage()
    manager = start(storage)
    log = append(manager, "a", "b")
    log.flush_blocking()
    log.advance_log_start(1)
    log.flush_blocking()
    manager.write_recovery_points()
    log.truncate_to(0)
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (0, 0, -1)
    storage.power_cut()
    log = start(storage).get("t", 0)
    assert values_of(log) == []
    assert log.log_end_offset == 0


# Orderly and other ends


def test_a_clean_shutdown_loses_nothing_in_a_power_cut_right_after_it():
    storage = MemoryStorage()
    manager = start(storage)
    append(manager, "a", "b")
    stop(manager, 42)
    assert storage.read(MARKER) == b'{"version":0,"brokerEpoch":42}'
    storage.power_cut()
    # CS-1: as in Kafka the name of the marker is not durable, so the start is unclean; the records are there.
    again = start(storage, load=False)
    assert again.clean_broker_epoch() == -1
    again.load_all()
    assert values_of(again.get("t", 0)) == ["a", "b"]
    assert again.get("t", 0).recovery_point == 2


def test_the_marker_is_written_last():
    storage = MemoryStorage()
    manager = start(storage)
    append(manager, "a")
    storage.calls.clear()
    stop(manager, 1)
    touched = [path for operation, path in storage.calls if operation != "fsync_dir"]
    assert touched.index(MARKER) == len(touched) - 2
    # CS-1: Kafka does not make the name of the file durable either.
    assert storage.calls[-1] == ("fsync_blocking", MARKER)


def test_without_cs1_the_marker_comes_before_the_flush():
    storage = MemoryStorage()
    manager = start(storage, rules=["CS-1"])
    append(manager, "a")
    storage.failing = {"fsync"}
    stop(manager, 1)
    assert storage.exists(MARKER)


def test_no_marker_without_a_complete_flush():
    storage = MemoryStorage()
    manager = start(storage)
    append(manager, "a")
    storage.failing = {"fsync"}
    stop(manager, 1)
    assert not storage.exists(MARKER)


def test_the_marker_is_deleted_before_any_log_is_loaded():
    storage = MemoryStorage()
    manager = start(storage)
    append(manager, "a")
    stop(manager, 5)
    again = start(storage, load=False)
    assert again.clean_broker_epoch() == 5
    assert again.clean_broker_epoch() == 5
    storage.failing = {"read"}
    with pytest.raises(OSError, match="input/output"):
        again.load_all()
    storage.failing = set()
    assert start(storage, load=False).clean_broker_epoch() == -1


def test_without_cs3_the_marker_stays():
    storage = MemoryStorage()
    manager = start(storage)
    stop(manager, 5)
    start(storage, rules=["CS-3"])
    assert start(storage, load=False).clean_broker_epoch() == 5


def test_a_shutdown_before_the_logs_were_loaded_renews_an_existing_marker_and_creates_none():
    storage = MemoryStorage()
    stop(start(storage, load=False), 4)
    assert not storage.exists(MARKER)
    stop(start(storage), 5)
    stop(start(storage, load=False), 6)
    assert start(storage, load=False).clean_broker_epoch() == 6


def test_markers_are_renewed_only_while_they_prove_a_clean_shutdown():
    """CS-5: an incarnation that loaded no log leaves what it found, under its own epoch."""
    storage = MemoryStorage()
    start(storage, load=False).renew_markers(4)
    assert not storage.exists(MARKER)
    stop(start(storage), 5)
    start(storage, load=False).renew_markers(-1)
    assert start(storage, load=False).clean_broker_epoch() == 5
    start(storage, load=False).renew_markers(6)
    assert start(storage, load=False).clean_broker_epoch() == 6


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"version":1,"brokerEpoch":5}', b'{"version":0}', b"\xff" * 8, bytes(30),
     b'{"version":0,"brokerEpoch":"5"}', b'{"version":0,"brokerEpoch":true}', b"[" * 100000],
)  # fmt: skip
def test_an_unparsable_marker_names_no_epoch(content):
    storage = MemoryStorage()
    storage.write(MARKER, content)
    assert CleanShutdownMarker(storage, "data").read() is None
    assert start(storage, load=False).clean_broker_epoch() == -1


def test_all_directories_must_agree():
    storage = MemoryStorage()
    dirs = ("d1", "d2")
    stop(start(storage, log_dirs=dirs), 5)
    assert start(storage, load=False, log_dirs=dirs).clean_broker_epoch() == 5
    CleanShutdownMarker(storage, "d2").write(4)
    assert start(storage, load=False, log_dirs=dirs).clean_broker_epoch() == -1
    CleanShutdownMarker(storage, "d2").delete()
    assert start(storage, load=False, log_dirs=dirs).clean_broker_epoch() == -1
    careless = start(storage, load=False, log_dirs=dirs, rules=["CS-2"])
    assert careless.clean_broker_epoch() == 5


def test_an_offline_directory_makes_the_start_unclean():
    storage = BrokenDirectory()
    dirs = ("d1", "d2")
    stop(start(storage, log_dirs=dirs), 5)
    storage.broken = "d2"
    manager = start(storage, load=False, log_dirs=dirs)
    assert manager.offline_directories == ("d2",)
    assert len(manager.directory_ids) == 1
    assert manager.clean_broker_epoch() == -1
    storage.broken = "d1"
    with pytest.raises(OSError, match="input/output"):
        start(storage, load=False, log_dirs=("d1",))


def test_logs_spread_over_the_directories():
    storage = MemoryStorage()
    manager = start(storage, log_dirs=("d1", "d2"))
    for index in range(4):
        append(manager, "x", index=index)
    assert storage.list("d1") == ["meta.properties", "t-0", "t-2"]
    assert storage.list("d2") == ["meta.properties", "t-1", "t-3"]


def test_a_log_in_two_directories_is_one_clear_sentence():
    storage = MemoryStorage()
    start(storage, log_dirs=("d1", "d2"))
    for directory in ("d1", "d2"):
        storage.write(f"{directory}/t-0/00000000000000000000.log", b"")
    with pytest.raises(LogDirectoryError, match="t-0 lies in d1 and in d2"):
        start(storage, log_dirs=("d1", "d2"))
