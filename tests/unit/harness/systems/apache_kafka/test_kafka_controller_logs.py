"""The logs of all controllers against what was read from the quorum."""

from dataclasses import dataclass

import pytest

from harness.systems.apache_kafka.controller_logs import (
    METADATA_DIRECTORY,
    ControllerLogs,
    ReadBatches,
    compare_logs,
)
from harness.systems.apache_kafka.metadata_reader import Committed, Snapshot
from harness.systems.apache_kafka.quorum import EndOffset
from harness.systems.apache_kafka.records import read_batches
from tests.unit.harness.systems.apache_kafka.fake_quorum import whole_batches, with_epoch
from tests.unit.harness.systems.apache_kafka.recorded import VERSIONS, Recorded, recorded


@dataclass
class Files:
    """Implements `NodeFiles` over the files of one directory."""

    data: dict[str, bytes]
    fails: bool = False

    def list(self, directory: str) -> list[str]:
        assert directory == METADATA_DIRECTORY
        if self.fails:
            raise OSError("the host is gone")
        return sorted(self.data)

    def read(self, path: str, length: int, offset: int = 0) -> bytes:
        return self.data[path.rpartition("/")[2]][offset : offset + length]


def files_of(log: Recorded, data: bytes | None = None, *, start: int = 0) -> Files:
    end, epoch, snapshot = log.snapshot
    return Files(
        {
            f"{start:020}.log": log.log if data is None else data,
            f"{end:020}-{epoch:010}.checkpoint": snapshot,
            "quorum-state": b"{}",
        }
    )


def read_of(log: Recorded, *, end: int | None = None) -> ReadBatches:
    read = ReadBatches()
    last = log.end if end is None else end
    batches = tuple(batch for batch in read_batches(log.log) if batch.base_offset < last)
    read.committed(Committed(node_id=11, batches=batches, data=log.log, first=0, end=last))
    return read


def compared(log: Recorded, *files: Files, read: ReadBatches | None = None) -> ControllerLogs:
    named = {f"c{11 + number}": each for number, each in enumerate(files)}
    return compare_logs(named, read_of(log) if read is None else read)


@pytest.mark.parametrize("version", VERSIONS)
def test_controllers_with_the_same_log_agree(version: str) -> None:
    log = recorded(version)
    found = compared(log, files_of(log), files_of(log))
    assert found == ControllerLogs(differences=(), unread=())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_controller_may_lag_and_may_have_records_that_are_not_committed(version: str) -> None:
    log = recorded(version)
    batches = whole_batches(log.log)
    middle = len(batches) // 2
    lagging = files_of(log, b"".join(batch[3] for batch in batches[:middle]))
    ahead = files_of(log)
    read = read_of(log, end=batches[-1][0])
    other_tail = b"".join([*(b[3] for b in batches[:-1]), with_epoch(batches[-1][3], 99)])
    found = compared(log, lagging, ahead, files_of(log, other_tail), read=read)
    assert found.differences == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_another_batch_in_the_committed_log_is_a_difference(version: str) -> None:
    log = recorded(version)
    batches = whole_batches(log.log)
    middle = len(batches) // 2
    changed = [batch[3] for batch in batches]
    changed[middle] = with_epoch(changed[middle], 99)
    found = compared(log, files_of(log), files_of(log, b"".join(changed)))
    ((name, sentence),) = found.differences
    assert name == "c12"
    assert f"another batch at offset {batches[middle][0]}" in sentence
    assert "epoch 99" in sentence
    assert found.unread == ()


def test_a_gap_in_a_log_is_a_difference() -> None:
    log = recorded("4.1.2")
    batches = whole_batches(log.log)
    data = b"".join(batch[3] for batch in [*batches[:4], *batches[5:]])
    ((name, sentence),) = compared(log, files_of(log), files_of(log, data)).differences
    assert name == "c12"
    assert f"offset {batches[5][0]} follows offset {batches[3][1]}" in sentence


def test_batches_of_other_sizes_are_a_difference() -> None:
    log = recorded("4.1.2")
    read = read_of(log)
    missing = sorted(read.batches)[6]
    del read.batches[missing]
    ((name, sentence),) = compared(log, files_of(log), read=read).differences
    assert name == "c11"
    assert f"a batch at offset {missing}" in sentence


def test_a_committed_batch_that_no_controller_has_is_a_difference() -> None:
    log = recorded("4.1.2")
    batches = whole_batches(log.log)
    short = b"".join(batch[3] for batch in batches[:8])
    ((name, sentence),) = compared(log, files_of(log, short), files_of(log, short)).differences
    assert name == ""
    assert f"no controller has the committed batch at offset {batches[8][0]}" in sentence
    unread = compared(log, files_of(log, short), Files({}, fails=True))
    assert unread.differences == (), "the other controller may have it"
    assert compared(log, files_of(log, short), files_of(log)).differences == ()


def test_what_cannot_be_read_is_reported_as_unread() -> None:
    log = recorded("4.1.2")
    damaged = bytearray(log.log)
    damaged[len(damaged) // 2] ^= 1
    found = compared(
        log, files_of(log), files_of(log, bytes(damaged)), Files({}), Files({}, fails=True)
    )
    assert found.differences == ()
    assert [sentence.partition(":")[0] for sentence in found.unread] == [
        "c12",
        "c13 has no metadata log",
        "c14",
    ]
    assert "the log before it ends at offset" in found.unread[0]
    assert "the host is gone" in found.unread[2]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_log_that_was_cut_is_compared_from_its_start(version: str) -> None:
    log = recorded(version)
    end, epoch, snapshot = log.snapshot
    later = [batch for batch in whole_batches(log.log) if batch[0] >= end]
    cut = files_of(log, b"".join(batch[3] for batch in later), start=later[0][0])
    assert compared(log, cut).differences == ()
    read = ReadBatches()
    batches = tuple(read_batches(snapshot))
    place = EndOffset(end_offset=end, epoch=epoch)
    read.snapshot(Snapshot(node_id=11, end=place, batches=batches, data=snapshot))
    rest = tuple(batch for batch in read_batches(log.log) if batch.last_offset >= end)
    read.committed(Committed(node_id=11, batches=rest, data=b"", first=end, end=log.end))
    assert compared(log, cut, files_of(log), read=read) == ControllerLogs(differences=(), unread=())


def test_a_snapshot_of_another_state_is_a_difference() -> None:
    log = recorded("4.1.2")
    end, epoch, snapshot = log.snapshot
    other = files_of(log)
    earlier = max(batch[0] for batch in whole_batches(log.log) if batch[0] < end // 2)
    del other.data[f"{end:020}-{epoch:010}.checkpoint"]
    other.data[f"{earlier:020}-{epoch:010}.checkpoint"] = snapshot
    ((name, sentence),) = compared(log, files_of(log), other).differences
    assert name == "c12"
    assert "differs: " in sentence


def test_a_damaged_snapshot_is_reported_as_unread() -> None:
    log = recorded("4.1.2")
    end, epoch, snapshot = log.snapshot
    files = files_of(log)
    files.data[f"{end:020}-{epoch:010}.checkpoint"] = snapshot[:-5]
    found = compared(log, files)
    assert found.differences == ()
    assert len(found.unread) == 1
    assert "checkpoint" in found.unread[0]
