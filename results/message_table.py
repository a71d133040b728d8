"""`messages.parquet`: the messages that the nodes of a real run recorded, with remarks on what is missing."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.errors import HistoryError
from harness.history.schema import MESSAGES

REMARKS = b"remarks"


def write_messages(path: Path, rows: Sequence[Mapping[str, Any]], remarks: Sequence[str]) -> None:
    """Writes the table.

    Args:
        path: Where.
        rows: One per message, with the columns of `MESSAGES`.
        remarks: What is missing, one sentence each.
    """
    metadata = {REMARKS: json.dumps(list(remarks), ensure_ascii=False).encode()}
    schema = MESSAGES.with_metadata(metadata)
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path, compression="zstd")


def read_messages(
    path: Path, window_ns: tuple[int, int] | None = None
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Reads the messages in the order of time, and the remarks.

    Args:
        path: The table.
        window_ns: Only messages of which an end lies in this time; all if None.

    Raises:
        FileNotFoundError: There is no such file.
        HistoryError: The file is damaged or not ours.
    """
    if not path.exists():
        raise FileNotFoundError(path)
    try:
        table = pq.read_table(path)
        remarks = tuple(map(str, json.loads((table.schema.metadata or {}).get(REMARKS, b"[]"))))
        table = table.select(MESSAGES.names).cast(pa.schema(list(MESSAGES)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HistoryError(f"{path} is not a table of messages: {error}") from None
    if window_ns is not None:
        begin_ns, end_ns = window_ns
        inside = [
            pc.fill_null(pc.and_(pc.greater_equal(at, begin_ns), pc.less_equal(at, end_ns)), False)
            for at in (table.column("sent_ns"), table.column("arrived_ns"))
        ]
        table = table.filter(pc.or_(*inside))
    return table.to_pylist(), remarks
