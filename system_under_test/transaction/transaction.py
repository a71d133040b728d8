"""One transactional id as its coordinator stores it, and how its state may change.

A `Transaction` is immutable. Every function here returns the next one, or the error for the client; the
coordinator appends it to `__transaction_state` before it counts.

States. Empty: the producer has an id and no transaction yet. Ongoing: partitions were added. PrepareCommit and
PrepareAbort: decided, the markers are on their way. CompleteCommit and CompleteAbort: every partition has its
marker. Dead: the id expired.

Source:
    KIP-98, KIP-360, KIP-890; Kafka's `TransactionMetadata` and `TransactionCoordinator`.
"""

from dataclasses import dataclass, replace
from enum import Enum

from system_under_test.protocol.errors import ErrorCode
from system_under_test.rules import Rules

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 2**15 - 1
BUMPS_EPOCHS = 2
"""The level of `transaction.version` from which on every transaction gets an epoch of its own (KIP-890)."""

TopicPartition = tuple[str, int]


class TransactionState(Enum):
    """Kafka's number and name of a state."""

    EMPTY = (0, "Empty")
    ONGOING = (1, "Ongoing")
    PREPARE_COMMIT = (2, "PrepareCommit")
    PREPARE_ABORT = (3, "PrepareAbort")
    COMPLETE_COMMIT = (4, "CompleteCommit")
    COMPLETE_ABORT = (5, "CompleteAbort")
    DEAD = (6, "Dead")

    @property
    def number(self) -> int:
        """Kafka's number, which is stored."""
        return self.value[0]

    @property
    def label(self) -> str:
        """Kafka's name, for clients."""
        return self.value[1]

    @property
    def is_decided(self) -> bool:
        """Whether markers are on their way."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        """Whether the last transaction has ended in every partition."""
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The state of one transactional id.

    Attributes:
        producer_epoch: Of the producer that is not fenced; -1 before the first.
        last_producer_epoch: The epoch before the last bump that the producer itself asked for; -1 if unknown.
            It is not stored, as in Kafka.
        state: The state.
        partitions: Those with records of the transaction, or that still need their marker; sorted.
        changed_ms, started_ms: Milliseconds since the epoch; `started_ms` is -1 without a transaction.
        previous_producer_id: The id before the epochs of that one were used up; -1 if there was none.
        next_producer_id: The id from the end of this transaction on, when the epochs are used up; else -1.
        client_version: The level of `transaction.version` that the client uses.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: tuple[TopicPartition, ...] = ()
    changed_ms: int
    started_ms: int = -1
    last_producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the next producer needs another id: the largest epoch is for fencing only."""
        return self.producer_epoch >= EPOCH_MAX - 1


def initialized(
    found: Transaction,
    *,
    producer_id: int,
    producer_epoch: int,
    timeout_ms: int,
    new_producer_id: int | None,
    now_ms: int,
    rules: Rules,
) -> Transaction | ErrorCode:
    """Returns the transactional id for a producer that begins or goes on (KIP-360, TXN-10).

    Args:
        found: Without an ongoing or decided transaction.
        producer_id: What the producer had; -1 if it is new.
        producer_epoch: The same.
        timeout_ms: Its transaction timeout.
        new_producer_id: An id for when the epochs are used up; None if none was allocated.
        now_ms: The wall clock.
        rules: The rules that apply.

    Returns:
        The next state; PRODUCER_FENCED if another producer has taken the transactional id.
    """
    if is_fenced(found, producer_id, producer_epoch):
        return ErrorCode.PRODUCER_FENCED
    base = replace(
        found,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=(),
        changed_ms=now_ms,
        started_ms=-1,
        next_producer_id=NO_PRODUCER_ID,
    )
    if found.is_epoch_exhausted:
        if new_producer_id is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        # A repeated request names the epoch that was the last of the previous id.
        return replace(
            base,
            producer_id=new_producer_id,
            producer_epoch=0,
            last_producer_epoch=found.producer_epoch,
            previous_producer_id=found.producer_id,
        )
    is_first = found.producer_epoch == NO_EPOCH
    if not is_first and producer_epoch not in (NO_EPOCH, found.producer_epoch):
        # Repeated: the response to the first request was lost.
        return base
    # TXN-10: without the rule two producers share an epoch, and neither fences the other.
    step = 1 if rules("TXN-10") or is_first else 0
    return replace(
        base,
        producer_epoch=found.producer_epoch + step,
        last_producer_epoch=found.producer_epoch if producer_id != NO_PRODUCER_ID else NO_EPOCH,
    )


