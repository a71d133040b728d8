"""Appends without a known place at the borders: which of them fit where, and at which moment they no longer do."""

from dataclasses import replace

import numpy as np
import pytest

from checkers.kernels.facts import derive_facts
from checkers.kernels.free_appends import (
    Holes,
    RealTimeHolds,
    Tail,
    check_free_appends,
    earliest_present,
    fit_free_appends,
    joined_holes,
)
from checkers.kernels.history import read_history
from checkers.kernels.linearizability import Options, check_tables
from tests.anomalies.runs import append, read
from tests.property.brute_force import Call, ends_table, operations_table, records_table

FAR = 10**6


def unknown(op: int, *, at: int) -> Call:
    return Call(op=op, kind="append", process=op, inv=at, res=None, outcome="info")


def certain(op: int, *, at: int, until: int) -> Call:
    """An append that succeeded without learning its offset."""
    return Call(op=op, kind="append", process=op, inv=at, res=until)


def latest(op: int, end: int, *, at: int) -> Call:
    return Call(op=op, kind="latest", process=99, inv=at, res=at + 1, offset=end)


def found(
    calls: list[Call], *, sparse: bool = False, clock_error_ns: int = 0
) -> list[tuple[str, int, int, int, int]]:
    """Returns the identifier, the operation, both offsets and the gap of every finding."""
    report = check_tables(
        operations_table(calls),
        records_table(calls),
        ends_table(calls),
        Options(sparse=sparse, clock_error_ns=clock_error_ns),
    )
    return [
        (f.id, int(f.first[row]), int(f.offset[row]), int(f.other[row]), int(f.gap_ns[row]))
        for f in report.findings
        for row in range(f.count)
    ]


# --- holes ---


def ranges(first: list[int], length: list[int]) -> Holes:
    of_rows = np.arange(len(first))
    return Holes(
        first=np.array(first),
        length=np.array(length),
        order_absent_ns=10 + of_rows,
        latest_absent_ns=20 + of_rows,
        earliest_present_ns=30 + of_rows,
    )


def test_ranges_of_holes_consist_of_single_holes() -> None:
    holes = ranges([3, 10], [2, 3])
    assert holes.count == 5
    single = holes.expanded(4)
    assert single.first.tolist() == [3, 4, 10, 11]
    assert single.length.tolist() == [1, 1, 1, 1]
    assert single.order_absent_ns.tolist() == [10, 10, 11, 11]
    assert single.latest_absent_ns.tolist() == [20, 20, 21, 21]
    assert single.earliest_present_ns.tolist() == [30, 30, 31, 31]
    assert holes.expanded(9).first.tolist() == [3, 4, 10, 11, 12]
    assert holes.each_up_to(1).first.tolist() == [3, 10]
    assert holes.each_up_to(2).first.tolist() == [3, 4, 10, 11]


def test_holes_of_several_parts_are_put_in_order() -> None:
    whole = joined_holes([ranges([7], [1]), ranges([2, 9], [3, 4])])
    assert whole.first.tolist() == [2, 7, 9]
    assert whole.length.tolist() == [3, 1, 4]
    assert joined_holes([]).count == 0


@pytest.mark.parametrize(("sent_at", "error_ns"), [(6, 0), (7, 0), (7, 1), (8, 1)])
def test_a_hole_is_filled_by_what_was_sent_before_a_later_offset_was_shown(
    sent_at: int, error_ns: int
) -> None:
    """Op 1 at offset 1 was acknowledged at 6, so something was at offset 0 by then."""
    calls = [append(1, 1, at=5), unknown(2, at=sent_at)]
    fits = sent_at <= 6 + error_ns
    expected = [] if fits else [("hole-before-append", -1, 0, 1, 1)]
    assert found(calls, clock_error_ns=error_ns) == expected


def test_the_first_hole_that_has_too_few_appends_before_it_counts() -> None:
    """Offsets 0, 2 and 4 are holes; of three appends one was sent in time for the first two."""
    calls = [append(1, 1, at=5), append(3, 3, at=7), append(5, 5, at=90)]
    free = [unknown(10, at=1), unknown(11, at=20), unknown(12, at=30)]
    assert found(calls + free) == [("hole-before-append", -1, 0, 2, 1)]
    free = [unknown(10, at=20), unknown(11, at=20), unknown(12, at=30)]
    assert found(calls + free) == [("hole-before-append", -1, 0, 2, 2)]


