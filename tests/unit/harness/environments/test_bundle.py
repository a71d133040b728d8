"""What is brought to hosts: complete, the same every time, and able to run where nothing else is installed."""

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from harness.environments.hosts.bundle import bundle_files, bundle_version, make_bundle


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    with tarfile.open(fileobj=io.BytesIO(make_bundle())) as archive:
        archive.extractall(folder, filter="data")
    return folder


def run_alone(folder: Path, code: str) -> str:
    """Runs code with the bundle and the standard library, without any installed package."""
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {str(folder)!r}); {code}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_agent_runs_on_the_standard_library_alone(unpacked: Path) -> None:
    assert (
        run_alone(unpacked, "import nemesis.agent.server; print('kio' in sys.modules)") == "False\n"
    )


def test_a_node_runs_on_the_bundle_alone(unpacked: Path) -> None:
    code = "from system_under_test.process import main; main(['--help'])"
    assert "--config" in run_alone(unpacked, code)


def test_the_same_files_give_the_same_bytes() -> None:
    assert make_bundle() == make_bundle()


def test_the_image_does_not_change_with_the_agent() -> None:
    assert bundle_version(with_agent=False) != bundle_version(with_agent=True)
    assert not [name for name in bundle_files(with_agent=False) if name.startswith("harness/")]


def test_the_name_of_the_image_does_not_depend_on_how_packages_were_installed() -> None:
    assert not [name for name in bundle_files(with_agent=False) if name.endswith("/RECORD")]
