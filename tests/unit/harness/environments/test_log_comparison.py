"""The comparison of two replicas' records: what may differ, and what may not."""

import pytest

from harness.environments.simulated.log_comparison import epochs_between, first_difference
from system_under_test.config import LogConfig
from system_under_test.log.log import Log
from system_under_test.protocol.batch_rewrite import readable_records, rewritten
from system_under_test.protocol.record_batch import encode_batch, header_at
from tests.memory_storage import MemoryStorage


def batch(
    base_offset: int, *, value: bytes = b"1", kept: int = 3, horizon_ms: int | None = None
) -> bytes:
    """Returns a batch of three records; with fewer `kept`, or a horizon, as the cleaner leaves it."""
    whole = encode_batch(
        [(b"a", value), (b"b", value), (b"c", value)],
        timestamp_ms=1,
        base_offset=base_offset,
        leader_epoch=1,
    )
    if kept == 3 and horizon_ms is None:
        return whole
    records = readable_records(whole)
    assert records is not None
    return rewritten(header_at(whole, 0), records[3 - kept :], horizon_ms=horizon_ms)


def log_of(*batches: bytes, cleanup_policy: str = "compact") -> Log:
    """Returns a log that was fetched batch by batch."""
    config = LogConfig(cleanup_policy=cleanup_policy)
    log = Log.load(MemoryStorage(), "data/t-0", config, had_clean_shutdown=True)
    for one in batches:
        log.append_as_follower(one)
    return log


WHOLE = (batch(0), batch(3), batch(6))


@pytest.mark.parametrize("compacted", [batch(3, kept=1), batch(3, kept=0), batch(3, horizon_ms=9)])
def test_compacted_batches_are_not_compared(compacted: bytes) -> None:
    one, other = log_of(*WHOLE), log_of(batch(0), compacted, batch(6))
    assert first_difference(one, other, 0, 9) is None
    assert first_difference(other, one, 0, 9) is None


@pytest.mark.parametrize("at", [0, 3, 6])
def test_whole_batches_of_compacted_logs_are_compared(at: int) -> None:
    changed = tuple(batch(base, value=b"2" if base == at else b"1") for base in (0, 3, 6))
    other = log_of(batch(0, kept=2) if at else changed[0], *changed[1:])
    assert first_difference(log_of(*WHOLE), other, 0, 9) == at


def test_a_batch_that_lacks_records_differs_in_a_log_that_is_not_compacted() -> None:
    one = log_of(*WHOLE, cleanup_policy="delete")
    other = log_of(*WHOLE[:2], batch(6, kept=1), cleanup_policy="delete")
    assert first_difference(one, other, 0, 9) == 0
    assert first_difference(one, other, 6, 9) == 6
    assert first_difference(one, other, 0, 6) is None


def test_replicas_that_begin_at_different_offsets_are_compared_where_both_have_records() -> None:
    def log_with(start: int) -> Log:
        log = Log.load(MemoryStorage(), "data/t-0", LogConfig(), had_clean_shutdown=False)
        log.epochs.assign_all([(1, 0), (2, 5), (4, 9)])
        log.epochs.truncate_from_start(start)
        return log

    whole, later = log_with(0), log_with(6)
    assert epochs_between(whole, 6, 20) == epochs_between(later, 6, 20) == ((2, 6), (4, 9))
    assert epochs_between(whole, 6, 9) == ((2, 6),)
    assert epochs_between(whole, 9, 20) == ((4, 9),)
    assert epochs_between(whole, 0, 6) == ((1, 0), (2, 5))
