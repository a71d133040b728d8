"""The schema of every stored table; the only place where columns are defined.

All times are int64 nanoseconds since the start of the run, on one monotonic clock (the world's true time in
the simulation). Offsets are int64. Lists are Arrow lists. Spark reads all of it without conversion: there is
no uint64 and no nanosecond timestamp. Tables are stored as Parquet, one file per table and partition
(`results.layout` names them), 64-bit columns delta encoded.
"""

from collections.abc import Sequence
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
            "completed_ns", _I64, "after the response was decoded; null while open", nullable=True
        ),
        _field("outcome", _STR, "ok, fail or info (open operations are info)"),
        _field("acks", _I32, "append: 0, 1 or -1 (all); 0 for other kinds"),
        _field("sequence", _I64, "append: counts the process's appends; -1 for other kinds"),
        _field("key", _STR, "append: record key; empty for other kinds"),
        _field("position", _I64, "poll: requested offset; -1 for other kinds"),
        _field(
            "offset",
            _I64,
            "append: acknowledged offset; latest: log end; null if unknown, never -1 for an append",
            nullable=True,
        ),
        _field("record_count", _I64, "poll: its rows in `records_read`; 0 for other kinds"),
        _field("end_offset", _I64, "poll: log end (high watermark) in the response", nullable=True),
        _field(
            "error_code",
            _I32,
            "Kafka error code; null for connection errors and timeouts",
            nullable=True,
        ),
        _field("error", _STR, "short word for the error; empty when ok"),
        _field("node", _STR, "broker that responded, or the last one that was contacted"),
        _field(
            "leader_epoch",
            _I32,
            "leader epoch known from the response; -1 when unknown, -2 when unknown and the client may have"
            " fetched the records before the poll began",
        ),
        _field("final", _BOOL, "whether it belongs to the final phase (after the heal)"),
        _field(
            "batch",
            _I64,
            "append: op_index of the first append of the record batch that carried it; null for that one, for an "
            "append that was sent alone, and if it is not known",
            nullable=True,
        ),
    ]
)

RECORDS_READ = pa.schema(
    [
        _field("op_index", _I64, "the poll that returned it"),
        _field("index_in_poll", _I32, "its place in what the poll returned, from 0"),
        _field("topic", _STR, "topic name"),
        _field("partition", _I32, "partition index"),
        _field("offset", _I64, "offset of the record"),
        _field("value", _I64, "op_index of its append; -1 when the payload cannot be trusted"),
        _field("status", _STR, "ok, corrupt or foreign"),
        _field(
            "process", _I64, "process named in the payload, that of the append; -1 when corrupt"
        ),
        _field(
            "sequence", _I64, "sequence named in the payload, that of the append; -1 when corrupt"
        ),
        _field("key", _STR, "key of the record, that of the append"),
        _field("leader_epoch", _I32, "leader epoch stamped on its batch"),
    ]
)

END_OFFSETS_SEEN = pa.schema(
    [
        _field("op_index", _I64, "the poll or latest that saw it"),
        _field("topic", _STR, "topic name"),
        _field("partition", _I32, "partition index"),
        _field("end_offset", _I64, "log end (high watermark) that a client received"),
        _field("source", _STR, "list_offsets or fetch"),
        _field("node", _STR, "broker that reported it"),
        _field("leader_epoch", _I32, "leader epoch known from the response; -1 when unknown"),
    ]
)

