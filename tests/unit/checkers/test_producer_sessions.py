"""Sessions of idempotent producers: which records count, and which elections."""

from dataclasses import replace
from typing import Any

import pytest

from harness.contracts.verdict import Judgement
from tests.anomalies.runs import fault, final_read, read, state
from tests.anomalies.test_producer_anomalies import (
    AFTER_A_KNOWN_ONE,
    BY_ELECTIONS,
    CONTEXT,
    FLAGGED,
    LONE,
    SESSION,
    UNCLEAN,
    found,
    gaps_by_elections,
    last_polls,
    lone_states,
    sent,
)
from tests.property.brute_force import Call


def gaps(calls: list[Call], *args: Any, **tables: Any) -> list[Judgement]:
    return [a.judgement for a in found(calls, *args, **tables) if a.id == "producer-gap"]


def test_a_failed_append_that_is_in_the_log_proves_nothing_about_those_before_it() -> None:
    failed = Call(op=1, kind="append", process=SESSION, inv=2, res=3, outcome="fail")
    assert not found([sent(0, 1, None), failed, *final_read(80, 1)])
    (gap,) = found([sent(0, 1, None), failed, sent(2, 5, 1), *final_read(80, 1, 2)])
    assert (gap.id, gap.count) == ("producer-gap", 1)
    assert [witness.op_index for witness in gap.witnesses] == [0, 2]


@pytest.mark.parametrize(
    ("sparse", "process", "next_start", "count"),
    [
        (True, 99, 2, 1),
        # Nothing shows that the final reads went over offset 1.
        (False, 99, 2, 0),
        (True, 98, 2, 0),
        (True, 99, -1, 0),
    ],
)
def test_final_polls_that_follow_each_other_go_over_an_offset_without_a_record(
    sparse: bool, process: int, next_start: int, count: int
) -> None:
    """The session sends ops 0 to 2. Op 1 is gone; nothing is at offset 1."""
    calls = [sent(0, 1, 0), sent(1, 3, None), sent(2, 5, 2), read(80, 900, 0, final=True)]
    calls.append(
        replace(read(81, 902, 2, start=2, end=3, final=True), process=process, position=next_start)
    )
    context = replace(CONTEXT, sparse_offsets=sparse)
    assert gaps(calls, context) == [Judgement.FORBIDDEN] * count


def test_the_log_ends_with_its_last_record_if_log_ends_are_not_recorded() -> None:
    calls = [sent(0, 1, 0), sent(1, 3, None), sent(2, 5, 1), read(80, 900, 0, 2, final=True)]
    assert gaps(calls) == []
    assert gaps(calls, replace(CONTEXT, log_ends_recorded=False)) == [Judgement.FORBIDDEN]


@pytest.mark.parametrize(
    ("at_ns", "judgement"), [(-3, Judgement.FORBIDDEN), (-2, Judgement.UNDECIDED)]
)
def test_the_first_election_that_may_have_been_after_the_first_record_was_sent(
    at_ns: int, judgement: Judgement
) -> None:
    """The record is sent at 1; clocks differ by at most 3."""
    context = replace(UNCLEAN, clock_error_ns=3)
    states = [state(-9, 1, [1], epoch=0), state(at_ns, 2, [2], epoch=1, flagged=True)]
    assert gaps_by_elections(1, 3, context, states=states) == BY_ELECTIONS[judgement]


@pytest.mark.parametrize(
    ("at_ns", "judgement"), [(903, Judgement.UNDECIDED), (904, Judgement.FORBIDDEN)]
)
def test_the_last_election_that_may_have_been_before_the_last_read(
    at_ns: int, judgement: Judgement
) -> None:
    states = [state(-9, 1, [1], epoch=0), state(at_ns, 2, [2], epoch=1, flagged=True)]
    assert gaps_by_elections(10, 41, UNCLEAN, states=states) == BY_ELECTIONS[judgement]


