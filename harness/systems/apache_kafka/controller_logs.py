"""Compares the logs that controllers of Apache Kafka keep with the committed metadata that was read.

Controllers that follow append the batches of the active one unchanged, so whole batches are compared: offsets,
epoch and checksum. What was not read as committed may differ. The snapshots of a controller are compared with the
state that the records before their end describe.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.contracts.system import NodeFiles
from harness.systems.apache_kafka.metadata_reader import Committed, Snapshot, read_snapshot
from harness.systems.apache_kafka.observation import TransactionFilter, image_of_snapshot
from harness.systems.apache_kafka.records import (
    KRAFT_VERSION_FEATURE,
    DamagedRecordError,
    KafkaBatch,
    OtherRecord,
    read_batches,
)
from harness.systems.apache_kafka.segments import SEGMENT_SUFFIX
from system_under_test.invariants import InvariantViolation
from system_under_test.metadata.image import ClusterImage
from system_under_test.protocol.record_batch import CorruptBatchError, header_at, verify

METADATA_DIRECTORY = "__cluster_metadata-0"
FILE_BYTES_MAX = 1 << 28
CHECKPOINT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class ReadBatches:
    """The batches that were read from the quorum. Mutable.

    Attributes:
        batches: By base offset; of one that is not committed as a whole, the records after `end` do not count.
        start: The first offset that was read as a record; earlier ones were read as a snapshot.
        end: The first offset that was not read.
        base: The snapshot before `start`, None if there is none.
    """

    def __init__(self) -> None:
        self.batches: dict[int, KafkaBatch] = {}
        self.start = 0
        self.end = 0
        self.base: Snapshot | None = None

    def committed(self, part: Committed) -> None:
        """Notes committed batches."""
        for batch in part.batches:
            self.batches[batch.base_offset] = batch
        self.end = part.end

    def snapshot(self, part: Snapshot) -> None:
        """Notes that the log was read as a snapshot up to some offset."""
        self.base = part
        self.start = self.end = part.end.end_offset

    def image_at(self, end: int) -> ClusterImage | None:
        """Returns the state that the records before an offset describe; None if they were not all read."""
        if not self.start <= end <= self.end:
            return None
        image = ClusterImage(clears_leaderless_elr=True)
        if self.base is not None:
            image = image_of_snapshot(self.start, self.base.batches)
        transactions = TransactionFilter()
        for _, batch in sorted(self.batches.items()):
            for offset, record in enumerate(batch.records, batch.base_offset):
                if self.start <= offset < end:
                    for at, applied in transactions.take(offset, record):
                        image.replay(at, applied)
        return image


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerLogs:
    """What the logs of the controllers show.

    Attributes:
        differences: Violations of INV-5, as pairs of a controller's name and a sentence.
        unread: What could not be read or is damaged, one sentence each.
    """

    differences: tuple[tuple[str, str], ...]
    unread: tuple[str, ...]


def compare_logs(files: Mapping[str, NodeFiles], read: ReadBatches) -> ControllerLogs:
    """Compares the logs of all controllers with what was read.

    Args:
        files: Of every controller, by name.
        read: What was read from the quorum.
    """
    comparison = _Comparison(read)
    for name in sorted(files):
        comparison.controller(name, files[name])
    comparison.require_all(len(files))
    return ControllerLogs(
        differences=tuple(comparison.differences), unread=tuple(comparison.unread)
    )


class _Comparison:
    """Collects what the controllers show. Mutable."""

    def __init__(self, read: ReadBatches) -> None:
        self._read = read
        self._held: set[int] = set()
        self._compared = 0
        self.differences: list[tuple[str, str]] = []
        self.unread: list[str] = []

    def controller(self, name: str, files: NodeFiles) -> None:
        """Compares one controller's log and snapshots."""
        try:
            names = files.list(METADATA_DIRECTORY)
            segments = sorted(each for each in names if each.endswith(SEGMENT_SUFFIX))
            checkpoints = sorted(each for each in names if CHECKPOINT.fullmatch(each))
            if not segments:
                self.unread.append(f"{name} has no metadata log")
                return
            is_whole = self._segments(name, files, segments)
            for checkpoint in checkpoints:
                self._checkpoint(name, files, checkpoint)
        except OSError as error:
            self.unread.append(f"{name}: the metadata log cannot be read: {error}")
            return
        self._compared += is_whole

    def require_all(self, controllers: int) -> None:
        """Requires that some controller has every committed batch, if the logs of all of them were read."""
        # A snapshot may end within a batch, and a batch may be read before it is committed.
        whole = {base for base in self._read.batches if self._read.start <= base < self._read.end}
        missing = sorted(whole - self._held)
        if missing and self._compared == controllers > 0:
            batch = self._read.batches[missing[0]]
            self.differences.append(
                (
                    "",
                    f"no controller has the committed batch at offset {batch.base_offset} in its log:"
                    f" {_words(batch)}",
                )
            )

    def _segments(self, name: str, files: NodeFiles, segments: Sequence[str]) -> bool:
        """Compares a log; returns whether it was read as a whole."""
        expected = int(segments[0][: -len(SEGMENT_SUFFIX)])
        # A log that begins later is continued from a snapshot, which holds what was before.
        self._held |= {base for base in self._read.batches if base < expected}
        for segment in segments:
            data = files.read(f"{METADATA_DIRECTORY}/{segment}", FILE_BYTES_MAX)
            position = 0
            while position < len(data):
                where = f"{name}: {segment}, byte {position}"
                try:
                    header = header_at(data, position)
                    verify(data, position, header)
                    whole = data[position : position + header.size_bytes]
                    (batch,) = read_batches(whole)
                except (CorruptBatchError, DamagedRecordError) as error:
                    self.unread.append(
                        f"{where}: {error}; the log before it ends at offset {expected}"
                    )
                    return False
                if batch.base_offset != expected:
                    self.differences.append(
                        (name, f"{where}: offset {batch.base_offset} follows offset {expected - 1}")
                    )
                    return True
                self._batch(name, batch)
                expected = batch.last_offset + 1
                position += header.size_bytes
        return True

    def _batch(self, name: str, batch: KafkaBatch) -> None:
        if not self._read.start <= batch.base_offset < self._read.end:
            return
        committed = self._read.batches.get(batch.base_offset)
        if committed is None:
            self.differences.append(
                (
                    name,
                    f"its log has a batch at offset {batch.base_offset} ({_words(batch)}), where the committed log"
                    " has none",
                )
            )
        elif _identity(committed) == _identity(batch):
            self._held.add(batch.base_offset)
        else:
            self.differences.append(
                (
                    name,
                    f"its log has another batch at offset {batch.base_offset} than the committed log:"
                    f" {_words(batch)} instead of {_words(committed)}",
                )
            )

    def _checkpoint(self, name: str, files: NodeFiles, checkpoint: str) -> None:
        found = CHECKPOINT.fullmatch(checkpoint)
        assert found is not None
        end = int(found[1])
        data = files.read(f"{METADATA_DIRECTORY}/{checkpoint}", FILE_BYTES_MAX)
        try:
            image = self._read.image_at(end)
            batches = read_snapshot(data)
            if image is None or end == 0 or _has_unknown(batches):
                return
            difference = _difference(image, image_of_snapshot(end, batches))
        except (DamagedRecordError, InvariantViolation) as error:
            self.unread.append(f"{name}: {checkpoint}: {error}")
            return
        if difference:
            self.differences.append((name, f"its snapshot {checkpoint} differs: {difference}"))