FAULTS = pa.schema(
    [
        _field("fault_id", _STR, "unique in the run, for example f3"),
        _field("fault", _STR, "one of nemesis/fault.py, for example isolate or power"),
        _field("targets", pa.list_(_STR), "selectors as written in the schedule"),
        _field("resolved", pa.list_(_STR), "nodes they resolved to"),
        _field("params", _STR, "parameters as JSON with sorted keys"),
        _field("invoked_ns", _I64, "when the nemesis began"),
        _field("completed_ns", _I64, "when the fault was in force", nullable=True),
        _field(
            "healed_ns",
            _I64,
            "when it was over: healed, or at once if it does not last; null if never",
            nullable=True,
        ),
        _field("took_effect", _BOOL, "whether the evidence shows that it took effect"),
        _field("evidence", _STR, "the evidence, as JSON with sorted keys"),
        _field(
            "heals",
            _BOOL,
            "whether the entry repairs something instead of breaking it (start, heal)",
        ),
        _field("can_lose_data", _BOOL, "whether a node may come back with less data than it had"),
        _field("unclean_end", _BOOL, "whether it ends its nodes uncleanly when it is injected"),
        _field(
            "broken_disk", _BOOL, "whether a node may end uncleanly by itself while it is in force"
        ),
        _field(
            "cut_short",
            pa.list_(_STR),
            "nodes whose orderly stop did not finish in time, so that they ended uncleanly",
        ),
        _field("failed", _BOOL, "whether the environment failed to inject it"),
        _field(
            "elects_uncleanly",
            pa.list_(_STR),
            "partitions such as t-0 whose unclean election an administrator requested; without those refused",
        ),
        _field(
            "allows_unclean",
            pa.list_(_STR),
            "partitions for which an administrator allowed unclean elections from then on",
        ),
        _field(
            "reconfigures",
            pa.list_(_STR),
            "partitions whose min ISR, replicas or feature levels an administrator changed",
        ),
    ]
)

PARTITION_STATES = pa.schema(
    [
        _field("at_ns", _I64, "when the first controller learned that it is committed"),
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
        _field(
            "after_ns",
            _I64,
            "when it was not committed yet, if the change was read from a controller, perhaps late; null if at_ns"
            " is exact, or if that is not known",
            nullable=True,
        ),
    ]
)

BROKER_STATES = pa.schema(
    [
        _field("at_ns", _I64, "when the first controller learned that it is committed"),
        _field("metadata_offset", _I64, "offset of the record in the metadata log"),
        _field("broker", _I32, "broker id"),
        _field("broker_epoch", _I64, "broker epoch"),
        _field("change", _STR, "registered, fenced, unfenced, controlled-shutdown, unregistered"),
        _field(
            "clean",
            _BOOL,
            "registered: whether the registration proved a clean shutdown; null if the system does not report it",
            nullable=True,
        ),
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
        _field(
            "cause",
            _STR,
            "load, append, replicate, observed (the log has grown since it was last read), truncate,"
            " high-watermark, role or down",
        ),
    ]
)

REPLICA_BATCHES = pa.schema(
    [
        _field("node", _STR, "node name, for example b1"),
        _field("broker", _I32, "broker id"),
        _field("topic", _STR, "topic name"),
        _field("partition", _I32, "partition index"),
        _field("base_offset", _I64, "offset of the batch's first record"),
        _field("last_offset", _I64, "offset of its last record"),
        _field("leader_epoch", _I32, "leader epoch stamped on the batch"),
        _field(
            "checksum",
            _I64,
            "CRC-32C of the batch's records; a batch that does not match is left out",
        ),
        _field(
            "log_start_offset", _I64, "log start offset of the replica; the same in all its rows"
        ),
        _field("high_watermark", _I64, "high watermark of the replica; the same in all its rows"),
        _field("read_end_offset", _I64, "its log was read up to here; the same in all its rows"),
    ]
)

MARKS = pa.schema(
    [
        _field("at_ns", _I64, "when the code branch ran"),
        _field("node", _STR, "node name"),
        _field("mark", _STR, "its name"),
        _field("details", _STR, "JSON with sorted keys"),
    ]
)

