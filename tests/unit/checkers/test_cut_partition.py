"""When the buckets of a partition alone are enough for its judgement."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from checkers.kernels.buckets import all_free, judge_bucket
from checkers.kernels.compose import PartitionJudgement
from checkers.kernels.consumer_group import group_facts, member_polls
from checkers.kernels.cut_partition import (
    bucket_range,
    judge_cut_partition,
    may_contradict_itself,
    measures_of,
    rules_of,
)
from checkers.kernels.history import read_history
from checkers.kernels.measures import MS, attempts, moments_of, moments_until
from checkers.kernels.slices import cut_slice
from checkers.kernels.vacuous_facts import extent_of
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from tests.anomalies.runs import append, fault, final_read, read, run, table
from tests.property.brute_force import Call, ends_table, operations_table, records_table
from tests.property.cutting import judged_in_pieces

CONTEXT = RunContext(checkers=LOG_CHECKERS, acked_during_faults_min=0)
WIDTH = 2


def judged(
    calls: list[Call],
    context: RunContext = CONTEXT,
    *,
    events: Sequence[dict[str, Any]] = (),
    faults: Sequence[dict[str, Any]] = (),
) -> PartitionJudgement | None:
    """Returns the judgement of one slice by its buckets; faults are given if measures are taken."""
    operations = operations_table(calls)
    history = read_history(operations, records_table(calls), ends_table(calls))
    groups = group_facts(table("group_events", list(events)))
    since, limit_ns = None, context.recovery_max_ms * MS
    fault_rows = table("faults", list(faults))
    if "measures" in context.checkers:
        since = moments_of(fault_rows, context.clock_error_ns)
    report, parts = cut_slice(
        history,
        log_start_offset=context.log_start_offset,
        width=WIDTH,
        group_polls=[member_polls(operations, group.members) for group in groups],
        since=since,
        tried=attempts(operations, since, limit_ns) if since and limit_ns else None,
    )
    free = all_free([report])
    results = {}
    for bucket, part in parts.items():
        first, stop = bucket_range(bucket, WIDTH, context.log_start_offset, report.limit)
        results[bucket] = judge_bucket(
            [part],
            free,
            first=first,
            stop=stop,
            committed=[group.committed for group in groups],
            moments=None if report.measures is None else moments_until(report.measures.end_ns),
        )
    return judge_cut_partition(
        "t",
        0,
        [report],
        results,
        free,
        context,
        width=WIDTH,
        groups=groups,
        measures=measures_of([report], results, fault_rows),
    )


APPENDS = [append(op, op, at=10 * op) for op in range(5)]
CLEAN = [*APPENDS, *final_read(10, *range(5))]


def test_a_bucket_holds_as_many_offsets_as_it_is_wide() -> None:
    assert bucket_range(0, 10, 0, 100) == (0, 10)
    assert bucket_range(3, 10, 0, 100) == (30, 40)
    assert bucket_range(3, 10, 33, 36) == (33, 36)


def test_a_clean_partition_needs_nothing_but_its_buckets() -> None:
    judgement = judged(CLEAN)
    assert judgement is not None
    assert judgement.anomalies == ()
    assert judgement.coverage["acked_read_back"] == 5
    assert judgement.coverage["final_end_offset"] == 5
    assert "group_records" not in judgement.coverage


LOST = replace(append(5, None, at=50), res=51)
UNKNOWN = replace(LOST, outcome="info", res=None)


@pytest.mark.parametrize(
    ("calls", "is_clean"),
    [
        # An append of unknown outcome that no read shows is not lost.
        ([*APPENDS, UNKNOWN, *final_read(10, *range(5))], True),
        ([*APPENDS, LOST, *final_read(10, *range(5))], False),
        ([*APPENDS, LOST, *final_read(10, *range(6))], True),
        ([*APPENDS, UNKNOWN, *final_read(10, *range(6))], True),
        # The final reads do not show the last record.
        ([*APPENDS, *final_read(10, *range(4))], False),
        (APPENDS, False),
    ],
    ids=["unknown", "lost", "read", "revealed", "unread", "no-final-reads"],
)
def test_a_partition_with_a_loss_needs_more_than_its_buckets(
    calls: list[Call], is_clean: bool
) -> None:
    assert (judged(calls) is not None) is is_clean


def test_an_append_is_lost_too_if_no_bucket_has_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log ends below its start. Memory that is not initialised may hold the number of the append."""
    monkeypatch.setattr(np, "empty", np.zeros)
    latest = Call(op=9, kind="latest", process=97, inv=90, res=91, offset=3, final=True)
    context = replace(CONTEXT, log_start_offset=5)
    assert judged([append(0, None, at=1), latest], context) is None
    assert judged([latest], context) is not None


