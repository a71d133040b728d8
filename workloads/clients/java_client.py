"""A client on the Java client of Apache Kafka, configured as its users run it.

All clients share one Java process (`java_process.py`), which does the operations (`java/LaststandClient.java`).
What a history row may claim although the Java client retries, fetches ahead and uses its own threads:

**append, acks=all** goes through an idempotent producer with retries. Success is `ok` (without an offset when the
broker no longer remembered a repeated record's place). An error is `info` whatever it is: an earlier attempt of
the same record may have been written and its response lost. The exception is what the producer never queued: it
did not learn the partition's leader in time, or the record is too large. The producer reports that on the thread
that sends, before it queues the record, and it is `fail`.

**append, acks=1 and 0** go through producers without retries, because without idempotence a retry may write twice.
With one attempt, errors that refuse before the append are `fail`.

**poll** reads by `assign` and `seek`, never in a group, and returns only records that were requested after its
invocation; the Java program describes how it keeps the consumer from fetching ahead. Otherwise a record fetched
before an election and returned after it would look as if it came from the new leader. Every poll begins with a
new assignment, so the high watermark that the consumer knows afterwards comes from a response to this poll:
`end_offset` is that high watermark. It is unknown if the response has records beyond it: brokers read the high
watermark before the records. A poll without a response from a broker in time is `fail`. The seek carries the
leader epoch of the last record read, so the consumer first checks with the leader whether the log was cut below
the position (KIP-320); that ends the poll with the error LOG_TRUNCATION. The next poll from the same position has
no epoch any more, as in an application that ignores the error.

**latest** queries the leader, after the invocation.

The Java client reports neither which broker responded nor its leader epoch: `node` is empty, `leader_epoch` is -1.
If the Java process ends, appends in progress are `info` and everything else `fail`; the next operation ends the
run with an error.
"""

import asyncio
import base64
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from harness.contracts.client import (
    OFFSET_OUT_OF_RANGE,
    ClientType,
    FetchedBatch,
    PollResult,
)
from harness.contracts.host import ClientHost
from harness.history.op import Completion, Outcome
from workloads.clients.java_process import JavaEndedError, java_process, java_versions

ACKS_ALL = -1
ATTEMPTS = 4
"""Delivery timeout in request timeouts; Kafka's defaults (120 s and 30 s) have the same ratio."""
MARGIN_MS = 5_000
"""How much later than its own limit the Java process may report a result. Beyond that it is stuck."""
NO_EPOCH = -1
NEVER_SENT = "never"
NO_CODE = "-"

LOG_TRUNCATION = "LOG_TRUNCATION"
_RESETS = frozenset({LOG_TRUNCATION, OFFSET_OUT_OF_RANGE})
"""After these errors the position has no known history."""

_WORDS = {
    "TimeoutException": "TIMEOUT",
    "BufferExhaustedException": "TIMEOUT",
    "LogTruncationException": LOG_TRUNCATION,
    "OffsetOutOfRangeException": OFFSET_OUT_OF_RANGE,
    "RecordTooLargeException": "MESSAGE_TOO_LARGE",
}
"""Words for errors, as other clients name them; every other exception keeps its name without "Exception"."""

_CODES = {OFFSET_OUT_OF_RANGE: 1}
"""Codes of errors of brokers for which the consumer has an exception of its own, without a code."""

_NEVER_APPENDED = frozenset(
    {
        2,  # CORRUPT_MESSAGE
        3,  # UNKNOWN_TOPIC_OR_PARTITION
        5,  # LEADER_NOT_AVAILABLE
        10,  # MESSAGE_TOO_LARGE
        19,  # NOT_ENOUGH_REPLICAS
        21,  # INVALID_REQUIRED_ACKS
        32,  # INVALID_TIMESTAMP
        87,  # INVALID_RECORD
    }
)
"""Codes of produce errors that prove, for a record that was sent at most once, that it was not appended."""

Key = tuple[str, int]


class OperationsInJava(Protocol):
    """What does operations: the Java process, or a test."""

    def open_client(self, *settings: object) -> str:
        """Makes a client; returns its name."""
        ...

    def close_client(self, name: str) -> None:
        """Closes a client."""
        ...

    async def request(self, kind: str, *fields: object) -> list[str]:
        """Does one operation; returns the fields of its result."""
        ...


