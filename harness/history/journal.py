"""The unfinished form of a history: one append-only journal of frames.

The journal begins with a header (magic, format version, fingerprint of the schemas). Then come frames:

    magic (4 bytes) | payload length (u32) | CRC-32 of the payload (u32) | payload

and a payload is a sequence of sections, one for every table that has rows since the last frame:

    table number (u8) | section length (u32) | one Arrow record batch in IPC form, without its schema

All integers are little-endian. A frame holds *everything* that was recorded since the last one, so the journal
up to any whole frame is a consistent cut of the history: a reader stops at the first frame that is not
whole. The schemas are not repeated, because a frame may hold a single row; the fingerprint in the header
makes sure that they are ours.

Invocations and completions are separate tables here, and `tables_of` pairs them into `operations`: what was
open when the harness died is an open operation, therefore `info`.
"""

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.errors import HistoryError
from harness.history.filesystems import RemoteFile, first_line
from harness.history.parquet import FORMAT_VERSION, OLDEST_FORMAT_READ, history_directory, in_order
from harness.history.schema import (
    ADDED_IN,
    NULLABLE_SINCE,
    OPERATIONS,
    TABLES,
    schema_in,
    with_added_columns,
)

JOURNAL_NAME = "history.journal"

_FRAME_MAGIC = b"LSF1"
_FRAME_HEADER = struct.Struct("<4sII")
_SECTION_HEADER = struct.Struct("<BI")
_ANY_VERSION = b"laststand journal "


def _schema(*columns: str) -> pa.Schema:
    return pa.schema([OPERATIONS.field(column) for column in columns])


INVOCATIONS = _schema(
    "op_index",
    "process",
    "kind",
    "topic",
    "partition",
    "invoked_ns",
    "acks",
    "sequence",
    "key",
    "position",
    "final",
    "batch",
)
COMPLETIONS = _schema(
    "op_index",
    "completed_ns",
    "outcome",
    "offset",
    "record_count",
    "end_offset",
    "error_code",
    "error",
    "node",
    "leader_epoch",
)

JOURNAL_TABLES: dict[str, pa.Schema] = {
    "invocations": INVOCATIONS,
    "completions": COMPLETIONS,
    **{name: schema for name, schema in TABLES.items() if name != "operations"},
}
"""What a journal holds; the position of a name is its number in a section."""

_REMEDY = "restore the journal or record the run again"

_NAMES = tuple(JOURNAL_TABLES)
_OPEN_DEFAULTS = {"outcome": "info", "record_count": 0, "error": "", "node": "", "leader_epoch": -1}
"""What the columns of a completion are while the operation is open; the others are null."""


def journal_path(run_dir: Path) -> Path:
    """Returns where a run's journal is."""
    return history_directory(run_dir) / JOURNAL_NAME


def file_header(version: int = FORMAT_VERSION) -> bytes:
    """Returns the first bytes of every journal of a history format."""
    fingerprint = hashlib.sha256()
    for name in JOURNAL_TABLES:
        if ADDED_IN.get(name, version) <= version:
            columns = [
                (
                    field.name,
                    str(field.type),
                    field.nullable and NULLABLE_SINCE.get((name, field.name), version) <= version,
                )
                for field in _schema_in(version, name)
            ]
            fingerprint.update(repr((name, columns)).encode())
    return _ANY_VERSION + b"%d\n" % version + fingerprint.digest()[:16]


def _schema_in(version: int, name: str) -> pa.Schema:
    """Returns the schema that a journal table has in a history format."""
    if name in TABLES:
        return schema_in(version, name)
    known = schema_in(version, "operations").names
    return pa.schema([field for field in JOURNAL_TABLES[name] if field.name in known])


def encode_frame(batches: Mapping[str, pa.RecordBatch]) -> bytes:
    """Returns the bytes of one frame.

    Args:
        batches: The new rows by journal table; tables without new rows are left out.
    """
    sections = []
    for name, batch in batches.items():
        body = batch.serialize()
        sections.append(_SECTION_HEADER.pack(_NAMES.index(name), body.size))
        sections.append(body.to_pybytes())
    payload = b"".join(sections)
    return _FRAME_HEADER.pack(_FRAME_MAGIC, len(payload), zlib.crc32(payload)) + payload


