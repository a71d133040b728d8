"""Refuses rows that no run can have recorded: each function raises a `HistoryError` that names file and row."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.kernels.history import I8, I64, TIME_NS_MAX
from harness.errors import HistoryError

REMEDY = "restore the file or record the run again"


def check_times(table: pa.Table, column: str, where: str) -> None:
    """Refuses times that no run can have recorded."""
    # Clocks of hosts are not exactly those of the harness, so what nodes did first may be before its zero.
    refuse_beyond(table, column, -TIME_NS_MAX, TIME_NS_MAX, where)


def check_words(table: pa.Table, column: str, words: Iterable[str], where: str) -> None:
    """Checks a column of words too long for codes, or of a table that is not on the path of every operation."""
    words = tuple(words)
    is_known: Any = pa.compute.is_in(text_column(table, column), value_set=pa.array(words))
    refuse(
        ~is_known.to_numpy(),
        where,
        lambda row: _unknown_word(table, column, row, words),
    )


def require_words(
    table: pa.Table, column: str, found: I8, words: tuple[str, ...], where: str
) -> None:
    """Refuses the first row whose word has no number."""
    refuse(found < 0, where, lambda row: _unknown_word(table, column, row, words))


def _unknown_word(table: pa.Table, column: str, row: int, words: tuple[str, ...]) -> str:
    value = table.column(column)[row].as_py()
    return f"{column} is {value!r}; it is one of {', '.join(words)}"


def refuse_below(table: pa.Table, column: str, low: int, where: str) -> None:
    """Refuses the first row whose number is below a limit."""
    values = int_column(table, column)
    if len(values) and int(values.min()) < low:
        refuse(values < low, where, lambda row: f"{column} is {values[row]}, below {low}")


def refuse_beyond(table: pa.Table, column: str, low: int, high: int, where: str) -> None:
    """Refuses the first row whose number is not between two limits."""
    values = int_column(table, column)
    if len(values) and (int(values.min()) < low or int(values.max()) > high):
        refuse(
            (values < low) | (values > high),
            where,
            lambda row: f"{column} is {values[row]}, which is not between {low} and {high}",
        )


def refuse_repeated(numbers: I64, column: str, where: str) -> None:
    """Refuses the first number that occurred before."""
    order = np.argsort(numbers, kind="stable")
    repeats = np.flatnonzero(numbers[order][1:] == numbers[order][:-1]) + 1
    if len(repeats):
        again = repeats[np.argmin(order[repeats])]
        row, first = int(order[again]), int(order[again - 1])
        raise HistoryError(
            f"{where}, row {row}: {column} {numbers[row]} is in row {first}, too; {REMEDY}"
        )


def refuse(bad: Any, where: str, why: Callable[[int], str]) -> None:
    """Refuses the first bad row.

    Raises:
        HistoryError: There is one.
    """
    if bad.any():
        row = int(np.argmax(bad))
        raise HistoryError(f"{where}, row {row}: {why(row)}; {REMEDY}")


def refuse_back_in_time(index: I64, at_ns: I64, where: str) -> None:
    """Refuses an event that is earlier than one with a smaller index."""
    order = np.argsort(index, kind="stable")
    is_back = np.zeros(len(order), dtype=np.bool_)
    is_back[order[1:]] = np.diff(at_ns[order]) < 0
    refuse(
        is_back,
        where,
        lambda row: (
            f"at_ns is {at_ns[row]}, before that of the event before event_index {index[row]}"
        ),
    )


def require_no_nulls(table: pa.Table, schema: pa.Schema, where: str) -> None:
    """Refuses nulls where the schema has none, and in lists.

    Only in memory, or in columns of their own, there can be a null for a value. A list in a file can have one.
    """
    for name in table.column_names:
        if name not in schema.names:
            continue
        column: Any = table.column(name)
        if column.null_count and not schema.field(name).nullable:
            row = int(np.argmax(column.is_null().to_numpy()))
            raise HistoryError(f"{where}, row {row}: {name} is null; {REMEDY}")
        if pa.types.is_list(column.type) and pc.list_flatten(column).null_count:
            row = next(row for row, items in enumerate(column.to_pylist()) if None in (items or ()))
            raise HistoryError(f"{where}, row {row}: {name} has an element that is null; {REMEDY}")


def is_ascending_once(numbers: I64) -> bool:
    """Returns whether numbers ascend and none repeats."""
    return len(numbers) < 2 or bool((numbers[1:] > numbers[:-1]).all())


def int_column(table: pa.Table, name: str) -> I64:
    """Returns a column of integers without nulls."""
    array: I64 = table.column(name).to_numpy().astype(np.int64, copy=False)
    return array


def text_column(table: pa.Table, name: str) -> Any:
    """Returns a column of strings, decoded if it is a dictionary."""
    column: Any = table.column(name)
    return column if pa.types.is_string(column.type) else column.cast(pa.string())