def is_fenced(found: Transaction, producer_id: int, producer_epoch: int) -> bool:
    """Whether a producer that names its id and epoch is not the last one of its transactional id."""
    if producer_id == NO_PRODUCER_ID or found.producer_epoch == NO_EPOCH:
        return False
    if producer_id == found.producer_id:
        return producer_epoch not in (found.producer_epoch, found.last_producer_epoch)
    return not (
        producer_id == found.previous_producer_id and producer_epoch == found.last_producer_epoch
    )


def with_partitions(
    found: Transaction,
    partitions: tuple[TopicPartition, ...],
    now_ms: int,
    client_version: int,
) -> Transaction:
    """Returns the transaction with more partitions; the first ones begin it."""
    is_ongoing = found.state is TransactionState.ONGOING
    return replace(
        found,
        state=TransactionState.ONGOING,
        partitions=tuple(sorted({*(found.partitions if is_ongoing else ()), *partitions})),
        changed_ms=now_ms,
        started_ms=found.started_ms if is_ongoing else now_ms,
        client_version=client_version,
    )


def refusal(found: Transaction, producer_id: int, producer_epoch: int) -> ErrorCode | None:
    """Returns why a producer may not change a transaction, None if it may."""
    if producer_id != found.producer_id or found.producer_epoch == NO_EPOCH:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.PRODUCER_FENCED if producer_epoch != found.producer_epoch else None


def end_outcome(
    found: Transaction,
    *,
    producer_id: int,
    producer_epoch: int,
    is_commit: bool,
    client_version: int,
) -> ErrorCode | None:
    """Returns the response to EndTxn if it decides nothing; None if the transaction is to be decided now.

    A producer repeats EndTxn when it got no response. With epochs per transaction (KIP-890) its epoch is then the
    one before. While markers are on their way, such a producer always has to wait: EndTxn returned the next epoch,
    perhaps with another id, so the request may belong to the next transaction.
    """
    state = found.state
    bumps = client_version >= BUMPS_EPOCHS
    if bumps and state.is_decided:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if bumps and _is_repeated(found, producer_id, producer_epoch):
        decided_commit = state is TransactionState.COMPLETE_COMMIT
        return ErrorCode.NONE if decided_commit is is_commit else ErrorCode.INVALID_TXN_STATE
    refused = refusal(found, producer_id, producer_epoch)
    if refused is not None:
        return refused
    if state.is_decided:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if state is TransactionState.ONGOING:
        return None
    if bumps and not is_commit and (state is TransactionState.EMPTY or state.is_complete):
        return None  # the producer does not know whether a partition was added
    if is_commit and state is TransactionState.COMPLETE_COMMIT:
        return ErrorCode.INVALID_TXN_STATE if bumps else ErrorCode.NONE
    if not is_commit and state is TransactionState.COMPLETE_ABORT:
        return ErrorCode.NONE
    return ErrorCode.INVALID_TXN_STATE


def _is_repeated(found: Transaction, producer_id: int, producer_epoch: int) -> bool:
    """Whether an EndTxn request names the epoch that its first attempt has already ended."""
    if not found.state.is_complete or found.client_version < BUMPS_EPOCHS:
        return False
    if producer_id == found.producer_id:
        return producer_epoch == found.producer_epoch - 1
    return producer_id == found.previous_producer_id and producer_epoch == EPOCH_MAX - 1


def decided(
    found: Transaction,
    *,
    is_commit: bool,
    now_ms: int,
    bumps_epoch: bool,
    next_producer_id: int = NO_PRODUCER_ID,
    client_version: int | None = None,
) -> Transaction:
    """Returns the transaction with its decision.

    Args:
        found: The transaction as it is.
        is_commit: The decision.
        now_ms: The wall clock.
        bumps_epoch: Whether the markers get a new epoch, which fences everything that was sent before.
        next_producer_id: The producer's id afterwards, -1 for the same.
        client_version: The level of `transaction.version` of the request, None if the coordinator decides.
    """
    epoch = found.producer_epoch
    return replace(
        found,
        state=TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
        partitions=found.partitions if found.state is TransactionState.ONGOING else (),
        producer_epoch=min(epoch + 1, EPOCH_MAX) if bumps_epoch else epoch,
        last_producer_epoch=NO_EPOCH,
        next_producer_id=next_producer_id,
        changed_ms=now_ms,
        client_version=found.client_version if client_version is None else client_version,
    )


def completed(found: Transaction, now_ms: int) -> Transaction:
    """Returns a decided transaction after the last of its markers."""
    is_commit = found.state is TransactionState.PREPARE_COMMIT
    after = replace(
        found,
        state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        partitions=(),
        changed_ms=now_ms,
    )
    if found.next_producer_id == NO_PRODUCER_ID:
        return after
    return replace(
        after,
        producer_id=found.next_producer_id,
        producer_epoch=0,
        previous_producer_id=found.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )
