"""What the real-time check needs to know of one range of offsets."""

from itertools import permutations

import numpy as np
import pytest

from checkers.kernels.monoid import Bound, BucketElement, RealTimeFacts, bucket_element

Rows = tuple[tuple[int, int, int], ...]
"""Offset, time and operation of each fact."""


def element_of(absent: Rows, present: Rows) -> BucketElement:
    columns = {
        f"{kind}_{name}": np.array([row[at] for row in rows], dtype=np.int64)
        for kind, rows in (("absent", absent), ("present", present))
        for at, name in enumerate(("offset", "ns", "op"))
    }
    return bucket_element(RealTimeFacts(**columns))


ABSENT: Rows = ((1, 30, 101), (3, 10, 103), (5, 20, 105))
PRESENT: Rows = ((1, 40, 201), (2, 9, 202), (4, 12, 204))


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_order_of_facts_does_not_matter(order: tuple[int, ...]) -> None:
    """Offset 2 existed at 9 ns, but offset 1 did not exist yet at 30 ns."""
    expected = BucketElement(
        latest_absent=Bound(time_ns=30, op=101),
        earliest_present=Bound(time_ns=9, op=202),
        slack_ns=21,
        first=202,
        second=101,
    )
    assert element_of(tuple(ABSENT[at] for at in order), PRESENT) == expected
    assert element_of(ABSENT, tuple(PRESENT[at] for at in order)) == expected


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_of_facts_about_one_offset_the_worst_pair_counts(order: tuple[int, ...]) -> None:
    rows = tuple(((1, 10, 101), (1, 30, 103), (1, 30, 102))[at] for at in order)
    found = element_of(rows, ((1, 12, 201),))
    assert (found.slack_ns, found.first, found.second) == (18, 201, 102)
    found = element_of(((1, 30, 101),), rows)
    assert (found.slack_ns, found.first, found.second) == (20, 101, 101)


def test_one_fact_below_is_enough_for_a_contradiction() -> None:
    found = element_of(((3, 30, 103),), ((4, 12, 204),))
    assert (found.slack_ns, found.first, found.second) == (18, 204, 103)


def test_what_did_not_exist_above_an_offset_contradicts_nothing() -> None:
    found = element_of(((5, 30, 103),), ((4, 12, 204),))
    assert (found.first, found.second) == (-1, -1)
    assert found.slack_ns < -(2**60)
