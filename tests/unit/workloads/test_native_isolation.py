"""The native client returns no markers, and with read_committed nothing that was aborted."""

import struct
from dataclasses import dataclass

from system_under_test.protocol.record_batch import decode_records, encode_batch
from workloads.clients.native_isolation import visible_batches


@dataclass(frozen=True)
class Aborted:
    """As in a fetch response."""

    producer_id: int
    first_offset: int


def data(offset: int, producer_id: int, *, transactional: bool = True) -> bytes:
    return encode_batch(
        [(b"k", b"v")],
        timestamp_ms=1,
        base_offset=offset,
        is_transactional=transactional,
        producer_id=producer_id,
    )


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    return encode_batch(
        [(struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 1))],
        timestamp_ms=1,
        base_offset=offset,
        is_control=True,
        is_transactional=True,
        producer_id=producer_id,
    )


def offsets(batches: list[bytes], *aborted: Aborted) -> list[int]:
    return [
        record.offset
        for _, records in visible_batches(decode_records(b"".join(batches)), aborted)
        for record in records
    ]


LOG = [
    data(0, 7),
    data(1, 8),
    marker(2, 7, commit=False),
    data(3, 7),
    data(4, 7, transactional=False),
    marker(5, 8, commit=True),
    marker(6, 7, commit=True),
]


def test_a_reader_of_uncommitted_records_gets_all_but_markers() -> None:
    assert offsets(LOG) == [0, 1, 3, 4]


def test_an_aborted_transaction_ends_with_its_marker() -> None:
    assert offsets(LOG, Aborted(7, 0)) == [1, 3, 4]


def test_the_marker_of_another_producer_ends_nothing() -> None:
    assert offsets(LOG, Aborted(8, 1)) == [0, 3, 4]


def test_a_later_transaction_of_the_same_producer_may_be_aborted_too() -> None:
    assert offsets(LOG, Aborted(7, 3), Aborted(7, 0)) == [1, 4]


def test_a_batch_without_a_transaction_stays_visible() -> None:
    assert offsets([data(0, 7), data(1, 7, transactional=False)], Aborted(7, 0)) == [1]
