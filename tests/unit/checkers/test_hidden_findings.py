"""Contradictions that an excused one hides: which are added."""

from typing import cast

import numpy as np
import pytest

from checkers.kernels.elections import EXCUSED, UNEXCUSED, Elections, Fates
from checkers.kernels.excuses import Excuses
from checkers.kernels.findings import Finding, finding
from checkers.kernels.hidden import HiddenFindings
from checkers.kernels.history import I64, PartitionHistory, read_history
from checkers.kernels.linearizability import Options
from harness.history.schema import TABLES
from tests.anomalies.runs import append
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
    elections = Elections(
        **{
            name: TABLES[name].empty_table()
            for name in ("partition_states", "replica_states", "broker_states", "faults")
        },
        elr_on=False,
    )
    hidden = HiddenFindings(whole, cast(Excuses, _Decided(excused)), elections, Options())
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
