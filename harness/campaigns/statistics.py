"""The statistics of a comparison: exact test for paired outcomes, intervals for rates, the median."""

from collections.abc import Sequence
from math import comb, sqrt

Z_95 = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


def median(values: Sequence[float]) -> float | None:
    """Returns the median, None without values.

    Two middle values are interpolated as SQL's `percentile(x, 0.5)` does it, so that a campaign has the same
    numbers to the last bit whether Spark counted them or not.
    """
    if not values:
        return None
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return low + (high - low) * 0.5


def mcnemar_exact_p(only_first: int, only_second: int) -> float:
    """Returns the two-sided p-value of McNemar's exact test.

    Args:
        only_first: Pairs (seeds) in which only the first arm had the event.
        only_second: Pairs in which only the second arm had it.

    Returns:
        Probability of a split at least as uneven if both arms were alike; 1 without discordant pairs.

    Source:
        McNemar (1947); exact form: binomial test of the discordant pairs with probability one half.
    """
    discordant = only_first + only_second
    if discordant == 0:
        return 1.0
    tail = sum(comb(discordant, k) for k in range(min(only_first, only_second) + 1))
    return min(1.0, 2 * tail / (1 << discordant))


def holm_adjusted(p_values: Sequence[float]) -> list[float]:
    """Returns p-values adjusted for how many tests there are, in the same order.

    Source:
        Holm (1979), step-down method: keeps the chance of any false rejection, whatever the dependence.
    """
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def wilson_interval(events: int, runs: int) -> tuple[float, float]:
    """Returns the 95 % Wilson score interval of a rate; (0, 1) without runs.

    Source:
        Wilson (1927). Unlike the usual normal interval it is never empty at zero events.
    """
    if runs == 0:
        return (0.0, 1.0)
    rate = events / runs
    z2 = Z_95 * Z_95
    centre = (rate + z2 / (2 * runs)) / (1 + z2 / runs)
    half = Z_95 * sqrt(rate * (1 - rate) / runs + z2 / (4 * runs * runs)) / (1 + z2 / runs)
    # At the ends the limits are exact; rounding must not move them past the rate itself.
    low = 0.0 if events == 0 else max(0.0, centre - half)
    high = 1.0 if events == runs else min(1.0, centre + half)
    return (low, high)


def paired_difference_interval(
    both: int, only_first: int, only_second: int, neither: int
) -> tuple[float, float]:
    """Returns the 95 % interval of (rate of the first arm - rate of the second) for paired runs.

    Source:
        Newcombe (1998), method 10: Wilson limits of both rates, combined with their correlation.
    """
    runs = both + only_first + only_second + neither
    if runs == 0:
        return (-1.0, 1.0)
    first, second = both + only_first, both + only_second
    rate_1, rate_2 = first / runs, second / runs
    low_1, high_1 = wilson_interval(first, runs)
    low_2, high_2 = wilson_interval(second, runs)
    phi = _correlation(both, only_first, only_second, neither)
    down = (rate_1 - low_1) ** 2 - 2 * phi * (rate_1 - low_1) * (high_2 - rate_2)
    down += (high_2 - rate_2) ** 2
    up = (rate_2 - low_2) ** 2 - 2 * phi * (rate_2 - low_2) * (high_1 - rate_1)
    up += (high_1 - rate_1) ** 2
    difference = rate_1 - rate_2
    return (difference - sqrt(max(down, 0.0)), difference + sqrt(max(up, 0.0)))


def _correlation(both: int, only_first: int, only_second: int, neither: int) -> float:
    """Newcombe's phi, with his continuity correction where the arms agree more often than by chance."""
    product = (
        (both + only_first)
        * (only_second + neither)
        * (both + only_second)
        * (only_first + neither)
    )
    if product == 0:
        return 0.0
    runs = both + only_first + only_second + neither
    numerator = float(both * neither - only_first * only_second)
    if numerator > 0:
        numerator = max(numerator - runs / 2, 0.0)
    return numerator / sqrt(product)
