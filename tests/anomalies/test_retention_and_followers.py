"""Logs whose start moves, and reads from followers: what they permit, and what they must not hide."""

import pytest

from checkers.anomalies import ANOMALIES
from checkers.kernels.linearizability import Options, PartitionReport, check_tables
from checkers.kernels.lost_acked import final_log
from tests.anomalies.runs import Call, append, read
from tests.property.brute_force import ends_table, operations_table, records_table

APPENDS = [append(op, op, at=1 + 2 * op) for op in range(4)]
"""Values 0 to 3 at offsets 0 to 3, acknowledged by 8."""


def check(calls: list[Call], **options: object) -> PartitionReport:
    return check_tables(
        operations_table(calls),
        records_table(calls),
        ends_table(calls),
        Options(**options),  # type: ignore[arg-type]
    )


def ids(calls: list[Call], **options: object) -> set[str]:
    return {finding.id for finding in check(calls, **options).findings}


def late(op: int, at: int, position: int, *records: tuple[int, int]) -> Call:
    """Returns a poll whose first record need not be at its position."""
    return Call(
        op=op, kind="poll", process=9, inv=at, res=at + 1, position=position, records=records
    )


SKIPS_TWO = late(10, 20, 0, (2, 2), (3, 3))


def test_a_read_may_begin_at_the_log_start_of_its_time() -> None:
    calls = [*APPENDS, SKIPS_TWO]
    assert ids(calls) == {"lost-record"}
    assert ids(calls, log_starts=((15, 2),)) == set()
    assert ids(calls, log_starts=((21, 2),)) == set(), "the start moved while it was read"
    assert ids(calls, log_starts=((22, 2),)) == {"lost-record"}, "the start moved only later"
    assert ids(calls, log_starts=((15, 1),)) == {"lost-record"}, "record 1 was still there"
    skips_one = [*APPENDS, late(10, 20, 0, (1, 1), (2, 2), (3, 3))]
    assert ids(skips_one, log_starts=((22, 1),)) == {"lost-record"}, "the log began at 0 before"


def test_a_record_above_the_log_start_must_not_be_skipped() -> None:
    calls = [*APPENDS, late(10, 20, 0, (1, 1), (3, 3))]
    assert ids(calls, log_starts=((15, 1),)) == {"lost-record"}
    assert ids(calls, log_starts=((15, 3),)) == {"lost-record"}, "it returned record 1"


def test_deleted_records_still_bound_the_order_of_appends() -> None:
    calls = [append(0, 1, at=1), append(1, 0, at=5), append(2, 2, at=9)]
    for given in ({"log_starts": ((20, 3),)}, {"log_start_offset": 3}):
        assert "order-inversion" in ids(calls, **given)
        assert "two-acks-one-offset" in ids([*APPENDS, append(9, 0, at=3)], **given)


def test_a_log_start_never_moves_back() -> None:
    calls = [*APPENDS, SKIPS_TWO]
    assert ids(calls, log_starts=((10, 2), (12, 0))) == set()


def test_a_poll_without_a_known_position_stays_one() -> None:
    history = check([*APPENDS, late(10, 20, -1, (2, 2))], log_starts=((15, 2),)).history
    assert history.poll_position.tolist() == [-1]


@pytest.mark.parametrize("start", [0, 2])
def test_the_final_reads_have_to_cover_the_log_from_its_last_start_on(start: int) -> None:
    calls = [*APPENDS, Call(**{**_fields(SKIPS_TWO), "final": True, "end": 4})]
    history = check(calls, log_starts=((15, 2),)).history
    assert final_log(history, log_start_offset=start).is_complete is (start == 2)


def _fields(call: Call) -> dict[str, object]:
    return {name: getattr(call, name) for name in Call.__slots__}


# --- reads from followers ---


def follower_read(op: int, at: int, *values: int) -> Call:
    """Returns a poll of a follower, which reports its own high watermark as the end."""
    return read(op, at, *values, end=len(values))


def test_a_follower_that_lags_is_a_matter_of_freshness() -> None:
    calls = [
        *APPENDS,
        read(10, 20, 0, 1, 2, 3, end=4),
        follower_read(11, 30, 0, 1),
        follower_read(12, 40, 0),
    ]
    found = ids(calls)
    assert found == {"stale-end", "end-regression"}
    assert {ANOMALIES[identifier].level for identifier in found} == {"fresh"}


def test_a_follower_that_diverged_or_has_a_gap_is_not() -> None:
    other = append(7, None, at=1, outcome="info")
    assert "divergent-value" in ids([*APPENDS, other, follower_read(11, 30, 0, 7)])
    assert "lost-record" in ids([*APPENDS, late(11, 30, 0, (0, 0), (2, 2))])
