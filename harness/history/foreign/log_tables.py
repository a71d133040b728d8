"""The tables of a log history that another tool recorded, built row by row in bounded memory.

Rows wait in lists and become Arrow batches, `CHUNK_ROWS` at a time. Values of records are texts, unique among the
appends of a partition. In our tables a value is the `op_index` of its append; a read may stand before its append
in the file, so both are joined at the end. Then operations are numbered in the order of their invocations.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import HistoryError
from harness.history.foreign.log_batches import BATCH_NAMES, batch_numbers, with_batches
from harness.history.foreign.overlaps import without_order_in_pipelines
from harness.history.parquet import in_order
from harness.history.schema import END_OFFSETS_SEEN, OPERATIONS, RECORDS_READ, with_column

I64 = npt.NDArray[np.int64]

CHUNK_ROWS = 50_000
"""Rows that wait as Python values: about 30 MB."""
_NOWHERE = 2**62
"""More than any offset."""
TIME_NS_MAX = 2**60
"""Longest history: 36 years. The kernels would clip later times."""

_VALUES = pa.schema([("provisional", pa.int64()), ("value", pa.large_string())])
_READS = pa.schema(
    [
        ("op_index", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.large_string()),
        ("leader_epoch", pa.int32()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What the operations of a log have in common.

    Attributes:
        line: Where it is recorded.
        process: Who.
        topic, partition: Which log.
        invoked_ns, completed_ns: When; `completed_ns` is None while open.
        outcome: ok, fail or info.
        final: Whether it may belong to the final reads.
    """

    line: int
    process: int
    topic: str
    partition: int
    invoked_ns: int
    completed_ns: int | None
    outcome: str
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """Two rows that contradict the order in which one client did both, which their common interval does not show.

    Attributes:
        id: The anomaly.
        topic: Where; its partition is 0.
        first, second: The rows, in the order of the client: at first as they were added, then by `op_index`.
        offset, other: What the first one showed, and the second one; -1 if it showed nothing.
    """

    id: str
    topic: str
    first: int
    second: int
    offset: int
    other: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHistory:
    """A log history as tables.

    Attributes:
        tables: `operations`, `records_read` and `end_offsets_seen`.
        lines: The line of every operation, by `op_index`.
        phantoms: Values that were read but never appended, by the number that stands for them in `records_read`.
        contradictions: What the order inside of operations shows to be wrong.
    """

    tables: dict[str, pa.Table]
    lines: I64
    phantoms: dict[int, str]
    contradictions: tuple[Contradiction, ...] = ()


@dataclass(slots=True)
class _Chunks:
    """Rows of one table. Mutable while a history is read."""

    schema: pa.Schema
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    batches: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, row: tuple[Any, ...]) -> None:
        self.rows.append(row)
        if len(self.rows) >= CHUNK_ROWS:
            self._flush()

    def table(self) -> pa.Table:
        self._flush()
        return pa.Table.from_batches(self.batches, schema=self.schema)

    def _flush(self) -> None:
        if self.rows:
            columns = zip(*self.rows, strict=True)
            arrays = [
                pa.array(column, field.type)
                for column, field in zip(columns, self.schema, strict=True)
            ]
            self.batches.append(pa.RecordBatch.from_arrays(arrays, schema=self.schema))
            self.rows.clear()


@dataclass(frozen=True, slots=True)
class _Uncertain:
    """An append of an operation with unknown outcome that learned an offset, or may have."""

    append: int
    group: int
    offset: int | None


