"""Runs on disk for the tests of jobs."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from checkers.final_reads import judge_with_final_reads
from checkers.jobs.stored import Task, tasks_of
from checkers.kernels.verdict_json import verdict_to_json
from checkers.synthetic import Shape, synthetic_tables
from harness.contracts.run_context import RunContext
from harness.history.op import Completion, Outcome
from harness.history.parquet import table_files, write_tables
from harness.history.schema import TABLES
from harness.history.writer import HistoryWriter
from results.history_files import read_tables

MEMBER = 999
"""Process number of the member of `with_group`."""

CONTEXT = RunContext(profile="kafka-4.1", acked_during_faults_min=0)


def store(directory: Path, tables: Mapping[str, pa.Table], *, group_rows: int = 0) -> Path:
    """Writes a finished history; with row groups of so many rows, so that small ones are cut too."""
    write_tables(directory, tables)
    for file in table_files(directory) if group_rows else ():
        pq.write_table(pq.read_table(file.path), file.path, row_group_size=group_rows)
    return directory


def synthetic(partitions: int, operations: int, **shape: Any) -> dict[str, pa.Table]:
    """Returns a valid history of several partitions; operation indices are unique in it."""
    parts = []
    for partition in range(partitions):
        one = synthetic_tables(
            Shape(operations=operations, seed=partition + 1, **shape), partition=partition
        )
        shift = partition * 10 * (operations + 10)
        parts.append({name: _shifted(table, shift) for name, table in one.items()})
    return {name: pa.concat_tables([part[name] for part in parts]) for name in parts[0]}


def replaced(table: pa.Table, column: str, row: int, value: Any) -> pa.Table:
    """Returns a table with one value changed."""
    values = table.column(column).to_pylist()
    values[row] = value
    return with_column(table, column, values)


def recounted(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Returns the tables as if polls had never returned the records that are gone."""
    count: dict[int, int] = {}
    places = []
    for op in tables["records_read"].column("op_index").to_pylist():
        places.append(count.get(op, 0))
        count[op] = places[-1] + 1
    counts = [count.get(op, 0) for op in tables["operations"].column("op_index").to_pylist()]
    return {
        **tables,
        "operations": with_column(tables["operations"], "record_count", counts),
        "records_read": with_column(tables["records_read"], "index_in_poll", places),
    }


def with_column(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    """Returns a table with other values in one column."""
    index = table.schema.get_field_index(name)
    field = table.schema.field(index)
    return table.set_column(index, field, pa.array(values, field.type))


FAULT_ROW = (
    *("f1", "kill", ["leader"], ["b1"], "{}", 10, 20, 30, True, "{}"),
    *(False, False, True, False, [], False, [], [], []),
)


def unfinished(directory: Path, *, appends: int = 30) -> Path:
    """Writes the journal of a run whose harness died: a faulty history of two partitions, never closed."""
    writer = HistoryWriter(directory)
    for index in range(appends):
        op = writer.invoke(
            process=1,
            kind="append",
            topic="t",
            partition=index % 2,
            invoked_ns=1000 * index,
            acks=-1,
            sequence=index,
        )
        # Every offset is acknowledged twice, once per round: there is something to find.
        done = Completion(outcome=Outcome.OK, offset=index // 4)
        writer.complete(op, 1000 * index + 500, done)
    writer.add("faults", FAULT_ROW)
    writer.flush()
    return directory


def with_group(
    tables: Mapping[str, pa.Table],
    *,
    committed: int,
    skip: Iterable[int] = (),
    seen: int | None = None,
) -> dict[str, pa.Table]:
    """Returns a history of one partition in which a consumer group read everything that the final reads show.

    Args:
        tables: The history; its final polls are repeated by the group's member.
        committed: The group's committed offset.
        skip: Positions of final polls that the member does not repeat.
        seen: A committed offset that the coordinator reports in the end.
    """
    operations, records = tables["operations"], tables["records_read"]
    final = operations.filter(operations.column("final")).to_pylist()
    shift = 1 + max(operations.column("op_index").to_pylist())
    ops = {
        row["op_index"] for row in final if row["kind"] == "poll" and row["position"] not in skip
    }
    polls = [
        {
            **row,
            "op_index": row["op_index"] + shift,
            "process": MEMBER,
            "final": False,
            "end_offset": None,
        }
        for row in final
        if row["op_index"] in ops
    ]
    delivered = [
        {**row, "op_index": row["op_index"] + shift}
        for row in records.to_pylist()
        if row["op_index"] in ops
    ]
    events = [("assigned", -1001, -1), ("commit-sent", committed, -1)]
    events += [("commit-acknowledged", committed, -1), ("committed-asked", -1, -1)]
    events += [] if seen is None else [("committed-seen", seen, len(events) - 1)]
    where = {"topic": polls[0]["topic"], "partition": polls[0]["partition"], "process": MEMBER}
    group = [
        {
            "event_index": i,
            "at_ns": i,
            "group": "g",
            "event": e,
            "offset": o,
            "refers_to": r,
            "generation": -1,
            **where,
        }
        for i, (e, o, r) in enumerate(events)
    ]

    def added(name: str, rows: list[dict[str, Any]]) -> pa.Table:
        return pa.concat_tables([tables[name], pa.Table.from_pylist(rows, schema=TABLES[name])])

    return {
        **tables,
        "operations": added("operations", polls),
        "records_read": added("records_read", delivered),
        "group_events": pa.Table.from_pylist(group, schema=TABLES["group_events"]),
    }


def tasks(directory: Path, context: RunContext = CONTEXT) -> list[Task]:
    """Returns the tasks of one run."""
    return tasks_of(directory, 0, asdict(context))


def judged_here(directory: Path, context: RunContext = CONTEXT) -> dict[str, Any]:
    """Returns the verdict without Spark."""
    return verdict_to_json(judge_with_final_reads(read_tables(directory), context))


def _shifted(table: pa.Table, shift: int) -> pa.Table:
    for name in ("op_index", "value"):
        if name in table.column_names:
            index = table.schema.get_field_index(name)
            numbers = table.column(name).to_numpy() + shift
            table = table.set_column(index, table.schema.field(index), pa.array(numbers))
    return table
