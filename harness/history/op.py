"""Operations: what a process does, and how it ends."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How an operation completed. An indeterminate result is never rounded to success or failure."""

    OK = "ok"
    FAIL = "fail"
    """Certainly did not happen."""
    INFO = "info"
    """Unknown: it may have happened, may happen later, or never."""


class OpKind(StrEnum):
    """What the operations of the `append` workload do."""

    APPEND = "append"
    """Sends one self-describing record to one partition."""
    POLL = "poll"
    """Reads from an assigned position."""
    LATEST = "latest"
    """Requests the log end from the partition leader (list offsets, latest)."""


class QueryKind(StrEnum):
    """What is asked about offsets (table `offset_queries`)."""

    TIMESTAMP = "timestamp"
    """ListOffsets: the first offset whose record has at least a timestamp."""
    LEADER_EPOCH = "leader-epoch"
    """OffsetForLeaderEpoch: the end of a leader epoch (KIP-320)."""


class TransactionEvent(StrEnum):
    """What happens in a transaction (table `transaction_events`)."""

    INITIALISED = "initialised"
    """A producer took over a transactional id; older producers with that id are fenced from then on."""
    NOT_INITIALISED = "not-initialised"
    """A producer tried in vain to take over a transactional id in the final phase."""
    BEGIN = "begin"
    SEND = "send"
    """A record is about to be sent."""
    SENT = "sent"
    """The send of a record was acknowledged."""
    POLL = "poll"
    """A poll returned a record."""
    OFFSET = "offset"
    """A position of the consumer group is about to become part of the transaction."""
    COMMIT_ASKED = "commit-asked"
    """The commit is about to be requested."""
    ABORT_ASKED = "abort-asked"
    COMMITTED = "committed"
    ABORTED = "aborted"
    """It certainly did not commit."""
    UNKNOWN = "unknown"
    """Its commit was requested, and it is not known whether it committed."""


FETCHED_AHEAD = -2
"""Stands for a leader epoch that is not known, of a poll whose records the client may have had before it began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The end of one operation.

    Attributes:
        outcome: ok, fail or info.
        offset: append: the acknowledged offset; latest: the log end; None where unknown.
        end_offset: poll: the log end (high watermark) in the response; None where absent.
        error_code: Kafka's error code, 0 for none, None for a connection error or a client timeout.
        error: A short word for the report, empty when ok.
        node: The broker that responded (or was contacted last), for example "b1"; empty when none was contacted.
        leader_epoch: Leader epoch known from the response, -1 when unknown, `FETCHED_AHEAD` likewise.
    """

    outcome: Outcome
    offset: int | None = None
    end_offset: int | None = None
    error_code: int | None = 0
    error: str = ""
    node: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecord:
    """One record that one poll returned.

    Attributes:
        offset: Its offset in the partition.
        value: The op index of the append that wrote it (`workloads.values`), or -1 when the payload cannot be
            trusted; then `status` gives the reason.
        status: "ok", "corrupt" (checksum or form is wrong) or "foreign" (of another run, topic or partition).
        process, sequence, key: What the payload claims; -1 and "" when corrupt.
        leader_epoch: Epoch stamped on the batch.
    """

    offset: int
    value: int
    status: str
    process: int
    sequence: int
    key: str
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetQuery:
    """A question about offsets and its answer; a row of the table `offset_queries`.

    Attributes:
        kind: What was asked.
        topic, partition: Where.
        op_index: The poll that returned the record that it is about.
        record_offset, record_value: That record: its offset, and the op index of its append.
        known_epoch: Leader epoch in which that poll was served.
        asked: Timestamp of that record in ms, or the leader epoch stamped on it.
        found: Timestamp of the record at the offset in the response, or the epoch in it; -1 for none.
        completion: How it ended, ok or fail; if ok, with the offset, -1 for none, and the leader epoch in which it
            was served.
    """

    kind: QueryKind
    topic: str
    partition: int
    op_index: int
    record_offset: int
    record_value: int
    known_epoch: int
    asked: int
    found: int
    completion: Completion
