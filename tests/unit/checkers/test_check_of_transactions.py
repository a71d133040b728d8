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


def writers(*, third_reads: tuple[int, ...] | None = None, key: str = "x") -> list[Transaction]:
    """Two transactions append to one key; each read a version of another key that the other one replaced."""
    history = [
        Transaction(id=1, process=1, ops=(Read("y", ()), Append("z", 1), Append(key, 1))),
        Transaction(id=2, process=2, ops=(Read("z", ()), Append("y", 2), Append("x", 2))),
        Transaction(id=3, process=3, ops=(Read("y", (2,)), Read("z", (1,)))),
    ]
    if third_reads is not None:
        history.append(Transaction(id=4, process=4, ops=(Read("x", third_reads),)))
    return history


@pytest.mark.parametrize("strength", ["", "strong-session-", "strong-"])
@pytest.mark.parametrize("third_reads", [None, ()])
def test_unread_appends_of_one_key_need_an_order_that_keeps_snapshots(
    third_reads: tuple[int, ...] | None, strength: str
) -> None:
    """Whichever of them was first, the other one began before it and wrote the same key."""
    promise = f"{strength}snapshot-isolation"
    report = check_list_append(transactions_of(writers(third_reads=third_reads)), promise=promise)
    assert [(one.id, one.judgement) for one in report.findings] == [("G2-item", Judgement.ALLOWED)]
    assert any("the order of appends that no read returned" in r for r in report.unknown_reasons)


def test_an_order_of_unread_appends_that_keeps_snapshots_is_found() -> None:
    promise = "snapshot-isolation"
    apart = check_list_append(transactions_of(writers(key="w")), promise=promise)
    assert apart.unknown_reasons == (), "they write different keys: a write skew"
    serial = [
        *SKEW_OF_WRITES,
        Transaction(id=11, process=11, ops=(Append("u", 1),)),
        Transaction(id=12, process=12, ops=(Append("u", 2),)),
        Transaction(id=13, process=13, ops=(Append("u", 3),), outcome="aborted"),
    ]
    report = check_list_append(transactions_of(serial), promise=promise)
    assert [one.id for one in report.findings] == ["G2-item"]
    assert report.unknown_reasons == ()
    read = check_list_append(transactions_of(writers(third_reads=(1, 2))), promise=promise)
    assert {one.judgement for one in read.findings} >= {Judgement.FORBIDDEN}


@pytest.mark.parametrize(
    ("first", "second", "validity"),
    [
        ((0, 9), (1, 5), "decided"),
        ((1, 5), (0, 9), "decided"),
        ((1, 9), (0, 5), "undecided"),
        ((0, 5), (1, 9), "decided"),
    ],
    ids=["by their begins", "by their ends", "by neither", "by both"],
)
def test_appends_are_ordered_by_their_begins_or_ends(
    first: tuple[int, int], second: tuple[int, int], validity: str
) -> None:
    """The first one missed what the second one wrote, so only one order of their appends to x is possible."""
    history = [
        *SKEW_OF_WRITES,
        Transaction(id=21, process=21, ops=(Read("m", ()), Append("n", 1))),
        Transaction(id=22, process=22, ops=(Append("m", 2), Append("n", 2))),
        Transaction(id=23, process=23, ops=(Read("m", (2,)), Append("n", 3)), outcome="aborted"),
    ]
    times = {21: first, 22: second}
    placed = [
        replace(
            one,
            invoked_ns=times.get(one.id, (0, 20))[0],
            completed_ns=times.get(one.id, (0, 20))[1],
        )
        for one in history
    ]
    report = check_list_append(transactions_of(placed), promise="snapshot-isolation")
    assert [one.id for one in report.findings] == ["G2-item"]
    assert bool(report.unknown_reasons) == (validity == "undecided")


def test_only_snapshots_need_an_order_of_unread_appends() -> None:
    for promise in ("read-atomic", "read-committed"):
        report = check_list_append(transactions_of(writers()), promise=promise)
        assert report.unknown_reasons == ()