class JavaClient:
    """One client; one operation at a time. Mutable: what it read last from each partition.

    Args:
        host: Not used; the Java process brings its own clock and network.
        bootstrap: Addresses of brokers.
        request_timeout_ms: Of one attempt; an append may take `ATTEMPTS` times as long.
        connect_timeout_ms: After which a connection attempt is given up.
        process: Does the operations; the shared Java process if None.

    Raises:
        UsageError: Java, its compiler or the jars of Kafka are missing.
    """

    def __init__(
        self,
        host: ClientHost | None,
        bootstrap: tuple[str, ...],
        *,
        request_timeout_ms: int,
        connect_timeout_ms: int,
        process: OperationsInJava | None = None,
    ) -> None:
        self.request_timeout_ms = request_timeout_ms
        self._process = java_process() if process is None else process
        self._name = self._process.open_client(
            ",".join(bootstrap),
            request_timeout_ms,
            connect_timeout_ms,
            ATTEMPTS * request_timeout_ms,
        )
        self._is_closed = False
        self._read_up_to: dict[Key, tuple[int, int]] = {}
        """Per partition, the position behind the last record returned, and that record's leader epoch."""

    async def append(
        self, topic: str, partition: int, key: bytes, value: bytes, acks: int
    ) -> Completion:
        """Produces one record."""
        # The producer may wait for metadata before the delivery timeout begins.
        limit_ms = (ATTEMPTS + 1) * self.request_timeout_ms
        words = (topic, partition, acks, _encoded(key), _encoded(value))
        try:
            result = await self._do(limit_ms, "append", *words)
        except TimeoutError:
            return _ended(Outcome.INFO, None, "no-delivery-report")
        except JavaEndedError:
            return _ended(Outcome.INFO, None, "java-process-ended")
        if result[0] == "error":
            return classify_append_error(acks, _error_of(result))
        if acks == 0:
            return _ended(Outcome.INFO, None, "no-ack-requested")
        offset = int(result[1])
        return Completion(outcome=Outcome.OK, offset=offset if offset >= 0 else None)

    async def poll(
        self, topic: str, partition: int, position: int, *, max_bytes: int, max_wait_ms: int
    ) -> PollResult:
        """Reads from a position until something arrives, the end is reached or the request timeout is over."""
        key = (topic, partition)
        reached, epoch = self._read_up_to.get(key, (-1, NO_EPOCH))
        sent_epoch = epoch if reached == position else NO_EPOCH
        words = (topic, partition, position, sent_epoch, max_bytes, max_wait_ms)
        result = await self._read(2 * self.request_timeout_ms, "poll", *words)
        if isinstance(result, Completion):
            if result.error in _RESETS:
                self._read_up_to.pop(key, None)
            return PollResult(completion=result)
        end, records = int(result[1]), _records(result[2:])
        if records:
            self._read_up_to[key] = (records[-1].offset + 1, records[-1].leader_epoch)
        return PollResult(
            completion=Completion(outcome=Outcome.OK, end_offset=end if end >= 0 else None),
            batches=_by_epoch(records),
        )

    async def latest(self, topic: str, partition: int) -> Completion:
        """Requests the log end from the leader."""
        result = await self._read(2 * self.request_timeout_ms, "latest", topic, partition)
        if isinstance(result, Completion):
            return result
        return Completion(outcome=Outcome.OK, offset=int(result[1]))

    def close(self) -> None:
        """Closes the client in the background, after the operation it is in; idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._process.close_client(self._name)

    async def _read(self, limit_ms: int, kind: str, *fields: object) -> list[str] | Completion:
        """Returns the result of an operation without effect, or how it failed."""
        try:
            result = await self._do(limit_ms, kind, *fields)
        except TimeoutError:
            return _ended(Outcome.FAIL, None, "client-timeout")
        except JavaEndedError:
            return _ended(Outcome.FAIL, None, "java-process-ended")
        if result[0] == "error":
            error = _error_of(result)
            return _ended(Outcome.FAIL, error.code, error.word)
        return result

    async def _do(self, limit_ms: int, kind: str, *fields: object) -> list[str]:
        async with asyncio.timeout((limit_ms + MARGIN_MS) / 1e3):
            return await self._process.request(kind, self._name, *fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaError:
    """An error as the Java program reported it.

    Attributes:
        was_never_sent: Whether the producer refused the record before it queued it.
        word: For the history.
        code: Kafka's, None for an error of the client itself.
    """

    was_never_sent: bool
    word: str
    code: int | None


def _error_of(result: list[str]) -> JavaError:
    _, sent, name, code, *_ = result
    word = _WORDS.get(name) or _as_word(name.removesuffix("Exception"))
    return JavaError(
        was_never_sent=sent == NEVER_SENT,
        word=word,
        code=_CODES.get(word) if code == NO_CODE else int(code),
    )


def _as_word(name: str) -> str:
    """Returns NOT_ENOUGH_REPLICAS for "NotEnoughReplicas"."""
    parts = "".join(f"_{letter}" if letter.isupper() else letter for letter in name)
    return parts.strip("_").upper()


def classify_append_error(acks: int, error: JavaError) -> Completion:
    """Returns how an append ended for which the producer reported an error; see the module."""
    was_sent_once = acks != ACKS_ALL
    certain = error.was_never_sent or (was_sent_once and error.code in _NEVER_APPENDED)
    return _ended(Outcome.FAIL if certain else Outcome.INFO, error.code, error.word)


def _ended(outcome: Outcome, code: int | None, error: str) -> Completion:
    return Completion(outcome=outcome, error_code=code, error=error)


@dataclass(frozen=True, slots=True)
class JavaRecord:
    """A record as the Java consumer returned it. Implements `FetchedRecord`."""

    offset: int
    leader_epoch: int
    key: bytes | None
    value: bytes | None


def _records(fields: list[str]) -> list[JavaRecord]:
    return [
        JavaRecord(int(offset), int(epoch), _decoded(key), _decoded(value))
        for offset, epoch, key, value in zip(*(fields[start::4] for start in range(4)), strict=True)
    ]


def _by_epoch(records: list[JavaRecord]) -> tuple[FetchedBatch, ...]:
    """Returns records as batches, one per run of a leader epoch; consumers do not learn the real boundaries."""
    return tuple(
        FetchedBatch(leader_epoch=epoch, records=tuple(run))
        for epoch, run in groupby(records, key=lambda record: record.leader_epoch)
    )


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(field: str) -> bytes | None:
    return None if field == "-" else base64.b64decode(field)


JAVA = ClientType(name="java", make=JavaClient, versions=java_versions)
