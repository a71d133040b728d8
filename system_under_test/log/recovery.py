"""Loading a log from its files: what is trusted, what is checked, what is cut (rule REC-1).

After an orderly stop the files are trusted and only their batch headers are read. Otherwise everything from
the recovery point's segment on is checked, and the log is cut at the first batch that is not intact. Five
things are cut, after a power cut all but the last of them happen:

* a batch that is torn, full of zeros or fails its checksum;
* a batch that does not continue the one before it, within a file or from one file to the next;
* a batch whose leader epoch is older than the epoch cache says for its offset. The cache is made durable
  before the records (EC-1, EC-5), so such a batch was truncated earlier and has come back: the cut of a
  file need not be durable (TRUNC-3). Kafka keeps such a batch, and with it an epoch cache that describes
  other records;
* a batch whose leader epoch is older than that of a batch before it. The checksum does not cover the epoch, so
  a damaged disk can make one; no leader ever appended it;
* every file behind a cut.

All of that lies at or above the recovery point, and was promised by nobody to survive a power cut. A killed
process loses nothing here, because the page cache holds exactly what the process wrote.
"""

from dataclasses import dataclass, replace

from system_under_test.log.epochs import LeaderEpochCache
from system_under_test.log.producer_state import NO_PRODUCER_ID, ProducerStates
from system_under_test.log.segment import Segment, intact_batches, segment_bases, segment_path
from system_under_test.runtime import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCut:
    """Something that was cut off a log while it was loaded.

    Attributes:
        end_offset: Where the log ended afterwards.
        size_bytes: How much was cut off or removed.
        reason: What was wrong with it, for people.
    """

    end_offset: int
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """What was found, and what was done to it.

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


def load_segments(
    storage: Storage,
    directory: str,
    epochs: LeaderEpochCache,
    *,
    is_trusted: bool,
    verify_crc: bool,
    recovery_point: int,
    log_start_offset: int,
    producers: ProducerStates | None = None,
) -> LoadedLog:
    """Reads, checks and repairs the segments of one log and trims its epoch cache to them.

    Args:
        storage: The node's files.
        directory: Where this log's files are.
        epochs: As read from its file; entries that the log no longer covers are dropped, epochs that only
            the log knows are added (EC-6).
        is_trusted: Whether the previous process stopped in order.
        verify_crc: Whether to verify the checksums of what is not trusted.
        recovery_point: As checkpointed; everything below it is known to be durable.
        log_start_offset: As checkpointed.
        producers: Empty; the batches that are kept are entered (PID-5). None to leave them out.
    """
    bases = segment_bases(storage, directory)
    is_new = not bases
    # Files wholly below the log's start are what an interrupted removal left.
    while len(bases) > 1 and bases[1] <= log_start_offset:
        storage.remove(segment_path(directory, bases.pop(0)))

    segments: list[Segment] = []
    new_epochs: list[tuple[int, int]] = []
    cuts: list[LogCut] = []
    for index, base_offset in enumerate(bases):
        # A segment that ends right at the recovery point may have been cut there, so it is checked as well.
        is_checked = not is_trusted and (
            index + 1 == len(bases) or bases[index + 1] >= recovery_point
        )
        segment = Segment(directory, base_offset)
        # Perhaps the previous process cut it and was killed before it could flush.
        segment.may_regrow = is_checked
        is_continued = not segments or segments[-1].end_offset == base_offset
        cut: LogCut | None = None
        if is_continued:
            cut = _read_segment(
                storage,
                segment,
                epochs if is_checked else None,
                new_epochs,
                producers,
                verify_crc=is_checked and verify_crc,
            )
            segments.append(segment)
        else:
            cut = LogCut(
                end_offset=segments[-1].end_offset,
                size_bytes=0,
                reason=f"the next segment begins at offset {base_offset}",
            )
        if cut is not None:
            removed = bases[index + 1 if is_continued else index :]
            removed_bytes = _remove(storage, directory, removed)
            cuts.append(replace(cut, size_bytes=cut.size_bytes + removed_bytes))
            break

    end_offset = segments[-1].end_offset if segments else log_start_offset
    if not is_trusted and end_offset < recovery_point:
        # Something is gone that was durable, and no power cut does that. What the disk did there it may have done
        # before it, too: everything is looked at.
        if producers is not None:
            producers.clear()
        looked_at = load_segments(
            storage,
            directory,
            epochs,
            is_trusted=False,
            verify_crc=verify_crc,
            recovery_point=0,
            log_start_offset=log_start_offset,
            producers=producers,
        )
        return replace(looked_at, cuts=(*cuts, *looked_at.cuts))
    if end_offset < log_start_offset:
        removed_bytes = _remove(storage, directory, [segment.base_offset for segment in segments])
        if removed_bytes:
            reason = f"it ended at offset {end_offset}, below the start of the log"
            cuts.append(
                LogCut(end_offset=log_start_offset, size_bytes=removed_bytes, reason=reason)
            )
        segments = []
        new_epochs = []
        epochs.clear()
        if producers is not None:
            producers.clear()
        end_offset = log_start_offset
    if not segments:
        segments = [_create(storage, directory, log_start_offset)]
    log_start_offset = max(log_start_offset, segments[0].base_offset)

    epochs.truncate_from_end(end_offset)
    # EC-6: epochs of records whose entries did not survive.
    epochs.assign_all([entry for entry in new_epochs if entry[0] > epochs.latest_epoch])
    epochs.truncate_from_start(log_start_offset)
    return LoadedLog(
        segments=segments,
        log_start_offset=log_start_offset,
        recovery_point=end_offset if is_trusted else min(recovery_point, end_offset),
        cuts=tuple(cuts),
        is_new=is_new,
    )


def _read_segment(
    storage: Storage,
    segment: Segment,
    epochs: LeaderEpochCache | None,
    new_epochs: list[tuple[int, int]],
    producers: ProducerStates | None,
    *,
    verify_crc: bool,
) -> LogCut | None:
    """Indexes one segment and cuts its file behind the last good batch; returns what was cut off, if anything.

    With `epochs` the batches are held against the cache, and epochs newer than both it and `new_epochs` are
    added to `new_epochs`.
    """
    newest_epoch = new_epochs[-1][0] if new_epochs else -1
    defects: list[str] = []
    for span in intact_batches(
        storage, segment.path, verify_crc=verify_crc, on_defect=defects.append
    ):
        if span.base_offset != segment.end_offset:
            defects.append(f"the next batch begins at offset {span.base_offset}")
            break
        if epochs is not None:
            expected_epoch = max(epochs.epoch_at(span.base_offset), newest_epoch)
            if span.leader_epoch < expected_epoch:
                defects.append(
                    f"the next batch has leader epoch {span.leader_epoch}, "
                    f"older than {expected_epoch}, which began before it"
                )
                break
            if span.leader_epoch > newest_epoch:
                newest_epoch = span.leader_epoch
                new_epochs.append((newest_epoch, span.base_offset))
        segment.add(span.base_offset, span.size_bytes, span.record_count)
        if span.producer_id != NO_PRODUCER_ID and producers is not None:
            producers.appended(span, span.base_offset)
    cut = storage.size(segment.path) - segment.size_bytes
    if not cut:
        return None
    storage.truncate(segment.path, segment.size_bytes)
    segment.may_regrow = True
    return LogCut(end_offset=segment.end_offset, size_bytes=cut, reason="; ".join(defects))


def _remove(storage: Storage, directory: str, bases: list[int]) -> int:
    removed_bytes = 0
    # From the end, so that an interruption never leaves a hole.
    for base_offset in reversed(bases):
        path = segment_path(directory, base_offset)
        removed_bytes += storage.size(path)
        storage.remove(path)
    return removed_bytes


def _create(storage: Storage, directory: str, base_offset: int) -> Segment:
    segment = Segment(directory, base_offset)
    storage.append(segment.path, b"")
    return segment
