"""The measures that a slice or a bucket of a cut partition takes."""

import numpy as np
import pytest

from checkers.kernels.cut_measures import correction, end_of_all, lag_in, unseen_in
from checkers.kernels.history import I64, read_history
from tests.anomalies.runs import append, read
from tests.property.brute_force import Call, ends_table, operations_table, records_table

MOMENTS = np.array([0, 10, 20, 30], dtype=np.int64)


def ints(*values: int) -> I64:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize(
    ("read_value", "expected"),
    # Value 3 was acknowledged at offset 12 at 5 ns, and read there at 15 ns.
    [(3, [0, 1, -1, 0]), (4, [0, 1, 0, 0])],
)
def test_a_record_is_seen_when_its_value_was_read_at_its_offset(
    read_value: int, expected: list[int]
) -> None:
    changes = unseen_in(
        (ints(12), ints(3), ints(5)),
        (ints(12), ints(read_value), ints(15)),
        MOMENTS,
        first=10,
        stop=15,
    )
    assert changes.tolist() == expected


def test_records_below_the_bucket_do_not_count() -> None:
    changes = unseen_in(
        (ints(9, 12), ints(11, 13), ints(5, 5)),
        (ints(9, 12), ints(11, 13), ints(15, 25)),
        MOMENTS,
        first=10,
        stop=15,
    )
    assert changes.tolist() == [0, 1, 0, -1]


@pytest.mark.parametrize(("position", "asked_ns"), [(9, None), (10, 50), (14, 50), (15, None)])
def test_polls_from_the_offsets_of_a_bucket_count(position: int, asked_ns: int | None) -> None:
    """Offset 12 existed at 20 ns, offset 14 at 40 ns."""
    lag, asked = lag_in((ints(position), ints(50)), (ints(12, 14), ints(20, 40)), first=10, stop=15)
    if asked_ns is None:
        assert (lag, asked) == (-(2**61), -(2**61))
    else:
        assert (lag, asked) == ({10: 30, 14: 10}[position], 50)


def corrected(calls: list[Call], *suspects: int) -> list[int]:
    history = read_history(operations_table(calls), records_table(calls), ends_table(calls))
    changes: list[int] = correction(history, ints(*suspects), MOMENTS, 0).tolist()
    return changes


def test_the_sum_is_corrected_by_reads_of_a_record_at_another_offset() -> None:
    """Value 0 was acknowledged at offset 0 at 2 ns and read at offset 1 at 13 ns, never at its own offset."""
    calls = [append(0, 0, at=1), read(1, 12, 0, start=1)]
    assert corrected(calls, 0, 1) == [0, 0, -1, 0]
    assert corrected([append(0, 0, at=1), read(1, 12, 0)], 0) == [0, 0, 0, 0]
    assert corrected([append(0, 0, at=1), read(1, 12, 0), read(2, 22, 0, start=1)], 0, 1) == [0] * 4


def test_records_at_offsets_without_suspicion_need_no_correction() -> None:
    assert corrected([append(0, 0, at=1), read(1, 12, 0, start=1)], 1) == [0, 0, 0, 0]


def test_of_two_records_at_one_offset_both_are_counted_by_the_correction() -> None:
    """A bucket counts none of them. Value 1 is never seen."""
    calls = [append(0, 0, at=1), append(1, 0, at=1), read(2, 12, 0)]
    assert corrected(calls, 0) == [0, 2, -1, 0]


def test_a_partition_without_slices_ended_at_0() -> None:
    assert end_of_all(()) == 0
