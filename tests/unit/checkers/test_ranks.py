"""Ranks of places in a log."""

import random

import numpy as np

from checkers.kernels.history import I64
from checkers.kernels.ranks import rank_of


def ints(*values: int) -> I64:
    return np.array(values, dtype=np.int64)


def test_a_place_at_the_same_key_and_offset_does_not_come_before() -> None:
    keys, offsets = ints(1, 1, 2), ints(5, 7, 0)
    key, offset = ints(1, 1, 1, 1, 2, 2, 0, 3), ints(4, 5, 6, 8, 0, 1, 9, 0)
    assert rank_of(keys, offsets, key, offset).tolist() == [0, 0, 1, 2, 2, 3, 0, 3]
    assert rank_of(ints(), ints(), ints(1), ints(2)).tolist() == [0]


def test_ranks_are_counts_of_smaller_places_in_any_order() -> None:
    rng = random.Random(7)
    for _ in range(100):
        places = [(rng.randrange(3), rng.randrange(4)) for _ in range(rng.randrange(6))]
        others = [(rng.randrange(3), rng.randrange(4)) for _ in range(rng.randrange(1, 6))]
        found = rank_of(
            ints(*(key for key, _ in places)),
            ints(*(offset for _, offset in places)),
            ints(*(key for key, _ in others)),
            ints(*(offset for _, offset in others)),
        )
        assert found.tolist() == [sum(place < other for place in places) for other in others]
