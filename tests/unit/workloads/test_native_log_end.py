"""The log end that the native client claims for a fetch."""

from types import SimpleNamespace
from typing import Any

import pytest

from harness.contracts.client import FetchedBatch
from workloads.clients.native import NativeClient


def client(**host: bool) -> NativeClient:
    some_host: Any = SimpleNamespace(name="client-0", **host)
    return NativeClient(some_host, (), request_timeout_ms=1, connect_timeout_ms=1)


def batches(*offsets: int) -> tuple[FetchedBatch, ...]:
    records: Any = tuple(SimpleNamespace(offset=offset) for offset in offsets)
    return (FetchedBatch(leader_epoch=0, records=records),)


@pytest.mark.parametrize(
    ("end", "offsets", "claimed"), [(5, (3, 4), 5), (5, (4, 5), None), (5, (), 5)]
)
def test_an_end_that_was_read_before_the_records_is_claimed_only_if_it_is_beyond_them(
    end: int, offsets: tuple[int, ...], claimed: int | None
) -> None:
    kafka = client(reads_end_before_records=True)
    assert kafka._end_of(end, batches(*offsets)) == claimed
    # A broker that takes both at one moment has to answer for a record beyond its end.
    assert client()._end_of(end, batches(*offsets)) == end
