"""Stored histories, finished or not: what checkers, the report and exporters read."""

from pathlib import Path

import pyarrow as pa

from harness.errors import HistoryError
from harness.history.journal import journal_path, read_frames, tables_of
from harness.history.parquet import (
    TableFile,
    in_order,
    is_finished,
    read_file,
    read_finished,
    table_files,
    write_tables,
)
from harness.history.schema import TABLES

__all__ = [
    "TableFile",
    "is_finished",
    "read_file",
    "read_table",
    "read_tables",
    "table_files",
    "write_tables",
]


def read_table(run_dir: Path, name: str) -> pa.Table:
    """Reads all rows of one table of a run into memory, in canonical order.

    Raises:
        HistoryError: The run is missing, or a file is truncated or not ours; the message names it.
    """
    if not is_finished(run_dir):
        return read_tables(run_dir)[name]
    parts = [read_file(file) for file in table_files(run_dir) if file.table == name]
    return in_order(name, pa.concat_tables(parts) if parts else TABLES[name].empty_table())


def read_tables(run_dir: Path) -> dict[str, pa.Table]:
    """Reads every table of a run into memory.

    A finished history is read from its Parquet files; one whose harness died is recovered from the journal,
    up to the last whole frame, and its open operations are `info`.

    Returns:
        Every table of `harness.history.schema.TABLES` by name, in canonical order (`history_parquet.in_order`).

    Raises:
        HistoryError: The run is missing, or a file is truncated or not ours; the message names it.
    """
    if is_finished(run_dir):
        return read_finished(run_dir)
    if not run_dir.is_dir():
        raise HistoryError(f"there is no run at {run_dir}; `laststand list` shows the stored runs")
    journal = journal_path(run_dir)
    if not journal.is_file():
        raise HistoryError(f"{run_dir} holds no history, neither Parquet files nor a journal")
    return tables_of(read_frames(journal))
