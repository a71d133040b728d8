"""What the clocks of a node showed, as time of the run."""

from collections.abc import Sequence

import pytest

from harness.environments.observation.node_clock import ObservedClock

MS = 1_000_000


def clock(readings: Sequence[tuple[int, int]]) -> ObservedClock:
    return ObservedClock(
        of_monotonic=lambda at_ns: at_ns - 5,
        readings=[(at_ms * MS, wall_ms) for at_ms, wall_ms in readings],
        wall_at_start_ms=1_000_000,
    )


def test_the_monotonic_clock_is_that_of_the_machine() -> None:
    assert clock([]).of_monotonic(12) == 7


def test_a_node_that_reported_nothing_has_the_wall_clock_of_this_machine() -> None:
    assert clock([]).of_wall(1_000_250, 0) == 250 * MS


def test_a_correct_clock() -> None:
    found = clock([(100, 5_100), (200, 5_200), (300, 5_300)])
    assert found.of_wall(5_150, 0) == 150 * MS
    assert found.of_wall(5_050, 0) == 50 * MS  # before the first report
    assert found.of_wall(5_900, 0) == 900 * MS  # after the last one


def test_a_clock_that_was_moved_ahead() -> None:
    found = clock([(100, 5_100), (200, 65_200), (300, 65_300)])
    assert found.of_wall(65_250, 100 * MS) == 250 * MS


def test_a_clock_that_was_moved_back_shows_the_same_time_twice() -> None:
    found = clock([(1000, 6_000), (1100, 6_100), (1200, 5_200), (2050, 6_050), (2150, 6_150)])
    assert found.of_wall(6_050, 0) == 1050 * MS
    assert found.of_wall(6_060, 2000 * MS) == 2060 * MS


@pytest.mark.parametrize("rate", [0.9, 1.1])
def test_a_clock_of_another_speed(rate: float) -> None:
    found = clock([(at, int(at * rate)) for at in range(0, 2000, 100)])
    for at in range(100, 1900, 37):
        assert found.of_wall(int(at * rate), 0) == pytest.approx(at * MS, abs=15 * MS)
