"""Distinct combinations in columns."""

import numpy as np

from checkers.kernels.history import I64


def distinct_rows(*columns: I64) -> I64:
    """Returns the first row of each combination of values, ordered by the first column, then the second, ..."""
    order = np.lexsort(columns[::-1])
    first = np.zeros(len(order), dtype=np.bool_)
    first[:1] = True
    for column in columns:
        first[1:] |= np.diff(column[order]) != 0
    rows: I64 = order[first]
    return rows