GROUP_EVENTS = pa.schema(
    [
        _field("event_index", _I64, "unique in the run; counts events in the order they happened"),
        _field("at_ns", _I64, "when it happened"),
        _field("group", _STR, "name of the consumer group"),
        _field("process", _I64, "the member; its polls are rows of `operations`"),
        _field("topic", _STR, "topic name"),
        _field("partition", _I32, "partition index"),
        _field(
            "event",
            _STR,
            "assigned, revoked, commit-sent, commit-acknowledged, committed-asked (the member requests the "
            "committed offset) or committed-seen (the coordinator's response)",
        ),
        _field(
            "offset",
            _I64,
            "assigned: where the member starts; commit-*: the offset; committed-seen: the offset in the "
            "response; negative for none",
        ),
        _field(
            "refers_to",
            _I64,
            "committed-seen: event_index of its committed-asked; -1 for other events",
        ),
        _field(
            "generation",
            _I32,
            "assigned: generation of the group in which the member got the partition; -1 if unknown, and for "
            "other events",
        ),
    ]
)

TRANSACTION_EVENTS = pa.schema(
    [
        _field(
            "event_index",
            _I64,
            "unique among these events and the operations of the run; ascends in the order they happened",
        ),
        _field("at_ns", _I64, "when it happened"),
        _field(
            "transaction",
            _I64,
            "its number: the event_index of its begin; -1 for initialised and not-initialised, which belong to"
            " none",
        ),
        _field("process", _I64, "logically single-threaded client process"),
        _field(
            "event",
            _STR,
            "initialised (a producer took the transactional id over), not-initialised (in the final phase it could"
            " not), begin, send, sent (the acknowledgement of a"
            " send), poll (one record that a poll returned), offset (a position of the group, committed with the"
            " transaction), commit-asked, abort-asked, committed, aborted or unknown (how it ended)",
        ),
        _field(
            "number", _I32, "place of the send, poll or offset in its transaction; otherwise -1"
        ),
        _field(
            "transactional_id",
            _STR,
            "initialised, not-initialised, begin: id of the producer; empty for transactions that only poll, and"
            " other events",
        ),
        _field("group", _STR, "begin: consumer group whose positions it commits; empty for none"),
        _field("isolation", _STR, "begin: read_committed or read_uncommitted, for its polls"),
        _field("topic", _STR, "send, sent, poll, offset: topic name; otherwise empty"),
        _field("partition", _I32, "send, sent, poll, offset: partition index; otherwise -1"),
        _field(
            "offset",
            _I64,
            "sent, poll: offset of the record; offset: the next one to consume; null if unknown",
            nullable=True,
        ),
        _field(
            "value",
            _I64,
            "send: its own event_index, which the record has as its value; sent: that of the send; poll: that in"
            " the payload, -1 when it cannot be trusted; otherwise -1",
        ),
        _field("status", _STR, "poll: ok, corrupt or foreign; otherwise empty"),
        _field(
            "error_code",
            _I32,
            "aborted, unknown: Kafka error code; null for connection errors and timeouts",
            nullable=True,
        ),
        _field(
            "error", _STR, "aborted, unknown: short word for the error; empty if there was none"
        ),
        _field("final", _BOOL, "whether it belongs to the final phase (after the heal)"),
    ]
)

VIOLATIONS = pa.schema(
    [
        _field("at_ns", _I64, "when it was noticed"),
        _field("node", _STR, "node name; empty if it belongs to no single node"),
        _field(
            "invariant",
            _STR,
            "the broken invariant (docs/invariants.md); empty for a crash or an unexpected end",
        ),
        _field("sentence", _STR, "what happened"),
    ]
)

