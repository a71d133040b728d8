"""What a log knows of its idempotent producers: enough to distinguish a retry from a new batch.

A producer numbers its records per partition. The log remembers, for every producer id, the epoch and the last
five batches; five, because a producer may have that many requests in flight. From this follows, for a batch
that a producer sends:

* PID-1: one of the five again (same epoch and sequences) is a *duplicate*: nothing is appended, and the response
  is that of the first time;
* PID-2: otherwise its first sequence must follow the last one, or it is refused with
  OUT_OF_ORDER_SEQUENCE_NUMBER: a batch before it is missing, or it is older than the five. A new epoch starts
  at 0. A producer that the log does not know may start anywhere, since its earlier batches may have left the
  log;
* PID-3: an epoch older than the known one is refused with INVALID_PRODUCER_EPOCH;
* PID-4: a follower keeps the same state while it appends, so that it can lead; and
* PID-5: truncation and loading rebuild it from the batches that are there. No snapshot file is needed: a load
  reads every batch header anyway. Only for Apache Kafka a clean stop writes one (`producer_snapshot.py`).

Producers with a transactional id also have transactions (`transactions.py`). Their coordinator ends one with a
marker, which may bring a new epoch; from then on batches of the old one are refused (PID-3, TXN-3). A marker of a
coordinator that was replaced is refused (TXN-4).

Memory: about 600 bytes per producer id that has batches in the log. Entries without an open transaction are
dropped after `EXPIRATION_MS` without a batch, compared with the newest batch of the log, so that all replicas
drop the same ones; but never with a time in the future, or one record with a wrong timestamp would make the log
drop its active producers.

Source:
    KIP-98, KIP-360; Kafka's ProducerStateManager and ProducerAppendInfo.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from system_under_test.log.transactions import LogTransactions
from system_under_test.protocol.control_records import Marker, marker_in
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.record_batch import BatchSpan
from system_under_test.rules import Rules

NO_PRODUCER_ID = -1
BATCHES_REMEMBERED = 5
SEQUENCE_MAX = 2**31 - 1
EXPIRATION_MS = 86_400_000
"""Kafka's producer.id.expiration.ms."""
SWEEP_EVERY = 10_000
"""Batches of idempotent producers between two searches for expired entries."""


class ProducerRefusedError(Exception):
    """A batch that its producer must not append now; nothing was appended.

    Attributes:
        error: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_RECORD, INVALID_TXN_STATE or
            TRANSACTION_COORDINATOR_FENCED.
    """

    def __init__(self, error: ErrorCode, message: str) -> None:
        self.error = error
        super().__init__(message)


class RememberedBatch(NamedTuple):
    """One batch that was appended."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int


class DescribedProducer(NamedTuple):
    """One producer as DescribeProducers reports it; -1 for what does not exist.

    Attributes:
        coordinator_epoch: Of the last marker.
        transaction_start_offset: First offset of the open transaction.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int


class _Producer:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_marker_offset",
        "last_offset",
        "may_begin_anywhere",
        "timestamp_ms",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.timestamp_ms = -1
        self.coordinator_epoch = -1
        self.last_offset = -1
        self.last_marker_offset = -1
        # Only markers are known: the batches before them may have left the log.
        self.may_begin_anywhere = True
        self.batches: deque[RememberedBatch] = deque(maxlen=BATCHES_REMEMBERED)


def advanced(sequence: int, count: int) -> int:
    """Returns the sequence `count` later; after the largest comes 0."""
    return (sequence + count) % (SEQUENCE_MAX + 1)


