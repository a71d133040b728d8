"""High watermarks of one leader in one epoch, as clients and its own states show them."""

import numpy as np
import pytest

from checkers.kernels.replicas import LeaderStates, seen_regressions
from tests.anomalies.runs import replica, run, table
from tests.anomalies.test_replica_anomalies import latest


@pytest.mark.parametrize(
    ("begun_ns", "error_ns", "gaps"),
    [(21, 0, []), (22, 0, [1]), (23, 0, [2]), (23, 1, [1]), (22, 1, []), (23, 2, [])],
)
def test_a_smaller_log_end_counts_if_it_was_asked_for_after_the_larger_one_was_received(
    begun_ns: int, error_ns: int, gaps: list[int]
) -> None:
    """Operation 10 received the larger one at 21."""
    tables = run([latest(10, 20, 2), latest(11, begun_ns, 1)])
    ends = [row | {"leader_epoch": 0} for row in tables["end_offsets_seen"].to_pylist()]
    more = {"clock_error_ns": error_ns} if error_ns else {}
    found = seen_regressions(tables["operations"], table("end_offsets_seen", ends), {}, **more)
    assert [each.gap_ns for each in found] == gaps
    assert all((each.first, each.second) == (10, 11) for each in found)


@pytest.mark.parametrize(
    ("registered_ns", "error_ns", "count"),
    [(99, 0, 1), (98, 0, 0), (99, 1, 0), (100, 1, 1), (51, 0, 0), (50, 0, 1), (50, 1, 0)],
)
def test_a_state_at_the_moment_of_a_registration_is_of_the_new_life(
    registered_ns: int, error_ns: int, count: int
) -> None:
    """The larger high watermark was seen at 50, the smaller one at 98."""
    more = {"clock_error_ns": error_ns} if error_ns else {}
    states = LeaderStates({1: np.array([0, registered_ns])}, **more)
    rows = [replica(at, 1, 2, hw=hw, epoch=3, role="leader") for at, hw in ((50, 2), (98, 1))]
    states.follow(table("replica_states", rows))
    assert [(each.before, each.after) for each in states.lowered] == [(2, 1)] * count