def test_no_append_is_revealed_if_no_bucket_has_anything() -> None:
    """The offset of an append is not known, and no client asked for a log end or read anything."""
    judgement = judged_in_pieces(run([LOST]), CONTEXT, random.Random(1))
    assert [anomaly.id for anomaly in judgement.anomalies] == ["unseen"]
    assert judgement.coverage["appends_unknown_revealed"] == 0


def test_two_appends_of_one_process_that_swapped_places_need_more_than_buckets() -> None:
    calls = [replace(append(op, 1 - op, at=1), process=7) for op in (0, 1)]
    assert judged([*calls, *final_read(10, 1, 0)]) is None
    calls = [replace(call, process=call.op) for call in calls]
    assert judged([*calls, *final_read(10, 1, 0)]) is not None


@pytest.mark.parametrize(
    ("offsets", "outcomes", "is_clean"),
    [
        ((0, 1, 2), "ok", True),
        ((None, 1, 2), "ok", True),
        ((0, None, 2), "ok", True),
        ((0, None, None), "ok", True),
        ((None, 0, 2), "ok", False),
        ((1, None, 2), "ok", False),
        ((0, None, 1), "ok", False),
        ((None, None, 2), "ok", False),
        ((0, None, 1), "info", True),
        ((1, None, 2), "info", False),
    ],
)
def test_appends_without_an_offset_that_swapped_places_need_more_than_buckets(
    offsets: tuple[int | None, ...], outcomes: str, is_clean: bool
) -> None:
    """The clocks differ by so much that only the order of the process shows it."""
    calls = [replace(append(op, offset, at=2 * op), process=7) for op, offset in enumerate(offsets)]
    calls = [replace(call, outcome=outcomes if call.offset is None else "ok") for call in calls]
    # Those without an offset are where they are in order, or where two change places.
    taken = {offset for offset in offsets if offset is not None}
    free = sorted({0, 1, 2} - taken)
    if offsets == (None, None, 2):
        free.reverse()
    places = [free.pop(0) if offset is None else offset for offset in offsets]
    log = sorted(range(3), key=lambda op: places[op])
    context = replace(CONTEXT, clock_error_ns=50)
    found = judged([*calls, *final_read(10, *log)], context)
    assert (found is not None) is is_clean


@pytest.mark.parametrize("error_ns", [0, 1])
def test_a_hole_that_an_append_of_unknown_outcome_may_fill_needs_more_than_buckets(
    error_ns: int,
) -> None:
    """A log end of 6 was seen once, and a log end of 5 later, but within the error of the clocks."""
    early = Call(op=6, kind="latest", process=97, inv=900, res=904, offset=6)
    calls = [*APPENDS, UNKNOWN, early, *final_read(10, *range(5))]
    assert judged(calls, replace(CONTEXT, clock_error_ns=error_ns)) is None


def group_events(*rows: tuple[str, int]) -> list[dict[str, Any]]:
    base = {"group": "g", "process": 99, "topic": "t", "partition": 0, "refers_to": -1}
    return [
        {
            **base,
            "event_index": index,
            "event": event,
            "offset": offset,
            "at_ns": 100 + index,
            "generation": -1,
        }
        for index, (event, offset) in enumerate(rows)
    ]