def _identity(batch: KafkaBatch) -> tuple[int, int, int]:
    return (batch.last_offset, batch.epoch, batch.checksum)


def _words(batch: KafkaBatch) -> str:
    kinds = [
        record.name if isinstance(record, OtherRecord) else type(record).__name__
        for record in batch.records[:3]
    ]
    more = ", ..." if len(batch.records) > len(kinds) else ""
    return f"epoch {batch.epoch}, {len(batch.records)} records: {', '.join(kinds)}{more}"


def _has_unknown(batches: Sequence[KafkaBatch]) -> bool:
    return any(
        isinstance(record, OtherRecord) and record.is_of_image
        for batch in batches
        for record in batch.records
    )


def _difference(expected: ClusterImage, found: ClusterImage) -> str:
    """Returns the first difference between two images; empty if there is none."""
    for what, values, others in (
        ("partition", _partitions(expected), _partitions(found, elr_on=expected.elr_on)),
        ("broker", _brokers(expected), _brokers(found)),
        ("feature", _features(expected), _features(found)),
        ("configuration", expected.configs, found.configs),
    ):
        for key in sorted({*values, *others}, key=str):
            if values.get(key) != others.get(key):
                return f"{what} {key} is {others.get(key)}, and by the log it is {values.get(key)}"
    return ""


def _partitions(image: ClusterImage, *, elr_on: bool | None = None) -> dict[Any, Any]:
    """Returns the partitions by name. Without the feature, snapshots leave out the ELR."""
    has_elr = image.elr_on if elr_on is None else elr_on
    return {
        f"{each.topic}-{each.partition}": each
        if has_elr
        else replace(each, elr=(), last_known_elr=())
        for each in image.partitions.values()
    }


def _features(image: ClusterImage) -> dict[Any, Any]:
    """Returns the feature levels. Level 0 is none, and the KRaft version of a new cluster is not in its log."""
    return {
        name: level
        for name, level in image.features.items()
        if level and name != KRAFT_VERSION_FEATURE
    }


def _brokers(image: ClusterImage) -> dict[Any, Any]:
    return {
        each.broker_id: (
            each.broker_epoch,
            each.incarnation_id,
            each.fenced,
            each.in_controlled_shutdown,
        )
        for each in image.brokers.values()
    }
