"""Producers that send appends again: the kernel and an exhaustive search agree on small histories."""

import pytest

from tests.parts import parts
from tests.property.brute_force import Call
from tests.property.sent_again_by_search import (
    differences,
    disagreements,
    judge_accepts,
)
from tests.unit.checkers.test_real_time import append, read


# The search of a few histories of the others takes most of a minute.
@pytest.mark.parametrize("first", parts((100, 200, 300, 0, 400, 500), quick=3))
def test_the_kernel_finds_what_the_search_finds(first: int) -> None:
    assert list(disagreements(first, 100)) == []


@pytest.mark.parametrize(
    ("calls", "levels"),
    [
        # Sent again: twice in the log, first where it was acknowledged.
        ([append(1, 0, at=1), append(2, 1, at=5), read(9, 20, 1, 2, 1)], ""),
        # Op 1 succeeded before op 2 was sent, and has its first record behind it.
        ([append(1, None, at=1), append(2, 0, at=5), read(9, 20, 2, 1)], "order fresh"),
        ([append(1, None, at=1), append(2, 1, at=5), read(9, 20, 1, 2, 1)], ""),
        # A record before its append was sent, and one that nobody sent.
        ([append(1, 0, at=30), read(9, 20, 1)], "order fresh"),
        ([append(1, 1, at=1), read(9, 20, 7)], "integrity order fresh"),
    ],
    ids=["again", "overtaken", "at-its-first", "too-early", "nobody"],
)
def test_the_search_knows_what_may_be(calls: list[Call], levels: str) -> None:
    broken = [one for one in ("integrity", "order", "fresh") if not judge_accepts(calls, level=one)]
    assert " ".join(broken) == levels
    assert differences(calls) == []
