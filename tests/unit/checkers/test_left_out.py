"""Ranges of offsets that were left out of a history."""

import random
from itertools import pairwise

import numpy as np
import pytest

from checkers.kernels.history import I64
from checkers.kernels.left_out import NOTHING, LeftOut

Ranges = list[tuple[int, int]]


def ints(*values: int) -> I64:
    return np.array(values, dtype=np.int64)


def left_out(ranges: Ranges, **more: int) -> LeftOut:
    return LeftOut(start=ints(*(a for a, _ in ranges)), stop=ints(*(b for _, b in ranges)), **more)


TWO = left_out([(2, 4), (6, 7)])


def test_offsets_within_a_range_were_left_out() -> None:
    assert np.flatnonzero(TWO.covers(np.arange(9))).tolist() == [2, 3, 6]
    assert NOTHING.covers(ints(0, 5)).tolist() == [False, False]
    assert (bool(TWO), bool(NOTHING)) == (True, False)


@pytest.mark.parametrize(
    ("first", "last", "is_held"),
    [
        (2, 4, True),
        (3, 4, True),
        (2, 5, False),
        (1, 3, False),
        (4, 6, False),
        (6, 7, True),
        (3, 7, False),
        (7, 9, False),
        # An empty range lacks nothing.
        (5, 5, True),
        (6, 5, True),
    ],
)
def test_a_range_was_left_out_if_all_of_its_offsets_were(
    first: int, last: int, is_held: bool
) -> None:
    assert TWO.holds(ints(first), ints(last)).tolist() == [is_held]
    assert NOTHING.holds(ints(first), ints(last)).tolist() == [first >= last]


def test_what_remains_of_ranges_is_what_was_not_left_out() -> None:
    rng = random.Random(5)
    for _ in range(300):
        borders = sorted(rng.sample(range(20), 2 * rng.randrange(4)))
        held = left_out(list(zip(borders[::2], borders[1::2], strict=True)))
        cuts = sorted(rng.sample(range(20), rng.choice((2, 4, 6))))
        given = list(zip(cuts[::2], cuts[1::2], strict=True))
        first, last, source = held.without(ints(*cuts[::2]), ints(*cuts[1::2]))
        found = list(zip(first.tolist(), last.tolist(), source.tolist(), strict=True))
        expected = []
        for row, (start, stop) in enumerate(given):
            inside = [o for o in range(start, stop) if not held.covers(ints(o))[0]]
            breaks = [0, *(n + 1 for n, (a, b) in enumerate(pairwise(inside)) if b > a + 1)]
            for low, high in pairwise([*breaks, len(inside)]):
                if low < high:
                    expected.append((inside[low], inside[high - 1] + 1, row))
        assert found == expected, (borders, given)


def test_the_final_phase_reached_the_largest_end_and_the_end_of_the_last_range() -> None:
    assert NOTHING.final_reach == 0
    assert LeftOut(final_end=5, final_stop=ints(3, 4)).final_reach == 5
    assert LeftOut(final_end=2, final_stop=ints(3, 4)).final_reach == 4
    assert (NOTHING.final_end, NOTHING.final_end_asked_ns, NOTHING.limit) == (-1, -1, 0)


def test_nothing_is_left_out_unless_ranges_are_given() -> None:
    assert not LeftOut(final_end=5)
    assert LeftOut(final_end=5).covers(ints(0, 1)).tolist() == [False, False]
    assert left_out([(2, 4)]).revealed_op.tolist() == []
    assert left_out([(2, 4)]).final_reach == 0
