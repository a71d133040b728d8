"""The real clock, and the file that skews it."""

import asyncio
import time
from pathlib import Path

import pytest

from system_under_test.real.clock import RealClock, SkewedLoop, write_skew

HOUR_NS = 3_600_000_000_000
PPB = 1_000_000_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "skew"


def off_by_ms(clock: RealClock) -> float:
    return clock.wall_ms() - time.time_ns() / 1e6


def is_off_by(clock: RealClock, wanted_ms: float) -> bool:
    """Whether the clock is as expected, read between two readings of the machine's clock."""
    before_ms = time.time_ns() / 1e6
    said_ms = clock.wall_ms()
    after_ms = time.time_ns() / 1e6
    return before_ms + wanted_ms - 2 <= said_ms <= after_ms + wanted_ms + 2


def test_without_a_file_the_clock_is_correct() -> None:
    clock = RealClock()
    assert is_off_by(clock, 0)
    before_ns = time.monotonic_ns()
    assert before_ns <= clock.monotonic_ns() <= time.monotonic_ns()


def test_a_step_moves_the_wall_clock_and_nothing_else(file: Path) -> None:
    clock = RealClock(file)
    before_ns = time.monotonic_ns()
    write_skew(file, offset_ns=-HOUR_NS)
    assert is_off_by(clock, -3_600_000)
    assert before_ns <= clock.monotonic_ns() <= time.monotonic_ns()
    write_skew(file)
    assert is_off_by(clock, 0)


def test_a_rate_makes_both_clocks_run_faster_and_the_monotonic_one_never_steps(file: Path) -> None:
    clock = RealClock(file)
    readings = [clock.monotonic_ns()]
    write_skew(file, rate_ppb=PPB)  # twice as fast
    readings.append(clock.monotonic_ns())
    began_ns, own_ns, wall_ms = time.monotonic_ns(), clock.monotonic_ns(), off_by_ms(clock)
    time.sleep(1)
    elapsed_ns = time.monotonic_ns() - began_ns
    assert clock.monotonic_ns() - own_ns == pytest.approx(2 * elapsed_ns, rel=0.2)
    assert off_by_ms(clock) - wall_ms == pytest.approx(elapsed_ns / 1e6, rel=0.2)
    write_skew(file, rate_ppb=-PPB)  # stopped
    stopped_ns = clock.monotonic_ns()
    time.sleep(0.05)
    readings += [stopped_ns, clock.monotonic_ns()]
    assert readings[-1] == readings[-2]
    write_skew(file)
    readings.append(clock.monotonic_ns())
    assert readings == sorted(readings)


def test_a_rate_below_a_stop_does_not_turn_the_clock_back(file: Path) -> None:
    clock = RealClock(file)
    write_skew(file, rate_ppb=-5 * PPB)
    first_ns = clock.monotonic_ns()
    time.sleep(0.02)
    assert clock.monotonic_ns() >= first_ns


def test_timers_follow_the_skewed_clock(file: Path) -> None:
    clock = RealClock(file)
    loop = SkewedLoop(clock)
    try:
        write_skew(file, rate_ppb=3 * PPB)
        began = time.monotonic()
        loop.run_until_complete(asyncio.sleep(8))
        assert (
            1.9 < time.monotonic() - began < 6
        )  # 2 s, four times as fast; 8 s by the machine's clock
    finally:
        loop.close()
