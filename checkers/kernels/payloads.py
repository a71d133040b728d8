"""What a record claims about its writer, compared with the append that wrote its value.

A payload names process, sequence and operation of its append, and the record has the key that was sent. A record
whose value is that of an append, but whose process, sequence or key is another, was changed on the way: nothing in
it can be trusted, so it counts as a corrupt record.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkers.kernels.words import NO_CODE, codes

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CLAIMS = ("process", "sequence", "key")
"""The columns of `operations` and `records_read` that must be equal."""


def contradicting(records: pa.Table, operations: pa.Table, append: I64) -> Bools:
    """Returns which records contradict the append that wrote their value.

    Args:
        records: Rows of `records_read`.
        operations: Rows of `operations`.
        append: For every record the row of its append, -1 if its value is that of no append.
    """
    is_known = append >= 0
    if not is_known.all():
        result = np.zeros(len(append), dtype=np.bool_)
        rows = np.flatnonzero(is_known)
        if len(rows):
            records = records.select(CLAIMS)
            result[rows] = contradicting(records.take(pa.array(rows)), operations, append[rows])
        return result
    differs = np.zeros(len(append), dtype=np.bool_)
    if not len(append):
        return differs
    for name in ("process", "sequence"):
        differs |= records.column(name).to_numpy() != operations.column(name).to_numpy()[append]
    return differs | _other_key(records.column("key"), operations.column("key"), append)


def _other_key(claimed: Any, sent: Any, append: I64) -> Bools:
    claimed_code, sent_code = codes(claimed), codes(sent)
    expected = sent_code[append]
    other: Bools = claimed_code != expected
    long = np.flatnonzero((claimed_code == NO_CODE) & (expected == NO_CODE))
    if len(long):
        wanted = sent.take(pa.array(append[long]))
        other[long] = pc.not_equal(claimed.take(pa.array(long)), wanted).to_numpy()
    return other
