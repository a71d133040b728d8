"""The tests in this folder share a machine, and do not run beside each other."""

import pytest


def test_one_worker_runs_all_tests_of_this_folder(request: pytest.FixtureRequest) -> None:
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("only with several workers (-n 2 --dist loadgroup)")
    why = "this pytest-xdist ignores groups under this pytest"
    assert request.node.nodeid.endswith("@containers"), why
