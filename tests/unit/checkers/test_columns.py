"""Sorted and joined columns."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from checkers.kernels.columns import distinct, joined_columns, largest_of_each


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
def test_distinct_integers_ascend_in_whatever_order_they_come(order: tuple[int, ...]) -> None:
    assert distinct(ints(*order)).tolist() == [1, 2, 3]
    assert distinct(ints(*order), ints(2)).tolist() == [1, 2, 3]


def test_distinct_integers_come_from_all_arrays() -> None:
    assert distinct(ints(5), ints(2, 5)).tolist() == [2, 5]
    assert distinct(ints(5), ints(), ints(1), ints(9, 5)).tolist() == [1, 5, 9]


def test_no_arrays_have_no_integers() -> None:
    assert distinct().tolist() == []
    assert distinct(ints()).tolist() == []
    assert joined_columns([]).tolist() == []


def test_the_largest_value_of_each_key_counts() -> None:
    keys, values = np.array([3, 1, 3, 1, 2]), np.array([5, -1, 7, -4, 0])
    assert largest_of_each(keys, values) == {1: -1, 2: 0, 3: 7}
    nothing = np.empty(0, dtype=np.int64)
    assert largest_of_each(nothing, nothing) == {}
