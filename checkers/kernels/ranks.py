"""Ranks of places in a log: a place is a key and an offset."""

import numpy as np

from checkers.kernels.history import I64


def rank_of(keys: I64, offsets: I64, key: I64, offset: I64) -> I64:
    """Returns how many of some places, ordered by key and offset, come before each of some others."""
    order = np.lexsort(
        (
            np.concatenate([np.ones(len(keys), np.int8), np.zeros(len(key), np.int8)]),
            np.concatenate([offsets, offset]),
            np.concatenate([keys, key]),
        )
    )
    is_place = order < len(keys)
    before = np.cumsum(is_place)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = before
    return rank[len(keys) :]
