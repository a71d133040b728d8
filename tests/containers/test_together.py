"""The tests in this folder share a machine, and do not run beside each other."""

import pytest


def test_workers_get_this_folder_as_a_whole(request: pytest.FixtureRequest) -> None:
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("only with several workers (-n 2 --dist loadgroup)")
    why = "this pytest-xdist ignores groups under this pytest"
    assert request.node.nodeid.endswith("@containers"), why