@pytest.mark.parametrize(
    ("healed", "judgement"), [(9, Judgement.FORBIDDEN), (10, Judgement.UNDECIDED)]
)
def test_a_fault_that_may_have_had_an_effect_was_over_when_the_first_record_was_sent(
    healed: int, judgement: Judgement
) -> None:
    """The record is sent at 10."""
    wipe = fault(8, "wipe", ["b1"], healed=healed) | {"failed": True, "took_effect": False}
    judged = gaps_by_elections(10, 41, LONE, states=lone_states([1, 2], 0), faults=[wipe])
    assert judged == BY_ELECTIONS[judgement]


@pytest.mark.parametrize(
    ("epochs", "judgement"),
    [
        ((0, 0), Judgement.FORBIDDEN),
        ((1, 1), Judgement.FORBIDDEN),
        ((0, 1), Judgement.UNDECIDED),
        ((-1, -1), Judgement.UNDECIDED),
    ],
)
def test_final_polls_of_one_leader_epoch_show_one_log_also_in_the_first_epoch(
    epochs: tuple[int, int], judgement: Judgement
) -> None:
    calls = [*AFTER_A_KNOWN_ONE, *last_polls(0, 2, epochs=epochs)]
    assert gaps(calls, UNCLEAN, states=FLAGGED) == [judgement]


@pytest.mark.parametrize(
    ("older", "newer", "judgement"),
    [
        (0, 1, Judgement.UNDECIDED),
        (1, 1, Judgement.FORBIDDEN),
        (1, 0, Judgement.FORBIDDEN),
    ],
)
def test_a_deposed_leader_may_respond_to_a_final_poll_from_another_log(
    older: int, newer: int, judgement: Judgement
) -> None:
    """Ops 0 and 2 are in polls of one epoch, and op 9, which has the offset of op 1, in one of the other epoch.

    So op 1 may have been between ops 0 and 2 in the log of the first leader.
    """
    polls = [
        replace(read(80 + at, 900 + 2 * at, value, start=at, final=True), epoch=epoch)
        for at, (value, epoch) in enumerate(((0, older), (9, newer), (2, older)))
    ]
    taken = sent(9, 60, 1, process=8)
    calls = [sent(0, 1, 0), sent(1, 3, None), sent(2, 5, 2), taken, *polls]
    calls.append(final_read(89, 0, 9, 2)[-1])
    assert gaps(calls, UNCLEAN, states=FLAGGED) == [judgement]


def test_a_record_at_the_same_offset_in_another_poll_is_not_below_the_second_one() -> None:
    """Ops 0 and 2 are both at offset 0, in final polls of one epoch."""
    polls = [
        replace(read(op, at, value, final=True), epoch=1)
        for op, at, value in ((80, 900, 0), (81, 902, 2))
    ]
    calls = [sent(0, 1, 0), sent(1, 10, None), sent(2, 30, 0), *polls, final_read(89, 2)[-1]]
    assert gaps(calls, UNCLEAN, states=FLAGGED) == [Judgement.EXCUSED]


@pytest.mark.parametrize(
    ("elected_at", "judgement"), [(0, Judgement.EXCUSED), (1, Judgement.UNDECIDED)]
)
def test_all_that_is_known_may_be_known_at_time_0(elected_at: int, judgement: Judgement) -> None:
    whole = replace(read(80, 0, 9, 1, end=2, final=True), res=0)
    calls = [
        sent(0, 0, None),
        sent(1, 0, None),
        sent(9, 0, 0, until=0, process=8),
        whole,
        replace(final_read(81, 9, 1)[-1], op=82, inv=0, res=0),
    ]
    states = [state(-5, 1, [1], epoch=0), state(elected_at, 2, [2], epoch=1, flagged=True)]
    context = replace(CONTEXT, elr_on=False, unclean_election_enabled=True)
    assert gaps(calls, context, states=states) == [judgement]
