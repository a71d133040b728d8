"""What a replica's rows show about its log: growth without a report, turns, and which epoch wrote what."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from checkers.kernels.log_contents import (
    ANY_EPOCH,
    APPEND,
    OTHER,
    REPLICATE,
    Content,
    LogRows,
    contents_of,
)

Row = tuple[int, int, int, bool, bool]
"""End, epoch, kind, whether it leads, whether its process is down."""

DOWN = (False, True)
LEADS = (True, False)


def rows_of(
    *rows: Row, times: tuple[int, ...] = (), stopped: dict[int, int] | None = None
) -> LogRows:
    """Returns rows of one replica.

    Args:
        rows: The rows.
        times: When they were reported; row 0 at 10, row 1 at 20 and so on by default.
        stopped: Since when the log was not readable before a row.
    """
    at_ns = np.array(times or [10 * (1 + index) for index in range(len(rows))], dtype=np.int64)
    stopped_ns = at_ns.copy()
    for row, since in (stopped or {}).items():
        stopped_ns[row] = since
    columns: list[Any] = list(zip(*rows, strict=True))
    return LogRows(
        order=at_ns,
        at_ns=at_ns,
        stopped_ns=stopped_ns,
        end=np.array(columns[0], dtype=np.int64),
        high_watermark=np.zeros(len(rows), dtype=np.int64),
        epoch=np.array(columns[1], dtype=np.int64),
        kind=np.array(columns[2], dtype=np.int64),
        is_leader=np.array(columns[3], dtype=np.bool_),
        is_down=np.array(columns[4], dtype=np.bool_),
        has_started=np.zeros(len(rows), dtype=np.bool_),
        is_whole=True,
    )


def unreported_by_definition(rows: LogRows) -> list[tuple[int, int]]:
    found = []
    for row in range(1, len(rows.end)):
        if rows.end[row] <= rows.end[row - 1] or rows.kind[row] != OTHER:
            continue
        running = [one for one in range(row) if not rows.is_down[one]]
        if running and rows.is_leader[running[-1]]:
            found.append((running[-1], row))
    return found


def test_growth_of_a_leader_without_a_report_is_found_as_its_definition_says() -> None:
    kinds = [
        (end, 0, kind, leads, is_down)
        for end, kind in ((1, APPEND), (1, OTHER), (2, OTHER))
        for leads, is_down in ((True, False), (False, False), (False, True))
    ]
    counts = set()
    for rows in product(kinds, repeat=3):
        log = rows_of(*rows)
        last, at = log.unreported
        expected = unreported_by_definition(log)
        assert list(zip(last.tolist(), at.tolist(), strict=True)) == expected, rows
        counts.add(len(expected))
    assert counts == {0, 1}


def test_a_first_row_is_never_growth_without_a_report() -> None:
    last, at = rows_of((3, 0, OTHER, *LEADS)).unreported
    assert not len(last)
    assert not len(at)


@pytest.mark.parametrize(
    ("end", "epoch", "kind", "begin"),
    [
        (3, 1, APPEND, 2),
        (1, 1, APPEND, 0),
        (0, 1, APPEND, 0),
        (2, 2, APPEND, 1),
        (3, 0, APPEND, 0),
        (3, -1, APPEND, 0),
        (3, 1, OTHER, 0),
        (3, 1, REPLICATE, 0),
    ],
)
def test_an_append_in_a_first_row_shows_one_record_unless_it_is_the_first_epoch(
    end: int, epoch: int, kind: int, begin: int
) -> None:
    assert rows_of((end, epoch, kind, *LEADS)).grew_from(0) == begin


def test_later_rows_show_what_is_behind_the_row_before() -> None:
    assert rows_of((3, 1, APPEND, *LEADS), (5, 1, APPEND, *LEADS)).grew_from(1) == 3


def test_a_log_turns_where_it_is_cut_where_another_wrote_and_where_it_leads_anew() -> None:
    rows: tuple[Row, ...] = (
        (1, 0, APPEND, True, False),  # the first row
        (2, 0, APPEND, True, False),
        (3, 1, REPLICATE, False, False),  # another writer
        (4, 1, REPLICATE, False, False),
        (2, 1, OTHER, False, False),  # cut
        (3, 1, REPLICATE, False, False),  # grows after it
        (3, 2, OTHER, True, False),  # leads
        (3, 2, OTHER, True, False),
        (3, 3, OTHER, True, False),  # leads in another epoch
    )
    assert rows_of(*rows).turns.tolist() == [0, 2, 4, 5, 6, 8]


def test_a_copy_of_one_epoch_and_unknown_growth_of_the_next_have_different_writers() -> None:
    rows: tuple[Row, ...] = ((1, 0, REPLICATE, False, False), (2, 1, OTHER, False, False))
    assert rows_of(*rows).turns.tolist() == [0, 1]


def test_a_leader_of_two_rows_of_one_moment_turns_at_both() -> None:
    rows: tuple[Row, ...] = ((1, 0, APPEND, True, False),) * 3
    assert rows_of(*rows).turns.tolist() == [0]
    assert rows_of(*rows, times=(10, 20, 20)).turns.tolist() == [0, 2]
    assert rows_of(*rows, times=(10, 10, 20)).turns.tolist() == [0, 1]


def test_what_a_log_gained_while_it_was_not_readable_is_a_turn() -> None:
    rows: tuple[Row, ...] = ((1, 0, APPEND, True, False), (2, 0, APPEND, True, False))
    assert rows_of(*rows).turns.tolist() == [0]
    assert rows_of(*rows, stopped={1: 19}).turns.tolist() == [0, 1]


def ranges(content: Content) -> list[tuple[int, int, bool]]:
    return list(
        zip(content.start.tolist(), content.epoch.tolist(), content.is_exact.tolist(), strict=True)
    )


def at_end(*logs: LogRows, has_all_changes: bool = True) -> list[list[tuple[int, int, bool]]]:
    """Returns the last content of the logs of the brokers 1, 2 and so on."""
    found = contents_of(dict(enumerate(logs, 1)), has_all_changes=has_all_changes)
    return [ranges(contents[-1]) for contents in found.contents.values()]


def test_appends_are_of_their_epoch_and_a_copy_has_the_ranges_of_its_leader() -> None:
    leader = rows_of((1, 0, APPEND, *LEADS), (3, 2, APPEND, *LEADS))
    follower = rows_of(
        (1, 0, REPLICATE, False, False), (2, 2, REPLICATE, False, False), times=(11, 21)
    )
    assert at_end(leader, follower) == [[(0, 0, True), (1, 2, True)]] * 2


def test_a_leader_without_an_append_begins_at_its_log_end() -> None:
    one = rows_of((2, 0, APPEND, *LEADS), times=(10,))
    other = rows_of((1, 0, REPLICATE, False, False), (1, 1, OTHER, *LEADS), times=(12, 20))
    found = contents_of({1: one, 2: other}, has_all_changes=True)
    assert ranges(found.by_epoch[1]) == [(0, 0, True), (1, 1, True)]
    appended = rows_of((1, 0, REPLICATE, False, False), (3, 1, APPEND, *LEADS), times=(12, 20))
    found = contents_of({1: one, 2: appended}, has_all_changes=True)
    assert ranges(found.by_epoch[1]) == [(0, 0, True), (1, 1, True)]


def test_growth_of_unknown_cause_is_of_its_epoch_at_most() -> None:
    other = rows_of((1, 0, APPEND, *LEADS), (3, 5, OTHER, False, False))
    assert at_end(other) == [[(0, 0, True), (1, 5, False)]]


@pytest.mark.parametrize(("has_all_changes", "bound"), [(True, 1), (False, 5)])
def test_what_a_log_got_before_it_was_down_is_not_of_leaders_that_began_meanwhile(
    has_all_changes: bool, bound: int
) -> None:
    first = rows_of((1, 0, APPEND, *LEADS), (2, 1, APPEND, *LEADS), (3, 3, APPEND, *LEADS))
    down = rows_of(
        (1, 0, REPLICATE, False, False),
        (3, 5, OTHER, False, False),
        times=(12, 50),
        stopped={1: 25},
    )
    assert at_end(first, down, has_all_changes=has_all_changes)[1] == [
        (0, 0, True),
        (1, bound, False),
    ]


def test_a_row_that_grew_by_a_report_is_not_bounded_by_the_time_down() -> None:
    appended = rows_of((1, 0, APPEND, *LEADS), (2, 4, APPEND, *LEADS), stopped={1: 12})
    assert at_end(appended) == [[(0, 0, True), (1, 4, True)]]


def test_a_log_that_came_back_as_it_was_has_got_nothing() -> None:
    same = rows_of((2, 0, APPEND, *LEADS), (2, 0, OTHER, *LEADS), stopped={1: 12})
    assert at_end(same) == [[(0, 0, True)]]
    elected = rows_of((2, 0, APPEND, *LEADS), (2, 1, OTHER, *LEADS), stopped={1: 12})
    assert elected.turns.tolist() == [0, 1]
    assert at_end(elected) == [[(0, 0, True)]]
    assert at_end(elected, has_all_changes=False) == [[(0, 0, True)]]
    cut = rows_of((2, 0, APPEND, *LEADS), (1, 1, OTHER, False, False), stopped={1: 12})
    assert at_end(cut) == [[(0, 0, True)]]


def test_behind_the_cut_of_a_leader_copies_are_not_known_exactly() -> None:
    leader = rows_of((3, 1, APPEND, *LEADS), (2, 1, OTHER, *LEADS), (4, 1, APPEND, *LEADS))
    found = contents_of({1: leader}, has_all_changes=True)
    assert (2, 1, False) in ranges(found.by_epoch[1])
    assert len(found.by_term[1]) == 2
    assert ranges(found.by_term[1][-1])[-1] == (2, 1, True)
    steady = rows_of(
        (3, 1, APPEND, *LEADS), (3, 1, OTHER, *LEADS), (3, 1, OTHER, *LEADS), times=(1, 2, 2)
    )
    found = contents_of({1: steady}, has_all_changes=True)
    assert len(found.by_term[1]) == 1, "it was not cut"
    assert all(is_exact for start, _, is_exact in ranges(found.by_epoch[1]) if start)


def test_nothing_is_known_below_the_first_range() -> None:
    content = Content(start=np.array([2]), epoch=np.array([7]), is_exact=np.array([True]))
    epochs, is_exact = content.at(np.array([1, 2, 9]))
    assert epochs.tolist() == [ANY_EPOCH, 7, 7]
    assert is_exact.tolist() == [False, True, True]
    assert np.iinfo(np.int32).max < ANY_EPOCH
