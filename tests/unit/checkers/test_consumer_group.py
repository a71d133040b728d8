"""Consumer groups: which of several contradictions a finding is about, and what elections did to deliveries."""

from dataclasses import replace

import pytest

from checkers.kernels.compose import full_tables
from checkers.kernels.consumer_group import CONSUMER_GROUP
from checkers.kernels.partition_tables import PartitionTables
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Judgement
from tests.anomalies.runs import run
from tests.anomalies.test_group_anomalies import NOTHING_COMMITTED, Group, delivery, found, judged
from tests.anomalies.test_group_owners import Event, events

COMMIT: tuple[Event, ...] = (("commit-sent", 50, 0), ("commit-acknowledged", 50, 0))
"""Member 50 commits an offset."""


def owners(*rows: Event) -> list[tuple[str, int, str]]:
    """Returns judgement and count of every finding about owners, and the two members of its sentence."""
    given = events(*rows)
    for row in given:
        if row["event"] != "assigned":
            row["offset"] = 5
    tables = PartitionTables(full_tables(run([], group_events=given)))
    report = CONSUMER_GROUP.check(tables, RunContext())
    return [
        (one.judgement.value, one.count, one.sentence.partition("was assigned to ")[2])
        for one in report.findings
        if one.id == "double-ownership"
    ]


def has(member: int, generation: int) -> Event:
    return ("assigned", member, generation)


def test_two_members_that_take_turns_contradict_each_other_once() -> None:
    expected = [("forbidden", 1, "process 1 and to process 2")]
    assert owners(has(1, 4), has(2, 4)) == expected
    assert owners(has(1, 4), has(2, 4), has(1, 4)) == expected
    assert owners(has(1, 4), has(2, 4), has(1, 4), has(2, 4)) == expected


def test_the_first_of_several_undecided_contradictions_is_named() -> None:
    """Members 5 and 6 take turns in generation 2. The group was then forgotten before 3 was assigned in 3."""
    turns = [has(5, 2), has(6, 2), has(5, 2), has(6, 2), has(5, 2)]
    assert owners(*turns, has(1, 3), has(2, 3), has(9, 4), has(3, 3)) == [
        ("forbidden", 2, "process 5 and to process 6"),
        ("undecided", 1, "process 1 and to process 3"),
    ]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([has(1, 2), has(2, 1), has(3, 2)], [("undecided", 1, "process 1 and to process 3")]),
        (
            [has(1, 2), *COMMIT, has(2, 1), has(3, 2)],
            [("forbidden", 1, "process 1 and to process 3")],
        ),
        (
            [has(1, 2), has(2, 1), *COMMIT, has(3, 2)],
            [("undecided", 1, "process 1 and to process 3")],
        ),
        (
            [has(1, 2), has(2, 3), has(3, 2), *COMMIT],
            [("undecided", 1, "process 1 and to process 3")],
        ),
        (
            [has(1, 2), has(2, 3), *COMMIT, has(3, 2)],
            [("forbidden", 1, "process 1 and to process 3")],
        ),
        ([has(1, 0), has(2, 0)], [("forbidden", 1, "process 1 and to process 2")]),
        ([has(1, -1), has(2, -1)], []),
    ],
)
def test_a_group_that_committed_something_is_not_forgotten(
    rows: list[Event], expected: list[tuple[str, int, str]]
) -> None:
    assert owners(*rows) == expected


def test_a_generation_is_worst_where_nothing_explains_it() -> None:
    """Member 3 is the third owner. The group may have been forgotten after member 1, not after member 2."""
    rows = [has(1, 1), has(9, 2), has(2, 1), *COMMIT, has(3, 1)]
    assert owners(*rows) == [
        ("forbidden", 1, "process 2 and to process 3"),
        ("undecided", 1, "process 1 and to process 2"),
    ]


@pytest.mark.parametrize(
    ("seen", "text"), [(0, "offset 0 is committed"), (NOTHING_COMMITTED, "nothing is committed")]
)
def test_a_regression_states_what_the_coordinator_reported(seen: int, text: str) -> None:
    group = Group()
    group.commit(0)
    group.commit(2)
    group.sees(seen)
    regressed = [
        a for a in found(judged(group, delivery(30, (0, 0), (1, 1)))) if "regressed" in a.id
    ]
    assert [a.sentence for a in regressed] == [
        "group g: a commit of offset 2 was acknowledged, and afterwards the coordinator reported that"
        f" {text.removesuffix(' is committed')} is committed"
    ]


def test_a_record_at_the_committed_offset_was_not_skipped() -> None:
    group = Group()
    group.commit(2)
    assert found(judged(group, delivery(30, (0, 0), (1, 1)))) == []
    (skipped,) = found(judged(group, delivery(30, (0, 0))))
    assert skipped.details["offsets"] == [1]


def test_an_election_does_not_lose_what_the_leader_that_it_made_delivered() -> None:
    """The log had value 99 at offset 0 when a leader of epoch 0 delivered it, and in epoch 1 too."""
    group = Group()
    group.commit(1)
    early = replace(delivery(30, (0, 99)), epoch=0)
    (skipped,) = found(judged(group, early, flagged=True))
    assert skipped.judgement == Judgement.EXCUSED
    again = replace(delivery(250, (0, 99)), epoch=1)
    (skipped,) = found(judged(group, early, again, flagged=True))
    assert skipped.judgement == Judgement.FORBIDDEN
