"""Which appends of a foreign log one record batch carried.

The file has a name for each batch; our tables have the `op_index` of its first append.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import HistoryError
from harness.history.schema import with_column

I64 = npt.NDArray[np.int64]

BATCH_NAMES = pa.schema([("provisional", pa.int64()), ("batch", pa.large_string())])
"""The row of an append and the name of its batch, with the partition and the process."""


NEVER_NS = 2**62
"""Later than the end of every operation."""


def batch_numbers(names: pa.Table, count: int) -> I64:
    """Returns a number for the batch of every operation, -1 if it is not known.

    Args:
        names: Rows of `BATCH_NAMES`.
        count: How many operations there are.
    """
    numbers = np.full(count, -1, dtype=np.int64)
    if names.num_rows:
        encoded = names.column("batch").combine_chunks().dictionary_encode()
        numbers[names.column("provisional").to_numpy()] = encoded.indices.to_numpy()
    return numbers


def with_batches(
    operations: pa.Table, names: pa.Table, number: I64, lines: I64, origin: str
) -> pa.Table:
    """Returns operations in which every append of a batch but the first one has the number of that one.

    Args:
        operations: In the order of the file.
        names: Rows of `BATCH_NAMES`.
        number: The final `op_index` of each operation.
        lines: The line of each operation.
        origin: The name of the file, for errors.

    Raises:
        HistoryError: An append begins after another one of its batch has ended.
    """
    if not names.num_rows:
        return operations
    row = names.column("provisional").to_numpy()
    encoded = names.column("batch").combine_chunks().dictionary_encode()
    batch: I64 = encoded.indices.to_numpy()
    _refuse_late(operations, row, batch, encoded.dictionary, lines, origin)
    head = np.full(len(encoded.dictionary), len(number), dtype=np.int64)
    np.minimum.at(head, batch, number[row])
    column = np.full(len(number), -1, dtype=np.int64)
    column[row] = np.where(head[batch] < number[row], head[batch], -1)
    return with_column(operations, "batch", pa.array(column, mask=column < 0))


def _refuse_late(
    operations: pa.Table, row: I64, batch: I64, names: pa.Array, lines: I64, origin: str
) -> None:
    """Refuses an append that begins when its batch had been sent: then two batches have one name."""
    invoked = operations.column("invoked_ns").to_numpy()[row]
    # Only an append that is `ok` shows that its batch had been sent by then.
    is_ok = pc.equal(operations.column("outcome"), pa.scalar("ok")).to_numpy()[row]
    ended = operations.column("completed_ns").fill_null(NEVER_NS).to_numpy()[row]
    ended = np.where(is_ok, ended, NEVER_NS)
    by_end = np.lexsort((ended, batch))
    first_end = by_end[np.unique(batch[by_end], return_index=True)[1]]
    late = np.flatnonzero(invoked > ended[first_end][batch])
    if not len(late):
        return
    at = late[0]
    name = names[int(batch[at])].as_py().rpartition("\0")[2]
    raise HistoryError(
        f"{origin}, line {lines[row[at]]}: the append of batch {name[:60]} begins after that of line"
        f" {lines[row[first_end[batch[at]]]]} in the same batch has ended; give every batch of a process to a"
        " partition a name of its own"
    )
