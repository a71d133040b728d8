"""When a partition is stuck, and when losing progress is lawful."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from checkers.kernels.cut_partition import can_be_cut
from checkers.kernels.progress import (
    BELOW_MIN_ISR,
    LEFT_OUT,
    NO_LEADER,
    NOT_SERVED,
    PROGRESS,
)
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from harness.contracts.verdict import Judgement
from harness.history.schema import TABLES
from tests.anomalies.runs import broker, fault, replica, state, violation

MS = 1_000_000
REFUSED = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_REQUIRED_ACKS,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_TRANSACTION_TIMEOUT,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    KafkaError.INVALID_RECORD,
)
CONTEXT = RunContext(
    checkers=("progress",),
    final_phase_complete=False,
    healed_ns=100 * MS,
    ended_ns=200 * MS,
    stuck_after_ms=60,
)
"""The last 60 ms, from 140 on, must bring progress."""

Rows = list[dict[str, Any]]


def brokers(*more: dict[str, Any]) -> Rows:
    return [broker(number, number, "registered") for number in (1, 2, 3)] + list(more)


def registered(at_ms: int, number: int, *, clean: bool | None = False) -> dict[str, Any]:
    return broker(at_ms * MS, number, "registered", clean=clean)


def at(ms: int, leader: int, isr: list[int], **more: Any) -> dict[str, Any]:
    return state(ms * MS, leader, isr, epoch=ms, **more)


def final(op: int, kind: str, begin_ms: int, end_ms: int | None, **more: Any) -> dict[str, Any]:
    """An operation of the final phase that failed."""
    return {
        "op_index": op,
        "process": 0,
        "kind": kind,
        "topic": "t",
        "partition": 0,
        "invoked_ns": begin_ms * MS,
        "completed_ns": None if end_ms is None else end_ms * MS,
        "outcome": "info",
        "acks": -1 if kind == "append" else 0,
        "sequence": op,
        "key": "",
        "position": 0,
        "offset": None,
        "record_count": 0,
        "end_offset": None,
        "error_code": None,
        "error": "timeout",
        "node": "",
        "leader_epoch": -1,
        "final": True,
        **more,
    }


def form(context: RunContext = CONTEXT, **rows: Rows) -> str:
    """Returns how the partition is stuck; empty if it is not."""
    logs = [replica(1, number, 1) for number in (1, 2, 3)]
    given = {"broker_states": brokers(), "replica_states": logs, **rows}
    tables = {
        name: pa.Table.from_pylist(given.get(name, []), schema=TABLES[name])
        for name in PROGRESS.tables
    }
    report = PROGRESS.check(tables, context)
    assert not report.unknown_reasons
    if not report.findings:
        return ""
    (found,) = report.findings
    assert (found.id, found.judgement) == ("stuck", Judgement.FORBIDDEN)
    return str(found.details["form"])


LEADERLESS = [at(50, 1, [1, 2]), at(90, -1, [2])]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (LEADERLESS, NO_LEADER),
        ([*LEADERLESS, at(139, 2, [1, 2, 3])], ""),
        ([*LEADERLESS, at(150, 2, [2, 3])], ""),
        ([at(50, 1, [1, 2]), at(150, -1, [2])], ""),
        ([at(150, -1, [2])], ""),
        ([], ""),
        ([at(50, -1, [], elr=[3])], NO_LEADER),
        ([at(50, -1, [])], ""),
        # What a leader left in the ELR may not be forgotten while there is none.
        ([at(50, -1, [], elr=[3]), at(60, -1, [])], NO_LEADER),
        ([at(50, 1, [1], elr=[3]), at(60, 1, [1]), at(70, -1, [])], NO_LEADER),
        ([at(50, -1, [], elr=[3]), at(60, -1, [], replicas=[1, 2])], ""),
        # The old leader left the ISR with the change that left no leader.
        ([at(50, 4, [4, 5], replicas=[4, 5]), at(60, -1, [5], replicas=[4, 5])], ""),
        ([at(50, 1, [1], min_isr=2)], BELOW_MIN_ISR),
        ([at(50, 1, [1], min_isr=1)], LEFT_OUT),
        ([at(50, 1, [1, 2], min_isr=2)], LEFT_OUT),
        ([at(50, 1, [1, 2, 3])], ""),
        ([at(50, 1, [1, 2]), at(170, 1, [1, 2, 3])], ""),
        ([at(50, 1, [1]), at(170, 1, [1, 2])], ""),
        ([at(50, 1, [1]), at(170, 2, [2])], BELOW_MIN_ISR),
        # A partition never needs more members than it has replicas.
        ([at(50, 1, [], replicas=[1], min_isr=2)], BELOW_MIN_ISR),
        ([at(50, 1, [1], replicas=[1], min_isr=2)], ""),
    ],
)
def test_the_committed_states_show_it(states: Rows, expected: str) -> None:
    assert form(partition_states=states) == expected


@pytest.mark.parametrize(("error_ms", "expected"), [(9, NO_LEADER), (10, NO_LEADER), (11, "")])
def test_it_must_have_lasted_long_enough_by_every_clock(error_ms: int, expected: str) -> None:
    """There is no leader from 130 to 200. With an error of 11 ms of the clocks it may have been from 141 on."""
    context = replace(CONTEXT, clock_error_ns=error_ms * MS)
    assert form(context, partition_states=[at(50, 1, [1, 2]), at(130, -1, [2])]) == expected
    short = replace(context, healed_ns=131 * MS)
    assert form(short, partition_states=LEADERLESS) == (NO_LEADER if error_ms < 10 else "")


@pytest.mark.parametrize(
    "changes",
    [
        {"final_phase_complete": True},
        {"healed_ns": None},
        {"ended_ns": None},
        {"stuck_after_ms": 0},
        {"ended_ns": 159 * MS},
    ],
)
def test_nothing_is_claimed_of_a_run_that_was_too_short_or_does_not_say(
    changes: dict[str, Any],
) -> None:
    assert form(replace(CONTEXT, ended_ns=160 * MS), partition_states=LEADERLESS) == NO_LEADER
    context = replace(CONTEXT, **changes)
    assert form(context, partition_states=LEADERLESS) == ""
    assert can_be_cut(replace(context, checkers=(*LOG_CHECKERS, "progress")))
    assert not can_be_cut(replace(CONTEXT, checkers=(*LOG_CHECKERS, "progress")))


def test_a_node_that_ended_by_itself_explains_everything() -> None:
    ended = {"violations": [violation("b2 ended")]}
    assert form(partition_states=LEADERLESS, **ended) == ""


def test_the_last_eligible_replica_lost_its_data() -> None:
    unclean = brokers(registered(95, 2))
    assert form(partition_states=LEADERLESS, broker_states=unclean) == ""
    without_elr = replace(CONTEXT, elr_on=False)
    assert form(without_elr, partition_states=LEADERLESS, broker_states=unclean) == NO_LEADER
    for clean, expected in ((True, NO_LEADER), (None, "")):
        states = brokers(registered(95, 2, clean=clean))
        assert form(partition_states=LEADERLESS, broker_states=states) == expected
    earlier = brokers(registered(40, 2))
    assert form(partition_states=LEADERLESS, broker_states=earlier) == NO_LEADER


def destroyed(name: str = "wipe", **more: Any) -> Rows:
    return [{**fault(80 * MS, name, ["b2"], healed=98 * MS), "can_lose_data": True, **more}]


@pytest.mark.parametrize(
    ("faults", "since_registered", "expected"),
    [
        (destroyed(), False, ""),
        (destroyed(), True, NO_LEADER),
        (destroyed("power"), False, ""),
        (destroyed("io_error", can_lose_data=False, broken_disk=True), False, ""),
        (destroyed("io_error", can_lose_data=False, broken_disk=True), True, NO_LEADER),
        (destroyed("io_error", broken_disk=True, healed_ns=None), True, ""),
        (destroyed("pause", can_lose_data=False), False, NO_LEADER),
        (destroyed(resolved=["b1"]), False, NO_LEADER),
    ],
)
def test_a_broker_whose_disk_was_destroyed_counts_if_it_came_back(
    faults: Rows, since_registered: bool, expected: str
) -> None:
    # Without ELR, so that only the disk decides.
    again = [registered(99, 2)] if since_registered else []
    assert (
        form(
            replace(CONTEXT, elr_on=False),
            partition_states=LEADERLESS,
            broker_states=brokers(*again),
            faults=faults,
        )
        == expected
    )


@pytest.mark.parametrize(("error_ms", "expected"), [(1, NO_LEADER), (2, "")])
def test_a_broker_may_have_registered_before_its_disk_was_destroyed(
    error_ms: int, expected: str
) -> None:
    """The disk was destroyed at 80 ms by the harness's clock, and it registered at 82 ms by the controller's."""
    context = replace(CONTEXT, elr_on=False, clock_error_ns=error_ms * MS)
    states = brokers(registered(82, 2))
    assert (
        form(context, partition_states=LEADERLESS, broker_states=states, faults=destroyed())
        == expected
    )


def test_fewer_live_replicas_than_min_isr_promise_nothing() -> None:
    states = [at(50, 1, [1])]
    gone = [broker(60 * MS, number, "unregistered") for number in (2, 3)]
    assert form(partition_states=states, broker_states=brokers(*gone[:1])) == BELOW_MIN_ISR
    assert form(partition_states=states, broker_states=brokers(*gone)) == ""


FIRST = [replica(1, number, 1) for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("copying", "expected"),
    [
        ([], BELOW_MIN_ISR),
        ([(150, 2, "replicate")], BELOW_MIN_ISR),
        ([(150, 2, "replicate"), (150, 3, "replicate")], ""),
        ([(150, 2, "observed"), (150, 3, "truncate")], ""),
        ([(150, 2, "replicate"), (140, 3, "replicate")], BELOW_MIN_ISR),
        ([(150, 2, "replicate"), (141, 3, "replicate")], ""),
        # The leader writes, and a new epoch moves no log.
        ([(150, 2, "replicate"), (150, 1, "append")], BELOW_MIN_ISR),
        ([(150, 2, "replicate"), (150, 3, "role")], BELOW_MIN_ISR),
        ([(150, 2, "high-watermark"), (150, 3, "load")], BELOW_MIN_ISR),
    ],
)
def test_replicas_that_still_copy_do_not_count_as_enough_for_min_isr(
    copying: list[tuple[int, int, str]], expected: str
) -> None:
    later = [replica(ms * MS, number, 5, cause=cause) for ms, number, cause in copying]
    assert form(partition_states=[at(50, 1, [1])], replica_states=[*FIRST, *later]) == expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("replicate", 5, 4), ("truncate", 2, 4), ("replicate", 5, 4)], BELOW_MIN_ISR),
        # A new leader may have another log; one that restarts has lost something.
        ([("replicate", 5, 3), ("truncate", 2, 4), ("replicate", 5, 4)], ""),
        ([("truncate", 1, 4), ("truncate", 0, 4), ("replicate", 5, 4)], ""),
        ([("replicate", 5, 4), ("load", 2, 4), ("truncate", 1, 4), ("replicate", 5, 4)], ""),
        ([("replicate", 5, 4), ("truncate", 5, 4)], ""),
    ],
)
def test_a_replica_that_cuts_off_what_it_copied_does_not_come_closer_to_the_isr(
    rows: list[tuple[str, int, int]], expected: str
) -> None:
    later = [
        replica((150 + number) * MS, broker_id, end, epoch=epoch, cause=cause)
        for broker_id in (2, 3)
        for number, (cause, end, epoch) in enumerate(rows)
    ]
    states = [at(50, 1, [1])]
    assert form(partition_states=states, replica_states=[*FIRST, *later]) == expected


def test_a_replica_that_copied_explains_that_nothing_was_served_before_it_joined_the_isr() -> None:
    in_vain = [final(0, "append", 105, 150), final(1, "append", 151, 199)]
    later = [replica(150 * MS, number, 5) for number in (2, 3)]
    for states, expected in (
        ([at(50, 1, [1]), at(190, 1, [1, 2])], ""),
        ([at(50, 1, [1, 2]), at(190, 1, [1, 2, 3])], NOT_SERVED),
    ):
        tables = {"partition_states": states, "operations": in_vain}
        assert form(**tables, replica_states=[*FIRST, *later]) == expected
        assert form(**tables, replica_states=FIRST) == NOT_SERVED


def test_a_replica_without_a_recorded_log_may_be_copying() -> None:
    states = [at(50, 1, [1])]
    assert form(partition_states=states, replica_states=FIRST[:2]) == BELOW_MIN_ISR
    assert form(partition_states=states, replica_states=FIRST[:1]) == ""
    # Members of the ISR have everything.
    served = [final(0, "append", 105, None)]
    assert form(partition_states=GOOD, replica_states=[], operations=served) == NOT_SERVED


def test_a_replica_that_still_receives_something_is_not_left_out() -> None:
    states = [at(50, 1, [1, 2])]
    late, early = (replica(ms * MS, 3, 10) for ms in (150, 130))
    assert form(partition_states=states, replica_states=[late]) == ""
    assert form(partition_states=states, replica_states=[early]) == LEFT_OUT


def test_a_replica_whose_log_was_never_recorded_may_have_received_something() -> None:
    states = [at(50, 1, [1, 2])]
    assert form(partition_states=states, replica_states=[]) == ""
    assert form(partition_states=states, replica_states=[replica(130 * MS, 2, 10)]) == ""
    assert form(partition_states=states, replica_states=[replica(130 * MS, 3, 10)]) == LEFT_OUT


GOOD = [at(50, 1, [1, 2, 3])]


def test_leaders_that_come_and_go_are_no_progress_if_none_of_them_serves_a_client() -> None:
    flapping = [at(50, 1, [1, 2, 3]), at(150, -1, [1, 2, 3]), at(170, 2, [1, 2, 3])]
    in_vain = [final(0, "append", 105, 150), final(1, "append", 151, 199)]
    assert form(partition_states=flapping, operations=in_vain) == NOT_SERVED
    served = [*in_vain[:1], final(1, "append", 151, 199, outcome="ok")]
    assert form(partition_states=flapping, operations=served) == ""
    assert form(partition_states=flapping) == "", "no client tried"


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([final(0, "append", 105, None)], NOT_SERVED),
        ([final(0, "append", 105, 150), final(1, "append", 151, 199)], NOT_SERVED),
        ([final(0, "append", 105, 150), final(1, "append", 151, 199, outcome="ok")], ""),
        ([final(0, "append", 105, 130, outcome="ok"), final(1, "poll", 131, 199)], NOT_SERVED),
        ([final(0, "latest", 131, 199, outcome="ok"), final(1, "poll", 131, None)], NOT_SERVED),
        ([final(0, "poll", 131, 199, outcome="ok", record_count=1)], ""),
        ([final(0, "poll", 131, 199, outcome="ok")], NOT_SERVED),
        # The client gave up, or had hardly begun.
        ([final(0, "append", 105, 184)], ""),
        ([final(0, "append", 105, 185)], NOT_SERVED),
        ([final(0, "append", 156, None)], ""),
        ([final(0, "append", 105, 150), final(1, "append", 170, None)], ""),
        ([final(0, "append", 105, None, final=False)], ""),
        ([final(0, "append", 105, 139)], ""),
        # Refused for what it is: too large, its timestamp, a policy. No leader, or a timeout, is another thing.
        *(([final(0, "append", 105, 199, error_code=code)], "") for code in REFUSED),
        *(([final(0, "append", 105, 199, error_code=code)], NOT_SERVED) for code in (5, 7, 19, 20)),
        ([final(0, "append", 105, 150, error_code=10), final(1, "append", 151, 199)], NOT_SERVED),
    ],
)
def test_clients_that_try_all_the_time_must_be_served(operations: Rows, expected: str) -> None:
    assert form(partition_states=GOOD, operations=operations) == expected
    down = [broker(60 * MS, number, "unregistered") for number in (2, 3)]
    assert form(partition_states=GOOD, operations=operations, broker_states=brokers(*down)) == "", (
        "one replica of three promises nothing with min ISR 2"
    )


@pytest.mark.parametrize(
    ("replicas", "isr", "min_isr", "expected"),
    [
        ([1, 2, 3], [1, 2, 3], 3, ""),
        ([1], [1], 1, ""),
        # The set value is not larger than the recorded one.
        ([1, 2, 3], [1, 2, 3], 2, NOT_SERVED),
        ([1, 2, 3], [1, 2], 3, BELOW_MIN_ISR),
    ],
)
def test_a_min_isr_above_the_number_of_replicas_may_refuse_every_append(
    replicas: list[int], isr: list[int], min_isr: int, expected: str
) -> None:
    states = [at(50, 1, isr, replicas=replicas, min_isr=min_isr)]
    refused = [final(0, "append", 105, 199, error_code=KafkaError.NOT_ENOUGH_REPLICAS)]
    assert form(partition_states=states, operations=refused) == expected
    unanswered = [final(0, "append", 105, 199)]
    assert form(partition_states=states, operations=unanswered) == (expected or NOT_SERVED)
