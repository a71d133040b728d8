"""Which elections may be missing from the recorded states of a partition."""

from dataclasses import replace
from typing import Any

import pytest

from checkers.kernels.metadata_gaps import (
    Gap,
    MetadataGaps,
    Shown,
    appended_epochs,
    shown_ends,
)
from tests.anomalies.runs import append, read, state
from tests.property.brute_force import operations_table, records_table

Row = dict[str, Any]
FOREVER_NS = 2**61
ANY_EPOCH = 2**31


def row(at: int, epoch: int, leader: int = 1, **more: Any) -> Row:
    return state(at, leader, [1, 2, 3], epoch=epoch, **more)


def gaps_in(
    rows: list[Row], shown: Shown, clock_error_ns: int = 0
) -> list[tuple[int, int, int, int, int]]:
    """Returns the index, the span of time, and the span of leader epochs of each gap."""
    found = MetadataGaps(rows, shown, clock_error_ns)
    gaps = [(index, found.before(index)) for index in range(len(rows) + 1)]
    assert found.may_hide_elections == any(gap is not None for _, gap in gaps)
    return [
        (index, gap.since_ns, gap.until_ns, gap.first_epoch, gap.last_epoch)
        for index, gap in gaps
        if gap is not None
    ]


BEGIN = row(10, 0)


def test_a_gap_begins_when_the_state_before_it_may_have_been_committed() -> None:
    for after_ns, since_ns in ((None, 20), (15, 15), (25, 20)):
        before = {**row(20, 1), "after_ns": after_ns}
        assert gaps_in([BEGIN, before, row(30, 3)], Shown())[0][1] == since_ns


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], []),
        ([BEGIN], []),
        ([BEGIN, row(20, 1), row(30, 2)], []),
        ([BEGIN, row(20, 2)], [(1, 10, 20, 1, 2)]),
        # The epochs without a leader and those with broker 0 as leader.
        ([BEGIN, row(20, 2, leader=-1)], [(1, 10, 20, 1, 1)]),
        ([BEGIN, row(20, 1, leader=-1)], []),
        ([BEGIN, row(20, 2, leader=0)], [(1, 10, 20, 1, 2)]),
        ([BEGIN, row(20, 2, flagged=True)], [(1, 10, 20, 1, 2)]),
        ([BEGIN, row(20, 1), row(30, 4)], [(2, 20, 30, 2, 4)]),
    ],
)
def test_a_step_of_more_than_one_leader_epoch_hides_elections(
    rows: list[Row], expected: list[tuple[int, int, int, int, int]]
) -> None:
    assert gaps_in(rows, Shown()) == expected


@pytest.mark.parametrize(
    ("partition_epoch", "leader_epoch", "leader", "expected"),
    [
        (1, 1, 1, []),
        (2, 0, 1, []),
        (2, 1, 1, [(1, 10, 20, 1, 1)]),
        (2, 1, -1, []),
        (3, 1, 1, [(1, 10, 20, 1, 1)]),
    ],
)
def test_a_step_of_more_than_one_partition_epoch_hides_elections_if_the_leader_epoch_changes(
    partition_epoch: int,
    leader_epoch: int,
    leader: int,
    expected: list[tuple[int, int, int, int, int]],
) -> None:
    rows = [BEGIN, row(20, leader_epoch, leader, partition_epoch=partition_epoch)]
    assert gaps_in(rows, Shown()) == expected


@pytest.mark.parametrize(
    ("first", "first_ns", "expected"),
    [
        (BEGIN, None, []),
        (row(10, 1), None, [(0, -FOREVER_NS, 10, 1, 1)]),
        (row(10, 2), None, [(0, -FOREVER_NS, 10, 1, 2)]),
        (row(10, 2, leader=-1), None, [(0, -FOREVER_NS, 10, 1, 1)]),
        # The flag is about the first row itself.
        (row(10, 1, flagged=True), None, []),
        (row(10, 2, flagged=True), None, [(0, -FOREVER_NS, 10, 1, 1)]),
        # A leader that was deposed before the first operation may have committed records since.
        (row(10, 2), 10, [(0, -FOREVER_NS, 10, 1, 2)]),
        (row(10, 2), 9, [(0, -FOREVER_NS, 10, 1, 2)]),
        (row(10, 0), 9, []),
    ],
)
def test_elections_may_be_missing_before_the_first_state(
    first: Row, first_ns: int | None, expected: list[tuple[int, int, int, int, int]]
) -> None:
    """The first operation was invoked at `first_ns`."""
    assert gaps_in([first], Shown(first_ns=first_ns)) == expected


@pytest.mark.parametrize(("clock_error_ns", "is_late"), [(0, False), (2, False), (3, True)])
def test_the_first_state_may_be_as_late_as_the_clocks_allow(
    clock_error_ns: int, is_late: bool
) -> None:
    found = MetadataGaps([row(10, 0)], Shown(first_ns=12), clock_error_ns)
    assert found.is_missing_before == [is_late, False]


@pytest.mark.parametrize(("epoch", "is_missing"), [(0, False), (1, True), (2, True)])
def test_states_are_complete_from_the_first_leader_epoch_on(epoch: int, is_missing: bool) -> None:
    found = MetadataGaps([row(10, epoch), row(20, epoch)], Shown())
    assert found.is_missing_before == [is_missing, False, False]


