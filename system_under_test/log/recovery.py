"""Loading a log from its files: what is trusted, what is checked, what is cut (REC-1).

After a clean stop the files are trusted and only their batch headers are read. Otherwise everything from the
recovery point's segment on is checked, and the log is cut at the first batch that is not intact. Five things are
cut; a power cut can cause all but the fourth:

* a batch that is torn, full of zeros or fails its checksum;
* a batch that does not continue the one before it, within a file or from one file to the next;
* a batch whose leader epoch is older than the epoch cache has for its offset, but only with the switch
  `recovery_compares_epochs`. The cache is made durable before the records (EC-1, EC-5), so such a batch was
  truncated earlier and has come back: the cut of a file need not be durable (TRUNC-3). Kafka keeps such a batch,
  and with it an epoch cache that describes other records;
* a batch whose leader epoch is older than that of a batch before it. The checksum does not cover the epoch, so a
  damaged disk can produce one; no leader ever appended it;
* every file behind a cut.

All of that lies at or above the recovery point, and was never promised to survive a power cut. A killed process
loses nothing here, because the page cache holds exactly what the process wrote.
"""

from dataclasses import dataclass, field, replace

from system_under_test.log.epochs import LeaderEpochCache
from system_under_test.log.producer_snapshot import remove_derived_files
from system_under_test.log.producer_state import NO_PRODUCER_ID, ProducerStates
from system_under_test.log.segment import (
    CLEANED_SUFFIX,
    INDEX_INTERVAL_BYTES,
    Segment,
    intact_batches,
    segment_bases,
    segment_path,
)
from system_under_test.log.segment_list import stored_marker
from system_under_test.protocol.record_batch import BatchSpan
from system_under_test.rules import Rules
from system_under_test.runtime import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCut:
    """Something that was cut off a log while it was loaded.

    Attributes:
        end_offset: Where the log ended afterwards.
        size_bytes: How much was cut off or removed.
        reason: What was wrong with it, for a human reader.
    """

    end_offset: int
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """The result of loading a log.

    Attributes:
        segments: At least one.
        cuts: What was cut off or removed, in this order.
        is_new: Whether there was no segment file.
    """

    segments: list[Segment]
    log_start_offset: int
    recovery_point: int
    cuts: tuple[LogCut, ...]
    is_new: bool


@dataclass(slots=True)
class _Scan:
    """What the segment files of a log were found to hold. Mutable while they are read.

    Attributes:
        epochs: Leader epochs of the checked batches, with their first offsets, oldest first.
        is_damaged: Whether something was cut off that need not be checked, because it was durable.
    """

    segments: list[Segment] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    cuts: list[LogCut] = field(default_factory=list)
    is_damaged: bool = False


