"""The finished form of a history: Parquet, one file per table and topic-partition.

A run directory holds its history in `history/`. While the run lasts there is only the journal
(`harness.history.journal`); `write_tables` writes the Parquet files and, last of all and by an atomic rename,
the manifest. A history is finished when its manifest exists: a harness that dies in between leaves the
journal, and nothing half-written is ever mistaken for a history.

Every row has one place: tables have a canonical order (`in_order`), which does not depend on how rows were
buffered, and files carry neither times nor random identifiers. The same history is the same bytes.

Spark jobs distribute the paths of `table_files` and read them with PyArrow; the columns use only encodings
that Spark reads too.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.errors import HistoryError
from harness.history.filesystems import RemoteFile, parquet_file
from harness.history.schema import (
    ADDED_IN,
    PARTITIONED_TABLES,
    TABLES,
    schema_in,
    with_added_columns,
)

HISTORY_DIRECTORY = "history"
MANIFEST_NAME = "manifest.json"
FORMAT_VERSION = 10
OLDEST_FORMAT_READ = 3
"""Older formats lack tables (`harness.history.schema.ADDED_IN`) and columns (`COLUMNS_ADDED_IN`), and are the same
otherwise."""

ROWS_FOR_THREADS = 100_000
"""Tables with fewer rows are processed by one thread: starting more takes longer than the work."""

WORD_COLUMNS = frozenset({"kind", "outcome", "error", "status", "key"})
"""Columns of strings that repeat a few words. Making a string for every row takes longer than reading all columns
of numbers."""

CANONICAL_ORDER: dict[str, tuple[str, ...]] = {
    "operations": ("op_index",),
    "records_read": ("op_index",),
    "end_offsets_seen": ("op_index",),
    "faults": ("invoked_ns",),
    "partition_states": ("at_ns", "metadata_offset", "topic", "partition"),
    "broker_states": ("at_ns", "metadata_offset"),
    "replica_states": ("at_ns", "topic", "partition"),
    "group_events": ("event_index",),
    "violations": ("at_ns",),
    "run_facts": ("profile",),
    "marks": ("at_ns",),
    "replica_batches": ("topic", "partition", "base_offset", "broker"),
    "transaction_events": ("event_index",),
    "offset_queries": ("query_index",),
}
"""The order of each table; rows that tie keep the order in which they were recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """One Parquet file of a finished history.

    Attributes:
        table: Name in `harness.history.schema.TABLES`.
        topic, partition: Whose rows it holds; "" and -1 for tables that are stored in one file.
        rows: How many.
        path: Where; `table_files` returns paths, and only tasks of a Spark job have URIs.
        version: The history format in which it was written.
    """

    table: str
    topic: str
    partition: int
    rows: int
    path: Path | RemoteFile
    version: int


def history_directory(run_dir: Path) -> Path:
    """Returns the directory of a run's history."""
    return run_dir / HISTORY_DIRECTORY


def is_finished(run_dir: Path) -> bool:
    """Returns whether the run's history was finished, that is, whether its Parquet files are complete."""
    return (history_directory(run_dir) / MANIFEST_NAME).is_file()


def places_of(table: pa.Table) -> list[tuple[str, int]]:
    """Returns every topic and partition that a table has rows of, in order."""
    places = table.select(["topic", "partition"])
    if _is_one_place(places):
        (row,) = places.slice(0, 1).to_pylist()
        return [(row["topic"], row["partition"])]
    groups = places.group_by(places.column_names, use_threads=len(places) > ROWS_FOR_THREADS)
    return sorted((row["topic"], row["partition"]) for row in groups.aggregate([]).to_pylist())


