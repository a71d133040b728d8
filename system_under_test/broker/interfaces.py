"""The protocols between the parts of a broker.

The replica manager (partitions, produce, fetch) and the parts around it (metadata cache, replica fetchers,
AlterPartition client) know each other only through these protocols, so that each can be tested alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from system_under_test.config import LogConfig
from system_under_test.metadata.image import PartitionRegistration
from system_under_test.protocol.errors import ErrorCode


class MetadataView(Protocol):
    """What partitions need of the broker's metadata cache. It may lag behind the controller arbitrarily."""

    def is_isr_eligible(self, broker_id: int) -> bool:
        """Whether the broker is registered, not fenced and not in controlled shutdown (ISR-5)."""
        ...

    def alive_broker_epoch(self, broker_id: int) -> int | None:
        """Returns the epoch of an unfenced broker, None when it is fenced or unknown."""
        ...

    def min_insync_replicas(self, topic: str) -> int:
        """Returns the topic's min.insync.replicas, not yet capped by the replication factor."""
        ...

    def log_config(self, topic: str) -> LogConfig:
        """Returns the settings of a topic's logs."""
        ...

    def configs_changed(self) -> bool:
        """Whether any setting changed since this was last called."""
        ...

    def topic_name(self, topic_id: UUID) -> str | None:
        """Returns the name of a topic, None when unknown."""
        ...

    def has_partition(self, topic: str, partition: int) -> bool:
        """Whether the cache knows the partition, hosted here or not."""
        ...


class FollowedPartition(Protocol):
    """What a replica fetcher needs of a partition in which this broker is a follower."""

    topic: str
    topic_id: UUID
    index: int
    leader_epoch: int

    def fetch_position(self) -> tuple[int, int, int]:
        """Returns (fetch offset, last fetched epoch or -1, log start offset) for the next fetch (FOLL-4)."""
        ...

    def append_as_follower(
        self, records: bytes, *, leader_epoch: int, high_watermark: int, log_start_offset: int
    ) -> None:
        """Appends a fetched, non-empty or empty, run of batches and takes the leader's HW (FF-2, HW-6).

        Ignored when the partition is no longer a follower in `leader_epoch`.

        Raises:
            CorruptBatchError: Nothing was appended; back off and fetch again.
            OutOfOrderOffsetError: The records do not begin at the log end.
            OSError: The disk failed.
        """
        ...

    def truncate_on_divergence(self, *, leader_epoch: int, epoch: int, end_offset: int) -> bool:
        """Applies TRUNC-1 to the diverging epoch `(epoch, end_offset)`; returns whether that was the last step."""
        ...

    def truncate_to(self, *, leader_epoch: int, offset: int) -> None:
        """Truncates to an offset (TRUNC-2: the leader's log ends before ours)."""
        ...

    def truncate_fully_and_start_at(self, *, leader_epoch: int, offset: int) -> None:
        """Drops the whole log and starts at an offset (TRUNC-2: the leader's log starts after ours)."""
        ...


class FetcherControl(Protocol):
    """What the replica manager needs of the replica fetchers."""

    def follow(self, partition: FollowedPartition, leader_id: int, leader_epoch: int) -> None:
        """Starts fetching a partition from a leader; replaces an earlier fetch of it (FOLL-2)."""
        ...

    def forget(self, topic: str, index: int) -> None:
        """Stops fetching a partition; a response in flight for it will be ignored. Idempotent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """One proposed ISR change (AP-1).

    Attributes:
        isr_with_epochs: (broker id, broker epoch or -1) of every proposed member.
    """

    topic: str
    topic_id: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr_with_epochs: tuple[tuple[int, int], ...]
    leader_recovery_state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrResponse:
    """The controller's partition-level response to an `IsrProposal`; fields count only when error is NONE."""

    error: ErrorCode
    leader_id: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = -1


class AlterPartitionControl(Protocol):
    """What partitions need of the AlterPartition client (AP-2, AP-3)."""

    def submit(self, proposal: IsrProposal, on_response: Callable[[IsrResponse], None]) -> bool:
        """Queues a proposal; False when one is already queued or in flight for the partition.

        `on_response` is called once per attempt with a partition-level response. Connection loss, top-level
        errors and NOT_CONTROLLER are retried inside and never reach it.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPartitionsDelta:
    """What one publish changes on this broker; partitions that it does not host are left out.

    Attributes:
        deletes: (topic, index, topic_was_deleted) this broker hosted and no longer does.
        leaders: New registrations that name this broker leader and whose partition epoch changed.
        followers: New registrations in which this broker is a replica but not leader, likewise.
    """

    deletes: tuple[tuple[str, int, bool], ...] = ()
    leaders: tuple[PartitionRegistration, ...] = ()
    followers: tuple[PartitionRegistration, ...] = ()
