"""Anomalies of lists that need no cycle: what each rule counts, its borders, and how it says so."""

import pytest

from checkers.kernels.transactions.columns import MicroOperation, Transaction
from harness.contracts.checker import CheckerFinding
from tests.anomalies.test_transaction_anomalies import check_lists, found, put, read, txn


def finding(identifier: str, *history: Transaction) -> CheckerFinding:
    one = found(check_lists, identifier, history)
    assert one is not None
    return one


def has(identifier: str, *history: Transaction) -> bool:
    return found(check_lists, identifier, history) is not None


def test_a_read_that_ends_before_an_aborted_append_does_not_have_it() -> None:
    one = finding(
        "G1a",
        txn(1, *put("x", 1)),
        txn(2, *put("x", 2), outcome="aborted"),
        txn(3, read("x", 1, 2)),
        txn(4, read("x", 1)),
    )
    assert one.count == 1
    assert one.sentence == "T3 read 2 in x, which T2 wrote, and T2 aborted"


def test_an_aborted_append_counts_also_in_a_read_that_contradicts_the_longest_one() -> None:
    one = finding(
        "G1a",
        txn(1, *put("x", 1), outcome="aborted"),
        txn(2, *put("x", 2, 3)),
        txn(3, read("x", 2, 3)),
        txn(4, read("x", 1)),
    )
    assert one.count == 1
    assert one.sentence == "T4 read 1 in x, which T1 wrote, and T1 aborted"


@pytest.mark.parametrize(("order", "is_dirty"), [((2, 1), True), ((1, 2), False)])
def test_an_append_is_dirty_after_an_aborted_one_and_not_before_it(
    order: tuple[int, ...], is_dirty: bool
) -> None:
    history = (
        txn(1, *put("x", 1)),
        txn(2, *put("x", 2), outcome="aborted"),
        txn(3, read("x", *order)),
    )
    assert has("dirty-update", *history) == is_dirty


def test_a_contradiction_shows_what_the_transaction_did_with_that_key_only() -> None:
    one = finding(
        "internal", txn(1, *put("x", 1), *put("y", 1), read("x")), txn(2, read("x"), read("y", 1))
    )
    assert one.sentence == "T1 contradicts itself about x: it appended 1, then read []"


@pytest.mark.parametrize(
    ("ops", "is_internal"),
    [
        ((read("x"), read("x", 1)), True),
        ((read("x", 1), read("x", 1)), False),
        ((read("x"), read("x")), False),
    ],
)
def test_a_list_does_not_grow_between_two_reads_of_one_transaction(
    ops: tuple[MicroOperation, ...], is_internal: bool
) -> None:
    assert has("internal", txn(1, *ops), txn(2, *put("x", 1))) == is_internal


@pytest.mark.parametrize(("order", "is_internal"), [((2, 1), True), ((1, 2), False)])
def test_appends_of_one_transaction_stay_in_their_order_for_the_first_reader(
    order: tuple[int, ...], is_internal: bool
) -> None:
    assert has("internal", txn(1, read("x", *order)), txn(2, *put("x", 1, 2))) == is_internal


@pytest.mark.parametrize(
    ("ops", "is_internal"),
    [
        ((read("x", 8),), False),
        ((*put("x", 1), read("x", 8, 1)), False),
        ((*put("x", 1), read("x", 1, 8)), True),
        ((read("x", 8), *put("x", 1), read("x", 8, 1)), False),
        ((read("x", 8), *put("x", 1), read("x", 8)), True),
        ((read("x", 8, 1), *put("x", 1)), True),
        ((read("x", 8), *put("x", 1)), False),
    ],
)
def test_a_transaction_contradicts_itself_also_where_other_reads_contradict_each_other(
    ops: tuple[MicroOperation, ...], is_internal: bool
) -> None:
    history = (txn(1, *ops), txn(2, *put("x", 8, 9)), txn(3, read("x", 9)), txn(4, read("x", 8, 9)))
    assert has("incompatible-order", *history)
    assert has("internal", *history) == is_internal


@pytest.mark.parametrize(("last", "is_lost"), [("y", True), ("x", False)])
def test_an_update_is_lost_unless_reads_of_its_own_key_contradict_each_other(
    last: str, is_lost: bool
) -> None:
    """Both transactions read x, whose reads contradict each other, and then what they append to."""
    history = (
        txn(1, read("x", 8), read(last, *([8] if last == "x" else [])), *put(last, 1)),
        txn(2, read("x", 8), read(last, *([8] if last == "x" else [])), *put(last, 2)),
        txn(3, *put("x", 8, 9)),
        txn(4, read("x", 9)),
    )
    assert has("incompatible-order", *history)
    assert has("lost-update", *history) == is_lost


def test_a_version_that_three_transactions_replaced_counts_once() -> None:
    one = finding("lost-update", *(txn(n, read("x"), *put("x", n)) for n in (1, 2, 3)))
    assert one.count == 1
    assert one.sentence.startswith("T1 and T2 both read x as [] and then appended to it")


@pytest.mark.parametrize(("seen", "is_fractured"), [((9,), True), ((9, 1), False)])
def test_a_read_is_fractured_if_it_ends_just_before_the_other_write(
    seen: tuple[int, ...], is_fractured: bool
) -> None:
    history = (
        txn(1, read("x", *seen), read("y", 1)),
        txn(2, *put("x", 1), *put("y", 1)),
        txn(3, read("x", 9, 1)),
        txn(4, *put("x", 9)),
    )
    assert has("fractured-read", *history) == is_fractured
