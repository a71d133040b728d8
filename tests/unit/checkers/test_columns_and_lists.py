"""Transactions as columns: what is assumed of a transaction, and what a read of a list shows."""

import pytest

from checkers.kernels.transactions.check import check_list_append, check_log_transactions
from checkers.kernels.transactions.columns import (
    Append,
    Poll,
    Read,
    Transaction,
    transactions_of,
)
from checkers.kernels.transactions.lists import list_history


def test_a_transaction_begins_at_0_is_committed_and_closes_nothing_unless_it_says_so() -> None:
    t = transactions_of([Transaction(id=7, ops=(Append("x", 1),))])
    assert (t.invoked_ns.tolist(), t.commit_invoked_ns.tolist()) == ([0], [0])
    assert (t.process.tolist(), t.session.tolist()) == ([7], [7])
    assert t.is_final.tolist() == [False]
    assert list_history(t).is_node.tolist() == [True]


def test_a_read_proves_a_commit_unless_uncommitted_values_can_be_read() -> None:
    t = transactions_of(
        [
            Transaction(id=1, ops=(Append("x", 1),), outcome="unknown"),
            Transaction(id=2, ops=(Read("x", (1,)),)),
        ]
    )
    assert list_history(t).is_node.tolist() == [True, True]
    assert list_history(t, is_read_committed=False).is_node.tolist() == [False, True]


@pytest.mark.parametrize(("invoked_ns", "is_stale"), [(1, False), (2, True)])
def test_clocks_are_exact_unless_the_run_declares_an_error(invoked_ns: int, is_stale: bool) -> None:
    lists = [
        Transaction(id=1, ops=(Append("x", 1),), completed_ns=1),
        Transaction(id=2, ops=(Read("x", ()),), invoked_ns=invoked_ns),
        Transaction(id=3, ops=(Read("x", (1,)),), invoked_ns=invoked_ns),
    ]
    report = check_list_append(transactions_of(lists))
    assert [one.id for one in report.findings] == ["G-single-realtime"] * is_stale
    logs = [
        Transaction(id=1, ops=(Append("x", 1, offset=0),), invoked_ns=invoked_ns),
        Transaction(id=2, ops=(Poll((("x", 0, 1),)),), completed_ns=1),
    ]
    report = check_log_transactions(transactions_of(logs))
    assert ("future-read" in {one.id for one in report.findings}) is is_stale
