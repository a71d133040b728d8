"""Batches whose structure and checksums were verified, once, where they entered the node."""

from dataclasses import dataclass

from system_under_test.protocol.record_batch import (
    BatchSpan,
    CorruptBatchError,
    spans,
    stamp,
    stamp_in_place,
)


@dataclass(frozen=True, slots=True)
class VerifiedBatches:
    """One or more whole, intact batches that a leader may append. Made by `verify` only.

    Attributes:
        data: The batches, one after another.
        spans: One per batch, in the same order.
    """

    data: bytes
    spans: tuple[BatchSpan, ...]

    @classmethod
    def verify(cls, data: bytes) -> "VerifiedBatches":
        """Verifies that bytes are nothing but whole batches with the right counts and checksums.

        Raises:
            CorruptBatchError: They are not, or there is no batch.
        """
        found = spans(data, verify_crc=True)
        if not found:
            raise CorruptBatchError("there is no batch to append")
        for span in found:
            # Only a cleaner removes records.
            if span.record_count != span.offset_count:
                raise CorruptBatchError(
                    f"batch at byte {span.position}: {span.record_count} records in "
                    f"{span.offset_count} offsets"
                )
        return cls(data, tuple(found))

    def stamped(self, base_offset: int, leader_epoch: int) -> bytes:
        """Returns the batches with their offsets from `base_offset` on, and a leader epoch."""
        if len(self.spans) == 1:
            return stamp(self.data, base_offset=base_offset, leader_epoch=leader_epoch)
        buffer = bytearray(self.data)
        for span in self.spans:
            stamp_in_place(buffer, span, base_offset=base_offset, leader_epoch=leader_epoch)
            base_offset += span.record_count
        return bytes(buffer)
