"""Benchmarks are run by hand; what they import may move meanwhile."""

import importlib
import pkgutil

import pytest

import benchmarks
from benchmarks import bench_shrinks
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


def test_shrinks_are_summarized_by_size_time_and_what_was_confirmed() -> None:
    def row(took_s: float, **values: object) -> dict[str, object]:
        base = {"on": "", "took_s": took_s, "exit_code": 1, "faults": 3, "confirmed": 0}
        return {**base, "attempts": 0, **values}

    rows = [
        row(10.0),
        row(30.0, faults=5),
        row(20.0, exit_code=254, faults=None),
        row(0.0, on="docker", confirmed=2, attempts=3),
        row(0.0, on="docker", attempts=3),
    ]
    assert bench_shrinks.summary(rows) == [
        "2 of 3 runs shrunk to an invalid run with the same finding; faults: median 4, most 5; "
        "seconds: median 20, longest 30",
        "docker: 1 of 2 confirmed, in 2 of 6 attempts",
    ]
