"""What the table `offset_queries` must hold before it is judged; `checkers.kernels.validation` calls it.

A leader can respond with any offset, epoch and timestamp; a wrong one is an anomaly. It cannot make the harness
ask about a record that no poll of the partition had returned before, or record a word that no schema knows.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.kernels.history import OFFSET_MAX
from checkers.kernels.refusals import (
    check_times,
    check_words,
    int_column,
    refuse,
    refuse_below,
    refuse_beyond,
    refuse_repeated,
)
from harness.history.op import OpKind, Outcome, QueryKind


def check_offset_queries(
    tables: Mapping[str, pa.Table], where: str, clock_error_ns: int = 0
) -> None:
    """Checks the rows of `offset_queries` of one partition.

    Args:
        tables: `offset_queries` without nulls, `operations` and `records_read` of the partition.
        where: What the table of queries is called.
        clock_error_ns: Largest difference between two clocks. Each process has one.

    Raises:
        HistoryError: A row cannot be; the sentence names it.
    """
    queries = tables["offset_queries"]
    index = int_column(queries, "query_index")
    refuse_beyond(queries, "query_index", 0, OFFSET_MAX, where)
    refuse_repeated(index, "query_index", where)
    check_words(queries, "kind", tuple(QueryKind), where)
    check_words(queries, "outcome", (Outcome.OK, Outcome.FAIL), where)
    for column in ("known_epoch", "asked"):
        refuse_below(queries, column, -1, where)
    _check_intervals(queries, where)
    _check_records(tables, where, clock_error_ns)


def _check_intervals(queries: pa.Table, where: str) -> None:
    for column in ("invoked_ns", "completed_ns"):
        check_times(queries, column, where)
    invoked, completed = int_column(queries, "invoked_ns"), int_column(queries, "completed_ns")
    refuse(
        completed < invoked,
        where,
        lambda row: f"completed_ns is {completed[row]}, which is before invoked_ns {invoked[row]}",
    )


def _check_records(tables: Mapping[str, pa.Table], where: str, clock_error_ns: int) -> None:
    """Checks that every query is about a record that a poll returned before."""
    queries, operations, records = (
        tables[name] for name in ("offset_queries", "operations", "records_read")
    )
    asked_of = rows_of(queries, ("op_index", "record_offset", "record_value"))
    named = queries.column("op_index")
    operations, records = (
        table.filter(pc.is_in(table.column("op_index"), value_set=named))
        for table in (operations, records)
    )
    # A poll of unknown outcome may have no end.
    read = {
        op: (process, invoked_ns if completed_ns is None else completed_ns)
        for op, kind, process, invoked_ns, completed_ns in rows_of(
            operations, ("op_index", "kind", "process", "invoked_ns", "completed_ns")
        )
        if kind == OpKind.POLL
    }
    returned = set(rows_of(records, ("op_index", "offset", "value")))

    def was_returned(record: tuple[int, int, int], process: int, at_ns: int) -> bool:
        if record not in returned or record[0] not in read:
            return False
        reader, read_ns = read[record[0]]
        return bool(read_ns <= at_ns + (clock_error_ns if reader != process else 0))

    begun = rows_of(queries, ("process", "invoked_ns"))
    refuse(
        np.array(
            [
                not was_returned(record, *of_query)
                for record, of_query in zip(asked_of, begun, strict=True)
            ],
            dtype=np.bool_,
        ),
        where,
        lambda row: (
            f"no poll with op_index {asked_of[row][0]} had returned the record of op {asked_of[row][2]} at offset"
            f" {asked_of[row][1]} before the query"
        ),
    )


def rows_of(table: pa.Table, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Returns some columns of a table, row by row."""
    return list(zip(*(table.column(name).to_pylist() for name in columns), strict=True))
