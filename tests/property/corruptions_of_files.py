"""Corruptions of the files of a run."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.history.parquet import history_directory, write_tables
from harness.history.schema import PARTITIONED_TABLES, TABLES
from tests.property.stored_corruption import (
    Corruption,
    Damage,
    edit_file,
    edit_manifest,
    of_files,
    path_of,
    read_tables,
    swap,
)

WRITTEN = tuple(name for name in TABLES if name != "group_events")
"""The tables of which the plain run has files."""


def _of(table: str) -> int | None:
    return 0 if table in PARTITIONED_TABLES else None


def _halve(table: str) -> Damage:
    def damage(run: Path) -> None:
        path = path_of(run, table, _of(table))
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return damage


def _remove(table: str) -> Damage:
    return lambda run: path_of(run, table, _of(table)).unlink()


def _swap_partitions(table: str) -> Damage:
    def damage(run: Path) -> None:
        swap(path_of(run, table, 0), path_of(run, table, 1))

        def adjust(manifest: dict[str, Any]) -> None:
            one, other = manifest["tables"][table]
            one[2], other[2] = other[2], one[2]

        edit_manifest(adjust)(run)

    return damage


def _entries(table: str, change: Callable[[list[Any]], object]) -> Damage:
    return edit_manifest(lambda manifest: change(manifest["tables"][table]))


def _without_partition_one(run: Path) -> None:
    for table in PARTITIONED_TABLES:
        path_of(run, table, 1).unlink(missing_ok=True)

    def adjust(manifest: dict[str, Any]) -> None:
        for table in PARTITIONED_TABLES:
            manifest["tables"][table] = [e for e in manifest["tables"][table] if e[1] != 1]

    edit_manifest(adjust)(run)


def _without_partition_one_or_totals(run: Path) -> None:
    _without_partition_one(run)
    edit_manifest(lambda manifest: manifest.pop("rows"))(run)


def _without_rows_of_partition_one(names: Sequence[str]) -> Damage:
    def damage(run: Path) -> None:
        tables = dict(read_tables(run))
        for name in names:
            tables[name] = tables[name].filter(pa.compute.equal(tables[name]["partition"], 0))
        write_tables(run, tables)

    return damage


def _drop_column(table: pa.Table) -> pa.Table:
    return table.drop_columns(["outcome"])


def _narrow(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("op_index")
    return table.set_column(at, "op_index", table.column("op_index").cast(pa.int32()))


def _doubled(table: pa.Table) -> pa.Table:
    return table.append_column(table.schema.field("offset"), table.column("offset"))


def _not_utf8(table: pa.Table) -> pa.Table:
    texts = table.column("key").combine_chunks().cast(pa.binary())
    changed = pa.array([b"\xff", *texts.to_pylist()[1:]], pa.binary())
    key = pa.Array.from_buffers(pa.string(), len(changed), changed.buffers())
    index = table.schema.get_field_index("key")
    return table.set_column(index, table.schema.field(index), key)


def _nullable(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("outcome")
    values = table.column("outcome").to_pylist()
    values[3] = None
    return table.set_column(at, pa.field("outcome", pa.string()), pa.array(values))


def _renamed(table: pa.Table) -> pa.Table:
    return table.rename_columns(
        [f"{name}_" if name == "acks" else name for name in table.schema.names]
    )


def _widened(table: pa.Table) -> pa.Table:
    return table.append_column("more", pa.array(np.zeros(table.num_rows)))


def _reversed(table: pa.Table) -> pa.Table:
    return table.take(pa.array(np.arange(table.num_rows)[::-1]))


def _text(run: Path) -> None:
    path_of(run, "operations").write_text("hello world\n" * 20)


def _empty(run: Path) -> None:
    path_of(run, "operations").write_bytes(b"")


def _stray(run: Path) -> None:
    path_of(run, "operations", 7).write_bytes(path_of(run, "operations").read_bytes())


def _flip_byte(run: Path) -> None:
    path = path_of(run, "operations")
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(bytes(data))


def _without_statistics(run: Path) -> None:
    """Swaps two partitions' files that have no statistics, so that only their rows show whose they are."""
    for table in ("operations", "records_read", "end_offsets_seen"):
        for partition in (0, 1):
            path = path_of(run, table, partition)
            pq.write_table(pq.ParquetFile(path).read(), path, write_statistics=False)
        _swap_partitions(table)(run)


def _foreign_manifest(run: Path) -> None:
    path = history_directory(run) / "manifest.json"
    path.write_text(json.dumps({"format": 3, "tables": {}}))


TRUNCATED = [
    of_files(f"{table} truncated", _halve(table), "refused", "damaged or not a Parquet file")
    for table in WRITTEN
]
REMOVED = [
    of_files(f"{table} removed", _remove(table), "refused", "is missing from the history")
    for table in WRITTEN
]
SWAPPED = [
    of_files(
        f"{table} of two partitions swapped",
        _swap_partitions(table),
        "refused",
        "row 0: the row is of t-1, but the file is that of t-0",
    )
    for table in WRITTEN
    if table in PARTITIONED_TABLES
]
NOT_LISTED = [
    of_files(
        f"{table} not listed",
        _entries(table, lambda entries: entries.pop()),
        "refused",
        "restore the manifest",
    )
    for table in WRITTEN
]

