"""The order on the clock: which operation contradicts which, in histories of two to four operations."""

from dataclasses import replace

import numpy as np
import pytest

from checkers.kernels.facts import derive_facts
from checkers.kernels.history import read_history
from checkers.kernels.left_out import LeftOut
from checkers.kernels.linearizability import Options, check_tables
from checkers.kernels.real_time import check_real_time, not_after, not_before
from tests.anomalies.runs import Call, append, read
from tests.property.brute_force import ends_table, operations_table, records_table


def latest(op: int, end: int, *, at: int, final: bool = False) -> Call:
    return Call(op=op, kind="latest", process=99, inv=at, res=at + 1, offset=end, final=final)


def found(calls: list[Call], *names: str) -> list[tuple[str, int, int]]:
    """Returns the identifier and both operations of every instance, of some identifiers only if they are given."""
    report = check_tables(operations_table(calls), records_table(calls), ends_table(calls))
    return [
        (f.id, first, second)
        for f in report.findings
        if f.id in names or not names
        for first, second in zip(f.first.tolist(), f.second.tolist(), strict=True)
    ]


def test_a_read_gives_an_append_without_an_offset_its_place_in_the_order() -> None:
    """Op 1 succeeded before op 2 was sent, but comes after it in the log."""
    calls = [append(1, None, at=1), append(2, 0, at=5), read(3, 9, 2, 1)]
    assert found(calls) == [("order-inversion", 1, 2)]
    unknown = replace(calls[0], outcome="info", res=None)
    assert found([unknown, *calls[1:]]) == []


@pytest.mark.parametrize(("early", "late"), [(1, 2), (2, 1)])
def test_of_two_appends_at_one_offset_the_later_one_bounds_the_order(early: int, late: int) -> None:
    """Op 5, at offset 1, came after one of them and before the other one."""
    calls = [append(early, 0, at=10), append(late, 0, at=20), append(5, 1, at=14)]
    assert found(calls, "order-inversion") == [
        ("order-inversion", early, late),
        ("order-inversion", 5, late),
    ]


def test_the_second_of_two_polls_may_have_come_too_early() -> None:
    calls = [append(1, 0, at=1), read(4, 3, 1), read(5, 4, 2, start=1), append(2, 1, at=9)]
    assert found(calls) == [("future-read", 5, 2)]


def by(process: int, call: Call) -> Call:
    return replace(call, process=process)


def contradictions(calls: list[Call], clock_error_ns: int) -> list[tuple[str, int, int]]:
    """Returns the identifier and both operations of every violation of the order."""
    history = read_history(operations_table(calls), records_table(calls), ends_table(calls))
    facts, _ = derive_facts(history)
    violations = check_real_time(history, facts, clock_error_ns=clock_error_ns)
    return [
        (f.id, first, second)
        for f in violations
        for first, second in zip(f.first.tolist(), f.second.tolist(), strict=True)
    ]


OWN = [
    ([by(5, read(2, 10, 3)), by(5, append(3, 0, at=12))], ("future-read", 2, 3)),
    ([by(5, latest(2, 2, at=10)), by(5, append(3, 1, at=12))], ("late-insert", 2, 3)),
    ([by(5, read(2, 10, 4, 3)), by(5, append(3, 0, at=12))], ("late-insert", 2, 3)),
]
"""Process 5 sends op 3 after op 2 showed it what is at that offset or behind it."""


@pytest.mark.parametrize(("calls", "violation"), OWN)
@pytest.mark.parametrize("clock_error_ns", [0, 1, 1000])
def test_one_process_has_one_clock(
    calls: list[Call], violation: tuple[str, int, int], clock_error_ns: int
) -> None:
    assert violation in contradictions(calls, clock_error_ns)
    # These contradict nothing.
    others = [by(4, append(0, 0, at=1)), by(6, append(1, 1, at=11))]
    assert violation in contradictions([*others, *calls], clock_error_ns)