def load_segments(
    storage: Storage,
    directory: str,
    epochs: LeaderEpochCache,
    *,
    is_trusted: bool,
    rules: Rules,
    recovery_point: int,
    log_start_offset: int,
    producers: ProducerStates,
    compares_epochs: bool = True,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
) -> LoadedLog:
    """Reads, checks and repairs the segments of one log and trims its epoch cache to them (REC-1).

    Args:
        storage: The node's files.
        directory: Where this log's files are.
        epochs: As read from its file; entries that the log no longer covers are dropped, epochs that only
            the log knows are added (EC-6).
        is_trusted: Whether the previous process stopped cleanly.
        rules: The rules that apply.
        recovery_point: As checkpointed; everything below it is known to be durable.
        log_start_offset: As checkpointed.
        producers: Empty; the batches that are kept are entered (PID-5).
        compares_epochs: Whether a batch that is older than the epoch cache says is cut.
        index_interval_bytes: Distance of two entries of a segment's index.
    """
    names = storage.list(directory)
    remove_derived_files(storage, directory, names)
    for name in names:
        if name.endswith(CLEANED_SUFFIX):
            storage.remove(f"{directory}/{name}")  # an interrupted pass of the cleaner left it
    bases = segment_bases(storage, directory)
    is_new = not bases
    _finish_removal(storage, directory, bases, log_start_offset)
    reader = _Reader(
        storage,
        directory,
        epochs,
        producers,
        rules,
        compares_epochs=compares_epochs,
        index_interval_bytes=index_interval_bytes,
    )
    scan = reader.scan(bases, checked_from=None if is_trusted else recovery_point)
    if not is_trusted and (scan.is_damaged or _end_of(scan, log_start_offset) < recovery_point):
        # Something that was durable is missing, and no power cut causes that. A disk that did it may have damaged
        # what lies below the recovery point, too: everything is checked.
        producers.clear()
        recovery_point = 0
        cuts = scan.cuts
        scan = reader.scan(segment_bases(storage, directory), checked_from=recovery_point)
        scan.cuts[:0] = cuts
    if _end_of(scan, log_start_offset) < log_start_offset:
        _drop_all(storage, directory, scan, log_start_offset)
        epochs.clear()
        producers.clear()
    if not scan.segments:
        segment = Segment(storage, directory, log_start_offset, index_interval_bytes)
        storage.append(segment.path, b"")
        scan.segments.append(segment)
    end_offset = scan.segments[-1].end_offset
    log_start_offset = max(log_start_offset, scan.segments[0].base_offset)
    _trim_epochs(epochs, scan, log_start_offset, end_offset)
    return LoadedLog(
        segments=scan.segments,
        log_start_offset=log_start_offset,
        recovery_point=end_offset if is_trusted else min(recovery_point, end_offset),
        cuts=tuple(scan.cuts),
        is_new=is_new,
    )


class _Reader:
    """Reads the segment files of one log and cuts them at the first defect."""

    def __init__(
        self,
        storage: Storage,
        directory: str,
        epochs: LeaderEpochCache,
        producers: ProducerStates,
        rules: Rules,
        *,
        compares_epochs: bool,
        index_interval_bytes: int,
    ) -> None:
        self._index_interval_bytes = index_interval_bytes
        self._compares_epochs = compares_epochs
        self._storage = storage
        self._directory = directory
        self._epochs = epochs
        self._producers = producers
        self._rules = rules

    def scan(self, bases: list[int], *, checked_from: int | None) -> _Scan:
        """Reads the segments that begin at `bases`; removes the files behind a defect.

        Args:
            bases: Base offsets of all segment files, ascending.
            checked_from: The offset from which on batches are checked; None to trust all of them.
        """
        scan = _Scan()
        for index, base_offset in enumerate(bases):
            end_offset = scan.segments[-1].end_offset if scan.segments else base_offset
            if end_offset != base_offset:
                is_checked = checked_from is None or base_offset >= checked_from
                reason = f"the next segment begins at offset {base_offset}"
                cut: LogCut | None = LogCut(end_offset=end_offset, size_bytes=0, reason=reason)
                behind = bases[index:]
            else:
                # A segment that ends right at the recovery point may have been cut there, so it is checked too.
                is_checked = checked_from is not None and (
                    index + 1 == len(bases) or bases[index + 1] >= checked_from
                )
                segment = Segment(
                    self._storage, self._directory, base_offset, self._index_interval_bytes
                )
                cut = self._read(scan, segment, is_checked=is_checked)
                behind = bases[index + 1 :]
            if cut is not None:
                scan.is_damaged = checked_from is not None and not is_checked
                removed_bytes = _remove(self._storage, self._directory, behind)
                scan.cuts.append(replace(cut, size_bytes=cut.size_bytes + removed_bytes))
                break
        return scan

    def _read(self, scan: _Scan, segment: Segment, *, is_checked: bool) -> LogCut | None:
        """Indexes one segment and cuts its file behind the last good batch (REC-1, PID-5).

        Returns:
            What was cut off, if anything.
        """
        if scan.segments:
            scan.segments[-1].seal()
        scan.segments.append(segment)
        # The previous process may have cut the file and been killed before it could flush.
        segment.may_regrow = is_checked
        defects: list[str] = []
        # PID-5: without the rule nothing is known of producers after a start.
        producers = self._producers if self._rules("PID-5") else None
        for span in intact_batches(
            self._storage,
            segment.path,
            # REC-1: without the rule checksums are ignored.
            verify_crc=is_checked and self._rules("REC-1"),
            on_defect=defects.append,
        ):
            if span.base_offset != segment.end_offset:
                defects.append(f"the next batch begins at offset {span.base_offset}")
                break
            if is_checked and (defect := self._take_epoch(scan, span)):
                defects.append(defect)
                break
            segment.add(span.base_offset, span.size_bytes, span.offset_count, span.max_timestamp_ms)
            if span.producer_id != NO_PRODUCER_ID and producers is not None:
                producers.appended(
                    span, span.base_offset, stored_marker(self._storage, segment.path, span)
                )
        cut_bytes = self._storage.size(segment.path) - segment.size_bytes
        if not cut_bytes:
            return None
        self._storage.truncate(segment.path, segment.size_bytes)
        segment.may_regrow = True
        return LogCut(
            end_offset=segment.end_offset, size_bytes=cut_bytes, reason="; ".join(defects)
        )

    def _take_epoch(self, scan: _Scan, span: BatchSpan) -> str | None:
        """Compares a batch's leader epoch with the cache and with the batches before it.

        Returns:
            What is wrong with it; None if nothing is, and then a new epoch is added to `scan.epochs`.
        """
        newest_epoch = scan.epochs[-1][0] if scan.epochs else -1
        expected_epoch = newest_epoch
        if self._compares_epochs:
            expected_epoch = max(self._epochs.epoch_at(span.base_offset), newest_epoch)
        if span.leader_epoch < expected_epoch:
            return (
                f"the next batch has leader epoch {span.leader_epoch}, "
                f"older than {expected_epoch}, which began before it"
            )
        if span.leader_epoch > newest_epoch:
            scan.epochs.append((span.leader_epoch, span.base_offset))
        return None


