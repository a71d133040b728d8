"""Components of histories whose numbers do not settle."""

import pytest

from checkers.kernels.transactions.check import check_list_append
from checkers.kernels.transactions.columns import Append, Read, Transaction, transactions_of


@pytest.mark.parametrize("promise", ["serializable", "strong-serializable"])
@pytest.mark.parametrize("length", [3, 63, 64, 65, 66, 80])
def test_a_cycle_at_the_end_of_a_long_stale_chain_is_found(length: int, promise: str) -> None:
    """Each transaction was invoked before the one that it follows, and none had ended."""
    last = length - 1
    chain = [
        Transaction(
            id=number,
            process=number,
            invoked_ns=length - number,
            ops=(Append("x", number), *([Append("y", number)] if number >= last - 1 else [])),
        )
        for number in range(length)
    ]
    reader = Transaction(
        id=1000,
        process=1000,
        ops=(Read("x", tuple(range(length))), Read("y", (last, last - 1))),
    )
    report = check_list_append(transactions_of([*chain, reader]), promise=promise)
    (found,) = report.findings
    assert (found.id, found.count) == ("G0", 1)
    assert sorted(witness.op_index for witness in found.witnesses) == [last - 1, last]
    assert report.coverage["transactions_in_cycles"] == 2
