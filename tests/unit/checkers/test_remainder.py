"""What a slice keeps of its rows if something is wrong with a partition."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from checkers.kernels.history import I64, read_history
from checkers.kernels.left_out import NOTHING
from checkers.kernels.remainder import Kept, keep
from checkers.kernels.suspects import Plan, Rules
from tests.anomalies.runs import append, read
from tests.property.brute_force import Call, ends_table, operations_table, records_table

EMPTY = np.empty(0, dtype=np.int64)


def ints(*values: int) -> I64:
    return np.array(values, dtype=np.int64)


NO_PLAN = Plan(
    offsets=EMPTY,
    ops=EMPTY,
    points=EMPTY,
    late_offset=EMPTY,
    late_ns=EMPTY,
    stale_offset=EMPTY,
    stale_ns=EMPTY,
    swapped=EMPTY,
    keeps_swapped=False,
    every_end=False,
    left_out=NOTHING,
    ignored=0,
)


def kept(calls: list[Call], rules: Rules | None = None, **plan: Any) -> Kept:
    tables = {
        "operations": operations_table(calls),
        "records_read": records_table(calls),
        "end_offsets_seen": ends_table(calls),
    }
    arrays = {
        name: value if isinstance(value, bool) else ints(*value) for name, value in plan.items()
    }
    history = read_history(*tables.values())
    return keep(tables, history, replace(NO_PLAN, **arrays), rules or Rules())


def ops(calls: list[Call], rules: Rules | None = None, **plan: Any) -> list[int]:
    """Returns the operations that are kept."""
    found: list[int] = (
        kept(calls, rules, **plan).tables["operations"].column("op_index").to_pylist()
    )
    return found


def log_end(op: int, end: int, *, at: int) -> Call:
    return Call(op=op, kind="latest", process=98, inv=at, res=at + 1, offset=end)


def by(process: int, call: Call) -> Call:
    return replace(call, process=process)


@pytest.mark.parametrize(
    ("offset", "is_kept"), [(-3, True), (-1, True), (0, False), (2**62, False), (2**62 + 1, True)]
)
def test_records_at_offsets_that_cannot_be_are_kept(offset: int, is_kept: bool) -> None:
    poll = replace(read(5, 1), records=((offset, 7),))
    found = kept([poll, read(6, 3, 8, start=4)])
    assert found.tables["records_read"].column("offset").to_pylist() == [offset] * is_kept
    assert found.tables["operations"].column("op_index").to_pylist() == [5] * is_kept


def test_records_at_suspects_are_kept_with_their_polls() -> None:
    calls = [read(5, 1, 7, 8, end=2), read(6, 3, 7), read(7, 5)]
    found = kept(calls, offsets=[1])
    assert found.tables["records_read"].column("value").to_pylist() == [8]
    assert found.tables["operations"].column("op_index").to_pylist() == [5]
    assert found.tables["end_offsets_seen"].column("op_index").to_pylist() == [5]


@pytest.mark.parametrize(
    ("records", "offsets", "expected"),
    [
        # The last record that a poll returned is left out: it is known from the poll alone.
        ((7, 8), [0], [(5, 1)]),
        ((7, 8), [1], []),
        ((7, 8), [0, 1], []),
        ((7,), [3], [(5, 0)]),
        ((), [3], []),
    ],
)
def test_the_last_offset_of_a_poll_is_kept_if_its_record_is_not(
    records: tuple[int, ...], offsets: list[int], expected: list[tuple[int, int]]
) -> None:
    calls = [read(4, 1, 7, start=9), read(5, 1, *records, end=9)]
    found = kept(calls, offsets=offsets, every_end=True)
    assert list(zip(found.poll_op.tolist(), found.poll_last.tolist(), strict=True)) == expected


def test_appends_are_kept_that_are_at_suspects_or_named() -> None:
    calls = [
        append(0, 0, at=1),
        append(1, 1, at=1),
        replace(append(2, 1, at=1), outcome="info", res=None),
        append(3, 1, at=1),
        append(4, None, at=1),
    ]
    assert ops(calls, offsets=[1]) == [1, 3]
    assert ops(calls, ops=[0, 2]) == [0, 2]
    assert ops(calls) == []


@pytest.mark.parametrize(
    ("suspects", "expected"),
    [
        # The first and the last append of the process, and the neighbours of suspects.
        ([], [10, 16]),
        ([10], [10, 11, 16]),
        ([13], [10, 12, 13, 14, 16]),
        ([16], [10, 15, 16]),
        ([12, 13], [10, 11, 12, 13, 14, 16]),
    ],
)
def test_neighbours_of_suspects_are_kept_if_their_process_swapped_appends(
    suspects: list[int], expected: list[int]
) -> None:
    """Appends 10 to 16 are of process 7, those of another process and unacknowledged ones are in between."""
    calls = [by(7, append(op, op, at=op)) for op in range(10, 17)]
    calls += [by(8, append(op + 10, op + 10, at=op)) for op in range(10, 17)]
    calls.append(by(7, append(40, None, at=13)))
    calls.append(by(7, append(5, None, at=13)))
    assert ops(calls, offsets=suspects, swapped=[7]) == expected
    assert ops(calls, offsets=suspects) == suspects
    both = ops(calls, offsets=suspects, swapped=[7, 8])
    assert both == [*expected, 20, 26]


def test_a_process_with_one_append_keeps_it() -> None:
    calls = [by(7, append(0, 0, at=1)), by(8, append(1, 1, at=1)), by(9, append(2, 2, at=1))]
    assert ops(calls, swapped=[8]) == [1]
    assert ops(calls, swapped=[7, 9]) == [0, 2]


# --- log ends ---

ENDS = [log_end(op, end, at=10 * op) for op, end in ((1, 3), (2, 5), (3, 5), (4, 8))]
"""They prove offsets 2, 4, 4 and 7 at 11, 21, 31 and 41 ns."""


@pytest.mark.parametrize(
    ("offset", "late_ns", "expected"),
    [
        ([4], [21], []),
        ([4], [22], [2]),
        ([4], [32], [2, 3]),
        ([2, 7], [12, 41], [1]),
        ([2, 7], [12, 42], [1, 4]),
        ([2, 4, 7], [0, 22, 99], [2, 4]),
        ([3, 5, 8], [99, 99, 99], []),
        ([6], [99], []),
    ],
)
def test_log_ends_are_kept_that_proved_an_offset_too_early(
    offset: list[int], late_ns: list[int], expected: list[int]
) -> None:
    assert ops(ENDS, late_offset=offset, late_ns=late_ns) == expected


@pytest.mark.parametrize(
    ("offset", "stale_ns", "error_ns", "expected"),
    [
        ([5], [20], 0, [3]),
        ([5], [19], 0, [2, 3]),
        ([5], [30], 0, []),
        ([5], [19], 1, [3]),
        ([5], [18], 1, [2, 3]),
        ([3, 8], [9, 39], 0, [1, 4]),
        ([3, 8], [10, 40], 0, []),
        ([2, 4, 7], [0, 0, 0], 0, []),
    ],
)
def test_log_ends_are_kept_that_were_too_small_too_late(
    offset: list[int], stale_ns: list[int], error_ns: int, expected: list[int]
) -> None:
    rules = Rules(clock_error_ns=error_ns)
    assert ops(ENDS, rules, stale_offset=offset, stale_ns=stale_ns) == expected


def test_every_log_end_is_kept_if_that_is_asked_for() -> None:
    assert ops(ENDS, every_end=True) == [1, 2, 3, 4]
    assert ops(ENDS) == []


# --- bounds ---


@pytest.mark.parametrize(
    ("points", "suspects", "expected"),
    [
        # Append 10 is the last that began at or below offset 0; append 11 proves offset 0 first, by being at 1.
        ([0], [], [10, 11]),
        ([1], [], [10, 11]),
        ([2], [], [10, 12]),
        ([3], [], [10]),
        # Without the suspects the next best ones count.
        ([1], [1], [10, 11, 12]),
    ],
)
def test_appends_are_kept_that_prove_most_about_a_point(
    points: list[int], suspects: list[int], expected: list[int]
) -> None:
    """Append 10 began at 20 ns; appends 11 and 12 ended at 6 and 16 ns. The log starts at 3."""
    calls = [append(10, 0, at=20), append(11, 1, at=5), append(12, 2, at=15)]
    for rules in (Rules(), Rules(log_start_offset=3)):
        assert ops(calls, rules, points=points, offsets=suspects) == expected


@pytest.mark.parametrize(("point", "start"), [(0, 0), (1, 0), (2, 0), (2, 2), (2, 3)])
def test_log_ends_are_kept_that_prove_most_about_a_point(point: int, start: int) -> None:
    """The log end of 2 bounds offset 2 from below, and shows that offset 1 existed."""
    rules = Rules(log_start_offset=start)
    assert ops([log_end(5, 2, at=1)], rules, points=[point]) == [5]


@pytest.mark.parametrize(
    ("point", "start", "expected"), [(0, 0, [5]), (2, 0, [5]), (3, 0, []), (2, 3, [5])]
)
def test_polls_are_kept_that_prove_most_about_a_point(
    point: int, start: int, expected: list[int]
) -> None:
    """Poll 5 returned offset 2 first."""
    calls = [read(5, 1, 8, start=2), read(6, 9, 8, start=2)]
    assert ops(calls, Rules(log_start_offset=start), points=[point]) == expected


# --- final reads ---


@pytest.mark.parametrize(
    ("offset", "expected"), [(0, [5]), (1, [5]), (2, [6]), (3, [6]), (9, [8]), (4, [8])]
)
def test_of_the_final_polls_the_last_one_from_below_may_show_that_a_suspect_is_gone(
    offset: int, expected: list[int]
) -> None:
    """Polls from 0, 2 and 4 returned one record each; those from 1 and 3 returned nothing, or failed."""
    calls = [
        read(5, 1, 10, final=True),
        read(6, 3, 12, start=2, final=True),
        read(7, 5, start=1, final=True),
        read(8, 7, 14, start=4, final=True),
        replace(read(9, 9, 13, start=3, final=True), outcome="fail", records=()),
        read(10, 11, start=0),
    ]
    found = kept(calls, offsets=[offset]).tables["operations"].column("op_index").to_pylist()
    assert found == expected


def test_no_final_poll_from_below_shows_anything_of_a_suspect() -> None:
    assert ops([read(5, 1, 10, start=3, final=True)], offsets=[1]) == []


# --- members of groups ---


@pytest.mark.parametrize(
    ("position", "is_kept"), [(0, True), (2, True), (3, False), (5, False), (-1, False)]
)
def test_polls_are_kept_with_which_a_member_moved_back(position: int, is_kept: bool) -> None:
    """Member 7 has read up to offset 2 with its second poll. How far it was before the first one is not known."""
    polls = [
        by(7, read(2, 1, 10, 11)),
        by(7, read(4, 3, 12, start=2)),
        by(7, replace(read(6, 5, start=0), position=position)),
    ]
    assert ops(polls, Rules(members=(7,))) == [2, *([6] if is_kept else [])]


def test_the_first_poll_of_each_member_is_kept() -> None:
    """Member 9 goes on behind what member 7 read, and process 8 is no member."""
    calls = [
        by(7, read(2, 1, 10, 11, 12)),
        by(8, read(3, 1, 10)),
        by(9, read(4, 3, 13, start=3)),
        by(7, read(5, 4, 13, start=3)),
        by(9, read(6, 5, 14, start=4)),
        by(9, read(7, 7, 13, start=3)),
    ]
    assert ops(calls, Rules(members=(7, 9))) == [2, 4, 7]
    assert ops(calls) == []


def test_no_poll_is_kept_whose_member_had_no_position_yet() -> None:
    polls = [by(7, replace(read(op, op), position=-1)) for op in (1, 3)]
    assert ops([*polls, by(7, read(5, 5))], Rules(members=(7,))) == []