def test_what_was_sent_at_the_moment_that_a_hole_was_shown_fills_it() -> None:
    """Op 10 fills the hole at offset 0; op 11 was sent too late for the one at offset 2."""
    calls = [append(1, 1, at=5), append(3, 3, at=7), unknown(10, at=6), unknown(11, at=20)]
    assert found(calls) == [("hole-before-append", -1, 0, 2, 1)]


@pytest.mark.parametrize("free", [0, 1, 2])
def test_each_hole_needs_an_append(free: int) -> None:
    calls = [append(1, 2, at=5), *(unknown(10 + at, at=1) for at in range(free))]
    missing = 2 - free
    assert found(calls) == ([("unfilled-hole", -1, 0, 2, missing)] if missing else [])
    # In a sparse log, a hole needs nothing.
    assert found(calls, sparse=True) == []


def test_an_append_that_a_read_revealed_fills_no_hole() -> None:
    """Op 2 is at offset 0, so nothing is left for offset 1."""
    calls = [unknown(2, at=1), append(1, 2, at=5), read(5, 9, 2)]
    assert found(calls) == [("unfilled-hole", -1, 1, 1, 1)]


def test_between_neighbours_far_from_the_rest_there_is_no_hole() -> None:
    calls = [append(1, FAR, at=1), append(2, FAR + 1, at=1), append(3, FAR + 3, at=1)]
    coverage = check_tables(
        operations_table(calls), records_table(calls), ends_table(calls)
    ).coverage
    assert coverage["holes"] == FAR + 1
    assert coverage["hole_ranges"] == [[0, FAR - 1], [FAR + 2, FAR + 2]]


# --- appends that certainly happened ---


@pytest.mark.parametrize(("until", "error_ns"), [(9, 0), (10, 0), (8, 1), (9, 1)])
@pytest.mark.parametrize("sparse", [False, True])
def test_an_append_cannot_be_behind_one_that_was_sent_after_its_response(
    until: int, error_ns: int, sparse: bool
) -> None:
    calls = [append(1, 0, at=10), certain(2, at=1, until=until)]
    fits = until >= 10 - error_ns
    expected = [] if fits else [("unplaced-append", 2, -1, -1, 0)]
    assert found(calls, sparse=sparse, clock_error_ns=error_ns) == expected


@pytest.mark.parametrize("until", [9, 10])
@pytest.mark.parametrize("sparse", [False, True])
def test_an_append_cannot_be_in_a_hole_behind_one_that_was_sent_after_its_response(
    until: int, sparse: bool
) -> None:
    calls = [append(1, 0, at=10), append(3, 2, at=20), certain(2, at=1, until=until)]
    assert found(calls, sparse=sparse) == (
        [] if until == 10 else [("unplaced-append", 2, 1, -1, 0)]
    )


@pytest.mark.parametrize("until", [4, 5])
def test_a_log_end_shows_less_than_an_append(until: int) -> None:
    """The log ended at 0 when op 3 was sent. Op 2 had been acknowledged before, or it was in flight."""
    calls = [certain(2, at=1, until=until), latest(3, 0, at=5)]
    assert found(calls) == ([] if until == 5 else [("unplaced-below-end", 2, -1, -1, 0)])


@pytest.mark.parametrize("until", [4, 5])
def test_a_log_end_at_the_end_of_the_known_log_bounds_what_is_beyond(until: int) -> None:
    calls = [append(1, 0, at=1), latest(3, 1, at=5), certain(2, at=1, until=until)]
    assert found(calls) == ([] if until == 5 else [("unplaced-below-end", 2, -1, -1, 0)])


@pytest.mark.parametrize("until", [4, 5])
def test_a_log_end_below_a_hole_shows_less_than_an_append(until: int) -> None:
    """The hole is at offset 1. The log ended at 1 when op 3 was sent."""
    calls = [append(1, 0, at=1), append(4, 2, at=20), certain(2, at=1, until=until)]
    calls += [latest(3, 1, at=5)]
    assert found(calls) == ([] if until == 5 else [("unplaced-below-end", 2, 1, -1, 0)])


def test_the_append_that_was_acknowledged_first_goes_first() -> None:
    """Op 2 was acknowledged before op 1 was sent: it is at offset 0, and op 3 behind op 1."""
    calls = [certain(3, at=1, until=30), certain(2, at=2, until=8), append(1, 1, at=20)]
    assert found(calls) == []
    calls += [append(4, 2, at=40)]
    assert found(calls) == [("unplaced-append", 3, -1, -1, 0)]
    assert found([*calls, append(5, 4, at=50)]) == [("unplaced-append", 3, 3, -1, 0)]


