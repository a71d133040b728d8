"""Operations of one process that overlap, which only those on logs may do."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import HistoryError
from harness.history.foreign.events import RecordedOperation
from harness.history.schema import with_column

I64 = npt.NDArray[np.int64]


def refuse_overlaps(operations: Iterable[RecordedOperation], origin: str) -> None:
    """Refuses operations of one process of which one begins before another one has ended.

    After an operation without an end its process may go on, as a client does after a timeout.

    Raises:
        HistoryError: The sentence names both lines.
    """
    last: dict[int, RecordedOperation] = {}
    ended = [one for one in operations if one.completed_ns is not None]
    for one in sorted(ended, key=lambda one: (one.invoked_ns, one.completed_ns)):
        before = last.get(one.process)
        if before is not None and one.invoked_ns < (before.completed_ns or 0):
            raise HistoryError(
                f"{origin}, line {one.line}: the operation of process {one.process} begins before its operation of"
                f" line {before.line} has ended; a process calls one operation at a time, so give concurrent ones"
                " processes of their own"
            )
        last[one.process] = one


def without_order_in_pipelines(operations: pa.Table, batch: I64) -> pa.Table:
    """Returns operations on logs in which no append begins exactly when another one of its pipeline ends.

    If a process has several appends in flight, one that begins at the time at which another one ends may have been
    sent before, which the clock does not show. Here the other one ends 1 ns later, so that both are concurrent.
    Appends of one batch that begin together are no pipeline.

    Args:
        operations: In any order.
        batch: A number for each batch, one row per operation; -1 if it is not known.
    """
    is_append = pc.equal(operations.column("kind"), pa.scalar("append"))
    rows = np.flatnonzero(is_append.to_numpy())
    appends = operations.take(pa.array(rows))
    process, begin_ns = (appends.column(name).to_numpy() for name in ("process", "invoked_ns"))
    # One without an end shows no overlap with those after it.
    ended = pc.coalesce(appends.column("completed_ns"), appends.column("invoked_ns"))
    end_ns = ended.to_numpy()
    in_pipeline = _pipelines(process, begin_ns, end_ns, batch[rows])
    if not len(in_pipeline):
        return operations
    code = np.unique(process, return_inverse=True)[1]
    times, moment = np.unique(np.concatenate((begin_ns, end_ns)), return_inverse=True)
    begins, ends = (code * len(times) + at for at in np.split(moment, 2))
    is_tied = np.isin(ends, begins) & np.isin(process, in_pipeline)
    later = np.zeros(operations.num_rows, dtype=np.int64)
    later[rows[is_tied]] = 1
    completed = pc.add(operations.column("completed_ns"), pa.array(later))
    return with_column(operations, "completed_ns", completed)


def _pipelines(process: I64, begin_ns: I64, end_ns: I64, batch: I64) -> I64:
    """Returns the processes that had several appends in flight at some time."""
    order = np.lexsort((batch, -end_ns, begin_ns, process))
    begins_together = np.zeros(len(order), dtype=np.bool_)
    begins_together[1:] = (np.diff(process[order]) == 0) & (np.diff(begin_ns[order]) == 0)
    first, again = order[:-1], order[1:]
    is_other_batch = (batch[first] != batch[again]) | (batch[first] < 0)
    both_last = np.minimum(end_ns[first], end_ns[again]) > begin_ns[again]
    together = begins_together[1:] & is_other_batch & both_last
    # Of the appends that begin together, the one that ends last.
    last = order[~begins_together]
    before, after = last[:-1], last[1:]
    overlaps = (process[before] == process[after]) & (end_ns[before] > begin_ns[after])
    return np.concatenate((process[first[together]], process[before[overlaps]]))
