"""Prints how long each group of tests took. A group is the first folder below `tests/`."""

from dataclasses import dataclass

import pytest

OTHER = "(other)"


@dataclass(slots=True)
class _Total:
    count: int = 0
    duration_s: float = 0.0


class GroupTimes:
    """A pytest plugin. Mutable: the totals so far.

    With pytest-xdist the controller receives the reports of all workers. A total is the sum over all workers, and
    can therefore exceed the elapsed time.
    """

    def __init__(self) -> None:
        self._totals: dict[str, _Total] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds one phase of a test: its setup, which includes fixtures, its call or its teardown."""
        total = self._totals.setdefault(group_of(report.nodeid), _Total())
        total.duration_s += report.duration
        total.count += report.when == "setup"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints the totals, the longest first."""
        if not self._totals:
            return
        terminalreporter.section("time per group (summed over workers)")
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self) -> list[str]:
        """Returns one line per group, the longest first."""
        longest_first = sorted(
            self._totals.items(), key=lambda item: (-item[1].duration_s, item[0])
        )
        width = max(len(group) for group in self._totals)
        return [
            f"{group:<{width}} {total.duration_s:8.1f} s {total.count:6} tests"
            for group, total in longest_first
        ]


def group_of(node_id: str) -> str:
    """Returns the group of a test, for example "unit" for "tests/unit/log/test_log.py::test_append"."""
    parts = node_id.partition("::")[0].split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "tests" else OTHER
