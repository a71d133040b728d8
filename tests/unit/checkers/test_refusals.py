"""Which rows are refused, and which row a refusal names."""

import numpy as np
import pyarrow as pa
import pytest

from checkers.kernels.refusals import (
    check_times,
    is_ascending_once,
    refuse_back_in_time,
    refuse_below,
    refuse_beyond,
    refuse_repeated,
    require_no_nulls,
)
from harness.errors import HistoryError

WHERE = "a file"
SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("m", pa.int64())])


def numbers(*values: int | None) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


@pytest.mark.parametrize(
    ("values", "is_ascending"),
    [
        ((), True),
        ((5,), True),
        ((3, 5), True),
        ((5, 5), False),
        ((5, 3), False),
        ((1, 2, 9), True),
        ((1, 2, 2), False),
        ((3, 1, 2), False),
    ],
)
def test_numbers_that_ascend_are_different(values: tuple[int, ...], is_ascending: bool) -> None:
    assert is_ascending_once(np.array(values, dtype=np.int64)) is is_ascending


def test_a_null_is_refused_where_the_schema_has_none() -> None:
    more = pa.table({"n": [1, 2], "m": [None, 1], "of its own": [None, None]})
    require_no_nulls(more, SCHEMA, WHERE)
    require_no_nulls(pa.table({"of its own": [None]}), SCHEMA, WHERE)
    with pytest.raises(HistoryError, match="a file, row 1: n is null"):
        require_no_nulls(numbers(1, None), SCHEMA, WHERE)


def test_the_first_number_beyond_a_limit_is_named() -> None:
    refuse_beyond(numbers(1, 3), "n", 1, 3, WHERE)
    for values, row in (((1, 3, 4), 2), ((3, 1, 0), 2), ((4, 0), 0), ((2, 0, 4), 1)):
        message = f"row {row}: n is {values[row]}, which is not between 1 and 3"
        with pytest.raises(HistoryError, match=message):
            refuse_beyond(numbers(*values), "n", 1, 3, WHERE)
    refuse_below(numbers(1, 9), "n", 1, WHERE)
    with pytest.raises(HistoryError, match="row 2: n is 0, below 1"):
        refuse_below(numbers(9, 1, 0), "n", 1, WHERE)
    with pytest.raises(HistoryError, match="row 1: n is 1152921504606846977, which is not between"):
        check_times(numbers(-(2**60), 2**60 + 1), "n", WHERE)


def test_the_first_number_that_occurred_before_is_named() -> None:
    refuse_repeated(np.array([3, 1, 2]), "n", WHERE)
    with pytest.raises(HistoryError, match="row 2: n 5 is in row 1, too"):
        refuse_repeated(np.array([9, 5, 5, 9, 5]), "n", WHERE)


def test_events_in_the_order_of_their_indices_do_not_go_back_in_time() -> None:
    refuse_back_in_time(np.array([4, 1, 3]), np.array([20, 10, 20]), WHERE)
    with pytest.raises(HistoryError, match="row 0: at_ns is 19, before that of the event before"):
        refuse_back_in_time(np.array([4, 1, 3]), np.array([19, 10, 20]), WHERE)
