"""The validator at its borders: the last value that it accepts and the first one that it refuses, by column."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from checkers.kernels.history import OFFSET_MAX, TIME_NS_MAX
from checkers.kernels.validation import check_context, check_run
from harness.contracts.run_context import RunContext
from harness.errors import HistoryError
from tests.anomalies.runs import append, broker, fault, final_read, read, replica, run, state
from tests.property.brute_force import Call
from tests.spark.stored_runs import replaced

Tables = dict[str, pa.Table]
APPEND, UNKNOWN, FAILED, POLL, LATEST = 0, 1, 2, 3, 4
CALLS = [
    append(0, 0, at=10),
    append(1, None, at=20, outcome="info"),
    append(2, None, at=30, outcome="fail"),
    read(3, 40, 0, end=1),
    Call(op=4, kind="latest", process=99, inv=50, res=60, offset=1),
    *final_read(5, 0),
]


def group_event(index: int, event: str, **more: Any) -> dict[str, Any]:
    return {
        "event_index": index,
        "at_ns": index,
        "group": "g",
        "process": 1,
        "topic": "t",
        "partition": 0,
        "event": event,
        "offset": -1,
        "generation": 1,
        "refers_to": -1,
        **more,
    }


def tables() -> Tables:
    return run(
        CALLS,
        states=[state(1, 1, [1, 2], epoch=0)],
        replicas=[replica(1, 1, 0, role="leader", cause="load")],
        brokers=[broker(0, 1, "registered")],
        faults=[fault(5, "cut", ["b1"], healed=7), fault(6, "cut", ["b1"], healed=8)],
        group_events=[
            group_event(0, "assigned"),
            group_event(3, "committed-asked"),
            group_event(4, "committed-seen", refers_to=3),
            group_event(6, "committed-asked"),
            group_event(7, "committed-seen", refers_to=6),
        ],
    )


def check(content: Tables) -> None:
    check_run(content, {("t", 0): content}, RunContext())


def refusal(content: Tables) -> str:
    with pytest.raises(HistoryError) as caught:
        check(content)
    return str(caught.value)


BORDERS: list[tuple[str, str, int, tuple[Any, ...], tuple[Any, ...]]] = [
    ("operations", "op_index", LATEST + 1, (), (-1, OFFSET_MAX + 1)),
    ("operations", "acks", APPEND, (-1, 0, 1), (-2, 2)),
    ("operations", "acks", POLL, (0,), (-1, 1)),
    ("operations", "acks", LATEST, (0,), (-1, 1, 2)),
    ("operations", "kind", UNKNOWN, ("append",), ("write", "latest ", "")),
    ("operations", "outcome", APPEND, ("ok", "fail", "info"), ("okay", "OK", "")),
    ("operations", "invoked_ns", APPEND, (0, 11), (-1, 12)),
    ("operations", "invoked_ns", UNKNOWN, (0, 21), (-1, 22)),
    ("operations", "completed_ns", APPEND, (10, TIME_NS_MAX), (9, TIME_NS_MAX + 1, None)),
    ("operations", "completed_ns", UNKNOWN, (20, TIME_NS_MAX, None), (19, TIME_NS_MAX + 1)),
    ("operations", "completed_ns", FAILED, (30,), (29, None)),
    ("operations", "offset", APPEND, (None, 0, -2, OFFSET_MAX + 1), (-1,)),
    ("operations", "offset", UNKNOWN, (None, -1), ()),
    ("operations", "offset", LATEST, (None, -1, 0), ()),
    ("operations", "position", POLL, (-1, 0, OFFSET_MAX), (-2, OFFSET_MAX + 1)),
    ("operations", "record_count", POLL, (1,), (0, 2)),
    ("operations", "record_count", APPEND, (0,), (1,)),
    ("records_read", "op_index", 0, (3,), (0, 4, 77)),
    ("records_read", "index_in_poll", 1, (0,), (-1, 1)),
    ("records_read", "value", 0, (0, 1, OFFSET_MAX), (-1, OFFSET_MAX + 1)),
    ("records_read", "status", 0, ("ok", "corrupt", "foreign"), ("odd", "")),
    ("end_offsets_seen", "op_index", 0, (3, 4), (0, 77)),
    ("partition_states", "at_ns", 0, (-TIME_NS_MAX, TIME_NS_MAX), (-TIME_NS_MAX - 1, 2**61)),
    ("partition_states", "leader", 0, (-1, 0), (-2,)),
    ("partition_states", "leader_epoch", 0, (-1, 0), (-2,)),
    ("partition_states", "metadata_offset", 0, (0,), (-1,)),
    ("replica_states", "at_ns", 0, (-TIME_NS_MAX, TIME_NS_MAX), (-TIME_NS_MAX - 1, 2**61)),
    ("replica_states", "role", 0, ("leader", "follower", "offline"), ("king",)),
    ("replica_states", "cause", 0, ("load", "high-watermark", "down"), ("whim",)),
    ("replica_states", "log_end_offset", 0, (-1, OFFSET_MAX), (-2, OFFSET_MAX + 1)),
    ("replica_states", "high_watermark", 0, (-1, OFFSET_MAX), (-2, OFFSET_MAX + 1)),
    ("broker_states", "at_ns", 0, (-TIME_NS_MAX, TIME_NS_MAX), (-TIME_NS_MAX - 1, 2**61)),
    ("broker_states", "change", 0, ("fenced", "unregistered"), ("gone",)),
    ("faults", "fault_id", 1, ("f7",), ("f5",)),
    ("faults", "invoked_ns", 0, (-TIME_NS_MAX, 5), (-TIME_NS_MAX - 1, 6)),
    ("faults", "completed_ns", 0, (None, 5, TIME_NS_MAX), (4, TIME_NS_MAX + 1)),
    ("faults", "healed_ns", 0, (None, 5, TIME_NS_MAX), (4, TIME_NS_MAX + 1)),
    ("group_events", "event_index", 0, (0, 1, 2), (-1, 3, 7, OFFSET_MAX + 1)),
    ("group_events", "event_index", 4, (OFFSET_MAX,), (6, OFFSET_MAX + 1)),
    ("group_events", "at_ns", 0, (-TIME_NS_MAX, 3), (-TIME_NS_MAX - 1, 4, 2**61)),
    ("group_events", "at_ns", 2, (3, 6), (2, 7)),
    ("group_events", "at_ns", 4, (6, TIME_NS_MAX), (5, TIME_NS_MAX + 1)),
    ("group_events", "event", 0, ("revoked", "commit-sent"), ("left",)),
    ("group_events", "offset", 0, (-OFFSET_MAX, OFFSET_MAX), (-OFFSET_MAX - 1, OFFSET_MAX + 1)),
    ("group_events", "refers_to", 0, (-1,), (-2, 0, 3)),
    ("group_events", "refers_to", 1, (-1,), (3, 0)),
    ("group_events", "refers_to", 2, (-1, 3), (-2, 0, 2, 4, 5, 6, 7)),
    ("group_events", "refers_to", 4, (-1, 3, 6), (4, 7, 8)),
]


@pytest.mark.parametrize(
    ("name", "column", "row", "value"),
    [(name, column, row, value) for name, column, row, good, _ in BORDERS for value in good],
)
def test_the_last_legal_value_is_accepted(name: str, column: str, row: int, value: Any) -> None:
    content = tables()
    check(content | {name: replaced(content[name], column, row, value)})


@pytest.mark.parametrize(
    ("name", "column", "row", "value"),
    [(name, column, row, value) for name, column, row, _, bad in BORDERS for value in bad],
)
def test_the_first_illegal_value_is_refused(name: str, column: str, row: int, value: Any) -> None:
    content = tables()
    sentence = refusal(content | {name: replaced(content[name], column, row, value)})
    assert ", row " in sentence


@pytest.mark.parametrize("name", ["operations", "partition_states", "group_events"])
def test_a_partition_below_0_is_refused(name: str) -> None:
    from checkers.kernels.validation import check_places, partition_names

    content = tables()
    check_places(content, partition_names("t", 0))
    wrong = content | {name: replaced(content[name], "partition", 0, -1)}
    with pytest.raises(HistoryError, match="row 0: partition is -1, below 0"):
        check_places(wrong, partition_names("t", 0))


@pytest.mark.parametrize(
    ("column", "low", "high"),
    [
        ("clock_error_ns", 0, TIME_NS_MAX),
        ("healed_ns", 0, TIME_NS_MAX),
        ("ended_ns", 0, TIME_NS_MAX),
        ("stuck_after_ms", 0, OFFSET_MAX),
        ("recovery_max_ms", 0, OFFSET_MAX),
        ("log_start_offset", 0, OFFSET_MAX),
        ("acked_during_faults_min", 0, OFFSET_MAX),
        ("min_isr", 1, 2**31 - 1),
        ("replication_factor", 1, 2**31 - 1),
    ],
)
def test_a_declaration_has_limits(column: str, low: int, high: int) -> None:
    for value in (low, high):
        check_context(replace(RunContext(), **{column: value}), "run_facts")
    for value in (low - 1, high + 1):
        with pytest.raises(HistoryError, match=f"row 0: {column} is {value}, which is not between"):
            check_context(replace(RunContext(), **{column: value}), "run_facts")


def test_a_run_names_a_checker_once() -> None:
    check_context(RunContext(checkers=("replicas", "measures")), "run_facts")
    check_context(RunContext(checkers=()), "run_facts")
    twice = RunContext(checkers=("replicas", "measures", "progress", "measures"))
    with pytest.raises(HistoryError, match="run_facts, row 0: checkers names 'measures' more than"):
        check_context(twice, "run_facts")


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_a_run_has_one_row_of_facts(rows: int) -> None:
    facts = {"run_facts": pa.table({"version": ["1"] * rows})}
    if rows < 2:
        check(tables() | facts)
    else:
        assert "row 1: a run has one row of facts, not 2" in refusal(tables() | facts)


@pytest.mark.parametrize(
    ("name", "column", "legal", "illegal"),
    [
        ("operations", "acks", 1, 2),
        ("operations", "acks", -1, -2),
        ("operations", "completed_ns", TIME_NS_MAX, TIME_NS_MAX + 1),
        ("operations", "completed_ns", 10, 19),
        ("operations", "op_index", OFFSET_MAX, OFFSET_MAX + 1),
        ("records_read", "value", OFFSET_MAX, OFFSET_MAX + 1),
        ("records_read", "value", 0, -1),
        ("group_events", "offset", OFFSET_MAX, OFFSET_MAX + 1),
        ("group_events", "offset", -OFFSET_MAX, -OFFSET_MAX - 1),
        ("faults", "healed_ns", TIME_NS_MAX, TIME_NS_MAX + 1),
    ],
)
def test_a_legal_value_before_the_first_illegal_one_is_not_named(
    name: str, column: str, legal: int, illegal: int
) -> None:
    content = tables()
    rows = replaced(replaced(content[name], column, 0, legal), column, 1, illegal)
    if name == "records_read":
        # Both records are of polls that returned one.
        assert rows.num_rows == 2
    assert f", row 1: {column} is {illegal}" in refusal(content | {name: rows})
