"""The time per group of tests that `make test` prints."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.group_times import GroupTimes, group_of
from tests.parts import parts

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("node_id", "group"),
    [
        ("tests/unit/test_a.py::test_b", "unit"),
        ("tests/unit/log/test_a.py::test_b[x/y]", "unit"),
        ("tests/wire/test_a.py::Test::test_b", "wire"),
        ("tests/test_a.py::test_b", "(other)"),
        ("elsewhere/unit/test_a.py::test_b", "(other)"),
    ],
)
def test_a_group_is_the_first_folder_below_tests(node_id: str, group: str) -> None:
    assert group_of(node_id) == group


def report(node_id: str, when: str, duration_s: float) -> pytest.TestReport:
    return pytest.TestReport(
        node_id,
        ("", 0, ""),
        {},
        "passed",
        None,
        when,
        duration=duration_s,  # type: ignore[arg-type]
    )


def test_all_phases_count_and_the_longest_group_is_first() -> None:
    times = GroupTimes()
    for when in ("setup", "call", "teardown"):
        times.pytest_runtest_logreport(report("tests/unit/test_a.py::test_b", when, 0.5))
        times.pytest_runtest_logreport(report("tests/wire/test_a.py::test_b", when, 40.0))
    times.pytest_runtest_logreport(report("tests/unit/test_a.py::test_c", "setup", 0.25))
    assert times.lines() == ["wire    120.0 s      1 tests", "unit      1.8 s      2 tests"]


@pytest.mark.parametrize(
    "workers", parts([(), ("-n", "2")], quick=1), ids=["one-process", "two-workers"]
)
def test_the_summary_is_printed_once(workers: tuple[str, ...]) -> None:
    node = "tests/unit/harness/test_group_times.py::test_a_group_is_the_first_folder_below_tests"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", node, *workers, "-p", "no:cacheprovider"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("time per group") == 1
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("unit "))
    assert line.endswith("5 tests")