def test_what_is_sent_too_late_for_a_hole_leaves_it_empty() -> None:
    """Op 2 was sent at 30; the hole at offset 0 was filled by 6. In a sparse log it may stay empty."""
    calls = [append(1, 1, at=5), certain(2, at=30, until=31)]
    assert found(calls) == [("hole-before-append", -1, 0, 1, 1)]
    assert found(calls, sparse=True) == []
    assert found([append(1, 1, at=5), certain(2, at=6, until=31)]) == []


def test_an_append_of_unknown_outcome_may_be_dropped() -> None:
    """Only op 2 must be somewhere, and it is in the hole."""
    calls = [append(1, 1, at=10), certain(2, at=1, until=2), unknown(3, at=0)]
    assert found(calls) == []
    assert found([append(1, 0, at=10), unknown(3, at=0)]) == []


def skipping(*offsets: int) -> Call:
    """A poll that returned the record of op 10 + offset at some offsets, and nothing in between."""
    records = tuple((offset, 10 + offset) for offset in offsets)
    return Call(op=9, kind="poll", process=9, inv=40, res=41, position=offsets[0], records=records)


@pytest.mark.parametrize(
    ("read_offsets", "fits"),
    [((), True), ((0,), True), ((0, 2), True), ((2, 4), True), ((0, 2, 4), False)],
)
def test_what_a_read_skipped_in_a_sparse_log_stays_empty(
    read_offsets: tuple[int, ...], fits: bool
) -> None:
    """Op 2 was acknowledged at 9, before the record at offset 4 was sent: it is at offset 1 or 3."""
    calls = [append(10, 0, at=1), append(12, 2, at=1), append(14, 4, at=20)]
    calls += [certain(2, at=1, until=9), *([skipping(*read_offsets)] if read_offsets else [])]
    expected = [] if fits else [("unplaced-append", 2, -1, -1, 0)]
    assert found(calls, sparse=True) == expected


@pytest.mark.parametrize(
    ("sent_at", "until", "offset"), [(1, 2, 1), (1, 19, 1), (1, 20, None), (32, 33, None)]
)
def test_an_append_may_be_at_an_offset_far_from_all_that_are_known(
    sent_at: int, until: int, offset: int | None
) -> None:
    """Op 10 was sent at 20. So op 2 is behind it, and before or behind the record far away."""
    calls = [append(10, 0, at=20), append(12, FAR, at=20), certain(2, at=sent_at, until=until)]
    expected = [] if offset is None else [("unplaced-append", 2, offset, -1, 0)]
    assert found(calls, sparse=True) == expected
    # Without op 10, it may be before all others.
    assert found(calls[1:], sparse=True) == []


@pytest.mark.parametrize(("until", "fits"), [(4, False), (5, True)])
def test_a_log_end_far_from_all_that_is_known_bounds_what_is_beyond(until: int, fits: bool) -> None:
    """A read skipped all offsets between the only two records. The log ended there when op 3 was sent, at 5."""
    calls = [append(10, 0, at=1), append(10 + FAR, FAR, at=1), latest(3, FAR + 1, at=5)]
    calls += [skipping(0, FAR)]
    calls += [certain(2, at=1, until=until)]
    expected = [] if fits else [("unplaced-below-end", 2, -1, -1, 0)]
    assert found(calls, sparse=True) == expected
    assert found([*calls[:2], *calls[3:], append(13, FAR + 1, at=5)], sparse=True) == (
        [] if fits else [("unplaced-append", 2, -1, -1, 0)]
    )


@pytest.mark.parametrize(("position", "fits"), [(0, False), (1, False), (2, True), (3, True)])
def test_what_a_read_skipped_between_two_records_far_apart_stays_empty(
    position: int, fits: bool
) -> None:
    """Op 2 was acknowledged before the record far away was sent, so it is between the two records."""
    calls = [append(10, 0, at=1), append(10 + FAR, FAR, at=20), certain(2, at=1, until=9)]
    skip = skipping(*([0] if position == 0 else []), FAR)
    if position:
        skip = replace(skip, position=position)
    expected = [] if fits else [("unplaced-append", 2, -1, -1, 0)]
    assert found([*calls, skip], sparse=True) == expected


