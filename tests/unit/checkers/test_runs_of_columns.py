"""Distinct combinations in columns."""

import numpy as np
import pytest

from checkers.kernels.transactions.runs import distinct_rows


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        (([3, 3],), [0]),
        (([2, 1, 2, 1], [5, 5, 5, 6]), [1, 3, 0]),
        (([1, 2, 3], [0, 0, 0]), [0, 1, 2]),
        (([4, 1],), [1, 0]),
        (([],), []),
    ],
)
def test_each_combination_is_represented_by_its_first_row(
    columns: tuple[list[int], ...], rows: list[int]
) -> None:
    found = distinct_rows(*(np.array(column, dtype=np.int64) for column in columns))
    assert found.tolist() == rows