def by_place(table: pa.Table) -> dict[tuple[str, int], pa.Table]:
    """Returns the rows of every topic and partition, in their order; the places are in order too.

    Raises:
        HistoryError: A row has no topic or no partition.
    """
    places = places_of(table)
    if len(places) < 2:
        return {place: table for place in places}
    topics = table.column("topic").combine_chunks().dictionary_encode()
    partitions = table.column("partition")
    if topics.null_count or partitions.null_count:
        raise HistoryError("a row has no topic or no partition; record the run again")
    number_of = {topic: number for number, topic in enumerate(topics.dictionary.to_pylist())}
    low = min(partition for _, partition in places)
    width = max(partition for _, partition in places) - low + 1
    # One number per place.
    keys = np.array([number_of[t] * width + p - low for t, p in places], dtype=np.int64)
    of_key = np.argsort(keys)
    found = topics.indices.to_numpy().astype(np.int64) * width + partitions.to_numpy() - low
    place = of_key[np.searchsorted(keys[of_key], found)]
    if bool((place[1:] < place[:-1]).any()):
        # A stable sort of small numbers takes linear time.
        small = place.astype(np.uint16) if len(places) < 2**16 else place
        order = np.argsort(small, kind="stable")
        table, place = table.take(pa.array(order)), place[order]
    edges = np.searchsorted(place, np.arange(len(places) + 1)).tolist()
    return {
        each: table.slice(start, stop - start)
        for each, (start, stop) in zip(places, pairwise(edges), strict=True)
    }


def in_order(name: str, table: pa.Table) -> pa.Table:
    """Returns a table in its canonical order; of several rows about one fault, or one run, the last one stays."""
    if name == "faults":
        table = _latest_per_fault(table)
    if name == "run_facts":
        table = table.slice(max(table.num_rows - 1, 0))
    keys: Any = [(column, "ascending") for column in CANONICAL_ORDER[name]]
    # Most tables are recorded in order already; sorting costs far more than this check.
    if len(keys) == 1 and _is_sorted(table.column(keys[0][0])):
        return table.combine_chunks()
    return table.take(pc.sort_indices(table, sort_keys=keys)).combine_chunks()


def write_tables(run_dir: Path, tables: Mapping[str, pa.Table], *, durable: bool = False) -> None:
    """Writes a history; the manifest comes last.

    Args:
        run_dir: The run's directory; created when missing.
        tables: Tables by name, each with its schema of `harness.history.schema`; a missing one is empty.
        durable: Whether everything is fsynced, so that the journal may be removed afterwards.

    Raises:
        HistoryError: A table is unknown or has another schema.
    """
    directory = history_directory(run_dir)
    directory.mkdir(parents=True, exist_ok=True)
    manifest_path = directory / MANIFEST_NAME
    manifest_path.unlink(missing_ok=True)
    for name in sorted(set(tables) - set(TABLES)):
        raise HistoryError(f"no table is called {name!r}; harness/history/schema.py lists them")
    entries: dict[str, list[list[Any]]] = {}
    totals: dict[str, int] = {}
    written: list[Path] = []
    for name, schema in TABLES.items():
        table = tables.get(name)
        if table is None:
            table = schema.empty_table()
        _require_schema(table.schema, schema, name, f"the table {name}")
        entries[name] = []
        totals[name] = 0
        for topic, partition, part in _parts(name, in_order(name, table)):
            path = path_of(directory, name, topic, partition)
            _write_file(path, part.cast(schema))
            written.append(path)
            entries[name].append([topic, partition, part.num_rows])
            totals[name] += part.num_rows
    _remove_strays(directory, set(written))
    manifest = {"format": FORMAT_VERSION, "rows": totals, "tables": entries}
    text = json.dumps(manifest, sort_keys=True, indent=1) + "\n"
    partial = manifest_path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    if durable:
        _sync([*written, partial, *sorted({path.parent for path in written})])
    partial.replace(manifest_path)
    if durable:
        _sync([directory])