class ProducerStates:
    """The state of all producers of one log. Mutable; the log keeps it up to date.

    Args:
        rules: The rules that apply.
        wall_ms: The node's clock, if there is one.

    Attributes:
        transactions: Those of the log; read only.
    """

    __slots__ = (
        "_newest_timestamp_ms",
        "_producers",
        "_rules",
        "_until_sweep",
        "_wall_ms",
        "transactions",
    )

    def __init__(self, rules: Rules, wall_ms: Callable[[], int] | None = None) -> None:
        self._wall_ms = wall_ms
        self._rules = rules
        self._producers: dict[int, _Producer] = {}
        self.transactions = LogTransactions(rules)
        self._newest_timestamp_ms = -1
        self._until_sweep = SWEEP_EVERY

    def __len__(self) -> int:
        """Returns how many producers are known."""
        return len(self._producers)

    def known(self, producer_id: int) -> tuple[int, tuple[RememberedBatch, ...]] | None:
        """Returns the epoch and the remembered batches of a producer, oldest first; None if unknown."""
        producer = self._producers.get(producer_id)
        return None if producer is None else (producer.epoch, tuple(producer.batches))

    def described(self) -> list[DescribedProducer]:
        """Returns every known producer, by its id."""
        return [
            DescribedProducer(
                producer_id=producer_id,
                epoch=producer.epoch,
                last_sequence=producer.batches[-1].last_sequence if producer.batches else -1,
                last_timestamp_ms=producer.timestamp_ms,
                coordinator_epoch=producer.coordinator_epoch,
                transaction_start_offset=self.transactions.open.get(producer_id, -1),
            )
            for producer_id, producer in sorted(self._producers.items())
        ]

    def has_open_transaction(self, producer_id: int) -> bool:
        """Whether a producer has a transaction in this log that has no marker yet."""
        return producer_id in self.transactions.open

    def last_marker_offset(self, producer_id: int) -> int:
        """Returns the offset of the last marker for a producer, -1 if there is none."""
        producer = self._producers.get(producer_id)
        return -1 if producer is None else producer.last_marker_offset

    def examine(
        self, found: Sequence[BatchSpan], data: bytes, *, is_coordinator: bool = False
    ) -> RememberedBatch | None:
        """Decides on the batches of one append; changes nothing.

        Args:
            found: The batches.
            data: Their bytes.
            is_coordinator: Whether a coordinator appends them, whose batches have no sequences.

        Returns:
            The batch that is repeated, None if all are to be appended.

        Raises:
            ProducerRefusedError: They must not be appended.
        """
        if len(found) == 1:
            span = found[0]
            if span.is_control:
                self._examine_marker(span, marker_in(data, span.position))
                return None
            return self._examine(span, is_coordinator=is_coordinator)
        if any(span.producer_id != NO_PRODUCER_ID for span in found):
            # The second could not be examined before the first is in the log.
            raise ProducerRefusedError(
                ErrorCode.INVALID_RECORD, "an idempotent producer sends one batch at a time"
            )
        return None

    def _examine_marker(self, span: BatchSpan, marker: Marker | None) -> None:
        """Refuses a marker of a fenced producer epoch or of a fenced coordinator (TXN-3, TXN-4)."""
        producer = self._producers.get(span.producer_id)
        if marker is None:
            raise ProducerRefusedError(ErrorCode.INVALID_RECORD, "a control batch is no marker")
        if producer is None:
            return
        # TXN-3.
        if span.producer_epoch < producer.epoch and self._rules("TXN-3"):
            raise ProducerRefusedError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {span.producer_id} has epoch {producer.epoch},"
                f" the marker {span.producer_epoch}",
            )
        # TXN-4.
        if marker.coordinator_epoch < producer.coordinator_epoch and self._rules("TXN-4"):
            raise ProducerRefusedError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the marker has coordinator epoch {marker.coordinator_epoch},"
                f" older than {producer.coordinator_epoch}",
            )

    def _examine(self, span: BatchSpan, *, is_coordinator: bool) -> RememberedBatch | None:
        """Returns the batch that an idempotent producer repeats, None if it is new (PID-1, PID-2, PID-3)."""
        producer = self._producers.get(span.producer_id)
        has_sequence = span.base_sequence >= 0
        if span.producer_epoch < 0 or not (has_sequence or is_coordinator):
            raise ProducerRefusedError(
                ErrorCode.INVALID_RECORD, "a batch with a producer id needs an epoch and a sequence"
            )
        if producer is None:
            return None
        # PID-3.
        if span.producer_epoch < producer.epoch and self._rules("PID-3"):
            raise ProducerRefusedError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {span.producer_id} has epoch {producer.epoch},"
                f" the batch {span.producer_epoch}",
            )
        if not span.is_transactional and self.has_open_transaction(span.producer_id):
            raise ProducerRefusedError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {span.producer_id} has an open transaction, the batch is outside of it",
            )
        if not has_sequence:
            return None
        last_sequence = advanced(span.base_sequence, span.offset_count - 1)
        if span.producer_epoch == producer.epoch:
            # PID-1.
            if self._rules("PID-1"):
                for batch in producer.batches:
                    if batch[0] == span.base_sequence and batch[1] == last_sequence:
                        return batch
            if not producer.batches and producer.may_begin_anywhere:
                return None
            expected = advanced(producer.batches[-1].last_sequence, 1) if producer.batches else 0
        else:
            expected = 0
        # PID-2.
        if span.base_sequence != expected and self._rules("PID-2"):
            raise ProducerRefusedError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {span.producer_id} sent sequence {span.base_sequence}, {expected} is next",
            )
        return None

    def appended(self, span: BatchSpan, first_offset: int, marker: Marker | None = None) -> None:
        """Enters a batch that is in the log now.

        Args:
            span: The batch.
            first_offset: Its offset in the log.
            marker: What it states, if it is a marker.
        """
        if span.is_control and marker is None:
            return
        producer_id = span.producer_id
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer(span.producer_epoch)
        elif span.producer_epoch != producer.epoch:
            producer.epoch = span.producer_epoch
            producer.batches.clear()
            producer.may_begin_anywhere = False
        producer.last_offset = first_offset + span.offset_count - 1
        if marker is not None:
            producer.coordinator_epoch = marker.coordinator_epoch
            producer.last_marker_offset = first_offset
            self.transactions.ended(producer_id, first_offset, is_commit=marker.is_commit)
        elif span.is_transactional:
            self.transactions.appended(producer_id, first_offset)
        if span.base_sequence >= 0:
            producer.batches.append(
                RememberedBatch(
                    span.base_sequence,
                    advanced(span.base_sequence, span.offset_count - 1),
                    first_offset,
                    producer.last_offset,
                )
            )
        producer.timestamp_ms = span.max_timestamp_ms
        if span.max_timestamp_ms > self._newest_timestamp_ms:
            self._newest_timestamp_ms = span.max_timestamp_ms
        self._until_sweep -= 1
        if not self._until_sweep:
            self._expire()

    def reaches(self, offset: int) -> bool:
        """Whether anything at or behind an offset is remembered."""
        return any(producer.last_offset >= offset for producer in self._producers.values())

    def last_offsets(self) -> dict[int, int]:
        """Returns the last offset with a sequence of every known producer, by its id."""
        return {
            producer_id: producer.batches[-1].last_offset
            for producer_id, producer in self._producers.items()
            if producer.batches
        }

    def rebuild(self, batches: Iterable[tuple[BatchSpan, Marker | None]]) -> None:
        """Starts anew from the batches of a log and the markers in them, in order (PID-5)."""
        self.clear()
        for span, marker in batches:
            if span.producer_id != NO_PRODUCER_ID:
                self.appended(span, span.base_offset, marker)

    def clear(self) -> None:
        """Drops all entries."""
        self._producers.clear()
        self.transactions.clear()
        self._newest_timestamp_ms = -1

    def _expire(self) -> None:
        self._until_sweep = SWEEP_EVERY
        newest_ms = self._newest_timestamp_ms
        if self._wall_ms is not None:
            newest_ms = min(newest_ms, self._wall_ms())
        oldest_ms = newest_ms - EXPIRATION_MS
        for producer_id in [
            known
            for known, one in self._producers.items()
            if one.timestamp_ms < oldest_ms and not self.has_open_transaction(known)
        ]:
            del self._producers[producer_id]
