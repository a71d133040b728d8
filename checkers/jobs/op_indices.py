"""Whether an operation is in two partitions of a stored run, in bounded memory.

Indices are compared window by window: of every file only the row groups that have some of a window are read, and
one small number per index says which file has it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from checkers.kernels.history import I64
from checkers.kernels.validation import check_op_indices, shared_operation
from harness.history.parquet import TableFile, group_ranges, read_file, read_group

WINDOW = 2**24
"""Indices that are compared at a time: 32 MB."""

ROWS_AT_ONCE = 4_000_000
"""Up to so many operations are simply read and sorted."""

SPARSE = 64
"""Files with fewer operations than one in so many indices are read and sorted too; no run of ours has any."""

FILES_MAX = 2**15 - 1
"""Numbers of files have two bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """A row group: its file, its number, and its first and last index."""

    file: int
    number: int
    low: int
    high: int


def check_unique(files: Sequence[TableFile]) -> None:
    """Checks that no operation is in two partitions.

    Args:
        files: The tables `operations` of a run, in order of partitions.

    Raises:
        HistoryError: An operation is in two partitions, or a file cannot be read; the sentence names the files.
    """
    if len(files) < 2:
        return
    rows = sum(file.rows for file in files)
    groups = None if rows <= ROWS_AT_ONCE or len(files) > FILES_MAX else _groups(files)
    if groups is None or _span(groups) > SPARSE * rows:
        check_op_indices([(str(file.path), _ops(file)) for file in files])
        return
    for first in _windows(groups):
        shared = _shared_in(files, groups, first)
        if shared >= 0:
            _refuse(files, groups, shared)


def _ops(file: TableFile) -> I64:
    ops: I64 = read_file(file, ["op_index"]).column("op_index").to_numpy()
    return ops


def _groups(files: Sequence[TableFile]) -> list[_Group] | None:
    """Returns the row groups of all files, None if a file does not say which indices they have."""
    groups = []
    for index, file in enumerate(files):
        ranges = group_ranges(file, "op_index")
        if ranges is None:
            return None
        groups += [
            _Group(file=index, number=number, low=low, high=high)
            for number, (low, high) in enumerate(ranges)
        ]
    return groups


def _span(groups: Sequence[_Group]) -> int:
    return max(g.high for g in groups) - min(g.low for g in groups) if groups else 0


def _windows(groups: Sequence[_Group]) -> Iterator[int]:
    """Yields the first index of every window; together they hold every index there is."""
    first = min((g.low for g in groups), default=0)
    last = max((g.high for g in groups), default=-1)
    while first <= last:
        yield first
        first += WINDOW


def _shared_in(files: Sequence[TableFile], groups: Sequence[_Group], first: int) -> int:
    """Returns the smallest index of a window that is in two files, -1 for none."""
    owner = np.zeros(WINDOW, dtype=np.int16)
    shared: list[int] = []
    for group in groups:
        if group.high < first or group.low >= first + WINDOW:
            continue
        ops = _read(files, group) - first
        ops = ops[(ops >= 0) & (ops < WINDOW)]
        known = owner[ops]
        clash = ops[(known != 0) & (known != group.file + 1)]
        if len(clash):
            shared.append(int(clash.min()) + first)
        owner[ops[known == 0]] = group.file + 1
    return min(shared, default=-1)


def _read(files: Sequence[TableFile], group: _Group) -> I64:
    table = read_group(files[group.file], group.number, ["op_index"])
    ops: I64 = table.column("op_index").to_numpy()
    return ops


def _refuse(files: Sequence[TableFile], groups: Sequence[_Group], op: int) -> None:
    """Names the rows of an index.

    Raises:
        HistoryError: Always.
    """
    found = [
        (index, row)
        for index, file in enumerate(files)
        if any(g.file == index and g.low <= op <= g.high for g in groups)
        for row in np.flatnonzero(_ops(file) == op).tolist()
    ]
    other, mine = next(pair for pair in pairwise(found) if pair[0][0] != pair[1][0])
    raise shared_operation(
        op, (str(files[other[0]].path), other[1]), (str(files[mine[0]].path), mine[1])
    )
