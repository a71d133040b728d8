"""Corruptions of what the harness knows of nodes, faults and the run itself."""

import pyarrow as pa

from tests.property.stored_corruption import (
    EXCUSED,
    Corruption,
    Row,
    Tables,
    acked,
    anomaly,
    edit_file,
    harmless,
    of_files,
    operations,
    refused,
    set_all,
    unknown,
)

LARGEST = 2**63 - 1
SMALLEST = -(2**63)


def _facts(t: Tables) -> Row:
    (row,) = t["run_facts"]
    return row


def _appends_ns(t: Tables) -> int:
    """Returns by how much the last append of a partition began after the first one was acknowledged."""
    spans = []
    for partition in (0, 1):
        appends = operations(t, partition, kind="append")
        first_ns = min(row["completed_ns"] for row in appends if row["outcome"] == "ok")
        spans.append(max(row["invoked_ns"] for row in appends) - first_ns)
    return min(spans)


def _query(t: Tables, kind: str) -> Row:
    """Returns a question about a record of the first leader epoch that was answered."""
    rows = (row for row in t["offset_queries"] if row["outcome"] == "ok" and row["kind"] == kind)
    return next(row for row in rows if row["record_offset"] > 0)


def _twice(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table])


REFUSED = [
    refused(
        "election after every run",
        lambda t: t["partition_states"][0].update(at_ns=2**62),
        "at_ns is 46",
    ),
    refused(
        "leader below -1", lambda t: t["partition_states"][0].update(leader=-7), "leader is -7"
    ),
    refused(
        "leader epoch below -1",
        lambda t: t["partition_states"][0].update(leader_epoch=-7),
        "leader_epoch is -7",
    ),
    refused(
        "negative metadata offset",
        lambda t: t["partition_states"][0].update(metadata_offset=-7),
        "metadata_offset is -7",
    ),
    refused("unknown role", lambda t: t["replica_states"][0].update(role="king"), "role is 'king'"),
    refused(
        "unknown cause", lambda t: t["replica_states"][0].update(cause="magic"), "cause is 'magic'"
    ),
    refused(
        "negative log end",
        lambda t: t["replica_states"][0].update(log_end_offset=-5),
        "log_end_offset is -5",
    ),
    refused(
        "high watermark at the largest number",
        lambda t: t["replica_states"][0].update(high_watermark=LARGEST),
        "high_watermark is 92",
    ),
    refused(
        "replica at the smallest time",
        lambda t: t["replica_states"][0].update(at_ns=SMALLEST),
        "at_ns is -92",
    ),
    refused(
        "batch that ends before it begins",
        lambda t: t["replica_batches"][0].update(last_offset=0, base_offset=1),
        "the batch at offset 1 ends at offset 0",
    ),
    refused(
        "batch of a replica twice",
        lambda t: t["replica_batches"].append(dict(t["replica_batches"][0])),
        "has another batch that reaches offset",
    ),
    refused(
        "two high watermarks of one replica",
        lambda t: t["replica_batches"][0].update(high_watermark=1),
        "high_watermark differs from other rows of broker",
    ),
    refused(
        "checksum beyond 32 bits",
        lambda t: t["replica_batches"][0].update(checksum=LARGEST),
        "checksum is 92",
    ),
    refused(
        "unknown change of a broker",
        lambda t: t["broker_states"][0].update(change="left"),
        "change is 'left'",
    ),
    refused(
        "broker after every run",
        lambda t: t["broker_states"][0].update(at_ns=2**61),
        "at_ns is 23",
    ),
    refused(
        "fault completed before it began",
        lambda t: t["faults"][0].update(completed_ns=t["faults"][0]["invoked_ns"] - 1),
        "completed_ns is",
    ),
    refused(
        "fault healed before it began",
        lambda t: t["faults"][0].update(healed_ns=t["faults"][0]["invoked_ns"] - 1),
        "healed_ns is",
    ),
    refused(
        "fault healed after every run",
        lambda t: t["faults"][0].update(healed_ns=2**61),
        "healed_ns is",
    ),
    refused(
        "fault at the smallest time",
        lambda t: t["faults"][0].update(invoked_ns=SMALLEST),
        "invoked_ns is -92",
    ),
    refused(
        "negative clock error", lambda t: _facts(t).update(clock_error_ns=-1), "clock_error_ns is"
    ),
    refused(
        "clock error at the sentinel",
        lambda t: _facts(t).update(clock_error_ns=2**61),
        "clock_error_ns is 23",
    ),
    refused(
        "negative log start",
        lambda t: _facts(t).update(log_start_offset=-1),
        "log_start_offset is -1",
    ),
    refused(
        "log start beyond the largest offset",
        lambda t: _facts(t).update(log_start_offset=2**62 + 1),
        "log_start_offset is 46",
    ),
    refused(
        "log start at the largest number",
        lambda t: _facts(t).update(log_start_offset=LARGEST),
        "log_start_offset is 92",
    ),
    refused("min ISR 0", lambda t: _facts(t).update(min_isr=0), "min_isr is 0"),
    refused(
        "no replicas", lambda t: _facts(t).update(replication_factor=0), "replication_factor is 0"
    ),
    refused(
        "negative number of acknowledged appends",
        lambda t: _facts(t).update(acked_during_faults_min=-1),
        "acked_during_faults_min is -1",
    ),
    refused(
        "negative limit of recovery",
        lambda t: _facts(t).update(recovery_max_ms=-1),
        "recovery_max_ms is -1",
    ),
    refused(
        "unknown checker",
        lambda t: _facts(t).update(checkers=["linearisability"]),
        "no checker is called 'linearisability'",
    ),
    refused(
        "checkers twice",
        lambda t: _facts(t).update(checkers=_facts(t)["checkers"] * 2),
        "row 0: checkers names 'linearizability' more than once",
    ),
    of_files(
        "facts of the run twice",
        edit_file("run_facts", _twice, None),
        "refused",
        "a run has one row of facts, not 2",
    ),
    of_files("fault twice", edit_file("faults", _twice, None), "refused", "is in row 0, too"),
]

