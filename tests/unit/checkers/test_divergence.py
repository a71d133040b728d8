"""Where replicas differ: the borders of their windows, and rows that are left out of the comparison."""

from typing import Any

import pytest

from checkers.kernels.divergence import Divergence, find_divergence
from tests.anomalies.runs import batch, state, table


def divergence(*rows: dict[str, Any], isr: list[int] | None = None) -> Divergence | None:
    states = [] if isr is None else [state(1, 1, isr, epoch=0)]
    return find_divergence(table("replica_batches", list(rows)), table("partition_states", states))


def of(broker: int, offset: int, *, end: int, last: int | None = None) -> dict[str, Any]:
    """Returns a batch whose checksum is 7, in a log that is committed and was read up to an offset."""
    return batch(broker, offset, 7, hw=end, end=end, last=last)


@pytest.mark.parametrize(
    ("rows", "offsets"),
    [
        ([of(1, 1, end=2), of(2, 0, end=2)], (0, 1)),
        ([of(1, 0, end=3), of(1, 1, end=3), of(2, 1, end=3), of(2, 2, end=3)], (0, 2)),
        # The second batch has the same end and the same checksum.
        ([of(1, 0, last=2, end=3), of(2, 1, last=2, end=3)], (0, 1, 2)),
        ([of(1, offset, end=5) for offset in range(5)] + [of(2, 4, end=5)], (0, 1, 2, 3)),
        ([of(1, offset, end=9) for offset in range(9)] + [of(2, 0, end=9)], tuple(range(1, 9))),
    ],
    ids=["descending", "pairs", "same-end", "four", "eight"],
)
def test_every_offset_counts_that_one_of_two_replicas_lacks(
    rows: list[dict[str, Any]], offsets: tuple[int, ...]
) -> None:
    for order in (rows, rows[::-1]):
        found = divergence(*order)
        assert found is not None
        assert (found.count, found.offsets, found.nodes) == (len(offsets), offsets, ("b1", "b2"))


def test_replicas_outside_of_the_isr_are_not_taken_for_members() -> None:
    """Brokers 2 and 3 have the batch at offset 0. Broker 1, the other member, has a log with a gap there."""
    rows = [of(2, 0, end=1), of(3, 0, end=1), of(1, 5, end=6)]
    found = divergence(*rows, isr=[1, 2])
    assert found is not None
    assert (found.offsets, found.nodes) == ((0,), ("b1", "b2"))


def test_without_a_member_of_the_isr_nothing_is_compared() -> None:
    rows = [of(1, 0, end=1), batch(2, 0, 8, hw=1, end=1)]
    assert divergence(*rows, isr=[]) is None
    assert divergence(*rows, isr=[9]) is None


@pytest.mark.parametrize(
    ("lacking", "nodes"),
    [
        (batch(2, 1, 7, hw=2, end=2), ("b1", "b2")),
        (batch(2, 1, 7, hw=2, end=2, start=1), ()),
        (batch(2, 2, 7, hw=1, end=3), ("b1", "b2")),
        (batch(2, 2, 7, hw=0, end=3), ()),
    ],
    ids=["from-its-start", "after-its-start", "up-to-its-end", "after-its-end"],
)
def test_a_replica_lacks_what_is_between_the_borders_of_its_log(
    lacking: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    """Broker 1 has a batch at offset 0 that broker 2 does not have."""
    found = divergence(batch(1, 0, 7, hw=1, end=1), lacking)
    assert (found.nodes if found else ()) == nodes
    # Brokers 1 and 3 differ anyway.
    found = divergence(batch(1, 0, 7, hw=1, end=1), batch(3, 0, 8, hw=1, end=1), lacking)
    assert found is not None
    assert found.nodes == ((*nodes, "b3") if nodes else ("b1", "b3"))


def test_the_sentence_names_the_replica_that_lacks_the_batch() -> None:
    found = divergence(of(1, 0, end=2), of(1, 1, end=2), of(2, 1, end=2))
    assert found is not None
    assert (
        "at offset 0, below the high watermarks of both, b1 holds a batch up to" in found.sentence
    )
    assert "and b2 holds no such batch" in found.sentence


def test_a_thousand_divergent_offsets_are_listed_and_all_are_counted() -> None:
    one = batch(1, 0, 7, last=998, hw=1500, end=1500)
    other = batch(2, 0, 8, last=998, hw=1500, end=1500)
    more = [batch(number, 999, number, last=1200, hw=1500, end=1500) for number in (1, 2)]
    found = divergence(one, other, *more)
    assert found is not None
    assert found.count == 1201
    assert found.offsets == tuple(range(1000))