@pytest.mark.parametrize("calls", [calls for calls, _ in OWN])
@pytest.mark.parametrize(("process", "at"), [(4, 12), (6, 12), (5, 11), (5, 9)])
def test_nothing_contradicts_itself_whose_order_is_not_known(
    calls: list[Call], process: int, at: int
) -> None:
    """Op 3 is of another process, or began when op 2 ended or before."""
    seen, sent = calls
    moved = replace(sent, process=process, inv=at, res=at + 1)
    assert contradictions([seen, moved], 1000) == []


def test_own_contradictions_are_not_mixed_up_between_processes() -> None:
    """Process 2 saw offset 5 early and sent op 11 late, but at offset 6; process 1 and 3 did the opposite."""
    calls = [
        by(1, append(1, 0, at=90)),
        by(1, latest(2, 9, at=95)),
        by(2, latest(3, 6, at=1)),
        by(2, append(4, 6, at=91)),
        by(3, append(5, 7, at=92)),
        by(3, latest(6, 9, at=96)),
    ]
    assert contradictions(calls, 1000) == []
    assert contradictions([*calls, by(2, append(7, 5, at=93))], 1000) == [("late-insert", 3, 7)]


def test_what_was_left_out_contradicts_others_and_is_not_contradicted_itself() -> None:
    """Offsets 5 and 6 were left out. Ops 1 and 4 came before op 8, and after it in the log."""
    left_out = LeftOut(limit=7, start=np.array([5]), stop=np.array([7]))
    calls = [append(1, 5, at=1), append(4, 4, at=18), append(8, 3, at=20)]
    history = read_history(
        operations_table(calls), records_table(calls), ends_table(calls), left_out
    )
    (inversion,) = check_real_time(history, derive_facts(history)[0])
    assert (inversion.id, inversion.first.tolist()) == ("order-inversion", [4])


@pytest.mark.parametrize("other_polls", [0, 1])
def test_a_poll_that_reports_the_end_behind_its_last_record_is_one_witness(
    other_polls: int,
) -> None:
    """Op 2 returned a record that was sent later. It is not reported a second time for the log end."""
    others = [replace(read(op, 0), op=op) for op in range(other_polls)]
    calls = [*others, read(2, 1, 3, end=1), append(3, 0, at=5)]
    assert found(calls) == [("future-read", 2, 3)]


@pytest.mark.parametrize("other_polls", [0, 1])
def test_a_poll_that_reports_an_end_far_behind_its_last_record_shows_more_by_the_end(
    other_polls: int,
) -> None:
    """Op 2 returned offset 0 and reported log end 2. Offset 1 was sent later."""
    others = [replace(read(op, 0), op=op) for op in range(other_polls)]
    calls = [*others, append(4, 0, at=0), read(2, 2, 4, end=2), append(3, 1, at=5)]
    assert found(calls) == [("late-insert", 2, 3)]
    # Both were sent later: the end shows it for both.
    assert found([*others, read(2, 1, 3, end=2), append(3, 0, at=5), append(4, 1, at=5)]) == [
        ("late-insert", 2, 3)
    ]


def test_a_log_end_counts_whatever_another_poll_returned() -> None:
    calls = [latest(1, 1, at=1), append(2, 0, at=5), read(3, 9, 2)]
    assert found(calls) == [("late-insert", 1, 2)]


@pytest.mark.parametrize(("inv", "is_weak"), [(10, True), (11, False)])
def test_an_inversion_is_weak_if_only_an_append_with_acks_1_shows_it(
    inv: int, is_weak: bool
) -> None:
    """Op 1 completed at 10, before op 2 with acks=1 was sent; op 3 was sent at that moment, or after it."""
    calls = [
        append(1, 2, at=9),
        append(2, 1, at=11, acks=1),
        replace(append(3, 0, at=inv), res=30),
    ]
    report = check_tables(operations_table(calls), records_table(calls), ends_table(calls))
    (inversion,) = [f for f in report.findings if f.id == "order-inversion"]
    assert inversion.first.tolist() == [1]
    assert inversion.weak.tolist() == [is_weak]
    assert inversion.second.tolist() == [2 if is_weak else 3]