FOUND = [
    anomaly(
        "another checksum at one replica",
        lambda t: t["replica_batches"][3].update(checksum=t["replica_batches"][3]["checksum"] ^ 1),
        "divergent-replicas",
    ),
    anomaly(
        "another leader epoch at one replica",
        lambda t: t["replica_batches"][3].update(leader_epoch=99),
        "divergent-replicas",
    ),
    anomaly(
        "batch missing at one replica", lambda t: t["replica_batches"].pop(3), "divergent-replicas"
    ),
    anomaly(
        "election without its flag",
        lambda t: set_all(t["partition_states"], flagged=False),
        "lost-acked-write",
        EXCUSED,
    ),
    anomaly(
        "no committed metadata",
        lambda t: t["partition_states"].clear(),
        "lost-acked-write",
        EXCUSED,
    ),
    anomaly("no faults", lambda t: t["faults"].clear(), "lost-acked-write", EXCUSED),
    anomaly(
        "faults that lose nothing",
        lambda t: set_all(t["faults"], unclean_end=False, broken_disk=False, cut_short=[]),
        "lost-acked-write",
        EXCUSED,
    ),
    anomaly(
        "every broker registers cleanly",
        lambda t: set_all(t["broker_states"], clean=True),
        "lost-acked-write",
        EXCUSED,
    ),
    anomaly(
        "a further loss before the flagged election",
        lambda t: drop_record_of_first_leader(t),
        "lost-acked-write",
        EXCUSED,
    ),
    anomaly(
        "a node broke an invariant",
        lambda t: t["violations"].append(
            {"at_ns": 5, "node": "b1", "invariant": "INV-1", "sentence": "INV-1: two leaders"}
        ),
        "invariant-broken",
    ),
]

