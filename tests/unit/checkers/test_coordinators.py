"""Which elections of the offsets topic concern a group."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from checkers.kernels.coordinators import Coordinator, Deposed
from checkers.kernels.fates import EXCUSED, UNEXCUSED
from harness.contracts.run_context import RunContext
from harness.history.schema import COORDINATOR_STATES
from tests.anomalies.runs import broker, fault, state, table

GROUP = "h"
"""Its hash is 104: partition 0 of 4, but partition 4 of 5."""


@pytest.mark.parametrize(("partition", "outcome"), [(0, EXCUSED), (3, UNEXCUSED)])
def test_the_partition_of_a_group_follows_from_the_highest_partition_of_the_offsets_topic(
    partition: int, outcome: int
) -> None:
    """The offsets topic has partitions 0 to 3. A flagged election of one of them is between commit and loss."""
    states = [{**state(2, 1, [1, 3], epoch=0), "partition": index} for index in range(4)]
    states.append({**state(150, 2, [2], epoch=1, flagged=True), "partition": partition})
    tables = {
        COORDINATOR_STATES: table("partition_states", states),
        "broker_states": table("broker_states", []),
        "faults": table("faults", []),
    }
    committed, gone = np.array([100]), np.array([200])
    losses = Coordinator(
        GROUP, tables, RunContext(elr_on=False, unclean_election_enabled=True)
    ).losses(committed, gone)
    assert losses.tolist() == [outcome]


def deposed_by(
    leaders: list[int],
    *,
    isr: list[int],
    registered: list[int],
    faults: Sequence[dict[str, Any]] = (),
) -> tuple[Deposed, ...]:
    """Returns the coordinators that were replaced if the leaders change at 100, 200 and so on.

    Args:
        leaders: Of the group's partition.
        isr: With every leader.
        registered: When broker 0 registered.
        faults: What happened to brokers.
    """
    states = [state(100 * (n + 1), leader, isr, epoch=n) for n, leader in enumerate(leaders)]
    tables = {
        COORDINATOR_STATES: table("partition_states", states),
        "broker_states": table("broker_states", [broker(at, 0, "registered") for at in registered]),
        "faults": table("faults", list(faults)),
    }
    return Coordinator(GROUP, tables, RunContext(clock_error_ns=7)).deposed


INFINITY_NS = 2**61


def stopped(name: str, *, in_time: bool = True) -> dict[str, Any]:
    """Returns a fault that ends broker 0 with SIGTERM between 150 and 160."""
    row = fault(150, name, ["b0"], took_effect=in_time)
    ended = {"ended": {"b0": "stopped" if in_time else "stop-timeout"}}
    return {**row, "completed_ns": 160, "evidence": json.dumps(ended)}


@pytest.mark.parametrize(
    ("registered", "back_ns"),
    [([], INFINITY_NS), ([200], INFINITY_NS), ([201], 208), ([201, 300], 208)],
)
def test_a_coordinator_that_registers_after_it_was_deposed_knows_it(
    registered: list[int], back_ns: int
) -> None:
    assert deposed_by([0, 2], isr=[2], registered=registered) == (
        Deposed(from_ns=193, until_ns=207, left_ns=193, back_ns=back_ns),
    )


@pytest.mark.parametrize(
    ("ended", "registered", "back_ns"),
    [
        (fault(150, "kill", ["b0"]), [10, 300], 157),
        (fault(150, "power", ["b1", "b0"]), [], 157),
        (fault(200, "kill", ["b0"]), [], 207),
        (fault(260, "kill", ["b0"]), [300], 267),
        # Another process of this broker was the coordinator that was replaced.
        (fault(150, "kill", ["b0"]), [150, 300], 307),
        (fault(150, "kill", ["b0"]), [200, 300], 307),
        (fault(150, "kill", ["b0"]), [201], 157),
        # It was not ended.
        (fault(150, "pause", ["b0"]), [300], 307),
        (fault(150, "kill", ["b1"]), [300], 307),
        (fault(150, "kill", ["b0"], took_effect=False), [300], 307),
        ({**fault(150, "kill", ["b0"]), "failed": True}, [300], 307),
        ({**fault(150, "kill", ["b0"]), "completed_ns": None}, [300], 307),
        # It was stopped, in time or not. A process that was started again at once is another one.
        (stopped("stop"), [300], 167),
        (stopped("stop", in_time=False), [300], 167),
        (stopped("restart"), [155, 300], 307),
        (stopped("restart"), [300], 167),
        ({**stopped("stop"), "failed": True}, [300], 307),
        ({**stopped("stop"), "evidence": '{"ended": {"b1": "stopped"}}'}, [300], 307),
        ({**stopped("stop"), "evidence": '{"ended": ["b0"]}'}, [300], 307),
        ({**stopped("stop"), "evidence": "b0 ended"}, [300], 307),
        ({**stopped("stop"), "evidence": "[]"}, [300], 307),
    ],
)
def test_a_coordinator_whose_process_ended_answers_nothing(
    ended: dict[str, Any], registered: list[int], back_ns: int
) -> None:
    (deposed,) = deposed_by([0, 2], isr=[2], registered=registered, faults=[ended])
    assert deposed.back_ns == back_ns


@pytest.mark.parametrize(
    ("faults", "is_possible"),
    [
        ([], False),
        ([fault(150, "kill", ["b0"])], False),
        ([fault(150, "kill", ["b0"]), fault(160, "start", ["b0"])], False),
        ([fault(150, "pause", ["b0"], took_effect=False)], False),
        ([fault(150, "pause", ["b0"])], True),
        ([fault(150, "kill", ["b0"]), fault(150, "isolate", ["b1"])], True),
    ],
)
def test_without_a_record_a_fault_may_have_left_one_that_does_not_know(
    faults: list[dict[str, Any]], is_possible: bool
) -> None:
    found = deposed_by([], isr=[], registered=[], faults=faults)
    assert [one.may_lack(0) and one.may_answer(0, 0) for one in found] == [True] * is_possible


def test_a_coordinator_that_stays_in_the_isr_never_left_it() -> None:
    (deposed,) = deposed_by([0, 2], isr=[0, 2], registered=[])
    assert deposed.left_ns == INFINITY_NS


def test_a_partition_without_a_leader_has_no_coordinator_to_depose() -> None:
    assert [one.from_ns for one in deposed_by([0, -1, 2], isr=[2], registered=[])] == [193]


def test_equal_times_do_not_rule_out_that_a_deposed_coordinator_answered() -> None:
    deposed = Deposed(from_ns=20, until_ns=25, left_ns=20, back_ns=30)
    assert [deposed.may_lack(at_ns) for at_ns in (19, 20)] == [False, True]
    assert [deposed.may_answer(asked_ns, 99) for asked_ns in (30, 31)] == [True, False]
    assert [deposed.may_answer(0, seen_ns) for seen_ns in (19, 20)] == [False, True]
    early = Deposed(from_ns=20, until_ns=25, left_ns=10, back_ns=30)
    assert [early.may_lack(at_ns) for at_ns in (19, 20)] == [False, True]
    late = Deposed(from_ns=20, until_ns=25, left_ns=22, back_ns=30)
    assert [late.may_lack(at_ns) for at_ns in (21, 22)] == [False, True]