def test_clocks_agree_unless_an_error_is_given() -> None:
    assert MetadataGaps([row(10, 0)], Shown(first_ns=10)).is_missing_before == [False, False]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (Shown(), []),
        (Shown(epochs=(0, 1)), []),
        (Shown(epochs=(0, 2)), [(2, 20, FOREVER_NS, 2, 2)]),
        (Shown(epochs=(4, 5)), [(2, 20, FOREVER_NS, 2, 5)]),
        (Shown(ends_early=True), [(2, 20, FOREVER_NS, 2, ANY_EPOCH)]),
        # Clients would have been shown a newer epoch.
        (Shown(epochs=(0, 1), ends_early=True), []),
    ],
)
def test_elections_may_be_missing_after_the_last_state(
    shown: Shown, expected: list[tuple[int, int, int, int, int]]
) -> None:
    assert gaps_in([BEGIN, row(20, 1)], shown) == expected


STATES = [BEGIN, row(20, 0), row(30, 1), row(40, 3), row(50, 3)]
"""States between the last two leader epochs are missing."""


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (Shown(), [30, 30, 31, FOREVER_NS, FOREVER_NS]),
        (Shown(epochs=(3,)), [30, 30, 31, FOREVER_NS, FOREVER_NS]),
        (Shown(epochs=(4,)), [30, 30, 31, 51, 51]),
    ],
)
def test_a_leader_epoch_lasts_until_the_next_one_or_at_least_until_its_last_state(
    shown: Shown, expected: list[int]
) -> None:
    found = MetadataGaps(STATES, shown)
    assert [found.ends_ns(index) for index in range(5)] == expected


def test_the_last_leader_epoch_lasts_until_the_end_although_states_before_it_are_missing() -> None:
    found = MetadataGaps([BEGIN, row(20, 2)], Shown())
    assert found.before(1) == Gap(since_ns=10, until_ns=20, first_epoch=1, last_epoch=2)
    assert [found.ends_ns(index) for index in range(2)] == [11, FOREVER_NS]


def test_records_and_responses_to_reads_show_leader_epochs_and_log_ends() -> None:
    calls = [
        replace(append(0, 0, at=1), epoch=0),
        replace(append(1, None, at=2), outcome="info", epoch=7),
        append(2, 1, at=3),
        replace(read(3, 5, 0, 2, 9, 10, 2), epoch=3, stamps=(0, 4, 8, 9, -1)),
        replace(read(4, 6), epoch=2),
        replace(read(5, 7, 11, 12, start=7), epoch=3, stamps=(4, -1)),
        replace(read(6, 8, 13, start=20), epoch=-1, stamps=(1,)),
    ]
    records = records_table(calls, statuses={2: "corrupt", 3: "foreign"})
    shown = shown_ends(operations_table(calls), records)
    assert shown == {0: 1, 1: 21, 2: 0, 3: 9, 4: 8}
    backwards = operations_table(calls).take(list(range(len(calls)))[::-1])
    assert shown_ends(backwards, records) == shown
    assert shown_ends(operations_table(calls[:3]), records_table([])) == {}


def test_of_two_rows_of_one_read_the_last_one_shows_who_responded() -> None:
    calls = [replace(read(3, 5, 0), epoch=epoch) for epoch in (1, 2)]
    assert shown_ends(operations_table(calls), records_table(calls[:1])) == {1: 0, 2: 1}


def test_appends_show_the_epochs_that_their_producers_knew() -> None:
    calls = [
        replace(append(0, 0, at=9), epoch=2),
        replace(append(1, 1, at=4), epoch=2),
        replace(append(2, 2, at=6), epoch=0),
        replace(append(3, None, at=1), outcome="info", epoch=2),
        replace(append(4, None, at=1), outcome="info", epoch=7),
        append(5, 3, at=2),
        replace(read(6, 5, 0), epoch=3),
    ]
    assert appended_epochs(operations_table(calls)) == {0: 6, 2: 4}
    assert appended_epochs(operations_table([])) == {}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([BEGIN, row(20, 1), row(30, 2)], {1: 0, 2: 0}),
        ([BEGIN, row(20, 1, leader=2), row(30, 2, leader=2)], {2: 1}),
        ([row(10, 0, leader=0), row(20, 1, leader=0)], {1: 0}),
        # The ISR is another one, and the leader epoch is the same.
        ([BEGIN, row(20, 0), row(30, 1)], {1: 0}),
        # Nobody leads, or the leader was elected once more.
        ([BEGIN, row(20, 1, leader=-1), row(30, 2, leader=-1)], {}),
        ([BEGIN, row(20, 1, flagged=True), row(30, 2)], {2: 1}),
        # It may have been elected in states that are missing.
        ([BEGIN, row(20, 1), row(30, 3), row(40, 4)], {1: 0, 4: 3}),
        ([BEGIN, row(20, 2), row(30, 3)], {3: 2}),
    ],
)
def test_a_leader_comes_to_a_later_epoch_without_an_election_if_nothing_else_is_recorded(
    rows: list[Row], expected: dict[int, int]
) -> None:
    assert MetadataGaps(rows, Shown()).elected_in == expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([BEGIN, row(20, 1)], FOREVER_NS),
        ([BEGIN, row(20, 1), row(30, 2, leader=2)], 30),
        ([BEGIN, row(20, 1), row(30, 2), row(40, 3, leader=2)], 40),
        ([BEGIN, row(20, 1, leader=2), row(30, 2, leader=2)], 20),
        ([BEGIN, row(20, 1), row(30, 3)], 21),
    ],
)
def test_a_leader_leads_by_an_election_until_the_first_epoch_in_which_it_does_not(
    rows: list[Row], expected: int
) -> None:
    assert MetadataGaps(rows, Shown()).reign_ends_ns(0) == expected
