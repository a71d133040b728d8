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

from checkers.kernels.words import NO_CODE, U64, codes

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CLAIMS = ("process", "sequence", "key")
"""The columns of `operations` and `records_read` that must be equal."""


def contradicting(
    records: pa.Table, operations: pa.Table, append: I64, rows: I64 | None = None
) -> Bools:
    """Returns which records contradict the append that wrote their value.

    Args:
        records: Rows of `records_read`.
        operations: Rows of `operations`.
        append: For every record its append, -1 if its value is that of no append: a row of `operations`, or a
            position in `rows`.
        rows: The rows of `operations` that are appends; None for all.
    """
    is_known = append >= 0
    if not is_known.all():
        result = np.zeros(len(append), dtype=np.bool_)
        some = np.flatnonzero(is_known)
        if len(some):
            records = records.select(CLAIMS)
            result[some] = contradicting(
                records.take(pa.array(some)), operations, append[some], rows
            )
        return result
    differs = np.zeros(len(append), dtype=np.bool_)
    if not len(append):
        return differs
    for name in ("process", "sequence"):
        sent = operations.column(name).to_numpy()
        sent = sent if rows is None else sent[rows]
        differs |= records.column(name).to_numpy() != sent[append]
    return differs | _other_key(records.column("key"), operations.column("key"), append, rows)


def _other_key(claimed: Any, sent: Any, append: I64, rows: I64 | None) -> Bools:
    claimed_code, sent_code = codes(claimed), codes(sent)
    if _only(claimed_code) == _only(sent_code) != NO_CODE:
        return np.zeros(len(append), dtype=np.bool_)
    if rows is not None:
        append = rows[append]
    expected = sent_code[append]
    other: Bools = claimed_code != expected
    long = np.flatnonzero((claimed_code == NO_CODE) & (expected == NO_CODE))
    if len(long):
        wanted = sent.take(pa.array(append[long])).cast(pa.string())
        found = claimed.take(pa.array(long)).cast(pa.string())
        other[long] = pc.not_equal(found, wanted).to_numpy()
    return other


def _only(code: U64) -> np.uint64:
    """Returns the code that all rows have, of which there is at least one; `NO_CODE` if they differ."""
    return code[0] if bool((code == code[0]).all()) else NO_CODE
