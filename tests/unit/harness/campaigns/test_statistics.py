from itertools import product
from math import comb, factorial, sqrt
from random import Random

import pytest

from harness.campaigns.statistics import (
    Z_95,
    holm_adjusted,
    mcnemar_exact_p,
    median,
    paired_difference_interval,
    wilson_interval,
)


def test_the_median_is_the_middle_value_or_between_the_two_middle_ones() -> None:
    assert median([5.0, 1.0, 9.0]) == 5.0
    assert median([4.0, 1.0, 2.0, 9.0]) == 3.0
    assert median([7.0]) == 7.0
    assert median([]) is None


def test_mcnemar_is_the_binomial_test_of_the_discordant_pairs() -> None:
    assert mcnemar_exact_p(1, 9) == 2 * (1 + 10) / 1024
    assert mcnemar_exact_p(9, 1) == mcnemar_exact_p(1, 9)
    assert mcnemar_exact_p(10, 0) == 2 / 1024
    assert mcnemar_exact_p(20, 0) < 0.001


def test_mcnemar_never_exceeds_one_and_is_one_without_discordant_pairs() -> None:
    assert mcnemar_exact_p(0, 0) == 1.0
    assert mcnemar_exact_p(3, 3) == 1.0
    assert mcnemar_exact_p(1, 0) == 1.0


@pytest.mark.parametrize(("events", "runs"), [(1, 200), (5, 10), (3, 7), (199, 200)])
def test_wilson_limits_are_the_rates_that_the_score_test_just_accepts(
    events: int, runs: int
) -> None:
    for limit in wilson_interval(events, runs):
        score = (events / runs - limit) / sqrt(limit * (1 - limit) / runs)
        assert abs(score) == pytest.approx(1.959964, abs=1e-6)


def test_wilson_intervals_are_never_empty_at_the_ends() -> None:
    z2 = 1.959964**2
    assert wilson_interval(0, 10) == pytest.approx((0.0, z2 / (10 + z2)), abs=1e-6)
    assert wilson_interval(10, 10) == pytest.approx((10 / (10 + z2), 1.0), abs=1e-6)
    assert wilson_interval(0, 10)[0] == 0.0
    assert wilson_interval(10, 10)[1] == 1.0


def test_without_runs_every_rate_is_possible() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert paired_difference_interval(0, 0, 0, 0) == (-1.0, 1.0)


def test_the_paired_interval_is_mirrored_when_arms_are_swapped_and_contains_the_difference() -> (
    None
):
    for both, first, second, neither in product((0, 1, 5), repeat=4):
        runs = both + first + second + neither
        if not runs:
            continue
        low, high = paired_difference_interval(both, first, second, neither)
        other = paired_difference_interval(both, second, first, neither)
        assert (-other[1], -other[0]) == pytest.approx((low, high))
        assert -1.0 <= low <= (first - second) / runs + 1e-12
        assert (first - second) / runs - 1e-12 <= high <= 1.0


def test_the_paired_interval_has_about_its_nominal_coverage() -> None:
    """Every outcome of 24 pairs is enumerated, for arms that agree often, rarely and differ."""
    runs = 24
    for shares in ((0.2, 0.2, 0.05, 0.55), (0.05, 0.3, 0.3, 0.35), (0.4, 0.05, 0.05, 0.5)):
        truth = shares[1] - shares[2]
        covered = 0.0
        for both, first, second in product(range(runs + 1), repeat=3):
            neither = runs - both - first - second
            if neither < 0:
                continue
            low, high = paired_difference_interval(both, first, second, neither)
            if low <= truth <= high:
                covered += _chance((both, first, second, neither), shares)
        assert 0.93 < covered <= 1.0


def test_correlated_arms_narrow_the_interval() -> None:
    alike = paired_difference_interval(20, 2, 0, 20)
    unlike = paired_difference_interval(10, 12, 10, 10)
    assert alike[1] - alike[0] < unlike[1] - unlike[0]


def _chance(counts: tuple[int, ...], shares: tuple[float, ...]) -> float:
    ways = factorial(sum(counts))
    chance = 1.0
    for count, share in zip(counts, shares, strict=True):
        ways //= factorial(count)
        chance *= share**count
    assert ways >= comb(sum(counts), counts[0])
    return ways * chance


def test_holms_method_keeps_the_order_and_never_exceeds_one() -> None:
    assert holm_adjusted([]) == []
    assert holm_adjusted([0.04]) == [0.04]
    assert holm_adjusted([0.04, 0.01, 0.03]) == [0.06, 0.03, 0.06]
    assert holm_adjusted([0.9, 0.8]) == [1.0, 1.0]


def test_mcnemar_is_scipys_exact_binomial_test() -> None:
    stats = pytest.importorskip("scipy.stats")
    splits = [*product(range(12), repeat=2), (0, 200), (37, 61), (3, 997), (500, 501)]
    for first, second in splits:
        if first + second:
            expected = stats.binomtest(first, first + second, 0.5).pvalue
            assert mcnemar_exact_p(first, second) == pytest.approx(expected, rel=1e-9)


def test_wilson_intervals_are_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    assert pytest.approx(stats.norm.ppf(0.975), rel=1e-12) == Z_95
    counts = [(events, runs) for runs in range(1, 26) for events in range(runs + 1)]
    for events, runs in [*counts, (0, 100_000), (3, 100_000), (99_999, 100_000)]:
        expected = stats.binomtest(events, runs).proportion_ci(0.95, method="wilson")
        assert wilson_interval(events, runs) == pytest.approx(tuple(expected), abs=1e-12)


def test_the_median_is_the_quantile_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    draw = Random(5)
    for size in range(1, 40):
        values = [draw.uniform(-1e6, 1e6) for _ in range(size)]
        assert median(values) == pytest.approx(stats.scoreatpercentile(values, 50), rel=1e-12)
