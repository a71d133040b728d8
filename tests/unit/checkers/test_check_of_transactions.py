"""What a check of transactions counts, and which findings explain a cycle."""

from dataclasses import replace

import pytest

from checkers.kernels.transactions.check import check_list_append
from checkers.kernels.transactions.columns import Append, Read, Transaction, transactions_of
from harness.contracts.verdict import Judgement
from tests.unit.checkers.test_isolation import LONG_FORK, SKEW_OF_WRITES

ABORTED_READ = (
    Transaction(id=11, ops=(Append("z", 1),), outcome="aborted"),
    Transaction(id=12, ops=(Read("z", (1,)),)),
)


def test_transactions_are_counted_by_outcome() -> None:
    history = [
        Transaction(id=1, ops=(Append("x", 1),)),
        Transaction(id=2, ops=(Append("x", 2),), outcome="unknown"),
        Transaction(id=3, ops=(Append("x", 3),), outcome="unknown"),
        Transaction(id=4, ops=(Append("x", 4),), outcome="aborted"),
        Transaction(id=5, ops=(Read("x", (1, 2)), Append("y", 1))),
        Transaction(id=6, ops=(Append("x", 5),), outcome="aborted"),
    ]
    coverage = check_list_append(transactions_of(history)).coverage
    counts = {name: coverage[name] for name in coverage if not name.startswith("dependencies_")}
    assert counts == {
        "transactions": 6,
        "transactions_committed": 2,
        "transactions_proven": 1,
        "micro_operations": 7,
        "transactions_in_cycles": 0,
    }
    assert coverage["dependencies_ww"] == coverage["dependencies_wr"] == 1


@pytest.mark.parametrize(
    ("history", "judgement"),
    [(LONG_FORK, Judgement.FORBIDDEN), (SKEW_OF_WRITES, Judgement.ALLOWED)],
    ids=["long-fork", "write-skew"],
)
def test_an_aborted_read_does_not_explain_a_cycle_that_snapshots_forbid(
    history: tuple[Transaction, ...], judgement: Judgement
) -> None:
    whole = [replace(one, process=one.id) for one in (*history, *ABORTED_READ)]
    report = check_list_append(transactions_of(whole), promise="snapshot-isolation")
    assert {one.id: one.judgement for one in report.findings} == {
        "G1a": Judgement.FORBIDDEN,
        "G2-item": judgement,
    }
