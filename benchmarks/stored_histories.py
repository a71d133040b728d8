"""Synthetic histories of any size as stored runs, valid or with planted anomalies, written in pieces."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from checkers.synthetic import Shape, synthetic_pieces
from harness.history.parquet import (
    FORMAT_VERSION,
    MANIFEST_NAME,
    history_directory,
    parquet_options,
    path_of,
    write_tables,
)

PIECE = 1_000_000
"""Operations, or records of the final read, that are in memory at a time; also the rows of a row group."""

LOST_OFFSETS = (0.2, 0.4, 0.6)
"""Where final reads lack a record, as shares of the log."""
DUPLICATE_OFFSET = 0.5
"""Where a final read returns the record of the offset before."""
STALE_BY = 200
"""By how much a log end is too small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What is measured.

    Attributes:
        operations: Of all partitions, without the final reads.
        partitions: Among which they are divided equally.
        kind: One of `KINDS`.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("valid", "invalid")

    operations: int
    partitions: int
    kind: str

    def __str__(self) -> str:
        return f"{self.operations} operations, partitions: {self.partitions}, {self.kind}"

    @property
    def verdict(self) -> str:
        """The verdict that it must get."""
        return self.kind


def write_history(run: Path, history: History, progress: Callable[[str], None]) -> None:
    """Writes a history as the files of a run.

    Args:
        run: The run's directory.
        history: What to write.
        progress: Called with what is done.
    """
    # The files of all tables that stay empty, and a manifest that lists them.
    write_tables(run, {})
    path = history_directory(run) / MANIFEST_NAME
    manifest = json.loads(path.read_text(encoding="utf-8"))
    shape = Shape(operations=max(history.operations // history.partitions, 1))
    for partition in range(history.partitions):
        pieces = synthetic_pieces(
            shape,
            piece=PIECE,
            topic="synthetic",
            partition=partition,
            partitions=history.partitions,
        )
        if history.kind == "invalid" and partition == history.partitions // 2:
            pieces = planted(pieces, shape)
        rows = _write_partition(run, partition, pieces, progress)
        for name, count in rows.items():
            manifest["tables"][name].append(["synthetic", partition, count])
            manifest["rows"][name] += count
    assert manifest["format"] == FORMAT_VERSION
    path.write_text(json.dumps(manifest, sort_keys=True, indent=1) + "\n", encoding="utf-8")


def _write_partition(
    run: Path,
    partition: int,
    pieces: Iterator[dict[str, pa.Table]],
    progress: Callable[[str], None],
) -> dict[str, int]:
    """Returns how many rows each table got."""
    rows: dict[str, int] = {}
    writers: dict[str, pq.ParquetWriter] = {}
    try:
        for piece in pieces:
            for name, table in piece.items():
                if name not in writers:
                    path = path_of(history_directory(run), name, "synthetic", partition)
                    path.parent.mkdir(exist_ok=True)
                    writers[name] = pq.ParquetWriter(
                        path, table.schema, **parquet_options(table.schema)
                    )
                if table.num_rows:
                    writers[name].write_table(table, row_group_size=PIECE)
                rows[name] = rows.get(name, 0) + table.num_rows
            progress(f"partition {partition}, {rows['operations']} operations written")
    finally:
        for writer in writers.values():
            writer.close()
    return rows


def planted(pieces: Iterator[dict[str, pa.Table]], shape: Shape) -> Iterator[dict[str, pa.Table]]:
    """Returns pieces with anomalies: records that no final read returns, a stale log end, a duplicate."""
    about = shape.operations // 2
    lost = {int(about * share) for share in LOST_OFFSETS}
    duplicate = int(about * DUPLICATE_OFFSET)
    is_first = True
    for piece in pieces:
        if is_first:
            piece = _with_stale_end(piece)
        is_first = False
        if piece["operations"].num_rows and piece["operations"].column("final")[0].as_py():
            piece = _without(_with_duplicate(piece, duplicate), lost)
        yield piece


def _replaced(table: pa.Table, name: str, column: np.ndarray) -> pa.Table:
    at = table.schema.get_field_index(name)
    field = table.schema.field(at)
    return table.set_column(at, field, pa.array(column).cast(field.type))


def _with_stale_end(piece: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Returns a piece whose last request for the log end received one that is too small."""
    operations, ends = piece["operations"], piece["end_offsets_seen"]
    if not ends.num_rows:
        return piece
    op = ends.column("op_index")[-1].as_py()
    row = pc.index(operations.column("op_index"), op).as_py()
    stale = max(ends.column("end_offset")[-1].as_py() - STALE_BY, 0)
    offset = operations.column("offset")
    values = offset.fill_null(0).to_numpy().copy()
    values[row] = stale
    column = pa.array(values, mask=~offset.is_valid().to_numpy())
    at = operations.schema.get_field_index("offset")
    operations = operations.set_column(at, operations.schema.field(at), column)
    seen = ends.column("end_offset").to_numpy().copy()
    seen[-1] = stale
    return {
        **piece,
        "operations": operations,
        "end_offsets_seen": _replaced(ends, "end_offset", seen),
    }


def _with_duplicate(piece: dict[str, pa.Table], offset: int) -> dict[str, pa.Table]:
    """Returns a final read that shows at one offset the record of the offset before."""
    records = piece["records_read"]
    offsets = records.column("offset").to_numpy()
    rows = np.flatnonzero(offsets == offset)
    if not len(rows) or not rows[0]:
        return piece
    row = int(rows[0])
    for name in ("value", "process", "sequence"):
        column = records.column(name).to_numpy().copy()
        column[row] = column[row - 1]
        records = _replaced(records, name, column)
    return {**piece, "records_read": records}


def _without(piece: dict[str, pa.Table], lost: set[int]) -> dict[str, pa.Table]:
    """Returns a final read that lacks the records at some offsets."""
    records, operations = piece["records_read"], piece["operations"]
    keep = ~np.isin(records.column("offset").to_numpy(), sorted(lost))
    if keep.all():
        return piece
    op = operations.column("op_index").to_numpy()
    count = operations.column("record_count").to_numpy().copy()
    gone = records.column("op_index").to_numpy()[~keep]
    np.subtract.at(count, np.searchsorted(op, gone), 1)
    records = records.filter(pa.array(keep))
    # Places in a poll count from 0 without gaps.
    of_poll = records.column("op_index").to_numpy()
    begins = np.append(True, of_poll[1:] != of_poll[:-1])
    rows = np.arange(len(of_poll))
    place = rows - np.maximum.accumulate(np.where(begins, rows, 0))
    return {
        **piece,
        "operations": _replaced(operations, "record_count", count),
        "records_read": _replaced(records, "index_in_poll", place),
    }