RUN_FACTS = pa.schema(
    [
        _field("profile", _STR, "feature profile of the system under test"),
        _field("elr_on", _BOOL, "whether eligible leader replicas are in use"),
        _field("min_isr", _I32, "min.insync.replicas of the topics"),
        _field("replication_factor", _I32, "replicas of a partition"),
        _field("unclean_election_enabled", _BOOL, "whether unclean elections are allowed"),
        _field("checkers", pa.list_(_STR), "checkers that judge the run"),
        _field(
            "enabled_faults",
            pa.list_(_STR),
            "faults that must take effect, beside each kind in the `faults` table that had targets or could not "
            "be injected: `kill` means any fault of that name, `kill f2` the one with the id f2; null: no others",
            nullable=True,
        ),
        _field("final_phase_complete", _BOOL, "whether the final phase ended as planned"),
        _field(
            "acked_during_faults_min",
            _I64,
            "how many appends must be acknowledged while a fault is in force",
        ),
        _field("incomplete_reason", _STR, "why the run ended early; empty if it did not"),
        _field(
            "clock_error_ns",
            _I64,
            "largest difference between two clocks of the run; if it hides the order of all appends, or is longer"
            " than the run, the verdict is unknown",
        ),
        _field(
            "log_start_offset",
            _I64,
            "below it no record has to be there at the end, but what operations show must not contradict itself;"
            " beyond every acknowledged offset, or above what a final read returned, the verdict is unknown",
        ),
        _field(
            "recovery_max_ms",
            _I64,
            "how long a partition may take after the last heal until appends and polls succeed; 0 for no limit",
        ),
        _field(
            "healed_ns",
            _I64,
            "when all faults had been healed and all nodes been started for the final phase; null if never, or if"
            " not known",
            nullable=True,
        ),
        _field(
            "ended_ns",
            _I64,
            "when the run ended, if the record shows what happened until then; otherwise null",
            nullable=True,
        ),
        _field(
            "stuck_after_ms",
            _I64,
            "how long a partition may take from healed_ns on until it makes progress; 0 if nothing is promised",
        ),
        _field(
            "compacted",
            _BOOL,
            "whether the cleaner removes a record after a later one of its key was committed",
        ),
    ]
)

MESSAGES = pa.schema(
    [
        _field(
            "kind",
            _STR,
            "produce, fetch, metadata, AlterPartition, heartbeat (sessions) or election",
        ),
        _field("src", _STR, "sender: a node, or the client id of a client"),
        _field("dst", _STR, "receiver: a node, or the client id of a client"),
        _field("text", _STR, "what the message says, in a few words"),
        _field("sent_ns", _I64, "when it was sent; null if no node recorded that", nullable=True),
        _field(
            "arrived_ns",
            _I64,
            "when its receiver read it; null if it never did, or if no node recorded that",
            nullable=True,
        ),
        _field(
            "lost", _BOOL, "whether the receiver is a node whose record shows that it never read it"
        ),
    ]
)
"""The messages that matter, as the nodes of a real run recorded them; beside the history, because no verdict
depends on them."""