MANIFEST = [
    of_files(
        "operations listed twice",
        _entries("operations", lambda entries: entries.append(entries[0])),
        "refused",
        "lists operations/t-0.parquet twice",
    ),
    of_files(
        "records listed twice",
        _entries("records_read", lambda entries: entries.append(entries[0])),
        "refused",
        "lists records_read/t-0.parquet twice",
    ),
    of_files(
        "faults listed twice",
        _entries("faults", lambda entries: entries.append(entries[0])),
        "refused",
        "lists faults.parquet twice",
    ),
    of_files(
        "listed with one row more",
        _entries("operations", lambda entries: entries[0].__setitem__(2, entries[0][2] + 1)),
        "refused",
        "but the run wrote",
    ),
    of_files(
        "listed with a negative number of rows",
        _entries("operations", lambda entries: entries[0].__setitem__(2, -1)),
        "refused",
        "that no history has",
    ),
    of_files(
        "listed for a partition that does not exist",
        _entries("operations", lambda entries: entries[0].__setitem__(1, 7)),
        "refused",
        "t-7.parquet is missing",
    ),
    of_files(
        "listed for a negative partition",
        _entries("operations", lambda entries: entries[0].__setitem__(1, -1)),
        "refused",
        "that no history has",
    ),
    of_files(
        "table of the run listed for a partition",
        _entries("faults", lambda entries: entries[0].__setitem__(1, 0)),
        "refused",
        "that no history has",
    ),
    of_files(
        "listed for another topic",
        _entries("operations", lambda entries: entries[0].__setitem__(0, "other")),
        "refused",
        "other-0.parquet is missing",
    ),
    of_files(
        "one partition removed and not listed",
        _without_partition_one,
        "refused",
        "but the run wrote",
    ),
    of_files(
        "one partition removed and not counted",
        _without_rows_of_partition_one(PARTITIONED_TABLES),
        "refused",
        "the history has nothing of partition t-1, which experiment.toml has",
    ),
    of_files(
        "one partition removed from a manifest without totals",
        _without_partition_one_or_totals,
        "refused",
        "the history has nothing of partition t-1, which experiment.toml has",
    ),
    of_files(
        "one partition has no rows of clients",
        _without_rows_of_partition_one(
            ("operations", "records_read", "end_offsets_seen", "offset_queries")
        ),
        "unknown",
        "t-1: the final phase ended as planned, but no client touched the partition",
    ),
    of_files(
        "manifest of another format",
        edit_manifest(lambda manifest: manifest.update(format=99)),
        "refused",
        "is of history format 99",
    ),
    of_files("manifest without tables", _foreign_manifest, "refused", "is not a history manifest"),
    of_files(
        "manifest without totals",
        edit_manifest(lambda manifest: manifest.pop("rows")),
        "harmless",
        "manifests of older versions have none; every file is compared with its own entry",
    ),
    of_files(
        "manifest removed",
        lambda run: (history_directory(run) / "manifest.json").unlink(),
        "refused",
        "holds no history",
    ),
]

CONTENT = [
    of_files("column dropped", edit_file("operations", _drop_column), "refused", "is missing"),
    of_files("column renamed", edit_file("operations", _renamed), "refused", "is missing"),
    of_files("column added", edit_file("operations", _widened), "refused", "columns differ"),
    of_files(
        "column of another type", edit_file("operations", _narrow), "refused", "column op_index is"
    ),
    of_files(
        "column with a null", edit_file("operations", _nullable), "refused", "column outcome is"
    ),
    of_files(
        "column twice", edit_file("operations", _doubled), "refused", "column offset is there twice"
    ),
    of_files(
        "text that is not UTF-8",
        edit_file("operations", _not_utf8),
        "refused",
        "the column key has a text that is not UTF-8",
    ),
    of_files("operations are text", _text, "refused", "damaged or not a Parquet file"),
    of_files("operations are empty", _empty, "refused", "damaged or not a Parquet file"),
    of_files("one byte flipped", _flip_byte, "refused", "damaged or not a Parquet file"),
    of_files("file of a partition that is not listed", _stray, "refused", "is not listed in"),
    of_files(
        "files without statistics swapped",
        _without_statistics,
        "refused",
        "row 0: the row is of t-1, but the file is that of t-0",
    ),
    of_files(
        "two tables swapped",
        lambda run: swap(path_of(run, "records_read"), path_of(run, "end_offsets_seen")),
        "refused",
        "is not a table of ours",
    ),
    of_files(
        "rows of operations in another order",
        edit_file("operations", _reversed),
        "harmless",
        "rows are put into order by their op_index",
    ),
    of_files(
        "rows of replicas in another order",
        edit_file("replica_states", _reversed),
        "harmless",
        "rows are put into order by their time, and no loss depends on them",
    ),
    of_files(
        "operation twice",
        edit_file("operations", lambda table: pa.concat_tables([table, table.slice(3, 1)])),
        "refused",
        "is in row 3, too",
    ),
]

CORRUPTIONS: list[Corruption] = [
    *TRUNCATED,
    *REMOVED,
    *SWAPPED,
    *NOT_LISTED,
    *MANIFEST,
    *CONTENT,
]
