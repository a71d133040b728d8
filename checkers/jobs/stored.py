"""Stored runs as work for tasks: which files make up one partition, and how a task reads them.

A task is JSON-compatible, because it travels through the child process's standard input and through Spark. It
names paths and never carries rows. Tasks of a finished run are its topic-partitions; a run whose harness died has
only its journal, which is one task.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from checkers.compose import RunContext
from harness.errors import HistoryError
from harness.history.journal import journal_path, read_frames, tables_of
from harness.history.parquet import TableFile, is_finished, read_file, table_files
from harness.history.schema import PARTITIONED_TABLES, TABLES

CLIENT_TABLES = ("operations", "records_read", "end_offsets_seen")
"""A topic-partition is judged if a client touched it, that is, if one of these has rows of it."""

SHARED_TABLES = ("broker_states", "faults")
"""Tables of the whole run that the judgement of every partition looks at."""

UNUSED_COLUMNS: dict[str, frozenset[str]] = {
    "operations": frozenset({"topic", "partition", "sequence", "key", "error_code", "node"}),
    "records_read": frozenset({"topic", "partition", "process", "sequence", "key", "leader_epoch"}),
    "end_offsets_seen": frozenset({"topic", "partition", "source", "node", "leader_epoch"}),
    "replica_states": frozenset({"topic", "partition", "log_start_offset"}),
}
"""Columns that no checker looks at, and that are not read therefore; half of the bytes."""

Task = dict[str, Any]
"""What one task judges: `run` (an index), `context`, `size`, and either `journal` or `topic`, `partition`,
`files`, `shared` and `operations` (how many)."""


def tasks_of(directory: Path, run: int, context: Mapping[str, Any]) -> list[Task]:
    """Returns the tasks that judge one stored run.

    Args:
        directory: The run's directory.
        run: Index of the run, handed back with every judgement.
        context: The run's context as plain data (`dataclasses.asdict`).

    Raises:
        HistoryError: There is no history, or its manifest is not ours.
    """
    directory = directory.resolve()
    if not is_finished(directory):
        journal = journal_path(directory)
        if not journal.is_file():
            raise HistoryError(f"{directory} holds no history, neither Parquet files nor a journal")
        size = journal.stat().st_size
        return [{"run": run, "context": context, "journal": str(journal), "size": size}]
    files = table_files(directory)
    shared = [_as_data(file) for file in files if file.table in SHARED_TABLES]
    places: dict[tuple[str, int], list[TableFile]] = {}
    for file in files:
        if file.table in PARTITIONED_TABLES and file.rows:
            places.setdefault((file.topic, file.partition), []).append(file)
    return [
        {
            "run": run,
            "context": context,
            "topic": topic,
            "partition": partition,
            "files": [_as_data(file) for file in mine],
            "shared": shared,
            "size": sum(file.rows for file in mine),
            "operations": sum(file.rows for file in mine if file.table == "operations"),
        }
        for (topic, partition), mine in sorted(places.items())
        if any(file.table in CLIENT_TABLES for file in mine)
    ]


def context_of(task: Task) -> RunContext:
    """Returns the context of a task's run; JSON knows lists where it has tuples."""
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in task["context"].items()
    }
    return RunContext(**values)


def read_partition(task: Task) -> dict[str, pa.Table]:
    """Reads the rows of a task's partition and the tables that all partitions share.

    Raises:
        HistoryError: A file is missing, truncated or not ours.
    """
    tables = {name: schema.empty_table() for name, schema in TABLES.items()}
    for data in (*task["files"], *task["shared"]):
        file = file_of(data)
        tables[file.table] = read_file(file, wanted_columns(file.table))
    return tables


def read_journal(task: Task) -> dict[str, pa.Table]:
    """Reads all tables of an unfinished history.

    Raises:
        HistoryError: The journal is not ours.
    """
    return tables_of(read_frames(Path(task["journal"])))


def read_shared(directory: Path, name: str) -> pa.Table:
    """Reads one of the tables of a finished run that are stored in a single file.

    Raises:
        HistoryError: The file is missing, truncated or not ours.
    """
    tables = [read_file(file) for file in table_files(directory) if file.table == name]
    return pa.concat_tables(tables) if tables else TABLES[name].empty_table()


def wanted_columns(table: str) -> list[str]:
    """Returns the columns of a table that checkers look at."""
    unused = UNUSED_COLUMNS.get(table, frozenset())
    return [name for name in TABLES[table].names if name not in unused]


def file_of(data: Sequence[Any]) -> TableFile:
    """Returns the file that a task names."""
    table, topic, partition, rows, path = data
    return TableFile(table=table, topic=topic, partition=partition, rows=rows, path=Path(path))


def _as_data(file: TableFile) -> list[Any]:
    return [file.table, file.topic, file.partition, file.rows, str(file.path)]
