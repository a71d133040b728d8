"""The order of one process's appends, and of the records within one poll."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from checkers.kernels.facts import derive_facts
from checkers.kernels.history import I64, PartitionHistory, read_history
from checkers.kernels.sequences import (
    check_poll_order,
    check_producer_order,
    process_codes,
    swaps_of,
)
from tests.anomalies.runs import append, read
from tests.property.brute_force import Call, ends_table, operations_table, records_table


def ints(*values: int) -> I64:
    return np.array(values, dtype=np.int64)


def history(calls: list[Call], without: Sequence[int] = ()) -> PartitionHistory:
    """Returns a history; the operations `without` are not in the table of operations."""
    known = [call for call in calls if call.op not in without]
    return read_history(operations_table(known), records_table(calls), ends_table(known))


def by(process: int, call: Call) -> Call:
    return replace(call, process=process)


@pytest.mark.parametrize(
    ("processes", "name"),
    [
        ((), "uint8"),
        ((0,), "uint8"),
        ((255, 0), "uint8"),
        ((256,), "uint16"),
        ((400, 3), "uint16"),
        ((65535,), "uint16"),
        ((65536,), "int64"),
        ((-1, 5), "int64"),
        ((2**62, 0), "int64"),
    ],
)
def test_process_numbers_keep_their_values_in_the_smallest_type(
    processes: tuple[int, ...], name: str
) -> None:
    codes = process_codes(ints(*processes))
    assert codes.dtype.name == name
    assert codes.tolist() == list(processes)


def unknown(op: int, *, at: int, process: int) -> Call:
    return replace(append(op, None, at=at, outcome="info"), res=None, process=process)


def shown(op: int, at: int, offset: int, value: int) -> Call:
    return replace(read(op, at), position=offset, records=((offset, value),))


Swapped = list[tuple[int, int, int, int]]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([by(7, append(0, 3, at=1)), by(7, append(1, 4, at=3))], []),
        ([by(7, append(0, 3, at=1)), by(7, append(1, 3, at=3))], [(0, 1, 3, 3)]),
        ([by(7, append(0, 4, at=1)), by(7, append(1, 3, at=3))], [(0, 1, 4, 3)]),
        ([by(7, append(0, 4, at=1)), by(8, append(1, 3, at=3))], []),
        # Each append is compared with the one before it of the same process, also if others sent in between.
        (
            [by(7, append(0, 4, at=1)), by(8, append(1, 9, at=3)), by(7, append(2, 3, at=5))],
            [(0, 2, 4, 3)],
        ),
        (
            [by(7, append(op, at, at=1 + op)) for op, at in enumerate((5, 4, 6, 2))],
            [(0, 1, 5, 4), (2, 3, 6, 2)],
        ),
        # The place of the later append is known from a read.
        (
            [by(7, append(0, 4, at=1)), unknown(1, at=3, process=7), shown(2, 9, 3, 1)],
            [(0, 1, 4, 3)],
        ),
        (
            [by(7, append(0, 4, at=1)), unknown(1, at=3, process=7), shown(2, 9, 4, 1)],
            [(0, 1, 4, 4)],
        ),
        ([by(7, append(0, 4, at=1)), unknown(1, at=3, process=7), shown(2, 9, 5, 1)], []),
        ([by(7, append(0, 4, at=1)), unknown(1, at=3, process=8), shown(2, 9, 3, 1)], []),
        # It was sent before the other one, or it is not the neighbour.
        ([unknown(0, at=1, process=7), by(7, append(1, 4, at=3)), shown(2, 9, 5, 0)], []),
        ([unknown(0, at=1, process=7), by(7, append(1, 4, at=3)), shown(2, 9, 3, 0)], []),
        (
            [
                by(7, append(0, 9, at=1)),
                by(7, append(1, 2, at=3)),
                unknown(2, at=5, process=7),
                shown(3, 9, 5, 2),
            ],
            [(0, 1, 9, 2)],
        ),
        (
            [
                by(6, append(0, 9, at=1)),
                by(7, append(1, 8, at=3)),
                unknown(2, at=5, process=7),
                shown(3, 9, 5, 2),
            ],
            [(1, 2, 8, 5)],
        ),
        # Process numbers so large that they overflow.
        (
            [
                by(2**62, append(0, 4, at=1)),
                unknown(1, at=3, process=2**62),
                unknown(2, at=3, process=2**61),
                shown(3, 9, 3, 1),
                shown(4, 9, 2, 2),
            ],
            [(0, 1, 4, 3)],
        ),
    ],
)
def test_an_append_is_compared_with_the_one_that_its_process_sent_before(
    calls: list[Call], expected: Swapped
) -> None:
    given = history(calls)
    facts, _ = derive_facts(given)
    swaps = swaps_of(given, facts)
    columns = (
        given.append_op[swaps.earlier],
        given.append_op[swaps.later],
        swaps.earlier_offset,
        swaps.later_offset,
    )
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected


@pytest.mark.parametrize(
    ("sent_at", "identifier"),
    [(4, "reordered-send"), (5, "nonmonotonic-send"), (6, "nonmonotonic-send")],
)
def test_two_appends_that_swapped_were_in_flight_at_once_or_not(
    sent_at: int, identifier: str
) -> None:
    """The first append was acknowledged at 5 ns; a process does not send the next one before."""
    calls = [by(7, replace(append(0, 4, at=1), res=5)), by(7, append(1, 3, at=sent_at))]
    given = history(calls)
    facts, _ = derive_facts(given)
    (found,) = check_producer_order(given, facts)
    assert (found.id, found.weak.tolist()) == (identifier, [False])


def test_records_of_one_batch_begin_together_even_if_the_clock_does_not_move_until_the_response() -> (
    None
):
    calls = [
        by(7, replace(append(0, 4, at=5), res=5)),
        by(7, replace(append(1, 3, at=5), res=5)),
    ]
    given = history(calls)
    facts, _ = derive_facts(given)
    assert [found.id for found in check_producer_order(given, facts)] == ["reordered-send"]


@pytest.mark.parametrize(
    ("sent_at", "expected"), [(4, []), (5, [("nonmonotonic-send", [1], [False])])]
)
def test_a_revealed_append_that_was_in_flight_at_once_with_another_one_promises_nothing(
    sent_at: int, expected: list[tuple[str, list[int], list[bool]]]
) -> None:
    calls = [by(7, replace(append(0, 4, at=1), res=5)), unknown(1, at=sent_at, process=7)]
    given = history([*calls, shown(2, 20, 3, 1)])
    facts, _ = derive_facts(given)
    found = check_producer_order(given, facts)
    assert [(each.id, each.second.tolist(), each.weak.tolist()) for each in found] == expected


@pytest.mark.parametrize(
    ("acks", "weak"), [((-1, 1), [True]), ((1, -1), [True]), ((-1, -1), [False])]
)
def test_a_swap_rests_on_acks_1_if_one_of_the_two_has_it(
    acks: tuple[int, int], weak: list[bool]
) -> None:
    calls = [by(7, append(op, 4 - op, at=1 + 5 * op, acks=acks[op])) for op in (0, 1)]
    given = history(calls)
    facts, _ = derive_facts(given)
    (found,) = check_producer_order(given, facts)
    assert (found.first.tolist(), found.second.tolist(), found.weak.tolist()) == ([0], [1], weak)


def sent_by_7(op: int, offset: int | None, inv: int, res: int) -> Call:
    return replace(append(op, offset, at=inv), res=res, process=7)


A_B_C = [sent_by_7(0, 2, 1, 5), sent_by_7(1, 0, 2, 20), sent_by_7(2, 1, 6, 9)]
"""The first one was acknowledged before the third one was sent; the second one was in flight with both."""


def out_of_order(calls: list[Call], error_ns: int = 50) -> list[tuple[str, int, int, int, int]]:
    given = history(calls)
    facts, _ = derive_facts(given)
    return sorted(
        (each.id, int(each.first[row]), int(each.second[row]), *places)
        for each in check_producer_order(given, facts, clock_error_ns=error_ns)
        for row in range(each.count)
        for places in [(int(each.offset[row]), int(each.other[row]))]
    )


def test_two_appends_that_are_no_neighbours_are_out_of_order_too_if_clocks_differ() -> None:
    """Smallest history; without a difference between clocks it is an `order-inversion`."""
    swapped = ("reordered-send", 0, 1, 2, 0)
    assert out_of_order(A_B_C) == [("nonmonotonic-send", 0, 2, 2, 1), swapped]
    assert out_of_order(A_B_C, 0) == [swapped]
    given = history(A_B_C)
    facts, _ = derive_facts(given)
    assert [each.id for each in check_producer_order(given, facts)] == ["reordered-send"]
    # A coarse clock does not show which was first.
    for res, found in ((5, True), (6, False), (7, False)):
        others = [sent_by_7(0, 2, 1, res), *A_B_C[1:]]
        assert (("nonmonotonic-send", 0, 2, 2, 1) in out_of_order(others)) is found
    assert out_of_order([by(8, A_B_C[0]), *A_B_C[1:]]) == []


@pytest.mark.parametrize(
    ("place", "known"),
    [
        (1, [("nonmonotonic-send", 0, 2, 2, 1)]),
        (2, [("nonmonotonic-send", 0, 2, 2, 2)]),
        (3, []),
    ],
)
def test_a_revealed_append_is_compared_with_all_that_were_acknowledged_before_it_was_sent(
    place: int, known: list[tuple[str, int, int, int, int]]
) -> None:
    calls = [*A_B_C[:2], unknown(2, at=6, process=7), shown(3, 30, place, 2)]
    found = [one for one in out_of_order(calls) if one[2] == 2]
    assert found == known


def test_of_several_that_were_acknowledged_before_the_last_place_counts() -> None:
    calls = [sent_by_7(0, 5, 1, 3), sent_by_7(1, 9, 2, 4), sent_by_7(2, 0, 2, 90)]
    calls += [sent_by_7(3, 7, 6, 8), sent_by_7(4, 8, 6, 9), by(8, append(5, 10, at=2))]
    assert out_of_order(calls) == [
        ("nonmonotonic-send", 1, 3, 9, 7),
        ("nonmonotonic-send", 1, 4, 9, 8),
        ("reordered-send", 1, 2, 9, 0),
    ]


@pytest.mark.parametrize("later", [0, None])
@pytest.mark.parametrize("error_ns", [0, 50])
def test_an_append_acknowledged_without_an_offset_is_where_it_was_read(
    later: int | None, error_ns: int
) -> None:
    """Smallest history: b was sent after a was acknowledged, and is before it in the log."""
    calls = [sent_by_7(0, None, 1, 5), sent_by_7(1, later, 6, 9)]
    reads = [shown(2, 30, 0, 1), shown(3, 30, 1, 0)]
    assert out_of_order([*calls, *reads], error_ns) == [("nonmonotonic-send", 0, 1, 1, 0)]
    given = history([*calls, *reads])
    facts, _ = derive_facts(given, sent_twice=True)
    assert check_producer_order(given, facts, clock_error_ns=error_ns, sent_twice=True) == []


def polled(*records: tuple[int, int], position: int, before: int = 0) -> list[tuple[int, int]]:
    """Returns operations and offsets that a poll returned twice or below its position.

    Args:
        records: Offsets and values that poll 50 returned, in this order.
        position: From where it polled.
        before: How many other polls are before it.
    """
    others = [read(op, 1 + op, 90 + op) for op in range(before)]
    poll = replace(read(50, 40), records=records, position=position)
    found = [each for each in check_poll_order(history([*others, poll])) if each.id[0] == "n"]
    return [
        pair
        for each in found
        for pair in zip(each.first.tolist(), each.offset.tolist(), strict=True)
    ]


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize(
    ("records", "position", "offsets"),
    [
        (((2, 0), (3, 1)), 2, []),
        (((2, 0), (3, 1)), 3, [2]),
        (((2, 0), (3, 1)), 4, [2, 3]),
        (((2, 0), (3, 1)), -1, []),
        (((2, 0), (2, 1)), 2, [2]),
        (((2, 0), (3, 1), (3, 2), (4, 3)), 2, [3]),
        (((2, 0), (2, 1), (3, 2)), 0, [2]),
        (((0, 0), (0, 1)), 0, [0]),
        ((), 2, []),
        (((0, 5),), 1, [0]),
    ],
)
def test_a_poll_returns_no_offset_twice_and_none_below_its_position(
    records: tuple[tuple[int, int], ...], position: int, offsets: list[int], before: int
) -> None:
    expected = [(50, offset) for offset in offsets]
    assert polled(*records, position=position, before=before) == expected


def test_two_polls_may_return_the_same_offset() -> None:
    given = history([read(0, 1, 7), read(1, 5, 7), read(2, 9, 7, 8), read(3, 11, 8, start=1)])
    assert check_poll_order(given) == []


def test_what_a_poll_returned_that_is_not_in_the_table_is_not_compared() -> None:
    unknown_poll = replace(read(0, 1), records=((2, 0), (2, 1), (3, 5)), position=9)
    assert check_poll_order(history([unknown_poll, read(1, 5, 7)], without=[0])) == []
    wrong = replace(read(1, 5), records=((2, 0), (2, 1)), position=2)
    (found,) = check_poll_order(history([unknown_poll, wrong], without=[0]))
    assert (found.first.tolist(), found.offset.tolist()) == ([1], [2])
    assert found.other.tolist() == [2]


def test_records_in_another_order_are_named_with_the_offset_before_them() -> None:
    poll = replace(read(5, 1), records=((1, 0), (0, 1), (2, 2)), position=0)
    (found,) = check_poll_order(history([poll]))
    assert (found.id, found.first.tolist()) == ("unordered-poll", [5])
    assert (found.offset.tolist(), found.other.tolist()) == ([0], [1])
