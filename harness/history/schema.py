"""The schema of every stored table; the only place where columns are defined.

All times are int64 nanoseconds since the start of the run, on one monotonic clock (the world's true time in
the simulation). Offsets are int64. Lists are Arrow lists. Spark reads all of it without conversion: there is
no uint64 and no nanosecond timestamp. Tables are stored as Parquet, one file per table and partition
(`results.layout` names them), 64-bit columns delta encoded.
"""

from typing import Any

import pyarrow as pa

_I64 = pa.int64()
_I32 = pa.int32()
_STR = pa.string()
_BOOL = pa.bool_()


def _field(name: str, kind: pa.DataType, doc: str, *, nullable: bool = False) -> Any:
    return pa.field(name, kind, nullable=nullable, metadata={"doc": doc})


OPERATIONS = pa.schema(
    [
        _field(
            "op_index",
            _I64,
            "unique in the run, in order of invocation; also the value an append writes",
        ),
        _field("process", _I64, "logically single-threaded client process"),
        _field("kind", _STR, "append, poll or latest"),
        _field("topic", _STR, "topic name"),
        _field("partition", _I32, "partition index"),
        _field("invoked_ns", _I64, "before the request could leave the process"),
        _field(
            "completed_ns", _I64, "after the answer was decoded; null while open", nullable=True
        ),
        _field("outcome", _STR, "ok, fail or info (open operations are info)"),
        _field("acks", _I32, "append: 0, 1 or -1 (all); 0 for other kinds"),
        _field("sequence", _I64, "append: counts the process's appends; -1 for other kinds"),
        _field("key", _STR, "append: record key; empty for other kinds"),
        _field("position", _I64, "poll: offset asked for; -1 for other kinds"),
        _field(
            "offset",
            _I64,
            "append: acknowledged offset; latest: log end; null if unknown",
            nullable=True,
        ),
        _field("record_count", _I64, "poll: records returned; 0 for other kinds"),
        _field("end_offset", _I64, "poll: log end (high watermark) in the answer", nullable=True),
        _field(
            "error_code",
            _I32,
            "Kafka error code; null for connection errors and timeouts",
            nullable=True,
        ),
        _field("error", _STR, "short word for the error; empty when ok"),
        _field("node", _STR, "broker that answered or was asked last"),
        _field("leader_epoch", _I32, "leader epoch known from the answer; -1 when unknown"),
        _field("final", _BOOL, "whether it belongs to the final phase (after the heal)"),
    ]
)

RECORDS_READ = pa.schema(
    [
        _field("op_index", _I64, "the poll that returned it"),
        _field("topic", _STR, "topic name"),
        _field("partition", _I32, "partition index"),
        _field("offset", _I64, "offset of the record"),
        _field("value", _I64, "op_index of its append; -1 when the payload cannot be trusted"),
        _field("status", _STR, "ok, corrupt or foreign"),
        _field("process", _I64, "process named in the payload; -1 when corrupt"),
        _field("sequence", _I64, "sequence named in the payload; -1 when corrupt"),
        _field("key", _STR, "key named in the payload"),
        _field("leader_epoch", _I32, "leader epoch stamped on its batch"),
    ]
)

END_OFFSETS_SEEN = pa.schema(
    [
        _field("op_index", _I64, "the operation that saw it"),
        _field("topic", _STR, "topic name"),
        _field("partition", _I32, "partition index"),
        _field("end_offset", _I64, "log end (high watermark) that a client was told"),
        _field("source", _STR, "list_offsets or fetch"),
        _field("node", _STR, "broker that said so"),
        _field("leader_epoch", _I32, "leader epoch known from the answer; -1 when unknown"),
    ]
)

FAULTS = pa.schema(
    [
        _field("fault_id", _STR, "unique in the run, for example f3"),
        _field("fault", _STR, "one of nemesis/fault.py, for example isolate or power"),
        _field("targets", pa.list_(_STR), "selectors as written in the schedule"),
        _field("resolved", pa.list_(_STR), "nodes they stood for"),
        _field("params", _STR, "parameters as JSON with sorted keys"),
        _field("invoked_ns", _I64, "when the nemesis began"),
        _field("completed_ns", _I64, "when the fault was in force", nullable=True),
        _field(
            "healed_ns", _I64, "when it was healed; null if never or not healable", nullable=True
        ),
        _field("bit", _BOOL, "whether the evidence shows that it bit"),
        _field("evidence", _STR, "what shows it, as JSON with sorted keys"),
    ]
)

PARTITION_STATES = pa.schema(
    [
        _field("at_ns", _I64, "when the first controller learnt that it is committed"),
        _field("metadata_offset", _I64, "offset of the record in the metadata log"),
        _field("topic", _STR, "topic name"),
        _field("partition", _I32, "partition index"),
        _field("leader", _I32, "broker id, -1 for none"),
        _field("leader_epoch", _I32, "leader epoch"),
        _field("partition_epoch", _I32, "partition epoch"),
        _field("isr", pa.list_(_I32), "in-sync replicas"),
        _field("elr", pa.list_(_I32), "eligible leader replicas"),
        _field("last_known_elr", pa.list_(_I32), "last-known eligible leader replicas"),
        _field("replicas", pa.list_(_I32), "assignment, preferred leader first"),
        _field("leader_recovery_state", _I32, "0 recovered, 1 recovering"),
        _field(
            "flagged",
            _BOOL,
            "whether this change is an election that the controller marked unclean",
        ),
        _field("min_isr", _I32, "effective min.insync.replicas of the partition"),
    ]
)

BROKER_STATES = pa.schema(
    [
        _field("at_ns", _I64, "when the first controller learnt that it is committed"),
        _field("metadata_offset", _I64, "offset of the record in the metadata log"),
        _field("broker", _I32, "broker id"),
        _field("broker_epoch", _I64, "broker epoch"),
        _field("change", _STR, "registered, fenced, unfenced, controlled-shutdown, unregistered"),
        _field("clean", _BOOL, "registered: whether the registration proved an orderly stop"),
    ]
)

REPLICA_STATES = pa.schema(
    [
        _field("at_ns", _I64, "when it changed"),
        _field("node", _STR, "node name, for example b1"),
        _field("broker", _I32, "broker id"),
        _field("topic", _STR, "topic name"),
        _field("partition", _I32, "partition index"),
        _field("log_end_offset", _I64, "log end offset after the change"),
        _field("high_watermark", _I64, "high watermark after the change"),
        _field("log_start_offset", _I64, "log start offset"),
        _field("leader_epoch", _I32, "leader epoch the replica is in"),
        _field("role", _STR, "leader, follower or offline (its process is down)"),
        _field("cause", _STR, "load, append, replicate, truncate, high-watermark, role or down"),
    ]
)

MARKS = pa.schema(
    [
        _field("at_ns", _I64, "when the branch was taken"),
        _field("node", _STR, "node name"),
        _field("mark", _STR, "its name"),
        _field("details", _STR, "JSON with sorted keys"),
    ]
)

TABLES: dict[str, pa.Schema] = {
    "operations": OPERATIONS,
    "records_read": RECORDS_READ,
    "end_offsets_seen": END_OFFSETS_SEEN,
    "faults": FAULTS,
    "partition_states": PARTITION_STATES,
    "broker_states": BROKER_STATES,
    "replica_states": REPLICA_STATES,
    "marks": MARKS,
}
"""Every table by name."""

PARTITIONED_TABLES = (
    "operations",
    "records_read",
    "end_offsets_seen",
    "partition_states",
    "replica_states",
)
"""Tables that are stored in one file per topic-partition; the others in one file."""
