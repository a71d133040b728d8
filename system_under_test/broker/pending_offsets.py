"""Offsets that transactions have written to a partition of `__consumer_offsets` and not decided yet (TXN-13).

Source:
    KIP-98, KIP-447; Kafka's `OffsetMetadataManager`.
"""

from collections.abc import Mapping

from system_under_test.group.records import CommittedOffset, OffsetKey


class PendingOffsets:
    """The pending offsets of one partition, by producer id. Mutable."""

    def __init__(self) -> None:
        self._of_producer: dict[int, dict[OffsetKey, CommittedOffset]] = {}

    def add(self, producer_id: int, offsets: Mapping[OffsetKey, CommittedOffset]) -> None:
        """Enters the offsets of a producer's transaction."""
        self._of_producer.setdefault(producer_id, {}).update(offsets)

    def take(self, producer_id: int) -> dict[OffsetKey, CommittedOffset]:
        """Removes and returns the offsets of a producer's transaction, which has ended."""
        return self._of_producer.pop(producer_id, {})

    def discard(self, key: OffsetKey) -> None:
        """Forgets an offset that a later commit without a transaction replaces."""
        for offsets in self._of_producer.values():
            offsets.pop(key, None)

    def has(self, key: OffsetKey) -> bool:
        """Whether a transaction has written an offset and is not decided."""
        return any(key in offsets for offsets in self._of_producer.values())