class LogTables:
    """Collects the operations of logs. Mutable.

    Args:
        origin: The name of the file, for errors.
    """

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._operations = _Chunks(OPERATIONS)
        self._reads = _Chunks(_READS)
        self._ends = _Chunks(END_OFFSETS_SEEN)
        self._values = _Chunks(_VALUES)
        self._batches = _Chunks(BATCH_NAMES)
        self._lines: list[I64] = []
        self._new_lines: list[int] = []
        self._count = 0
        self._sequences: dict[int, int] = {}
        self._uncertain: list[_Uncertain] = []
        self._last_append_ns: int | None = None
        # Time and line of the last end of an append and of the first final read, by partition.
        self._last_end: dict[tuple[str, int], tuple[int, int]] = {}
        self._first_final: dict[tuple[str, int], tuple[int, int]] = {}
        self._zero_ns = 0
        self._contradictions: list[Contradiction] = []
        self._sent_in_order: list[tuple[str, tuple[int, ...]]] = []

    def append(
        self,
        call: Call,
        value: str,
        *,
        offset: int | None = None,
        acks: int = -1,
        key: str = "",
        group: int = -1,
        batch: str = "",
    ) -> int:
        """Adds an append and returns its row.

        Args:
            call: Who, where and when.
            value: What was appended; unique in its partition.
            offset: The offset in the response, if there was one. For an unknown outcome it counts only if a read
                shows that an append of the same group happened.
            acks: 0, 1 or -1 (all).
            key: The record's key.
            group: Which appends happen together: all of one operation have one number.
            batch: Which record batch carried it, unique among those of the process to the partition; empty if that
                is not known.

        Raises:
            HistoryError: It has an offset although its producer requested no response (acks 0).
        """
        if acks == 0 and offset is not None:
            raise HistoryError(
                f"{self._origin}, line {call.line}: with acks 0 no response tells the producer an offset; leave it"
                " out, or state the acks that were requested"
            )
        sequence = self._sequences.get(call.process, 0)
        self._sequences[call.process] = sequence + 1
        self._values.add((self._count, _joined(call, value)))
        if batch:
            self._batches.add((self._count, _joined(call, f"{call.process}\0{batch}")))
        if call.outcome == "info" and group >= 0:
            self._uncertain.append(_Uncertain(self._count, group, offset))
        if self._last_append_ns is None or call.invoked_ns > self._last_append_ns:
            self._last_append_ns = call.invoked_ns
        # Only an append that is `ok` certainly took effect before it ended.
        end_ns = call.completed_ns if call.outcome == "ok" else None
        ended = (call.invoked_ns if end_ns is None else end_ns), call.line
        place = call.topic, call.partition
        self._last_end[place] = max(self._last_end.get(place, ended), ended)
        known = offset if call.outcome == "ok" else None
        return self._add(call, "append", acks=acks, sequence=sequence, key=key, offset=known)

    def poll(
        self,
        call: Call,
        records: Sequence[tuple[int, str]],
        *,
        position: int = -1,
        end_offset: int | None = None,
        leader_epochs: Sequence[int] | None = None,
    ) -> int:
        """Adds a poll with the records (offset, value) that it returned, in their order, and returns its row.

        If it is not `ok`, only its records and `position` count, which must be known without this poll: it is not
        known what else it states.
        """
        if call.outcome != "ok":
            call, end_offset = replace(call, final=False), None
        if end_offset is not None:
            self._end(call, end_offset, "fetch")
        for at, (offset, value) in enumerate(records):
            epoch = -1 if leader_epochs is None else leader_epochs[at]
            self._reads.add(
                (self._count, call.topic, call.partition, offset, _joined(call, value), epoch)
            )
        return self._add(
            call, "poll", position=position, record_count=len(records), end_offset=end_offset
        )

    def latest(self, call: Call, end_offset: int | None) -> None:
        """Adds a request for the end of the log, which states something only if it is `ok`."""
        if call.outcome != "ok":
            call, end_offset = replace(call, final=False), None
        if end_offset is not None:
            self._end(call, end_offset, "list_offsets")
        self._add(call, "latest", offset=end_offset)

    def contradict(self, contradiction: Contradiction) -> None:
        """Adds a contradiction between two rows."""
        self._contradictions.append(contradiction)

    def sent_in_order(self, topic: str, rows: Sequence[int]) -> None:
        """Adds the rows of appends to one partition that were sent one after the other and cannot be reordered."""
        self._sent_in_order.append((topic, tuple(rows)))

    def _end(self, call: Call, end_offset: int, source: str) -> None:
        self._ends.add((self._count, call.topic, call.partition, end_offset, source, "", -1))

    def _add(
        self,
        call: Call,
        kind: str,
        *,
        acks: int = 0,
        sequence: int = -1,
        key: str = "",
        position: int = -1,
        offset: int | None = None,
        record_count: int = 0,
        end_offset: int | None = None,
    ) -> int:
        self._operations.add(
            (
                self._count,
                call.process,
                kind,
                call.topic,
                call.partition,
                call.invoked_ns,
                call.completed_ns,
                call.outcome,
                acks,
                sequence,
                key,
                position,
                offset,
                record_count,
                end_offset,
                None,
                "" if call.outcome == "ok" else call.outcome,
                "",
                -1,
                call.final,
                None,
            )
        )
        if call.final:
            began, place = (call.invoked_ns, call.line), (call.topic, call.partition)
            self._first_final[place] = min(self._first_final.get(place, began), began)
        self._new_lines.append(call.line)
        if len(self._new_lines) >= CHUNK_ROWS:
            self._flush_lines()
        self._count += 1
        return self._count - 1

    def _flush_lines(self) -> None:
        self._lines.append(np.array(self._new_lines, dtype=np.int64))
        self._new_lines.clear()

    def finish(self, *, from_jepsen: bool, clock_error_ns: int = 0) -> LogHistory:
        """Returns the tables.

        Args:
            from_jepsen: Whether the history is Jepsen's. Then a process does one operation at a time, and final
                reads count only if they were invoked after every append. If not, a producer may have several
                appends in flight, and a final read before the end of an append to its partition is refused.
            clock_error_ns: Largest difference between two clocks; what it can explain is not refused.

        Raises:
            HistoryError: Two appends of one partition have the same value, a final read is before an append, or an
                append begins after another one of its batch has ended.
        """
        operations, batches = self._operations.table(), self._batches.table()
        if not from_jepsen:
            self._refuse_early_final_reads(clock_error_ns)
            numbers = batch_numbers(batches, self._count)
            operations = without_order_in_pipelines(operations, numbers)
        self._flush_lines()
        lines = np.concatenate(self._lines)
        operations, reads = self._in_run_time(operations), self._reads.table()
        values = self._values.table()
        self._refuse_equal_values(values, lines)
        append, phantoms = self._appends_of(reads, values)
        operations = self._with_certain(operations, reads, append)
        self._find_reordered_sends(operations, reads, append)
        if from_jepsen and self._last_append_ns is not None:
            last_append_ns = self._last_append_ns - self._zero_ns
            later = pc.greater(operations.column("invoked_ns"), pa.scalar(last_append_ns))
            operations = with_column(
                operations, "final", pc.and_(operations.column("final"), later)
            )

        # From now on operations are numbered in the order of their invocations.
        order = _in_order_of_invocation(operations)
        number = np.empty(self._count, dtype=np.int64)
        number[order] = np.arange(self._count)
        is_known = append < self._count
        value = append.copy()
        value[is_known] = number[append[is_known]]
        records = self._records(operations, reads, append, is_known, value, number)
        operations = with_batches(operations, batches, number, lines, self._origin)
        operations = _renumbered(operations, number)
        ends = _renumbered(self._ends.table(), number)
        tables = {
            "operations": in_order("operations", operations),
            "records_read": in_order("records_read", records),
            "end_offsets_seen": in_order("end_offsets_seen", ends),
        }
        contradictions = tuple(
            replace(one, first=int(number[one.first]), second=int(number[one.second]))
            for one in self._contradictions
        )
        return LogHistory(
            tables=tables, lines=lines[order], phantoms=phantoms, contradictions=contradictions
        )

    def _refuse_early_final_reads(self, clock_error_ns: int) -> None:
        for (topic, partition), (began_ns, line) in self._first_final.items():
            ended_ns, append_line = self._last_end.get((topic, partition), (began_ns - 1, 0))
            if began_ns + clock_error_ns <= ended_ns:
                raise HistoryError(
                    f"{self._origin}, line {line}: the final read of {topic}-{partition} begins before the append"
                    f" of line {append_line} has ended; mark only reads after the last append as final"
                )

    def _in_run_time(self, operations: pa.Table) -> pa.Table:
        """Returns the operations with times from 0 to `TIME_NS_MAX`, which is what tables of runs hold."""
        if not operations.num_rows:
            return operations
        ends = [pc.min_max(operations.column(name)) for name in ("invoked_ns", "completed_ns")]
        low = ends[0]["min"].as_py()
        high = max(end["max"].as_py() or 0 for end in ends)
        if low >= 0 and high <= TIME_NS_MAX:
            return operations
        if high - low > TIME_NS_MAX:
            raise HistoryError(
                f"{self._origin}: the operations last more than {TIME_NS_MAX // 10**9} seconds; times are in"
                " nanoseconds of one clock"
            )
        self._zero_ns = low
        for name in ("invoked_ns", "completed_ns"):
            operations = with_column(
                operations, name, pc.subtract(operations.column(name), pa.scalar(low))
            )
        return operations

    def _refuse_equal_values(self, values: pa.Table, lines: I64) -> None:
        column = values.column("value")
        if pc.count_distinct(column).as_py() == len(column):
            return
        codes = _combined(column).dictionary_encode().indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        again = order[1:][codes[order][1:] == codes[order][:-1]]
        later = int(again.min())
        earlier = int(np.flatnonzero(codes == codes[later])[0])
        at = values.column("provisional").to_numpy()
        place, _, value = column[later].as_py().partition("\0")
        raise HistoryError(
            f"{self._origin}, line {lines[at[later]]}: the value {value[:60]} is appended to {place} again (first"
            f" on line {lines[at[earlier]]}); every append to a partition needs a value of its own"
        )

    def _appends_of(self, reads: pa.Table, values: pa.Table) -> tuple[I64, dict[int, str]]:
        """Returns the append of every record read, and a number beyond all operations for unknown values."""
        wanted = _combined(reads.column("value"))
        row = pc.index_in(wanted, value_set=_combined(values.column("value")))
        append = np.full(len(wanted), -1, dtype=np.int64)
        found = pc.is_valid(row).to_numpy(zero_copy_only=False)
        provisional = values.column("provisional").to_numpy()
        append[found] = provisional[row.drop_null().to_numpy()]
        if found.all():
            return append, {}
        unknown = wanted.filter(pa.array(~found)).dictionary_encode()
        append[~found] = self._count + unknown.indices.to_numpy()
        texts = unknown.dictionary.to_pylist()
        return append, {
            self._count + number: text.partition("\0")[2] for number, text in enumerate(texts)
        }

    def _with_certain(self, operations: pa.Table, reads: pa.Table, append: I64) -> pa.Table:
        """Returns the operations, with appends acknowledged whose group a read proves to have happened."""
        if not self._uncertain or not len(append):
            return operations
        outcome = operations.column("outcome")
        is_ok = pc.equal(outcome, pa.scalar("ok")).to_numpy()
        was_read = np.zeros(self._count, dtype=np.bool_)
        proven = append[is_ok[reads.column("op_index").to_numpy()]]
        was_read[proven[proven < self._count]] = True
        groups = {one.group for one in self._uncertain if was_read[one.append]}
        certain = [one for one in self._uncertain if one.group in groups and one.offset is not None]
        if not certain:
            return operations
        rows = np.zeros(self._count, dtype=np.bool_)
        rows[[one.append for one in certain]] = True
        offsets = np.zeros(self._count, dtype=np.int64)
        offsets[[one.append for one in certain]] = [one.offset or 0 for one in certain]
        mask = pa.array(rows)
        offset = pc.if_else(mask, pa.array(offsets), _combined(operations.column("offset")))
        ended = pc.if_else(mask, pa.scalar("ok"), _combined(outcome))
        error = pc.if_else(mask, pa.scalar(""), _combined(operations.column("error")))
        operations = with_column(operations, "offset", offset)
        operations = with_column(operations, "error", error)
        return with_column(operations, "outcome", ended)

    def _find_reordered_sends(self, operations: pa.Table, reads: pa.Table, append: I64) -> None:
        """Adds the contradictions of appends whose offsets do not grow although they were sent in order.

        The offset of one whose response lacks it is where polls that are `ok` returned its value, if all agree.
        """
        if not self._sent_in_order:
            return
        rows = np.unique([row for _, sent in self._sent_in_order for row in sent])
        acked = _combined(operations.column("offset")).fill_null(-1).to_numpy()
        is_ok = pc.equal(operations.column("outcome"), pa.scalar("ok")).to_numpy()
        counts = is_ok[reads.column("op_index").to_numpy()] & np.isin(append, rows)
        of_append, offset = append[counts], reads.column("offset").to_numpy()[counts]
        lowest, highest = np.full(self._count, _NOWHERE), np.full(self._count, -1)
        np.minimum.at(lowest, of_append, offset)
        np.maximum.at(highest, of_append, offset)
        read = np.where(lowest == highest, lowest, -1)
        place = np.where((acked >= 0) & (acked <= _NOWHERE), acked, read)
        for topic, sent in self._sent_in_order:
            last = -1
            for row in sent:
                if place[row] < 0:
                    continue
                if last >= 0 and place[last] >= place[row]:
                    self._contradictions.append(
                        Contradiction(
                            id="nonmonotonic-send",
                            topic=topic,
                            first=last,
                            second=row,
                            offset=int(place[last]),
                            other=int(place[row]),
                        )
                    )
                else:
                    last = row

    def _records(
        self,
        operations: pa.Table,
        reads: pa.Table,
        append: I64,
        is_known: npt.NDArray[np.bool_],
        value: I64,
        number: I64,
    ) -> pa.Table:
        """Returns `records_read`; the payload of a known value is that of its append."""
        row = pa.array(append, mask=~is_known)

        def of_append(name: str, missing: Any) -> Any:
            return pc.fill_null(_combined(operations.column(name)).take(row), missing)

        columns = {
            "op_index": pa.array(number[reads.column("op_index").to_numpy()]),
            "topic": reads.column("topic"),
            "partition": reads.column("partition"),
            "offset": reads.column("offset"),
            "value": pa.array(value),
            "status": pa.array(["ok"]).take(pa.array(np.zeros(len(value), dtype=np.int64))),
            "process": of_append("process", -1),
            "sequence": of_append("sequence", -1),
            "key": of_append("key", ""),
            "leader_epoch": reads.column("leader_epoch"),
            "index_in_poll": pa.array(
                _index_in_poll(reads.column("op_index").to_numpy()), pa.int32()
            ),
        }
        return pa.table([columns[name] for name in RECORDS_READ.names], schema=RECORDS_READ)