def read_frames(path: Path | RemoteFile) -> Iterator[dict[str, pa.RecordBatch]]:
    """Yields the frames of a journal up to the last whole one.

    Raises:
        HistoryError: The file is missing, or not a journal that this version wrote.
    """
    versions = range(OLDEST_FORMAT_READ, FORMAT_VERSION + 1)
    headers = {version: file_header(version) for version in versions}
    try:
        file = path.open("rb")
    except OSError as error:
        reason = error.strerror or first_line(error)
        raise HistoryError(f"{path} cannot be opened: {reason}") from None
    with file:
        # The number of the format may have more digits in one header than in another.
        found = file.read(min(map(len, headers.values())))
        # A harness that died within the header leaves an empty history, not a foreign file.
        version = next((one for one in versions if headers[one].startswith(found)), None)
        if version is not None:
            found += file.read(len(headers[version]) - len(found))
            version = version if headers[version].startswith(found) else None
        if version is None:
            if found.startswith(_ANY_VERSION):
                raise HistoryError(f"{path} was written by another version of laststand")
            raise HistoryError(f"{path} is not a history journal of laststand")
        while payload := _next_payload(file.read):
            yield _decode(payload, path, version)


def tables_of(frames: Iterable[Mapping[str, pa.RecordBatch]]) -> dict[str, pa.Table]:
    """Assembles frames into the tables of `harness.history.schema`, in canonical order.

    Raises:
        HistoryError: Completions do not fit the invocations.
    """
    batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in JOURNAL_TABLES}
    for frame in frames:
        for name, batch in frame.items():
            batches[name].append(batch)
    raw = {
        name: pa.Table.from_batches(batches[name], schema=schema)
        for name, schema in JOURNAL_TABLES.items()
    }
    operations = _paired(raw.pop("invocations"), raw.pop("completions"))
    result = {"operations": operations, **raw}
    return {name: in_order(name, result[name]) for name in TABLES}


def _next_payload(read: Callable[[int], bytes]) -> bytes:
    header = read(_FRAME_HEADER.size)
    if len(header) < _FRAME_HEADER.size:
        return b""
    magic, length, checksum = _FRAME_HEADER.unpack(header)
    if magic != _FRAME_MAGIC:
        return b""
    payload = read(length)
    if len(payload) < length or zlib.crc32(payload) != checksum:
        return b""
    return payload


def _decode(payload: bytes, path: Path | RemoteFile, version: int) -> dict[str, pa.RecordBatch]:
    frame = {}
    position = 0
    try:
        while position < len(payload):
            number, length = _SECTION_HEADER.unpack_from(payload, position)
            position += _SECTION_HEADER.size
            name = _NAMES[number]
            # A copy, because Arrow wants its buffers aligned, and sections begin anywhere.
            body = payload[position : position + length]
            batch = pa.ipc.read_record_batch(pa.py_buffer(body), _schema_in(version, name))
            batch.validate(full=True)
            frame[name] = _newest(name, batch)
            position += length
    except (IndexError, struct.error, OSError, EOFError, pa.ArrowException) as error:
        # The checksum is right, so this is not a torn write: another program wrote the frame.
        raise HistoryError(f"{path} holds a frame that is not ours: {error}") from None
    return frame


def _newest(name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns rows with all columns of the newest history format."""
    if batch.schema == JOURNAL_TABLES[name]:
        return batch
    table = with_added_columns(
        name if name in TABLES else "operations",
        pa.Table.from_batches([batch]),
        JOURNAL_TABLES[name].names,
    ).select(JOURNAL_TABLES[name].names)
    return table.cast(JOURNAL_TABLES[name]).combine_chunks().to_batches()[0]


def _require_pairs(begun: Any, ended: Any) -> None:
    """Refuses invocations that do not count from 0, and completions without an invocation of their own."""
    count = len(begun)
    wrong = begun[begun != np.arange(count)]
    if len(wrong):
        raise HistoryError(
            f"the invocations of a journal count from 0, but this one has op_index {wrong[0]}; {_REMEDY}"
        )
    wrong = ended[(ended < 0) | (ended >= count)]
    if len(wrong):
        raise HistoryError(f"the journal has no invocation of op_index {wrong[0]}; {_REMEDY}")
    repeated = np.flatnonzero(np.bincount(ended) > 1)
    if len(repeated):
        raise HistoryError(f"op_index {repeated[0]} of the journal completes twice; {_REMEDY}")


def _paired(invocations: pa.Table, completions: pa.Table) -> pa.Table:
    """Joins completions to invocations; op_index counts invocations, so the join is a look-up."""
    count = invocations.num_rows
    which = np.zeros(count, dtype=np.int64)
    is_open = np.ones(count, dtype=bool)
    ended = completions.column("op_index").to_numpy()
    _require_pairs(invocations.column("op_index").to_numpy(), ended)
    which[ended] = np.arange(len(ended))
    is_open[ended] = False
    indices: Any = pa.array(which, mask=is_open)
    columns = []
    for field in OPERATIONS:
        if field.name in INVOCATIONS.names:
            columns.append(invocations.column(field.name).combine_chunks())
            continue
        column = completions.column(field.name).combine_chunks().take(indices)
        if field.name in _OPEN_DEFAULTS:
            column = column.fill_null(pa.scalar(_OPEN_DEFAULTS[field.name], type=field.type))
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=OPERATIONS)
