"""Leaders that cut their own logs, or led on with less, where logs were looked at now and then or not at all."""

from typing import Any

import pytest

from checkers.kernels.fates import EXCUSED, UNDECIDED, UNEXCUSED, Written
from tests.anomalies.claims import claim, claims, elections_of, ints
from tests.anomalies.runs import fault, leads, state

Row = dict[str, Any]


def alone(states: list[Row]) -> list[Row]:
    """Returns the states with a min ISR of 1, so that one replica may commit alone."""
    return [{**row, "min_isr": 1} for row in states]


# --- cuts that were seen ---


@pytest.mark.parametrize(("epoch", "expected"), [(0, UNEXCUSED), (1, UNDECIDED)])
def test_a_leader_may_establish_a_record_in_its_epoch_after_it_cut_its_log(
    epoch: int, expected: int
) -> None:
    """The leader of epoch 1 cut offset 1 at 30. The record was first seen at 40. The election at 60 is flagged.

    If it is of epoch 0, it was established before the cut, which lost it.
    """
    states = [
        state(0, 1, [1, 2], epoch=0),
        state(10, 2, [1, 2], epoch=1),
        state(60, 3, [3], epoch=2, flagged=True),
    ]
    looks = [
        leads(15, 2, 2, epoch=1, cause="observed"),
        leads(30, 2, 1, epoch=1, cause="truncate"),
    ]
    lost = claims(
        offset=[1], low_epoch=[epoch], high_epoch=[epoch], epoch=[epoch], from_ns=[5], by_ns=[40]
    )
    assert elections_of(states, looks).fates(lost).outcome.tolist() == [expected]


@pytest.mark.parametrize(("end", "expected"), [(1, UNDECIDED), (2, EXCUSED)])
def test_a_leader_that_cut_its_log_may_have_had_another_record_where_it_wrote(
    end: int, expected: int
) -> None:
    """Reads show that the flagged leader of epoch 1 wrote offset 1: after its election, or after it cut its log.

    The near miss: its log did not become shorter.
    """
    states = [state(0, 1, [1, 2], epoch=0), state(20, 2, [2], epoch=1, flagged=True)]
    looks = [
        leads(21, 2, 2, epoch=1, cause="observed"),
        leads(30, 2, end, epoch=1, cause="truncate"),
        leads(40, 2, 2, epoch=1, cause="observed"),
    ]
    lost = claims(offset=[1], low_epoch=[0], high_epoch=[0], epoch=[0], from_ns=[5], by_ns=[6])
    fates = elections_of(states, looks).fates(lost, None, Written.of(ints(1), ints(1)))
    assert fates.outcome.tolist() == [expected]


# --- cuts that no log shows and that faults may have caused ---


@pytest.mark.parametrize(
    ("flagged", "expected"), [(True, [EXCUSED, EXCUSED]), (False, [UNEXCUSED, UNDECIDED])]
)
def test_a_fault_that_cannot_have_destroyed_a_record_everywhere_decides_nothing_about_it(
    flagged: bool, expected: list[int]
) -> None:
    """Broker 1 was alone in the ISR since 20, and lost power at 40. Records were established at 10 and 25.

    The election at 60 may be flagged. If it is not, the fault may be why the second record is gone.
    """
    states = [
        state(0, 1, [1, 2], epoch=0),
        state(20, 1, [1], epoch=0),
        state(60, 3, [3], epoch=1, flagged=flagged),
    ]
    faults = [fault(40, "power", ["b1"], healed=45)]
    lost = claims(
        low_epoch=[0, 0], high_epoch=[0, 0], epoch=[0, 0], from_ns=[10, 25], by_ns=[10, 25]
    )
    assert elections_of(alone(states), faults=faults).fates(lost).outcome.tolist() == expected


def test_a_leader_that_may_have_led_on_with_less_brings_nothing_back() -> None:
    """Broker 2 is seen without the record when it leads. Its power is cut at 40, and broker 3 leads after it."""
    states = [
        state(0, 1, [1, 2, 3], epoch=0),
        state(10, 2, [2], epoch=1, flagged=True),
        state(46, 2, [2, 3], epoch=1),
        state(70, 3, [3], epoch=2),
    ]
    looks = [leads(11, 2, 0, epoch=1, cause="observed")]
    faults = [fault(40, "power", ["b2"], healed=45)]
    fates = elections_of(alone(states), looks, faults=faults).fates(claim(5))
    assert (fates.outcome.tolist(), fates.election.tolist()) == ([EXCUSED], [1])


@pytest.mark.parametrize(("established_ns", "expected"), [(90, UNDECIDED), (91, UNEXCUSED)])
def test_a_leader_may_have_led_on_without_what_it_established_until_its_fault_was_over(
    established_ns: int, expected: int
) -> None:
    faults = [fault(81, "power", ["b1"], healed=90)]
    found = elections_of(alone([state(0, 1, [1], epoch=0)]), faults=faults)
    assert found.fates(claim(established_ns)).outcome.tolist() == [expected]


@pytest.mark.parametrize(("epoch", "expected"), [(0, UNDECIDED), (1, UNEXCUSED)])
def test_a_leader_that_may_have_led_on_with_less_lost_nothing_of_the_next_epoch(
    epoch: int, expected: int
) -> None:
    """Broker 1 loses power at 40 and is deposed at 50. The record was sent at 45, and established by 55.

    The election at 50 is flagged, and may have given up what is of epoch 0. The one at 70 is not.
    """
    states = [
        state(0, 1, [1], epoch=0),
        state(50, 3, [3], epoch=1, flagged=True),
        state(70, 2, [2], epoch=2),
    ]
    lost = claims(low_epoch=[epoch], high_epoch=[epoch], epoch=[epoch], from_ns=[45], by_ns=[55])
    faults = [fault(40, "power", ["b1"], healed=60)]
    assert elections_of(alone(states), faults=faults).fates(lost).outcome.tolist() == [expected]
