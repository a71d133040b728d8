"""Which batches of a fetch response a consumer returns: no markers, and nothing that was aborted.

A response to a consumer with isolation.level=read_committed ends at the last stable offset, and lists the aborted
transactions that it touches by producer id and first offset. A producer has one transaction at a time, so all its
transactional batches from that offset up to its next abort marker belong to the aborted transaction.

Source:
    KIP-98; Kafka's `CompletedFetch`.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from system_under_test.protocol.record_batch import BatchHeader, Record

Batch = tuple[BatchHeader, tuple[Record, ...]]

ABORT_MARKER = 0
_KEY = struct.Struct(">hh")
"""Key of a control record: version and type."""


def visible_batches(fetched: Sequence[Batch], aborted_transactions: Iterable[Any]) -> list[Batch]:
    """Returns the batches that a consumer may return.

    Args:
        fetched: Batches in the order of their offsets.
        aborted_transactions: What the response lists; none if the consumer reads uncommitted records.
    """
    if not any([header.attributes for header, _ in fetched]):
        return list(fetched)  # neither markers nor transactions, as most of the time
    waiting = sorted(
        ((one.first_offset, one.producer_id) for one in aborted_transactions), reverse=True
    )
    aborted: set[int] = set()
    visible = []
    for header, records in fetched:
        while waiting and waiting[-1][0] <= header.last_offset:
            aborted.add(waiting.pop()[1])
        if header.is_control:
            if is_abort_marker(records):
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            visible.append((header, records))
    return visible


def is_abort_marker(records: Sequence[Record]) -> bool:
    """Whether the records of a control batch are the marker of an aborted transaction."""
    key = records[0].key if records else None
    return key is not None and len(key) >= _KEY.size and _KEY.unpack_from(key)[1] == ABORT_MARKER
