"""Retention: which segments at the front of a log are deleted because of their age or the size of the log.

A segment is deleted as a whole, the oldest first, and only if all of it is below the high watermark: what is not
committed yet may still be needed by a follower, or be truncated (RET-1). Age is the time since the newest record
of the segment. If even the active segment is too old, a new one begins first.

Source:
    Kafka's `UnifiedLog.deleteOldSegments`. Kafka takes the time of the last change of the file for a segment
    without timestamps; here such a segment is deleted because of the log's size only.
"""

from itertools import pairwise

from system_under_test.log.log import Log
from system_under_test.log.segment import Segment


def delete_old_segments(log: Log, *, high_watermark: int, now_ms: int) -> bool:
    """Deletes what the log's settings do not retain; returns whether the log start moved.

    Args:
        log: Any replica's log.
        high_watermark: As the replica knows it.
        now_ms: The node's wall clock.

    Raises:
        OSError: The disk failed.
    """
    config = log.config
    if not config.deletes:
        return False
    bound = high_watermark if log.rules("RET-1") else log.log_end_offset
    candidates = [(segment, end) for segment, end in _with_ends(log) if end <= bound]
    kept_from = _below_size(log, candidates, config.retention_bytes)
    if config.retention_ms >= 0:
        for segment, end in candidates:
            if end <= kept_from:
                continue
            newest_ms = segment.largest_timestamp_ms()
            if newest_ms < 0 or now_ms - newest_ms <= config.retention_ms:
                break
            kept_from = end
    if kept_from <= log.log_start_offset:
        return False
    if kept_from == log.log_end_offset:
        log.roll()
    log.advance_log_start(kept_from)
    return True


def _with_ends(log: Log) -> list[tuple[Segment, int]]:
    """Returns the segments, with the offset behind each, except for an active one that is empty."""
    segments = list(log.segments)
    ends = [(one, following.base_offset) for one, following in pairwise(segments)]
    if segments[-1].size_bytes:
        ends.append((segments[-1], log.log_end_offset))
    return ends


def _below_size(log: Log, candidates: list[tuple[Segment, int]], limit_bytes: int) -> int:
    """Returns the offset from which on the log is as small as it may be without cutting a segment."""
    kept_from = 0
    if limit_bytes < 0:
        return kept_from
    excess_bytes = log.size_bytes - limit_bytes
    for segment, end in candidates:
        excess_bytes -= segment.size_bytes
        if excess_bytes < 0:
            break
        kept_from = end
    return kept_from
