"""Whether the rows of a replica show what it did in an epoch, at the moments at which that begins to be true."""

import numpy as np
import pytest

from checkers.kernels.history import INF_NS
from checkers.kernels.replica_reports import Elected, Reports, reports_of
from tests.anomalies.runs import replica, table


def reports(*rows: tuple[int, int, bool], started: tuple[int, ...] = ()) -> Reports:
    """Each row with its time, its leader epoch, and whether the process had ended."""
    at_ns, epoch, is_down = zip(*rows, strict=True)
    return Reports(
        at_ns=np.array(at_ns),
        epoch=np.array(epoch),
        is_down=np.array(is_down),
        started_ns=np.array(started, dtype=np.int64),
    )


UP, DOWN = False, True


@pytest.mark.parametrize(
    ("rows", "started", "until_ns", "covers"),
    [
        # It heard of a later epoch, or reported its end, at whatever time.
        ([(10, 1, UP), (50, 2, UP)], (), 40, True),
        ([(10, 1, UP), (50, 1, UP)], (), 40, False),
        ([(10, 1, UP), (50, 1, DOWN)], (), 40, True),
        ([(10, 1, UP), (40, 1, DOWN)], (), 40, True),
        # It was down when the epoch ended, and no process of it had begun.
        ([(10, 1, UP), (30, 1, DOWN)], (), 40, True),
        ([(10, 1, UP), (30, 1, DOWN)], (30,), 40, True),
        ([(10, 1, UP), (30, 1, DOWN)], (31,), 40, False),
        ([(10, 1, UP), (30, 1, DOWN)], (39,), 40, False),
        ([(10, 1, UP), (30, 1, DOWN)], (40,), 40, True),
        ([(10, 1, UP), (39, 1, DOWN)], (), 40, True),
        # No epoch came later.
        ([(10, 1, UP)], (), INF_NS, True),
        ([(10, 0, UP)], (), INF_NS, False),
        ([(10, 2, UP)], (), INF_NS, True),
        ([(10, 0, DOWN)], (), INF_NS, True),
        ([(10, 0, DOWN)], (11,), INF_NS, False),
        # It led on after a restart, with what is not recorded.
        ([(10, 1, UP)], (10,), INF_NS, True),
        ([(10, 1, UP)], (11,), INF_NS, False),
    ],
)
def test_what_a_replica_did_in_its_epoch_is_recorded_until_it_ended_or_heard_of_another_one(
    rows: list[tuple[int, int, bool]], started: tuple[int, ...], until_ns: int, covers: bool
) -> None:
    elected = Elected(broker=1, at_ns=5, epoch=1, until_ns=until_ns, is_first=False)
    assert reports(*rows, started=started).cover(elected) is covers


@pytest.mark.parametrize(
    ("rows", "started", "last_epoch", "is_replica", "ends_ns"),
    [
        ([(10, 1, UP), (50, 2, UP)], (), 2, True, INF_NS),
        ([(10, 1, UP), (50, 2, UP)], (), 3, True, 50),
        ([(10, 3, UP), (50, 2, UP)], (), 3, True, INF_NS),
        ([(10, 1, UP), (50, 1, DOWN)], (), 3, True, INF_NS),
        ([(10, 1, UP), (50, 1, DOWN)], (50,), 3, True, INF_NS),
        ([(10, 1, UP), (50, 1, DOWN)], (51,), 3, True, 50),
        # A replica that was removed has no log when it is back.
        ([(10, 1, UP), (50, 1, DOWN)], (51,), 3, False, INF_NS),
    ],
)
def test_the_record_of_a_replica_ends_too_early_if_it_reports_neither_its_end_nor_the_last_epoch(
    rows: list[tuple[int, int, bool]],
    started: tuple[int, ...],
    last_epoch: int,
    is_replica: bool,
    ends_ns: int,
) -> None:
    found = reports(*rows, started=started).ends_ns(last_epoch, is_replica=is_replica)
    assert found == ends_ns


def test_reports_are_those_of_each_broker_in_order_of_time() -> None:
    rows = [replica(9, 2, 1, epoch=4), replica(7, 1, 1, epoch=3), replica(5, 2, 0, epoch=2)]
    rows.append(replica(12, 1, 1, epoch=3, role="offline", cause="down"))
    states = table("replica_states", rows)
    order = np.argsort(states.column("at_ns").to_numpy(), kind="stable")
    found = reports_of(states, order, {2: np.array([6])})
    assert sorted(found) == [1, 2]
    assert (found[2].at_ns.tolist(), found[2].epoch.tolist()) == ([5, 9], [2, 4])
    assert (found[1].at_ns.tolist(), found[1].is_down.tolist()) == ([7, 12], [UP, DOWN])
    assert (found[1].started_ns.tolist(), found[2].started_ns.tolist()) == ([], [6])


@pytest.mark.parametrize(
    ("epoch", "at_ns", "expected"),
    [(0, 11, True), (0, 10, False), (1, 11, False), (1, 31, True), (2, 99, False)],
)
def test_a_replica_has_left_an_epoch_when_it_reports_a_later_one(
    epoch: int, at_ns: int, expected: bool
) -> None:
    assert reports((10, 1, UP), (30, 2, DOWN)).had_left(epoch, at_ns) is expected


def test_a_log_has_not_been_readable_since_the_first_report_of_that() -> None:
    found = reports((1, 0, DOWN), (2, 0, DOWN), (3, 0, UP), (4, 0, UP), (5, 0, DOWN), (6, 0, UP))
    assert found.stopped_ns.tolist() == [1, 1, 1, 4, 5, 5]
