"""Stored runs as work for tasks: which files make up one partition, and how a task reads them.

A task is JSON-compatible, because it travels through the child process's standard input and through Spark. It
names paths and never carries rows. Tasks of a finished run are its topic-partitions, and one more if a checker
sees the whole run; a run whose harness died has only its journal, which is one task.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from checkers.jobs.op_indices import check_unique
from checkers.kernels.compose import (
    JUDGED_TABLES,
    partition_checkers,
    untouched_partitions,
    whole_run_checkers,
)
from checkers.kernels.validation import NameOf, check_context, check_shared
from checkers.registry import BUILT_IN, tables_of
from harness.contracts.run_context import RunContext, context_from_json
from harness.errors import HistoryError
from harness.history.filesystems import located
from harness.history.journal import journal_path, read_frames
from harness.history.journal import tables_of as tables_of_frames
from harness.history.parquet import (
    TableFile,
    check_file,
    in_order,
    is_finished,
    read_file,
    table_files,
)
from harness.history.schema import (
    CLIENT_TABLES,
    COORDINATOR_STATES,
    OFFSETS_TOPIC,
    PARTITIONED_TABLES,
    TABLES,
)

UNUSED_COLUMNS: dict[str, frozenset[str]] = {
    "operations": frozenset({"topic", "partition", "node"}),
    "records_read": frozenset({"topic", "partition"}),
    "end_offsets_seen": frozenset({"topic", "partition", "source"}),
    "replica_states": frozenset({"topic", "partition", "log_start_offset"}),
    "replica_batches": frozenset({"topic", "partition"}),
}
"""Columns that no built-in checker of one partition reads, skipped unless a third-party checker runs. Whether
topic and partition are those of the file is checked without reading them (`harness.history.parquet`)."""

SHARED_TABLES = ("run_facts", "faults", "broker_states", "transaction_events")
"""Tables of the whole run, which are checked once."""

Task = dict[str, Any]
"""What one task judges: `run` (an index), `context`, `size`, and either `journal`, or `files`, `shared` and
`coordinator` (files of the table COORDINATOR_STATES) together with `topic`, `partition` and `operations` (how
many). Without `topic` it judges the whole run."""


def tasks_of(directory: Path, run: int, context: Mapping[str, Any]) -> list[Task]:
    """Returns the tasks that judge one stored run.

    Args:
        directory: The run's directory.
        run: Index of the run, returned with every judgement.
        context: The run's context as plain data (`dataclasses.asdict`).

    Raises: HistoryError: There is no history, its manifest is not ours, or something is wrong that no single task
        can see. UsageError: The run names a checker that is not installed.
    """
    known = context_from_json(dict(context))
    of_partitions, of_run = partition_checkers(known), whole_run_checkers(known)
    directory = directory.resolve()
    if not is_finished(directory):
        journal = journal_path(directory)
        if not journal.is_file():
            raise HistoryError(f"{directory} holds no history, neither Parquet files nor a journal")
        size = journal.stat().st_size
        return [{"run": run, "context": context, "journal": str(journal), "size": size}]
    files = table_files(directory)
    _check_what_tasks_share(files, known)
    # Times of faults are needed for the count of appends acknowledged meanwhile, whatever the checkers read. Every
    # table of a partition is checked for rows that cannot be.
    wanted = tables_of(of_partitions) | {"faults", *PARTITIONED_TABLES}
    shared = [
        _as_data(file)
        for file in files
        if file.table in wanted and file.table not in PARTITIONED_TABLES
    ]
    coordinator = [
        _as_data(file)
        for file in files
        if file.table == "partition_states" and file.topic == OFFSETS_TOPIC and file.rows
    ]
    places: dict[tuple[str, int], list[TableFile]] = {}
    for file in files:
        if file.table in PARTITIONED_TABLES and file.rows:
            # Every partitioned table counts when it is decided what is judged; only the wanted ones are read.
            places.setdefault((file.topic, file.partition), []).append(file)
    tasks: list[Task] = [
        {
            "run": run,
            "context": context,
            "topic": topic,
            "partition": partition,
            "files": [_as_data(file) for file in mine if file.table in wanted],
            "shared": shared,
            "coordinator": coordinator if COORDINATOR_STATES in wanted else [],
            "size": sum(file.rows for file in mine),
            "operations": sum(file.rows for file in mine if file.table == "operations"),
        }
        for (topic, partition), mine in sorted(places.items())
        if any(file.table in JUDGED_TABLES for file in mine)
    ]
    read_by_tasks = {data[-1] for task in tasks for data in (*task["files"], *task["shared"])}
    for file in files:
        if str(file.path) not in read_by_tasks:
            check_file(file)
    if of_run:
        # Times of faults and of commits are needed as well, whatever the checkers read.
        named = tables_of(of_run) | {"faults", "transaction_events"}
        read = [file for file in files if file.table in named]
        size = sum(file.rows for file in read)
        data = [_as_data(file) for file in read]
        whole: Task = {"run": run, "context": context, "files": data, "shared": [], "size": size}
        tasks.append({**whole, "coordinator": coordinator})
    return tasks


def names_of(task: Task) -> NameOf:
    """Returns what a message calls the tables of a task: the paths of their files."""
    files = [file_of(data) for data in (*task["files"], *task["shared"])]
    paths = {file.table: str(file.path) for file in files}
    return lambda table: paths.get(table, table)


def _check_what_tasks_share(files: Sequence[TableFile], context: RunContext) -> None:
    """Checks what no task that judges one partition can see.

    Raises:
        HistoryError: A row of a table that all partitions share cannot be, or an operation is in two partitions.
    """
    shared = {file.table: file for file in files if file.table in SHARED_TABLES}

    def name_of(table: str) -> str:
        return str(shared[table].path)

    check_context(context, name_of("run_facts"))
    check_shared({name: read_file(file) for name, file in shared.items()}, name_of)
    check_unique([file for file in files if file.table == "operations"])


def untouched_in(directory: Path) -> tuple[str, ...]:
    """Returns the partitions of a stored run that no client touched; none if the harness died.

    Raises:
        HistoryError: The manifest is not ours.
    """
    if not is_finished(directory):
        return ()
    files = [file for file in table_files(directory) if file.rows]
    existing = {(file.topic, file.partition) for file in files if file.table == "partition_states"}
    touched = {(file.topic, file.partition) for file in files if file.table in CLIENT_TABLES}
    return untouched_partitions(existing, touched)


def context_of(task: Task) -> RunContext:
    """Returns the context of a task's run."""
    return context_from_json(dict(task["context"]))


