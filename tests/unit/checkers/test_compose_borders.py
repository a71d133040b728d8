"""The composition: which partitions are judged, when a fault was in force, and what a broken invariant is."""

from typing import Any

import pytest

from checkers.kernels.compose import (
    acked_during_faults,
    by_partition,
    committed_during_faults,
    judge_run,
    partition_checkers,
    whole_run_checkers,
)
from harness.contracts.run_context import (
    BATCH_CHECKER,
    LOG_CHECKERS,
    QUERY_CHECKER,
    SESSION_CHECKER,
    RunContext,
)
from tests.anomalies.recorded_transactions import A, Events, producer
from tests.anomalies.runs import append, fault, final_read, replica, run, state, table, violation

CALLS = [append(0, 0, at=10), append(1, 1, at=12), *final_read(50, 0, 1)]
"""Appends are acknowledged at 11 and 13."""


def test_a_partition_is_judged_if_a_client_touched_it() -> None:
    states = [state(1, 1, [1, 2], epoch=0), state(1, 1, [1, 2], epoch=0, partition=1)]
    tables = run(CALLS, states=states, replicas=[replica(1, 1, 0, partition=2)])
    parts = by_partition(tables)
    assert list(parts) == [("t", 0)]
    assert parts["t", 0]["partition_states"].num_rows == 1
    assert by_partition({"partition_states": table("partition_states", states)}) == {}
    ends = {"end_offsets_seen": tables["end_offsets_seen"]}
    assert list(by_partition(ends)) == [("t", 0)]


@pytest.mark.parametrize(
    ("changed", "count"),
    [
        ({}, 2),
        ({"completed_ns": 10}, 2),
        ({"completed_ns": 11}, 1),
        ({"completed_ns": 13}, 0),
        ({"completed_ns": None}, 2),
        ({"invoked_ns": 11, "completed_ns": None}, 1),
        ({"completed_ns": 11, "healed_ns": 12}, 0),
        ({"completed_ns": 11, "healed_ns": 13}, 1),
    ],
)
def test_a_fault_is_in_force_from_its_completion_if_that_is_known(
    changed: dict[str, Any], count: int
) -> None:
    faults = table("faults", [fault(5, "cut", ["b1"], healed=40) | changed])
    assert acked_during_faults(run(CALLS)["operations"], faults) == count


@pytest.mark.parametrize(
    ("spans", "count"),
    [
        ([(5, 11), (11, 13)], 2),
        ([(5, 11), (12, 13)], 2),
        ([(5, 12), (10, 13)], 2),
        ([(10, 13), (11, 12)], 2),
        ([(5, 10), (11, 13)], 1),
    ],
)
def test_an_acknowledgement_during_several_faults_counts_once(
    spans: list[tuple[int, int]], count: int
) -> None:
    faults = table("faults", [fault(begin, "cut", ["b1"], healed=end) for begin, end in spans])
    assert acked_during_faults(run(CALLS)["operations"], faults) == count


def test_a_broken_invariant_is_one_anomaly_of_no_partition() -> None:
    verdict = judge_run(run(CALLS, violations=[violation("INV-1: two leaders")]), RunContext())
    (anomaly,) = verdict.anomalies
    assert (anomaly.id, anomaly.topic, anomaly.partition) == ("invariant-broken", "", -1)
    assert (anomaly.count, anomaly.sentence) == (1, "INV-1: two leaders")
    assert verdict.reasons == ("invariant-broken: INV-1: two leaders",)


def test_a_checker_of_the_whole_run_acknowledges_no_append() -> None:
    context = RunContext(checkers=(*LOG_CHECKERS, "transactions"))
    for tables in ({}, run([append(0, None, at=1, outcome="fail")])):
        assert "no append was acknowledged in the whole run" in judge_run(tables, context).reasons


def test_every_checker_but_that_of_transactions_sees_one_partition_at_a_time() -> None:
    of_clients = (*LOG_CHECKERS, BATCH_CHECKER, SESSION_CHECKER, QUERY_CHECKER, "consumer-group")
    names = (*of_clients, "replicas", "measures", "progress")
    context = RunContext(checkers=(*names, "transactions"), enabled_faults=())
    assert {one.name for one in partition_checkers(context)} == set(names)
    assert [one.name for one in whole_run_checkers(context)] == ["transactions"]


@pytest.mark.parametrize(
    ("flagged", "unexcused", "excused"), [(False, 2, 0), (True, 0, 2), (None, 0, 0)]
)
def test_only_lost_appends_count_as_lost_records(
    flagged: bool | None, unexcused: int, excused: int
) -> None:
    """An election at 30 loses both appends, unless it is None. A broken invariant is always found."""
    states = [state(1, 1, [1, 2], epoch=0)]
    states += [] if flagged is None else [state(30, 2, [2], epoch=1, flagged=flagged)]
    log = (0, 1) if flagged is None else ()
    calls = [*CALLS[:2], *final_read(50, *log)]
    tables = run(calls, states=states, violations=[violation("INV-1: two leaders")])
    verdict = judge_run(tables, RunContext(unclean_election_enabled=True))
    assert "invariant-broken" in {anomaly.id for anomaly in verdict.anomalies}
    assert (verdict.unexcused_lost_records, verdict.excused_lost_records) == (unexcused, excused)


def test_what_a_checker_of_the_whole_run_finds_is_of_no_partition() -> None:
    """A read returns a record of a transaction that aborted."""
    events = Events()
    aborted = producer(events, 1)
    value = events.send(aborted, 0, A, 0)
    events.abort(aborted)
    events.read(7, A, (0, value))
    places = {(anomaly.topic, anomaly.partition) for anomaly in events.verdict().anomalies}
    assert places == {("", -1)}


def test_no_transaction_committed_during_faults_if_there_is_no_fault_or_no_transaction() -> None:
    events = Events()
    events.commit(events.begin(1))
    committed, nothing = (table("transaction_events", rows) for rows in (events.rows, []))
    in_force, no_fault = (table("faults", rows) for rows in ([fault(0, "kill", ["b1"])], []))
    counts = [
        committed_during_faults(transactions, faults)
        for transactions, faults in (
            (committed, in_force),
            (committed, no_fault),
            (nothing, in_force),
        )
    ]
    assert counts == [1, 0, 0]
