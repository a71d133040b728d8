"""What a run declares in its own record."""

from types import SimpleNamespace
from typing import Any

from harness.runs.promises import checkers_of


def test_a_checker_that_a_workload_and_its_settings_name_is_named_once() -> None:
    """A history that names one twice is refused, because its findings would be counted as often."""

    def named(by_type: tuple[str, ...], **settings: Any) -> tuple[str, ...]:
        experiment: Any = SimpleNamespace(
            workload_type=SimpleNamespace(checkers=by_type), workload=SimpleNamespace(**settings)
        )
        return checkers_of(experiment)

    assert named(("log", "groups")) == ("log", "groups")
    assert named(("log", "groups"), checkers=("times", "log")) == ("log", "groups", "times")
    assert named(("log", "log")) == ("log",)
