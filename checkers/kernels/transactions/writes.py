"""Who wrote each value of each key."""

from dataclasses import dataclass

import numpy as np

from checkers.kernels.history import I64, Bools, lookup
from checkers.kernels.transactions.columns import WRITE, Transactions
from harness.errors import HistoryError


@dataclass(frozen=True, slots=True, kw_only=True)
class Writes:
    """All writes of a history, ordered by key and value.

    Attributes:
        op: Rows of the micro-operations.
        transaction: Rows of their transactions.
        key, value, offset: What was written where.
        is_last: Whether the transaction wrote nothing to the key afterwards.
    """

    op: I64
    transaction: I64
    key: I64
    value: I64
    offset: I64
    is_last: Bools
    _codes: I64
    _values: I64

    @property
    def count(self) -> int:
        """How many writes there are."""
        return len(self.op)

    def find(self, key: I64, value: I64) -> I64:
        """Returns the rows of the writes of some values to some keys, -1 where there is none."""
        if not self.count:
            return np.full(len(key), -1, dtype=np.int64)
        number = lookup(self._values)(value)
        code = key * len(self._values) + number
        at = np.searchsorted(self._codes, code)
        at[at == self.count] = 0
        found: I64 = np.where((number >= 0) & (self._codes[at] == code), at, -1)
        return found


def writes_of(t: Transactions) -> Writes:
    """Returns the writes of a history.

    Raises:
        HistoryError: Two writes put the same value into one key, so that it is unknown which one was read.
    """
    op = np.flatnonzero(t.op_kind == WRITE)
    element = t.op_start[:-1][op]
    key, value = t.op_key[op], t.element_value[element]
    values, number = np.unique(value, return_inverse=True)
    codes = key * max(len(values), 1) + number
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    twice = np.flatnonzero(codes[1:] == codes[:-1])
    if len(twice):
        first, second = (int(t.op_transaction[op[order[twice[0] + i]]]) for i in (0, 1))
        raise HistoryError(
            f"transactions {int(t.id[first])} and {int(t.id[second])} both write"
            f" {t.value_name(int(value[order[twice[0]]]))} to {t.key_names[int(key[order[twice[0]]])]};"
            " values must be unique per key, or reads of them have no known writer"
        )
    op = op[order]
    return Writes(
        op=op,
        transaction=t.op_transaction[op],
        key=key[order],
        value=value[order],
        offset=t.element_offset[element][order],
        is_last=_last(t, op),
        _codes=codes,
        _values=values,
    )


def _last(t: Transactions, op: I64) -> Bools:
    order = np.lexsort((op, t.op_key[op], t.op_transaction[op]))
    ordered = op[order]
    followed = np.zeros(len(op), dtype=np.bool_)
    followed[:-1] = (t.op_transaction[ordered[1:]] == t.op_transaction[ordered[:-1]]) & (
        t.op_key[ordered[1:]] == t.op_key[ordered[:-1]]
    )
    is_last = np.empty(len(op), dtype=np.bool_)
    is_last[order] = ~followed
    return is_last
