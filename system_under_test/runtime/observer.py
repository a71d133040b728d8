"""The observer door: what a node says about itself, for oracles, reports and tests.

Nothing a node does may depend on an observer, and an observer never calls back into the node. On a real
machine the events go to the structured log; in the simulation the harness keeps them.
"""

from typing import Any, Protocol


class Observer(Protocol):
    """Listens to one node."""

    def mark(self, name: str, **details: Any) -> None:
        """A rare branch was taken, for example "elected-from-elr". Names are kebab-case."""
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
        """A replica's log end or high watermark moved, or its role changed.

        Args:
            topic: Topic name.
            partition: Partition index.
            log_end_offset: After the change.
            high_watermark: After the change.
            log_start_offset: After the change.
            leader_epoch: The epoch the replica is in.
            role: "leader", "follower" or "offline".
            cause: "load", "append", "replicate", "truncate", "high-watermark", "role".
        """
        ...

    def log_cut(
        self, topic: str, partition: int, end_offset: int, size_bytes: int, reason: str
    ) -> None:
        """Something was cut off a log while it was loaded.

        Args:
            topic: Topic name, that of the metadata log too.
            partition: Partition index.
            end_offset: Where the log ends now.
            size_bytes: How much was cut off.
            reason: What was wrong with it, for people.
        """
        ...

    def metadata_committed(self, offset: int, quorum_epoch: int, record: Any) -> None:
        """A controller learnt that a metadata record is committed. Every controller says so for itself."""
        ...


class SilentObserver:
    """An observer that ignores everything; the default outside of the harness."""

    def mark(self, name: str, **details: Any) -> None:
        """Ignores the mark."""

    def replica_changed(self, topic: str, partition: int, **state: Any) -> None:
        """Ignores the change."""

    def log_cut(self, topic: str, partition: int, *details: Any) -> None:
        """Ignores the cut."""

    def metadata_committed(self, offset: int, quorum_epoch: int, record: Any) -> None:
        """Ignores the record."""