def test_a_sparse_log_without_such_appends_has_no_holes() -> None:
    calls = [append(1, 1, at=5), unknown(2, at=1)]
    for sparse, holes in ((True, 0), (False, 1)):
        report = check_tables(
            operations_table(calls), records_table(calls), ends_table(calls), Options(sparse=sparse)
        )
        assert report.holes.count == holes


# --- logs that do not start at 0 ---

BELOW = Holes(
    first=np.array([0]),
    length=np.array([5]),
    order_absent_ns=np.array([-FAR]),
    latest_absent_ns=np.array([-FAR]),
    earliest_present_ns=np.array([FAR]),
)
"""Offsets 0 to 4, where an append may be at any time."""
NOWHERE = Tail(order_absent_ns=FAR, latest_absent_ns=FAR)
"""Nothing is left for appends that were acknowledged."""


def placed(
    calls: list[Call], holes: Holes, *, below: Holes = BELOW, sparse: bool = False
) -> list[tuple[str, int, int, int, int]]:
    """Returns what does not fit: identifier, operation, both offsets and the gap."""
    history = read_history(operations_table(calls), records_table([]), ends_table([]))
    free = np.arange(len(calls))
    findings = fit_free_appends(history, free, holes, tail=NOWHERE, below=below, sparse=sparse)
    return [
        (f.id, int(f.first[0]), int(f.offset[0]), int(f.other[0]), int(f.gap_ns[0]))
        for f in findings
    ]


@pytest.mark.parametrize(
    ("sent_ns", "acked_ns", "expected"),
    [
        (1, 9, ["unplaced-append"]),
        (1, 10, ["unplaced-below-end"]),
        (1, 19, ["unplaced-below-end"]),
        (1, 20, []),
        (30, 40, []),
        (31, 40, ["hole-before-append"]),
    ],
)
def test_a_hole_above_the_start_is_filled_in_its_time(
    sent_ns: int, acked_ns: int, expected: list[str]
) -> None:
    """Offset 7 did not exist at 10, was not below the log end at 20, and existed at 30."""
    calls = [certain(3, at=sent_ns, until=acked_ns)]
    hole = ranges([7], [1])
    assert [one[0] for one in placed(calls, hole)] == expected
    # The log of a producer that sends again may have nothing there, and below its start there is room.
    assert placed(calls, hole, sparse=True) == []
    found = placed(calls, hole)
    if expected and expected != ["hole-before-append"]:
        assert found[0][1:3] == (3, 7)


def test_the_hole_that_lacks_an_append_is_counted() -> None:
    """Offsets 7 and 9 existed at 30 and 31. One of two appends was sent in time."""
    holes = ranges([7, 9], [1, 1])
    calls = [certain(3, at=1, until=40), certain(4, at=32, until=40)]
    assert placed(calls, holes) == [("hole-before-append", -1, 7, 2, 1)]
    assert placed([calls[0], certain(4, at=31, until=40)], holes) == []
    assert placed(calls[:1], holes) == [("unfilled-hole", -1, 7, 2, 1)]


def test_what_contradicts_the_order_is_named_before_what_contradicts_a_log_end() -> None:
    """Offset 7 is the only place. A log end excludes it for both appends, and one of them has none anyway."""
    calls = [certain(3, at=1, until=12), certain(4, at=1, until=15)]
    found = placed(calls, ranges([7], [1]), below=Holes.none())
    assert [one[:2] for one in found] == [("unplaced-append", 4)]
    later = [certain(3, at=1, until=12), certain(4, at=1, until=2 * FAR)]
    found = placed(later, ranges([7], [1]), below=Holes.none())
    assert [one[:2] for one in found] == [("unplaced-below-end", 3)]


@pytest.mark.parametrize("start", [0, 1])
def test_the_offset_at_which_a_log_starts_is_no_place_below_it(start: int) -> None:
    """Two appends were complete when the one at offset 2 was sent, and only offset 1 is free."""
    calls = [append(0, 0, at=1), certain(3, at=2, until=4), certain(4, at=2, until=5)]
    calls.append(append(2, 2, at=8))
    tables = operations_table(calls), records_table(calls), ends_table(calls)
    report = check_tables(*tables, Options(log_start_offset=start))
    assert [f.id for f in report.findings] == ["unplaced-append"]
    assert report.holes.count == 1


# --- what is assumed if it is not said ---


