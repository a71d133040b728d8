"""Synthetic valid histories of any size.

Closed-loop clients on one partition: half appends, half polls of one record near the tail, a quarter of the polls
aimed at the log end instead, a few appends of unknown outcome; at the end everything is read once. Made with array
operations only, so that a history of ten million operations takes seconds. A history of any length can be made in
pieces, with the memory of one piece. For benchmarks and tests; a history is a function of its parameters.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.kernels.history import I64, Bools
from harness.history.schema import TABLES

OPERATION_MEAN_NS = 1_000_000
"""How long one operation takes on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Parameters of a synthetic history.

    Attributes:
        operations: How many operations, without the final reads.
        clients: How many of them are in flight at a time.
        unknown_share: Which share of the appends ends `info`; half of those reached the log.
        end_share: Which share of the observations requests the log end.
        final_read_records: Records per poll of the final read; 0 for no final read.
        seed: Which history of this shape.
    """

    operations: int
    clients: int = 20
    unknown_share: float = 0.02
    end_share: float = 0.25
    final_read_records: int = 500
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """Where the operations of one table are in a run.

    Attributes:
        topic, partition: Whose they are.
        processes: How many processes take turns.
        before: How many operations of the partition come first.
        stride: By how much `op_index` grows from one operation of the partition to the next.
        first_op: The `op_index` of the partition's first operation.
        first_offset: The first offset that `value_at` describes.
    """

    topic: str
    partition: int
    processes: int
    before: int = 0
    stride: int = 1
    first_op: int = 0
    first_offset: int = 0

    def op_index(self, count: int) -> I64:
        return (self.before + np.arange(count)) * self.stride + self.first_op

    def process(self, op_index: I64) -> I64:
        return (op_index - self.first_op) // self.stride % self.processes


def synthetic_tables(
    shape: Shape, *, topic: str = "synthetic", partition: int = 0
) -> dict[str, pa.Table]:
    """Returns a valid history as the stored tables `operations`, `records_read` and `end_offsets_seen`.

    Raises:
        ValueError: It would have no operation, or no client.
    """
    if shape.operations < 1 or shape.clients < 1:
        raise ValueError("a synthetic history needs at least one operation and one client")
    rng = np.random.default_rng(shape.seed)
    columns, record_offset = _main_phase(shape, rng)
    end = int(columns["log_end"][-1]) if shape.operations else 0
    polls = _final_reads(shape, columns, end)
    # Operations that are 8 * clients apart never overlap, so a process does one at a time.
    span = _Span(topic=topic, partition=partition, processes=8 * shape.clients)
    return _tables(columns, record_offset, polls, _values(columns, 0, span), span)


def synthetic_pieces(
    shape: Shape,
    *,
    piece: int,
    topic: str = "synthetic",
    partition: int = 0,
    partitions: int = 1,
) -> Iterator[dict[str, pa.Table]]:
    """Returns a valid history in pieces whose tables, one after the other, are in order of `op_index`.

    The operations of one piece begin after those of the piece before have ended; nothing else shows where one
    ends. The final read comes in pieces too.

    Args:
        shape: The whole history.
        piece: How many operations, or records of the final read, a piece has at most.
        topic: The topic.
        partition: The partition.
        partitions: Of the run. Operations of all partitions take turns, as in a run whose clients use all of them.

    Raises:
        ValueError: It would have no operation, or no client.
    """
    if shape.operations < 1 or shape.clients < 1:
        raise ValueError("a synthetic history needs at least one operation and one client")
    span = _Span(
        topic=topic,
        partition=partition,
        processes=8 * shape.clients,
        stride=partitions,
        first_op=partition,
    )
    values: list[I64] = []
    start_ns = 0
    for number in range(-(-shape.operations // piece)):
        count = min(piece, shape.operations - number * piece)
        rng = np.random.default_rng([shape.seed, partition, number])
        columns, read = _main_phase(replace(shape, operations=count), rng)
        columns["invoked_ns"] += start_ns
        columns["completed_ns"] += start_ns
        start_ns = int(columns["completed_ns"].max()) + OPERATION_MEAN_NS
        for offsets in (columns["place"], columns["reported_end"], read):
            offsets += np.where(offsets >= 0, span.first_offset, 0)
        columns["log_end"] += span.first_offset
        value_at = _values(columns, span.first_offset, span)
        values.append(value_at)
        no_polls = _final_polls(0, 0, 0, 1, 0)
        yield _tables(columns, read, no_polls, value_at, span)
        span = replace(
            span,
            before=span.before + count,
            first_offset=span.first_offset + len(value_at),
        )
    if not shape.final_read_records:
        return
    value_at, end = np.concatenate(values), span.first_offset
    nothing = {name: column[:0] for name, column in columns.items()}
    width = shape.final_read_records
    step = max(piece // width, 1) * width
    for start in range(0, end + 1, step):
        polls = _final_polls(start, min(start + step, end + 1), end, width, start_ns)
        part = value_at[start : start + step + width]
        yield _tables(nothing, read[:0], polls, part, replace(span, first_offset=start))
        span = replace(span, before=span.before + len(polls["position"]))
        start_ns += len(polls["position"]) * OPERATION_MEAN_NS


def _values(columns: dict[str, I64], first_offset: int, span: _Span) -> I64:
    """Returns which append wrote each offset of a piece, from its first one on."""
    rows = np.flatnonzero(columns["place"] >= 0)
    values = np.full(len(rows), -1, dtype=np.int64)
    values[columns["place"][rows] - first_offset] = span.op_index(len(columns["place"]))[rows]
    return values


def _main_phase(shape: Shape, rng: np.random.Generator) -> tuple[dict[str, I64], I64]:
    """Returns operations in order of invocation, and the offset each poll read (-1 for none)."""
    count = shape.operations
    # Effects happen at strictly growing instants; intervals around them overlap as those of `clients` would.
    spacing = OPERATION_MEAN_NS // shape.clients
    effect = np.cumsum(rng.integers(spacing // 2 + 1, 3 * spacing // 2 + 2, count))
    before = rng.integers(1, OPERATION_MEAN_NS, count)
    after = rng.integers(1, OPERATION_MEAN_NS, count)
    is_append = rng.random(count) < 0.5
    is_unknown = is_append & (rng.random(count) < shape.unknown_share)
    is_written = is_append & (~is_unknown | (rng.random(count) < 0.5))
    log_end = np.cumsum(is_written)
    place = np.where(is_written, log_end - 1, -1)
    is_latest = ~is_append & (rng.random(count) < shape.end_share)
    is_poll = ~is_append & ~is_latest & (log_end > 0)
    is_latest = is_latest | (~is_append & ~is_poll)
    read = np.where(is_poll, log_end - 1 - rng.geometric(0.2, count), -1)
    read = np.where(is_poll, np.maximum(read, 0), -1)
    order = np.argsort(effect - before, kind="stable")
    # Operation indices follow invocations, as in a real history.
    columns = {
        "op_index": np.arange(count),
        "invoked_ns": (effect - before)[order] + OPERATION_MEAN_NS,
        "completed_ns": (effect + after)[order] + OPERATION_MEAN_NS,
        "kind": np.where(is_append, 0, np.where(is_poll, 1, 2))[order],
        "unknown": is_unknown[order].astype(np.int64),
        "place": place[order],
        "reported_end": np.where(is_latest, log_end, -1)[order],
        "log_end": np.maximum.accumulate(log_end[order]),
    }
    return columns, read[order]


def _final_reads(shape: Shape, columns: dict[str, I64], end: int) -> dict[str, I64]:
    start_ns = int(columns["completed_ns"].max()) + OPERATION_MEAN_NS
    width = shape.final_read_records
    return _final_polls(0, end + 1 if width else 0, end, width or 1, start_ns)


def _final_polls(first: int, stop: int, end: int, width: int, start_ns: int) -> dict[str, I64]:
    """Returns polls of up to `width` records from [first, stop) on, one after the other; the log ends at `end`."""
    position = np.arange(first, stop, width)
    start = start_ns
    step = np.arange(len(position)) * OPERATION_MEAN_NS
    return {
        "position": position,
        "stop": np.minimum(position + width, end),
        "invoked_ns": start + step,
        "completed_ns": start + step + OPERATION_MEAN_NS // 2,
        "end": np.full(len(position), end),
    }


def _strings(codes: I64, strings: list[str]) -> Any:
    dictionary = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(strings))
    return dictionary.cast(pa.string())


def _masked(numbers: I64, is_null: Bools) -> Any:
    return pa.array(numbers, pa.int64(), mask=is_null)


def _filled(name: str, count: int, values: dict[str, Any]) -> pa.Table:
    """Returns a stored table; columns that are not given hold their type's empty value."""
    schema = TABLES[name]
    columns = []
    for field in schema:
        value: Any
        value = values.get(field.name)
        if value is None:
            value = {pa.string(): "", pa.bool_(): False}.get(field.type, 0)
        is_array = isinstance(value, np.ndarray | pa.Array)
        array = value if is_array else pa.repeat(pa.scalar(value, field.type), count)
        columns.append((array if isinstance(array, pa.Array) else pa.array(array)).cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _tables(
    main: dict[str, I64],
    read: I64,
    final: dict[str, I64],
    value_at: I64,
    span: _Span,
) -> dict[str, pa.Table]:
    count, final_count = len(main["op_index"]), len(final["position"])
    rows = count + final_count
    op_index = span.op_index(rows)
    kind = np.concatenate((main["kind"], np.ones(final_count, dtype=np.int64)))
    unknown = np.concatenate((main["unknown"], np.zeros(final_count, dtype=np.int64)))
    place = np.concatenate((main["place"], np.full(final_count, -1)))
    reported = np.concatenate((main["reported_end"], np.full(final_count, -1)))
    completed = np.concatenate((main["completed_ns"], final["completed_ns"]))
    end_offset = np.concatenate((np.full(count, -1), final["end"]))
    width = final["stop"] - final["position"]
    offset = np.where(kind == 0, place, reported)
    where: dict[str, Any] = {"topic": span.topic, "partition": span.partition}
    operations = _filled(
        "operations",
        rows,
        {
            **where,
            "op_index": op_index,
            "process": span.process(op_index),
            "kind": _strings(kind, ["append", "poll", "latest"]),
            "invoked_ns": np.concatenate((main["invoked_ns"], final["invoked_ns"])),
            "completed_ns": _masked(completed, unknown > 0),
            "outcome": _strings(unknown, ["ok", "info"]),
            "acks": np.where(kind == 0, -1, 0),
            "sequence": np.where(kind == 0, op_index, -1),
            "position": np.concatenate((np.where(read >= 0, read, -1), final["position"])),
            "offset": _masked(offset, (unknown > 0) | (offset < 0)),
            "record_count": np.concatenate(((read >= 0).astype(np.int64), width)),
            "end_offset": _masked(end_offset, end_offset < 0),
            "error_code": pa.nulls(rows, pa.int32()),
            "leader_epoch": -1,
            "node": "b1",
            "final": np.arange(rows) >= count,
            "batch": pa.nulls(rows, pa.int64()),
        },
    )
    one = np.flatnonzero(read >= 0)
    record_op = op_index[np.concatenate((one, np.repeat(count + np.arange(final_count), width)))]
    first = int(final["position"][0]) if final_count else 0
    record_offset = np.concatenate((read[one], first + np.arange(int(width.sum()))))
    places = np.arange(int(width.sum())) - np.repeat(np.cumsum(width) - width, width)
    value = value_at[record_offset - span.first_offset]
    records = _filled(
        "records_read",
        len(record_op),
        {
            **where,
            "op_index": record_op,
            "index_in_poll": np.concatenate((np.zeros(len(one), np.int64), places)),
            "offset": record_offset,
            "value": value,
            "status": "ok",
            "process": span.process(value),
            "sequence": value,
        },
    )
    ends = np.concatenate((np.flatnonzero(reported[:count] >= 0), count + np.arange(final_count)))
    seen = _filled(
        "end_offsets_seen",
        len(ends),
        {
            **where,
            "op_index": op_index[ends],
            "end_offset": np.concatenate((reported[:count][reported[:count] >= 0], final["end"])),
            "source": _strings((ends >= count).astype(np.int64), ["list_offsets", "fetch"]),
            "node": "b1",
            "leader_epoch": -1,
        },
    )
    return {"operations": operations, "records_read": records, "end_offsets_seen": seen}
