"""Synthetic histories with one thing changed: a number, an outcome, a missing row, a stretch of records."""

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tests.anomalies.runs import broker, fault, state, table
from tests.spark.stored_runs import replaced

Tables = dict[str, pa.Table]
Damage = Callable[[Tables, random.Random], Tables]


def damaged(tables: Tables, rng: random.Random) -> Tables:
    """Returns a history with one more damage."""
    return rng.choice(DAMAGES)(tables, rng)


def _shifted(name: str, column: str) -> Damage:
    def damage(tables: Tables, rng: random.Random) -> Tables:
        row = rng.randrange(tables[name].num_rows)
        is_poll = name == "operations" and tables[name].column("kind")[row].as_py() == "poll"
        if name == "operations" and is_poll != (column == "end_offset"):
            return tables
        old = tables[name].column(column)[row].as_py()
        shift = rng.choice((-1, 1, 9, -30, 30, 10**9))
        # So far away that every offset between has no memory of its own.
        shift = 10**15 if rng.random() < 0.05 else shift
        value = max(0, (old or 0) + shift)
        return {**tables, name: replaced(tables[name], column, row, value)}

    return damage


def _chosen(name: str, column: str, values: tuple[Any, ...]) -> Damage:
    def damage(tables: Tables, rng: random.Random) -> Tables:
        row = rng.randrange(tables[name].num_rows)
        return {**tables, name: replaced(tables[name], column, row, rng.choice(values))}

    return damage


def _without_a_row(name: str) -> Damage:
    def damage(tables: Tables, rng: random.Random) -> Tables:
        row = rng.randrange(tables[name].num_rows)
        kept = [index for index in range(tables[name].num_rows) if index != row]
        return {**tables, name: tables[name].take(kept)}

    return damage


def _other_time(tables: Tables, rng: random.Random) -> Tables:
    """Moves an invocation or a completion, but not across the other one."""
    operations = tables["operations"]
    row = rng.randrange(operations.num_rows)
    begun, done = (operations.column(name)[row].as_py() for name in ("invoked_ns", "completed_ns"))
    shift = rng.choice((-1, 1)) * rng.choice((10**5, 10**6, 5 * 10**6, 10**8))
    if done is not None and rng.random() < 0.5:
        operations = replaced(operations, "completed_ns", row, max(done + shift, begun))
    else:
        moved = max(0, begun + shift)
        moved = moved if done is None else min(moved, done)
        operations = replaced(operations, "invoked_ns", row, moved)
    return {**tables, "operations": operations}


def _other_outcome(tables: Tables, rng: random.Random) -> Tables:
    operations = tables["operations"]
    row = rng.randrange(operations.num_rows)
    is_open = operations.column("completed_ns")[row].as_py() is None
    if operations.column("kind")[row].as_py() != "append" or is_open:
        return tables
    operations = replaced(operations, "offset", row, None)
    outcome = rng.choice(("fail", "info", "ok"))
    return {**tables, "operations": replaced(operations, "outcome", row, outcome)}


def _some_weak(tables: Tables, rng: random.Random) -> Tables:
    operations = tables["operations"]
    acks = operations.column("acks").to_pylist()
    acks = [1 if each == -1 and rng.random() < 0.1 else each for each in acks]
    index = operations.schema.get_field_index("acks")
    column = pa.array(acks, pa.int32())
    return {**tables, "operations": operations.set_column(index, "acks", column)}


def _lost_stretch(tables: Tables, rng: random.Random) -> Tables:
    """Removes all records of a stretch of offsets, or those that final polls returned."""
    records, operations = tables["records_read"], tables["operations"]
    first = rng.randrange(pc.max(records.column("offset")).as_py() + 1)
    stop = first + rng.choice((1, 2, 10, 40))
    finals = operations.filter(operations.column("final")).column("op_index")
    gone = pc.and_(
        pc.greater_equal(records.column("offset"), first), pc.less(records.column("offset"), stop)
    )
    if rng.random() < 0.5:
        gone = pc.and_(gone, pc.is_in(records.column("op_index"), finals.combine_chunks()))
    return {**tables, "records_read": records.filter(pc.invert(gone))}


def _swapped_records(tables: Tables, rng: random.Random) -> Tables:
    """Exchanges the offsets of two neighbouring records, so that a poll returns them in another order."""
    records = tables["records_read"]
    row = rng.randrange(records.num_rows - 1)
    for name in ("offset", "value", "process", "sequence"):
        values = [records.column(name)[at].as_py() for at in (row, row + 1)]
        records = replaced(replaced(records, name, row, values[1]), name, row + 1, values[0])
    return {**tables, "records_read": records}


DAMAGES: tuple[Damage, ...] = (
    _shifted("operations", "offset"),
    _shifted("operations", "offset"),
    _shifted("operations", "end_offset"),
    _shifted("records_read", "offset"),
    _shifted("records_read", "value"),
    _shifted("end_offsets_seen", "end_offset"),
    _chosen("records_read", "status", ("corrupt", "foreign")),
    _chosen("operations", "process", (0, 1, 2, 3)),
    _without_a_row("operations"),
    _without_a_row("records_read"),
    _other_time,
    _other_time,
    _other_outcome,
    _some_weak,
    _lost_stretch,
    _swapped_records,
)


def with_elections(tables: Tables, rng: random.Random) -> Tables:
    """Returns a history with elections, flagged or not, whose clients know leader epochs."""
    end = pc.max(tables["operations"].column("invoked_ns")).as_py()
    moments = sorted(rng.randrange(end) for _ in range(3))
    states = [state(0, 1, [1, 2, 3], epoch=0)]
    states += [
        state(at, 1 + epoch % 3, [1 + epoch % 3], epoch=epoch + 1, flagged=rng.random() < 0.6)
        for epoch, at in enumerate(moments)
    ]
    ends = tables["end_offsets_seen"]
    index = ends.schema.get_field_index("leader_epoch")
    epochs = pa.array([rng.choice((0, 1)) for _ in range(ends.num_rows)], pa.int32())
    return {
        **tables,
        "end_offsets_seen": ends.set_column(index, ends.schema.field(index), epochs),
        "partition_states": table("partition_states", states),
        "broker_states": table("broker_states", [broker(0, b, "registered") for b in (1, 2, 3)]),
    }


def with_faults(tables: Tables, rng: random.Random) -> Tables:
    """Returns a history with three faults, healed or not; a fourth one may have failed."""
    end = pc.max(tables["operations"].column("invoked_ns")).as_py()
    faults = [
        fault(rng.randrange(end), "kill", ["b1"], healed=rng.choice((None, rng.randrange(end))))
        for _ in range(3)
    ]
    if rng.random() < 0.3:
        failed = fault(rng.randrange(end), "cut", ["b2"], took_effect=False)
        faults.append({**failed, "failed": True})
    return {**tables, "faults": table("faults", faults)}
