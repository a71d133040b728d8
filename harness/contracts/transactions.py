"""What a client needs for transactions (KIP-98): producers with a transactional id, reads with an isolation level.

No operation ever raises. The completion of a commit is `ok` if the transaction certainly committed, `fail` if it
certainly did not and has to be aborted, and `info` if that is not known. After anything but `ok` or a `fail` of a
send, a producer is of no use any more: its user closes it and initialises another one with the same id.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from harness.contracts.client import LogClient, ProducedBatch
from harness.history.op import Completion

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"

Key = tuple[str, int]
"""A topic and a partition."""

Offsets = Mapping[int, int | None]
"""Those of the acknowledged records of a batch, by place in the batch; None where the broker did not know it."""

RecordsDelivered = Callable[[int, Offsets], None]
"""Takes the place of a batch in its operation, and the offsets of what was acknowledged of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """How a transactional producer works; the names are those of Kafka's producer.

    Attributes:
        transactional_id: The producer that initialises it last fences all others.
        transaction_timeout_ms: After which the coordinator aborts a transaction that has not ended.
        delivery_timeout_ms: How long a producer repeats a request that failed for a reason that may pass.
    """

    transactional_id: str
    transaction_timeout_ms: int
    delivery_timeout_ms: int


class TransactionalProducer(Protocol):
    """A producer with a transactional id; one operation at a time. Mutable: its transaction."""

    async def initialise(self) -> Completion:
        """Takes the transactional id over, after the transaction of its last producer has ended."""
        ...

    async def begin(self) -> Completion:
        """Begins a transaction; nothing is sent yet."""
        ...

    async def send(
        self, batches: Sequence[ProducedBatch], delivered: RecordsDelivered
    ) -> Completion:
        """Sends batches, at most one per partition, and waits for their acknowledgements.

        Args:
            batches: What to send.
            delivered: Called once for each batch of which something was acknowledged.
        """
        ...

    async def send_offsets(self, group: str, positions: Mapping[Key, int]) -> Completion:
        """Makes positions of a consumer group part of the transaction."""
        ...

    async def commit(self) -> Completion:
        """Commits the transaction; see the module."""
        ...

    async def abort(self) -> Completion:
        """Aborts the transaction."""
        ...

    def close(self) -> None:
        """Ends the producer without ending its transaction, as a process that dies does."""
        ...


@runtime_checkable
class MakesTransactions(Protocol):
    """A client that knows transactions."""

    def transactional_producer(self, settings: TransactionSettings) -> TransactionalProducer:
        """Makes a producer."""
        ...

    def isolated(self, isolation: str) -> LogClient:
        """Makes a client whose reads and log ends have an isolation level.

        With `READ_COMMITTED` a poll that returns no record reports the last stable offset as the log end.
        """
        ...

    async def committed(self, group: str, keys: Sequence[Key]) -> dict[Key, int] | None:
        """Returns the committed positions of a group that no open transaction may change; None if unavailable.

        Returns:
            Positions by partition; partitions without one are left out.
        """
        ...
