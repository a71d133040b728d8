"""Several log directories of one broker: placement of new logs, failure of one directory (DIR-1, DIR-4)."""

import asyncio
import random
from uuid import UUID

import pytest

from system_under_test.config import NodeConfig, Voter, profile_features
from system_under_test.log.checkpoints import CleanShutdownMarker
from system_under_test.log.manager import LogManager, OfflineDirectoryError
from system_under_test.log.preferred import PreferredDirectories
from system_under_test.log.verified import VerifiedBatches
from system_under_test.metadata.records import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
)
from system_under_test.protocol.record_batch import encode_batch
from system_under_test.rules import Rules
from tests.memory_storage import MemoryStorage

DIRECTORIES = ("d1", "d2")
TOPIC_ID = UUID(int=0x1234)
FEATURES = profile_features("kafka-4.1")


class Disks(MemoryStorage):
    """A storage in which directories can be made to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()

    def _fail_if_broken(self, path: str) -> None:
        if path.split("/")[0] in self.broken:
            raise OSError(5, "input/output error", path)

    def exists(self, path):
        self._fail_if_broken(path)
        return super().exists(path)

    def list(self, directory):
        self._fail_if_broken(directory)
        return super().list(directory)

    def _file(self, path):
        self._fail_if_broken(path)
        return super()._file(path)

    def _call(self, operation, path):
        self._fail_if_broken(path)
        super()._call(operation, path)


class Broker:
    """The logs of one incarnation, and what the owner of the log manager was told of failed directories."""

    def __init__(self, storage, *, features=FEATURES, rules=(), load=True) -> None:
        config = NodeConfig(
            node_id=1,
            role="broker",
            address="b1:9092",
            cluster_id="c",
            voters=(Voter(node_id=11, address="c11:9093"),),
            log_dirs=DIRECTORIES,
            features=features,
            rules=Rules(rules),
        )
        self.logs = LogManager(storage, config, random.Random(7))
        self.failures: list[tuple[UUID, list[tuple[str, int]]]] = []
        self.logs.on_directory_failed = lambda directory, keys, error: self.failures.append(
            (directory, list(keys))
        )
        if load:
            self.logs.load_all()

    @property
    def ids(self) -> tuple[UUID, ...]:
        return self.logs.directory_ids

    def create(self, index: int, assigned: UUID = UNASSIGNED_DIRECTORY):
        return self.logs.get_or_create("t", index, TOPIC_ID, assigned)


def append(log) -> None:
    batch = encode_batch([(None, b"x")], timestamp_ms=1)
    log.append_as_leader(VerifiedBatches.verify(batch), 1)


def test_a_new_log_is_created_in_the_assigned_directory_or_where_there_are_the_fewest() -> None:
    broker = Broker(MemoryStorage())
    first, second = broker.ids
    broker.create(0, second)
    broker.create(1, second)
    broker.create(2)
    broker.create(3)
    broker.create(4, MIGRATING_DIRECTORY)
    places = [broker.logs.directory_id("t", index) for index in range(5)]
    assert places == [second, second, first, first, first]


def test_a_preferred_directory_wins_over_the_assigned_one_and_over_the_emptier_one_once() -> None:
    broker = Broker(MemoryStorage())
    first, second = broker.ids
    broker.create(0, second)
    broker.logs.preferred.remember(("t", 1), "d2")
    broker.create(1)
    assert broker.logs.directory_id("t", 1) == second, "although the other one is empty"
    broker.logs.preferred.remember(("t", 2), "d2")
    broker.create(2, first)
    assert broker.logs.directory_id("t", 2) == second
    broker.logs.delete("t", 2)
    broker.create(2, first)
    assert broker.logs.directory_id("t", 2) == first, "the wish was fulfilled before"


def test_no_log_is_created_elsewhere_while_the_preferred_directory_is_offline() -> None:
    storage = Disks()
    broker = Broker(storage)
    first, second = broker.ids
    append(broker.create(0, second))
    broker.logs.preferred.remember(("t", 1), "d2")
    storage.broken.add("d2")
    with pytest.raises(OSError, match="input/output") as raised:
        append(broker.logs.get("t", 0))
    assert broker.logs.partition_failed("t", 0, raised.value)
    with pytest.raises(OfflineDirectoryError, match="the preferred directory d2 is offline"):
        broker.create(1)
    broker.create(2, UNASSIGNED_DIRECTORY)
    assert broker.logs.directory_id("t", 2) == first


def test_only_so_many_preferred_directories_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("system_under_test.log.preferred.PREFERRED_MAX", 2)
    preferred = PreferredDirectories()
    for index in (0, 1, 0, 2):
        preferred.remember(("t", index), f"d{index}")
    assert [preferred.name_of(("t", index)) for index in range(3)] == ["d0", "", "d2"]


def test_a_directory_that_fails_takes_its_logs_along_and_no_others() -> None:
    storage = Disks()
    broker = Broker(storage)
    first, second = broker.ids
    for index, directory in enumerate((first, second, second)):
        append(broker.create(index, directory))
    storage.broken.add("d2")
    log = broker.logs.get("t", 1)
    with pytest.raises(OSError, match="input/output") as raised:
        append(log)
    assert broker.logs.partition_failed("t", 1, raised.value)
    assert broker.failures == [(second, [("t", 1), ("t", 2)])]
    assert broker.logs.partition_failed("t", 2, raised.value), "it is known already"
    assert len(broker.failures) == 1
    assert broker.logs.get("t", 2) is None
    assert broker.logs.partitions() == [("t", 0)]
    assert broker.logs.online_directory_ids() == (first,)
    assert broker.logs.directory_id("t", 1) == second, "the controller still has to be told"
    append(broker.logs.get("t", 0))


def test_without_the_metadata_directory_a_broker_cannot_continue() -> None:
    storage = Disks()
    broker = Broker(storage)
    append(broker.create(0, broker.ids[0]))
    assert not broker.logs.partition_failed("t", 0, OSError(5, "input/output error"))
    assert broker.failures == []
    assert broker.logs.get("t", 0) is not None
    storage.broken.add("d1")
    with pytest.raises(OSError, match="input/output"):
        broker.logs.write_recovery_points()
    with pytest.raises(OSError, match="input/output"):
        Broker(storage)


def test_a_periodic_checkpoint_finds_a_failed_directory() -> None:
    storage = Disks()
    broker = Broker(storage)
    append(broker.create(0, broker.ids[0]))
    append(broker.create(1, broker.ids[1]))
    storage.broken.add("d2")
    broker.logs.write_recovery_points()
    assert broker.failures == [(broker.ids[1], [("t", 1)])]
    broker.logs.write_high_watermarks({("t", 0): 1, ("t", 1): 1})
    storage.broken.clear()
    assert not storage.exists("d2/replication-offset-checkpoint"), (
        "it is offline until the next start"
    )


def test_a_directory_that_fails_while_it_is_loaded_is_offline() -> None:
    storage = Disks()
    first = Broker(storage)
    append(first.create(0, first.ids[0]))
    append(first.create(1, first.ids[1]))
    again = Broker(storage, load=False)
    storage.broken.add("d2")
    again.logs.load_all()
    assert again.failures == [(again.ids[1], [])]
    assert again.logs.get("t", 0).log_end_offset == 1
    with pytest.raises(OfflineDirectoryError, match="t-1 may be in d2"):
        again.create(1, again.ids[1])


def test_a_directory_that_fails_while_a_log_is_created_in_it_has_that_log() -> None:
    storage = Disks()
    broker = Broker(storage)
    storage.broken.add("d2")
    with pytest.raises(OSError, match="input/output") as raised:
        broker.create(0, broker.ids[1])
    assert broker.logs.partition_failed("t", 0, raised.value)
    assert broker.failures == [(broker.ids[1], [("t", 0)])]
    with pytest.raises(OfflineDirectoryError):
        broker.create(0, broker.ids[1])


def test_a_log_that_failed_is_not_created_elsewhere_but_that_of_a_new_topic_is() -> None:
    """KAFKA-16234: a directory that fails while the broker runs keeps its replicas."""
    storage = Disks()
    broker = Broker(storage)
    append(broker.create(0, broker.ids[1]))
    storage.broken.add("d2")
    broker.logs.partition_failed("t", 0, OSError(5, "input/output error"))
    with pytest.raises(OfflineDirectoryError):
        broker.create(0, broker.ids[1])
    other = broker.logs.get_or_create("t", 0, UUID(int=0x5678), UNASSIGNED_DIRECTORY)
    assert other.directory == "d1/t-0"


@pytest.mark.parametrize("assigned", [None, MIGRATING_DIRECTORY, LOST_DIRECTORY])
def test_no_empty_log_stands_in_for_one_in_an_offline_directory(assigned: UUID | None) -> None:
    """DIR-4. Apache Kafka 4.1.2 was seen to create none either."""
    storage = Disks()
    second = Broker(storage).ids[1]
    storage.broken.add("d2")
    with pytest.raises(OfflineDirectoryError, match="t-0 may be in d2, which is offline"):
        Broker(storage).create(0, assigned or second)
    without = Broker(storage, rules=["DIR-4"])
    assert without.create(0, assigned or second).directory == "d1/t-0"


def test_a_new_replica_needs_no_offline_directory() -> None:
    storage = Disks()
    Broker(storage)
    storage.broken.add("d2")
    assert Broker(storage).create(0, UNASSIGNED_DIRECTORY).directory == "d1/t-0"


def test_after_a_disk_was_replaced_an_empty_log_is_created() -> None:
    """The assigned directory does not exist any more, and no directory is offline (DIR-4)."""
    broker = Broker(MemoryStorage())
    assert broker.create(0, UUID(int=0x9999)).log_end_offset == 0


def test_only_directories_that_are_online_are_marked_as_clean() -> None:
    storage = Disks()
    broker = Broker(storage)
    append(broker.create(0, broker.ids[0]))
    append(broker.create(1, broker.ids[1]))
    storage.broken.add("d2")
    broker.logs.write_recovery_points()
    storage.broken.clear()
    asyncio.run(broker.logs.shutdown(5))
    assert CleanShutdownMarker(storage, "d1").read() == 5
    assert CleanShutdownMarker(storage, "d2").read() is None
    assert Broker(storage, load=False).logs.clean_broker_epoch() == -1


def test_a_log_in_an_offline_directory_is_deleted_in_name_only() -> None:
    storage = Disks()
    broker = Broker(storage)
    append(broker.create(0, broker.ids[1]))
    storage.broken.add("d2")
    broker.logs.write_recovery_points()
    broker.logs.delete("t", 0)
    assert broker.logs.directory_id("t", 0) is None
    storage.broken.clear()
    assert Broker(storage).logs.partitions() == [("t", 0)], (
        "the next start finds it, and deletes it"
    )
