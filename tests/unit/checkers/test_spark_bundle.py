"""The archive for Spark workers: the same bytes for the same content, and enough to run a seed."""

import json
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

from checkers import spark_bundle
from checkers.spark import SparkOptions
from checkers.spark_bundle import LEFT_OUT, PACKAGES, worker_bundle
from harness.campaigns.worker import ROW_KEYS
from harness.errors import HarnessFailure
from harness.runs import experiment_file as experiments
from harness.runs.code_version import code_version
from harness.runs.experiment import Experiment
from tests.cli.cli_helpers import call, refused


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Packs the code and one small package; returns the cache directory."""
    monkeypatch.setenv("LASTSTAND_CACHE", str(tmp_path / "cache"))
    packed = {"tomli-w": distribution("tomli-w")}
    monkeypatch.setattr(spark_bundle, "_distributions", lambda: packed)
    return tmp_path / "cache"


def test_it_is_made_once_and_its_bytes_do_not_depend_on_when(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = worker_bundle()
    content, made = path.read_bytes(), path.stat().st_ino
    assert (worker_bundle(), path.stat().st_ino) == (path, made)
    path.unlink()
    assert worker_bundle() == path
    assert path.read_bytes() == content
    monkeypatch.setattr(spark_bundle, "PYTHON", "3.99")
    assert worker_bundle() != path


def test_it_has_the_code_with_its_data_and_the_packages(small: Path) -> None:
    with zipfile.ZipFile(worker_bundle()) as archive:
        names = set(archive.namelist())
        description = json.loads(archive.read("laststand-bundle.json"))
    assert {f"{package}/__init__.py" for package in PACKAGES} <= names
    assert "harness/experiments/elr-compare.toml" in names
    assert "tomli_w/__init__.py" in names
    assert not [name for name in names if "__pycache__" in name or ".." in name]
    assert description["python"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert list(description["packages"]) == ["tomli-w"]


def test_old_archives_are_removed_when_another_one_is_made(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small / "bundles"
    folder.mkdir(parents=True)
    (folder / "spark-old.zip").write_bytes(b"")
    (folder / "mine.zip").write_bytes(b"")
    monkeypatch.setattr(spark_bundle, "UNUSED_S", -1)
    path = worker_bundle()
    assert sorted(one.name for one in folder.iterdir()) == sorted(["mine.zip", path.name])


def test_every_dependency_is_packed_and_nothing_that_workers_bring() -> None:
    packed = spark_bundle._distributions()
    assert {"laststand", "pyarrow", "numpy", "pandas", "kio", "msgspec"} <= packed.keys()
    assert not packed.keys() & LEFT_OUT
    assert "pytest" not in packed


def test_a_package_without_a_list_of_files_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_bundle, "_is_editable", lambda _: True)
    with pytest.raises(HarnessFailure, match="the package tomli-w cannot be packed"):
        list(spark_bundle._files_of("tomli-w", distribution("tomli-w")))


def test_the_command_writes_it(
    small: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    output = tmp_path / "bundle.zip"
    outcome = call(capsys, "bundle", "spark", "-o", output, "--json")
    assert outcome.code == 0
    assert outcome.data["bundle"] == str(output)
    assert outcome.data["size_bytes"] == output.stat().st_size > 10_000
    assert output.read_bytes() == worker_bundle().read_bytes()
    assert "must end with .zip" in refused(capsys, "bundle", "spark", "-o", tmp_path / "x.tar")
    assert "cannot be written" in refused(
        capsys, "bundle", "spark", "-o", tmp_path / "none" / "x.zip"
    )


def test_which_masters_have_workers_elsewhere() -> None:
    elsewhere = ("spark://host:7077", "yarn", "k8s://https://host", "local-cluster[2,1,1024]")
    assert all(SparkOptions(master=master).is_cluster for master in elsewhere)
    assert not any(SparkOptions(master=master).is_cluster for master in ("local[2]", "local[*]"))


@pytest.mark.long
def test_a_python_without_packages_runs_a_seed_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LASTSTAND_CACHE", str(tmp_path / "cache"))
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(worker_bundle()) as archive:
        archive.extractall(unpacked)
    python = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    experiment = Experiment(weather="calm", duration_ms=300, final_phase_ms=20000)
    request = {
        "experiment": experiments.to_data(experiment),
        "seed": 7,
        "arm": "a",
        "run": "arm-1/20260101T000000Z-7",
        "runs": str(tmp_path),
        "keep": True,
    }

    def answers(code: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [python, "-S", "-m", "harness.campaigns.worker", code],
            input=json.dumps(request) + "\n",
            env={"PYTHONPATH": unpacked.name, "PATH": "/usr/bin:/bin"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    finished = answers(code_version())
    assert finished.returncode == 0, finished.stderr
    row = json.loads(finished.stdout)
    assert (set(row), row["error"], row["verdict"]) == (set(ROW_KEYS), "", "valid")
    refusing = answers("0123456789abcdef")
    assert refusing.returncode == 1
    assert f"this worker has version {code_version()} of the code, not 0123" in refusing.stderr