OFFSET_QUERIES = pa.schema(
    [
        _field(
            "query_index", _I64, "unique in the run; counts the queries in the order they ended"
        ),
        _field("process", _I64, "logically single-threaded client process"),
        _field(
            "kind",
            _STR,
            "timestamp (ListOffsets: the first offset with at least this timestamp) or leader-epoch"
            " (OffsetForLeaderEpoch: the end of an epoch)",
        ),
        _field("topic", _STR, "topic name"),
        _field("partition", _I32, "partition index"),
        _field("invoked_ns", _I64, "before the request could leave the process"),
        _field("completed_ns", _I64, "after the response was decoded"),
        _field("outcome", _STR, "ok or fail; a query has no effect"),
        _field(
            "op_index",
            _I64,
            "the poll, completed before, that returned the record that the query is about",
        ),
        _field("record_offset", _I64, "offset of that record"),
        _field("record_value", _I64, "op_index of the append of that record"),
        _field("known_epoch", _I32, "leader epoch in which that poll was served"),
        _field("asked", _I64, "timestamp of that record in ms, or the leader epoch stamped on it"),
        _field(
            "found",
            _I64,
            "ok: timestamp of the record at the offset in the response, or the epoch in it; -1 for none",
        ),
        _field("offset", _I64, "ok: offset in the response; -1 for none"),
        _field("leader_epoch", _I32, "leader epoch in which the query was served; -1 when unknown"),
        _field(
            "error_code",
            _I32,
            "Kafka error code; null for connection errors and timeouts",
            nullable=True,
        ),
        _field("error", _STR, "short word for the error; empty when ok"),
        _field("node", _STR, "broker that responded, or the last one that was contacted"),
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
    "group_events": GROUP_EVENTS,
    "violations": VIOLATIONS,
    "run_facts": RUN_FACTS,
    "marks": MARKS,
    "replica_batches": REPLICA_BATCHES,
    "transaction_events": TRANSACTION_EVENTS,
    "offset_queries": OFFSET_QUERIES,
}
"""Every table by name. New tables come last, because journals number the tables."""

ADDED_IN: dict[str, int] = {
    "replica_batches": 4,
    "transaction_events": 7,
    "offset_queries": 8,
}
"""The history format that a table belongs to from on, for tables that older formats lack: they read as empty."""

NULLABLE_SINCE: dict[tuple[str, str], int] = {("broker_states", "clean"): 5}
"""The history format from which on a column may be null, for columns that were never null in older formats."""

COLUMNS_ADDED_IN: dict[tuple[str, str], int] = {
    ("faults", "elects_uncleanly"): 5,
    ("faults", "allows_unclean"): 5,
    ("faults", "reconfigures"): 5,
    ("run_facts", "healed_ns"): 6,
    ("run_facts", "ended_ns"): 6,
    ("run_facts", "stuck_after_ms"): 6,
    ("run_facts", "compacted"): 9,
    ("operations", "batch"): 9,
    ("partition_states", "after_ns"): 10,
}
"""The history format that a column belongs to from on. In histories of older formats its lists are empty, its
nullable values null, its other numbers 0 and its other truth values false."""


def schema_in(version: int, table: str) -> pa.Schema:
    """Returns the schema that a table has in a history format."""
    return pa.schema(
        [
            field
            for field in TABLES[table]
            if COLUMNS_ADDED_IN.get((table, field.name), version) <= version
        ]
    )


def with_column(table: pa.Table, name: str, column: Any) -> pa.Table:
    """Returns a table with other values in a column that it has."""
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(name), column)


def with_added_columns(
    table: str, rows: pa.Table, columns: Sequence[str] | None = None
) -> pa.Table:
    """Returns rows of any history format with the columns of the newest one.

    Args:
        table: Name of the table.
        rows: Some or all of its columns.
        columns: Those that are wanted, all if None; those that an older format lacks come last.
    """
    for index, field in enumerate(TABLES[table]):
        is_wanted = columns is None or field.name in columns
        if is_wanted and rows.schema.get_field_index(field.name) < 0:
            absent: Any = None if field.nullable else [] if pa.types.is_list(field.type) else 0
            empty = pa.array([absent] * rows.num_rows).cast(field.type)
            rows = rows.add_column(min(index, rows.num_columns), field, empty)
    return rows


OFFSETS_TOPIC = "__consumer_offsets"
"""The topic whose partitions have the records of consumer groups; their leaders coordinate the groups. [Kafka]"""

COORDINATOR_STATES = "coordinator_states"
"""The rows of `partition_states` of the offsets topic, all partitions of it. Not stored under this name: a checker
of single partitions that names it gets these rows with every partition."""

CLEANED_RECORDS = "cleaned_records"
"""The rows that `checkers.compaction` added to `records_read`: no poll returned them. Not stored under this name:
a checker of single partitions that names it gets them, and none if the topic is not compacted."""

OPERATION_TABLES = ("operations", "records_read", "end_offsets_seen")
"""What clients did and received in a partition; every row belongs to an operation."""

CLIENT_TABLES = (*OPERATION_TABLES, "group_events", "offset_queries")
"""The partitioned tables that clients of a run record."""

PARTITIONED_TABLES = (
    *OPERATION_TABLES,
    "partition_states",
    "replica_states",
    "group_events",
    "replica_batches",
    "offset_queries",
)
"""Tables that are stored in one file per topic-partition; the others in one file."""
