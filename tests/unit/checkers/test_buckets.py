"""What buckets of offsets, and the fold over them, decide about small histories."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from checkers.kernels.buckets import (
    BucketResult,
    Claims,
    LogVerdict,
    all_free,
    bounds_in,
    final_log_of,
    fold,
    judge_bucket,
    revealed_in,
    sender_swaps,
)
from checkers.kernels.history import I64, read_history
from checkers.kernels.slices import Part, SliceReport, Times, cut_slice
from tests.anomalies.runs import append, read
from tests.property.brute_force import Call, ends_table, operations_table, records_table


def ints(*values: int) -> I64:
    return np.array(values, dtype=np.int64)


def unknown(op: int, *, at: int) -> Call:
    return replace(append(op, None, at=at), res=None, outcome="info")


def log_end(op: int, end: int, *, at: int, final: bool = False) -> Call:
    return Call(
        op=op, kind="latest", process=98, inv=at, res=at + 1, offset=end, final=final, position=-1
    )


class Cut:
    """A history that is cut before some operations, and its buckets.

    Args:
        calls: The history.
        width: How many offsets a bucket holds.
        cuts: The first operation of every slice but the first one.
        start: Where the log begins.
        unreadable: Offsets of records that cannot be read.
        members: The operations of the members of each consumer group.
    """

    def __init__(
        self,
        calls: list[Call],
        *,
        width: int = 100,
        cuts: Sequence[int] = (),
        start: int = 0,
        unreadable: Sequence[int] = (),
        members: Sequence[Sequence[int]] = (),
    ) -> None:
        statuses = dict.fromkeys(unreadable, "corrupt")
        tables = (
            operations_table(calls),
            records_table(calls, statuses=statuses),
            ends_table(calls),
        )
        self.width, self.start = width, start
        self.reports: list[SliceReport] = []
        self.parts: dict[int, list[Part]] = {}
        for first, stop in pairwise([-1, *cuts, 2**40]):
            report, parts = cut_slice(
                read_history(*(_between(table, first, stop) for table in tables)),
                log_start_offset=start,
                width=width,
                group_polls=[ints(*polls) for polls in members],
            )
            self.reports.append(report)
            for bucket, part in parts.items():
                self.parts.setdefault(bucket, []).append(part)
        self.free = all_free(self.reports)

    def results(self, committed: Sequence[int] = ()) -> Mapping[int, BucketResult]:
        """Returns what every bucket returns."""
        limit = max(report.limit for report in self.reports)
        return {
            bucket: judge_bucket(
                parts,
                self.free,
                first=max(bucket * self.width, self.start),
                stop=min((bucket + 1) * self.width, limit),
                committed=committed,
            )
            for bucket, parts in self.parts.items()
        }

    def only(self, committed: Sequence[int] = ()) -> BucketResult:
        """Returns what the only bucket returns."""
        (result,) = self.results(committed).values()
        return result

    def verdict(self, **more: int) -> LogVerdict:
        return fold(
            self.reports,
            self.results(),
            self.free,
            width=self.width,
            log_start_offset=self.start,
            **more,
        )


def _between(table: pa.Table, first: int, stop: int) -> pa.Table:
    op = table.column("op_index")
    return table.filter(pc.and_(pc.greater_equal(op, first), pc.less(op, stop)))


def rows(times: Times) -> list[tuple[int, int, int]]:
    return list(zip(times.offset.tolist(), times.time_ns.tolist(), times.op.tolist(), strict=True))


# --- one bucket ---


def test_appends_without_an_offset_ascend_by_operation_and_not_by_time() -> None:
    cut = Cut([unknown(0, at=50), append(1, 0, at=1), unknown(2, at=10)], cuts=[1])
    assert cut.free.op.tolist() == [0, 2]
    assert all_free(cut.reports[::-1]).op.tolist() == [0, 2]
    assert cut.free.inv.tolist() == [50, 10]


@pytest.mark.parametrize(
    ("offsets", "holds"),
    [((0, 0), False), ((0, 1), True), ((0, 1, 1), False), ((0, 0, 1), False), ((0, 1, 2), True)],
)
def test_two_values_at_one_offset_break_the_log(offsets: tuple[int, ...], holds: bool) -> None:
    cut = Cut([append(op, offset, at=1) for op, offset in enumerate(offsets)])
    assert cut.only().integrity_holds is holds


def test_each_value_of_an_offset_is_one_claim_whatever_order_slices_have() -> None:
    """Polls of three slices return the values 0, 1 and 0 at one offset."""
    appends = [append(0, None, at=1), append(1, None, at=1)]
    cut = Cut([*appends, read(2, 5, 0), read(3, 5, 1), read(4, 5, 0)], cuts=[3, 4])
    claims = Claims.of(cut.parts[0])
    assert claims.offset.tolist() == [0, 0]
    assert claims.value.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("occupied", "expected"),
    [
        ((0, 1), []),
        ((0, 2), [(1, 1)]),
        ((2,), [(0, 2)]),
        ((1, 5), [(0, 1), (2, 3)]),
        ((0, 2, 4), [(1, 1), (3, 1)]),
    ],
)
def test_holes_are_the_offsets_without_a_known_record(
    occupied: tuple[int, ...], expected: list[tuple[int, int]]
) -> None:
    """Enough appends may fill them."""
    appends = [append(op, offset, at=1) for op, offset in enumerate(occupied)]
    result = Cut([*appends, *(unknown(op, at=1) for op in range(10, 16))]).only()
    holes = zip(result.holes.first.tolist(), result.holes.length.tolist(), strict=True)
    assert list(holes) == expected
    assert result.hole_count == sum(length for _, length in expected)


def test_holes_end_where_the_log_is_known_to_end_and_begin_where_it_starts() -> None:
    """A log end of 4 shows what existed below it and that nothing existed at 4."""
    calls = [append(0, 2, at=1), append(1, 3, at=1), log_end(2, 4, at=5)]
    result = Cut([*calls, unknown(3, at=1), unknown(4, at=1)]).only()
    assert (result.holes.first.tolist(), result.holes.length.tolist()) == ([0], [2])
    result = Cut([append(0, 12, at=1), unknown(1, at=1), unknown(2, at=1)], start=10).only()
    assert (result.holes.first.tolist(), result.holes.length.tolist()) == ([10], [2])


def test_what_is_known_below_the_start_of_the_log_bounds_a_hole_from_below_only() -> None:
    """Offset 2 was acknowledged at 2 ns to an append that began at 1 ns; offset 4 existed at 51 ns."""
    calls = [append(0, 2, at=1), append(1, 4, at=50), unknown(2, at=20), unknown(3, at=20)]
    holes = Cut(calls, start=3).only().holes
    assert (holes.first.tolist(), holes.length.tolist()) == ([3], [1])
    assert (holes.order_absent_ns.tolist(), holes.latest_absent_ns.tolist()) == ([1], [1])
    assert holes.earliest_present_ns.tolist() == [51]


def test_below_the_start_of_the_log_nothing_has_to_be_there_but_nothing_may_contradict_itself() -> (
    None
):
    calls = [append(0, 0, at=1), append(1, 1, at=1), read(5, 9, 1, start=1, final=True)]
    result = Cut(calls, start=1, members=[[]]).only([2])
    assert result.all_there
    assert result.integrity_holds
    assert not Cut(calls).only().all_there
    for wrong in (append(2, 0, at=1), read(3, 5, 7), read(3, 5, 1)):
        assert not Cut([*calls, wrong], start=1).verdict().is_linearizable


def test_an_offset_that_a_log_end_names_may_be_a_hole() -> None:
    """Offset 1 did not exist at 5 ns; offset 2 was acknowledged later."""
    calls = [append(0, 0, at=1), log_end(1, 1, at=5), append(2, 2, at=10), unknown(3, at=7)]
    holes = Cut(calls).only().holes
    assert (holes.first.tolist(), holes.length.tolist()) == ([1], [1])
    assert (holes.order_absent_ns.tolist(), holes.latest_absent_ns.tolist()) == ([1], [5])
    assert holes.earliest_present_ns.tolist() == [11]


@pytest.mark.parametrize("start", [0, 1])
def test_a_log_end_shows_that_the_first_offset_existed(start: int) -> None:
    """A log end of 2 was received at 6 ns; offset 2 was acknowledged at 51 ns. Offset 1 has no record."""
    calls = [append(0, 0, at=1), log_end(1, 2, at=5), append(2, 2, at=50), unknown(3, at=2)]
    holes = Cut(calls, start=start).only().holes
    assert holes.first.tolist() == [1]
    assert holes.earliest_present_ns.tolist() == [6]


def test_of_what_slices_know_of_an_offset_the_strongest_counts() -> None:
    """Two log ends of 1, at 5 and 20 ns, and an append of unknown outcome that was read at offset 0."""
    calls = [log_end(0, 1, at=5), unknown(1, at=2), log_end(2, 1, at=20), read(3, 30, 1)]
    cut = Cut(calls, cuts=[1, 2, 3])
    parts = cut.parts[0]
    revealed, offset, _ = revealed_in(Claims.of(parts), cut.free)
    absent, present = bounds_in(parts, cut.free, revealed, offset)
    assert rows(absent["fresh"]) == [(1, 20, 2)]
    assert rows(absent["order"]) == [(0, 2, 1)]
    assert rows(present) == [(0, 6, 0)]


def test_of_two_appends_at_one_offset_the_later_one_did_not_exist_longer() -> None:
    calls = [append(0, 0, at=1), append(1, 0, at=10)]
    cut = Cut(calls, cuts=[1])
    absent, present = bounds_in(cut.parts[0], cut.free, ints(), ints())
    assert rows(absent["order"]) == [(0, 10, 1)]
    assert rows(present) == [(0, 2, 0)]


@pytest.mark.parametrize(("outcome", "expected"), [("ok", [(0, 3, 0)]), ("info", [(0, 31, 1)])])
def test_a_record_that_was_read_existed_when_its_append_had_succeeded(
    outcome: str, expected: list[tuple[int, int, int]]
) -> None:
    call = replace(append(0, None, at=2), outcome=outcome)
    cut = Cut([call if outcome == "ok" else replace(call, res=None), read(1, 30, 0)])
    revealed, offset, _ = revealed_in(Claims.of(cut.parts[0]), cut.free)
    _, present = bounds_in(cut.parts[0], cut.free, revealed, offset)
    assert rows(present) == expected


@pytest.mark.parametrize(("committed", "got_all"), [(1, True), (2, True), (3, False)])
def test_a_group_has_to_receive_what_is_below_its_committed_offset(
    committed: int, got_all: bool
) -> None:
    """Its member received offsets 0 and 1; the final read shows offset 2 too."""
    calls = [
        *(append(op, op, at=1) for op in range(3)),
        read(3, 5, 0, 1),
        read(4, 9, 0, 1, 2, final=True),
    ]
    assert Cut(calls, members=[[3]]).only([committed]).group_got_all is got_all


@pytest.mark.parametrize(
    ("start", "unreadable", "expected"), [(0, [], 3), (0, [1], 3), (1, [1], 2), (1, [], 2)]
)
def test_records_count_as_received_even_if_they_cannot_be_read(
    start: int, unreadable: list[int], expected: int
) -> None:
    """One member received offsets 0 and 1, another one offset 1 twice."""
    calls = [append(0, 0, at=1), append(1, 1, at=1), read(2, 5, 0, 1)]
    calls += [read(3, 6, 1, start=1), read(4, 7, 1, start=1)]
    cut = Cut(calls, start=start, unreadable=unreadable, members=[[2], [3, 4]])
    assert cut.only([5, 5]).delivered_count == expected
    assert cut.only().delivered_count == 0


# --- the fold ---


def fits(calls: list[Call], width: int = 100, **more: int) -> tuple[bool, int]:
    """Returns whether free appends fit, and the number of holes."""
    verdict = Cut(calls, width=width).verdict(**more)
    return verdict.free_appends_fit, verdict.hole_count


HOLE = [append(0, 0, at=1), append(1, 2, at=1)]
"""Offset 1 existed at 2 ns."""


@pytest.mark.parametrize("width", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ([], (False, 1)),
        ([unknown(2, at=1)], (True, 1)),
        ([replace(append(2, None, at=1), res=9)], (True, 1)),
        ([unknown(2, at=1), unknown(3, at=1)], (True, 1)),
        ([replace(append(2, None, at=1), outcome="fail")], (False, 1)),
        ([append(2, 1, at=1)], (True, 0)),
        ([append(2, 1, at=1), unknown(3, at=1)], (True, 0)),
        # It was invoked after offset 2 existed.
        ([unknown(2, at=3)], (False, 1)),
    ],
)
def test_every_hole_needs_an_append(
    width: int, more: list[Call], expected: tuple[bool, int]
) -> None:
    assert fits([*HOLE, *more], width) == expected


@pytest.mark.parametrize("width", [1, 2, 100])
def test_a_hole_at_the_start_and_one_in_a_bucket_that_nothing_mentions_count(width: int) -> None:
    assert fits([append(0, 3, at=1)], width) == (False, 3)
    assert fits([append(0, 0, at=1), append(1, 5, at=1)], width) == (False, 4)
    assert fits([append(0, 0, at=1), append(1, 1, at=1)], width) == (True, 0)


@pytest.mark.parametrize(
    ("completed", "clock_error_ns", "expected"),
    [(9, 0, False), (10, 0, True), (11, 0, True), (9, 1, True), (8, 1, False)],
)
def test_an_append_without_an_offset_needs_a_place_even_if_there_is_no_hole(
    completed: int, clock_error_ns: int, expected: bool
) -> None:
    """At 10 ns the log was still empty."""
    calls = [replace(append(0, None, at=1), res=completed), log_end(1, 0, at=10)]
    assert fits(calls, clock_error_ns=clock_error_ns) == (expected, 0)


@pytest.mark.parametrize(
    ("invoked", "clock_error_ns", "holds"), [(2, None, True), (3, None, False), (3, 1, True)]
)
def test_a_contradiction_counts_if_it_is_longer_than_the_error_of_the_clocks(
    invoked: int, clock_error_ns: int | None, holds: bool
) -> None:
    """Offset 1 was acknowledged at 2 ns, and the append of offset 0 was invoked later."""
    more = {} if clock_error_ns is None else {"clock_error_ns": clock_error_ns}
    verdict = Cut([append(0, 1, at=1), append(1, 0, at=invoked)]).verdict(**more)
    assert (verdict.order_holds, verdict.is_linearizable) == (holds, holds)


@pytest.mark.parametrize("width", [1, 100])
@pytest.mark.parametrize(("values", "holds"), [((0,), True), ((0, 0), False), ((0, 1), True)])
def test_an_append_of_unknown_outcome_is_at_one_offset(
    values: tuple[int, ...], holds: bool, width: int
) -> None:
    calls = [unknown(0, at=1), unknown(1, at=1), read(2, 5, *values)]
    assert Cut(calls, width=width).verdict().integrity_holds is holds


# --- what slices report ---


def test_the_offsets_of_a_sender_grow_from_slice_to_slice() -> None:
    def swaps(first: int, second: int) -> list[list[int]]:
        calls = [replace(append(op, at, at=1), process=7) for op, at in enumerate((first, second))]
        return [column.tolist() for column in sender_swaps(Cut(calls, cuts=[1]).reports)]

    assert swaps(0, 1) == [[], []]
    assert swaps(3, 3) == [[7], [3, 3]]
    assert swaps(4, 3) == [[7], [4, 3]]


@pytest.mark.parametrize(("end", "expected"), [(None, -1), (0, 0), (1, 1), (2, 2)])
def test_the_final_log_ends_at_the_largest_end_that_was_seen_at_the_end(
    end: int | None, expected: int
) -> None:
    calls = [append(0, None, at=1)]
    calls += [] if end is None else [log_end(1, end, at=50, final=True)]
    final = final_log_of(Cut(calls, cuts=[1]).reports, log_start_offset=0, phase_complete=True)
    assert final.end_offset == expected
    assert final.end_asked_ns == (-1 if end is None else 50)
    assert final.is_complete is (end == 0)
