"""What the closing reads show of transactions whose outcome is not known."""

import pytest

from checkers.kernels.transactions.check import check_inputs, check_log_transactions
from checkers.kernels.transactions.columns import (
    Append,
    CommitOffset,
    Poll,
    Transaction,
    Transactions,
    transactions_of,
)
from checkers.kernels.transactions.isolation import KAFKA_READ_COMMITTED
from checkers.kernels.transactions.log_closing import NO_CLOSING_READS

CONSUMED = ((("a", 0, 1),), (("a", 1, 2),))


def consumed_by_two(
    *outputs: Append, closing: tuple[tuple[str, int, int], ...] = (), closing_at_ns: int = 9
) -> Transactions:
    """Transactions 2, whose outcome is unknown and which ends at 3, and 3 of a group consume one record each."""
    return transactions_of(
        [
            Transaction(id=1, invoked_ns=0, completed_ns=1, ops=(Append("a", 1), Append("a", 2))),
            Transaction(
                id=2,
                invoked_ns=2,
                completed_ns=3,
                outcome="unknown",
                group=5,
                ops=(Poll(CONSUMED[0]), *outputs, CommitOffset("a", 1)),
            ),
            Transaction(
                id=3,
                invoked_ns=2,
                completed_ns=5,
                group=5,
                ops=(Poll(CONSUMED[1]), CommitOffset("a", 2)),
            ),
            Transaction(
                id=4,
                invoked_ns=closing_at_ns,
                completed_ns=10,
                is_final=True,
                ops=(Poll((*CONSUMED[0], *CONSUMED[1], *closing)),),
            ),
        ]
    )


@pytest.mark.parametrize(
    ("outputs", "closing", "skipped"),
    [((), (), 0), ((Append("b", 9),), (), 1), ((Append("b", 9),), (("b", 0, 9),), 0)],
    ids=["without-outputs", "outputs-are-not-there", "outputs-are-there"],
)
def test_a_consumer_of_unknown_outcome_did_not_commit_if_its_outputs_are_not_there(
    outputs: tuple[Append, ...], closing: tuple[tuple[str, int, int], ...], skipped: int
) -> None:
    history = consumed_by_two(*outputs, closing=closing)
    report = check_log_transactions(history, promise=KAFKA_READ_COMMITTED)
    assert [one.count for one in report.findings if one.id == "input-skipped"] == [1] * skipped


@pytest.mark.parametrize(
    ("outcome", "is_missed"), [("committed", True), ("unknown", True), ("aborted", False)]
)
def test_closing_reads_are_missed_if_a_transaction_may_have_committed(
    outcome: str, is_missed: bool
) -> None:
    ended = Transaction(id=1, invoked_ns=0, completed_ns=1, outcome=outcome, ops=(Append("a", 1),))
    report = check_log_transactions(transactions_of([ended]), promise=KAFKA_READ_COMMITTED)
    assert (NO_CLOSING_READS in report.unknown_reasons) is is_missed


def test_members_of_both_isolation_levels_prove_no_commit_by_what_they_read() -> None:
    """Transaction 3 shows an output of 2, whose outcome is unknown: a member may read it uncommitted."""
    history = [
        Transaction(id=1, invoked_ns=0, completed_ns=1, ops=(Append("a", 1),)),
        Transaction(
            id=2,
            invoked_ns=2,
            completed_ns=3,
            outcome="unknown",
            group=5,
            ops=(Poll((("a", 0, 1),)), Append("b", 9), CommitOffset("a", 1)),
        ),
        Transaction(
            id=3,
            invoked_ns=4,
            completed_ns=5,
            group=5,
            ops=(Poll((("a", 0, 1), ("b", 0, 9))), CommitOffset("a", 1)),
        ),
    ]
    report = check_log_transactions(transactions_of(history), promise=KAFKA_READ_COMMITTED)
    assert "input-processed-twice" in {one.id for one in report.findings}
    assert not check_inputs(transactions_of(history))


def test_clocks_are_exact_unless_it_is_said() -> None:
    """Transaction 2 ended when the closing read began, which does not show its output."""
    history = consumed_by_two(Append("b", 9), closing_at_ns=3)
    assert [one.id for one in check_inputs(history)] == ["input-skipped"]
    assert not check_inputs(history, clock_error_ns=1)
