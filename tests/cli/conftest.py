"""One stored run for all tests of the command line: V3b under kafka-4.0, the last-replica-standing bug itself."""

import shutil
from pathlib import Path

import pytest

from harness.cli.main import main

LOST_OFFSETS = [5, 6, 7, 8, 9]


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory; tests must not change it."""
    root = tmp_path_factory.mktemp("pristine")
    command = ["reproduce", "last-replica-standing", "--profile", "kafka-4.0"]
    assert main([*command, "--no-spark", "--quiet", "--results", str(root)]) == 1
    return (root / "latest").resolve()


@pytest.fixture
def stored(pristine: Path, tmp_path: Path) -> Path:
    """A copy of that run in its own store, for tests that damage it."""
    directory = tmp_path / "runs" / pristine.parent.name / pristine.name
    shutil.copytree(pristine, directory)
    return directory
