import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.contracts import launcher
from harness.contracts.launcher import tied_to_parent
from harness.java import JavaRuntime
from harness.systems.apache_kafka import cache as cache_module
from harness.systems.apache_kafka.cache import VersionCache, version_cache
from harness.systems.apache_kafka.command import node_command
from harness.systems.apache_kafka.jars import Jar
from harness.systems.apache_kafka.versions import parse_version
from nemesis.agent.processes.procfs import process_start

JAVA = JavaRuntime(home=Path("/opt/java"), version="17.0.1", source="PATH")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VersionCache:
    jars = tuple(
        Jar(group="g", artifact=name, version="1", bytes=1, sha256="") for name in ("a", "b")
    )
    monkeypatch.setattr(cache_module, "locked_jars", lambda _: jars)
    return version_cache(parse_version("4.1.2"), tmp_path)


def test_a_node_is_started_by_its_class_with_its_properties(cache: VersionCache) -> None:
    command = node_command(cache, JAVA, "/log")
    assert command[0] == "/opt/java/bin/java"
    assert command[-2:] == ["kafka.Kafka", "/log/server.properties"]
    place = command.index("-cp") + 1
    assert command[place] == f"{cache.lib}/a-1.jar:{cache.lib}/b-1.jar"
    assert "-Dlog4j2.configurationFile=file:///log/log4j2.properties" in command
    assert "-Xmx192m" in command
    assert "-Xmx300m" in node_command(cache, JAVA, "/log", heap_mib=300)


def test_up_to_3_9_the_other_logging_backend_is_configured(
    cache: VersionCache, tmp_path: Path
) -> None:
    old = VersionCache(version=parse_version("3.9.1"), directory=tmp_path)
    assert "-Dlog4j.configuration=file:///a%20b/log4j.properties" in node_command(old, JAVA, "/a b")


def test_the_archive_of_this_java_is_used_if_there_is_one(cache: VersionCache) -> None:
    assert not [flag for flag in node_command(cache, JAVA, "/log") if "SharedArchive" in flag]
    archive = cache.archive(JAVA)
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"")
    assert f"-XX:SharedArchiveFile={archive}" in node_command(cache, JAVA, "/log")
    other = JavaRuntime(home=JAVA.home, version="17.0.2", source="PATH")
    assert cache.archive(other) != archive


def test_a_node_of_this_machine_is_started_through_the_launcher(cache: VersionCache) -> None:
    command = node_command(cache, JAVA, "/log", python=sys.executable)
    assert command[:4] == [sys.executable, "-I", "-S", launcher.__file__]
    assert command[4:] == node_command(cache, JAVA, "/log")


PARENT = """
import subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""
"""Starts a program, prints its pid when that has printed a line, and waits."""


def test_a_launched_program_ends_with_the_process_that_started_it() -> None:
    command = tied_to_parent(["/bin/sh", "-c", "echo $$; exec sleep 600"], sys.executable)
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        began = process_start(pid)
        assert began, "the program runs under the pid that its parent knows"
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    try:
        while process_start(pid) == began:
            time.sleep(0.01)
    finally:
        if process_start(pid) == began:
            os.kill(pid, signal.SIGKILL)


def test_a_launched_program_has_the_pid_of_its_launcher() -> None:
    command = tied_to_parent(["/bin/sh", "-c", "echo $$"], sys.executable)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as launched:
        assert launched.stdout is not None
        assert int(launched.stdout.read()) == launched.pid
    assert launched.returncode == 0


def test_a_program_whose_parent_has_ended_already_is_not_started(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(write)
    command = tied_to_parent(["/bin/sh", "-c", f"echo > {tmp_path}/started"], sys.executable)
    done = subprocess.run(command, stdin=read, capture_output=True, text=True, check=False)
    os.close(read)
    assert done.returncode == 1
    assert "has ended" in done.stderr
    assert not (tmp_path / "started").exists()
