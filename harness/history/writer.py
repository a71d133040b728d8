"""The history writer: everything that clients received, and every fault that was injected.

Operations are recorded as they happen: an invocation before its request can leave, a completion after its
response was decoded. Rows wait in plain lists and go, `frame_rows` at a time, as one frame into a journal
(`harness.history.journal`), so that a harness that is killed leaves a history that can be judged. Closing
turns the journal into Parquet (`harness.history.parquet`).

The simulation records some ten rows for every acknowledged append, hence the style of `invoke` and
`complete`: they append tuples without any check. A frame is checked when it is built.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.errors import HarnessFailure
from harness.history.arrow import start_arrow
from harness.history.journal import (
    JOURNAL_TABLES,
    encode_frame,
    file_header,
    journal_path,
    tables_of,
)
from harness.history.op import Completion, OffsetQuery, OpKind, ReadRecord, TransactionEvent
from harness.history.parquet import history_directory, is_finished, write_tables

FRAME_ROWS = 2000
"""Rows a frame holds: Arrow's cost per frame (about 100 us) is then below 0.1 us a row."""
FRAMES_MERGED_AT = 2000
"""Frames in memory that are merged into one; what is in the journal stays as it was written."""


class HistoryWriter:
    """Records one run.

    Used by one thread. Code inside the simulated world must not call it.

    Args:
        directory: The run's directory (the journal and the tables go into its `history/`), or None to
            keep the history in memory only.
        frame_rows: After how many rows a frame is written; 1 for real worlds, where rows are rare and a
            killed harness should lose none.

    Raises:
        HarnessFailure: The directory already holds a history.
    """

    def __init__(self, directory: Path | None, *, frame_rows: int = FRAME_ROWS) -> None:
        if frame_rows < 1:
            raise ValueError("frame_rows must be at least 1")
        self._directory = directory
        self._frame_rows = frame_rows
        self._room = frame_rows
        self._next_op_index = 0
        self._next_event_index = 0
        self._next_query_index = 0
        self._open: dict[int, tuple[str, str, int]] = {}
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in JOURNAL_TABLES}
        self._invocations = self._rows["invocations"]
        self._completions = self._rows["completions"]
        self._records_read = self._rows["records_read"]
        self._end_offsets_seen = self._rows["end_offsets_seen"]
        self._frames: list[dict[str, pa.RecordBatch]] = []
        self._merged = 0
        self._tables: dict[str, pa.Table] | None = None
        self._file: int | None = None
        start_arrow()  # now, because it opens files, which a simulated world forbids once it runs
        if directory is not None:
            self._file = _create_journal(directory)

    def invoke(
        self,
        *,
        process: int,
        kind: OpKind | str,
        topic: str,
        partition: int,
        invoked_ns: int,
        acks: int = 0,
        sequence: int = -1,
        key: str = "",
        position: int = -1,
        final: bool = False,
        batch: int | None = None,
    ) -> int:
        """Records that an operation begins; to be called before its request can leave the process.

        Args:
            process: The logically single-threaded client.
            kind: append, poll or latest.
            topic: Where.
            partition: Where.
            invoked_ns: Nanoseconds since the start of the run.
            acks: append: 0, 1 or -1.
            sequence: append: counts the process's appends.
            key: append: record key.
            position: poll: requested offset.
            final: Whether it belongs to the final phase.
            batch: append: op_index of the first append of its record batch; None for that one.

        Returns:
            The op_index, which counts invocations from 0; an append writes it as its value.
        """
        op_index = self._next_op_index
        self._next_op_index = op_index + 1
        self._open[op_index] = (kind, topic, partition)
        self._invocations.append(
            (
                op_index,
                process,
                kind,
                topic,
                partition,
                invoked_ns,
                acks,
                sequence,
                key,
                position,
                final,
                batch,
            )
        )
        self._room -= 1
        if self._room <= 0:
            self.flush()
        return op_index

    def complete(
        self,
        op_index: int,
        completed_ns: int,
        completion: Completion,
        records: Sequence[ReadRecord] = (),
    ) -> None:
        """Records how an operation ended, what it read, and which log end it received.

        Args:
            op_index: What `invoke` returned.
            completed_ns: Nanoseconds since the start of the run, taken after the response was decoded.
            completion: The end.
            records: poll: what it returned, in order.

        Raises:
            HarnessFailure: The operation is not open.
        """
        try:
            kind, topic, partition = self._open.pop(op_index)
        except KeyError:
            raise HarnessFailure(f"operation {op_index} completed but is not open") from None
        node = completion.node
        leader_epoch = completion.leader_epoch
        self._completions.append(
            (
                op_index,
                completed_ns,
                completion.outcome,
                completion.offset,
                len(records),
                completion.end_offset,
                completion.error_code,
                completion.error,
                node,
                leader_epoch,
            )
        )
        room = self._room - 1
        if records:
            self._records_read.extend(_rows_read(op_index, topic, partition, records))
            room -= len(records)
        end_offset, source = completion.end_offset, "fetch"
        if kind == "latest":
            end_offset, source = completion.offset, "list_offsets"
        if end_offset is not None and kind != "append":
            self._end_offsets_seen.append(
                (op_index, topic, partition, end_offset, source, node, leader_epoch)
            )
            room -= 1
        self._room = room
        if room <= 0:
            self.flush()

    def add(self, table: str, row: tuple[Any, ...]) -> None:
        """Records one row of any other table.

        A fault may be added several times under its fault_id, as more is known of it; the last row counts.

        Args:
            table: Any table of `harness.history.schema.TABLES` that is not about operations or consumer groups.
            row: Its columns in the order of the schema.
        """
        self._rows[table].append(row)
        self._room -= 1
        if self._room <= 0:
            self.flush()

    def group_event(
        self,
        *,
        at_ns: int,
        group: str,
        process: int,
        topic: str,
        partition: int,
        event: str,
        offset: int = -1,
        refers_to: int = -1,
        generation: int = -1,
    ) -> int:
        """Records what a member of a consumer group did or received; see the table `group_events`.

        Returns:
            The event_index, which counts these events from 0.
        """
        index = self._next_event_index
        self._next_event_index = index + 1
        row = (index, at_ns, group, process, topic, partition, event, offset, refers_to, generation)
        self.add("group_events", row)
        return index

    def transaction_event(
        self,
        *,
        at_ns: int,
        transaction: int,
        process: int,
        event: TransactionEvent | str,
        number: int = -1,
        transactional_id: str = "",
        group: str = "",
        isolation: str = "",
        topic: str = "",
        partition: int = -1,
        offset: int | None = None,
        value: int = -1,
        status: str = "",
        error_code: int | None = 0,
        error: str = "",
        final: bool = False,
    ) -> int:
        """Records what a transaction did or received; see the table `transaction_events`.

        The transaction of a begin and the value of a send are not known before, so what is given is ignored.

        Returns:
            The event_index: the number of the transaction for a begin, the value of the record for a send.
        """
        # Operations and events count together, so that a witness of a verdict has a number of its own.
        index = self._next_op_index
        self._next_op_index = index + 1
        row = (
            index,
            at_ns,
            index if event == TransactionEvent.BEGIN else transaction,
            process,
            event,
            number,
            transactional_id,
            group,
            isolation,
            topic,
            partition,
            offset,
            index if event == TransactionEvent.SEND else value,
            status,
            error_code,
            error,
            final,
        )
        self.add("transaction_events", row)
        return index

    def offset_query(
        self, query: OffsetQuery, *, process: int, invoked_ns: int, completed_ns: int
    ) -> None:
        """Records a question about offsets and its answer; see the table `offset_queries`."""
        completion = query.completion
        row = (
            self._next_query_index,
            process,
            query.kind,
            query.topic,
            query.partition,
            invoked_ns,
            completed_ns,
            completion.outcome,
            query.op_index,
            query.record_offset,
            query.record_value,
            query.known_epoch,
            query.asked,
            query.found,
            -1 if completion.offset is None else completion.offset,
            completion.leader_epoch,
            completion.error_code,
            completion.error,
            completion.node,
        )
        self._next_query_index += 1
        self.add("offset_queries", row)

    def flush(self) -> None:
        """Writes what was recorded since the last frame; survives the death of this process.

        Raises:
            HarnessFailure: A row does not fit its table.
        """
        self._room = self._frame_rows
        frame = {}
        for name, rows in self._rows.items():
            if rows:
                frame[name] = _batch_of(name, rows)
        for name in frame:
            self._rows[name].clear()
        if not frame:
            return
        self._frames.append(frame)
        if len(self._frames) - self._merged >= FRAMES_MERGED_AT:
            # A frame of one row takes kilobytes of memory, and a real run makes hundreds of thousands of them.
            self._frames[self._merged :] = [_merge(self._frames[self._merged :])]
            self._merged += 1
        if self._file is not None:
            _write_all(self._file, encode_frame(frame))

    def close(self) -> dict[str, pa.Table]:
        """Ends the history: the journal becomes Parquet, and every table is returned, in canonical order.

        What is still open stays open, that is, `info`. Closing again returns the same tables.
        """
        if self._tables is not None:
            return self._tables
        self.flush()
        tables = tables_of(self._frames)
        if self._directory is not None and self._file is not None:
            write_tables(self._directory, tables, durable=True)
            os.close(self._file)
            self._file = None
            journal_path(self._directory).unlink()
        self._frames.clear()
        self._tables = tables
        return tables


