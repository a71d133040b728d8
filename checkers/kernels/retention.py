"""Logs whose start moves while clients read them: retention deletes the oldest records.

Deleted records were in the log, so their places keep bounding the order of appends (C1 to C3, C5 and C6). What
changes is what a read must return: nothing below the log start at the time of its response. So a read counts as
one that began there.

`Options.log_start_offset` is simpler: it says where the log starts in the end, not when its start moved there. So
no read has to return anything below that offset, at any time.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from checkers.kernels.history import INF_NS, PartitionHistory

LogStarts = Sequence[tuple[int, int]]
"""Moments in nanoseconds, ascending, and the log start offset from then on."""


def with_log_starts(history: PartitionHistory, log_starts: LogStarts) -> PartitionHistory:
    """Returns a history in which every poll begins at the log start of its response or later.

    Args:
        history: One partition.
        log_starts: When the log start moved, and where to. The largest offset so far counts, because a log start
            never moves back.

    Returns:
        The same history with larger positions. A position is raised to the first record that the poll returned at
        most, so that a record below the log start is still a record that the poll returned.
    """
    if not log_starts or not len(history.poll_op):
        return history
    at_ns = np.array([moment for moment, _ in log_starts], dtype=np.int64)
    starts = np.maximum.accumulate(np.array([offset for _, offset in log_starts], dtype=np.int64))
    # A response may have been sent at any time up to its arrival; the latest log start permits the most.
    count = np.searchsorted(at_ns, history.poll_res, side="right")
    start = np.append(0, starts)[count]
    first = np.full(len(history.poll_op), INF_NS, dtype=np.int64)
    rows = np.flatnonzero(history.record_poll >= 0)
    np.minimum.at(first, history.record_poll[rows], history.record_offset[rows])
    position = np.maximum(history.poll_position, np.minimum(start, first))
    # A position that the history does not know stays unknown.
    position = np.where(history.poll_position >= 0, position, history.poll_position)
    return replace(history, poll_position=position)
