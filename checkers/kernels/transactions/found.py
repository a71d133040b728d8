"""What the kernels for transactions state, before it is judged: anomalies with an example as a sentence."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from checkers.kernels.evidence import WITNESS_COUNT_MAX, seconds
from checkers.kernels.history import ABSENT, I64
from checkers.kernels.transactions.columns import OFFSETS, WRITE, Transactions
from harness.contracts.verdict import Witness

VALUES_SHOWN_MAX = 8
"""How many values of a list or a poll a sentence shows; the last ones, because they tell the version."""

_OUTCOME_WORDS = ("committed", "aborted", "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One kind of anomaly.

    Attributes:
        id: Identifier from `checkers.anomalies`.
        count: How many there are, counted as the table of anomalies says.
        sentence: One example.
        transactions: Rows of the transactions in the example.
        details: Further facts, JSON-compatible.
        undecided: Why it is not known whether a promise was broken; "" if it is judged by what was promised.
    """

    id: str
    count: int
    sentence: str
    transactions: tuple[int, ...]
    details: dict[str, Any] = field(default_factory=dict)
    undecided: str = ""


class Words:
    """Names of transactions, keys and values in sentences.

    Args:
        t: The history.
    """

    def __init__(self, t: Transactions) -> None:
        self._t = t
        self._start = t.op_start

    def name(self, transaction: int) -> str:
        """Returns what a sentence calls a transaction, for example "T17"."""
        return f"T{int(self._t.id[transaction])}"

    def key(self, key: int) -> str:
        """Returns the name of a key."""
        return self._t.key_names[int(key)]

    def value(self, value: int) -> str:
        """Returns the name of a value."""
        return self._t.value_name(int(value))

    def values(self, values: I64) -> str:
        """Returns a list of values, its beginning left out if it is long."""
        shown = [self.value(value) for value in values[-VALUES_SHOWN_MAX:].tolist()]
        if len(values) > VALUES_SHOWN_MAX:
            shown.insert(0, f"... {len(values) - VALUES_SHOWN_MAX} more")
        return "[" + ", ".join(shown) + "]"

    def read(self, op: int) -> str:
        """Returns what a read returned, for example "[1, 2]"."""
        return self.values(self._t.element_value[self._start[op] : self._start[op + 1]])

    def witnesses(self, transactions: tuple[int, ...]) -> tuple[Witness, ...]:
        """Returns lines about the first transactions of an example."""
        distinct = list(dict.fromkeys(transactions))[:WITNESS_COUNT_MAX]
        return tuple(
            Witness(op_index=int(self._t.id[row]), text=self._line(row)) for row in distinct
        )

    def _line(self, row: int) -> str:
        t = self._t
        first = int(np.searchsorted(t.op_transaction, row, side="left"))
        last = int(np.searchsorted(t.op_transaction, row, side="right"))
        ops = [self._micro(op) for op in range(first, min(last, first + VALUES_SHOWN_MAX))]
        if last - first > VALUES_SHOWN_MAX:
            ops.append(f"... {last - first - VALUES_SHOWN_MAX} more")
        outcome = _OUTCOME_WORDS[int(t.outcome[row])]
        times = f"[{seconds(int(t.invoked_ns[row]))}, {seconds(int(t.completed_ns[row]))}]"
        return (
            f"process {int(t.process[row])} T{int(t.id[row])} {'; '.join(ops)} -> {outcome} {times}"
        )

    def _micro(self, op: int) -> str:
        t = self._t
        element = int(self._start[op])
        key = self.key(int(t.op_key[op]))
        if t.op_kind[op] == WRITE:
            offset = int(t.element_offset[element])
            place = "" if offset == ABSENT else f" at offset {offset}"
            return f"write {self.value(int(t.element_value[element]))} to {key}{place}"
        if t.op_kind[op] == OFFSETS:
            return f"commit offset {int(t.element_offset[element])} of {key}"
        return f"read {key} = {self.read(op) if t.op_is_known[op] else 'unknown'}"
