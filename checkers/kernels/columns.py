"""Values whose fields are columns: row i of every column belongs to the same thing."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Self, cast

import numpy as np

from checkers.kernels.history import I64, Bools


def distinct(*parts: Any) -> Any:
    """Returns the distinct integers of some arrays, ascending.

    Faster than `numpy.unique`, which hashes: what is put together here is nearly sorted.
    """
    joined = parts[0] if len(parts) == 1 else np.concatenate((np.empty(0, dtype=np.int64), *parts))
    if bool((joined[1:] < joined[:-1]).any()):
        joined = np.sort(joined, kind="stable")
    return joined[np.append(True, joined[1:] != joined[:-1])[: len(joined)]]


class Columns:
    """Base of dataclasses whose arrays have equal lengths; other fields are about all rows."""

    __slots__ = ()

    def take(self, rows: Any) -> Self:
        """Returns some of the rows.

        Args:
            rows: Positions, or which rows.
        """
        values = {field.name: getattr(self, field.name) for field in fields(cast(Any, self))}
        return type(self)(
            **{
                name: value[rows] if isinstance(value, np.ndarray) else value
                for name, value in values.items()
            }
        )


def joined_columns(parts: Sequence[I64]) -> I64:
    """Returns the values of several columns in turn; none for no column."""
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def heads(*columns: I64 | Bools) -> Bools:
    """Returns which rows differ from the one before in any of several columns; the first one does."""
    differs = np.ones(len(columns[0]), dtype=np.bool_)
    differs[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return differs


def largest_of_each(keys: I64, values: I64) -> dict[int, int]:
    """Returns the largest value of each key, by key.

    Shape:
        keys, values: one row per pair, in any order.
    """
    if not len(keys):
        return {}
    # Values are in no order, and keys often are, so that sorting these alone takes little time.
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.flatnonzero(heads(ordered))
    largest = np.maximum.reduceat(values[order], first)
    return dict(zip(ordered[first].tolist(), largest.tolist(), strict=True))


def find_pairs(first: I64, second: I64, wanted: I64, also: I64) -> tuple[I64, Bools]:
    """Returns the positions of pairs among pairs in ascending order, and which of them are there.

    Shape:
        first, second: the pairs to search, at least one; wanted, also: those to find. The position of a pair that
        is not there means nothing.
    """
    low, end = np.searchsorted(first, wanted), np.searchsorted(first, wanted, side="right")
    high, last = end, len(first) - 1
    # A binary search of all pairs at once.
    while (is_open := low < high).any():
        middle = (low + high) // 2
        is_below = second[np.minimum(middle, last)] < also
        low = np.where(is_open & is_below, middle + 1, low)
        high = np.where(is_open & ~is_below, middle, high)
    at = np.minimum(low, last)
    return at, (low < end) & (second[at] == also)