def _merge(frames: Sequence[dict[str, pa.RecordBatch]]) -> dict[str, pa.RecordBatch]:
    """Returns one frame with the rows of several, in their order."""
    merged = {}
    for name in {name: None for frame in frames for name in frame}:
        batches = [frame[name] for frame in frames if name in frame]
        (merged[name],) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return merged


def _rows_read(
    op_index: int, topic: str, partition: int, records: Sequence[ReadRecord]
) -> list[tuple[Any, ...]]:
    return [
        (
            op_index,
            index,
            topic,
            partition,
            record.offset,
            record.value,
            record.status,
            record.process,
            record.sequence,
            record.key,
            record.leader_epoch,
        )
        for index, record in enumerate(records)
    ]


def _create_journal(directory: Path) -> int:
    """Creates the journal; O_EXCL, because two writers in one directory would ruin both histories."""
    history_directory(directory).mkdir(parents=True, exist_ok=True)
    path = journal_path(directory)
    if is_finished(directory):
        raise HarnessFailure(f"{directory} already holds a finished history")
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
    except FileExistsError:
        raise HarnessFailure(f"{directory} already holds a history") from None
    _write_all(file, file_header())
    return file


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _batch_of(name: str, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    schema = JOURNAL_TABLES[name]
    width = len(schema)
    if set(map(len, rows)) != {width}:
        row = next(row for row in rows if len(row) != width)
        raise HarnessFailure(f"{name}: a row has {len(row)} columns, not {width}: {row!r}")
    arrays = []
    for field, values in zip(schema, zip(*rows, strict=True), strict=True):
        try:
            array = pa.array(values, type=field.type)
        except (pa.ArrowException, OverflowError, TypeError) as error:
            raise HarnessFailure(f"{name}: column {field.name} does not fit: {error}") from None
        if array.null_count and not field.nullable:
            raise HarnessFailure(f"{name}: column {field.name} must not be null")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