UNKNOWN = [
    unknown(
        "no broker",
        lambda t: t["broker_states"].clear(),
        "so it is not known whether the election was unavoidable",
        EXCUSED,
    ),
    unknown(
        "no facts of the run",
        lambda t: t["run_facts"].clear(),
        "the final phase did not end as planned",
    ),
    unknown(
        "final phase not complete",
        lambda t: _facts(t).update(final_phase_complete=False),
        "the final phase did not end as planned",
    ),
    unknown(
        "the run ended early",
        lambda t: _facts(t).update(incomplete_reason="out of memory"),
        "the run ended early: out of memory",
    ),
    refused(
        "no checker",
        lambda t: _facts(t).update(checkers=[]),
        "leaves out the checkers linearizability, lost-acked, replicas, measures, progress",
    ),
    refused(
        "only checkers that do not judge the clients",
        lambda t: _facts(t).update(checkers=["measures", "progress", "replicas"]),
        "leaves out the checkers linearizability, lost-acked, offset-queries, which",
    ),
    refused(
        "one of the two checkers of logs",
        lambda t: _facts(t)["checkers"].remove("lost-acked"),
        "leaves out the checkers lost-acked, which experiment.toml asks for",
    ),
    refused(
        "without the checker of the replicas",
        lambda t: _facts(t)["checkers"].remove("replicas"),
        "leaves out the checkers replicas, which experiment.toml asks for",
    ),
    refused(
        "without the checker of answers about offsets",
        lambda t: _facts(t)["checkers"].remove("offset-queries"),
        "leaves out the checkers offset-queries, which experiment.toml asks for",
    ),
    refused(
        "a fault that nothing enables",
        lambda t: _facts(t).update(enabled_faults=[None]),
        "row 0: enabled_faults has an element that is null",
    ),
    refused(
        "ISR with an unknown member",
        lambda t: t["partition_states"][0].update(isr=[1, None]),
        "row 0: isr has an element that is null",
    ),
    refused(
        "fault that is called a repair",
        lambda t: t["faults"][0].update(heals=True),
        "row 0: heals is true, and isolate is no repair",
    ),
    unknown(
        "clock error longer than the run",
        lambda t: _facts(t).update(clock_error_ns=10**18),
        "so their order cannot be judged",
    ),
    unknown(
        "clock error just below the span of the appends",
        lambda t: _facts(t).update(clock_error_ns=_appends_ns(t)),
        "so their order cannot be judged",
    ),
    harmless(
        "clock error that leaves one append after another one",
        lambda t: _facts(t).update(clock_error_ns=_appends_ns(t) - 1),
        "nothing was reordered that the clocks show",
    ),
    unknown(
        "log start beyond everything",
        lambda t: _facts(t).update(log_start_offset=10**9),
        "so no acknowledged record has to be there",
    ),
    unknown(
        "log start within what the final reads returned",
        lambda t: _facts(t).update(log_start_offset=5),
        "so the log did not start there",
    ),
    unknown(
        "more acknowledged appends demanded",
        lambda t: _facts(t).update(acked_during_faults_min=10**6),
        "were acknowledged while a fault was in force",
    ),
    unknown(
        "fault demanded that was not injected",
        lambda t: _facts(t).update(enabled_faults=["kill"]),
        "'kill' never took effect (none was injected)",
    ),
    unknown(
        "faults of a run without a loss",
        lambda t: t["faults"].clear(),
        "'isolate' never took effect (none was injected)",
    ),
    unknown(
        "fault without effect",
        lambda t: set_all(t["faults"], took_effect=False),
        "never took effect",
    ),
    unknown(
        "fault that could not be injected",
        lambda t: set_all(t["faults"], took_effect=False, failed=True),
        "never took effect",
    ),
]