def read_partition(task: Task) -> dict[str, pa.Table]:
    """Reads what a task judges: a partition with the tables that all partitions share, or the whole run.

    Raises:
        HistoryError: A file is missing, truncated or not ours.
    """
    tables = read_tables_of(task, TABLES)
    tables[COORDINATOR_STATES] = read_coordinator_states(task)
    return tables


def read_coordinator_states(task: Task) -> pa.Table:
    """Reads the committed states of the topic that has the records of consumer groups.

    Raises:
        HistoryError: A file is missing, truncated or not ours.
    """
    states = [read_file(file_of(data)) for data in task["coordinator"]]
    return pa.concat_tables([*states, TABLES["partition_states"].empty_table()])


def read_tables_of(task: Task, names: Iterable[str]) -> dict[str, pa.Table]:
    """Reads some of a task's tables; those without a file are empty.

    Raises:
        HistoryError: A file is missing, truncated or not ours.
    """
    reads_all = "topic" not in task or not BUILT_IN.keys() >= set(task["context"]["checkers"])
    parts: dict[str, list[pa.Table]] = {name: [] for name in names}
    for data in (*task["files"], *task["shared"]):
        file = file_of(data)
        if file.table in parts:
            columns = None if reads_all else wanted_columns(file.table)
            parts[file.table].append(read_file(file, columns))
    return {
        name: in_order(name, pa.concat_tables(tables))
        if len(tables) > 1
        else tables[0]
        if tables
        else TABLES[name].empty_table()
        for name, tables in parts.items()
    }


def read_journal(task: Task) -> dict[str, pa.Table]:
    """Reads all tables of an unfinished history.

    Raises:
        HistoryError: The journal is not ours.
    """
    return tables_of_frames(read_frames(located(task["journal"])))


def read_shared(directory: Path, name: str) -> pa.Table:
    """Reads one of the tables of a finished run that are stored in a single file.

    Raises:
        HistoryError: The file is missing, truncated or not ours.
    """
    tables = [read_file(file) for file in table_files(directory) if file.table == name]
    return pa.concat_tables(tables) if tables else TABLES[name].empty_table()


def wanted_columns(table: str) -> list[str]:
    """Returns the columns of a table that built-in checkers of one partition read."""
    unused = UNUSED_COLUMNS.get(table, frozenset())
    return [name for name in TABLES[table].names if name not in unused]


def file_of(data: Sequence[Any]) -> TableFile:
    """Returns the file that a task names."""
    table, topic, partition, rows, version, path = data
    return TableFile(
        table=table,
        topic=topic,
        partition=partition,
        rows=rows,
        path=located(path),
        version=version,
    )


def _as_data(file: TableFile) -> list[Any]:
    # The path comes last: `at_locations` replaces it.
    return [file.table, file.topic, file.partition, file.rows, file.version, str(file.path)]
