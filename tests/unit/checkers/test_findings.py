"""Instances of an anomaly as arrays: what is absent, and which one is shown."""

import numpy as np

from checkers.kernels.findings import finding


def test_what_is_not_given_is_absent_strong_and_of_no_gap() -> None:
    bare = finding("lost-ack", np.array([7, 8]))
    for column in (bare.second, bare.third, bare.offset, bare.other):
        assert column.tolist() == [-1, -1]
    assert bare.since_ns.tolist() == bare.gap_ns.tolist() == [0, 0]
    assert bare.weak.tolist() == [False, False]
    names = ("second", "third", "offset", "other", "since_ns", "gap_ns")
    given = {name: np.array([at, at]) for at, name in enumerate(names, 20)}
    full = finding("lost-ack", np.array([7, 8]), **given, weak=np.array([True, False]))  # type: ignore[arg-type]
    for name, column in given.items():
        assert getattr(full, name).tolist() == column.tolist()
    assert full.weak.tolist() == [True, False]


def test_the_instance_with_the_largest_gap_is_shown_whatever_the_order_of_rows() -> None:
    ops = np.array([4, 3, 2])
    found = finding("lost-ack", ops, gap_ns=np.array([5, 9, 9]))
    assert [found.worst(), found.worst(np.array([0, 1])), found.worst(np.array([0]))] == [2, 1, 0]
