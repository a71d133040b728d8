"""Files of a system's program on other hosts: the archive, its version, and commands that are moved to it."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from harness.environments.hosts.programs import moved, programs_version, write_programs


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "java"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_bytes(b"program")
    (folder / "bin" / "java").chmod(0o755)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "security").write_bytes(b"policy")
    (folder / "conf").symlink_to(tmp_path / "etc")
    (folder / "gone").symlink_to(tmp_path / "nothing")
    return folder


def archive_of(*paths: Path) -> dict[str, tuple[bytes, int]]:
    file = io.BytesIO()
    write_programs([str(path) for path in paths], file)
    file.seek(0)
    found = {}
    with tarfile.open(fileobj=file) as archive:
        for member in archive:
            data = archive.extractfile(member)
            assert data is not None, f"{member.name} is no file"
            found[f"/{member.name}"] = (data.read(), member.mode)
    return found


def test_the_archive_has_all_files_and_what_links_point_to(program: Path) -> None:
    library = program.parent / "clock.so"
    library.write_bytes(b"library")
    found = archive_of(program, library)
    assert {path: data for path, (data, _) in found.items()} == {
        f"{program}/bin/java": b"program",
        f"{program}/conf/security": b"policy",
        str(library): b"library",
    }
    assert found[f"{program}/bin/java"][1] & 0o111


def test_the_version_changes_with_any_file(program: Path) -> None:
    version = programs_version([str(program)])
    assert programs_version([str(program)]) == version
    os.utime(program / "bin" / "java", (1, 1))
    assert programs_version([str(program)]) != version


def test_every_path_of_a_command_is_moved_once() -> None:
    paths = ["/opt/java", "/opt/java/lib", "/cache"]
    command = [
        "/usr/bin/env",
        "LD_PRELOAD=/cache/clock.so",
        "/opt/java/bin/java",
        "-cp",
        "/cache/a:/cache/b",
    ]
    command += ["-XX:File=/opt/java/lib/x", "/log/server.properties"]
    assert moved(command, paths, "/root/opt/java") == [
        "/usr/bin/env",
        "LD_PRELOAD=/root/opt/java/cache/clock.so",
        "/root/opt/java/opt/java/bin/java",
        "-cp",
        "/root/opt/java/cache/a:/root/opt/java/cache/b",
        "-XX:File=/root/opt/java/opt/java/lib/x",
        "/log/server.properties",
    ]
