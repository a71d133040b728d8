import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says nothing on a busy machine.
settings.register_profile("laststand", deadline=None)
settings.load_profile("laststand")

sys.path.insert(0, str(Path(__file__).parent.parent))


def pytest_configure(config: pytest.Config) -> None:
    """Adds the time per group to the summary; workers of pytest-xdist have no summary."""
    from tests.group_times import GroupTimes

    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(GroupTimes(), "group-times")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keeps the exit status for `tests.failed_again`, which must know whether all tests were run."""
    cache = getattr(session.config, "cache", None)
    if cache is not None and not hasattr(session.config, "workerinput"):
        cache.set("laststand/exit_status", int(exitstatus))


@pytest.fixture(autouse=True)
def _simulated_worlds_are_closed() -> Iterator[None]:
    """Puts the coroutines of simulated processes away, which otherwise complain when they are collected."""
    world_module = sys.modules.get("harness.simulation.world")
    if world_module is None:
        yield
        return
    with world_module.closing_all_worlds():
        yield