def test_an_append_that_was_sent_when_the_other_one_succeeded_may_come_first() -> None:
    assert found([append(1, 1, at=1), append(2, 0, at=2)]) == []
    assert found([append(1, 1, at=1), append(2, 0, at=3)]) == [("order-inversion", 1, 2)]


@pytest.mark.parametrize("sent_twice", [False, True])
def test_an_append_with_acks_1_counts_like_others_where_its_record_was_read(
    sent_twice: bool,
) -> None:
    """Reads show op 1 at its offset, another record at that of op 2, and nothing at that of op 3."""
    acknowledged = [append(op, op - 1, at=op, acks=1) for op in (1, 2, 3)]
    calls = [*acknowledged, append(4, None, at=5), read(9, 20, 1, 4)]
    history = read_history(operations_table(calls), records_table(calls), ends_table(calls))
    facts, _ = derive_facts(history, sent_twice=sent_twice)
    order, _ = not_before(history, facts, sent_twice=sent_twice)
    weak = dict(zip(order.op.tolist(), order.weak.tolist(), strict=True))
    assert weak == {1: False, 2: True, 3: True, 4: False}


@pytest.mark.parametrize(
    ("more", "is_lost"),
    [
        ([read(5, 20, 2, start=1)], False),
        ([read(5, 20, 2, start=1, final=True)], True),
        ([replace(read(5, 20, final=True), outcome="info", res=None)], False),
        ([latest(5, 2, at=20)], False),
        ([latest(5, 2, at=20, final=True)], True),
        ([latest(5, 1, at=20, final=True)], True),
        ([latest(5, 0, at=20, final=True)], False),
    ],
)
def test_an_append_that_a_stale_end_hides_is_lost_if_the_final_phase_went_past_it(
    more: list[Call], is_lost: bool
) -> None:
    """Op 1 was acknowledged at offset 0; later the log ended there. No read returned it."""
    calls = [append(1, 0, at=1), append(2, 1, at=12), latest(3, 0, at=5), *more]
    names = {
        identifier for identifier, first, _ in found(calls, "lost-ack", "stale-end") if first == 1
    }
    assert names == {"lost-ack" if is_lost else "stale-end"}


def test_an_append_right_after_the_last_final_read_is_not_lost() -> None:
    calls = [append(1, 0, at=1), append(2, 1, at=1), latest(3, 0, at=5), read(4, 9, 1, final=True)]
    assert found(calls, "lost-ack", "stale-end") == [("stale-end", 1, 3), ("stale-end", 2, 3)]


def test_of_two_contradictions_of_one_poll_the_larger_one_is_reported() -> None:
    """Op 9 returned offset 3 although it reported log end 2. Offset 1 was sent at 10, and offset 2 at 20."""
    torn = replace(read(9, 3, end=2), position=3, records=((3, 4),))
    calls = [
        append(1, 0, at=1),
        append(4, 3, at=1),
        torn,
        append(2, 1, at=10),
        append(3, 2, at=20),
    ]
    assert found(calls, "late-insert") == [("late-insert", 9, 3)]


@pytest.mark.parametrize("sent_twice", [None, False, True])
def test_a_second_record_of_an_append_is_a_further_fact_if_producers_send_twice(
    sent_twice: bool | None,
) -> None:
    """Op 1 succeeded before op 2 was sent, and was read behind it, twice. Op 3 was read at offsets 2 and 3."""
    calls = [
        append(1, None, at=1),
        append(2, 0, at=5),
        append(3, 2, at=7),
        read(9, 20, 2, 1, 3, 3, 1),
    ]
    history = read_history(operations_table(calls), records_table(calls), ends_table(calls))
    facts, _ = derive_facts(history)
    more = {} if sent_twice is None else {"sent_twice": sent_twice}
    after = not_after(history, facts, **more)[0]
    order, _ = not_before(history, facts, **more)
    inversions = [each.id for each in check_real_time(history, facts, **more)]
    places = sorted(zip(order.op.tolist(), order.offset.tolist(), strict=True))
    assert places == [(1, 1), (1, 4), (2, 0), (3, 2), *([(3, 3)] if sent_twice else [])]
    assert after.op.tolist() == ([2, 3, 1] if sent_twice else [2, 3, 1, 1])
    assert inversions == ["order-inversion"]