def _index_in_poll(op: I64) -> I64:
    """Returns the place of every record in its poll; the records of a poll follow each other."""
    index = np.arange(len(op))
    is_first = np.append(True, op[1:] != op[:-1])[: len(op)]
    return index - np.maximum.accumulate(np.where(is_first, index, 0))


def _joined(call: Call, value: str) -> str:
    return f"{call.topic}-{call.partition}\0{value}"


def _combined(column: pa.ChunkedArray) -> Any:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _in_order_of_invocation(operations: pa.Table) -> I64:
    """Returns the positions of the operations in the order in which they were invoked, as far as times show it.

    Of operations that begin together, one that ends at that moment came before those that go on, unless it is an
    append: a process may send several together, and their order is that of the lines.
    """
    invoked_ns = operations.column("invoked_ns").to_numpy()
    ends_at_once = pc.equal(operations.column("completed_ns"), operations.column("invoked_ns"))
    is_append = pc.equal(operations.column("kind"), pa.scalar("append"))
    is_first = pc.and_not(ends_at_once.fill_null(False), is_append).to_numpy()
    return np.lexsort((~is_first, invoked_ns))


def _renumbered(table: pa.Table, number: I64) -> pa.Table:
    return with_column(table, "op_index", pa.array(number[table.column("op_index").to_numpy()]))
