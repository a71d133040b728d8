"""What final polls returned, and in which leader epoch each of them was served.

Final polls show one log if they are one poll, or if one leader served them. Between others an election may have
changed the log.
"""

import numpy as np
import pyarrow as pa

from checkers.kernels.history import I64, INF_NS, PartitionHistory, lookup


def records_of_final_polls(history: PartitionHistory) -> I64:
    """Returns the rows of the trusted records of appends that final polls returned."""
    rows = np.flatnonzero(
        history.record_trusted & (history.record_poll >= 0) & (history.record_append >= 0)
    )
    return rows[history.poll_final[history.record_poll[rows]]]


def first_offsets(history: PartitionHistory) -> I64:
    """Returns where each poll began: at its position, or at its first record if that is not known or above it."""
    first = np.full(len(history.poll_op), INF_NS, dtype=np.int64)
    rows = np.flatnonzero(history.record_poll >= 0)
    np.minimum.at(first, history.record_poll[rows], history.record_offset[rows])
    position = history.poll_position
    return np.where(position >= 0, np.minimum(position, first), first)


def epochs_of(polls: I64, operations: pa.Table) -> I64:
    """Returns the leader epoch in which each poll was served, -1 if it is not known."""
    op = operations.column("op_index").to_numpy()
    order = np.argsort(op, kind="stable")
    epoch: I64 = operations.column("leader_epoch").to_numpy().astype(np.int64)
    return epoch[order[lookup(op[order])(polls)]]
