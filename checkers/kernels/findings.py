"""What a kernel returns: the instances of one kind of anomaly, as arrays, not yet judged.

A kernel states facts about a history. Whether they matter depends on the configuration and on the faults
(`checkers.expectations`); so every instance carries what that judgement needs, and nothing else.
"""

from dataclasses import dataclass

import numpy as np

from checkers.kernels.columns import Columns
from checkers.kernels.history import ABSENT, I64, Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Columns):
    """All instances of one anomaly in one partition; row i of every array belongs to instance i.

    Attributes:
        id: Identifier from `checkers.anomalies`.
        first, second, third: `op_index` of the operations that show it, ABSENT where fewer are needed.
        offset: The offset that `first` proves or that the conflict is about.
        other: The offset of `second`, or another number the sentence needs.
        since_ns: By when `offset` was established; an election after it may excuse the instance.
        weak: Whether it rests on records acknowledged with acks=1 only that were never read.
        gap_ns: How bad it is (time between the two operations, or 0); the largest is shown.
    """

    id: str
    first: I64
    second: I64
    third: I64
    offset: I64
    other: I64
    since_ns: I64
    weak: Bools
    gap_ns: I64

    @property
    def count(self) -> int:
        """How many instances there are."""
        return len(self.first)

    def worst(self, rows: I64 | None = None) -> int:
        """Returns the row to show: the largest gap; ties by the operations, so that row order cannot matter."""
        chosen = np.arange(self.count) if rows is None else rows
        keys = (
            self.other[chosen],
            self.offset[chosen],
            self.third[chosen],
            self.second[chosen],
            self.first[chosen],
            -self.gap_ns[chosen],
        )
        return int(chosen[np.lexsort(keys)[0]])


def finding(
    identifier: str,
    first: I64,
    *,
    second: I64 | None = None,
    third: I64 | None = None,
    offset: I64 | None = None,
    other: I64 | None = None,
    since_ns: I64 | None = None,
    weak: Bools | None = None,
    gap_ns: I64 | None = None,
) -> Finding:
    """Returns a finding in which everything not given is absent, strong and of no gap."""
    absent = np.full(len(first), ABSENT, dtype=np.int64)
    zero = np.zeros(len(first), dtype=np.int64)
    return Finding(
        id=identifier,
        first=first,
        second=absent if second is None else second,
        third=absent if third is None else third,
        offset=absent if offset is None else offset,
        other=absent if other is None else other,
        since_ns=zero if since_ns is None else since_ns,
        weak=np.zeros(len(first), dtype=np.bool_) if weak is None else weak,
        gap_ns=zero if gap_ns is None else gap_ns,
    )


def joined(parts: list[Finding]) -> Finding:
    """Returns the instances of several findings of one anomaly as one finding."""
    return Finding(
        id=parts[0].id,
        first=np.concatenate([part.first for part in parts]),
        second=np.concatenate([part.second for part in parts]),
        third=np.concatenate([part.third for part in parts]),
        offset=np.concatenate([part.offset for part in parts]),
        other=np.concatenate([part.other for part in parts]),
        since_ns=np.concatenate([part.since_ns for part in parts]),
        weak=np.concatenate([part.weak for part in parts]),
        gap_ns=np.concatenate([part.gap_ns for part in parts]),
    )