def _finish_removal(
    storage: Storage, directory: str, bases: list[int], log_start_offset: int
) -> None:
    """Removes files wholly below the log's start, which an interrupted removal left."""
    while len(bases) > 1 and bases[1] <= log_start_offset:
        storage.remove(segment_path(directory, bases.pop(0)))


def _trim_epochs(
    epochs: LeaderEpochCache, scan: _Scan, log_start_offset: int, end_offset: int
) -> None:
    """Makes the epoch cache cover exactly the records that were found (EC-6)."""
    epochs.truncate_from_end(end_offset)
    # EC-6: epochs of records whose entries did not survive.
    epochs.assign_all([entry for entry in scan.epochs if entry[0] > epochs.latest_epoch])
    epochs.truncate_from_start(log_start_offset)


def _end_of(scan: _Scan, log_start_offset: int) -> int:
    return scan.segments[-1].end_offset if scan.segments else log_start_offset


def _drop_all(storage: Storage, directory: str, scan: _Scan, log_start_offset: int) -> None:
    """Removes a log that ends below its own start: none of its records may be read."""
    end_offset = scan.segments[-1].end_offset
    removed_bytes = _remove(storage, directory, [one.base_offset for one in scan.segments])
    if removed_bytes:
        reason = f"it ended at offset {end_offset}, below the start of the log"
        scan.cuts.append(
            LogCut(end_offset=log_start_offset, size_bytes=removed_bytes, reason=reason)
        )
    scan.segments.clear()
    scan.epochs.clear()


def _remove(storage: Storage, directory: str, bases: list[int]) -> int:
    removed_bytes = 0
    # From the end, so that an interruption never leaves a hole.
    for base_offset in reversed(bases):
        path = segment_path(directory, base_offset)
        removed_bytes += storage.size(path)
        storage.remove(path)
    return removed_bytes
