"""Who owns a partition in each generation of a consumer group, and commits that the coordinator lost."""

import random

import pytest

from checkers.kernels.compose import judge_run
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from harness.contracts.verdict import Anomaly, Judgement, Validity
from tests.anomalies.runs import append, final_read, read, run, table
from tests.property.cutting import differences, judged_as_a_whole

CONTEXT = RunContext(checkers=(*LOG_CHECKERS, "consumer-group"))
ONE, OTHER = 99, 98

Event = tuple[str, int, int]
"""Kind, process and generation of an event."""


def events(*rows: Event, group: str = "g") -> list[dict[str, object]]:
    return [
        {
            "event_index": index,
            "at_ns": 10 * index,
            "group": group,
            "process": process,
            "topic": "t",
            "partition": 0,
            "event": kind,
            "offset": -1,
            "refers_to": -1,
            "generation": generation,
        }
        for index, (kind, process, generation) in enumerate(rows)
    ]


def found(rows: list[dict[str, object]]) -> list[Anomaly]:
    calls = [append(0, 0, at=1), read(1, 20, 0), *final_read(80, 0)]
    verdict = judge_run(run(calls, group_events=rows), CONTEXT)
    anomalies = [a for a in verdict.anomalies if a.id == "double-ownership"]
    assert verdict.validity == (Validity.INVALID if anomalies else Validity.VALID)
    return anomalies


def test_one_partition_has_one_owner_in_a_generation() -> None:
    rows = events(("assigned", ONE, 4), ("assigned", OTHER, 4))
    (anomaly,) = found(rows)
    assert (anomaly.count, anomaly.judgement) == (1, Judgement.FORBIDDEN)
    assert anomaly.sentence == (
        "group g: in generation 4 the partition was assigned to process 99 and to process 98"
    )
    assert found(rows[::-1]) == [anomaly], "row order must not matter"


@pytest.mark.parametrize(
    "rows",
    [
        # A zombie has not noticed that generation 5 exists.
        events(("assigned", ONE, 4), ("assigned", OTHER, 5)),
        # A client that does not know the generation proves nothing.
        events(("assigned", ONE, -1), ("assigned", OTHER, -1)),
        events(("assigned", ONE, 4), ("revoked", ONE, -1), ("assigned", ONE, 4)),
        # Only assignments make an owner.
        events(("assigned", ONE, 4), ("revoked", OTHER, 4)),
    ],
)
def test_nothing_else_is_double_ownership(rows: list[dict[str, object]]) -> None:
    assert found(rows) == []


def test_a_larger_generation_in_between_hides_no_second_owner() -> None:
    rows = events(("assigned", ONE, 4), ("assigned", OTHER, 5), ("assigned", 97, 4))
    calls = [append(0, 0, at=1), read(1, 20, 0), *final_read(80, 0)]
    # Kafka forgets a group that has no members and no commits, and counts its generations from the beginning.
    verdict = judge_run(run(calls, group_events=rows), CONTEXT)
    assert [each.judgement for each in verdict.anomalies] == [Judgement.UNDECIDED]
    assert verdict.validity == Validity.UNKNOWN
    committed = events(("commit-acknowledged", ONE, -1))
    committed[0]["offset"] = 1
    rows = [*committed, *({**row, "event_index": index} for index, row in enumerate(rows, 1))]
    rows = [{**row, "at_ns": 10 * index} for index, row in enumerate(rows)]
    (anomaly,) = found(rows)
    assert (
        "in generation 4 the partition was assigned to process 99 and to process 97"
        in anomaly.sentence
    )


@pytest.mark.parametrize(
    ("generation", "has_commit", "judgement"),
    [
        (1, False, Judgement.UNDECIDED),
        (2, False, Judgement.FORBIDDEN),
        (1, True, Judgement.FORBIDDEN),
    ],
)
def test_the_first_generation_of_a_group_that_was_forgotten_may_be_there_again(
    generation: int, has_commit: bool, judgement: Judgement
) -> None:
    rows = events(
        ("assigned", ONE, generation), ("revoked", ONE, -1), ("assigned", OTHER, generation)
    )
    if has_commit:
        committed = events(("commit-acknowledged", ONE, -1))
        committed[0]["offset"] = 1
        rows = [*committed, *rows]
    rows = [{**row, "event_index": index, "at_ns": 10 * index} for index, row in enumerate(rows)]
    calls = [append(0, 0, at=1), read(1, 20, 0), *final_read(80, 0)]
    verdict = judge_run(run(calls, group_events=rows), CONTEXT)
    assert [one.judgement for one in verdict.anomalies if one.id == "double-ownership"] == [
        judgement
    ]


def test_every_further_member_of_a_generation_counts_once() -> None:
    rows = events(
        ("assigned", ONE, 4),
        ("assigned", OTHER, 4),
        ("assigned", OTHER, 4),
        ("assigned", 97, 4),
        ("assigned", 97, 5),
        ("assigned", ONE, 5),
    )
    (anomaly,) = found(rows)
    assert anomaly.count == 3


def test_two_groups_may_own_the_same_partition() -> None:
    other = [{**row, "event_index": 9, "group": "h"} for row in events(("assigned", OTHER, 4))]
    assert found([*events(("assigned", ONE, 4)), *other]) == []


def test_two_owners_and_two_groups_are_judged_in_buckets_like_the_whole() -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=5), *final_read(80, 0, 1)]
    both = [
        *events(("assigned", 97, 4), ("assigned", 96, 4), ("commit-acknowledged", 97, -1)),
        *events(("assigned", 96, 1), group="h"),
    ]
    for index, row in enumerate(both):
        row["event_index"] = index
    both[2]["offset"] = 2
    tables = run(calls) | {"group_events": table("group_events", both)}
    found = {anomaly.id for anomaly in judged_as_a_whole(tables, CONTEXT).anomalies}
    assert found == {"double-ownership", "group-skipped-record"}
    for seed in range(5):
        assert differences(tables, CONTEXT, random.Random(seed)) == []


@pytest.mark.parametrize("seen", [-1, -1001])
def test_a_coordinator_that_reports_no_commit_after_an_acknowledged_one_lost_it(seen: int) -> None:
    rows = events(
        ("assigned", ONE, 4),
        ("commit-sent", ONE, -1),
        ("commit-acknowledged", ONE, -1),
        ("committed-asked", ONE, -1),
        ("committed-seen", ONE, -1),
    )
    for row in rows[1:3]:
        row["offset"] = 1
    rows[4] |= {"offset": seen, "refers_to": 3}
    calls = [append(0, 0, at=1), read(1, 20, 0), *final_read(80, 0)]
    verdict = judge_run(run(calls, group_events=rows), CONTEXT)
    (anomaly,) = verdict.anomalies
    assert (anomaly.id, anomaly.judgement) == ("committed-offset-regressed", Judgement.FORBIDDEN)
    assert "a commit of offset 1 was acknowledged" in anomaly.sentence
    assert "nothing is committed" in anomaly.sentence
    # The request was on its way before the commit was acknowledged: no promise is broken.
    rows[4]["refers_to"] = 0
    rows[0]["event"] = "committed-asked"
    assert judge_run(run(calls, group_events=rows), CONTEXT).validity == Validity.VALID
