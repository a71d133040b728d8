"""Operations of one process that overlap, which only those on logs may do."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import HistoryError
from harness.history.foreign.events import RecordedOperation
from harness.history.schema import with_column


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


def without_order_in_pipelines(operations: pa.Table) -> pa.Table:
    """Returns operations on logs in which no append begins exactly when another one of its pipeline ends.

    If a process has several appends in flight, one that begins at the time at which another one ends may have been
    sent before, which the clock does not show. Here the other one ends 1 ns later, so that both are concurrent.
    Appends that begin together, as the records of a batch, are no pipeline.
    """
    is_ok = pc.equal(operations.column("outcome"), pa.scalar("ok"))
    is_append = pc.equal(operations.column("kind"), pa.scalar("append"))
    rows = np.flatnonzero(pc.and_(is_ok, is_append).to_numpy())
    ended = operations.take(pa.array(rows))
    process, begin_ns, end_ns = (
        ended.column(name).to_numpy() for name in ("process", "invoked_ns", "completed_ns")
    )
    order = np.lexsort((-end_ns, begin_ns, process))
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = (np.diff(process[order]) != 0) | (np.diff(begin_ns[order]) != 0)
    # Of the appends that begin together, the one that ends last.
    first = order[is_first]
    is_in_flight = (process[first[:-1]] == process[first[1:]]) & (
        end_ns[first[:-1]] > begin_ns[first[1:]]
    )
    if not is_in_flight.any():
        return operations
    code = np.unique(process, return_inverse=True)[1]
    times, moment = np.unique(np.concatenate((begin_ns, end_ns)), return_inverse=True)
    begins, ends = (code * len(times) + at for at in np.split(moment, 2))
    is_tied = np.isin(ends, begins) & np.isin(process, process[first[:-1]][is_in_flight])
    later = np.zeros(operations.num_rows, dtype=np.int64)
    later[rows[is_tied]] = 1
    completed = pc.add(operations.column("completed_ns"), pa.array(later))
    return with_column(operations, "completed_ns", completed)
