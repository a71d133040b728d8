import json
import os
import shutil
from importlib import metadata
from pathlib import Path

import pytest

from checkers.spark import archive_path
from harness.cli import doctor
from harness.cli.doctor import Finding, examine, fits, warm_up
from harness.cli.main import main
from harness.cli.progress import StandardErrorProgress
from harness.errors import HarnessFailure
from harness.java import JavaRuntime


def _named(findings: list[Finding], name: str) -> Finding:
    (found,) = (finding for finding in findings if finding.name == name)
    return found


def test_a_good_machine_has_only_good_findings(tmp_path: Path) -> None:
    findings = examine(tmp_path / "runs")
    assert [f.name for f in findings] == [
        "python",
        "packages",
        "java",
        "archive",
        "git",
        "disk",
        "results",
    ]
    assert all(finding.is_good for finding in findings), [finding.cells() for finding in findings]
    assert "pyspark 4.3" in _named(findings, "packages").text
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("version", "bounds", "fitting"),
    [
        ("4.3.0", ">=4.3,<4.4", True),
        ("4.4.0", "<4.4,>=4.3", False),
        ("4.3", ">=4.3.0", True),
        ("4.2.9", ">=4.3", False),
        ("10.0", ">=9,<11", True),
        ("25.0.2.1", ">=25,<26", True),
        ("2.9.post0", ">=2.7,<3", True),
        ("1", "", True),
    ],
)
def test_versions_are_compared_numerically(version: str, bounds: str, fitting: bool) -> None:
    assert fits(version, bounds) is fitting


def test_every_declared_bound_is_supported() -> None:
    for requirement in metadata.requires("laststand") or []:
        name_and_bounds = requirement.partition(";")[0]
        start = min(name_and_bounds.find(sign) for sign in "<>" if sign in name_and_bounds)
        assert isinstance(fits("1.0", name_and_bounds[start:].strip()), bool)
    with pytest.raises(ValueError, match="is not a supported version bound"):
        fits("1.0", "~=1.0")


def test_a_package_that_is_missing_or_too_old_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def version(name: str) -> str:
        if name == "kio":
            raise metadata.PackageNotFoundError(name)
        return "0.1" if name == "pyarrow" else "4.3.0"

    monkeypatch.setattr(
        doctor.metadata,
        "requires",
        lambda _: ["kio>=0.6", "pyarrow>=18,<27", "pyspark>=4.3", "x; extra == 'dev'"],
    )
    monkeypatch.setattr(doctor.metadata, "version", version)
    findings = examine(tmp_path)
    assert _named(findings, "kio").text == "kio>=0.6 is missing"
    assert _named(findings, "pyarrow").text == "pyarrow 0.1 does not fit >=18,<27"
    assert not _named(findings, "kio").is_good
    # Without its packages, the state of Spark is unknown.
    assert "java" not in {finding.name for finding in findings}


def test_without_java_the_hint_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def none() -> JavaRuntime:
        raise HarnessFailure("Spark needs Java 17 or newer; install one")

    monkeypatch.setattr(doctor, "find_java", none)
    finding = _named(examine(tmp_path), "java")
    assert not finding.is_good
    assert "install one" in finding.hint
    with pytest.raises(HarnessFailure):
        warm_up(StandardErrorProgress(quiet=True))


def test_a_missing_archive_and_a_missing_git_are_not_failures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LASTSTAND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)
    runtime = JavaRuntime(home=tmp_path, version="17.0.1", source="PATH")
    monkeypatch.setattr(doctor, "find_java", lambda: runtime)
    findings = examine(tmp_path)
    archive, git = _named(findings, "archive"), _named(findings, "git")
    assert archive.is_good
    assert archive.hint == "`laststand doctor --warm`"
    assert (git.is_good, git.text) == (True, "not found (optional)")


def test_warming_up_a_warm_machine_does_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LASTSTAND_CACHE", str(tmp_path))
    runtime = JavaRuntime(home=tmp_path, version="17.0.1", source="PATH")
    monkeypatch.setattr(doctor, "find_java", lambda: runtime)
    made: list[str] = []
    monkeypatch.setattr(doctor, "make_archive", lambda: made.append("made"))
    warm_up(StandardErrorProgress(quiet=True))
    assert made == ["made"]
    archive_path(runtime).parent.mkdir()
    archive_path(runtime).touch()
    warm_up(StandardErrorProgress(quiet=True))
    assert made == ["made"]


def test_a_full_disk_and_a_place_that_cannot_be_written_are_failures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage._replace(free=1 << 20))
    monkeypatch.setattr(os, "access", lambda *_: False)
    findings = examine(tmp_path / "runs")
    assert not _named(findings, "disk").is_good
    assert "--results" in _named(findings, "results").hint


def test_the_command_examines_the_directory_of_its_results_option(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    assert main(["doctor", "--results", str(tmp_path / "file")]) == 255
    assert "is not writable" in capsys.readouterr().out


def test_a_results_path_that_is_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not _named(examine(tmp_path / "file" / "runs"), "results").is_good


def test_the_command_prints_its_findings_and_fails_if_one_is_bad(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert {"name", "is_good", "text", "hint"} == set(findings[0])
    monkeypatch.setattr(doctor, "FREE_DISK_MB_MIN", 10**12)
    assert main(["doctor"]) == 255
    assert "BAD  disk" in capsys.readouterr().out