def table_files(run_dir: Path) -> tuple[TableFile, ...]:
    """Lists the files of a finished history.

    Raises: HistoryError: There is no run, it was not finished, or its manifest is not ours, incomplete or
        contradicts the
            directory.
    """
    directory = history_directory(run_dir)
    path = directory / MANIFEST_NAME
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise HistoryError(f"{run_dir} holds no finished history") from None
    except (OSError, ValueError, RecursionError) as error:
        raise HistoryError(f"{path} cannot be read as a history manifest: {error}") from None
    try:
        version = _whole(manifest["format"])
        if version not in range(OLDEST_FORMAT_READ, FORMAT_VERSION + 1):
            raise HistoryError(
                f"{path} is of history format {version}, this version reads {OLDEST_FORMAT_READ} to"
                f" {FORMAT_VERSION}"
            )
        names = [name for name in TABLES if ADDED_IN.get(name, version) <= version]
        files = tuple(
            TableFile(
                table=name,
                topic=str(topic),
                partition=_whole(partition),
                rows=_whole(rows),
                path=path_of(directory, name, str(topic), partition),
                version=version,
            )
            for name in names
            for topic, partition, rows in manifest["tables"][name]
        )
        # Manifests of older versions have no totals.
        totals = {name: _whole(rows) for name, rows in manifest.get("rows", {}).items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise HistoryError(f"{path} is not a history manifest of laststand") from None
    _require_complete(path, files, totals, version)
    return files


def _whole(number: Any) -> int:
    if type(number) is not int:
        raise TypeError(f"{number!r} is no whole number")
    return number


def read_file(file: TableFile, columns: list[str] | None = None) -> pa.Table:
    """Reads one file of a finished history, with its schema asserted.

    Args:
        file: What to read.
        columns: The columns wanted; those of `WORD_COLUMNS` come dictionary encoded. If None, all columns come as
            the schema has them.

    Raises:
        HistoryError: The file is missing, truncated, or not a table of ours.
    """
    try:
        # One file, opened as such: the dataset reader would read column values out of the path.
        with parquet_file(file.path, page_checksum_verification=True) as parquet:
            _require_listed(parquet, file)
            metadata = parquet.metadata
        words = sorted(WORD_COLUMNS & set(columns or ()))
        with parquet_file(
            file.path, metadata=metadata, read_dictionary=words, page_checksum_verification=True
        ) as parquet:
            table = parquet.read(columns=columns, use_threads=file.rows > ROWS_FOR_THREADS)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise _unreadable(file, error) from None
    _require_texts(table, str(file.path))
    table = with_added_columns(file.table, table, columns)
    fields = [TABLES[file.table].field(column) for column in table.column_names]
    encoded = pa.dictionary(pa.int32(), pa.string())
    return table.cast(
        pa.schema([each.with_type(encoded) if each.name in words else each for each in fields])
    )


def _require_texts(table: pa.Table, where: str) -> None:
    """Checks what Parquet does not: that texts are UTF-8.

    Args:
        table: What was read.
        where: Its file, for the message.

    Raises:
        HistoryError: A column has a text that is not.
    """
    for name in table.column_names:
        for chunk in table.column(name).chunks:
            values = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
            values = values.flatten() if pa.types.is_list(values.type) else values
            if pa.types.is_string(values.type):
                try:
                    values.validate(full=True)
                except pa.ArrowInvalid:
                    raise HistoryError(
                        f"{where}: the column {name} has a text that is not UTF-8; restore the"
                        " file as the run wrote it"
                    ) from None


def group_ranges(file: TableFile, column: str) -> list[tuple[int, int]] | None:
    """Returns the smallest and the largest number in a column of every row group, None if a file does not say.

    Args:
        file: What to read; only its footer is.
        column: A column of integers.

    Raises:
        HistoryError: The file is missing, truncated, or not the table that it is listed as.
    """
    try:
        with parquet_file(file.path) as parquet:
            _require_listed(parquet, file)
            index = parquet.schema_arrow.get_field_index(column)
            groups = [
                parquet.metadata.row_group(group).column(index).statistics
                for group in range(parquet.metadata.num_row_groups)
            ]
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise _unreadable(file, error) from None
    if any(statistics is None or not statistics.has_min_max for statistics in groups):
        return None
    return [(int(statistics.min), int(statistics.max)) for statistics in groups]


def read_group(file: TableFile, group: int, columns: list[str]) -> pa.Table:
    """Reads some columns of one row group.

    Raises:
        HistoryError: The file is missing or damaged.
    """
    try:
        with parquet_file(file.path, page_checksum_verification=True) as parquet:
            return parquet.read_row_group(group, columns=columns)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise _unreadable(file, error) from None


def check_file(file: TableFile) -> None:
    """Checks a file without reading its rows: that it is a whole Parquet file, and what the manifest lists.

    Raises:
        HistoryError: The file is missing, truncated, or not the table that it is listed as.
    """
    try:
        with parquet_file(file.path) as parquet:
            _require_listed(parquet, file)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise _unreadable(file, error) from None


def read_finished(run_dir: Path) -> dict[str, pa.Table]:
    """Reads every table of a finished history into memory, in canonical order.

    Raises:
        HistoryError: Anything is missing, truncated or not ours; the message names the file.
    """
    parts: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    for file in table_files(run_dir):
        parts[file.table].append(read_file(file))
    return {
        name: in_order(name, pa.concat_tables(tables)) if tables else TABLES[name].empty_table()
        for name, tables in parts.items()
    }


def _latest_per_fault(table: pa.Table) -> pa.Table:
    """A fault is recorded when it begins and again when it took effect or was healed."""
    last = {fault_id: row for row, fault_id in enumerate(table.column("fault_id").to_pylist())}
    return table.take(pa.array(sorted(last.values()), type=pa.int64()))


def _is_one_place(places: pa.Table) -> bool:
    """Returns whether all rows have the same topic and partition; False if that cannot be seen quickly."""
    topics = [chunk for chunk in places.column("topic").chunks if len(chunk)]
    partitions = places.column("partition")
    if len(topics) != 1 or topics[0].null_count or partitions.null_count:
        return False
    bounds = pc.min_max(partitions).as_py()
    return bounds["min"] == bounds["max"] and _repeats(topics[0])


def _repeats(strings: Any) -> bool:
    """Returns whether an array of strings repeats its first one; compares the bytes in memory."""
    if not pa.types.is_string(strings.type):
        return False
    _, offsets, data = strings.buffers()
    edges = np.frombuffer(offsets, dtype=np.int32)[
        strings.offset : strings.offset + len(strings) + 1
    ]
    first, last = int(edges[0]), int(edges[-1])
    width = int(edges[1]) - first
    if last - first != width * len(strings) or not (edges[1:] - edges[:-1] == width).all():
        return False
    if last == first:
        return True
    text = np.frombuffer(data, dtype=np.uint8)[first:last]
    return bool((text[width:] == text[:-width]).all())


def _is_sorted(column: Any) -> bool:
    array = column.combine_chunks()
    if len(array) < 2:
        return True
    return bool(pc.all(pc.less_equal(array[:-1], array[1:])).as_py())


def _parts(name: str, table: pa.Table) -> Iterable[tuple[str, int, pa.Table]]:
    """Splits a table into (topic, partition, rows), ordered by topic and partition."""
    if name not in PARTITIONED_TABLES:
        return [("", -1, table)]
    return [(*place, rows) for place, rows in by_place(table).items()]


def path_of(directory: Path, name: str, topic: str, partition: int) -> Path:
    """Returns the file that holds a table, or its rows of one partition.

    Args:
        directory: The directory of the history.
        name: The table.
        topic: The topic; "" for a table that is stored in one file.
        partition: The partition; -1 likewise.
    """
    if name not in PARTITIONED_TABLES:
        return directory / f"{name}.parquet"
    # Legal topic names pass unchanged; whatever else a table may hold cannot leave the directory.
    return directory / name / f"{quote(topic, safe='')}-{partition}.parquet"


def _write_file(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path, **parquet_options(table.schema))


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """Returns how a table is encoded in its file."""
    return {
        "compression": "zstd",
        "use_dictionary": [field.name for field in schema if pa.types.is_string(field.type)],
        "column_encoding": {
            field.name: "DELTA_BINARY_PACKED" for field in schema if pa.types.is_int64(field.type)
        },
        "write_page_checksum": True,
    }


def _require_schema(found: pa.Schema, wanted: pa.Schema, name: str, where: str) -> None:
    if found.equals(wanted, check_metadata=False):
        return
    for field in wanted:
        index = found.get_field_index(field.name)
        if index < 0:
            how = "there twice" if field.name in found.names else "missing"
            raise HistoryError(f"{where} is not a table of ours: column {field.name} is {how}")
        # A column without nulls may have been declared so: those of older versions are.
        has = found.field(index).with_nullable(found.field(index).nullable or field.nullable)
        if not has.equals(field, check_metadata=False):
            raise HistoryError(
                f"{where} is not a table of ours: column {field.name} is {found.field(index)}, "
                f"not {field}"
            )
    if found.names != wanted.names:
        raise HistoryError(f"{where} is not a table of ours: its columns differ from {name}'s")


def _require_complete(
    path: Path, files: tuple[TableFile, ...], totals: Mapping[str, int], version: int
) -> None:
    """Compares what a manifest lists with itself and with the directory.

    Raises:
        HistoryError: A file is listed twice, missing, not listed, or not one that a history can have.
    """
    listed: dict[Path, TableFile] = {}
    for file in files:
        assert isinstance(file.path, Path)
        if file.path in listed:
            raise HistoryError(
                f"{path} lists {file.path.relative_to(path.parent)} twice; restore the manifest"
            )
        is_of_partition = file.partition >= 0
        is_of_run = (file.topic, file.partition) == ("", -1)
        fits = is_of_partition if file.table in PARTITIONED_TABLES else is_of_run
        if not fits or file.rows < 0:
            raise HistoryError(
                f"{path} lists a file of {file.table} that no history has (topic {file.topic!r}, partition"
                f" {file.partition}, {file.rows} rows); restore the manifest"
            )
        listed[file.path] = file
        # Unlike the method of the path, this one knows no name that cannot be asked for.
        if not os.path.isfile(file.path):
            raise HistoryError(f"{file.path} is missing from the history")
    for name in TABLES:
        rows = sum(file.rows for file in files if file.table == name)
        has_one_file = name not in PARTITIONED_TABLES and ADDED_IN.get(name, version) <= version
        if has_one_file and path.parent / f"{name}.parquet" not in listed:
            raise HistoryError(f"{path} lists no file of the table {name}; restore the manifest")
        if totals and totals.get(name, 0 if name in ADDED_IN else None) != rows:
            raise HistoryError(
                f"{path} lists files of {name} with {rows} rows, but the run wrote {totals.get(name)}; restore the"
                " manifest and the files"
            )
    for stray in sorted(path.parent.rglob("*.parquet")):
        if stray not in listed:
            raise HistoryError(
                f"{stray} is not listed in {path}; restore the manifest or remove the file"
            )


def _require_listed(parquet: Any, file: TableFile) -> None:
    """Compares an open file with its entry in the manifest.

    Raises:
        HistoryError: It has another schema, another number of rows, or rows of another partition.
    """
    wanted = schema_in(file.version, file.table)
    _require_schema(parquet.schema_arrow, wanted, file.table, str(file.path))
    rows = parquet.metadata.num_rows
    if rows != file.rows:
        raise HistoryError(f"{file.path} holds {rows} rows, but the manifest lists {file.rows}")
    if file.table not in PARTITIONED_TABLES or _is_all_of(parquet, file):
        return
    found = parquet.read(columns=["topic", "partition"])
    is_other = pc.or_(
        pc.not_equal(found.column("topic"), file.topic),
        pc.not_equal(found.column("partition"), file.partition),
    )
    row = pc.index(is_other, True).as_py()
    if row >= 0:
        topic, partition = (found.column(name)[row].as_py() for name in ("topic", "partition"))
        raise HistoryError(
            f"{file.path}, row {row}: the row is of {topic}-{partition}, but the file is that of"
            f" {file.topic}-{file.partition}; restore the file or record the run again"
        )


def _is_all_of(parquet: Any, file: TableFile) -> bool:
    """Returns whether the statistics of a file show that all its rows are of its partition; reads no row."""
    for name, wanted in (("topic", file.topic), ("partition", file.partition)):
        column = parquet.schema_arrow.get_field_index(name)
        for group in range(parquet.metadata.num_row_groups):
            statistics = parquet.metadata.row_group(group).column(column).statistics
            if statistics is None or not statistics.has_min_max:
                return False
            if statistics.min != wanted or statistics.max != wanted:
                return False
    return True


def _unreadable(file: TableFile, error: Exception) -> HistoryError:
    if isinstance(error, FileNotFoundError):
        return HistoryError(f"{file.path} is missing from the history")
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return HistoryError(f"{file.path} is damaged or not a Parquet file: {reason}")


def _remove_strays(directory: Path, written: set[Path]) -> None:
    """Removes files of an earlier attempt, so that a directory listing is accurate."""
    for path in sorted(directory.rglob("*.parquet")):
        if path not in written:
            path.unlink()


def _sync(paths: Iterable[Path]) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
