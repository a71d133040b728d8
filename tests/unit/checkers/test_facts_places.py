"""Offsets as positions: the border between one position per offset and one per offset that is mentioned."""

import numpy as np
import pytest

from checkers.kernels.facts import Places
from checkers.kernels.linearizability import Options, check_tables
from tests.anomalies.runs import append, read
from tests.property.brute_force import ends_table, operations_table, records_table


@pytest.mark.parametrize("start", [0, 1, 10**6])
@pytest.mark.parametrize("length", [1, 2, 4098, 4099, 4100, 4101, 4102, 4106, 10**5])
@pytest.mark.parametrize("is_read", [True, False])
def test_one_record_at_the_end_of_a_log_of_any_length(
    start: int, length: int, is_read: bool
) -> None:
    last = start + length - 1
    calls = [append(0, last, at=1)]
    if is_read:
        calls.append(read(1, 5, 0, start=last))
    report = check_tables(
        operations_table(calls),
        records_table(calls),
        ends_table(calls),
        Options(log_start_offset=start),
    )
    holes = [] if length == 1 else [[start, last - 1]]
    assert report.coverage["holes"] == length - 1
    assert report.coverage["hole_ranges"] == holes
    assert report.coverage["acked_read_back"] == is_read
    assert [f.id for f in report.findings] == (["unfilled-hole"] if holes else [])


@pytest.mark.parametrize(("limit", "is_compact"), [(12, False), (10**6, True)])
def test_positions_are_in_the_order_of_offsets(limit: int, is_compact: bool) -> None:
    places = Places(10, limit, np.array([10, 11, 10]) if is_compact else None)
    assert places.is_compact is is_compact
    assert places.count == 2
    assert places.index(np.array([10, 11, limit, limit + 5])).tolist() == [0, 1, 2, 2]
    assert places.existing(np.array([11, 10])).tolist() == [1, 0]
    assert places.offset(np.array([0, 1])).tolist() == [10, 11]
