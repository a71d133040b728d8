"""Pairs are found where they are, and only there."""

import random

import numpy as np

from checkers.kernels.claims import find_pairs


def test_pairs_are_found_as_by_looking_at_all_of_them() -> None:
    rng = random.Random(1)
    borders = [-(2**63), -1, 2**62]
    for size in (1, 2, 7, 40):
        for _ in range(200):
            numbers = [*range(rng.randrange(1, 9)), *borders]
            pairs = sorted((rng.choice(numbers), rng.choice(numbers)) for _ in range(size))
            wanted = [(rng.choice(numbers), rng.choice(numbers)) for _ in range(rng.randrange(9))]
            first, second = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
            sought, also = np.array(wanted, dtype=np.int64).reshape(-1, 2).T
            at, there = find_pairs(first, second, sought, also)
            assert there.tolist() == [pair in pairs for pair in wanted]
            assert [pairs[row] for row in at[there]] == [pair for pair in wanted if pair in pairs]
            assert bool(((at >= 0) & (at < size)).all())