def test_a_second_record_of_an_append_contradicts_nothing_unless_producers_send_twice() -> None:
    """Op 4, at offset 1, succeeded before op 3 was sent, which is at offset 2 and was read at offset 0, too."""
    calls = [append(4, 1, at=2), append(3, 2, at=7), read(9, 20, 3, 4, 3)]
    history = read_history(operations_table(calls), records_table(calls), ends_table(calls))
    facts, _ = derive_facts(history)
    assert check_real_time(history, facts) == []
    (inversion,) = check_real_time(history, facts, sent_twice=True)
    assert (inversion.id, inversion.first.tolist()) == ("order-inversion", [4])


AGAIN = Options(sent_twice=True)


def orders(calls: list[Call], options: Options = AGAIN) -> list[tuple[str, int, int]]:
    """Returns what real time contradicts, if producers may have sent appends again."""
    report = check_tables(operations_table(calls), records_table(calls), ends_table(calls), options)
    return [
        (f.id, first, second)
        for f in report.findings
        if f.id != "duplicate"
        for first, second in zip(f.first.tolist(), f.second.tolist(), strict=True)
    ]


def test_the_acknowledged_record_of_an_append_that_was_sent_again_is_at_one_of_its_places() -> None:
    """Op 1 succeeded before op 2 was sent. Each offset before its first record holds another one.

    So op 1 is behind op 2.
    """
    calls = [append(1, None, at=1), append(2, 0, at=5), read(9, 20, 2, 1)]
    assert orders(calls) == [("order-inversion", 1, 2)]
    again = [*calls[:2], read(9, 20, 2, 1, 1)]
    assert orders(again) == [("order-inversion", 1, 2)], "two records of it, both behind op 2"
    between = [append(1, None, at=1), append(3, 0, at=0), append(2, 1, at=5), read(9, 20, 3, 2, 1)]
    assert orders(between) == [("order-inversion", 1, 2)], "op 3 may come before op 1"
    before = [append(1, None, at=1), append(2, 1, at=5), read(9, 20, 1, 2, 1)]
    assert orders(before) == [], "its first record may be the acknowledged one"


@pytest.mark.parametrize(
    "calls",
    [
        # Nobody knows the record at offset 0: it may be the acknowledged one.
        [append(1, None, at=1), append(2, 1, at=5), read(9, 20, 2, 1, start=1)],
        # It is that of an append with acks=1, which may have been lost before op 1 was written there.
        [
            append(1, None, at=1),
            append(2, 1, at=5),
            append(3, 0, at=0, acks=1),
            read(9, 20, 2, 1, start=1),
        ],
        # With acks=1 the acknowledged record of op 1 may be lost.
        [append(1, None, at=1, acks=1), append(2, 0, at=5), read(9, 20, 2, 1)],
        [
            replace(append(1, None, at=1), outcome="info", res=None),
            append(2, 0, at=5),
            read(9, 20, 2, 1),
        ],
        [append(1, None, at=4), append(2, 0, at=5), read(9, 20, 2, 1)],
    ],
    ids=["unknown", "acks=1 below", "acks=1", "no response", "at one time"],
)
def test_the_acknowledged_record_may_be_elsewhere(calls: list[Call]) -> None:
    assert orders(calls) == []


def test_retention_may_have_removed_the_acknowledged_record() -> None:
    calls = [append(1, None, at=1), append(2, 4, at=5), read(9, 20, 2, 1, start=4)]
    assert orders(calls, replace(AGAIN, log_start_offset=4)) == []


def test_a_log_end_that_lacks_an_append_that_was_sent_again_is_stale() -> None:
    calls = [append(1, None, at=1), latest(2, 0, at=5), read(9, 20, 1)]
    assert orders(calls) == [("stale-end", 1, 2)]
    assert orders([append(1, None, at=1), latest(2, 1, at=5), read(9, 20, 1)]) == []
