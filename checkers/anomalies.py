"""Every anomaly the project can name.

An identifier is stable: it is the same in code, tests, reports and documents. `level` is the weakest promise that
the anomaly breaks:

- `durability`: what was acknowledged or read stays;
- `integrity`: all clients agree on one sequence of values, each written by an append;
- `order`: that sequence fits the clock, and nothing is read before it is written;
- `fresh`: every observation of the log end is up to date (full linearizability).
"""

from dataclasses import dataclass

from checkers.transaction_anomalies import TRANSACTION_ROWS

FRESH = "fresh"
"""The level that Kafka does not promise."""
LEVELS = ("durability", "integrity", "order", FRESH)
"""From the most important one to the one that Kafka does not promise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyKind:
    """The definition of one anomaly.

    Attributes:
        id: Stable identifier.
        level: Weakest promise it breaks.
        definition: One sentence.
        counts: What `Anomaly.count` counts.
        source: Where the rule comes from.
    """

    id: str
    level: str
    definition: str
    counts: str
    source: str


_C = "linearizability of a log, condition "
_JEPSEN = "Jepsen, kafka workload"
_GROUP = "Kafka consumer documentation, at-least-once delivery"
_KIP = "KIP-966; last-replica-standing verdict rule"

_ROWS = (
    (
        "lost-acked-write",
        "durability",
        "A record acknowledged with acks=all is gone: the final reads passed its offset, or reached the settled"
        " end of the log, without it, or its offset was given to another record that stayed, or the log itself is"
        " gone.",
        "records",
        _KIP,
    ),
    (
        "lost-acked-write-acks1",
        "durability",
        "A record acknowledged with acks=1 is gone; such an acknowledgement promises nothing beyond the leader.",
        "records",
        "Kafka producer configuration acks=1",
    ),
    (
        "unseen",
        "durability",
        "A record acknowledged with acks=all was not in the final reads, but these did not get as far as its"
        " offset, so its fate is unknown.",
        "records",
        _JEPSEN,
    ),
    (
        "offset-reused",
        "durability",
        "An acknowledged record's offset was later acknowledged to another append: the log was cut in between.",
        "records that lost their offset",
        _KIP,
    ),
    (
        "visible-regress",
        "durability",
        "A record that a consumer had read is gone: what was below the high watermark did not stay.",
        "records",
        "KIP-966 (high watermark and min ISR); rule HW-1",
    ),
    (
        "committed-offset-regressed",
        "durability",
        "A consumer group's commit was acknowledged, or reported by the coordinator; afterwards the coordinator"
        " reported another committed offset, or none, that no later or unresolved commit explains.",
        "observations",
        _GROUP,
    ),
    (
        "two-acks-one-offset",
        "integrity",
        "Two appends were acknowledged at the same offset.",
        "offsets times further values",
        _C + "C1",
    ),
    (
        "divergent-value",
        "integrity",
        "An offset held one value for one client and another value for another client.",
        "offsets times further values",
        _C + "C1; Jepsen calls it inconsistent-offsets",
    ),
    ("duplicate", "integrity", "One append is at two offsets.", "extra places", _C + "C2"),
    (
        "failed-append-visible",
        "integrity",
        "A record was read although its append certainly failed.",
        "records",
        _C + "C3; Jepsen calls it G1a",
    ),
    (
        "phantom-value",
        "integrity",
        "A record was read that no append of this run sent to this partition.",
        "records",
        _C + "C3",
    ),
    (
        "corrupt-record",
        "integrity",
        "A record was read whose checksum or form is wrong, or that names another process, sequence or key than"
        " the append that wrote its value.",
        "reads",
        "self-describing payloads",
    ),
    (
        "misplaced-record",
        "integrity",
        "A record was read that names another run, topic or partition.",
        "reads",
        "self-describing payloads",
    ),
    (
        "impossible-offset",
        "integrity",
        "A client received an impossible offset (negative, or beyond 2^62).",
        "observations",
        "the log starts at offset 0",
    ),
    (
        "lost-record",
        "integrity",
        "A read skipped an offset where a record is known to be.",
        "skips",
        _C + "C4; Jepsen calls it int-poll-skip",
    ),
    (
        "skipped-offset",
        "integrity",
        "A read skipped offsets of a log that has no gaps.",
        "skips",
        _C + "C4, dense logs",
    ),
    (
        "torn-fetch",
        "integrity",
        "One response held records at or beyond the log end that it reported.",
        "polls",
        _C + "C5",
    ),
    (
        "group-skipped-record",
        "integrity",
        "A record of the final log below a consumer group's committed offset was delivered to no member.",
        "records",
        _GROUP,
    ),
    (
        "phantom-commit",
        "integrity",
        "The coordinator of a consumer group reported a committed offset that no member had sent a commit of.",
        "observations",
        _GROUP,
    ),
    (
        "lookup-skips-record",
        "integrity",
        "Asked for the first offset with at least the timestamp of a record that had been read, a leader named"
        " none, or one behind the record.",
        "answers",
        "KIP-79: ListOffsets by timestamp",
    ),
    (
        "epoch-ends-early",
        "integrity",
        "Asked for the end of the leader epoch of a record that had been read, a leader named an earlier epoch, or"
        " an end that is not behind the record.",
        "answers",
        "KIP-320: OffsetForLeaderEpoch shows truncations",
    ),
    (
        "double-ownership",
        "integrity",
        "Two members of a consumer group were assigned one partition in the same generation.",
        "assignments beyond the first one",
        "Kafka group protocol: a generation has one assignment",
    ),
    (
        "unfilled-hole",
        "integrity",
        "Offsets exist that were never acknowledged or read, more than there are appends that could fill them.",
        "one per partition",
        "linearizability of a log, free appends",
    ),
    (
        "hole-before-append",
        "order",
        "Offsets existed before enough appends had been invoked to fill them.",
        "one per partition",
        "linearizability of a log, free appends",
    ),
    (
        "unplaced-append",
        "order",
        "An append succeeded without learning its offset, and there is no offset where it can be.",
        "one per partition",
        "linearizability of a log, free appends",
    ),
    (
        "order-inversion",
        "order",
        "An append was invoked after another one had been acknowledged, yet got a smaller offset.",
        "appends overtaken",
        _C + "C6",
    ),
    (
        "future-read",
        "order",
        "A record was read before its append was invoked.",
        "reads",
        _C + "C6",
    ),
    (
        "late-insert",
        "order",
        "An append landed below an offset that was already known to exist when it was invoked.",
        "operations that knew",
        _C + "C6",
    ),
    (
        "nonmonotonic-send",
        "order",
        "A process's append was acknowledged; another one that it sent afterwards is at a smaller offset.",
        "appends that overtook",
        _JEPSEN,
    ),
    (
        "reordered-send",
        "order",
        "Two acknowledged appends that a process had in flight at the same time are not in the order of sending.",
        "appends that overtook",
        "Kafka producer configuration max.in.flight.requests.per.connection",
    ),
    (
        "nonmonotonic-poll",
        "integrity",
        "A poll returned a record below its requested position, or one offset twice.",
        "records",
        _JEPSEN,
    ),
    (
        "unordered-poll",
        "integrity",
        "A poll returned a record after another one with a larger offset.",
        "records",
        _JEPSEN + ": int-nonmonotonic-poll",
    ),
    (
        "out-of-sequence",
        "order",
        "Records of one session of an idempotent producer are not in the order of sending.",
        "records",
        "KIP-98: a leader accepts consecutive sequence numbers only",
    ),
    (
        "producer-gap",
        "integrity",
        "An idempotent producer's record is in the log, and one that its session sent before it is not.",
        "missing records",
        "KIP-98: a leader accepts consecutive sequence numbers only",
    ),
    (
        "torn-batch",
        "integrity",
        "The final reads returned some records of a record batch, and went past the places of others.",
        "missing records",
        "Kafka's record batch format: a batch is written, copied and truncated as a whole",
    ),
    (
        "end-in-batch",
        "integrity",
        "A log end that an operation received lies inside of a record batch that the final reads returned.",
        "observations",
        "Kafka's record batch format: a batch is written, copied and truncated as a whole",
    ),
    (
        "unsent-in-batch",
        "order",
        "A poll returned a record of a record batch before another record of the batch was sent.",
        "records",
        "Kafka's record batch format: a batch is written as a whole, after all of its records were sent",
    ),
    (
        "high-watermark-regression",
        "order",
        "A leader reported or had a smaller high watermark than before in the same leader epoch.",
        "observations, or states of the leader",
        "Kafka replication: a leader's high watermark grows within its epoch",
    ),
    (
        "divergent-replicas",
        "integrity",
        "Two members of the ISR hold different records at an offset below the high watermarks of both. The files"
        " of the replicas are compared at the end of the run, whether a client read them or not.",
        "offsets",
        "Kafka replication: what is committed is the same on every replica",
    ),
    (
        "unplaced-below-end",
        "fresh",
        "An append succeeded without learning its offset; there is no place for it below the log ends that brokers"
        " reported afterwards.",
        "one per partition",
        "linearizability of a log, free appends",
    ),
    (
        "stale-end",
        "fresh",
        "An append was acknowledged; afterwards a broker reported a log end at or below its offset.",
        "appends",
        _C + "C6",
    ),
    (
        "lost-ack",
        "fresh",
        "As stale-end, and the record was never read although the final reads passed its offset.",
        "appends",
        _C + "C6",
    ),
    (
        "end-regression",
        "fresh",
        "The log was known to reach an offset; afterwards a broker reported a log end at or below it.",
        "observations",
        _C + "C6",
    ),
    (
        "slow-recovery",
        "fresh",
        "After the last fault in force was healed, appends or polls took longer to succeed than the experiment"
        " allows, although clients tried all that time.",
        "heals, of appends and of polls",
        "limit recovery_max_ms of the experiment",
    ),
    (
        "stuck",
        "fresh",
        "After everything was healed, a partition made no progress until the run ended, although the replicas that"
        " it needs were up and connected: it had no leader, its ISR stayed below min ISR, appends or reads failed"
        " all the time, or a replica stayed out of the ISR. Or transactions made none: no producer could take a"
        " transactional id over, or reads with read_committed received nothing.",
        "one per partition; one for all transactions",
        "replicated logs make progress while a majority is alive and connected; limit stuck_after_ms",
    ),
    (
        "invariant-broken",
        "integrity",
        "A node broke one of the reference system's invariants, crashed, or ended without a fault.",
        "violations",
        "docs/invariants.md",
    ),
)

ANOMALIES: dict[str, AnomalyKind] = {
    identifier: AnomalyKind(
        id=identifier, level=level, definition=text, counts=counts, source=source
    )
    for identifier, level, text, counts, source in (*_ROWS, *TRANSACTION_ROWS)
}
"""Every anomaly by identifier, what matters most first."""

IN_DENSE_LOGS_ONLY = frozenset({"skipped-offset", "unfilled-hole", "hole-before-append"})
"""What is not judged where an offset may be without a record: in compacted topics and sparse logs."""

NOT_IN_COMPACTED = {
    "divergent-replicas": "each replica cleans its log in its own time and rewrites its batches, so the contents"
    " of replicas are not compared"
}
"""What else is not judged in compacted topics, and why."""
