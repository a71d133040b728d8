"""The columns of transactions, the dependencies between them, and what makes a history impossible."""

from dataclasses import replace

import numpy as np
import pytest

from checkers.kernels.history import ABSENT, INF_NS, TIME_NS_MAX
from checkers.kernels.transactions import lists
from checkers.kernels.transactions.check import check_list_append, check_log_transactions
from checkers.kernels.transactions.columns import (
    Append,
    CommitOffset,
    Poll,
    Read,
    Transaction,
    Transactions,
    normalised,
    transactions_of,
)
from harness.errors import HistoryError
from tests.unit.checkers.small_transactions import ONE, READER

OF_TRANSACTIONS = (
    *("id", "process", "invoked_ns", "completed_ns", "commit_invoked_ns"),
    *("ended_event", "session", "group", "is_final", "outcome"),
)


def test_values_and_keys_keep_their_names() -> None:
    history = [
        Transaction(id=1, ops=(Append("x", "first"), Append(3, "second"))),
        Transaction(id=2, ops=(Read("x", ("second",)),)),
    ]
    t = transactions_of(history)
    assert t.key_names == ("3", "x")
    finding = check_list_append(t).findings[0]
    assert finding.id == "phantom-value"
    assert finding.sentence == "T2 read second in x, which no transaction wrote there"


def test_a_poll_of_two_partitions_is_one_micro_operation_in_two_rows() -> None:
    poll = Poll((("b", 4, 1), ("a", 0, 2), ("b", 5, 3)))
    t = transactions_of([Transaction(id=9, ops=(poll, CommitOffset("a", 1)))])
    assert t.op_number.tolist() == [0, 0, 1]
    assert [t.key_names[key] for key in t.op_key] == ["a", "b", "a"]
    assert t.element_offset.tolist() == [0, 4, 5, 1]


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ([ONE, ONE], "transaction 1 occurs twice"),
        ([replace(ONE, id=-4)], "transaction -4 has a negative id"),
        ([replace(ONE, outcome="perhaps")], "transaction 1: outcome 'perhaps' is none of"),
        ([replace(ONE, invoked_ns=5, completed_ns=4)], "transaction 1 completed before"),
        ([replace(ONE, invoked_ns=5, commit_invoked_ns=4)], "transaction 1 requested its commit"),
        ([replace(ONE, invoked_ns=2**70)], "does not fit in 64 bits"),
    ],
)
def test_a_history_that_cannot_be_is_refused_with_the_place(
    history: list[Transaction], message: str
) -> None:
    with pytest.raises(HistoryError, match=message):
        transactions_of(history)


@pytest.mark.parametrize("check", [check_list_append, check_log_transactions])
def test_one_value_written_twice_to_one_key_is_refused(check: object) -> None:
    t = transactions_of([ONE, replace(ONE, id=2)])
    with pytest.raises(HistoryError, match="transactions 1 and 2 both write 1 to x"):
        check(t)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"process": np.zeros(1, dtype=np.int64)}, "process has not one row per transaction"),
        ({"op_key": np.array([0, 1], dtype=np.int64)}, "transaction 2 has a micro-operation"),
        ({"op_kind": np.array([0, 3], dtype=np.int8)}, "transaction 2 has a micro-operation"),
        ({"op_is_known": np.array([True, False])}, "transaction 2 has a micro-operation"),
        ({"op_transaction": np.array([0, 2], dtype=np.int64)}, "belongs to no transaction"),
        ({"element_value": np.zeros(9, dtype=np.int64)}, "different lengths"),
        ({"op_count": np.array([2, 0], dtype=np.int64)}, "transaction 1 has a micro-operation"),
    ],
)
def test_columns_that_contradict_each_other_are_refused(
    changed: dict[str, np.ndarray], message: str
) -> None:
    t = transactions_of([ONE, READER])
    with pytest.raises(HistoryError, match=message):
        check_list_append(replace(t, **changed))  # type: ignore[arg-type]


@pytest.mark.parametrize("beyond", [0, 1])
@pytest.mark.parametrize("times", [("invoked_ns", "completed_ns"), ("completed_ns",)])
def test_a_time_so_late_that_it_means_never_is_refused(times: tuple[str, ...], beyond: int) -> None:
    late = replace(ONE, **dict.fromkeys(times, TIME_NS_MAX + beyond))
    if not beyond:
        check_list_append(transactions_of([late]))
        return
    with pytest.raises(HistoryError, match="transaction 1 has a time beyond"):
        check_list_append(transactions_of([late]))


