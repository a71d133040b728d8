"""When a partition is stuck: since when, with which witnesses, and the borders in time."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from checkers.kernels.progress import (
    BELOW_MIN_ISR,
    LEFT_OUT,
    NO_LEADER,
    NOT_SERVED,
    PROGRESS,
)
from harness.contracts.checker import CheckerFinding
from harness.contracts.run_context import RunContext
from harness.history.schema import TABLES
from tests.anomalies.runs import broker, replica
from tests.anomalies.test_progress import (
    CONTEXT,
    FIRST,
    GOOD,
    LEADERLESS,
    MS,
    Rows,
    at,
    brokers,
    destroyed,
    final,
    form,
    registered,
)


def stuck(context: RunContext = CONTEXT, **rows: Rows) -> CheckerFinding:
    """Returns how the partition is stuck."""
    given = {"broker_states": brokers(), "replica_states": FIRST, **rows}
    tables = {
        name: pa.Table.from_pylist(given.get(name, []), schema=TABLES[name])
        for name in PROGRESS.tables
    }
    (found,) = PROGRESS.check(tables, context).findings
    assert found.count == 1
    return found


OF_0 = [0, 1, 2]
ZERO: dict[str, Any] = {
    "broker_states": [broker(10 + number, number, "registered") for number in OF_0],
    "replica_states": [replica(1, number, 1) for number in OF_0],
}
"""Brokers 0, 1 and 2, for partitions whose replicas these are."""


def test_broker_0_may_lead() -> None:
    led = [at(50, 0, [0, 1], replicas=OF_0)]
    assert form(partition_states=led, **ZERO) == LEFT_OUT
    lost = [*led, at(120, -1, [1], replicas=OF_0)]
    found = stuck(partition_states=lost, **ZERO)
    assert found.details == {"form": NO_LEADER, "at_ns": 120 * MS}


def test_what_was_in_the_isr_of_leader_0_is_not_kept_when_it_is_gone() -> None:
    """Broker 1 alone may lead, and it is unregistered."""
    states = [at(50, 0, [0, 1], replicas=[0, 1]), at(60, -1, [1], replicas=[0, 1])]
    gone = [*ZERO["broker_states"], broker(70 * MS, 1, "unregistered")]
    assert form(partition_states=states, **ZERO) == NO_LEADER
    assert form(partition_states=states, **ZERO | {"broker_states": gone}) == ""


@pytest.mark.parametrize(
    ("states", "since_ms"),
    [
        ([at(50, 1, [1, 2]), at(120, 1, [1])], 120),
        ([at(50, 1, [1]), at(120, 1, [2])], 100),
        ([at(50, 1, [1, 2]), at(110, 1, [1]), at(120, 1, [2])], 110),
        ([at(50, 1, [1, 2, 3], min_isr=3), at(120, 1, [1, 2], min_isr=3)], 120),
    ],
)
def test_an_isr_is_too_small_since_it_was_large_enough_but_not_before_healing(
    states: Rows, since_ms: int
) -> None:
    found = stuck(partition_states=states)
    assert found.details == {"form": BELOW_MIN_ISR, "at_ns": since_ms * MS}


@pytest.mark.parametrize(
    ("states", "since_ms"),
    [
        (LEADERLESS, 100),
        ([at(50, 1, [1, 2]), at(120, -1, [2])], 120),
        ([at(50, 1, [1, 2]), at(110, -1, [2]), at(120, -1, [2])], 110),
        ([at(50, 1, [1, 2]), at(140, -1, [2])], 140),
    ],
)
def test_there_was_no_leader_since_the_last_one_but_not_before_healing(
    states: Rows, since_ms: int
) -> None:
    found = stuck(partition_states=states)
    assert found.details == {"form": NO_LEADER, "at_ns": since_ms * MS}


def test_a_run_may_be_healed_at_0() -> None:
    context = replace(CONTEXT, healed_ns=0)
    found = stuck(context, partition_states=[at(0, -1, [2], metadata_offset=9)])
    assert found.details == {"form": NO_LEADER, "at_ns": 0}
    found = stuck(context, partition_states=[at(0, 1, [1, 2])])
    assert found.details == {"form": LEFT_OUT, "at_ns": 0}


def test_a_replica_is_left_out_since_the_last_state_but_not_before_healing() -> None:
    for ms, since_ms in ((50, 100), (120, 120), (140, 140)):
        found = stuck(partition_states=[at(ms, 1, [1, 2])])
        assert found.details == {"form": LEFT_OUT, "at_ns": since_ms * MS}


@pytest.mark.parametrize(("ms", "expected"), [(140, LEFT_OUT), (141, "")])
def test_what_a_replica_received_before_the_last_part_of_the_run_does_not_count(
    ms: int, expected: str
) -> None:
    logs = [*FIRST, replica(ms * MS, 3, 10)]
    assert form(partition_states=[at(50, 1, [1, 2])], replica_states=logs) == expected


@pytest.mark.parametrize(("ms", "expected"), [(140, BELOW_MIN_ISR), (139, BELOW_MIN_ISR), (1, "")])
def test_a_log_grew_beyond_the_last_state_before_the_last_part_of_the_run(
    ms: int, expected: str
) -> None:
    """Both followers had 9 records, and 1 since `ms`, unless that was too long ago; then 5, and 2 in the end."""
    logs = [
        replica(moment, number, end, epoch=4, cause=cause)
        for number in (2, 3)
        for moment, end, cause in (
            (2, 9, "replicate"),
            (ms * MS if ms > 1 else 1, 1, "truncate"),
            (150 * MS, 5, "replicate"),
            (160 * MS, 2, "truncate"),
        )
    ]
    states = [at(50, 1, [1])]
    assert form(partition_states=states, replica_states=[FIRST[0], *logs]) == expected


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([final(0, "append", 105, 140, outcome="ok"), final(1, "append", 141, 199)], NOT_SERVED),
        ([final(0, "append", 105, 141, outcome="ok"), final(1, "append", 142, 199)], ""),
        ([final(0, "append", 105, 150), final(1, "append", 165, None)], NOT_SERVED),
        ([final(0, "append", 105, 150), final(1, "append", 166, None)], ""),
        ([final(0, "append", 155, None)], NOT_SERVED),
    ],
)
def test_what_clients_tried_in_the_last_part_of_the_run_counts(
    operations: Rows, expected: str
) -> None:
    assert form(partition_states=GOOD, operations=operations) == expected


@pytest.mark.parametrize(
    ("operations", "text", "witnesses"),
    [
        (
            [final(0, "append", 105, 130, outcome="ok"), final(1, "poll", 131, 199)],
            "no poll returned a record, although clients tried 1 times",
            [1],
        ),
        (
            [
                final(0, "latest", 131, 199),
                final(1, "poll", 131, None, outcome="ok", record_count=1),
            ],
            "no request for the log end succeeded, although clients tried 1 times",
            [0],
        ),
        (
            [final(op, "append", 135 + 15 * op, 149 + 15 * op) for op in range(5)],
            "no append was acknowledged, although clients tried 5 times",
            [0, 4],
        ),
    ],
)
def test_the_first_and_the_last_attempt_are_witnesses(
    operations: Rows, text: str, witnesses: list[int]
) -> None:
    found = stuck(partition_states=GOOD, operations=operations)
    assert text in found.sentence
    assert [one.op_index for one in found.witnesses] == witnesses
    assert found.details == {"form": NOT_SERVED, "at_ns": 140 * MS}


@pytest.mark.parametrize(("ms", "expected"), [(80, ""), (81, NO_LEADER)])
def test_a_broker_counts_that_registered_after_its_disk_was_destroyed(
    ms: int, expected: str
) -> None:
    tables: dict[str, Any] = {
        "partition_states": LEADERLESS,
        "broker_states": brokers(registered(ms, 2)),
        "faults": destroyed(),
    }
    assert form(replace(CONTEXT, elr_on=False), **tables) == expected
