"""What elections of a group's coordinator excuse: commits and generations are records of the offsets topic.

The group "g" has its records in partition 3 of 4 of that topic.
"""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from checkers.kernels.compose import judge_run
from checkers.kernels.coordinators import offsets_partition
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from harness.contracts.verdict import Judgement, Validity, Verdict
from system_under_test.group import records
from tests.anomalies.runs import append, final_read, read, run, state, table

OFFSETS = "__consumer_offsets"
PARTITION = 3
MEMBER = 99
"""The process of `read`."""
CONTEXT = RunContext(elr_on=False, checkers=(*LOG_CHECKERS, "consumer-group"))
CALLS = [append(0, 0, at=1), read(1, 2000, 0), *final_read(3000, 0)]


def election(
    at: int, *, flagged: bool, partition: int = PARTITION, epoch: int = 1
) -> dict[str, Any]:
    """Returns an election of a replica that was not in the ISR."""
    row = state(at, 2, [2], epoch=epoch, flagged=flagged)
    return {**row, "topic": OFFSETS, "partition": partition}


def events(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    base = {
        "group": "g",
        "process": MEMBER,
        "topic": "t",
        "partition": 0,
        "offset": -1,
        "refers_to": -1,
        "generation": -1,
    }
    return [{**base, "event_index": index, **row} for index, row in enumerate(rows)]


FORGOTTEN_COMMIT = events(
    {"event": "commit-sent", "offset": 1, "at_ns": 100},
    {"event": "commit-acknowledged", "offset": 1, "at_ns": 110},
    {"event": "committed-asked", "at_ns": 200},
    {"event": "committed-seen", "refers_to": 2, "at_ns": 210},
)
SECOND_OWNER = events(
    {"event": "assigned", "generation": 4, "at_ns": 100},
    {"event": "assigned", "generation": 4, "process": 98, "at_ns": 210},
)


def judged(rows: list[dict[str, Any]], *elections: dict[str, Any]) -> Verdict:
    """Judges a run; the offsets topic has four partitions, all led by broker 1 at first."""
    existing = [
        {**state(2, 1, [1, 3], epoch=0), "topic": OFFSETS, "partition": index} for index in range(4)
    ]
    tables: dict[str, pa.Table] = run(CALLS, group_events=rows)
    states = [{**row, "metadata_offset": i} for i, row in enumerate((*existing, *elections), 100)]
    tables["partition_states"] = pa.concat_tables(
        [tables["partition_states"], table("partition_states", states)]
    )
    return judge_run(tables, CONTEXT)


BOTH = pytest.mark.parametrize("rows", [FORGOTTEN_COMMIT, SECOND_OWNER])


def judgement_of(verdict: Verdict) -> Judgement:
    (anomaly,) = verdict.anomalies
    assert anomaly.id in ("committed-offset-regressed", "double-ownership")
    return anomaly.judgement


@BOTH
def test_a_flagged_election_of_the_coordinator_in_between_excuses(
    rows: list[dict[str, Any]],
) -> None:
    verdict = judged(rows, election(150, flagged=True))
    assert judgement_of(verdict) is Judgement.EXCUSED
    assert verdict.validity is Validity.VALID


@BOTH
def test_no_election_excuses_nothing(rows: list[dict[str, Any]]) -> None:
    verdict = judged(rows)
    assert judgement_of(verdict) is Judgement.FORBIDDEN
    assert verdict.validity is Validity.INVALID


@BOTH
@pytest.mark.parametrize(
    "elected",
    [
        election(150, flagged=False),
        # Another group's coordinator.
        election(150, flagged=True, partition=2),
        # The commit, or the generation, was gone before.
        election(220, flagged=True),
    ],
    ids=["unflagged", "other-partition", "later"],
)
def test_such_an_election_excuses_nothing(
    rows: list[dict[str, Any]], elected: dict[str, Any]
) -> None:
    assert judgement_of(judged(rows, elected)) is Judgement.FORBIDDEN


@BOTH
def test_a_flagged_and_an_unflagged_election_leave_it_undecided(
    rows: list[dict[str, Any]],
) -> None:
    verdict = judged(rows, election(150, flagged=False), election(160, flagged=True, epoch=2))
    assert judgement_of(verdict) is Judgement.UNDECIDED
    assert verdict.validity is Validity.UNKNOWN


@BOTH
def test_an_earlier_flagged_election_leaves_it_undecided(rows: list[dict[str, Any]]) -> None:
    """The coordinator may not have learned yet that another one was elected, and written in its name."""
    assert judgement_of(judged(rows, election(50, flagged=True))) is Judgement.UNDECIDED


def test_an_election_while_the_commit_was_under_way_counts() -> None:
    assert judgement_of(judged(FORGOTTEN_COMMIT, election(105, flagged=True))) is Judgement.EXCUSED


def test_a_flagged_election_that_was_avoidable_excuses_nothing() -> None:
    """With eligible leader replicas on, min ISR brokers must have left uncleanly, each after a fault."""
    tables = run(CALLS, group_events=FORGOTTEN_COMMIT)
    rows = [
        {**state(2, 1, [1, 3], epoch=0), "topic": OFFSETS, "partition": 3},
        election(150, flagged=True),
    ]
    states = [{**row, "metadata_offset": i} for i, row in enumerate(rows, 100)]
    tables["partition_states"] = pa.concat_tables(
        [tables["partition_states"], table("partition_states", states)]
    )
    registered = {
        "at_ns": 1,
        "metadata_offset": 1,
        "broker": 1,
        "broker_epoch": 1,
        "change": "registered",
        "clean": True,
    }
    tables["broker_states"] = table("broker_states", [registered])
    verdict = judge_run(tables, replace(CONTEXT, elr_on=True))
    assert judgement_of(verdict) is Judgement.FORBIDDEN


@pytest.mark.parametrize("count", [1, 4, 50])
@pytest.mark.parametrize("group", ["g", "laststand-group", "größe", "", "a" * 40, "\U0001f600"])
def test_a_groups_partition_is_the_one_that_the_coordinator_uses(group: str, count: int) -> None:
    assert offsets_partition(group, count) == records.offsets_partition(group, count)


def test_the_group_of_these_tests_has_its_records_in_partition_3() -> None:
    assert offsets_partition("g", 4) == PARTITION
