"""Benchmarks are run by hand; what they import may move meanwhile."""

import importlib
import pkgutil

import pytest

import benchmarks
from benchmarks.bench_guided import Searched, Way, summary
from harness.runs.experiment import Experiment

NAMES = sorted(module.name for module in pkgutil.walk_packages(benchmarks.__path__, "benchmarks."))


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_can_be_imported(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__


def test_two_ways_to_search_are_compared_in_pairs() -> None:
    def searched(runs: int, cpu_s: float, *, is_found: bool = True) -> Searched:
        return Searched(runs=runs, cpu_s=cpu_s, is_found=is_found)

    pairs = [
        (searched(30, 60.0), searched(10, 20.0)),
        (searched(8, 16.0), searched(2, 4.0)),
        (searched(50, 99.0, is_found=False), searched(25, 49.5)),
    ]
    ways = [Way(name=name, experiment=Experiment()) for name in ("plain", "guided")]
    found = summary(pairs, ways)
    assert found["plain"] == {
        "runs": [30, 8, 50],
        "runs_median": 30,
        "cpu_s_median": 60.0,
        "found": 2,
    }
    assert found["guided"]["found"] == 3
    assert found["cpu_ratio_median"] == 0.333
    low, high = found["cpu_ratio_interval"]
    assert 0.25 <= low <= 0.333 <= high <= 0.5