def test_a_log_is_dense_clocks_are_exact_and_real_time_holds_unless_it_is_said() -> None:
    """Op 2 was acknowledged at 9; op 1 was sent at 10. In the other history a log end at 10 follows it."""
    behind_an_append = [append(1, 0, at=10), certain(2, at=1, until=9)]
    behind_an_end = [certain(2, at=1, until=9), latest(3, 0, at=10)]
    for calls, identifier in (
        (behind_an_append, "unplaced-append"),
        (behind_an_end, "unplaced-below-end"),
    ):
        history = read_history(operations_table(calls), records_table(calls), ends_table(calls))
        facts, _ = derive_facts(history)
        findings, _ = check_free_appends(history, facts)
        assert [f.id for f in findings] == [identifier]
        for holds in (RealTimeHolds(order=False), RealTimeHolds(fresh=False)):
            findings, _ = check_free_appends(history, facts, holds=holds)
            is_found = holds.order and (holds.fresh or identifier == "unplaced-append")
            assert [f.id for f in findings] == ([identifier] if is_found else [])
        assert check_free_appends(history, facts, clock_error_ns=1)[0] == []
    with_a_hole = operations_table([append(1, 1, at=10)])
    history = read_history(with_a_hole, records_table([]), ends_table([]))
    findings, _ = check_free_appends(history, derive_facts(history)[0])
    assert [f.id for f in findings] == ["unfilled-hole"]
    none = np.empty(0, dtype=np.int64)
    tail = Tail(order_absent_ns=0, latest_absent_ns=0)
    (finding,) = fit_free_appends(history, none, ranges([3], [1]), tail=tail)
    assert finding.id == "unfilled-hole"


@pytest.mark.parametrize(
    ("sent_twice", "present"), [(None, [5, 5]), (False, [5, 5]), (True, [5, 101])]
)
def test_a_read_of_a_copy_does_not_date_the_append_back(
    sent_twice: bool | None, present: list[int]
) -> None:
    """Op 0 succeeded at 5 and was read at offset 1 at 101. Op 2, invoked at 10, is the only one for offset 0.

    If producers send twice, the acknowledged record may be at offset 0, which existed at 5 in any case.
    """
    calls = [certain(0, at=1, until=5), unknown(2, at=10), read(9, 100, 0, start=1)]
    history = read_history(operations_table(calls), records_table(calls), ends_table(calls))
    facts, _ = derive_facts(history)
    more = {} if sent_twice is None else {"sent_twice": sent_twice}
    assert earliest_present(history, facts, 0, **more).tolist() == present
    findings, _ = check_free_appends(history, facts, sent_again=bool(sent_twice), **more)
    assert [each.id for each in findings] == ([] if sent_twice else ["hole-before-append"])


@pytest.mark.parametrize(
    ("first_append", "end_at", "expected"),
    [
        (None, 9, ["unfilled-hole"]),
        (replace(unknown(2, at=8), outcome="fail"), 9, ["unfilled-hole"]),
        (unknown(2, at=11), 9, ["hole-before-append"]),
        (unknown(2, at=10), 9, []),
        (unknown(2, at=11), 10, []),
    ],
)
def test_a_record_that_was_sent_again_was_sent_before(
    first_append: Call | None, end_at: int, expected: list[str]
) -> None:
    """A log end shows one record at `end_at` + 1; the append, sent again, is the only one that may be it."""
    calls = [latest(1, 1, at=end_at), *([first_append] if first_append else [])]
    history = read_history(operations_table(calls), records_table(calls), ends_table(calls))
    facts, _ = derive_facts(history)
    more = {"sent_again": True, "sent_twice": True}
    findings, _ = check_free_appends(history, facts, **more)
    assert [each.id for each in findings] == expected
    for each in findings:
        assert (each.offset.tolist(), each.other.tolist(), each.gap_ns.tolist()) == ([0], [1], [1])
    assert check_free_appends(history, facts, sparse=True, **more)[0] == []


def test_producers_send_once_unless_it_is_said() -> None:
    """Two records that nobody sent: with producers that send again, one would explain both."""
    history = read_history(
        operations_table([latest(1, 2, at=1)]), records_table([]), ends_table([])
    )
    facts, _ = derive_facts(history)
    ((once,), _), ((again,), _) = (
        check_free_appends(history, facts, **more) for more in ({}, {"sent_twice": True})
    )
    assert (once.other.tolist(), again.other.tolist()) == ([2], [1])
