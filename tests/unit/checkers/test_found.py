"""How sentences about transactions name what was read and written."""

import pytest

from checkers.kernels.transactions.columns import Append, Poll, Read, Transaction, transactions_of
from checkers.kernels.transactions.found import Words


def lines(*history: Transaction) -> list[str]:
    """Returns what the witnesses of transactions call their micro-operations."""
    witnesses = Words(transactions_of(history)).witnesses(tuple(range(len(history))))
    return [witness.text.partition(" -> ")[0] for witness in witnesses]


def test_a_witness_names_every_micro_operation_of_its_transaction_and_no_other() -> None:
    polled = Poll((("x", 5, 1), ("x", 6, 2)))
    assert lines(
        Transaction(id=1, ops=(Append("x", 1, 5), Append("x", 2))),
        Transaction(id=2, ops=(polled, Read("y", ()), Read("z", None), Read("y", (3,)))),
        Transaction(id=3, ops=()),
    ) == [
        "process 1 T1 write 1 to x at offset 5; write 2 to x",
        "process 2 T2 read x = [1, 2]; read y = []; read z = unknown; read y = [3]",
        "process 3 T3 ",
    ]


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (8, "1, 2, 3, 4, 5, 6, 7, 8"),
        (9, "... 1 more, 2, 3, 4, 5, 6, 7, 8, 9"),
        (10, "... 2 more, 3, 4, 5, 6, 7, 8, 9, 10"),
    ],
)
def test_of_a_long_list_the_last_eight_values_are_shown_and_the_others_are_counted(
    count: int, shown: str
) -> None:
    read = Read("x", tuple(range(1, count + 1)))
    assert lines(Transaction(id=4, ops=(read,))) == [f"process 4 T4 read x = [{shown}]"]


@pytest.mark.parametrize(("count", "more"), [(8, ""), (9, "; ... 1 more"), (10, "; ... 2 more")])
def test_of_a_long_transaction_the_first_eight_micro_operations_are_shown_and_the_others_are_counted(
    count: int, more: str
) -> None:
    first = Transaction(id=1, ops=(Append("x", 0),))
    long = Transaction(id=2, ops=tuple(Append("x", value) for value in range(1, count + 1)))
    shown = "; ".join(f"write {value} to x" for value in range(1, 9))
    assert lines(first, long) == ["process 1 T1 write 0 to x", f"process 2 T2 {shown}{more}"]
