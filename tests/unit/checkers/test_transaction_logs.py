"""Anomalies of transactional logs that need no cycle: what each rule counts, its borders, and how it says so."""

from typing import Any

import pytest

from checkers.kernels.history import OFFSET_MAX
from checkers.kernels.transactions.check import check_log_transactions
from checkers.kernels.transactions.columns import (
    CommitOffset,
    MicroOperation,
    Transaction,
    transactions_of,
)
from harness.contracts.checker import CheckerFinding
from tests.anomalies.test_transaction_anomalies import CLOSING, check_logs, found, got, send, txn


def finding(identifier: str, *history: Transaction) -> CheckerFinding:
    one = found(check_logs, identifier, history)
    assert one is not None
    return one


def has(identifier: str, *history: Transaction) -> bool:
    return found(check_logs, identifier, history) is not None


# --- offsets ---


@pytest.mark.parametrize(
    ("offset", "is_impossible"),
    [(-1, True), (0, False), (OFFSET_MAX, False), (OFFSET_MAX + 1, True)],
)
def test_a_record_has_an_offset_between_0_and_the_largest_one(
    offset: int, is_impossible: bool
) -> None:
    history = (txn(1, send("a", None, 1)), txn(2, got(("a", offset, 1))))
    assert has("impossible-offset", *history) == is_impossible


def test_an_impossible_offset_names_the_transaction_that_received_it() -> None:
    one = finding("impossible-offset", txn(1, send("b", 0, 1)), txn(2, got(("a", -5, 1))))
    assert one.sentence == "T2 received the offset -5 in a, which no record can have"


@pytest.mark.parametrize(
    ("offset", "count"), [(None, 0), (0, 0), (OFFSET_MAX, 0), (OFFSET_MAX + 1, 1), (-2, 1)]
)
def test_an_acknowledged_offset_that_no_record_can_have_is_found(
    offset: int | None, count: int
) -> None:
    history = (txn(1, send("b", 0, 5)), txn(2, send("a", 3, 6), send("b", offset, 1)))
    one = found(check_logs, "impossible-offset", history)
    assert (one.count if one else 0) == count
    if one is not None:
        assert one.sentence == (
            f"T2 sent a record that was acknowledged at the offset {offset} in b, which no record can have"
        )
        both = found(check_logs, "impossible-offset", (*history, txn(3, got(("a", -5, 6)))))
        assert both is not None
        assert both.count == 2
        assert both.sentence.startswith("T3 received the offset -5 in a")


@pytest.mark.parametrize(("offset", "counts"), [(OFFSET_MAX, True), (OFFSET_MAX + 1, False)])
def test_an_acknowledged_offset_counts_up_to_the_largest_one(offset: int, counts: bool) -> None:
    twice = (txn(1, send("a", offset, 1)), txn(2, got(("a", 0, 1))))
    assert has("duplicate", *twice) == counts
    back = txn(1, send("a", offset, 1), send("a", 0, 2))
    assert has("int-nonmonotonic-send", back) == counts


# --- times ---


@pytest.mark.parametrize(
    ("end", "identifier"),
    [(4, "future-read"), (5, "precommitted-read"), (7, "precommitted-read"), (8, None)],
)
def test_a_record_is_received_before_its_transaction_began_or_before_its_commit(
    end: int, identifier: str | None
) -> None:
    history = (
        txn(1, got(("a", 0, 1)), at=(0, end)),
        txn(2, send("a", 0, 1), at=(5, 9), commit_invoked_ns=8),
    )
    ids = {one.id for one in check_logs(history).findings}
    assert ids & {"future-read", "precommitted-read"} == ({identifier} if identifier else set())


def test_an_inversion_names_the_records_and_when_their_transactions_ran() -> None:
    one = finding(
        "order-inversion",
        txn(1, send("a", 0, 1), at=(0, 9 * 10**9)),
        txn(2, send("a", 4, 2), at=(0, 2 * 10**9)),
        txn(3, send("a", 2, 3), at=(3 * 10**9, 9 * 10**9)),
        txn(4, send("a", 6, 4), at=(0, 9 * 10**9)),
    )
    assert one.sentence == (
        "T3 was invoked at 3.000 s, after T2 was complete at 2.000 s, but in a its record at offset 2 is before"
        " the one of T2 at offset 4"
    )


# --- closing reads ---


@pytest.mark.parametrize(("begin", "is_torn"), [(199, True), (200, True), (201, False)])
def test_a_transaction_without_an_end_is_torn_if_it_began_before_the_closing_reads(
    begin: int, is_torn: bool
) -> None:
    open_one = Transaction(
        id=1, ops=(send("a", 0, 1), send("b", 0, 1)), invoked_ns=begin, outcome="unknown"
    )
    assert has("torn-transaction", open_one, txn(2, got(("a", 0, 1)), **CLOSING)) == is_torn


@pytest.mark.parametrize(("ended", "is_lost"), [(199, True), (200, True), (201, False)])
@pytest.mark.parametrize("error_ns", [0, 50])
def test_without_numbers_of_events_times_show_which_transactions_the_closing_reads_had_to_return(
    ended: int, is_lost: bool, error_ns: int
) -> None:
    history = (
        txn(1, send("a", 0, 1), at=(0, ended - error_ns)),
        txn(2, got(), **CLOSING),
    )
    report = check_log_transactions(transactions_of(history), clock_error_ns=error_ns)
    assert [one.id for one in report.findings] == ["lost-acked-write"] * is_lost
    has_reason = any("T1 may have ended after they began" in one for one in report.unknown_reasons)
    assert has_reason != is_lost


@pytest.mark.parametrize("is_read", [True, False])
def test_an_open_transaction_need_not_be_in_the_closing_reads(is_read: bool) -> None:
    """Nothing shows that the transaction that began after them committed, unless another one received a record."""
    history = [
        Transaction(id=1, ops=(send("a", 0, 1),), invoked_ns=250, outcome="unknown"),
        txn(2, got(), **CLOSING),
    ]
    if is_read:
        history.append(txn(3, got(("a", 0, 1)), at=(300, 400)))
    report = check_log_transactions(transactions_of(history))
    assert not report.findings
    assert any("T1 may have ended" in one for one in report.unknown_reasons) == is_read


# --- inputs of groups ---


def consumer(number: int, *ops: MicroOperation, group: int = 0) -> Transaction:
    return txn(number, *ops, group=group)


def test_a_group_needs_no_other_partition_to_process_an_input_twice() -> None:
    """The group has the number 0, and there is one partition."""
    once = (got(("in", 0, 1)), CommitOffset("in", 1))
    one = finding(
        "input-processed-twice", txn(1, send("in", 0, 1)), consumer(2, *once), consumer(3, *once)
    )
    assert one.sentence == "T2 and T3 of group 0 both consumed offset 0 of in and committed"


@pytest.mark.parametrize(("groups", "count"), [((5, 5), 1), ((5, 6), 2)])
def test_every_group_that_skips_a_record_counts(groups: tuple[int, int], count: int) -> None:
    first, second = groups
    skip: Any = (got(("a", 0, 1)), CommitOffset("a", 2))
    history = (
        txn(1, send("a", 0, 1), send("a", 1, 2)),
        consumer(2, *skip, group=first),
        consumer(3, *skip, group=second),
    )
    assert finding("input-skipped", *history).count == count
