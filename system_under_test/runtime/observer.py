"""The observer interface: what a node reports about itself, for monitors, reports and tests.

A node's behaviour must not depend on an observer, and an observer never calls the node. On a real machine the
events go to the structured log; in the simulation the harness keeps them.
"""

from typing import Any, Protocol


class Observer(Protocol):
    """Receives the events of one node."""

    def mark(self, name: str, **details: Any) -> None:
        """Reports that a rare branch was taken, for example "elected-from-elr". Names are kebab-case."""
        ...

    def replica_changed(
        self,
        topic: str,
        partition: int,
        *,
        log_end_offset: int,
        high_watermark: int,
        log_start_offset: int,
        leader_epoch: int,
        role: str,
        cause: str,
    ) -> None:
        """Reports that a replica's log end or high watermark moved, or that its role changed.

        Args:
            topic: Topic name.
            partition: Partition index.
            log_end_offset: After the change.
            high_watermark: After the change.
            log_start_offset: After the change.
            leader_epoch: The replica's leader epoch.
            role: "leader", "follower" or "offline".
            cause: "load", "append", "replicate", "truncate", "high-watermark", "role".
        """
        ...

    def leader_isr_changed(self, topic: str, partition: int) -> None:
        """Reports that what a leader knows of its ISR may have changed, or its min ISR."""
        ...

    def records_served(
        self, topic: str, partition: int, offset: int, records: bytes, to_follower: bool
    ) -> None:
        """Reports the records of a partition in a response to a fetch.

        Args:
            topic: Topic name.
            partition: Partition index.
            offset: The offset from which was fetched.
            records: Whole batches, at least one.
            to_follower: Whether a follower fetched, as opposed to a consumer.
        """
        ...

    def log_cut(
        self, topic: str, partition: int, end_offset: int, size_bytes: int, reason: str
    ) -> None:
        """Reports that the end of a log was cut off while it was loaded.

        Args:
            topic: Topic name; also the name of the metadata log.
            partition: Partition index.
            end_offset: New end of the log.
            size_bytes: Number of bytes that were cut off.
            reason: Description of the damage.
        """
        ...

    def metadata_committed(self, offset: int, quorum_epoch: int, record: Any) -> None:
        """Reports that this controller learnt that a metadata record is committed."""
        ...


class SilentObserver:
    """Ignores all events; the default outside the harness."""

    def mark(self, name: str, **details: Any) -> None:
        """Ignores the mark."""

    def replica_changed(self, topic: str, partition: int, **state: Any) -> None:
        """Ignores the change."""

    def leader_isr_changed(self, topic: str, partition: int) -> None:
        """Ignores the change."""

    def records_served(self, topic: str, partition: int, *served: Any) -> None:
        """Ignores the response."""

    def log_cut(self, topic: str, partition: int, *details: Any) -> None:
        """Ignores the cut."""

    def metadata_committed(self, offset: int, quorum_epoch: int, record: Any) -> None:
        """Ignores the record."""
