"""Contradictions that an excused one hides: where they are looked for, and which are added."""

from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from checkers.kernels.elections import Elections
from checkers.kernels.excuses import Excuses
from checkers.kernels.fates import EXCUSED, UNEXCUSED, Election, Fates
from checkers.kernels.findings import Finding, finding
from checkers.kernels.hidden import HiddenFindings, invoked_before
from checkers.kernels.history import I64, PartitionHistory, read_history
from checkers.kernels.linearizability import Options
from harness.history.schema import TABLES
from tests.anomalies.runs import append, read
from tests.property.brute_force import Call, ends_table, operations_table, records_table


def history(calls: list[Call]) -> PartitionHistory:
    return read_history(operations_table(calls), records_table(calls), ends_table(calls))


class _Decided:
    """Excuses exactly the instances that some operations come first in."""

    def __init__(self, excused: tuple[int, ...]) -> None:
        self._excused = excused

    def fates(self, found: Finding) -> Fates:
        outcome = np.where(np.isin(found.first, self._excused), EXCUSED, UNEXCUSED)
        return Fates(
            outcome=outcome.astype(np.int8), election=np.full(found.count, -1, dtype=np.int64)
        )


def elections_at(*moments_ns: int) -> Elections:
    elections = Elections(
        **{
            name: TABLES[name].empty_table()
            for name in ("partition_states", "replica_states", "broker_states", "faults")
        },
        elr_on=False,
    )
    elections.elections = [
        Election(at_ns=at_ns, leader=1, leader_epoch=1, is_flagged=True) for at_ns in moments_ns
    ]
    return elections


def ints(*values: int) -> I64:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize(
    ("acks", "excused", "known", "weak", "expected"),
    [
        # Ops 4 and 5 came before op 6 and after it in the log: neither was known.
        (-1, (), (), False, [(1, 9), (4, 6), (5, 6)]),
        # What is known with another witness keeps it, unless it rests on weak records.
        (-1, (), (5,), False, [(1, 9), (4, 6), (5, 9)]),
        (-1, (), (5,), True, [(1, 9), (4, 6), (5, 6)]),
        # What is excused or weak is not added, whatever is known of it.
        (-1, (4,), (), False, [(1, 9), (5, 6)]),
        (-1, (4, 5), (), False, [(1, 9)]),
        (1, (), (), False, [(1, 9)]),
        (1, (), (5,), False, [(1, 9), (5, 9)]),
        (1, (4, 5), (), False, [(1, 9)]),
    ],
)
def test_a_contradiction_is_added_if_it_breaks_a_promise_and_is_not_known(
    acks: int,
    excused: tuple[int, ...],
    known: tuple[int, ...],
    weak: bool,
    expected: list[tuple[int, int]],
) -> None:
    whole = history([append(4, 1, at=1), append(5, 2, at=1), append(6, 0, at=4, acks=acks)])
    hidden = HiddenFindings(whole, cast(Excuses, _Decided(excused)), elections_at(), Options())
    given = finding(
        "order-inversion",
        ints(1, *known),
        second=ints(9, *(9 for _ in known)),
        weak=np.array([False, *(weak for _ in known)]),
    )
    fates = Fates(
        outcome=np.array([EXCUSED, *(UNEXCUSED for _ in known)], dtype=np.int8),
        election=np.full(given.count, -1, dtype=np.int64),
    )
    found, outcomes = hidden.revealed(given, fates)
    assert sorted(zip(found.first.tolist(), found.second.tolist(), strict=True)) == expected
    assert outcomes.outcome.tolist().count(EXCUSED) == 1
    assert len(outcomes.election) == len(outcomes.outcome) == len(expected)


@pytest.mark.parametrize(("election", "second"), [(-1, 6), (0, 6), (1, 7)])
def test_the_election_that_excused_a_contradiction_may_hide_an_earlier_one(
    election: int, second: int
) -> None:
    """Op 5 came before ops 6 to 8 and after them in the log. Elections were when 7 and 8 were sent.

    If no election excused it, a leader did that led on with less; then each of them may have been before that.
    """
    whole = history(
        [append(5, 3, at=1), append(6, 0, at=4), append(7, 1, at=10), append(8, 2, at=20)]
    )
    hidden = HiddenFindings(whole, cast(Excuses, _Decided(())), elections_at(10, 20), Options())
    given = finding("order-inversion", ints(5), second=ints(8))
    fates = Fates(outcome=np.array([EXCUSED], dtype=np.int8), election=ints(election))
    found, outcomes = hidden.revealed(given, fates)
    assert (found.first.tolist(), found.second.tolist()) == ([5], [second])
    assert outcomes.outcome.tolist() == [UNEXCUSED]


@pytest.mark.parametrize(("election", "second"), [(-1, 6), (0, 8), (1, 6)])
def test_an_election_that_excused_a_contradiction_hides_none_that_was_sent_after_it(
    election: int, second: int
) -> None:
    """Op 5 came before ops 6 and 8 and after both in the log. Op 6 was sent between the elections at 10 and 20."""
    whole = history([append(5, 3, at=1), append(6, 0, at=12), append(8, 2, at=25)])
    hidden = HiddenFindings(whole, cast(Excuses, _Decided(())), elections_at(10, 20), Options())
    given = finding("order-inversion", ints(5), second=ints(8))
    fates = Fates(outcome=np.array([EXCUSED], dtype=np.int8), election=ints(election))
    found, _ = hidden.revealed(given, fates)
    assert (found.first.tolist(), found.second.tolist()) == ([5], [second])


def test_a_history_is_cut_where_its_operations_were_invoked() -> None:
    """Half of the operations was invoked at 4, the other half at 5. Op 7 is not among them, only its record."""
    stray = replace(read(7, 1, 10), op=7)
    calls = [
        read(1, 4, 10, end=3),
        read(2, 5, 10, end=1),
        read(3, 4, 10, 11, end=7),
        append(10, 0, at=4),
        append(11, 1, at=5),
        append(12, -3, at=4),
        Call(op=20, kind="latest", process=9, inv=4, res=6, offset=2),
        Call(op=21, kind="latest", process=9, inv=5, res=6, offset=2),
    ]
    whole = read_history(operations_table(calls), records_table([*calls, stray]), ends_table(calls))
    assert whole.record_poll.tolist() == [-1, 0, 1, 2, 2]
    assert whole.odd_op.tolist() == [12]
    cut = invoked_before(whole, 5)
    assert cut.append_op.tolist() == [10, 12]
    assert cut.poll_op.tolist() == [1, 3]
    assert cut.record_poll.tolist() == [0, 1, 1]
    assert cut.record_value.tolist() == [10, 10, 11]
    assert cut.end_op.tolist() == [1, 3, 20]
    assert cut.end_poll.tolist() == [0, 1, -1]
    assert cut.odd_op.tolist() == []
    nothing = invoked_before(history([calls[6]]), 5)
    assert nothing.end_poll.tolist() == [-1]