HARMLESS = [
    harmless(
        "logs of all replicas",
        lambda t: t["replica_batches"].clear(),
        "clients show what they received; nothing is known of the replicas then",
    ),
    harmless(
        "metadata of a run without a loss",
        lambda t: t["partition_states"].clear(),
        "there is nothing that an election would have to excuse",
    ),
    harmless(
        "election of a run without a loss is flagged",
        lambda t: set_all(t["partition_states"], flagged=True),
        "there is nothing that an election would have to excuse",
    ),
    harmless(
        "replicas of a run without a loss",
        lambda t: t["replica_states"].clear(),
        "the final reads show every record",
    ),
    harmless(
        "high watermarks of a run without a loss",
        lambda t: [
            row.update(high_watermark=row["high_watermark"] + 3) for row in t["replica_states"]
        ],
        "they date the commitment of a record that is lost, and none is",
    ),
    harmless(
        "brokers of a run without a loss",
        lambda t: t["broker_states"].clear(),
        "they explain losses, and there is none",
    ),
    harmless(
        "evidence of a fault", lambda t: set_all(t["faults"], evidence="["), "it is for the report"
    ),
    harmless("marks", lambda t: t["marks"].clear(), "no verdict may depend on them"),
    harmless(
        "profile", lambda t: _facts(t).update(profile="kafka-9"), "it is a name for the report"
    ),
    harmless(
        "eligible leader replicas off in a run without a loss",
        lambda t: _facts(t).update(elr_on=False),
        "they matter for the excuse of a loss, and there is none",
    ),
]


def drop_record_of_first_leader(t: Tables) -> None:
    """Adds an acknowledged append long before the flagged election whose record no read shows."""
    first = acked(t, 0)
    op = max(row["op_index"] for row in t["operations"]) + 1
    sequence = max(row["sequence"] for row in t["operations"]) + 1
    lost = {**first, "op_index": op, "process": 999, "sequence": sequence, "acks": -1}
    t["operations"].append(lost)


def _query_twice(t: Tables) -> None:
    one, other = [row for row in t["offset_queries"] if row["partition"] == 0][:2]
    other.update(query_index=one["query_index"])


QUERIES = [
    refused(
        "unknown kind of a query",
        lambda t: _query(t, "timestamp").update(kind="magic"),
        "kind is 'magic'",
    ),
    refused(
        "unknown outcome of a query",
        lambda t: _query(t, "timestamp").update(outcome="info"),
        "outcome is 'info'",
    ),
    refused("two queries of one index", _query_twice, "query_index"),
    refused(
        "query that ended before it began",
        lambda t: _query(t, "timestamp").update(completed_ns=0),
        "which is before invoked_ns",
    ),
    refused(
        "query before its poll",
        lambda t: _query(t, "timestamp").update(invoked_ns=0),
        "before the query",
    ),
    refused(
        "query about a record that no poll returned",
        lambda t: _query(t, "leader-epoch").update(record_value=LARGEST // 2),
        "had returned the record of op",
    ),
    refused(
        "query about another offset of the record",
        lambda t: _query(t, "leader-epoch").update(record_offset=10**6),
        "at offset 1000000 before the query",
    ),
    refused(
        "query of a poll that does not exist",
        lambda t: _query(t, "leader-epoch").update(op_index=10**9),
        "no poll with op_index 1000000000",
    ),
    anomaly(
        "offset below none",
        lambda t: _query(t, "timestamp").update(offset=-7),
        "lookup-skips-record",
    ),
    refused(
        "query of an epoch below none",
        lambda t: _query(t, "leader-epoch").update(known_epoch=-2),
        "known_epoch is -2",
    ),
    anomaly(
        "a later offset of a timestamp",
        lambda t: (row := _query(t, "timestamp")).update(offset=row["record_offset"] + 1),
        "lookup-skips-record",
    ),
    anomaly(
        "an epoch that ends at its record",
        lambda t: (row := _query(t, "leader-epoch")).update(offset=row["record_offset"]),
        "epoch-ends-early",
    ),
    harmless(
        "questions about offsets",
        lambda t: t["offset_queries"].clear(),
        "a run without questions proves what its operations prove",
    ),
]

CORRUPTIONS: list[Corruption] = [*REFUSED, *FOUND, *UNKNOWN, *HARMLESS, *QUERIES]
