"""Which appends to a compacted topic another append of their key may replace, and from when on.

A cleaner removes a record once a later record of its key is committed. Clients do not always see where records
are, so what is asked here is which appends may be behind another one as far as times show it.
"""

import numpy as np

from checkers.kernels.history import FAIL, I64, INF_NS, PartitionHistory


def may_be_replaced_ns(history: PartitionHistory, keys: I64, clock_error_ns: int) -> I64:
    """Returns for each append when the first other one of its key was invoked that may be behind it.

    Args:
        history: One partition.
        keys: A number for the key of each append, -1 if it has none. Such an append replaces nothing.
        clock_error_ns: Largest difference between two clocks that stamped operations.

    Returns:
        The moments; infinity if no append may be behind.
    """
    count = len(keys)
    # One that failed wrote nothing, and one that ended before another began cannot be behind it.
    end_ns = np.where(history.append_status == FAIL, -INF_NS, history.append_res)
    order = np.lexsort((end_ns, keys))
    key, end_ns, inv = keys[order], end_ns[order], history.append_inv[order]
    # Appends by key and invocation as one number. Those of the next key are larger.
    by_inv = np.argsort(inv, kind="stable")
    place = np.empty(count, dtype=np.int64)
    place[by_inv] = np.arange(count)
    place += key * count
    # The first one of all that end as late as each, and the first one of the rest of these.
    first = _smallest_since(place)
    following = np.append(first, INF_NS)[1:]
    second = _smallest_since(np.maximum(place, following))
    since = _first_from(key, end_ns, inv - clock_error_ns)
    found = np.append(first, INF_NS)[since]
    found = np.where(found == place, np.append(second, INF_NS)[since], found)
    rows = np.flatnonzero((found < (key + 1) * count) & (key >= 0))
    replaced_ns = np.full(count, INF_NS, dtype=np.int64)
    replaced_ns[order[rows]] = inv[by_inv[found[rows] - key[rows] * count]]
    return replaced_ns


def _smallest_since(numbers: I64) -> I64:
    """Returns the smallest of each number and those behind it."""
    smallest: I64 = np.minimum.accumulate(numbers[::-1])[::-1]
    return smallest


def _first_from(keys: I64, numbers: I64, bounds: I64) -> I64:
    """Returns the row of the first number of the same key that is not below each bound.

    Args:
        keys: Ascending.
        numbers: Ascending for each key.
        bounds: One for each row.

    Returns:
        The row at which the next key begins if there is none.
    """
    is_bound = np.repeat((False, True), len(keys))
    order = np.lexsort((~is_bound, np.append(numbers, bounds), np.append(keys, keys)))
    before = np.cumsum(~is_bound[order])
    rows = np.empty(2 * len(keys), dtype=np.int64)
    rows[order] = before
    first: I64 = rows[is_bound]
    return first