def test_two_micro_operations_in_one_place_are_refused() -> None:
    t = transactions_of([Transaction(id=5, ops=(Read("x", ()), Read("x", ())))])
    with pytest.raises(HistoryError, match="transaction 5 has two micro-operations"):
        check_list_append(replace(t, op_number=np.zeros(2, dtype=np.int64)))


@pytest.mark.parametrize("transactions", [(0, 1), (1, 0)])
@pytest.mark.parametrize("ops", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_columns_may_have_any_order(transactions: tuple[int, ...], ops: tuple[int, ...]) -> None:
    t = transactions_of([replace(ONE, ops=(Append("x", 1), Append("x", 2))), READER])
    rows, places = np.array(transactions), np.array(ops)
    columns = {name: getattr(t, name) for name in Transactions.__slots__}
    of_ops = {name: columns[name][places] for name in columns if name.startswith("op_")}
    of_elements = {name: columns[name][places] for name in columns if name.startswith("element_")}
    others = {name: columns[name][rows] for name in OF_TRANSACTIONS}
    of_ops["op_transaction"] = np.argsort(rows)[of_ops["op_transaction"]]
    found = normalised(replace(t, **of_ops, **of_elements, **others))
    for name, column in columns.items():
        assert np.array_equal(getattr(found, name), column), name


def test_what_a_transaction_leaves_out_is_the_earliest_time_and_its_own_number() -> None:
    t = transactions_of([replace(ONE, id=5)])
    assert (t.invoked_ns[0], t.commit_invoked_ns[0], t.completed_ns[0]) == (0, 0, INF_NS)
    assert (t.process[0], t.session[0], t.group[0]) == (5, 5, ABSENT)


def test_an_empty_history_tests_nothing() -> None:
    for check in (check_list_append, check_log_transactions):
        report = check(transactions_of([]))
        assert report.findings == ()
        assert "nothing was tested" in report.unknown_reasons[0]


def test_times_of_transactions_never_decide_without_a_completion() -> None:
    late = Transaction(id=2, ops=(Read("x", ()),), invoked_ns=1000, completed_ns=1001)
    assert check_list_append(transactions_of([ONE, late])).findings == ()
    early = replace(ONE, completed_ns=10)
    ids = [f.id for f in check_list_append(transactions_of([early, late])).findings]
    assert ids == ["G-single-realtime"]


def test_a_clock_error_hides_what_it_could_explain() -> None:
    history = [
        replace(ONE, completed_ns=10),
        Transaction(id=2, ops=(Read("x", ()),), invoked_ns=15, completed_ns=20),
    ]
    t = transactions_of(history)
    assert check_list_append(t, clock_error_ns=4).findings
    assert not check_list_append(t, clock_error_ns=5).findings


def test_without_a_clock_error_one_nanosecond_orders_two_transactions() -> None:
    late_read = Transaction(id=2, ops=(Read("x", ()),), invoked_ns=11, completed_ns=20)
    lists = transactions_of([replace(ONE, completed_ns=10), late_read])
    assert [f.id for f in check_list_append(lists).findings] == ["G-single-realtime"]
    assert not check_list_append(lists, clock_error_ns=1).findings
    first = Transaction(id=1, ops=(Append("a", 1, 1),), completed_ns=10)
    second = Transaction(id=2, ops=(Append("a", 0, 0),), invoked_ns=11, completed_ns=20)
    logs = transactions_of([first, second])
    found = {f.id for f in check_log_transactions(logs).findings}
    assert found == {"order-inversion", "G0-realtime"}
    assert not check_log_transactions(logs, clock_error_ns=1).findings


def test_transactions_are_counted_by_what_is_known_of_their_outcome() -> None:
    """T2 is proven by a read. T3 may have been committed, and T4 was not."""
    history = [
        ONE,
        Transaction(id=2, ops=(Append("x", 2),), outcome="unknown"),
        Transaction(id=3, ops=(Append("x", 3),), outcome="unknown"),
        Transaction(id=4, ops=(Append("x", 4),), outcome="aborted"),
        Transaction(id=5, ops=(Read("x", (1, 2)),)),
    ]
    coverage = check_list_append(transactions_of(history)).coverage
    assert coverage["transactions"] == 5
    assert coverage["transactions_committed"] == 2
    assert coverage["transactions_proven"] == 1


@pytest.mark.parametrize(
    ("anomaly", "history", "steps"),
    [
        (
            "G0",
            [
                Transaction(id=1, ops=(Append("x", 1), Append("y", 2))),
                Transaction(id=2, ops=(Append("x", 2), Append("y", 1))),
                Transaction(id=3, ops=(Read("x", (1, 2)), Read("y", (1, 2)))),
            ],
            ["T1 wrote 1 to x, before T2 wrote 2", "T2 wrote 1 to y, before T1 wrote 2"],
        ),
        (
            "G1c",
            [
                Transaction(id=1, ops=(Append("x", 1), Read("y", (2,)))),
                Transaction(id=2, ops=(Append("y", 2), Read("x", (1,)))),
            ],
            ["T2 read x at 1, which T1 wrote", "T1 read y at 2, which T2 wrote"],
        ),
        (
            "G2-item",
            [
                ONE,
                Transaction(id=2, ops=(Read("x", (1,)), Append("y", 1))),
                Transaction(id=3, ops=(Read("y", ()), Append("x", 2))),
                Transaction(id=4, ops=(Read("x", (1, 2)),)),
            ],
            ["T2 read x at 1, before T3 wrote 2", "T3 read y empty, before T2 wrote 1"],
        ),
    ],
    ids=["G0", "G1c", "G2-item"],
)
def test_a_cycle_says_why_each_transaction_comes_before_the_next_one(
    anomaly: str, history: list[Transaction], steps: list[str]
) -> None:
    (found,) = check_list_append(transactions_of(history)).findings
    assert found.id == anomaly
    assert [step["text"] for step in found.details["cycle"]] == steps


def _consumer(between: Transaction, session: int) -> list[str]:
    """Returns what is found if a consumer polled offset 0, ran a transaction, and then polled offset 2."""
    history = [
        Transaction(id=1, ops=tuple(Append("a", n, n) for n in range(3))),
        Transaction(id=2, ops=(Poll((("a", 0, 0),)),), invoked_ns=1, completed_ns=2, session=7),
        between,
        Transaction(
            id=4, ops=(Poll((("a", 2, 2),)),), invoked_ns=5, completed_ns=6, session=session
        ),
    ]
    return [f.id for f in check_log_transactions(transactions_of(history)).findings]


def test_a_consumer_of_unknown_position_skips_nothing() -> None:
    between = Transaction(id=3, ops=(), invoked_ns=3, completed_ns=4, session=7)
    assert "session-poll-skip" in _consumer(between, 7)
    assert "session-poll-skip" in _consumer(replace(between, outcome="aborted"), 7)
    assert "session-poll-skip" not in _consumer(replace(between, outcome="unknown"), 7)
    assert "session-poll-skip" not in _consumer(between, 8)


def test_polls_during_an_assignment_are_in_no_order() -> None:
    history = [
        Transaction(id=1, ops=tuple(Append("a", n, n) for n in range(3))),
        Transaction(id=2, ops=(Poll((("a", 2, 2),)), Poll((("a", 0, 0),)))),
    ]
    ids = [f.id for f in check_log_transactions(transactions_of(history)).findings]
    assert "int-nonmonotonic-poll" in ids
    history[1] = replace(history[1], session=-1)
    ids = [f.id for f in check_log_transactions(transactions_of(history)).findings]
    assert "int-nonmonotonic-poll" not in ids


@pytest.mark.parametrize(("begin", "is_lost"), [(9, False), (10, True)])
def test_closing_reads_prove_nothing_about_a_transaction_that_had_not_ended(
    begin: int, is_lost: bool
) -> None:
    history = [
        Transaction(id=1, ops=(Append("a", 1, 0),), completed_ns=10),
        Transaction(
            id=2, ops=(Poll(()),), invoked_ns=begin, completed_ns=begin + 50, is_final=True
        ),
    ]
    ids = [f.id for f in check_log_transactions(transactions_of(history)).findings]
    assert ("lost-acked-write" in ids) == is_lost


def test_an_own_last_append_is_followed_by_ww_only() -> None:
    """T2 read up to its own append, and T1 appended later, which no read returned: no anti-dependency."""
    history = [
        Transaction(id=1, ops=(Append("x", 1), Append("y", 1))),
        Transaction(id=2, ops=(Append("x", 2), Read("x", (2,)), Append("y", 2))),
        Transaction(id=3, ops=(Read("y", (1, 2)),)),
    ]
    ids = [f.id for f in check_list_append(transactions_of(history)).findings]
    assert ids == ["G0"]


UNSURE = (
    Transaction(id=1, ops=(Append("x", 1), Read("y", (3,)))),
    Transaction(id=2, ops=(Append("x", 2),)),
    Transaction(id=3, ops=(Read("x", (1,)), Append("y", 3))),
    Transaction(id=4, ops=(Read("x", (2,)),)),
)
"""T3 and T4 contradict each other about x; T1 and T3 depend on each other by what they read."""


def _found(*history: Transaction) -> list[str]:
    return [f.id for f in check_list_append(transactions_of(history)).findings]


def test_what_reads_returned_last_is_known_without_an_order() -> None:
    assert _found(*UNSURE) == ["incompatible-order", "G1c"]


@pytest.mark.parametrize(
    ("history", "ids"),
    [
        (
            (
                replace(UNSURE[0], ops=(Append("x", 1),)),
                replace(UNSURE[1], ops=(Append("x", 2), Append("y", 2))),
                replace(UNSURE[2], ops=(Read("x", (1,)),)),
                replace(UNSURE[3], ops=(Read("x", (2,)), Read("y", (2,)))),
            ),
            ["incompatible-order"],
        ),
        (
            (ONE, UNSURE[1], Transaction(id=3, ops=(Read("x", (1, 2, 1)),))),
            ["duplicate-elements"],
        ),
        (
            (
                ONE,
                Transaction(id=2, ops=(Append("x", 2), Read("y", (5,)))),
                Transaction(id=3, ops=(Read("x", (1,)),)),
                Transaction(id=4, ops=(Read("x", (2,)),)),
                Transaction(id=5, ops=(Read("x", ()), Append("y", 5))),
            ),
            ["incompatible-order"],
        ),
        (
            (
                ONE,
                Transaction(id=2, ops=(Read("y", (3,)), Append("z", 2))),
                Transaction(id=3, ops=(Read("x", (9,)), Append("y", 3))),
                Transaction(id=4, ops=(Read("x", (1,)),)),
            ),
            ["incompatible-order", "phantom-value"],
        ),
    ],
    ids=["two orders", "a repeated value", "an empty read", "a value that nobody wrote"],
)
def test_a_list_without_a_usable_order_gives_no_more_dependencies(
    history: tuple[Transaction, ...], ids: list[str]
) -> None:
    assert _found(*history) == ids


def test_values_are_read_although_no_transaction_wrote_any() -> None:
    readers = [Transaction(id=number, ops=(Read("x", (number,)),)) for number in (1, 2)]
    assert _found(*readers) == ["incompatible-order", "phantom-value"]
    polls = [Transaction(id=1, ops=(Poll((("a", 0, 1),)),))]
    logs = check_log_transactions(transactions_of(polls))
    assert [f.id for f in logs.findings] == ["phantom-value"]


@pytest.mark.parametrize(("pairs_max", "is_complete"), [(2, True), (1, False)])
def test_too_many_anti_dependencies_on_appends_that_no_read_returned_are_left_out(
    monkeypatch: pytest.MonkeyPatch, pairs_max: int, is_complete: bool
) -> None:
    monkeypatch.setattr(lists, "PAIRS_MAX", pairs_max)
    later = [Transaction(id=number, ops=(Append("x", number),)) for number in (3, 4)]
    report = check_list_append(transactions_of([ONE, READER, *later]))
    assert report.coverage["dependencies_rw"] == (2 if is_complete else 0)
    assert report.unknown_reasons == (
        ()
        if is_complete
        else (
            "2 anti-dependencies on appends that no read returned are too many; those of 1 reads were left out",
        )
    )
