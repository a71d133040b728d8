"""The client through which a workload's process uses the log: one operation at a time; no operation ever raises.

A client decides how an operation ended, and that decision is the most delicate of the whole harness: `fail`
means that the operation certainly did not happen, `info` that it may have happened or may still happen. A
client that calls an indeterminate append a failure makes the checkers report phantoms; one that calls it a
success makes them report losses.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from harness.contracts.host import ClientHost
from harness.history.op import Completion

OFFSET_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
"""The `error` of a poll whose position is not in the log; the workload then starts again at another position."""


class FetchedRecord(Protocol):
    """A record as it was read."""

    @property
    def offset(self) -> int:
        """Its offset in the partition."""
        ...

    @property
    def key(self) -> bytes | None:
        """Its key."""
        ...

    @property
    def value(self) -> bytes | None:
        """Its value."""
        ...


@dataclass(frozen=True, slots=True)
class PlainRecord:
    """A `FetchedRecord` and nothing else, for clients whose library has no such object."""

    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedBatch:
    """Records of one leader epoch, in the order of their offsets.

    Attributes:
        leader_epoch: Epoch stamped on them; -1 where the log has none.
    """

    leader_epoch: int
    records: tuple[FetchedRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PollResult:
    """A poll's completion and the records it returned."""

    completion: Completion
    batches: tuple[FetchedBatch, ...] = ()


class LogClient(Protocol):
    """A client of a replicated log."""

    async def append(
        self, topic: str, partition: int, key: bytes, value: bytes, acks: int
    ) -> Completion:
        """Appends one record; `acks` is 0, 1 or -1 (all), as in Kafka."""
        ...

    async def poll(
        self, topic: str, partition: int, position: int, *, max_bytes: int, max_wait_ms: int
    ) -> PollResult:
        """Reads once from a position. It has no effect, so a poll that failed for any reason is `fail`."""
        ...

    async def latest(self, topic: str, partition: int) -> Completion:
        """Returns the log end in the completion's `offset`."""
        ...

    def close(self) -> None:
        """Closes connections and all other resources of the client."""
        ...


KeepGoing = Callable[[], bool]
"""Whether a process should begin another operation."""

Delivered = Callable[[int, Completion], None]
"""Takes the place of a batch in its operation, and how its append ended; `offset` is that of its first record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How a producer sends; the names are those of Kafka's producer.

    Attributes:
        enable_idempotence: Whether batches with acks=all have sequence numbers and are sent again.
        retries: How often a batch is sent again at most; without idempotence it never is, because that could
            append it twice.
        delivery_timeout_ms: After which it is not sent again.
        retry_backoff_ms: How long to wait before the first repetition; then twice as long, and so on.
        retry_backoff_max_ms: The longest wait.
    """

    enable_idempotence: bool = False
    retries: int = 2**31 - 1
    delivery_timeout_ms: int = 120_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducedBatch:
    """Records that are appended together or not at all.

    Attributes:
        topic, partition: Where.
        records: Keys and values.
    """

    topic: str
    partition: int
    records: tuple[tuple[bytes, bytes], ...]

    def offsets_from(self, first: int | None) -> dict[int, int | None]:
        """Returns the offset of each record, by its place, when the first one is at `first`; None if unknown."""
        places = range(len(self.records))
        return {place: None if first is None else first + place for place in places}


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAnswer:
    """The response to a question about offsets.

    Attributes:
        completion: How it ended, ok or fail, because a question has no effect; if ok, with the offset, -1 for
            none, and the leader epoch in which it was served.
        found: Timestamp of the record at that offset in ms, or the leader epoch that it ends; -1 for none.
    """

    completion: Completion
    found: int = -1


@runtime_checkable
class FindsOffsets(Protocol):
    """A client that can ask for offsets; its polls return records with `timestamp_ms`."""

    async def offset_of_timestamp(
        self, topic: str, partition: int, timestamp_ms: int
    ) -> OffsetAnswer:
        """Returns the first offset whose record has at least this timestamp (ListOffsets)."""
        ...

    async def end_of_epoch(self, topic: str, partition: int, leader_epoch: int) -> OffsetAnswer:
        """Returns the end of the largest leader epoch up to this one (OffsetForLeaderEpoch, KIP-320)."""
        ...


class Producer(Protocol):
    """Appends batches of records; it never raises."""

    async def produce(
        self,
        batches: Sequence[ProducedBatch],
        acks: int,
        delivered: Delivered,
        keep_going: KeepGoing,
    ) -> None:
        """Appends batches, at most one per partition, and returns when the outcome of all is known.

        Args:
            batches: What to append.
            acks: 0, 1 or -1 (all).
            delivered: Called once for each batch, as soon as its outcome is known.
            keep_going: Whether to send a batch again that failed.
        """
        ...


@runtime_checkable
class ReadsFollowers(Protocol):
    """A client that can read from followers."""

    async def poll_follower(
        self,
        topic: str,
        partition: int,
        position: int,
        *,
        max_bytes: int,
        max_wait_ms: int,
        choice: float,
    ) -> PollResult:
        """Reads once from a position, from a follower that `choice` (from 0 to below 1) selects."""
        ...


@runtime_checkable
class MakesProducers(Protocol):
    """A client that can do more than append one record at a time."""

    def producer(self, settings: ProducerSettings) -> Producer:
        """Makes a producer; it ends with the client."""
        ...


class MakeClient(Protocol):
    """Makes a client."""

    def __call__(
        self,
        host: ClientHost,
        bootstrap: tuple[str, ...],
        *,
        request_timeout_ms: int,
        connect_timeout_ms: int,
    ) -> LogClient:
        """Returns a client that runs on a host.

        Args:
            host: Its host.
            bootstrap: Addresses of nodes to begin with.
            request_timeout_ms: After which a request counts as lost.
            connect_timeout_ms: After which a connection attempt is given up.

        Raises:
            UsageError: The client cannot be used here, for example because its library is not installed.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientType:
    """A kind of client; the entry points of the group `laststand.clients` name values of this type.

    Attributes:
        name: As in `[workload] client`.
        make: Makes one.
        runs_in_simulation: Whether it uses only its host. A client with its own sockets or threads does not.
        versions: Returns the versions of the programs that the client is made of, by name, for the run's record;
            raises `UsageError` if the client cannot be used on this machine. None if it is made of nothing else.
    """

    name: str
    make: MakeClient
    runs_in_simulation: bool = False
    versions: Callable[[], Mapping[str, str]] | None = None