GROUPS = replace(CONTEXT, checkers=(*LOG_CHECKERS, "consumer-group"))


def test_the_coverage_of_a_group_is_in_the_judgement() -> None:
    events = group_events(("assigned", -1), ("commit-sent", 2), ("commit-acknowledged", 2))
    calls = [*APPENDS, read(8, 60, 0, 1), *final_read(10, *range(5))]
    judgement = judged(calls, GROUPS, events=events)
    assert judgement is not None
    coverage = judgement.coverage
    assert coverage["group_assignments"] == coverage["group_commits"] == 1
    assert coverage["group_records"] == 5
    # Nothing of it is there if the checker does not run.
    judgement = judged(calls, events=events)
    assert judgement is not None
    assert "group_commits" not in judgement.coverage


MEASURES = replace(CONTEXT, checkers=(*LOG_CHECKERS, "measures"))


def test_a_recovery_that_took_too_long_needs_more_than_buckets() -> None:
    """A fault is healed at 2 ms. Polls succeed, appends do only after 12 ms."""
    trials = [
        replace(
            append(op, None, at=2 * MS + op * MS // 2),
            outcome="fail",
            res=2 * MS + op * MS // 2 + 1,
        )
        for op in range(20)
    ]
    polls = [
        replace(read(100 + op, 2 * MS + op * MS // 2, end=0), position=0) for op in range(1, 19)
    ]
    late = append(200, 0, at=14 * MS)
    calls = sorted([*trials, *polls, late], key=lambda call: call.inv)
    final = final_read(300, 200, at=20 * MS)
    faults = [fault(1 * MS, "kill", ["b1"], healed=2 * MS)]
    for limit_ms, is_clean in ((0, True), (20, True), (8, False)):
        context = replace(MEASURES, recovery_max_ms=limit_ms)
        judgement = judged([*calls, *final], context, faults=faults)
        assert (judgement is not None) is is_clean
        if judgement is not None:
            assert judgement.coverage["measures"]["recovery_append_ms_max"] == 12.000001


@pytest.mark.parametrize("name", ["replicas", "measures"])
def test_only_the_checker_of_replicas_makes_stale_log_ends_suspicious(name: str) -> None:
    tables: tuple[pa.Table, pa.Table] = (operations_table(CLEAN), records_table(CLEAN))
    context = replace(CONTEXT, checkers=(*LOG_CHECKERS, name))
    states = table("partition_states", [])
    rules = rules_of(context, states, table("faults", []), (), extent_of(*tables))
    assert rules.stale_ends is (name == "replicas")
    assert np.array(rules.committed).tolist() == []


# --- where clocks differ ---


@pytest.mark.parametrize(
    ("seen", "sent", "may"),
    [((1, 10), (1, 12), True), ((1, 10), (1, 11), False), ((1, 10), (2, 12), False)],
)
@pytest.mark.parametrize("slices", [1, 2])
def test_a_process_that_sent_after_it_had_seen_something_may_contradict_itself(
    seen: tuple[int, int], sent: tuple[int, int], may: bool, slices: int
) -> None:
    """Pairs of a process and a time; what was seen is known 1 ns later."""
    calls = [
        replace(append(1, 0, at=1), process=sent[0]),
        replace(read(2, seen[1], 1), process=seen[0]),
        replace(read(3, 50, 1), process=seen[0]),
        replace(append(4, None, at=sent[1]), process=sent[0]),
    ]
    parts = [calls] if slices == 1 else [calls[:2], calls[2:]]
    reports = [
        cut_slice(
            read_history(operations_table(part), records_table(part), ends_table(part)),
            log_start_offset=0,
            width=WIDTH,
        )[0]
        for part in parts
    ]
    assert may_contradict_itself(reports) == may
